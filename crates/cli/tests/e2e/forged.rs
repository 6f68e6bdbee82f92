//! Tests of packets with a forged source address, and of migrations. A connection must count only
//! for an address that the client has validated, and never above the quota.

use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use crate::common::{EQUIC, Running, eventually};
use crate::stage::{Attempt, Host, Link, Peer, TestStage};

const QUOTA: u64 = 4;

/// Returns how often the connections of a server have entered a migration state, by its qlog files.
fn migrations(folder: &Path, state: &str) -> u64 {
    let event = format!("\"new\":\"{state}\"");
    let files = std::fs::read_dir(folder).expect("the folder can be listed");
    let log = |file: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_to_string(file.expect("an entry").path()).expect("a readable file")
    };
    files.map(|file| log(file).matches(&event).count() as u64).sum()
}

/// Lets a host send with the address of another host. The host does not answer ARP requests for
/// this address.
fn claim(stage: &TestStage, host: &Host, address: IpAddr) {
    let quiet = || std::fs::write("/proc/sys/net/ipv4/conf/all/arp_ignore", "1");
    host.namespace.run(quiet).expect("inside").expect("the setting is there");
    stage.ip(&host.namespace, &format!("address add {address}/32 dev lo"));
}

fn release(stage: &TestStage, host: &Host, address: IpAddr) {
    stage.ip(&host.namespace, &format!("address del {address}/32 dev lo"));
}

fn open<'a>(attempts: Vec<Attempt<'a>>) -> Vec<Link<'a>> {
    let link = |attempt| if let Attempt::Open(link) = attempt { Some(link) } else { None };
    attempts.into_iter().filter_map(link).collect()
}

fn banned(stage: &TestStage, address: IpAddr) -> bool {
    let lists = stage.equic(&["lists", "--json"]).json();
    let entries: &Vec<Value> = lists["entries"].as_array().expect("entries");
    entries.iter().any(|entry| entry["prefix"] == format!("{address}/32").as_str())
}

/// An attacker opens as many connections as its quota allows. On each, it sends a request with a
/// victim's address, and then nothing more. After that, it tries to open as many connections again.
/// It does this four times. The victim must not be affected, and the attacker must not get more
/// connections.
#[test]
fn forged_source_address_neither_takes_nor_frees_a_place() {
    let Some(stage) = TestStage::new("forged", 2) else { return };
    let file = tempfile::NamedTempFile::new().expect("a file");
    let config = format!(
        "[gateway]\ninterfaces = [\"eth0\"]\n[ban]\ntimes = 8\n\
         [[service]]\nname = \"web\"\nlisten = [\"443\"]\nmax_connections = {QUOTA}\n"
    );
    std::fs::write(file.path(), config).expect("it can be written");
    let _gateway = stage.gateway_with(&["--config", file.path().to_str().expect("a path")]).0;
    let qlog = tempfile::tempdir().expect("a folder");
    let folder = qlog.path().to_str().expect("a path");
    let _server = stage.serve(&["--migration-settle", "0s", "--qlog-dir", folder]);
    let (attacker, victim) = (stage.host(0), stage.host(1));
    let (at, there) = (attacker.v4(), victim.v4());
    let kept = victim.peer(there).connect();
    stage.await_connections(there, 1);

    let peer = attacker.peer(at);
    let held = open(peer.attempt_many(QUOTA as usize, Duration::from_secs(20)));
    assert_eq!(held.len() as u64, QUOTA);
    stage.await_connections(at, QUOTA);
    let mut peers: Vec<Peer<'_>> = Vec::new();
    for round in 0..4 {
        claim(&stage, attacker, there);
        peer.rebind(there);
        let requests: Vec<_> = held.iter().map(|link| link.start_fetch(1)).collect();
        // Each connection migrates to the victim's address, and later back to its old address.
        eventually("the server gets a forged packet on each connection", || {
            (migrations(qlog.path(), "migration_started") == QUOTA * (2 * round + 1)).then_some(())
        });
        assert!(requests.iter().all(|request| !request.is_finished()), "answered elsewhere");
        release(&stage, attacker, there);
        requests.iter().for_each(|request| request.abort());
        let check = || {
            assert_eq!(stage.connections(there), 1, "round {round}");
            assert_eq!(stage.connections(at), QUOTA, "round {round}");
            kept.fetch(1);
        };
        // The server waits three seconds for the client's response (RFC 9000 s.8.2.4).
        eventually("the server gives up each validation", || {
            check();
            (migrations(qlog.path(), "migration_abandoned") == QUOTA * (round + 1)).then_some(())
        });
        check();
        let another = attacker.peer(at);
        let more = open(another.attempt_many(QUOTA as usize, Duration::from_millis(300)));
        assert!(more.is_empty(), "round {round}: {} more than the quota", more.len());
        peers.push(another);
    }

    // The victim must still be able to use its whole quota.
    let others: Vec<Link<'_>> = (1..QUOTA).map(|_| victim.peer(there).connect()).collect();
    stage.await_connections(there, QUOTA);
    assert!(!banned(&stage, there));
    kept.fetch(10_000);
    others.iter().for_each(|link| link.fetch(10_000));
}

#[test]
fn migration_to_an_address_at_its_quota_closes_the_connection() {
    let Some(stage) = TestStage::new("full", 1) else { return };
    let _gateway = stage.gateway(&["--max-connections", "2"]);
    let _server = stage.serve(&["--migration-settle", "100ms"]);
    let host = stage.host(0);
    let (home, full): (IpAddr, IpAddr) = (host.v4(), "10.77.1.99".parse().expect("an address"));
    let residents = [host.peer(full).connect(), host.peer(full).connect()];
    stage.await_connections(full, 2);
    let peer = host.peer(home);
    let movers = [peer.connect(), peer.connect()];
    stage.await_connections(home, 2);
    peer.rebind(full);
    for mover in &movers {
        let _ = mover.fetch_within(1, Duration::from_millis(500));
        mover.await_closed();
    }
    stage.await_connections(home, 0);
    assert_eq!(stage.connections(full), 2);
    residents.iter().for_each(|link| link.fetch(10_000));
    // A client may migrate to an address that is below its quota.
    let [first, second] = residents;
    first.close();
    stage.await_connections(full, 1);
    let peer = host.peer(home);
    let mover = peer.connect();
    stage.await_connections(home, 1);
    peer.rebind(full);
    mover.fetch(10_000);
    stage.await_connections(full, 2);
    stage.await_connections(home, 0);
    second.fetch(10_000);
}

/// The quota of a source must apply to all servers of a service together.
#[test]
fn migration_counts_the_connections_of_other_processes() {
    let Some(stage) = TestStage::new("full-two", 1) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let (file, socket) = (folder.path().join("gateway.toml"), folder.path().join("sock"));
    let config = format!(
        "[gateway]\ninterfaces = [\"eth0\"]\n[gateway.socket]\npath = {socket:?}\n\
         [[service]]\nname = \"web\"\nlisten = [\"443\", \"444\", \"445\"]\nmax_connections = 2\n"
    );
    std::fs::write(&file, config).expect("it can be written");
    let socket = socket.to_str().expect("a path");
    let _gateway = stage.gateway_with(&["--config", file.to_str().expect("a path")]).0;
    let settle = ["--migration-settle", "100ms"];
    let _first = stage.serve_on(443, &settle);
    // One server joins through the gateway's maps, the others through its socket.
    let _others = ["[::]:444", "[::]:445"].map(|address| {
        let listen = ["serve", "--json", "--gateway", socket, "--listen", address];
        let args = [&listen[..], &["--idle-timeout", "1h"], &settle].concat();
        let server = Running::start(stage.lab.server().command(EQUIC), &args);
        server.event("ready");
        server
    });
    let host = stage.host(0);
    let (home, full): (IpAddr, IpAddr) = (host.v4(), "10.77.1.99".parse().expect("an address"));
    let resident = host.peer(full);
    let residents = [444, 445].map(|port| resident.connect_at(port));
    stage.await_connections(full, 2);
    for port in [443, 444, 445] {
        let peer = host.peer(home);
        let mover = peer.connect_at(port);
        stage.await_connections(home, 1);
        peer.rebind(full);
        let _ = mover.fetch_within(1, Duration::from_millis(500));
        mover.await_closed();
        stage.await_connections(home, 0);
        assert_eq!(stage.connections(full), 2);
    }
    residents.iter().for_each(|link| link.fetch(10_000));
}
