//! The system's UDP socket, with GSO, GRO, ECN, and the local address to which a datagram was sent.
//! `quinn-udp` is used to receive.

use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::AsRawFd as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use equic_transport::{DatagramMeta, EcnCodepoint};
use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, setsockopt, sockopt,
};
use quinn_udp::{BATCH_SIZE, RecvMeta, UdpSocketState};
use tokio::io::Interest;
use tokio::net::UdpSocket;

use crate::sendmsg::{Outgoing, Sender, is_answerable, probe_segments};
use crate::unreachable::Unreachable;

/// Maximum size of a UDP payload in bytes.
pub(crate) const MAX_DATAGRAM: usize = 65_527;

/// Size of a buffer without GRO, which receives one datagram. No path's MTU is expected to be
/// larger.
const PLAIN_BUFFER: usize = 9_216;

/// Number of bytes to read of a datagram that an ICMP error quotes. This is enough for the
/// connection IDs of the longest header.
const QUOTED: usize = 600;

/// Size of the buffer for the control messages of an ICMP error. About 200 bytes are used. Messages
/// that do not fit are lost.
const ANCILLARY: usize = 512;

/// Number of messages that are received at once with GRO. 32 of them would take 2 MB.
const OFFLOADED_BATCH: usize = 8;

pub(crate) struct Udp {
    socket: UdpSocket,
    /// The local address. It is read once, because it does not change and each connection needs it.
    address: SocketAddr,
    /// Receives with GRO, ECN and the destination address of each datagram.
    state: UdpSocketState,
    sender: Sender,
    /// Maximum number of datagrams into which the kernel splits one message.
    segments: usize,
    /// True if the socket belongs to a server and is bound to a wildcard address. Answers must then
    /// specify their source address.
    wildcard: AtomicBool,
    offloads: Offloads,
    /// True if the kernel reports ICMP errors.
    errors: AtomicBool,
}

/// Enables GRO for receiving and GSO for sending, if the kernel supports them.
#[derive(Clone, Copy)]
pub(crate) struct Offloads {
    pub receive: bool,
    pub send: bool,
}

impl Udp {
    /// Creates the wrapper of a bound socket. Must be called inside a tokio runtime.
    pub(crate) fn new(
        socket: std::net::UdpSocket,
        offloads: Offloads,
        server: bool,
    ) -> io::Result<Udp> {
        socket.set_nonblocking(true)?;
        let address = socket.local_addr()?;
        let wildcard = AtomicBool::new(server && address.ip().is_unspecified());
        let state = UdpSocketState::new((&socket).into())?;
        let segments = probe_segments(&socket);
        if !offloads.receive {
            crate::bind::disable_receive_offload(&socket);
        }
        let socket = register(socket)?;
        let errors = AtomicBool::new(false);
        let sender = Sender::new();
        Ok(Udp { socket, address, state, sender, segments, wildcard, offloads, errors })
    }

    /// Marks the socket as a server's if `server` is true. A socket that was a server's remains
    /// one.
    pub(crate) fn serve(&self, server: bool) {
        self.wildcard.fetch_or(server && self.address.ip().is_unspecified(), Ordering::Relaxed);
    }

    pub(crate) fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Returns the maximum number of datagrams in one message.
    pub(crate) fn max_segments(&self) -> usize {
        if self.offloads.send { self.segments } else { 1 }
    }

    /// Sends a message, and returns the number of its bytes that need not be sent again.
    ///
    /// # Errors
    /// Returns `WouldBlock` if the system accepts nothing now: [`Udp::poll_send_ready`] waits until
    /// it does. Any other error comes from this machine and concerns this message, which is lost.
    pub(crate) fn send(&self, outgoing: &Outgoing<'_>) -> io::Result<usize> {
        let source = outgoing.source.filter(|_| self.wildcard.load(Ordering::Relaxed));
        let send = || self.sender.send(&self.socket, outgoing, source);
        if !self.errors.load(Ordering::Relaxed) {
            return self.socket.try_io(Interest::WRITABLE, send);
        }
        // With IP_RECVERR, an ICMP error about an earlier datagram becomes the result of this call,
        // and this datagram is not sent. `take_error` clears it. The error is still in the queue of
        // `read_error`.
        let _ = self.socket.take_error();
        match self.socket.try_io(Interest::WRITABLE, send) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => {
                // Another ICMP error may have arrived between the two calls.
                let _ = self.socket.take_error();
                self.socket.try_io(Interest::WRITABLE, send)
            }
            outcome => outcome,
        }
    }

    pub(crate) fn poll_send_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.socket.poll_send_ready(cx)
    }

    /// Receives into `buffers`, and returns the number of messages. With `ask`, it calls the system
    /// even if the runtime reports nothing. The runtime checks the socket only if no task is ready,
    /// or after some sixty turns of tasks.
    pub(crate) fn poll_receive(
        &self,
        cx: &mut Context<'_>,
        buffers: &mut Buffers,
        ask: bool,
    ) -> Poll<io::Result<usize>> {
        let known = match self.socket.poll_recv_ready(cx) {
            Poll::Ready(outcome) => outcome.map(|()| true)?,
            Poll::Pending if ask => false,
            // Most calls find nothing, so the slices are made only after this check.
            Poll::Pending => return Poll::Pending,
        };
        let Buffers { bytes, size, metas } = buffers;
        let mut slices: Vec<IoSliceMut<'_>> =
            bytes.chunks_exact_mut(*size).map(IoSliceMut::new).collect();
        let mut receive = || self.state.recv((&self.socket).into(), &mut slices, metas);
        if !known {
            // The runtime will still report these datagrams, and the next call may then find
            // nothing.
            return match receive() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => Poll::Pending,
                outcome => Poll::Ready(outcome),
            };
        }
        loop {
            ready!(self.socket.poll_recv_ready(cx))?;
            match self.socket.try_io(Interest::READABLE, &mut receive) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                outcome => return Poll::Ready(outcome),
            }
        }
    }

    /// Enables or disables reports of ICMP errors. Disabling drops the errors that wait.
    pub(crate) fn report_errors(&self, wanted: bool) {
        // Each address family has its own option. A socket of only one family rejects the other's
        // option.
        let _ = setsockopt(&self.socket, sockopt::Ipv4RecvErr, &wanted);
        let _ = setsockopt(&self.socket, sockopt::Ipv6RecvErr, &wanted);
        let before = self.errors.swap(wanted, Ordering::Relaxed);
        if before && !wanted {
            // Otherwise the error would become the result of sending the next datagram, which would
            // then be lost.
            let _ = self.socket.take_error();
        }
    }

    /// Waits until [`Udp::read_error`] may return something.
    pub(crate) async fn errors_ready(&self) -> io::Result<()> {
        self.socket.ready(Interest::ERROR).await.map(drop)
    }

    /// Reads the next ICMP error. Returns `None` if the error is not about reachability.
    ///
    /// # Errors
    /// Returns `WouldBlock` if no error waits.
    pub(crate) fn read_error(&self) -> io::Result<Option<Unreachable>> {
        self.socket.try_io(Interest::ERROR, || {
            let mut quoted = [0; QUOTED];
            // The control messages also contain the local address and the ECN codepoint, which are
            // always enabled.
            let mut ancillary = vec![0; ANCILLARY];
            let mut parts = [IoSliceMut::new(&mut quoted)];
            let read = recvmsg::<SockaddrStorage>(
                self.socket.as_raw_fd(),
                &mut parts,
                Some(&mut ancillary),
                MsgFlags::MSG_ERRQUEUE,
            )?;
            let kind = read.cmsgs()?.find_map(|message| match message {
                ControlMessageOwned::Ipv4RecvErr(error, _)
                | ControlMessageOwned::Ipv6RecvErr(error, _) => unreachable_kind(&error),
                _ => None,
            });
            let to = read.address.and_then(|to| {
                let v4 = to.as_sockaddr_in().map(|to| SocketAddr::V4((*to).into()));
                v4.or_else(|| to.as_sockaddr_in6().map(|to| SocketAddr::V6((*to).into())))
            });
            let length = read.bytes;
            let unreachable = |(kind, to)| {
                let quoted = quoted.get(..length).unwrap_or_default().to_vec();
                Unreachable { to, kind, quoted }
            };
            Ok(kind.zip(to).map(unreachable))
        })
    }

    pub(crate) fn buffers(&self) -> Buffers {
        let offloaded = self.offloads.receive && self.state.gro_segments() > 1;
        let (count, size) = if offloaded {
            (OFFLOADED_BATCH.min(BATCH_SIZE), MAX_DATAGRAM + 1)
        } else {
            (BATCH_SIZE, PLAIN_BUFFER)
        };
        // The system zeroes a page when it is first used. Unused pages take no memory.
        let bytes = vec![0; count * size];
        Buffers { bytes, size, metas: vec![RecvMeta::default(); count] }
    }
}

/// Registers a socket with the runtime. Checks that the runtime has the timers that the endpoint's
/// task needs.
///
/// # Errors
/// Returns the system's error, or `Unsupported` if there is no runtime, or one without I/O or
/// timers.
fn register(socket: std::net::UdpSocket) -> io::Result<UdpSocket> {
    let unsupported = |why| io::Error::new(io::ErrorKind::Unsupported, why);
    tokio::runtime::Handle::try_current().map_err(|_| {
        unsupported("there is no tokio runtime: create the endpoint inside a runtime (Runtime::block_on or enter)")
    })?;
    // Tokio panics if a driver is disabled, and has no function to check that before.
    let registered = std::panic::catch_unwind(move || {
        drop(tokio::time::sleep(std::time::Duration::ZERO));
        UdpSocket::from_std(socket)
    });
    registered.unwrap_or_else(|_| {
        Err(unsupported(
            "the tokio runtime has no I/O or no timers: build the runtime with enable_all",
        ))
    })
}

/// Returns the kind of error if ICMP reported that a datagram could not be delivered. Returns
/// `None` for other errors, for example if the datagram was too large: path MTU discovery handles
/// that.
fn unreachable_kind(error: &libc::sock_extended_err) -> Option<io::ErrorKind> {
    if ![libc::SO_EE_ORIGIN_ICMP, libc::SO_EE_ORIGIN_ICMP6].contains(&error.ee_origin) {
        return None;
    }
    Some(match Errno::from_raw(error.ee_errno.cast_signed()) {
        Errno::ECONNREFUSED => io::ErrorKind::ConnectionRefused,
        Errno::ENETUNREACH => io::ErrorKind::NetworkUnreachable,
        // ENOPROTOOPT: the host does not support UDP. EHOSTDOWN: its network does not know the
        // host.
        Errno::EHOSTUNREACH | Errno::ENOPROTOOPT | Errno::EHOSTDOWN => {
            io::ErrorKind::HostUnreachable
        }
        // ICMPv6: administratively prohibited.
        Errno::EACCES => io::ErrorKind::PermissionDenied,
        _ => return None,
    })
}

/// Buffers for received messages.
pub(crate) struct Buffers {
    bytes: Vec<u8>,
    size: usize,
    metas: Vec<RecvMeta>,
}

/// A received message: datagrams of one size from one address.
pub(crate) struct Message<'a> {
    pub arrival: DatagramMeta,
    /// All datagrams of the message, one after the other.
    pub bytes: &'a mut [u8],
    /// Size of each datagram in bytes, at least 1. The last one may be shorter.
    pub segment: usize,
}

impl Buffers {
    /// Returns the maximum number of messages that are received at once.
    pub(crate) fn count(&self) -> usize {
        self.metas.len()
    }

    /// Returns the first `count` messages, without those whose source address cannot be answered.
    pub(crate) fn messages(&mut self, count: usize) -> impl Iterator<Item = Message<'_>> {
        let buffers = self.bytes.chunks_exact_mut(self.size);
        let received = buffers.zip(&self.metas).take(count);
        let answerable = received.filter(|(_, meta)| is_answerable(meta.addr));
        answerable.map(|(bytes, meta)| {
            let length = meta.len.min(bytes.len());
            let ecn = match meta.ecn {
                None => EcnCodepoint::NotEct,
                Some(quinn_udp::EcnCodepoint::Ect0) => EcnCodepoint::Ect0,
                Some(quinn_udp::EcnCodepoint::Ect1) => EcnCodepoint::Ect1,
                Some(quinn_udp::EcnCodepoint::Ce) => EcnCodepoint::Ce,
            };
            Message {
                arrival: DatagramMeta { remote: meta.addr, local: meta.dst_ip, ecn },
                bytes: &mut bytes[..length],
                segment: meta.stride.max(1),
            }
        })
    }
}
