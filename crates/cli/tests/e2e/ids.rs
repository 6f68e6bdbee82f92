//! Tests of verifiable connection IDs: packets to forged IDs must not reach the server.

use std::net::UdpSocket;

use equic_gateway::{Control, ID_FORMAT, JoinOptions, Ledger, TokenCheck};
use equic_token::{IdFormat, IdGenerator};

use crate::attack::{self, Attack, spoofed};
use crate::stage::{Host, Link, TestStage};

const FORGED: u64 = 500;

/// Returns a connection ID that a server behind this gateway could have issued.
pub(crate) fn made_id(stage: &TestStage) -> Vec<u8> {
    let ring = Control::open(Some(&stage.name)).expect("root may look").key_ring().expect("keys");
    let format = IdFormat::new(ID_FORMAT.0, ID_FORMAT.1).expect("a format");
    let id = IdGenerator::new(format, &[0, 0], ring).expect("random numbers").generate();
    id.as_bytes().to_vec()
}

/// Sends packets with short headers and forged connection IDs.
fn forge(stage: &TestStage, host: &Host) {
    let target = stage.target(host.v4());
    host.run(async move {
        let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
        for number in 0..FORGED {
            let mut packet = vec![0x41];
            // The length and the key number in the ID are valid; the rest is random.
            packet.push((number as u8 % 7) << 5 | 11);
            packet.extend([number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes(); 6].concat());
            // Continue even if the socket's buffer is full.
            let _ = socket.send_to(&packet, target);
        }
    });
}

#[test]
fn ids_that_are_forged_are_dropped_and_connections_continue() {
    let Some(stage) = TestStage::with("ids", |lab| lab.clients(2)) else { return };
    let _gateway = stage.gateway(&["-o", "check_ids=true"]);
    let _server = stage.serve(&["--workers", "3", "--migration-settle", "100ms"]);
    assert_eq!(stage.status()["ledgers"][0]["ids"], true);
    let (host, other) = (stage.host(0), stage.host(1));
    let forged = || stage.verdict("forged_id");

    let mover = host.peer("10.77.1.1".parse().expect("an address"));
    let link = mover.connect();
    link.fetch(1_000_000);
    host.peer(host.v6()).connect().fetch(100_000);
    assert_eq!(forged().packets, 0, "{}", stage.status());

    forge(&stage, other);
    crate::common::eventually("drops", || (forged().packets > FORGED / 2).then_some(()));
    let drops = forged();
    assert_eq!(drops.packets, drops.dropped);
    assert!(stage.source(other.v4()).is_empty(), "nothing is kept of them");

    // `explain` must check IDs with the gateway's keys.
    let id = made_id(&stage);
    let explained = |id: &[u8]| {
        let id: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
        let said =
            stage.equic(&["explain", "--json", "--src", "192.0.2.9", "--short", "--dcid", &id]);
        said.json()["reason"].clone()
    };
    assert_eq!(explained(&id), "established");
    let mut other_id = id;
    other_id[ID_FORMAT.0 - 1] ^= 1;
    assert_eq!(explained(&other_id), "forged_id");

    // A client that migrates uses another ID, from a NEW_CONNECTION_ID frame. Its packets arrive at
    // another socket of the server, and must still pass.
    let before = forged().packets;
    for last in [99, 98, 97] {
        mover.rebind(std::net::IpAddr::from([10, 77, 1, last]));
        link.fetch(100_000);
        stage.await_connections(format!("10.77.1.{last}"), 1);
    }
    assert_eq!(forged().packets, before, "{}", stage.status());

    // The keys change during a download. Neither old nor new connections may lose packets. The keys
    // change only as often as the key ring can remember, because the server needs time to replace
    // its IDs.
    let control = Control::open(Some(&stage.name)).expect("root may look");
    let rotate = || {
        for _ in 0..2 {
            control.rotate_keys().expect("keys");
        }
    };
    let mut download = link.download();
    let mut links = Vec::new();
    for _ in 0..5 {
        download.read(100_000);
        rotate();
        download.read(100_000);
        links.push(other.peer(other.v4()).connect());
    }
    links.iter().for_each(|link| link.fetch(10_000));
    assert_eq!(forged().packets, before, "{}", stage.status());
    drop(download);
    // Now the keys change further, so that IDs in use may become invalid. The clients must recover:
    // packets from the server always pass, and bring them new IDs.
    for _ in 0..8 {
        rotate();
        crate::common::eventually("the clients go on", || {
            (link.answers() && links.iter().all(Link::answers)).then_some(())
        });
    }
    mover.connect().fetch(10_000);
}

/// IDs that hide the number of the server's socket must pass the gateway. After a client has
/// migrated, they must still lead to the right socket.
#[test]
fn ids_with_a_hidden_socket_number_pass_the_gateway() {
    let Some(stage) = TestStage::new("hidden", 1) else { return };
    let _gateway = stage.gateway(&["-o", "check_ids=true"]);
    let _server = stage.serve(&["--workers", "8", "--hide-sockets", "--migration-settle", "100ms"]);
    assert_eq!(stage.status()["ledgers"][0]["ids"], true);
    let host = stage.host(0);
    let mover = host.peer("10.77.1.1".parse().expect("an address"));
    let link = mover.connect();
    link.fetch(100_000);
    for last in 90..100 {
        mover.rebind(std::net::IpAddr::from([10, 77, 1, last]));
        link.fetch(100_000);
        stage.await_connections(format!("10.77.1.{last}"), 1);
    }
    // The keys change, and the server must replace the connection's IDs.
    let control = Control::open(Some(&stage.name)).expect("root may look");
    for _ in 0..2 {
        control.rotate_keys().expect("keys");
    }
    link.fetch(100_000);
    mover.rebind(std::net::IpAddr::from([10, 77, 1, 80]));
    link.fetch(100_000);
    assert_eq!(stage.verdict("forged_id").packets, 0, "{}", stage.status());
}

/// A compromised key is withdrawn. Connected clients must continue, and new ones must be able to
/// connect.
#[test]
fn ids_survive_a_renewal_of_the_keys() {
    let Some(stage) = TestStage::new("renew", 1) else { return };
    let folder = tempfile::tempdir().expect("a directory");
    let socket = folder.path().join("sock");
    let socket = socket.to_str().expect("UTF-8");
    let _gateway = stage.gateway(&["--socket", socket]);
    let by_socket = ["serve", "--json", "--listen", "[::]:443", "--gateway", socket];
    let server = crate::common::Running::start(stage.command(), &by_socket);
    server.event("ready");
    stage.await_servers(1);
    stage.set("check_ids=true");
    let host = stage.host(0);
    let link = host.peer(host.v4()).connect();
    let mut download = link.download();
    download.read(100_000);
    let ring =
        || Control::open(Some(&stage.name)).expect("root may look").key_ring().expect("keys");
    let old = ring();
    let told = stage.equic(&["keys", "renew", "--json"]).json();
    assert_eq!(told["schema"], "equic.gateway.keys/1");
    assert_eq!(told["epoch"], old.newest().next().number());
    assert!(!ring().knows(old.epoch()));
    download.read(100_000);
    drop(download);
    crate::common::eventually("the client goes on", || link.answers().then_some(()));
    host.peer(host.v6()).connect().fetch(100_000);
    assert_eq!(stage.verdict("forged_id").packets, 0, "{}", stage.status());

    // An ID that is forged with the withdrawn key must be rejected from a source without
    // connections.
    let format = IdFormat::new(ID_FORMAT.0, ID_FORMAT.1).expect("a format");
    let id = IdGenerator::new(format, &[0, 0], old).expect("random numbers").generate();
    let id: String = id.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    let explain = ["explain", "--json", "--src", "192.0.2.9", "--short", "--dcid", &id];
    assert_eq!(stage.equic(&explain).json()["reason"], "forged_id");
}

/// Sends the same flood to a service without verifiable IDs. Existing and new connections must not
/// be affected.
#[test]
fn unproven_senders_share_a_rate_and_connections_continue() {
    let Some(stage) = TestStage::new("unproven", 2) else { return };
    let gateway = stage.gateway(&[]);
    let refused = stage.equic(&["set", "unproven_per_service=1/s burst 10"]);
    assert!(refused.stderr.contains("no server reports"), "{}", refused.stderr);
    assert_eq!(stage.status()["services"][0]["unproven_per_service"], "off");
    stage.equic(&["set", "unproven_per_service=1/s burst 10", "--force"]).ok();
    let condition = gateway.event("condition");
    assert_eq!(condition["about"], "unproven", "{condition}");
    let _server = stage.serve(&[]);
    assert_eq!(gateway.event("recovered")["about"], "unproven");

    let (host, other) = (stage.host(0), stage.host(1));
    let link = host.peer(host.v4()).connect();
    link.fetch(1_000_000);
    stage.await_connections(host.v4(), 1);
    let drops = || stage.verdict("rate_unproven");
    assert_eq!(drops().packets, 0, "{}", stage.status());
    forge(&stage, other);
    crate::common::eventually("drops", || (drops().packets > FORGED / 2).then_some(()));
    assert_eq!(drops().packets, drops().dropped);
    let before = drops().packets;
    link.fetch(1_000_000);
    other.peer(other.v4()).connect().fetch(100_000);
    assert_eq!(drops().packets, before, "{}", stage.status());
}

/// A valid ID does not prove who sends the packet. Addresses without a connection must therefore
/// share one rate limit, and the gateway must store nothing about them.
#[test]
fn ids_that_are_valid_come_from_any_address_and_share_a_rate() {
    let Some(stage) = TestStage::new("anyid", 2) else { return };
    let _turn = attack::turn();
    let _gateway =
        stage.gateway(&["-o", "check_ids=true", "-o", "unproven_per_service=50/s burst 20"]);
    let _server = stage.serve(&["--migration-settle", "100ms"]);
    let (host, attacker) = (stage.host(0), stage.host(1));
    let mover = host.peer("10.77.1.1".parse().expect("an address"));
    let link = mover.connect();
    link.fetch(100_000);
    stage.await_connections("10.77.1.1", 1);
    let created = || stage.status()["tallies"]["sources_created"].as_u64().expect("a number");
    let before = created();

    let payload = attack::datagram([&[0x41][..], &made_id(&stage), &[7; 30]].concat());
    let target = stage.target(host.v4());
    let attack = Attack { target, origin: spoofed("198.18.0.0/15"), payload, pps: 2_000 };
    let passed = || stage.verdict("established").packets;
    let drops = || stage.verdict("rate_unproven");
    let others = passed();
    attack.send(&attacker.namespace, FORGED);
    crate::common::eventually("all are judged", || {
        (passed() - others + drops().packets >= FORGED).then_some(())
    });
    assert!(drops().packets > 0 && drops().packets == drops().dropped, "{}", stage.status());
    assert_eq!(stage.verdict("forged_id").packets, 0);
    assert_eq!(created(), before, "{}", stage.status());

    // Sources with connections must not be affected. A client may also migrate: its first packets
    // from the new address count towards the shared rate.
    let dropped = drops().packets;
    link.fetch(1_000_000);
    assert_eq!(drops().packets, dropped, "{}", stage.status());
    mover.rebind(std::net::IpAddr::from([10, 77, 1, 99]));
    link.fetch(10_000);
    stage.await_connections("10.77.1.99", 1);
}

/// If ID checks or Retry are enabled before a server has joined, the command must print a warning
/// about what the servers must support.
#[test]
fn settings_without_a_server_print_a_warning() {
    let Some(stage) = TestStage::new("unserved", 1) else { return };
    let _gateway = stage.gateway(&["--mode", "generic"]);
    for (setting, words) in [
        ("check_ids=true", "clients of such a server lose their connections"),
        ("retry=always", "new clients cannot connect"),
        ("quic.stateless_reset=true", "the gateway sends no stateless resets"),
    ] {
        let set = stage.equic(&["set", "--json", setting]);
        assert!(set.stderr.contains("no server of `quic` has"), "{set:?}");
        assert!(!set.stderr.contains("none has not"), "{set:?}");
        assert!(set.stderr.contains(words), "{set:?}");
        let warnings = set.json()["warnings"].clone();
        assert_eq!(warnings.as_array().map(Vec::len), Some(1), "{warnings}");
        assert!(warnings[0].as_str().is_some_and(|text| text.contains(words)), "{warnings}");
    }
    let warned = || stage.equic(&["status"]).ok().contains("warning: retry: no server of `quic`");
    assert!(warned());
    for setting in ["check_ids=false", "retry=never", "max_connections=5"] {
        let set = stage.equic(&["set", "--json", setting]);
        assert_eq!(set.stderr, "");
        assert_eq!(set.json()["warnings"], serde_json::json!([]));
    }
    assert!(!warned());
    // If the server supports these settings, there must be no warning.
    let _server = stage.serve(&[]);
    for setting in ["check_ids=true", "retry=always", "stateless_reset=true"] {
        let set = stage.equic(&["set", setting]);
        assert_eq!((set.code, set.stderr.as_str()), (Some(0), ""), "{set:?}");
    }
    assert!(!warned());
}

/// While a server does not support ID checks, they must not be enabled, unless the operator forces
/// it.
#[test]
fn ids_are_not_checked_while_a_server_does_not_support_them() {
    let Some(stage) = TestStage::new("noids", 1) else { return };
    let folder = tempfile::tempdir().expect("a directory");
    let socket = folder.path().join("sock");
    let socket = socket.to_str().expect("UTF-8");
    let gateway = stage.gateway(&["--socket", socket]);
    let host = stage.host(0);
    let server = stage.serve(&[]);
    let link = host.peer(host.v4()).connect();
    // The server has used the gateway's keys for its IDs from the start. Enabling the check must
    // therefore not affect it.
    stage.set("check_ids=true");
    link.fetch(10_000);
    assert_eq!(stage.verdict("forged_id").packets, 0);
    stage.set("check_ids=false");

    let checking = |name| JoinOptions::new(name).token_check(TokenCheck::GatewayKeys);
    let mute = Ledger::connect(socket, checking("mute")).expect("root may join");
    let refused = stage.equic(&["set", "check_ids=true"]);
    assert!(refused.stderr.contains("mute"), "{}", refused.stderr);
    assert_eq!(stage.status()["services"][0]["check_ids"], false);
    stage.equic(&["set", "check_ids=true", "--force"]).ok();
    let condition = gateway.event("condition");
    assert_eq!(condition["about"], "ids");
    assert!(condition["what"].as_str().is_some_and(|what| what.contains("mute")), "{condition}");
    drop(mute);
    assert_eq!(gateway.event("recovered")["about"], "ids");
    let made = Ledger::connect(socket, checking("maker").issue_ids(true)).expect("joined");
    assert!(made.key_ring().expect("it can be read").is_some());
    stage.set("check_ids=true");
    link.fetch(10_000);
    drop((made, link, server));
}
