//! Tests that servers move from a gateway that ends to the gateway that replaces it. Needs root.

mod support;

use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use equic_gateway::{
    Action, Config, Control, Gateway, JoinEvent, Ledger, Mode, ObjectSource, SortBy,
};
use support::{Child, Initial, await_that, config, in_namespace, root};

const A: &str = "192.0.2.1:4000";
const B: &str = "[2001:db8::1]:4000";
/// Timeout of a step. It is much longer than any step of these tests takes.
const PATIENCE: Duration = Duration::from_secs(60);

fn heard(ledger: &Ledger) -> Receiver<JoinEvent> {
    let (sender, events) = channel();
    ledger.notify(move |event| drop(sender.send(event.clone())));
    events
}

fn loaded(config: &Config) -> Gateway {
    Gateway::load(config, ObjectSource::Embedded).unwrap()
}

/// Returns a gateway that is attached to `veth0`. Servers move only from an attached gateway to
/// another attached gateway.
fn attached(config: &Config) -> Gateway {
    let gateway = loaded(config);
    gateway.attach("veth0", Mode::Native).unwrap();
    gateway
}

fn action(gateway: &Gateway, from: &str) -> Action {
    gateway.test_run(&Initial::from(from).next(), None).unwrap().action
}

#[test]
fn follow_restores_the_quota_with_open_connections() {
    in_namespace(|| {
        let mut config = config("follow");
        config.services[0].max_connections = 2;
        let first = attached(&config);
        let ledger = Control::open(Some(&config.gateway.name)).unwrap().join("server").unwrap();
        let (events, before) = (heard(&ledger), ledger.program_id());
        let service = ledger.service("quic").unwrap();
        let open = |peer: &str| service.opened(peer.parse().unwrap());
        let (one, two, mut other) = (open(A), open(A), open(B));
        assert_eq!(action(&first, A), Action::Drop);

        drop(first);
        let lost = events.recv_timeout(PATIENCE).unwrap();
        assert_eq!(lost, JoinEvent::Lost { gateway: config.gateway.name.clone() });
        assert!(!ledger.gateway_alive());
        // While there is no gateway, one connection closes, one opens, and one migrates.
        drop(one);
        let three = open(B);
        other.moved(A.parse().unwrap());

        config.gateway.ledger_sources = 64;
        let second = attached(&config);
        let joined = events.recv_timeout(PATIENCE).unwrap();
        let JoinEvent::Joined { gateway, unheard, connections, carried, missing } = &joined else {
            panic!("{joined}")
        };
        assert_eq!((gateway, *connections, *carried), (&config.gateway.name, 3, true), "{joined}");
        assert!(missing.is_empty() && !unheard.is_zero(), "{joined}");
        assert_ne!(ledger.program_id(), before);
        assert_eq!((action(&second, A), action(&second, B)), (Action::Drop, Action::Pass));
        assert_eq!((service.count(A.parse().unwrap()), service.limit()), (2, 2));
        // Dropping a guard must change the count that the new gateway sees.
        drop(two);
        assert_eq!(action(&second, A), Action::Pass);
        drop((three, other));
        assert_eq!(ledger.connections(), 0);
        assert!(second.control().sources(9, SortBy::Connections).unwrap()[0].connections == 0);
    });
}

#[test]
fn follow_after_a_kill_names_a_missing_service() {
    in_namespace(|| {
        let name = support::unique("killed");
        let child = Child::start("gateway", &name);
        child.ready();
        // The gateway is chosen by its interface, so its successor may have another name.
        let ledger = Control::open(Some("veth0")).unwrap().join("server").unwrap();
        let events = heard(&ledger);
        let _open = ledger.service("quic").unwrap().opened(A.parse().unwrap());
        child.kill();
        assert!(matches!(events.recv_timeout(PATIENCE).unwrap(), JoinEvent::Lost { .. }));
        let mut other = config("another-name");
        other.services[0].name = "web".to_owned();
        let next = attached(&other);
        let joined = events.recv_timeout(PATIENCE).unwrap();
        let JoinEvent::Joined { missing, .. } = &joined else { panic!("{joined}") };
        assert_eq!(missing, &["quic"]);
        assert!(joined.to_string().contains("no service `quic`"), "{joined}");
        assert_eq!(next.control().ledgers().unwrap()[0].name, "server");
    });
}

#[test]
fn follow_skips_gateways_of_other_network_namespaces() {
    in_namespace(|| {
        let config = config("twin");
        let _stranger = attached(&config);
        let not_there_yet = config.clone();
        // The interfaces in this namespace have the same names and indices, as in containers.
        in_namespace(move || {
            let first = attached(&config);
            let ledger = Control::open(Some("veth0")).unwrap().join("server").unwrap();
            let events = heard(&ledger);
            let lost = JoinEvent::Lost { gateway: config.gateway.name.clone() };
            drop(first);
            assert_eq!(events.recv_timeout(PATIENCE).unwrap(), lost);
            // Two gateways have the right name, but one of them is not attached yet, so the server
            // must not move to it.
            let _not_there_yet = loaded(&not_there_yet);
            let second = attached(&config);
            let joined = events.recv_timeout(PATIENCE).unwrap();
            assert!(matches!(joined, JoinEvent::Joined { .. }), "{joined}");
            assert_eq!(ledger.program_id(), Some(second.program_id()));
        });
    });
}

#[test]
fn follow_without_privileges_reports_that_it_cannot_join() {
    in_namespace(|| {
        let config = config("dropped");
        let gateway = loaded(&config);
        let child = Child::start("server", &config.gateway.name);
        child.ready();
        await_that("it has joined", || gateway.control().ledgers().unwrap().len() == 1);
        drop(gateway);
        let said = child.output();
        assert!(said.contains("cannot join") && said.contains("not permitted"), "{said}");
    });
}

/// Entry point of the child processes that other tests start. In a normal test run, it does
/// nothing.
#[test]
fn child() {
    let Some((role, name)) = support::role() else { return };
    assert!(root());
    match role.as_str() {
        "gateway" => {
            let mut config = Config::for_port(4433);
            config.gateway.name = name;
            let _gateway = attached(&config);
            support::say_ready_and_wait();
        }
        "server" => {
            let ledger = Control::open(Some(&name)).unwrap().join("child").unwrap();
            support::drop_privileges();
            let events = heard(&ledger);
            println!("READY");
            println!("{}", events.recv_timeout(PATIENCE).unwrap());
        }
        other => panic!("no role {other}"),
    }
}
