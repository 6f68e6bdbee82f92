//! The socket in the file system: made beside its place with owner and mode, and put there in one step.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::rules::{group, user};
use crate::config::SocketConfig;
use crate::error::{Error, Result};
use crate::sys::unix;

/// Device and inode of what is there.
pub(super) fn id_of(path: &Path) -> io::Result<(u64, u64)> {
    use std::os::unix::fs::MetadataExt as _;
    let found = std::fs::symlink_metadata(path)?;
    Ok((found.dev(), found.ino()))
}

/// A listening socket of the right owner and mode, put at its path in one step.
pub(super) fn listen(
    path: &Path,
    config: &SocketConfig,
    replace: bool,
) -> Result<(OwnedFd, (u64, u64))> {
    use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
    let taken = |why: String| Error::SocketTaken { path: path.to_owned(), why };
    let failed = |error: io::Error| taken(error.to_string());
    if let Ok(found) = std::fs::symlink_metadata(path) {
        if !found.file_type().is_socket() {
            return Err(taken("there is a file that is no socket".to_owned()));
        }
        let answers = unix::dial(path, Duration::from_millis(200)).is_ok();
        if answers && !replace {
            return Err(taken(
                "another process listens there: end it, or give another path".to_owned(),
            ));
        }
    } else if let Some(parent) = path.parent().filter(|parent| !parent.exists()) {
        std::fs::create_dir(parent).map_err(|error| {
            taken(format!("its directory is not there and cannot be made ({error})"))
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
        std::os::unix::fs::chown(&fresh, owner, group).map_err(failed)?;
        std::fs::set_permissions(&fresh, std::fs::Permissions::from_mode(mode)).map_err(failed)?;
        unix::hear(&listener).map_err(failed)?;
        let file = id_of(&fresh).map_err(failed)?;
        std::fs::rename(&fresh, path).map_err(failed)?;
        Ok((listener, file))
    };
    put().inspect_err(|_| drop(std::fs::remove_file(&fresh)))
}
