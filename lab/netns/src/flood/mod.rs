//! Attack traffic for experiments. This module refuses to send outside of a lab.
//!
//! Start at [`Flood`]. It has the content ([`Payload`]), the sources ([`Origin`]), the target
//! server, and the mandatory [`Limits`]. [`Flood::run`] works in the calling thread, which must be
//! in a namespace of a lab: call it in [`Namespace::run`](crate::Namespace::run).
//!
//! * `guard`: the safety checks. All code that sends calls them first.
//! * `initial`: valid QUIC Initial packets; `payload`: pools of datagrams.
//! * `frame`, `interface`, `emit`: frames and checksums, interfaces, sendmmsg(2).
//! * `pace`: rates and counts. `raw`: arbitrary frames, for tests.

mod emit;
mod error;
pub mod frame;
mod guard;
mod initial;
mod interface;
mod pace;
mod payload;
mod raw;

use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU64;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ipnet::IpNet;
use rand::SeedableRng as _;
use rand::rngs::SmallRng;
use serde::{Deserialize, Serialize};

pub use self::error::FloodError;
pub use self::initial::InitialFactory;
use self::pace::{Count, Pacer};
pub use self::payload::{DatagramPool, Payload};
pub use self::raw::RawSender;

/// Maximum duration of a flood.
pub const MAX_DURATION: Duration = Duration::from_secs(3600);
/// Number of datagrams in a system call.
const BATCH: usize = 64;
/// If this many packets failed and none was sent, the flood ends with an error.
const HOPELESS: u64 = 256;
/// Maximum time between two checks of the stop flag while the flood waits because of its rate
/// limit.
const STOP_LOOK: Duration = Duration::from_millis(50);

/// Source addresses of the datagrams.
#[derive(Debug, Clone)]
pub enum Origin {
    /// UDP sockets that are bound to these addresses of the sender. The flood cycles through them.
    /// Port 0 stands for any port. Answers arrive at the sockets but are not read.
    Sockets(Vec<SocketAddr>),
    /// Frames with forged sources. Each has a random address from `prefixes` and a random port from
    /// `ports`. Only prefixes of the target's address family are used, all with the same
    /// probability.
    Spoofed {
        /// Name of the interface to send on, usually [`IFNAME`](crate::plan::IFNAME).
        interface: String,
        /// Source prefixes.
        prefixes: Vec<IpNet>,
        /// Source ports.
        ports: RangeInclusive<u16>,
    },
}

impl Origin {
    /// Returns forged sources in `prefixes`. Frames leave through a host's usual interface, with
    /// unprivileged source ports.
    pub fn spoofed(prefixes: impl IntoIterator<Item = IpNet>) -> Self {
        Self::Spoofed {
            interface: crate::plan::IFNAME.to_owned(),
            prefixes: prefixes.into_iter().collect(),
            ports: 1024..=65535,
        }
    }

    /// Returns an origin of `count` sockets on `address`, each with its own port.
    pub fn ports_of(address: IpAddr, count: usize) -> Self {
        Self::Sockets(vec![SocketAddr::new(address, 0); count])
    }
}

/// Limits on the duration, the number of packets and the rate of a flood.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Time after which the flood ends, at most [`MAX_DURATION`].
    pub duration: Duration,
    /// Number of packets after which the flood ends, including failed ones.
    pub packets: u64,
    /// Average rate in packets per second, or `None` for no limit. A burst may have the packets of
    /// 10 ms, but at least one batch of 64.
    pub pps: Option<NonZeroU64>,
}

/// A flood, ready to run.
#[derive(Debug, Clone)]
pub struct Flood {
    /// Address and port of the target, which must be in the lab.
    pub target: SocketAddr,
    /// Source addresses of the datagrams.
    pub origin: Origin,
    /// Content of the datagrams.
    pub payload: Payload,
    /// Limits on the duration, the number of packets and the rate.
    pub limits: Limits,
    /// Seed of all random choices. With the same seed, a flood sends the same packets.
    pub seed: u64,
}

/// Results of a flood.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FloodReport {
    /// Number of packets that the kernel accepted.
    pub sent: u64,
    /// Number of packets that the kernel did not accept.
    pub errors: u64,
    /// Duration of the flood, in seconds.
    pub seconds: f64,
    /// Average number of packets sent per second.
    pub pps: f64,
    /// The last error of the kernel, or `None` if it accepted all packets.
    pub last_error: Option<String>,
}

/// Progress of a flood. It is reported when the first packets are sent, and then once per second.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Progress {
    /// Seconds since the flood began.
    pub seconds: f64,
    /// Packets sent so far.
    pub sent: u64,
    /// Packets that failed so far.
    pub errors: u64,
    /// Packets sent per second since the last report, or 0 in the first report.
    pub pps: f64,
}

impl Flood {
    /// Sends packets until a limit is reached or `stop` is set (checked at least every 50 ms).
    /// Calls `progress` when the first packets are sent, and then about once per second.
    ///
    /// # Errors
    /// Fails before anything is sent if a safety check fails (see [`FloodError`]). Single failed
    /// packets are only counted in the report. If the first 256 packets all fail, returns
    /// [`FloodError::System`].
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
            if count.sent == 0 && batch.sent > 0 {
                progress(&Progress {
                    seconds: elapsed.as_secs_f64(),
                    sent: batch.sent,
                    errors: count.errors,
                    pps: 0.0,
                });
            }
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
                "the duration {:?} is out of range: it must be above zero and at most {MAX_DURATION:?}",
                self.duration
            )));
        }
        if self.packets == 0 {
            return Err(FloodError::Invalid("the limit of packets must be above 0".into()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flood_limits_are_mandatory() {
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
