//! Memory for what arrives, in pages, and pools of pages.
//!
//! A pool is the caller's: an [`crate::Endpoint`] has one for all its connections, a connection without
//! endpoint its own. What a connection received cannot come out of another: a page is overwritten with zeros
//! before it goes into a pool, which takes nothing else, so whoever gets one finds zeros.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes of a page. Memory comes and goes in pages, so whatever frames a peer cuts its data into,
/// a stream takes at most its flow control window and one page.
pub(super) const PAGE: usize = 4096;

/// So many a pool keeps, whatever the number of its connections: 256 KiB, which stay in a CPU's cache.
const KEPT: usize = 64;

/// A page.
pub(super) type Page = Box<[u8; PAGE]>;

/// A page without content.
#[derive(Debug)]
struct Cleared(Page);

impl Cleared {
    /// Clears a page. Its content is in a CPU's cache, having just been read: clearing is a small part of what
    /// receiving and decrypting it cost.
    fn new(mut page: Page) -> Cleared {
        page.fill(0);
        Cleared(page)
    }
}

/// Pages that were read out, for those needed next: an allocator gives memory back to the system when an
/// application has read all there is, and each page then costs a fault. Clones share it; the default
/// keeps none.
#[derive(Debug, Clone, Default)]
pub(crate) struct PagePool(Option<Arc<Mutex<Vec<Cleared>>>>);

impl PagePool {
    /// An empty one.
    pub(crate) fn new() -> PagePool {
        PagePool(Some(Arc::default()))
    }

    /// Locked for a push or a pop: applications may read their streams in several threads.
    fn free(&self) -> Option<MutexGuard<'_, Vec<Cleared>>> {
        Some(self.0.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// One that is free, or a new one; of zeros.
    pub(super) fn take(&self) -> Page {
        let free = self.free().and_then(|mut free| free.pop());
        free.map_or_else(|| Box::new([0; PAGE]), |Cleared(page)| page)
    }

    /// One that is not needed any more.
    pub(super) fn put(&self, page: Page) {
        if self.0.is_none() {
            return;
        }
        let page = Cleared::new(page);
        if let Some(mut free) = self.free()
            && free.len() < KEPT
        {
            free.push(page);
        }
    }

    /// Number of free pages in the pool.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.free().map_or(0, |free| free.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_go_round_empty_and_no_more_than_some_are_kept() {
        let pool = PagePool::new();
        let mut page = pool.take();
        page.fill(7);
        let place = page.as_ptr();
        pool.put(page);
        let again = pool.take();
        assert_eq!(again.as_ptr(), place, "the same memory");
        assert_eq!(*again, [0; PAGE], "and nothing of what it held");
        let many: Vec<Page> = (0..2 * KEPT).map(|_| pool.take()).collect();
        many.into_iter().for_each(|page| pool.put(page));
        assert_eq!(pool.count(), KEPT);
    }

    #[test]
    fn clones_share_and_others_do_not() {
        let (pool, other, none) = (PagePool::new(), PagePool::new(), PagePool::default());
        pool.clone().put(Box::new([1; PAGE]));
        none.put(Box::new([1; PAGE]));
        assert_eq!((pool.count(), other.count(), none.count()), (1, 0, 0));
    }
}
