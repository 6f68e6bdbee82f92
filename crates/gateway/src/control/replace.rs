//! Replaces all entries of the deny or allow list at once: adds new entries and removes old ones.
//! Entries that stay are never missing in between.

use std::collections::{HashMap, HashSet};

use ipnet::IpNet;
use serde::Serialize;

use super::Control;
use super::count::Writing;
use super::lists::{ListAction, Origin, action_of, entry, holds, is_full, length_of, origin_of};
use crate::abi;
use crate::error::{Error, Result};
use crate::prefix::AclKey;
use crate::sys::map::Map;

/// Numbers of changes that the replacement of a list made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Replaced {
    /// Number of prefixes that were not on the list before.
    pub added: u32,
    /// Number of prefixes that are not on the new list.
    pub removed: u32,
    /// Number of prefixes that are on both lists.
    pub kept: u32,
    /// Number of prefixes that were not changed because they have an entry of another origin.
    pub left: u32,
}

/// The changes that turn the current entries of a list into the new ones.
#[derive(Default)]
pub(super) struct Difference {
    add: Vec<(IpNet, abi::equic_acl_entry)>,
    remove: Vec<IpNet>,
    /// The entries that will be overwritten or removed. They are needed to undo the change.
    before: HashMap<IpNet, abi::equic_acl_entry>,
    /// Number of current entries by family (IPv4 first). The next two fields are the numbers of
    /// entries that the additions create and that the removals delete.
    now: [u32; 2],
    create: [u32; 2],
    drop: [u32; 2],
    /// True if there is not enough room to make the additions before the removals.
    removals_first: bool,
    done: Replaced,
}

impl Difference {
    /// Returns the numbers of prefixes that the change adds, removes and keeps.
    pub(super) fn done(&self) -> &Replaced {
        &self.done
    }
}

/// Entries of one address family, to be stored with the kernel's batch call. Each vector has one
/// element per entry.
struct Family<K> {
    prefixes: Vec<IpNet>,
    keys: Vec<K>,
    entries: Vec<abi::equic_acl_entry>,
}

impl<K> Default for Family<K> {
    fn default() -> Family<K> {
        Family { prefixes: Vec::new(), keys: Vec::new(), entries: Vec::new() }
    }
}

impl<K> Family<K> {
    fn push(&mut self, prefix: IpNet, key: K, entry: abi::equic_acl_entry) {
        self.prefixes.push(prefix);
        self.keys.push(key);
        self.entries.push(entry);
    }
}

fn family(net: &IpNet) -> usize {
    usize::from(matches!(AclKey::of(*net), AclKey::V6(_)))
}

impl Control {
    /// Replaces those entries of `origin` that have one of `actions` with the wanted ones. A ban of
    /// a wanted prefix is replaced, too. Entries of other origins stay and take precedence. If it
    /// returns an error, nothing has changed.
    ///
    /// # Errors
    /// Returns [`Error::ListTooLong`] if there is not enough room, and the kernel's error if a call
    /// fails.
    pub fn replace(
        &self,
        origin: Origin,
        actions: &[ListAction],
        wanted: &[(IpNet, ListAction)],
    ) -> Result<Replaced> {
        let change = self.difference(origin, actions, wanted)?;
        self.carry_out(&change)?;
        self.note_lists(origin, &change.done);
        Ok(change.done)
    }

    /// Records in the audit log that a list was replaced.
    pub(super) fn note_lists(&self, origin: Origin, done: &Replaced) {
        let Replaced { added, removed, kept, .. } = done;
        let lists = format!("lists of origin {origin:?}");
        self.note(&format!("replace {lists}: {added} added, {removed} removed, {kept} kept"));
    }

    /// Makes the changes to the list. If it returns an error, it has undone what it changed.
    pub(super) fn carry_out(&self, change: &Difference) -> Result<()> {
        // Additions come first: if a prefix is replaced by its two halves, its addresses stay on
        // the list.
        let done = if change.removals_first {
            self.remove(&change.remove).and_then(|()| self.add(change))
        } else {
            self.add(change).and_then(|()| self.remove(&change.remove))
        };
        done.inspect_err(|_| self.go_back(change))
    }

    /// Returns the changes that are needed so that the list contains exactly the wanted entries
    /// among those of `origin` with one of `actions`.
    ///
    /// # Errors
    /// Returns [`Error::ListTooLong`] if there is not enough room, and the kernel's error if a call
    /// fails.
    pub(super) fn difference(
        &self,
        origin: Origin,
        actions: &[ListAction],
        wanted: &[(IpNet, ListAction)],
    ) -> Result<Difference> {
        let mut change = self.compare(origin, actions, wanted)?;
        let room = self.maps.acl4.max_entries();
        for (index, number) in [(0, 4), (1, 6)] {
            let needed = change.now[index] + change.create[index];
            if needed - change.drop[index] > room {
                let needed = needed - change.drop[index];
                return Err(Error::ListTooLong { family: number, needed, entries: room });
            }
            change.removals_first |= needed > room;
        }
        Ok(change)
    }

    fn compare(
        &self,
        origin: Origin,
        actions: &[ListAction],
        wanted: &[(IpNet, ListAction)],
    ) -> Result<Difference> {
        let (now, mut change) = (self.now(), Difference::default());
        let there: HashMap<IpNet, abi::equic_acl_entry> = self.raw_lists()?.into_iter().collect();
        for net in there.keys() {
            change.now[family(net)] += 1;
        }
        let mut names = HashSet::new();
        for (prefix, action) in wanted {
            if !names.insert(*prefix) {
                continue;
            }
            let new = entry(*action, origin, 0, 0);
            let old = there.get(prefix);
            if let Some(held) = old.filter(|old| holds(old, now)) {
                let own = origin_of(held) == origin;
                if own && held.expires_ns == 0 && held.action == new.action {
                    change.done.kept += 1;
                    continue;
                }
                if !own && origin_of(held) != Origin::Ban {
                    change.done.left += 1;
                    continue;
                }
            }
            match old {
                Some(old) => drop(change.before.insert(*prefix, *old)),
                None => change.create[family(prefix)] += 1,
            }
            change.done.added += 1;
            change.add.push((*prefix, new));
        }
        for (prefix, old) in &there {
            let ours = origin_of(old) == origin && actions.contains(&action_of(old));
            // Expired entries use up room. They can be removed whatever their origin is.
            if (ours || !holds(old, now)) && !names.contains(prefix) {
                change.drop[family(prefix)] += 1;
                change.done.removed += u32::from(ours);
                change.before.insert(*prefix, *old);
                change.remove.push(*prefix);
            }
        }
        Ok(change)
    }

    fn add(&self, change: &Difference) -> Result<()> {
        let mut writing = self.writing();
        let (mut v4, mut v6) = (Family::default(), Family::default());
        for (prefix, entry) in &change.add {
            let key = AclKey::of(*prefix);
            let entry = abi::equic_acl_entry { prefixlen: length_of(&key), ..*entry };
            match key {
                AclKey::V4(key) => v4.push(*prefix, key, entry),
                AclKey::V6(key) => v6.push(*prefix, key, entry),
            }
        }
        let before = |prefix: &IpNet| change.before.get(prefix);
        self.put_family(4, &self.maps.acl4, &v4, before, &mut writing)?;
        self.put_family(6, &self.maps.acl6, &v6, before, &mut writing)
    }

    /// Stores entries of one family, and records those that the kernel accepted.
    fn put_family<'a, K: abi::Pod>(
        &self,
        number: u8,
        map: &Map<K, abi::equic_acl_entry>,
        family: &Family<K>,
        before: impl Fn(&IpNet) -> Option<&'a abi::equic_acl_entry>,
        writing: &mut Writing<'_>,
    ) -> Result<()> {
        if family.keys.is_empty() {
            return Ok(());
        }
        self.use_lists(number == 4);
        let (done, result) = map.put_many(&family.keys, &family.entries);
        for (prefix, entry) in family.prefixes.iter().zip(&family.entries).take(done) {
            writing.put(*prefix, before(prefix), entry);
        }
        result.map_err(|error| match is_full(&error) {
            true => Error::ListFull { family: number, entries: map.max_entries() },
            false => Error::system(format!("listing {} prefixes", family.keys.len()), error),
        })
    }

    fn remove(&self, prefixes: &[IpNet]) -> Result<()> {
        prefixes.iter().try_for_each(|prefix| self.forget_if(*prefix, |_| true).map(drop))
    }

    /// Restores the entries from before a failed change, as far as the kernel accepts them.
    fn go_back(&self, change: &Difference) {
        for (prefix, _) in &change.add {
            if !change.before.contains_key(prefix)
                && let Err(error) = self.forget_if(*prefix, |_| true)
            {
                tracing::warn!(%error, %prefix, "cannot remove a new list entry while undoing a failed change");
            }
        }
        for (prefix, entry) in &change.before {
            if let Err(error) = self.put(*prefix, entry) {
                tracing::warn!(%error, %prefix, "cannot restore an old list entry while undoing a failed change");
            }
        }
    }
}
