//! A waker that notes that it was called: what nobody was woken for need not be looked at again.
//!
//! `h3` looks at the peer's control stream whenever it accepts a request. Nothing has come there, as a rule; with a bell
//! that is known without a lock of the connection and its maps.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

/// Rings when there may be something to look at. At first it has rung.
pub(super) struct Bell {
    state: Arc<State>,
    /// Hands the ringing on; the same for as long as the bell lives.
    waker: Waker,
}

struct State {
    rung: AtomicBool,
    /// Task to wake; none: it was woken, or there was none yet.
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
        // Before the task is taken: whoever leaves one there looks at it afterwards.
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

    /// Looks, if the bell has rung since nothing was found last. What `look` is given wakes this task.
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
            // There may be more behind it.
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
    fn nothing_is_looked_at_that_nobody_was_woken_for() {
        let (bell, task) = (Bell::new(), Arc::new(Count::default()));
        let waker = Waker::from(Arc::clone(&task));
        let cx = Context::from_waker(&waker);
        let mut kept = None;
        assert!(bell.poll(&cx, |_| Poll::Ready(1)).is_ready());
        // What was found may not be all.
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
        // Rung in the middle of looking: it is looked again, and the task is woken.
        let rings = bell.poll(&cx, |cx| {
            cx.waker().wake_by_ref();
            Poll::<()>::Pending
        });
        assert!(rings.is_pending());
        assert_eq!(task.0.load(Ordering::Relaxed), 2);
        assert!(bell.poll(&cx, |_| Poll::Ready(())).is_ready());
    }
}
