//! Reads files that another program may control. Reading never blocks and stops at a maximum
//! length.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Reads a regular file of at most `most` bytes. The path may be a symbolic link.
pub(crate) fn read_regular(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    check(&fs::metadata(path)?, most)?;
    read(open(path, 0)?, most)
}

/// Reads like [`read_regular`], but refuses a symbolic link.
pub(crate) fn read_regular_here(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    check(&fs::symlink_metadata(path)?, most)?;
    read(open(path, libc::O_NOFOLLOW)?, most)
}

/// Opens a file for reading. Opening a FIFO does not wait for a writer.
fn open(path: &Path, flags: libc::c_int) -> io::Result<File> {
    let flags = flags | libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_CLOEXEC;
    OpenOptions::new().read(true).custom_flags(flags).open(path)
}

fn read(file: File, most: u64) -> io::Result<Vec<u8>> {
    // Check the opened file again, because the path may name another file than before.
    check(&file.metadata()?, most)?;
    let mut bytes = Vec::new();
    file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most { Err(too_long(most)) } else { Ok(bytes) }
}

fn check(found: &Metadata, most: u64) -> io::Result<()> {
    if !found.is_file() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "the path does not name a regular file",
        ));
    }
    if found.len() > most { Err(too_long(most)) } else { Ok(()) }
}

fn too_long(most: u64) -> io::Error {
    io::Error::new(
        io::ErrorKind::FileTooLarge,
        format!("the file has more than {most} bytes, which is the maximum"),
    )
}
