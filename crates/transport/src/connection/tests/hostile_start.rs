//! Limits before the peer is authenticated: attacks with packets that anyone can send from any
//! source address.

use equic_wire::Writer;
use equic_wire::frame::{Crypto, Frame};
use rustls::pki_types::ServerName;

use super::attacker::{CLIENT, SERVER};
use super::*;
use crate::connection::space::SpaceId;
use crate::crypto::testing::configs;

/// A client that has sent nothing yet, and a server for it.
struct Start {
    client: Connection,
    server: Connection,
    buffer: Vec<u8>,
}

impl Start {
    fn new() -> Start {
        let (client_tls, server_tls) = configs();
        let transport = Arc::new(TransportConfig::default());
        let config = ClientConfig { tls: client_tls, transport: transport.clone() };
        let name = ServerName::try_from("equic.test").unwrap();
        let (now, remote) = (Timestamp::START, SERVER.parse().unwrap());
        let client = Connection::connect(now, &config, name, remote, [1; 32]).unwrap();
        let config = ServerConfig { tls: server_tls, transport, preferred_addresses: None };
        let (original, scid) = (client.ids.original_dcid(), client.ids.scid());
        let (version, remote) = (KnownVersion::V1, CLIENT.parse().unwrap());
        let server =
            Connection::accept_from(now, &config, version, original, scid, remote, [2; 32]);
        Start { client, server: server.unwrap(), buffer: vec![0; 1500] }
    }

    fn deliver(&mut self, datagram: &mut [u8]) {
        let remote = CLIENT.parse().unwrap();
        let arrival = DatagramMeta { remote, local: None, ecn: EcnCodepoint::NotEct };
        let now = self.server.now;
        self.server.handle_datagram(now, arrival, datagram);
        self.pump();
    }

    /// Takes the server's datagrams. Checks the limit of RFC 9000 s.8.1 after every step.
    fn pump(&mut self) {
        let now = self.server.now;
        for count in 0.. {
            assert!(count < 1000, "the server sends endlessly");
            if self.server.poll_transmit(now, &mut self.buffer).is_none() {
                break;
            }
            let stats = self.server.stats();
            assert!(stats.bytes_sent <= 3 * stats.bytes_received, "{stats:?}");
        }
    }

    /// Handles all timers of the next two minutes.
    fn wait(&mut self) {
        for _ in 0..1000 {
            let Some(at) = self.server.poll_timeout() else { break };
            self.server.handle_timeout(at);
            self.pump();
        }
    }

    fn initial(&mut self, frames: &[Frame<'_>]) -> Vec<u8> {
        let mut payload = vec![0; 1100];
        let mut writer = Writer::new(&mut payload);
        for frame in frames {
            frame.write(&mut writer).unwrap();
        }
        let length = writer.position();
        self.client.forge(SpaceId::Initial, &payload[..length])
    }
}

fn crypto(offset: u64, data: &[u8]) -> Frame<'_> {
    Frame::Crypto(Crypto::new(VarInt::new(offset).unwrap(), data).unwrap())
}

#[test]
fn anti_amplification_of_a_first_flight() {
    let mut start = Start::new();
    let sent = start.client.poll_transmit(Timestamp::START, &mut start.buffer).unwrap();
    let mut first = start.buffer[..sent.size].to_vec();
    start.deliver(&mut first.clone());
    assert!(start.server.stats().bytes_sent >= 1200, "it answers");
    // The same datagram again, with all timers in between. The server never sends more than three
    // times as much.
    for _ in 0..20 {
        start.deliver(&mut first);
    }
    start.wait();
    assert!(start.server.is_drained());
}

#[test]
fn initial_packets_of_pings_and_garbage() {
    let mut start = Start::new();
    let before = start.server.memory();
    for number in 0..2000u32 {
        let mut datagram = match number % 3 {
            0 => start.initial(&[Frame::Ping]),
            1 => start.initial(&[Frame::Padding(std::num::NonZeroUsize::MIN)]),
            _ => vec![number as u8; 300],
        };
        start.deliver(&mut datagram);
    }
    assert!(start.server.memory() < before + 1_500_000, "{}", start.server.memory());
    assert!(!start.server.closing.is_closed());
    start.wait();
}

#[test]
fn crypto_of_initial_packets_in_pieces_that_never_fit() {
    let mut start = Start::new();
    let before = start.server.memory();
    for offset in (1..60_000u64).step_by(2) {
        let mut datagram = start.initial(&[crypto(offset, &[1])]);
        start.deliver(&mut datagram);
    }
    let memory = start.server.memory();
    assert!(memory < before + 300_000, "{memory}");
    start.wait();
    assert!(start.server.is_drained());
}

#[test]
fn crypto_of_initial_packets_beyond_its_buffer_or_garbage() {
    for (offset, data) in [(1 << 40, &[1][..]), (0, &[0xff; 1000]), (0, &[0; 1000])] {
        let mut start = Start::new();
        let mut datagram = start.initial(&[crypto(offset, data)]);
        start.deliver(&mut datagram);
        assert!(start.server.closing.is_closed());
        let before = start.server.stats().datagrams_sent;
        for _ in 0..1000 {
            let mut datagram = start.initial(&[Frame::Ping]);
            start.deliver(&mut datagram);
        }
        // Answers after 1, 2, 4, ... packets (RFC 9000 s.10.2.1).
        assert!(start.server.stats().datagrams_sent <= before + 10);
        start.wait();
        assert!(start.server.is_drained());
    }
}

#[test]
fn crypto_client_hello_without_end() {
    // A ClientHello whose header claims 16 MB.
    let mut start = Start::new();
    let mut offset = 0;
    let before = start.server.memory();
    let mut data = vec![1, 0xff, 0xff, 0xff];
    data.resize(1000, 3);
    while !start.server.closing.is_closed() && offset < 1 << 20 {
        let mut datagram = start.initial(&[crypto(offset, &data)]);
        start.deliver(&mut datagram);
        offset += 1000;
        data.fill(3);
    }
    assert!(start.server.closing.is_closed(), "open after {offset} bytes");
    assert!(start.server.memory() < before + 300_000);
}
