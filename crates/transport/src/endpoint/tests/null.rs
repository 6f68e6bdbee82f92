//! Tests connections without protection, and endpoints that do not support them.

use super::*;
use crate::connection::InsecureNullConfig;
use crate::crypto::null::InsecureNullCrypto;

const NULL: KnownVersion = KnownVersion::NullCrypto;

fn config() -> InsecureNullConfig {
    InsecureNullConfig::new(InsecureNullCrypto::for_simulation_only())
}

fn pair() -> Pair {
    let mut pair = Pair::new();
    pair.ends[1].set_insecure_null_server(Arc::new(config()));
    pair
}

fn connect(pair: &mut Pair) -> Handle {
    let (handle, connection) =
        pair.ends[0].connect_insecure_null(pair.now, &config(), server_address()).unwrap();
    pair.connections[0].insert(handle, connection);
    handle
}

/// Returns the versions that an endpoint lists in its answer to this datagram.
fn told(endpoint: &mut Endpoint, datagram: &[u8]) -> Vec<Version> {
    let mut response = Vec::new();
    let received = endpoint.handle_datagram(NOW, from(client_address()), datagram, &mut response);
    assert!(matches!(received, Received::Respond), "{received:?}");
    let mut packets = Datagram::new(&response, ParseOptions::default());
    let Some(Ok(Packet::VersionNegotiation(told))) = packets.next() else {
        panic!("there is no Version Negotiation packet")
    };
    told.versions().iter().filter(|version| !version.is_reserved()).collect()
}

fn first_datagram(connection: &mut Connection) -> Vec<u8> {
    let mut buffer = vec![0; 1500];
    let sent = connection.poll_transmit(NOW, &mut buffer).unwrap();
    buffer.truncate(sent.size);
    buffer
}

// RFC 9368 s.2.2 #1
#[test]
fn null_crypto_version_is_unknown_without_the_setting() {
    let mut pair = pair();
    let handle = connect(&mut pair);
    let datagram = first_datagram(pair.connection(0, handle));
    assert_eq!(datagram[1..5], *b"null");
    assert_eq!(told(&mut server(), &datagram), [Version::V1, Version::V2]);
    // The endpoint must not accept the version without protection, even if its TLS configuration
    // lists that version.
    let transport =
        Arc::new(TransportConfig { versions: vec![NULL, KnownVersion::V1], ..Default::default() });
    let mut careless = server();
    let tls = configs().1;
    let config = ServerConfig { tls, transport, preferred_addresses: None };
    careless.set_server(Some(Arc::new(config)));
    assert_eq!(told(&mut careless, &datagram), [Version::V1]);
}

#[test]
fn null_crypto_endpoint_knows_no_other_version() {
    let [_, mut endpoint] = pair().ends;
    for version in [KnownVersion::V1, KnownVersion::V2] {
        let datagram = initial(version, first_id(), &[]);
        assert_eq!(told(&mut endpoint, &datagram), [Version::NULL_CRYPTO]);
    }
}

/// A forged Version Negotiation packet must not make a TLS client use the version without
/// protection.
#[test]
fn null_crypto_is_never_negotiated() {
    let (mut pair, config) = Pair::trusting();
    let handle = pair.connect(&config);
    let first = first_datagram(pair.connection(0, handle));
    let header = LongInvariant::parse(&first).unwrap();
    let mut forged = vec![0; 100];
    let mut writer = Writer::new(&mut forged);
    let only = [Version::NULL_CRYPTO];
    VersionNegotiation::write(&mut writer, header.scid, header.dcid, only, 0x40).unwrap();
    let length = writer.position();
    let connection = pair.connection(0, handle);
    connection.handle_datagram(NOW, from(server_address()), &mut forged[..length]);
    assert!(!connection.is_connected());
    assert_eq!(connection.version(), KnownVersion::V1);
    let closed = std::iter::from_fn(|| connection.poll_event()).find_map(|event| match event {
        Event::Closed(CloseReason::Local(error)) => Some(error.code),
        _ => None,
    });
    assert_eq!(closed, Some(TransportErrorCode::VERSION_NEGOTIATION_ERROR.0.get()));
}

#[test]
fn null_crypto_connections_on_one_socket() {
    for retries in [None, Some(0)] {
        let mut pair = pair();
        pair.retries = retries;
        let handles: Vec<Handle> = (0..20).map(|_| connect(&mut pair)).collect();
        for handle in &handles {
            let connection = pair.connection(0, *handle);
            assert!(connection.open(Direction::Bidirectional).is_none());
        }
        pair.settle();
        assert_eq!(pair.retries, retries.map(|_| 20));
        assert_eq!((pair.ends[0].len(), pair.ends[1].len()), (20, 20));
        for handle in handles {
            let connection = pair.connection(0, handle);
            assert!(connection.is_connected());
            assert_eq!(connection.version(), NULL);
            let id = connection.open(Direction::Unidirectional).unwrap();
            connection.streams().write(id, &[handle.0 as u8; 5000]).unwrap();
            connection.streams().finish(id).unwrap();
        }
        pair.settle();
        for connection in pair.connections[1].values_mut() {
            let id = connection.accept(Direction::Unidirectional).unwrap();
            let (mut buffer, mut length) = ([0; 6000], 0);
            while let Ok(ReadOutcome::Bytes(count)) =
                connection.streams().read(id, &mut buffer[length..])
            {
                length += count;
            }
            assert_eq!(length, 5000);
        }
    }
}

#[test]
fn null_crypto_refusals_and_tokens() {
    let mut pair = pair();
    let handle = connect(&mut pair);
    let datagram = first_datagram(pair.connection(0, handle));
    let mut response = Vec::new();
    let [_, endpoint] = &mut pair.ends;
    let received = endpoint.handle_datagram(NOW, from(client_address()), &datagram, &mut response);
    assert!(endpoint.refuse(incoming(received), &mut response));
    let connection = pair.connection(0, handle);
    connection.handle_datagram(NOW, from(server_address()), &mut response);
    let refused = TransportErrorCode::CONNECTION_REFUSED.0.get();
    let closed = std::iter::from_fn(|| connection.poll_event()).any(
        |event| matches!(event, Event::Closed(CloseReason::Peer(error)) if error.code == refused),
    );
    assert!(closed);
    // A token is valid for one version only. This also applies to the version without protection.
    let token = endpoint_token(&mut pair.ends[1]);
    let handle = connect(&mut pair);
    assert!(pair.connection(0, handle).set_token(token));
    let datagram = first_datagram(pair.connection(0, handle));
    let received =
        pair.ends[1].handle_datagram(NOW, from(client_address()), &datagram, &mut response);
    assert!(incoming(received).is_validated());
}

fn endpoint_token(endpoint: &mut Endpoint) -> Vec<u8> {
    endpoint.new_token(NOW, client_address().ip(), NULL).unwrap()
}
