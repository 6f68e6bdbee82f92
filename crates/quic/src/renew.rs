//! Fresh connection IDs for connections whose IDs are out of date, as when keys are rotated that they were made with
//! (RFC 9000 s.5.1.2).

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep};

use crate::cell::Cell;
use crate::contain::contain;
use crate::socket::Inner;

/// Time between two looks at the generator.
const PAUSE: Duration = Duration::from_millis(250);

/// Connections that are given fresh IDs after one look: all at once would be a flood of frames.
const AT_ONCE: usize = 1024;

/// Watches the generator of a socket's connection IDs.
pub(crate) struct Renewal {
    /// The generation of the IDs that all connections have or are being given.
    generation: u64,
    /// Index of the next connection to be given fresh IDs; none: all have them.
    next: Option<usize>,
    sleep: Pin<Box<Sleep>>,
}

impl Renewal {
    /// None where IDs are never out of date. Must be called inside a tokio runtime.
    pub(crate) fn of(inner: &Inner) -> Option<Renewal> {
        let generation = inner.endpoint.id_generation()?;
        Some(Renewal { generation, next: None, sleep: Box::pin(tokio::time::sleep(PAUSE)) })
    }

    /// Has connections replace their IDs, if it is time to and there is need; those that have something to send then
    /// are put into `work`. The task is woken for the next look.
    pub(crate) fn look(
        &mut self,
        cx: &mut Context<'_>,
        inner: &Inner,
        work: &mut VecDeque<Arc<Cell>>,
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

    fn renew_some(&mut self, inner: &Inner, work: &mut VecDeque<Arc<Cell>>) {
        let Some(from) = self.next else { return };
        let cells = inner.cells.iter().skip(from).take(AT_ONCE);
        for cell in cells.flatten() {
            let was_queued = contain(|| {
                let mut state = cell.lock();
                state.connection.replace_connection_ids();
                std::mem::replace(&mut state.queued, true)
            });
            if was_queued != Some(true) {
                work.push_back(Arc::clone(cell));
            }
        }
        let next = from + AT_ONCE;
        self.next = (next < inner.cells.len()).then_some(next);
    }
}
