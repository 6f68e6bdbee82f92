//! Deny and allow lists with expiry (policy.md section 2, step 2).

use std::collections::BTreeMap;
use std::net::IpAddr;

/// Number of times an expired entry gives way to the next shorter prefix before the search ends.
const MAX_GIVES_WAY: usize = 4;

/// Treatment of a source by the lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AclAction {
    /// Drop everything from it.
    Deny,
    /// Spare it quotas and rates.
    Allow,
}

/// One prefix on a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AclEntry {
    /// Treatment of sources under the prefix.
    pub action: AclAction,
    /// The first nanosecond at which the entry no longer holds; 0: it never expires.
    pub expires_ns: u64,
}

impl AclEntry {
    fn holds_at(&self, now: u64) -> bool {
        self.expires_ns == 0 || now < self.expires_ns
    }
}

/// The deny and allow lists: one set of prefixes per family, an address looked up by longest prefix.
#[derive(Clone, Debug, Default)]
pub struct Acl {
    v4: BTreeMap<(u8, u32), AclEntry>,
    v6: BTreeMap<(u8, u128), AclEntry>,
}

impl Acl {
    /// Adds or replaces the entry of `addr`/`prefix_len`; bits behind the prefix, and lengths beyond
    /// the family's, are cut off.
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

    /// Removes the entry of exactly this prefix; says whether there was one.
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

    /// Treatment of `addr` at `now` by the lists: that of the longest prefix that has not expired,
    /// where at most four expired ones are passed over.
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
