//! Memory that other processes get to read by a descriptor, and that only this process can write to.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use super::check;
use super::region::Shared;
use crate::abi::Pod;

/// Makes zeroed memory of the size of a `T`. The mapping can be written; the descriptor can only be read, by whoever
/// gets it, in whatever way it is opened again (`F_SEAL_FUTURE_WRITE`). Takes no privilege.
pub(crate) fn sealed<T: Pod>() -> io::Result<(OwnedFd, Shared<T>)> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: a NUL-terminated name.
    let create = |flags| check(unsafe { libc::memfd_create(c"equic".as_ptr(), flags) });
    // Kernels before 6.3 do not know the flag; newer ones may want it.
    let raw =
        create(flags | libc::MFD_NOEXEC_SEAL).or_else(|error| match error.raw_os_error() {
            Some(libc::EINVAL) => create(flags),
            _ => Err(error),
        })?;
    // SAFETY: a new descriptor that nobody else owns.
    let file = File::from(unsafe { OwnedFd::from_raw_fd(raw) });
    file.set_len(size_of::<T>() as u64)?;
    let shared = Shared::of_map(file.as_fd(), true)?;
    let seals =
        libc::F_SEAL_FUTURE_WRITE | libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    // SAFETY: a command that takes an integer, and an open descriptor.
    check(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) })?;
    Ok((file.into(), shared))
}
