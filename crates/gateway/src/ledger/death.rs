//! Finds servers that are known to be dead (docs/policy.md s.14). The XDP program answers packets
//! of their clients with stateless resets.
//!
//! The process that manages the gateway watches the servers in its slots. A server loses its slot
//! if it was stopped for a long time or has left. It may still serve clients. It is therefore
//! watched until its process has ended. Until then, none of its former slots counts as dead. A
//! process that cannot be observed always counts as alive. Examples are processes of another pid
//! namespace, and processes that /proc hides.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};

use super::membership::{PLACES, Places};
use crate::abi;
use crate::sys;
use crate::sys::region::atomic;

/// For each slot, a bit mask of the quota groups that dead servers served.
type DeadPlaces = [u64; PLACES];

/// The servers that were seen in a slot and are not known to be dead.
#[derive(Debug, Default)]
pub(crate) struct Watched {
    /// The servers, by the ID of their ledger.
    servers: HashMap<u32, Server>,
    /// For each slot, the quota groups of former servers that are known to be dead. `None` before
    /// the first check.
    dead: Option<DeadPlaces>,
    /// The masks that were last written for the XDP program.
    published: DeadPlaces,
    /// For each slot, the ledger of the last server that took the slot.
    last: [u32; PLACES],
    /// Quota groups of servers whose state cannot be observed.
    unsure: u64,
}

#[derive(Debug)]
struct Server {
    member: abi::equic_member,
    /// Bit i is set if the server was seen in slot i.
    places: u32,
}

/// Returns the quota groups that a server may serve.
fn groups(member: &abi::equic_member) -> u64 {
    !member.barred
}

/// Returns true if all connection IDs of the server contain the number of its slot.
pub(super) fn names_its_place(member: &abi::equic_member) -> bool {
    member.flags & abi::EQUIC_MEMBER_IDS != 0
}

fn places_in(mask: u32) -> impl Iterator<Item = usize> {
    (0..PLACES).filter(move |place| mask >> place & 1 == 1)
}

impl Watched {
    /// Records that a server has taken a slot.
    pub(crate) fn add(&mut self, member: &abi::equic_member, slot: u32) {
        let places = self.servers.get(&member.ledger).map_or(0, |server| server.places);
        let server = Server { member: *member, places: places | 1 << slot };
        self.servers.insert(member.ledger, server);
    }

    /// Checks the slots, and the processes of servers that left their slot. Tells the XDP program
    /// which servers are dead.
    pub(crate) fn look(&mut self, places: &Places) -> io::Result<()> {
        let control = places.control().pointer();
        let unsure = atomic!(AtomicU64, control, unsure);
        let dead_at = |place: usize| atomic!(AtomicU64, control, dead[place]);
        let written: DeadPlaces = std::array::from_fn(|place| dead_at(place).load(SeqCst));
        let last: [u32; PLACES] = std::array::from_fn(|place| places.last_ledger(place));
        // The process that managed the gateway before may have known other dead servers.
        let mut dead = self.dead.unwrap_or_else(|| {
            self.unsure = unsure.load(Acquire);
            (self.published, self.last) = (written, last);
            written
        });
        // If the mask in the XDP program's map has changed since the last check, a server took the
        // slot. It may have left the slot again.
        for (dead, (written, published)) in dead.iter_mut().zip(written.iter().zip(self.published))
        {
            if *written != published {
                *dead = 0;
            }
        }
        let mask = places.mask().load(Acquire);
        let taken = places.taken()?;
        for (slot, ledger) in &taken {
            if let Some(member) = ledger.and_then(|ledger| places.member(*slot, ledger)) {
                self.add(&member, *slot);
            }
        }
        // A server can take a slot and leave it between two checks, so the last owner of each slot
        // is added, too.
        for (slot, ledger) in last.into_iter().enumerate() {
            if ledger != 0
                && ledger != std::mem::replace(&mut self.last[slot], ledger)
                && let Some(member) = places.member(slot as u32, ledger)
            {
                self.add(&member, slot as u32);
            }
        }
        let (own, sees_all) = (sys::pid_namespace(), sys::sees_all_processes());
        // These collect the quota groups of live servers that left, the quota groups of live
        // servers whose IDs do not name their slot, and the slots of live servers.
        let (mut away, mut anywhere, mut lived_in) = (0, 0, mask);
        let unknown = &mut self.unsure;
        self.servers.retain(|id, Server { member, places }| {
            let present = taken.iter().any(|(_, ledger)| *ledger == Some(*id));
            let judged = own != 0 && member.pid_namespace == own && sees_all;
            if present || judged && !sys::ended(member.pid, member.start_ticks) {
                lived_in |= *places;
                away |= if present { 0 } else { groups(member) };
                anywhere |= if names_its_place(member) { 0 } else { groups(member) };
                return true;
            }
            if judged {
                places_in(*places).for_each(|place| dead[place] |= groups(member));
            } else {
                *unknown |= groups(member);
            }
            false
        });
        self.dead = Some(dead);
        // The map stores these groups, because a process that takes this gateway over cannot know
        // which servers have left.
        unsure.store(away | self.unsure, Relaxed);
        let alive = anywhere | self.unsure;
        self.published = dead.map(|groups| groups & !alive);
        places_in(lived_in).for_each(|place| self.published[place] = 0);
        // A slot without a ledger is being taken by a server whose groups are not known yet.
        if taken.iter().any(|(_, ledger)| ledger.is_none()) {
            self.published = DeadPlaces::default();
        }
        self.publish(places, mask);
        Ok(())
    }

    /// Writes the quota groups of dead servers for the XDP program. `mask` has the slots that were
    /// checked.
    fn publish(&mut self, places: &Places, mask: u32) {
        let control = places.control().pointer();
        let write = |published: &DeadPlaces| {
            for (place, groups) in published.iter().enumerate() {
                // This is an atomic exchange, as in `Places::take`. So the later of the two
                // operations sees what the other one did before it. Either a server that takes the
                // slot clears this mask, or its slot is seen below.
                atomic!(AtomicU64, control, dead[place]).swap(*groups, SeqCst);
            }
            let gone = published.iter().fold(0, |all, groups| all | groups);
            atomic!(AtomicU64, control, gone).store(gone, SeqCst);
        };
        write(&self.published);
        if places.mask().load(SeqCst) & !mask != 0 {
            self.published = DeadPlaces::default();
            write(&self.published);
        }
    }
}
