//! The slots of a ledger and the order in which they are written (docs/policy.md, "The ledger").
//!
//! Striped locks keep two threads from counting the same source at once. Threads with different
//! sources compete only for the free slots of a bucket, and the compare-and-swap of `meta` decides
//! which thread gets a slot. The XDP program reads without any lock: it compares the tag, the
//! address and the group, and then the tag again.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::source::{Keying, Place, STRIPES, Source};
use crate::abi;
use crate::sync::atomic::{AtomicU32, AtomicU64, fence};
use crate::sync::{Mutex, MutexGuard, lock};
use crate::sys::region::{Region, atomic};

const BUCKET: usize = size_of::<abi::equic_ledger_bucket>();
const _: () = assert!(size_of::<abi::equic_ledger_header>() == BUCKET);

/// Returns the size of a ledger with this many buckets, in bytes. The header occupies element 0.
fn bytes(buckets: u32) -> usize {
    (buckets as usize + 1) * BUCKET
}

/// Position of a source's slot in the table. The source keeps the slot until its count is zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slot {
    bucket: u32,
    index: u32,
}

/// The slot and the lock of a counted connection. [`Table::add`] returns it, and [`Table::remove`]
/// takes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Held {
    slot: Slot,
    /// Index of the lock that guards the source.
    stripe: u16,
}

/// Content of a used slot, as a reader without a lock sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) source: Source,
    pub(crate) count: u32,
}

/// The memory of one ledger, which belongs to this process or to another one.
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

    /// Returns a copy of the header. Its counters may have been read at slightly different times.
    pub(crate) fn read_header(&self) -> abi::equic_ledger_header {
        let header = self.header();
        abi::equic_ledger_header {
            heartbeat_ns: atomic!(AtomicU64, header, heartbeat_ns).load(Relaxed),
            opened: atomic!(AtomicU64, header, opened).load(Relaxed),
            closed: atomic!(AtomicU64, header, closed).load(Relaxed),
            overflow: atomic!(AtomicU64, header, overflow).load(Relaxed),
            // SAFETY: the pointer is valid and aligned (`Region::at`), and every bit pattern is a
            // valid header.
            ..unsafe { header.read_volatile() }
        }
    }

    fn bucket(&self, bucket: u32) -> *mut abi::equic_ledger_bucket {
        self.region.at((bucket as usize + 1) * BUCKET)
    }

    pub(super) fn meta(&self, slot: Slot) -> &AtomicU64 {
        atomic!(AtomicU64, self.bucket(slot.bucket), meta[slot.index as usize])
    }

    pub(super) fn slots_of(bucket: u32) -> impl Iterator<Item = Slot> {
        (0..abi::EQUIC_SLOTS).map(move |index| Slot { bucket, index })
    }

    /// Returns the slots of a bucket, each with its `meta` word. All `meta` words are in one cache
    /// line.
    fn metas_of(&self, bucket: u32) -> impl Iterator<Item = (Slot, &AtomicU64)> {
        let there = self.bucket(bucket);
        Memory::slots_of(bucket)
            .map(move |slot| (slot, atomic!(AtomicU64, there, meta[slot.index as usize])))
    }

    /// Returns the fields of a slot: its address as two words, which is how all code accesses it,
    /// and its quota group.
    pub(super) fn fields(&self, slot: Slot) -> ([&AtomicU64; 2], &AtomicU32) {
        let (bucket, index) = (self.bucket(slot.bucket), slot.index as usize);
        let low = atomic!(AtomicU64, bucket, slot[index].addr[0]);
        let high = atomic!(AtomicU64, bucket, slot[index].addr[8]);
        ([low, high], atomic!(AtomicU32, bucket, slot[index].group))
    }

    fn source_in(&self, slot: Slot) -> Source {
        let (words, group) = self.fields(slot);
        Source { words: words.map(|word| word.load(Relaxed)), group: group.load(Relaxed) }
    }

    /// Returns the counter of connections ever opened by the source at this position, and by the
    /// few sources that share the counter (docs/policy.md, "Attempts under way").
    pub(super) fn opened(&self, place: &Place) -> &AtomicU32 {
        let (bucket, cell) = (self.bucket(place.first), place.cell());
        atomic!(AtomicU32, bucket, slot[cell].opened)
    }

    fn write_source(&self, slot: Slot, source: &Source) {
        let (words, group) = self.fields(slot);
        for (to, word) in words.into_iter().zip(source.words) {
            to.store(word, Relaxed);
        }
        group.store(source.group, Relaxed);
    }

    /// Reads a slot without locks, like the XDP program.
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

    /// Returns every source that has connections.
    pub(crate) fn entries(&self) -> impl Iterator<Item = Entry> {
        (0..self.buckets).flat_map(Memory::slots_of).filter_map(|slot| self.read_slot(slot))
    }

    /// Subtracts one connection from a slot. The source must be locked. Returns the remaining
    /// count.
    fn take_one(&self, slot: Slot) -> u32 {
        let meta = self.meta(slot);
        let now = meta.load(Relaxed);
        debug_assert!(now as u32 != 0, "a connection was closed that had not been counted");
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

    #[cfg(test)]
    pub(crate) fn all_free(&self) -> bool {
        let mut slots = (0..self.buckets).flat_map(Memory::slots_of);
        slots.all(|slot| self.meta(slot).load(Acquire) == 0)
    }

    /// Returns the count of one source. It reads the ledger in the same way as the XDP program.
    pub(crate) fn count(&self, source: &Source, place: &Place) -> u32 {
        [place.first, place.second]
            .into_iter()
            .flat_map(Memory::slots_of)
            .filter_map(|slot| self.read_slot(slot))
            .find(|entry| entry.source == *source)
            .map_or(0, |entry| entry.count)
    }
}

/// The table of a ledger. Only the process that owns the ledger writes it.
#[derive(Debug)]
pub(crate) struct Table {
    memory: Arc<Memory>,
    keying: Keying,
    locks: Box<[Mutex<()>]>,
}

/// A source whose lock this thread holds.
struct Locked<'a> {
    memory: &'a Memory,
    source: Source,
    place: Place,
    _lock: MutexGuard<'a, ()>,
}

impl Table {
    pub(crate) fn new(memory: Arc<Memory>, keying: Keying) -> Table {
        assert_eq!(
            memory.buckets,
            keying.buckets(),
            "the table and its hash function must have the same size"
        );
        Table { memory, keying, locks: (0..STRIPES).map(|_| Mutex::new(())).collect() }
    }

    pub(crate) fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    pub(crate) fn keying(&self) -> &Keying {
        &self.keying
    }

    fn lock(&self, source: Source) -> Locked<'_> {
        let place = self.keying.place(&source);
        let lock = self.lock_stripe(place.stripe);
        Locked { memory: &self.memory, source, place, _lock: lock }
    }

    fn lock_stripe(&self, stripe: u16) -> MutexGuard<'_, ()> {
        lock(&self.locks[usize::from(stripe)])
    }

    /// Adds a connection. Returns its slot and the new count, or `None` if both buckets are full.
    pub(crate) fn add(&self, source: Source) -> Option<(Held, u32)> {
        let locked = self.lock(source);
        let (slot, count) = match locked.find() {
            // The source has a slot, and only the thread that holds its lock changes its count.
            Some((slot, meta)) => {
                self.memory.meta(slot).store(meta + 1, Relaxed);
                (slot, meta as u32 + 1)
            }
            None => (locked.claim()?, 1),
        };
        Some((Held { slot, stripe: locked.place.stripe }, count))
    }

    /// Records that a connection of the source was opened. It must be called after the connection
    /// was counted. So the connection is always either in progress or open.
    pub(crate) fn note_opened(&self, source: &Source) {
        self.memory.opened(&self.keying.place(source)).fetch_add(1, Release);
    }

    /// Subtracts a connection that [`Table::add`] has counted. Returns the remaining count.
    pub(crate) fn remove(&self, held: Held) -> u32 {
        let _lock = self.lock_stripe(held.stripe);
        self.memory.take_one(held.slot)
    }

    /// Subtracts one connection of a source. Returns the remaining count, or `None` if the source
    /// has no connection.
    pub(crate) fn remove_any(&self, source: Source) -> Option<u32> {
        let locked = self.lock(source);
        locked.find().map(|(slot, _)| self.memory.take_one(slot))
    }

    /// Sets the count of a source that has no connections. Does nothing if there is no room.
    pub(crate) fn set(&self, source: Source, count: u32) {
        if let Some((held, 1)) = self.add(source) {
            let _lock = self.lock_stripe(held.stripe);
            self.memory.meta(held.slot).fetch_add(u64::from(count) - 1, Relaxed);
        }
    }

    pub(crate) fn count(&self, source: Source) -> u32 {
        self.memory.count(&source, &self.keying.place(&source))
    }

    /// Returns the count of the source that has the slot `held`. The caller must hold a connection
    /// in it.
    pub(crate) fn count_in(&self, held: Held) -> u32 {
        self.memory.meta(held.slot).load(Relaxed) as u32
    }
}

impl Locked<'_> {
    /// Returns this source's slot and its `meta` word. While the lock is held, no other thread
    /// creates, frees or changes the slot.
    fn find(&self) -> Option<(Slot, u64)> {
        let (memory, tag) = (self.memory, u64::from(self.place.tag));
        let slots = memory.metas_of(self.place.first).chain(memory.metas_of(self.place.second));
        slots.map(|(slot, meta)| (slot, meta.load(Acquire))).find(|(slot, meta)| {
            meta >> 32 == tag && *meta as u32 != 0 && memory.source_in(*slot) == self.source
        })
    }

    /// Takes a free slot in the emptier of the source's two buckets, and sets its count to 1.
    fn claim(&self) -> Option<Slot> {
        let memory = self.memory;
        let claimed = u64::from(self.place.tag) << 32;
        loop {
            let free = |bucket| memory.metas_of(bucket).filter(|(_, meta)| meta.load(Relaxed) == 0);
            let (first, second) = (free(self.place.first).count(), free(self.place.second).count());
            let bucket = if second > first { self.place.second } else { self.place.first };
            // If the emptier bucket has no free slot, the table is full. (A slot that another
            // thread is freeing now is not awaited.)
            let slot = free(bucket).next();
            let (slot, meta) = match slot {
                None if first.max(second) == 0 => return None,
                None => continue,
                Some(free) => free,
            };
            if meta.compare_exchange(0, claimed, Acquire, Relaxed).is_ok() {
                // If a reader sees any word of the new source, its second read of the tag shows
                // that the slot has changed its owner.
                fence(Release);
                memory.write_source(slot, &self.source);
                meta.store(claimed | 1, Release);
                return Some(slot);
            }
        }
    }
}
