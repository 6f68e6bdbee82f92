//! Runs the demo, the soak test, a benchmark and the experiments of published papers from end to
//! end, each with the smallest possible size.

mod demo;
mod forged;
mod highway;
mod marked;
mod reproduce;
mod soak;

use equic_test_kit::commands as common;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Returns a lock that each test holds, because only one of them at a time may keep two CPUs busy.
fn alone() -> MutexGuard<'static, ()> {
    static STAGE: Mutex<()> = Mutex::new(());
    STAGE.lock().unwrap_or_else(PoisonError::into_inner)
}
