//! Stops a thread that waits on a connection to the gateway and replaces the connection when it
//! ends.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crate::sync::atomic::AtomicBool;

/// A flag that stops the waiting thread. The connection itself is behind a separate lock, because
/// the thread replaces it.
#[derive(Debug)]
pub(crate) struct Watch {
    over: AtomicBool,
}

impl Watch {
    pub(crate) fn new() -> Watch {
        Watch { over: AtomicBool::new(false) }
    }

    /// Returns the connection on which the thread must wait, or `None` when the thread must stop.
    pub(crate) fn next<L>(&self, look: impl FnOnce() -> Option<Arc<L>>) -> Option<Arc<L>> {
        // The flag is checked for every new connection, because the call that stopped the thread
        // may have closed only the previous one.
        if self.is_over() { None } else { look() }
    }

    /// Returns true when the thread must stop.
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Relaxed)
    }

    /// Tells the thread to stop. `end` closes the connection on which the thread waits.
    pub(crate) fn end<L>(&self, look: impl FnOnce() -> Option<Arc<L>>, end: impl FnOnce(&L)) {
        self.over.store(true, Relaxed);
        if let Some(link) = look() {
            end(&link);
        }
    }
}
