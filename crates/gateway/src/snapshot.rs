//! A copy of a running gateway, for trying out packets without affecting the gateway.

use std::collections::HashMap;
use std::os::fd::AsFd as _;

use crate::abi;
use crate::control::{Control, reading};
use crate::error::{Error, Result};
use crate::gateway::Gateway;
use crate::ledger::membership::{Membership, this_process};
use crate::ledger::source::{Keying, Source};
use crate::ledger::table::Table;
use crate::maps::NOTES;
use crate::object::{self, LoadPlan, ObjectSource};
use crate::original::Original;
use crate::sys;
use crate::sys::ids;

/// Index of the loopback interface, which is the same in every network namespace.
const LOOPBACK_IFINDEX: u32 = 1;

impl Control {
    /// Loads the XDP program once more, without attaching it, and copies this gateway's state.
    ///
    /// Services and the connection counts of all servers are copied now. A source's state, prefixes
    /// and handshakes are copied when the copy first judges a packet of that source. The reason is
    /// that the tables can be large, and few of their entries are needed. The copy's clock shows
    /// the present time, and changes only with `Gateway::set_clock`. The copy reads the lists of
    /// this gateway and cannot change them.
    ///
    /// # Errors
    /// Returns the errors of [`Gateway::load`], and those of reading the maps.
    pub fn snapshot(&self, object: ObjectSource) -> Result<Gateway> {
        let maps = self.maps();
        let connections = self.connections()?;
        let writing = |error| Error::system("copying the gateway", error);
        let interfaces = self.interfaces()?;
        let on_loopback = !interfaces.is_empty()
            && interfaces.iter().all(|interface| interface.ifindex == LOOPBACK_IFINDEX);
        let flags = if on_loopback { abi::EQUIC_LOAD_LOOPBACK as u8 } else { 0 };
        let mut load = abi::equic_load { test_clock: 1, explain: 1, flags, ..maps.load };
        // The copy has one ledger, which contains the counts of all ledgers of the original.
        let ledgers = self.members()?.len().max(1).next_power_of_two() as u32;
        load.ledger_mask = (load.ledger_mask + 1).saturating_mul(ledgers) - 1;
        let plan = LoadPlan {
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
        let control = copy.control().clone();
        let to = control.maps();
        let now = sys::monotonic_ns();
        to.control.write(&abi::equic_control {
            clock_ns: now,
            created_ns: now,
            // The copy's ledger has no heartbeat, and a test may set the clock to any time. So its
            // lease must never expire.
            lease_ns: u64::MAX,
            owner_mask: 0,
            // 0 means that no addresses of the host are known. The program then treats all packets
            // as sent to this host.
            local_until_ns: 0,
            transit: 0,
            pin: [0; 128],
            members: Default::default(),
            owner_pid: std::process::id(),
            owner_start_ticks: sys::start_ticks(std::process::id()).unwrap_or(0),
            ..maps.control.read()
        });
        to.services.copy_from(&maps.services);
        to.copy_overrides(maps).map_err(writing)?;
        to.rates.copy_from(&maps.rates);
        to.ring.copy_from(&maps.ring);
        to.ports.copy_from(&maps.ports);
        for (key, value) in maps.listeners.entries().map_err(reading("the listeners"))? {
            to.listeners.put(&key, &value).map_err(writing)?;
        }
        let counted = !connections.is_empty();
        let counts = counted.then(|| join_counted(&control, &connections)).transpose()?;
        copy.ask(Original::new(self.shared_maps(), counts));
        Ok(copy)
    }
}

/// Puts a ledger with these counts into the copy of a gateway. The counts do not change after that.
fn join_counted(copy: &Control, counts: &HashMap<Source, u32>) -> Result<Membership> {
    let (membership, memory) = copy.join_with("snapshot", this_process("snapshot"))?;
    let table = Table::new(memory, Keying::new(&copy.maps().load));
    for (source, count) in counts {
        table.set(*source, *count);
    }
    Ok(membership)
}
