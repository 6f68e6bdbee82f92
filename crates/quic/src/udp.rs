//! The system's UDP socket, with what `quinn-udp` gets out of it: GSO, GRO, ECN, and the address a
//! datagram came to.

use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
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

use crate::sendmsg::{Sender, is_answerable, probe_segments};
use crate::unreachable::Unreachable;

/// The largest UDP payload.
pub(crate) const MAX_DATAGRAM: usize = 65_527;

/// Without GRO a message is one datagram; more than this is beyond any path that is discovered.
const PLAIN_BUFFER: usize = 9_216;

/// Bytes kept of a datagram that an ICMP error quotes: enough for the connection IDs of the longest
/// header.
const QUOTED: usize = 600;

/// Bytes of buffer for the control messages of an ICMP error: some 200 are used, and what does not
/// fit is lost.
const ANCILLARY: usize = 512;

/// Messages received at once with GRO; 32 of them would take 2 MB.
const OFFLOADED_BATCH: usize = 8;

pub(crate) struct Udp {
    socket: UdpSocket,
    /// Asked for once: it does not change, and each connection wants to know it.
    address: SocketAddr,
    /// Receives with GRO, ECN and the address that a datagram came to.
    state: UdpSocketState,
    sender: Sender,
    /// Datagrams that the kernel splits one message into.
    segments: usize,
    /// Of a server, and bound to no address of its own: answers have to say which one they come from.
    wildcard: AtomicBool,
    offloads: Offloads,
    /// True if the kernel is asked for ICMP errors.
    errors: AtomicBool,
}

/// Offloads that are used where the kernel has them: GRO for receiving, GSO for sending.
#[derive(Clone, Copy)]
pub(crate) struct Offloads {
    pub receive: bool,
    pub send: bool,
}

/// A message to send: one datagram, or several of equal size to one address (GSO).
pub(crate) struct Outgoing<'a> {
    pub destination: SocketAddr,
    pub source: Option<IpAddr>,
    pub ecn: EcnCodepoint,
    pub bytes: &'a [u8],
    /// Bytes of each datagram; the last one may be shorter.
    pub segment: usize,
}

impl Udp {
    /// Takes a bound socket. Must be called inside a tokio runtime.
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

    /// It is a server's from now on, if it was not before.
    pub(crate) fn serve(&self, server: bool) {
        self.wildcard.fetch_or(server && self.address.ip().is_unspecified(), Ordering::Relaxed);
    }

    pub(crate) fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Datagrams of one size that may be sent at once.
    pub(crate) fn max_segments(&self) -> usize {
        if self.offloads.send { self.segments } else { 1 }
    }

    /// Sends a message, and returns the number of its bytes that need not be sent again.
    ///
    /// # Errors
    /// `WouldBlock` if the system takes nothing now: [`Udp::poll_send_ready`] says when to try again. Any
    /// other error comes from this machine and concerns this message, which is lost.
    pub(crate) fn send(&self, outgoing: &Outgoing<'_>) -> io::Result<usize> {
        let source = outgoing.source.filter(|_| self.wildcard.load(Ordering::Relaxed));
        let send = || self.sender.send(&self.socket, outgoing, source);
        if !self.errors.load(Ordering::Relaxed) {
            return self.socket.try_io(Interest::WRITABLE, send);
        }
        // With IP_RECVERR, an ICMP error about an earlier datagram becomes the result of this call, and this
        // datagram is not sent. The error waits for `read_error` all the same.
        let _ = self.socket.take_error();
        match self.socket.try_io(Interest::WRITABLE, send) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => {
                // The next ICMP error may have come in between.
                let _ = self.socket.take_error();
                self.socket.try_io(Interest::WRITABLE, send)
            }
            outcome => outcome,
        }
    }

    pub(crate) fn poll_send_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.socket.poll_send_ready(cx)
    }

    /// Receives into `buffers`: how many messages came. `ask`: the system is asked even if the runtime knows of nothing, which
    /// looks only when no task has anything to do, or once in some sixty of their turns.
    pub(crate) fn poll_receive(
        &self,
        cx: &mut Context<'_>,
        buffers: &mut Buffers,
        ask: bool,
    ) -> Poll<io::Result<usize>> {
        let known = match self.socket.poll_recv_ready(cx) {
            Poll::Ready(outcome) => outcome.map(|()| true)?,
            Poll::Pending if ask => false,
            // Most calls find nothing: no slices are made for those.
            Poll::Pending => return Poll::Pending,
        };
        let Buffers { bytes, size, metas } = buffers;
        let mut slices: Vec<IoSliceMut<'_>> =
            bytes.chunks_exact_mut(*size).map(IoSliceMut::new).collect();
        let mut receive = || self.state.recv((&self.socket).into(), &mut slices, metas);
        if !known {
            // The runtime will tell of it all the same, and the next call finds nothing.
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

    /// Asks the kernel for ICMP errors, or no longer, which drops those that wait.
    pub(crate) fn report_errors(&self, wanted: bool) {
        // Each family has its option; a socket of IPv6 alone, or of IPv4, refuses the other's.
        let _ = setsockopt(&self.socket, sockopt::Ipv4RecvErr, &wanted);
        let _ = setsockopt(&self.socket, sockopt::Ipv6RecvErr, &wanted);
        let before = self.errors.swap(wanted, Ordering::Relaxed);
        if before && !wanted {
            // Lest it takes the place of the next datagram.
            let _ = self.socket.take_error();
        }
    }

    /// Waits until [`Udp::read_error`] may have something.
    pub(crate) async fn errors_ready(&self) -> io::Result<()> {
        self.socket.ready(Interest::ERROR).await.map(drop)
    }

    /// The next ICMP error that waits; none: one that says nothing of reachability.
    ///
    /// # Errors
    /// None waits.
    pub(crate) fn read_error(&self) -> io::Result<Option<Unreachable>> {
        self.socket.try_io(Interest::ERROR, || {
            let mut quoted = [0; QUOTED];
            // Beside the error come the address and the marking that are asked for anyway.
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
        // Zeroed by the system page by page, as they are written: unused ones cost no memory.
        let bytes = vec![0; count * size];
        Buffers { bytes, size, metas: vec![RecvMeta::default(); count] }
    }
}

/// Registers a socket with the runtime, and checks that the runtime has the timers that the endpoint's task needs.
///
/// # Errors
/// The system's error, or `Unsupported` if there is no runtime, or one without I/O or timers.
fn register(socket: std::net::UdpSocket) -> io::Result<UdpSocket> {
    let unsupported = |why| io::Error::new(io::ErrorKind::Unsupported, why);
    tokio::runtime::Handle::try_current().map_err(|_| {
        unsupported("there is no tokio runtime: create the endpoint inside a runtime (Runtime::block_on or enter)")
    })?;
    // Tokio panics where a driver is disabled, and has no function that tells so before.
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

/// Kind of error by which a datagram could not be delivered, if that is what the error is about and it came by
/// ICMP: a datagram that is too large is the business of path MTU discovery.
fn unreachable_kind(error: &libc::sock_extended_err) -> Option<io::ErrorKind> {
    if ![libc::SO_EE_ORIGIN_ICMP, libc::SO_EE_ORIGIN_ICMP6].contains(&error.ee_origin) {
        return None;
    }
    Some(match Errno::from_raw(error.ee_errno.cast_signed()) {
        Errno::ECONNREFUSED => io::ErrorKind::ConnectionRefused,
        Errno::ENETUNREACH => io::ErrorKind::NetworkUnreachable,
        // ENOPROTOOPT: the host has no UDP. EHOSTDOWN: it is not known there.
        Errno::EHOSTUNREACH | Errno::ENOPROTOOPT | Errno::EHOSTDOWN => {
            io::ErrorKind::HostUnreachable
        }
        // ICMPv6: administratively prohibited.
        Errno::EACCES => io::ErrorKind::PermissionDenied,
        _ => return None,
    })
}

/// Buffers that messages are received into.
pub(crate) struct Buffers {
    bytes: Vec<u8>,
    size: usize,
    metas: Vec<RecvMeta>,
}

/// A message: datagrams of one size from one address.
pub(crate) struct Message<'a> {
    pub arrival: DatagramMeta,
    /// All its datagrams, one behind the other.
    pub bytes: &'a mut [u8],
    /// Bytes of each datagram; the last one may be shorter. At least 1.
    pub segment: usize,
}

impl Buffers {
    /// Number of messages that are received at once at most.
    pub(crate) fn count(&self) -> usize {
        self.metas.len()
    }

    /// Returns the first `count` messages, without those that cannot be answered: nothing that QUIC sends
    /// could reach their sources.
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
