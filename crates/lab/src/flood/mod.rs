//! Attack traffic for experiments, which refuses to run anywhere but inside a lab.
//!
//! Start at [`Flood`]: what to send ([`Payload`]), from whom ([`Origin`]), at which server, and the
//! [`Limits`], which are not optional. [`Flood::run`] works in the calling thread, which has to be
//! in a namespace of a lab: call it in [`Namespace::run`](crate::Namespace::run).
//!
//! * `guard`: the refusals. Everything that sends asks it first.
//! * `initial`: QUIC Initials a server has to take seriously; `payload`: pools of datagrams.
//! * `frame`, `interface`, `emit`: frames and checksums, interfaces, sendmmsg(2).
//! * `raw`: frames of the caller's making, for tests.

mod emit;
pub mod frame;
mod guard;
mod initial;
mod interface;
mod payload;
mod raw;

use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU64;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ipnet::IpNet;
use rand::SeedableRng as _;
use rand::rngs::SmallRng;
use serde::{Deserialize, Serialize};

pub use self::initial::InitialFactory;
pub use self::payload::{DatagramPool, Payload};
pub use self::raw::RawSender;
use crate::LabError;

/// The longest a flood may be asked to last.
pub const MAX_DURATION: Duration = Duration::from_secs(3600);
/// Datagrams per system call.
const BATCH: usize = 64;
/// A flood of which these many packets failed and none was sent is given up.
const HOPELESS: u64 = 256;
/// How often a flood that waits for its rate looks at the stop flag.
const STOP_LOOK: Duration = Duration::from_millis(50);

/// Why a flood did not start, or could not go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FloodError {
    /// The calling thread is in the machine's own network.
    #[error(
        "refused: this thread is in the init network namespace; floods run inside a lab only \
         (Namespace::run, or a program started by Namespace::command)"
    )]
    InitNamespace,
    /// The calling thread is in some namespace, but no lab made it.
    #[error(
        "refused: this thread's network namespace belongs to no lab; floods run inside a lab only"
    )]
    NotInLab,
    /// Which namespace is which could not be told.
    #[error("refused: cannot tell which network namespace this is: {0}")]
    Unknown(String),
    /// The target is not an address of the lab.
    #[error(
        "refused: {0} is not an address of the lab; floods go to {v4} and {v6} only",
        v4 = crate::plan::ipv4_range(),
        v6 = crate::plan::ipv6_range()
    )]
    ForeignDestination(IpAddr),
    /// Frames may leave through veth only.
    #[error("refused: interface {ifname} is {driver:?}, not veth; frames stay inside the lab")]
    NotVeth {
        /// The interface.
        ifname: String,
        /// Its driver; empty if it has no name.
        driver: String,
    },
    /// The flood as described makes no sense.
    #[error("cannot flood: {0}")]
    Invalid(String),
    /// No Initial could be made.
    #[error("cannot make a QUIC Initial: {0}")]
    Initial(#[from] rustls::Error),
    /// The system refused.
    #[error("cannot {what}: {source}")]
    System {
        /// The operation, with its object.
        what: String,
        /// The system's answer.
        #[source]
        source: std::io::Error,
    },
    /// The records of labs could not be read.
    #[error(transparent)]
    Lab(#[from] LabError),
}

impl FloodError {
    fn system(what: impl Into<String>, source: impl Into<std::io::Error>) -> Self {
        Self::System { what: what.into(), source: source.into() }
    }
}

/// Who the datagrams claim to come from.
#[derive(Debug, Clone)]
pub enum Origin {
    /// UDP sockets bound to these addresses of the sender, in turn; port 0 is any port. Answers
    /// get back to them (and are not read).
    Sockets(Vec<SocketAddr>),
    /// Frames made by hand, each with a random address out of `prefixes` (those of the target's
    /// family, one as likely as another) and a random port out of `ports`.
    Spoofed {
        /// The interface, as a rule [`IFNAME`](crate::plan::IFNAME).
        interface: String,
        /// Source prefixes.
        prefixes: Vec<IpNet>,
        /// Source ports.
        ports: RangeInclusive<u16>,
    },
}

impl Origin {
    /// Spoofed sources out of `prefixes`, through a host's interface, from unprivileged ports.
    pub fn spoofed(prefixes: impl IntoIterator<Item = IpNet>) -> Self {
        Self::Spoofed {
            interface: crate::plan::IFNAME.to_owned(),
            prefixes: prefixes.into_iter().collect(),
            ports: 1024..=65535,
        }
    }

    /// `count` sockets on `address`, each on a port of its own.
    pub fn ports_of(address: IpAddr, count: usize) -> Self {
        Self::Sockets(vec![SocketAddr::new(address, 0); count])
    }
}

/// When a flood ends, and how fast it goes.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// It ends after this time, at most [`MAX_DURATION`].
    pub duration: Duration,
    /// It ends after this many packets, sent or failed.
    pub packets: u64,
    /// Packets per second on average, with bursts of at most 10 ms worth (or one batch of 64); as
    /// fast as possible if `None`.
    pub pps: Option<NonZeroU64>,
}

/// A flood, ready to run.
#[derive(Debug, Clone)]
pub struct Flood {
    /// The victim: an address of the lab.
    pub target: SocketAddr,
    /// Who sends.
    pub origin: Origin,
    /// What is sent.
    pub payload: Payload,
    /// When it ends.
    pub limits: Limits,
    /// Decides all that is random; the same seed sends the same.
    pub seed: u64,
}

/// What a flood did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FloodReport {
    /// Packets handed to the kernel.
    pub sent: u64,
    /// Packets the kernel did not take.
    pub errors: u64,
    /// How long it took, in seconds.
    pub seconds: f64,
    /// Packets sent per second, on average.
    pub pps: f64,
    /// The last thing the kernel said when it did not take one.
    pub last_error: Option<String>,
}

/// How a flood is getting on, once a second.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Progress {
    /// Since the beginning, in seconds.
    pub seconds: f64,
    /// Packets sent so far.
    pub sent: u64,
    /// Packets failed so far.
    pub errors: u64,
    /// Packets sent per second since the last call.
    pub pps: f64,
}

impl Flood {
    /// Sends until a limit is reached or `stop` is set (looked at every 50 ms at least), and calls
    /// `progress` about once a second.
    ///
    /// # Errors
    /// The refusals of [`FloodError`], before anything is sent. Single packets that fail are
    /// counted in the report; if the first 256 all fail, that is [`FloodError::System`].
    pub fn run(
        &self,
        stop: &AtomicBool,
        progress: &mut dyn FnMut(&Progress),
    ) -> Result<FloodReport, FloodError> {
        self.limits.check()?;
        guard::check_namespace()?;
        guard::check_destination(self.target.ip())?;
        let mut rng = SmallRng::seed_from_u64(self.seed);
        let mut emitter = emit::emitter(&self.origin, self.target, &mut rng)?;
        let mut payload = payload::Source::new(&self.payload, rng);
        let mut pacer = Pacer::new(self.limits.pps);
        let mut count = Count::default();
        while !stop.load(Ordering::Relaxed) {
            let elapsed = count.begun.elapsed();
            let left = self.limits.packets.saturating_sub(count.sent + count.errors);
            let Some(time) = self.limits.duration.checked_sub(elapsed).filter(|t| !t.is_zero())
            else {
                break;
            };
            if left == 0 {
                break;
            }
            count.tell(elapsed, progress);
            let due = pacer.due(elapsed).min(left).min(BATCH as u64) as usize;
            if due == 0 {
                std::thread::sleep(pacer.wait().min(time).min(STOP_LOOK));
                continue;
            }
            let batch = emitter.send(payload.take(due)?);
            pacer.spend(batch.sent + batch.errors);
            count.add(batch);
            if count.sent == 0 && count.errors >= HOPELESS {
                let source = count.last_error.unwrap_or_else(|| std::io::ErrorKind::Other.into());
                return Err(FloodError::system(format!("send to {}", self.target), source));
            }
        }
        Ok(count.report())
    }
}

impl Limits {
    fn check(&self) -> Result<(), FloodError> {
        if self.duration.is_zero() || self.duration > MAX_DURATION {
            return Err(FloodError::Invalid(format!(
                "a duration of {:?}; it has to be more than nothing and at most {MAX_DURATION:?}",
                self.duration
            )));
        }
        if self.packets == 0 {
            return Err(FloodError::Invalid("a limit of 0 packets".into()));
        }
        Ok(())
    }
}

struct Count {
    begun: Instant,
    sent: u64,
    errors: u64,
    last_error: Option<std::io::Error>,
    told_at: Duration,
    told_sent: u64,
}

impl Default for Count {
    fn default() -> Self {
        let told_at = Duration::ZERO;
        Self { begun: Instant::now(), sent: 0, errors: 0, last_error: None, told_at, told_sent: 0 }
    }
}

impl Count {
    fn add(&mut self, batch: emit::Batch) {
        self.sent += batch.sent;
        self.errors += batch.errors;
        if batch.error.is_some() {
            self.last_error = batch.error;
        }
    }

    fn tell(&mut self, elapsed: Duration, progress: &mut dyn FnMut(&Progress)) {
        let since = elapsed.saturating_sub(self.told_at);
        if since < Duration::from_secs(1) {
            return;
        }
        progress(&Progress {
            seconds: elapsed.as_secs_f64(),
            sent: self.sent,
            errors: self.errors,
            pps: (self.sent - self.told_sent) as f64 / since.as_secs_f64(),
        });
        (self.told_at, self.told_sent) = (elapsed, self.sent);
    }

    fn report(self) -> FloodReport {
        let seconds = self.begun.elapsed().as_secs_f64();
        FloodReport {
            sent: self.sent,
            errors: self.errors,
            seconds,
            pps: if seconds > 0.0 { self.sent as f64 / seconds } else { 0.0 },
            last_error: self.last_error.map(|e| e.to_string()),
        }
    }
}

/// A token bucket in packets.
struct Pacer {
    /// `None`: no limit.
    pps: Option<f64>,
    burst: f64,
    credit: f64,
    filled_at: Duration,
}

impl Pacer {
    fn new(pps: Option<NonZeroU64>) -> Self {
        let pps = pps.map(|pps| pps.get() as f64);
        let burst = (pps.unwrap_or_default() / 100.0).max(BATCH as f64);
        // The first packet goes at once.
        Self { pps, burst, credit: 1.0, filled_at: Duration::ZERO }
    }

    /// Packets that may be sent at `elapsed`.
    fn due(&mut self, elapsed: Duration) -> u64 {
        let Some(pps) = self.pps else { return u64::MAX };
        let since = elapsed.saturating_sub(self.filled_at).as_secs_f64();
        self.filled_at = elapsed;
        self.credit = (self.credit + since * pps).min(self.burst);
        self.credit as u64
    }

    fn spend(&mut self, packets: u64) {
        self.credit -= packets as f64;
    }

    /// Until the next packet is due.
    fn wait(&self) -> Duration {
        let missing = (1.0 - self.credit).max(0.0);
        Duration::try_from_secs_f64(missing / self.pps.unwrap_or(f64::INFINITY))
            .unwrap_or(STOP_LOOK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In virtual time: a second at each rate, in steps of 100 µs and with a stall of 200 ms.
    #[test]
    fn the_pacer_keeps_its_rate_and_does_not_catch_up_after_a_stall() {
        for pps in [1u64, 7, 1000, 100_000] {
            let mut pacer = Pacer::new(NonZeroU64::new(pps));
            let (mut smooth, mut stalled) = (0, 0);
            for step in 0..=10_000u64 {
                let due = pacer.due(Duration::from_micros(100 * step));
                pacer.spend(due);
                smooth += due;
            }
            assert!(smooth.abs_diff(pps) <= 1 + pps / 1000, "{smooth} at {pps}");
            stalled += pacer.due(Duration::from_millis(1200));
            assert!(stalled <= (pps / 100).max(64), "{stalled} at {pps}");
        }
        assert_eq!(Pacer::new(None).due(Duration::ZERO), u64::MAX);
    }

    #[test]
    fn limits_are_not_optional() {
        let good = Limits { duration: Duration::from_secs(1), packets: 1, pps: None };
        assert!(good.check().is_ok());
        for bad in [
            Limits { duration: Duration::ZERO, ..good },
            Limits { duration: MAX_DURATION + Duration::from_nanos(1), ..good },
            Limits { packets: 0, ..good },
        ] {
            assert!(matches!(bad.check(), Err(FloodError::Invalid(_))), "{bad:?}");
        }
    }
}
