//! A server's membership in a running gateway: the slot of its ledger.
//!
//! Bit i of `control.owner_mask` belongs to the process that sets it by compare-and-swap. After
//! that, this process puts its ledger into element i of `ledgers`. A process that finds a dead
//! process's ledger first empties the element and then clears the bit.
//!
//! Two processes that clean up at the same time can remove a ledger that has just been stored. So
//! with each heartbeat, every member checks whether its ledger is still in its slot, and takes
//! another slot if not. This also helps a process that was stopped for so long that others assumed
//! it was dead. No lock is needed, so a process that dies cannot leave a lock behind.
//!
//! `control.members` has the owner of each ledger. It also says which services a server at the
//! gateway's socket may count for. That server cannot change it.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::{fmt, io};

use super::death::names_its_place;
use crate::abi;
use crate::config::c_name;
use crate::error::{Error, Result};
use crate::sync::atomic::{AtomicBool, AtomicU32};
use crate::sys;
use crate::sys::ids;
use crate::sys::map::Map;
use crate::sys::region::{Shared, atomic};

/// Number of slots for servers in a gateway. The loom models have fewer.
pub(super) const PLACES: usize = if cfg!(equic_loom) { 3 } else { abi::EQUIC_MAX_OWNERS as usize };

/// The array of the ledgers that the XDP program reads.
pub(crate) trait LedgerArray: fmt::Debug + Send + Sync {
    /// Returns the ID of the ledger in an element.
    fn get(&self, slot: u32) -> io::Result<Option<u32>>;
    /// Puts the ledger with this descriptor into an element.
    fn put(&self, slot: u32, ledger: BorrowedFd<'_>) -> io::Result<()>;
    /// Empties an element.
    fn delete(&self, slot: u32) -> io::Result<()>;
}

/// The kernel's map of maps: reading an element gives an ID, but writing takes a descriptor.
impl LedgerArray for Map<u32, u32> {
    fn get(&self, slot: u32) -> io::Result<Option<u32>> {
        self.get(&slot)
    }

    fn put(&self, slot: u32, ledger: BorrowedFd<'_>) -> io::Result<()> {
        self.put(&slot, &(ledger.as_raw_fd() as u32))
    }

    fn delete(&self, slot: u32) -> io::Result<()> {
        self.delete(&slot).map(drop)
    }
}

/// The map `ledgers` and the mask of its used elements, `owner_mask`.
#[derive(Debug)]
pub(crate) struct Places {
    ledgers: Box<dyn LedgerArray>,
    control: Arc<Shared<abi::equic_control>>,
}

impl Places {
    pub(crate) fn new(
        ledgers: impl LedgerArray + 'static,
        control: Arc<Shared<abi::equic_control>>,
    ) -> Places {
        Places { ledgers: Box::new(ledgers), control }
    }

    pub(crate) fn control(&self) -> &Shared<abi::equic_control> {
        &self.control
    }

    pub(crate) fn mask(&self) -> &AtomicU32 {
        atomic!(AtomicU32, self.control.pointer(), owner_mask)
    }

    /// Returns the used slots, each with the ID of its ledger. The ID is `None` if the ledger is
    /// not stored yet.
    pub(crate) fn taken(&self) -> io::Result<Vec<(u32, Option<u32>)>> {
        let mask = self.mask().load(Acquire);
        let slots = (0..abi::EQUIC_MAX_OWNERS).filter(|slot| mask >> slot & 1 == 1);
        slots.map(|slot| Ok((slot, self.ledgers.get(slot)?))).collect()
    }

    /// Returns the record of the server in a slot, if the slot still has this ledger.
    pub(crate) fn member(&self, slot: u32, ledger: u32) -> Option<abi::equic_member> {
        let member = self.read(slot);
        (member.ledger == ledger).then_some(member)
    }

    /// Returns the ID of the ledger that last took a slot, even if the ledger has left. Returns 0
    /// if the slot was never taken, or if a ledger is being stored in it.
    pub(super) fn last_ledger(&self, slot: usize) -> u32 {
        atomic!(AtomicU32, self.control.pointer(), members[slot].ledger).load(Acquire)
    }

    fn read(&self, slot: u32) -> abi::equic_member {
        let (control, slot) = (self.control.pointer(), slot as usize);
        // The ledger's ID is read first, because it is written after the other fields.
        let ledger = atomic!(AtomicU32, control, members[slot].ledger).load(Acquire);
        let name = |at: usize| atomic!(AtomicU8, control, members[slot].name[at]).load(Relaxed);
        abi::equic_member {
            ledger,
            pid: atomic!(AtomicU32, control, members[slot].pid).load(Relaxed),
            uid: atomic!(AtomicU32, control, members[slot].uid).load(Relaxed),
            flags: atomic!(AtomicU32, control, members[slot].flags).load(Relaxed),
            start_ticks: atomic!(AtomicU64, control, members[slot].start_ticks).load(Relaxed),
            barred: atomic!(AtomicU64, control, members[slot].barred).load(Relaxed),
            pid_namespace: atomic!(AtomicU64, control, members[slot].pid_namespace).load(Relaxed),
            name: std::array::from_fn(|at| name(at) as std::ffi::c_char),
        }
    }

    /// Writes the record of a slot. Only the process that has the slot may call it.
    fn write(&self, slot: u32, member: &abi::equic_member) {
        let (control, slot) = (self.control.pointer(), slot as usize);
        // The ID is 0 during the write and is written last, so that no reader uses an incomplete
        // record.
        atomic!(AtomicU32, control, members[slot].ledger).store(0, Release);
        atomic!(AtomicU32, control, members[slot].pid).store(member.pid, Relaxed);
        atomic!(AtomicU32, control, members[slot].uid).store(member.uid, Relaxed);
        atomic!(AtomicU64, control, members[slot].start_ticks).store(member.start_ticks, Relaxed);
        atomic!(AtomicU64, control, members[slot].barred).store(member.barred, Relaxed);
        atomic!(AtomicU32, control, members[slot].flags).store(member.flags, Relaxed);
        let namespace = atomic!(AtomicU64, control, members[slot].pid_namespace);
        namespace.store(member.pid_namespace, Relaxed);
        for (at, byte) in member.name.iter().enumerate() {
            atomic!(AtomicU8, control, members[slot].name[at]).store(*byte as u8, Relaxed);
        }
        atomic!(AtomicU32, control, members[slot].ledger).store(member.ledger, Release);
    }

    /// Returns the slot that a server should take, if the slots in `mask` are taken. It is the
    /// first free slot whose last owner is not alive. Connection IDs name the slot, so a last owner
    /// that is alive may still serve connections with such IDs. If there is no such slot, it is the
    /// first free one.
    fn choose(&self, mask: u32, member: &abi::equic_member) -> Option<u32> {
        let mut free = (0..abi::EQUIC_MAX_OWNERS).filter(|slot| mask >> slot & 1 == 0).peekable();
        let first = *free.peek()?;
        Some(free.find(|slot| !self.is_of_another(*slot, member)).unwrap_or(first))
    }

    /// Returns true if the last owner of a slot may be alive and is a process other than that of
    /// `member`.
    fn is_of_another(&self, slot: u32, member: &abi::equic_member) -> bool {
        let (control, slot) = (self.control.pointer(), slot as usize);
        if atomic!(AtomicU32, control, members[slot].ledger).load(Acquire) == 0 {
            return false;
        }
        let pid = atomic!(AtomicU32, control, members[slot].pid).load(Relaxed);
        let ticks = atomic!(AtomicU64, control, members[slot].start_ticks).load(Relaxed);
        let namespace = atomic!(AtomicU64, control, members[slot].pid_namespace).load(Relaxed);
        if (pid, ticks, namespace) == (member.pid, member.start_ticks, member.pid_namespace) {
            return false;
        }
        // A process that cannot be observed from this pid namespace counts as alive.
        namespace != sys::pid_namespace() || !sys::ended(pid, ticks)
    }

    /// Puts a ledger into a free slot. Returns `None` if no slot is free.
    pub(super) fn take(
        &self,
        ledger: &OwnedFd,
        member: &abi::equic_member,
    ) -> io::Result<Option<u32>> {
        let mut mask = self.mask().load(Acquire);
        let slot = loop {
            let Some(slot) = self.choose(mask, member) else { return Ok(None) };
            match self.mask().compare_exchange(mask, mask | 1 << slot, SeqCst, Acquire) {
                Ok(_) => break slot,
                Err(now) => mask = now,
            }
        };
        // The slot has a live server from now on, so the XDP program must not send resets for it.
        // If the server's IDs do not name its slot, this applies to all slots of the server's
        // groups.
        let control = self.control.pointer();
        let slot_index = slot as usize;
        atomic!(AtomicU64, control, dead[slot_index]).store(0, SeqCst);
        if !names_its_place(member) {
            for place in 0..PLACES {
                atomic!(AtomicU64, control, dead[place]).fetch_and(member.barred, SeqCst);
            }
        }
        self.write(slot, member);
        let put = self.ledgers.put(slot, ledger.as_fd());
        if put.is_err() {
            self.mask().fetch_and(!(1 << slot), AcqRel);
        }
        put.map(|()| Some(slot))
    }

    /// Empties a slot if it still has this ledger. Returns true if it did.
    pub(crate) fn empty(&self, slot: u32, ledger: u32) -> io::Result<bool> {
        if self.ledgers.get(slot)? != Some(ledger) {
            return Ok(false);
        }
        self.ledgers.delete(slot)?;
        self.mask().fetch_and(!(1 << slot), AcqRel);
        Ok(true)
    }

    /// Frees a slot that was claimed but has no ledger. Returns true if it was freed.
    pub(crate) fn give_back(&self, slot: u32) -> io::Result<bool> {
        if self.ledgers.get(slot)?.is_some() {
            return Ok(false);
        }
        Ok(self.mask().fetch_and(!(1 << slot), AcqRel) >> slot & 1 == 1)
    }
}

/// A slot of this process's ledger. It is released when this value is dropped.
#[derive(Debug)]
pub(crate) struct Membership {
    places: Places,
    ledger: OwnedFd,
    member: abi::equic_member,
    slot: AtomicU32,
    /// True if dropping this value releases the slot.
    leaves: AtomicBool,
}

impl Membership {
    /// Takes a slot for a ledger whose header has been written. `member` describes its owner.
    pub(crate) fn join(
        places: Places,
        ledger: OwnedFd,
        mut member: abi::equic_member,
    ) -> Result<Membership> {
        let failed = |error| Error::system("joining the gateway", error);
        member.ledger = ids::map_id(ledger.as_fd()).map_err(failed)?;
        let slot = places.take(&ledger, &member).map_err(failed)?;
        let slot = slot.ok_or(Error::NoFreeLedger { slots: abi::EQUIC_MAX_OWNERS })?;
        Ok(Membership::of(places, ledger, member, slot))
    }

    /// Returns the membership of a ledger that already has a slot.
    pub(crate) fn of(
        places: Places,
        ledger: OwnedFd,
        member: abi::equic_member,
        slot: u32,
    ) -> Membership {
        let (slot, leaves) = (AtomicU32::new(slot), AtomicBool::new(true));
        Membership { places, ledger, member, slot, leaves }
    }

    pub(crate) fn slot(&self) -> u32 {
        self.slot.load(Relaxed)
    }

    pub(crate) fn ledger_id(&self) -> u32 {
        self.member.ledger
    }

    /// Returns the record of the slot's owner.
    pub(crate) fn member(&self) -> &abi::equic_member {
        &self.member
    }

    pub(crate) fn ledger(&self) -> BorrowedFd<'_> {
        self.ledger.as_fd()
    }

    /// Keeps the ledger in its slot when this value is dropped.
    pub(crate) fn stay(&self) {
        self.leaves.store(false, Relaxed);
    }

    /// Changes the quota groups for which the server's counts are ignored, and its flags (`enum
    /// equic_member_flags`).
    pub(crate) fn change(&mut self, barred: u64, flags: u32) {
        (self.member.barred, self.member.flags) = (barred, flags);
        self.places.write(self.slot(), &self.member);
    }

    /// Takes another slot if another process has emptied this one.
    pub(crate) fn renew(&self) -> Result<()> {
        let failed = |error| Error::system("checking this server's slot in the gateway", error);
        let there = self.places.ledgers.get(self.slot()).map_err(failed)?;
        let marked = self.places.mask().load(Acquire) >> self.slot() & 1 == 1;
        if there == Some(self.ledger_id()) && marked {
            return Ok(());
        }
        if there == Some(self.ledger_id()) {
            // A process that removed the slot's previous ledger may have cleared the bit of this
            // ledger, so it is set again.
            let before = self.places.mask().fetch_or(1 << self.slot(), AcqRel);
            if before >> self.slot() & 1 == 0 {
                return Ok(());
            }
        }
        let slot = self.places.take(&self.ledger, &self.member).map_err(failed)?;
        let slot = slot.ok_or(Error::NoFreeLedger { slots: abi::EQUIC_MAX_OWNERS })?;
        self.slot.store(slot, Relaxed);
        Ok(())
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        if !self.leaves.load(Relaxed) {
            return;
        }
        // If emptying the slot fails, the lease expires later and the gateway removes the ledger.
        if let Err(error) = self.places.empty(self.slot(), self.ledger_id()) {
            tracing::debug!(%error, "cannot leave the gateway properly");
        }
    }
}

/// Returns a server's name in its stored form: printable ASCII, cut to fit. The name is shown in
/// terminals, logs and time series, and servers at the socket are not trusted.
pub(crate) fn member_name(name: &str) -> [std::ffi::c_char; 32] {
    let shown = |c: char| if c == ' ' || c.is_ascii_graphic() { c } else { '?' };
    c_name(&name.chars().map(shown).collect::<String>())
}

/// Returns the record of this process. Its counts are valid for every service.
pub(crate) fn this_process(name: &str) -> abi::equic_member {
    let pid = std::process::id();
    abi::equic_member {
        name: member_name(name),
        pid,
        uid: sys::user_id(),
        start_ticks: sys::start_ticks(pid).unwrap_or(0),
        pid_namespace: sys::pid_namespace(),
        ..abi::equic_member::default()
    }
}
