//! Opens the file that a request's path names. Files outside of the root directory are never
//! opened.
//!
//! The kernel enforces this: openat2(2) with RESOLVE_BENEATH rejects `..`, absolute links, and
//! links that lead outside. So there is no race between a check and opening the file.

use std::ffi::OsString;
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};

const INDEX: &str = "index.html";

/// The directory whose files are served. It is kept open.
pub(super) struct Root {
    directory: Arc<File>,
}

/// The result of looking up the path of a request.
pub(super) enum FileLookup {
    File {
        file: File,
        identity: Identity,
        length: u64,
        content_type: &'static str,
    },
    /// A directory that was requested without the slash at the end.
    Directory,
    /// There is nothing to serve: the file does not exist, is not readable, is a device, or is
    /// outside of the root.
    Nothing,
    /// The path has an invalid percent-encoding.
    Malformed,
    Failed(io::Error),
}

/// Identifies a file by device, inode, length, and time of the last change. If a file is opened
/// again, it must still be the same one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Identity([u64; 3], [i64; 2]);

impl Identity {
    fn of(metadata: &Metadata) -> Identity {
        Identity(
            [metadata.dev(), metadata.ino(), metadata.len()],
            [metadata.mtime(), metadata.mtime_nsec()],
        )
    }
}

impl Root {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let directory = OpenOptions::new()
            .read(true)
            .custom_flags((OFlag::O_DIRECTORY | OFlag::O_CLOEXEC).bits())
            .open(path)?;
        // Fails now, and not at the first request, if the kernel has no openat2.
        open_beneath(&directory, Path::new("."))?;
        Ok(Self { directory: Arc::new(directory) })
    }

    /// Finds the file for the path of a URL. The path begins with a slash and is percent-encoded.
    pub(super) async fn find(&self, path: &str) -> FileLookup {
        let (path, slash) = match relative(path) {
            Ok(Some(parts)) => parts,
            Ok(None) => return FileLookup::Nothing,
            Err(Malformed) => return FileLookup::Malformed,
        };
        let directory = Arc::clone(&self.directory);
        match tokio::task::spawn_blocking(move || look_up(&directory, path, slash)).await {
            Ok(found) => found,
            Err(error) => FileLookup::Failed(io::Error::other(error)),
        }
    }
}

fn look_up(root: &File, mut path: PathBuf, slash: bool) -> FileLookup {
    if slash {
        path.push(INDEX);
    }
    match open_beneath(root, &path) {
        Ok((file, metadata)) if metadata.is_file() => FileLookup::File {
            file,
            identity: Identity::of(&metadata),
            length: metadata.len(),
            content_type: content_type(&path),
        },
        Ok((_, metadata)) if metadata.is_dir() && !slash => FileLookup::Directory,
        Ok(_) => FileLookup::Nothing,
        Err(error) => match error {
            // EXDEV means that the path leaves the root, ENXIO that it is a socket or a FIFO, and
            // EAGAIN that a directory was renamed during the lookup.
            Errno::ENOENT
            | Errno::ENOTDIR
            | Errno::EACCES
            | Errno::EXDEV
            | Errno::ELOOP
            | Errno::ENAMETOOLONG
            | Errno::ENXIO
            | Errno::EAGAIN => FileLookup::Nothing,
            other => FileLookup::Failed(other.into()),
        },
    }
}

fn open_beneath(root: &File, path: &Path) -> Result<(File, Metadata), Errno> {
    let how = OpenHow::new()
        // Without O_NONBLOCK, opening a FIFO would wait for a writer.
        .flags(OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK | OFlag::O_NOCTTY)
        .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_MAGICLINKS);
    let file = File::from(openat2(root, path, how)?);
    let metadata = file
        .metadata()
        .map_err(|error| error.raw_os_error().map_or(Errno::EIO, Errno::from_raw))?;
    Ok((file, metadata))
}

#[derive(Debug, PartialEq)]
struct Malformed;

/// Decodes the path of a URL. Returns the path relative to the root, and whether it ends in a
/// slash. Returns `None` if no file can have that name, because a segment is empty, is `.` or `..`,
/// or contains an encoded slash or NUL.
fn relative(path: &str) -> Result<Option<(PathBuf, bool)>, Malformed> {
    let Some(path) = path.strip_prefix('/') else { return Ok(None) };
    let mut segments: Vec<&str> = path.split('/').collect();
    let slash = segments.last().is_some_and(|last| last.is_empty());
    if slash {
        segments.pop();
    }
    let mut relative = PathBuf::new();
    for segment in segments {
        let name = decode(segment)?;
        if matches!(name.as_slice(), b"" | b"." | b"..")
            || name.iter().any(|b| matches!(b, b'/' | 0))
        {
            return Ok(None);
        }
        relative.push(OsString::from_vec(name));
    }
    Ok(Some((relative, slash)))
}

/// Decodes a percent-encoded segment (RFC 3986 s.2.1). Any invalid encoding is an error.
fn decode(segment: &str) -> Result<Vec<u8>, Malformed> {
    let mut decoded = Vec::with_capacity(segment.len());
    let mut bytes = segment.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        let mut digit = || bytes.next().and_then(|b| char::from(b).to_digit(16)).ok_or(Malformed);
        decoded.push((digit()? << 4 | digit()?) as u8);
    }
    Ok(decoded)
}

fn content_type(path: &Path) -> &'static str {
    let extension = path.extension().and_then(|e| e.to_str()).unwrap_or("").to_ascii_lowercase();
    match extension.as_str() {
        "html" | "htm" => "text/html; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "txt" | "log" | "toml" => "text/plain; charset=utf-8",
        "md" => "text/markdown; charset=utf-8",
        "csv" => "text/csv; charset=utf-8",
        "json" | "map" => "application/json",
        "xml" => "application/xml",
        "pdf" => "application/pdf",
        "wasm" => "application/wasm",
        "zip" => "application/zip",
        "gz" => "application/gzip",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "webp" => "image/webp",
        "avif" => "image/avif",
        "ico" => "image/vnd.microsoft.icon",
        "woff2" => "font/woff2",
        "woff" => "font/woff",
        "mp4" => "video/mp4",
        "webm" => "video/webm",
        "mp3" => "audio/mpeg",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> Option<(String, bool)> {
        let (path, slash) = relative(text).unwrap()?;
        Some((path.to_str().unwrap().to_owned(), slash))
    }

    #[test]
    fn file_paths_decode_to_names_below_the_root() {
        assert_eq!(path("/"), Some((String::new(), true)));
        assert_eq!(path("/a/b.txt"), Some(("a/b.txt".into(), false)));
        assert_eq!(path("/a/"), Some(("a".into(), true)));
        assert_eq!(path("/sp%20ace%2Etxt"), Some(("sp ace.txt".into(), false)));
        assert_eq!(path("/..."), Some(("...".into(), false)));
    }

    #[test]
    fn file_paths_out_of_the_root_find_nothing() {
        for text in [
            "",
            "a",
            "//",
            "//a",
            "/a//b",
            "/.",
            "/..",
            "/../a",
            "/a/../b",
            "/%2e%2e/a",
            "/%2E./a",
            "/.%2e",
            "/a%2fb",
            "/..%2fa",
            "/a%00",
            "/%2Fetc/passwd",
            "/%00",
        ] {
            assert_eq!(path(text), None, "{text}");
        }
    }

    #[test]
    fn file_paths_with_broken_percent_encoding_are_malformed() {
        for text in ["/%", "/%2", "/%zz", "/a%2", "/%%20", "/%+1"] {
            assert_eq!(relative(text), Err(Malformed), "{text}");
        }
    }

    #[test]
    fn file_paths_are_decoded_once() {
        assert_eq!(path("/%252e%252e/a"), Some(("%2e%2e/a".into(), false)));
    }
}
