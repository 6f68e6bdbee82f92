//! A running gateway from outside: the control plane over its maps.
//!
//! [`Control`] is a handle on the maps of one gateway, this process's (`Gateway::control`) or another
//! process's ([`Control::open`], which needs `CAP_SYS_ADMIN`). Everything the command `equic gateway`
//! shows or changes goes through it, and everything it returns can be written as JSON.
//!
//! * `discover.rs`: finding running gateways, taking them off;
//! * `members.rs`: joining with a ledger, removing the ledgers of the dead;
//! * `status.rs`, `counters.rs`, `sources.rs`: what is going on;
//! * `settings.rs`, `lists.rs`, `replace.rs` (a whole list at once): what may change while it runs;
//! * `refusals.rs`: who was refused how often, for bans;
//! * `report.rs`: what the process that looks after the gateway says about itself;
//! * `overview.rs`: readings cheap enough to be made every second;
//! * `events.rs`: sampled drops as they happen; `observer.rs`: looking over the reader's shoulder;
//! * `snapshot.rs`: a copy to try packets on.

mod counters;
mod discover;
mod events;
mod lists;
mod members;
mod observer;
mod overview;
mod refusals;
mod replace;
mod report;
mod settings;
mod snapshot;
mod sources;
mod status;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use crate::config::from_c_name;
use crate::error::{Error, Result};
use crate::ledger::service_names;
use crate::ledger::table::Memory;
use crate::maps::Maps;

pub use counters::{CounterRow, Tallies};
pub use discover::{Found, Interface};
pub use events::{Event, Events};
pub use lists::{ListAction, ListEntry, Origin};
pub use members::Swept;
pub use observer::Observer;
pub use overview::{Overview, RunStats, SourceKey, SourceSample};
pub use refusals::{Refusals, RefusedSource};
pub use replace::Replaced;
pub use report::{BanTotals, Condition, InterfaceReport, Level, Reload, Report};
pub use settings::Change;
pub use sources::{SortBy, SourceRow};
pub use status::{LedgerStatus, Owner, ServiceStatus, Status, TableStatus};

/// A handle on a gateway's maps. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Control {
    maps: Arc<Maps>,
    program: u32,
    state: Arc<Mutex<State>>,
}

/// What a handle remembers between calls.
#[derive(Debug, Default)]
struct State {
    /// Ledgers that are mapped already, by map id.
    ledgers: HashMap<u32, Arc<Memory>>,
    /// Places that were claimed but empty, and since when (monotonic nanoseconds).
    claimed: HashMap<u32, u64>,
    /// What was removed so far.
    swept: Swept,
    /// When the lists are to be looked through again (monotonic nanoseconds).
    next_lists_ns: u64,
}

impl Control {
    pub(crate) fn of(maps: Maps, program: u32) -> Control {
        Control { maps: Arc::new(maps), program, state: Arc::default() }
    }

    pub(crate) fn maps(&self) -> &Maps {
        &self.maps
    }

    /// The kernel's id of the program.
    pub fn program_id(&self) -> u32 {
        self.program
    }

    /// The gateway's name.
    pub fn name(&self) -> String {
        from_c_name(&self.maps.control.read().name)
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

    /// Where the services listen: (address, index of the service), unspecified addresses meaning any
    /// of the family.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn listeners(&self) -> Result<Vec<(SocketAddr, usize)>> {
        self.maps.listening().map_err(reading("the listeners"))
    }
}

/// For `map_err`: what could not be read.
fn reading(what: &str) -> impl Fn(std::io::Error) -> Error + '_ {
    move |error| Error::system(format!("reading {what}"), error)
}
