//! Tests of the connection quota: the limit must be exact, and open connections must stay open.

use std::net::IpAddr;
use std::time::Duration;

use crate::common::{PATIENCE, eventually};
use crate::stage::{Attempt, Link, Peer, TestStage};

fn address(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn open<'a>(peer: &Peer<'a>, count: usize) -> Vec<Link<'a>> {
    (0..count).map(|_| peer.connect()).collect()
}

#[test]
fn quota_refuses_only_new_connections() {
    let Some(stage) = TestStage::new("quota", 2) else { return };
    let _gateway = stage.gateway(&["--max-connections", "4"]);
    let _server = stage.serve(&[]);
    let (host, other) = (stage.host(0), stage.host(1));
    // Each connection has its own socket, and therefore its own source port.
    let sockets: Vec<Peer> = (0..5).map(|_| host.peer(host.v4())).collect();
    let mut links: Vec<Link> = sockets[..4].iter().map(Peer::connect).collect();
    stage.await_connections(host.v4(), 4);
    assert_eq!(stage.verdict("quota").packets, 0, "nothing was refused below the limit");

    // An open connection must continue while other attempts of the same source are refused.
    let mut download = links[0].download();
    for _ in 0..3 {
        download.read(500_000);
        stage.assert_refused(&sockets[4], "quota");
        assert_eq!(stage.connections(host.v4()), 4);
        download.read(500_000);
    }
    links.iter().for_each(|link| link.fetch(10_000));
    let row = &stage.source(host.v4())[0];
    assert_eq!((&row["limit"], &row["connections"]), (&4.into(), &4.into()), "{row}");

    // Other sources must not be affected.
    let elsewhere = open(&other.peer(other.v4()), 4);
    elsewhere.iter().for_each(|link| link.fetch(10_000));
    assert_eq!((stage.connections(other.v4()), stage.connections(host.v4())), (4, 4));

    // The CONNECTION_CLOSE frame must get through, so that another connection can open at once.
    drop(download);
    links.remove(1).close();
    stage.await_connections(host.v4(), 3);
    links.push(sockets[4].connect());
    stage.await_connections(host.v4(), 4);
    stage.assert_refused(&sockets[1], "quota");
    links.iter().for_each(|link| link.fetch(10_000));
}

#[test]
fn quota_counts_every_connection_of_one_socket() {
    let Some(stage) = TestStage::new("one-socket", 1) else { return };
    let _gateway = stage.gateway(&["--max-connections", "3"]);
    let _server = stage.serve(&[]);
    let host = stage.host(0);
    let peer = host.peer(host.v4());
    let mut links = open(&peer, 3);
    stage.await_connections(host.v4(), 3);
    stage.assert_refused(&peer, "quota");
    links.pop().expect("three").close();
    stage.await_connections(host.v4(), 2);
    links.push(peer.connect());
    stage.assert_refused(&peer, "quota");
    links.iter().for_each(|link| link.fetch(10_000));
}

/// All handshakes start before one is complete, so the gateway lets all of them in. The server must
/// close those that exceed the quota.
#[test]
fn quota_is_kept_after_a_burst_of_handshakes() {
    let Some(stage) = TestStage::new("burst", 1) else { return };
    let _gateway = stage.gateway(&["--max-connections", "4"]);
    let _server = stage.serve(&[]);
    let host = stage.host(0);
    let peer = host.peer(host.v4());
    // Clients whose first Initial is dropped must have enough time to send a second one.
    let attempts = peer.attempt_many(16, Duration::from_secs(6));
    let count = |what: fn(&Attempt) -> bool| attempts.iter().filter(|a| what(a)).count();
    let open = count(|attempt| matches!(attempt, Attempt::Open(_)));
    let turned_away = count(|attempt| matches!(attempt, Attempt::Refused | Attempt::Silence));
    assert_eq!((open, turned_away), (4, 12));
    stage.await_connections(host.v4(), 4);
    // Once four connections are open, the kernel must drop every further attempt.
    let dropped = || stage.verdict("quota").dropped;
    let before = dropped();
    peer.start(443, 16).assert_in_vain("16 are dropped", || dropped() >= before + 16);
    assert_eq!(stage.connections(host.v4()), 4);
}

/// Runs the eQUIC paper's parallel clients, which replace every connection that ends.
#[test]
fn quota_is_kept_by_parallel_clients() {
    let Some(stage) = TestStage::new("parallel", 2) else { return };
    let _gateway = stage.gateway(&["--max-connections", "5"]);
    let _server = stage.serve(&[]);
    let (host, other) = (stage.host(0), stage.host(1));
    let url = format!("https://{}/bytes/1000", stage.target(host.v4()));
    let mut load = equic_load::Load::parallel(url.clone(), 1, 25);
    load.trust = equic_http3::Trust::Insecure;
    load.sources = vec![host.v4()];
    load.timeout = Duration::from_millis(500);
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    std::thread::scope(|scope| {
        let greedy = scope.spawn(|| {
            host.run(async move {
                let stop = async { drop(stopped.await) };
                equic_load::run(load, (), stop).await.expect("the load runs")
            })
        });
        stage.await_connections(host.v4(), 5);
        eventually("refusals", || (stage.verdict("quota").dropped >= 100).then_some(()));
        let mut well = equic_load::Load::sequential(url, 2);
        (well.trust, well.count) = (equic_http3::Trust::Insecure, Some(30));
        well.sources = vec![other.v4()];
        well.timeout = PATIENCE;
        let well = other.run(async {
            let forever = std::future::pending();
            equic_load::run(well, (), forever).await.expect("the load runs")
        });
        assert_eq!((well.requests, well.ok), (30, 30), "{well:?}");
        for _ in 0..10 {
            assert_eq!(stage.connections(host.v4()), 5);
        }
        drop(stop);
        let greedy = greedy.join().expect("the load runs");
        assert_eq!(greedy.ok, 5, "{greedy:?}");
    });
    stage.await_connections(host.v4(), 0);
}

#[test]
fn quota_of_ipv6_counts_by_64() {
    let elsewhere: equic_gateway::IpNet = "2001:db8:77::/64".parse().expect("a prefix");
    let Some(stage) = TestStage::with("ipv6", |lab| lab.client_prefix(0, elsewhere)) else {
        return;
    };
    let _gateway = stage.gateway(&["--max-connections", "2"]);
    let _server = stage.serve(&[]);
    let host = stage.host(0);
    let peer = |text: &str| host.peer(address(text));
    let source = "fd65:7175:6963:1::/64";
    let mut links =
        vec![peer("fd65:7175:6963:1::1").connect(), peer("fd65:7175:6963:1:ffff::2").connect()];
    stage.await_connections(source, 2);
    stage.assert_refused(&peer("fd65:7175:6963:1::3"), "quota");
    stage.assert_refused(&peer("fd65:7175:6963:1::1"), "quota");
    // Another /64 of the same host must count as another source, and so must its IPv4 address.
    links.extend(open(&peer("2001:db8:77::1"), 2));
    stage.await_connections("2001:db8:77::/64", 2);
    stage.assert_refused(&peer("2001:db8:77::2"), "quota");
    links.extend(open(&peer("10.77.1.1"), 2));
    links.iter().for_each(|link| link.fetch(10_000));
    assert_eq!(stage.connections(source), 2);
}

/// With a limit of 1, the source reaches its limit before its only connection has exchanged all
/// handshake packets. The remaining ones must still pass.
#[test]
fn quota_of_one_admits_one_connection() {
    let Some(stage) = TestStage::new("one", 1) else { return };
    let _gateway = stage.gateway(&["--max-connections", "1"]);
    let _server = stage.serve(&[]);
    let host = stage.host(0);
    let peer = host.peer(host.v4());
    for _ in 0..10 {
        let link = peer.connect();
        link.fetch(100_000);
        stage.await_connections(host.v4(), 1);
        link.close();
        stage.await_connections(host.v4(), 0);
    }
    assert_eq!(stage.verdict("quota").packets, 0);
    assert_eq!(stage.verdict("new").packets, 10);
}

/// With this configuration, an IPv6 /48 and an IPv4 /24 must each count as one source.
#[test]
fn quota_counts_by_the_configured_prefix_lengths() {
    let Some(stage) = TestStage::new("prefix", 2) else { return };
    let file = tempfile::NamedTempFile::new().expect("a file");
    let text = "[gateway]\ninterfaces = [\"eth0\"]\nsource_prefix_v4 = 24\n\
                [[service]]\nname = \"web\"\nlisten = [\"443\"]\nmax_connections = 2\n";
    std::fs::write(file.path(), text).expect("it can be written");
    let config = file.path().to_str().expect("a path");
    let _gateway = stage.gateway_with(&["--config", config]).0;
    let _server = stage.serve(&[]);
    let (host, other) = (stage.host(0), stage.host(1));
    let links =
        [host.peer(address("10.77.1.1")).connect(), host.peer(address("10.77.1.200")).connect()];
    stage.await_connections("10.77.1.0/24", 2);
    stage.assert_refused(&host.peer(address("10.77.1.77")), "quota");
    other.peer(other.v4()).connect().fetch(10_000);
    links.iter().for_each(|link| link.fetch(10_000));
}
