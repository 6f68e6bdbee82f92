//! The pins of a gateway in a BPF file system: `links/IFINDEX`, `program` and `maps/NAME` in a
//! separate directory. `pinned.rs` explains them.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::fcntl::{Flock, FlockArg};

use crate::error::{Error, Result};
use crate::maps::maps_of;
use crate::sys::ids::{self, XdpLink};
use crate::sys::pin;

/// Maximum time to wait while another process takes the gateway over.
const PATIENCE: Duration = Duration::from_secs(10);
const PROGRAM: &str = "program";
/// Directory at which systemd mounts the BPF file system.
const BPFFS: &str = "/sys/fs/bpf";
pub(crate) const LINKS: &str = "links";
pub(crate) const MAPS: &str = "maps";

/// Returns the error text for a directory outside of a BPF file system. `mounted` says whether one
/// is mounted at [`BPFFS`].
fn not_in_bpffs(mounted: bool) -> String {
    let remedy = if mounted {
        format!("use a directory below {BPFFS}, such as {BPFFS}/equic/NAME")
    } else {
        format!(
            "run `mount -t bpf -o mode=0700 bpf {BPFFS}`, and use a directory below it, such as {BPFFS}/equic/NAME. If you use `ip netns exec`, which hides {BPFFS}, use `nsenter --net=/run/netns/NAME` instead"
        )
    };
    format!("the directory is not in a BPF file system: {remedy}")
}

/// A directory with the pins of a gateway in a BPF file system.
#[derive(Debug, Clone)]
pub(crate) struct Pins {
    dir: PathBuf,
}

/// The links and the XDP program that are pinned in a directory.
pub(crate) struct Pinned {
    pub(crate) links: Vec<(PathBuf, XdpLink)>,
    pub(crate) program: Option<OwnedFd>,
}

impl Pins {
    /// Returns the pins in a directory, whether the directory exists or not.
    pub(crate) fn at(dir: &Path) -> Pins {
        Pins { dir: dir.to_owned() }
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn failed(&self, why: impl Into<String>) -> Error {
        Error::Pin { path: self.dir.clone(), why: why.into() }
    }

    pub(crate) fn io(&self, error: &io::Error) -> Error {
        self.failed(match error.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => {
                format!(
                    "{error}: run as root, or with CAP_BPF and write permission for this directory"
                )
            }
            _ => error.to_string(),
        })
    }

    /// Creates the directory if it does not exist, and locks it for this process.
    pub(crate) fn open(dir: &Path) -> Result<(Pins, Flock<File>)> {
        let pins = Pins::at(dir);
        let base = dir.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/"));
        if !pin::is_bpffs(base).map_err(|error| pins.io(&error))? {
            return Err(pins.failed(not_in_bpffs(pin::is_bpffs(Path::new(BPFFS)).unwrap_or(false))));
        }
        let within = dir.strip_prefix(base).unwrap_or(dir);
        if within.to_string_lossy().contains('.') {
            return Err(
                pins.failed("a name in a BPF file system cannot contain a `.`: use another path")
            );
        }
        let make = || -> io::Result<File> {
            for path in [dir.to_owned(), dir.join(LINKS), dir.join(MAPS)] {
                std::fs::create_dir_all(path)?;
            }
            File::open(dir)
        };
        let mut file = make().map_err(|error| pins.io(&error))?;
        let until = Instant::now() + PATIENCE;
        loop {
            match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                Ok(lock) => return Ok((pins, lock)),
                Err((back, nix::Error::EAGAIN)) if Instant::now() < until => file = back,
                Err((_, nix::Error::EAGAIN)) => {
                    return Err(pins.failed(
                        "another process is taking over the gateway: wait until that process has finished",
                    ));
                }
                Err((_, error)) => return Err(pins.io(&error.into())),
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Returns the paths in one of the subdirectories, or an empty list if the subdirectory does
    /// not exist.
    pub(crate) fn names(&self, of: &str) -> Result<Vec<PathBuf>> {
        let dir = if of.is_empty() { self.dir.clone() } else { self.dir.join(of) };
        match std::fs::read_dir(dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(self.io(&error)),
            Ok(entries) => {
                entries.map(|entry| Ok(entry.map_err(|error| self.io(&error))?.path())).collect()
            }
        }
    }

    /// Opens the pinned objects. Fails, without changing anything, if the directory contains
    /// something that does not belong to a gateway.
    pub(crate) fn look(&self) -> Result<Pinned> {
        for path in self.names("")? {
            let known =
                [PROGRAM, LINKS, MAPS, "program_new"].iter().any(|name| path.ends_with(name));
            if !known {
                return Err(self.failed(format!(
                    "the directory contains `{}`, which does not belong to a gateway: use a separate directory",
                    path.display()
                )));
            }
        }
        let mut links = Vec::new();
        for path in self.names(LINKS)? {
            let foreign = || {
                self.failed(format!(
                    "`{}` is not an XDP link, so the file does not belong to a gateway, or is damaged: remove the file by hand",
                    path.display()
                ))
            };
            let unread = |error: io::Error| match error.raw_os_error() {
                Some(libc::EMFILE | libc::ENFILE | libc::EPERM | libc::EACCES) => self.io(&error),
                _ => foreign(),
            };
            let fd = pin::get(&path).map_err(unread)?;
            let link = ids::xdp_link(fd).map_err(unread)?.ok_or_else(foreign)?;
            links.push((path, link));
        }
        let path = self.dir.join(PROGRAM);
        let program = match pin::get(&path) {
            Ok(fd) => Some(fd),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => {
                return Err(self.failed(format!("`{}` cannot be opened ({error})", path.display())));
            }
        };
        Ok(Pinned { links, program })
    }

    pub(crate) fn link_path(&self, ifindex: u32) -> PathBuf {
        self.dir.join(LINKS).join(ifindex.to_string())
    }

    /// Returns the paths of the XDP program and of these links at which nothing is pinned. After
    /// the file system was unmounted, all paths are returned.
    pub(crate) fn missing(&self, links: &[u32]) -> Vec<PathBuf> {
        let links = links.iter().map(|ifindex| self.link_path(*ifindex));
        let all = std::iter::once(self.dir.join(PROGRAM)).chain(links);
        // A path counts as missing only if it certainly does not exist. An error such as EACCES
        // does not show that.
        all.filter(|path| matches!(path.try_exists(), Ok(false))).collect()
    }

    /// Pins a link of this gateway.
    pub(crate) fn keep_link(&self, link: &OwnedFd, ifindex: u32) -> Result<()> {
        pin::pin(link.as_fd(), &self.link_path(ifindex)).map_err(|error| self.io(&error))
    }

    /// Removes the pin of a link.
    pub(crate) fn drop_link(&self, ifindex: u32) {
        // If the pin remains, it refers to a detached link, and the next takeover removes it.
        let _ = std::fs::remove_file(self.link_path(ifindex));
    }

    /// Pins the program and its maps, and replaces older pins of them.
    pub(crate) fn name(&self, program: BorrowedFd<'_>) -> Result<()> {
        let failed = |error: io::Error| self.io(&error);
        let info = ids::program_info(program).map_err(failed)?;
        let mut names = Vec::new();
        for (name, map) in maps_of(&info)? {
            let name = match name.rsplit('.').next() {
                Some("rodata") => "load",
                Some(last) => last,
                None => continue,
            };
            names.push(name.to_owned());
            pin::pin(map.as_fd(), &self.dir.join(MAPS).join(name)).map_err(failed)?;
        }
        for path in self.names(MAPS)? {
            if !names.iter().any(|name| path.ends_with(name)) {
                std::fs::remove_file(path).map_err(failed)?;
            }
        }
        pin::pin(program, &self.dir.join(PROGRAM)).map_err(failed)
    }

    /// Removes every pin of a gateway, and the directory.
    pub(crate) fn clear(&self) -> Result<()> {
        let failed = |error: io::Error| self.io(&error);
        for of in [LINKS, MAPS] {
            for path in self.names(of)? {
                std::fs::remove_file(path).map_err(failed)?;
            }
        }
        for name in [PROGRAM, "program_new"] {
            match std::fs::remove_file(self.dir.join(name)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
                _ => {}
            }
        }
        for dir in [self.dir.join(LINKS), self.dir.join(MAPS), self.dir.clone()] {
            match std::fs::remove_dir(dir) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
                _ => {}
            }
        }
        Ok(())
    }
}

/// Removes the pin of one link, or with `None` all pins. The caller must already have detached the
/// links.
pub(crate) fn forget(dir: &Path, ifindex: Option<u32>) -> Result<()> {
    let pins = Pins::at(dir);
    match ifindex {
        Some(ifindex) => {
            pins.drop_link(ifindex);
            Ok(())
        }
        None if !dir.exists() => Ok(()),
        None => pins.clear(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pin_outside_of_a_bpf_file_system_advises_the_usual_one() {
        let folder = tempfile::tempdir().unwrap();
        let failed = Pins::open(&folder.path().join("pin")).unwrap_err().to_string();
        let said = "the directory is not in a BPF file system: ";
        assert!(failed.contains(said) && failed.contains("/sys/fs/bpf/equic/NAME"), "{failed}");
        assert!(!failed.contains(&format!("bpf {}", folder.path().display())), "{failed}");
        let mount = "`mount -t bpf -o mode=0700 bpf /sys/fs/bpf`";
        assert!(!not_in_bpffs(true).contains("mount"));
        assert!(not_in_bpffs(false).contains(mount));
    }
}
