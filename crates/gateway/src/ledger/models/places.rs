use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire};

use loom::sync::atomic::AtomicU32;

use super::super::death::Watched;
use super::super::membership::{LedgerArray, Membership, Places};
use super::{check, spawn};
use crate::abi;
use crate::sys;
use crate::sys::region::{Shared, atomic};

/// Stands for the kernel's array of maps, whose elements are read and exchanged atomically. In the
/// model, a ledger is a file, and its ID is that of the file.
#[derive(Debug, Clone)]
struct Elements(Arc<[AtomicU32; 3]>);

impl LedgerArray for Elements {
    fn get(&self, slot: u32) -> io::Result<Option<u32>> {
        Ok(Some(self.0[slot as usize].load(Acquire)).filter(|id| *id != 0))
    }

    fn put(&self, slot: u32, ledger: BorrowedFd<'_>) -> io::Result<()> {
        self.0[slot as usize].swap(id(ledger), AcqRel);
        Ok(())
    }

    fn delete(&self, slot: u32) -> io::Result<()> {
        self.0[slot as usize].swap(0, AcqRel);
        Ok(())
    }
}

fn id(ledger: BorrowedFd<'_>) -> u32 {
    nix::sys::stat::fstat(ledger).expect("a file").st_ino as u32
}

/// The slots of a gateway, as every process sees them.
#[derive(Clone)]
struct Gateway {
    elements: Elements,
    control: Arc<Shared<abi::equic_control>>,
}

impl Gateway {
    fn new() -> Gateway {
        let elements = Elements(Arc::new([0, 0, 0].map(AtomicU32::new)));
        let gateway = Gateway { elements, control: Arc::new(Shared::anonymous().expect("memory")) };
        gateway.places().mask();
        let control = gateway.control.pointer();
        atomic!(AtomicU64, control, gone);
        atomic!(AtomicU64, control, unsure);
        for place in 0..abi::EQUIC_MAX_OWNERS as usize {
            atomic!(AtomicU64, control, dead[place]);
        }
        for slot in 0..3 {
            atomic!(AtomicU32, control, members[slot].ledger);
            atomic!(AtomicU32, control, members[slot].pid);
            atomic!(AtomicU32, control, members[slot].uid);
            atomic!(AtomicU32, control, members[slot].flags);
            atomic!(AtomicU64, control, members[slot].start_ticks);
            atomic!(AtomicU64, control, members[slot].barred);
            atomic!(AtomicU64, control, members[slot].pid_namespace);
            for at in 0..32 {
                atomic!(AtomicU8, control, members[slot].name[at]);
            }
        }
        gateway
    }

    fn places(&self) -> Places {
        Places::new(self.elements.clone(), Arc::clone(&self.control))
    }

    fn join(&self, server: &Server) -> Membership {
        let slot = self.places().take(&server.ledger, &server.member).expect("no error");
        let ledger = server.ledger.try_clone().expect("a descriptor");
        let slot = slot.expect("a slot is free");
        let membership = Membership::of(self.places(), ledger, server.member, slot);
        membership.stay();
        membership
    }

    /// Returns the slot that has the server's ledger, if one has it.
    fn slot_of(&self, server: &Server) -> Option<u32> {
        let taken = self.places().taken().expect("no error");
        let of_it = |(_, ledger): &&(u32, Option<u32>)| *ledger == Some(server.member.ledger);
        taken.iter().find(of_it).map(|(slot, _)| *slot)
    }
}

struct Server {
    ledger: OwnedFd,
    member: abi::equic_member,
}

impl Server {
    fn new() -> Server {
        let ledger = OwnedFd::from(tempfile::tempfile().expect("a file"));
        let member = abi::equic_member {
            ledger: id(ledger.as_fd()),
            pid: std::process::id(),
            pid_namespace: sys::pid_namespace(),
            ..abi::equic_member::default()
        };
        Server { ledger, member }
    }
}

#[test]
fn slot_is_never_shared_by_two_servers() {
    let servers = Arc::new([Server::new(), Server::new()]);
    check(move || {
        let gateway = Gateway::new();
        let (there, those) = (gateway.clone(), Arc::clone(&servers));
        let other = spawn(move || there.join(&those[1]).slot());
        let one = gateway.join(&servers[0]).slot();
        let two = other.join().unwrap();
        assert_ne!(one, two);
        assert_eq!(gateway.slot_of(&servers[0]), Some(one));
        assert_eq!(gateway.slot_of(&servers[1]), Some(two));
    });
}

/// A server that left its slot may still serve connections whose IDs contain that slot. Another
/// server must not get the slot until the first server's process has ended.
#[test]
fn slot_is_kept_while_its_process_lives() {
    // This server is the machine's first process, which never ends.
    let mut drains = Server::new();
    (drains.member.pid, drains.member.start_ticks) = (1, sys::start_ticks(1).expect("it lives"));
    let mut dead = Server::new();
    (dead.member.pid, dead.member.start_ticks) = (u32::MAX >> 1, 1);
    let (drains, dead) = (Arc::new(drains), Arc::new(dead));
    let servers = Arc::new([Server::new(), Server::new()]);
    check(move || {
        let gateway = Gateway::new();
        let kept = gateway.join(&drains).slot();
        let free = gateway.join(&dead).slot();
        assert!(gateway.places().empty(kept, drains.member.ledger).expect("no error"));
        assert!(gateway.places().empty(free, dead.member.ledger).expect("no error"));
        // Two servers that join at the same time must get different slots.
        let (there, those) = (gateway.clone(), Arc::clone(&servers));
        let other = spawn(move || there.join(&those[1]).slot());
        let one = gateway.join(&servers[0]).slot();
        let two = other.join().unwrap();
        assert!(one != two && one != kept && two != kept, "{one} and {two}");
        // The server that left may return to its slot.
        assert_eq!(gateway.join(&drains).slot(), kept);
    });
}

/// Two processes clean up after the same dead server while another server takes its slot. That
/// server may lose its slot, but its next heartbeat must repair this.
#[test]
fn slot_lost_by_mistake_is_regained_at_the_next_heartbeat() {
    let (dead, server) = (Arc::new(Server::new()), Arc::new(Server::new()));
    check(move || {
        let gateway = Gateway::new();
        let place = gateway.join(&dead).slot();
        let clean = |gateway: Gateway, id| move || drop(gateway.places().empty(place, id));
        let cleaners = [(); 2].map(|()| spawn(clean(gateway.clone(), dead.member.ledger)));
        let membership = gateway.join(&server);
        for cleaner in cleaners {
            cleaner.join().unwrap();
        }
        membership.renew().expect("a place");
        assert_eq!(gateway.slot_of(&server), Some(membership.slot()));
        assert_eq!(gateway.slot_of(&dead), None);
    });
}

/// Clients of a dead server must get resets, unless another server has taken its slot.
#[test]
fn reset_stops_when_a_server_takes_the_slot() {
    // No process has this ID, because the largest one on Linux is 4,194,304.
    let mut dead = Server::new();
    (dead.member.pid, dead.member.start_ticks) = (u32::MAX >> 1, 1);
    let (dead, server) = (Arc::new(dead), Arc::new(Server::new()));
    assert!(sys::sees_all_processes(), "this process can see whether other processes live");
    check(move || {
        let gateway = Gateway::new();
        let mut watched = Watched::default();
        watched.add(&dead.member, 0);
        let (there, other) = (gateway.clone(), Arc::clone(&server));
        let joining = spawn(move || drop(there.join(&other)));
        watched.look(&gateway.places()).expect("no error");
        joining.join().unwrap();
        let dead = atomic!(AtomicU64, gateway.control.pointer(), dead[0]).load(Acquire);
        assert_eq!(dead, 0, "the server of the slot is alive");
    });
}
