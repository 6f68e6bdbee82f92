//! Tests of example servers with verifiable connection IDs. Key changes must not affect their
//! clients, and packets with forged IDs must not reach them.

use std::net::{IpAddr, UdpSocket};

use equic_gateway::{Control, JoinOptions, TokenCheck};
use nix::sys::signal::Signal;

use crate::client::{Clients, Open};
use crate::common::eventually;
use crate::example::Example;
use crate::stage::{Host, TestStage};

const FORGED: u64 = 300;

/// Sends packets with short headers and forged connection IDs.
fn forge(stage: &TestStage, host: &Host) {
    let target = stage.target(host.v4());
    host.run(async move {
        let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
        for number in 0..FORGED {
            // The length and the key number in the ID are valid; the rest is random.
            let mut packet = vec![0x41, (number as u8 % 7) << 5 | 11];
            packet.extend([number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes(); 6].concat());
            // Continue even if the socket's buffer is full.
            let _ = socket.send_to(&packet, target);
        }
    });
}

fn checked(example: Example) {
    let Some(stage) = TestStage::new(&format!("ids-{}", example.name()), 2) else { return };
    let mut gateway = stage.gateway(&[]);
    let _server = example.start(&stage);
    let clients = Clients::new(&stage, 0, example);
    let here = |last: u8| IpAddr::from([10, 77, 1, last]);
    let forged = || stage.verdict("forged_id").packets;
    let control = Control::open(Some(&stage.name)).expect("root may look");
    let rotate = || {
        // The first key rotation announces a key, and the second one starts to use it.
        for _ in 0..2 {
            control.rotate_keys().expect("keys");
        }
    };

    // While another server has not declared its support, the check must not be enabled. When only
    // the example is left, it must be possible.
    let options = JoinOptions::new("mute").token_check(TokenCheck::GatewayKeys);
    let mute = control.join(options).expect("root may join");
    let refused = stage.equic(&["set", "check_ids=true"]);
    assert!(refused.stderr.contains("mute (process"), "{}", refused.stderr);
    assert_eq!(stage.status()["services"][0]["check_ids"], false);
    drop(mute);
    stage.await_servers(1);
    stage.set("check_ids=true");

    // After the migration, the client must use an ID from a NEW_CONNECTION_ID frame.
    let open = clients.open(here(1));
    open.migrate(here(99));
    stage.await_connections(here(99), 1);
    assert_eq!(forged(), 0, "{}", stage.status());
    forge(&stage, stage.host(1));
    eventually("drops", || (forged() > FORGED / 2).then_some(()));

    // IDs of new clients must use new keys, and IDs that were issued before must stay valid.
    for _ in 0..5 {
        rotate();
    }
    open.assert_alive();
    open.close();
    stage.await_connections(here(99), 0);
    // The first keys have been rotated out, so an ID with such a key must count as forged.
    for last in [2, 3] {
        rotate();
        let before = forged();
        let newcomer = clients.open(here(last));
        newcomer.assert_alive();
        assert_eq!(forged(), before, "{}", stage.status());
    }

    // The next gateway has other keys, and must check IDs from the start.
    gateway.signal(Signal::SIGKILL);
    gateway.wait();
    let _gateway = stage.gateway(&["-o", "check_ids=true"]);
    stage.await_servers(1);
    let next: Open<'_> = clients.open(here(4));
    next.assert_alive();
    stage.await_connections(here(4), 1);
}

#[test]
fn quiche_issues_verifiable_ids() {
    checked(Example::Quiche);
}

#[test]
fn s2n_quic_issues_verifiable_ids() {
    checked(Example::S2nQuic);
}

#[test]
fn quic_go_issues_verifiable_ids() {
    checked(Example::QuicGo);
}

#[test]
fn aioquic_issues_verifiable_ids() {
    checked(Example::Aioquic);
}

#[test]
fn ngtcp2_issues_verifiable_ids() {
    checked(Example::Ngtcp2);
}

#[test]
fn picoquic_issues_verifiable_ids() {
    checked(Example::Picoquic);
}
