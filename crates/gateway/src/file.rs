//! Reads files that an operator names, without ever blocking.
//!
//! A FIFO waits for a writer, a terminal waits for input, and some devices have no end. A gateway
//! that blocks protects nothing. So this module reads only regular files, up to a maximum length
//! that the caller gives.
#![forbid(unsafe_code)]

use std::fs::{File, FileType, Metadata, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::Path;

/// Reads a regular file of at most `longest` bytes. Symbolic links are followed.
///
/// # Errors
/// Returns [`io::ErrorKind::InvalidInput`] if it is not a regular file,
/// [`io::ErrorKind::FileTooLarge`] if it is longer than `longest`, and otherwise the system's
/// error.
pub fn read_regular(path: &Path, longest: u64) -> io::Result<Vec<u8>> {
    let (file, metadata) = open_regular(path, longest)?;
    let mut bytes = Vec::with_capacity(usize::try_from(metadata.len()).unwrap_or(0));
    file.take(longest.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > longest { Err(too_long(longest)) } else { Ok(bytes) }
}

/// Opens a regular file of at most `longest` bytes. Fails like [`read_regular`].
pub(crate) fn open_regular(path: &Path, longest: u64) -> io::Result<(File, Metadata)> {
    // This is checked before the file is opened, because opening a device can have side effects.
    check(&std::fs::metadata(path)?, longest)?;
    let mut options = OpenOptions::new();
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_CLOEXEC;
    let file: File = options.read(true).custom_flags(flags).open(path)?;
    // The opened file is checked again, because another file may have replaced the first one in
    // between.
    let metadata = file.metadata()?;
    check(&metadata, longest)?;
    Ok((file, metadata))
}

/// Reads a text file. Otherwise it does the same as [`read_regular`].
///
/// # Errors
/// Returns the errors of [`read_regular`], and [`io::ErrorKind::InvalidData`] if the file is not
/// UTF-8.
pub fn read_regular_text(path: &Path, longest: u64) -> io::Result<String> {
    let bytes = read_regular(path, longest)?;
    String::from_utf8(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

fn check(metadata: &Metadata, longest: u64) -> io::Result<()> {
    if !metadata.is_file() {
        let what = kind(metadata.file_type());
        let why = format!("the path names {what}: give the path of a regular file");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    if metadata.len() > longest { Err(too_long(longest)) } else { Ok(()) }
}

fn too_long(longest: u64) -> io::Error {
    let why = match longest >> 20 {
        0 => format!("the file is longer than {longest} bytes, which is the maximum"),
        megabytes => format!("the file is longer than {megabytes} MiB, which is the maximum"),
    };
    io::Error::new(io::ErrorKind::FileTooLarge, why)
}

fn kind(kind: FileType) -> &'static str {
    if kind.is_dir() {
        "a directory"
    } else if kind.is_fifo() {
        "a FIFO"
    } else if kind.is_socket() {
        "a socket"
    } else if kind.is_char_device() || kind.is_block_device() {
        "a device"
    } else {
        "a special file"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_that_is_not_regular_or_too_long_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("file"), "12345").unwrap();
        std::os::unix::fs::symlink(at("file"), at("link")).unwrap();
        nix::unistd::mkfifo(&at("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        assert_eq!(read_regular(&at("file"), 5).unwrap(), b"12345");
        assert_eq!(read_regular_text(&at("link"), 5).unwrap(), "12345");
        let refused = |path: &Path| read_regular(path, 4).unwrap_err();
        for (path, kind) in [
            (at("fifo"), "a FIFO"),
            (at("socket"), "a socket"),
            (folder.path().to_owned(), "a directory"),
            ("/dev/zero".into(), "a device"),
        ] {
            let error = refused(&path);
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
            assert!(error.to_string().contains(kind), "{error}");
        }
        assert_eq!(
            refused(&at("file")).to_string(),
            "the file is longer than 4 bytes, which is the maximum"
        );
        assert_eq!(refused(&at("none")).kind(), io::ErrorKind::NotFound);
        std::fs::write(at("file"), [0xff]).unwrap();
        assert!(read_regular_text(&at("file"), 5).is_err());
    }
}
