//! Clients prove their addresses to the gateway, which answers in the server's name.

use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt as _;

use equic_gateway::Ledger;

use crate::common::{EQUIC, Running, eventually};
use crate::stage::TestStage;

/// Opening Initials of version 1, without tokens and all different.
fn initial(number: u32) -> Vec<u8> {
    let mut packet = vec![0xc3, 0, 0, 0, 1, 8];
    packet.extend([number.to_be_bytes(), number.to_be_bytes()].concat());
    packet.push(4);
    packet.extend(number.to_be_bytes());
    packet.push(0);
    let length = 1200 - packet.len() - 2;
    packet.extend((0x4000 | length as u16).to_be_bytes());
    packet.resize(1200, 0);
    packet
}

#[test]
fn clients_prove_their_addresses_to_the_gateway() {
    let Some(stage) = TestStage::new("retry", 2) else { return };
    let folder = tempfile::tempdir().expect("a directory");
    let keys = folder.path().join("keys");
    let keys = keys.to_str().expect("UTF-8");
    // So few new connections that a flood would take all of them.
    let gateway = ["--retry", "always", "--retry-keys", keys, "--new-per-service", "1/s burst 3"];
    // What a program behind a veth sends back arrives where another program is before it, or in this mode.
    let _gateway = stage.gateway(&[&gateway[..], &["--mode", "generic"]].concat());
    let mode = std::fs::metadata(keys).expect("the gateway wrote it").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let server = stage.serve(&["--retry-keys", keys]);

    let (host, other) = (stage.host(0), stage.host(1));
    host.peer(host.v4()).connect().fetch(100_000);
    let (answered, proved) = (stage.verdict("retry_sent"), stage.verdict("proved"));
    assert!(answered.packets >= 1 && answered.dropped == answered.packets, "{answered:?}");
    assert_eq!((proved.packets, stage.verdict("new").packets), (1, 0));
    host.peer(host.v6()).connect().fetch(100_000);
    assert_eq!(stage.verdict("proved").packets, 2);

    // Somebody sends Initials as fast as it goes and looks at no answer: nothing is left of it but answers,
    // and a newcomer gets in.
    let target = stage.target(other.v4());
    other.run(async move {
        let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
        for number in 0..5_000 {
            // Full buffers are no reason to stop.
            let _ = socket.send_to(&initial(number), target);
        }
    });
    eventually("answers", || (stage.verdict("retry_sent").packets > 1_000).then_some(()));
    assert_eq!(stage.verdict("proved").packets, 2);
    assert!(stage.source(other.v4()).is_empty(), "nothing is kept of who has proved nothing");
    other.peer(other.v4()).connect().fetch(100_000);
    assert_eq!(stage.verdict("proved").packets, 3);

    // Not asked for any more: it goes on without.
    stage.equic(&["set", "retry=never", "new_per_service=off"]).ok();
    host.peer(host.v4()).connect().fetch(1_000);
    assert_eq!((stage.verdict("proved").packets, stage.verdict("new").packets), (3, 1));
    drop(server);
}

/// Calm, then a flood, then calm again: only who comes during the flood has to prove its address.
#[test]
fn proof_is_asked_for_while_many_come() {
    let Some(stage) = TestStage::new("adaptive", 2) else { return };
    let folder = tempfile::tempdir().expect("a directory");
    let keys = folder.path().join("keys");
    let keys = keys.to_str().expect("UTF-8");
    let adaptive = ["--retry", "adaptive", "--retry-above", "20/s", "--retry-hold", "1h"];
    let rest = ["--retry-keys", keys, "--mode", "generic"];
    let gateway = stage.gateway(&[&adaptive[..], &rest].concat());
    let _server = stage.serve(&["--retry-keys", keys]);
    let (host, other) = (stage.host(0), stage.host(1));
    let flood = |from: u32| {
        let target = stage.target(other.v4());
        other.run(async move {
            let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
            for number in from..from + 1_000 {
                let _ = socket.send_to(&initial(number), target);
            }
        });
    };
    let state = |key: &str| stage.status()["services"][0]["adaptive"][key].clone();
    let source = other.v4().to_string();
    let explained = || stage.equic(&["explain", "--json", "--src", &source]).json();
    let metric = |line: &str| {
        let text = stage.equic(&["metrics", "--once"]).ok();
        assert!(text.lines().any(|one| one == line), "no {line} in {text}");
    };

    host.peer(host.v4()).connect().fetch(1_000);
    assert_eq!((stage.verdict("new").packets, stage.verdict("retry_sent").packets), (1, 0));
    assert_eq!((state("asking"), state("began")), (false.into(), 0.into()));
    assert_eq!(explained()["reason"], "new");
    metric("equic_service_asking{service=\"quic\"} 0");

    flood(0);
    assert_eq!(gateway.event("retry")["asking"], true);
    assert_eq!((state("asking"), state("began")), (true.into(), 1.into()));
    assert_eq!(explained()["reason"], "retry_sent");
    metric("equic_service_asking{service=\"quic\"} 1");
    metric("equic_service_asking_began_total{service=\"quic\"} 1");
    assert_eq!(stage.verdict("proved").packets, 0);
    host.peer(host.v4()).connect().fetch(1_000);
    assert_eq!(stage.verdict("proved").packets, 1);

    // The time of the next one that is too many is a short one.
    stage.set("retry_hold=1s");
    flood(1_000);
    assert_eq!(gateway.event("retry")["asking"], false);
    let before = stage.verdict("new").packets;
    host.peer(host.v4()).connect().fetch(1_000);
    assert_eq!((stage.verdict("new").packets, stage.verdict("proved").packets), (before + 1, 1));
    assert_eq!((state("asking"), state("began")), (false.into(), 1.into()));
}

/// Servers have the keys with their place, whichever way they join; and nobody has clients bring tokens that
/// a server cannot check without saying that this is meant.
#[test]
fn servers_take_the_keys_as_they_join() {
    let Some(stage) = TestStage::new("ring", 1) else { return };
    let folder = tempfile::tempdir().expect("a directory");
    let socket = folder.path().join("sock");
    let socket = socket.to_str().expect("UTF-8");
    let gateway = stage.gateway(&["--mode", "generic", "--socket", socket]);
    let server = stage.serve(&[]);
    let host = stage.host(0);
    host.peer(host.v4()).connect().fetch(1_000);
    stage.set("retry=always");
    host.peer(host.v4()).connect().fetch(1_000);
    assert_eq!((stage.verdict("new").packets, stage.verdict("proved").packets), (1, 1));
    drop(server);
    stage.await_servers(0);

    let listen = ["--listen", "[::]:443", "--gateway-socket", socket];
    let args = [&["serve", "--json", "--idle-timeout", "1h"], &listen[..]].concat();
    let server = Running::start(stage.lab.server().command(EQUIC), &args);
    server.event("ready");
    host.peer(host.v6()).connect().fetch(1_000);
    assert_eq!(stage.verdict("proved").packets, 2);
    assert_eq!(stage.status()["ledgers"][0]["keys"], true);

    // One that checks no tokens.
    let mute = Ledger::connect(socket, "mute").expect("root may join");
    let condition = gateway.event("condition");
    assert_eq!(condition["about"], "retry");
    assert!(condition["what"].as_str().is_some_and(|what| what.contains("mute")), "{condition}");
    let refused = stage.equic(&["set", "retry=adaptive"]);
    assert!(refused.stderr.contains("mute"), "{}", refused.stderr);
    assert_eq!(stage.status()["services"][0]["retry"], "always");
    stage.equic(&["set", "retry=adaptive", "--force"]).ok();
    stage.equic(&["set", "retry=never"]).ok();
    assert_eq!(gateway.event("recovered")["about"], "retry");
    drop(mute);
    stage.await_servers(1);
    stage.set("retry=always");
}
