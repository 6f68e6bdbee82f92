//! A thread that calls a function at intervals until its handle is dropped. Heartbeats and sweeps
//! use it.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use crate::error::{Error, Result};
use crate::sync::{Builder, Condvar, JoinHandle, Mutex, lock};

/// A handle of the thread. Dropping it ends the thread, after waiting for a call in progress.
#[derive(Debug)]
pub(crate) struct Periodic {
    stop: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl Periodic {
    /// Starts the thread. It calls `work` at once, and then again after each pause that `work`
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
        // The thread blocks all signals, so that the application's own threads receive them.
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
            // If the thread has panicked, nothing can be done about it here.
            let _ = thread.join();
        }
    }
}
