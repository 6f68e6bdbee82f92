//! Creates the gateway's socket in the file system. The socket is created under a temporary name,
//! gets its owner and mode, and is then renamed.

use std::fs::{OpenOptions, Permissions};
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::{
    FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::rules::{group, user};
use crate::config::SocketConfig;
use crate::error::{Error, Result};
use crate::sys;
use crate::sys::unix;

/// Returns the device and inode of the file at a path.
pub(super) fn id_of(path: &Path) -> io::Result<(u64, u64)> {
    let found = std::fs::symlink_metadata(path)?;
    Ok((found.dev(), found.ino()))
}

/// Creates a listening socket with its owner and mode, and moves it to its path atomically.
pub(super) fn listen(
    path: &Path,
    config: &SocketConfig,
    replace: bool,
) -> Result<(OwnedFd, (u64, u64))> {
    let taken = |why: String| Error::SocketTaken { path: path.to_owned(), why };
    let failed = |error: io::Error| taken(error.to_string());
    if let Ok(found) = std::fs::symlink_metadata(path) {
        if !found.file_type().is_socket() {
            return Err(taken("the existing file is not a socket: use another path".to_owned()));
        }
        let answers = unix::dial(path, Duration::from_millis(200)).is_ok();
        if answers && !replace {
            return Err(taken(
                "another process listens at this path: end that process, or use another path"
                    .to_owned(),
            ));
        }
    } else if let Some(parent) = path.parent().filter(|parent| !parent.exists()) {
        std::fs::create_dir(parent).map_err(|error| {
            taken(format!("the directory does not exist and cannot be created ({error})"))
        })?;
    }
    let mut fresh = path.as_os_str().to_owned();
    fresh.push(format!(".{}", std::process::id()));
    let fresh = PathBuf::from(fresh);
    let _ = std::fs::remove_file(&fresh);
    let put = || -> Result<(OwnedFd, (u64, u64))> {
        let listener = unix::bound(&fresh).map_err(failed)?;
        let mode = u32::from_str_radix(&config.mode, 8).unwrap_or(0o600);
        let owner = config.owner.as_deref().map(user).transpose()?;
        let group = config.group.as_deref().map(group).transpose()?;
        let file = give(&fresh, owner, group, mode).map_err(failed)?;
        unix::hear(&listener).map_err(failed)?;
        std::fs::rename(&fresh, path).map_err(failed)?;
        if id_of(path).map_err(failed)? != file {
            return Err(taken(
                "another process created a file at this path in the meantime".to_owned(),
            ));
        }
        Ok((listener, file))
    };
    put().inspect_err(|_| drop(std::fs::remove_file(&fresh)))
}

/// Sets owner, group and mode of a socket that this process created. Returns its device and inode.
/// In a folder that other users may write to, a user may have replaced the socket with another
/// file. That file is not changed, and links are not followed.
fn give(path: &Path, owner: Option<u32>, group: Option<u32>, mode: u32) -> io::Result<(u64, u64)> {
    let mut options = OpenOptions::new();
    // These flags open the file itself, not the target of a link. O_PATH is the only way to open a
    // socket.
    options.read(true).custom_flags(libc::O_PATH | libc::O_NOFOLLOW);
    let file = options.open(path)?;
    let found = file.metadata()?;
    if !found.file_type().is_socket() || found.nlink() != 1 || found.uid() != sys::user_id() {
        return Err(io::Error::other(
            "another process created a file at this path in the meantime",
        ));
    }
    // This path refers to the opened file, even if another file is at its path now.
    let opened = format!("/proc/self/fd/{}", file.as_raw_fd());
    std::os::unix::fs::chown(&opened, owner, group)?;
    std::fs::set_permissions(&opened, Permissions::from_mode(mode))?;
    Ok((found.dev(), found.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A user who may write to the folder puts a link in place of the new socket. The link's target
    /// must not change.
    #[test]
    fn socket_link_target_keeps_its_owner_and_mode() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let mode = |name: &str| std::fs::metadata(at(name)).unwrap().mode() & 0o777;
        std::fs::write(at("precious"), "").unwrap();
        std::fs::set_permissions(at("precious"), Permissions::from_mode(0o600)).unwrap();
        let _elsewhere = unix::bound(&at("elsewhere")).unwrap();
        std::fs::set_permissions(at("elsewhere"), Permissions::from_mode(0o600)).unwrap();
        for name in ["precious", "elsewhere"] {
            std::os::unix::fs::symlink(at(name), at("fresh")).unwrap();
            give(&at("fresh"), None, None, 0o666).unwrap_err();
            std::fs::remove_file(at("fresh")).unwrap();
            std::fs::hard_link(at(name), at("fresh")).unwrap();
            give(&at("fresh"), None, None, 0o666).unwrap_err();
            std::fs::remove_file(at("fresh")).unwrap();
            assert_eq!(mode(name), 0o600, "{name}");
        }
        let _fresh = unix::bound(&at("fresh")).unwrap();
        assert_eq!(give(&at("fresh"), None, None, 0o660).unwrap(), id_of(&at("fresh")).unwrap());
        assert_eq!(mode("fresh"), 0o660);
    }
}
