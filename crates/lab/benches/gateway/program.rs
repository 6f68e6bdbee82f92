//! Nanoseconds per packet of the XDP program, for each way through it, as a ratio to a program that only
//! passes.

use std::time::Duration;

use equic_gateway::{Config, Gateway, Guard, ObjectSource};
use equic_lab::flood::frame::udp_frame;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{RngCore, SeedableRng};
use serde::Serialize;

use crate::{Figure, Result};

const REPEAT: u32 = 20_000;
/// Attempts that each open a connection; each is run once, as a second run would be under way.
const OPENINGS: usize = 2_000;
const SOURCE: &str = "198.51.100.7:50000";
const SERVICE: &str = "192.0.2.1:443";

/// Everything on, with room enough that no bucket refuses.
const FEATURES: [(&str, &str); 5] = [
    ("max_connections", "100000"),
    ("new_per_source", "100000000/s"),
    ("new_per_service", "100000000/s"),
    ("packets_per_source", "900000000/s"),
    ("bytes_per_source", "900GB/s"),
];

/// One way through the program.
struct Path {
    what: &'static str,
    expected: Option<&'static str>,
    /// At most so many times the null program's time.
    target: Option<f64>,
    gateway: Gateway,
    frames: Vec<Vec<u8>>,
    _held: Vec<Guard>,
    ratios: Vec<f64>,
    nanos: Vec<f64>,
}

impl Path {
    fn new(
        what: &'static str,
        expected: Option<&'static str>,
        target: Option<f64>,
        settings: &[(&str, &str)],
        frames: Vec<Vec<u8>>,
    ) -> Result<Path> {
        let gateway = Gateway::load(&Config::for_port(443), ObjectSource::Embedded)?;
        for (key, value) in settings {
            gateway.control().set(key, value)?;
        }
        let (ratios, nanos) = (Vec::new(), Vec::new());
        Ok(Path { what, expected, target, gateway, frames, _held: Vec::new(), ratios, nanos })
    }

    fn holding(mut self, connections: usize) -> Result<Path> {
        let service = self.gateway.ledger()?.service_at(0)?;
        let source: std::net::SocketAddr = SOURCE.parse()?;
        self._held = (0..connections).map(|_| service.opened(source)).collect();
        Ok(self)
    }

    /// Nanoseconds per packet, of the path and of the null program, in this round.
    fn round(&mut self, null: &Null) -> Result<()> {
        let repeat = if self.frames.len() > 1 { 1 } else { REPEAT };
        let (mut ours, mut base) = (Duration::ZERO, Duration::ZERO);
        for frame in &self.frames {
            base += null.run(frame, repeat)?;
            ours += self.gateway.test_run_repeat(frame, None, repeat)?.duration;
        }
        if self.frames.len() > 1 {
            // The next round's attempts have to be new again.
            self.frames = openings(u64::from(ours.subsec_nanos()));
        }
        self.ratios.push(ours.as_secs_f64() / base.as_secs_f64());
        self.nanos.push(ours.as_secs_f64() * 1e9 / self.frames.len() as f64);
        Ok(())
    }

    /// Every packet must have ended as the path says.
    fn check(&self, rounds: usize) -> Result<()> {
        let Some(expected) = self.expected else { return Ok(()) };
        for row in self.gateway.control().counters()? {
            let share = row.packets as f64 / (rounds * self.frames.len()) as f64;
            if row.reason.name() != expected && share > 0.001 {
                let other = row.reason.name();
                return Err(
                    format!("{}: packets ended as `{other}`, not {expected}", self.what).into()
                );
            }
        }
        Ok(())
    }
}

fn frame_of(datagram: &[u8], source: &str) -> Vec<u8> {
    let (source, target) = (source.parse().expect("constant"), SERVICE.parse().expect("constant"));
    udp_frame([2; 6], [4; 6], source, target, datagram).expect("one family, 1200 bytes")
}

fn short_header() -> Vec<u8> {
    let mut datagram = vec![0x5a; 1200];
    datagram[0] = 0x40;
    datagram
}

/// A version 1 Initial as the program sees one; its payload would not decrypt.
fn initial(scid: u64, dcid: u64) -> Vec<u8> {
    let mut datagram = vec![0xc0, 0, 0, 0, 1, 8];
    datagram.extend(dcid.to_be_bytes());
    datagram.push(8);
    datagram.extend(scid.to_be_bytes());
    datagram.extend([0, 0x44, 0x00]);
    datagram.resize(1200, 0x5a);
    datagram
}

fn openings(seed: u64) -> Vec<Vec<u8>> {
    let mut rng = SmallRng::seed_from_u64(seed);
    (0..OPENINGS).map(|_| frame_of(&initial(rng.next_u64(), rng.next_u64()), SOURCE)).collect()
}

fn paths() -> Result<Vec<Path>> {
    let one = |datagram: Vec<u8>| vec![frame_of(&datagram, SOURCE)];
    let elsewhere = vec![
        udp_frame([2; 6], [4; 6], SOURCE.parse()?, "192.0.2.1:53".parse()?, &[0; 1200])
            .ok_or("one family")?,
    ];

    // A source that opened nothing for that long is not looked up among the handshakes: the state a
    // flood over the quota is in once it lasts.
    let limit = [("max_connections", "4"), ("handshake_timeout", "100ms")];
    let strict = [("max_connections", "4"), ("policy", "strict")];
    let denied =
        Path::new("denied source", Some("denied"), Some(6.0), &FEATURES, one(short_header()))?;
    denied.gateway.control().deny("198.51.100.0/24".parse()?, None)?;
    let all = Path::new(
        "established, every feature on",
        Some("established"),
        Some(12.0),
        &FEATURES,
        one(short_header()),
    )?;
    all.gateway.control().deny("203.0.113.0/24".parse()?, None)?;
    Ok(vec![
        Path::new("not to a service", None, None, &[], elsewhere)?,
        Path::new("established, no limits", Some("established"), None, &[], one(short_header()))?,
        all,
        denied,
        Path::new("over quota, policy new", Some("quota"), Some(6.0), &limit, one(initial(1, 2)))?
            .holding(5)?,
        Path::new(
            "over quota, policy strict",
            Some("quota_strict"),
            Some(6.0),
            &strict,
            one(short_header()),
        )?
        .holding(5)?,
        Path::new(
            "new connection, through all buckets",
            Some("new"),
            Some(20.0),
            &FEATURES,
            openings(1),
        )?,
    ])
}

/// `return XDP_PASS`.
struct Null(i32);

impl Null {
    fn load() -> Result<Null> {
        let insn = |code, imm| libbpf_sys::bpf_insn { code, imm, ..Default::default() };
        let program = [insn(0xb7, 2), insn(0x95, 0)];
        // SAFETY: the strings end in NUL, and the array has as many instructions as are said.
        let fd = unsafe {
            libbpf_sys::bpf_prog_load(
                libbpf_sys::BPF_PROG_TYPE_XDP,
                c"null".as_ptr(),
                c"GPL".as_ptr(),
                program.as_ptr(),
                program.len() as u64,
                std::ptr::null_mut(),
            )
        };
        if fd < 0 {
            Err(format!("loading the null program failed ({fd}): run as root").into())
        } else {
            Ok(Null(fd))
        }
    }

    fn run(&self, frame: &[u8], repeat: u32) -> Result<Duration> {
        let mut options = libbpf_sys::bpf_test_run_opts {
            sz: size_of::<libbpf_sys::bpf_test_run_opts>() as u64,
            data_in: frame.as_ptr().cast(),
            data_size_in: frame.len() as u32,
            repeat: repeat as i32,
            ..Default::default()
        };
        // SAFETY: the descriptor is a program's, and the frame outlives the call.
        let result = unsafe { libbpf_sys::bpf_prog_test_run_opts(self.0, &raw mut options) };
        if result < 0 {
            Err(format!("BPF_PROG_TEST_RUN failed ({result})").into())
        } else {
            Ok(Duration::from_nanos(options.duration.into()))
        }
    }
}

/// Cost of one way through the program.
#[derive(Serialize)]
pub(crate) struct Row {
    pub what: &'static str,
    /// Nanoseconds per packet.
    pub nanos: Figure,
    /// The same, as a multiple of the null program's in the same round.
    pub times_null: Figure,
    /// At most so many times.
    pub aim: Option<f64>,
}

/// Measures every path so often, in random order.
pub(crate) fn measure(rounds: usize, rng: &mut SmallRng, tell: &dyn Fn(usize)) -> Result<Vec<Row>> {
    let null = Null::load()?;
    let mut paths = paths()?;
    let mut order: Vec<usize> = (0..paths.len()).collect();
    for round in 0..rounds {
        order.shuffle(rng);
        for index in &order {
            paths[*index].round(&null)?;
        }
        tell(round + 1);
    }
    let mut rows = Vec::new();
    for path in paths {
        path.check(rounds)?;
        rows.push(Row {
            what: path.what,
            nanos: Figure::of(path.nanos, rng)?,
            times_null: Figure::of(path.ratios, rng)?,
            aim: path.target,
        });
    }
    Ok(rows)
}
