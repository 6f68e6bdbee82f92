//! Waits asynchronously for the signals that end a command.
//!
//! A signal that arrives before its handler is installed would kill the process during its start.
//! Therefore a command that handles signals first calls [`hold`]. The kernel then keeps the signals
//! until [`Signals`] has installed its handlers.

use nix::sys::signal::{SigSet, Signal as Number};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::{Failure, Result, descriptors};

fn held() -> SigSet {
    [Number::SIGHUP, Number::SIGINT, Number::SIGTERM].into_iter().collect()
}

/// Blocks SIGINT, SIGTERM and SIGHUP in this thread and in every thread that it starts later. The
/// kernel keeps these signals until [`release`] or [`Signals::new`] is called. Call it before
/// starting any thread.
pub fn hold() {
    // Blocking signals fails only for invalid arguments, so the result is ignored.
    let _ = held().thread_block();
}

/// Unblocks the signals that [`hold`] blocked. It is for a command that does not handle them: a
/// pending signal then ends the command.
pub fn release() {
    let _ = held().thread_unblock();
}

/// Receives SIGINT, SIGTERM and SIGHUP. While it exists, these signals do not end the process.
pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// `None` if the command runs under nohup(1), which makes it ignore SIGHUP.
    hangup: Option<Signal>,
}

impl Signals {
    /// Installs handlers for the three signals. Must be called inside a tokio runtime.
    pub fn new() -> Result<Signals> {
        Signals::taking(false)
    }

    /// Installs handlers for the three signals. A command that reloads its configuration on SIGHUP
    /// uses this, and receives SIGHUP even under nohup(1). Must be called inside a tokio runtime.
    pub fn with_reload() -> Result<Signals> {
        Signals::taking(true)
    }

    fn taking(reload: bool) -> Result<Signals> {
        let watch = |kind| {
            signal(kind).map_err(|error| Failure::because("cannot watch for signals", error))
        };
        let signals = Signals {
            interrupt: watch(SignalKind::interrupt())?,
            terminate: watch(SignalKind::terminate())?,
            hangup: if ignores_hangup() && !reload {
                None
            } else {
                Some(watch(SignalKind::hangup())?)
            },
        };
        // All signals have handlers now, so the kernel may deliver the pending ones.
        release();
        Ok(signals)
    }

    /// Waits for a signal and returns its name.
    pub async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
            () = received(&mut self.hangup) => "SIGHUP",
        }
    }
}

async fn received(signal: &mut Option<Signal>) {
    match signal {
        Some(signal) => {
            signal.recv().await;
        }
        None => std::future::pending().await,
    }
}

/// Returns true if the process was started with SIGHUP ignored. Reads the bit mask `SigIgn`
/// (proc_pid_status(5)), whose bit 0 is signal 1.
fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|mask| mask & 1 == 1)
}

/// Number of file descriptors that tokio opens when a runtime starts: for epoll, for its waker, and
/// for signals.
const DESCRIPTORS: usize = 24;

/// Creates a runtime of `threads` threads. `None` means one per CPU.
pub fn runtime(threads: Option<usize>) -> Result<tokio::runtime::Runtime> {
    // tokio panics if it gets no descriptors for its signals. So this opens as many files as tokio
    // needs, to check that they are available, and closes them before tokio starts.
    let files = std::fs::File::open("/dev/null")
        .and_then(|file| (1..DESCRIPTORS).map(|_| file.try_clone()).collect::<Result<Vec<_>, _>>());
    let missing = files.err().filter(|error| descriptors(&error.to_string()).is_some());
    if let Some(error) = missing {
        return Err(Failure::because("cannot start the asynchronous runtime", error));
    }
    let mut builder = match threads {
        Some(1) => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    if let Some(threads) = threads {
        builder.worker_threads(threads);
    }
    builder
        .enable_all()
        .build()
        .map_err(|error| Failure::because("cannot start the asynchronous runtime", error))
}
