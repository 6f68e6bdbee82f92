//! Tracks which requests of a connection the server admits.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;

use super::shared::Shared;

/// State that all request streams of a server's connection share.
#[derive(Debug)]
pub(super) struct RequestState {
    /// ID of the next request stream to be accepted. Request streams have every fourth ID, starting
    /// with 0, and are accepted in order.
    next: AtomicU64,
    closed: AtomicBool,
    client_leaves: watch::Sender<bool>,
    /// Number of bytes still to come of an incomplete DATA frame, for each stream ID. An entry is
    /// removed when it reaches 0.
    content: Mutex<BTreeMap<u64, u64>>,
    /// IDs of the streams whose requests have header fields above the limit.
    too_long: Mutex<BTreeSet<u64>>,
}

impl RequestState {
    pub(super) fn new() -> RequestState {
        RequestState {
            next: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            client_leaves: watch::Sender::new(false),
            content: Mutex::default(),
            too_long: Mutex::default(),
        }
    }

    /// Returns `true` if the request on this stream must be served, and `false` if it must be
    /// rejected.
    pub(super) fn admit(&self, stream: u64) -> bool {
        if self.closed.load(Ordering::Acquire) {
            return false;
        }
        self.next.fetch_max(stream.saturating_add(4), Ordering::AcqRel);
        true
    }

    /// Records that the client has sent GOAWAY, so it will open no further requests.
    pub(super) fn set_client_leaves(&self) {
        self.client_leaves.send_replace(true);
    }

    fn set_content(&self, stream: u64, left: u64) {
        let mut content = self.content.lock().unwrap_or_else(PoisonError::into_inner);
        match left {
            0 => content.remove(&stream),
            left => content.insert(stream, left),
        };
    }

    fn too_long(&self) -> std::sync::MutexGuard<'_, BTreeSet<u64>> {
        self.too_long.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn content(&self, stream: u64) -> u64 {
        let content = self.content.lock().unwrap_or_else(PoisonError::into_inner);
        content.get(&stream).copied().unwrap_or(0)
    }
}

/// Keeps two facts about a request up to date: how many bytes of its current DATA frame are still
/// to come, and whether its header fields are too long.
pub(super) struct ContentLeft {
    stream: u64,
    reported: u64,
    too_long: bool,
    shared: Arc<Shared>,
}

impl ContentLeft {
    pub(super) fn new(stream: u64, shared: Arc<Shared>) -> ContentLeft {
        ContentLeft { stream, reported: 0, too_long: false, shared }
    }

    /// Records that the request's header fields are too long, so that `h3` got a replacement.
    pub(super) fn set_too_long(&mut self) {
        if !self.too_long {
            self.too_long = true;
            self.shared.requests.too_long().insert(self.stream);
        }
    }

    pub(super) fn report(&mut self, left: u64) {
        if left != self.reported {
            self.reported = left;
            self.shared.requests.set_content(self.stream, left);
        }
    }
}

impl Drop for ContentLeft {
    fn drop(&mut self) {
        self.report(0);
        if self.too_long {
            self.shared.requests.too_long().remove(&self.stream);
        }
    }
}

/// A server's handle to the requests of one of its connections.
#[derive(Clone, Debug)]
pub(crate) struct Requests(pub(super) Arc<Shared>);

impl Requests {
    /// Makes the server reject all further requests (H3_REQUEST_REJECTED). Returns the ID of the
    /// first rejected request, which GOAWAY must name (RFC 9114 s.5.2). Must not be called while a
    /// request is being accepted.
    pub(crate) fn close(&self) -> u64 {
        self.0.requests.closed.store(true, Ordering::Release);
        self.0.requests.next.load(Ordering::Acquire)
    }

    /// Waits until the client has sent GOAWAY.
    pub(crate) async fn client_leaves(&self) {
        // The sending half of this channel lives as long as `self`, so waiting cannot fail.
        let _ = self.0.requests.client_leaves.subscribe().wait_for(|leaves| *leaves).await;
    }

    /// Returns the number of bytes still to come of the DATA frame that the client is sending on
    /// this stream. The number is exact once everything that has arrived was read.
    pub(crate) fn content_left(&self, stream: u64) -> u64 {
        self.0.requests.content(stream)
    }

    /// Returns `true` if the header fields of the request on this stream are larger than the limit.
    /// The request that `h3` has is then a replacement, not the client's.
    pub(crate) fn is_too_long(&self, stream: u64) -> bool {
        self.0.requests.too_long().contains(&stream)
    }
}
