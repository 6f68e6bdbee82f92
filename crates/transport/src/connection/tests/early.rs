//! 0-RTT.

use equic_wire::Writer;
use equic_wire::params::TransportParameters;

use super::handshake::{LIMIT, bad, seeds, violation, with_retry};
use super::*;
use crate::crypto::testing::configs;

/// Returns configurations that permit 0-RTT and store sessions.
pub(super) fn early_configs() -> (ClientConfig, ServerConfig) {
    let (client, server) = configs();
    let (mut client, mut server) = ((*client).clone(), (*server).clone());
    client.enable_early_data = true;
    server.max_early_data_size = u32::MAX;
    let transport = Arc::new(TransportConfig::default());
    (
        ClientConfig { tls: client.into(), transport: transport.clone() },
        ServerConfig { tls: server.into(), transport, preferred_addresses: None },
    )
}

/// Makes a first connection to obtain a session.
pub(super) fn visit(client: &ClientConfig, server: &ServerConfig) {
    let mut network = Network::between(99, Faults::none(), client, server.clone());
    network.connect();
    echo(&mut network, 1000);
    network.pass(100 * MS);
}

#[test]
fn early_data_takes_one_round_trip() {
    let (client, server) = early_configs();
    let first = Network::between(1, Faults::none(), &client, server.clone());
    assert!(!first.client.is_early(), "0-RTT without a session");
    visit(&client, &server);
    let mut network = Network::between(1, Faults::none(), &client, server);
    assert!(network.client.is_early() && !network.client.is_connected());
    let took = echo(&mut network, 5000);
    // Only data beyond the anti-amplification limit takes longer.
    assert!(took < 45 * MS, "{took:?}");
    network.connect();
    for events in &network.events {
        let accepted = events.iter().position(|event| *event == Event::EarlyDataAccepted);
        assert!(accepted.is_some(), "{events:?}");
    }
    assert!(!network.client.is_early() && !network.server().is_early());
    echo(&mut network, 50_000);
}

/// Sessions of version 2 are kept apart. A session can be used only with its version (RFC 9369
/// s.5).
#[test]
fn early_data_sessions_of_both_versions() {
    use super::versions::{V1, V2};
    let (client, mut server) = early_configs();
    let speaking = |versions: &[KnownVersion], sessions_v2: &Option<rustls::client::Resumption>| {
        let sessions_v2 = sessions_v2.clone();
        Arc::new(TransportConfig { versions: versions.to_vec(), sessions_v2, ..Default::default() })
    };
    server.transport = speaking(&[V1, V2], &None);
    let kept = Some(rustls::client::Resumption::default());
    let with = |transport| ClientConfig { tls: client.tls.clone(), transport };
    let (one, two) = (with(speaking(&[V1], &kept)), with(speaking(&[V2], &kept)));
    let nowhere = with(speaking(&[V2], &None));
    let begin = |config| Network::between(1, Faults::none(), config, server.clone());
    visit(&nowhere, &server);
    assert!(!begin(&nowhere).client.is_early());
    visit(&two, &server);
    assert!(!begin(&one).client.is_early());
    let mut network = begin(&two);
    assert!(network.client.is_early());
    echo(&mut network, 5000);
    network.connect();
    assert_eq!(network.client.version(), V2);
    assert!(network.events[0].contains(&Event::EarlyDataAccepted));
    visit(&one, &server);
    let mut network = begin(&one);
    assert!(network.client.is_early());
    network.connect();
    assert!(network.events[0].contains(&Event::EarlyDataAccepted));
}

#[test]
fn early_data_over_bad_networks() {
    let (client, server) = early_configs();
    for seed in seeds(40) {
        visit(&client, &server);
        let mut network = Network::between(seed, Faults::by_chance(seed), &client, server.clone());
        assert!(network.client.is_early());
        echo(&mut network, 1 + (seed as usize * 7919) % 60_000);
        network.connect();
    }
}

#[test]
fn early_data_and_retry() {
    let (client, server) = early_configs();
    visit(&client, &server);
    let mut network = Network::between(1, Faults::none(), &client, server);
    // After a Retry, the server's transport parameters have other connection IDs. The limits that
    // were remembered for 0-RTT still apply.
    with_retry(&mut network, true);
    echo(&mut network, 5000);
    network.connect();
    assert!(network.events[0].contains(&Event::EarlyDataAccepted));
}

/// RFC 9001 s.4.6.2: streams start from scratch.
#[test]
fn early_data_is_rejected_by_a_server_with_lower_limits() {
    let (client, mut server) = early_configs();
    for seed in seeds(10) {
        visit(&client, &server);
        let mut less = TransportConfig::default();
        less.streams.max_streams_bidi = 3;
        let promised = std::mem::replace(&mut server.transport, less.into());
        let faults = if seed == 0 { Faults::none() } else { bad(seed) };
        let mut network = Network::between(seed, faults, &client, server.clone());
        server.transport = promised;
        for _ in 0..10 {
            let id = network.client.open(Direction::Bidirectional).unwrap();
            network.client.streams().write(id, &[7; 500]).unwrap();
        }
        network.connect();
        assert!(network.events[0].contains(&Event::EarlyDataRejected), "{}", network.describe());
        assert!(!network.client.is_early());
        let opened: Vec<_> =
            std::iter::from_fn(|| network.client.open(Direction::Bidirectional)).collect();
        assert_eq!(opened.iter().map(|id| id.index()).collect::<Vec<_>>(), [0, 1, 2]);
        for id in opened {
            network.client.streams().write(id, b"again").unwrap();
        }
        let mut arrived = Vec::new();
        network.run_until(LIMIT, |_, server| {
            let mut buffer = [0; 100];
            while let Some(id) = server.accept(Direction::Bidirectional) {
                arrived.push((id, Vec::new()));
            }
            for (id, data) in &mut arrived {
                while let Ok(ReadOutcome::Bytes(count)) = server.streams().read(*id, &mut buffer) {
                    data.extend_from_slice(&buffer[..count]);
                }
            }
            arrived.len() == 3 && arrived.iter().all(|(_, data)| data == b"again")
        });
    }
}

/// RFC 9000 s.7.4.1: a server that accepts early data must keep the limits that it promised.
#[test]
fn early_data_accepted_with_lower_limits_is_a_violation() {
    let (client, server) = early_configs();
    visit(&client, &server);
    let mut network = Network::between(1, Faults::none(), &client, server);
    network.on_server = Some(Box::new(|server| {
        // The session has the old limits, and the server declares lower ones.
        let before = server.start.declared().to_vec();
        let mut parameters = TransportParameters::parse(&before, Side::Server).unwrap();
        parameters.initial_max_stream_data_uni = VarInt::from_u32(10);
        let mut bytes = vec![0; parameters.encoded_len()];
        parameters.write(&mut Writer::new(&mut bytes)).unwrap();
        server.start.pretend_declared(bytes);
        server.handshake.restart(server.start.session().unwrap());
    }));
    network.run_until(LIMIT, |client, _| client.is_drained());
    assert!(network.events[0].contains(&Event::EarlyDataAccepted));
    assert_eq!(violation(&network, 0), Some(Violation::ReducedLimitsAfterEarlyData));
}
