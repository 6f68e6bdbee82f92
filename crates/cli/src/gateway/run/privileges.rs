//! Privileges that the gateway's process keeps after the program is attached.
//!
//! Capabilities belong to threads. They are therefore dropped while the process has only one
//! thread, that is, before servers may join and before the first sweep.

use std::fs::OpenOptions;
use std::os::unix::fs::{OpenOptionsExt as _, fchown};
use std::path::Path;

use caps::{CapSet, Capability, CapsHashSet};
use nix::sys::prctl;
use nix::unistd::{Gid, Uid, User, setgroups, setresgid, setresuid};

use crate::failure::{Failure, Result};

/// Capabilities to keep: `CAP_BPF` to create ledgers (the servers' tables of connections), and
/// `CAP_NET_ADMIN` to attach to interfaces that come back.
const KEPT: [Capability; 2] = [Capability::CAP_BPF, Capability::CAP_NET_ADMIN];

/// Permanently drops all privileges that are not needed. If `look` is true, keeps `CAP_SYS_ADMIN`,
/// which is needed to read the ledgers of servers that joined without the socket. `user` is the
/// user to switch to.
pub(super) fn drop_all(look: bool, user: Option<&str>) -> Result {
    let failed =
        |error: &dyn std::fmt::Display| Failure::because("cannot give up privileges", error);
    let kept: CapsHashSet = KEPT
        .into_iter()
        .chain(look.then_some(Capability::CAP_SYS_ADMIN))
        .filter(|one| caps::has_cap(None, CapSet::Permitted, *one).unwrap_or(false))
        .collect();
    // Without CAP_SETPCAP, the bounding set of capabilities cannot be reduced. That is harmless,
    // because with no_new_privs the process can never gain capabilities through this set.
    if caps::has_cap(None, CapSet::Effective, Capability::CAP_SETPCAP).unwrap_or(false) {
        let bounding = caps::read(None, CapSet::Bounding).map_err(|e| failed(&e))?;
        for one in bounding.difference(&kept) {
            caps::drop(None, CapSet::Bounding, *one).map_err(|e| failed(&e))?;
        }
    }
    if let Some(name) = user {
        become_user(name, &kept)?;
    }
    caps::clear(None, CapSet::Ambient).map_err(|e| failed(&e))?;
    caps::set(None, CapSet::Inheritable, &CapsHashSet::new()).map_err(|e| failed(&e))?;
    caps::set(None, CapSet::Effective, &kept).map_err(|e| failed(&e))?;
    caps::set(None, CapSet::Permitted, &kept).map_err(|e| failed(&e))?;
    prctl::set_no_new_privs().map_err(|e| failed(&e))
}

/// Gives a file that root has written to the user that this process will switch to.
pub(super) fn give(path: &Path, name: &str) -> Result {
    let (uid, gid) = user(name)?;
    let flags = nix::libc::O_NOFOLLOW | nix::libc::O_NONBLOCK;
    let open = || OpenOptions::new().read(true).custom_flags(flags).open(path);
    open().and_then(|file| fchown(file, Some(uid.as_raw()), Some(gid.as_raw()))).map_err(|error| {
        Failure::because(
            format_args!("cannot change the owner of {} to the user `{name}`", path.display()),
            error,
        )
    })
}

/// Looks up the user with this name or user ID, as `--user` accepts it.
pub(super) fn user(name: &str) -> Result<(Uid, Gid)> {
    let unknown = || {
        Failure::usage(format!(
            "there is no user `{name}` on this machine: give a name from `getent passwd`"
        ))
    };
    let found = match name.parse() {
        Ok(number) => User::from_uid(Uid::from_raw(number)),
        Err(_) => User::from_name(name),
    };
    let found = found.ok().flatten().ok_or_else(unknown)?;
    Ok((found.uid, found.gid))
}

fn become_user(name: &str, kept: &CapsHashSet) -> Result {
    let failed = |error: &dyn std::fmt::Display| {
        Failure::because(format_args!("cannot switch to the user `{name}`"), error)
    };
    let (uid, gid) = user(name)?;
    prctl::set_keepcaps(true).map_err(|e| failed(&e))?;
    setgroups(&[]).map_err(|e| failed(&e))?;
    setresgid(gid, gid, gid).map_err(|e| failed(&e))?;
    setresuid(uid, uid, uid).map_err(|e| failed(&e))?;
    prctl::set_keepcaps(false).map_err(|e| failed(&e))?;
    caps::set(None, CapSet::Effective, kept).map_err(|e| failed(&e))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[test]
    fn file_is_given_to_a_user_but_no_link_is_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (path, link) = (folder.path().join("keys"), folder.path().join("link"));
        std::fs::write(&path, "secret").unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let owner = || std::fs::metadata(&path).unwrap().uid();
        let me = owner();
        assert!(give(&link, "root").is_err());
        assert!(give(&path, "no-such-user").is_err());
        assert_eq!(owner(), me);
        if me == 0 {
            let (nobody, _) = user("nobody").unwrap();
            give(&path, "nobody").unwrap();
            assert_eq!(owner(), nobody.as_raw());
        }
    }
}
