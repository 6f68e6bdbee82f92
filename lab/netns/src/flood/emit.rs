//! Passes batches of datagrams to the kernel: through UDP sockets, or as frames.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::ops::RangeInclusive;
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};
use std::time::Duration;

use ipnet::IpNet;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrLike as _, SockaddrStorage, setsockopt, socket,
    sockopt,
};
use nix::sys::time::TimeVal;
use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};

use super::frame::{MAX_HEADERS, Template};
use super::interface::Interface;
use super::payload::Datagram;
use super::{FloodError, Origin, guard};
use crate::plan;

/// Maximum time that a send waits for room, in microseconds, so that limits and the stop flag are
/// checked.
const SEND_WAIT_US: i64 = 50_000;

/// Result of sending a batch. Datagrams for which the kernel had no room count neither as sent nor
/// as errors.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub sent: u64,
    pub errors: u64,
    pub error: Option<io::Error>,
}

/// Sends datagrams to the flood's target.
pub(super) trait Emitter {
    /// Sends all datagrams, or as many as there is room for.
    fn send(&mut self, datagrams: Vec<Datagram<'_>>) -> Batch;
}

pub(super) fn emitter(
    origin: &Origin,
    target: SocketAddr,
    rng: &mut SmallRng,
) -> Result<Box<dyn Emitter>, FloodError> {
    Ok(match origin {
        Origin::Sockets(addresses) => Box::new(Sockets::open(addresses, target)?),
        Origin::Spoofed { interface, prefixes, ports } => {
            Box::new(Frames::open(interface, prefixes, ports, target, SmallRng::from_rng(rng))?)
        }
    })
}

struct Sockets {
    sockets: Vec<UdpSocket>,
    next: usize,
    target: SockaddrStorage,
}

impl Sockets {
    fn open(addresses: &[SocketAddr], target: SocketAddr) -> Result<Self, FloodError> {
        if addresses.is_empty() {
            return Err(FloodError::Invalid("there is no address to send from".into()));
        }
        let sockets =
            addresses.iter().map(|&address| open_udp(address, target)).collect::<Result<_, _>>()?;
        Ok(Self { sockets, next: 0, target: target.into() })
    }
}

fn open_udp(address: SocketAddr, target: SocketAddr) -> Result<UdpSocket, FloodError> {
    if address.is_ipv4() != target.is_ipv4() {
        return Err(FloodError::Invalid(format!("{address} cannot send to {target}")));
    }
    let failed = |e| FloodError::system(format!("open a socket on {address}"), e);
    let socket = UdpSocket::bind(address).map_err(failed)?;
    let wait = Duration::from_micros(SEND_WAIT_US.unsigned_abs());
    socket.set_write_timeout(Some(wait)).map_err(failed)?;
    // Nothing reads the answers, so make the receive buffer as small as possible, and let the
    // kernel drop them early. The kernel raises 0 to its minimum.
    setsockopt(&socket, sockopt::RcvBuf, &0).map_err(|e| failed(e.into()))?;
    Ok(socket)
}

impl Emitter for Sockets {
    fn send(&mut self, datagrams: Vec<Datagram<'_>>) -> Batch {
        let messages: Vec<[&[u8]; 2]> = datagrams.iter().map(|&(bytes, _)| [bytes, &[]]).collect();
        // Divide the batch among the sockets. If there are at least two, a full batch uses at least
        // two of them.
        let share = messages.len().div_ceil(self.sockets.len().min(16));
        let mut batch = Batch::default();
        for chunk in messages.chunks(share.max(1)) {
            let socket = &self.sockets[self.next];
            self.next = (self.next + 1) % self.sockets.len();
            if !send_all(socket.as_raw_fd(), Some(&self.target), chunk, &mut batch) {
                break;
            }
        }
        batch
    }
}

struct Frames {
    socket: OwnedFd,
    template: Template,
    prefixes: Vec<IpNet>,
    ports: RangeInclusive<u16>,
    rng: SmallRng,
}

impl Frames {
    fn open(
        ifname: &str,
        prefixes: &[IpNet],
        ports: &RangeInclusive<u16>,
        target: SocketAddr,
        rng: SmallRng,
    ) -> Result<Self, FloodError> {
        let ipv4 = target.is_ipv4();
        let prefixes: Vec<IpNet> =
            prefixes.iter().filter(|prefix| prefix.addr().is_ipv4() == ipv4).copied().collect();
        if prefixes.is_empty() {
            let family = if ipv4 { "IPv4" } else { "IPv6" };
            return Err(FloodError::Invalid(format!(
                "there is no {family} prefix for forged source addresses, but the target {target} needs one"
            )));
        }
        if ports.is_empty() {
            return Err(FloodError::Invalid("there is no port to send from".into()));
        }
        let target_mac = plan::mac_of(target.ip()).ok_or_else(|| {
            FloodError::Invalid(format!("no host of a lab has the address {}", target.ip()))
        })?;
        let interface = Interface::find(ifname)?;
        let socket = open_packet(&interface)?;
        let template = Template { source_mac: interface.mac()?, target_mac, target };
        Ok(Self { socket, template, prefixes, ports: ports.clone(), rng })
    }

    fn source(&mut self) -> SocketAddr {
        let prefix = self.prefixes[self.rng.random_range(0..self.prefixes.len())];
        let port = self.rng.random_range(self.ports.clone());
        SocketAddr::new(address_in(prefix, &mut self.rng), port)
    }
}

/// Returns a random host address of a prefix. In IPv4, excludes the network and broadcast
/// addresses.
fn address_in(prefix: IpNet, rng: &mut SmallRng) -> IpAddr {
    match prefix {
        IpNet::V4(net) => {
            let hosts = u32::from(net.hostmask());
            let range = if hosts > 1 { 1..=hosts - 1 } else { 0..=hosts };
            IpAddr::V4((u32::from(net.network()) | rng.random_range(range)).into())
        }
        IpNet::V6(net) => {
            let host = rng.random::<u128>() & u128::from(net.hostmask());
            IpAddr::V6((u128::from(net.network()) | host).into())
        }
    }
}

impl Emitter for Frames {
    fn send(&mut self, datagrams: Vec<Datagram<'_>>) -> Batch {
        let mut batch = Batch::default();
        let mut headers = vec![([0; MAX_HEADERS], 0); datagrams.len()];
        for ((buffer, length), (bytes, sum)) in headers.iter_mut().zip(&datagrams) {
            let (source, id) = (self.source(), self.rng.random());
            // The address families were compared before, so the only possible error is that the
            // payload does not fit.
            *length = self.template.headers(buffer, source, id, bytes.len(), *sum).unwrap_or(0);
        }
        let messages: Vec<[&[u8]; 2]> = headers
            .iter()
            .zip(&datagrams)
            .filter(|((_, length), _)| *length > 0)
            .map(|((buffer, length), &(bytes, _))| [&buffer[..*length], bytes])
            .collect();
        let unfit = datagrams.len() - messages.len();
        if unfit > 0 {
            batch.errors += unfit as u64;
            batch.error = Some(io::Error::from_raw_os_error(libc::EMSGSIZE));
        }
        send_all(self.socket.as_raw_fd(), None, &messages, &mut batch);
        batch
    }
}

/// Opens a packet socket (packet(7)) that sends on `interface` and receives nothing.
pub(super) fn open_packet(interface: &Interface) -> Result<OwnedFd, FloodError> {
    guard::check_interface(interface)?;
    let failed = |e: io::Error| {
        FloodError::system(format!("open a packet socket on {}", interface.name()), e)
    };
    let socket = socket(AddressFamily::Packet, SockType::Raw, SockFlag::SOCK_CLOEXEC, None)
        .map_err(|e| failed(e.into()))?;
    // SAFETY: sockaddr_ll is plain data. Zeros are a valid value.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_ifindex = interface.index();
    // SAFETY: the address lives during the call, and its size is correct.
    let bound = unsafe {
        libc::bind(
            socket.as_raw_fd(),
            (&raw const address).cast(),
            size_of::<libc::sockaddr_ll>() as libc::socklen_t,
        )
    };
    if bound != 0 {
        return Err(failed(io::Error::last_os_error()));
    }
    setsockopt(&socket, sockopt::SendTimeout, &TimeVal::new(0, SEND_WAIT_US))
        .map_err(|e| failed(e.into()))?;
    Ok(socket)
}

/// Sends every message, each of two parts. A message that fails is counted and skipped. Returns
/// `false` if there was no room for the rest.
pub(super) fn send_all(
    socket: RawFd,
    target: Option<&SockaddrStorage>,
    messages: &[[&[u8]; 2]],
    batch: &mut Batch,
) -> bool {
    let mut parts: Vec<[libc::iovec; 2]> = messages
        .iter()
        .map(|message| {
            message.map(|part| libc::iovec {
                // sendmmsg(2) only reads the memory, but the type iovec has no const pointer.
                iov_base: part.as_ptr().cast_mut().cast(),
                iov_len: part.len(),
            })
        })
        .collect();
    let mut headers: Vec<libc::mmsghdr> =
        parts.iter_mut().map(|parts| header(parts, target)).collect();
    let mut rest = headers.as_mut_slice();
    while !rest.is_empty() {
        // SAFETY: every header points to two parts in `parts` and to `target`, and these point to
        // slices borrowed from the caller. All live until the end of this function and do not move.
        let result = unsafe { libc::sendmmsg(socket, rest.as_mut_ptr(), rest.len() as u32, 0) };
        let done = match usize::try_from(result) {
            Ok(sent) => {
                batch.sent += sent as u64;
                // The kernel sent nothing without an error: do not try again.
                if sent == 0 {
                    return false;
                }
                sent
            }
            Err(_) => match io::Error::last_os_error() {
                e if e.kind() == io::ErrorKind::WouldBlock => return false,
                e if e.kind() == io::ErrorKind::Interrupted => 0,
                e => {
                    batch.errors += 1;
                    batch.error = Some(e);
                    1
                }
            },
        };
        rest = &mut rest[done..];
    }
    true
}

fn header(parts: &mut [libc::iovec; 2], target: Option<&SockaddrStorage>) -> libc::mmsghdr {
    // SAFETY: mmsghdr is plain data. Zeros are a valid value.
    let mut header: libc::mmsghdr = unsafe { std::mem::zeroed() };
    header.msg_hdr.msg_iov = parts.as_mut_ptr();
    header.msg_hdr.msg_iovlen = parts.len() as _;
    if let Some(target) = target {
        header.msg_hdr.msg_name = target.as_ptr().cast_mut().cast();
        header.msg_hdr.msg_namelen = target.len();
    }
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flood_addresses_stay_in_their_prefix() {
        let mut rng = SmallRng::seed_from_u64(3);
        for text in [
            "198.18.3.0/24",
            "192.0.2.8/30",
            "192.0.2.8/31",
            "192.0.2.8/32",
            "2001:db8::/64",
            "2001:db8::5/128",
        ] {
            let prefix: IpNet = text.parse().unwrap();
            for _ in 0..500 {
                let address = address_in(prefix, &mut rng);
                assert!(prefix.contains(&address), "{address} is not in {prefix}");
                if let (IpNet::V4(net), IpAddr::V4(v4)) = (prefix, address)
                    && net.prefix_len() < 31
                {
                    assert!(v4 != net.network() && v4 != net.broadcast(), "{address}");
                }
            }
        }
    }
}
