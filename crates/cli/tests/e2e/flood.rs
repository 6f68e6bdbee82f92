//! Tests of floods with forged sources, which target a victim's quota or the gateway's memory, and
//! of floods with real sources.

use std::time::Instant;

use equic_http3::Trust;
use equic_load::{self as load, Load};

use crate::attack::{self, Attack, spoofed};
use crate::common::{PATIENCE, eventually};
use crate::ids::made_id;
use crate::stage::{Host, TestStage};

/// Opens connections one after the other, with one request on each. Returns the number of
/// successful requests.
fn well_behaved(stage: &TestStage, host: &Host, requests: u64) -> u64 {
    let url = format!("https://{}/bytes/20000", stage.target(host.v4()));
    let mut load = Load::sequential(url, 1);
    (load.trust, load.count, load.timeout) = (Trust::Insecure, Some(requests), PATIENCE);
    load.sources = vec![host.v4()];
    let forever = std::future::pending();
    host.run(async { load::run(load, (), forever).await.expect("the load runs") }).ok
}

/// A connection counts only when its handshake is complete. For this, the client must receive
/// packets at its address, so forged Initials must not use up the victim's quota.
#[test]
fn flood_of_spoofed_initials_leaves_the_victims_quota_unused() {
    let Some(stage) = TestStage::new("victim", 2) else { return };
    let _turn = attack::turn();
    let _gateway = stage.gateway(&["--max-connections", "2"]);
    let _server = stage.serve(&[]);
    let (victim, attacker) = (stage.host(0), stage.host(1));
    let attack = |payload, pps| Attack {
        target: stage.target(victim.v4()),
        origin: spoofed(&format!("{}/32", victim.v4())),
        payload,
        pps,
    };
    attack(attack::initials(500), 2_000).send(&attacker.namespace, 500);
    eventually("the server got them", || (stage.verdict("new").packets >= 500).then_some(()));
    assert_eq!(stage.connections(victim.v4()), 0);
    // The victim must be able to connect during the flood.
    let flood = attack(attack::initials(1_000), 200).start(&attacker.namespace);
    let peer = victim.peer(victim.v4());
    let links = [peer.connect(), peer.connect()];
    stage.await_connections(victim.v4(), 2);
    links.iter().for_each(|link| link.fetch(10_000));
    let report = flood.end();
    assert!(report.sent > 0);
    assert_eq!(stage.connections(victim.v4()), 2);
    // Now the victim is at its quota, so the forged attempts are refused. That must not affect the
    // victim's open connections.
    let before = stage.verdict("quota").dropped;
    attack(attack::initials(100), 2_000).send(&attacker.namespace, 100);
    eventually("refusals", || (stage.verdict("quota").dropped >= before + 100).then_some(()));
    links.iter().for_each(|link| link.fetch(10_000));
}

/// Sends from far more forged sources than any table can hold.
#[test]
fn flood_that_fills_the_tables_neither_blocks_nor_admits_clients() {
    const TABLE: u64 = 2048;
    let Some(stage) = TestStage::new("tables", 3) else { return };
    let _turn = attack::turn();
    let file = tempfile::NamedTempFile::new().expect("a file");
    let text = format!(
        "[gateway]\ninterfaces = [\"eth0\"]\nsources = {TABLE}\nhandshakes = {TABLE}\n\
         ledger_sources = {TABLE}\n\
         [[service]]\nname = \"web\"\nlisten = [\"443\"]\nmax_connections = 2\n"
    );
    std::fs::write(file.path(), text).expect("it can be written");
    let config = file.path().to_str().expect("a path");
    let _gateway = stage.gateway_with(&["--config", config]).0;
    let _server = stage.serve(&[]);
    let (legitimate, greedy, attacker) = (stage.host(0), stage.host(1), stage.host(2));
    let held = greedy.peer(greedy.v4());
    let held = [held.connect(), held.connect()];
    let peer = legitimate.peer(legitimate.v4());
    let link = peer.connect();
    stage.await_connections(greedy.v4(), 2);

    let target = stage.target(legitimate.v4());
    let attack = |payload, pps| Attack { target, origin: spoofed("198.18.0.0/15"), payload, pps };
    let flood = attack(attack::undecryptable_initials(), 1_500).start(&attacker.namespace);
    let evicted = |table: &str| {
        stage.status()["tallies"][format!("{table}_evicted")].as_u64().expect("a number")
    };
    eventually("evictions", || {
        (evicted("sources") > 4 * TABLE && evicted("handshakes") > 4 * TABLE).then_some(())
    });
    // Check a new connection, and one from before the flood.
    let mut download = link.download();
    for _ in 0..5 {
        assert_eq!(well_behaved(&stage, legitimate, 4), 4);
        download.read(200_000);
    }
    // The quota is stored in another table than the flooded ones, so it must still apply.
    stage.assert_refused(&greedy.peer(greedy.v4()), "quota");
    held.iter().for_each(|link| link.fetch(10_000));
    let report = flood.end();
    assert!(report.sent > 4 * TABLE, "{report:?}");
    let status = stage.status();
    for table in status["tables"].as_array().expect("tables") {
        assert!(table["entries"].as_u64() <= table["capacity"].as_u64(), "{table}");
    }
    assert_eq!(stage.connections(greedy.v4()), 2);
    let seen = stage.verdict("new").packets;
    assert!(seen > 4 * TABLE, "{seen} of {}", report.sent);
}

/// Random packets with a short header open no connection, so the quota passes them. The rate limit
/// must drop them.
#[test]
fn flood_of_garbage_is_dropped_by_the_rate_of_its_source() {
    const RATE: u64 = 1_000;
    let Some(stage) = TestStage::new("garbage", 2) else { return };
    let _turn = attack::turn();
    let rate = format!("{RATE}/s burst {RATE}");
    let _gateway = stage.gateway(&["--packets-per-source", &rate]);
    let _server = stage.serve(&[]);
    let (legitimate, attacker) = (stage.host(0), stage.host(1));
    let peer = legitimate.peer(legitimate.v4());
    let link = peer.connect();
    let target = stage.target(attacker.v4());
    let begun = Instant::now();
    let flood = Attack::from(attacker.v4(), target, attack::garbage(), 20_000);
    let flood = flood.start(&attacker.namespace);
    eventually("drops", || (stage.verdict("rate_packets").dropped > 5 * RATE).then_some(()));
    link.fetch(100_000);
    assert_eq!(well_behaved(&stage, legitimate, 5), 5);
    let report = flood.end();
    let bound = RATE + RATE * (begun.elapsed().as_secs() + 1);
    let rows = stage.source(attacker.v4());
    let number = |key: &str| rows[0][key].as_u64().expect("a number");
    assert!(number("packets") <= report.sent);
    let passed = number("packets") - number("drops");
    assert!((RATE..=bound).contains(&passed), "{passed} passed, not {RATE} to {bound}");
    let rows = stage.source(legitimate.v4());
    assert_eq!(rows[0]["drops"], 0, "{rows:?}");
}

/// Sends Initials from a real source faster than the rate limit permits. The server must receive
/// only as many as the limit permits.
#[test]
fn flood_of_initials_beyond_the_rate_never_reaches_the_server() {
    let Some(stage) = TestStage::new("initials", 2) else { return };
    let _turn = attack::turn();
    let _gateway = stage.gateway(&["--new-per-source", "10/s burst 20"]);
    let server = stage.serve(&[]);
    let (legitimate, attacker) = (stage.host(0), stage.host(1));
    let target = stage.target(attacker.v4());
    let begun = Instant::now();
    let flood = Attack::from(attacker.v4(), target, attack::initials(4_096), 5_000);
    let report = flood.send(&attacker.namespace, 4_000);
    eventually("all are judged", || {
        let rows = stage.source(attacker.v4());
        (rows.first()?["packets"].as_u64()? >= 4_000).then_some(())
    });
    let bound = 20 + 10 * (begun.elapsed().as_secs() + 1);
    assert_eq!(well_behaved(&stage, legitimate, 5), 5);
    let dropped = stage.verdict("rate_new_source").dropped;
    assert!(dropped >= report.sent - bound, "{dropped} of {}, bound {bound}", report.sent);
    server.signal(nix::sys::signal::Signal::SIGTERM);
    let stopped = server.event("stopped");
    let attempts = stopped["stats"]["attempts"].as_u64().expect("a number");
    assert!((20..=bound + 5).contains(&attempts), "{attempts} attempts, at most {bound} and 5");
}

/// Malformed datagrams, which no client sends, must be dropped with separate reasons.
#[test]
fn malformed_packets_are_counted_by_their_reasons() {
    let Some(stage) = TestStage::new("malformed", 1) else { return };
    let _gateway = stage.gateway(&[]);
    let _server = stage.serve(&[]);
    let host = stage.host(0);
    let socket = host.namespace.udp_socket((host.v4(), 0).into()).expect("a socket");
    let target = stage.target(host.v4());
    let mut small = vec![0xc3, 0, 0, 0, 1, 8, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0x40, 0x40];
    small.resize(200, 0);
    for (reason, datagram) in [
        ("small_initial", &small[..]),
        ("truncated", &[0xc3, 0, 0, 0, 1]),
        ("tiny_short", &[0x40; 20]),
        ("version_negotiation", &[0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]),
        ("empty", &[]),
    ] {
        socket.send_to(datagram, target).expect("it can be sent");
        eventually(reason, || (stage.verdict(reason).dropped == 1).then_some(()));
    }
    let peer = host.peer(host.v4());
    peer.connect().fetch(10_000);
}

/// Sends packets that open no connection from more addresses than the table of sources can hold.
/// None of the existing sources may be evicted, so limits that a source has used up must stay used
/// up.
#[test]
fn flood_of_unknown_sources_evicts_no_known_source() {
    const TABLE: u64 = 1_024;
    let Some(stage) = TestStage::new("strangers", 2) else { return };
    let _turn = attack::turn();
    let file = tempfile::NamedTempFile::new().expect("a file");
    let text = format!(
        "[gateway]\ninterfaces = [\"eth0\"]\nmode = \"generic\"\nsources = {TABLE}\n\
         [[service]]\nname = \"web\"\nlisten = [\"443\"]\nretry = \"always\"\ncheck_ids = true\n\
         new_per_source = \"1/h burst 1\"\n"
    );
    std::fs::write(file.path(), text).expect("it can be written");
    let config = file.path().to_str().expect("a path");
    let gateway = stage.gateway_with(&["--config", config, "--mode", "generic"]).0;
    let _server = stage.serve(&[]);
    let (host, attacker) = (stage.host(0), stage.host(1));
    let peer = host.peer(host.v4());
    let link = peer.connect();
    let created = || stage.status()["tallies"]["sources_created"].as_u64().expect("a number");
    let before = created();

    let id = made_id(&stage);
    let short = [&[0x41][..], &id, &[7; 30]].concat();
    let payloads = [
        (attack::datagram(short), "established"),
        (attack::garbage(), "forged_id"),
        (attack::future_versions(), "version_negotiation_sent"),
        (attack::undecryptable_initials(), "retry_sent"),
        (attack::datagram(vec![0x41]), "tiny_short"),
    ];
    for (payload, reason) in payloads {
        let seen = stage.verdict(reason).packets;
        let target = stage.target(host.v4());
        let attack = Attack { target, origin: spoofed("198.18.0.0/15"), payload, pps: 4_000 };
        attack.send(&attacker.namespace, 2 * TABLE);
        eventually(reason, || (stage.verdict(reason).packets >= seen + TABLE).then_some(()));
    }
    assert_eq!(created(), before, "{}", stage.status());
    stage.assert_refused(&peer, "rate_new_source");
    link.fetch(10_000);
    drop(gateway);
}
