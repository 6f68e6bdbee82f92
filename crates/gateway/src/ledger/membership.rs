//! A place among the ledgers of a running gateway.
//!
//! Bit i of `control.owner_mask` belongs to whoever sets it by compare-and-swap; only then does the
//! ledger go into element i of `ledgers`. Whoever finds a ledger whose process is dead empties the
//! element first and clears the bit after. Two processes that clean up at the same moment can
//! thereby throw out a ledger that just moved in; so every member looks, with each heartbeat,
//! whether its ledger is still in its place, and takes another if not. The same mends a process
//! that was stopped for so long that it was taken for dead. No lock is needed, and none is left
//! behind by a process that dies.
//!
//! Beside the ledger, `control.members` has who it is of. What a server at the gateway's socket may
//! count for stands there, out of its reach.

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

/// Number of places; a model has as many as it needs.
pub(super) const PLACES: usize = if cfg!(equic_loom) { 3 } else { abi::EQUIC_MAX_OWNERS as usize };

/// The array of the ledgers that count.
pub(crate) trait LedgerArray: fmt::Debug + Send + Sync {
    /// Id of the ledger in an element.
    fn get(&self, slot: u32) -> io::Result<Option<u32>>;
    /// Puts the ledger with this descriptor into an element.
    fn put(&self, slot: u32, ledger: BorrowedFd<'_>) -> io::Result<()>;
    /// Empties an element.
    fn delete(&self, slot: u32) -> io::Result<()>;
}

/// The kernel's: its values are an id when read, a descriptor when written.
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

/// The map `ledgers` and the mask that says which of its elements are taken.
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

    /// The places that are taken, with the id of the ledger in each; none while one moves in.
    pub(crate) fn taken(&self) -> io::Result<Vec<(u32, Option<u32>)>> {
        let mask = self.mask().load(Acquire);
        let slots = (0..abi::EQUIC_MAX_OWNERS).filter(|slot| mask >> slot & 1 == 1);
        slots.map(|slot| Ok((slot, self.ledgers.get(slot)?))).collect()
    }

    /// Entry of the member at a place, if it is still this ledger that is in it.
    pub(crate) fn member(&self, slot: u32, ledger: u32) -> Option<abi::equic_member> {
        let member = self.read(slot);
        (member.ledger == ledger).then_some(member)
    }

    /// Ledger of the server that took a place last, whether or not it still has it; 0: none, or one moves in.
    pub(super) fn last_ledger(&self, slot: usize) -> u32 {
        atomic!(AtomicU32, self.control.pointer(), members[slot].ledger).load(Acquire)
    }

    fn read(&self, slot: u32) -> abi::equic_member {
        let (control, slot) = (self.control.pointer(), slot as usize);
        // The id first: what stands there with it was written before it.
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

    /// Writes down whose ledger is in a place. Only by whoever has the place.
    fn write(&self, slot: u32, member: &abi::equic_member) {
        let (control, slot) = (self.control.pointer(), slot as usize);
        // Who reads it meanwhile shall not take it for complete: the id comes last.
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

    /// The place that a server takes if those of `mask` are taken: the first one that no living process had before it.
    /// Connection IDs name the place, and the process that had it may still serve connections by them. If there is no
    /// other, it is the first one that is free.
    fn choose(&self, mask: u32, member: &abi::equic_member) -> Option<u32> {
        let mut free = (0..abi::EQUIC_MAX_OWNERS).filter(|slot| mask >> slot & 1 == 0).peekable();
        let first = *free.peek()?;
        Some(free.find(|slot| !self.is_of_another(*slot, member)).unwrap_or(first))
    }

    /// True if the process that had a place last is another one than the member's, and may live.
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
        // What cannot be judged from here is taken to live.
        namespace != sys::pid_namespace() || !sys::ended(pid, ticks)
    }

    /// Puts a ledger into a free place.
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
        // From now on a server answers for the place, or, if its IDs name any place, for all of its groups.
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

    /// Empties a place if this ledger is still in it. True if it was.
    pub(crate) fn empty(&self, slot: u32, ledger: u32) -> io::Result<bool> {
        if self.ledgers.get(slot)? != Some(ledger) {
            return Ok(false);
        }
        self.ledgers.delete(slot)?;
        self.mask().fetch_and(!(1 << slot), AcqRel);
        Ok(true)
    }

    /// Gives back a place that was claimed and never moved into.
    pub(crate) fn give_back(&self, slot: u32) -> io::Result<bool> {
        if self.ledgers.get(slot)?.is_some() {
            return Ok(false);
        }
        Ok(self.mask().fetch_and(!(1 << slot), AcqRel) >> slot & 1 == 1)
    }
}

/// This process's place; given up when dropped.
#[derive(Debug)]
pub(crate) struct Membership {
    places: Places,
    ledger: OwnedFd,
    member: abi::equic_member,
    slot: AtomicU32,
    /// True if the place is given up when this is dropped.
    leaves: AtomicBool,
}

impl Membership {
    /// Takes a place for a ledger whose header is written; `member` says whose it is.
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

    /// The place of a ledger that is in it already.
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

    /// Record of the server that has the place.
    pub(crate) fn member(&self) -> &abi::equic_member {
        &self.member
    }

    pub(crate) fn ledger(&self) -> BorrowedFd<'_> {
        self.ledger.as_fd()
    }

    /// The ledger shall stay in its place when this is dropped.
    pub(crate) fn stay(&self) {
        self.leaves.store(false, Relaxed);
    }

    /// Changes which quota groups it may not count for, and its flags (`enum equic_member_flags`).
    pub(crate) fn change(&mut self, barred: u64, flags: u32) {
        (self.member.barred, self.member.flags) = (barred, flags);
        self.places.write(self.slot(), &self.member);
    }

    /// Takes another place if somebody emptied ours.
    pub(crate) fn renew(&self) -> Result<()> {
        let failed =
            |error| Error::system("looking after this server's place in the gateway", error);
        let there = self.places.ledgers.get(self.slot()).map_err(failed)?;
        let marked = self.places.mask().load(Acquire) >> self.slot() & 1 == 1;
        if there == Some(self.ledger_id()) && marked {
            return Ok(());
        }
        if there == Some(self.ledger_id()) {
            // Our bit was cleared by somebody who cleaned up after the place's last ledger.
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
        // If this fails, the lease runs out and the gateway cleans up.
        if let Err(error) = self.places.empty(self.slot(), self.ledger_id()) {
            tracing::debug!(%error, "leaving the gateway");
        }
    }
}

/// A server's name as it is written down: printable ASCII, as many characters as there is room for.
/// It goes to terminals, logs and time series, and servers at the socket are nobody's friends.
pub(crate) fn member_name(name: &str) -> [std::ffi::c_char; 32] {
    let shown = |c: char| if c == ' ' || c.is_ascii_graphic() { c } else { '?' };
    c_name(&name.chars().map(shown).collect::<String>())
}

/// This process, as somebody who counts for every service.
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
