//! Properties of the packets that an XDP program sees on an interface: their first header, and
//! whether the driver has removed VLAN tags.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Interface types ARPHRD_ETHER and ARPHRD_LOOPBACK.
const ETHERNET: [u16; 2] = [1, 772];
/// Interface types ARPHRD_PPP, ARPHRD_RAWIP (modems) and ARPHRD_NONE (tun, WireGuard).
const IP: [u16; 3] = [512, 519, 0xfffe];
const SIOCGIFHWADDR: libc::c_ulong = 0x8927;
const SIOCETHTOOL: libc::c_ulong = 0x8946;
const ETHTOOL_GFLAGS: u32 = 0x25;
const ETHTOOL_GGRO: u32 = 0x2b;
const ETH_FLAG_RXVLAN: u32 = 1 << 8;

/// The header with which packets of an interface begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LinkHeader {
    Ethernet,
    /// No link-layer header: packets begin with the IP header.
    Ip,
    /// Another or an unknown header. The number is the interface's type (ARPHRD_*).
    Other(u16),
}

/// A C structure `ifreq` with the interface's name, and room for the answer.
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
    // SAFETY: the call takes no pointers. The kernel just returned the descriptor, and nothing else
    // owns it.
    let socket = unsafe {
        let fd = libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        OwnedFd::from_raw_fd(fd)
    };
    // SAFETY: the kernel reads and writes an `ifreq`, which has the right size. The memory to which
    // `value` points is valid in the caller.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), request as _, &raw mut asked) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(asked.value) }
}

/// Returns the header with which packets of an interface in this network namespace begin.
pub(crate) fn link_header(interface: &str) -> io::Result<LinkHeader> {
    // The answer is a struct sockaddr, whose family field is the interface's type.
    let address = ask(interface, SIOCGIFHWADDR, [0_u16; 12])?;
    Ok(match address[0] {
        kind if ETHERNET.contains(&kind) => LinkHeader::Ethernet,
        kind if IP.contains(&kind) => LinkHeader::Ip,
        kind => LinkHeader::Other(kind),
    })
}

/// Returns the value of an ethtool command, or 0 if the driver does not support the command.
fn ethtool(interface: &str, command: u32) -> u32 {
    // This is a struct ethtool_value: command and data.
    let mut value = [command, 0];
    let pointer = [(&raw mut value) as usize, 0, 0];
    if ask(interface, SIOCETHTOOL, pointer).is_ok() { value[1] } else { 0 }
}

/// Returns true if the driver removes VLAN tags from received packets before a program in native
/// mode sees them.
fn takes_tags_off(interface: &str) -> bool {
    ethtool(interface, ETHTOOL_GFLAGS) & ETH_FLAG_RXVLAN != 0
}

/// Returns true if the kernel joins received packets (GRO) before a program in generic mode sees
/// them.
pub(crate) fn joins_packets(interface: &str) -> bool {
    ethtool(interface, ETHTOOL_GGRO) != 0
}

/// Returns true if the interface has VLAN interfaces and the XDP program may see tagged packets
/// without their tags.
pub(crate) fn hides_vlans(interface: &str) -> bool {
    // This path belongs to the network namespace of this thread.
    let config = std::fs::read_to_string("/proc/thread-self/net/vlan/config").unwrap_or_default();
    has_vlans(&config, interface) && takes_tags_off(interface)
}

/// Returns true if the interface has VLAN interfaces according to `config`, the content of
/// /proc/net/vlan/config. That is `name | number | interface` after two lines of headings.
fn has_vlans(config: &str, interface: &str) -> bool {
    config.lines().skip(2).any(|line| line.rsplit('|').next().map(str::trim) == Some(interface))
}

/// Returns false if kernel lockdown forbids BPF programs from reading kernel memory.
pub(crate) fn programs_read_memory() -> bool {
    let lockdown = std::fs::read_to_string("/sys/kernel/security/lockdown").unwrap_or_default();
    !lockdown.contains("[confidentiality]")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_header_of_lo_is_ethernet_and_unknown_names_fail() {
        assert_eq!(link_header("lo").expect("every namespace has lo"), LinkHeader::Ethernet);
        for name in ["nosuchif", "a name that is far too long for an interface"] {
            assert!(link_header(name).is_err(), "{name}");
        }
        assert!(!hides_vlans("lo"));
    }

    #[test]
    fn vlan_list_is_searched_by_parent_interface() {
        let config = "VLAN Dev name    | VLAN ID\nName-Type: VLAN_NAME_TYPE_RAW_PLUS_VID_NO_PAD\n\
                      eth0.5         | 5  | eth0\n";
        assert!(has_vlans(config, "eth0"));
        assert!(
            !has_vlans(config, "eth0.5") && !has_vlans(config, "eth") && !has_vlans("", "eth0")
        );
    }
}
