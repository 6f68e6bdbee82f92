//! Memory pages for received data, and pools of such pages.
//!
//! An [`crate::Endpoint`] has one pool for all its connections. A connection without an endpoint
//! has its own pool. Data of one connection is never visible to another one: the pool remembers
//! which connection last used a page, and fills the page with zeros before another connection gets
//! it. Most pages return to the same connection and are not overwritten.
//!
//! The pool has a lock. Locking is expensive, because it waits until earlier stores have reached
//! the cache. So a connection takes several pages at a time ([`Pages`]) and keeps free pages for
//! later data. When no data waits in its streams, it returns all free pages.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::lazy::{LazyBox, StaticDefault};

/// Size of a page in bytes. Memory is allocated in whole pages. So a stream takes at most its flow
/// control window and one page, whatever frames the peer splits its data into.
pub(super) const PAGE: usize = 4096;

/// Largest number of free pages in a pool. All connections of the pool share them. They take 768
/// KiB, which stay in the CPU's cache.
const KEPT: usize = 192;

/// Largest number of free pages that a connection keeps while data waits in its streams: 256 KiB.
const KEPT_HERE: usize = 64;

/// Largest number of pages that a connection takes from its pool, or returns to it, at a time.
const BATCH: usize = 32;

/// A page of memory for received data.
pub(super) type Page = Box<[u8; PAGE]>;

/// Number that identifies a connection among those that share a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Owner(u64);

/// A free page of memory. It still contains data of the connection that used it last.
#[derive(Debug)]
struct Left(Owner, Page);

impl Left {
    /// Returns the page for use by the connection `owner`. If another connection used the page
    /// before, it is filled with zeros.
    fn page_for(self, owner: Owner) -> Page {
        let Left(before, mut page) = self;
        if before != owner {
            page.fill(0);
        }
        page
    }
}

/// The free pages of a pool, and the number that the next connection of the pool gets.
#[derive(Debug)]
struct Free {
    pages: Vec<Left>,
    /// Number that identifies the next connection which joins the pool.
    next: u64,
}

/// A pool of free pages that connections reuse. Without it, the allocator would return memory to
/// the system whenever an application has read all data. Each new page would then cost a page
/// fault.
#[derive(Debug, Clone)]
pub(crate) struct PagePool(Arc<Mutex<Free>>);

impl PagePool {
    /// Creates an empty pool.
    pub(crate) fn new() -> PagePool {
        PagePool(Arc::new(Mutex::new(Free { pages: Vec::new(), next: 0 })))
    }

    /// Returns the page store for another connection of the pool. That connection never sees data
    /// that other connections have received.
    pub(crate) fn for_another(&self) -> Pages {
        let mut inner = lock(&self.0);
        let owner = Owner(inner.next);
        inner.next += 1;
        Pages { pool: Some((PagePool(Arc::clone(&self.0)), owner)), stock: LazyBox::default() }
    }

    /// Returns the number of free pages in the pool.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        lock(&self.0).pages.len()
    }
}

/// Locks the free pages. The connections of a pool may run on several threads.
fn lock(free: &Mutex<Free>) -> MutexGuard<'_, Free> {
    free.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The page store of one connection. Without a pool, which is the default, pages are allocated and
/// freed directly.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    pool: Option<(PagePool, Owner)>,
    /// Free pages and counts. They are boxed, so that an idle connection does not have them.
    stock: LazyBox<Stock>,
}

#[derive(Debug, Default)]
struct Stock {
    /// Free pages. A page of another connection is filled with zeros when it is taken for use.
    here: Vec<Left>,
    /// Number of this connection's pages in use: taken and not yet put back.
    out: usize,
    /// Largest number of pages that were in use at the same time since the connection was last
    /// idle.
    most: usize,
}

impl StaticDefault for Stock {
    const STATIC_DEFAULT: &'static Stock = &Stock { here: Vec::new(), out: 0, most: 0 };
}

impl Pages {
    /// Returns the number that identifies the connection in its pool, or `None` without a pool.
    pub(super) fn owner(&self) -> Option<Owner> {
        self.pool.as_ref().map(|(_, owner)| *owner)
    }

    /// Takes a free page, or allocates one. The page contains zeros, or data that the same
    /// connection received before.
    #[inline]
    pub(super) fn take(&mut self) -> Page {
        let Some((pool, owner)) = &self.pool else { return Box::new([0; PAGE]) };
        let stock = &mut *self.stock;
        if stock.here.is_empty() {
            stock.fetch(pool);
        }
        stock.out += 1;
        stock.most = stock.most.max(stock.out);
        stock.here.pop().map_or_else(|| Box::new([0; PAGE]), |left| left.page_for(*owner))
    }

    /// Puts back a page that is no longer used.
    #[inline]
    pub(super) fn put(&mut self, page: Page) {
        let Some((_, owner)) = &self.pool else { return };
        let stock = &mut *self.stock;
        stock.out = stock.out.saturating_sub(1);
        stock.here.push(Left(*owner, page));
        if stock.out == 0 {
            self.spill(0);
        } else if stock.here.len() > KEPT_HERE {
            self.spill(KEPT_HERE - BATCH);
        }
    }

    /// Returns all free pages to the pool.
    pub(super) fn shrink(&mut self) {
        self.spill(0);
        if self.stock.out == 0 {
            self.stock = LazyBox::default();
        }
    }

    /// Returns all free pages except `keep` to the pool. Pages for which the pool has no room are
    /// freed.
    fn spill(&mut self, keep: usize) {
        let Some(stock) = self.stock.get_mut_if_allocated() else { return };
        let mut pages = stock.here.drain(keep.min(stock.here.len())..);
        let Some((pool, _)) = &self.pool else { return };
        let mut free = lock(&pool.0);
        let room = KEPT.saturating_sub(free.pages.len());
        free.pages.extend(pages.by_ref().take(room));
    }
}

impl Stock {
    /// Takes pages from the pool. Their number is the largest number of pages that this connection
    /// recently used at the same time, but at least 1 and at most [`BATCH`]. When many connections take turns, a connection often
    /// receives the same amount of data as the last time.
    #[cold]
    fn fetch(&mut self, pool: &PagePool) {
        let mut free = lock(&pool.0);
        let kept = free.pages.len().saturating_sub(self.most.clamp(1, BATCH));
        self.here.extend(free.pages.drain(kept..));
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        self.spill(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stream_pages_are_reused_and_few_are_kept() {
        let pool = PagePool::new();
        let mut pages = pool.for_another();
        let page = pages.take();
        let place = page.as_ptr();
        pages.put(page);
        let again = pages.take();
        assert_eq!(again.as_ptr(), place, "the same memory is used again");
        let many: Vec<Page> = (0..2 * KEPT).map(|_| pages.take()).collect();
        for page in many {
            pages.put(page);
            assert!(pages.stock.here.len() <= KEPT_HERE);
        }
        assert_eq!(pool.count(), KEPT);
        pages.put(again);
    }

    /// A connection must keep free pages only while some of its pages are in use, so that thousands
    /// of waiting connections have none.
    #[test]
    fn stream_pages_are_released_with_the_last_in_use() {
        let pool = PagePool::new();
        let (mut pages, mut other) = (pool.for_another(), pool.for_another());
        let several: Vec<Page> = (0..5).map(|_| pages.take()).collect();
        let mut several = several.into_iter();
        pages.put(several.next().unwrap());
        assert_eq!(
            (pages.stock.here.len(), pool.count()),
            (1, 0),
            "one page is kept for later data"
        );
        several.for_each(|page| pages.put(page));
        assert_eq!((pages.stock.here.len(), pool.count()), (0, 5));
        let page = other.take();
        assert_eq!(pool.count(), 4, "at first, one page is taken");
        let more = [other.take(), other.take(), other.take()];
        assert!(pool.count() < 2, "then several pages are taken at a time");
        for page in more.into_iter().chain([page]) {
            other.put(page);
        }
        assert_eq!(pool.count(), 5);
        let page = other.take();
        assert_eq!(pool.count(), 1, "as many pages as before are taken");
        other.put(page);
        other.shrink();
        let page = other.take();
        assert_eq!(pool.count(), 4, "after an idle period, one page is taken");
        drop(other);
        drop(page);
        assert_eq!(pool.count(), 4);
    }

    #[test]
    fn stream_pages_have_no_data_of_other_connections() {
        let pool = PagePool::new();
        let mut owners = [pool.for_another(), Pages::default(), pool.for_another()];
        for one in 0..owners.len() {
            for other in 0..owners.len() {
                let mut page = owners[one].take();
                page.fill(7);
                owners[one].put(page);
                let page = owners[other].take();
                assert!(one == other || *page == [0; PAGE], "{one} {other}");
                owners[other].put(page);
            }
        }
        let mut page = owners[0].take();
        page.fill(7);
        let place = page.as_ptr();
        owners[0].put(page);
        let page = owners[2].take();
        assert_eq!(
            (page.as_ptr(), *page),
            (place, [0; PAGE]),
            "the same memory, filled with zeros"
        );
    }

    #[test]
    fn stream_pages_are_shared_within_a_pool_only() {
        let (pool, other) = (PagePool::new(), PagePool::new());
        for mut pages in [pool.for_another(), Pages::default()] {
            let page = pages.take();
            pages.put(page);
        }
        assert_eq!((pool.count(), other.count()), (1, 0));
        assert_eq!(pool.clone().count(), 1);
    }
}
