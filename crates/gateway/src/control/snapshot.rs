//! A copy of a running gateway, to try packets on without touching the original.

use std::os::fd::AsFd as _;

use super::{Control, reading};
use crate::abi;
use crate::error::{Error, Result};
use crate::gateway::Gateway;
use crate::ledger::membership::this_process;
use crate::ledger::source::{Keying, Source};
use crate::ledger::table::Table;
use crate::maps::NOTES;
use crate::object::{self, ObjectSource, Plan};
use crate::sys;
use crate::sys::ids;

/// The same in every network namespace.
const LOOPBACK_IFINDEX: u32 = 1;

impl Control {
    /// Loads the program once more, attached to nothing, with everything this gateway knows at this
    /// moment: services, sources, prefixes, handshakes, and the connection counts of all servers. Its clock
    /// stands still at the present; `Gateway::set_clock` moves it. The lists are the gateway's own, which
    /// the copy looks into and cannot change: they may be long.
    ///
    /// # Errors
    /// Those of [`Gateway::load`] and of reading the maps.
    pub fn snapshot(&self, object: ObjectSource) -> Result<Gateway> {
        let maps = &self.maps;
        let connections = self.connections()?;
        let writing = |error| Error::system("copying the gateway", error);
        let interfaces = self.interfaces()?;
        let on_loopback = !interfaces.is_empty()
            && interfaces.iter().all(|interface| interface.ifindex == LOOPBACK_IFINDEX);
        let loopback = on_loopback.into();
        let mut load = abi::equic_load { test_clock: 1, explain: 1, loopback, ..maps.load };
        // One ledger takes what several held.
        let ledgers = self.members()?.len().max(1).next_power_of_two() as u32;
        load.ledger_mask = (load.ledger_mask + 1).saturating_mul(ledgers) - 1;
        let plan = Plan {
            load,
            listeners: maps.listeners.max_entries(),
            acl_entries: maps.acl4.max_entries(),
            sources: maps.sources.max_entries(),
            handshakes: maps.handshakes.max_entries(),
        };
        let failed = reading("the deny and allow lists");
        let mut shared = Vec::new();
        for (name, trie) in [("acl4", maps.acl4.as_fd()), ("acl6", maps.acl6.as_fd())] {
            shared.push((name.to_owned(), ids::read_only(trie).map_err(&failed)?));
        }
        if let Some(numbers) = &maps.notes_map {
            shared.push((NOTES.to_owned(), numbers.try_clone().map_err(&failed)?));
        }
        let mut copy = Gateway::of(object::load_over(&object, &plan, &shared)?);
        let to = copy.control().clone();
        let now = sys::monotonic_ns();
        to.maps.control.write(&abi::equic_control {
            clock_ns: now,
            created_ns: now,
            // The copied counts have no heartbeat, and the clock may be moved far.
            lease_ns: u64::MAX,
            owner_mask: 0,
            pin: [0; 128],
            members: Default::default(),
            owner_pid: std::process::id(),
            owner_start_ticks: sys::start_ticks(std::process::id()).unwrap_or(0),
            ..maps.control.read()
        });
        to.maps.services.copy_from(&maps.services);
        to.maps.copy_overrides(maps).map_err(writing)?;
        to.maps.rates.copy_from(&maps.rates);
        to.maps.ring.copy_from(&maps.ring);
        to.maps.ports.copy_from(&maps.ports);
        for (key, value) in maps.listeners.entries().map_err(reading("the listeners"))? {
            to.maps.listeners.put(&key, &value).map_err(writing)?;
        }
        let (keys, values): (Vec<_>, Vec<_>) =
            maps.sources.entries().map_err(reading("the sources"))?.into_iter().unzip();
        to.maps.sources.put_many(&keys, &values).1.map_err(writing)?;
        let (keys, values): (Vec<_>, Vec<_>) =
            maps.handshakes.entries().map_err(reading("the handshakes"))?.into_iter().unzip();
        to.maps.handshakes.put_many(&keys, &values).1.map_err(writing)?;
        let (keys, values): (Vec<_>, Vec<_>) =
            maps.prefixes.entries().map_err(reading("the prefixes"))?.into_iter().unzip();
        to.maps.prefixes.put_many(&keys, &values).1.map_err(writing)?;
        if !connections.is_empty() {
            copy.keep(to.join_counted(&connections)?);
        }
        Ok(copy)
    }

    /// A ledger with these counts, which stays as it is.
    fn join_counted(
        &self,
        counts: &std::collections::HashMap<Source, u32>,
    ) -> Result<crate::ledger::membership::Membership> {
        let (membership, memory) = self.join_with("snapshot", this_process("snapshot"))?;
        let table = Table::new(memory, Keying::new(&self.maps.load));
        for (source, count) in counts {
            table.set(*source, *count);
        }
        Ok(membership)
    }
}
