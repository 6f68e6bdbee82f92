//! Ending a thread that waits at a connection, and puts another one in its place when that ends.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crate::sync::atomic::AtomicBool;

/// Says whether a connection is still to be waited at. The connection itself is behind a lock, where the thread replaces it.
#[derive(Debug)]
pub(crate) struct Watch {
    over: AtomicBool,
}

impl Watch {
    pub(crate) fn new() -> Watch {
        Watch { over: AtomicBool::new(false) }
    }

    /// The connection to wait at; none once that is over.
    pub(crate) fn next<L>(&self, look: impl FnOnce() -> Option<Arc<L>>) -> Option<Arc<L>> {
        // Asked for every connection anew: whoever ended the watch before this one was put there does not end this one.
        if self.is_over() { None } else { look() }
    }

    /// True once nobody is to wait any more.
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Relaxed)
    }

    /// Ends it, and with `end` the connection that is waited at.
    pub(crate) fn end<L>(&self, look: impl FnOnce() -> Option<Arc<L>>, end: impl FnOnce(&L)) {
        self.over.store(true, Relaxed);
        if let Some(link) = look() {
            end(&link);
        }
    }
}
