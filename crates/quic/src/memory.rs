//! Memory for what is to be sent, of all connections together.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that each connection may always have waiting to be sent.
const FLOOR: u64 = 64 << 10;

/// A connection may have so large a part of what is left: one alone an eighth of all, and however many
/// take what they get and give nothing back, there is something left for the next.
const PART: u64 = 8;

/// Bounds what waits to be sent or acknowledged in all connections that share it; clones are the same
/// one.
#[derive(Clone, Debug)]
pub struct SendMemory(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    total: u64,
    used: AtomicU64,
}

impl SendMemory {
    /// A bound of `total` bytes for all connections, beside 64 KiB of each.
    pub fn new(total: u64) -> SendMemory {
        SendMemory(Arc::new(Inner { total, used: AtomicU64::new(0) }))
    }

    /// Bytes that wait to be sent or acknowledged now, in all connections.
    pub fn used(&self) -> u64 {
        self.0.used.load(Ordering::Relaxed)
    }

    /// Bytes that a connection may have waiting now, its own among those that are used.
    pub(crate) fn share(&self) -> u64 {
        (self.0.total.saturating_sub(self.used()) / PART).max(FLOOR)
    }

    /// Counts a connection's waiting bytes anew: `before` were counted, `now` are waiting; sets
    /// `before` to `now`.
    pub(crate) fn settle(&self, before: &mut u64, now: u64) {
        if now >= *before {
            self.0.used.fetch_add(now - *before, Ordering::Relaxed);
        } else {
            self.0.used.fetch_sub(*before - now, Ordering::Relaxed);
        }
        *before = now;
    }
}

impl Default for SendMemory {
    /// Without a bound.
    fn default() -> SendMemory {
        SendMemory::new(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However many keep what they get, the next one gets something, and all of them no more than there
    /// is.
    #[test]
    fn memory_of_one_connection_leaves_some_for_others() {
        let memory = SendMemory::new(64 << 20);
        assert_eq!(memory.share(), 8 << 20);
        let mut held = Vec::new();
        for _ in 0..30 {
            let mut one = 0;
            memory.settle(&mut one, memory.share());
            held.push(one);
        }
        assert!(memory.used() < 64 << 20 && memory.share() >= FLOOR);
        for mut one in held {
            memory.settle(&mut one, 0);
        }
        assert_eq!(memory.used(), 0);
    }
}
