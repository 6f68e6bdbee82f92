//! Tests of the beginning of connections: Retry, tokens, and packets that arrive before their keys.

use std::collections::BTreeSet;
use std::sync::Mutex;

use equic_wire::frame::FrameType;
use equic_wire::packet::{Datagram, LongInvariant, LongKind, Packet, ParseOptions, Retry};
use equic_wire::params::TransportParameters;
use equic_wire::{Version, Writer};

use super::early::{early_configs, visit};
use super::versions::{V1, V2, no_version_2, speaking};
use super::*;
use crate::connection::handshake::tls_version;
use crate::connection::retry::MAX_PEER_TOKEN;
use crate::crypto::retry_tag;

pub(super) const LIMIT: Duration = Duration::from_secs(60);

pub(super) fn seeds(count: u64) -> Vec<u64> {
    match std::env::var("EQUIC_SEED") {
        Ok(seed) => vec![seed.parse().expect("EQUIC_SEED is a number")],
        Err(_) => (0..count).collect(),
    }
}

/// Returns faults with loss and delay, but without forged packets, which could begin connections
/// here.
pub(super) fn bad(seed: u64) -> Faults {
    Faults { corruption: 0.0, forged: 0.0, ..Faults::by_chance(seed) }
}

/// Returns the rule that the other end broke, as this end reports it.
pub(super) fn violation(network: &Network, end: usize) -> Option<Violation> {
    match &network.closed()[end] {
        Some(CloseReason::Local(error)) => error.violation,
        _ => None,
    }
}

pub(super) fn code(network: &Network, end: usize) -> Option<u64> {
    match &network.closed()[end] {
        Some(CloseReason::Local(error)) => Some(error.code),
        _ => None,
    }
}

const RETRY_ID: [u8; 9] = *b"retryscid";

/// Returns the Retry packet that answers an Initial packet.
fn retry_packet(initial: &[u8], scid: &[u8], token: &[u8]) -> Vec<u8> {
    let header = LongInvariant::parse(initial).unwrap();
    let version = header.version.known().unwrap();
    let id = |bytes: &[u8]| ConnectionId::new(bytes).unwrap();
    let mut buffer = [0; 1400];
    let mut writer = Writer::new(&mut buffer);
    Retry::write_without_tag(&mut writer, version, id(header.scid), id(scid), token, 7).unwrap();
    let tag = retry_tag(tls_version(version), header.dcid, writer.written());
    writer.bytes(&tag).unwrap();
    writer.written().to_vec()
}

/// Returns the Destination Connection ID and the token of a datagram that begins with an Initial
/// packet.
fn initial_of(bytes: &[u8]) -> Option<(ConnectionId, Vec<u8>)> {
    let Some(Ok(Packet::Long(long))) = Datagram::new(bytes, ParseOptions::default()).next() else {
        return None;
    };
    match long.kind() {
        LongKind::Initial { token } => Some((long.dcid(), token.to_vec())),
        _ => None,
    }
}

/// Makes the server require a token, as an endpoint would. If `honest` is set, the server declares
/// this in its transport parameters.
pub(super) fn with_retry(network: &mut Network, honest: bool) -> Arc<Mutex<BTreeSet<Vec<u8>>>> {
    let original = Arc::new(Mutex::new(None));
    let first = original.clone();
    let tokens = Arc::new(Mutex::new(BTreeSet::new()));
    let seen = tokens.clone();
    network.meddle = Some(Box::new(move |to_server, bytes| {
        if to_server && let Some((dcid, token)) = initial_of(bytes) {
            if token.is_empty() {
                first.lock().unwrap().get_or_insert(dcid);
                return vec![(false, retry_packet(bytes, &RETRY_ID, b"token"))];
            }
            seen.lock().unwrap().insert(token);
        } else if to_server && seen.lock().unwrap().is_empty() {
            // A datagram with only 0-RTT packets belongs to no connection yet.
            return vec![];
        }
        vec![(to_server, bytes.to_vec())]
    }));
    network.on_server = Some(Box::new(move |server| {
        let declared = server.start.declared().to_vec();
        let mut parameters = TransportParameters::parse(&declared, Side::Server).unwrap();
        let ids = parameters.server.as_mut().unwrap();
        ids.original_destination_connection_id = original.lock().unwrap().unwrap();
        if honest {
            ids.retry_source_connection_id = Some(ConnectionId::new(&RETRY_ID).unwrap());
        }
        let mut bytes = vec![0; parameters.encoded_len()];
        parameters.write(&mut Writer::new(&mut bytes)).unwrap();
        server.start.pretend_declared(bytes);
        server.handshake.restart(server.start.session().unwrap());
    }));
    tokens
}

#[test]
fn retry_is_followed() {
    for seed in seeds(25) {
        let faults = if seed == 0 { Faults::none() } else { bad(seed) };
        let mut network = Network::new(seed, faults);
        let tokens = with_retry(&mut network, true);
        network.connect();
        assert_eq!(*tokens.lock().unwrap(), BTreeSet::from([b"token".to_vec()]));
        assert!(seed > 0 || network.now().since(Timestamp::START) < 70 * MS);
        echo(&mut network, 5000);
    }
}

#[test]
fn retry_that_the_server_does_not_confirm_is_a_violation() {
    let mut network = Network::new(1, Faults::none());
    with_retry(&mut network, false);
    network.run_until(LIMIT, |client, _| client.is_drained());
    assert_eq!(violation(&network, 0), Some(Violation::HandshakeConnectionIds));
}

/// The client ignores each forged Retry packet and connects with the real server.
#[test]
fn retry_that_is_forged_is_ignored() {
    type Forge = fn(&[u8], ConnectionId) -> Vec<u8>;
    let forged: [(&str, Forge); 4] = [
        ("a bad tag", |initial, _| {
            let mut packet = retry_packet(initial, &RETRY_ID, b"token");
            *packet.last_mut().unwrap() ^= 1;
            packet
        }),
        ("another original ID", |initial, _| {
            let mut other = initial.to_vec();
            other[8] ^= 1;
            retry_packet(&other, &RETRY_ID, b"token")
        }),
        ("the ID that the client sent to", |initial, dcid| {
            retry_packet(initial, dcid.as_bytes(), b"token")
        }),
        ("a token without end", |initial, _| {
            retry_packet(initial, &RETRY_ID, &[1; MAX_PEER_TOKEN + 1])
        }),
    ];
    for (what, forge) in forged {
        let mut network = Network::new(1, Faults::none());
        network.meddle = Some(Box::new(move |to_server, bytes| {
            let mut datagrams = vec![(to_server, bytes.to_vec())];
            if to_server && let Some((dcid, token)) = initial_of(bytes) {
                assert!(token.is_empty(), "{what}");
                datagrams.insert(0, (false, forge(bytes, dcid)));
            }
            datagrams
        }));
        network.connect();
        assert!(network.client.start.retry().is_none(), "{what}");
        assert!(network.client.stats().packets_dropped > 0, "{what}");
    }
}

#[test]
fn retry_second_and_late_ones_are_ignored() {
    let mut network = Network::new(1, Faults::none());
    let tokens = with_retry(&mut network, true);
    let mut honest = network.meddle.take().unwrap();
    network.meddle = Some(Box::new(move |to_server, bytes| {
        let mut datagrams = honest(to_server, bytes);
        if to_server && initial_of(bytes).is_some_and(|(_, token)| !token.is_empty()) {
            datagrams.insert(0, (false, retry_packet(bytes, b"anotherid", b"second")));
        }
        datagrams
    }));
    network.connect();
    assert_eq!(*tokens.lock().unwrap(), BTreeSet::from([b"token".to_vec()]));

    // A Retry packet with a valid tag, after a packet of the server.
    let mut network = Network::new(1, Faults::none());
    let mut first = None;
    network.meddle = Some(Box::new(move |to_server, bytes| {
        let mut datagrams = vec![(to_server, bytes.to_vec())];
        if to_server && first.is_none() {
            first = Some(bytes.to_vec());
        }
        if !to_server && let Some(initial) = &first {
            datagrams.push((false, retry_packet(initial, &RETRY_ID, b"late")));
        }
        datagrams
    }));
    network.connect();
    assert!(network.client.start.retry().is_none());
}

#[test]
fn token_is_kept_for_the_next_connection() {
    for seed in seeds(10) {
        let faults = Faults { loss: 0.2, ..Faults::none() };
        let mut network = Network::new(seed, faults);
        network.on_server = Some(Box::new(|server| {
            assert!(!server.send_token(vec![]), "empty");
            assert!(!server.send_token(vec![1; MAX_PEER_TOKEN + 1]), "too long");
            assert!(server.send_token(b"next time".to_vec()));
        }));
        network.connect();
        let told =
            |network: &Network| network.events[0].contains(&Event::NewToken(b"next time".to_vec()));
        while !told(&network) {
            network.pass(20 * MS);
        }
        assert!(!network.client.send_token(vec![1]), "only a server sends tokens");
        assert!(!network.client.set_token(vec![1]), "too late");
    }
    let mut network = Network::new(1, Faults::none());
    assert!(network.client.set_token(b"next time".to_vec()));
    let tokens = Arc::new(Mutex::new(BTreeSet::new()));
    let seen = tokens.clone();
    network.meddle = Some(Box::new(move |to_server, bytes| {
        if to_server {
            seen.lock().unwrap().extend(initial_of(bytes).map(|(_, token)| token));
        }
        vec![(to_server, bytes.to_vec())]
    }));
    network.connect();
    assert_eq!(*tokens.lock().unwrap(), BTreeSet::from([b"next time".to_vec()]));
}

#[test]
fn token_queue_is_bounded() {
    let mut network = Network::new(1, Faults::none());
    network.connect();
    while network.client.poll_event().is_some() {}
    for number in 0..100 {
        network.client.on_new_token(&[number]);
        network.client.on_new_token(&[number; MAX_PEER_TOKEN + 1]);
    }
    assert_eq!(network.client.events.len(), 4);
    assert_eq!((0..9).filter(|_| network.server_mut().send_token(vec![1])).count(), 4);
}

/// Splits the server's datagrams into their packets and delivers these in reverse order.
fn reverse_flights(network: &mut Network) {
    network.meddle = Some(Box::new(move |to_server, bytes| {
        let mut datagrams = Vec::new();
        let options = ParseOptions { greased_fixed_bit: true, dcid_len: 8 };
        let (mut packets, mut rest) = (Datagram::new(bytes, options), bytes.len());
        while !to_server && packets.next().is_some() {
            let left = packets.rest().len();
            datagrams.insert(0, (false, bytes[bytes.len() - rest..bytes.len() - left].to_vec()));
            rest = left;
        }
        if to_server { vec![(true, bytes.to_vec())] } else { datagrams }
    }));
}

/// Packets that arrive before their keys are stored, so that none has to be retransmitted.
#[test]
fn handshake_flight_in_the_wrong_order() {
    let mut network = Network::new(1, Faults::none());
    reverse_flights(&mut network);
    let calls = operations::Calls::default();
    operations::watch_all(&mut network.client, &calls);
    network.connect();
    assert!(calls.lock().unwrap().contains_key(&Operation::KeepPacket));
    assert!(network.now().since(Timestamp::START) < 45 * MS, "{}", network.describe());
    assert_eq!(network.client.stats().probe_timeouts, 0);
}

/// Watches the operations of both ends in connections that begin in different ways.
pub(super) fn watch_beginnings(calls: &operations::Calls) {
    let (client, server) = early_configs();
    visit(&client, &server);
    let mut early = Network::between(1, Faults::none(), &client, server);
    let seen = calls.clone();
    early.on_server = Some(Box::new(move |server| operations::watch_all(server, &seen)));
    reverse_flights(&mut early);
    let mut retried = Network::new(1, Faults::none());
    with_retry(&mut retried, true);
    let mut negotiated = speaking(1, Faults::none(), &[V2, V1], None, &[V1]);
    no_version_2(&mut negotiated, &[Version::V1]);
    negotiated.on_server = Some(Box::new(|server| assert!(server.send_token(vec![1]))));
    for mut network in [early, retried, negotiated] {
        operations::watch_all(&mut network.client, calls);
        network.connect();
        network.pass(100 * MS);
    }
}

#[test]
fn handshake_packets_without_keys_are_bounded() {
    let mut network = Network::new(1, Faults::none());
    let scid = network.client.ids.scid();
    for number in 0..100u8 {
        let mut bytes = vec![0x40];
        bytes.extend_from_slice(scid.as_bytes());
        bytes.extend_from_slice(&[number; 300]);
        network.forge_to_client(bytes);
    }
    assert_eq!(network.client.waiting.len(), 10);
    let mut network = Network::new(1, Faults::none());
    for number in 0..100u8 {
        let mut bytes = vec![0x40];
        bytes.extend_from_slice(scid.as_bytes());
        bytes.extend_from_slice(&[number; 6000]);
        network.forge_to_client(bytes);
    }
    assert_eq!(network.client.waiting.len(), 2);
    network.connect();
    assert_eq!(network.client.waiting.len(), 0);
}

/// A probe carries the ClientHello, whatever was sent before. A server that has not received the
/// ClientHello cannot process a PING (RFC 9002 s.6.2.4).
#[test]
fn pto_probe_before_an_answer_has_the_client_hello() {
    let mut network = Network::new(1, Faults { loss: 1.0, ..Faults::none() });
    let calls = operations::Calls::default();
    operations::watch_all(&mut network.client, &calls);
    network.run_until(Duration::from_secs(20), |client, _| client.stats().datagrams_sent > 6);
    let calls = calls.lock().unwrap();
    let written = |kind: FrameType| {
        let calls = calls.get(&Operation::WriteFrame).unwrap();
        calls.iter().filter(|(parameter, ..)| *parameter == kind.0.get()).count()
    };
    assert!(network.client.stats().probe_timeouts >= 3);
    assert_eq!(written(FrameType::PING), 0);
    assert!(written(FrameType::CRYPTO) >= 7);
}

/// A packet that cannot be decrypted does not authenticate the peer. Its Source Connection ID is
/// not used either.
#[test]
fn handshake_damaged_first_packet_sets_no_connection_id() {
    let mut network = Network::new(1, Faults::none());
    let mut first = true;
    network.meddle = Some(Box::new(move |to_server, bytes| {
        let mut datagrams = vec![(to_server, bytes.to_vec())];
        if to_server && std::mem::take(&mut first) {
            let mut damaged = bytes.to_vec();
            // The offset after the first byte, the version, and the other ID with its length.
            let scid = 5 + 1 + usize::from(bytes[5]) + 1;
            damaged[scid] ^= 1;
            datagrams.insert(0, (true, damaged));
        }
        datagrams
    }));
    network.connect();
    assert_eq!(network.server().stats().packets_dropped, 1);
    assert_eq!(network.client.stats().probe_timeouts, 0, "{}", network.describe());
}
