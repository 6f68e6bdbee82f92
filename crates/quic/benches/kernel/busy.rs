//! Measures the cost of waking a thread that waits for a datagram, and the cost of busy waiting.
//! Two threads send one datagram back and forth.

use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd as _;
use std::thread;
use std::time::{Duration, Instant};

use nix::libc;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

use crate::figures::{Median, table};
use crate::message::set;
use crate::place::Place;
use crate::{DATAGRAM, thread_time};

/// Number of round trips in a measurement.
const TURNS: usize = 100;
/// Microseconds for which the kernel polls for datagrams before it lets the thread sleep.
const BUSY: libc::c_int = 50;
/// Time after which a datagram counts as lost.
const PATIENCE: Duration = Duration::from_secs(5);

/// Ways in which a thread waits for the next datagram of its socket.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wait {
    Sleep,
    BusyPoll,
    Spin,
}

const WAYS: [(&str, Wait); 3] = [
    ("wait in recv", Wait::Sleep),
    ("the same, SO_BUSY_POLL of 50 us", Wait::BusyPoll),
    ("recv without waiting, again and again", Wait::Spin),
];

/// Returns the receive queue (NAPI ID) of the last datagram, which busy polling polls. Returns 0 if
/// the datagram did not come through such a queue.
fn queue(socket: &UdpSocket) -> io::Result<u32> {
    let (mut value, mut length) = (0u32, size_of::<u32>() as libc::socklen_t);
    let pointer = (&raw mut value).cast();
    // SAFETY: the pointers refer to a number and to its length.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_INCOMING_NAPI_ID,
            pointer,
            &raw mut length,
        )
    };
    if result == 0 { Ok(value) } else { Err(io::Error::last_os_error()) }
}

pub(crate) fn measure(place: &Place, rounds: usize, markdown: bool) -> io::Result<()> {
    let mut offered = Vec::new();
    let mut refused = Vec::new();
    for (name, wait) in WAYS {
        let sockets = place.sockets()?;
        let mut outcome = Ok(());
        for socket in &sockets {
            socket.set_nonblocking(wait == Wait::Spin)?;
            socket.set_read_timeout(Some(PATIENCE))?;
            if wait == Wait::BusyPoll {
                outcome = set(socket, libc::SOL_SOCKET, libc::SO_BUSY_POLL, BUSY);
            }
        }
        match outcome {
            Ok(()) => offered.push((name, wait, sockets, Vec::new())),
            Err(error) => refused.push((name, error)),
        }
    }
    for round in 0..rounds {
        for at in 0..offered.len() {
            let at = (at + round) % offered.len();
            let (_, wait, sockets, figures) = &mut offered[at];
            figures.push(turns(sockets, *wait)?);
        }
    }
    let lines = offered.iter().map(|(name, _, _, figures)| {
        let of = |part: usize| Median::of(figures.iter().map(|figure| figure[part])).nanoseconds();
        [(*name).to_owned(), of(0), of(1)]
    });
    table(["one datagram to a thread that waits", "CPU, both ends", "time"], lines, markdown);
    println!();
    for (name, wait, sockets, _) in &offered {
        if *wait == Wait::BusyPoll && queue(&sockets[0])? == 0 {
            println!("{name}: taken, but datagrams come here by no queue that could be asked");
        }
    }
    for (name, error) in refused {
        println!("{name}: not offered ({error})");
    }
    Ok(())
}

fn receive(socket: &UdpSocket, buffer: &mut [u8], wait: Wait) -> io::Result<usize> {
    let begun = Instant::now();
    loop {
        match socket.recv(buffer) {
            Err(error)
                if begun.elapsed() < PATIENCE
                    && (wait == Wait::Spin && error.kind() == io::ErrorKind::WouldBlock
                        // The end of an io_uring ring interrupts the thread like a signal.
                        || error.kind() == io::ErrorKind::Interrupted) => {}
            outcome => return outcome,
        }
    }
}

/// Binds this thread to a permitted CPU. `index` selects the CPU and wraps around. On a single CPU,
/// two busy-waiting threads would wait for the end of each other's time slice.
fn pin(allowed: &CpuSet, index: usize) -> io::Result<()> {
    let all = (0..CpuSet::count()).filter(|&cpu| allowed.is_set(cpu).unwrap_or(false));
    let mut one = CpuSet::new();
    let all: Vec<usize> = all.collect();
    if let Some(&cpu) = all.iter().cycle().nth(index) {
        one.set(cpu)?;
    }
    Ok(sched_setaffinity(Pid::from_raw(0), &one)?)
}

/// Returns the CPU time of both threads and the elapsed time, in nanoseconds per datagram.
fn turns([here, there]: &[UdpSocket; 2], wait: Wait) -> io::Result<[f64; 2]> {
    let everywhere = sched_getaffinity(Pid::from_raw(0))?;
    pin(&everywhere, 0)?;
    let outcome = thread::scope(|scope| {
        let other = scope.spawn(|| {
            pin(&everywhere, 1)?;
            let mut buffer = [0; DATAGRAM];
            let start = thread_time()?;
            for _ in 0..TURNS {
                let length = receive(there, &mut buffer, wait)?;
                there.send(&buffer[..length])?;
            }
            Ok::<u64, io::Error>(thread_time()? - start)
        });
        let mut buffer = [0; DATAGRAM];
        let (begun, start) = (Instant::now(), thread_time()?);
        for _ in 0..TURNS {
            here.send(&buffer)?;
            receive(here, &mut buffer, wait)?;
        }
        let (own, elapsed) = (thread_time()? - start, begun.elapsed());
        let other = other.join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked")))?;
        let datagrams = (2 * TURNS) as f64;
        Ok([(own + other) as f64, elapsed.as_nanos() as f64].map(|figure| figure / datagrams))
    });
    sched_setaffinity(Pid::from_raw(0), &everywhere)?;
    outcome
}
