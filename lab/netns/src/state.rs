//! The record of each lab under `/run/equic-lab`. It is written before the lab's first namespace is
//! created, so that a sweep can always find what to remove.

use std::fs;
use std::io::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::{LabError, Namespace};

/// Directory in which the records are stored.
pub(crate) const STATE_DIR: &str = "/run/equic-lab";
/// Directory of named network namespaces (ip-netns(8)).
pub(crate) const NETNS_DIR: &str = "/run/netns";
/// Prefix of the names of all namespaces of labs.
pub(crate) const PREFIX: &str = "eqlab-";

/// The record of a lab on disk.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LabRecord {
    /// Unique name of the lab: the name given to the builder, and a random part.
    pub id: String,
    /// PID of the process that owns the lab.
    pub pid: u32,
    /// Start time of the owning process, in clock ticks since boot (proc_pid_stat(5), field 22).
    pub start_ticks: u64,
    /// Inode of the owner's PID namespace. `pid` is valid only in this namespace.
    pub pid_namespace: u64,
    /// Device and inode of the network namespace that the lab was built from. It is never part of
    /// the lab.
    pub home: (u64, u64),
    /// Name of the namespace that contains the bridge.
    pub switch: String,
    /// The server, then the clients.
    pub hosts: Vec<NamespaceRecord>,
}

/// The record of one host of a lab.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamespaceRecord {
    /// Name of the namespace under `/run/netns`.
    pub name: String,
    /// Name of the interface that leads to the bridge.
    pub ifname: String,
    /// Link-layer address of that interface.
    pub mac: [u8; 6],
    /// First IPv4 address of the host.
    pub ipv4: Ipv4Addr,
    /// First IPv6 address of the host.
    pub ipv6: Ipv6Addr,
    /// Prefixes of which the host can use any address.
    pub prefixes: Vec<IpNet>,
}

impl NamespaceRecord {
    /// Returns the host's first address of the same family as `like`.
    pub fn address_like(&self, like: IpAddr) -> IpAddr {
        if like.is_ipv4() { self.ipv4.into() } else { self.ipv6.into() }
    }

    /// Opens the namespace. The lab may belong to this process or to another one.
    ///
    /// # Errors
    /// Fails with [`LabError::System`] if the lab no longer exists.
    pub fn open(&self) -> Result<Namespace, LabError> {
        Namespace::open(self.clone())
    }
}

impl LabRecord {
    /// Returns whether the process that created the lab is running. Owners in another PID namespace
    /// are not visible from here, and count as running.
    pub fn owner_alive(&self) -> bool {
        match pid_namespace() {
            Ok(here) if here == self.pid_namespace => {
                start_ticks(self.pid) == Some(self.start_ticks)
            }
            _ => true,
        }
    }

    /// Returns the names of all namespaces of the lab.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.hosts.iter().map(|host| host.name.as_str()).chain([self.switch.as_str()])
    }

    pub(crate) fn path(&self) -> PathBuf {
        Path::new(STATE_DIR).join(format!("{}.json", self.id))
    }

    /// Writes the record. Fails with `AlreadyExists` if another lab has this ID.
    pub(crate) fn create(&self) -> Result<(), LabError> {
        let path = self.path();
        fs::create_dir_all(STATE_DIR)
            .map_err(|e| LabError::file("make", Path::new(STATE_DIR), e))?;
        let json = serde_json::to_vec_pretty(self)
            .map_err(|e| LabError::file("write", &path, io::Error::other(e)))?;
        let mut file =
            fs::File::create_new(&path).map_err(|e| LabError::file("create", &path, e))?;
        file.write_all(&json).map_err(|e| LabError::file("write", &path, e))
    }

    /// Reads a record. Rejects the record if the names of its namespaces do not match its ID,
    /// because a sweep deletes these namespaces.
    pub(crate) fn read(path: &Path) -> Result<Self, LabError> {
        let invalid = |message: String| LabError::Record { path: path.to_owned(), message };
        let text = fs::read(path).map_err(|e| LabError::file("read", path, e))?;
        let record: Self = serde_json::from_slice(&text).map_err(|e| invalid(e.to_string()))?;
        if record.path() != path {
            return Err(invalid(format!("it belongs to lab {:?}", record.id)));
        }
        let prefix = format!("{PREFIX}{}-", record.id);
        for name in record.names() {
            if !name.starts_with(&prefix) || name.contains('/') {
                return Err(invalid(format!(
                    "namespace {name:?} does not belong to lab {:?}",
                    record.id
                )));
            }
        }
        Ok(record)
    }
}

/// Returns the paths of all records, including unreadable ones.
pub(crate) fn record_paths() -> Result<Vec<PathBuf>, LabError> {
    let entries = match fs::read_dir(STATE_DIR) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(LabError::file("list", Path::new(STATE_DIR), e)),
    };
    let mut paths: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|ext| ext == "json"))
        .collect();
    paths.sort();
    Ok(paths)
}

/// Returns the start time of a process in clock ticks since boot, or `None` if there is no such
/// process or it is a zombie.
pub(crate) fn start_ticks(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    parse_start_ticks(&stat)
}

fn parse_start_ticks(stat: &str) -> Option<u64> {
    // The command name is in parentheses and may itself contain parentheses.
    let mut fields = stat.get(stat.rfind(')')? + 1..)?.split_whitespace();
    if matches!(fields.next()?, "Z" | "X") {
        return None;
    }
    // The process state is field 3, the start time field 22.
    fields.nth(18)?.parse().ok()
}

/// Returns the inode of this process's PID namespace.
pub(crate) fn pid_namespace() -> io::Result<u64> {
    Ok(fs::metadata("/proc/self/ns/pid")?.ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn start_time_is_read_despite_odd_process_names() {
        let rest = "1 1 1 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4711 1000 1";
        assert_eq!(parse_start_ticks(&format!("7 (a) Z ) b) S {rest}")), Some(4711));
        assert_eq!(parse_start_ticks(&format!("7 (a) Z {rest}")), None);
        for broken in ["", "7 (a", "7 (a) S", "7 (a) S 1 2 3"] {
            assert_eq!(parse_start_ticks(broken), None);
        }
        assert!(start_ticks(std::process::id()).is_some());
    }
}
