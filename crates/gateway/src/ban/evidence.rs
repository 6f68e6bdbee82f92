//! From the counters of the XDP program to refusals: those since the last look whose source counts.

use std::collections::HashMap;

use ipnet::IpNet;

use crate::config::{BanConfig, Proof};
use crate::control::Refusals;

/// The counters at the last look. At most as many as the table of sources has.
#[derive(Debug, Default)]
pub struct Evidence {
    before: Option<HashMap<(IpNet, u32), (u64, u32)>>,
    /// Number of entries, and of entries ever created, at that time.
    then: (u64, u64),
}

impl Evidence {
    /// Returns the counted refusals per source since the last look. The first look only records the
    /// counters. Also returns the number of sources that were evicted from their table in between,
    /// whose refusals may have been missed.
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
                // Created, or refused for the first time, since the last look.
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
