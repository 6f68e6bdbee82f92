//! A limit on the memory for data that waits to be sent, over all connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Number of bytes that each connection may always have waiting to be sent.
const FLOOR: u64 = 64 << 10;

/// A connection may use the free memory divided by this number. A single connection can therefore
/// use at most an eighth of the total. Each further connection still gets a part of the rest, even
/// if the earlier ones release nothing.
const PART: u64 = 8;

/// Limits the data that waits to be sent or acknowledged, over all connections that share this
/// value. Clones refer to the same limit.
#[derive(Clone, Debug)]
pub struct SendMemory(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    total: u64,
    used: AtomicU64,
}

impl SendMemory {
    /// Creates a limit of `total` bytes over all connections. In addition, each connection may
    /// always use 64 KiB.
    pub fn new(total: u64) -> SendMemory {
        SendMemory(Arc::new(Inner { total, used: AtomicU64::new(0) }))
    }

    /// Returns the number of bytes that wait to be sent or acknowledged now, over all connections.
    pub fn used(&self) -> u64 {
        self.0.used.load(Ordering::Relaxed)
    }

    /// Returns the number of bytes that one connection may have waiting now. This is an eighth of
    /// what is free, but at least 64 KiB.
    pub(crate) fn share(&self) -> u64 {
        (self.0.total.saturating_sub(self.used()) / PART).max(FLOOR)
    }

    /// Updates the number of bytes that wait in one connection from `before` to `now`, and sets
    /// `before` to `now`.
    pub(crate) fn update(&self, before: &mut u64, now: u64) {
        if now >= *before {
            self.0.used.fetch_add(now - *before, Ordering::Relaxed);
        } else {
            self.0.used.fetch_sub(*before - now, Ordering::Relaxed);
        }
        *before = now;
    }
}

impl Default for SendMemory {
    /// Returns a value without a limit.
    fn default() -> SendMemory {
        SendMemory::new(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However many connections use their whole share, the next one gets memory, and the sum stays
    /// below the limit.
    #[test]
    fn memory_of_one_connection_leaves_some_for_others() {
        let memory = SendMemory::new(64 << 20);
        assert_eq!(memory.share(), 8 << 20);
        let mut held = Vec::new();
        for _ in 0..30 {
            let mut one = 0;
            memory.update(&mut one, memory.share());
            held.push(one);
        }
        assert!(memory.used() < 64 << 20 && memory.share() >= FLOOR);
        for mut one in held {
            memory.update(&mut one, 0);
        }
        assert_eq!(memory.used(), 0);
    }
}
