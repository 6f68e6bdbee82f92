use std::net::SocketAddr;
use std::sync::Arc;

use super::super::binding::{BindingKind, GatewayBinding, LedgerState};
use super::super::{Inner, Ledger};
use super::{check, keying, spawn, table};
use crate::config::Config;
use crate::services::{Services, services_of};
use crate::sys::region::Shared;

const ONE: &str = "192.0.2.1:1";
const TWO: &str = "192.0.2.2:1";

fn peer(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

/// Returns a gateway with this mask for IPv4 sources.
fn gateway(services: &Services, v4_mask: u32) -> GatewayBinding {
    let shared = Shared::anonymous().expect("memory");
    shared.write(services);
    let settings = (Arc::new(shared), Arc::new(Shared::anonymous().expect("memory")));
    let binding =
        GatewayBinding::first(table(keying(v4_mask)), settings, None, BindingKind::InMemory);
    // loom requires that the shared memory is accessed before the threads start.
    binding.limit_for(0, peer(ONE).ip());
    binding.enforces(0);
    binding
}

fn services() -> Box<Services> {
    let mut config = Config::for_port(4433);
    config.services[0].max_connections = 1;
    Box::new(services_of(&config))
}

fn ledger(services: &Services) -> Ledger {
    let core = Arc::new(LedgerState::new(gateway(services, u32::MAX)));
    Ledger { inner: Arc::new(Inner { _heartbeat: None, _follower: None, core }) }
}

#[test]
fn ledger_bind_carries_open_connections_to_the_next_gateway() {
    let services = services();
    check(move || {
        let ledger = ledger(&services);
        let service = ledger.service_at(0).expect("a service");
        let before = service.opened(peer(ONE));
        let (next, core) = (gateway(&services, u32::MAX), Arc::clone(&ledger.inner.core));
        let mover = spawn(move || {
            assert!(
                core.bind(|| Ok(next)).expect("a binding"),
                "the counts of equal sources can be transferred"
            )
        });
        let during = service.opened(peer(ONE));
        assert_eq!((during.count(), before.current(), service.count(peer(ONE))), (2, 2, 2));
        assert!(during.over_limit() && service.full(peer(ONE)));
        drop(before);
        mover.join().unwrap();
        assert_eq!((during.current(), ledger.connections()), (1, 1));
        assert_eq!(ledger.opened_total(), 2);
        drop(during);
        assert_eq!((service.count(peer(ONE)), ledger.connections()), (0, 0));
        assert!(ledger.binding().table.memory().all_free());
    });
}

#[test]
fn ledger_bind_counts_a_migrating_connection_once() {
    let services = services();
    check(move || {
        let ledger = ledger(&services);
        let service = ledger.service_at(0).expect("a service");
        let mut guard = service.opened(peer(ONE));
        let (next, core) = (gateway(&services, u32::MAX), Arc::clone(&ledger.inner.core));
        let mover = spawn(move || assert!(core.bind(|| Ok(next)).expect("a binding")));
        guard.moved(peer(TWO));
        assert_eq!(guard.current(), 1);
        mover.join().unwrap();
        assert_eq!((service.count(peer(ONE)), service.count(peer(TWO))), (0, 1));
        drop(guard);
        assert_eq!(ledger.connections(), 0);
        assert!(ledger.binding().table.memory().all_free());
    });
}

/// The next gateway has longer source prefixes. It must not count older connections, and closing
/// them must not subtract anything from its counts.
#[test]
fn ledger_bind_subtracts_nothing_that_was_not_carried() {
    let services = services();
    check(move || {
        let coarse = Arc::new(LedgerState::new(gateway(&services, 0xff)));
        let inner = Inner { _heartbeat: None, _follower: None, core: coarse };
        let ledger = Ledger { inner: Arc::new(inner) };
        let service = ledger.service_at(0).expect("a service");
        let before = service.opened(peer(ONE));
        let (next, core) = (gateway(&services, u32::MAX), Arc::clone(&ledger.inner.core));
        let mover = spawn(move || {
            assert!(
                !core.bind(|| Ok(next)).expect("a binding"),
                "the counts of different sources cannot be transferred"
            )
        });
        let during = service.opened(peer(ONE));
        drop(before);
        mover.join().unwrap();
        let counted = u64::from(during.generation == 1);
        assert_eq!((ledger.connections(), u64::from(during.current())), (counted, counted));
        drop(during);
        assert_eq!(ledger.connections(), 0);
        assert!(ledger.binding().table.memory().all_free());
    });
}
