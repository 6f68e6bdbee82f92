//! Deny and allow lists with expiry (policy.md section 2, step 4).

use std::collections::BTreeMap;
use std::net::IpAddr;

/// Number of expired entries that a search skips before it ends.
const MAX_GIVES_WAY: usize = 4;

/// Treatment of a source by the lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AclAction {
    /// Drop all packets of the source.
    Deny,
    /// Exempt the source from quotas and rates.
    Allow,
}

/// An entry for one prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AclEntry {
    /// Treatment of sources under the prefix.
    pub action: AclAction,
    /// Time in nanoseconds from which the entry has expired. 0 means that it never expires.
    pub expires_ns: u64,
}

impl AclEntry {
    fn holds_at(&self, now: u64) -> bool {
        self.expires_ns == 0 || now < self.expires_ns
    }
}

/// The deny and allow lists: one set of prefixes per address family. The longest prefix that
/// contains an address applies.
#[derive(Clone, Debug, Default)]
pub struct Acl {
    v4: BTreeMap<(u8, u32), AclEntry>,
    v6: BTreeMap<(u8, u128), AclEntry>,
}

impl Acl {
    /// Adds or replaces the entry of `addr`/`prefix_len`. Bits after the prefix are cleared, and
    /// the length is limited to the family's.
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

    /// Returns the treatment of `addr` at `now`: that of the longest prefix that has not expired.
    /// At most four expired ones are skipped.
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
