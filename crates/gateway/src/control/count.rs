//! Counts the entries of the deny and allow lists, and records their latest changes, without
//! walking the lists.
//!
//! The lists are tries in BPF maps. Every process that changes a trie also updates the numbers of
//! entries in a separate map (`equic_notes` in `bpf/abi.h`). There is no lock that a dying process
//! could leave locked. Instead, each change records its start and its end. If two changes
//! overlapped, or one never ended, the process that owns the gateway counts the entries again.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::time::Duration;

use ipnet::IpNet;
use serde::Serialize;

use super::lists::{action_of, holds, origin_of};
use super::{Control, ListAction, Origin};
use crate::abi;
use crate::config::address_bytes;
use crate::error::Result;
use crate::prefix::{AclKey, ip_of};
use crate::sys;
use crate::sys::region::{Shared, atomic};

/// Maximum number of list changes that are reported one by one. If there are more at once, only
/// their numbers are reported.
pub(super) const TOLD: u64 = 20;
/// Time after which an unfinished change of a list counts as abandoned, because its process was
/// killed.
const ABANDONED: Duration = Duration::from_secs(10);

/// Numbers of entries of the deny and allow lists. Entries that have just expired may be included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct ListCounts {
    /// Number of denied IPv4 prefixes.
    pub deny_v4: u64,
    /// Number of allowed IPv4 prefixes.
    pub allow_v4: u64,
    /// Number of denied IPv6 prefixes.
    pub deny_v6: u64,
    /// Number of allowed IPv6 prefixes.
    pub allow_v6: u64,
    /// Number of denied prefixes that are bans.
    pub bans: u64,
}

/// A kind of change of a list entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ListEvent {
    /// The prefix was put on the deny list.
    Denied,
    /// The prefix was put on the allow list.
    Allowed,
    /// The entry expired.
    Expired,
    /// The entry was removed before it expired.
    Forgotten,
}

const EVENTS: [ListEvent; 4] =
    [ListEvent::Denied, ListEvent::Allowed, ListEvent::Expired, ListEvent::Forgotten];

/// A position in the record of list changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ListMark {
    changes: u64,
    told: [u64; 4],
}

/// Changes of the lists since a [`ListMark`], except bans.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ListChanges {
    /// Numbers of changes, in the order of [`ListEvent`].
    pub numbers: [u64; 4],
    /// Each change, oldest first. Empty if there are too many to report, or if one was overwritten.
    pub each: Vec<(IpNet, ListEvent)>,
}

/// Returns the index of the number that counts a list entry. The order is: denied IPv4, allowed
/// IPv4, denied IPv6, allowed IPv6.
fn place(v4: bool, action: ListAction) -> usize {
    2 * usize::from(!v4) + usize::from(action == ListAction::Allow)
}

fn is_v4(prefix: &IpNet) -> bool {
    matches!(AclKey::of(*prefix), AclKey::V4(_))
}

/// A change of the deny and allow lists that is in progress. It ends when this value is dropped.
pub(super) struct Writing<'a> {
    book: Option<&'a Shared<abi::equic_notes>>,
    now: u64,
    /// The changed entries, which will be recorded when the change ends.
    told: Vec<(IpNet, ListEvent)>,
}

impl Control {
    /// Records that this process starts to change the deny and allow lists.
    pub(super) fn writing(&self) -> Writing<'_> {
        let book = self.maps.notes.as_ref();
        if let Some(book) = book {
            let ended = atomic!(AtomicU64, book.pointer(), ended).load(Acquire);
            let begun = atomic!(AtomicU64, book.pointer(), begun).fetch_add(1, AcqRel);
            if begun != ended {
                atomic!(AtomicU32, book.pointer(), suspect).store(1, Release);
            }
        }
        Writing { book, now: self.now(), told: Vec::new() }
    }

    /// Returns the numbers of entries of the deny and allow lists. The cost does not depend on the
    /// length of the lists, unless the gateway is of another build. Such a gateway keeps no such
    /// numbers, so its entries are counted.
    ///
    /// # Errors
    /// Returns the kernel's error if a call fails.
    pub fn list_counts(&self) -> Result<ListCounts> {
        let Some(book) = &self.maps.notes else { return Ok(self.count()?.0) };
        let number = |at: usize| {
            let count = atomic!(AtomicU32, book.pointer(), entries[at]).load(Relaxed);
            // Overlapping changes may have subtracted too much. The number is correct again after
            // the entries have been counted again.
            u64::from(count.cast_signed().max(0).cast_unsigned())
        };
        let bans = atomic!(AtomicU32, book.pointer(), bans).load(Relaxed);
        Ok(ListCounts {
            deny_v4: number(0),
            allow_v4: number(1),
            deny_v6: number(2),
            allow_v6: number(3),
            bans: u64::from(bans.cast_signed().max(0).cast_unsigned()),
        })
    }

    /// Counts the entries by walking the tries. The second value is the time of the first expiry,
    /// as the map stores it.
    fn count(&self) -> Result<(ListCounts, u64)> {
        let (mut counts, mut soonest) = (ListCounts::default(), 0);
        self.each_entry(|prefix, entry| {
            let number = match (is_v4(&prefix), action_of(entry)) {
                (true, ListAction::Deny) => &mut counts.deny_v4,
                (true, ListAction::Allow) => &mut counts.allow_v4,
                (false, ListAction::Deny) => &mut counts.deny_v6,
                (false, ListAction::Allow) => &mut counts.allow_v6,
            };
            *number += 1;
            counts.bans += u64::from(origin_of(entry) == Origin::Ban);
            if entry.expires_ns != 0 {
                soonest = soonest.max(!entry.expires_ns);
            }
        })?;
        Ok((counts, soonest))
    }

    /// Returns true if an entry of the lists may have expired.
    pub(super) fn something_expired(&self) -> bool {
        let Some(book) = &self.maps.notes else { return true };
        let soonest = atomic!(AtomicU64, book.pointer(), soonest).load(Acquire);
        soonest != 0 && !soonest <= self.now()
    }

    /// Resets the time of the first expiry. Must be called before the lists are searched for
    /// expired entries. Other processes that add an entry after this call record its expiry, and
    /// the search records the expiry of the entries that stay.
    pub(super) fn forget_soonest(&self) {
        if let Some(book) = &self.maps.notes {
            atomic!(AtomicU64, book.pointer(), soonest).store(0, Release);
        }
    }

    /// Records the time at which an entry expires, if no other entry expires earlier. 0 means that
    /// it never expires.
    pub(super) fn note_expiry(&self, expires_ns: u64) {
        if let Some(book) = self.maps.notes.as_ref().filter(|_| expires_ns != 0) {
            atomic!(AtomicU64, book.pointer(), soonest).fetch_max(!expires_ns, AcqRel);
        }
    }

    /// Counts the list entries again if their numbers may be wrong. Returns true if it did. The
    /// process that owns the gateway calls this in every sweep.
    pub(super) fn count_again(&self) -> Result<bool> {
        let Some(book) = &self.maps.notes else { return Ok(false) };
        let at = book.pointer();
        let begun = atomic!(AtomicU64, at, begun).load(Acquire);
        let ended = atomic!(AtomicU64, at, ended).load(Acquire);
        let abandoned = begun != ended && self.stands_still((begun, ended));
        let suspect = atomic!(AtomicU32, at, suspect).load(Acquire) != 0;
        if !abandoned && (!suspect || begun != ended) {
            return Ok(false);
        }
        let (counts, soonest) = self.count()?;
        if atomic!(AtomicU64, at, begun).load(Acquire) != begun {
            // The lists changed during the count. The next call tries again.
            return Ok(false);
        }
        let numbers = [counts.deny_v4, counts.allow_v4, counts.deny_v6, counts.allow_v6];
        for (index, number) in numbers.into_iter().enumerate() {
            atomic!(AtomicU32, at, entries[index]).store(number as u32, Relaxed);
        }
        atomic!(AtomicU32, at, bans).store(counts.bans as u32, Relaxed);
        atomic!(AtomicU64, at, soonest).fetch_max(soonest, AcqRel);
        atomic!(AtomicU32, at, suspect).store(0, Release);
        if abandoned {
            atomic!(AtomicU64, at, ended).store(begun, Release);
        }
        Ok(true)
    }

    /// Returns true if an unfinished change of the lists has made no progress for a long time.
    fn stands_still(&self, at: (u64, u64)) -> bool {
        let now = sys::monotonic_ns();
        let mut state = crate::sync::lock(&self.state);
        let since = match state.list_change {
            Some((seen, since)) if seen == at => since,
            _ => now,
        };
        state.list_change = Some((at, since));
        Duration::from_nanos(now.saturating_sub(since)) >= ABANDONED
    }

    /// Returns the current end of the record of changes.
    pub fn list_mark(&self) -> ListMark {
        let Some(book) = &self.maps.notes else { return ListMark::default() };
        let changes = atomic!(AtomicU64, book.pointer(), changes).load(Acquire);
        let told = std::array::from_fn(|index| {
            atomic!(AtomicU64, book.pointer(), told[index]).load(Relaxed)
        });
        ListMark { changes, told }
    }

    /// Returns the changes of the lists since `mark`, without bans, and moves `mark` to the current
    /// end.
    pub fn list_changes(&self, mark: &mut ListMark) -> ListChanges {
        let now = self.list_mark();
        let before = std::mem::replace(mark, now);
        let numbers =
            std::array::from_fn(|index| now.told[index].saturating_sub(before.told[index]));
        let total = now.changes.saturating_sub(before.changes);
        let each = match total {
            1..=TOLD => (before.changes..now.changes).map(|at| self.change_at(at + 1)).collect(),
            _ => None,
        };
        ListChanges { numbers, each: each.unwrap_or_default() }
    }

    /// Returns a change by its number. Returns `None` if a later change has overwritten it, or if
    /// it is being written.
    fn change_at(&self, number: u64) -> Option<(IpNet, ListEvent)> {
        let book = self.maps.notes.as_ref()?;
        let slot = slot(number);
        let stamp = || atomic!(AtomicU64, book.pointer(), last[slot].stamp).load(Acquire);
        if stamp() != number {
            return None;
        }
        // SAFETY: the element is inside the mapping, and every bit pattern is valid.
        let change = unsafe { (&raw const (*book.pointer()).last[slot]).read_volatile() };
        if stamp() != number {
            return None;
        }
        let address = match ip_of(change.addr) {
            std::net::IpAddr::V4(address) if change.v4 == 0 => address.to_ipv6_mapped().into(),
            address => address,
        };
        let prefix = IpNet::new(address, change.prefixlen).ok()?;
        Some((prefix, *EVENTS.get(usize::from(change.what))?))
    }
}

fn slot(number: u64) -> usize {
    ((number - 1) % u64::from(abi::EQUIC_LIST_CHANGES)) as usize
}

impl Writing<'_> {
    /// Records that an entry was stored. `old` is the entry that it replaced, if any.
    pub(super) fn put(
        &mut self,
        prefix: IpNet,
        old: Option<&abi::equic_acl_entry>,
        new: &abi::equic_acl_entry,
    ) {
        self.add(&prefix, old, -1);
        self.add(&prefix, Some(new), 1);
        let known = |entry: &&abi::equic_acl_entry| holds(entry, self.now);
        let same =
            |old: &abi::equic_acl_entry| (old.action, old.origin) == (new.action, new.origin);
        if origin_of(new) != Origin::Ban && !old.filter(known).is_some_and(same) {
            let event = match action_of(new) {
                ListAction::Deny => ListEvent::Denied,
                ListAction::Allow => ListEvent::Allowed,
            };
            self.told.push((prefix, event));
        }
    }

    /// Records that an entry was removed.
    pub(super) fn gone(&mut self, prefix: IpNet, old: &abi::equic_acl_entry) {
        self.add(&prefix, Some(old), -1);
        if origin_of(old) != Origin::Ban {
            let event =
                if holds(old, self.now) { ListEvent::Forgotten } else { ListEvent::Expired };
            self.told.push((prefix, event));
        }
    }

    fn add(&self, prefix: &IpNet, entry: Option<&abi::equic_acl_entry>, step: i32) {
        let (Some(book), Some(entry)) = (self.book, entry) else { return };
        let (at, step) = (place(is_v4(prefix), action_of(entry)), step.cast_unsigned());
        atomic!(AtomicU32, book.pointer(), entries[at]).fetch_add(step, Relaxed);
        if origin_of(entry) == Origin::Ban {
            atomic!(AtomicU32, book.pointer(), bans).fetch_add(step, Relaxed);
        }
    }

    /// Writes the recorded changes and the new numbers to the map.
    fn tell(&self, book: &Shared<abi::equic_notes>) {
        let count = self.told.len() as u64;
        for (index, event) in EVENTS.into_iter().enumerate() {
            let number = self.told.iter().filter(|(_, told)| *told == event).count() as u64;
            atomic!(AtomicU64, book.pointer(), told[index]).fetch_add(number, Relaxed);
        }
        let first = atomic!(AtomicU64, book.pointer(), changes).fetch_add(count, AcqRel) + 1;
        if count > TOLD {
            return;
        }
        for (number, (prefix, event)) in (first..).zip(&self.told) {
            let slot = slot(number);
            let stamp = atomic!(AtomicU64, book.pointer(), last[slot].stamp);
            stamp.store(0, Release);
            let change = abi::equic_list_change {
                stamp: 0,
                addr: address_bytes(prefix.addr()),
                v4: prefix.addr().is_ipv4().into(),
                prefixlen: prefix.prefix_len(),
                what: EVENTS.iter().position(|known| known == event).unwrap_or_default() as u8,
                reserved: 0,
                pid: std::process::id(),
            };
            // SAFETY: the element is inside the mapping. Readers use an element only if its stamp
            // is right.
            unsafe { (&raw mut (*book.pointer()).last[slot]).write_volatile(change) };
            stamp.store(number, Release);
        }
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        let Some(book) = self.book else { return };
        if !self.told.is_empty() {
            self.tell(book);
        }
        atomic!(AtomicU64, book.pointer(), ended).fetch_add(1, AcqRel);
    }
}
