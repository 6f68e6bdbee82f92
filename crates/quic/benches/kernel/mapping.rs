//! Memory that is shared with the kernel.

use std::io;
use std::os::fd::RawFd;
use std::ptr::{NonNull, null_mut};

use nix::libc;

/// Memory from mmap(2), which begins at a page boundary.
pub(crate) struct Mapping {
    start: NonNull<u8>,
    length: usize,
}

impl Mapping {
    /// Maps `length` bytes of private memory.
    pub(crate) fn anonymous(length: usize) -> io::Result<Mapping> {
        Mapping::new(length, -1, 0, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS)
    }

    /// Maps a ring of a socket.
    pub(crate) fn shared(length: usize, file: RawFd, offset: libc::off_t) -> io::Result<Mapping> {
        Mapping::new(length, file, offset, libc::MAP_SHARED)
    }

    fn new(length: usize, file: RawFd, offset: libc::off_t, flags: i32) -> io::Result<Mapping> {
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: no address is requested, so the call replaces no other mapping.
        let start = unsafe {
            libc::mmap(null_mut(), length, rights, flags | libc::MAP_POPULATE, file, offset)
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or_else(|| io::Error::other("mapped at 0"))?;
        Ok(Mapping { start, length })
    }

    /// Returns a pointer to an offset in the mapping.
    ///
    /// # Panics
    /// Panics if there is no room for a `T` at the offset.
    pub(crate) fn at<T>(&self, offset: usize) -> *mut T {
        assert!(offset + size_of::<T>() <= self.length, "beyond the mapping");
        // SAFETY: the offset is within the mapping.
        unsafe { self.start.as_ptr().add(offset).cast() }
    }

    /// Returns `length` bytes at an offset.
    ///
    /// # Panics
    /// Panics if the bytes are not all within the mapping.
    ///
    /// # Safety
    /// Neither the kernel nor other code may write the bytes while they are borrowed.
    pub(crate) unsafe fn bytes(&self, offset: usize, length: usize) -> &[u8] {
        assert!(offset + length <= self.length, "beyond the mapping");
        // SAFETY: the bytes are within the mapping, which lives as long as `self`. The caller
        // ensures the rest.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().add(offset), length) }
    }

    /// Returns `length` bytes at an offset for writing.
    ///
    /// # Panics
    /// Panics if the bytes are not all within the mapping.
    ///
    /// # Safety
    /// Neither the kernel nor other code may use the bytes while they are borrowed.
    #[expect(clippy::mut_from_ref, reason = "the kernel shares the memory, not only Rust")]
    pub(crate) unsafe fn bytes_mut(&self, offset: usize, length: usize) -> &mut [u8] {
        assert!(offset + length <= self.length, "beyond the mapping");
        // SAFETY: the bytes are within the mapping, which lives as long as `self`. The caller
        // ensures the rest.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr().add(offset), length) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this value owns the mapping, and no reference into it outlives this value.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}
