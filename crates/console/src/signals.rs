//! Waits asynchronously for the signals that end a command.
//!
//! A signal that arrives before its handler is installed would kill the process during its start.
//! So a command that handles signals first calls [`hold`]. The kernel then keeps the signals until
//! [`Signals`] has installed its handlers.

use nix::sys::signal::{SigSet, Signal as Number};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::{Done, Failure, descriptors};

fn held() -> SigSet {
    [Number::SIGHUP, Number::SIGINT, Number::SIGTERM].into_iter().collect()
}

/// Blocks SIGINT, SIGTERM and SIGHUP in this thread, and so in every thread that it starts. The
/// kernel keeps them until [`release`] or [`Signals::new`]. Call it before starting any thread.
pub fn hold() {
    // Fails only for invalid arguments.
    let _ = held().thread_block();
}

/// Unblocks the signals that [`hold`] has blocked, for a command that does not handle them. A
/// pending signal then ends it.
pub fn release() {
    let _ = held().thread_unblock();
}

/// Receives SIGINT, SIGTERM and SIGHUP, which no longer end the process.
pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// `None` under nohup(1), which ignores SIGHUP for the command.
    hangup: Option<Signal>,
}

impl Signals {
    /// Installs handlers for the three signals. Must be called inside a tokio runtime.
    pub fn new() -> Done<Signals> {
        Signals::taking(false)
    }

    /// Does the same for a command that reloads its configuration on SIGHUP: then SIGHUP is also
    /// handled under nohup(1).
    pub fn with_reload() -> Done<Signals> {
        Signals::taking(true)
    }

    fn taking(reload: bool) -> Done<Signals> {
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
        // All signals have handlers now, so pending ones are delivered, too.
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

/// Returns true if the process was started with SIGHUP ignored (proc_pid_status(5), SigIgn; bit 0
/// is signal 1).
fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|mask| mask & 1 == 1)
}

/// Descriptors that a runtime needs: for epoll, its waker, and signals.
const DESCRIPTORS: usize = 24;

/// Creates a runtime of `threads` threads. `None` means one per CPU.
pub fn runtime(threads: Option<usize>) -> Done<tokio::runtime::Runtime> {
    // tokio panics if it gets no descriptors for its signals, so their number is checked first. The
    // files are closed again before it starts.
    let files = std::fs::File::open("/dev/null")
        .and_then(|file| (1..DESCRIPTORS).map(|_| file.try_clone()).collect::<Result<Vec<_>, _>>());
    let missing = files.err().filter(|error| descriptors(&error.to_string()).is_some());
    if let Some(error) = missing {
        return Err(Failure::because("cannot start the runtime", error));
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
        .map_err(|error| Failure::because("cannot start the runtime", error))
}
