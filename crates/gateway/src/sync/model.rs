//! Replacements for the standard library's locks and atomics in loom's models.
//!
//! An atomic of loom cannot be in mapped memory. So when an address is first accessed, this module
//! creates an atomic with the value in memory. It keeps the atomic in a table by address until the
//! mapping ends ([`forget`]). Loom requires that objects shared by threads exist before the threads
//! start. So a model must access its memory before that.

use std::any::Any;
use std::collections::{BTreeMap, HashSet};
use std::ops::{Deref, Range};
use std::sync::LockResult;

pub(crate) use loom::sync::{Condvar, Mutex, MutexGuard, atomic};
use loom::thread::ThreadId;
pub(crate) use loom::thread::{Builder, JoinHandle};

/// The loom atomics that replace the atomics in mapped memory, by address and size.
static MAPPED: std::sync::Mutex<BTreeMap<(usize, usize), Box<dyn Any + Send>>> =
    std::sync::Mutex::new(BTreeMap::new());

/// Removes the atomics of a mapping that has ended.
pub(crate) fn forget(mapping: Range<usize>) {
    let of_it = (mapping.start, 0)..(mapping.end, 0);
    let gone: Vec<_> = {
        let mut mapped = MAPPED.lock().expect("no thread panics while it holds the lock");
        let keys: Vec<_> = mapped.range(of_it).map(|(key, _)| *key).collect();
        keys.iter().filter_map(|key| mapped.remove(key)).collect()
    };
    drop(gone);
}

/// A loom atomic that can replace memory at an address.
pub(crate) trait FromPtr: Sized {
    /// Type of the atomic's value.
    type Value;

    /// Returns the loom atomic that replaces the memory at this address.
    ///
    /// # Safety
    /// The address must be valid and aligned. Its mapping must outlive the reference.
    unsafe fn from_ptr<'a>(at: *mut Self::Value) -> &'a Self;
}

macro_rules! from_ptr {
    ($($atomic:ident, $value:ident;)+) => {$(
        impl FromPtr for atomic::$atomic {
            type Value = $value;

            unsafe fn from_ptr<'a>(at: *mut $value) -> &'a Self {
                let key = (at as usize, size_of::<$value>());
                let known = |mapped: &BTreeMap<(usize, usize), Box<dyn Any + Send>>| {
                    let cell = mapped.get(&key)?.downcast_ref::<Self>().expect("each size belongs to one type");
                    Some(std::ptr::from_ref(cell))
                };
                let mut mapped = MAPPED.lock().expect("no thread panics while it holds the lock");
                let cell = known(&mapped).unwrap_or_else(|| {
                    // SAFETY: the pointer is valid and aligned, by the function's contract.
                    let now = unsafe { at.read_volatile() };
                    mapped.insert(key, Box::new(Self::new(now)));
                    known(&mapped).expect("just inserted")
                });
                // SAFETY: the atomic stays in its box until the mapping ends, and the mapping
                // outlives the reference.
                unsafe { &*cell }
            }
        }
    )+};
}

from_ptr! {
    AtomicU8, u8;
    AtomicU32, u32;
    AtomicU64, u64;
}

/// A lock for one writer or many readers. A thread that holds it for reading must not lock it for
/// reading again. If a writer waits in between, the writer and the thread would wait for each
/// other, as with the standard library's lock.
#[derive(Debug)]
pub(crate) struct RwLock<T> {
    lock: loom::sync::RwLock<T>,
    readers: std::sync::Mutex<HashSet<ThreadId>>,
}

/// Guard of a reader of a [`RwLock`].
#[derive(Debug)]
pub(crate) struct RwLockReadGuard<'a, T> {
    guard: loom::sync::RwLockReadGuard<'a, T>,
    readers: &'a std::sync::Mutex<HashSet<ThreadId>>,
}

impl<T> RwLock<T> {
    pub(crate) fn new(value: T) -> RwLock<T> {
        RwLock { lock: loom::sync::RwLock::new(value), readers: std::sync::Mutex::default() }
    }

    pub(crate) fn read(&self) -> LockResult<RwLockReadGuard<'_, T>> {
        let reader = loom::thread::current().id();
        let new =
            self.readers.lock().expect("no thread panics while it holds the lock").insert(reader);
        assert!(
            new,
            "a thread that holds the read lock locks it again, so it can wait for a writer that waits for this thread"
        );
        let guard = self.lock.read().expect("no thread panics while it holds the lock");
        Ok(RwLockReadGuard { guard, readers: &self.readers })
    }

    pub(crate) fn write(&self) -> LockResult<loom::sync::RwLockWriteGuard<'_, T>> {
        self.lock.write()
    }
}

impl<T> Deref for RwLockReadGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> Drop for RwLockReadGuard<'_, T> {
    fn drop(&mut self) {
        self.readers
            .lock()
            .expect("no thread panics while it holds the lock")
            .remove(&loom::thread::current().id());
    }
}
