//! Measures the least cost of two ends on different CPUs. One thread fills, seals and sends
//! packets. Another thread receives, opens and reads them. There is no protocol around that. Data
//! that one CPU writes and the other reads moves from cache to cache, which rows with one thread do
//! not show.

use std::hint::{black_box, spin_loop};
use std::io;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::libc;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use rustls::Side;
use rustls::quic::Keys;

use crate::crypto::{HEADER, NUMBER, SAMPLE, keys, seal_one, wrong};
use crate::kernel::{GSO, Place};
use crate::message::{Messages, set};
use crate::{DATAGRAM, PAYLOAD, Row, thread_time};

/// Number of batches in a measurement.
const BATCHES: usize = 100;
/// Maximum number of datagrams in flight: about 1 MB, which fits into the receive buffer.
const AHEAD: usize = 16 * GSO;
/// Maximum number of messages per receive call.
const RECEIVE: usize = 8;
/// Size in bytes of the buffer of an application, which is used repeatedly.
const APPLICATION: usize = GSO * PAYLOAD;
/// Time after which datagrams count as lost.
const PATIENCE: Duration = Duration::from_secs(5);

/// Returns one row, or no row if the process may use only one CPU.
pub(crate) fn rows(place: &Place) -> io::Result<Vec<Row>> {
    let allowed = sched_getaffinity(Pid::from_raw(0))?;
    let mut cpus = (0..CpuSet::count()).filter(|cpu| allowed.is_set(*cpu).unwrap_or(false));
    let (Some(first), Some(second)) = (cpus.next(), cpus.next()) else { return Ok(Vec::new()) };
    let [sender, receiver] = place.sockets()?;
    set(&receiver, libc::SOL_UDP, libc::UDP_GRO, 1)?;
    let measure = move || {
        let times = both([&sender, &receiver], [first, second])?;
        Ok(times.map(|time| time as f64 / (BATCHES * GSO) as f64).to_vec())
    };
    Ok(vec![Row {
        name: "all of it, each end on a CPU of its own",
        columns: &["sender", "receiver"],
        measure: Box::new(measure),
    }])
}

/// Progress of the sender and the receiver.
#[derive(Default)]
struct Progress {
    /// Datagrams received.
    received: AtomicUsize,
    /// True if the receiver has failed.
    failed: AtomicBool,
}

/// Returns the CPU time of the sender and of the receiver in nanoseconds, without waiting.
fn both([sender, receiver]: [&UdpSocket; 2], cpus: [usize; 2]) -> io::Result<[u64; 2]> {
    let progress = Progress::default();
    thread::scope(|scope| {
        let receiving = scope.spawn(|| {
            let taken = pin(cpus[1]).and_then(|()| receive(receiver, &progress));
            progress.failed.store(taken.is_err(), Ordering::Release);
            taken
        });
        let sending = scope.spawn(|| pin(cpus[0]).and_then(|()| send(sender, &progress)));
        let join = |thread: thread::ScopedJoinHandle<'_, io::Result<u64>>| {
            thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked")))
        };
        Ok([join(sending)?, join(receiving)?])
    })
}

/// Binds this thread to one CPU.
fn pin(cpu: usize) -> io::Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu)?;
    Ok(sched_setaffinity(Pid::from_raw(0), &set)?)
}

fn send(socket: &UdpSocket, progress: &Progress) -> io::Result<u64> {
    let keys = keys(Side::Client)?;
    let mut outgoing = Messages::to_send(1, GSO);
    let data = vec![1u8; APPLICATION];
    let (mut sent, mut taken) = (0, 0);
    while sent < BATCHES * GSO {
        while sent - progress.received.load(Ordering::Acquire) > AHEAD {
            if progress.failed.load(Ordering::Acquire) {
                return Err(io::Error::other("the receiver failed"));
            }
            spin_loop();
        }
        let start = thread_time()?;
        let packets = outgoing.bytes_mut().chunks_exact_mut(DATAGRAM);
        for ((number, packet), data) in (sent..).zip(packets).zip(data.chunks_exact(PAYLOAD)) {
            fill(&keys, number, packet, black_box(data))?;
        }
        sent += outgoing.send(socket, 0)?;
        taken += thread_time()? - start;
    }
    Ok(taken)
}

/// Builds a packet: header, data, protection.
fn fill(keys: &Keys, number: usize, packet: &mut [u8], data: &[u8]) -> io::Result<()> {
    packet[..HEADER].fill(0x41);
    packet[NUMBER..HEADER].copy_from_slice(&(number as u16).to_be_bytes());
    packet[HEADER..HEADER + PAYLOAD].copy_from_slice(data);
    seal_one(keys, packet, number as u64)?;
    let (first, number, sample) = header(packet);
    keys.local.header.encrypt_in_place(sample, first, number).map_err(wrong)
}

/// Returns the first byte, the packet number and the sample of a short-header packet.
fn header(packet: &mut [u8]) -> (&mut u8, &mut [u8], &[u8]) {
    let (head, rest) = packet.split_at_mut(SAMPLE);
    let (first, rest_of_head) = head.split_at_mut(1);
    (&mut first[0], &mut rest_of_head[NUMBER - 1..HEADER - 1], &rest[..16])
}

fn receive(socket: &UdpSocket, progress: &Progress) -> io::Result<u64> {
    let keys = keys(Side::Server)?;
    let mut incoming = Messages::to_receive(RECEIVE, true);
    let mut data = vec![0u8; APPLICATION];
    let (mut received, mut taken) = (0, 0);
    let mut last = Instant::now();
    while received < BATCHES * GSO {
        let start = thread_time()?;
        match incoming.receive(socket) {
            Ok(datagrams) => {
                let packets = incoming.received().flat_map(|all| all.chunks_exact_mut(DATAGRAM));
                let places = data.chunks_exact_mut(PAYLOAD).len();
                for (number, packet) in (received..).zip(packets.take(datagrams)) {
                    let at = number % places * PAYLOAD;
                    open(&keys, number, packet, &mut data[at..at + PAYLOAD])?;
                }
                black_box(&mut data);
                received += datagrams;
                taken += thread_time()? - start;
                progress.received.store(received, Ordering::Release);
                last = Instant::now();
            }
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
            Err(error) if last.elapsed() > PATIENCE => return Err(error),
            Err(_) => spin_loop(),
        }
    }
    Ok(taken)
}

/// Removes the protection of a packet, and copies its data to `data`, a part of the application's
/// buffer.
fn open(keys: &Keys, number: usize, packet: &mut [u8], data: &mut [u8]) -> io::Result<()> {
    let (first, truncated, sample) = header(packet);
    keys.remote.header.decrypt_in_place(sample, first, truncated).map_err(wrong)?;
    if truncated != (number as u16).to_be_bytes() {
        return Err(io::Error::other("a datagram was lost"));
    }
    let (header, payload) = packet.split_at_mut(HEADER);
    keys.remote.packet.decrypt_in_place(number as u64, header, payload).map_err(wrong)?;
    data.copy_from_slice(&payload[..PAYLOAD]);
    Ok(())
}
