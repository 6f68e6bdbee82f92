//! Memory that the XDP program and several processes read and write concurrently.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;

use crate::abi::Pod;

/// A mapping that is unmapped when it is dropped. All accesses use raw pointers, atomics or
/// volatile reads, because other processes may change the memory at any time.
#[derive(Debug)]
pub(crate) struct Region {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to this value and is valid in any thread until it is dropped. No
// reference to its bytes is handed out.
unsafe impl Send for Region {}
// SAFETY: the mapping is valid in any thread, and all users access it with atomic or volatile
// operations.
unsafe impl Sync for Region {}

impl Region {
    /// Maps the first `len` bytes of the values of an array map that was created with
    /// `BPF_F_MMAPABLE`.
    pub(crate) fn of_map(map: BorrowedFd<'_>, len: usize, writable: bool) -> io::Result<Region> {
        let write = if writable { libc::PROT_WRITE } else { 0 };
        Region::map(len, libc::PROT_READ | write, libc::MAP_SHARED, map.as_raw_fd(), 0)
    }

    /// Maps `len` bytes of a ring buffer, beginning at `offset`. Both must be multiples of the page
    /// size.
    pub(crate) fn of_ring(
        map: BorrowedFd<'_>,
        offset: usize,
        len: usize,
        writable: bool,
    ) -> io::Result<Region> {
        let write = if writable { libc::PROT_WRITE } else { 0 };
        Region::map(len, libc::PROT_READ | write, libc::MAP_SHARED, map.as_raw_fd(), offset)
    }

    /// Maps zeroed memory that is not shared with other processes.
    pub(crate) fn anonymous(len: usize) -> io::Result<Region> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        Region::map(len, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
    }

    fn map(len: usize, protection: i32, flags: i32, fd: i32, offset: usize) -> io::Result<Region> {
        let offset = libc::off_t::try_from(offset).map_err(io::Error::other)?;
        // SAFETY: the kernel chooses the address of the new mapping, so no existing memory is
        // affected.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, fd, offset) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or_else(io::Error::last_os_error)?;
        Ok(Region { start, len })
    }

    /// Returns a pointer to the `T` at byte `offset`.
    ///
    /// # Panics
    /// Panics if the `T` would not be inside the mapping, or would not be aligned. Both are bugs of
    /// this library.
    pub(crate) fn at<T: Pod>(&self, offset: usize) -> *mut T {
        let end = offset.checked_add(size_of::<T>());
        assert!(end.is_some_and(|end| end <= self.len), "offset {offset} is outside the mapping");
        // SAFETY: `offset` is inside the mapping, as the assertion has just checked.
        let pointer = unsafe { self.start.as_ptr().add(offset) }.cast::<T>();
        assert!(pointer.is_aligned(), "offset {offset} is not aligned");
        pointer
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        #[cfg(equic_loom)]
        crate::sync::forget(self.start.addr().get()..self.start.addr().get() + self.len);
        // SAFETY: `map` created exactly this mapping, and nothing borrows from it.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// A mapped global variable of the XDP program: one `T` at the start of a mapping.
#[derive(Debug)]
pub(crate) struct Shared<T> {
    region: Region,
    of: std::marker::PhantomData<fn() -> T>,
}

impl<T: Pod> Shared<T> {
    pub(crate) fn of_map(map: BorrowedFd<'_>, writable: bool) -> io::Result<Shared<T>> {
        let region = Region::of_map(map, size_of::<T>(), writable)?;
        Ok(Shared { region, of: std::marker::PhantomData })
    }

    pub(crate) fn anonymous() -> io::Result<Shared<T>> {
        let region = Region::anonymous(size_of::<T>())?;
        Ok(Shared { region, of: std::marker::PhantomData })
    }

    pub(crate) fn pointer(&self) -> *mut T {
        self.region.at(0)
    }

    /// Number of 8-byte words in a value.
    const WORDS: usize = {
        assert!(size_of::<T>().is_multiple_of(8), "global data must consist of whole 8-byte words");
        size_of::<T>() / 8
    };

    fn word(&self, index: usize) -> *mut u64 {
        self.region.at(index * 8)
    }

    /// Returns a copy of the value. A field that is written during the call has its old or its new
    /// value. No word is a mix of both.
    pub(crate) fn read(&self) -> T {
        let mut copy = MaybeUninit::<T>::uninit();
        for index in 0..Self::WORDS {
            // SAFETY: the source is valid and aligned (`Region::at`), and the target is inside
            // `copy`.
            unsafe {
                let word = self.word(index).read_volatile();
                copy.as_mut_ptr().cast::<u64>().add(index).write_unaligned(word);
            }
        }
        // SAFETY: every byte was written, and every bit pattern is a valid `T`.
        unsafe { copy.assume_init() }
    }

    /// Stores a whole value. Must be called before the XDP program or other processes read it. On a
    /// read-only mapping, the store faults (SIGSEGV).
    pub(crate) fn write(&self, value: &T) {
        for index in 0..Self::WORDS {
            // SAFETY: the source is inside `value`. The target is valid, aligned and writable.
            unsafe {
                let word = std::ptr::from_ref(value).cast::<u64>().add(index).read_unaligned();
                self.word(index).write_volatile(word);
            }
        }
    }

    /// Copies the value of `other` into this one, word by word.
    pub(crate) fn copy_from(&self, other: &Shared<T>) {
        for index in 0..Self::WORDS {
            // SAFETY: both pointers are valid and aligned (`Region::at`), and this mapping is
            // writable.
            unsafe { self.word(index).write_volatile(other.word(index).read_volatile()) };
        }
    }
}

/// Returns an atomic view of one field: `atomic!(AtomicU64, pointer, field)`.
macro_rules! atomic {
    ($atomic:ident, $pointer:expr, $($field:tt)+) => {{
        #[cfg(equic_loom)]
        use $crate::sync::FromPtr;
        let pointer = $pointer;
        // SAFETY: the pointer comes from `Region::at`. So it is valid and aligned as long as the
        // region exists, which the caller borrows. All other accesses to the field are atomic, too
        // (the XDP program uses plain aligned word accesses).
        unsafe { $crate::sync::atomic::$atomic::from_ptr((&raw mut (*pointer).$($field)+).cast()) }
    }};
}
pub(crate) use atomic;

/// Stores the two words of a rate. The XDP program reads the cost first. The order of the stores
/// makes sure that it never combines the cost of an enabled rate with the burst of a disabled one.
macro_rules! store_rate {
    ($live:expr, $field:ident $([$at:expr])?, $rate:expr) => {{
        let rate: $crate::abi::equic_rate = $rate;
        let cost = $crate::sys::region::atomic!(AtomicU64, $live, $field $([$at])? .cost_ns);
        let burst = $crate::sys::region::atomic!(AtomicU64, $live, $field $([$at])? .burst_ns);
        if rate.cost_ns == 0 {
            cost.store(0, std::sync::atomic::Ordering::Release);
        } else {
            burst.store(rate.burst_ns, std::sync::atomic::Ordering::Release);
            cost.store(rate.cost_ns, std::sync::atomic::Ordering::Release);
        }
    }};
}
pub(crate) use store_rate;
