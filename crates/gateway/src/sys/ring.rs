//! A BPF ring buffer, looked at without taking records out of it.
//!
//! The kernel's side (kernel/bpf/ringbuf.c): a page with the consumer's position, a page with the
//! producer's, then the data, mapped twice in a row so that no record is cut at the end. A record is
//! a length of 4 bytes whose top bits say "being written" and "discarded", 4 bytes more, and its
//! payload, rounded up to 8. The producer writes where `consumer + size` has not been reached yet:
//! records that were taken stay readable until then.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::time::{Duration, Instant};

use crate::sys::map::map_info;
use crate::sys::region::Region;

const HEADER: u64 = libbpf_sys::BPF_RINGBUF_HDR_SZ as u64;
/// After so long without a move of its position, a consumer that lets half the ring fill up is not there.
const NOBODY_READS: Duration = Duration::from_secs(2);

/// A ring buffer and how far it was looked at.
#[derive(Debug)]
pub(crate) struct Ring {
    consumer: Region,
    rest: Region,
    page: usize,
    size: u64,
    at: u64,
    /// Position at which the consumer was seen, and the time since when.
    seen: (u64, Instant),
}

impl Ring {
    /// Looks at a map of type ringbuf, from the first record on that was not taken.
    pub(crate) fn of_map(map: BorrowedFd<'_>) -> io::Result<Ring> {
        let size = map_info(map.as_fd())?.max_entries as usize;
        // SAFETY: no pointers are involved.
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
        // SAFETY: valid and aligned (`Region::at`) as long as `self` lives; the kernel and other
        // readers access it atomically.
        unsafe { AtomicU64::from_ptr(self.consumer.at(0)) }
    }

    fn producer(&self) -> u64 {
        // SAFETY: as above; only loaded, for the mapping is read-only.
        unsafe { AtomicU64::from_ptr(self.rest.at(0)) }.load(Ordering::Acquire)
    }

    /// Hands out copies of the records of `N` bytes that are new. Those that were overwritten before
    /// they could be copied are left out.
    pub(crate) fn read<const N: usize>(&mut self, mut record: impl FnMut(&[u8; N])) {
        // As much as there is now: a flood of records must not keep it here.
        let end = self.producer();
        if end.wrapping_sub(self.at) > self.size {
            self.at = self.consumer().load(Ordering::Acquire);
        }
        while self.at < end {
            let Some((length, copy)) = self.copy::<N>() else { break };
            // The producer may be writing the header behind its position already.
            fence(Ordering::Acquire);
            if self.producer().wrapping_sub(self.at) > self.size - HEADER {
                self.at = self.consumer().load(Ordering::Acquire).max(self.at);
                if self.producer().wrapping_sub(self.at) > self.size - HEADER {
                    // Overwritten, and nobody says from where on records are whole.
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

    /// True if nobody has taken the first record since this ring began to look.
    pub(crate) fn is_untouched(&self) -> bool {
        self.consumer().load(Ordering::Acquire) == self.seen.0
    }

    /// The header's word and `N` bytes behind the header at `self.at`.
    fn copy<const N: usize>(&self) -> Option<(u32, [u8; N])> {
        let offset = self.page + usize::try_from(self.at & (self.size - 1)).ok()?;
        // SAFETY: valid and aligned: positions are multiples of 8 and the data is mapped twice.
        let length = unsafe { AtomicU32::from_ptr(self.rest.at(offset)) }.load(Ordering::Acquire);
        let mut copy = [0; N];
        for (index, chunk) in copy.chunks_mut(8).enumerate() {
            // SAFETY: as above. Others may write meanwhile, hence volatile; the caller checks.
            let word: u64 = unsafe {
                self.rest.at::<u64>(offset + HEADER as usize + index * 8).read_volatile()
            };
            chunk.copy_from_slice(&word.to_ne_bytes()[..chunk.len()]);
        }
        Some((length, copy))
    }

    /// Takes what was read if nobody else does: a full ring takes no new records. `waited`: how long
    /// the first record is known to have waited for a reader.
    pub(crate) fn make_room(&mut self, waited: Duration) {
        let (consumer, now) = (self.consumer().load(Ordering::Acquire), Instant::now());
        if consumer != self.seen.0 {
            self.seen = (consumer, now);
        }
        let full = self.producer().wrapping_sub(consumer) > self.size / 2;
        if full && now.duration_since(self.seen.1).max(waited) > NOBODY_READS && self.at > consumer
        {
            // Fails if a reader came this moment.
            let _ = self.consumer().compare_exchange(
                consumer,
                self.at,
                Ordering::AcqRel,
                Ordering::Relaxed,
            );
        }
    }
}
