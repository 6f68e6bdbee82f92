//! Builds a lab and owns it: the namespaces exist until the [`Lab`] is dropped or closed.

use std::io;
use std::path::Path;
use std::sync::PoisonError;

use ipnet::IpNet;

use crate::cleanup::{BUILDING, identity, register, retire};
use crate::construct::construct;
use crate::plan::{IFNAME, LabPlan};
use crate::state::{LabRecord, NamespaceRecord, PREFIX, pid_namespace, start_ticks};
use crate::{LabError, Namespace};

/// Options of a lab. [`Lab::builder`] creates them.
#[derive(Debug, Clone)]
pub struct LabBuilder {
    name: String,
    clients: usize,
    prefixes: Vec<(usize, IpNet)>,
    mtu: u32,
    txqueuelen: Option<u32>,
}

impl LabBuilder {
    /// Sets the number of clients, 1 (the default) to [`MAX_CLIENTS`](crate::plan::MAX_CLIENTS).
    #[must_use]
    pub fn clients(mut self, clients: usize) -> Self {
        self.clients = clients;
        self
    }

    /// Lets `client` (counted from 0) use any address of `prefix` as its source, in addition to its
    /// own /24 and /64. The server gets a route to this prefix.
    #[must_use]
    pub fn client_prefix(mut self, client: usize, prefix: impl Into<IpNet>) -> Self {
        self.prefixes.push((client, prefix.into()));
        self
    }

    /// Sets the MTU of all links in bytes, 1280 to 65535. The default is 1500.
    #[must_use]
    pub fn mtu(mut self, mtu: u32) -> Self {
        self.mtu = mtu;
        self
    }

    /// Sets the transmit queue length of all links in packets. The default is the kernel's (1000).
    #[must_use]
    pub fn txqueuelen(mut self, packets: u32) -> Self {
        self.txqueuelen = Some(packets);
        self
    }

    /// Creates the lab. Returns once datagrams reach every client over IPv4 and IPv6.
    ///
    /// # Errors
    /// Fails with [`LabError::Privilege`] if capabilities are missing, with [`LabError::Plan`] if
    /// the options describe an impossible lab, or with another error of the system. After a
    /// failure, everything is removed.
    pub fn build(self) -> Result<Lab, LabError> {
        check_name(&self.name)?;
        let plan = LabPlan::new(self.clients, &self.prefixes, self.mtu, self.txqueuelen)?;
        check_privilege()?;
        let _building = BUILDING.read().unwrap_or_else(PoisonError::into_inner);
        let record = claim_id(&self.name, &plan)?;
        register(record.clone());
        let cleanup = Cleanup { record };
        let (server, clients) = construct(&plan, &cleanup.record)?;
        Ok(Lab { server, clients, cleanup })
    }
}

/// A server and clients in network namespaces. The namespaces are removed when the value is
/// dropped.
#[derive(Debug)]
pub struct Lab {
    server: Namespace,
    clients: Vec<Namespace>,
    cleanup: Cleanup,
}

impl Lab {
    /// Starts the description of a lab. `name` becomes part of the namespaces' names. It must have
    /// 1 to 24 characters of `a-z`, `0-9`, `-`.
    pub fn builder(name: impl Into<String>) -> LabBuilder {
        LabBuilder {
            name: name.into(),
            clients: 1,
            prefixes: Vec::new(),
            mtu: 1500,
            txqueuelen: None,
        }
    }

    /// Returns the ID of the lab. Its namespaces are called `eqlab-<id>-server`, `-sw`, `-c0` and
    /// so on.
    pub fn id(&self) -> &str {
        &self.cleanup.record.id
    }

    /// Returns the server's namespace.
    pub fn server(&self) -> &Namespace {
        &self.server
    }

    /// Returns the namespace of client `index`, counted from 0.
    ///
    /// # Panics
    /// Panics if there is no such client. [`Lab::clients`] has their number.
    pub fn client(&self, index: usize) -> &Namespace {
        &self.clients[index]
    }

    /// Returns the clients' namespaces.
    pub fn clients(&self) -> &[Namespace] {
        &self.clients
    }

    /// Returns the lab's record, which is also on disk.
    pub fn record(&self) -> &LabRecord {
        &self.cleanup.record
    }

    /// Removes the lab as dropping it does, but returns errors.
    ///
    /// # Errors
    /// Returns the first error of ending a process or deleting a namespace. After this process has
    /// ended, a [`Lab::sweep`] tries again.
    pub fn close(self) -> Result<(), LabError> {
        let Self { server, clients, cleanup } = self;
        drop((server, clients));
        cleanup.now()
    }
}

/// Guard that removes the lab when it is dropped.
#[derive(Debug)]
struct Cleanup {
    record: LabRecord,
}

impl Cleanup {
    fn now(self) -> Result<(), LabError> {
        let result = self.remove();
        std::mem::forget(self);
        result
    }

    fn remove(&self) -> Result<(), LabError> {
        // A forked child has a copy of this value, but the lab belongs to the parent.
        if std::process::id() != self.record.pid {
            return Ok(());
        }
        retire(&self.record)
    }
}

impl Drop for Cleanup {
    fn drop(&mut self) {
        // Ignore errors when the value is dropped. `Lab::close` returns them.
        let _ = self.remove();
    }
}

fn check_name(name: &str) -> Result<(), LabError> {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if name.is_empty() || name.len() > 24 || !name.chars().all(allowed) {
        return Err(LabError::Plan(format!(
            "the name {name:?} is invalid: use 1 to 24 characters of a-z, 0-9 and -"
        )));
    }
    Ok(())
}

/// The capabilities that a lab needs, with their bit numbers (linux/capability.h).
const CAPABILITIES: [(&str, u32); 3] =
    [("CAP_NET_ADMIN", 12), ("CAP_NET_RAW", 13), ("CAP_SYS_ADMIN", 21)];

fn check_privilege() -> Result<(), LabError> {
    let path = Path::new("/proc/thread-self/status");
    let status = std::fs::read_to_string(path).map_err(|e| LabError::file("read", path, e))?;
    let missing = missing_capabilities(&status);
    if missing.is_empty() {
        Ok(())
    } else {
        Err(LabError::Privilege { missing: missing.join(", ") })
    }
}

fn missing_capabilities(status: &str) -> Vec<&'static str> {
    let effective = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .unwrap_or(0);
    CAPABILITIES
        .iter()
        .filter(|(_, bit)| effective >> bit & 1 == 0)
        .map(|(name, _)| *name)
        .collect()
}

/// Chooses an unused ID for the lab and writes the lab's record under it.
fn claim_id(name: &str, plan: &LabPlan) -> Result<LabRecord, LabError> {
    let pid = std::process::id();
    let start_ticks = start_ticks(pid)
        .ok_or_else(|| LabError::system("read /proc/self/stat", io::ErrorKind::InvalidData))?;
    let pid_namespace =
        pid_namespace().map_err(|e| LabError::system("look at /proc/self/ns/pid", e))?;
    let here = Path::new("/proc/thread-self/ns/net");
    let home = identity(here)
        .ok_or_else(|| LabError::file("look at", here, io::ErrorKind::NotFound.into()))?;
    let mut attempts = 0;
    loop {
        let id = format!("{name}-{:06x}", rand::random::<u32>() >> 8);
        let host = |suffix: String, host: &crate::plan::Host| NamespaceRecord {
            name: format!("{PREFIX}{id}-{suffix}"),
            ifname: IFNAME.to_owned(),
            mac: host.mac,
            ipv4: host.ipv4,
            ipv6: host.ipv6,
            prefixes: host.prefixes.clone(),
        };
        let clients = plan.clients.iter().enumerate().map(|(i, c)| host(format!("c{i}"), c));
        let hosts = std::iter::once(host("server".into(), &plan.server)).chain(clients).collect();
        let switch = format!("{PREFIX}{id}-sw");
        let record = LabRecord { id, pid, start_ticks, pid_namespace, home, switch, hosts };
        match record.create() {
            Ok(()) => return Ok(record),
            Err(LabError::System { source, .. })
                if source.kind() == io::ErrorKind::AlreadyExists && attempts < 16 =>
            {
                attempts += 1;
            }
            Err(e) => return Err(e),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lab_name_is_checked() {
        for bad in ["", "Demo", "a/b", "a b", "..", "x".repeat(25).as_str()] {
            assert!(check_name(bad).is_err(), "{bad:?}");
        }
        assert!(check_name("demo-2").is_ok());
    }

    #[test]
    fn capabilities_that_are_missing_are_named() {
        assert_eq!(missing_capabilities("CapEff:\t000001ffffffffff\n"), Vec::<&str>::new());
        assert_eq!(missing_capabilities("CapEff:\t0000000000201000\n"), ["CAP_NET_RAW"]);
        assert_eq!(missing_capabilities("nonsense").len(), 3);
    }
}
