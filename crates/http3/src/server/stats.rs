//! Counters of a server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use equic_quic::SendMemory;
use serde::Serialize;

/// A snapshot of a server's counters. All of them only grow, except `open`, `buffered` and
/// `open_files`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ServerStats {
    /// Connection attempts that reached the server. An attempt with a Retry counts twice.
    pub attempts: u64,
    /// Attempts that the admission refused.
    pub refused: u64,
    /// Attempts that the admission ignored.
    pub ignored: u64,
    /// Attempts that were answered with Retry.
    pub retried: u64,
    /// Attempts that were ignored because too many handshakes were in progress.
    pub overloaded: u64,
    /// Handshakes that were started and failed or timed out.
    pub handshakes_failed: u64,
    /// Connections that the admission refused after the handshake, or after a migration.
    pub refused_late: u64,
    /// Connections opened so far. A connection with early data is counted before its handshake is
    /// complete.
    pub opened: u64,
    /// Connections that are open now.
    pub open: u64,
    /// Migrations reported to the admission.
    pub moved: u64,
    /// Requests that were answered, with any status.
    pub requests: u64,
    /// Requests without a complete response: malformed, cancelled, or the client disappeared or
    /// stopped reading.
    pub failed: u64,
    /// Requests that were answered with 503, because too many files were open.
    pub shed: u64,
    /// Bytes of response bodies that were passed to QUIC.
    pub bytes: u64,
    /// Bytes of responses in memory now, of all connections. They wait to be sent or acknowledged.
    pub buffered: u64,
    /// Files that are open now.
    pub open_files: u64,
}

/// A handle to a server's counters. It is cheap to clone, and works after the server is dropped,
/// too.
#[derive(Clone, Debug, Default)]
pub struct StatsHandle(pub(super) Arc<Counters>, SendMemory);

#[derive(Debug, Default)]
pub(super) struct Counters {
    pub attempts: Counter,
    pub refused: Counter,
    pub ignored: Counter,
    pub retried: Counter,
    pub overloaded: Counter,
    pub handshakes_failed: Counter,
    pub refused_late: Counter,
    pub opened: Counter,
    pub closed: Counter,
    pub moved: Counter,
    pub requests: Counter,
    pub failed: Counter,
    pub shed: Counter,
    pub bytes: Counter,
    pub files_opened: Counter,
    pub files_closed: Counter,
}

impl StatsHandle {
    pub(super) fn new(memory: SendMemory) -> StatsHandle {
        StatsHandle(Arc::default(), memory)
    }

    /// Returns the current counters. Each is exact, but they are not read at the same instant.
    pub fn snapshot(&self) -> ServerStats {
        let counters = &*self.0;
        // Reads `closed` first. Otherwise a connection that opens and closes in between could make
        // `open` negative.
        let closed = counters.closed.get();
        let opened = counters.opened.get();
        let files_closed = counters.files_closed.get();
        ServerStats {
            attempts: counters.attempts.get(),
            refused: counters.refused.get(),
            ignored: counters.ignored.get(),
            retried: counters.retried.get(),
            overloaded: counters.overloaded.get(),
            handshakes_failed: counters.handshakes_failed.get(),
            refused_late: counters.refused_late.get(),
            opened,
            open: opened.saturating_sub(closed),
            moved: counters.moved.get(),
            requests: counters.requests.get(),
            failed: counters.failed.get(),
            shed: counters.shed.get(),
            bytes: counters.bytes.get(),
            buffered: self.1.used(),
            open_files: counters.files_opened.get().saturating_sub(files_closed),
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    /// Adds `n`, and returns the new value.
    pub(super) fn add(&self, n: u64) -> u64 {
        self.0.fetch_add(n, Ordering::AcqRel) + n
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}
