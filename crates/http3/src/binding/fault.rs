//! Violations of RFC 9114 and RFC 9204 by a peer, and limits of what it may have us keep.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Instant;

use equic_wire::StreamId;
use h3::error::Code;
use tokio::sync::Notify;

use super::requests::RequestState;

/// QPACK's error codes (RFC 9204 s.6), and two of RFC 9114 s.8.1 that the crate has no names for here.
pub(super) const DECOMPRESSION_FAILED: Code = Code::QPACK_DECOMPRESSION_FAILED;
pub(super) const ENCODER_STREAM_ERROR: Code = Code::QPACK_ENCODER_STREAM_ERROR;
pub(super) const DECODER_STREAM_ERROR: Code = Code::QPACK_DECODER_STREAM_ERROR;

/// Bytes that a peer may send at once for nothing: frames and streams of unknown types, empty frames,
/// frames of the control stream.
const NUISANCE: u64 = 1 << 20;

/// Bytes by which the count of useless bytes sinks each second.
const FORGOTTEN: u64 = 16 << 10;

/// A peer's violation of the protocol: the connection or the stream it ends, the error code and the
/// reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The connection is closed with this code.
    Connection(Code, &'static str),
    /// The message is malformed (RFC 9114 s.4.1.2): its stream is given up with this code.
    Stream(Code, &'static str),
}

/// A request or response that is malformed (RFC 9114 s.4.1.2), as `h3` hands it on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason} ({code})")]
pub struct Malformed {
    /// The error code its stream was given up with.
    pub code: Code,
    /// Description of the error, for people.
    pub reason: &'static str,
}

/// The rule that a peer broke, which closed the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason} ({code})")]
pub struct Violation {
    /// The error code the connection was closed with.
    pub code: Code,
    /// Description of the error, for people.
    pub reason: &'static str,
}

/// Limits of the memory and work that a peer may cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameLimits {
    /// Bytes of one HEADERS frame that are kept until it is whole. A longer one is not read: `h3` is
    /// told that its fields are too long.
    pub field_section: usize,
    /// Bytes of incomplete frames, of all streams of a connection together; beyond that it is closed
    /// with H3_EXCESSIVE_LOAD.
    pub incomplete: usize,
}

impl Default for FrameLimits {
    fn default() -> FrameLimits {
        FrameLimits { field_section: 64 << 10, incomplete: 512 << 10 }
    }
}

/// State that all streams of a connection share: limits and counts against them.
#[derive(Debug)]
pub(super) struct Ward {
    pub limits: FrameLimits,
    pub requests: RequestState,
    /// Own streams that must stay open: the control stream and those of QPACK.
    pub critical: Mutex<Vec<StreamId>>,
    /// Bytes of incomplete frames kept now, of all streams together.
    incomplete: AtomicUsize,
    nuisance: Mutex<Nuisance>,
    violation: OnceLock<Violation>,
    /// Smallest stream ID that GOAWAY frames of a server have named, or `u64::MAX` before the first.
    goaway: AtomicU64,
    /// Notifies those who wait for a GOAWAY frame.
    went_away: Notify,
}

#[derive(Debug)]
struct Nuisance {
    bytes: u64,
    since: Instant,
}

impl Ward {
    pub(super) fn new(limits: FrameLimits) -> Ward {
        let nuisance = Nuisance { bytes: 0, since: Instant::now() };
        Ward {
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

    /// Counts bytes that are of no use, and fails if there are too many.
    pub(super) fn charge(&self, bytes: u64) -> Result<(), Fault> {
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
        Err(Fault::Connection(Code::H3_EXCESSIVE_LOAD, "too much that is of no use"))
    }

    /// Bytes of a frame came that are kept until it is whole.
    fn keep(&self, bytes: usize) -> Result<(), Fault> {
        let before = self.incomplete.fetch_add(bytes, Ordering::Relaxed);
        if before + bytes > self.limits.incomplete {
            return Err(Fault::Connection(Code::H3_EXCESSIVE_LOAD, "too many incomplete frames"));
        }
        Ok(())
    }

    pub(super) fn set_violation(&self, violation: Violation) {
        // The first one is why it was closed.
        let _ = self.violation.set(violation);
    }

    /// A server's GOAWAY: it processes no request on this stream or a later one (RFC 9114 s.5.2).
    pub(super) fn set_goaway(&self, stream: u64) {
        self.goaway.store(stream, Ordering::SeqCst);
        self.went_away.notify_waiters();
    }

    pub(super) fn goaway(&self) -> Option<u64> {
        Some(self.goaway.load(Ordering::SeqCst)).filter(|stream| *stream != u64::MAX)
    }

    /// Waits until a GOAWAY frame concerns a stream. `stream` returns the stream's ID, or `None`
    /// while the stream is not open.
    pub(super) async fn goes_away(&self, stream: impl Fn() -> Option<u64> + Send) {
        loop {
            // Before the look: it is notified of what comes meanwhile.
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

/// Bytes of a frame that is not whole yet.
#[derive(Debug)]
pub(super) struct Kept {
    pub bytes: Vec<u8>,
    ward: std::sync::Arc<Ward>,
}

impl Kept {
    pub(super) fn new(ward: &std::sync::Arc<Ward>) -> Kept {
        Kept { bytes: Vec::new(), ward: ward.clone() }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        self.bytes.extend_from_slice(bytes);
        self.ward.keep(bytes.len())
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.ward.incomplete.fetch_sub(self.bytes.len(), Ordering::Relaxed);
    }
}
