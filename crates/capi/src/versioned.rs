//! Option structures of the C API that begin with their size, so that later versions of the library
//! can add fields at the end, and programs built with an older header keep working.

use std::mem::size_of;
use std::ptr;

use crate::arguments::handle;
use crate::error::{Failure, Result};

/// A structure of options whose first field is `size`, the caller's `sizeof`.
///
/// # Safety
/// The structure is `repr(C)`, its first field is a `usize`, and bytes of zero are a valid value of
/// every field.
pub(crate) unsafe trait Versioned: Copy {
    /// Name of the C function that initialises the structure.
    const INIT: &'static str;
    /// Size of the structure in the first version of the library, in bytes. No caller has a smaller
    /// structure.
    const FIRST_SIZE: usize;

    /// Returns the defaults, with this `size`.
    fn defaults(size: usize) -> Self;
}

/// Maximum size of a structure of options, in bytes. If `size` is larger, the caller did not
/// initialise the structure.
const LAST_SIZE: usize = 4096;

fn check_size<T: Versioned>(size: usize) -> Result<()> {
    if (T::FIRST_SIZE..=LAST_SIZE).contains(&size) {
        return Ok(());
    }
    Err(Failure::argument(format!(
        "`size` of the options is {size}: call {}(&options, sizeof options) first",
        T::INIT
    )))
}

/// Writes the defaults to the caller's structure.
///
/// # Safety
/// `options` must be NULL, or valid for writes of `size` bytes.
pub(crate) unsafe fn init<T: Versioned>(options: *mut T, size: usize) -> Result<()> {
    if options.is_null() {
        return Err(Failure::argument("`options` is NULL"));
    }
    check_size::<T>(size)?;
    let known = size.min(size_of::<T>());
    let defaults = T::defaults(size);
    // SAFETY: the caller's structure has `size` bytes. `known` exceeds neither `size` nor the size of
    // this library's structure.
    unsafe {
        ptr::write_bytes(options.cast::<u8>(), 0, size);
        ptr::copy_nonoverlapping((&raw const defaults).cast::<u8>(), options.cast::<u8>(), known);
    }
    Ok(())
}

/// Reads the caller's options into the structure of this version of the library.
///
/// # Safety
/// `options` must be NULL, or point to a structure that begins with `size` and has that many bytes.
pub(crate) unsafe fn read<T: Versioned>(options: *const T) -> Result<T> {
    // SAFETY: every version of the structure begins with `size`.
    let size = *unsafe { handle(options.cast::<usize>(), "options") }?;
    check_size::<T>(size)?;
    let mut known = T::defaults(size_of::<T>());
    // SAFETY: `size` bytes are readable, and at most the size of this library's structure is
    // written.
    unsafe {
        let bytes = size.min(size_of::<T>());
        ptr::copy_nonoverlapping(options.cast::<u8>(), (&raw mut known).cast::<u8>(), bytes);
    }
    // If a newer caller sets an option that this library does not know, return an error instead of
    // ignoring the option.
    for index in size_of::<T>()..size {
        // SAFETY: `index` is below `size`.
        if unsafe { options.cast::<u8>().add(index).read() } != 0 {
            return Err(Failure::argument(
                "the options have a field that this library does not know: install the version of libequic with which the program was built",
            ));
        }
    }
    Ok(known)
}
