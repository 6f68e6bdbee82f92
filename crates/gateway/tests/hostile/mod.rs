//! Hostile servers at the gateway's socket. Each function runs in a child process of `socket.rs`.

use std::io::Read as _;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use super::{Raw, good, with_keys};

pub(super) fn map(fd: &OwnedFd, protection: i32) -> Option<*mut u8> {
    // SAFETY: a new mapping does not affect existing memory.
    let at = unsafe {
        libc::mmap(std::ptr::null_mut(), 4096, protection, libc::MAP_SHARED, fd.as_raw_fd(), 0)
    };
    (at != libc::MAP_FAILED).then_some(at.cast())
}

/// Asserts that the copy of the keys cannot be written, even if it is opened again.
fn pry_keys(fd: &OwnedFd) {
    use std::os::unix::fs::FileExt as _;
    assert!(map(fd, libc::PROT_READ | libc::PROT_WRITE).is_none());
    let at = map(fd, libc::PROT_READ).expect("it can be read");
    // SAFETY: this is the mapping from above, and the call only changes its protection.
    let changed = unsafe { libc::mprotect(at.cast(), 4096, libc::PROT_READ | libc::PROT_WRITE) };
    assert_eq!(changed, -1, "a mapping for reading stays one");
    let mut options = std::fs::OpenOptions::new();
    let again = options.read(true).write(true).open(format!("/proc/self/fd/{}", fd.as_raw_fd()));
    let given = std::fs::File::from(fd.try_clone().unwrap());
    for file in [Some(given), again.ok()].into_iter().flatten() {
        assert!(file.write_at(&[1], 0).is_err() && file.set_len(0).is_err());
        assert!(map(&file.into(), libc::PROT_READ | libc::PROT_WRITE).is_none());
    }
}

/// Tries to write to all memory and maps that must be read-only.
pub(super) fn pry(path: &Path) {
    let raw = Raw::connect(path);
    raw.say(&with_keys(), &[]);
    let (status, _, with) = raw.hear().unwrap();
    assert_eq!((status, with.len()), (0, 7));
    assert!(map(&with[0], libc::PROT_READ | libc::PROT_WRITE).is_some(), "its own ledger");
    pry_keys(&with[6]);
    for fd in &with[1..6] {
        assert!(map(fd, libc::PROT_READ | libc::PROT_WRITE).is_none());
        if let Some(at) = map(fd, libc::PROT_READ) {
            // SAFETY: this is the mapping from above, and the call only changes its protection.
            let changed =
                unsafe { libc::mprotect(at.cast(), 4096, libc::PROT_READ | libc::PROT_WRITE) };
            assert_eq!(changed, -1, "a mapping for reading stays one");
        }
        let (key, value) = ([0u8; 64], [0u8; 16384]);
        // SAFETY: key and value are larger than those of any of these maps.
        let (update, delete) = unsafe {
            let (raw, key) = (fd.as_raw_fd(), key.as_ptr().cast());
            let update = libbpf_sys::bpf_map_update_elem(raw, key, value.as_ptr().cast(), 0);
            (update, libbpf_sys::bpf_map_delete_elem(raw, key))
        };
        assert!(update == -libc::EPERM && delete == -libc::EPERM, "{update} {delete}");
        let again = std::fs::OpenOptions::new()
            .write(true)
            .open(format!("/proc/self/fd/{}", fd.as_raw_fd()));
        assert!(again.is_err(), "nor can it be opened again for writing");
        // Pinning must fail, because a user with write access to the pin could open the map for
        // writing.
        let name = std::ffi::CString::new(format!(
            "/sys/fs/bpf/pried{}-{}",
            std::process::id(),
            fd.as_raw_fd()
        ))
        .unwrap();
        // SAFETY: the name is NUL-terminated and valid during the call.
        let pinned = unsafe { libbpf_sys::bpf_obj_pin(fd.as_raw_fd(), name.as_ptr()) };
        assert!(pinned == -libc::EACCES || pinned == -libc::EPERM, "it has a name: {pinned}");
    }
    println!("HARMLESS");
}

/// Connects as fast as possible, mostly to send nothing or garbage, and joins as often as possible.
pub(super) fn flood(path: &Path) {
    let mut held = Vec::new();
    println!("READY");
    for round in 0u32.. {
        let raw = Raw::connect(path);
        match round % 4 {
            0 => held.push(raw),
            1 => raw.say(&good()[..20], &[]),
            2 => {
                raw.say(&good(), &[]);
                held.push(raw);
            }
            _ => drop(raw),
        }
        if held.len() > 500 {
            held.clear();
        }
    }
}

/// Joins, and writes 0xff to every byte of the ledger's first page.
pub(super) fn lie(path: &Path) {
    let raw = Raw::connect(path);
    raw.say(&good(), &[]);
    let (_, _, with) = raw.hear().unwrap();
    let header = map(&with[0], libc::PROT_READ | libc::PROT_WRITE).unwrap();
    // SAFETY: `header` is a page that is mapped for writing.
    unsafe { std::ptr::write_bytes(header, 0xff, 4096) };
    println!("READY");
    let _ = std::io::stdin().read(&mut [0; 1]);
}
