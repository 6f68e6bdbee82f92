//! Servers that are known to be dead (docs/policy.md s.14): only then does the program say so to their clients.
//!
//! Whoever looks after the gateway watches the servers that have a place. One that is not in its place any more may
//! still serve: it was stopped for long, or has left. It is watched on until its process has ended, and as long as one of
//! them may live nobody of its quota groups is taken for gone. What cannot be judged, such as a process of another
//! pid namespace or one that /proc may hide, is taken to live for good.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};

use super::membership::Places;
use crate::abi;
use crate::sys;
use crate::sys::region::atomic;

/// Servers that were seen in a place, and are not known to be dead.
#[derive(Debug, Default)]
pub(crate) struct Watched {
    /// By the ids of their ledgers.
    servers: HashMap<u32, abi::equic_member>,
    /// Quota groups of servers that are known to be dead; none before the first look.
    dead: Option<u64>,
    /// Quota groups that a server may serve of which nothing can be told.
    unsure: u64,
}

/// Quota groups that a server may serve.
fn groups(member: &abi::equic_member) -> u64 {
    !member.barred
}

impl Watched {
    /// A server has taken a place.
    pub(crate) fn add(&mut self, member: &abi::equic_member) {
        self.servers.insert(member.ledger, *member);
    }

    /// Looks at the places and at the processes of those who left theirs, and tells the program whose servers are gone.
    pub(crate) fn look(&mut self, places: &Places) -> io::Result<()> {
        let control = places.control().pointer();
        let gone = atomic!(AtomicU64, control, gone);
        let unsure = atomic!(AtomicU64, control, unsure);
        // The process before this one has known more.
        let dead = self.dead.get_or_insert_with(|| {
            self.unsure = unsure.load(Acquire);
            gone.load(Acquire)
        });
        let mask = places.mask().load(Acquire);
        let taken = places.taken()?;
        for (slot, ledger) in &taken {
            if let Some(member) = ledger.and_then(|ledger| places.member(*slot, ledger)) {
                self.servers.insert(member.ledger, member);
            }
        }
        let (own, sees_all) = (sys::pid_namespace(), sys::sees_all_processes());
        let (mut alive, mut away) = (0, 0);
        self.servers.retain(|id, member| {
            let present = taken.iter().any(|(_, ledger)| *ledger == Some(*id));
            let judged = own != 0 && member.pid_namespace == own && sees_all;
            if present || judged && !sys::ended(member.pid, member.start_ticks) {
                *(if present { &mut alive } else { &mut away }) |= groups(member);
                return true;
            }
            *(if judged { &mut *dead } else { &mut self.unsure }) |= groups(member);
            false
        });
        let away = away | self.unsure;
        unsure.store(away, Relaxed);
        // Somebody is moving in, or has: whoever it is, its groups are not gone.
        let steady = taken.iter().all(|(_, ledger)| ledger.is_some());
        // An exchange, as in `Places::take`: whichever comes second sees what the other one did before it. Either that
        // server takes its groups out of these, or its place is seen below.
        gone.swap(if steady { *dead & !alive & !away } else { 0 }, SeqCst);
        if places.mask().load(SeqCst) & !mask != 0 {
            gone.store(0, SeqCst);
        }
        Ok(())
    }
}
