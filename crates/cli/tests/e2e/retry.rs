//! Tests of address validation by the gateway, which sends Retry packets in the server's name.

use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt as _;

use equic_gateway::{Control, Ledger};
use equic_netns::NamespaceRecord;

use crate::attack::{self, Attack, spoofed};
use crate::common::{EQUIC, PATIENCE, Running, config_of_own_gateway, eventually};
use crate::stage::{Host, TestStage};

/// Returns the first Initial packet of a version 1 connection, without a token. Each `number` gives
/// another packet.
fn initial(number: u32) -> Vec<u8> {
    let id = [number.to_be_bytes(), number.to_be_bytes()].concat();
    initial_with(&id, &number.to_be_bytes(), &[])
}

/// Returns a version 1 Initial packet of 1,200 bytes with these Destination and Source Connection
/// IDs and this token.
fn initial_with(dcid: &[u8], scid: &[u8], token: &[u8]) -> Vec<u8> {
    let mut packet = vec![0xc3, 0, 0, 0, 1, dcid.len() as u8];
    packet.extend(dcid);
    packet.push(scid.len() as u8);
    packet.extend(scid);
    packet.extend((0x4000 | token.len() as u16).to_be_bytes());
    packet.extend(token);
    let length = 1200 - packet.len() - 2;
    packet.extend((0x4000 | length as u16).to_be_bytes());
    packet.resize(1200, 0);
    packet
}

#[test]
fn retry_validates_the_addresses_of_clients() {
    let Some(stage) = TestStage::new("retry", 2) else { return };
    let folder = tempfile::tempdir().expect("a directory");
    let keys = folder.path().join("keys");
    let keys = keys.to_str().expect("UTF-8");
    // The rate limit for new connections is so low that a flood would use it up.
    let option = format!("gateway.retry_keys={keys}");
    let gateway = ["-o", "retry=always", "-o", &option, "--new-per-service", "1/s burst 3"];
    // On a veth interface, answers of an XDP program only arrive in generic mode, or if the other
    // end has a program, too.
    let _gateway = stage.gateway(&[&gateway[..], &["--mode", "generic"]].concat());
    let mode = std::fs::metadata(keys).expect("the gateway wrote it").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let server = stage.serve(&["--retry-keys", keys]);

    let (host, other) = (stage.host(0), stage.host(1));
    host.peer(host.v4()).connect().fetch(100_000);
    let (answered, proved) = (stage.verdict("retry_sent"), stage.verdict("proved"));
    assert!(answered.packets >= 1 && answered.answered == answered.packets, "{answered:?}");
    assert_eq!(answered.dropped, 0, "an answer is no drop");
    assert_eq!((proved.packets, stage.verdict("new").packets), (1, 0));
    host.peer(host.v6()).connect().fetch(100_000);
    assert_eq!(stage.verdict("proved").packets, 2);

    // A host sends Initial packets as fast as possible and ignores the answers. The gateway must
    // answer but store nothing, and a new client must be able to connect.
    let target = stage.target(other.v4());
    other.run(async move {
        let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
        for number in 0..5_000 {
            // Continue even if the socket's buffer is full.
            let _ = socket.send_to(&initial(number), target);
        }
    });
    eventually("answers", || (stage.verdict("retry_sent").packets > 1_000).then_some(()));
    assert_eq!(stage.verdict("proved").packets, 2);
    assert!(stage.source(other.v4()).is_empty(), "nothing is kept of who has proved nothing");
    other.peer(other.v4()).connect().fetch(100_000);
    assert_eq!(stage.verdict("proved").packets, 3);

    // Without Retry, the same server must accept clients that have no token.
    stage.equic(&["set", "retry=never", "new_per_service=off"]).ok();
    host.peer(host.v4()).connect().fetch(1_000);
    assert_eq!((stage.verdict("proved").packets, stage.verdict("new").packets), (3, 1));
    drop(server);
}

/// A server that runs its own gateway must check the gateway's tokens without a file of keys.
#[test]
fn server_checks_the_tokens_of_its_own_gateway() {
    let Some(stage) = TestStage::new("ownretry", 1) else { return };
    let folder = tempfile::tempdir().expect("a directory");
    let own = config_of_own_gateway(folder.path(), "eth0", &stage.name, 443);
    let text = std::fs::read_to_string(&own).expect("it was just written");
    let text = text
        .replace("max_connections = 3", "retry = \"always\"\ncheck_ids = true")
        .replace("interfaces =", "mode = \"generic\"\ninterfaces =");
    std::fs::write(&own, text).expect("the folder is writable");
    let args = ["serve", "--json", "--listen", "[::]:443", "--gateway-config", &own];
    let server = Running::start(stage.lab.server().command(EQUIC), &args);
    server.event("ready");
    let host = stage.host(0);
    for (address, proved) in [(host.v4(), 1), (host.v6(), 2)] {
        host.peer(address).connect().fetch(100_000);
        assert_eq!(stage.verdict("proved").packets, proved);
    }
    let ledger = &stage.status()["ledgers"][0];
    assert_eq!((&ledger["keys"], &ledger["ids"]), (&true.into(), &true.into()), "{ledger}");
}

/// Returns the Source Connection ID and the token of a Retry packet. The client must use both in
/// its next Initial.
fn followed(retry: &[u8]) -> (Vec<u8>, Vec<u8>) {
    assert_eq!(retry[0] >> 4, 0xf, "a long header of type Retry");
    let behind = 6 + usize::from(retry[5]);
    let token = behind + 1 + usize::from(retry[behind]);
    // The last 16 bytes are the integrity tag.
    (retry[behind + 1..token].to_vec(), retry[token..retry.len() - 16].to_vec())
}

/// Tokens that are stolen, changed, truncated or extended must open no connection. They must harm
/// neither the client that received the token, nor the host whose address was forged.
#[test]
fn retry_tokens_are_bound_to_their_clients() {
    const SCID: [u8; 4] = [7; 4];
    /// More packets than a source may send.
    const MANY: u64 = 120;
    let Some(stage) = TestStage::new("tokens", 2) else { return };
    // Wait for floods of other tests to end, because they could fill the queues of these packets.
    let _turn = attack::turn();
    let limits = ["--new-per-source", "1/h burst 2", "--packets-per-source", "1/h burst 100"];
    let _gateway =
        stage.gateway(&[&limits[..], &["-o", "retry=always", "--mode", "generic"]].concat());
    let _server = stage.serve(&[]);
    let (host, other) = (stage.host(0), stage.host(1));
    let target = stage.target(host.v4());
    let socket = |of: &Host| of.namespace.udp_socket((of.v4(), 0).into()).expect("a socket");
    let (own, another_port, elsewhere) = (socket(host), socket(host), socket(other));
    own.set_read_timeout(Some(PATIENCE)).expect("a time");
    let asked = |packet: &[u8]| {
        let mut answer = [0; 2_000];
        own.send_to(packet, target).expect("it is sent");
        let length = own.recv(&mut answer).expect("a Retry packet");
        followed(&answer[..length])
    };
    let (id, token) = asked(&initial(1));
    assert_eq!(token.len(), 80);

    let brings = |token: &[u8]| initial_with(&id, &SCID, token);
    let refused = |from: &UdpSocket, packet: &[u8], reason: &str| {
        let before = stage.verdict(reason);
        for _ in 0..MANY {
            from.send_to(packet, target).expect("it is sent");
        }
        eventually(reason, || {
            (stage.verdict(reason).packets == before.packets + MANY).then_some(())
        });
        let after = stage.verdict(reason);
        let (dropped, answered) =
            (after.dropped - before.dropped, after.answered - before.answered);
        let expected = if reason == "retry_sent" { (0, MANY) } else { (MANY, 0) };
        assert_eq!((dropped, answered), expected, "{reason}");
    };
    let changed = |at: usize| {
        let mut token = token.clone();
        token[at] ^= 1;
        token
    };
    let others = initial_with(&[9; 8], &SCID, &token);
    refused(&another_port, &brings(&token), "bad_token");
    refused(&elsewhere, &brings(&token), "bad_token");
    refused(&own, &others, "bad_token");
    for at in [1, 27, 35, 79] {
        refused(&own, &brings(&changed(at)), "bad_token");
    }
    // The gateway did not issue these tokens, so it must answer as if there were no token.
    for other in [&token[..79], &token[..1], &[&token[..], &[0]].concat()[..], &[0x11; 1_100][..]] {
        refused(&own, &brings(other), "retry_sent");
    }
    own.set_nonblocking(true).expect("a socket");
    let mut answer = [0; 2_000];
    let answers = std::iter::from_fn(|| own.recv(&mut answer).ok()).inspect(|length| {
        assert!(*length < 1_200, "more than was sent");
    });
    assert!(answers.count() > 0);
    own.set_nonblocking(false).expect("a socket");
    assert_eq!((stage.verdict("proved").packets, stage.verdict("new").packets), (0, 0));
    for host in [host, other] {
        assert!(stage.source(host.v4()).is_empty(), "nothing was charged to who was named");
    }

    // The client that received the token must be able to use it, and the host whose address was
    // forged must be able to connect.
    own.send_to(&brings(&token), target).expect("it is sent");
    eventually("it holds", || (stage.verdict("proved").packets == 1).then_some(()));
    other.peer(other.v4()).connect().fetch(1_000);
    assert_eq!(stage.verdict("proved").packets, 2);

    // After key changes, a token whose key is still in the ring must be valid, and a token with a
    // removed key must not.
    let control = Control::open(Some(&stage.name)).expect("root may look");
    let (kept_id, kept) = asked(&initial(2));
    let rotate = |times: usize| {
        for _ in 0..2 * times {
            control.rotate_keys().expect("keys");
        }
    };
    rotate(1);
    own.send_to(&initial_with(&kept_id, &[6; 4], &kept), target).expect("it is sent");
    eventually("it holds", || (stage.verdict("proved").packets == 3).then_some(()));
    rotate(6);
    let again = initial_with(&kept_id, &[8; 4], &kept);
    refused(&own, &again, "bad_token");
}

/// Adaptive Retry, before, during and after a flood. Only clients that connect during the flood
/// must have to validate their addresses.
#[test]
fn retry_is_required_only_during_a_flood_if_adaptive() {
    let Some(stage) = TestStage::new("adaptive", 2) else { return };
    let folder = tempfile::tempdir().expect("a directory");
    let keys = folder.path().join("keys");
    let keys = keys.to_str().expect("UTF-8");
    let adaptive = ["-o", "retry=adaptive", "-o", "retry_above=20/s", "-o", "retry_hold=1h"];
    let option = format!("gateway.retry_keys={keys}");
    let rest = ["-o", &option, "--mode", "generic"];
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

    // Use a short hold time for the next flood.
    stage.set("retry_hold=1s");
    flood(1_000);
    assert_eq!(gateway.event("retry")["asking"], false);
    let before = stage.verdict("new").packets;
    host.peer(host.v4()).connect().fetch(1_000);
    assert_eq!((stage.verdict("new").packets, stage.verdict("proved").packets), (before + 1, 1));
    assert_eq!((state("asking"), state("began")), (false.into(), 1.into()));
}

/// A server must receive the keys in both ways of joining. While a server cannot check tokens,
/// Retry must not be enabled, unless the operator forces it.
#[test]
fn retry_keys_are_given_to_servers_as_they_join() {
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

    let listen = ["--listen", "[::]:443", "--gateway", socket];
    let args = [&["serve", "--json", "--idle-timeout", "1h"], &listen[..]].concat();
    let server = Running::start(stage.lab.server().command(EQUIC), &args);
    server.event("ready");
    host.peer(host.v6()).connect().fetch(1_000);
    assert_eq!(stage.verdict("proved").packets, 2);
    assert_eq!(stage.status()["ledgers"][0]["keys"], true);

    // This server does not check tokens.
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

/// Tests the checksums of answers. The sender may leave the checksum of the request to hardware, or
/// not. The kernel may complete the checksum of the answer in software, or not. All four
/// combinations must work.
#[test]
fn answers_have_correct_checksums() {
    let Some(stage) = TestStage::new("checksums", 2) else { return };
    let _gateway = stage.gateway(&[
        "-o",
        "retry=always",
        "-o",
        "version_negotiation=true",
        "--mode",
        "generic",
    ]);
    let switch = |port: &str| {
        let record = stage.lab.record();
        let (name, ifname) = (record.switch.clone(), port.to_owned());
        NamespaceRecord { name, ifname, ..record.hosts[0].clone() }.open().expect("the switch")
    };
    // Without offloads on one client's port, the kernel completes checksums in software.
    switch("c0").set_offloads(false).expect("a veth takes the order");
    for offloads in [true, false] {
        for host in [stage.host(0), stage.host(1)] {
            host.namespace.set_offloads(offloads).expect("a veth takes the order");
            for address in [host.v4(), host.v6()] {
                let socket = host.namespace.udp_socket((address, 0).into()).expect("a socket");
                socket.set_read_timeout(Some(PATIENCE)).expect("a time");
                let mut unknown = initial(2);
                unknown[1..5].copy_from_slice(&[0xba, 0xdc, 0x0d, 0xe0]);
                for (question, first) in [(initial(1), 0xf0), (unknown, 0xc0)] {
                    let mut answer = [0; 2_000];
                    socket.send_to(&question, stage.target(address)).expect("it is sent");
                    let length = socket.recv(&mut answer).expect("an answer");
                    assert_eq!(answer[0], first, "{length} bytes, offloads {offloads}");
                }
            }
        }
    }
}

/// In native mode, the other end of a veth receives no answers, so `status` must warn. By default,
/// the gateway must attach in generic mode to a veth.
#[test]
fn answers_that_get_lost_are_reported() {
    let Some(stage) = TestStage::new("lost", 1) else { return };
    let lost = || {
        let status = stage.status();
        let all = status["report"]["conditions"].as_array().cloned().unwrap_or_default();
        all.iter().any(|condition| condition["about"] == "answers eth0")
    };
    let host = stage.host(0);
    let socket = host.namespace.udp_socket((host.v4(), 0).into()).expect("a socket");
    let target = stage.target(host.v4());
    {
        let native = ["-o", "retry=always", "--mode", "native"];
        let gateway = stage.gateway(&native);
        assert!(!lost(), "nobody was answered");
        socket.send_to(&initial(1), target).expect("it is sent");
        eventually("the condition", || lost().then_some(()));
        assert_eq!(stage.verdict("retry_sent").packets, 1);
        assert!(gateway.terminate().success());
    }
    let (gateway, ready) = stage.gateway_as(&["-i", "eth0", "-p", "443", "-o", "retry=always"]);
    assert_eq!(ready["interfaces"][0]["native"], false, "{ready}");
    let notice = ready["interfaces"][0]["notice"].as_str().unwrap_or_default();
    assert!(notice.contains("veth"), "{ready}");
    socket.set_read_timeout(Some(PATIENCE)).expect("a time");
    socket.send_to(&initial(1), target).expect("it is sent");
    assert!(socket.recv(&mut [0; 2_000]).is_ok());
    assert!(!lost());
    assert!(gateway.terminate().success());
    // Without settings that send answers, the gateway must attach in native mode.
    drop(stage.gateway(&[]));
}

/// A packet of an unknown version cannot carry a token. It must not open a connection. It must not
/// exempt later Initials of its sender from Retry. It must not count against the host whose address
/// it has.
#[test]
fn retry_is_not_evaded_by_unknown_versions() {
    let Some(stage) = TestStage::new("evade", 3) else { return };
    let _turn = attack::turn();
    let limits = [
        ["--new-per-source", "1/h burst 4"],
        ["--new-per-service", "1/h burst 12"],
        ["--max-connections", "6"],
        ["-o", "policy=underway"],
    ];
    let options = [&limits.concat()[..], &["-o", "retry=always", "--mode", "generic"]].concat();
    let _gateway = stage.gateway(&options);
    let _server = stage.serve(&[]);
    let (host, other, attacker) = (stage.host(0), stage.host(1), stage.host(2));
    let target = stage.target(host.v4());

    // First send a packet of an unknown version, then Initials with the same ports and connection
    // IDs.
    let mut unknown = initial(1);
    unknown[1..5].copy_from_slice(&[0x1a, 0x2a, 0x3a, 0x4a]);
    host.run(async move {
        let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
        socket.send_to(&unknown, target).expect("it is sent");
        for _ in 0..63 {
            socket.send_to(&initial(1), target).expect("it is sent");
        }
    });
    eventually("answers", || (stage.verdict("retry_sent").packets == 63).then_some(()));
    assert_eq!(stage.verdict("version_negotiation_sent").packets, 1);

    // Send forged packets: first with the address of one client, then with many other addresses.
    for prefix in [format!("{}/32", other.v4()), "198.18.0.0/15".to_owned()] {
        let origin = spoofed(&prefix);
        let payload = attack::future_versions();
        Attack { target, origin, payload, pps: 2_000 }.send(&attacker.namespace, 300);
    }
    eventually("answers", || {
        (stage.verdict("version_negotiation_sent").packets == 601).then_some(())
    });
    for reason in ["new", "new_version", "underway", "proved"] {
        assert_eq!(stage.verdict(reason).packets, 0, "{reason}");
    }
    assert!(stage.source(other.v4()).is_empty(), "nothing is charged to who is named");
    // All hosts must still be able to connect, up to their limits.
    for client in [host, other, attacker] {
        for _ in 0..4 {
            client.peer(client.v4()).connect().fetch(1_000);
        }
        stage.assert_refused(&client.peer(client.v4()), "rate_new_source");
    }
    assert_eq!(stage.verdict("proved").packets, 12);
}

/// A validated address, and a connection attempt in progress, must be valid only for the port of
/// the service that received the token.
#[test]
fn retry_is_required_at_each_port() {
    let Some(stage) = TestStage::new("ports", 1) else { return };
    let ports = ["-i", "eth0", "-p", "443", "-p", "8443"];
    let options = ["-o", "retry=always", "--new-per-source", "1/h burst 1", "--mode", "generic"];
    let _gateway = stage.gateway_with(&[&ports[..], &options].concat()).0;
    let host = stage.host(0);
    let targets = [443, 8443].map(|port| stage.lab.server().socket_address(host.v4(), port));
    let socket = host.namespace.udp_socket((host.v4(), 0).into()).expect("a socket");
    socket.set_read_timeout(Some(PATIENCE)).expect("a time");
    let mut answer = [0; 2_000];
    socket.send_to(&initial(1), targets[0]).expect("it is sent");
    let length = socket.recv(&mut answer).expect("a Retry packet");
    let (id, token) = followed(&answer[..length]);
    socket.send_to(&initial_with(&id, &[7; 4], &token), targets[0]).expect("it is sent");
    socket.send_to(&initial_with(&id, &[7; 4], &[]), targets[0]).expect("it is sent");
    eventually("it goes on", || (stage.verdict("underway").packets == 1).then_some(()));
    // On the other port, the same packet belongs to no attempt, and the source has used up its
    // rate. It must be dropped.
    socket.send_to(&initial_with(&id, &[7; 4], &[]), targets[1]).expect("it is sent");
    eventually("it is asked", || (stage.verdict("retry_sent").packets == 2).then_some(()));
    socket.send_to(&initial_with(&id, &[7; 4], &token), targets[1]).expect("it is sent");
    eventually("it is charged", || (stage.verdict("rate_new_source").packets == 1).then_some(()));
    assert_eq!((stage.verdict("proved").packets, stage.verdict("underway").packets), (1, 1));
}
