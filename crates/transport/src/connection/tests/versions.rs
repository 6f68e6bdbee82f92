//! Tests of the choice of version: directly, during the handshake, and by Version Negotiation. Also
//! tests greasing.

use std::sync::Mutex;

use equic_wire::packet::{LongInvariant, VersionNegotiation};
use equic_wire::params::TransportParameters;
use equic_wire::{Version, Writer};

use super::handshake::{LIMIT, bad, code, seeds, violation};
use super::*;
use crate::crypto::testing::configs;

pub(super) const V1: KnownVersion = KnownVersion::V1;
pub(super) const V2: KnownVersion = KnownVersion::V2;

/// Returns a connection whose ends support these versions. The client begins with `first`.
pub(super) fn speaking(
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
fn version_is_negotiated() {
    let cases: [(&[_], Option<_>, &[_], _, u32); 7] = [
        (&[V1, V2], None, &[V1, V2], V1, 1),
        // The client's first version is the final one.
        (&[V2], None, &[V1, V2], V2, 1),
        (&[V2, V1], None, &[V1, V2], V2, 1),
        // By compatible version negotiation (RFC 9369 s.4).
        (&[V2, V1], Some(V1), &[V2, V1], V2, 1),
        // The server supports or prefers only the client's first version: one more round trip.
        (&[V2, V1], Some(V1), &[V1, V2], V1, 2),
        (&[V2, V1], Some(V1), &[V1], V1, 2),
        // The server prefers another version, but the client did not offer it for an upgrade.
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

/// Returns a Version Negotiation packet with these versions.
fn negotiation(bytes: &[u8], versions: &[Version]) -> Vec<u8> {
    let header = LongInvariant::parse(bytes).unwrap();
    let mut buffer = [0; 100];
    let mut writer = Writer::new(&mut buffer);
    let (dcid, scid) = (header.scid, header.dcid);
    VersionNegotiation::write(&mut writer, dcid, scid, versions.iter().copied(), 0x40).unwrap();
    writer.written().to_vec()
}

/// An attacker or the server answers packets of version 2 with this list.
pub(super) fn no_version_2(network: &mut Network, versions: &'static [Version]) {
    network.meddle = Some(Box::new(move |to_server, bytes| {
        let header = LongInvariant::parse(bytes).ok().filter(|_| bytes[0] & 0x80 != 0);
        if to_server && header.is_some_and(|header| header.version == Version::V2) {
            return vec![(false, negotiation(bytes, versions))];
        }
        vec![(to_server, bytes.to_vec())]
    }));
}

#[test]
fn version_negotiation_packet_is_followed() {
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
fn version_downgrade_is_a_violation() {
    // The server supports version 2. An attacker sent the Version Negotiation packet to prevent its
    // use.
    let mut network = speaking(1, Faults::none(), &[V2, V1], None, &[V1, V2]);
    no_version_2(&mut network, &[Version::V1]);
    network.run_until(LIMIT, |client, _| client.is_drained());
    assert_eq!(violation(&network, 0), Some(Violation::VersionInformation));
}

#[test]
fn version_none_in_common_ends_the_connection() {
    let mut network = speaking(1, Faults::none(), &[V2], None, &[V1]);
    no_version_2(&mut network, &[Version::V1, Version(0xff00_001d)]);
    network.run_until(LIMIT, |client, _| client.is_drained());
    assert_eq!(code(&network, 0), Some(TransportErrorCode::VERSION_NEGOTIATION_ERROR.0.get()));
    assert_eq!(network.client.stats().datagrams_sent, 1);
}

#[test]
fn version_negotiation_packets_without_meaning_are_ignored() {
    // The packet lists the version that the client uses, belongs to another connection, or arrives
    // too late.
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
fn version_grease_is_sent_and_accepted() {
    for grease in [true, false] {
        let mut network = Network::with(1, Faults::none(), |config| config.grease = grease);
        let counts = Arc::new(Mutex::new([0, 0]));
        let seen = counts.clone();
        network.meddle = Some(Box::new(move |to_server, bytes| {
            seen.lock().unwrap()[usize::from(bytes[0] & 0x40 != 0)] += 1;
            vec![(to_server, bytes.to_vec())]
        }));
        network
            .run_until(LIMIT, |_, server| server.handshake.tls().transport_parameters().is_some());
        // The server's TLS has the client's parameters until the handshake is complete.
        assert_meaningless(network.server(), grease);
        network.connect();
        assert_meaningless(&network.client, grease);
        echo(&mut network, 200_000);
        let [without, with] = *counts.lock().unwrap();
        assert_eq!(without > 50, grease, "{without} of {}", without + with);
        assert!(with > 50);
    }
}

/// Asserts whether the peer declared a reserved transport parameter and a reserved version.
fn assert_meaningless(end: &Connection, expected: bool) {
    let bytes = end.handshake.tls().transport_parameters().unwrap();
    let parameters = TransportParameters::parse(bytes, !end.side()).unwrap();
    assert_eq!(parameters.unknown().count(), usize::from(expected));
    let versions = parameters.version_information.unwrap();
    assert_eq!(versions.available().iter().any(Version::is_reserved), expected);
}

/// Hooks on datagrams see the version of each datagram as sent.
#[test]
fn version_of_a_datagram_is_shown_to_hooks() {
    let (tls, server_tls) = configs();
    let client = TransportConfig { first_unknown: true, ..TransportConfig::default() };
    let client = ClientConfig { tls, transport: Arc::new(client) };
    let server =
        ServerConfig { tls: server_tls, transport: Arc::default(), preferred_addresses: None };
    let mut network = Network::between(1, Faults::none(), &client, server);
    let shown = Arc::new(Mutex::new(Vec::new()));
    let list = shown.clone();
    let look = operations::doing(move |_, call, _| {
        list.lock().unwrap().push(call.bytes.as_slice().to_vec());
        Ok(crate::operation::Decision::Default)
    });
    operations::replace(&mut network.client, Operation::SendDatagram, look);
    let mut buffer = [0; 1500];
    let sent = network.client.poll_transmit(Timestamp::START, &mut buffer).unwrap();
    assert!(LongInvariant::parse(&buffer[..sent.size]).unwrap().version.is_reserved());
    assert_eq!(*shown.lock().unwrap(), [&buffer[..sent.size]]);
}
