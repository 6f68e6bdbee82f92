//! Post-quantum key exchange: the ClientHello needs two datagrams.

use rustls::crypto::SupportedKxGroup;
use rustls::crypto::aws_lc_rs::kx_group::{SECP256R1, X25519, X25519MLKEM768};

use super::handshake::LIMIT;
use super::*;
use crate::crypto::testing::configs_with;

type Groups<'a> = &'a [&'static dyn SupportedKxGroup];

const CLASSIC: Groups<'static> = &[X25519, SECP256R1];
const HYBRID: Groups<'static> = &[X25519MLKEM768, X25519, SECP256R1];

fn network(client: Groups<'_>, server: Groups<'_>) -> Network {
    let (client_tls, server_tls) = configs_with(client, server);
    let transport = Arc::new(TransportConfig::default());
    let client = ClientConfig { tls: client_tls, transport: transport.clone() };
    let server = ServerConfig { tls: server_tls, transport, preferred_addresses: None };
    Network::between(1, Faults::none(), &client, server)
}

/// Returns the time until the client is connected, and the sizes of its first datagrams.
fn connect(mut network: Network) -> (Duration, Vec<usize>) {
    network.run_until(LIMIT, |client, _| client.is_connected());
    let time = network.now().since(Timestamp::START);
    let first = network.trace().into_iter().filter(|&(at, up, _)| up && at == Timestamp::START);
    (time, first.map(|(_, _, size)| size).collect())
}

#[test]
fn handshake_client_hello_of_two_datagrams_is_answered_in_one_flight() {
    let (classic, one) = connect(network(CLASSIC, CLASSIC));
    assert_eq!(one.len(), 1, "{one:?}");
    // Both ends support only the hybrid group, so they agree on it.
    let (hybrid, two) = connect(network(&[X25519MLKEM768], &[X25519MLKEM768]));
    assert_eq!(two.len(), 2, "{two:?}");
    assert!(two.iter().all(|&size| size >= 1200), "{two:?}");
    assert_eq!(hybrid, classic, "the hybrid group needs another round trip");
}

/// The client sends a key share for X25519 together with that for the hybrid group.
#[test]
fn handshake_server_without_the_hybrid_needs_no_second_client_hello() {
    let (classic, _) = connect(network(CLASSIC, CLASSIC));
    let (server_without, two) = connect(network(HYBRID, CLASSIC));
    assert_eq!((server_without, two.len()), (classic, 2));
    let (client_without, one) = connect(network(CLASSIC, HYBRID));
    assert_eq!((client_without, one.len()), (classic, 1));
}

/// The opposite case: the server supports no group for which the client sent a key share, so that
/// it needs a second ClientHello.
#[test]
fn handshake_group_without_a_key_share_takes_another_round_trip() {
    let (classic, _) = connect(network(CLASSIC, CLASSIC));
    let (again, _) = connect(network(HYBRID, &[SECP256R1]));
    assert_eq!(again, classic * 2);
}

#[test]
fn handshake_second_datagram_may_come_first() {
    let (classic, _) = connect(network(CLASSIC, CLASSIC));
    let mut turned = network(HYBRID, HYBRID);
    let mut held: Option<Vec<u8>> = None;
    let mut passed = 0;
    turned.meddle = Some(Box::new(move |to_server, bytes| {
        if to_server && passed == 0 && held.is_none() {
            held = Some(bytes.to_vec());
            return Vec::new();
        }
        passed += 1;
        let before = held.take().map(|held| (true, held));
        [(to_server, bytes.to_vec())].into_iter().chain(before).collect()
    }));
    let (time, two) = connect(turned);
    assert_eq!((time, two.len()), (classic, 2));
}

/// After a loss, a PTO retransmits the missing part.
#[test]
fn handshake_either_datagram_may_be_lost() {
    for lost in [0, 1] {
        let mut network = network(HYBRID, HYBRID);
        let mut seen = 0;
        network.meddle = Some(Box::new(move |to_server, bytes| {
            seen += usize::from(to_server);
            if to_server && seen == lost + 1 {
                return Vec::new();
            }
            vec![(to_server, bytes.to_vec())]
        }));
        network.connect();
    }
}
