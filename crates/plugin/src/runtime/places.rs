//! Limits the number and the memory of peers' plugins in the whole process. The policy additionally
//! limits those of each connection.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Maximum number of instances of peers' plugins in a process. Each instance needs memory mappings,
/// and the kernel limits the number of mappings. The engine permits half as many instances again
/// ([`equic_vm::MAX_INSTANCES`]), so the owner's plugins can still start when peers have used up
/// this limit.
pub const MAX_OF_PEERS: usize = equic_vm::MAX_INSTANCES / 3 * 2;

/// Maximum total memory of compiled plugins and of the sandboxes of peers' plugins in a process, in
/// bytes.
pub const MAX_BYTES_OF_PEERS: usize = 640 << 20;

static TAKEN: AtomicUsize = AtomicUsize::new(0);
static BYTES: AtomicUsize = AtomicUsize::new(0);

/// A slot for one instance in the process-wide limit. Dropping it frees the slot.
#[derive(Debug)]
pub(super) struct Place {
    _memory: Held,
}

/// Memory that counts toward the process-wide limit until this value is dropped.
#[derive(Debug)]
pub(super) struct Held(usize);

impl Held {
    /// Counts the size of a compiled program toward the limit, even if that exceeds the limit.
    pub(super) fn count(bytes: usize) -> Held {
        BYTES.fetch_add(bytes, Ordering::Relaxed);
        Held(bytes)
    }

    fn take(bytes: usize) -> io::Result<Held> {
        let next = |held: usize| held.checked_add(bytes).filter(|all| *all <= MAX_BYTES_OF_PEERS);
        let taken = BYTES.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        let full = || {
            format!(
                "the plugins of peers already use all {MAX_BYTES_OF_PEERS} bytes that this process permits for them"
            )
        };
        taken.map(|_| Held(bytes)).map_err(|_| io::Error::new(io::ErrorKind::OutOfMemory, full()))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        BYTES.fetch_sub(self.0, Ordering::Relaxed);
    }
}

impl Place {
    /// Takes a slot for an instance whose sandbox has this many bytes.
    ///
    /// # Errors
    /// All slots or all memory is in use.
    pub(super) fn take(bytes: usize) -> io::Result<Place> {
        let memory = Held::take(bytes)?;
        let next = |taken| (taken < MAX_OF_PEERS).then_some(taken + 1);
        let taken = TAKEN.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        let full = || {
            format!(
                "this process already runs {MAX_OF_PEERS} plugins of peers, which is the maximum"
            )
        };
        taken
            .map(|_| Place { _memory: memory })
            .map_err(|_| io::Error::new(io::ErrorKind::OutOfMemory, full()))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        TAKEN.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Returns `true` if at most a quarter of the slots or of the memory is free.
pub(super) fn are_few() -> bool {
    TAKEN.load(Ordering::Relaxed) >= MAX_OF_PEERS / 4 * 3
        || BYTES.load(Ordering::Relaxed) >= MAX_BYTES_OF_PEERS / 4 * 3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn place_is_refused_above_the_memory_limit_of_the_process() {
        let error = Place::take(MAX_BYTES_OF_PEERS + 1).unwrap_err();
        assert!(error.to_string().contains("bytes that this process permits"), "{error}");
        assert!(Place::take(64 << 10).is_ok());
    }
}
