//! A program's memory: a power of two of bytes that are mapped for it alone, with guard pages around.

#![allow(unsafe_code, reason = "mapping memory, and slices of it")]

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::memory::SLACK;

/// Bytes before and after that nobody may touch. Masked addresses never come there; a fault of the compiler
/// would.
const GUARD: usize = 64 << 10;
/// Bytes after the sandbox that are mapped with it, for `SLACK`: a page, of whatever size up to this.
const TAIL: usize = 64 << 10;

/// Instances of programs in a process at a time. The memory of each is three of the kernel's memory areas, of which a process has 65,530 unless it
/// is set otherwise (`vm.max_map_count`). Where these are used up no allocator gets memory any more, and the process is
/// aborted: whoever could have many programs run would decide about that.
pub const MAX_INSTANCES: usize = 12_288;

/// A place among the instances of the process. It is free again when this is dropped.
#[derive(Debug)]
struct Place;

/// Places that are taken.
static TAKEN: AtomicUsize = AtomicUsize::new(0);

impl Place {
    fn take() -> io::Result<Place> {
        let next = |taken| (taken < MAX_INSTANCES).then_some(taken + 1);
        let taken = TAKEN.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        let full = || format!("this process has {MAX_INSTANCES} instances of programs already");
        taken.map(|_| Place).map_err(|_| io::Error::new(io::ErrorKind::OutOfMemory, full()))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        TAKEN.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Mapped memory.
#[derive(Debug)]
pub(crate) struct Sandbox {
    mapping: NonNull<u8>,
    /// Bytes between the guards that programs address.
    size: usize,
    /// Given back after the memory, as fields are dropped after `drop` has run.
    _place: Place,
}

// SAFETY: the mapping belongs to this value alone and is not tied to the thread that made it.
unsafe impl Send for Sandbox {}
// SAFETY: a shared reference gives out its address and size, and no access to what is in it.
unsafe impl Sync for Sandbox {}

impl Sandbox {
    /// Maps `size` bytes of zeros, a power of two and of whole pages.
    ///
    /// # Errors
    /// The system has no memory; or the process has [`MAX_INSTANCES`].
    pub(crate) fn new(size: usize) -> io::Result<Sandbox> {
        let place = Place::take()?;
        let whole = whole(size);
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory that is in use.
        let mapping = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                whole,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if mapping == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let mapping = NonNull::new(mapping.cast::<u8>()).ok_or_else(io::Error::last_os_error)?;
        let sandbox = Sandbox { mapping, size, _place: place };
        // SAFETY: the range is within the mapping that was just made, and nothing refers to it yet.
        let changed = unsafe {
            libc::mprotect(
                sandbox.base().as_ptr().cast(),
                size + TAIL,
                libc::PROT_READ | libc::PROT_WRITE,
            )
        };
        // Dropping `sandbox` unmaps it.
        if changed == 0 { Ok(sandbox) } else { Err(io::Error::last_os_error()) }
    }

    /// The first byte that programs address.
    pub(crate) fn base(&self) -> NonNull<u8> {
        // SAFETY: the guard is the mapping's beginning, so the result is within it.
        unsafe { self.mapping.add(GUARD) }
    }

    /// Bytes that programs address, and their slack.
    pub(crate) fn len(&self) -> usize {
        self.size + SLACK
    }

    /// Bytes that programs address.
    #[cfg_attr(
        not(any(target_arch = "x86_64", target_arch = "aarch64")),
        allow(dead_code, reason = "for compiled code")
    )]
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// The sandbox and its slack, to be written.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: `len` bytes from `base` are mapped readable and writable (SLACK is less than TAIL), begin as
        // zeros, and `&mut self` means that nobody else refers to them: a program runs under `&mut` too.
        unsafe { std::slice::from_raw_parts_mut(self.base().as_ptr(), self.len()) }
    }
}

/// Bytes of the whole mapping.
fn whole(size: usize) -> usize {
    GUARD + size + TAIL + GUARD
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, of this length, and nothing refers to it any more.
        unsafe { libc::munmap(self.mapping.as_ptr().cast(), whole(self.size)) };
    }
}
