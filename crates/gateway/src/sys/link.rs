//! Network interfaces of this network namespace, queried through rtnetlink(7).
//!
//! `if_nametoindex` also finds alternative names, but only those of at most 15 bytes. It does not
//! show whether a name is an alternative one.

use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

/// Size in bytes of nlmsghdr (netlink(7)). The next constant is the size of ifinfomsg
/// (rtnetlink(7)).
const HEADER: usize = 16;
const INTERFACE: usize = 16;
/// Maximum length of an alternative name, with its terminating NUL (ALTIFNAMSIZ).
const LONGEST: usize = 128;
/// Types of attributes of an interface, from linux/if_link.h.
const IFLA_ALT_IFNAME: u16 = 53;
const IFLA_INFO_KIND: u16 = 1;
/// Mask that removes the flags from an attribute's type (NLA_TYPE_MASK).
const KIND: u16 = 0x3fff;

/// A network interface, as the kernel describes it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct NetworkInterface {
    /// Index of the interface in this network namespace.
    pub index: u32,
    /// Name of the interface. Alternative names are not included.
    pub name: String,
    /// True if the interface is administratively up.
    pub up: bool,
    /// Driver of a virtual interface, such as `vlan` or `macvlan`, or `None` for hardware.
    pub kind: Option<String>,
    /// Index of a related interface in this network namespace: the one that it is stacked on
    /// (`vlan`, `macvlan` and the like), or its peer (`veth`). `None` if no related interface is in
    /// this namespace.
    pub lower: Option<u32>,
}

impl NetworkInterface {
    /// Returns the interface of this network namespace with this name or alternative name, or
    /// `None` if no interface has it.
    ///
    /// # Errors
    /// Returns the system's error, for example if no file descriptor is free.
    pub fn by_name(name: &str) -> io::Result<Option<NetworkInterface>> {
        if name.is_empty() || name.len() >= LONGEST || name.contains('\0') {
            return Ok(None);
        }
        let short = name.len() < libc::IF_NAMESIZE;
        let attribute = if short { libc::IFLA_IFNAME } else { IFLA_ALT_IFNAME };
        let mut text = name.as_bytes().to_vec();
        text.push(0);
        ask(0, &attribute_of(attribute, &text))
    }

    /// Returns the interface of this network namespace with this index, or `None` if no interface
    /// has it.
    ///
    /// # Errors
    /// Returns the system's error, for example if no file descriptor is free.
    pub fn by_index(index: u32) -> io::Result<Option<NetworkInterface>> {
        ask(index, &[])
    }
}

fn attribute_of(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = (value.len() + 4) as u16;
    let mut bytes = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn ask(index: u32, attributes: &[u8]) -> io::Result<Option<NetworkInterface>> {
    let mut request = Vec::new();
    request.extend(((HEADER + INTERFACE + attributes.len()) as u32).to_ne_bytes());
    request.extend(libc::RTM_GETLINK.to_ne_bytes());
    request.extend((libc::NLM_F_REQUEST as u16).to_ne_bytes());
    request.extend([0; 8]);
    let mut body = [0; INTERFACE];
    body[4..8].copy_from_slice(&index.to_ne_bytes());
    request.extend(body);
    request.extend(attributes);
    let socket = netlink()?;
    // SAFETY: the request has this length and is valid during the call.
    let sent = unsafe {
        libc::send(socket.as_raw_fd(), request.as_ptr().cast(), request.len(), libc::MSG_NOSIGNAL)
    };
    if sent < 0 {
        return Err(io::Error::last_os_error());
    }
    // The answer can be longer than a page, because it has the statistics of all virtual functions
    // of a card.
    let mut answer = vec![0; 64 << 10];
    // SAFETY: the buffer has this length and is valid during the call.
    let got =
        unsafe { libc::recv(socket.as_raw_fd(), answer.as_mut_ptr().cast(), answer.len(), 0) };
    let got = usize::try_from(got).map_err(|_| io::Error::last_os_error())?;
    read(&answer[..got])
}

/// Opens a netlink socket that is connected to the kernel, so that it receives messages only from
/// the kernel.
fn netlink() -> io::Result<OwnedFd> {
    // SAFETY: the call takes only numbers.
    let fd = unsafe {
        libc::socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC, libc::NETLINK_ROUTE)
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new, and nothing else owns it.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: all zeros is a valid netlink address. It is the kernel's address.
    let mut kernel: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
    kernel.nl_family = libc::AF_NETLINK as u16;
    // SAFETY: the address has this length and is valid during the call.
    let connected = unsafe {
        libc::connect(fd, (&raw const kernel).cast(), size_of::<libc::sockaddr_nl>() as u32)
    };
    if connected < 0 { Err(io::Error::last_os_error()) } else { Ok(socket) }
}

/// Parses the kernel's answer to a request for one interface.
fn read(answer: &[u8]) -> io::Result<Option<NetworkInterface>> {
    let cut = || io::Error::new(io::ErrorKind::InvalidData, "the kernel's answer is truncated");
    let header = answer.first_chunk::<HEADER>().ok_or_else(cut)?;
    let length = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]) as usize;
    let kind = u16::from_ne_bytes([header[4], header[5]]);
    let body = answer.get(HEADER..length).ok_or_else(cut)?;
    if i32::from(kind) == libc::NLMSG_ERROR {
        let number = body.first_chunk().map(|bytes| i32::from_ne_bytes(*bytes)).ok_or_else(cut)?;
        return match -number {
            libc::ENODEV => Ok(None),
            // A kernel without alternative names returns these errors.
            libc::EINVAL | libc::EOPNOTSUPP => Ok(None),
            errno => Err(io::Error::from_raw_os_error(errno)),
        };
    }
    let fixed = body.first_chunk::<INTERFACE>().ok_or_else(cut)?;
    let flags = u32::from_ne_bytes([fixed[8], fixed[9], fixed[10], fixed[11]]);
    let mut link = NetworkInterface {
        index: u32::from_ne_bytes([fixed[4], fixed[5], fixed[6], fixed[7]]),
        up: flags & libc::IFF_UP as u32 != 0,
        ..NetworkInterface::default()
    };
    let mut elsewhere = false;
    for (kind, value) in attributes(&body[INTERFACE..]) {
        match kind {
            libc::IFLA_IFNAME => link.name = text(value),
            libc::IFLA_LINK => {
                let index = value.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes));
                link.lower = index.filter(|lower| *lower != 0 && *lower != link.index);
            }
            // The index in the message belongs to an interface of another network namespace.
            libc::IFLA_LINK_NETNSID => elsewhere = true,
            libc::IFLA_LINKINFO => {
                let named = attributes(value).find(|(kind, _)| *kind == IFLA_INFO_KIND);
                link.kind = named.map(|(_, value)| text(value));
            }
            _ => {}
        }
    }
    if elsewhere {
        link.lower = None;
    }
    Ok(Some(link))
}

fn text(value: &[u8]) -> String {
    let end = value.iter().position(|byte| *byte == 0).unwrap_or(value.len());
    String::from_utf8_lossy(&value[..end]).into_owned()
}

/// Iterates over the attributes. Stops at the first one that is cut off.
fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let head = bytes.first_chunk::<4>()?;
        let length = usize::from(u16::from_ne_bytes([head[0], head[1]]));
        let kind = u16::from_ne_bytes([head[2], head[3]]) & KIND;
        let value = bytes.get(4..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_are_found_by_name_and_index() {
        let lo = NetworkInterface::by_name("lo")
            .expect("the kernel answers")
            .expect("every namespace has lo");
        assert_eq!((lo.name.as_str(), lo.kind.as_deref(), lo.lower), ("lo", None, None));
        assert_eq!(NetworkInterface::by_index(lo.index).expect("the kernel answers"), Some(lo));
        let long = "a".repeat(LONGEST - 1);
        for name in ["", "nosuchif", "a\0b", &long, &"a".repeat(LONGEST)] {
            assert_eq!(
                NetworkInterface::by_name(name).expect("the kernel answers"),
                None,
                "{name}"
            );
        }
        assert_eq!(NetworkInterface::by_index(u32::MAX >> 1).expect("the kernel answers"), None);
    }

    #[test]
    fn interface_answers_that_are_cut_off_are_not_misread() {
        let mut answer = vec![0; HEADER + INTERFACE];
        answer[4..6].copy_from_slice(&libc::RTM_NEWLINK.to_ne_bytes());
        answer[HEADER + 4] = 7;
        answer.extend(attribute_of(libc::IFLA_IFNAME, b"eth0\0"));
        answer.extend(attribute_of(libc::IFLA_LINKINFO, &attribute_of(IFLA_INFO_KIND, b"vlan\0")));
        let length = answer.len() as u32;
        answer[..4].copy_from_slice(&length.to_ne_bytes());
        let link = read(&answer).expect("it is whole").expect("an interface");
        assert_eq!((link.index, link.name.as_str()), (7, "eth0"));
        assert_eq!((link.kind.as_deref(), link.up), (Some("vlan"), false));
        for cut in 0..answer.len() {
            assert!(read(&answer[..cut]).is_err(), "{cut}");
        }
        // If an attribute claims to be longer than the rest of the message, it must end the list.
        let at = HEADER + INTERFACE;
        for length in [0u16, 3, 200, u16::MAX] {
            answer[at..at + 2].copy_from_slice(&length.to_ne_bytes());
            assert_eq!(read(&answer).expect("it is whole").expect("an interface").name, "");
        }
    }
}
