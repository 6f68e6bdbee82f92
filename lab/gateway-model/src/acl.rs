//! Deny and allow lists with expiry (policy.md section 2, step 4).

use std::collections::BTreeMap;
use std::net::IpAddr;

/// Maximum number of expired entries that a look-up skips before it gives up.
const MAX_GIVES_WAY: usize = 4;

/// Treatment of a source that is on one of the lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AclAction {
    /// Drops all packets of the source.
    Deny,
    /// Exempts the source from quotas and rates.
    Allow,
}

/// A list entry for one address prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AclEntry {
    /// Treatment of sources whose address is in the prefix.
    pub action: AclAction,
    /// Time in nanoseconds at which the entry expires. 0 means that it never expires.
    pub expires_ns: u64,
}

impl AclEntry {
    fn holds_at(&self, now: u64) -> bool {
        self.expires_ns == 0 || now < self.expires_ns
    }
}

/// The deny and allow lists, with one set of prefixes for each address family. If several prefixes
/// contain an address, the longest one applies.
#[derive(Clone, Debug, Default)]
pub struct Acl {
    v4: BTreeMap<(u8, u32), AclEntry>,
    v6: BTreeMap<(u8, u128), AclEntry>,
}

impl Acl {
    /// Adds or replaces the entry for the prefix `addr`/`prefix_len`. Address bits after the prefix
    /// are cleared. A length that is too long for the address family is reduced to its maximum.
    pub fn insert(&mut self, addr: IpAddr, prefix_len: u8, entry: AclEntry) {
        match addr {
            IpAddr::V4(addr) => {
                let len = prefix_len.min(32);
                self.v4.insert((len, cut_v4(addr.to_bits(), len)), entry);
            }
            IpAddr::V6(addr) => {
                let len = prefix_len.min(128);
                self.v6.insert((len, cut_v6(addr.to_bits(), len)), entry);
            }
        }
    }

    /// Removes the entry of exactly this prefix. Returns `true` if the entry existed.
    pub fn remove(&mut self, addr: IpAddr, prefix_len: u8) -> bool {
        match addr {
            IpAddr::V4(addr) => {
                let len = prefix_len.min(32);
                self.v4.remove(&(len, cut_v4(addr.to_bits(), len))).is_some()
            }
            IpAddr::V6(addr) => {
                let len = prefix_len.min(128);
                self.v6.remove(&(len, cut_v6(addr.to_bits(), len))).is_some()
            }
        }
    }

    /// Returns how to treat `addr` at the time `now`, or `None` if no list contains it. The longest
    /// prefix that has not expired applies. The look-up skips at most four expired entries.
    pub fn look_up(&self, addr: IpAddr, now: u64) -> Option<AclAction> {
        let matching: Vec<AclEntry> = match addr {
            IpAddr::V4(addr) => (0..=32)
                .rev()
                .filter_map(|len| self.v4.get(&(len, cut_v4(addr.to_bits(), len))))
                .copied()
                .collect(),
            IpAddr::V6(addr) => (0..=128)
                .rev()
                .filter_map(|len| self.v6.get(&(len, cut_v6(addr.to_bits(), len))))
                .copied()
                .collect(),
        };
        matching
            .into_iter()
            .take(MAX_GIVES_WAY + 1)
            .find(|entry| entry.holds_at(now))
            .map(|entry| entry.action)
    }
}

fn cut_v4(bits: u32, len: u8) -> u32 {
    let mask = u32::MAX.checked_shl(32 - u32::from(len)).unwrap_or(0);
    bits & mask
}

fn cut_v6(bits: u128, len: u8) -> u128 {
    let mask = u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0);
    bits & mask
}
