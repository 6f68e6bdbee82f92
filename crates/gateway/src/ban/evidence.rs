//! Computes how many packets of each source were refused since the last call, from the counters of
//! the XDP program.
//!
//! If the ban policy requires it, only sources with a validated address are counted.

use std::collections::HashMap;

use ipnet::IpNet;

use crate::config::{BanConfig, Proof};
use crate::control::Refusals;

/// The refusal counters at the last call, from which the new refusals are computed. Their number is
/// at most that of the entries in the table of sources.
#[derive(Debug, Default)]
pub struct Evidence {
    before: Option<HashMap<(IpNet, u32), (u64, u32)>>,
    /// Number of entries in the table of sources, and number of entries ever created in it, at the
    /// last call.
    then: (u64, u64),
}

impl Evidence {
    /// Returns the number of new refusals per source since the last call. The first call only
    /// records the counters. The second result is the number of sources that were evicted from the
    /// table since the last call. Their refusals may be missing.
    pub fn new_refusals(
        &mut self,
        seen: &Refusals,
        policy: &BanConfig,
    ) -> (HashMap<IpNet, u32>, u64) {
        let needs_proof = policy.proof == Proof::Connection && !policy.proven_by_reason();
        let mut fresh: HashMap<IpNet, u32> = HashMap::new();
        let mut now = HashMap::with_capacity(seen.sources.len());
        for one in &seen.sources {
            let key = (one.prefix, one.service);
            now.insert(key, (one.entry_ns, one.refused));
            let Some(before) = &self.before else { continue };
            let new = match before.get(&key) {
                Some((entry, refused)) if *entry == one.entry_ns => {
                    one.refused.wrapping_sub(*refused)
                }
                // The entry is new, or this is its first refusal since the last call.
                _ => one.refused,
            };
            if new != 0 && (one.connected || !needs_proof) {
                let sum = fresh.entry(one.prefix).or_default();
                *sum = sum.saturating_add(new);
            }
        }
        let (entries, created) = std::mem::replace(&mut self.then, (seen.entries, seen.created));
        let grown = seen.created.saturating_sub(created);
        let evicted = match self.before.replace(now) {
            Some(_) => (entries + grown).saturating_sub(seen.entries),
            None => 0,
        };
        (fresh, evicted)
    }
}
