//! Tests of clients that migrate to another address: the connection must count for the client's
//! current address.

use std::net::IpAddr;

use equic_gateway::IpNet;

use crate::stage::{Peer, TestStage};

fn address(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// Options for a server that reports a migration after a short time. By default, it waits longer,
/// until it is clear that the client stays.
const SETTLE: [&str; 2] = ["--migration-settle", "100ms"];

#[test]
fn migration_moves_the_count_with_the_client() {
    let Some(stage) = TestStage::new("move", 1) else { return };
    let _gateway = stage.gateway(&["--max-connections", "2"]);
    let _server = stage.serve(&SETTLE);
    let host = stage.host(0);
    let (old, new) = (address("10.77.1.1"), address("10.77.1.99"));
    let movers = [host.peer(old), host.peer(old)];
    let links = movers.each_ref().map(Peer::connect);
    stage.await_connections(old, 2);
    stage.assert_refused(&host.peer(old), "quota");

    movers[0].rebind(new);
    links[0].fetch(10_000);
    stage.await_connections(new, 1);
    stage.await_connections(old, 1);
    links[1].fetch(10_000);
    assert_eq!((stage.connections(old), stage.connections(new)), (1, 1), "one has stayed");
    movers[1].rebind(new);
    links[1].fetch(10_000);
    stage.await_connections(new, 2);
    stage.await_connections(old, 0);
    // The old address must have room for new connections, and the new address must be at its quota.
    stage.assert_refused(&host.peer(new), "quota");
    let others = [host.peer(old).connect(), host.peer(old).connect()];
    stage.await_connections(old, 2);
    links.iter().chain(&others).for_each(|link| link.fetch(10_000));

    // Closed connections must be removed from the count of the new address.
    let [first, second] = links;
    first.close();
    stage.await_connections(new, 1);
    second.close();
    stage.await_connections(new, 0);
    assert_eq!(stage.connections(old), 2);
}

#[test]
fn migration_changes_the_count_only_between_sources() {
    let elsewhere: IpNet = "2001:db8:77::/64".parse().expect("a prefix");
    let Some(stage) = TestStage::with("move6", |lab| lab.client_prefix(0, elsewhere)) else {
        return;
    };
    let _gateway = stage.gateway(&["--max-connections", "1"]);
    let _server = stage.serve(&SETTLE);
    let host = stage.host(0);
    let (here, there) = ("fd65:7175:6963:1::/64", "2001:db8:77::/64");
    let mover = host.peer(address("fd65:7175:6963:1::1"));
    let link = mover.connect();
    stage.await_connections(here, 1);
    mover.rebind(address("fd65:7175:6963:1::2"));
    link.fetch(10_000);
    stage.assert_refused(&host.peer(address("fd65:7175:6963:1::1")), "quota");
    mover.rebind(address("2001:db8:77::9"));
    link.fetch(10_000);
    stage.await_connections(there, 1);
    stage.await_connections(here, 0);
    let other = host.peer(address("fd65:7175:6963:1::1")).connect();
    stage.assert_refused(&host.peer(address("2001:db8:77::1")), "quota");
    link.fetch(10_000);
    other.fetch(10_000);
}
