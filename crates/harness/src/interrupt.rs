//! Experiments that a signal can end early.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use equic_lab::{LabError, cleanup_on_signals};

/// Runs an experiment. If SIGINT, SIGTERM or SIGHUP ends it, its labs are removed and this process
/// ends, so this function does not return.
///
/// # Errors
/// Returns the error of `work`, or the system's error if signals cannot be handled.
pub fn until_interrupted<T, E>(work: impl FnOnce() -> Result<T, E>) -> Result<T, E>
where
    E: From<LabError> + From<io::Error>,
{
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    // This call comes first, so that the other thread is certainly running when the flag is set.
    cleanup_on_signals()?;
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&interrupted)).map_err(|error| {
            io::Error::new(error.kind(), format!("cannot watch for signals: {error}"))
        })?;
    }
    let done = work();
    if interrupted.load(Ordering::Relaxed) {
        // The thread of `cleanup_on_signals` removes the lab and ends this process. An error of the
        // work is only a consequence of this, so it is ignored.
        loop {
            std::thread::park();
        }
    }
    done
}
