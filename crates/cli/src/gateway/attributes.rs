//! Copies the extended attributes (xattr(7)) of a file to the file that replaces it: access control
//! lists, labels, and attributes that users have set.

use std::fs::File;
use std::io;

use rustix::fs::{XattrFlags, fgetxattr, flistxattr, fremovexattr, fsetxattr};
use rustix::io::Errno;

/// Name of the attribute that holds an access control list (acl(5)). A new file may inherit such a
/// list from its directory.
const ACL: &str = "system.posix_acl_access";
/// Attributes that describe the content of a file. They are not copied, because the new file has
/// different content.
const OF_THE_CONTENT: [&str; 3] = ["security.ima", "security.evm", "security.capability"];
/// Maximum size in bytes of one value, and of the list of all names (`XATTR_SIZE_MAX` and
/// `XATTR_LIST_MAX` of Linux).
const LARGEST: usize = 65_536;

/// Copies the attributes of `from` to `to`.
///
/// # Errors
/// Returns the system's error and the name of the attribute if an attribute cannot be set. An
/// access control list must not be lost silently.
pub(super) fn keep(from: &File, to: &File) -> io::Result<()> {
    let wanted = names(from)?;
    if !wanted.iter().any(|name| name == ACL) && names(to)?.iter().any(|name| name == ACL) {
        fremovexattr(to, ACL).map_err(|error| failed(ACL, error))?;
    }
    for name in wanted.iter().filter(|name| !OF_THE_CONTENT.contains(&name.as_str())) {
        let Some(value) = value(from, name)? else { continue };
        if value_if_any(to, name) != Some(value.clone()) {
            fsetxattr(to, name.as_str(), &value, XattrFlags::empty())
                .map_err(|error| failed(name, error))?;
        }
    }
    Ok(())
}

fn failed(name: &str, error: Errno) -> io::Error {
    let why = io::Error::from(error);
    io::Error::new(why.kind(), format!("cannot copy the file's extended attribute {name} ({why})"))
}

/// Returns the names of a file's attributes. The list is empty if the file system does not support
/// attributes.
fn names(file: &File) -> io::Result<Vec<String>> {
    let mut list = vec![0; LARGEST];
    let length = match flistxattr(file, &mut list[..]) {
        Ok(length) => length,
        Err(Errno::OPNOTSUPP) => 0,
        Err(error) => return Err(error.into()),
    };
    let names = list[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty());
    Ok(names.map(|name| String::from_utf8_lossy(name).into_owned()).collect())
}

/// Returns the value of an attribute, or `None` if the attribute was removed in the meantime.
fn value(file: &File, name: &str) -> io::Result<Option<Vec<u8>>> {
    let mut value = vec![0; LARGEST];
    match fgetxattr(file, name, &mut value[..]) {
        Ok(length) => {
            value.truncate(length);
            Ok(Some(value))
        }
        Err(Errno::NODATA) => Ok(None),
        Err(error) => Err(failed(name, error)),
    }
}

fn value_if_any(file: &File, name: &str) -> Option<Vec<u8>> {
    value(file, name).ok().flatten()
}

#[cfg(test)]
pub(super) mod tests {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
    use std::path::Path;

    use super::*;

    /// Returns an access control list that lets user 4242 and the file's group read.
    pub(in crate::gateway) fn acl() -> Vec<u8> {
        const NOBODY: u32 = u32::MAX;
        // Each entry has a tag, the permissions and an ID. The entries are for the owner, a user,
        // the group, the mask, and others.
        let entries: [(u16, u16, u32); 5] =
            [(1, 6, NOBODY), (2, 4, 4242), (4, 0, NOBODY), (16, 4, NOBODY), (32, 0, NOBODY)];
        let mut value = 2u32.to_le_bytes().to_vec();
        for (tag, permissions, id) in entries {
            value.extend([tag.to_le_bytes(), permissions.to_le_bytes()].concat());
            value.extend(id.to_le_bytes());
        }
        value
    }

    /// Sets an attribute of an existing file. Returns `false` if the file system does not support
    /// attributes; in CI this is a failure.
    pub(in crate::gateway) fn set(path: &Path, name: &str, value: &[u8]) -> bool {
        let file = File::open(path).unwrap();
        match fsetxattr(&file, name, value, XattrFlags::empty()) {
            Ok(()) => true,
            Err(Errno::OPNOTSUPP) => {
                assert!(!equic_testing::ci::in_ci(), "temporary files have no attribute {name}");
                eprintln!("SKIPPED: temporary files have no attribute {name}");
                false
            }
            Err(error) => panic!("{name}: {error}"),
        }
    }

    pub(in crate::gateway) fn acl_of(path: &Path) -> Option<Vec<u8>> {
        value(&File::open(path).unwrap(), ACL).unwrap()
    }

    #[test]
    fn lists_and_labels_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let (old, new) = (folder.path().join("old"), folder.path().join("new"));
        std::fs::write(&old, "old").unwrap();
        if !set(&old, ACL, &acl()) || !set(&old, "user.note", b"ours") {
            return;
        }
        std::fs::write(&new, "new").unwrap();
        keep(&File::open(&old).unwrap(), &File::open(&new).unwrap()).unwrap();
        assert_eq!(acl_of(&new), Some(acl()));
        assert_eq!(value_if_any(&File::open(&new).unwrap(), "user.note").unwrap(), b"ours");
        assert_eq!(
            std::fs::metadata(&new).unwrap().mode() & 0o777,
            0o640,
            "the access control list limits the mode"
        );
    }

    /// The directory has a default access control list, which new files inherit. The old file had
    /// no list, so the file that replaces it must have none either.
    #[test]
    fn a_list_that_only_the_new_file_has_goes() {
        let folder = tempfile::tempdir().unwrap();
        let (old, new) = (folder.path().join("old"), folder.path().join("new"));
        std::fs::write(&old, "old").unwrap();
        std::fs::set_permissions(&old, std::fs::Permissions::from_mode(0o600)).unwrap();
        if !set(folder.path(), "system.posix_acl_default", &acl()) {
            return;
        }
        std::fs::write(&new, "new").unwrap();
        assert!(acl_of(&new).is_some(), "the folder has a default access control list");
        keep(&File::open(&old).unwrap(), &File::open(&new).unwrap()).unwrap();
        assert_eq!(acl_of(&new), None);
    }
}
