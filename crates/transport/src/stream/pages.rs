//! Memory for what arrives, in pages.

use std::cell::RefCell;

/// Bytes of a page. Memory comes and goes in pages, so whatever frames a peer cuts its data into,
/// a stream takes at most its flow control window and one page.
pub const PAGE: usize = 4096;

/// So many a thread keeps, whatever the number of its connections: 256 KiB, which stay in a CPU's cache.
const KEPT: usize = 64;

/// A page. What it holds at first is of no meaning: it may have been another stream's.
pub type Page = Box<[u8; PAGE]>;

thread_local! {
    /// Pages that were read out, for those needed next: an allocator gives memory back to the system when
    /// an application has read all there is, and each page then costs a fault and is cleared again.
    static FREE: RefCell<Vec<Page>> = const { RefCell::new(Vec::new()) };
}

/// One that is free, or a new one.
pub fn take() -> Page {
    // A thread that ends has no more of them.
    let free = FREE.try_with(|free| free.borrow_mut().pop()).ok().flatten();
    free.unwrap_or_else(|| Box::new([0; PAGE]))
}

/// One that is not needed any more.
pub fn put(page: Page) {
    let _ = FREE.try_with(|free| {
        let mut free = free.borrow_mut();
        if free.len() < KEPT {
            free.push(page);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_go_round_and_no_more_than_some_are_kept() {
        let mut page = take();
        page[0] = 7;
        put(page);
        assert_eq!(take()[0], 7);
        let many: Vec<Page> = (0..2 * KEPT).map(|_| take()).collect();
        many.into_iter().for_each(put);
        assert_eq!(FREE.with_borrow(Vec::len), KEPT);
    }
}
