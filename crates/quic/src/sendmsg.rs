//! Sends messages through the system's UDP socket, with segmentation offload (GSO), an ECN
//! codepoint and a source address.
//!
//! An error concerns only the message that caused it. It does not disable an offload for the
//! socket: a peer chooses where answers to it are sent, and could disable the offload for all other
//! peers.

use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use equic_transport::EcnCodepoint;
use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::{ControlMessage, MsgFlags, SockaddrStorage, sendmsg, setsockopt, sockopt};

/// Maximum number of datagrams into which Linux splits a message (`UDP_MAX_SEGMENTS`,
/// include/linux/udp.h).
const MAX_SEGMENTS: usize = 64;

/// A segment size for testing whether the kernel supports the option.
const PROBE_SEGMENT: i32 = 1_200;

/// Minimum number of seconds between two log lines about errors.
const LOG_INTERVAL: u64 = 60;

/// A message to send: one datagram, or several of equal size to one address (GSO).
pub(crate) struct Outgoing<'a> {
    pub destination: SocketAddr,
    pub source: Option<IpAddr>,
    pub ecn: EcnCodepoint,
    pub bytes: &'a [u8],
    /// Size of each datagram in bytes. The last one may be shorter.
    pub segment: usize,
}

/// Returns the maximum number of datagrams into which the kernel splits a message: 1 if it does not
/// support GSO for UDP.
pub(crate) fn probe_segments(socket: &std::net::UdpSocket) -> usize {
    let set = |size: i32| setsockopt(socket, sockopt::UdpGsoSegment, &size);
    // The socket's option is only a test. Each message has its own segment size.
    if set(PROBE_SEGMENT).and_then(|()| set(0)).is_ok() { MAX_SEGMENTS } else { 1 }
}

/// Sends messages, and logs errors at most once a minute.
pub(crate) struct Sender {
    start: Instant,
    /// Time of the last log line in seconds after `start`, plus 1. 0 if nothing was logged.
    logged: AtomicU64,
}

impl Sender {
    pub(crate) fn new() -> Sender {
        Sender { start: Instant::now(), logged: AtomicU64::new(0) }
    }

    /// Sends a message, or as much of it as the system accepts. Returns the number of bytes that
    /// need not be sent again. This can be less than the message only if the message has several
    /// datagrams.
    ///
    /// # Errors
    /// Returns `WouldBlock` if the socket's send buffer is full: nothing was sent. Any other error
    /// is about this message, which is lost.
    pub(crate) fn send(
        &self,
        socket: &impl AsRawFd,
        message: &Outgoing<'_>,
        source: Option<IpAddr>,
    ) -> io::Result<usize> {
        let socket = socket.as_raw_fd();
        match send_once(socket, message, source) {
            Ok(()) => Ok(message.bytes.len()),
            Err(errno) if may_be_split(errno) && message.bytes.len() > message.segment => {
                self.send_split(socket, message, source)
            }
            Err(errno) => Err(self.failed(errno, message)),
        }
    }

    /// Sends the datagrams of a message one by one. Some routes cannot segment, for example through
    /// devices without checksum offload, and the system reports that only when a message is sent.
    fn send_split(
        &self,
        socket: RawFd,
        message: &Outgoing<'_>,
        source: Option<IpAddr>,
    ) -> io::Result<usize> {
        let mut sent = 0;
        let mut error = None;
        for datagram in message.bytes.chunks(message.segment) {
            match send_once(socket, &Outgoing { bytes: datagram, ..*message }, source) {
                Ok(()) => {}
                Err(Errno::EAGAIN) if sent > 0 => return Ok(sent),
                Err(Errno::EAGAIN) => return Err(Errno::EAGAIN.into()),
                Err(errno) => error = Some(self.failed(errno, message)),
            }
            sent += datagram.len();
        }
        error.map_or(Ok(sent), Err)
    }

    fn failed(&self, errno: Errno, message: &Outgoing<'_>) -> io::Error {
        let error = io::Error::from(errno);
        // Path MTU discovery expects EMSGSIZE.
        let is_news = !matches!(errno, Errno::EAGAIN | Errno::EMSGSIZE);
        if is_news && self.may_log(self.start.elapsed().as_secs()) {
            tracing::warn!(%error, to = %message.destination, "cannot send a datagram");
        }
        error
    }

    fn may_log(&self, seconds: u64) -> bool {
        let last = self.logged.load(Ordering::Relaxed);
        let due = last == 0 || seconds + 1 >= last + LOG_INTERVAL;
        due && self
            .logged
            .compare_exchange(last, seconds + 1, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    }
}

/// Returns `true` for errors that only messages of several datagrams can cause: EIO if a device
/// cannot segment, EINVAL if a kernel rejects the segment size for this route.
fn may_be_split(errno: Errno) -> bool {
    matches!(errno, Errno::EIO | Errno::EINVAL)
}

fn send_once(socket: RawFd, message: &Outgoing<'_>, source: Option<IpAddr>) -> Result<(), Errno> {
    let mark: u8 = match message.ecn {
        EcnCodepoint::NotEct => 0,
        EcnCodepoint::Ect1 => 1,
        EcnCodepoint::Ect0 => 2,
        EcnCodepoint::Ce => 3,
    };
    let class = i32::from(mark);
    // A dual-stack socket uses IPv4-mapped IPv6 addresses for IPv4.
    let marking = if message.destination.ip().to_canonical().is_ipv4() {
        ControlMessage::Ipv4Tos(&mark)
    } else {
        ControlMessage::Ipv6TClass(&class)
    };
    let segment = u16::try_from(message.segment).unwrap_or(u16::MAX);
    let several = message.bytes.len() > message.segment;
    let (v4, v6);
    let mut control = [marking; 3];
    let mut count = 1;
    if several {
        control[count] = ControlMessage::UdpGsoSegments(&segment);
        count += 1;
    }
    match source {
        Some(IpAddr::V4(address)) => {
            v4 = v4_source(address);
            control[count] = ControlMessage::Ipv4PacketInfo(&v4);
            count += 1;
        }
        Some(IpAddr::V6(address)) => {
            v6 = libc::in6_pktinfo {
                ipi6_addr: libc::in6_addr { s6_addr: address.octets() },
                ipi6_ifindex: 0,
            };
            control[count] = ControlMessage::Ipv6PacketInfo(&v6);
            count += 1;
        }
        None => {}
    }
    let destination = SockaddrStorage::from(message.destination);
    let bytes = [IoSlice::new(message.bytes)];
    loop {
        match sendmsg(socket, &bytes, &control[..count], MsgFlags::empty(), Some(&destination)) {
            Err(Errno::EINTR) => {}
            outcome => return outcome.map(drop),
        }
    }
}

fn v4_source(address: std::net::Ipv4Addr) -> libc::in_pktinfo {
    libc::in_pktinfo {
        ipi_ifindex: 0,
        ipi_spec_dst: libc::in_addr { s_addr: u32::from_ne_bytes(address.octets()) },
        ipi_addr: libc::in_addr { s_addr: 0 },
    }
}

/// Returns `true` if a datagram from this address can be answered: it has a port, and a unicast
/// address.
pub(crate) fn is_answerable(remote: SocketAddr) -> bool {
    let forbidden = match remote.ip().to_canonical() {
        IpAddr::V4(ip) => ip.is_broadcast() || ip.is_multicast() || ip.octets()[0] == 0,
        IpAddr::V6(ip) => ip.is_unspecified() || ip.is_multicast(),
    };
    remote.port() != 0 && !forbidden
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::time::Duration;

    use super::*;

    fn pair() -> (UdpSocket, UdpSocket) {
        let bind = || UdpSocket::bind("127.0.0.1:0").unwrap();
        let (from, to) = (bind(), bind());
        to.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        (from, to)
    }

    fn message(destination: SocketAddr, bytes: &[u8], segment: usize) -> Outgoing<'_> {
        Outgoing { destination, source: None, ecn: EcnCodepoint::Ect0, bytes, segment }
    }

    fn received(socket: &UdpSocket) -> usize {
        let mut buffer = [0; 2_000];
        socket.recv(&mut buffer).unwrap()
    }

    #[test]
    fn send_error_leaves_offload_for_others() {
        let (from, to) = pair();
        assert_eq!(probe_segments(&from), MAX_SEGMENTS, "Linux has had GSO since 4.18");
        let sender = Sender::new();
        let bytes = [7; 2_500];
        let address = to.local_addr().unwrap();
        // Linux answers EINVAL for port 0.
        let nowhere = SocketAddr::new(address.ip(), 0);
        for size in [1_000, 2_500] {
            let refused = sender.send(&from, &message(nowhere, &bytes, size), None).unwrap_err();
            assert_eq!(refused.raw_os_error(), Some(libc::EINVAL), "segments of {size}");
        }
        assert_eq!(sender.send(&from, &message(address, &bytes, 1_000), None).unwrap(), 2_500);
        assert_eq!([received(&to), received(&to), received(&to)], [1_000, 1_000, 500]);
    }

    #[test]
    fn send_split_sends_every_datagram() {
        let (from, to) = pair();
        let sender = Sender::new();
        let bytes = [7; 2_500];
        let message = message(to.local_addr().unwrap(), &bytes, 1_000);
        assert_eq!(sender.send_split(from.as_raw_fd(), &message, None).unwrap(), 2_500);
        assert_eq!([received(&to), received(&to), received(&to)], [1_000, 1_000, 500]);
    }

    #[test]
    fn send_errors_are_logged_once_a_minute() {
        let sender = Sender::new();
        let logged = [0, 1, 59, 60, 61, 120, 500].map(|seconds| sender.may_log(seconds));
        assert_eq!(logged, [true, false, false, true, false, true, true]);
    }

    #[test]
    fn answerable_sources_have_a_port_and_a_host() {
        for good in ["192.0.2.1:1", "[2001:db8::1]:65535", "127.0.0.1:9", "[::1]:9"] {
            assert!(is_answerable(good.parse().unwrap()), "{good}");
        }
        for bad in [
            "192.0.2.1:0",
            "[2001:db8::1]:0",
            "255.255.255.255:9",
            "0.0.0.0:9",
            "0.1.2.3:9",
            "224.0.0.1:9",
            "[::]:9",
            "[ff02::1]:9",
            "[::ffff:255.255.255.255]:9",
            "[::ffff:192.0.2.1]:0",
        ] {
            assert!(!is_answerable(bad.parse().unwrap()), "{bad}");
        }
    }
}
