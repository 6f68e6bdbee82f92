//! The deny and allow lists.

use std::io;
use std::sync::atomic::Ordering::AcqRel;
use std::time::Duration;

use ipnet::IpNet;
use serde::Serialize;

use super::{Control, reading};
use crate::abi;
use crate::config::nanos;
use crate::error::{Error, Result};
use crate::prefix::{AclKey, net_of_v4, net_of_v6};
use crate::sys;
use crate::sys::region::atomic;

/// What happens to the packets of a prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ListAction {
    /// They are dropped.
    Deny,
    /// They are exempt from quotas and rates.
    Allow,
}

/// An entry of the deny and allow lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ListEntry {
    /// Whom it is about. Of several that contain an address, the longest counts.
    pub prefix: IpNet,
    /// What happens to them.
    pub action: ListAction,
    /// How much longer it holds; none: for good. In JSON as `{"secs":..,"nanos":..}`.
    pub expires_in: Option<Duration>,
}

impl Control {
    /// Drops the packets of a prefix from now on, for `ttl` or for good. Replaces an entry of the same
    /// prefix.
    ///
    /// # Errors
    /// [`Error::ListFull`].
    pub fn deny(&self, prefix: IpNet, ttl: Option<Duration>) -> Result<()> {
        self.list(prefix, ListAction::Deny, ttl)
    }

    /// Exempts a prefix from quotas and rates from now on, for `ttl` or for good. Replaces an entry
    /// of the same prefix.
    ///
    /// # Errors
    /// [`Error::ListFull`].
    pub fn allow(&self, prefix: IpNet, ttl: Option<Duration>) -> Result<()> {
        self.list(prefix, ListAction::Allow, ttl)
    }

    fn list(&self, prefix: IpNet, action: ListAction, ttl: Option<Duration>) -> Result<()> {
        let until = ttl.map_or(0, |ttl| self.now().saturating_add(nanos(ttl)).max(1));
        self.put(prefix, action, until)
    }

    /// The gateway's idea of the present.
    fn now(&self) -> u64 {
        match self.maps.load.test_clock {
            0 => sys::monotonic_ns(),
            _ => self.maps.control.read().clock_ns,
        }
    }

    pub(super) fn put(&self, prefix: IpNet, action: ListAction, expires_ns: u64) -> Result<()> {
        let key = AclKey::of(prefix);
        let entry = |prefixlen| abi::equic_acl_entry {
            expires_ns,
            action: match action {
                ListAction::Deny => abi::EQUIC_ACL_DENY,
                ListAction::Allow => abi::EQUIC_ACL_ALLOW,
            },
            prefixlen,
        };
        // First the bit: the program looks at the tries only if it is set.
        let (bit, family) = if matches!(key, AclKey::V4(_)) { (1, 4) } else { (2, 6) };
        atomic!(AtomicU32, self.maps.control.pointer(), acl_used).fetch_or(bit, AcqRel);
        let put = |maps: &crate::maps::Maps| match &key {
            AclKey::V4(key) => maps.acl4.put(key, &entry(key.prefixlen)),
            AclKey::V6(key) => maps.acl6.put(key, &entry(key.prefixlen)),
        };
        match put(&self.maps) {
            // Expired entries may take the room.
            Err(error) if is_full(&error) && self.sweep_lists()? > 0 => put(&self.maps),
            other => other,
        }
        .map_err(|error| match is_full(&error) {
            true => Error::ListFull { family, entries: self.maps.acl4.max_entries() },
            false => Error::system(format!("listing {prefix}"), error),
        })
    }

    /// Removes the entry of exactly this prefix. Whether there was one.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn forget(&self, prefix: IpNet) -> Result<bool> {
        match AclKey::of(prefix) {
            AclKey::V4(key) => self.maps.acl4.delete(&key),
            AclKey::V6(key) => self.maps.acl6.delete(&key),
        }
        .map_err(|error| Error::system(format!("forgetting {prefix}"), error))
    }

    /// The entries that hold, IPv4 first, sorted.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn lists(&self) -> Result<Vec<ListEntry>> {
        let now = self.now();
        let mut all: Vec<ListEntry> = self
            .raw_lists()?
            .into_iter()
            .filter(|(_, entry)| entry.expires_ns == 0 || entry.expires_ns > now)
            .map(|(prefix, entry)| ListEntry {
                prefix,
                action: action_of(&entry),
                expires_in: (entry.expires_ns != 0)
                    .then(|| Duration::from_nanos(entry.expires_ns - now)),
            })
            .collect();
        all.sort_by_key(|entry| entry.prefix);
        Ok(all)
    }

    /// Every entry, expired ones too.
    pub(super) fn raw_lists(&self) -> Result<Vec<(IpNet, abi::equic_acl_entry)>> {
        let failed = reading("the deny and allow lists");
        let v4 = self.maps.acl4.entries().map_err(&failed)?;
        let v6 = self.maps.acl6.entries().map_err(&failed)?;
        let v4 = v4.into_iter().filter_map(|(key, entry)| Some((net_of_v4(&key)?, entry)));
        let v6 = v6.into_iter().filter_map(|(key, entry)| Some((net_of_v6(&key)?, entry)));
        Ok(v4.chain(v6).collect())
    }

    /// Removes expired entries: how many.
    pub(super) fn sweep_lists(&self) -> Result<u32> {
        if self.maps.control.read().acl_used == 0 {
            return Ok(0);
        }
        let now = self.now();
        let mut removed = 0;
        for (prefix, entry) in self.raw_lists()? {
            if entry.expires_ns != 0 && entry.expires_ns <= now {
                removed += u32::from(self.forget(prefix)?);
            }
        }
        Ok(removed)
    }
}

pub(super) fn action_of(entry: &abi::equic_acl_entry) -> ListAction {
    if entry.action == abi::EQUIC_ACL_ALLOW { ListAction::Allow } else { ListAction::Deny }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOSPC | libc::E2BIG))
}
