//! A place among the ledgers of a running gateway.
//!
//! Bit i of `control.owner_mask` belongs to whoever sets it by compare-and-swap; only then does the
//! ledger go into element i of `ledgers`. Whoever finds a ledger whose process is dead empties the
//! element first and clears the bit after. Two processes that clean up at the same moment can
//! thereby throw out a ledger that just moved in; so every member looks, with each heartbeat,
//! whether its ledger is still in its place, and takes another if not. The same mends a process
//! that was stopped for so long that it was taken for dead. No lock is needed, and none is left
//! behind by a process that dies.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use crate::abi;
use crate::error::{Error, Result};
use crate::sys;
use crate::sys::ids;
use crate::sys::map::Map;
use crate::sys::region::{Shared, atomic};

/// The map `ledgers` and the mask that says which of its elements are taken.
#[derive(Debug)]
pub(crate) struct Places {
    /// Element to map: an id when read, a descriptor when written.
    ledgers: Map<u32, u32>,
    control: Arc<Shared<abi::equic_control>>,
}

impl Places {
    pub(crate) fn new(ledgers: Map<u32, u32>, control: Arc<Shared<abi::equic_control>>) -> Places {
        Places { ledgers, control }
    }

    fn mask(&self) -> &AtomicU32 {
        atomic!(AtomicU32, self.control.pointer(), owner_mask)
    }

    /// The places that are taken, with the id of the ledger in each; none while one moves in.
    pub(crate) fn taken(&self) -> io::Result<Vec<(u32, Option<u32>)>> {
        let mask = self.mask().load(Acquire);
        let slots = (0..abi::EQUIC_MAX_OWNERS).filter(|slot| mask >> slot & 1 == 1);
        slots.map(|slot| Ok((slot, self.ledgers.get(&slot)?))).collect()
    }

    /// Puts a ledger into a free place.
    fn take(&self, ledger: &OwnedFd) -> io::Result<Option<u32>> {
        let mut mask = self.mask().load(Acquire);
        let slot = loop {
            let slot = mask.trailing_ones();
            if slot >= abi::EQUIC_MAX_OWNERS {
                return Ok(None);
            }
            match self.mask().compare_exchange(mask, mask | 1 << slot, AcqRel, Acquire) {
                Ok(_) => break slot,
                Err(now) => mask = now,
            }
        };
        let put = self.ledgers.put(&slot, &(ledger.as_raw_fd() as u32));
        if put.is_err() {
            self.mask().fetch_and(!(1 << slot), AcqRel);
        }
        put.map(|()| Some(slot))
    }

    /// Empties a place if this ledger is still in it. Whether it was.
    pub(crate) fn empty(&self, slot: u32, ledger: u32) -> io::Result<bool> {
        if self.ledgers.get(&slot)? != Some(ledger) {
            return Ok(false);
        }
        self.ledgers.delete(&slot)?;
        self.mask().fetch_and(!(1 << slot), AcqRel);
        Ok(true)
    }

    /// Gives back a place that was claimed and never moved into.
    pub(crate) fn give_back(&self, slot: u32) -> io::Result<bool> {
        if self.ledgers.get(&slot)?.is_some() {
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
    ledger_id: u32,
    slot: AtomicU32,
}

impl Membership {
    /// Takes a place for a ledger whose header is written.
    pub(crate) fn join(places: Places, ledger: OwnedFd) -> Result<Membership> {
        let failed = |error| Error::system("joining the gateway", error);
        let ledger_id = ids::map_id(ledger.as_fd()).map_err(failed)?;
        let slot = places.take(&ledger).map_err(failed)?;
        let slot = slot.ok_or(Error::NoFreeLedger { slots: abi::EQUIC_MAX_OWNERS })?;
        Ok(Membership { places, ledger, ledger_id, slot: AtomicU32::new(slot) })
    }

    pub(crate) fn slot(&self) -> u32 {
        self.slot.load(Relaxed)
    }

    pub(crate) fn ledger_id(&self) -> u32 {
        self.ledger_id
    }

    pub(crate) fn lease_ns(&self) -> u64 {
        atomic!(AtomicU64, self.places.control.pointer(), lease_ns).load(Relaxed)
    }

    pub(crate) fn dry_run(&self) -> bool {
        atomic!(AtomicU32, self.places.control.pointer(), dry_run).load(Relaxed) != 0
    }

    pub(crate) fn gateway_alive(&self) -> bool {
        let control = self.places.control.read();
        sys::alive(control.owner_pid, control.owner_start_ticks)
    }

    /// Takes another place if somebody emptied ours.
    pub(crate) fn renew(&self) -> Result<()> {
        let failed =
            |error| Error::system("looking after this server's place in the gateway", error);
        let there = self.places.ledgers.get(&self.slot()).map_err(failed)?;
        let marked = self.places.mask().load(Acquire) >> self.slot() & 1 == 1;
        if there == Some(self.ledger_id) && marked {
            return Ok(());
        }
        if there == Some(self.ledger_id) {
            // Our bit was cleared by somebody who cleaned up after the place's last ledger.
            let before = self.places.mask().fetch_or(1 << self.slot(), AcqRel);
            if before >> self.slot() & 1 == 0 {
                return Ok(());
            }
        }
        let slot = self.places.take(&self.ledger).map_err(failed)?;
        let slot = slot.ok_or(Error::NoFreeLedger { slots: abi::EQUIC_MAX_OWNERS })?;
        self.slot.store(slot, Relaxed);
        Ok(())
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        // If this fails, the lease runs out and the gateway cleans up.
        if let Err(error) = self.places.empty(self.slot(), self.ledger_id) {
            tracing::debug!(%error, "leaving the gateway");
        }
    }
}
