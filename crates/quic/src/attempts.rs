//! The queue of clients' connection attempts, from which the application takes them.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use tokio::sync::Notify;

/// Connection attempts that the application has not taken yet: at most `max_incoming` for each
/// socket of the endpoint. `T` is the type of an attempt.
pub(crate) struct AttemptQueue<T> {
    state: Mutex<State<T>>,
    /// Notified when an attempt was added, or the queue was closed.
    arrived: Notify,
}

struct State<T> {
    attempts: VecDeque<T>,
    /// True if the application takes no more attempts.
    closed: bool,
    /// True if the application has taken an attempt, and other tasks have had no turn since.
    given: bool,
}

/// The reason why the application gets no attempt now.
enum NoAttempt {
    /// An attempt waits, but other tasks run first. The socket's task then sends the server's first
    /// flight of the previous attempt before the next handshake starts. This first flight is most
    /// of the work of a handshake.
    AfterOthers,
    /// No attempt waits.
    NoneWaits,
    /// The endpoint accepts no more attempts.
    Closed,
}

impl<T> Default for AttemptQueue<T> {
    fn default() -> AttemptQueue<T> {
        let state = State { attempts: VecDeque::new(), closed: false, given: false };
        AttemptQueue { state: Mutex::new(state), arrived: Notify::new() }
    }
}

impl<T> State<T> {
    /// Returns the next attempt, and `true` if more attempts wait.
    fn take(&mut self) -> Result<(T, bool), NoAttempt> {
        if std::mem::take(&mut self.given) && !self.attempts.is_empty() {
            return Err(NoAttempt::AfterOthers);
        }
        match self.attempts.pop_front() {
            Some(attempt) => {
                self.given = true;
                Ok((attempt, !self.attempts.is_empty()))
            }
            None if self.closed => Err(NoAttempt::Closed),
            None => Err(NoAttempt::NoneWaits),
        }
    }
}

impl<T> AttemptQueue<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an attempt, and wakes a task that waits for one. Returns the attempt if the queue is
    /// closed.
    pub(crate) fn offer(&self, attempt: T) -> Option<T> {
        {
            let mut state = self.lock();
            if state.closed {
                return Some(attempt);
            }
            state.attempts.push_back(attempt);
        }
        self.arrived.notify_one();
        None
    }

    /// Waits for the next attempt. Returns `None` if the queue is closed. If several attempts wait,
    /// this function yields to other tasks between two of them.
    pub(crate) async fn next(&self) -> Option<T> {
        loop {
            let arrived = self.arrived.notified();
            let next = self.lock().take();
            match next {
                Ok((attempt, more)) => {
                    if more {
                        // Two attempts that arrived together may have woken only one task.
                        self.arrived.notify_one();
                    }
                    return Some(attempt);
                }
                Err(NoAttempt::Closed) => {
                    // Wakes the next task that waits, so that it ends, too.
                    self.arrived.notify_one();
                    return None;
                }
                Err(NoAttempt::AfterOthers) => {
                    // Wakes another task that waits, in case this future is dropped before it
                    // continues.
                    self.arrived.notify_one();
                    turn_of_others().await;
                }
                Err(NoAttempt::NoneWaits) => arrived.await,
            }
        }
    }

    /// Closes the queue, calls `refuse` with each attempt that waits, and wakes the tasks that wait
    /// for attempts.
    pub(crate) fn close(&self, refuse: impl FnMut(T)) {
        let mut state = self.lock();
        state.closed = true;
        let attempts = std::mem::take(&mut state.attempts);
        drop(state);
        // The queue is unlocked first, because `refuse` locks the socket of each attempt.
        attempts.into_iter().for_each(refuse);
        self.arrived.notify_waiters();
        self.arrived.notify_one();
    }

    /// Returns the number of attempts that wait.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.lock().attempts.len()
    }
}

/// Yields once to the tasks that are ready, without polling the runtime's I/O driver.
async fn turn_of_others() {
    let mut has_waited = false;
    let turn = poll_fn(|cx| {
        if std::mem::replace(&mut has_waited, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    });
    turn.await;
}
