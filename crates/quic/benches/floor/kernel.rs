//! Measures the cost of sending and receiving datagrams in the kernel. One thread sends a batch,
//! then receives it. On one machine, the time of sending includes the delivery to the receiver.

use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::libc;
use nix::sched::{CloneFlags, setns};

use crate::message::{Messages, set};
use crate::{Row, thread_time};

/// Datagrams of a GSO batch, whose size is limited to that of an IP packet.
pub(crate) const GSO: usize = 44;
/// Datagrams of a measurement.
const DATAGRAMS: usize = 4 * GSO;
/// Time after which datagrams count as lost.
const PATIENCE: Duration = Duration::from_secs(5);

/// The interface between sender and receiver.
pub(crate) struct Place {
    namespaces: Option<[PathBuf; 2]>,
}

impl Place {
    pub(crate) fn new(namespaces: Option<&[PathBuf; 2]>) -> Place {
        Place { namespaces: namespaces.cloned() }
    }

    pub(crate) fn name(&self) -> &'static str {
        if self.namespaces.is_some() { "veth" } else { "loopback" }
    }

    /// Returns two sockets that are connected to each other.
    pub(crate) fn sockets(&self) -> io::Result<[UdpSocket; 2]> {
        let bound = |index: usize| {
            let Some(namespaces) = &self.namespaces else {
                return UdpSocket::bind((Ipv4Addr::LOCALHOST, 0));
            };
            let address = SocketAddr::from(([10, 251, 0, [1, 2][index]], 0));
            // A socket stays in the namespace of the thread that creates it.
            let make = || {
                setns(File::open(&namespaces[index])?, CloneFlags::CLONE_NEWNET)?;
                UdpSocket::bind(address)
            };
            let made = std::thread::scope(|scope| scope.spawn(make).join())
                .unwrap_or_else(|_| Err(io::Error::other("a thread panicked")));
            made.map_err(|error| {
                let (place, ip) = (namespaces[index].display(), address.ip());
                io::Error::new(error.kind(), format!("a socket of {ip} in {place}: {error}"))
            })
        };
        let sockets = [bound(0)?, bound(1)?];
        let connect = |from: usize, to: usize| {
            let (from, to) = (&sockets[from], sockets[to].local_addr()?);
            let refused = |error: io::Error| {
                io::Error::new(error.kind(), format!("there is no way to {}: {error}", to.ip()))
            };
            from.connect(to).map_err(refused)
        };
        connect(0, 1)?;
        connect(1, 0)?;
        for socket in &sockets {
            let socket = socket2::SockRef::from(socket);
            socket.set_recv_buffer_size(4 << 20)?;
            socket.set_send_buffer_size(4 << 20)?;
        }
        Ok(sockets)
    }
}

/// How datagrams are passed to the kernel and received from it.
#[derive(Clone, Copy)]
struct Way {
    name: &'static str,
    /// Datagrams per message (GSO).
    segments: usize,
    /// Messages per send call (sendmmsg).
    messages: usize,
    /// True if a received message can contain several datagrams (GRO).
    gro: bool,
    /// Maximum number of messages per receive call (recvmmsg).
    receive: usize,
    /// True if the kernel sends from the program's memory (MSG_ZEROCOPY).
    zerocopy: bool,
}

const PLAIN: Way = Way {
    name: "one datagram a call",
    segments: 1,
    messages: 1,
    gro: false,
    receive: 1,
    zerocopy: false,
};

const WAYS: [Way; 7] = [
    PLAIN,
    Way { name: "sendmmsg, recvmmsg: 44 datagrams a call", messages: GSO, receive: GSO, ..PLAIN },
    Way { name: "GSO of 10, GRO", segments: 10, gro: true, ..PLAIN },
    Way { name: "GSO of 44, GRO", segments: GSO, gro: true, ..PLAIN },
    Way { name: "GSO of 44, GRO, recvmmsg of 8", segments: GSO, gro: true, receive: 8, ..PLAIN },
    Way {
        name: "sendmmsg of 4 GSO of 44, GRO, recvmmsg of 8",
        segments: GSO,
        messages: 4,
        gro: true,
        receive: 8,
        ..PLAIN
    },
    Way { name: "GSO of 44, MSG_ZEROCOPY, GRO", segments: GSO, gro: true, zerocopy: true, ..PLAIN },
];

pub(crate) fn rows(place: &Place) -> io::Result<Vec<Row>> {
    let row = |way: Way| {
        let [sender, receiver] = place.sockets()?;
        if way.gro {
            set(&receiver, libc::SOL_UDP, libc::UDP_GRO, 1)?;
        }
        if way.zerocopy {
            set(&sender, libc::SOL_SOCKET, libc::SO_ZEROCOPY, 1)?;
        }
        let mut outgoing = Messages::to_send(way.messages, way.segments);
        let mut incoming = Messages::to_receive(way.receive, way.gro);
        let measure = move || {
            let times = exchange(&sender, &receiver, way, &mut outgoing, &mut incoming)?;
            Ok(times.map(|time| time as f64 / DATAGRAMS as f64).to_vec())
        };
        Ok(Row { name: way.name, columns: &["send", "receive"], measure: Box::new(measure) })
    };
    WAYS.into_iter().map(row).collect()
}

/// Sends all datagrams of a measurement and receives them. Returns the CPU time of sending and of
/// receiving, in nanoseconds.
fn exchange(
    sender: &UdpSocket,
    receiver: &UdpSocket,
    way: Way,
    outgoing: &mut Messages,
    incoming: &mut Messages,
) -> io::Result<[u64; 2]> {
    let flags = if way.zerocopy { libc::MSG_ZEROCOPY } else { 0 };
    let mut notices = Messages::to_receive(1, false);
    let (mut sending, mut receiving) = (0, 0);
    let (mut sent, mut received) = (0, 0);
    while sent < DATAGRAMS {
        let start = thread_time()?;
        sent += outgoing.send(sender, flags)?;
        sending += thread_time()? - start;
    }
    let begun = Instant::now();
    while received < sent {
        let start = thread_time()?;
        let outcome = incoming.receive(receiver);
        let taken = thread_time()? - start;
        match outcome {
            Ok(count) => {
                received += count;
                receiving += taken;
            }
            Err(error)
                if error.kind() == io::ErrorKind::WouldBlock && begun.elapsed() < PATIENCE =>
            {
                // A soft interrupt has not delivered the datagrams yet.
                std::thread::yield_now();
            }
            Err(error) => return Err(error),
        }
    }
    if way.zerocopy {
        let start = thread_time()?;
        while notices.completion(sender)?.is_some() {}
        sending += thread_time()? - start;
    }
    // With batches of ten, more than `DATAGRAMS` datagrams are sent.
    let scale = |time: u64| time * DATAGRAMS as u64 / sent as u64;
    Ok([scale(sending), scale(receiving)])
}
