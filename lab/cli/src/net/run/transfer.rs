//! A transfer in real time: the state that both endpoints share, whatever the protocol.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use equic_sim::payload;
use tokio::sync::Notify;

/// State of a transfer. Both endpoints write to it, and the main loop of the run reads it.
#[derive(Debug)]
pub(super) struct Transfer {
    /// Number of bytes to transfer, or `None` to transfer until the run ends.
    size: Option<u64>,
    bytes: AtomicU64,
    begun: OnceLock<Instant>,
    completed: OnceLock<Instant>,
    failure: Mutex<Option<String>>,
    /// Notified when the transfer has ended or failed.
    over: Arc<Notify>,
}

/// Counters of the sending endpoint.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sender {
    pub(super) packets_sent: u64,
    pub(super) packets_lost: u64,
    /// Number of unnecessary retransmissions, or `None` if the kernel does not report it.
    pub(super) spurious: Option<u64>,
    /// Number of retransmission timeouts, or `None` if the kernel does not report it.
    pub(super) timeouts: Option<u64>,
    pub(super) min_rtt: Option<Duration>,
}

impl Transfer {
    pub(super) fn new(size: Option<u64>, over: Arc<Notify>) -> Transfer {
        Transfer {
            size,
            bytes: AtomicU64::new(0),
            begun: OnceLock::new(),
            completed: OnceLock::new(),
            failure: Mutex::default(),
            over,
        }
    }

    /// Records the start of the handshake.
    pub(super) fn begin(&self) {
        // Only the first call counts.
        let _ = self.begun.set(Instant::now());
    }

    /// Returns the next data to send when `sent` bytes have been sent, or `None` if that is all.
    pub(super) fn next(&self, sent: u64) -> Option<&'static [u8]> {
        let end = self.size.unwrap_or(u64::MAX);
        (sent < end).then(|| payload::between(sent, end))
    }

    /// Checks data that the receiving application has read. Returns `true` if it contained the last
    /// byte.
    pub(super) fn receive(&self, read: &[u8]) -> bool {
        let before = self.bytes.load(Ordering::Relaxed);
        let bytes = before + read.len() as u64;
        if payload::between(before, bytes) != read {
            self.fail(format!("wrong bytes after byte {before}"));
        }
        self.bytes.store(bytes, Ordering::Relaxed);
        let done = self.size.is_some_and(|size| bytes >= size);
        if done && self.completed.set(Instant::now()).is_ok() {
            self.over.notify_one();
        }
        done
    }

    /// Records that an endpoint failed. Only the first reason is kept. Failures after the last byte
    /// are ignored.
    pub(super) fn fail(&self, reason: String) {
        if self.completed.get().is_some() {
            return;
        }
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(reason);
        self.over.notify_one();
    }

    pub(super) fn failure(&self) -> Option<String> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn is_over(&self) -> bool {
        self.completed.get().is_some() || self.failure().is_some()
    }

    /// Returns the number of bytes that the receiving application has read.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Returns the share of the data that has arrived, from 0 to 1, or `None` if the transfer has
    /// no fixed size.
    pub(super) fn share(&self) -> Option<f64> {
        self.size.map(|size| self.bytes() as f64 / size as f64)
    }

    pub(super) fn begun(&self) -> Option<Instant> {
        self.begun.get().copied()
    }

    pub(super) fn completed(&self) -> Option<Instant> {
        self.completed.get().copied()
    }
}

#[cfg(test)]
mod tests {
    use equic_sim::payload::CHUNK;

    use super::*;

    #[test]
    fn transfer_receives_what_it_sends() {
        let size = 3 * CHUNK as u64 + 7;
        let transfer = Transfer::new(Some(size), Arc::default());
        let mut sent = 0;
        while let Some(chunk) = transfer.next(sent) {
            sent += chunk.len() as u64;
            let (one, other) = chunk.split_at(chunk.len() / 3);
            assert!(!transfer.receive(one));
            assert_eq!(transfer.receive(other), sent == size);
        }
        assert_eq!((sent, transfer.bytes(), transfer.failure()), (size, size, None));
        assert!(transfer.completed().is_some());
        // The last byte has arrived, so this failure must be ignored.
        transfer.fail("closed".to_owned());
        assert_eq!(transfer.failure(), None);
    }

    #[test]
    fn transfer_fails_on_wrong_bytes() {
        let transfer = Transfer::new(None, Arc::default());
        assert!(!transfer.receive(&[0, 1, 2]) && transfer.failure().is_none());
        assert!(!transfer.receive(&[4]) && transfer.is_over());
        assert_eq!(transfer.failure().as_deref(), Some("wrong bytes after byte 3"));
    }
}
