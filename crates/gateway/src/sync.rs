//! Mutexes that outlive a panic.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex. A thread that panicked with it in hand left nothing half done: what is under these locks is whole
/// between any two statements.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
