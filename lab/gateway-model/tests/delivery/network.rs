//! A virtual link to the gateway's interface, and the sockets behind that interface. They are in
//! this thread's own network namespace.

use std::fs;
use std::io;
use std::net::UdpSocket;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::Command;
use std::time::Duration;

use crate::ip;

pub(crate) const SERVICE_PORT: u16 = 4433;
pub(crate) const OTHER_PORT: u16 = 4434;
const MARKER_PORT: u16 = 4435;
/// Name of the interface with the gateway.
pub(crate) const INTERFACE: &str = "veth0";
/// Maximum number of frames in transit at a time. Every queue on the path can hold far more.
const BATCH: usize = 32;
/// Time limit for every wait. Each takes far less time.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Network {
    wire: OwnedFd,
    wire_index: i32,
    servers: Vec<UdpSocket>,
    others: Vec<UdpSocket>,
    marker: UdpSocket,
}

/// Runs `ip` in this thread's namespace.
fn ip(args: &str) {
    let out = Command::new("ip").args(args.split(' ')).output().expect("ip is installed");
    assert!(out.status.success(), "ip {args}: {}", String::from_utf8_lossy(&out.stderr));
}

fn bind(at: &str, port: u16) -> UdpSocket {
    let socket = UdpSocket::bind(format!("{at}:{port}")).expect("the port is free");
    socket.set_nonblocking(true).expect("a flag");
    let on: libc::c_int = 1;
    let set = |level, option| {
        // SAFETY: the option's value lives until the call returns.
        let set = unsafe {
            let value = (&raw const on).cast();
            libc::setsockopt(socket.as_raw_fd(), level, option, value, size_of_val(&on) as u32)
        };
        assert_eq!(set, 0, "setsockopt: {}", io::Error::last_os_error());
    };
    if at.starts_with('[') {
        // 102 is UDP_NO_CHECK6_RX, which accepts datagrams without a checksum.
        set(libc::IPPROTO_UDP, 102);
    }
    socket
}

impl Network {
    /// Creates the network in a new namespace, which ends with this thread. Linux keeps incomplete
    /// datagrams for `seconds`.
    pub(crate) fn new(seconds: u32) -> Network {
        // SAFETY: the call moves only this thread into a new namespace.
        let moved = unsafe { libc::unshare(libc::CLONE_NEWNET) };
        assert_eq!(moved, 0, "unshare: {}", io::Error::last_os_error());
        for (name, value) in [
            ("ipv4/ipfrag_time", seconds),
            ("ipv6/ip6frag_time", seconds),
            ("ipv4/ipfrag_high_thresh", 1 << 30),
            ("ipv6/ip6frag_high_thresh", 1 << 30),
            ("ipv4/ipfrag_max_dist", 0),
            ("ipv4/conf/all/rp_filter", 0),
            ("ipv4/conf/default/rp_filter", 0),
        ] {
            let path = format!("/proc/sys/net/{name}");
            fs::write(&path, value.to_string()).unwrap_or_else(|why| panic!("{path}: {why}"));
        }
        ip("link set lo up");
        ip("link add veth0 mtu 9000 address 02:00:00:00:00:01 type veth peer name veth1 mtu 9000");
        ip("addr add 10.0.0.1/8 dev veth0");
        ip("addr add fd00::1/64 dev veth0 nodad");
        ip("link set veth0 up");
        ip("link set veth1 up");
        // SAFETY: the only pointer is to a C string, and this function owns the descriptor.
        let (wire, wire_index) = unsafe {
            let fd = libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0);
            assert!(fd >= 0, "socket: {}", io::Error::last_os_error());
            (OwnedFd::from_raw_fd(fd), libc::if_nametoindex(c"veth1".as_ptr()).cast_signed())
        };
        let both = |port| vec![bind("10.0.0.1", port), bind("[fd00::1]", port)];
        Network {
            wire,
            wire_index,
            servers: both(SERVICE_PORT),
            others: both(OTHER_PORT),
            marker: bind("10.0.0.1", MARKER_PORT),
        }
    }

    /// Sends frames, and waits until the kernel has processed all of them.
    pub(crate) fn send(&self, frames: &[Vec<u8>]) {
        for batch in frames.chunks(BATCH) {
            self.put(batch);
            self.put(&[marker()]);
            let mut wanted =
                libc::pollfd { fd: self.marker.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            // SAFETY: the pointer is to one valid pollfd.
            let ready = unsafe { libc::poll(&raw mut wanted, 1, PATIENCE.as_millis() as i32) };
            assert_eq!(ready, 1, "timed out waiting for the packet behind a batch");
            let _ = self.marker.recv(&mut [0; 64]);
        }
    }

    fn put(&self, frames: &[Vec<u8>]) {
        let mut to = libc::sockaddr_ll {
            sll_family: libc::AF_PACKET as u16,
            sll_protocol: 0x0300,
            sll_ifindex: self.wire_index,
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: 6,
            sll_addr: [0; 8],
        };
        let mut parts: Vec<libc::iovec> = frames
            .iter()
            .map(|frame| libc::iovec {
                iov_base: frame.as_ptr().cast_mut().cast(),
                iov_len: frame.len(),
            })
            .collect();
        let mut messages: Vec<libc::mmsghdr> = parts
            .iter_mut()
            .map(|part| {
                // SAFETY: all zeros is a valid message without a control part.
                let mut message: libc::mmsghdr = unsafe { std::mem::zeroed() };
                message.msg_hdr.msg_name = (&raw mut to).cast();
                message.msg_hdr.msg_namelen = size_of_val(&to) as u32;
                message.msg_hdr.msg_iov = part;
                message.msg_hdr.msg_iovlen = 1;
                message
            })
            .collect();
        let mut sent = 0;
        while sent < messages.len() {
            let rest = &mut messages[sent..];
            // SAFETY: the messages, the memory that they point to, and the address live until the
            // call returns.
            let done = unsafe {
                libc::sendmmsg(self.wire.as_raw_fd(), rest.as_mut_ptr(), rest.len() as u32, 0)
            };
            assert!(done > 0, "sendmmsg: {}", io::Error::last_os_error());
            sent += done as usize;
        }
    }

    /// Returns the datagrams that the service's sockets have received.
    pub(crate) fn served(&self) -> Vec<Vec<u8>> {
        received(&self.servers)
    }

    /// Returns the datagrams that the sockets on the other port have received.
    pub(crate) fn others(&self) -> Vec<Vec<u8>> {
        received(&self.others)
    }
}

fn received(sockets: &[UdpSocket]) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    let mut buffer = [0; 2048];
    for socket in sockets {
        while let Ok(len) = socket.recv(&mut buffer) {
            all.push(buffer[..len].to_vec());
        }
    }
    all
}

/// Returns a packet to the port `MARKER_PORT`, which no other frame uses. It is sent after all
/// other frames, so its arrival shows that these frames were processed.
fn marker() -> Vec<u8> {
    let flow = crate::chain::Flow { seed: 0, number: 0, network: 250, port: MARKER_PORT };
    let packet = ip::ipv4(&flow, 17, 0, false, 0, &ip::udp(MARKER_PORT, b"behind them"));
    ip::ethernet(&[], 0x0800, &packet, 0)
}
