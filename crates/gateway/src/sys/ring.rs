//! Reads a BPF ring buffer without consuming records.
//!
//! The layout is the kernel's (kernel/bpf/ringbuf.c): a page with the consumer's position, a page
//! with the producer's position, and then the data. The data is mapped twice in a row, so that no
//! record is split at the end. A record consists of a length of 4 bytes, 4 more bytes, and its
//! payload, rounded up to 8 bytes. The top bits of the length mean "being written" and "discarded".
//!
//! The producer writes up to position `consumer + size`, so consumed records stay readable until
//! they are overwritten.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::time::{Duration, Instant};

use crate::sys::map::map_info;
use crate::sys::region::Region;

const HEADER: u64 = libbpf_sys::BPF_RINGBUF_HDR_SZ as u64;
/// The ring is assumed to have no consumer if it is at least half full and the consumer's position
/// has not moved for this long.
const NOBODY_READS: Duration = Duration::from_secs(2);

/// A ring buffer, and the position up to which this process has read it.
#[derive(Debug)]
pub(crate) struct Ring {
    consumer: Region,
    rest: Region,
    page: usize,
    size: u64,
    at: u64,
    /// Last known position of the consumer, and the time since which it has not moved.
    seen: (u64, Instant),
}

impl Ring {
    /// Opens a map of type ringbuf. Reading begins with the first record that was not consumed.
    pub(crate) fn of_map(map: BorrowedFd<'_>) -> io::Result<Ring> {
        let size = map_info(map.as_fd())?.max_entries as usize;
        // SAFETY: the call takes no pointers.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        let page = usize::try_from(page).map_err(io::Error::other)?;
        let mut ring = Ring {
            consumer: Region::of_ring(map, 0, page, true)?,
            rest: Region::of_ring(map, page, page + 2 * size, false)?,
            page,
            size: size as u64,
            at: 0,
            seen: (0, Instant::now()),
        };
        ring.at = ring.consumer().load(Ordering::Acquire);
        ring.seen.0 = ring.at;
        Ok(ring)
    }

    fn consumer(&self) -> &AtomicU64 {
        // SAFETY: the pointer is valid and aligned (`Region::at`) as long as `self` exists. The
        // kernel and other readers access this memory atomically.
        unsafe { AtomicU64::from_ptr(self.consumer.at(0)) }
    }

    fn producer(&self) -> u64 {
        // SAFETY: the pointer is valid and aligned (`Region::at`). It is only used for a load,
        // because the mapping is read-only.
        unsafe { AtomicU64::from_ptr(self.rest.at(0)) }.load(Ordering::Acquire)
    }

    /// Calls `record` with copies of the new records of `N` bytes. A record that was overwritten
    /// before it could be copied is left out.
    pub(crate) fn read<const N: usize>(&mut self, mut record: impl FnMut(&[u8; N])) {
        // The loop stops at the current end, so that a flood of new records does not keep it
        // running.
        let end = self.producer();
        if end.wrapping_sub(self.at) > self.size {
            self.at = self.consumer().load(Ordering::Acquire);
        }
        while self.at < end {
            let Some((length, copy)) = self.copy::<N>() else { break };
            // The producer may be ahead of its published position, and may already be writing this
            // record's header.
            fence(Ordering::Acquire);
            if self.producer().wrapping_sub(self.at) > self.size - HEADER {
                self.at = self.consumer().load(Ordering::Acquire).max(self.at);
                if self.producer().wrapping_sub(self.at) > self.size - HEADER {
                    // The record was overwritten while it was read, and the position of the next
                    // intact record is unknown.
                    self.at = end;
                }
                continue;
            }
            if length & libbpf_sys::BPF_RINGBUF_BUSY_BIT != 0 {
                break;
            }
            let bytes = length & !libbpf_sys::BPF_RINGBUF_DISCARD_BIT;
            if length & libbpf_sys::BPF_RINGBUF_DISCARD_BIT == 0 && bytes as usize == N {
                record(&copy);
            }
            self.at += (u64::from(bytes) + HEADER).next_multiple_of(8);
        }
    }

    /// Returns true if no consumer has taken records since this ring was opened.
    pub(crate) fn is_untouched(&self) -> bool {
        self.consumer().load(Ordering::Acquire) == self.seen.0
    }

    /// Returns the first word of the header at `self.at`, and the `N` bytes after the header.
    fn copy<const N: usize>(&self) -> Option<(u32, [u8; N])> {
        let offset = self.page + usize::try_from(self.at & (self.size - 1)).ok()?;
        // SAFETY: the pointer is valid and aligned, because positions are multiples of 8 and the
        // data is mapped twice.
        let length = unsafe { AtomicU32::from_ptr(self.rest.at(offset)) }.load(Ordering::Acquire);
        let mut copy = [0; N];
        for (index, chunk) in copy.chunks_mut(8).enumerate() {
            // SAFETY: the pointer is valid and aligned for the same reason. The memory may change
            // during the read, so the read is volatile, and the caller checks the copy.
            let word: u64 = unsafe {
                self.rest.at::<u64>(offset + HEADER as usize + index * 8).read_volatile()
            };
            chunk.copy_from_slice(&word.to_ne_bytes()[..chunk.len()]);
        }
        Some((length, copy))
    }

    /// If there is no consumer, consumes the records that this process has read, because a full
    /// ring accepts no new ones. `waited` is the time for which the first record is known to have
    /// waited for a consumer.
    pub(crate) fn make_room(&mut self, waited: Duration) {
        let (consumer, now) = (self.consumer().load(Ordering::Acquire), Instant::now());
        if consumer != self.seen.0 {
            self.seen = (consumer, now);
        }
        let full = self.producer().wrapping_sub(consumer) > self.size / 2;
        if full && now.duration_since(self.seen.1).max(waited) > NOBODY_READS && self.at > consumer
        {
            // This fails if a consumer has just started, which is harmless.
            let _ = self.consumer().compare_exchange(
                consumer,
                self.at,
                Ordering::AcqRel,
                Ordering::Relaxed,
            );
        }
    }
}
