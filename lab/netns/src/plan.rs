//! Addresses of all hosts of a lab, and the `ip` commands that set them up.
//!
//! All addresses are computed from the client's index. A flood can therefore compute a link-layer
//! address without the neighbour table. The address ranges exist only inside the lab's namespaces.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::LabError;

/// Maximum number of clients of a lab. Each owns a /24 of the lab's /16.
pub const MAX_CLIENTS: usize = 250;
/// Name of the interface in the server's and the clients' namespaces.
pub const IFNAME: &str = "eth0";
/// Name of the bridge in the switch's namespace.
pub(crate) const BRIDGE: &str = "br0";

const IPV4_BASE: [u8; 2] = [10, 77];
const IPV6_BASE: [u16; 3] = [0xfd65, 0x7175, 0x6963];
/// Host number of the bridge, for [`mac`]. No client has this number.
const SWITCH_HOST: u16 = 0xffff;

/// The lab's IPv4 range, 10.77.0.0/16. It is on-link for all hosts of a lab.
pub fn ipv4_range() -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(IPV4_BASE[0], IPV4_BASE[1], 0, 0), 16)
}

/// The lab's IPv6 range, fd65:7175:6963::/48 (a unique local prefix, RFC 4193).
pub fn ipv6_range() -> Ipv6Net {
    let [a, b, c] = IPV6_BASE;
    Ipv6Net::new_assert(Ipv6Addr::new(a, b, c, 0, 0, 0, 0, 0), 48)
}

/// Returns the lab's IPv4 range, 10.77.0.0/16. It is on-link for all hosts of a lab.
pub fn in_range(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => ipv4_range().contains(&v4),
        IpAddr::V6(v6) => ipv6_range().contains(&v6),
    }
}

/// Returns the lab's IPv6 range, fd65:7175:6963::/48 (a unique local prefix, RFC 4193).
pub fn mac_of(address: IpAddr) -> Option<[u8; 6]> {
    if !in_range(address) {
        return None;
    }
    let host = match address {
        IpAddr::V4(v4) => u16::from(v4.octets()[2]),
        IpAddr::V6(v6) => v6.segments()[3],
    };
    match usize::from(host) {
        0 if address == ipv4(0) || address == ipv6(0) => Some(mac(0)),
        1..=MAX_CLIENTS => Some(mac(host)),
        _ => None,
    }
}

/// Formats a link-layer address for the `ip` command.
pub(crate) fn format_mac(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

/// Returns a locally administered link-layer address. `host` is 0 for the server and `i + 1` for
/// client `i`.
fn mac(host: u16) -> [u8; 6] {
    let [high, low] = host.to_be_bytes();
    [0x02, b'e', b'q', 0, high, low]
}

fn ipv4(host: u8) -> Ipv4Addr {
    Ipv4Addr::new(IPV4_BASE[0], IPV4_BASE[1], host, 1)
}

fn ipv6(host: u16) -> Ipv6Addr {
    let [a, b, c] = IPV6_BASE;
    Ipv6Addr::new(a, b, c, host, 0, 0, 0, 1)
}

/// Returns the next hops for answers to spoofed addresses. No host has these two addresses. Their
/// link-layer address is the bridge's own, and the switch does not forward, so the answers go
/// nowhere.
fn nowhere() -> (Ipv4Addr, Ipv6Addr) {
    let [a, b, c] = IPV6_BASE;
    (
        Ipv4Addr::new(IPV4_BASE[0], IPV4_BASE[1], 255, 254),
        Ipv6Addr::new(a, b, c, 0xffff, 0, 0, 0, 1),
    )
}

/// The addresses of one host.
#[derive(Debug, Clone)]
pub(crate) struct Host {
    pub mac: [u8; 6],
    pub ipv4: Ipv4Addr,
    pub ipv6: Ipv6Addr,
    /// Prefixes of which the host can use any address.
    pub prefixes: Vec<IpNet>,
}

/// Addresses of all hosts of a lab that is about to be created.
#[derive(Debug, Clone)]
pub(crate) struct LabPlan {
    pub server: Host,
    pub clients: Vec<Host>,
    pub mtu: u32,
    pub txqueuelen: Option<u32>,
}

impl LabPlan {
    /// Checks the options, and assigns addresses to all hosts.
    pub(crate) fn new(
        clients: usize,
        extra: &[(usize, IpNet)],
        mtu: u32,
        txqueuelen: Option<u32>,
    ) -> Result<Self, LabError> {
        if clients == 0 || clients > MAX_CLIENTS {
            return Err(LabError::Plan(format!(
                "a lab can have 1 to {MAX_CLIENTS} clients, not {clients}"
            )));
        }
        if !(1280..=65535).contains(&mtu) {
            return Err(LabError::Plan(format!(
                "the MTU is {mtu} bytes, but IPv6 needs at least 1280, and veth supports at most 65535"
            )));
        }
        let server = Host { mac: mac(0), ipv4: ipv4(0), ipv6: ipv6(0), prefixes: Vec::new() };
        let mut hosts: Vec<Host> = (0..clients).map(client).collect();
        for &(index, prefix) in extra {
            let Some(host) = hosts.get_mut(index) else {
                return Err(LabError::Plan(format!(
                    "the prefix {prefix} is for client {index}, but the lab has only {clients} clients, counted from 0"
                )));
            };
            host.prefixes.push(check_prefix(prefix)?);
        }
        let plan = Self { server, clients: hosts, mtu, txqueuelen };
        plan.check_overlap()?;
        Ok(plan)
    }

    fn check_overlap(&self) -> Result<(), LabError> {
        let all: Vec<(usize, IpNet)> = self
            .clients
            .iter()
            .enumerate()
            .flat_map(|(index, host)| host.prefixes.iter().map(move |prefix| (index, *prefix)))
            .collect();
        for (at, (owner, prefix)) in all.iter().enumerate() {
            for (other, second) in &all[..at] {
                if prefix.contains(second) || second.contains(prefix) {
                    return Err(LabError::Plan(format!(
                        "prefix {prefix} of client {owner} overlaps {second} of client {other}"
                    )));
                }
            }
        }
        Ok(())
    }

    /// Returns the `ip` commands for the switch's namespace: they create the bridge, and a veth
    /// pair to every other namespace.
    pub(crate) fn switch_lines(&self, server_ns: &str, client_ns: &[String]) -> String {
        let mut lines = format!(
            "link add {BRIDGE} address {} mtu {} type bridge stp_state 0 forward_delay 0 \
             mcast_snooping 0 ageing_time 100000000\n",
            format_mac(mac(SWITCH_HOST)),
            self.mtu
        );
        let qlen = self.txqueuelen.map(|n| format!(" txqueuelen {n}")).unwrap_or_default();
        let ports = std::iter::once(("server".to_owned(), server_ns, &self.server)).chain(
            client_ns
                .iter()
                .zip(&self.clients)
                .enumerate()
                .map(|(i, (ns, host))| (format!("c{i}"), ns.as_str(), host)),
        );
        for (port, namespace, host) in ports {
            // Writing to a String cannot fail.
            let _ = writeln!(
                lines,
                "link add name {port} mtu {mtu}{qlen} type veth peer name {IFNAME} address {mac} mtu {mtu}{qlen} \
                 netns {namespace}\nlink set {port} master {BRIDGE} up",
                mtu = self.mtu,
                mac = format_mac(host.mac),
            );
        }
        lines + "link set lo up\nlink set br0 up\n"
    }

    /// Returns the `ip` commands for the server's namespace.
    pub(crate) fn server_lines(&self) -> String {
        let mut lines = host_lines(&self.server);
        let (nowhere4, nowhere6) = nowhere();
        let bridge = mac(SWITCH_HOST);
        lines += &neighbour_line(nowhere4.into(), bridge);
        lines += &neighbour_line(nowhere6.into(), bridge);
        lines += &route_line(IpNet::V4(Ipv4Net::default()), nowhere4.into(), nowhere6.into());
        lines += &route_line(IpNet::V6(Ipv6Net::default()), nowhere4.into(), nowhere6.into());
        for client in &self.clients {
            lines += &neighbour_line(client.ipv4.into(), client.mac);
            lines += &neighbour_line(client.ipv6.into(), client.mac);
            for prefix in &client.prefixes {
                lines += &route_line(*prefix, client.ipv4.into(), client.ipv6.into());
            }
        }
        lines
    }

    /// Returns the `ip` commands for a client's namespace.
    pub(crate) fn client_lines(&self, host: &Host) -> String {
        let mut lines = host_lines(host);
        lines += &neighbour_line(self.server.ipv4.into(), self.server.mac);
        lines += &neighbour_line(self.server.ipv6.into(), self.server.mac);
        for prefix in &host.prefixes {
            let _ = writeln!(lines, "route add local {prefix} dev lo");
        }
        lines
    }
}

fn client(index: usize) -> Host {
    // The cast is lossless, because the caller has checked that the index is below MAX_CLIENTS
    // (250).
    let host = index as u8 + 1;
    let (v4, v6) = (ipv4(host), ipv6(host.into()));
    let prefixes = vec![
        Ipv4Net::new_assert(v4, 24).trunc().into(),
        Ipv6Net::new_assert(v6, 64).trunc().into(),
    ];
    Host { mac: mac(host.into()), ipv4: v4, ipv6: v6, prefixes }
}

fn check_prefix(prefix: IpNet) -> Result<IpNet, LabError> {
    let trunc = prefix.trunc();
    let (least, range): (u8, IpNet) = match prefix {
        IpNet::V4(_) => (8, ipv4_range().into()),
        IpNet::V6(_) => (16, ipv6_range().into()),
    };
    let address = trunc.addr();
    let why = if trunc != prefix {
        format!("has bits after its prefix length: write {trunc}")
    } else if prefix.prefix_len() < least {
        format!("is too short: the prefix length must be at least {least}")
    } else if range.contains(&prefix) || prefix.contains(&range) {
        format!("overlaps {range}, which the lab uses for its hosts")
    } else if address.is_loopback() || address.is_multicast() || address.is_unspecified() {
        "is not a range of unicast addresses".to_owned()
    } else {
        return Ok(prefix);
    };
    Err(LabError::Plan(format!("prefix {prefix} {why}")))
}

fn host_lines(host: &Host) -> String {
    format!(
        "link set lo up\nlink set {IFNAME} up\naddress add {}/16 dev {IFNAME}\n\
         address add {}/48 dev {IFNAME} nodad\n",
        host.ipv4, host.ipv6
    )
}

fn neighbour_line(address: IpAddr, mac: [u8; 6]) -> String {
    format!("neighbour add {address} lladdr {} dev {IFNAME} nud permanent\n", format_mac(mac))
}

fn route_line(prefix: IpNet, via4: IpAddr, via6: IpAddr) -> String {
    let via = if matches!(prefix, IpNet::V4(_)) { via4 } else { via6 };
    // Without `onlink`, the kernel rejects an IPv6 next hop in a prefix that itself has a next hop.
    format!("route add {prefix} via {via} dev {IFNAME} onlink\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(clients: usize, extra: &[(usize, &str)], mtu: u32) -> String {
        let extra: Vec<_> = extra.iter().map(|(i, p)| (*i, p.parse().unwrap())).collect();
        LabPlan::new(clients, &extra, mtu, None).unwrap_err().to_string()
    }

    #[test]
    fn plan_that_is_impossible_is_refused() {
        for (clients, extra, mtu, expected) in [
            (0, &[][..], 1500, "0 clients"),
            (251, &[], 1500, "1 to 250"),
            (1, &[], 1279, "IPv6 needs at least 1280"),
            (1, &[], 65536, "at most 65535"),
            (2, &[(2, "198.18.0.0/24")], 1500, "only 2 clients"),
            (2, &[(0, "198.18.0.1/24")], 1500, "write 198.18.0.0/24"),
            (2, &[(0, "10.77.200.0/24")], 1500, "overlaps 10.77.0.0/16"),
            (2, &[(0, "10.0.0.0/8")], 1500, "overlaps 10.77.0.0/16"),
            (2, &[(0, "fd65:7175:6963:9::/64")], 1500, "overlaps fd65:7175:6963::/48"),
            (2, &[(0, "0.0.0.0/0")], 1500, "too short"),
            (2, &[(0, "127.0.0.0/8")], 1500, "not a range of unicast addresses"),
            (2, &[(0, "ff00::/16")], 1500, "not a range of unicast addresses"),
            (2, &[(0, "198.18.0.0/16"), (1, "198.18.4.0/24")], 1500, "overlaps 198.18.0.0/16"),
        ] {
            let said = refusal(clients, extra, mtu);
            assert!(said.contains(expected), "{said:?} does not contain {expected:?}");
        }
    }

    #[test]
    fn plan_derives_link_layer_addresses_from_addresses() {
        let plan = LabPlan::new(MAX_CLIENTS, &[], 1500, None).unwrap();
        for host in plan.clients.iter().chain([&plan.server]) {
            assert_eq!(mac_of(host.ipv4.into()), Some(host.mac));
            assert_eq!(mac_of(host.ipv6.into()), Some(host.mac));
        }
        assert_eq!(mac_of("10.77.3.200".parse().unwrap()), Some(plan.clients[2].mac));
        assert_eq!(mac_of("fd65:7175:6963:3::9".parse().unwrap()), Some(plan.clients[2].mac));
        for nobody in [
            "10.77.0.2",
            "10.77.251.1",
            "10.78.1.1",
            "fd65:7175:6963::2",
            "fd65:7175:6964:1::1",
            "::1",
        ] {
            assert_eq!(mac_of(nobody.parse().unwrap()), None, "{nobody}");
        }
    }
}
