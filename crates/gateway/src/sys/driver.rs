//! How packets of an interface look to a program: the type of the interface, and what its driver
//! does with VLAN tags.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// ARPHRD_ETHER and ARPHRD_LOOPBACK.
const ETHERNET: [u16; 2] = [1, 772];
/// ARPHRD_PPP, ARPHRD_RAWIP (modems) and ARPHRD_NONE (tun, WireGuard).
const IP: [u16; 3] = [512, 519, 0xfffe];
const SIOCGIFHWADDR: libc::c_ulong = 0x8927;
const SIOCETHTOOL: libc::c_ulong = 0x8946;
const ETHTOOL_GFLAGS: u32 = 0x25;
const ETHTOOL_GGRO: u32 = 0x2b;
const ETH_FLAG_RXVLAN: u32 = 1 << 8;

/// The header at the start of an interface's packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LinkHeader {
    Ethernet,
    /// No link-layer header: packets start with the IP header.
    Ip,
    /// Another header, or an unknown start of packets, with the interface's type (ARPHRD_*).
    Other(u16),
}

/// An `ifreq` with the interface's name, and room for the answer.
#[repr(C)]
struct Request<T> {
    name: [u8; libc::IFNAMSIZ],
    value: T,
}

fn ask<T>(interface: &str, request: libc::c_ulong, value: T) -> io::Result<T> {
    let mut name = [0; libc::IFNAMSIZ];
    let bytes = interface.as_bytes();
    if bytes.len() >= name.len() {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    name[..bytes.len()].copy_from_slice(bytes);
    let mut asked = Request { name, value };
    const { assert!(size_of::<Request<T>>() >= size_of::<libc::ifreq>()) };
    // SAFETY: no pointers; the kernel just returned the descriptor, and nothing else owns it.
    let socket = unsafe {
        let fd = libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        OwnedFd::from_raw_fd(fd)
    };
    // SAFETY: the kernel reads and writes an `ifreq`, which fits, and what `value` points to lives
    // in the caller.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), request as _, &raw mut asked) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(asked.value) }
}

/// Returns the header of packets of an interface in this network namespace.
pub(crate) fn link_header(interface: &str) -> io::Result<LinkHeader> {
    // struct sockaddr, whose family field is the interface's type.
    let address = ask(interface, SIOCGIFHWADDR, [0_u16; 12])?;
    Ok(match address[0] {
        kind if ETHERNET.contains(&kind) => LinkHeader::Ethernet,
        kind if IP.contains(&kind) => LinkHeader::Ip,
        kind => LinkHeader::Other(kind),
    })
}

/// Returns the value of an ethtool command, or 0 if the driver does not support the command.
fn ethtool(interface: &str, command: u32) -> u32 {
    // struct ethtool_value: command, data.
    let mut value = [command, 0];
    let pointer = [(&raw mut value) as usize, 0, 0];
    if ask(interface, SIOCETHTOOL, pointer).is_ok() { value[1] } else { 0 }
}

/// Returns true if the driver removes VLAN tags from received packets before a program in it sees
/// them.
fn takes_tags_off(interface: &str) -> bool {
    ethtool(interface, ETHTOOL_GFLAGS) & ETH_FLAG_RXVLAN != 0
}

/// Returns true if the kernel joins received packets (GRO) before a generic-mode program sees them.
pub(crate) fn joins_packets(interface: &str) -> bool {
    ethtool(interface, ETHTOOL_GGRO) != 0
}

/// Returns true if tagged packets can arrive from the interface without their tags, and it has VLAN
/// interfaces.
pub(crate) fn hides_vlans(interface: &str) -> bool {
    // Of this thread's network namespace.
    let config = std::fs::read_to_string("/proc/thread-self/net/vlan/config").unwrap_or_default();
    has_vlans(&config, interface) && takes_tags_off(interface)
}

/// The same for the content of /proc/net/vlan/config: `name | number | interface` after two lines
/// of headings.
fn has_vlans(config: &str, interface: &str) -> bool {
    config.lines().skip(2).any(|line| line.rsplit('|').next().map(str::trim) == Some(interface))
}

/// Returns false if kernel lockdown forbids programs to read kernel memory.
pub(crate) fn programs_read_memory() -> bool {
    let lockdown = std::fs::read_to_string("/sys/kernel/security/lockdown").unwrap_or_default();
    !lockdown.contains("[confidentiality]")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_have_a_link_header() {
        assert_eq!(link_header("lo").expect("every namespace has lo"), LinkHeader::Ethernet);
        for name in ["nosuchif", "a name that is far too long for an interface"] {
            assert!(link_header(name).is_err(), "{name}");
        }
        assert!(!hides_vlans("lo"));
    }

    #[test]
    fn vlans_are_read_from_the_list() {
        let config = "VLAN Dev name    | VLAN ID\nName-Type: VLAN_NAME_TYPE_RAW_PLUS_VID_NO_PAD\n\
                      eth0.5         | 5  | eth0\n";
        assert!(has_vlans(config, "eth0"));
        assert!(
            !has_vlans(config, "eth0.5") && !has_vlans(config, "eth") && !has_vlans("", "eth0")
        );
    }
}
