//! Memory for what arrives, in pages, and pools of pages.
//!
//! A pool is the caller's: an [`crate::Endpoint`] has one for all its connections, a connection without
//! endpoint its own. What a connection received cannot come out of another: each page in a pool is remembered with
//! whose it was, and overwritten with zeros before somebody else gets it. Most go back to where they came from, and are
//! not overwritten.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes of a page. Memory comes and goes in pages, so whatever frames a peer cuts its data into,
/// a stream takes at most its flow control window and one page.
pub(super) const PAGE: usize = 4096;

/// So many a pool keeps, whatever the number of its connections: 256 KiB, which stay in a CPU's cache.
const KEPT: usize = 64;

/// A page.
pub(super) type Page = Box<[u8; PAGE]>;

/// A connection's number among those that share a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Owner(u64);

/// A page that nobody needs now, with what its owner has left in it.
#[derive(Debug)]
struct Left(Owner, Page);

impl Left {
    /// The page for a connection that needs one; of zeros, if the page was not its own.
    fn page_for(self, owner: Owner) -> Page {
        let Left(before, mut page) = self;
        if before != owner {
            page.fill(0);
        }
        page
    }
}

/// Pages that a pool keeps for the next owner that needs one, and the numbers it gives to owners.
#[derive(Debug)]
struct Free {
    pages: Vec<Left>,
    /// Number of the owner that comes next.
    next: u64,
}

/// Pages that were read out, for those needed next: an allocator gives memory back to the system when an
/// application has read all there is, and each page then costs a fault. Clones share it, and are the same owner; the
/// default keeps none.
#[derive(Debug, Clone, Default)]
pub(crate) struct PagePool(Option<(Arc<Mutex<Free>>, Owner)>);

impl PagePool {
    /// An empty one.
    pub(crate) fn new() -> PagePool {
        PagePool(Some((Arc::new(Mutex::new(Free { pages: Vec::new(), next: 1 })), Owner(0))))
    }

    /// The same pool for another owner, who never sees what those before have received.
    pub(crate) fn for_another(&self) -> PagePool {
        PagePool(self.0.as_ref().map(|(free, _)| {
            let mut inner = lock(free);
            let owner = Owner(inner.next);
            inner.next += 1;
            (Arc::clone(free), owner)
        }))
    }

    /// One that is free, or a new one; of zeros, but for what the same owner received before.
    pub(super) fn take(&self) -> Page {
        let left =
            self.0.as_ref().and_then(|(free, owner)| Some((lock(free).pages.pop()?, *owner)));
        left.map_or_else(|| Box::new([0; PAGE]), |(left, owner)| left.page_for(owner))
    }

    /// One that is not needed any more.
    pub(super) fn put(&self, page: Page) {
        let Some((free, owner)) = &self.0 else { return };
        let mut free = lock(free);
        if free.pages.len() < KEPT {
            free.pages.push(Left(*owner, page));
        }
    }

    /// Number of free pages in the pool.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.0.as_ref().map_or(0, |(free, _)| lock(free).pages.len())
    }
}

/// For a push or a pop: applications may read their streams in several threads.
fn lock(free: &Mutex<Free>) -> MutexGuard<'_, Free> {
    free.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_go_round_and_no_more_than_some_are_kept() {
        let pool = PagePool::new();
        let page = pool.take();
        let place = page.as_ptr();
        pool.put(page);
        let again = pool.take();
        assert_eq!(again.as_ptr(), place, "the same memory");
        let many: Vec<Page> = (0..2 * KEPT).map(|_| pool.take()).collect();
        many.into_iter().for_each(|page| pool.put(page));
        assert_eq!(pool.count(), KEPT);
    }

    #[test]
    fn nobody_gets_what_another_received() {
        let (first, second) = (PagePool::new(), PagePool::default());
        let (third, fourth) = (first.for_another(), first.for_another());
        let pools = [first, second, third, fourth];
        for owner in &pools {
            for other in &pools {
                let mut page = owner.take();
                page.fill(7);
                owner.put(page);
                let same = std::ptr::eq(owner, other);
                let page = other.take();
                assert!(same || *page == [0; PAGE], "{owner:?} {other:?}");
                other.put(page);
            }
        }
        let mut page = pools[2].take();
        page.fill(7);
        let place = page.as_ptr();
        pools[2].put(page);
        let page = pools[3].take();
        assert_eq!(
            (page.as_ptr(), *page),
            (place, [0; PAGE]),
            "the same memory without its content"
        );
    }

    #[test]
    fn clones_share_and_others_do_not() {
        let (pool, other, none) = (PagePool::new(), PagePool::new(), PagePool::default());
        pool.clone().put(Box::new([1; PAGE]));
        none.put(Box::new([1; PAGE]));
        assert_eq!((pool.count(), other.count(), none.count()), (1, 0, 0));
        assert_eq!((pool.for_another().count(), none.for_another().count()), (1, 0));
    }
}
