//! Follows a connection, and decrypts its packets with the secrets of the key log.

use std::net::SocketAddr;

use equic_netns::relay::{Observed, Way};
use equic_wire::packet::{Datagram, Packet, ParseOptions, Protected};
use equic_wire::{KnownVersion, PacketNumber};

use super::keylog::KeyLog;
use super::keys::{Keys, Suite};
use super::tls::Messages;
use super::{Content, Handshake, note_frames};

/// Maximum number of Initial keys of a connection: there are keys for its first connection ID, for
/// that of a Retry, and for another version.
const MAX_INITIAL_KEYS: usize = 8;

/// Number of path IDs, starting from 0, with which decryption of a packet is tried. Endpoints in
/// these cases open two paths, and may replace one.
const PATHS: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Space {
    Initial,
    Handshake,
}

/// A decrypted packet.
pub(super) struct DecryptedPacket {
    /// The path ID, which is 0 if there is only one path (RFC 10069).
    pub(super) path: u32,
    pub(super) number: u64,
    pub(super) key_phase: bool,
    pub(super) payload: Vec<u8>,
}

/// A decrypted packet with a short header.
pub(super) struct DecryptedShort {
    pub(super) dcid: Vec<u8>,
    pub(super) content: DecryptedPacket,
}

/// State for decrypting the packets of one side of a connection.
#[derive(Default)]
struct Side {
    initial: Messages,
    handshake: Messages,
    handshake_keys: Option<Keys>,
    /// 1-RTT keys of the first generation. Their header protection is valid for all generations.
    first: Option<Keys>,
    /// 1-RTT keys of the current generation, unless that is the first one.
    current: Option<Keys>,
    /// Largest packet numbers of Initial packets and of Handshake packets.
    largest: [Option<PacketNumber>; 2],
    /// Largest packet number of 1-RTT packets on each path.
    largest_on: [Option<PacketNumber>; PATHS],
}

pub(super) struct Connection {
    pub(super) client: SocketAddr,
    pub(super) client_id: Vec<u8>,
    server_id_len: usize,
    version: KnownVersion,
    initial: Vec<(KnownVersion, Vec<u8>, [Keys; 2])>,
    sides: [Side; 2],
    random: Option<Vec<u8>>,
    opened_with_log: bool,
}

const fn index(way: Way) -> usize {
    match way {
        Way::ToServer => 0,
        Way::ToClient => 1,
    }
}

impl Connection {
    pub(super) fn new(
        client: SocketAddr,
        client_id: &[u8],
        version: KnownVersion,
        dcid: &[u8],
    ) -> Connection {
        let mut made = Connection {
            client,
            client_id: client_id.to_vec(),
            server_id_len: dcid.len(),
            version,
            initial: Vec::new(),
            sides: Default::default(),
            random: None,
            opened_with_log: false,
        };
        made.initial_ids(version, dcid);
        made
    }

    /// Derives Initial keys from the Destination Connection ID of a client's Initial.
    pub(super) fn initial_ids(&mut self, version: KnownVersion, dcid: &[u8]) {
        let known = self.initial.iter().any(|(v, id, _)| *v == version && id == dcid);
        if known || self.initial.len() >= MAX_INITIAL_KEYS {
            return;
        }
        // Keys for both versions are derived, because compatible version negotiation keeps the ID
        // and changes the version (RFC 9368 s.2.3).
        for version in [KnownVersion::V1, KnownVersion::V2] {
            if let Some(keys) = Keys::initial(version, dcid) {
                self.initial.push((version, dcid.to_vec(), keys));
            }
        }
    }

    pub(super) fn server_id_len(&mut self, len: usize) {
        self.server_id_len = len;
    }

    pub(super) fn open_long(
        &mut self,
        space: Space,
        way: Way,
        version: KnownVersion,
        bytes: &[u8],
        protected: Protected,
        log: &KeyLog,
    ) -> Option<DecryptedPacket> {
        let at = index(way);
        let side = self.sides.get_mut(at)?;
        if space == Space::Initial {
            let largest = side.largest.first().copied().flatten();
            let keys = self.initial.iter().filter(|(of, ..)| *of == version);
            let opened = keys
                .filter_map(|(_, _, keys)| keys.get(at))
                .find_map(|keys| open(keys, keys, bytes, protected, 0, largest))?;
            remember(&mut side.largest, 0, opened.number);
            return Some(opened);
        }
        let label = ["CLIENT_HANDSHAKE_TRAFFIC_SECRET", "SERVER_HANDSHAKE_TRAFFIC_SECRET"][at];
        let largest = side.largest.get(1).copied().flatten();
        let opened = match &side.handshake_keys {
            Some(keys) => open(keys, keys, bytes, protected, 0, largest)?,
            None => {
                let secret = log.secret(label, self.random.as_deref()?)?;
                let (keys, opened) = first_that_opens(version, secret, bytes, protected)?;
                side.handshake_keys = Some(keys);
                opened
            }
        };
        remember(&mut side.largest, 1, opened.number);
        self.version = version;
        self.opened_with_log = true;
        Some(opened)
    }

    pub(super) fn open_short(
        &mut self,
        way: Way,
        bytes: &[u8],
        log: &KeyLog,
    ) -> Option<DecryptedShort> {
        let at = index(way);
        let dcid_len = if way == Way::ToServer { self.server_id_len } else { self.client_id.len() };
        let options = ParseOptions { dcid_len, greased_fixed_bit: true };
        let Some(Ok(Packet::Short(short))) = Datagram::new(bytes, options).next() else {
            return None;
        };
        let protected = short.protected();
        let label = ["CLIENT_TRAFFIC_SECRET_0", "SERVER_TRAFFIC_SECRET_0"][at];
        let side = self.sides.get_mut(at)?;
        let content = match &side.first {
            None => {
                // The secrets are for path 0, because no other path exists before the handshake is
                // complete.
                let secret = log.secret(label, self.random.as_deref()?)?;
                let (keys, opened) = first_that_opens(self.version, secret, bytes, protected)?;
                side.first = Some(keys);
                opened
            }
            Some(first) => {
                let current = side.current.as_ref().unwrap_or(first);
                // All paths are tried: the path of a packet is unknown, because not all connection
                // IDs are known.
                let on_any_path = |keys: &Keys| {
                    side.largest_on.iter().zip(0..).find_map(|(largest, path)| {
                        open(first, keys, bytes, protected, path, *largest)
                    })
                };
                if let Some(opened) = on_any_path(current) {
                    opened
                } else {
                    // The packet has the next generation of keys, or it is a late packet of the
                    // previous one (RFC 9001 s.6.3). For late packets, only the keys of the first
                    // generation are tried.
                    let next = current.next()?;
                    if let Some(opened) = on_any_path(&next) {
                        side.current = Some(next);
                        opened
                    } else {
                        on_any_path(first)?
                    }
                }
            }
        };
        remember(&mut side.largest_on, content.path as usize, content.number);
        self.opened_with_log = true;
        Some(DecryptedShort { dcid: short.dcid().as_bytes().to_vec(), content })
    }

    /// Parses the frames of a decrypted payload, and records what the checks need.
    pub(super) fn note(&mut self, way: Way, kind: Observed, payload: &[u8], content: &mut Content) {
        let Some(side) = self.sides.get_mut(index(way)) else { return };
        let messages = match kind {
            Observed::Initial => &mut side.initial,
            Observed::Handshake => &mut side.handshake,
            _ => return note_frames(payload, content, |_, _| {}),
        };
        note_frames(payload, content, |offset, data| messages.add(offset, data));
        if kind == Observed::Initial && way == Way::ToServer && self.random.is_none() {
            self.random = side.initial.client_hello().map(|hello| hello.random);
        }
    }

    pub(super) fn handshake(&self) -> Handshake {
        let [client, server] = &self.sides;
        let readable = server.handshake_keys.is_some();
        Handshake {
            client_hello: client.initial.client_hello(),
            certificate: readable.then(|| server.handshake.has_certificate()),
            server_handshake_bytes: server.handshake.end,
            max_streams_bidi: server.handshake.max_streams_bidi(),
            keys: self.opened_with_log,
        }
    }
}

fn remember(largest: &mut [Option<PacketNumber>], at: usize, number: u64) {
    if let Some(largest) = largest.get_mut(at) {
        *largest = (*largest).max(PacketNumber::new(number));
    }
}

fn first_that_opens(
    version: KnownVersion,
    secret: &[u8],
    bytes: &[u8],
    protected: Protected,
) -> Option<(Keys, DecryptedPacket)> {
    Suite::of_secret(secret).iter().find_map(|suite| {
        let keys = Keys::new(*suite, version, secret)?;
        let opened = open(&keys, &keys, bytes, protected, 0, None)?;
        Some((keys, opened))
    })
}

/// Removes header protection with one set of keys, and packet protection with another one.
fn open(
    header: &Keys,
    keys: &Keys,
    bytes: &[u8],
    protected: Protected,
    path: u32,
    largest: Option<PacketNumber>,
) -> Option<DecryptedPacket> {
    let mut packet = bytes.to_vec();
    let bare = header.unmask(&mut packet, protected)?;
    let number = bare.packet_number().restore(largest)?.get();
    let payload = keys.open(&packet, bare.header_len(), path, number)?;
    Some(DecryptedPacket { path, number, key_phase: bare.key_phase().unwrap_or(false), payload })
}
