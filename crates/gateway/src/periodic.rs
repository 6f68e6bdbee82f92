//! A thread that repeats some work at intervals until it is dropped. Heartbeat and sweeper use it.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use crate::error::{Error, Result};
use crate::sync::{Builder, Condvar, JoinHandle, Mutex, lock};

/// A handle of the thread. Dropping it waits until the current run of the work is over.
#[derive(Debug)]
pub(crate) struct Periodic {
    stop: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl Periodic {
    /// Starts the thread, which calls `work` at once and then again after the pause that `work`
    /// returns.
    pub(crate) fn start(
        name: &str,
        mut work: impl FnMut() -> Duration + Send + 'static,
    ) -> Result<Periodic> {
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let stopping = Arc::clone(&stop);
        let run = move || {
            let (flag, wake) = &*stopping;
            let mut stopped = lock(flag);
            while !*stopped {
                drop(stopped);
                let pause = work();
                stopped = lock(flag);
                if !*stopped {
                    stopped =
                        wake.wait_timeout(stopped, pause).unwrap_or_else(PoisonError::into_inner).0;
                }
            }
        };
        // The thread blocks all signals, so that they go to the application's threads.
        let spawned =
            crate::sys::signals::blocked(|| Builder::new().name(name.to_owned()).spawn(run));
        let thread =
            spawned.map_err(|error| Error::system(format!("starting the thread {name}"), error))?;
        Ok(Periodic { stop, thread: Some(thread) })
    }
}

impl Drop for Periodic {
    fn drop(&mut self) {
        *lock(&self.stop.0) = true;
        self.stop.1.notify_all();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread is ignored here, because nothing can be done about it.
            let _ = thread.join();
        }
    }
}
