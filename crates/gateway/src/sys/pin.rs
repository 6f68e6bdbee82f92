//! Creates and opens pins in a BPF file system.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use crate::sys::check;

fn c_path(path: &Path) -> io::Result<CString> {
    Ok(CString::new(path.as_os_str().as_bytes())?)
}

/// Returns true if this path is in a BPF file system.
pub(crate) fn is_bpffs(path: &Path) -> io::Result<bool> {
    Ok(nix::sys::statfs::statfs(path)?.filesystem_type() == nix::sys::statfs::BPF_FS_MAGIC)
}

/// Pins a program, map or link. An older pin with the same name is replaced atomically.
pub(crate) fn pin(fd: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
    let mut fresh = path.as_os_str().to_owned();
    fresh.push("_new");
    let fresh = Path::new(&fresh);
    match std::fs::remove_file(fresh) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let name = c_path(fresh)?;
    // SAFETY: the name is NUL-terminated and valid during the call.
    check(unsafe { libbpf_sys::bpf_obj_pin(fd.as_raw_fd(), name.as_ptr()) })?;
    std::fs::rename(fresh, path)
}

/// Opens the object that is pinned at this path.
pub(crate) fn get(path: &Path) -> io::Result<OwnedFd> {
    let name = c_path(path)?;
    // SAFETY: the name is NUL-terminated and valid during the call.
    let fd = check(unsafe { libbpf_sys::bpf_obj_get(name.as_ptr()) })?;
    // SAFETY: the kernel just returned this descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
