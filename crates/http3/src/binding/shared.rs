//! State that all streams of a connection share, and limits on the memory and work that a peer can
//! cause.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Instant;

use equic_wire::StreamId;
use tokio::sync::Notify;

use super::requests::RequestState;
use super::violation::Violation;

/// Largest number of useless bytes that a peer may send in a burst. Useless bytes are frames and
/// streams of unknown types, empty frames, and frames of the control stream.
const NUISANCE: u64 = 1 << 20;

/// Rate at which the count of useless bytes falls, in bytes per second.
const FORGOTTEN: u64 = 16 << 10;

/// Limits on the memory and work that a peer can cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameLimits {
    /// Largest HEADERS frame in bytes. Such a frame is kept until it is complete. The payload of a
    /// longer frame is discarded, and `h3` gets a replacement that it rejects as too long.
    pub field_section: usize,
    /// Largest number of bytes of incomplete frames, over all streams of a connection. A connection
    /// that exceeds it is closed with H3_EXCESSIVE_LOAD.
    pub incomplete: usize,
}

impl Default for FrameLimits {
    fn default() -> FrameLimits {
        FrameLimits { field_section: 64 << 10, incomplete: 512 << 10 }
    }
}

/// State that all streams of a connection share: the limits, and the counters that the limits apply
/// to.
#[derive(Debug)]
pub(super) struct Shared {
    pub limits: FrameLimits,
    pub requests: RequestState,
    /// This endpoint's streams that must stay open: the control stream and the QPACK streams.
    pub critical: Mutex<Vec<StreamId>>,
    /// Number of bytes that are kept now of incomplete frames, over all streams.
    incomplete: AtomicUsize,
    nuisance: Mutex<Nuisance>,
    violation: OnceLock<Violation>,
    /// Smallest stream ID that the server's GOAWAY frames have named, or `u64::MAX` before the
    /// first one.
    goaway: AtomicU64,
    /// Wakes the tasks that wait for a GOAWAY frame.
    went_away: Notify,
}

#[derive(Debug)]
struct Nuisance {
    bytes: u64,
    since: Instant,
}

impl Shared {
    pub(super) fn new(limits: FrameLimits) -> Shared {
        let nuisance = Nuisance { bytes: 0, since: Instant::now() };
        Shared {
            limits,
            requests: RequestState::new(),
            critical: Mutex::default(),
            incomplete: AtomicUsize::new(0),
            nuisance: Mutex::new(nuisance),
            violation: OnceLock::new(),
            goaway: AtomicU64::new(u64::MAX),
            went_away: Notify::new(),
        }
    }

    /// Counts useless bytes of the peer. Fails if there are too many.
    pub(super) fn charge(&self, bytes: u64) -> Result<(), Violation> {
        let mut nuisance = self.nuisance.lock().unwrap_or_else(PoisonError::into_inner);
        nuisance.bytes += bytes;
        if nuisance.bytes <= NUISANCE {
            return Ok(());
        }
        let seconds = nuisance.since.elapsed().as_secs();
        *nuisance = Nuisance {
            bytes: nuisance.bytes.saturating_sub(seconds * FORGOTTEN),
            since: Instant::now(),
        };
        if nuisance.bytes <= NUISANCE {
            return Ok(());
        }
        Err(Violation::UselessBytes)
    }

    /// Counts kept bytes of an incomplete frame. Fails if there are too many.
    fn keep(&self, bytes: usize) -> Result<(), Violation> {
        let before = self.incomplete.fetch_add(bytes, Ordering::Relaxed);
        if before + bytes > self.limits.incomplete {
            return Err(Violation::IncompleteFrames);
        }
        Ok(())
    }

    pub(super) fn set_violation(&self, violation: Violation) {
        // A later violation is ignored, because the first one has closed the connection.
        let _ = self.violation.set(violation);
    }

    /// Records a server's GOAWAY. The server processes no request on this stream or a later one
    /// (RFC 9114 s.5.2).
    pub(super) fn set_goaway(&self, stream: u64) {
        self.goaway.store(stream, Ordering::SeqCst);
        self.went_away.notify_waiters();
    }

    pub(super) fn goaway(&self) -> Option<u64> {
        Some(self.goaway.load(Ordering::SeqCst)).filter(|stream| *stream != u64::MAX)
    }

    /// Waits until a GOAWAY frame covers a stream. `stream` returns the stream's ID, or `None`
    /// while the stream is not open.
    pub(super) async fn goes_away(&self, stream: impl Fn() -> Option<u64> + Send) {
        loop {
            // Subscribes before the check, so that a GOAWAY in between is not missed.
            let next = self.went_away.notified();
            let concerns = |limit| stream().is_none_or(|stream| stream >= limit);
            if self.goaway().is_some_and(concerns) {
                return;
            }
            next.await;
        }
    }

    pub(super) fn violation(&self) -> Option<Violation> {
        self.violation.get().copied()
    }

    #[cfg(test)]
    pub(super) fn incomplete(&self) -> usize {
        self.incomplete.load(Ordering::Relaxed)
    }
}

/// The bytes of an incomplete frame, counted against the connection's limit.
#[derive(Debug)]
pub(super) struct Kept {
    pub bytes: Vec<u8>,
    shared: std::sync::Arc<Shared>,
}

impl Kept {
    pub(super) fn new(shared: &std::sync::Arc<Shared>) -> Kept {
        Kept { bytes: Vec::new(), shared: shared.clone() }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<(), Violation> {
        self.bytes.extend_from_slice(bytes);
        self.shared.keep(bytes.len())
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.shared.incomplete.fetch_sub(self.bytes.len(), Ordering::Relaxed);
    }
}
