//! Reads and changes the deny and allow lists of a running gateway.

use std::io;
use std::sync::atomic::Ordering::AcqRel;
use std::time::Duration;

use ipnet::IpNet;
use serde::Serialize;

use super::{Control, reading};
use crate::abi;
use crate::config::{ConfigError, check_mapped, nanos};
use crate::error::{Error, Result};
use crate::prefix::{AclKey, net_of_v4, net_of_v6};
use crate::sync::lock;
use crate::sys;
use crate::sys::region::atomic;

/// Treatment of packets from a prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ListAction {
    /// The packets are dropped.
    Deny,
    /// The packets are exempt from quotas and rates.
    Allow,
}

/// The origin of a list entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// An operator entered this prefix with a command.
    Command,
    /// The entry is in the configuration, or in a list file that the configuration names.
    Config,
    /// The entry is in a list file that an operator loaded with a command.
    File,
    /// The gateway banned this prefix.
    Ban,
}

/// An entry of the deny and allow lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ListEntry {
    /// Prefix of the entry. If several entries contain an address, the one with the longest prefix
    /// applies.
    pub prefix: IpNet,
    /// Treatment of the prefix's packets.
    pub action: ListAction,
    /// Time until the entry expires. `None` means never. In JSON, it is `{"secs":..,"nanos":..}`.
    pub expires_in: Option<Duration>,
    /// Origin of the entry.
    pub origin: Origin,
    /// Number of bans that the prefix has had, including this one. 0 if the entry is not a ban.
    pub bans: u16,
}

/// Pause between two walks through the lists, as a multiple of the duration of a walk.
const PAUSE_FACTOR: u32 = 50;

/// Returns the lifetime of an entry as text.
fn lasting(ttl: Option<Duration>) -> String {
    ttl.map_or_else(String::new, |ttl| format!(" for {}", crate::quantity::format_duration(ttl)))
}

impl Control {
    /// Starts dropping the packets of a prefix, for `ttl` or for good. Replaces an existing entry
    /// of the same prefix.
    ///
    /// # Errors
    /// Returns [`Error::ListFull`] if the list has no room.
    pub fn deny(&self, prefix: IpNet, ttl: Option<Duration>) -> Result<()> {
        self.put(prefix, &entry(ListAction::Deny, Origin::Command, self.until(ttl), 0))?;
        self.note(&format!("deny {prefix}{}", lasting(ttl)));
        Ok(())
    }

    /// Exempts a prefix from quotas and rates, for `ttl` or for good. Replaces an existing entry of
    /// the same prefix.
    ///
    /// # Errors
    /// Returns [`Error::ListFull`] if the list has no room.
    pub fn allow(&self, prefix: IpNet, ttl: Option<Duration>) -> Result<()> {
        self.put(prefix, &entry(ListAction::Allow, Origin::Command, self.until(ttl), 0))?;
        self.note(&format!("allow {prefix}{}", lasting(ttl)));
        Ok(())
    }

    /// Bans a prefix for `ttl`, as its ban number `count`. Replaces an older ban of this prefix.
    ///
    /// Returns false, and changes nothing, if the operator's lists take precedence. That is the
    /// case if the prefix is inside an allowed one, or if it has an entry that is not a ban.
    ///
    /// # Errors
    /// Returns [`Error::ListFull`] if the list has no room.
    pub fn ban(&self, prefix: IpNet, ttl: Duration, count: u16) -> Result<bool> {
        let own = self.entry(prefix)?;
        if self.allowed(prefix)? || own.is_some_and(|own| own.origin != Origin::Ban) {
            return Ok(false);
        }
        let entry = entry(ListAction::Deny, Origin::Ban, self.until(Some(ttl)), count);
        self.put(prefix, &entry).map(|()| true)
    }

    fn until(&self, ttl: Option<Duration>) -> u64 {
        ttl.map_or(0, |ttl| self.now().saturating_add(nanos(ttl)).max(1))
    }

    /// Returns the current time of the gateway's clock.
    pub(super) fn now(&self) -> u64 {
        match self.maps.load.test_clock {
            0 => sys::monotonic_ns(),
            _ => self.maps.control.read().clock_ns,
        }
    }

    /// Makes the XDP program search the list of an address family. To save time, the program does
    /// not search lists that were never used.
    pub(super) fn use_lists(&self, v4: bool) {
        let bit = if v4 { 1 } else { 2 };
        atomic!(AtomicU32, self.maps.control.pointer(), acl_used).fetch_or(bit, AcqRel);
    }

    /// Stores an entry. Sets the entry's prefix length to that of `prefix`.
    pub(super) fn put(&self, prefix: IpNet, entry: &abi::equic_acl_entry) -> Result<()> {
        check_mapped(prefix).map_err(|why| ConfigError::Invalid {
            key: "prefix".to_owned(),
            message: format!("{prefix} is not {why}"),
        })?;
        let key = AclKey::of(prefix);
        let family = if matches!(key, AclKey::V4(_)) { 4 } else { 6 };
        self.use_lists(family == 4);
        let with = |prefixlen| abi::equic_acl_entry { prefixlen, ..*entry };
        let put = |maps: &crate::maps::Maps| match &key {
            AclKey::V4(key) => maps.acl4.put(key, &with(key.prefixlen)),
            AclKey::V6(key) => maps.acl6.put(key, &with(key.prefixlen)),
        };
        let counted = || -> Result<io::Result<()>> {
            let mut writing = self.writing();
            let old = self.exact(prefix)?;
            let done = put(&self.maps);
            if done.is_ok() {
                self.note_expiry(entry.expires_ns);
                writing.put(prefix, old.as_ref(), entry);
            }
            Ok(done)
        };
        match counted()? {
            // The list is full. Expired entries may occupy room, so this removes them and counts
            // the rest.
            Err(error) if is_full(&error) && self.sweep_lists()? > 0 => counted()?,
            other => other,
        }
        .map_err(|error| match is_full(&error) {
            true => Error::ListFull { family, entries: self.maps.acl4.max_entries() },
            false => Error::system(format!("listing {prefix}"), error),
        })
    }

    /// Returns the entry of exactly this prefix, even if it has expired.
    fn exact(&self, prefix: IpNet) -> Result<Option<abi::equic_acl_entry>> {
        let length = length_of(&AclKey::of(prefix));
        Ok(self.longest(prefix)?.filter(|found| found.prefixlen == length))
    }

    /// Removes the entry of exactly this prefix. Returns true if there was one.
    ///
    /// # Errors
    /// Returns the kernel's error if a call fails.
    pub fn forget(&self, prefix: IpNet) -> Result<bool> {
        let forgotten = self.forget_if(prefix, |_| true)?;
        if forgotten {
            self.note(&format!("forget {prefix}"));
        }
        Ok(forgotten)
    }

    /// Removes the entry of exactly this prefix if `such` returns true for the entry. Returns true
    /// if the entry was removed.
    pub(super) fn forget_if(
        &self,
        prefix: IpNet,
        such: impl Fn(&abi::equic_acl_entry) -> bool,
    ) -> Result<bool> {
        let mut writing = self.writing();
        let Some(old) = self.exact(prefix)?.filter(such) else { return Ok(false) };
        let gone = match AclKey::of(prefix) {
            AclKey::V4(key) => self.maps.acl4.delete(&key),
            AclKey::V6(key) => self.maps.acl6.delete(&key),
        }
        .map_err(|error| Error::system(format!("forgetting {prefix}"), error))?;
        if gone {
            writing.gone(prefix, &old);
        }
        Ok(gone)
    }

    /// Returns the entries that have not expired, sorted, IPv4 first.
    ///
    /// # Errors
    /// Returns the kernel's error if a call fails.
    pub fn lists(&self) -> Result<Vec<ListEntry>> {
        let now = self.now();
        let mut all: Vec<ListEntry> = self
            .raw_lists()?
            .into_iter()
            .filter(|(_, entry)| holds(entry, now))
            .map(|(prefix, entry)| typed(prefix, &entry, now))
            .collect();
        all.sort_by_key(|entry| entry.prefix);
        Ok(all)
    }

    /// Returns the entry of exactly this prefix, if it has not expired.
    ///
    /// # Errors
    /// Returns the kernel's error if a call fails.
    pub fn entry(&self, prefix: IpNet) -> Result<Option<ListEntry>> {
        let now = self.now();
        let found = self.exact(prefix)?.filter(|found| holds(found, now));
        Ok(found.map(|found| typed(prefix, &found, now)))
    }

    /// Returns true if a prefix is completely inside an allowed one.
    ///
    /// # Errors
    /// Returns the kernel's error if a call fails.
    pub fn allowed(&self, prefix: IpNet) -> Result<bool> {
        let (now, mut at) = (self.now(), prefix);
        while let Some(found) = self.longest(at)? {
            if holds(&found, now) && action_of(&found) == ListAction::Allow {
                return Ok(true);
            }
            let Some(shorter) = found.prefixlen.checked_sub(1) else { break };
            let Ok(next) = IpNet::new(at.addr(), shorter as u8) else { break };
            at = next;
        }
        Ok(false)
    }

    /// Returns the longest entry that contains a prefix, even if it has expired.
    fn longest(&self, prefix: IpNet) -> Result<Option<abi::equic_acl_entry>> {
        match AclKey::of(prefix) {
            AclKey::V4(key) => self.maps.acl4.get(&key),
            AclKey::V6(key) => self.maps.acl6.get(&key),
        }
        .map_err(|error| Error::system(format!("looking up {prefix}"), error))
    }

    /// Returns every entry, expired ones included.
    pub(super) fn raw_lists(&self) -> Result<Vec<(IpNet, abi::equic_acl_entry)>> {
        if self.maps.control.read().acl_used == 0 {
            return Ok(Vec::new());
        }
        let failed = reading("the deny and allow lists");
        let v4 = self.maps.acl4.entries().map_err(&failed)?;
        let v6 = self.maps.acl6.entries().map_err(&failed)?;
        let v4 = v4.into_iter().filter_map(|(key, entry)| Some((net_of_v4(&key)?, entry)));
        let v6 = v6.into_iter().filter_map(|(key, entry)| Some((net_of_v6(&key)?, entry)));
        Ok(v4.chain(v6).collect())
    }

    /// Calls `visit` for every entry, expired ones included, without copying them all. If the lists
    /// change during the call, some entries may be visited twice.
    pub(super) fn each_entry(
        &self,
        mut visit: impl FnMut(IpNet, &abi::equic_acl_entry),
    ) -> Result<()> {
        if self.maps.control.read().acl_used == 0 {
            return Ok(());
        }
        let failed = reading("the deny and allow lists");
        let mut show = |prefix: Option<IpNet>, entry| {
            if let Some(prefix) = prefix {
                visit(prefix, &entry);
            }
        };
        self.maps.acl4.visit(|key, entry| show(net_of_v4(&key), entry)).map_err(&failed)?;
        self.maps.acl6.visit(|key, entry| show(net_of_v6(&key), entry)).map_err(&failed)
    }

    /// Removes the expired entries and returns their number. Walks the lists only if an entry may
    /// have expired.
    pub(super) fn sweep_lists(&self) -> Result<u32> {
        if !self.something_expired() {
            return Ok(0);
        }
        self.forget_soonest();
        let (now, mut expired) = (self.now(), Vec::new());
        self.each_entry(|prefix, entry| match holds(entry, now) {
            true => self.note_expiry(entry.expires_ns),
            false => expired.push(prefix),
        })?;
        let mut removed = 0;
        for prefix in expired {
            // Another process may have renewed the entry in the meantime.
            removed += u32::from(self.forget_if(prefix, |entry| !holds(entry, now))?);
        }
        Ok(removed)
    }

    /// Does the same as [`Control::sweep_lists`], but with a pause that grows with the length of
    /// the lists. Expired entries have no effect, so they may stay for some time.
    pub(super) fn sweep_lists_in_turn(&self) -> Result<u32> {
        let began = sys::monotonic_ns();
        if began < lock(&self.state).next_lists_ns {
            return Ok(0);
        }
        let removed = self.sweep_lists()?;
        self.count_again()?;
        let ended = sys::monotonic_ns();
        lock(&self.state).next_lists_ns = ended + (ended - began) * u64::from(PAUSE_FACTOR);
        Ok(removed)
    }
}

pub(super) fn entry(
    action: ListAction,
    origin: Origin,
    expires_ns: u64,
    count: u16,
) -> abi::equic_acl_entry {
    let action = match action {
        ListAction::Deny => abi::EQUIC_ACL_DENY,
        ListAction::Allow => abi::EQUIC_ACL_ALLOW,
    };
    let origin = match origin {
        Origin::Command => abi::EQUIC_ACL_BY_COMMAND,
        Origin::Config => abi::EQUIC_ACL_BY_CONFIG,
        Origin::File => abi::EQUIC_ACL_BY_FILE,
        Origin::Ban => abi::EQUIC_ACL_BY_BAN,
    };
    let (action, origin) = (action as u8, origin as u8);
    abi::equic_acl_entry { expires_ns, action, origin, count, prefixlen: 0 }
}

pub(super) fn action_of(entry: &abi::equic_acl_entry) -> ListAction {
    if u32::from(entry.action) == abi::EQUIC_ACL_ALLOW {
        ListAction::Allow
    } else {
        ListAction::Deny
    }
}

pub(super) fn origin_of(entry: &abi::equic_acl_entry) -> Origin {
    match u32::from(entry.origin) {
        abi::EQUIC_ACL_BY_CONFIG => Origin::Config,
        abi::EQUIC_ACL_BY_FILE => Origin::File,
        abi::EQUIC_ACL_BY_BAN => Origin::Ban,
        _ => Origin::Command,
    }
}

pub(super) fn holds(entry: &abi::equic_acl_entry, now: u64) -> bool {
    entry.expires_ns == 0 || entry.expires_ns > now
}

pub(super) fn typed(prefix: IpNet, entry: &abi::equic_acl_entry, now: u64) -> ListEntry {
    ListEntry {
        prefix,
        action: action_of(entry),
        expires_in: (entry.expires_ns != 0)
            .then(|| Duration::from_nanos(entry.expires_ns.saturating_sub(now))),
        origin: origin_of(entry),
        bans: entry.count,
    }
}

pub(super) fn length_of(key: &AclKey) -> u32 {
    match key {
        AclKey::V4(key) => key.prefixlen,
        AclKey::V6(key) => key.prefixlen,
    }
}

pub(super) fn is_full(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOSPC | libc::E2BIG))
}
