//! What the kernel takes to send and receive datagrams, in one thread: a batch is sent, then received. On one machine
//! the way to the receiver is in the time of sending.

use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd as _, RawFd};
use std::path::PathBuf;
use std::ptr::null_mut;
use std::time::{Duration, Instant};

use nix::libc;
use nix::sched::{CloneFlags, setns};

use crate::{DATAGRAM, Row, thread_time};

/// Datagrams of a GSO batch: what fits into an IP packet.
const GSO: usize = 44;
/// Datagrams of a measurement.
const DATAGRAMS: usize = 4 * GSO;
/// The largest message that comes with GRO.
const MESSAGE: usize = 65_536;
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

    /// Two sockets that send to each other.
    pub(crate) fn sockets(&self) -> io::Result<[UdpSocket; 2]> {
        let bound = |index: usize| {
            let Some(namespaces) = &self.namespaces else {
                return UdpSocket::bind((Ipv4Addr::LOCALHOST, 0));
            };
            let address = SocketAddr::from(([10, 251, 0, [1, 2][index]], 0));
            // A socket stays in the namespace of the thread that makes it.
            let make = || {
                setns(File::open(&namespaces[index])?, CloneFlags::CLONE_NEWNET)?;
                UdpSocket::bind(address)
            };
            std::thread::scope(|scope| scope.spawn(make).join())
                .unwrap_or_else(|_| Err(io::Error::other("a thread panicked")))
        };
        let sockets = [bound(0)?, bound(1)?];
        sockets[0].connect(sockets[1].local_addr()?)?;
        sockets[1].connect(sockets[0].local_addr()?)?;
        for socket in &sockets {
            let socket = socket2::SockRef::from(socket);
            socket.set_recv_buffer_size(4 << 20)?;
            socket.set_send_buffer_size(4 << 20)?;
        }
        Ok(sockets)
    }
}

/// Sets an option of a socket that is a number.
pub(crate) fn set(
    socket: &UdpSocket,
    level: libc::c_int,
    option: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    let length = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the pointer is to a number of the length that is given with it.
    let result = unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const value).cast(), length)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// How datagrams are handed to the kernel and taken from it.
#[derive(Clone, Copy)]
struct Way {
    name: &'static str,
    /// Datagrams of a message (GSO).
    segments: usize,
    /// Messages of a call (sendmmsg).
    messages: usize,
    /// True if datagrams are received as they were sent: several in a message (GRO).
    gro: bool,
    /// Messages that a call may bring (recvmmsg).
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
        let mut outgoing = Messages::to_send(way);
        let mut incoming = Messages::to_receive(way);
        let measure = move || {
            let times = exchange(&sender, &receiver, way, &mut outgoing, &mut incoming)?;
            Ok(times.map(|time| time as f64 / DATAGRAMS as f64).to_vec())
        };
        Ok(Row { name: way.name, columns: &["send", "receive"], measure: Box::new(measure) })
    };
    WAYS.into_iter().map(row).collect()
}

/// Memory of messages for sendmmsg(2) and recvmmsg(2).
struct Messages {
    /// Memory that the pointers in `parts` point to.
    _bytes: Vec<u8>,
    /// What the pointers in `headers` are to, as is `control`.
    _parts: Vec<libc::iovec>,
    control: Vec<[u64; CONTROL]>,
    headers: Vec<libc::mmsghdr>,
}

/// Words of a control message's buffer.
const CONTROL: usize = 8;

impl Messages {
    fn new(count: usize, size: usize, control_length: usize) -> Messages {
        let mut bytes = vec![7; count * size];
        let mut parts: Vec<libc::iovec> = bytes
            .chunks_exact_mut(size)
            .map(|part| libc::iovec { iov_base: part.as_mut_ptr().cast(), iov_len: size })
            .collect();
        let mut control = vec![[0; CONTROL]; count];
        let headers = parts
            .iter_mut()
            .zip(&mut control)
            .map(|(part, control)| {
                // SAFETY: a message header of zeros is one: no name, no parts, no control messages.
                let mut header: libc::mmsghdr = unsafe { std::mem::zeroed() };
                header.msg_hdr.msg_iov = part;
                header.msg_hdr.msg_iovlen = 1;
                let none = control_length == 0;
                header.msg_hdr.msg_control =
                    if none { null_mut() } else { control.as_mut_ptr().cast() };
                header.msg_hdr.msg_controllen = control_length as _;
                header
            })
            .collect();
        Messages { _bytes: bytes, _parts: parts, control, headers }
    }

    fn to_send(way: Way) -> Messages {
        if way.segments == 1 {
            return Messages::new(way.messages, DATAGRAM, 0);
        }
        // SAFETY: the macro only computes a length.
        let space = unsafe { libc::CMSG_SPACE(size_of::<u16>() as u32) } as usize;
        let mut messages = Messages::new(way.messages, way.segments * DATAGRAM, space);
        for header in &mut messages.headers {
            // SAFETY: the control buffer of the header has room for one message with two bytes: `space` of them.
            unsafe {
                let control = libc::CMSG_FIRSTHDR(&raw const header.msg_hdr);
                (*control).cmsg_level = libc::SOL_UDP;
                (*control).cmsg_type = libc::UDP_SEGMENT;
                (*control).cmsg_len = libc::CMSG_LEN(size_of::<u16>() as u32) as _;
                libc::CMSG_DATA(control).cast::<u16>().write_unaligned(DATAGRAM as u16);
            }
        }
        messages
    }

    fn to_receive(way: Way) -> Messages {
        let size = if way.gro { MESSAGE } else { DATAGRAM };
        Messages::new(way.receive, size, CONTROL * size_of::<u64>())
    }

    /// Sends the first `count` messages.
    fn send(&mut self, socket: RawFd, count: usize, flags: libc::c_int) -> io::Result<usize> {
        // SAFETY: the headers point to memory of `self` that lives as long as they and is as long as they say.
        let sent =
            unsafe { libc::sendmmsg(socket, self.headers.as_mut_ptr(), count as u32, flags) };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }

    /// Receives: number of datagrams.
    fn receive(&mut self, socket: RawFd) -> io::Result<usize> {
        for header in &mut self.headers {
            // The kernel has written there how much it used.
            header.msg_hdr.msg_controllen = size_of_val(&self.control[0]) as _;
        }
        let count = self.headers.len() as u32;
        // SAFETY: as for `send`; nobody else has references to the memory while it is written.
        let received = unsafe {
            libc::recvmmsg(socket, self.headers.as_mut_ptr(), count, libc::MSG_DONTWAIT, null_mut())
        };
        let received = usize::try_from(received).map_err(|_| io::Error::last_os_error())?;
        let datagrams = |header: &libc::mmsghdr| (header.msg_len as usize).div_ceil(DATAGRAM);
        Ok(self.headers[..received].iter().map(datagrams).sum())
    }
}

/// Sends all datagrams of a measurement and receives them: CPU time of both, in nanoseconds.
fn exchange(
    sender: &UdpSocket,
    receiver: &UdpSocket,
    way: Way,
    outgoing: &mut Messages,
    incoming: &mut Messages,
) -> io::Result<[u64; 2]> {
    let flags = if way.zerocopy { libc::MSG_ZEROCOPY } else { 0 };
    let (mut sending, mut receiving) = (0, 0);
    let (mut sent, mut received) = (0, 0);
    while sent < DATAGRAMS {
        let messages = way.messages.min((DATAGRAMS - sent).div_ceil(way.segments));
        let start = thread_time()?;
        let taken = outgoing.send(sender.as_raw_fd(), messages, flags)?;
        sending += thread_time()? - start;
        sent += taken * way.segments;
    }
    let begun = Instant::now();
    while received < sent {
        let start = thread_time()?;
        let outcome = incoming.receive(receiver.as_raw_fd());
        let taken = thread_time()? - start;
        match outcome {
            Ok(count) => {
                received += count;
                receiving += taken;
            }
            Err(error)
                if error.kind() == io::ErrorKind::WouldBlock && begun.elapsed() < PATIENCE =>
            {
                // A soft interrupt is on its way.
                std::thread::yield_now();
            }
            Err(error) => return Err(error),
        }
    }
    if way.zerocopy {
        let start = thread_time()?;
        drain_notifications(sender)?;
        sending += thread_time()? - start;
    }
    // The last batch of ten is a few datagrams longer than what was asked for.
    let scale = |time: u64| time * DATAGRAMS as u64 / sent as u64;
    Ok([scale(sending), scale(receiving)])
}

/// Takes what the kernel says of memory that it has sent from.
fn drain_notifications(socket: &UdpSocket) -> io::Result<()> {
    let mut messages = Messages::new(1, 64, CONTROL * size_of::<u64>());
    loop {
        let header = &raw mut messages.headers[0].msg_hdr;
        let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
        // SAFETY: the header points to memory of `messages`, which is as long as it says.
        let read = unsafe {
            (*header).msg_controllen = (CONTROL * size_of::<u64>()) as _;
            libc::recvmsg(socket.as_raw_fd(), header, flags)
        };
        if read < 0 {
            let error = io::Error::last_os_error();
            let none = error.kind() == io::ErrorKind::WouldBlock;
            return if none { Ok(()) } else { Err(error) };
        }
    }
}
