//! Manages the slots of a gateway in which servers put their ledgers (maps with their connection
//! counts): reads all ledgers, and removes those of dead processes.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use serde::Serialize;

use super::{Control, reading};
use crate::abi;
use crate::config::from_c_name;
use crate::error::{Error, Result};
use crate::key_ring::RingAccess;
use crate::ledger::binding::{BindingKind, GatewayBinding};
use crate::ledger::header::write_header;
use crate::ledger::membership::{Membership, Places, this_process};
use crate::ledger::options::JoinOptions;
use crate::ledger::source::Keying;
use crate::ledger::table::{Memory, Table};
use crate::sync::lock;
use crate::sys;
use crate::sys::ids;
use crate::sys::map::create_mappable_array;

/// Additional time, in nanoseconds, that the ledger of a process without heartbeats stays in its
/// slot if the process seems to be alive.
///
/// A ledger is removed when its lease has expired without a heartbeat and its process is dead, as
/// far as this pid namespace can see. If the process seems to be alive, it may continue later, and
/// its clients get no stateless resets as long as it has its slot. So its ledger is removed only
/// after this time, and only if the slot is needed.
const STOPPED_FOR_GOOD_NS: u64 = 10_000_000_000;
/// Time limit, in nanoseconds, for a process to store its ledger in a slot that it has claimed.
/// Storing the ledger takes microseconds.
const MOVING_IN_NS: u64 = 5_000_000_000;

/// Numbers of entries that [`Control::sweep`] removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Swept {
    /// Number of ledgers of dead processes.
    pub ledgers: u32,
    /// Number of expired entries of the deny and allow lists.
    pub list_entries: u32,
}

/// A server that has joined a gateway.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct JoinedServer {
    /// Index of the server's slot in the gateway, from 0.
    pub slot: u32,
    /// Process ID of the server, in the server's pid namespace.
    pub pid: u32,
    /// Name that the server gave when it joined.
    pub name: String,
}

/// One ledger in a slot of the gateway.
pub(crate) struct Member {
    pub(super) slot: u32,
    pub(super) id: u32,
    pub(super) memory: Arc<Memory>,
    /// The header of the ledger. The server can write it.
    pub(super) header: abi::equic_ledger_header,
    /// The record of the server, written when the server joined.
    pub(super) record: abi::equic_member,
    pub(super) age_ns: u64,
    pub(super) alive: bool,
    pub(super) counts: bool,
}

impl Control {
    /// Creates a ledger for this process, puts it into a slot of the gateway, and returns the
    /// binding between both.
    pub(crate) fn binding(&self, options: &JoinOptions) -> Result<GatewayBinding> {
        let JoinOptions { name, keys } = options;
        // A process that can open the gateway's maps may have the key ring.
        let member = || abi::equic_member { flags: keys.flags(true), ..this_process(name) };
        let (membership, memory) = match self.join_with(name, member()) {
            // Dead processes may occupy the slots. A sweep may free some of them.
            Err(Error::NoFreeLedger { .. }) if self.sweep_ledgers(true)? > 0 => {
                self.join_with(name, member())?
            }
            other => other?,
        };
        lock(&self.state).ledgers.insert(membership.ledger_id(), Arc::clone(&memory));
        let table = Table::new(memory, Keying::new(&self.maps.load));
        let settings = (Arc::clone(&self.maps.services), Arc::clone(&self.maps.overrides));
        let control = Arc::clone(&self.maps.control);
        let binding =
            GatewayBinding::first(table, settings, Some(control), BindingKind::Placed(membership));
        let ring = match keys {
            keys if keys.takes() => RingAccess::Shared(Arc::clone(&self.maps.ring)),
            // This process owns the gateway, so it may always read the gateway's key ring.
            _ if self.own.strong_count() > 0 => RingAccess::Shared(Arc::clone(&self.maps.ring)),
            _ => RingAccess::None,
        };
        let others = Some(self.clone());
        Ok(GatewayBinding { program: Some(self.program), ring, others, ..binding })
    }

    /// Creates a ledger without a heartbeat, and puts it into a slot.
    pub(crate) fn join_with(
        &self,
        name: &str,
        member: abi::equic_member,
    ) -> Result<(Membership, Arc<Memory>)> {
        let failed = |error| Error::system("creating a ledger", error);
        let buckets = Keying::new(&self.maps.load).buckets();
        let size = size_of::<abi::equic_ledger_bucket>();
        let map = create_mappable_array("equic_ledger", size, buckets + 1).map_err(failed)?;
        let memory = Arc::new(Memory::of_map(map.as_fd(), buckets, true).map_err(failed)?);
        write_header(&memory, name, buckets, &member);
        let membership = Membership::join(self.places().map_err(failed)?, map, member)?;
        Ok((membership, memory))
    }

    pub(crate) fn places(&self) -> io::Result<Places> {
        Ok(Places::new(self.maps.ledgers()?, Arc::clone(&self.maps.control)))
    }

    /// Returns every ledger of the gateway that can be opened. The others were removed in the
    /// meantime, or belong to another process whose ledgers this process lacks the privilege to
    /// open.
    pub(crate) fn members(&self) -> Result<Vec<Member>> {
        let failed = reading("the ledgers");
        let places = self.places().map_err(&failed)?;
        let taken = places.taken().map_err(&failed)?;
        let lease = self.maps.control.read().lease_ns;
        let now = sys::monotonic_ns();
        let mut members = Vec::new();
        for (slot, id) in taken {
            let Some(id) = id else { continue };
            let memory = match self.memory(id) {
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => None,
                other => other.map_err(&failed)?,
            };
            let Some(memory) = memory else { continue };
            let header = memory.read_header();
            // The server can write the header, so only the record reliably says which process owns
            // the ledger.
            let Some(record) = places.member(slot, id) else { continue };
            // As in the XDP program, a heartbeat that is further in the future than the lease is
            // invalid.
            let ahead = header.heartbeat_ns.saturating_sub(now) >= lease;
            let age_ns = if ahead { u64::MAX } else { now.saturating_sub(header.heartbeat_ns) };
            let alive = sys::alive(record.pid, record.start_ticks);
            let counts = age_ns < lease;
            members.push(Member { slot, id, memory, header, record, age_ns, alive, counts });
        }
        lock(&self.state).ledgers.retain(|id, _| members.iter().any(|member| member.id == *id));
        Ok(members)
    }

    /// Returns the live servers whose record satisfies a condition. It uses only the records,
    /// because a gateway that has dropped `CAP_SYS_ADMIN` cannot read every ledger.
    pub(crate) fn servers_where(
        &self,
        wanted: impl Fn(&abi::equic_member) -> bool,
    ) -> Result<Vec<JoinedServer>> {
        let members = self.members()?;
        let silent = |id| members.iter().any(|member| member.id == id && !member.counts);
        let mut found = Vec::new();
        for (slot, record) in self.records()? {
            let lives = sys::alive(record.pid, record.start_ticks) && !silent(record.ledger);
            if lives && wanted(&record) {
                let name = from_c_name(&record.name);
                found.push(JoinedServer { slot, pid: record.pid, name });
            }
        }
        Ok(found)
    }

    /// Returns the record of every server that has a slot, each with its slot. Reading them needs no
    /// privileges.
    pub(super) fn records(&self) -> Result<Vec<(u32, abi::equic_member)>> {
        let failed = reading("the ledgers");
        let places = self.places().map_err(&failed)?;
        let taken = places.taken().map_err(&failed)?.into_iter();
        Ok(taken.filter_map(|(slot, id)| Some((slot, places.member(slot, id?)?))).collect())
    }

    /// Returns the live servers whose ledgers this process lacks the privilege to read. The XDP
    /// program reads these ledgers anyway, so the servers' connections count.
    ///
    /// # Errors
    /// Returns the kernel's error if a call fails.
    pub fn unreadable_servers(&self) -> Result<Vec<JoinedServer>> {
        self.unreadable_besides(&self.members()?)
    }

    /// Returns the live servers that are not in `members`.
    pub(super) fn unreadable_besides(&self, members: &[Member]) -> Result<Vec<JoinedServer>> {
        let read = |id: u32| members.iter().any(|member| member.id == id);
        let records = self.records()?.into_iter();
        let unread = records.filter(|(_, record)| {
            !read(record.ledger) && sys::alive(record.pid, record.start_ticks)
        });
        let server = |(slot, record): (u32, abi::equic_member)| JoinedServer {
            slot,
            pid: record.pid,
            name: from_c_name(&record.name),
        };
        Ok(unread.map(server).collect())
    }

    /// Returns the ledger whose map has this ID, mapped into memory. Returns `None` if the ledger
    /// was removed.
    fn memory(&self, id: u32) -> io::Result<Option<Arc<Memory>>> {
        if let Some(memory) = lock(&self.state).ledgers.get(&id) {
            return Ok(Some(Arc::clone(memory)));
        }
        let Some(map) = ids::map_by_id(id)? else { return Ok(None) };
        let buckets = Keying::new(&self.maps.load).buckets();
        let memory = Arc::new(Memory::of_map(map.as_fd(), buckets, false)?);
        lock(&self.state).ledgers.insert(id, Arc::clone(&memory));
        Ok(Some(memory))
    }

    /// Keeps the mapping of a ledger, so that it can be read without privileges. Also records the
    /// ledger's owner, because the ledger may be removed before the next sweep.
    pub(crate) fn remember(&self, membership: &Membership, memory: &Arc<Memory>) {
        let mut state = lock(&self.state);
        state.ledgers.insert(membership.ledger_id(), Arc::clone(memory));
        state.watched.add(membership.member(), membership.slot());
    }

    /// Returns the slots of live servers that joined at the socket of an earlier process of this
    /// gateway.
    pub(crate) fn inherited(&self) -> Result<Vec<(Membership, Arc<Memory>, abi::equic_member)>> {
        let failed = reading("the ledgers");
        let places = self.places().map_err(&failed)?;
        let mut found = Vec::new();
        for (slot, id) in places.taken().map_err(&failed)? {
            let Some(id) = id else { continue };
            let Some(member) = places.member(slot, id) else { continue };
            let socket = member.flags & abi::EQUIC_MEMBER_SOCKET != 0;
            if !socket || !sys::alive(member.pid, member.start_ticks) {
                continue;
            }
            let Some(memory) = self.memory(id).map_err(&failed)? else { continue };
            let Some(map) = ids::map_by_id(id).map_err(&failed)? else { continue };
            let places = self.places().map_err(&failed)?;
            found.push((Membership::of(places, map, member, slot), memory, member));
        }
        Ok(found)
    }

    /// Removes the ledgers of dead processes and expired list entries, and refreshes the addresses
    /// of the host ([`Control::refresh_addresses`]). The process that owns the gateway calls it
    /// every second.
    ///
    /// # Errors
    /// Returns the kernel's error if a call fails, and [`Error::NotPermitted`] without
    /// `CAP_SYS_ADMIN`.
    pub fn sweep(&self) -> Result<Swept> {
        // Only the gateway's owner reads the host's addresses, because another process may be in
        // another network namespace, which has other addresses.
        let own = self.links.upgrade().is_some();
        if own && let Err(error) = self.refresh_addresses() {
            // If refreshing the addresses keeps failing, `knows_addresses` returns false.
            tracing::debug!(%error, "sweeping");
        }
        let list_entries = self.sweep_lists_in_turn()?;
        let places = self.places().map_err(reading("the ledgers"))?;
        // The slots are observed before any ledger is removed, so that every server has been seen
        // once.
        lock(&self.state).watched.look(&places).map_err(reading("the ledgers"))?;
        let ledgers = self.sweep_ledgers(false)?;
        if ledgers > 0 {
            lock(&self.state).watched.look(&places).map_err(reading("the ledgers"))?;
        }
        let mut state = lock(&self.state);
        state.swept.ledgers += ledgers;
        state.swept.list_entries += list_entries;
        Ok(Swept { ledgers, list_entries })
    }

    /// Returns how many entries [`Control::sweep`] has removed through this handle and its clones,
    /// including those that the owner's sweeper thread removed.
    pub fn swept(&self) -> Swept {
        lock(&self.state).swept
    }

    /// Removes the ledgers of dead processes. With `all`, it also removes ledgers of live processes
    /// that have written no heartbeat for a long time. Returns the number of removed ledgers.
    fn sweep_ledgers(&self, all: bool) -> Result<u32> {
        let failed = reading("the ledgers");
        let places = self.places().map_err(&failed)?;
        let lease = self.maps.control.read().lease_ns;
        let (mut removed, mut seen) = (0, Vec::new());
        for member in self.members()? {
            seen.push(member.id);
            // The ledger of a live server at the gateway's socket stays, because only the gateway's
            // process removes it.
            let held = member.alive && member.record.flags & abi::EQUIC_MEMBER_SOCKET != 0;
            let long = member.age_ns > lease.saturating_add(STOPPED_FOR_GOOD_NS);
            let stopped = all && long && !held;
            if !member.counts && (!member.alive || stopped) {
                removed += u32::from(places.empty(member.slot, member.id).map_err(&failed)?);
            }
        }
        removed += self.sweep_unseen(&places, &seen, lease).map_err(&failed)?;
        self.give_back_claimed(&places).map_err(&failed)?;
        Ok(removed)
    }

    /// Removes ledgers that this process may not read. Each is removed when its process has been
    /// dead for the duration of a lease.
    fn sweep_unseen(&self, places: &Places, seen: &[u32], lease: u64) -> io::Result<u32> {
        let taken = places.taken()?;
        let (now, mut state, mut removed) = (sys::monotonic_ns(), lock(&self.state), 0);
        let there = |id: &u32| taken.iter().any(|(_, ledger)| *ledger == Some(*id));
        state.dead.retain(|id, _| there(id));
        for (slot, id) in taken.iter().filter_map(|(slot, id)| Some((*slot, (*id)?))) {
            let Some(record) = places.member(slot, id).filter(|_| !seen.contains(&id)) else {
                continue;
            };
            if sys::alive(record.pid, record.start_ticks) {
                continue;
            }
            if now.saturating_sub(*state.dead.entry(id).or_insert(now)) > lease {
                removed += u32::from(places.empty(slot, id)?);
            }
        }
        Ok(removed)
    }

    /// Frees slots whose process died after it had claimed them and before it stored its ledger.
    fn give_back_claimed(&self, places: &Places) -> io::Result<()> {
        let taken = places.taken()?;
        let (now, mut state) = (sys::monotonic_ns(), lock(&self.state));
        let empty = |slot: &u32| taken.contains(&(*slot, None));
        state.claimed.retain(|slot, _| empty(slot));
        for (slot, _) in taken.iter().filter(|(_, ledger)| ledger.is_none()) {
            let since = *state.claimed.entry(*slot).or_insert(now);
            if now.saturating_sub(since) > MOVING_IN_NS {
                places.give_back(*slot)?;
                state.claimed.remove(slot);
            }
        }
        Ok(())
    }

    /// Removes the ledgers of a process that has ended, without waiting for the lease. Returns
    /// their number. It is meant for a parent after `waitpid`, and does nothing while the process
    /// is running.
    ///
    /// # Errors
    /// Returns the kernel's error if a call fails, and [`Error::NotPermitted`] without
    /// `CAP_SYS_ADMIN`.
    pub fn remove_ledgers_of(&self, pid: u32) -> Result<u32> {
        let failed = reading("the ledgers");
        let places = self.places().map_err(&failed)?;
        let mut removed = 0;
        for member in self.members()? {
            if member.record.pid == pid && !member.alive {
                removed += u32::from(places.empty(member.slot, member.id).map_err(&failed)?);
            }
        }
        Ok(removed)
    }
}
