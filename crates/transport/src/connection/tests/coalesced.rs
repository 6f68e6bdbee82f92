//! Several packets in one datagram.

use equic_wire::packet::{Datagram, LongInvariant, Packet, ParseOptions};
use rustls::pki_types::ServerName;

use super::versions::V1;
use super::*;
use crate::cid::{IdSource, RESET_KEY_LEN, RandomIds, ResetKey};
use crate::connection::handshake::initial_suite;
use crate::connection::start::Start;
use crate::crypto::testing::configs;

/// Sends a server's first flight in datagrams of every size, with connection IDs of 20 bytes. Loss
/// detection must record only frames that were sent, even if another packet has no room in the
/// datagram.
#[test]
fn packet_coalesced_without_room_keeps_its_frames() {
    for size in 150..450 {
        let (client_tls, server_tls) = configs();
        let transport = Arc::new(TransportConfig { grease: false, ..TransportConfig::default() });
        let suite = initial_suite(server_tls.crypto_provider()).unwrap();
        let source = || {
            let ids = Arc::new(RandomIds::new(ConnectionId::MAX_LEN));
            IdSource::new(ids, ResetKey::new(&suite, [3; RESET_KEY_LEN]))
        };
        let config = ClientConfig { tls: client_tls, transport: transport.clone() };
        let name = ServerName::try_from("equic.test").unwrap();
        let start = Start::client(&config, suite, name);
        let (now, remote) = (Timestamp::START, "192.0.2.1:443".parse().unwrap());
        let mut client =
            Connection::connect_with(now, &transport, start, remote, source(), [1; 32]).unwrap();
        let mut buffer = [0; 1500];
        let sent = client.poll_transmit(now, &mut buffer).unwrap();
        let first = LongInvariant::parse(&buffer).unwrap();
        let id = |bytes: &[u8]| ConnectionId::new(bytes).unwrap();
        let first = FirstPacket::without_token(V1, id(first.dcid), id(first.scid), remote);
        let config = ServerConfig { tls: server_tls, transport, preferred_addresses: None };
        let suite = initial_suite(config.tls.crypto_provider()).unwrap();
        let mut server =
            Connection::accept_with(now, &config, &first, (source(), suite), [2; 32]).unwrap();
        let arrival = DatagramMeta { remote, local: None, ecn: EcnCodepoint::NotEct };
        server.handle_datagram(now, arrival, &mut buffer[..sent.size]);
        let (mut packets, mut datagrams) = (0, 0);
        while let Some(sent) = server.poll_transmit(now, &mut buffer[..size]) {
            let read = Datagram::new(&buffer[..sent.size], ParseOptions::default());
            let found = read.filter(|one| matches!(one, Ok(Packet::Long(_)))).count() as u64;
            assert!(found > 0, "{size}: the datagram has no packet");
            (packets, datagrams) = (packets + found, datagrams + 1);
        }
        assert!(datagrams > 1, "{size}: {datagrams} datagrams");
        assert_eq!(packets, server.stats().packets_sent, "datagrams of {size} bytes");
    }
}

/// An application closes as soon as the handshake completes at its end, before any other packet is
/// sent. The peer's handshake must also complete, and the peer must receive the application's code.
#[test]
fn close_at_once_sends_the_last_flight_before() {
    for closes in [Side::Client, Side::Server] {
        let (client_tls, server_tls) = configs();
        let transport = Arc::new(TransportConfig::default());
        let config = ClientConfig { tls: client_tls, transport: transport.clone() };
        let name = ServerName::try_from("equic.test").unwrap();
        let (now, remote) = (Timestamp::START, "192.0.2.1:443".parse().unwrap());
        let mut client = Connection::connect(now, &config, name, remote, [1; 32]).unwrap();
        let mut buffer = [0; 1500];
        let sent = client.poll_transmit(now, &mut buffer).unwrap();
        let first = LongInvariant::parse(&buffer).unwrap();
        let id = |bytes: &[u8]| ConnectionId::new(bytes).unwrap();
        let first = FirstPacket::without_token(V1, id(first.dcid), id(first.scid), remote);
        let config = ServerConfig { tls: server_tls, transport, preferred_addresses: None };
        let mut server = Connection::accept_alone(now, &config, &first, [2; 32]).unwrap();
        let arrival = DatagramMeta { remote, local: None, ecn: EcnCodepoint::NotEct };
        server.handle_datagram(now, arrival, &mut buffer[..sent.size]);
        for _ in 0..4 {
            pass(&mut server, &mut client, closes == Side::Client);
            pass(&mut client, &mut server, closes == Side::Server);
        }
        let (mut here, mut there) =
            if closes == Side::Client { (client, server) } else { (server, client) };
        assert!(here.closing.is_closed() && there.is_connected(), "{closes:?}");
        let events = |end: &mut Connection| {
            let all = std::iter::from_fn(|| end.poll_event());
            all.filter(|event| !matches!(event, Event::Stream(_))).collect::<Vec<_>>()
        };
        let error =
            ConnectionError { application: true, code: 7, reason: String::new(), violation: None };
        assert!(events(&mut here).contains(&Event::Closed(CloseReason::Local(error.clone()))));
        let heard = events(&mut there);
        assert!(
            heard.contains(&Event::Connected) && heard.contains(&Event::Confirmed),
            "{heard:?}"
        );
        assert_eq!(heard.last(), Some(&Event::Closed(CloseReason::Peer(error))), "{closes:?}");
    }
}

/// Delivers all that one end sends to the other end, which may close as soon as its handshake is
/// complete.
fn pass(from: &mut Connection, to: &mut Connection, closes: bool) {
    let (now, mut buffer) = (Timestamp::START, [0; 1500]);
    let arrival =
        DatagramMeta { remote: from.remote_address(), local: None, ecn: EcnCodepoint::NotEct };
    while let Some(sent) = from.poll_transmit(now, &mut buffer) {
        to.handle_datagram(now, arrival, &mut buffer[..sent.size]);
    }
    if closes && to.is_connected() {
        to.close(now, VarInt::from_u32(7), "");
    }
}
