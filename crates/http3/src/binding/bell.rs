//! A waker that remembers whether it was called. With it, a stream is polled again only after new
//! data has arrived.
//!
//! `h3` polls the peer's control stream each time it accepts a request, although that stream rarely
//! has new data. The bell answers these polls without locking the connection.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

/// A flag that a waker sets when a stream may have something to read. The flag is set initially, so
/// that the first poll reads the stream.
pub(super) struct Bell {
    state: Arc<State>,
    /// The waker that rings this bell. It is the same for the bell's whole life.
    waker: Waker,
}

struct State {
    rung: AtomicBool,
    /// The task that waits for data. `None` before the first poll, and after the task was woken.
    task: Mutex<Option<Waker>>,
}

impl State {
    fn task(&self) -> MutexGuard<'_, Option<Waker>> {
        self.task.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wake for State {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // `rung` is set before the task is taken, because a concurrent poll stores its task first
        // and reads `rung` afterwards.
        self.rung.store(true, Ordering::SeqCst);
        let task = self.task().take();
        if let Some(task) = task {
            task.wake();
        }
    }
}

impl Bell {
    pub(super) fn new() -> Bell {
        let state = Arc::new(State { rung: AtomicBool::new(true), task: Mutex::new(None) });
        Bell { waker: Waker::from(Arc::clone(&state)), state }
    }

    /// Calls `look`, unless `look` has returned `Pending` and the bell has not rung since then. In
    /// that case, returns `Pending`. `look` gets a context whose waker rings the bell and wakes
    /// this task.
    pub(super) fn poll<T>(
        &self,
        cx: &Context<'_>,
        look: impl FnOnce(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        {
            let mut task = self.state.task();
            if !task.as_ref().is_some_and(|task| task.will_wake(cx.waker())) {
                *task = Some(cx.waker().clone());
            }
        }
        if !self.state.rung.swap(false, Ordering::SeqCst) {
            return Poll::Pending;
        }
        let found = look(&mut Context::from_waker(&self.waker));
        if found.is_ready() {
            // `look` may have more results, so the next poll calls it again.
            self.state.rung.store(true, Ordering::SeqCst);
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn wake_without_a_ring_nothing_is_polled() {
        let (bell, task) = (Bell::new(), Arc::new(Count::default()));
        let waker = Waker::from(Arc::clone(&task));
        let cx = Context::from_waker(&waker);
        let mut kept = None;
        assert!(bell.poll(&cx, |_| Poll::Ready(1)).is_ready());
        // The first poll returned a result, so the second poll must call `look` again.
        assert!(
            bell.poll(&cx, |cx| {
                kept = Some(cx.waker().clone());
                Poll::<()>::Pending
            })
            .is_pending()
        );
        assert!(bell.poll(&cx, |_| Poll::Ready(())).is_pending(), "nothing has come since");
        kept.as_ref().unwrap().wake_by_ref();
        assert_eq!(task.0.load(Ordering::Relaxed), 1);
        assert!(bell.poll(&cx, |_| Poll::Ready(())).is_ready());
        // The bell rings while `look` runs. The task must be woken, and the next poll must look
        // again.
        let rings = bell.poll(&cx, |cx| {
            cx.waker().wake_by_ref();
            Poll::<()>::Pending
        });
        assert!(rings.is_pending());
        assert_eq!(task.0.load(Ordering::Relaxed), 2);
        assert!(bell.poll(&cx, |_| Poll::Ready(())).is_ready());
    }
}
