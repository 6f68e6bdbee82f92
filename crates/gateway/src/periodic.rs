//! A thread that does something every so often until it is dropped: heartbeat and sweeper.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use crate::error::{Error, Result};
use crate::sync::{Builder, Condvar, JoinHandle, Mutex, lock};

/// Works until dropped; dropping waits for the work at hand.
#[derive(Debug)]
pub(crate) struct Periodic {
    stop: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl Periodic {
    /// `work` returns how long to pause after it. It runs at once for the first time.
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
        // The application's signals are for the application's threads.
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
            // It ends by itself; if it panicked, there is nothing left to do about it here.
            let _ = thread.join();
        }
    }
}
