//! Replaces the IDs of connections when they become outdated, for example because the key that made
//! them was rotated (RFC 9000 s.5.1.2).

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep};

use crate::contain::contain;
use crate::shared::SharedConnection;
use crate::socket::Inner;

/// Time between two checks of the generator.
const PAUSE: Duration = Duration::from_millis(250);

/// Maximum number of connections that get new IDs after one check. All connections at once would
/// cause a burst of frames.
const MAX_RENEWALS: usize = 1024;

/// Watches the generator of a socket's connection IDs.
pub(crate) struct Renewal {
    /// The current generation of IDs. All connections have IDs of this generation, or are getting
    /// them.
    generation: u64,
    /// Index of the next connection that gets new IDs, or `None` if all have them.
    next: Option<usize>,
    sleep: Pin<Box<Sleep>>,
}

impl Renewal {
    /// Returns `None` if the generator's IDs never become outdated. Must be called inside a tokio
    /// runtime.
    pub(crate) fn of(inner: &Inner) -> Option<Renewal> {
        let generation = inner.endpoint.id_generation()?;
        Some(Renewal { generation, next: None, sleep: Box::pin(tokio::time::sleep(PAUSE)) })
    }

    /// If a check is due, replaces the IDs of connections with outdated IDs, and adds these
    /// connections to `work`. Schedules the next check.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        inner: &Inner,
        work: &mut VecDeque<Arc<SharedConnection>>,
    ) {
        while let Poll::Ready(()) = self.sleep.as_mut().poll(cx) {
            self.sleep.as_mut().reset(Instant::now() + PAUSE);
            if let Some(generation) = inner.endpoint.id_generation()
                && generation != self.generation
            {
                self.generation = generation;
                self.next = Some(0);
            }
            self.renew_some(inner, work);
        }
    }

    fn renew_some(&mut self, inner: &Inner, work: &mut VecDeque<Arc<SharedConnection>>) {
        let Some(from) = self.next else { return };
        let connections = inner.connections.iter().skip(from).take(MAX_RENEWALS);
        for conn in connections.flatten() {
            let was_queued = contain(|| {
                let mut state = conn.lock();
                state.connection.replace_connection_ids();
                std::mem::replace(&mut state.queued, true)
            });
            if was_queued != Some(true) {
                work.push_back(Arc::clone(conn));
            }
        }
        let next = from + MAX_RENEWALS;
        self.next = (next < inner.connections.len()).then_some(next);
    }
}
