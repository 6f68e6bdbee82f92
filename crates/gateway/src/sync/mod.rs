//! Locks, atomics and threads of this crate: the standard library's, or loom's when its models are run.
//!
//! `make loom` compiles the crate with `--cfg equic_loom`. The same code then runs on [`model`]'s types, and loom plays
//! every order in which its threads can go, and every value that a load may give (`ledger/models/`). Code that takes
//! part in a model names these types, not those of `std::sync`.

#[cfg(equic_loom)]
mod model;

use std::sync::PoisonError;
#[cfg(not(equic_loom))]
pub(crate) use std::{
    sync::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, atomic},
    thread::{Builder, JoinHandle},
};

#[cfg(equic_loom)]
pub(crate) use self::model::{
    Builder, Condvar, FromPtr, JoinHandle, Mutex, MutexGuard, RwLock, RwLockReadGuard, atomic,
    forget,
};

/// Locks a mutex. A thread that panicked with it in hand left nothing half done: what is under these locks is whole
/// between any two statements.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
