//! Asynchronous waiting for the signals that end a command.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::{Done, Failure};

/// SIGINT, SIGTERM and SIGHUP, from now on no longer deadly.
pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Signals {
    /// Takes over the three; inside a tokio runtime.
    pub fn new() -> Done<Signals> {
        let watch = |kind| {
            signal(kind).map_err(|error| Failure::because("cannot watch for signals", error))
        };
        Ok(Signals {
            interrupt: watch(SignalKind::interrupt())?,
            terminate: watch(SignalKind::terminate())?,
            hangup: watch(SignalKind::hangup())?,
        })
    }

    /// Waits for one and gives its name.
    pub async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.hangup.recv() => "SIGHUP",
        }
    }
}

/// A runtime of `threads` threads; none: one per CPU.
pub fn runtime(threads: Option<usize>) -> Done<tokio::runtime::Runtime> {
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
