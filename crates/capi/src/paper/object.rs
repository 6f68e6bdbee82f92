//! Finds and reads the object file with the XDP program that `equic_read_object` names.

use std::ffi::{CStr, OsStr};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use ::equic_gateway::Error;

use crate::error::{Failure, Result, equic_error};

/// Maximum size of the object file, in bytes. The limit prevents that a device or a core dump is
/// read completely.
const LARGEST: u64 = 16 << 20;
/// Value of e_machine in ELF files with BPF code.
const EM_BPF: u16 = 247;

/// The XDP program to load, and where it comes from.
#[derive(Debug)]
pub(super) struct ObjectFile {
    /// Path of the object file, for messages.
    path: PathBuf,
    /// Content of the object file, or `None` for the copy inside the library.
    pub(super) bytes: Option<Vec<u8>>,
    /// Message for the caller, if there is any.
    pub(super) notice: Option<String>,
}

impl ObjectFile {
    /// Adds the file's path to an error that occurred while the file was loaded.
    pub(super) fn explain(&self, error: Error) -> Failure {
        match (&self.bytes, error) {
            (Some(_), Error::BadObject { why, .. }) => {
                Error::BadObject { object: self.path.display().to_string(), why }.into()
            }
            (_, error) => error.into(),
        }
    }
}

/// Searches for the object file with this name, and reads it.
pub(super) fn read(name: &str) -> Result<ObjectFile> {
    read_from(name, Path::new(""), library_folder().as_deref())
}

fn read_from(name: &str, working: &Path, beside: Option<&Path>) -> Result<ObjectFile> {
    if name.is_empty() {
        return Err(Failure::argument("the name of the object file is empty"));
    }
    let bare = !name.contains('/');
    let first = working.join(name);
    match open(&first) {
        Ok(bytes) => return found(first, bytes),
        Err(error) if bare && error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(unreadable(&first, &error)),
    }
    let second = beside.map(|folder| folder.join(name));
    match second.as_deref().map(open) {
        Some(Ok(bytes)) => return found(second.unwrap_or_default(), bytes),
        Some(Err(error)) if error.kind() != io::ErrorKind::NotFound => {
            return Err(unreadable(&second.unwrap_or_default(), &error));
        }
        _ => {}
    }
    let places = beside.map_or(String::new(), |folder| format!(", nor in {}", folder.display()));
    let notice = format!(
        "{name} is not in the working directory{places}: using the program that is built into the library"
    );
    Ok(ObjectFile { path: PathBuf::from(name), bytes: None, notice: Some(notice) })
}

fn open(path: &Path) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    let kind = file.metadata()?;
    if !kind.is_file() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "the path does not name a regular file",
        ));
    }
    let mut bytes = Vec::new();
    file.take(LARGEST + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn unreadable(path: &Path, error: &io::Error) -> Failure {
    Failure::new(
        equic_error::EQUIC_ERROR_BAD_OBJECT,
        format!(
            "cannot read {}: {error}. The build of eQUIC writes the program equic_kern.o to the folder of libequic.so",
            path.display()
        ),
    )
}

/// Checks for errors that can be found without loading the file. `equic_load` reports all others.
fn found(path: PathBuf, bytes: Vec<u8>) -> Result<ObjectFile> {
    let machine = bytes.get(18..20).and_then(|field| field.try_into().ok()).map(u16::from_ne_bytes);
    let why = match machine {
        _ if !bytes.starts_with(b"\x7fELF") => Some("the file is not an ELF object file"),
        Some(EM_BPF) if bytes.len() as u64 > LARGEST => Some("the file is too large"),
        Some(EM_BPF) => None,
        _ => Some("the file is not compiled for BPF"),
    };
    match why {
        None => Ok(ObjectFile { path, bytes: Some(bytes), notice: None }),
        Some(why) => {
            Err(Error::BadObject { object: path.display().to_string(), why: why.to_owned() }.into())
        }
    }
}

/// Returns the folder of this library. If the library is linked statically, returns the folder of
/// the program.
fn library_folder() -> Option<PathBuf> {
    // SAFETY: the structure consists of pointers. Zero is a valid value for each of them.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    let here = crate::equic_version as *const libc::c_void;
    // SAFETY: the address is in this library, and `info` can be written.
    if unsafe { libc::dladdr(here, &raw mut info) } == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the name is not NULL, NUL-terminated, and valid as long as the library is loaded.
    let file = unsafe { CStr::from_ptr(info.dli_fname) };
    // A name without a slash is the command with which the program was started, so it is resolved
    // to the program's real path.
    let file = Path::new(OsStr::from_bytes(file.to_bytes()));
    let file = if file.components().count() > 1 {
        file.to_owned()
    } else {
        std::env::current_exe().ok()?
    };
    file.parent().map(Path::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// Returns the header of an ELF file with BPF code, followed by `tail`.
    fn elf(tail: &[u8]) -> Vec<u8> {
        let mut bytes = b"\x7fELF\x02\x01\x01".to_vec();
        bytes.resize(18, 0);
        bytes.extend(EM_BPF.to_ne_bytes());
        bytes.extend(tail);
        bytes
    }

    struct Folders {
        root: tempfile::TempDir,
    }

    impl Folders {
        fn new() -> Folders {
            let root = tempfile::tempdir().unwrap();
            fs::create_dir(root.path().join("working")).unwrap();
            fs::create_dir(root.path().join("beside")).unwrap();
            Folders { root }
        }

        fn put(&self, path: &str, bytes: &[u8]) {
            fs::write(self.root.path().join(path), bytes).unwrap();
        }

        fn read(&self, name: &str) -> Result<ObjectFile> {
            read_from(
                name,
                &self.root.path().join("working"),
                Some(&self.root.path().join("beside")),
            )
        }
    }

    #[test]
    fn object_is_searched_in_working_directory_library_folder_and_library() {
        let folders = Folders::new();
        let found = folders.read("equic_kern.o").unwrap();
        assert!(found.bytes.is_none());
        assert!(found.notice.unwrap().contains("built into the library"));
        folders.put("beside/equic_kern.o", &elf(b"beside"));
        assert_eq!(folders.read("equic_kern.o").unwrap().bytes, Some(elf(b"beside")));
        folders.put("working/equic_kern.o", &elf(b"working"));
        let found = folders.read("equic_kern.o").unwrap();
        assert_eq!((found.bytes, found.notice), (Some(elf(b"working")), None));
    }

    #[test]
    fn object_with_a_path_is_not_searched() {
        let folders = Folders::new();
        folders.put("beside/equic_kern.o", &elf(b"beside"));
        for path in ["./equic_kern.o", "/nowhere/equic_kern.o", "../working"] {
            let failure = folders.read(path).unwrap_err();
            assert_eq!(failure.code, equic_error::EQUIC_ERROR_BAD_OBJECT);
            assert!(failure.message.contains(path.trim_start_matches('.')), "{}", failure.message);
        }
        assert!(folders.read("../beside/equic_kern.o").unwrap().bytes.is_some());
    }

    #[test]
    fn object_that_is_another_file_is_refused_with_a_reason() {
        let folders = Folders::new();
        let host = elf(b"")
            .iter()
            .enumerate()
            .map(|(i, b)| if i == 18 { 62 } else { *b })
            .collect::<Vec<u8>>();
        let files: [(&str, &[u8], &str); 5] = [
            ("empty", b"", "not an ELF"),
            ("text", b"not a program", "not an ELF"),
            ("short", b"\x7fELF", "not compiled for BPF"),
            ("host", &host, "not compiled for BPF"),
            ("zeros", &[0; 4096], "not an ELF"),
        ];
        for (name, bytes, why) in files {
            folders.put(&format!("working/{name}"), bytes);
            // A bad file in the working directory must be an error, even if there is a good file
            // next to the library.
            folders.put(&format!("beside/{name}"), &elf(b""));
            let message = folders.read(name).unwrap_err().message;
            assert!(message.contains(why) && message.contains(name), "{message}");
        }
        assert!(folders.read("").unwrap_err().message.contains("empty"));
    }

    #[test]
    fn library_folder_contains_this_program() {
        let folder = library_folder().unwrap();
        assert!(
            folder.join(std::env::current_exe().unwrap().file_name().unwrap()).exists(),
            "{}",
            folder.display()
        );
    }
}
