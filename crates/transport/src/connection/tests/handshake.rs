//! How connections begin: Retry, tokens, packets before their keys, 0-RTT, versions.

use std::collections::BTreeSet;
use std::sync::Mutex;

use equic_wire::packet::{
    Datagram, LongInvariant, LongKind, Packet, ParseOptions, Retry, VersionNegotiation,
};
use equic_wire::params::TransportParameters;
use equic_wire::{Version, Writer};

use super::*;
use crate::connection::handshake::tls_version;
use crate::crypto::retry_tag;
use crate::crypto::testing::configs;

const V1: KnownVersion = KnownVersion::V1;
const V2: KnownVersion = KnownVersion::V2;
const LIMIT: Duration = Duration::from_secs(60);

fn seeds(count: u64) -> Vec<u64> {
    match std::env::var("EQUIC_SEED") {
        Ok(seed) => vec![seed.parse().expect("EQUIC_SEED is a number")],
        Err(_) => (0..count).collect(),
    }
}

/// Loss and delay, without forged packets: those can begin connections here.
fn bad(seed: u64) -> Faults {
    Faults { corruption: 0.0, forged: 0.0, ..Faults::by_chance(seed) }
}

fn code(network: &Network, end: usize) -> Option<u64> {
    match &network.closed()[end] {
        Some(CloseReason::Local(error)) => Some(error.code),
        _ => None,
    }
}

const RETRY_ID: [u8; 9] = *b"retryscid";

/// The Retry packet that answers an Initial packet.
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

/// The ID and the token of a datagram that begins with an Initial packet.
fn initial_of(bytes: &[u8]) -> Option<(ConnectionId, Vec<u8>)> {
    let Some(Ok(Packet::Long(long))) = Datagram::new(bytes, ParseOptions::default()).next() else {
        return None;
    };
    match long.kind() {
        LongKind::Initial { token } => Some((long.dcid(), token.to_vec())),
        _ => None,
    }
}

/// A server that asks for a token, as an endpoint would; `honest`: it says so in its parameters.
fn with_retry(network: &mut Network, honest: bool) -> Arc<Mutex<BTreeSet<Vec<u8>>>> {
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
            // 0-RTT packets alone are nobody's yet.
            return vec![];
        }
        vec![(to_server, bytes.to_vec())]
    }));
    network.on_server = Some(Box::new(move |server| {
        let declared = server.start.declared.clone();
        let mut parameters = TransportParameters::parse(&declared, Side::Server).unwrap();
        let ids = parameters.server.as_mut().unwrap();
        ids.original_destination_connection_id = original.lock().unwrap().unwrap();
        if honest {
            ids.retry_source_connection_id = Some(ConnectionId::new(&RETRY_ID).unwrap());
        }
        let mut bytes = vec![0; parameters.encoded_len()];
        parameters.write(&mut Writer::new(&mut bytes)).unwrap();
        server.start.declared = bytes;
        server.tls = server.start.session().unwrap();
    }));
    tokens
}

#[test]
fn a_retry_is_followed() {
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
fn a_retry_that_the_server_does_not_own_up_to() {
    let mut network = Network::new(1, Faults::none());
    with_retry(&mut network, false);
    network.run_until(LIMIT, |client, _| client.is_drained());
    assert_eq!(code(&network, 0), Some(TransportErrorCode::TRANSPORT_PARAMETER_ERROR.0.get()));
}

/// Each is ignored, and the connection comes about with the server that is there.
#[test]
fn a_retry_that_is_not_one() {
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
        assert!(network.client.start.retry.is_none(), "{what}");
        assert!(network.client.stats().packets_dropped > 0, "{what}");
    }
}

#[test]
fn a_second_retry_and_a_late_one_are_ignored() {
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

    // After a packet of the server, with the right tag.
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
    assert!(network.client.start.retry.is_none());
}

#[test]
fn tokens_for_the_next_time() {
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
        assert!(!network.client.send_token(vec![1]), "a client has none to give");
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
fn tokens_that_nobody_takes_are_bounded() {
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

/// The packets of the server's datagrams arrive one by one, the last first.
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

/// What comes before its keys is kept: nothing has to be sent twice.
#[test]
fn a_flight_in_the_wrong_order() {
    let mut network = Network::new(1, Faults::none());
    reverse_flights(&mut network);
    let calls = operations::Calls::default();
    operations::watch_all(&mut network.client, &calls);
    network.connect();
    assert!(calls.lock().unwrap().contains_key(&Operation::KeepPacket));
    assert!(network.now().since(Timestamp::START) < 45 * MS, "{}", network.describe());
    assert_eq!(network.client.stats().probe_timeouts, 0);
}

/// Connections that begin in every way, and each end is watched.
pub fn watch_beginnings(calls: &operations::Calls) {
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
fn packets_without_keys_are_bounded() {
    let mut network = Network::new(1, Faults::none());
    let scid = network.client.scid;
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

/// Configurations that can do 0-RTT, and remember.
fn early_configs() -> (ClientConfig, ServerConfig) {
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

/// A first connection, for a session.
fn visit(client: &ClientConfig, server: &ServerConfig) {
    let mut network = Network::between(99, Faults::none(), client, server.clone());
    network.connect();
    echo(&mut network, 1000);
    network.pass(100 * MS);
}

#[test]
fn early_data_takes_one_round_trip() {
    let (client, server) = early_configs();
    let first = Network::between(1, Faults::none(), &client, server.clone());
    assert!(!first.client.is_early(), "there is no session yet");
    visit(&client, &server);
    let mut network = Network::between(1, Faults::none(), &client, server);
    assert!(network.client.is_early() && !network.client.is_connected());
    let took = echo(&mut network, 5000);
    // Only what the server's unvalidated half may not send waits for more.
    assert!(took < 45 * MS, "{took:?}");
    network.connect();
    for events in &network.events {
        let accepted = events.iter().position(|event| *event == Event::EarlyDataAccepted);
        assert!(accepted.is_some(), "{events:?}");
    }
    assert!(!network.client.is_early() && !network.server().is_early());
    echo(&mut network, 50_000);
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
    // The limits were another server's: with its IDs changed it is not told from the first.
    with_retry(&mut network, true);
    echo(&mut network, 5000);
    network.connect();
    assert!(network.events[0].contains(&Event::EarlyDataAccepted));
}

/// RFC 9001 s.4.6.2: streams begin anew.
#[test]
fn early_data_is_rejected_by_a_server_that_promises_less_now() {
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
            network.client.write(id, &[7; 500]).unwrap();
        }
        network.connect();
        assert!(network.events[0].contains(&Event::EarlyDataRejected), "{}", network.describe());
        assert!(!network.client.is_early());
        let opened: Vec<_> =
            std::iter::from_fn(|| network.client.open(Direction::Bidirectional)).collect();
        assert_eq!(opened.iter().map(|id| id.index()).collect::<Vec<_>>(), [0, 1, 2]);
        for id in opened {
            network.client.write(id, b"again").unwrap();
        }
        let mut arrived = Vec::new();
        network.run_until(LIMIT, |_, server| {
            let mut buffer = [0; 100];
            while let Some(id) = server.accept(Direction::Bidirectional) {
                arrived.push((id, Vec::new()));
            }
            for (id, data) in &mut arrived {
                while let Ok(ReadOutcome::Bytes(count)) = server.read(*id, &mut buffer) {
                    data.extend_from_slice(&buffer[..count]);
                }
            }
            arrived.len() == 3 && arrived.iter().all(|(_, data)| data == b"again")
        });
    }
}

/// RFC 9000 s.7.4.1: whoever takes early data keeps the promises it was sent under.
#[test]
fn a_server_that_takes_early_data_and_breaks_its_promises() {
    let (client, server) = early_configs();
    visit(&client, &server);
    let mut network = Network::between(1, Faults::none(), &client, server);
    network.on_server = Some(Box::new(|server| {
        // The session is found under the old promises; less is declared.
        let before = server.start.declared.clone();
        let mut parameters = TransportParameters::parse(&before, Side::Server).unwrap();
        parameters.initial_max_stream_data_uni = VarInt::from_u32(10);
        let mut bytes = vec![0; parameters.encoded_len()];
        parameters.write(&mut Writer::new(&mut bytes)).unwrap();
        server.start.declared = bytes;
        server.tls = server.start.session().unwrap();
    }));
    network.run_until(LIMIT, |client, _| client.is_drained());
    assert!(network.events[0].contains(&Event::EarlyDataAccepted));
    assert_eq!(code(&network, 0), Some(TransportErrorCode::PROTOCOL_VIOLATION.0.get()));
}

/// What each end speaks, and what the client begins with.
fn speaking(
    seed: u64,
    faults: Faults,
    client: &[KnownVersion],
    first: Option<KnownVersion>,
    server: &[KnownVersion],
) -> Network {
    let (client_tls, server_tls) = configs();
    let transport = |versions: &[KnownVersion], first_version| {
        let versions = versions.to_vec();
        Arc::new(TransportConfig { versions, first_version, ..TransportConfig::default() })
    };
    let client = ClientConfig { tls: client_tls, transport: transport(client, first) };
    let server = ServerConfig {
        tls: server_tls,
        transport: transport(server, None),
        preferred_addresses: None,
    };
    let mut network = Network::between(seed, faults, &client, server);
    network.new_servers = true;
    network
}

#[test]
fn versions_are_agreed_on() {
    let cases: [(&[_], Option<_>, &[_], _, u32); 7] = [
        (&[V1, V2], None, &[V1, V2], V1, 1),
        // Straight.
        (&[V2], None, &[V1, V2], V2, 1),
        (&[V2, V1], None, &[V1, V2], V2, 1),
        // On the way (RFC 9369 s.4).
        (&[V2, V1], Some(V1), &[V2, V1], V2, 1),
        // The server sticks to what the client began with: a round trip more.
        (&[V2, V1], Some(V1), &[V1, V2], V1, 2),
        (&[V2, V1], Some(V1), &[V1], V1, 2),
        // The server likes another better, but this client did not offer it.
        (&[V1, V2], None, &[V2, V1], V1, 1),
    ];
    for (client, first, server, agreed, trips) in cases {
        for seed in seeds(12) {
            let faults = if seed == 0 { Faults::none() } else { bad(seed) };
            let mut network = speaking(seed, faults, client, first, server);
            network.connect();
            let what = format!("{client:?} {first:?} {server:?}: {}", network.describe());
            assert_eq!(network.client.version(), agreed, "{what}");
            assert_eq!(network.server().version(), agreed, "{what}");
            let took = network.now().since(Timestamp::START);
            assert!(seed > 0 || took <= 20 * MS * trips + 25 * MS, "{took:?} {what}");
            echo(&mut network, 20_000);
        }
    }
}

/// The answer to packets of other versions than these.
fn negotiation(bytes: &[u8], versions: &[Version]) -> Vec<u8> {
    let header = LongInvariant::parse(bytes).unwrap();
    let mut buffer = [0; 100];
    let mut writer = Writer::new(&mut buffer);
    let (dcid, scid) = (header.scid, header.dcid);
    VersionNegotiation::write(&mut writer, dcid, scid, versions.iter().copied(), 0x40).unwrap();
    writer.written().to_vec()
}

/// Somebody on the way, or the server, answers version 2 with this list.
fn no_version_2(network: &mut Network, versions: &'static [Version]) {
    network.meddle = Some(Box::new(move |to_server, bytes| {
        let header = LongInvariant::parse(bytes).ok().filter(|_| bytes[0] & 0x80 != 0);
        if to_server && header.is_some_and(|header| header.version == Version::V2) {
            return vec![(false, negotiation(bytes, versions))];
        }
        vec![(to_server, bytes.to_vec())]
    }));
}

#[test]
fn a_version_negotiation_packet_is_followed() {
    for seed in seeds(15) {
        let faults = if seed == 0 { Faults::none() } else { bad(seed) };
        let mut network = speaking(seed, faults, &[V2, V1], None, &[V1]);
        no_version_2(&mut network, &[Version(0x1a2a_3a4a), Version::V1]);
        network.connect();
        assert_eq!(network.client.version(), V1);
        echo(&mut network, 20_000);
    }
}

#[test]
fn a_downgrade_is_noticed() {
    // The server speaks version 2, and who answered for it did not want that.
    let mut network = speaking(1, Faults::none(), &[V2, V1], None, &[V1, V2]);
    no_version_2(&mut network, &[Version::V1]);
    network.run_until(LIMIT, |client, _| client.is_drained());
    assert_eq!(code(&network, 0), Some(TransportErrorCode::VERSION_NEGOTIATION_ERROR.0.get()));
}

#[test]
fn no_version_in_common_is_the_end() {
    let mut network = speaking(1, Faults::none(), &[V2], None, &[V1]);
    no_version_2(&mut network, &[Version::V1, Version(0xff00_001d)]);
    network.run_until(LIMIT, |client, _| client.is_drained());
    assert_eq!(code(&network, 0), Some(TransportErrorCode::VERSION_NEGOTIATION_ERROR.0.get()));
    assert_eq!(network.client.stats().datagrams_sent, 1);
}

#[test]
fn version_negotiation_packets_that_mean_nothing() {
    // It lists what was sent; it is of another connection; it comes too late.
    for case in 0..3 {
        let mut network = speaking(1, Faults::none(), &[V2, V1], None, &[V2, V1]);
        let mut first = None;
        network.meddle = Some(Box::new(move |to_server, bytes| {
            let mut datagrams = vec![(to_server, bytes.to_vec())];
            if to_server && first.is_none() {
                first = Some(bytes.to_vec());
                let mut other = bytes.to_vec();
                other[8] ^= 1;
                match case {
                    0 => {
                        let versions = [Version::V1, Version::V2];
                        datagrams.insert(0, (false, negotiation(bytes, &versions)));
                    }
                    1 => datagrams.insert(0, (false, negotiation(&other, &[Version::V1]))),
                    _ => {}
                }
            }
            if !to_server && case == 2 {
                let first = first.as_deref().unwrap();
                datagrams.push((false, negotiation(first, &[Version::V1])));
            }
            datagrams
        }));
        network.connect();
        assert_eq!(network.client.version(), V2, "case {case}");
    }
}

#[test]
fn what_has_no_meaning_is_sent_and_taken() {
    for grease in [true, false] {
        let mut network = Network::with(1, Faults::none(), |config| config.grease = grease);
        let counts = Arc::new(Mutex::new([0, 0]));
        let seen = counts.clone();
        network.meddle = Some(Box::new(move |to_server, bytes| {
            seen.lock().unwrap()[usize::from(bytes[0] & 0x40 != 0)] += 1;
            vec![(to_server, bytes.to_vec())]
        }));
        network.connect();
        echo(&mut network, 200_000);
        let [without, with] = *counts.lock().unwrap();
        assert_eq!(without > 50, grease, "{without} of {}", without + with);
        assert!(with > 50);
        // A parameter that nobody knows, and a version.
        for end in [&network.client, network.server()] {
            let bytes = end.tls.quic_transport_parameters().unwrap();
            let parameters = TransportParameters::parse(bytes, !end.side()).unwrap();
            assert_eq!(parameters.unknown().count(), usize::from(grease));
            let versions = parameters.version_information.unwrap();
            assert_eq!(versions.available().iter().any(Version::is_reserved), grease);
        }
    }
}
