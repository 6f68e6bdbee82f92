//! Finds the other programs of this project.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// Returns the path of a program: in the folder of the running program, or else in the first folder
/// of `PATH` that has a file of this name. Ignores relative folders in `PATH`. Returns `None` if no
/// such file exists.
#[must_use]
pub fn find(name: &str) -> Option<PathBuf> {
    let own = std::env::current_exe().ok();
    let folder = own.as_deref().and_then(Path::parent);
    in_folders(name, folder, &std::env::var_os("PATH").unwrap_or_default())
}

fn in_folders(name: &str, own: Option<&Path>, path: &OsStr) -> Option<PathBuf> {
    let on_path = std::env::split_paths(path).filter(|folder| folder.is_absolute());
    let folders = own.map(Path::to_owned).into_iter().chain(on_path);
    folders.map(|folder| folder.join(name)).find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_is_found_in_the_own_folder_before_path() {
        let temporary = tempfile::tempdir().unwrap();
        let folder = temporary.path();
        let (own, other) = (folder.join("own"), folder.join("other"));
        std::fs::create_dir_all(&own).unwrap();
        std::fs::create_dir_all(other.join("directory")).unwrap();
        std::fs::write(own.join("both"), "").unwrap();
        std::fs::write(other.join("both"), "").unwrap();
        std::fs::write(other.join("one"), "").unwrap();
        let path = std::env::join_paths([Path::new("."), &other]).unwrap();
        let find = |name| in_folders(name, Some(&own), &path);
        assert_eq!(find("both"), Some(own.join("both")));
        assert_eq!(find("one"), Some(other.join("one")));
        assert_eq!(find("directory"), None);
        // A relative folder of PATH is not searched. Tests run in the folder of the crate.
        assert!(Path::new("Cargo.toml").is_file());
        assert_eq!(find("Cargo.toml"), None);
    }
}
