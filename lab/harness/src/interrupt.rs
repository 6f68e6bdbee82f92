//! Runs experiments that a signal can end early.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use equic_netns::{LabError, cleanup_on_signals};

/// Runs an experiment. If the process receives SIGINT, SIGTERM or SIGHUP, the network labs of the
/// experiment are removed and the process ends. In that case, this function does not return.
///
/// # Errors
/// Returns the error of `work`, or the system's error if signals cannot be handled.
pub fn until_interrupted<T, E>(work: impl FnOnce() -> Result<T, E>) -> Result<T, E>
where
    E: From<LabError> + From<io::Error>,
{
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    // This call comes first, so that the thread that cleans up is certainly running when the flag
    // is set.
    cleanup_on_signals()?;
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&interrupted)).map_err(|error| {
            io::Error::new(error.kind(), format!("cannot watch for signals: {error}"))
        })?;
    }
    let done = work();
    if interrupted.load(Ordering::Relaxed) {
        // A signal arrived. The thread of `cleanup_on_signals` removes the lab and ends this
        // process. The error of the work is only a consequence of this, so it is ignored.
        loop {
            std::thread::park();
        }
    }
    done
}
