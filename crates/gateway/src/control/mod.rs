//! A running gateway from outside: the control plane over its maps.
//!
//! [`Control`] is a handle on the maps of one gateway, this process's (`Gateway::control`) or another
//! process's ([`Control::open`], which needs `CAP_SYS_ADMIN`). Everything the command `equic gateway`
//! shows or changes goes through it, and everything it returns can be written as JSON.
//!
//! * `discover.rs`: finding running gateways, taking them off; `chosen.rs`: the next one after that;
//! * `members.rs`: joining with a ledger, removing the ledgers of the dead;
//! * `status.rs`, `counters.rs`, `sources.rs`: what is going on;
//! * `settings.rs`, `lists.rs`, `replace.rs` (a whole list at once), `reconfigure.rs` (a whole configuration):
//!   what may change while it runs;
//! * `count.rs`: how long the lists are and what changed in them last, without walking them;
//! * `local.rs`: addresses of this host, for the program;
//! * `adaptive.rs`: services that ask for proof of addresses, or are calm;
//! * `refusals.rs`: who was refused how often, for bans;
//! * `audit.rs`: who changed what;
//! * `report.rs`: what the process that looks after the gateway says about itself;
//! * `overview.rs`: readings cheap enough to be made every second;
//! * `events.rs`: sampled drops as they happen; `observer.rs`: looking over the reader's shoulder;
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

/// A handle on a gateway's maps. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Control {
    maps: Arc<Maps>,
    program: u32,
    state: Arc<Mutex<State>>,
    /// The links, where they are this process's: those it may look at without privileges.
    links: Weak<Mutex<Vec<Link>>>,
    /// The program, where it is this process's: what the kernel says of it takes no privilege then.
    own: Weak<OwnedFd>,
    /// The choice by which another process's gateway was found; none for this process's own.
    chosen: Option<Arc<GatewayChoice>>,
}

/// State that a handle keeps between calls.
#[derive(Debug, Default)]
struct State {
    /// Ledgers that are mapped already, by map id.
    ledgers: HashMap<u32, Arc<Memory>>,
    /// Places that were claimed but empty, and since when (monotonic nanoseconds).
    claimed: HashMap<u32, u64>,
    /// Ledgers that cannot be looked into and whose process is dead, and since when that is known.
    dead: HashMap<u32, u64>,
    /// Servers that are not known to be dead.
    watched: Watched,
    /// Reading of the host's addresses.
    local: local::LocalState,
    /// Numbers of things that were removed so far.
    swept: Swept,
    /// Time at which the lists are to be looked through again (monotonic nanoseconds).
    next_lists_ns: u64,
    /// Copies of the key ring for servers at this process's socket.
    served: Vec<Weak<ServedRing>>,
    /// Numbers of list changes that were begun and over when one was seen under way, and since when
    /// they are the same (monotonic nanoseconds).
    list_change: Option<((u64, u64), u64)>,
}

impl Control {
    pub(crate) fn of(maps: Maps, program: u32) -> Control {
        let (maps, links, own) = (Arc::new(maps), Weak::new(), Weak::new());
        Control { maps, program, state: Arc::default(), links, own, chosen: None }
    }

    /// With the links and the program of this process's gateway.
    pub(crate) fn knowing(self, links: Weak<Mutex<Vec<Link>>>, own: Weak<OwnedFd>) -> Control {
        Control { links, own, ..self }
    }

    pub(crate) fn maps(&self) -> &Maps {
        &self.maps
    }

    /// The maps, for somebody who keeps them longer than this handle.
    pub(crate) fn shared_maps(&self) -> Arc<Maps> {
        Arc::clone(&self.maps)
    }

    /// True if this is a handle of the process that loaded the gateway, and shares its state.
    pub(crate) fn is_own(&self) -> bool {
        self.own.strong_count() > 0
    }

    /// The copies of the key ring that servers at this process's socket read.
    pub(crate) fn served_rings(&self) -> Vec<Arc<ServedRing>> {
        let mut state = lock(&self.state);
        state.served.retain(|one| one.strong_count() > 0);
        state.served.iter().filter_map(Weak::upgrade).collect()
    }

    /// Makes a copy of the key ring for servers, which follows the program's.
    pub(crate) fn serve_ring(&self) -> Result<Arc<ServedRing>> {
        let failed = |error| Error::system("copying the key ring for servers", error);
        let served = Arc::new(ServedRing::new(&self.key_ring()?).map_err(failed)?);
        lock(&self.state).served.push(Arc::downgrade(&served));
        Ok(served)
    }

    /// The choice by which another process's gateway was found.
    pub(crate) fn chosen(&self) -> Option<&GatewayChoice> {
        self.chosen.as_deref()
    }

    /// The kernel's id of the program.
    pub fn program_id(&self) -> u32 {
        self.program
    }

    /// The gateway's name.
    pub fn name(&self) -> String {
        from_c_name(&self.maps.control.read().name)
    }

    /// The process that looks after the gateway: the one that loaded it, or took it over last.
    pub fn owner(&self) -> Owner {
        let control = self.maps.control.read();
        let (pid, ticks) = (control.owner_pid, control.owner_start_ticks);
        Owner { pid, alive: sys::alive(pid, ticks) }
    }

    /// True if this process is the owner. (Two processes have the same pid only in two pid
    /// namespaces, and then not the same start.)
    pub(crate) fn is_owner(&self, pid: u32) -> bool {
        let control = self.maps.control.read();
        let started = sys::start_ticks(pid);
        control.owner_pid == pid && started.is_none_or(|ticks| ticks == control.owner_start_ticks)
    }

    /// Writes down that nobody looks after it any more, for those who watch the owner.
    pub(crate) fn disown(&self) {
        let control = self.maps.control.pointer();
        atomic!(AtomicU32, control, owner_pid).store(0, Relaxed);
    }

    /// Writes this process down as the owner.
    pub(crate) fn own(&self) {
        let (control, pid) = (self.maps.control.pointer(), std::process::id());
        let ticks = sys::start_ticks(pid).unwrap_or(0);
        atomic!(AtomicU64, control, network).store(sys::network_namespace(), Relaxed);
        atomic!(AtomicU64, control, owner_start_ticks).store(ticks, Relaxed);
        atomic!(AtomicU32, control, owner_pid).store(pid, Relaxed);
    }

    /// Writes down where it is pinned.
    pub(crate) fn write_pin(&self, path: &std::path::Path) {
        let control = self.maps.control.pointer();
        let bytes: [std::ffi::c_char; 128] = c_name(&path.to_string_lossy());
        for (index, byte) in bytes.iter().enumerate() {
            atomic!(AtomicU8, control, pin[index]).store(*byte as u8, Relaxed);
        }
    }

    /// Directory that the gateway is pinned in; none if it is not pinned.
    pub fn pin(&self) -> Option<std::path::PathBuf> {
        let pin = from_c_name(&self.maps.control.read().pin);
        (!pin.is_empty()).then(|| std::path::PathBuf::from(pin))
    }

    /// The services' names, by index.
    pub fn service_names(&self) -> Vec<String> {
        service_names(&self.maps.services.read())
    }

    /// The name of a service; its number if it has none.
    pub(crate) fn service_name(&self, index: u32) -> String {
        let names = self.service_names();
        names.get(index as usize).cloned().unwrap_or_else(|| index.to_string())
    }

    /// Addresses that the services listen at: (address, index of the service), unspecified
    /// addresses meaning any of the family.
    ///
    /// # Errors
    /// The kernel's error if a call fails.
    pub fn listeners(&self) -> Result<Vec<(SocketAddr, usize)>> {
        self.maps.listening().map_err(reading("the listeners"))
    }

    /// Index of the service whose packets come to a socket bound to this address. A socket on `[::]` takes
    /// IPv4, too.
    ///
    /// # Errors
    /// The kernel's error if a call fails.
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

/// For `map_err`: what could not be read.
pub(crate) fn reading(what: &str) -> impl Fn(std::io::Error) -> Error + '_ {
    move |error| Error::system(format!("reading {what}"), error)
}
