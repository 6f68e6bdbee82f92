//! Compares the kernel's ways of moving datagrams of 1,452 bytes: system calls with and without
//! offloads, MSG_ZEROCOPY, SO_TXTIME, SO_BUSY_POLL, io_uring and AF_XDP. Run it with `make
//! bench-kernel`. The results are in docs/notebook/performance.md ("The kernel's ways").
//!
//! One thread on one CPU sends a batch and then receives it, so the figures include no waiting.
//! Figures are nanoseconds of the thread's CPU time (CLOCK_THREAD_CPUTIME_ID) for each datagram,
//! separately for sending and receiving. On one machine, the time of sending includes the delivery
//! to the receiver's socket (soft interrupts).
//!
//! Each round measures every way once, in a different order. Before the first round, every way runs
//! once without being counted. The output has the medians of the rounds with the median's 95 %
//! interval. It also has the ratio, round by round, to the way that the socket layer uses. If the
//! kernel does not offer a way, the output lists it with its error. This is not a failure.
//!
//! * `--rounds N`: the number of rounds (default 200); `--quick`: 5 rounds;
//! * `--markdown`: prints a Markdown table;
//! * `--place loopback|veth|veth-plain`: measures only this place.
//!
//! The files:
//!
//! * `ways.rs`: the list of ways; `calls.rs`, `ring.rs`, `xdp.rs`: their implementations;
//!   `busy.rs`: waking a thread;
//! * `message.rs`, `mapping.rs`: memory; `place.rs`: namespaces and interfaces; `figures.rs`:
//!   statistics.

mod busy;
mod calls;
mod figures;
mod mapping;
#[allow(dead_code, reason = "the bench of the floor uses more of it")]
#[path = "../common/message.rs"]
mod message;
mod place;
mod ring;
mod ways;
mod xdp;

use std::io;
use std::mem::MaybeUninit;
use std::time::{Duration, Instant};

use nix::libc;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;

use crate::figures::Figures;
use crate::place::{Kind, Place};
use crate::ways::Way;

/// Bytes of a datagram, as the benchmark's implementations send it (docs/bench-contract.md).
pub(crate) const DATAGRAM: usize = 1452;
/// Datagrams of a GSO batch, whose size is limited to that of an IP packet.
pub(crate) const GSO: usize = 44;
/// Datagrams of a measurement.
const DATAGRAMS: usize = 4 * GSO;
/// Time after which datagrams count as lost.
const PATIENCE: Duration = Duration::from_secs(5);

/// Sends datagrams through the kernel.
pub(crate) trait Sender {
    /// Writes the bytes that are sent next, because sealing packets also writes them just before
    /// they are sent. Returns false if they are too few to matter. The kernel may still send from
    /// this memory. The receiver would then see the new bytes, but it does not look at them.
    fn prepare(&mut self) -> bool {
        false
    }

    /// Sends as many datagrams as this way sends at once, and returns their number.
    fn send(&mut self) -> io::Result<usize>;

    /// Reclaims memory from which the kernel sends. Returns true if the kernel uses no memory of
    /// the sender now.
    fn settle(&mut self) -> io::Result<bool> {
        Ok(true)
    }

    /// Returns a remark for the output below the table, such as how many batches the kernel copied,
    /// or `None` if there is no remark.
    fn note(&self) -> Option<String> {
        None
    }
}

/// Receives datagrams from the kernel.
pub(crate) trait Receiver {
    /// Receives with one call, and returns the number of datagrams. Returns an error of kind
    /// `WouldBlock` if there are no datagrams.
    fn receive(&mut self) -> io::Result<usize>;
}

/// Returns a remark on how many of all batches the kernel copied despite MSG_ZEROCOPY or
/// SENDMSG_ZC.
pub(crate) fn copied(copied: usize, all: usize) -> String {
    format!("of {all} batches the kernel copied {copied} after all")
}

fn time(clock: libc::clockid_t) -> io::Result<u64> {
    let mut time = MaybeUninit::<libc::timespec>::uninit();
    // SAFETY: the pointer refers to memory for a timespec, which the call fills in.
    let result = unsafe { libc::clock_gettime(clock, time.as_mut_ptr()) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has succeeded, and has therefore filled in the memory.
    let time = unsafe { time.assume_init() };
    Ok(u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000
        + u64::try_from(time.tv_nsec).unwrap_or(0))
}

/// Returns the CPU time of this thread so far, in nanoseconds.
pub(crate) fn thread_time() -> io::Result<u64> {
    time(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Returns the time of the clock that SO_TXTIME uses, in nanoseconds.
pub(crate) fn monotonic() -> io::Result<u64> {
    time(libc::CLOCK_MONOTONIC)
}

/// Returns the cost of reading the clock, in nanoseconds.
fn clock_time() -> io::Result<u64> {
    let mut all = [0; 1001];
    for time in &mut all {
        let start = thread_time()?;
        *time = thread_time()? - start;
    }
    all.sort_unstable();
    Ok(all[all.len() / 2])
}

/// Sends all datagrams of a measurement and receives them. Returns the CPU time of sending and of
/// receiving, in nanoseconds per datagram. `clock` is the cost of reading the clock in nanoseconds.
fn exchange(
    sender: &mut dyn Sender,
    receiver: &mut dyn Receiver,
    clock: u64,
) -> io::Result<[f64; 2]> {
    let (mut sent, mut received) = (0, 0);
    let mut sending = 0;
    let mut prepared = sender.prepare();
    let mut start = thread_time()?;
    while sent < DATAGRAMS {
        sent += sender.send()?;
        if prepared && sent < DATAGRAMS {
            sending += (thread_time()? - start).saturating_sub(clock);
            prepared = sender.prepare();
            start = thread_time()?;
        }
    }
    sending += (thread_time()? - start).saturating_sub(clock);
    let begun = Instant::now();
    let start = thread_time()?;
    while received < sent {
        match receiver.receive() {
            Ok(count) => received += count,
            Err(error)
                if error.kind() == io::ErrorKind::WouldBlock && begun.elapsed() < PATIENCE =>
            {
                // A soft interrupt has not delivered the datagrams yet.
                std::thread::yield_now();
            }
            Err(error) => return Err(error),
        }
    }
    let receiving = (thread_time()? - start).saturating_sub(clock);
    let start = thread_time()?;
    while !sender.settle()? {
        if begun.elapsed() > PATIENCE {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "memory does not come back"));
        }
        std::thread::yield_now();
    }
    sending += (thread_time()? - start).saturating_sub(clock);
    if received != sent {
        return Err(io::Error::other("more was received than sent"));
    }
    Ok([sending, receiving].map(|time| time as f64 / sent as f64))
}

/// Arguments of the program.
struct Options {
    rounds: usize,
    markdown: bool,
    places: Vec<Kind>,
}

fn options() -> io::Result<Options> {
    let wrong = |what: &str| io::Error::new(io::ErrorKind::InvalidInput, what.to_owned());
    let all = [Kind::Loopback, Kind::Veth, Kind::VethPlain];
    let mut options = Options { rounds: 200, markdown: false, places: all.to_vec() };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match &*word {
            // Cargo passes this argument to every benchmark.
            "--bench" => {}
            "--markdown" => options.markdown = true,
            "--quick" => options.rounds = 5,
            "--rounds" => {
                let rounds = words.next().and_then(|word| word.parse().ok());
                options.rounds = rounds
                    .filter(|rounds| *rounds > 0)
                    .ok_or_else(|| wrong("--rounds needs a number above 0"))?;
            }
            "--place" => {
                let name = words.next().unwrap_or_default();
                let place = all.into_iter().find(|kind| kind.name() == name);
                options.places =
                    vec![place.ok_or_else(|| wrong("--place is loopback, veth or veth-plain"))?];
            }
            other => return Err(wrong(&format!("unknown argument: {other}"))),
        }
    }
    Ok(options)
}

fn main() {
    if let Err(error) = run() {
        eprintln!("kernel: {error}");
        std::process::exit(1);
    }
}

fn run() -> io::Result<()> {
    let options = options()?;
    for (at, &kind) in options.places.iter().enumerate() {
        if kind != Kind::Loopback && !nix::unistd::Uid::effective().is_root() {
            println!("{}: needs root", kind.name());
            continue;
        }
        if at > 0 {
            println!();
        }
        let place = Place::new(kind)?;
        println!(
            "{}: {} rounds; ns of CPU time for each datagram of {DATAGRAM} bytes, medians [95 % interval]",
            kind.name(),
            options.rounds
        );
        println!();
        ways(&place, kind, &options)?;
        println!();
        busy::measure(&place, options.rounds, options.markdown)?;
    }
    Ok(())
}

/// Measures all ways and prints the results.
fn ways(place: &Place, kind: Kind, options: &Options) -> io::Result<()> {
    // Soft interrupts run on the CPU that raises them. They then count as time of this thread.
    let everywhere = nix::sched::sched_getaffinity(Pid::from_raw(0))?;
    let mut one = CpuSet::new();
    one.set(nix::sched::sched_getcpu()?)?;
    sched_setaffinity(Pid::from_raw(0), &one)?;
    let clock = clock_time()?;
    let mut refused = Vec::new();
    let mut offered: Vec<(Way, Figures)> = Vec::new();
    for (name, way) in ways::all(place, kind) {
        // An error at the first attempt means that the kernel does not offer the way. Later errors
        // are failures.
        let tried = way.and_then(|mut way| {
            exchange(&mut *way.sender, &mut *way.receiver, clock)?;
            Ok(way)
        });
        match tried {
            Ok(way) => offered.push((way, Figures::new(name))),
            Err(error) => refused.push((name, error)),
        }
    }
    let mut order: Vec<usize> = (0..offered.len()).collect();
    let mut random = StdRng::seed_from_u64(1);
    for _ in 0..options.rounds {
        // The order is random, so that no way always finds the caches as the same other way leaves
        // them.
        order.shuffle(&mut random);
        for &at in &order {
            let (way, figures) = &mut offered[at];
            let mut once = || {
                exchange(&mut *way.sender, &mut *way.receiver, clock).map_err(|error| {
                    io::Error::new(error.kind(), format!("{}: {error}", figures.name))
                })
            };
            // The first exchange finds the caches as the previous way has left them. It does not
            // count.
            once()?;
            figures.push(once()?);
        }
    }
    sched_setaffinity(Pid::from_raw(0), &everywhere)?;
    let figures: Vec<_> = offered.iter().map(|(_, figures)| figures).collect();
    figures::print(&figures, ways::IN_USE, options.markdown);
    println!();
    for (way, figures) in &offered {
        if let Some(note) = way.sender.note() {
            println!("{}: {note}", figures.name);
        }
    }
    for (name, error) in refused {
        println!("{name}: not offered ({error})");
    }
    ways::probe(place)
}
