#[cfg(feature = "null-crypto")]
mod null;
mod tokens;
mod versions;

use std::collections::BTreeMap;

use equic_wire::frame::{ConnectionClose, Frame, Frames};
use equic_wire::packet::{
    Datagram, LongHeader, LongInvariant, LongKind, Packet, ParseOptions, Retry, VersionNegotiation,
};
use equic_wire::{
    Direction, KnownVersion, PacketNumber, ResetToken, TransportErrorCode, VarInt, VarIntLen,
    Version, Writer,
};
use rand::rngs::StdRng;

use super::*;
use crate::cid::ID_LEN;
use crate::connection::{CloseReason, Event, TransportConfig, tls_version};
use crate::crypto::testing::configs;
use crate::crypto::{header_mask, retry_tag};
use crate::received::EcnCodepoint;
use crate::stream::ReadOutcome;

const NOW: Timestamp = Timestamp::from_nanos(1_000_000_000);
const TAG_LEN: usize = 16;

fn from(remote: SocketAddr) -> DatagramMeta {
    DatagramMeta { remote, local: None, ecn: EcnCodepoint::NotEct }
}

fn client_address() -> SocketAddr {
    "192.0.2.1:4000".parse().unwrap()
}

fn server_address() -> SocketAddr {
    "198.51.100.1:443".parse().unwrap()
}

fn provider() -> CryptoProvider {
    rustls::crypto::aws_lc_rs::default_provider()
}

fn transport() -> Arc<TransportConfig> {
    Arc::new(TransportConfig::default())
}

fn server_with(set: impl Fn(&mut EndpointConfig)) -> Endpoint {
    seeded_server([1; 32], set)
}

fn seeded_server(seed: [u8; 32], set: impl Fn(&mut EndpointConfig)) -> Endpoint {
    let mut config = EndpointConfig::new(&provider()).unwrap();
    set(&mut config);
    let server =
        ServerConfig { tls: configs().1, transport: transport(), preferred_addresses: None };
    Endpoint::new(config, Some(Arc::new(server)), seed)
}

fn server() -> Endpoint {
    server_with(|_| {})
}

fn id(bytes: &[u8]) -> ConnectionId {
    ConnectionId::new(bytes).unwrap()
}

/// Returns a client's Initial packet with a PING frame, in a datagram of 1,200 bytes.
fn initial(version: KnownVersion, dcid: ConnectionId, token: &[u8]) -> Vec<u8> {
    initial_of(version, dcid, token, 1200)
}

/// Like [`initial`], in a datagram of this size.
fn initial_of(version: KnownVersion, dcid: ConnectionId, token: &[u8], size: usize) -> Vec<u8> {
    let suite = initial_suite(&provider()).unwrap();
    let keys = suite.keys(dcid.as_bytes(), rustls::Side::Client, tls_version(version)).local;
    let mut packet = vec![0; size];
    let mut writer = Writer::new(&mut packet);
    let kind = LongKind::Initial { token };
    let header = LongHeader { version, kind, dcid, scid: id(b"client"), fixed_bit: true };
    let number = PacketNumber::new(0).unwrap().truncate(None).unwrap();
    let open = header.open(&mut writer, number, VarIntLen::Two).unwrap();
    Frame::Ping.write(&mut writer).unwrap();
    writer.zeros(writer.remaining() - TAG_LEN).unwrap();
    let finished = open.finish(&mut writer, TAG_LEN).unwrap();
    let (head, body) = packet.split_at_mut(finished.header_len);
    let (payload, tag) = body.split_at_mut(body.len() - TAG_LEN);
    tag.copy_from_slice(keys.packet.encrypt_in_place(0, head, payload).unwrap().as_ref());
    let mask = header_mask(&*keys.header, finished.header().sample(&packet).unwrap()).unwrap();
    finished.protect(&mut packet, &mask).unwrap();
    packet
}

fn first_id() -> ConnectionId {
    id(b"original")
}

fn incoming(received: Received) -> Incoming {
    match received {
        Received::Incoming(incoming) => incoming,
        other => panic!("{other:?}"),
    }
}

/// Returns the error code of the CONNECTION_CLOSE frame in the server's Initial packet. `sent_to`
/// is the Destination Connection ID of the client's packet.
fn close_code(sent_to: ConnectionId, response: &mut [u8]) -> TransportErrorCode {
    let options = ParseOptions::default();
    let Some(Ok(Packet::Long(long))) = Datagram::new(response, options).next() else {
        panic!("the response has no long header")
    };
    assert_eq!(long.dcid(), id(b"client"));
    let protected = long.protected();
    let version = tls_version(long.version());
    let suite = initial_suite(&provider()).unwrap();
    let keys = suite.keys(sent_to.as_bytes(), rustls::Side::Client, version).remote;
    let mask = header_mask(&*keys.header, protected.sample(response).unwrap()).unwrap();
    let header = protected.remove(response, &mask).unwrap();
    let (head, payload) = response.split_at_mut(header.header_len());
    let payload = keys.packet.decrypt_in_place(0, head, payload).unwrap();
    match Frames::new(payload).unwrap().next().unwrap().unwrap() {
        Frame::ConnectionClose(ConnectionClose::Transport { error_code, .. }) => error_code,
        other => panic!("{other:?}"),
    }
}

/// A client's and a server's endpoint with their connections. Datagrams are delivered without
/// delay.
struct Pair {
    now: Timestamp,
    ends: [Endpoint; 2],
    connections: [BTreeMap<Handle, Connection>; 2],
    events: [Vec<Event>; 2],
    /// Number of Retry packets that the server has sent. If `None`, the server does not use Retry.
    retries: Option<usize>,
    /// Source address of the client's datagrams.
    client: SocketAddr,
}

impl Pair {
    fn new() -> Pair {
        let client = Endpoint::new(EndpointConfig::new(&provider()).unwrap(), None, [2; 32]);
        Pair {
            now: NOW,
            ends: [client, server()],
            connections: [BTreeMap::new(), BTreeMap::new()],
            events: [vec![], vec![]],
            retries: None,
            client: client_address(),
        }
    }

    /// Creates a pair of endpoints, and a client configuration that trusts the server's
    /// certificate. Each call of `configs` generates a new certificate.
    fn trusting() -> (Pair, ClientConfig) {
        let mut pair = Pair::new();
        let (client, server) = configs();
        let server =
            ServerConfig { tls: server, transport: transport(), preferred_addresses: None };
        pair.ends[1].set_server(Some(Arc::new(server)));
        (pair, ClientConfig { tls: client, transport: transport() })
    }

    fn connect(&mut self, config: &ClientConfig) -> Handle {
        let name = ServerName::try_from("equic.test").unwrap();
        let (handle, connection) =
            self.ends[0].connect(self.now, config, name, server_address()).unwrap();
        self.connections[0].insert(handle, connection);
        handle
    }

    fn deliver(&mut self, to: usize, mut datagram: Vec<u8>) {
        let remote = [server_address(), self.client][to];
        let mut response = Vec::new();
        match self.ends[to].handle_datagram(self.now, from(remote), &datagram, &mut response) {
            Received::Connection(handle) => {
                let connection = self.connections[to].get_mut(&handle).unwrap();
                connection.handle_datagram(self.now, from(remote), &mut datagram);
            }
            Received::Incoming(incoming) if self.retries.is_some() && !incoming.is_validated() => {
                self.retries = self.retries.map(|count| count + 1);
                assert!(self.ends[to].retry(self.now, incoming, &mut response));
                self.deliver(1 - to, response);
            }
            Received::Incoming(incoming) => {
                let (handle, connection) = self.ends[to].accept(self.now, incoming).unwrap();
                self.connections[to].insert(handle, connection);
            }
            Received::Respond => self.deliver(1 - to, response),
            Received::Nothing => {}
        }
    }

    /// Delivers datagrams until neither end has more to send.
    fn settle(&mut self) {
        let mut buffer = vec![0; 1500];
        for _ in 0..1000 {
            let mut sent = Vec::new();
            for end in [0, 1] {
                for (handle, connection) in &mut self.connections[end] {
                    while let Some(datagram) = connection.poll_transmit(self.now, &mut buffer) {
                        sent.push((1 - end, buffer[..datagram.size].to_vec()));
                    }
                    while let Some(change) = connection.poll_endpoint_event() {
                        self.ends[end].handle_endpoint_event(*handle, change);
                    }
                    self.events[end].extend(std::iter::from_fn(|| connection.poll_event()));
                }
            }
            if sent.is_empty() {
                return;
            }
            self.now += Duration::from_millis(1);
            for (to, datagram) in sent {
                self.deliver(to, datagram);
            }
        }
        panic!("the ends never stop sending");
    }

    fn connection(&mut self, end: usize, handle: Handle) -> &mut Connection {
        self.connections[end].get_mut(&handle).unwrap()
    }
}

/// RFC 9287 s.3.1: a client with a token of an earlier connection may clear the Fixed Bit in its
/// first packet. The server must accept that only if its `grease` setting is on.
// RFC 9287 s.3 #2
#[test]
fn endpoint_first_packet_without_the_fixed_bit() {
    let mut datagram = initial(KnownVersion::V1, first_id(), b"");
    datagram[0] &= !0x40;
    for grease in [true, false] {
        let transport = Arc::new(TransportConfig { grease, ..TransportConfig::default() });
        let server = ServerConfig { tls: configs().1, transport, preferred_addresses: None };
        let config = EndpointConfig::new(&provider()).unwrap();
        let mut endpoint = Endpoint::new(config, Some(Arc::new(server)), [1; 32]);
        let from = from(client_address());
        let received = endpoint.handle_datagram(NOW, from, &datagram, &mut Vec::new());
        assert_eq!(matches!(received, Received::Incoming(_)), grease, "{received:?}");
    }
}

/// The endpoint caches the connection IDs of the last datagrams, in addition to the table of all
/// IDs. A retired ID must disappear from both.
#[test]
fn cid_retired_still_leads_to_its_connection_for_a_while() {
    let config = EndpointConfig::new(&provider()).unwrap();
    let mut endpoint = Endpoint::new(config, None, [1; 32]);
    let [first, second, third] = [1u8, 2, 3].map(|byte| ConnectionId::cut(&[byte; ID_LEN]));
    let whose = |endpoint: &mut Endpoint, id: ConnectionId| {
        let datagram = [&[0x40][..], id.as_bytes(), &[0; 40]].concat();
        let from = from(client_address());
        match endpoint.handle_datagram(NOW, from, &datagram, &mut Vec::new()) {
            Received::Connection(handle) => Some(handle),
            _ => None,
        }
    };
    let handle = endpoint.add(first, None);
    endpoint.handle_endpoint_event(handle, EndpointEvent::Issued(second));
    for id in [first, first, second, second] {
        assert_eq!(whose(&mut endpoint, id), Some(handle));
    }
    endpoint.handle_endpoint_event(handle, EndpointEvent::Retired(second));
    assert_eq!((whose(&mut endpoint, second), whose(&mut endpoint, first)), (None, Some(handle)));
    endpoint.remove(handle);
    assert_eq!(endpoint.add(third, None), handle, "another connection gets the same handle");
    assert_eq!((whose(&mut endpoint, first), whose(&mut endpoint, third)), (None, Some(handle)));
}

#[test]
fn endpoint_many_connections_on_one_socket() {
    let (mut pair, config) = Pair::trusting();
    let handles: Vec<Handle> = (0..20).map(|_| pair.connect(&config)).collect();
    pair.settle();
    assert_eq!((pair.ends[0].len(), pair.ends[1].len()), (20, 20));
    for (number, handle) in handles.iter().enumerate() {
        let connection = pair.connection(0, *handle);
        assert!(connection.is_connected());
        let id = connection.open(Direction::Unidirectional).unwrap();
        connection.streams().write(id, &[number as u8]).unwrap();
        connection.streams().finish(id).unwrap();
    }
    pair.settle();
    let mut seen: Vec<u8> = Vec::new();
    for connection in pair.connections[1].values_mut() {
        let id = connection.accept(Direction::Unidirectional).unwrap();
        let mut byte = [0];
        assert_eq!(connection.streams().read(id, &mut byte), Ok(ReadOutcome::Bytes(1)));
        seen.push(byte[0]);
    }
    // All server connections took the memory for their streams from the endpoint's pool and have
    // returned it.
    assert_eq!((pair.ends[0].pages.count(), pair.ends[1].pages.count()), (0, 20));
    seen.sort_unstable();
    assert!(seen.iter().copied().eq(0..20), "{seen:?}");
    // Each server connection has at most four IDs and the first ID that the client chose.
    let routes = &pair.ends[1].routes;
    assert!(routes.all(Kind::Id).len() <= 20 * 5 && routes.all(Kind::First).len() == 20);
    for end in [0, 1] {
        let handles: Vec<Handle> = pair.connections[end].keys().copied().collect();
        handles.iter().for_each(|handle| pair.ends[end].remove(*handle));
        let endpoint = &pair.ends[end];
        assert!(endpoint.is_empty() && endpoint.routes.are_none());
    }
}

/// TLS stores the transport parameters with a session ticket. The client must use the parameters of
/// the new connection in their place.
// RFC 9000 s.7.4.1 #2 #3
// RFC 9001 s.5.6 #1
#[test]
fn ticket_is_used_by_a_client_that_returns() {
    let (mut pair, config) = Pair::trusting();
    for _ in 0..3 {
        let handle = pair.connect(&config);
        pair.settle();
        let connection = pair.connection(0, handle);
        assert!(connection.is_connected());
        assert!(connection.open(Direction::Bidirectional).is_some());
    }
}

/// The server validates the first connection with a Retry packet and sends a token. The second
/// connection presents the token, so it needs no Retry packet. Both versions are tested.
// RFC 9000 s.8.1.3 #6
#[test]
fn token_replaces_a_retry() {
    for versions in [[KnownVersion::V1, KnownVersion::V2], [KnownVersion::V2, KnownVersion::V1]] {
        let (mut pair, mut config) = Pair::trusting();
        let both = TransportConfig { versions: versions.to_vec(), ..TransportConfig::default() };
        config.transport = Arc::new(both);
        pair.retries = Some(0);
        let first = pair.connect(&config);
        pair.settle();
        assert!(pair.connection(0, first).is_connected());
        assert_eq!(pair.retries, Some(1));
        let server = *pair.connections[1].keys().next().unwrap();
        let version = pair.connection(1, server).version();
        assert_eq!(version, versions[0]);
        let token = pair.ends[1].new_token(pair.now, client_address().ip(), version).unwrap();
        assert!(pair.connection(1, server).send_token(token));
        pair.settle();
        let token = pair.events[0].iter().find_map(|event| match event {
            Event::NewToken(token) => Some(token.clone()),
            _ => None,
        });
        let second = pair.connect(&config);
        assert!(pair.connection(0, second).set_token(token.expect("the token has arrived")));
        pair.settle();
        assert!(pair.connection(0, second).is_connected());
        assert_eq!(pair.retries, Some(1), "the token was enough");
    }
}

/// The client starts with a version that differs from the version that it prefers.
#[test]
fn version_is_negotiated_by_endpoints() {
    let (v1, v2) = (KnownVersion::V1, KnownVersion::V2);
    for (server, agreed) in [(vec![v2, v1], v2), (vec![v1, v2], v1), (vec![v1], v1)] {
        for first_version in [Some(v1), None] {
            let transport = |versions: &[KnownVersion], first_version| {
                let versions = versions.to_vec();
                Arc::new(TransportConfig { versions, first_version, ..TransportConfig::default() })
            };
            let mut pair = Pair::new();
            let (client_tls, server_tls) = configs();
            pair.ends[1].set_server(Some(Arc::new(ServerConfig {
                tls: server_tls,
                transport: transport(&server, None),
                preferred_addresses: None,
            })));
            let config =
                ClientConfig { tls: client_tls, transport: transport(&[v2, v1], first_version) };
            let handle = pair.connect(&config);
            pair.settle();
            let connection = pair.connection(0, handle);
            assert!(connection.is_connected(), "{server:?} {first_version:?}");
            // If the client starts with its preferred version and the server speaks that version,
            // the connection keeps it.
            let straight = first_version.is_none() && server.contains(&v2);
            assert_eq!(connection.version(), if straight { v2 } else { agreed });
        }
    }
}

// RFC 9000 s.10.3.1 #1 #4
#[test]
fn reset_is_sent_for_a_forgotten_connection() {
    let (mut pair, config) = Pair::trusting();
    let handle = pair.connect(&config);
    pair.settle();
    let server = *pair.connections[1].keys().next().unwrap();
    pair.connections[1].remove(&server);
    pair.ends[1].remove(server);
    let connection = pair.connection(0, handle);
    let id = connection.open(Direction::Bidirectional).unwrap();
    connection.streams().write(id, &[0; 200]).unwrap();
    pair.settle();
    let closed = Event::Closed(CloseReason::StatelessReset);
    assert!(pair.events[0].contains(&closed), "{:?}", pair.events[0]);
}

/// RFC 9000 s.10.3: a datagram must count as a stateless reset if it ends with a valid reset token,
/// even if its long header cannot be parsed.
// RFC 9000 s.10.3 #8
#[test]
fn reset_with_a_long_header_reaches_its_connection() {
    let (mut pair, config) = Pair::trusting();
    let handle = pair.connect(&config);
    pair.settle();
    let (now, mut buffer) = (pair.now, vec![0; 1500]);
    let connection = pair.connection(0, handle);
    connection.ping();
    connection.poll_transmit(now, &mut buffer).unwrap();
    let server_id = ConnectionId::cut(&buffer[1..=pair.ends[1].id_len()]);
    let token = pair.ends[1].source.reset_key().token(server_id);
    for filler in [0x00, 0x01, 0x77, 0xff] {
        for first in [0x55, 0xc0, 0xd5, 0xff] {
            let mut datagram = vec![filler; 60];
            datagram[0] = first;
            datagram[44..].copy_from_slice(&token.0);
            let mut response = Vec::new();
            let arrival = from(client_address());
            let received = pair.ends[0].handle_datagram(now, arrival, &datagram, &mut response);
            assert!(
                matches!(received, Received::Connection(found) if found == handle),
                "{first:#x} {filler:#x}: {received:?}"
            );
            datagram[59] ^= 1;
            let received = pair.ends[0].handle_datagram(now, arrival, &datagram, &mut response);
            assert!(!matches!(received, Received::Connection(_)), "{received:?}");
        }
    }
}

/// RFC 9000 s.5.1.2 #2: the peer sends no more packets to a connection ID that it has retired, but
/// packets that it sent before may arrive late.
#[test]
fn cid_retired_late_packets_are_accepted() {
    let (mut pair, config) = Pair::trusting();
    let handle = pair.connect(&config);
    pair.settle();
    let server = *pair.connections[1].keys().next().unwrap();
    let (now, mut buffer) = (pair.now, vec![0; 1500]);
    let mut ping = |pair: &mut Pair, now: Timestamp| {
        let connection = pair.connection(0, handle);
        connection.ping();
        let size = connection.poll_transmit(now, &mut buffer).unwrap().size;
        buffer[..size].to_vec()
    };
    let late = ping(&mut pair, now);
    pair.connection(1, server).replace_connection_ids();
    pair.settle();
    let now = pair.now;
    let next = ping(&mut pair, now);
    assert_ne!(late[1..9], next[1..9], "the client uses another ID");
    let received = pair.connection(1, server).stats().packets_received;
    pair.deliver(1, late.clone());
    assert_eq!(pair.connection(1, server).stats().packets_received, received + 1);

    // Late packets must be accepted only for a while. Then the connection releases its memory, and
    // the ID is unknown.
    pair.deliver(1, next);
    pair.now += Duration::from_secs(5);
    pair.settle();
    let mut response = Vec::new();
    let received =
        pair.ends[1].handle_datagram(pair.now, from(client_address()), &late, &mut response);
    assert!(matches!(received, Received::Respond), "{received:?}");
}

// RFC 9000 s.10.3 #5 #7, s.10.3.3 #1
#[test]
fn reset_is_shorter_and_rate_limited() {
    let mut endpoint = server();
    let mut response = Vec::new();
    for size in 1..200 {
        let now = NOW + Duration::from_secs(size as u64);
        let datagram: Vec<u8> = std::iter::repeat_n(0x55, size).collect();
        match endpoint.handle_datagram(now, from(client_address()), &datagram, &mut response) {
            Received::Nothing => assert!(size <= 21, "{size}"),
            Received::Respond => {
                assert!(response.len() < size && response.len() >= 21, "{size}");
                let expected = endpoint.source.reset_key().token(id(&[0x55; ID_LEN]));
                let token = ResetToken(*response.last_chunk().unwrap());
                assert_eq!((token, response[0] & 0xc0), (expected, 0x40));
            }
            other => panic!("{other:?}"),
        }
    }
    let mut count = 0;
    for nanos in 0..1000 {
        let now = NOW + Duration::from_secs(1000) + Duration::from_millis(nanos);
        let received =
            endpoint.handle_datagram(now, from(client_address()), &[0x55; 50], &mut response);
        count += u32::from(matches!(received, Received::Respond));
    }
    // Receivers in one prefix get an eighth of the budget, and a burst of a tenth of that.
    assert!((125..=138).contains(&count), "{count} resets in a second");
    // A flood from one prefix must not affect resets to other prefixes.
    let mut others = 0;
    for number in 0..200_u8 {
        let now = NOW + Duration::from_secs(2000) + Duration::from_millis(number.into());
        for address in [format!("198.51.100.{number}:1"), format!("192.0.{number}.1:1")] {
            let flood = address.starts_with("198");
            let from = from(address.parse().unwrap());
            for _ in 0..if flood { 100 } else { 1 } {
                let received = endpoint.handle_datagram(now, from, &[0x55; 50], &mut response);
                others += u32::from(!flood && matches!(received, Received::Respond));
            }
        }
    }
    assert!(others > 190, "{others} of 200");
    let mut never = server_with(|config| config.max_resets = 0);
    let received = never.handle_datagram(NOW, from(client_address()), &[0x55; 50], &mut response);
    assert!(matches!(received, Received::Nothing));
}

// RFC 9000 s.8.1.2 #2, s.8.1.4 #3, s.17.2.5.1 #1 #4
#[test]
fn retry_validates_the_address() {
    let mut response = Vec::new();
    for version in [KnownVersion::V1, KnownVersion::V2] {
        let mut endpoint = server();
        let datagram = initial(version, first_id(), &[]);
        let received =
            endpoint.handle_datagram(NOW, from(client_address()), &datagram, &mut response);
        let first = incoming(received);
        assert!(first.may_retry() && !first.is_validated());
        assert!(endpoint.retry(NOW, first, &mut response) && response.len() < 300);
        let Some(Ok(Packet::Retry(retry))) =
            Datagram::new(&response, ParseOptions::default()).next()
        else {
            panic!("the response is not a Retry packet")
        };
        let tag = retry_tag(tls_version(version), first_id().as_bytes(), retry.without_tag());
        assert_eq!((retry.integrity_tag(), retry.dcid()), (&tag, id(b"client")));
        let (sent_to, token) = (retry.scid(), retry.token().to_vec());
        let again = initial(version, sent_to, &token);
        let later = NOW + Duration::from_secs(14);
        let received =
            endpoint.handle_datagram(later, from(client_address()), &again, &mut response);
        let second = incoming(received);
        assert!(second.is_validated() && !second.may_retry());
        assert_eq!((second.0.original, second.0.retry), (first_id(), Some(sent_to)));
        assert!(
            !endpoint.retry(later, second, &mut response),
            "a second Retry packet is not permitted"
        );
        assert!(endpoint.waiting.is_empty());

        // A Retry token from another address, for another connection ID, or after its lifetime must
        // be answered with INVALID_TOKEN.
        let elsewhere = "192.0.2.1:4001".parse().unwrap();
        let other = initial(version, first_id(), &token);
        let late = NOW + Duration::from_secs(15);
        for (now, source, datagram, dcid) in [
            (later, elsewhere, &again, sent_to),
            (later, client_address(), &other, first_id()),
            (late, client_address(), &again, sent_to),
        ] {
            let received = endpoint.handle_datagram(now, from(source), datagram, &mut response);
            assert!(matches!(received, Received::Respond), "{received:?}");
            assert!(response.len() < 200);
            assert_eq!(close_code(dcid, &mut response), TransportErrorCode::INVALID_TOKEN);
        }
    }
}

// RFC 9369 s.5 #2
// RFC 9000 s.8.1.3 #3 #10 #11 #12, s.8.1.4 #4 #5
#[test]
fn token_is_valid_until_it_expires() {
    let mut endpoint = server();
    let give = |endpoint: &mut Endpoint| {
        endpoint.new_token(NOW, client_address().ip(), KnownVersion::V1).unwrap()
    };
    let day = Duration::from_secs(24 * 60 * 60);
    let other = "192.0.2.2:4000".parse().unwrap();
    let mut response = Vec::new();
    let tokens: [Vec<u8>; 4] = std::array::from_fn(|_| give(&mut endpoint));
    let [first, second, token, last] = &tokens;
    for (source, now, token, validated) in [
        ("192.0.2.1:9".parse().unwrap(), NOW + day / 2, &first[..], true),
        ("[::ffff:192.0.2.1]:9".parse().unwrap(), NOW, &second[..], true),
        // Each token is valid only once.
        (client_address(), NOW, &first[..], false),
        (client_address(), NOW, &second[..], false),
        (other, NOW, &token[..], false),
        (client_address(), NOW, &token[..token.len() - 1], false),
        (client_address(), NOW, &[0; 300][..], false),
    ] {
        let datagram = initial(KnownVersion::V1, first_id(), token);
        let received = endpoint.handle_datagram(now, from(source), &datagram, &mut response);
        let incoming = incoming(received);
        assert_eq!((incoming.is_validated(), incoming.may_retry()), (validated, true), "{source}");
        endpoint.ignore(incoming);
    }
    // RFC 9369 s.5: a token from a connection with one version is not valid for another version.
    let datagram = initial(KnownVersion::V2, first_id(), token);
    let received = endpoint.handle_datagram(NOW, from(client_address()), &datagram, &mut response);
    let another = incoming(received);
    assert!(!another.is_validated(), "the token is of another version");
    endpoint.ignore(another);
    // A token stays valid for its client until it expires, even if others tried to use it.
    for (token, now, validated) in [(token, NOW + day / 2, true), (last, NOW + day, false)] {
        let datagram = initial(KnownVersion::V1, first_id(), token);
        let from = from(client_address());
        let another = incoming(endpoint.handle_datagram(now, from, &datagram, &mut response));
        assert_eq!(another.is_validated(), validated);
        endpoint.ignore(another);
    }
}

// RFC 9000 s.5.2.2 #4
#[test]
fn endpoint_refuses_and_drops() {
    let mut endpoint = server();
    let mut response = Vec::new();
    let datagram = initial(KnownVersion::V2, first_id(), &[]);
    let received = endpoint.handle_datagram(NOW, from(client_address()), &datagram, &mut response);
    assert!(endpoint.refuse(incoming(received), &mut response) && response.len() < 100);
    assert_eq!(close_code(first_id(), &mut response), TransportErrorCode::CONNECTION_REFUSED);
    let mut forged = datagram.clone();
    forged[600] ^= 1;
    let received = endpoint.handle_datagram(NOW, from(client_address()), &forged, &mut response);
    let accepted = endpoint.accept(NOW, incoming(received));
    assert!(matches!(accepted, Err(AcceptError::NotGenuine)));
    assert!(endpoint.is_empty() && endpoint.routes.are_none() && endpoint.waiting.is_empty());
    endpoint.set_server(None);
    let received = endpoint.handle_datagram(NOW, from(client_address()), &datagram, &mut response);
    assert!(matches!(received, Received::Nothing));
}

#[test]
fn endpoint_config_without_the_version_is_refused() {
    let mut endpoint = server();
    let mut response = Vec::new();
    let versions = vec![KnownVersion::V1];
    let config = || {
        let transport =
            TransportConfig { versions: versions.clone(), ..TransportConfig::default() };
        let (tls, transport) = (configs().1, Arc::new(transport));
        Arc::new(ServerConfig { tls, transport, preferred_addresses: None })
    };
    for version in [KnownVersion::V2, KnownVersion::V1] {
        let datagram = initial(version, first_id(), &[]);
        let received =
            endpoint.handle_datagram(NOW, from(client_address()), &datagram, &mut response);
        let mut prepared = false;
        let accepted =
            endpoint
                .accept_as(NOW, incoming(received), config(), |_: &mut Connection| prepared = true);
        if version == KnownVersion::V1 {
            assert!(accepted.is_ok() && prepared, "{version:?}");
            continue;
        }
        let Err(AcceptError::Start(StartError::OtherVersion(other))) = accepted else {
            panic!("the attempt was accepted, or refused for another reason");
        };
        assert!(other == version && !prepared);
        assert!(endpoint.is_empty() && endpoint.routes.are_none() && endpoint.waiting.is_empty());
    }
}

// RFC 9000 s.5.2.2 #5 #6, s.7.2 #1, s.14.1 #3
#[test]
fn endpoint_attempt_rules_of_rfc_9000() {
    let mut endpoint = server();
    let mut response = Vec::new();
    let mut try_it = |datagram: &[u8]| {
        endpoint.handle_datagram(NOW, from(client_address()), datagram, &mut response)
    };
    let whole = initial(KnownVersion::V1, first_id(), &[]);
    for size in [100, 1199] {
        let small = initial_of(KnownVersion::V1, first_id(), &[], size);
        assert!(matches!(try_it(&small), Received::Nothing), "too small");
    }
    let short = initial(KnownVersion::V1, id(b"seven77"), &[]);
    assert!(matches!(try_it(&short), Received::Nothing), "ID too short");
    assert!(matches!(try_it(&[]), Received::Nothing), "the datagram is empty");
    let mut handshake = whole.clone();
    handshake[0] |= 0x20;
    assert!(matches!(try_it(&handshake), Received::Nothing), "the packet is not an Initial packet");
}

// RFC 9368 s.2.1 #1 #5
// RFC 9000 s.5.2.2 #1 #2 #3, s.6.1 #1, s.17.2 #4 #7, s.17.2.1 #4 #5 #6 #7
#[test]
fn version_negotiation_packet_lists_ours() {
    let mut endpoint = server();
    let mut response = Vec::new();
    for (dcid, scid) in [(0, 0), (8, 20), (255, 255)] {
        let mut datagram = vec![0xff, 0x1a, 0x2a, 0x3a, 0x4a, dcid];
        datagram.resize(datagram.len() + usize::from(dcid), 1);
        datagram.push(scid);
        datagram.resize(datagram.len() + usize::from(scid), 2);
        datagram.resize(1199, 0);
        let received =
            endpoint.handle_datagram(NOW, from(client_address()), &datagram, &mut response);
        assert!(matches!(received, Received::Nothing), "too small");
        datagram.push(0);
        let received =
            endpoint.handle_datagram(NOW, from(client_address()), &datagram, &mut response);
        assert!(matches!(received, Received::Respond) && response.len() < datagram.len());
        let header = LongInvariant::parse(&response).unwrap();
        assert_eq!(header.dcid, vec![2; usize::from(scid)]);
        assert_eq!(header.scid, vec![1; usize::from(dcid)]);
        let Some(Ok(Packet::VersionNegotiation(told))) =
            Datagram::new(&response, ParseOptions::default()).next()
        else {
            panic!("the response is not a Version Negotiation packet")
        };
        let versions: Vec<Version> = told.versions().iter().collect();
        assert_eq!(versions[1..], [Version::V1, Version::V2]);
        assert!(versions[0].is_reserved() && versions[0] != header.version);
    }
    // This endpoint knows version 2 but is configured not to use it.
    let transport = TransportConfig { versions: vec![KnownVersion::V1], ..Default::default() };
    let (tls, transport) = (configs().1, Arc::new(transport));
    let config = ServerConfig { tls, transport, preferred_addresses: None };
    let mut only_one = server();
    only_one.set_server(Some(Arc::new(config)));
    let datagram = initial(KnownVersion::V2, first_id(), &[]);
    let received = only_one.handle_datagram(NOW, from(client_address()), &datagram, &mut response);
    assert!(matches!(received, Received::Respond));
    let mut packets = Datagram::new(&response, ParseOptions::default());
    let Some(Ok(Packet::VersionNegotiation(told))) = packets.next() else {
        panic!("there is no Version Negotiation packet")
    };
    assert!(told.versions().contains(Version::V1) && !told.versions().contains(Version::V2));
    // RFC 9000 s.6.1: the endpoint must not answer a Version Negotiation packet.
    let mut buffer = vec![0; 1200];
    let mut writer = Writer::new(&mut buffer);
    VersionNegotiation::write(&mut writer, b"12345678", b"12345678", [Version::V1], 0).unwrap();
    let received = endpoint.handle_datagram(NOW, from(client_address()), &buffer, &mut response);
    assert!(matches!(received, Received::Nothing));
}

#[test]
fn endpoint_attempts_and_their_datagrams_are_bounded() {
    let mut endpoint = server_with(|config| config.max_incoming = 10);
    let mut response = Vec::new();
    let mut taken = Vec::new();
    for number in 0..100u64 {
        let datagram = initial(KnownVersion::V1, id(&number.to_be_bytes()), &[]);
        for _ in 0..2 * MAX_WAITING {
            let received =
                endpoint.handle_datagram(NOW, from(client_address()), &datagram, &mut response);
            match received {
                Received::Incoming(incoming) => taken.push(incoming),
                Received::Nothing => {}
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!((taken.len(), endpoint.waiting.len()), (10, 10));
    // A waiting attempt stores at most 13 datagrams of 1,200 bytes, because of the limit on bytes.
    // The number of small datagrams has its own limit.
    assert!(endpoint.waiting.values().all(|waiting| waiting.datagrams.len() == 13));
    let mut small = server();
    let mut datagram = initial(KnownVersion::V1, first_id(), &[]);
    let _small =
        incoming(small.handle_datagram(NOW, from(client_address()), &datagram, &mut response));
    // This is a 0-RTT packet. The endpoint does not check its length.
    datagram[0] = 0xd0;
    datagram.truncate(300);
    let length = 4 + 1 + 1 + first_id().len() + 1 + id(b"client").len();
    let payload = u16::try_from(300 - length - 2).unwrap() | 0x4000;
    datagram[length..length + 2].copy_from_slice(&payload.to_be_bytes());
    for _ in 0..2 * MAX_WAITING {
        small.handle_datagram(NOW, from(client_address()), &datagram, &mut response);
    }
    assert_eq!(small.waiting.values().next().unwrap().datagrams.len(), MAX_WAITING);
    // A datagram from another address must not be added to this attempt. It must begin a new
    // attempt.
    let mut other = server();
    let datagram = initial(KnownVersion::V1, first_id(), &[]);
    let first =
        incoming(other.handle_datagram(NOW, from(client_address()), &datagram, &mut response));
    let second =
        incoming(other.handle_datagram(NOW, from(server_address()), &datagram, &mut response));
    assert_eq!(other.waiting.len(), 2);
    assert!(other.waiting.values().all(|waiting| waiting.datagrams.len() == 1));
    other.ignore(first);
    assert_eq!((other.waiting.len(), second.0.remote), (1, server_address()));
    other.ignore(second);
    assert!(other.waiting.is_empty());
}

/// A NAT changes the client's address before the first answer arrives. The server's packets to the
/// old address are lost. The client's next Initial packet begins a separate attempt with its own
/// path.
// RFC 9000 s.8.1 #2
#[test]
fn endpoint_first_packets_from_another_address_are_another_attempt() {
    for copies in 1..4 {
        let (mut pair, config) = Pair::trusting();
        let client = pair.connect(&config);
        let (mut buffer, mut flight, now) = (vec![0; 1500], Vec::new(), pair.now);
        while let Some(sent) = pair.connection(0, client).poll_transmit(now, &mut buffer) {
            flight.push(buffer[..sent.size].to_vec());
        }
        let received: usize = flight.iter().map(Vec::len).sum();
        let addresses: Vec<SocketAddr> =
            (0..=copies).map(|port| SocketAddr::new(client_address().ip(), 4000 + port)).collect();
        for (number, address) in addresses.iter().enumerate() {
            pair.client = *address;
            // The second copy of each datagram must be added to the attempt that the first copy
            // began.
            for datagram in flight.iter().chain(&flight) {
                pair.deliver(1, datagram.clone());
            }
            assert_eq!(pair.connections[1].len(), number + 1);
            let attempt = |connection: &&mut Connection| connection.remote_address() == *address;
            let attempt = pair.connections[1].values_mut().find(attempt).unwrap();
            if *address == addresses[usize::from(copies)] {
                break;
            }
            let mut lost = 0;
            while let Some(sent) = attempt.poll_transmit(now, &mut buffer) {
                assert_eq!(sent.destination, *address);
                lost += sent.size;
            }
            assert!((1..=6 * received).contains(&lost), "RFC 9000 s.8.1: {lost} of {received}");
        }
        pair.settle();
        assert!(pair.connection(0, client).is_connected());
        let connected: Vec<SocketAddr> = pair.connections[1]
            .values()
            .filter(|connection| connection.is_connected())
            .map(Connection::remote_address)
            .collect();
        assert_eq!(connected, [addresses[usize::from(copies)]]);
    }
}

/// Sends damaged and random datagrams to an endpoint. It must not panic, each answer must be
/// shorter than the datagram that it answers, and the stored attempts must stay within their limit.
#[test]
fn endpoint_survives_garbage() {
    let seed: u64 = match std::env::var("EQUIC_SEED") {
        Ok(seed) => seed.parse().expect("EQUIC_SEED is a number"),
        Err(_) => rand::random(),
    };
    println!("endpoint_survives_garbage: EQUIC_SEED={seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    let mut endpoint = server_with(|config| config.max_incoming = 16);
    let token = endpoint.new_token(NOW, client_address().ip(), KnownVersion::V1).unwrap();
    let patterns =
        [initial(KnownVersion::V1, first_id(), &[]), initial(KnownVersion::V2, first_id(), &token)];
    let mut waiting: Vec<Incoming> = Vec::new();
    let mut accepted = Vec::new();
    let mut response = Vec::new();
    for round in 0..20_000u64 {
        let mut datagram = patterns[rng.random_range(0..patterns.len())].clone();
        match rng.random_range(0..4) {
            0 => {
                let bytes = rng.random_range(0..1500);
                datagram.resize(bytes, 0);
                rng.fill_bytes(&mut datagram);
            }
            1 => datagram[6..14].copy_from_slice(&round.to_be_bytes()),
            2 => datagram.truncate(rng.random_range(0..1200)),
            _ => {
                for _ in 0..rng.random_range(1..20) {
                    let at = rng.random_range(0..60);
                    datagram[at] = rng.random();
                }
            }
        }
        let now = NOW + Duration::from_millis(round);
        let length = datagram.len();
        match endpoint.handle_datagram(now, from(client_address()), &datagram, &mut response) {
            Received::Incoming(incoming) => waiting.push(incoming),
            Received::Respond => assert!(response.len() < length, "round {round}"),
            Received::Connection(_) | Received::Nothing => {}
        }
        assert!(endpoint.waiting.len() <= 16, "round {round}");
        if waiting.len() == 16 {
            for incoming in waiting.drain(..) {
                match rng.random_range(0..4) {
                    0 => endpoint.ignore(incoming),
                    1 => {
                        assert!(!endpoint.refuse(incoming, &mut response) || response.len() < 1200)
                    }
                    2 => {
                        let _ = endpoint.retry(now, incoming, &mut response);
                        assert!(response.len() < 1200);
                    }
                    _ => accepted.extend(endpoint.accept(now, incoming).ok()),
                }
            }
        }
    }
    for (handle, mut connection) in accepted {
        connection.close(NOW, VarInt::from_u32(0), "");
        endpoint.remove(handle);
    }
    assert!(endpoint.is_empty() && endpoint.routes.are_none());
}

/// Every connection ID must come from the application's generator.
// RFC 9000 s.10.3.2 #2
#[test]
fn cid_generator_of_the_application() {
    struct Marked;
    impl ConnectionIdGenerator for Marked {
        fn generate(&self, rng: &mut dyn RngCore) -> ConnectionId {
            let mut bytes = [0; 12];
            rng.fill_bytes(&mut bytes);
            bytes[0] = 0xee;
            ConnectionId::cut(&bytes)
        }
        fn id_len(&self) -> usize {
            12
        }
    }
    let (mut pair, config) = Pair::trusting();
    let mut settings = EndpointConfig::new(&provider()).unwrap();
    settings.ids = Arc::new(Marked);
    let server = pair.ends[1].server.clone();
    pair.ends[1] = Endpoint::new(settings, None, [3; 32]);
    pair.ends[1].server = server;
    let handle = pair.connect(&config);
    pair.settle();
    assert!(pair.connection(0, handle).is_connected());
    let ids = pair.ends[1].routes.all(Kind::Id);
    assert!(ids.len() > 1 && ids.iter().all(|id| id.len() == 12 && id[0] == 0xee));
}

const _: () = assert!(Retry::TAG_LEN == crate::crypto::RETRY_TAG_LEN);
