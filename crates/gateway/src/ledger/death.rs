//! Servers that are known to be dead (docs/policy.md s.14). The program answers packets of their
//! clients.
//!
//! The process that manages the gateway watches the servers in its slots. A server without its slot
//! may still serve: it was stopped for a long time, or has left. It is watched until its process
//! has ended, and until then none of its former slots counts as dead. A process that cannot be
//! observed, such as one of another pid namespace or one hidden by /proc, counts as alive for good.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};

use super::membership::{PLACES, Places};
use crate::abi;
use crate::sys;
use crate::sys::region::atomic;

/// Quota groups of dead servers, by slot.
type DeadPlaces = [u64; PLACES];

/// Servers that were seen in a slot and are not known to be dead.
#[derive(Debug, Default)]
pub(crate) struct Watched {
    /// By the ids of their ledgers.
    servers: HashMap<u32, Server>,
    /// Groups of servers that had a slot and are known to be dead. `None` before the first look.
    dead: Option<DeadPlaces>,
    /// The value that was last written for the program.
    published: DeadPlaces,
    /// The ledger of the last server that was seen to take each slot.
    last: [u32; PLACES],
    /// Quota groups of servers whose state cannot be observed.
    unsure: u64,
}

#[derive(Debug)]
struct Server {
    member: abi::equic_member,
    /// Bit i: it was seen in slot i.
    places: u32,
}

/// Returns the quota groups that a server may serve.
fn groups(member: &abi::equic_member) -> u64 {
    !member.barred
}

/// Returns true if all connection IDs of a server name its slot.
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

    /// Checks the slots, and the processes of servers that left theirs. Tells the program which are
    /// dead.
    pub(crate) fn look(&mut self, places: &Places) -> io::Result<()> {
        let control = places.control().pointer();
        let unsure = atomic!(AtomicU64, control, unsure);
        let dead_at = |place: usize| atomic!(AtomicU64, control, dead[place]);
        let written: DeadPlaces = std::array::from_fn(|place| dead_at(place).load(SeqCst));
        let last: [u32; PLACES] = std::array::from_fn(|place| places.last_ledger(place));
        // The previous process may have known more dead servers.
        let mut dead = self.dead.unwrap_or_else(|| {
            self.unsure = unsure.load(Acquire);
            (self.published, self.last) = (written, last);
            written
        });
        // A server took the slot since the last look, and may have left it again.
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
        // A server can take a slot and leave it between two looks.
        for (slot, ledger) in last.into_iter().enumerate() {
            if ledger != 0
                && ledger != std::mem::replace(&mut self.last[slot], ledger)
                && let Some(member) = places.member(slot as u32, ledger)
            {
                self.add(&member, slot as u32);
            }
        }
        let (own, sees_all) = (sys::pid_namespace(), sys::sees_all_processes());
        // Groups of live servers that left, groups of live servers whose IDs name any slot, and
        // slots of live servers.
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
        // A process that takes this gateway over does not know which servers left.
        unsure.store(away | self.unsure, Relaxed);
        let alive = anywhere | self.unsure;
        self.published = dead.map(|groups| groups & !alive);
        places_in(lived_in).for_each(|place| self.published[place] = 0);
        // A server is moving in, and its groups are not known yet.
        if taken.iter().any(|(_, ledger)| ledger.is_none()) {
            self.published = DeadPlaces::default();
        }
        self.publish(places, mask);
        Ok(())
    }

    /// Writes for the program which servers are dead. `mask` has the slots that were checked.
    fn publish(&mut self, places: &Places, mask: u32) {
        let control = places.control().pointer();
        let write = |published: &DeadPlaces| {
            for (place, groups) in published.iter().enumerate() {
                // An exchange, as in `Places::take`: the later of the two sees what the other did
                // before it. Either that server removes its slot from these, or its slot is seen
                // below.
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
