//! The trace of a cell: the packets that the relay recorded, parsed and, with a key log, decrypted.
//!
//! `keys`: derives keys from secrets. `tls`: parses handshake messages. `connection`: state for
//! decryption. `text`: prints the trace. A packet that cannot be decrypted stays in the trace
//! without its content.

mod connection;
mod keylog;
mod keys;
mod text;
mod tls;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use equic_net::Fate;
use equic_netns::relay::{Observed, Record, Way, is_filler};
use equic_wire::frame::Frame;
use equic_wire::packet::{Datagram, LongKind, Packet, ParseOptions};
use equic_wire::{KnownVersion, Reader, Version};

use connection::{Connection, DecryptedPacket, Space};
pub use keylog::KeyLog;
pub use tls::ClientHello;

/// A packet that the relay saw.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Direction of the packet: to the server or to the client.
    pub way: Way,
    /// Time at which the packet was sent, since the relay began.
    pub sent: Duration,
    /// Time at which the packet arrived, since the relay began. `None` if it was lost or changed.
    pub arrived: Option<Duration>,
    /// The client's real address, and the index of the relay's address that the client sends to.
    pub client: (SocketAddr, usize),
    /// Address at which the server sees the client.
    pub seen_as: SocketAddr,
    /// Number of the datagram that contained the packet. Coalesced packets have the same number.
    pub datagram: usize,
    /// Size of the datagram that contained the packet, in bytes.
    pub datagram_len: usize,
    /// What happened on the link to the datagram that contained the packet.
    pub fate: Fate,
    /// ECN bits of the datagram that contained the packet.
    pub ecn: u8,
    /// Type of the packet.
    pub kind: Observed,
    /// The QUIC version in a long header.
    pub version: Option<u32>,
    /// Destination Connection ID. In a short header, it is known only if the packet was decrypted.
    pub dcid: Vec<u8>,
    /// Source Connection ID of a long header.
    pub scid: Vec<u8>,
    /// The token of an Initial or Retry packet.
    pub token: Vec<u8>,
    /// Length of the packet after its header, in bytes, if it is known.
    pub payload_len: usize,
    /// The decrypted content. `None` if the packet could not be decrypted.
    pub content: Option<Content>,
}

/// Content of a decrypted packet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Content {
    /// Index of the packet's connection in [`Trace::connections`].
    pub connection: usize,
    /// Path ID of the packet, which is 0 if there is only one path (RFC 10069).
    pub path: u32,
    /// The packet number.
    pub number: u64,
    /// The Key Phase bit of a short header.
    pub key_phase: bool,
    /// True if the packet has an ACK frame with ECN counts.
    pub ack_ecn: bool,
    /// Path IDs in the packet's PATH_ACK frames.
    pub path_acks: Vec<u32>,
    /// PATH_CHALLENGE frames.
    pub challenges: Vec<[u8; 8]>,
    /// PATH_RESPONSE frames.
    pub responses: Vec<[u8; 8]>,
    /// True if the packet has only probing frames (RFC 9000 s.9.1).
    pub probing: bool,
    /// True if the packet has a CONNECTION_CLOSE frame.
    pub closes: bool,
    /// Offsets of the packet's CRYPTO frames.
    pub crypto: Vec<u64>,
    /// Number of bytes in the packet's STREAM frames.
    pub stream_bytes: usize,
    /// All frames of the packet as text.
    pub frames: String,
}

/// Facts about a handshake that its packets show.
#[derive(Clone, Debug, Default)]
pub struct Handshake {
    /// The client's ClientHello, or `None` if it could not be decrypted.
    pub client_hello: Option<ClientHello>,
    /// True if the server sent a certificate. `None` if its Handshake packets could not be
    /// decrypted.
    pub certificate: Option<bool>,
    /// Bytes that the server sent in CRYPTO frames of Handshake packets.
    pub server_handshake_bytes: u64,
    /// Number of bidirectional streams that the server permitted initially. `None` if unknown.
    pub max_streams_bidi: Option<u64>,
    /// True if the key log has this connection's secrets.
    pub keys: bool,
}

/// All packets of a cell, in the order in which they were sent.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// The packets.
    pub packets: Vec<Seen>,
    /// The connections, ordered by their first packet. Each has another first Destination
    /// Connection ID of the client.
    pub connections: Vec<Handshake>,
    /// True if at least one secret was read from the key logs.
    pub has_keys: bool,
}

impl Trace {
    /// Parses the relay's records, and decrypts the packets with the key log.
    pub fn read(records: &[Record], log: &KeyLog) -> Trace {
        let mut reading = Reading { log, connections: Vec::new(), packets: Vec::new() };
        for (number, record) in records.iter().enumerate() {
            reading.datagram(number, record);
        }
        Trace {
            packets: reading.packets,
            connections: reading.connections.iter().map(Connection::handshake).collect(),
            has_keys: !log.is_empty(),
        }
    }

    /// Returns all packets of this type in this direction.
    pub fn of(&self, way: Way, kind: Observed) -> impl Iterator<Item = &Seen> {
        self.packets.iter().filter(move |seen| seen.way == way && seen.kind == kind)
    }

    /// Returns all packets in this direction.
    pub fn going(&self, way: Way) -> impl Iterator<Item = &Seen> {
        self.packets.iter().filter(move |seen| seen.way == way)
    }

    /// Returns the number of handshakes that a server has answered. They are counted by the
    /// server's connection ID in Initial packets, which does not change (RFC 9000 s.7.2).
    pub fn handshakes(&self) -> usize {
        let ids: BTreeSet<&[u8]> =
            self.of(Way::ToClient, Observed::Initial).map(|seen| &seen.scid[..]).collect();
        ids.len()
    }

    /// Returns the QUIC versions of all packets of this type in this direction.
    pub fn versions(&self, way: Way, kind: Observed) -> BTreeSet<u32> {
        self.of(way, kind).filter_map(|seen| seen.version).collect()
    }
}

struct Reading<'a> {
    log: &'a KeyLog,
    connections: Vec<Connection>,
    packets: Vec<Seen>,
}

impl Reading<'_> {
    fn datagram(&mut self, number: usize, record: &Record) {
        // The length of the connection ID in a short header is not in the packet. Packets with
        // short headers are therefore tried with the IDs of all connections.
        let options = ParseOptions { dcid_len: 0, greased_fixed_bit: true };
        for (place, packet) in Datagram::new(&record.payload, options).enumerate() {
            let mut seen = Seen {
                way: record.way,
                sent: record.sent,
                arrived: record.fate.is_intact().then_some(record.arrived),
                client: (record.client, record.front),
                seen_as: record.seen_as,
                datagram: number,
                datagram_len: record.payload.len(),
                fate: record.fate,
                ecn: record.ecn,
                kind: Observed::Garbage,
                version: None,
                dcid: Vec::new(),
                scid: Vec::new(),
                token: Vec::new(),
                payload_len: 0,
                content: None,
            };
            let short = match &packet {
                Ok(Packet::Short(short)) => Some(short.bytes()),
                _ => None,
            };
            self.packet(record, packet.ok(), &mut seen);
            if place > 0 && short.is_some_and(|bytes| self.is_filler(bytes, &seen)) {
                seen.kind = Observed::Garbage;
                seen.payload_len = 0;
            }
            self.packets.push(seen);
        }
    }

    fn packet(&mut self, record: &Record, packet: Option<Packet<'_>>, seen: &mut Seen) {
        match packet {
            None => {}
            Some(Packet::Retry(retry)) => {
                seen.kind = Observed::Retry;
                seen.version = Some(Version::from(retry.version()).0);
                seen.dcid = retry.dcid().as_bytes().to_vec();
                seen.scid = retry.scid().as_bytes().to_vec();
                seen.token = retry.token().to_vec();
            }
            Some(Packet::VersionNegotiation(negotiation)) => {
                seen.kind = Observed::VersionNegotiation;
                seen.version = Some(0);
                seen.dcid = negotiation.dcid().to_vec();
                seen.scid = negotiation.scid().to_vec();
            }
            Some(Packet::UnknownVersion(header)) => {
                seen.kind = Observed::OtherVersion;
                seen.version = Some(header.version.0);
                seen.dcid = header.dcid.to_vec();
                seen.scid = header.scid.to_vec();
            }
            Some(Packet::Long(long)) => {
                seen.version = Some(Version::from(long.version()).0);
                seen.dcid = long.dcid().as_bytes().to_vec();
                seen.scid = long.scid().as_bytes().to_vec();
                seen.payload_len = long.bytes().len().saturating_sub(long.protected().pn_offset());
                let space = match long.kind() {
                    LongKind::Initial { token } => {
                        seen.kind = Observed::Initial;
                        seen.token = token.to_vec();
                        self.meet(record, long.version(), seen);
                        Space::Initial
                    }
                    LongKind::ZeroRtt => {
                        seen.kind = Observed::ZeroRtt;
                        return;
                    }
                    LongKind::Handshake => {
                        seen.kind = Observed::Handshake;
                        Space::Handshake
                    }
                };
                let (bytes, protected) = (long.bytes(), long.protected());
                self.open(seen, |connection, log| {
                    connection.open_long(space, record.way, long.version(), bytes, protected, log)
                });
            }
            Some(Packet::Short(short)) => {
                seen.kind = Observed::OneRtt;
                seen.payload_len = short.bytes().len().saturating_sub(1);
                let mut dcid = Vec::new();
                self.open(seen, |connection, log| {
                    let opened = connection.open_short(record.way, short.bytes(), log)?;
                    dcid = opened.dcid;
                    Some(opened.content)
                });
                seen.dcid = dcid;
            }
        }
    }

    /// Returns true if the bytes after the packets of a datagram are only padding, although they
    /// look like a packet with a short header. With a key log, they count as padding if no key
    /// decrypts them.
    fn is_filler(&self, bytes: &[u8], seen: &Seen) -> bool {
        seen.content.is_none() && (is_filler(bytes) || !self.log.is_empty())
    }

    /// Handles an Initial packet of a client, which may begin a connection. Before the server's
    /// answer, Initial keys are derived from the client's Destination Connection ID. After a Retry,
    /// they are derived from the Retry's Source Connection ID.
    fn meet(&mut self, record: &Record, version: KnownVersion, seen: &Seen) {
        match record.way {
            Way::ToServer => {
                let known = self.connections.iter_mut().rev().find(|connection| {
                    connection.client_id == seen.scid && connection.client == record.client
                });
                match known {
                    Some(connection) => connection.initial_ids(version, &seen.dcid),
                    None => self.connections.push(Connection::new(
                        record.client,
                        &seen.scid,
                        version,
                        &seen.dcid,
                    )),
                }
            }
            Way::ToClient => {
                if let Some(connection) =
                    self.connections.iter_mut().rev().find(|c| c.client_id == seen.dcid)
                {
                    connection.server_id_len(seen.scid.len());
                }
            }
        }
    }

    /// Tries to decrypt a packet with the keys of each connection, newest connection first.
    fn open(
        &mut self,
        seen: &mut Seen,
        mut open: impl FnMut(&mut Connection, &KeyLog) -> Option<DecryptedPacket>,
    ) {
        let log = self.log;
        for (index, connection) in self.connections.iter_mut().enumerate().rev() {
            let Some(opened) = open(connection, log) else { continue };
            let DecryptedPacket { path, number, key_phase, payload } = opened;
            let mut content =
                Content { connection: index, path, number, key_phase, ..Content::default() };
            connection.note(seen.way, seen.kind, &payload, &mut content);
            seen.content = Some(content);
            return;
        }
    }
}

/// Records what the checks need to know about the frames of a payload. Frames after one that cannot
/// be parsed are ignored.
fn note_frames(payload: &[u8], content: &mut Content, mut crypto: impl FnMut(u64, &[u8])) {
    let mut reader = Reader::new(payload);
    content.probing = true;
    while let Ok(frame) = Frame::read(&mut reader) {
        text::add(&mut content.frames, &frame);
        content.probing &= matches!(
            frame,
            Frame::PathChallenge(_)
                | Frame::PathResponse(_)
                | Frame::NewConnectionId(_)
                | Frame::Padding(_)
        );
        match frame {
            Frame::ConnectionClose(_) => content.closes = true,
            Frame::Ack(ack) => content.ack_ecn |= ack.ecn().is_some(),
            Frame::PathAck(ack) => content.path_acks.push(ack.path_id.get()),
            Frame::PathChallenge(data) => content.challenges.push(data),
            Frame::PathResponse(data) => content.responses.push(data),
            Frame::Stream(stream) => content.stream_bytes += stream.data().len(),
            Frame::Crypto(frame) => {
                content.crypto.push(frame.offset().get());
                crypto(frame.offset().get(), frame.data());
            }
            Frame::Unknown(_) => return,
            _ => {}
        }
        if reader.is_empty() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A 0-RTT packet of version 1 without connection IDs, with 20 bytes of payload.
    const EARLY: [u8; 28] =
        [0xd0, 0, 0, 0, 1, 0, 0, 20, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7];

    fn kinds(payload: Vec<u8>, log: &KeyLog) -> Vec<(Observed, usize)> {
        let client = SocketAddr::from(([127, 0, 0, 1], 1000));
        let record = Record {
            sent: Duration::ZERO,
            arrived: Duration::ZERO,
            way: Way::ToServer,
            client,
            front: 0,
            seen_as: client,
            ecn: 0,
            fate: Fate::Delivered,
            payload,
        };
        let trace = Trace::read(&[record], log);
        trace.packets.iter().map(|seen| (seen.kind, seen.payload_len)).collect()
    }

    #[test]
    fn trace_ignores_filler_of_a_datagram() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("keys.log");
        std::fs::write(&file, "CLIENT_TRAFFIC_SECRET_0 00ff ab12\n").expect("it is written");
        let (keys, none) = (KeyLog::read(&[&file]), KeyLog::default());
        let early = (Observed::ZeroRtt, 20);
        let mixed: Vec<u8> = (0..100).collect();
        for log in [&keys, &none] {
            for filler in [&[0; 500][..], &[0x40; 30], &[0; 3]] {
                let found = kinds([&EARLY, filler].concat(), log);
                assert_eq!(found, [early, (Observed::Garbage, 0)], "{filler:x?}");
            }
            assert_eq!(kinds(EARLY.repeat(2), log), [early; 2]);
            // A separate datagram is never treated as padding, whatever it contains.
            assert_eq!(kinds(mixed.clone(), log), [(Observed::OneRtt, 99)]);
        }
        let random = [&EARLY[..], &mixed].concat();
        assert_eq!(kinds(random.clone(), &keys), [early, (Observed::Garbage, 0)]);
        assert_eq!(kinds(random, &none), [early, (Observed::OneRtt, 99)], "nobody can say");
    }
}
