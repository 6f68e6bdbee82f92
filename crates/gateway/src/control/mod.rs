//! Inspects and changes a running gateway through its maps.
//!
//! [`Control`] is a handle on the maps of one gateway. The gateway belongs to this process
//! (`Gateway::control`) or to another one ([`Control::open`], which needs `CAP_SYS_ADMIN`).
//! Everything that the command `equic gateway` shows or changes goes through a [`Control`].
//! Everything that a [`Control`] returns can be serialized as JSON.
//!
//! * `discover.rs`: finds and detaches running gateways; `chosen.rs`: recognises the successor of a
//!   gateway;
//! * `members.rs`: joins with a ledger (a map with a server's connection counts), and removes the
//!   ledgers of dead processes;
//! * `status.rs`, `counters.rs`, `sources.rs`: state and statistics;
//! * `settings.rs`, `lists.rs`, `replace.rs` (a whole list at once), `reconfigure.rs` (a whole
//!   configuration): changes while the gateway runs;
//! * `count.rs`: the number of list entries and their last changes, without walking the lists;
//! * `local.rs`: gives the XDP program the addresses of this host;
//! * `adaptive.rs`: the state of adaptive Retry;
//! * `refusals.rs`: reads the numbers of refused packets per source, as the evidence for bans;
//! * `audit.rs`: a log of changes by other processes;
//! * `report.rs`: the report of the process that manages the gateway;
//! * `overview.rs`: figures that are cheap enough to read every second;
//! * `events.rs`: sampled drops as they happen; `observer.rs`: reads them without consuming them;
//! * `capture.rs`: copies of dropped packets.

mod adaptive;
mod audit;
mod capture;
mod chosen;
mod count;
mod counters;
mod discover;
mod events;
mod lists;
mod local;
mod members;
mod observer;
mod overview;
mod reconfigure;
mod refusals;
mod replace;
mod report;
mod settings;
mod sources;
mod status;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};

use crate::config::{Listen, c_name, from_c_name};
use crate::error::{Error, Result};
use crate::key_ring::ServedRing;
use crate::ledger::death::Watched;
use crate::ledger::table::Memory;
use crate::links::Link;
use crate::maps::Maps;
use crate::services::service_names;
use crate::sync::{Mutex, lock};
use crate::sys;
use crate::sys::region::atomic;

pub use crate::config::Change;
pub use adaptive::Adaptive;
pub use audit::AuditEntry;
pub use capture::{Capture, CaptureFilter, CapturedPacket};
pub(crate) use chosen::GatewayChoice;
pub use count::{ListChanges, ListCounts, ListEvent, ListMark};
pub use counters::{CounterRow, Tallies};
pub use discover::{Interface, OtherRelease, RunningGateway, Survey};
pub(crate) use discover::{RunningGateways, interface_of};
pub use events::{Event, Events};
pub use lists::{ListAction, ListEntry, Origin};
pub use local::loses_answers;
pub use members::{JoinedServer, Swept};
pub use observer::Observer;
pub use overview::{Overview, RunStats, SourceKey, SourceSample};
pub use refusals::{Refusals, RefusedSource};
pub use replace::Replaced;
pub use report::{BanTotals, Condition, InterfaceReport, Level, Reload, Report};
pub use sources::{SortBy, SourceRow};
pub use status::{LedgerStatus, Owner, ServiceStatus, Status, TableStatus};

/// A handle on the maps of a gateway. It is cheap to clone.
#[derive(Debug, Clone)]
pub struct Control {
    maps: Arc<Maps>,
    program: u32,
    state: Arc<Mutex<State>>,
    /// The gateway's links, if this process owns the gateway. A process may read its own links
    /// without privileges.
    links: Weak<Mutex<Vec<Link>>>,
    /// The XDP program, if this process owns the gateway. Querying it needs no privilege.
    own: Weak<OwnedFd>,
    /// The rules by which another process's gateway was chosen. `None` if the gateway belongs to
    /// this process.
    chosen: Option<Arc<GatewayChoice>>,
}

/// State that a [`Control`] and its clones keep between calls.
#[derive(Debug, Default)]
struct State {
    /// Mapped ledgers, by map id.
    ledgers: HashMap<u32, Arc<Memory>>,
    /// Slots that were claimed but have no ledger yet, each with the time at which this was first
    /// seen (monotonic nanoseconds).
    claimed: HashMap<u32, u64>,
    /// Unreadable ledgers of dead processes, each with the time at which the process was found dead
    /// (monotonic nanoseconds).
    dead: HashMap<u32, u64>,
    /// Servers that were seen in a slot and are not known to be dead.
    watched: Watched,
    /// State of the module that reads the host's addresses.
    local: local::LocalState,
    /// Numbers of entries that were removed so far.
    swept: Swept,
    /// Time of the next walk through the deny and allow lists (monotonic nanoseconds).
    next_lists_ns: u64,
    /// Copies of the key ring that this process's socket gives to servers.
    served: Vec<Weak<ServedRing>>,
    /// Numbers of started and ended list changes when an unfinished change was last seen, and the
    /// time since which these numbers are the same (monotonic nanoseconds).
    list_change: Option<((u64, u64), u64)>,
}

impl Control {
    pub(crate) fn of(maps: Maps, program: u32) -> Control {
        let (maps, links, own) = (Arc::new(maps), Weak::new(), Weak::new());
        Control { maps, program, state: Arc::default(), links, own, chosen: None }
    }

    /// Returns this handle with the links and the XDP program of a gateway that this process owns.
    pub(crate) fn knowing(self, links: Weak<Mutex<Vec<Link>>>, own: Weak<OwnedFd>) -> Control {
        Control { links, own, ..self }
    }

    pub(crate) fn maps(&self) -> &Maps {
        &self.maps
    }

    /// Returns the maps, for callers that outlive this handle.
    pub(crate) fn shared_maps(&self) -> Arc<Maps> {
        Arc::clone(&self.maps)
    }

    /// Returns true if this process loaded the gateway and this handle shares its state.
    pub(crate) fn is_own(&self) -> bool {
        self.own.strong_count() > 0
    }

    /// Returns the copies of the key ring that servers at this process's socket read.
    pub(crate) fn served_rings(&self) -> Vec<Arc<ServedRing>> {
        let mut state = lock(&self.state);
        state.served.retain(|one| one.strong_count() > 0);
        state.served.iter().filter_map(Weak::upgrade).collect()
    }

    /// Creates a copy of the key ring for servers. It is updated whenever the XDP program's ring
    /// is.
    pub(crate) fn serve_ring(&self) -> Result<Arc<ServedRing>> {
        let failed = |error| Error::system("copying the key ring for servers", error);
        let served = Arc::new(ServedRing::new(&self.key_ring()?).map_err(failed)?);
        lock(&self.state).served.push(Arc::downgrade(&served));
        Ok(served)
    }

    /// Returns the rules by which another process's gateway was chosen.
    pub(crate) fn chosen(&self) -> Option<&GatewayChoice> {
        self.chosen.as_deref()
    }

    /// Returns the kernel's id of the XDP program.
    pub fn program_id(&self) -> u32 {
        self.program
    }

    /// Returns the gateway's name.
    pub fn name(&self) -> String {
        from_c_name(&self.maps.control.read().name)
    }

    /// Returns the process that manages the gateway. This is the process that loaded it, or the
    /// last one that took it over.
    pub fn owner(&self) -> Owner {
        let control = self.maps.control.read();
        let (pid, ticks) = (control.owner_pid, control.owner_start_ticks);
        Owner { pid, alive: sys::alive(pid, ticks) }
    }

    /// Returns true if the process with this pid is the gateway's owner. (Processes in two pid
    /// namespaces can have the same pid, so the start times are compared, too.)
    pub(crate) fn is_owner(&self, pid: u32) -> bool {
        let control = self.maps.control.read();
        let started = sys::start_ticks(pid);
        control.owner_pid == pid && started.is_none_or(|ticks| ticks == control.owner_start_ticks)
    }

    /// Returns the owner, or `None` if the owner is this process.
    pub(crate) fn successor(&self) -> Option<Owner> {
        let pid = std::process::id();
        let owner = || {
            let control = self.maps.control.read();
            (control.owner_pid, control.owner_start_ticks)
        };
        let (pid, ticks) = other_owner(owner, pid, sys::start_ticks(pid))?;
        Some(Owner { pid, alive: sys::alive(pid, ticks) })
    }

    /// Records that no process manages the gateway. Processes that watch the owner read this.
    pub(crate) fn disown(&self) {
        let control = self.maps.control.pointer();
        atomic!(AtomicU32, control, owner_pid).store(0, Relaxed);
    }

    /// Records this process as the owner.
    pub(crate) fn own(&self) {
        let (control, pid) = (self.maps.control.pointer(), std::process::id());
        let ticks = sys::start_ticks(pid).unwrap_or(0);
        atomic!(AtomicU64, control, network).store(sys::network_namespace(), Relaxed);
        atomic!(AtomicU64, control, owner_start_ticks).store(ticks, Relaxed);
        atomic!(AtomicU32, control, owner_pid).store(pid, Relaxed);
    }

    /// Records the directory in which the gateway is pinned.
    pub(crate) fn write_pin(&self, path: &std::path::Path) {
        let control = self.maps.control.pointer();
        let bytes: [std::ffi::c_char; 128] = c_name(&path.to_string_lossy());
        for (index, byte) in bytes.iter().enumerate() {
            atomic!(AtomicU8, control, pin[index]).store(*byte as u8, Relaxed);
        }
    }

    /// Returns the directory in which the gateway is pinned, or `None` if it is not pinned.
    pub fn pin(&self) -> Option<std::path::PathBuf> {
        let pin = from_c_name(&self.maps.control.read().pin);
        (!pin.is_empty()).then(|| std::path::PathBuf::from(pin))
    }

    /// Returns the services' names, by index.
    pub fn service_names(&self) -> Vec<String> {
        service_names(&self.maps.services.read())
    }

    /// Returns the name of a service, or its index as text if it has no name.
    pub(crate) fn service_name(&self, index: u32) -> String {
        let names = self.service_names();
        names.get(index as usize).cloned().unwrap_or_else(|| index.to_string())
    }

    /// Returns the addresses that the services listen at, each with the index of its service. An
    /// unspecified address stands for all addresses of its family.
    ///
    /// # Errors
    /// Returns the kernel's error if a call fails.
    pub fn listeners(&self) -> Result<Vec<(SocketAddr, usize)>> {
        self.maps.listening().map_err(reading("the listeners"))
    }

    /// Returns the index of the service whose packets arrive at a socket that is bound to this
    /// address. A socket on `[::]` also receives IPv4.
    ///
    /// # Errors
    /// Returns the kernel's error if a call fails.
    pub fn service_listening_at(&self, address: SocketAddr) -> Result<Option<usize>> {
        let any = address.is_ipv6() && address.ip().is_unspecified();
        let own: Vec<SocketAddr> = if any {
            Listen::Port(address.port()).addresses().collect()
        } else {
            vec![SocketAddr::new(address.ip().to_canonical(), address.port())]
        };
        let listeners = self.listeners()?;
        let exact = listeners.iter().find(|(at, _)| own.contains(at));
        let found = exact.or_else(|| {
            listeners.iter().find(|(at, _)| {
                let same_family = own.iter().any(|own| own.is_ipv4() == at.is_ipv4());
                at.port() == address.port() && at.ip().is_unspecified() && same_family
            })
        });
        Ok(found.map(|(_, index)| *index))
    }
}

/// Returns a function for `map_err` that makes an error which says what could not be read.
pub(crate) fn reading(what: &str) -> impl Fn(std::io::Error) -> Error + '_ {
    move |error| Error::system(format!("reading {what}"), error)
}

/// Returns the owner's pid and start time, which `read` reads. Returns `None` if this process is
/// the owner.
///
/// [`Control::own`] writes the start time before the pid. Between the two writes, the pid may still
/// be that of the previous owner. So if the pid is this process's and the start time is not, both
/// are read again. If they still differ, the owner has the same pid in another pid namespace.
fn other_owner(
    mut read: impl FnMut() -> (u32, u64),
    pid: u32,
    started: Option<u64>,
) -> Option<(u32, u64)> {
    for _ in 0..1_000 {
        let owner = read();
        if owner.0 != pid {
            return Some(owner);
        }
        if started.is_none_or(|started| started == owner.1) {
            return None;
        }
        std::thread::yield_now();
    }
    Some(read())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owner_that_is_only_half_written_is_read_again() {
        let mut reads = [(7, 100), (7, 200), (7, 200), (8, 200)].into_iter();
        assert_eq!(other_owner(|| reads.next().unwrap(), 7, Some(100)), None);
        assert_eq!(other_owner(|| reads.next().unwrap(), 7, Some(100)), Some((8, 200)));
    }

    #[test]
    fn owner_of_another_pid_namespace_can_have_the_same_pid() {
        assert_eq!(other_owner(|| (7, 200), 7, Some(100)), Some((7, 200)));
        assert_eq!(other_owner(|| (7, 200), 7, None), None);
    }
}
