//! The slots of a ledger and the order in which they are written (docs/policy.md, "The ledger").
//!
//! A lock per source (striped) keeps two threads from counting the same source at once. Threads
//! with different sources meet in a bucket only when they claim a free slot, and then the
//! compare-and-swap of `meta` decides. The XDP program reads without any lock: it compares tag,
//! address and group, and the tag again.

use std::io;
use std::mem::offset_of;
use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU64, fence};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::source::{Keying, Place, STRIPES, Source};
use crate::abi;
use crate::sys::region::{Region, atomic};

const BUCKET: usize = size_of::<abi::equic_ledger_bucket>();
const SLOT: usize = size_of::<abi::equic_ledger_slot>();
const _: () = assert!(size_of::<abi::equic_ledger_header>() == BUCKET);

/// Bytes of a ledger with this many buckets: the header takes element 0.
fn bytes(buckets: u32) -> usize {
    (buckets as usize + 1) * BUCKET
}

/// Where a source's slot is: its byte offset. It stays there until the count is zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slot(usize);

/// A slot in use, as a reader sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) source: Source,
    pub(crate) count: u32,
}

/// The memory of one ledger, its own or another process's.
#[derive(Debug)]
pub(crate) struct Memory {
    region: Region,
    buckets: u32,
}

impl Memory {
    pub(crate) fn anonymous(buckets: u32) -> io::Result<Memory> {
        Ok(Memory { region: Region::anonymous(bytes(buckets))?, buckets })
    }

    pub(crate) fn of_map(map: BorrowedFd<'_>, buckets: u32, writable: bool) -> io::Result<Memory> {
        Ok(Memory { region: Region::of_map(map, bytes(buckets), writable)?, buckets })
    }

    pub(crate) fn header(&self) -> *mut abi::equic_ledger_header {
        self.region.at(0)
    }

    /// A copy of the header; its counters may be from slightly different moments.
    pub(crate) fn read_header(&self) -> abi::equic_ledger_header {
        // SAFETY: valid and aligned (`Region::at`), and any bytes are a header.
        unsafe { self.header().read_volatile() }
    }

    fn slot(&self, slot: Slot) -> *mut abi::equic_ledger_slot {
        self.region.at(slot.0)
    }

    fn meta(&self, slot: Slot) -> &AtomicU64 {
        atomic!(AtomicU64, self.slot(slot), meta)
    }

    fn slots_of(bucket: u32) -> impl Iterator<Item = Slot> {
        let start = (bucket as usize + 1) * BUCKET;
        (0..abi::EQUIC_SLOTS as usize).map(move |index| Slot(start + index * SLOT))
    }

    fn source_in(&self, slot: Slot) -> Source {
        let word = |index: usize| {
            let offset = slot.0 + offset_of!(abi::equic_ledger_slot, addr) + index * 8;
            // SAFETY: valid and aligned (`Region::at`); everybody accesses it as words.
            unsafe { AtomicU64::from_ptr(self.region.at(offset)) }.load(Relaxed)
        };
        let group = atomic!(AtomicU32, self.slot(slot), group).load(Relaxed);
        Source { words: [word(0), word(1)], group }
    }

    fn write_source(&self, slot: Slot, source: &Source) {
        for (index, word) in source.words.iter().enumerate() {
            let offset = slot.0 + offset_of!(abi::equic_ledger_slot, addr) + index * 8;
            // SAFETY: valid and aligned (`Region::at`); everybody accesses it as words.
            unsafe { AtomicU64::from_ptr(self.region.at(offset)) }.store(*word, Relaxed);
        }
        atomic!(AtomicU32, self.slot(slot), group).store(source.group, Relaxed);
    }

    /// As the XDP program reads it: without locks.
    fn read_slot(&self, slot: Slot) -> Option<Entry> {
        let meta = self.meta(slot).load(Acquire);
        if meta as u32 == 0 {
            return None;
        }
        let source = self.source_in(slot);
        fence(Acquire);
        let again = self.meta(slot).load(Relaxed);
        (again >> 32 == meta >> 32 && again as u32 != 0)
            .then_some(Entry { source, count: again as u32 })
    }

    /// Every source with connections.
    pub(crate) fn entries(&self) -> impl Iterator<Item = Entry> {
        (0..self.buckets).flat_map(Memory::slots_of).filter_map(|slot| self.read_slot(slot))
    }

    #[cfg(test)]
    pub(crate) fn meta_for_test(&self, offset: usize) -> u64 {
        self.meta(Slot(offset)).load(Acquire)
    }

    /// The count of one source, read as the program reads it.
    pub(crate) fn count(&self, source: &Source, place: &Place) -> u32 {
        [place.first, place.second]
            .into_iter()
            .flat_map(Memory::slots_of)
            .filter_map(|slot| self.read_slot(slot))
            .find(|entry| entry.source == *source)
            .map_or(0, |entry| entry.count)
    }
}

/// The table as its only writing process sees it.
#[derive(Debug)]
pub(crate) struct Table {
    memory: std::sync::Arc<Memory>,
    keying: Keying,
    locks: Box<[Mutex<()>]>,
}

/// One source, locked.
struct Locked<'a> {
    table: &'a Table,
    source: Source,
    place: Place,
    _lock: MutexGuard<'a, ()>,
}

impl Table {
    pub(crate) fn new(memory: std::sync::Arc<Memory>, keying: Keying) -> Table {
        assert_eq!(memory.buckets, keying.buckets(), "the table's size is the hash's");
        Table { memory, keying, locks: (0..STRIPES).map(|_| Mutex::new(())).collect() }
    }

    pub(crate) fn memory(&self) -> &std::sync::Arc<Memory> {
        &self.memory
    }

    pub(crate) fn keying(&self) -> &Keying {
        &self.keying
    }

    fn lock(&self, source: Source) -> Locked<'_> {
        let place = self.keying.place(&source);
        // Nothing under the lock panics; a poisoned one guards nothing that could be half done.
        let lock = self.locks[place.stripe].lock().unwrap_or_else(PoisonError::into_inner);
        Locked { table: self, source, place, _lock: lock }
    }

    /// Counts one more: the slot and the count with it. None: both buckets are full.
    pub(crate) fn add(&self, source: Source) -> Option<(Slot, u32)> {
        let locked = self.lock(source);
        match locked.find() {
            Some(slot) => Some((slot, self.memory.meta(slot).fetch_add(1, Relaxed) as u32 + 1)),
            None => locked.claim().map(|slot| (slot, 1)),
        }
    }

    /// Counts one less, in the slot that [`Table::add`] gave: what is left.
    pub(crate) fn remove(&self, source: Source, slot: Slot) -> u32 {
        self.lock(source).take_one(slot)
    }

    /// Counts one less of a source by its address: what is left, or None if it has none.
    pub(crate) fn remove_any(&self, source: Source) -> Option<u32> {
        let locked = self.lock(source);
        locked.find().map(|slot| locked.take_one(slot))
    }

    /// Gives a source that has none this many at once. Without room, nothing happens.
    pub(crate) fn set(&self, source: Source, count: u32) {
        if let Some((slot, 1)) = self.add(source) {
            let _locked = self.lock(source);
            self.memory.meta(slot).fetch_add(u64::from(count) - 1, Relaxed);
        }
    }

    pub(crate) fn count(&self, source: Source) -> u32 {
        self.memory.count(&source, &self.keying.place(&source))
    }

    /// The count in a slot that the caller holds a connection in.
    pub(crate) fn count_in(&self, slot: Slot) -> u32 {
        self.memory.meta(slot).load(Relaxed) as u32
    }
}

impl Locked<'_> {
    fn slots(&self) -> impl Iterator<Item = Slot> {
        [self.place.first, self.place.second].into_iter().flat_map(Memory::slots_of)
    }

    /// This source's slot. Nobody else can make or free it while the lock is held.
    fn find(&self) -> Option<Slot> {
        let memory = &self.table.memory;
        self.slots().find(|slot| {
            let meta = memory.meta(*slot).load(Acquire);
            meta >> 32 == u64::from(self.place.tag)
                && meta as u32 != 0
                && memory.source_in(*slot) == self.source
        })
    }

    /// Takes a free slot, in the emptier bucket, with a count of 1.
    fn claim(&self) -> Option<Slot> {
        let memory = &self.table.memory;
        let claimed = u64::from(self.place.tag) << 32;
        loop {
            let free =
                |bucket| Memory::slots_of(bucket).filter(|s| memory.meta(*s).load(Relaxed) == 0);
            let (first, second) = (free(self.place.first).count(), free(self.place.second).count());
            let bucket = if second > first { self.place.second } else { self.place.first };
            // None free in the emptier one: full. (A slot freed this instant is not waited for.)
            let slot = free(bucket).next();
            let slot = match slot {
                None if first.max(second) == 0 => return None,
                None => continue,
                Some(slot) => slot,
            };
            if memory.meta(slot).compare_exchange(0, claimed, Acquire, Relaxed).is_ok() {
                memory.write_source(slot, &self.source);
                memory.meta(slot).store(claimed | 1, Release);
                return Some(slot);
            }
        }
    }

    fn take_one(&self, slot: Slot) -> u32 {
        let meta = self.table.memory.meta(slot);
        let now = meta.load(Relaxed);
        debug_assert!(now as u32 != 0, "a connection was closed that was not counted");
        match now as u32 {
            0 => 0,
            1 => {
                meta.store(0, Release);
                0
            }
            count => {
                meta.store(now - 1, Release);
                count - 1
            }
        }
    }
}
