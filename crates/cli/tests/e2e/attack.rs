//! Floods for tests: with a fixed number of packets, or until they are stopped.

use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use equic_gateway::IpNet;
use equic_netns::Namespace;
use equic_netns::flood::{
    DatagramPool, Flood, FloodReport, InitialFactory, Limits, MAX_DURATION, Origin, Payload,
};
use rand::rngs::SmallRng;
use rand::{RngCore as _, SeedableRng as _};

/// Returns a lock that tests hold while they flood. Two floods at the same time would affect each
/// other's results.
pub(crate) fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the seed in the variable EQUIC_SEED, or a new one. Prints the seed, so that a failure
/// can be replayed.
pub(crate) fn seed() -> u64 {
    let seed = match std::env::var("EQUIC_SEED") {
        Ok(text) => text.parse().expect("EQUIC_SEED is a number"),
        Err(_) => rand::random(),
    };
    eprintln!("EQUIC_SEED={seed}");
    seed
}

/// Returns a payload that cycles through `count` valid Initial packets.
pub(crate) fn initials(count: usize) -> Payload {
    let factory = InitialFactory::new("10.77.0.1", &["h3"]).expect("a name");
    pool(DatagramPool::initials(&factory, count, seed()))
}

/// Returns packets with short headers that belong to no connection.
pub(crate) fn garbage() -> Payload {
    pool(DatagramPool::short_headers(64, 100, seed()))
}

/// Returns packets with long headers of a reserved version (RFC 9000 s.15), which no server
/// accepts.
pub(crate) fn future_versions() -> Payload {
    initials_of([0x1a, 0x2a, 0x3a, 0x4a])
}

/// Returns packets with valid Initial headers that no server can decrypt. Such packets cost a
/// server little.
pub(crate) fn undecryptable_initials() -> Payload {
    initials_of([0, 0, 0, 1])
}

/// Returns Initial packets of a version. They have two connection IDs of 8 bytes, no token, and
/// random bytes after the header.
fn initials_of(version: [u8; 4]) -> Payload {
    let mut rng = SmallRng::seed_from_u64(seed());
    let datagram = |_| {
        let mut datagram = vec![0; 1200];
        rng.fill_bytes(&mut datagram);
        datagram[0] = 0xc0;
        datagram[1..5].copy_from_slice(&version);
        datagram[5] = 8;
        datagram[14] = 8;
        // Token Length is 0. The two-byte Length that follows covers the rest.
        datagram[23] = 0;
        datagram[24..26].copy_from_slice(&(0x4000 | (1200u16 - 26)).to_be_bytes());
        datagram
    };
    pool(DatagramPool::new((0..256).map(datagram).collect()))
}

/// Returns a payload that repeats the same datagram.
pub(crate) fn datagram(datagram: Vec<u8>) -> Payload {
    pool(DatagramPool::new(vec![datagram]))
}

fn pool(pool: Result<DatagramPool, equic_netns::flood::FloodError>) -> Payload {
    Payload::Pool(Arc::new(pool.expect("a pool")))
}

/// Returns forged source addresses from a prefix.
pub(crate) fn spoofed(prefix: &str) -> Origin {
    Origin::spoofed([prefix.parse::<IpNet>().expect("a prefix")])
}

/// A flood that has not started yet.
pub(crate) struct Attack {
    pub target: SocketAddr,
    pub origin: Origin,
    pub payload: Payload,
    pub pps: u64,
}

impl Attack {
    /// Returns a flood from a real address of the sender, with a separate port.
    pub(crate) fn from(address: IpAddr, target: SocketAddr, payload: Payload, pps: u64) -> Attack {
        Attack { target, origin: Origin::ports_of(address, 1), payload, pps }
    }

    /// Sends `packets` packets from a host. Panics if the kernel does not accept all of them.
    pub(crate) fn send(self, host: &Namespace, packets: u64) -> FloodReport {
        let report = self.begin(host, packets).wait();
        assert_eq!((report.sent, report.errors), (packets, 0), "{report:?}");
        report
    }

    /// Starts to send, until the returned value is dropped.
    pub(crate) fn start(self, host: &Namespace) -> Underway {
        self.begin(host, u64::MAX)
    }

    fn begin(self, host: &Namespace, packets: u64) -> Underway {
        let limits = Limits { duration: MAX_DURATION, packets, pps: NonZeroU64::new(self.pps) };
        let Attack { target, origin, payload, .. } = self;
        let flood = Flood { target, origin, payload, limits, seed: seed() };
        let (host, stop) = (host.clone(), Arc::new(AtomicBool::new(false)));
        let stopped = Arc::clone(&stop);
        let work = move || {
            let run = || flood.run(&stopped, &mut |_| ());
            host.run(run).expect("the namespace is there").expect("the flood may run")
        };
        Underway { stop, thread: Some(std::thread::spawn(work)) }
    }
}

/// A running flood. Dropping the value ends it.
pub(crate) struct Underway {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<FloodReport>>,
}

impl Underway {
    pub(crate) fn end(self) -> FloodReport {
        self.stop.store(true, Ordering::Relaxed);
        self.wait()
    }

    fn wait(mut self) -> FloodReport {
        let thread = self.thread.take().expect("it has not been waited for");
        thread.join().expect("the flood does not fail")
    }
}

impl Drop for Underway {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
