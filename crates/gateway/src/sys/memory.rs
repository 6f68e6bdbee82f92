//! Memory that only this process can write, and that other processes can read through a descriptor.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use super::check;
use super::region::Shared;
use crate::abi::Pod;

/// Creates zeroed memory with the size of a `T`. The mapping is writable. The descriptor is
/// read-only for every holder, and opening it again does not change that (`F_SEAL_FUTURE_WRITE`).
/// Needs no privilege.
pub(crate) fn sealed<T: Pod>() -> io::Result<(OwnedFd, Shared<T>)> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: the name is NUL-terminated.
    let create = |flags| check(unsafe { libc::memfd_create(c"equic".as_ptr(), flags) });
    // Kernels before 6.3 do not know MFD_NOEXEC_SEAL, but newer ones may require it.
    let raw =
        create(flags | libc::MFD_NOEXEC_SEAL).or_else(|error| match error.raw_os_error() {
            Some(libc::EINVAL) => create(flags),
            _ => Err(error),
        })?;
    // SAFETY: the kernel just returned this descriptor, and nothing else owns it.
    let file = File::from(unsafe { OwnedFd::from_raw_fd(raw) });
    file.set_len(size_of::<T>() as u64)?;
    let shared = Shared::of_map(file.as_fd(), true)?;
    let seals =
        libc::F_SEAL_FUTURE_WRITE | libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    // SAFETY: the command takes an integer, and the descriptor is open.
    check(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) })?;
    Ok((file.into(), shared))
}
