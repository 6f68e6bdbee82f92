//! Stores overrides in the XDP program's maps. Overrides are limits for the sources in some
//! prefixes (docs/policy.md s.13). They are in an array. The program finds an element through
//! tries.
//!
//! Servers read the array, too. A server that has counted a connection must apply the same limit as
//! the program. No prefix is longer than a source, so both find the same limit.

use std::io;
use std::net::IpAddr;
use std::sync::atomic::Ordering::Release;

use crate::abi;
use crate::config::{ServiceConfig, address_bytes, overrides_of};
use crate::maps::Maps;
use crate::sys::region::{atomic, store_rate};

pub(crate) type Overrides = [abi::equic_override; abi::EQUIC_OVERRIDES as usize];

/// Index of the first element of the array that can be used. Index 0 means that a source has no
/// override.
const FIRST: usize = 1;

/// Returns the connection limit that an override of the service sets for this address. Returns
/// `None` if the service's own limit applies.
pub(crate) fn connections_limit(overrides: &Overrides, service: usize, ip: IpAddr) -> Option<u32> {
    let address = u128::from_be_bytes(address_bytes(ip));
    let is_v4 = ip.to_canonical().is_ipv4();
    let covers = |own: &&abi::equic_override| {
        let cut = |bits: u128| bits.checked_shr(128 - u32::from(own.length)).unwrap_or(0);
        // `own.length` includes the 96 bits before an IPv4-mapped address, so an IPv4 prefix has a
        // length of at least 96. The prefix ::/0 does not cover IPv4 addresses.
        own.sets != 0
            && own.service as usize == service
            && is_v4 == IpAddr::from(own.addr).to_canonical().is_ipv4()
            && cut(u128::from_be_bytes(own.addr)) == cut(address)
    };
    let own = overrides.iter().filter(covers).max_by_key(|own| own.length)?;
    let sets = u32::from(own.sets) & abi::EQUIC_OVERRIDE_MAX_CONNECTIONS != 0;
    sets.then_some(own.max_connections)
}

/// Returns the array with the overrides of these services, for use without a gateway.
pub(crate) fn in_memory(services: &[ServiceConfig]) -> Overrides {
    let mut all = [abi::equic_override::default(); abi::EQUIC_OVERRIDES as usize];
    all[FIRST..].iter_mut().zip(overrides_of(services)).for_each(|(to, from)| *to = from);
    all
}

fn same(one: &abi::equic_override, other: &abi::equic_override) -> bool {
    (one.service, one.length, one.addr) == (other.service, other.length, other.addr)
}

impl Maps {
    /// Replaces all overrides with those of a configuration. A prefix that stays always has limits,
    /// also while they are being changed.
    pub(crate) fn set_overrides(&self, wanted: &[abi::equic_override]) -> io::Result<()> {
        let there = self.overrides.read();
        for (index, old) in there.iter().enumerate().filter(|(_, old)| old.sets != 0) {
            if !wanted.iter().any(|new| same(old, new)) {
                self.point(old, None)?;
                self.element(index, &abi::equic_override::default());
            }
        }
        for new in wanted {
            let there = self.overrides.read();
            let used = there.iter().position(|old| old.sets != 0 && same(old, new));
            let free = || (FIRST..there.len()).find(|index| there[*index].sets == 0);
            let index = used.or_else(free).ok_or_else(|| {
                io::Error::other("there is no room for another override: remove one first")
            })?;
            self.element(index, new);
            self.point(new, Some(index as u32))?;
        }
        Ok(())
    }

    /// Makes the trie entry of a prefix point to an element. If `index` is `None`, removes the
    /// entry.
    fn point(&self, own: &abi::equic_override, index: Option<u32>) -> io::Result<()> {
        // Number of bits of the service in a key. They precede the address.
        const SERVICE: u32 = 32;
        let (service, length) = (own.service, u32::from(own.length));
        match IpAddr::from(own.addr).to_canonical() {
            IpAddr::V4(v4) => {
                let prefixlen = SERVICE + length - 96;
                let key = abi::equic_override4_key { prefixlen, service, addr: v4.octets() };
                match index {
                    Some(index) => self.overrides4.put(&key, &index),
                    None => self.overrides4.delete(&key).map(drop),
                }
            }
            IpAddr::V6(v6) => {
                let prefixlen = SERVICE + length;
                let key = abi::equic_override6_key { prefixlen, service, addr: v6.octets() };
                match index {
                    Some(index) => self.overrides6.put(&key, &index),
                    None => self.overrides6.delete(&key).map(drop),
                }
            }
        }
    }

    /// Stores the prefix and the limits in an element of the array. The XDP program reads `sets`
    /// before the limits.
    fn element(&self, index: usize, new: &abi::equic_override) {
        assert!(index < abi::EQUIC_OVERRIDES as usize, "elements are numbered from 0 to 255");
        // SAFETY: `index` is inside the array, as the assertion has just checked.
        let live = unsafe { self.overrides.pointer().cast::<abi::equic_override>().add(index) };
        // SAFETY: this is the same element. Only processes that search for a prefix read these two
        // fields. If a search misses the element for a moment, that is harmless.
        unsafe {
            (&raw mut (*live).addr).write_volatile(new.addr);
            (&raw mut (*live).length).write_volatile(new.length);
        }
        atomic!(AtomicU32, live, service).store(new.service, Release);
        atomic!(AtomicU32, live, max_connections).store(new.max_connections, Release);
        store_rate!(live, new_per_source, new.new_per_source);
        store_rate!(live, packets_per_source, new.packets_per_source);
        store_rate!(live, bytes_per_source, new.bytes_per_source);
        atomic!(AtomicU8, live, sets).store(new.sets, Release);
    }

    /// Copies the overrides of another gateway, element by element.
    pub(crate) fn copy_overrides(&self, from: &Maps) -> io::Result<()> {
        self.overrides.copy_from(&from.overrides);
        let all = self.overrides.read();
        let mut used = all.iter().zip(0u32..).filter(|(own, _)| own.sets != 0);
        used.try_for_each(|(own, index)| self.point(own, Some(index)))
    }
}
