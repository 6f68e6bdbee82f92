//! The sandbox: the memory of a program. It is a private mapping between guard pages, and its size
//! is a power of two.

#![allow(unsafe_code, reason = "maps memory and makes slices of it")]

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::memory::SLACK;

/// Number of inaccessible bytes before and after the sandbox. Masked addresses never reach them,
/// but a bug in the compiler might.
const GUARD: usize = 64 << 10;
/// Number of mapped bytes after the sandbox, of which `SLACK` bytes are used. They are a whole
/// number of pages for every page size up to this value.
const TAIL: usize = 64 << 10;

/// Maximum number of instances in a process. The memory of an instance takes three of the kernel's
/// memory areas. By default, a process can have 65,530 such areas (`vm.max_map_count`). If all are
/// used up, allocations fail and the process aborts. Without this limit, anyone who can make the
/// process create many instances could cause that.
pub const MAX_INSTANCES: usize = 12_288;

/// Counts one instance of the process against the maximum, until the value is dropped.
#[derive(Debug)]
struct Place;

/// Number of instances that the process has now.
static TAKEN: AtomicUsize = AtomicUsize::new(0);

impl Place {
    fn take() -> io::Result<Place> {
        let next = |taken| (taken < MAX_INSTANCES).then_some(taken + 1);
        let taken = TAKEN.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        let full = || {
            format!(
                "this process already runs {MAX_INSTANCES} instances of programs, which is the limit"
            )
        };
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
    /// Size in bytes of the part that programs can address.
    size: usize,
    /// Counts this instance until its memory is unmapped, because fields are dropped after `drop`
    /// has run.
    _place: Place,
}

// SAFETY: this value owns the mapping, which is not tied to the thread that created it.
unsafe impl Send for Sandbox {}
// SAFETY: a shared reference gives access to the address and size, but not to the content.
unsafe impl Sync for Sandbox {}

impl Sandbox {
    /// Creates a sandbox of `size` bytes, all of them zero. `size` must be a power of two and a
    /// multiple of the page size.
    ///
    /// # Errors
    /// Fails if the system has no memory, or if the process already has [`MAX_INSTANCES`]
    /// instances.
    pub(crate) fn new(size: usize) -> io::Result<Sandbox> {
        let place = Place::take()?;
        let whole = whole(size);
        // SAFETY: the kernel chooses the address of the new mapping, so it overlaps no memory in
        // use.
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
        // SAFETY: the range is within the mapping that was just created, and nothing refers to the
        // mapping yet.
        let changed = unsafe {
            libc::mprotect(
                sandbox.base().as_ptr().cast(),
                size + TAIL,
                libc::PROT_READ | libc::PROT_WRITE,
            )
        };
        // If the call failed, `sandbox` is dropped here, which unmaps it.
        if changed == 0 { Ok(sandbox) } else { Err(io::Error::last_os_error()) }
    }

    /// Address of the first byte that programs can access.
    pub(crate) fn base(&self) -> NonNull<u8> {
        // SAFETY: the mapping begins with the guard, so the result is within it.
        unsafe { self.mapping.add(GUARD) }
    }

    /// Size of the sandbox and its slack, in bytes.
    pub(crate) fn len(&self) -> usize {
        self.size + SLACK
    }

    /// Size of the sandbox in bytes.
    #[cfg_attr(
        not(any(target_arch = "x86_64", target_arch = "aarch64")),
        allow(dead_code, reason = "only compiled code uses it")
    )]
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// The sandbox and its slack, for writing.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: `len` bytes from `base` are mapped readable and writable (SLACK is less than
        // TAIL) and initialised with zeros. `&mut self` guarantees that no other reference exists,
        // because a program also runs with `&mut`.
        unsafe { std::slice::from_raw_parts_mut(self.base().as_ptr(), self.len()) }
    }
}

/// Returns the size of the whole mapping, including the guard pages, in bytes.
fn whole(size: usize) -> usize {
    GUARD + size + TAIL + GUARD
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        // SAFETY: this value owns the mapping of this length, and nothing refers to it any longer.
        unsafe { libc::munmap(self.mapping.as_ptr().cast(), whole(self.size)) };
    }
}
