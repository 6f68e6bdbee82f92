//! Tests of endpoints with both versions, and of the first packets of a connection: which version
//! they have, and whether they have the Fixed Bit.

use rustls::crypto::SupportedKxGroup;
use rustls::crypto::aws_lc_rs::kx_group::X25519MLKEM768;

use super::*;
use crate::crypto::testing::configs_with;

const V1: KnownVersion = KnownVersion::V1;
const V2: KnownVersion = KnownVersion::V2;

fn speaking(
    versions: &[KnownVersion],
    first_version: Option<KnownVersion>,
) -> Arc<TransportConfig> {
    let versions = versions.to_vec();
    Arc::new(TransportConfig { versions, first_version, ..TransportConfig::default() })
}

/// Returns a pair of endpoints whose server speaks the versions `server`, and a client
/// configuration that begins with version 1 and prefers version 2.
fn upgrading(server: &[KnownVersion]) -> (Pair, ClientConfig) {
    let mut pair = Pair::new();
    let (tls, server_tls) = configs();
    let transport = speaking(server, None);
    let server = ServerConfig { tls: server_tls, transport, preferred_addresses: None };
    pair.ends[1].set_server(Some(Arc::new(server)));
    (pair, ClientConfig { tls, transport: speaking(&[V2, V1], Some(V1)) })
}

/// Returns all datagrams that one end of a connection has to send now.
fn flight(pair: &mut Pair, end: usize, handle: Handle) -> Vec<Vec<u8>> {
    let (now, mut buffer) = (pair.now, vec![0; 1500]);
    let connection = pair.connection(end, handle);
    let next =
        || connection.poll_transmit(now, &mut buffer).map(|sent| buffer[..sent.size].to_vec());
    std::iter::from_fn(next).collect()
}

fn only_server(pair: &Pair) -> Handle {
    *pair.connections[1].keys().next_back().expect("the server has accepted a connection")
}

// RFC 9369 s.4.1 #1 #2 #3
#[test]
fn version_is_negotiated_after_a_retry() {
    for (server, agreed) in [(&[V2, V1][..], V2), (&[V1, V2], V1)] {
        let (mut pair, config) = upgrading(server);
        pair.retries = Some(0);
        let handle = pair.connect(&config);
        pair.settle();
        let connection = pair.connection(0, handle);
        assert!(connection.is_connected(), "{server:?}");
        assert_eq!(connection.version(), agreed);
        // If the server does not upgrade to version 2, the client starts again without its token.
        assert_eq!(pair.retries, Some(if agreed == V2 { 1 } else { 2 }));
    }
}

/// After the server has changed the version, it still decrypts packets of the client's first
/// version.
// RFC 9369 s.4.1 #6
#[test]
fn version_first_keys_are_kept_by_the_server() {
    let (mut pair, config) = upgrading(&[V2, V1]);
    let handle = pair.connect(&config);
    for datagram in flight(&mut pair, 0, handle) {
        pair.deliver(1, datagram);
    }
    let server = only_server(&pair);
    assert_eq!(pair.connection(1, server).version(), V2);
    let received = pair.connection(1, server).stats().packets_received;
    // The server's answer is lost.
    pair.now += Duration::from_secs(5);
    let now = pair.now;
    pair.connection(0, handle).handle_timeout(now);
    let probes = flight(&mut pair, 0, handle);
    let first = LongInvariant::parse(&probes[0]).unwrap();
    assert_eq!(first.version, Version::V1);
    pair.deliver(1, probes[0].clone());
    assert_eq!(pair.connection(1, server).stats().packets_received, received + 1);
}

/// A client that prefers another version has no session for that version, so it sends no 0-RTT
/// packets.
// RFC 9369 s.4.1 #9
#[test]
fn early_data_is_not_sent_by_a_client_that_hopes_for_another_version() {
    let mut pair = Pair::new();
    let (client, server) = configs();
    let (mut client, mut server) = ((*client).clone(), (*server).clone());
    client.enable_early_data = true;
    server.max_early_data_size = u32::MAX;
    let transport = speaking(&[V2, V1], None);
    let server = ServerConfig { tls: server.into(), transport, preferred_addresses: None };
    pair.ends[1].set_server(Some(Arc::new(server)));
    let plain = ClientConfig { tls: client.into(), transport: speaking(&[V1], None) };
    let hopeful = ClientConfig { tls: plain.tls.clone(), transport: speaking(&[V2, V1], Some(V1)) };
    for (config, early, version) in [(&plain, false, V1), (&hopeful, false, V2), (&plain, true, V1)]
    {
        let handle = pair.connect(config);
        let connection = pair.connection(0, handle);
        assert_eq!(connection.is_early(), early);
        let id = connection.open(Direction::Unidirectional);
        assert_eq!(id.is_some(), early);
        if let Some(id) = id {
            connection.streams().write(id, &[1; 100]).unwrap();
        }
        let first = flight(&mut pair, 0, handle);
        let zero_rtt = |datagram: &Vec<u8>| {
            let mut packets = Datagram::new(datagram, ParseOptions::default());
            packets.any(|packet| {
                matches!(packet, Ok(Packet::Long(long)) if long.kind() == LongKind::ZeroRtt)
            })
        };
        assert_eq!(first.iter().any(zero_rtt), early);
        for datagram in first {
            pair.deliver(1, datagram);
        }
        pair.settle();
        assert_eq!(pair.connection(0, handle).version(), version);
    }
}

/// A client follows one Version Negotiation packet. A second one, in answer to the new attempt,
/// does not count.
// RFC 9368 s.4 #2
#[test]
fn version_negotiation_packet_is_followed_by_an_endpoint_once() {
    let (mut pair, mut config) = upgrading(&[V1]);
    config.transport = speaking(&[V2, V1], None);
    let handle = pair.connect(&config);
    for (sent, offered) in [(V2, Version::V1), (V1, Version::V2)] {
        let datagram = flight(&mut pair, 0, handle).remove(0);
        let header = LongInvariant::parse(&datagram).unwrap();
        assert_eq!(header.version, Version::from(sent));
        let mut packet = vec![0; 100];
        let mut writer = Writer::new(&mut packet);
        let (dcid, scid) = (header.scid, header.dcid);
        VersionNegotiation::write(&mut writer, dcid, scid, [offered], 0x40).unwrap();
        let length = writer.position();
        let now = pair.now;
        let connection = pair.connection(0, handle);
        connection.handle_datagram(now, from(server_address()), &mut packet[..length]);
        assert_eq!(connection.version(), V1);
    }
    pair.now += Duration::from_secs(5);
    let now = pair.now;
    pair.connection(0, handle).handle_timeout(now);
    pair.settle();
    let connection = pair.connection(0, handle);
    assert!(connection.is_connected() && connection.version() == V1);
}

/// The server stores no state of earlier connections of the same client.
// RFC 9287 s.3.1 #2 #3 #4 #5
#[test]
fn packet_fixed_bit_is_set_until_the_peer_permits_another() {
    // If only the hybrid key exchange is offered, a ClientHello takes two datagrams.
    let groups: &[&dyn SupportedKxGroup] = &[X25519MLKEM768];
    let (tls, server_tls) = configs_with(groups, groups);
    let mut pair = Pair::new();
    let server =
        ServerConfig { tls: server_tls, transport: transport(), preferred_addresses: None };
    pair.ends[1].set_server(Some(Arc::new(server)));
    let config = ClientConfig { tls, transport: transport() };
    let without = |datagrams: &[Vec<u8>]| datagrams.iter().filter(|d| d[0] & 0x40 == 0).count();
    let mut cleared = [0; 2];
    for _ in 0..20 {
        let handle = pair.connect(&config);
        let first = flight(&mut pair, 0, handle);
        assert_eq!(without(&first), 0);
        // From a part of the ClientHello, the server cannot read the client's transport parameters.
        assert!(first.len() > 1);
        pair.deliver(1, first[0].clone());
        let server = only_server(&pair);
        let answer = flight(&mut pair, 1, server);
        assert!(!answer.is_empty() && without(&answer) == 0);
        for datagram in &first[1..] {
            pair.deliver(1, datagram.clone());
        }
        for datagram in answer {
            pair.deliver(0, datagram);
        }
        pair.settle();
        for (end, handle) in [(0, handle), (1, server)] {
            assert!(pair.connection(end, handle).is_connected());
            pair.connection(end, handle).ping();
            cleared[end] += without(&flight(&mut pair, end, handle));
        }
    }
    assert!(cleared.iter().all(|count| *count > 0), "{cleared:?}");
}

/// Both Retry packets have the right tag. The client follows the first one.
// RFC 9000 s.17.2.5.2 #1 #2, s.17.2.5.1 #3
#[test]
fn retry_second_one_is_ignored() {
    let (mut pair, config) = Pair::trusting();
    let handle = pair.connect(&config);
    let first = flight(&mut pair, 0, handle).remove(0);
    let header = LongInvariant::parse(&first).unwrap();
    let sent = |pair: &mut Pair| {
        let datagram = flight(pair, 0, handle).pop()?;
        let packet = Datagram::new(&datagram, ParseOptions::default()).next();
        let Some(Ok(Packet::Long(long))) = packet else { panic!("{packet:?}") };
        let LongKind::Initial { token } = long.kind() else { panic!("{long:?}") };
        Some((long.dcid(), token.to_vec()))
    };
    for token in [b"one", b"two"] {
        let mut packet = vec![0; 200];
        let mut writer = Writer::new(&mut packet);
        let (dcid, scid) = (id(header.scid), id(&[token, &token[..], token].concat()));
        Retry::write_without_tag(&mut writer, V1, dcid, scid, token, 0).unwrap();
        let tag = retry_tag(tls_version(V1), header.dcid, writer.written());
        writer.bytes(&tag).unwrap();
        let (length, now) = (writer.position(), pair.now);
        let connection = pair.connection(0, handle);
        connection.handle_datagram(now, from(server_address()), &mut packet[..length]);
        if token == b"one" {
            assert_eq!(sent(&mut pair), Some((id(b"oneoneone"), b"one".to_vec())));
        }
    }
    assert_eq!(sent(&mut pair), None, "nothing is sent again");
    pair.now += Duration::from_secs(5);
    let now = pair.now;
    pair.connection(0, handle).handle_timeout(now);
    assert_eq!(sent(&mut pair), Some((id(b"oneoneone"), b"one".to_vec())));
}
