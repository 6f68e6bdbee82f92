//! Writes result files atomically, so that a reader never sees half a file.

use std::fs::Permissions;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// Error: a result file could not be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {}: {source}; check that the folder exists and is writable", path.display())]
pub struct WriteError {
    /// The file that should have been written.
    pub path: PathBuf,
    /// Error of the operating system.
    pub source: std::io::Error,
}

/// Writes `bytes` to the file `path`. First writes a temporary file in the same directory, and then
/// renames it. So a reader of `path` sees either the old or the new content, even if this process
/// is killed. The temporary file has a random name, so no link of another user is followed.
pub fn write(path: &Path, bytes: &[u8]) -> Result<(), WriteError> {
    let wrap = |source| WriteError { path: path.to_owned(), source };
    if path.file_name().is_none() {
        return Err(wrap(std::io::ErrorKind::InvalidInput.into()));
    }
    // `parent` of a bare file name is the empty path.
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    // The umask restricts the permissions, as for any new file.
    let mut file = tempfile::Builder::new()
        .prefix(".equic-")
        .suffix(".partial")
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(folder.unwrap_or(Path::new(".")))
        .map_err(wrap)?;
    file.write_all(bytes).map_err(wrap)?;
    file.persist(path).map_err(|failed| wrap(failed.error))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn file_is_replaced_and_no_temporary_file_remains() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.json");
        write(&path, b"first, and longer").unwrap();
        write(&path, b"second").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"second");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn file_error_names_the_path() {
        let error = write(Path::new("/nonexistent/folder/a.json"), b"x").unwrap_err();
        assert!(error.to_string().contains("/nonexistent/folder/a.json"), "{error}");
        assert!(write(Path::new("/"), b"x").is_err());
    }

    #[test]
    fn file_write_over_a_folder_leaves_no_partial_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("taken");
        fs::create_dir_all(path.join("inside")).unwrap();
        assert!(write(&path, b"x").is_err());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
