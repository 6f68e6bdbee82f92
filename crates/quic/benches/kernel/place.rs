//! Where datagrams are sent: on loopback, or between two virtual interfaces in separate network
//! namespaces. The namespaces have no names. The kernel removes them with the last open file that
//! refers to them, however the program ends.

use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::process::Command;

use nix::libc;
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::socket::{setsockopt, sockopt};

use crate::message::set;

/// Name of the interface in each namespace.
const INTERFACE: &str = "eth0";
/// Commands of linux/ethtool.h that switch off receive checksums, transmit checksums,
/// scatter-gather, TCP segmentation, generic segmentation, and generic receive offload. The kernel
/// accepts them in this order.
const OFFLOADS: [u32; 6] = [0x15, 0x17, 0x19, 0x1f, 0x24, 0x2c];
/// Size of the socket buffers in bytes. They must hold what is sent before it is received.
const BUFFER: usize = 4 << 20;

/// Network interfaces between the sender's socket and the receiver's.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Loopback,
    Veth,
    /// Virtual interfaces without offloads of checksums and segmentation.
    VethPlain,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Loopback => "loopback",
            Kind::Veth => "veth",
            Kind::VethPlain => "veth-plain",
        }
    }
}

/// Network namespaces of the sender and the receiver, or `None` for loopback.
pub(crate) struct Place {
    namespaces: Option<[File; 2]>,
}

fn joined<T: Send>(run: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    std::thread::scope(|scope| scope.spawn(run).join())
        .unwrap_or_else(|_| Err(io::Error::other("a thread panicked")))
}

/// Runs ip(8) in the namespace of this thread. `words` are its arguments, separated by spaces.
fn ip(words: &str) -> io::Result<()> {
    let output = Command::new("ip").args(words.split(' ')).output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("ip {words}: {}", said.trim())))
}

fn namespace() -> io::Result<File> {
    joined(|| {
        unshare(CloneFlags::CLONE_NEWNET)?;
        File::open("/proc/thread-self/ns/net")
    })
}

/// Returns the MAC address of the sender (0) or the receiver (1).
pub(crate) fn mac(index: u8) -> [u8; 6] {
    [2, 0, 0, 0, 0, index + 1]
}

/// Returns the address of the sender (0) or the receiver (1) on a virtual interface.
pub(crate) fn address(index: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 251, 0, index + 1)
}

impl Place {
    pub(crate) fn new(kind: Kind) -> io::Result<Place> {
        if kind == Kind::Loopback {
            return Ok(Place { namespaces: None });
        }
        let namespaces = [namespace()?, namespace()?];
        let other = format!("/proc/{}/fd/{}", std::process::id(), namespaces[1].as_raw_fd());
        let place = Place { namespaces: Some(namespaces) };
        place.within(0, || {
            ip(&format!(
                "link add {INTERFACE} address 02:00:00:00:00:01 type veth peer name {INTERFACE} \
                 address 02:00:00:00:00:02 netns {other}"
            ))
        })?;
        for (own, peer) in [(0, 1), (1, 0)] {
            place.within(own, || {
                // Prevent other traffic: there are neither IPv6 addresses nor ARP.
                ip(&format!("link set {INTERFACE} addrgenmode none"))?;
                ip(&format!("address add {}/24 dev {INTERFACE}", address(own)))?;
                ip(&format!("link set {INTERFACE} up"))?;
                let mac = format!("02:00:00:00:00:0{}", peer + 1);
                ip(&format!("neighbour add {} lladdr {mac} dev {INTERFACE}", address(peer)))?;
                if kind == Kind::VethPlain { without_offloads() } else { Ok(()) }
            })?;
        }
        Ok(place)
    }

    /// Calls `run` in the namespace of the sender (0) or the receiver (1). A socket stays in the
    /// namespace in which it is created.
    pub(crate) fn within<T: Send>(
        &self,
        index: u8,
        run: impl FnOnce() -> io::Result<T> + Send,
    ) -> io::Result<T> {
        let Some(namespaces) = &self.namespaces else { return run() };
        joined(|| {
            setns(&namespaces[usize::from(index)], CloneFlags::CLONE_NEWNET)?;
            run()
        })
    }

    /// Returns two sockets that are connected to each other.
    pub(crate) fn sockets(&self) -> io::Result<[UdpSocket; 2]> {
        let bound = |index| {
            let address =
                if self.namespaces.is_some() { address(index) } else { Ipv4Addr::LOCALHOST };
            self.within(index, || UdpSocket::bind(SocketAddr::from((address, 0))))
        };
        let sockets = [bound(0)?, bound(1)?];
        sockets[0].connect(sockets[1].local_addr()?)?;
        sockets[1].connect(sockets[0].local_addr()?)?;
        for socket in &sockets {
            if setsockopt(socket, sockopt::RcvBufForce, &BUFFER).is_err() {
                setsockopt(socket, sockopt::RcvBuf, &BUFFER)?;
            }
            setsockopt(socket, sockopt::SndBuf, &BUFFER)?;
            socket.set_nonblocking(true)?;
        }
        // Switch off GRO for the first socket, so that it receives one datagram per message.
        set(&sockets[0], libc::SOL_UDP, libc::UDP_GRO, 0)?;
        Ok(sockets)
    }
}

/// Returns the index of the interface in the namespace of this thread.
pub(crate) fn interface() -> io::Result<u32> {
    Ok(nix::net::if_::if_nametoindex(INTERFACE)?)
}

/// Switches off the offloads of the interface.
fn without_offloads() -> io::Result<()> {
    /// `struct ethtool_value`.
    #[repr(C)]
    struct Value {
        command: u32,
        data: u32,
    }
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    for command in OFFLOADS {
        let mut value = Value { command, data: 0 };
        // SAFETY: all zeros is a valid ifreq.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        for (to, from) in request.ifr_name.iter_mut().zip(INTERFACE.bytes()) {
            *to = from.cast_signed();
        }
        request.ifr_ifru.ifru_data = (&raw mut value).cast();
        // SAFETY: the request and the value that it points to live until the call ends. They have
        // the layout that SIOCETHTOOL expects for these commands.
        let done =
            unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request) };
        if done < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}
