//! Places for the plugins of peers in this process. What one connection may have is bounded by the policy; here it is what
//! all of them have together, as each instance takes memory areas of the kernel, of which a process has so many.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Instances of peers' plugins in a process at a time. The engine has half as many again for all instances
/// ([`equic_vm::MAX_INSTANCES`]): peers cannot take those of the owner's plugins.
pub const MAX_OF_PEERS: usize = equic_vm::MAX_INSTANCES / 3 * 2;

static TAKEN: AtomicUsize = AtomicUsize::new(0);

/// A place of one instance. It is free again when this is dropped.
#[derive(Debug)]
pub(super) struct Place;

impl Place {
    /// Takes a place.
    ///
    /// # Errors
    /// All of them are taken.
    pub(super) fn take() -> io::Result<Place> {
        let next = |taken| (taken < MAX_OF_PEERS).then_some(taken + 1);
        let taken = TAKEN.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        let full = || format!("the peers of this process have {MAX_OF_PEERS} plugins already");
        taken.map(|_| Place).map_err(|_| io::Error::new(io::ErrorKind::OutOfMemory, full()))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        TAKEN.fetch_sub(1, Ordering::Relaxed);
    }
}
