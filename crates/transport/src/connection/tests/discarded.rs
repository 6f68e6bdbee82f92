//! Packets that are discarded whatever they contain, and CRYPTO data at a level that is complete.

use bytes::Bytes;
use equic_wire::frame::{Crypto, Frame};
use rustls::pki_types::ServerName;

use super::attacker::{CLIENT, SERVER};
use super::*;
use crate::connection::space::SpaceId;
use crate::crypto::testing::configs;

const PING: &[u8] = &[0x01];

/// Runs until `done` returns `true`, and returns both ends and the time.
fn until(
    done: impl FnMut(&mut Connection, &mut Connection) -> bool,
) -> (Connection, Connection, Timestamp) {
    let mut network = Network::new(1, Faults::none());
    network.run_until(Duration::from_secs(5), done);
    network.into_ends()
}

/// Returns the ends when the server has read the client's first packet and has sent nothing yet.
fn server_has_begun() -> (Connection, Connection, Timestamp) {
    let (client_tls, server_tls) = configs();
    let transport = Arc::new(TransportConfig::default());
    let config = ClientConfig { tls: client_tls, transport: transport.clone() };
    let name = ServerName::try_from("equic.test").unwrap();
    let (now, remote) = (Timestamp::START, SERVER.parse().unwrap());
    let mut client = Connection::connect(now, &config, name, remote, [1; 32]).unwrap();
    let config = ServerConfig { tls: server_tls, transport, preferred_addresses: None };
    let (original, scid) = (client.ids.original_dcid(), client.ids.scid());
    let (version, remote) = (client.version, CLIENT.parse().unwrap());
    let server = Connection::accept_from(now, &config, version, original, scid, remote, [2; 32]);
    let mut server = server.unwrap();
    pass(&mut client, &mut server, now);
    assert!(server.keys.has(SpaceId::Handshake));
    (client, server, now)
}

/// Returns the ends when the client has read the server's first flight and has sent nothing since.
fn client_has_begun() -> (Connection, Connection, Timestamp) {
    let (mut client, mut server, now) = server_has_begun();
    pass(&mut server, &mut client, now);
    assert!(client.keys.has(SpaceId::Handshake) && client.spaces.get(SpaceId::Initial).is_some());
    (client, server, now)
}

/// Delivers all that one end sends to the other one.
fn pass(from: &mut Connection, to: &mut Connection, now: Timestamp) {
    let mut buffer = vec![0; 1500];
    while let Some(sent) = from.poll_transmit(now, &mut buffer) {
        deliver(to, now, &mut buffer[..sent.size]);
    }
}

fn deliver(end: &mut Connection, now: Timestamp, datagram: &mut [u8]) {
    let remote = if end.side() == Side::Client { SERVER } else { CLIENT };
    let remote = remote.parse().unwrap();
    let arrival = DatagramMeta { remote, local: None, ecn: EcnCodepoint::NotEct };
    end.handle_datagram(now, arrival, datagram);
}

/// Returns the number of packets of a datagram that an end decrypts.
fn taken(end: &mut Connection, now: Timestamp, datagram: &mut [u8]) -> u64 {
    let before = end.stats().packets_received;
    deliver(end, now, datagram);
    end.stats().packets_received - before
}

fn crypto(offset: u64, data: &[u8]) -> Vec<u8> {
    let mut payload = vec![0; 1000];
    let mut writer = equic_wire::Writer::new(&mut payload);
    let frame = Crypto::new(VarInt::new(offset).unwrap(), data).unwrap();
    Frame::Crypto(frame).write(&mut writer).unwrap();
    let length = writer.position();
    payload.truncate(length);
    payload
}

#[track_caller]
fn assert_violation(end: &Connection, violation: Violation) {
    let close::Closing::Telling { error, .. } = &end.closing else {
        panic!("open or drained instead of closing: {:?}", end.closing)
    };
    assert_eq!(error.violation, Some(violation), "{error}");
}

/// RFC 9000 s.7.2. The test covers both ends and all long headers with available keys.
#[test]
fn cid_source_of_another_than_the_peer_is_discarded() {
    let other = ConnectionId::cut(&[0x77; 8]);
    for space in [SpaceId::Initial, SpaceId::Handshake] {
        for to in [Side::Client, Side::Server] {
            let (client, server, now) = client_has_begun();
            let (mut from, mut end) =
                if to == Side::Client { (server, client) } else { (client, server) };
            assert_eq!(taken(&mut end, now, &mut from.forge(space, PING)), 1, "{space:?} {to:?}");
            let own = from.ids.scid();
            from.ids.pretend_scid(other);
            let mut forged = from.forge(space, PING);
            let forgeries = end.stats().packets_dropped;
            assert_eq!(taken(&mut end, now, &mut forged), 0, "{space:?} {to:?}");
            assert_eq!(end.stats().packets_dropped, forgeries + 1);
            from.ids.pretend_scid(own);
            assert_eq!(taken(&mut end, now, &mut from.forge(space, PING)), 1, "{space:?} {to:?}");
        }
    }
}

/// RFC 9000 s.14.1 holds for every Initial packet, not only the first.
#[test]
fn initial_of_a_small_datagram_is_discarded_by_a_server() {
    let (mut client, mut server, now) = server_has_begun();
    for size in [0, 100, 1199] {
        let mut small = client.forge_of(SpaceId::Initial, PING, size);
        assert!(small.len() < 1200);
        assert_eq!(taken(&mut server, now, &mut small), 0);
        assert_eq!(taken(&mut server, now, &mut client.forge(SpaceId::Initial, PING)), 1);
    }
    // A server may acknowledge in a small datagram.
    let mut small = server.forge_of(SpaceId::Initial, PING, 0);
    assert_eq!(taken(&mut client, now, &mut small), 1);
}

/// RFC 9000 s.17.2.2.
#[test]
fn initial_with_a_token_is_discarded_by_a_client() {
    let (mut client, mut server, now) = server_has_begun();
    let scid = server.ids.scid();
    server.start.follow_retry(Bytes::from_static(b"token"), scid);
    assert_eq!(taken(&mut client, now, &mut server.forge(SpaceId::Initial, PING)), 0);
    server.start.follow_retry(Bytes::new(), scid);
    assert_eq!(taken(&mut client, now, &mut server.forge(SpaceId::Initial, PING)), 1);
}

/// RFC 9001 s.4.1.3: data beyond what TLS has read closes the connection. Data that TLS has read
/// may arrive again.
#[test]
fn crypto_of_an_old_level_is_a_violation() {
    for to in [Side::Client, Side::Server] {
        for (offset, data, violation) in
            [(0, &[1; 4][..], false), (60_000, &[1; 4], true), (0, &[1; 900], true)]
        {
            let (client, server, now) = client_has_begun();
            let (mut from, mut end) =
                if to == Side::Client { (server, client) } else { (client, server) };
            let read = end.spaces.get(SpaceId::Initial).unwrap().crypto_in.get().unwrap();
            let offset = if data.len() > 4 { read.read_offset() - 4 } else { offset };
            deliver(&mut end, now, &mut from.forge(SpaceId::Initial, &crypto(offset, data)));
            if violation {
                assert_violation(&end, Violation::CryptoAtOldLevel);
            } else {
                assert!(!end.closing.is_closed(), "{to:?}");
            }
        }
    }
}

#[test]
fn crypto_after_the_handshake_is_a_violation() {
    let (mut client, mut server, now) = until(|client, _| client.is_connected());
    assert!(client.spaces.get(SpaceId::Handshake).is_some());
    let mut keys_of_server = server.forge(SpaceId::Handshake, &crypto(60_000, &[4; 10]));
    deliver(&mut client, now, &mut keys_of_server);
    assert_violation(&client, Violation::CryptoAtOldLevel);
}

/// CRYPTO data is buffered behind a gap when its level ends.
#[test]
fn crypto_left_over_at_the_end_of_a_level_is_a_violation() {
    let (mut client, mut server, now) = server_has_begun();
    deliver(&mut client, now, &mut server.forge(SpaceId::Initial, &crypto(3000, &[1; 10])));
    assert!(!client.closing.is_closed(), "closed for data that may only be out of order");
    pass(&mut server, &mut client, now);
    assert_violation(&client, Violation::CryptoNotConsumed);
}

/// RFC 9000 s.10.3: "any packet ending in a valid stateless reset token", whatever it begins with.
#[test]
fn reset_with_a_long_header_ends_the_connection() {
    for first in [0x40, 0x7f, 0xc0, 0xd3, 0xe0, 0xff] {
        let mut network = Network::new(1, Faults::none());
        network.connect();
        let (mut client, server, now) = network.into_ends();
        let mut reset: Vec<u8> = (0..60_u32).map(|at| (at * 7 % 251) as u8).collect();
        reset[0] = first;
        let mut other = reset.clone();
        deliver(&mut client, now, &mut other);
        assert!(!client.closing.is_closed());
        let at = reset.len() - 16;
        reset[at..].copy_from_slice(&server.ids.own_token().0);
        deliver(&mut client, now, &mut reset);
        let why = std::iter::from_fn(|| client.poll_event())
            .any(|event| event == Event::Closed(CloseReason::StatelessReset));
        assert!(why, "{first:#x}");
    }
}
