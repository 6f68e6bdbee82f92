//! Dumps addresses, routes and interfaces of this network namespace through rtnetlink.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

const SOL_NETLINK: i32 = 270;
const NETLINK_GET_STRICT_CHK: i32 = 12;
const RTM_GETLINK: u16 = 18;
const RTM_GETADDR: u16 = 22;
const RTM_GETROUTE: u16 = 26;
const RTM_GETNEIGH: u16 = 30;
const AF_INET: u8 = 2;
const AF_BRIDGE: u8 = 7;
const AF_INET6: u8 = 10;
const TABLE_LOCAL: u8 = 255;
const NTF_SELF: u8 = 2;
const NLM_F_REQUEST: u16 = 0x1;
const NLM_F_DUMP: u16 = 0x300;
const NLM_F_DUMP_INTR: u16 = 0x10;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const RTN_LOCAL: u8 = 2;
const RTN_BROADCAST: u8 = 3;
const RTN_ANYCAST: u8 = 4;
const RTA_DST: u16 = 1;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFLA_ADDRESS: u16 = 1;
const IFLA_MASTER: u16 = 10;
const IFLA_LINKINFO: u16 = 18;
const IFLA_STATS64: u16 = 23;
const IFLA_PROMISCUITY: u16 = 30;
const IFLA_INFO_KIND: u16 = 1;
/// Attribute and flag of a request for links, which make the kernel omit statistics from the
/// answer.
const IFLA_EXT_MASK: u16 = 29;
const SKIP_STATS: u32 = 8;
const HEADER: usize = 16;
/// Multicast groups with notifications about links, and about addresses of both families.
const GROUPS: u32 = 0x1 | 0x10 | 0x100;
/// Maximum number of attempts to read a dump, because the tables may change during each attempt.
const ATTEMPTS: u32 = 4;

/// Kind of a local route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RouteKind {
    /// Packets are delivered to this host.
    Local,
    /// The destination is a broadcast address of this host.
    Broadcast,
}

/// A prefix whose packets are delivered to this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LocalRoute {
    pub(crate) addr: IpAddr,
    pub(crate) length: u8,
    pub(crate) kind: RouteKind,
}

/// An interface.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct LinkInfo {
    pub(crate) ifindex: u32,
    /// Link-layer address of the interface, if it has six bytes.
    pub(crate) mac: Option<[u8; 6]>,
    /// The bridge, bond or VRF of which the interface is a port.
    pub(crate) master: Option<u32>,
    pub(crate) promiscuous: bool,
    /// Kind of a virtual interface, such as `veth`. Empty for hardware.
    pub(crate) kind: String,
    /// Number of packets that the interface failed to send.
    pub(crate) tx_dropped: u64,
}

fn socket() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
    // SAFETY: the call takes no pointers.
    let fd = unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_ROUTE) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just returned this descriptor, and nothing else owns it.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    let on = 1i32;
    // SAFETY: the option's value is an int, and is valid during the call.
    let set = unsafe {
        libc::setsockopt(
            fd,
            SOL_NETLINK,
            NETLINK_GET_STRICT_CHK,
            (&raw const on).cast(),
            size_of_val(&on) as u32,
        )
    };
    // Linux has had this option since 4.20. With it, the kernel filters dumps.
    if set < 0 { Err(io::Error::last_os_error()) } else { Ok(socket) }
}

fn receive(socket: &OwnedFd, buffer: &mut [u8], flags: i32) -> io::Result<usize> {
    // SAFETY: the buffer has this length.
    let got =
        unsafe { libc::recv(socket.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), flags) };
    usize::try_from(got).map_err(|_| io::Error::last_os_error())
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

/// Iterates over the attributes after a message's header. Each item is the type and the value of an
/// attribute.
fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(half(bytes, 0)?);
        let kind = half(bytes, 2)? & 0x3fff;
        let value = bytes.get(4..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

/// Requests a dump of a kind, and calls `each` with the body of each message. Returns false if the
/// tables changed during the dump.
fn dump(kind: u16, body: &[u8], mut each: impl FnMut(&[u8])) -> io::Result<bool> {
    let socket = socket()?;
    let mut request = Vec::with_capacity(HEADER + body.len());
    request.extend(((HEADER + body.len()) as u32).to_ne_bytes());
    request.extend(kind.to_ne_bytes());
    request.extend((NLM_F_REQUEST | NLM_F_DUMP).to_ne_bytes());
    request.extend([1, 0, 0, 0, 0, 0, 0, 0]);
    request.extend(body);
    // SAFETY: the request has this length.
    let sent = unsafe { libc::send(socket.as_raw_fd(), request.as_ptr().cast(), request.len(), 0) };
    if sent < 0 {
        return Err(io::Error::last_os_error());
    }
    let mut buffer = vec![0; 64 * 1024];
    let mut consistent = true;
    loop {
        let length = receive(&socket, &mut buffer, 0)?;
        let mut rest = buffer.get(..length).unwrap_or_default();
        while let (Some(length), Some(kind), Some(flags)) =
            (word(rest, 0), half(rest, 4), half(rest, 6))
        {
            let length = length as usize;
            let Some(body) = rest.get(HEADER..length) else { break };
            consistent &= flags & NLM_F_DUMP_INTR == 0;
            match kind {
                NLMSG_DONE => return Ok(consistent),
                NLMSG_ERROR => {
                    let number = word(body, 0).unwrap_or_default().cast_signed();
                    // The kernel has no such table or protocol family, so the dump is empty.
                    let absent = [libc::ENOENT, libc::EOPNOTSUPP, libc::EAFNOSUPPORT];
                    if absent.contains(&-number) {
                        return Ok(consistent);
                    }
                    return Err(io::Error::from_raw_os_error(-number));
                }
                _ => each(body),
            }
            rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        }
    }
}

/// Collects the results of [`dump`] in a list. If the tables change during the dump, empties the
/// list and repeats the dump.
fn collect<T>(
    kind: u16,
    body: &[u8],
    mut each: impl FnMut(&[u8]) -> Option<T>,
) -> io::Result<Vec<T>> {
    let mut all = Vec::new();
    for _ in 0..ATTEMPTS {
        all.clear();
        if dump(kind, body, |body| all.extend(each(body)))? {
            break;
        }
    }
    Ok(all)
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => Some(Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?).into()),
        16 => Some(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?).into()),
        _ => None,
    }
}

/// Returns the routes of the table `local` for both families. They say which packets are delivered
/// to this host.
pub(crate) fn local_routes() -> io::Result<Vec<LocalRoute>> {
    let mut all = Vec::new();
    for family in [AF_INET, AF_INET6] {
        let mut body = [0; 12];
        (body[0], body[4]) = (family, TABLE_LOCAL);
        all.extend(collect(RTM_GETROUTE, &body, |body| {
            let (family, length, table, kind) =
                (*body.first()?, *body.get(1)?, *body.get(4)?, *body.get(7)?);
            let kind = match kind {
                RTN_LOCAL | RTN_ANYCAST => RouteKind::Local,
                RTN_BROADCAST => RouteKind::Broadcast,
                _ => return None,
            };
            let unspecified = match family {
                AF_INET => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
                _ => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
            };
            let to = attributes(body.get(12..)?).find(|(kind, _)| *kind == RTA_DST);
            let addr = to.map_or(Some(unspecified), |(_, value)| address(value))?;
            (table == TABLE_LOCAL).then_some(LocalRoute { addr, length, kind })
        })?);
    }
    Ok(all)
}

/// Returns the addresses of all interfaces, including those in VRFs.
pub(crate) fn addresses() -> io::Result<Vec<IpAddr>> {
    collect(RTM_GETADDR, &[0; 8], |body| {
        let find = |wanted| {
            attributes(body.get(8..)?).find(|(kind, _)| *kind == wanted).map(|(_, value)| value)
        };
        // If the interface has a peer address, IFA_ADDRESS is the peer's.
        address(find(IFA_LOCAL).or_else(|| find(IFA_ADDRESS))?)
    })
}

/// Returns all interfaces, without their statistics.
pub(crate) fn links() -> io::Result<Vec<LinkInfo>> {
    let mut body = vec![0; 16];
    body.extend(8u16.to_ne_bytes());
    body.extend(IFLA_EXT_MASK.to_ne_bytes());
    body.extend(SKIP_STATS.to_ne_bytes());
    collect(RTM_GETLINK, &body, link)
}

/// Returns all interfaces with their statistics.
pub(crate) fn links_with_statistics() -> io::Result<Vec<LinkInfo>> {
    collect(RTM_GETLINK, &[0; 16], link)
}

fn link(body: &[u8]) -> Option<LinkInfo> {
    let mut info = LinkInfo { ifindex: word(body, 4)?, ..LinkInfo::default() };
    for (kind, value) in attributes(body.get(16..)?) {
        match kind {
            IFLA_ADDRESS => info.mac = value.try_into().ok(),
            IFLA_MASTER => info.master = word(value, 0),
            IFLA_PROMISCUITY => info.promiscuous = word(value, 0)? > 0,
            // The counter is the eighth word of struct rtnl_link_stats64.
            IFLA_STATS64 => {
                let dropped = value.get(7 * 8..8 * 8).and_then(|word| word.try_into().ok());
                info.tx_dropped = dropped.map_or(0, u64::from_ne_bytes);
            }
            IFLA_LINKINFO => {
                let name = attributes(value).find(|(kind, _)| *kind == IFLA_INFO_KIND);
                let name = name.map(|(_, name)| String::from_utf8_lossy(name).into_owned());
                info.kind = name.unwrap_or_default().trim_end_matches('\0').to_owned();
            }
            _ => {}
        }
    }
    Some(info)
}

/// Returns the additional link-layer addresses whose frames an interface accepts, for example those
/// of macvlan interfaces on it.
pub(crate) fn more_macs(ifindex: u32) -> io::Result<Vec<[u8; 6]>> {
    const NDA_IFINDEX: u16 = 8;
    const NDA_LLADDR: u16 = 2;
    let mut body = vec![0; 12];
    body[0] = AF_BRIDGE;
    body.extend(8u16.to_ne_bytes());
    body.extend(NDA_IFINDEX.to_ne_bytes());
    body.extend(ifindex.to_ne_bytes());
    collect(RTM_GETNEIGH, &body, |body| {
        let own = word(body, 4)? == ifindex && body.get(10)? & NTF_SELF != 0;
        let mac = attributes(body.get(12..)?).find(|(kind, _)| *kind == NDA_LLADDR)?.1;
        mac.try_into().ok().filter(|mac: &[u8; 6]| own && mac[0] & 1 == 0)
    })
}

/// Notifications from the kernel about changes of links and addresses.
#[derive(Debug)]
pub(crate) struct Changes(OwnedFd);

impl Changes {
    pub(crate) fn subscribe() -> io::Result<Changes> {
        let socket = socket()?;
        // SAFETY: all zeros is valid for this structure, which consists of integers.
        let mut address: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
        address.nl_family = libc::AF_NETLINK as u16;
        address.nl_groups = GROUPS;
        // SAFETY: the address has this length and is valid during the call.
        let bound = unsafe {
            libc::bind(
                socket.as_raw_fd(),
                (&raw const address).cast(),
                size_of_val(&address) as u32,
            )
        };
        if bound < 0 { Err(io::Error::last_os_error()) } else { Ok(Changes(socket)) }
    }

    /// Returns true if links or addresses may have changed since the last call. Does not block.
    pub(crate) fn any(&self) -> bool {
        let (mut any, mut buffer) = (false, [0; 4096]);
        // ENOBUFS means that notifications were lost, which counts as a change, too.
        loop {
            match receive(&self.0, &mut buffer, libc::MSG_DONTWAIT) {
                Ok(_) => any = true,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return any,
                Err(_) => return true,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_addresses_are_local_routes() {
        let routes = local_routes().expect("a dump");
        let of_loopback = |route: &LocalRoute| {
            route.kind == RouteKind::Local && route.addr == IpAddr::from([127, 0, 0, 1])
        };
        assert!(routes.iter().any(of_loopback), "{routes:?}");
        let broadcast = |route: &LocalRoute| {
            route.kind == RouteKind::Broadcast && route.addr == IpAddr::from([127, 255, 255, 255])
        };
        assert!(routes.iter().any(broadcast), "{routes:?}");
        assert!(addresses().expect("a dump").contains(&IpAddr::from([127, 0, 0, 1])));
    }

    #[test]
    fn loopback_is_an_interface() {
        let links = links().expect("a dump");
        let lo = links.iter().find(|link| link.ifindex == 1).expect("every namespace has lo");
        assert_eq!((lo.mac, lo.master, lo.kind.as_str()), (Some([0; 6]), None, ""));
        assert_eq!(links_with_statistics().expect("a dump").len(), links.len());
        assert!(more_macs(1).is_ok());
    }

    #[test]
    fn netlink_attributes_end_at_a_malformed_one() {
        let fine = [8, 0, 1, 0, 1, 2, 3, 4, 5, 0, 2, 0, 9, 0, 0, 0];
        let found: Vec<_> = attributes(&fine).collect();
        assert_eq!(found, [(1, &fine[4..8]), (2, &fine[12..13])]);
        for broken in [&[][..], &[4], &[0, 0, 1, 0], &[3, 0, 1, 0], &[9, 0, 1, 0, 0, 0, 0, 0]] {
            assert_eq!(attributes(broken).count(), 0, "{broken:?}");
        }
    }
}
