//! Measures the least cost of a packet: the time that cryptography and the kernel take for
//! datagrams of 1,440 bytes, without other work. Run it with `make bench-floor`.
//! docs/notebook/performance.md derives a budget from it.
//!
//! Figures are nanoseconds of the thread's CPU time for each datagram (CLOCK_THREAD_CPUTIME_ID).
//! Waiting therefore costs nothing, and other programs have little influence. Each round measures
//! every row once. The output has the smallest mean of a round, which is the floor, and the median.
//!
//! * `--rounds N`: the number of rounds (default 200);
//! * `--markdown`: prints a Markdown table;
//! * `--veth FROM TO`: uses two network namespaces with these names instead of loopback. They have
//!   the addresses 10.251.0.1 and 10.251.0.2. scripts/bench-floor.sh creates them.
//!
//! The files:
//!
//! * `crypto.rs`: AEAD and header protection, with the transport's keys and with rustls's;
//!   `copied.rs`: decryption followed by a copy, or both in one pass;
//! * `kernel.rs`: sending and receiving, with the offloads and calls that Linux has; `wake.rs`:
//!   waking a thread;
//! * `apart.rs`: the whole transfer, with one CPU for each end;
//! * `options.rs`: the program's arguments (tested by `tests/quic/floor.rs`).

mod apart;
mod copied;
mod crypto;
mod kernel;
#[allow(dead_code, reason = "the bench of the kernel's ways uses more of it")]
#[path = "../common/message.rs"]
mod message;
mod options;
mod wake;

use std::io;
use std::mem::MaybeUninit;

use nix::libc;
use options::Options;

/// Bytes of a datagram: the 1,452 bytes that the benchmark's implementations may send
/// (docs/bench-contract.md), rounded down to whole AES blocks.
pub(crate) const DATAGRAM: usize = 1440;
/// Bytes of stream data in a datagram. A short header, the header of a STREAM frame, and a tag take
/// the rest.
pub(crate) const PAYLOAD: usize = 1400;

/// Returns the CPU time of this thread so far, in nanoseconds.
pub(crate) fn thread_time() -> io::Result<u64> {
    let mut time = MaybeUninit::<libc::timespec>::uninit();
    // SAFETY: the pointer refers to memory for a timespec, which the call fills in.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, time.as_mut_ptr()) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has succeeded, and has therefore filled in the memory.
    let time = unsafe { time.assume_init() };
    Ok(u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000
        + u64::try_from(time.tv_nsec).unwrap_or(0))
}

/// A row of the output: its name, and a function that measures one figure for each column, in
/// nanoseconds per datagram.
pub(crate) struct Row {
    pub name: &'static str,
    pub columns: &'static [&'static str],
    pub measure: Box<dyn FnMut() -> io::Result<Vec<f64>>>,
}

fn main() {
    if let Err(error) = run() {
        eprintln!("floor: {error}");
        std::process::exit(1);
    }
}

fn run() -> io::Result<()> {
    let options = Options::parse(std::env::args().skip(1))?;
    let place = kernel::Place::new(options.veth.as_ref());
    let mut rows = crypto::rows()?;
    rows.extend(copied::rows()?);
    rows.extend(kernel::rows(&place)?);
    rows.extend(wake::rows(&place)?);
    rows.extend(apart::rows(&place)?);
    // Figures by row, column and round.
    let mut figures: Vec<Vec<Vec<f64>>> =
        rows.iter().map(|row| vec![Vec::new(); row.columns.len()]).collect();
    for round in 0..options.rounds {
        for at in 0..rows.len() {
            // Each round begins with another row, so that no row is always the first.
            let at = (at + round) % rows.len();
            let taken = (rows[at].measure)().map_err(|error| {
                io::Error::new(error.kind(), format!("{}: {error}", rows[at].name))
            })?;
            for (column, figure) in figures[at].iter_mut().zip(taken) {
                column.push(figure);
            }
        }
    }
    println!(
        "{} rounds on {}; ns of CPU time for each datagram of {DATAGRAM} bytes",
        options.rounds,
        place.name()
    );
    println!();
    if options.markdown {
        println!("| what | part | smallest, ns | median, ns |\n| --- | --- | ---: | ---: |");
    }
    for (row, figures) in rows.iter().zip(&mut figures) {
        for (column, figures) in row.columns.iter().zip(figures) {
            figures.sort_by(f64::total_cmp);
            let (smallest, median) = (figures[0], figures[figures.len() / 2]);
            if options.markdown {
                println!("| {} | {column} | {smallest:.0} | {median:.0} |", row.name);
            } else {
                println!("{:<52} {column:<10} {smallest:>8.1} {median:>8.1}", row.name);
            }
        }
    }
    Ok(())
}
