//! Locks, atomics and threads of this crate: those of the standard library, or loom's in models.
//!
//! `make loom` compiles the crate with `--cfg equic_loom`. The same code then uses the types of
//! [`model`], and loom runs it in every possible order of its threads, with every value that a load
//! may return (`ledger/models/`). Code that is part of a model must use the types of this module,
//! not those of `std::sync`.

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

/// Locks a mutex and ignores poisoning, because the data under these locks is consistent after
/// every statement.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
