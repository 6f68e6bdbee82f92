//! Memory that is shared with the kernel.

use std::io;
use std::os::fd::RawFd;
use std::ptr::{NonNull, null_mut};

use nix::libc;

/// Memory by mmap(2), which begins at a page.
pub(crate) struct Mapping {
    start: NonNull<u8>,
    length: usize,
}

impl Mapping {
    /// Memory of nobody else.
    pub(crate) fn anonymous(length: usize) -> io::Result<Mapping> {
        Mapping::new(length, -1, 0, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS)
    }

    /// A ring of a socket.
    pub(crate) fn shared(length: usize, file: RawFd, offset: libc::off_t) -> io::Result<Mapping> {
        Mapping::new(length, file, offset, libc::MAP_SHARED)
    }

    fn new(length: usize, file: RawFd, offset: libc::off_t, flags: i32) -> io::Result<Mapping> {
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: no address is asked for, so that nothing is mapped over anything.
        let start = unsafe {
            libc::mmap(null_mut(), length, rights, flags | libc::MAP_POPULATE, file, offset)
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or_else(|| io::Error::other("mapped at 0"))?;
        Ok(Mapping { start, length })
    }

    /// A place in it, which has room for a `T`.
    pub(crate) fn at<T>(&self, offset: usize) -> *mut T {
        assert!(offset + size_of::<T>() <= self.length, "beyond the mapping");
        // SAFETY: the place is within the mapping.
        unsafe { self.start.as_ptr().add(offset).cast() }
    }

    /// Bytes that neither the kernel nor anybody else writes while they are borrowed.
    ///
    /// # Safety
    /// As said.
    pub(crate) unsafe fn bytes(&self, offset: usize, length: usize) -> &[u8] {
        assert!(offset + length <= self.length, "beyond the mapping");
        // SAFETY: within the mapping, which lives as long as `self`; the caller sees to the rest.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().add(offset), length) }
    }

    /// Bytes that neither the kernel nor anybody else uses while they are borrowed.
    ///
    /// # Safety
    /// As said.
    #[expect(clippy::mut_from_ref, reason = "the kernel shares the memory, not only Rust")]
    pub(crate) unsafe fn bytes_mut(&self, offset: usize, length: usize) -> &mut [u8] {
        assert!(offset + length <= self.length, "beyond the mapping");
        // SAFETY: within the mapping, which lives as long as `self`; the caller sees to the rest.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr().add(offset), length) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nobody has a reference into it that lives longer.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}
