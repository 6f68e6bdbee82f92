//! Reads the addresses of this host from the kernel, and stores them for the XDP program
//! (docs/policy.md s.8, "When it answers").

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::io;
use std::net::IpAddr;
use std::sync::atomic::Ordering::{Relaxed, Release};

use super::Control;
use crate::abi;
use crate::config::address_bytes;
use crate::links::Link;
use crate::sync::lock;
use crate::sys;
use crate::sys::driver::{self, LinkHeader};
use crate::sys::map::Map;
use crate::sys::netlink::{self, Changes, LinkInfo, RouteKind};
use crate::sys::region::atomic;

/// Interval at which the host's addresses are read even if the kernel reported no change, because
/// the kernel does not report all changes.
const AGAIN_NS: u64 = 2_000_000_000;
/// Time for which the stored addresses of this host are valid.
const TRUSTED_NS: u64 = 30_000_000_000;

/// Link kind of a virtual Ethernet interface, whose peer is another interface.
const VETH: &str = "veth";

/// Returns true if answers of the gateway can get lost on this interface in native mode. The peer
/// of a veth interface receives them only if it has an XDP program or GRO.
pub fn loses_answers(interface: &str) -> bool {
    let Ok(ifindex) = sys::interface_index(interface) else { return false };
    let veth = |link: &LinkInfo| link.ifindex == ifindex && link.kind == VETH;
    netlink::links().is_ok_and(|links| links.iter().any(veth))
}

/// State that is kept from one read of the host's addresses to the next.
#[derive(Debug, Default)]
pub(super) struct LocalState {
    changes: Option<Changes>,
    read_ns: u64,
}

/// The host's addresses as read from the kernel, in the form of the map's keys.
#[derive(Debug, Default, PartialEq, Eq)]
struct Local {
    addrs: BTreeMap<([u8; 16], u32, u32), u32>,
    macs: HashMap<u64, u32>,
    transit: bool,
}

impl Control {
    /// Reads the host's addresses again if they may have changed, and stores them for the XDP
    /// program.
    ///
    /// # Errors
    /// Returns the kernel's error if a call fails. If no call succeeds for half a minute, the
    /// program answers packets to any address.
    pub fn refresh_addresses(&self) -> crate::error::Result<()> {
        let failed = |error| crate::error::Error::system("reading the host's addresses", error);
        let now = sys::monotonic_ns();
        {
            let mut state = lock(&self.state);
            let local = &mut state.local;
            if local.changes.is_none() {
                local.changes = Changes::subscribe().ok();
            }
            let changed = local.changes.as_ref().is_some_and(Changes::any);
            if !changed && local.read_ns != 0 && now.saturating_sub(local.read_ns) < AGAIN_NS {
                return Ok(());
            }
        }
        self.write_local(&self.read_local().map_err(failed)?).map_err(failed)?;
        let control = self.maps.control.pointer();
        atomic!(AtomicU64, control, local_until_ns).store(now.saturating_add(TRUSTED_NS), Release);
        lock(&self.state).local.read_ns = now;
        Ok(())
    }

    /// Returns true if the XDP program has valid addresses of this host.
    pub fn knows_addresses(&self) -> bool {
        let control = self.maps.control.pointer();
        atomic!(AtomicU64, control, local_until_ns).load(Relaxed) > sys::monotonic_ns()
    }

    /// Stores for the XDP program how it is attached to an interface, and whether packets on this
    /// interface have an Ethernet header.
    pub(crate) fn note_mode(&self, ifindex: u32, native: bool) -> io::Result<()> {
        let flags = interface_flags(ifindex, native)?;
        self.maps.interfaces.put(&ifindex, &flags)?;
        if flags != 0 {
            atomic!(AtomicU32, self.maps.control.pointer(), flagged).store(1, Release);
        }
        Ok(())
    }

    /// Returns true if this host seems to forward packets to other hosts (docs/policy.md s.1).
    pub fn forwards(&self) -> bool {
        atomic!(AtomicU32, self.maps.control.pointer(), transit).load(Relaxed) != 0
    }

    /// Returns true if the gateway answers clients of a service in its servers' name.
    pub fn answers(&self) -> bool {
        let flags = abi::EQUIC_SERVICE_VERSION_NEGOTIATION | abi::EQUIC_SERVICE_STATELESS_RESET;
        self.maps.services.read().iter().any(|service| {
            let enabled = service.flags & abi::EQUIC_SERVICE_ENABLED != 0;
            let retry = u32::from(service.retry) != abi::EQUIC_RETRY_NEVER;
            enabled && (retry || service.flags & flags != 0)
        })
    }

    /// Returns the interfaces on which answers can get lost ([`loses_answers`]). Each has the
    /// number of packets that it failed to send since it was created, which includes lost answers.
    /// The list is empty while no service answers.
    pub fn unsent(&self) -> Vec<(u32, u64)> {
        let loses = |link: &&Link| link.loses_answers;
        let links = self.links.upgrade();
        let there: Vec<u32> = links.map_or_else(Vec::new, |links| {
            lock(&links).iter().filter(loses).map(|one| one.attached.ifindex).collect()
        });
        if there.is_empty() || !self.answers() {
            return Vec::new();
        }
        let Ok(links) = netlink::links_with_statistics() else { return Vec::new() };
        let found = links.iter().filter(|link| there.contains(&link.ifindex));
        found.map(|link| (link.ifindex, link.tx_dropped)).collect()
    }

    /// Returns the indices of the interfaces to which the XDP program is attached, if this process
    /// owns the gateway.
    fn attached_here(&self) -> Vec<u32> {
        let links = self.links.upgrade();
        let links =
            links.map(|links| lock(&links).iter().map(|one| one.attached.ifindex).collect());
        links.unwrap_or_default()
    }

    fn read_local(&self) -> io::Result<Local> {
        let (attached, links) = (self.attached_here(), netlink::links()?);
        let mut local = Local { transit: transits(&attached, &links), ..Local::default() };
        for route in netlink::local_routes()? {
            let kind = match route.kind {
                RouteKind::Local => abi::EQUIC_LOCAL_HOST,
                RouteKind::Broadcast => abi::EQUIC_LOCAL_BROADCAST,
            };
            local.add(route.addr, route.length.into(), kind);
        }
        for addr in netlink::addresses()? {
            local.add(addr, if addr.is_ipv4() { 32 } else { 128 }, abi::EQUIC_LOCAL_HOST);
        }
        let more: Vec<_> = attached.iter().map(|one| netlink::more_macs(*one)).collect();
        let macs =
            links.iter().filter_map(|link| link.mac).chain(more.into_iter().flatten().flatten());
        local.macs.extend(macs.map(|mac| (mac_number(mac), 1)));
        Ok(local)
    }

    fn write_local(&self, local: &Local) -> io::Result<()> {
        let maps = &self.maps;
        let key = |(addr, family, prefixlen): &([u8; 16], u32, u32)| abi::equic_local_key {
            prefixlen: *prefixlen,
            family: *family,
            addr: *addr,
        };
        let addrs = local.addrs.iter().map(|(place, kind)| (key(place), *kind)).collect();
        bring(&maps.local_addrs, &addrs)?;
        bring(&maps.local_macs, &local.macs)?;
        let transit = atomic!(AtomicU32, maps.control.pointer(), transit);
        transit.store(local.transit.into(), Release);
        Ok(())
    }
}

impl Local {
    fn add(&mut self, addr: IpAddr, length: u32, kind: u32) {
        let (family, leading) = if addr.is_ipv4() { (4, 32 + 96) } else { (6, 32) };
        self.addrs.insert((address_bytes(addr), family, leading + length), kind);
    }
}

/// Changes the map so that it contains exactly the wanted entries. New entries are added before old
/// ones are removed. Entries that stay are never missing.
fn bring<K: abi::Pod + Eq + Hash>(map: &Map<K, u32>, wanted: &HashMap<K, u32>) -> io::Result<()> {
    let there: HashMap<K, u32> = map.entries()?.into_iter().collect();
    for (key, value) in wanted.iter().filter(|(key, value)| there.get(key) != Some(value)) {
        map.put(key, value)?;
    }
    for key in there.keys().filter(|key| !wanted.contains_key(key)) {
        map.delete(key)?;
    }
    Ok(())
}

/// Returns the flags of an interface for the XDP program (`enum equic_interface_flags`). The flags
/// of a deleted interface are 0.
fn interface_flags(ifindex: u32, native: bool) -> io::Result<u32> {
    let mut flags = if native { 0 } else { abi::EQUIC_INTERFACE_GENERIC };
    let Some(name) = sys::interface_name(ifindex) else { return Ok(flags) };
    if driver::link_header(&name)? == LinkHeader::Ip {
        flags |= abi::EQUIC_INTERFACE_NO_ETHERNET;
    }
    if native && driver::hides_vlans(&name) {
        flags |= abi::EQUIC_INTERFACE_NO_ANSWERS;
    }
    Ok(flags)
}

fn mac_number(mac: [u8; 6]) -> u64 {
    let [a, b, c, d, e, f] = mac;
    u64::from_ne_bytes([a, b, c, d, e, f, 0, 0])
}

/// Returns true if this host may forward or bridge packets that arrive on these interfaces to other
/// hosts.
fn transits(attached: &[u32], links: &[LinkInfo]) -> bool {
    let on = |path: &str| std::fs::read_to_string(path).is_ok_and(|text| text.trim() != "0");
    let forwards = ["ipv4/ip_forward", "ipv6/conf/all/forwarding"]
        .iter()
        .any(|key| on(&format!("/proc/sys/net/{key}")));
    let own = |link: &&LinkInfo| attached.contains(&link.ifindex);
    let forwards_there = |name: &str| {
        ["ipv4", "ipv6"]
            .iter()
            .any(|family| on(&format!("/proc/sys/net/{family}/conf/{name}/forwarding")))
    };
    forwards
        || links.iter().filter(own).any(|link| {
            link.master.is_some()
                || link.promiscuous
                || sys::interface_name(link.ifindex).is_some_and(|name| forwards_there(&name))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transit_includes_bridge_ports_and_promiscuous_links() {
        let port = LinkInfo { ifindex: 900_000, master: Some(900_001), ..LinkInfo::default() };
        let other = LinkInfo { ifindex: 900_002, promiscuous: true, ..LinkInfo::default() };
        let links = [port, other];
        assert!(transits(&[900_000], &links) && transits(&[900_002], &links));
    }

    #[test]
    fn local_address_key_has_family_and_length() {
        let mut local = Local::default();
        local.add([127, 0, 0, 0].into(), 8, abi::EQUIC_LOCAL_HOST);
        local.add("2001:db8::1".parse().expect("an address"), 128, abi::EQUIC_LOCAL_HOST);
        let keys: Vec<_> =
            local.addrs.keys().map(|(_, family, length)| (*family, *length)).collect();
        assert_eq!(keys, [(4, 136), (6, 160)]);
        assert_eq!(mac_number([1, 2, 3, 4, 5, 6]).to_ne_bytes(), [1, 2, 3, 4, 5, 6, 0, 0]);
    }
}
