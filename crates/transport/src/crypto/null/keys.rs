//! Keys that protect nothing. A checksum takes the place of the AEAD tag, and there is no header
//! protection.
//!
//! Without an attacker, these keys behave like an AEAD. They reject a corrupted packet. They also
//! reject a packet if its number, level, direction or key phase is not that of the key, and an
//! Initial packet to another connection ID.

use std::sync::Arc;

use equic_wire::{ConnectionId, Side};
use rustls::Error;
use rustls::quic::{DirectionalKeys, HeaderProtectionKey, Keys, PacketKeySet, Tag};

use crate::crypto::PacketKey;

/// Length of the checksum in bytes, the same as for every AEAD tag in QUIC (RFC 9001 s.5.3).
pub(super) const TAG_LEN: usize = 16;

/// The limits of AES-128-GCM (RFC 9001 s.6.6), so that keys are updated as often as with
/// AES-128-GCM.
const CONFIDENTIALITY_LIMIT: u64 = 1 << 23;
const INTEGRITY_LIMIT: u64 = 1 << 52;

/// The kind of packets that a key protects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// The key protects Initial packets. The ID is the Destination Connection ID of the client's
    /// first packet.
    Initial(ConnectionId),
    /// The key protects 0-RTT packets.
    ZeroRtt,
    /// The key protects Handshake packets.
    Handshake,
    /// 1-RTT packets. The number counts the key updates before them.
    OneRtt(u64),
}

/// The key of the checksum for the packets of one sender at one encryption level. It is not secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NullKey(u64);

impl NullKey {
    /// Returns the key for packets that `sender` sends at this encryption level.
    pub fn new(level: Level, sender: Side) -> NullKey {
        let (kind, detail) = match level {
            Level::Initial(id) => {
                let [a, b] = sum(id.len() as u64, &[], id.as_bytes());
                (1, a ^ b)
            }
            Level::ZeroRtt => (2, 0),
            Level::Handshake => (3, 0),
            Level::OneRtt(generation) => (4, generation),
        };
        NullKey(mix(detail ^ P0, P1 ^ kind << 1 ^ u64::from(sender == Side::Server)))
    }

    /// Returns the key that is derived from `bytes`.
    pub(super) fn of(bytes: &[u8]) -> NullKey {
        let [a, b] = sum(P3, &[], bytes);
        NullKey(a ^ b)
    }

    /// Returns the key for packets of the path with this path ID (RFC 10069 s.2.4). For path 0,
    /// this is the same key.
    fn for_path(self, path: u32) -> NullKey {
        if path == 0 { self } else { NullKey(mix(self.0 ^ u64::from(path), P3)) }
    }

    /// Returns the checksum at the end of the packet with this number, header and payload.
    pub fn tag(self, number: u64, header: &[u8], payload: &[u8]) -> [u8; TAG_LEN] {
        let sums = sum(mix(self.0 ^ number, P2), header, payload);
        let mut tag = [0; TAG_LEN];
        for (place, sum) in tag.chunks_exact_mut(8).zip(sums) {
            place.copy_from_slice(&sum.to_le_bytes());
        }
        tag
    }
}

/// Odd numbers without a pattern. The checksum uses them. They are digits of the fractional parts
/// of the square roots of 2, 3, 5 and 7.
const P0: u64 = 0x6a09_e667_f3bc_c909;
const P1: u64 = 0xbb67_ae85_84ca_a73b;
const P2: u64 = 0x3c6e_f372_fe94_f82b;
const P3: u64 = 0xa54f_f53a_5f1d_36f1;

/// Returns the XOR of the upper and the lower half of the product of `a` and `b`.
fn mix(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product as u64) ^ ((product >> 64) as u64)
}

/// Returns two checksums of the header and the payload. Every byte affects at least one of them,
/// and the lengths affect both.
fn sum(seed: u64, header: &[u8], payload: &[u8]) -> [u64; 2] {
    let lengths = (header.len() as u64) << 32 | payload.len() as u64;
    let mut sums = [seed ^ P0, seed.rotate_left(32) ^ P1];
    absorb(&mut sums, header);
    absorb(&mut sums, payload);
    let [a, b] = sums;
    [mix(a ^ lengths, b ^ P2), mix(b ^ lengths, a ^ P3)]
}

/// Returns a digest of `bytes`.
pub(super) fn digest(bytes: &[u8]) -> [u8; TAG_LEN] {
    NullKey(0).tag(0, &[], bytes)
}

/// Length of the result of [`keyed`], in bytes.
pub(super) const KEYED_LEN: usize = 2 * TAG_LEN;

/// Returns a digest of a message that also depends on a key.
pub(super) fn keyed(key: &[u8], message: &[u8]) -> [u8; KEYED_LEN] {
    let mut digest = [0; KEYED_LEN];
    for (number, half) in digest.chunks_exact_mut(TAG_LEN).enumerate() {
        half.copy_from_slice(&NullKey(P3).tag(number as u64, key, message));
    }
    digest
}

fn absorb(sums: &mut [u64; 2], bytes: &[u8]) {
    let (blocks, rest) = bytes.as_chunks::<32>();
    for block in blocks {
        step(sums, block);
    }
    if !rest.is_empty() {
        let mut last = [0; 32];
        last[..rest.len()].copy_from_slice(rest);
        step(sums, &last);
    }
}

/// Adds a block to both sums of the checksum. The two products do not depend on each other, so the
/// CPU can compute them in parallel.
fn step([a, b]: &mut [u64; 2], block: &[u8; 32]) {
    let [w0, w1, w2, w3] = block.as_chunks::<8>().0 else { return };
    let word = |bytes: &[u8; 8]| u64::from_le_bytes(*bytes);
    *a = mix(*a ^ word(w0), P2 ^ word(w1));
    *b = mix(*b ^ word(w2), P3 ^ word(w3));
}

impl rustls::quic::PacketKey for NullKey {
    fn encrypt_in_place(
        &self,
        number: u64,
        header: &[u8],
        payload: &mut [u8],
    ) -> Result<Tag, Error> {
        self.seal(0, number, header, payload)
    }

    fn encrypt_in_place_for_path(
        &self,
        path: u32,
        number: u64,
        header: &[u8],
        payload: &mut [u8],
    ) -> Result<Tag, Error> {
        self.seal(path, number, header, payload)
    }

    fn decrypt_in_place<'a>(
        &self,
        number: u64,
        header: &[u8],
        payload: &'a mut [u8],
    ) -> Result<&'a [u8], Error> {
        self.decrypt_in_place_for_path(0, number, header, payload)
    }

    fn decrypt_in_place_for_path<'a>(
        &self,
        path: u32,
        number: u64,
        header: &[u8],
        payload: &'a mut [u8],
    ) -> Result<&'a [u8], Error> {
        if payload.is_empty() {
            return Err(<dyn PacketKey>::offer(Arc::new(*self)));
        }
        self.open(path, number, header, payload)
    }

    fn tag_len(&self) -> usize {
        TAG_LEN
    }

    fn confidentiality_limit(&self) -> u64 {
        CONFIDENTIALITY_LIMIT
    }

    fn integrity_limit(&self) -> u64 {
        INTEGRITY_LIMIT
    }
}

/// A key without protection can also decrypt into another buffer, as AEAD keys can. So simulations
/// and fuzzers run the same code as real connections.
impl PacketKey for NullKey {
    fn seal(
        &self,
        path: u32,
        number: u64,
        header: &[u8],
        payload: &mut [u8],
    ) -> Result<Tag, Error> {
        Ok(Tag::from(&self.for_path(path).tag(number, header, payload)[..]))
    }

    fn open<'a>(
        &self,
        path: u32,
        number: u64,
        header: &[u8],
        payload: &'a mut [u8],
    ) -> Result<&'a [u8], Error> {
        let payload: &'a [u8] = payload;
        let (plain, tag) = payload.split_last_chunk::<TAG_LEN>().ok_or(Error::DecryptError)?;
        let opens = self.for_path(path).tag(number, header, plain) == *tag;
        if opens { Ok(plain) } else { Err(Error::DecryptError) }
    }

    fn open_to(&self, path: u32, number: u64, header: &[u8], sealed: &[u8], to: &mut [u8]) -> bool {
        let Some((plain, tag)) = sealed.split_last_chunk::<TAG_LEN>() else { return false };
        let opens =
            plain.len() == to.len() && self.for_path(path).tag(number, header, plain) == *tag;
        if opens {
            to.copy_from_slice(plain);
        }
        opens
    }

    fn confidentiality_limit(&self) -> u64 {
        CONFIDENTIALITY_LIMIT
    }

    fn integrity_limit(&self) -> u64 {
        INTEGRITY_LIMIT
    }
}

/// Header protection that leaves headers unprotected.
pub(super) struct Bare;

impl HeaderProtectionKey for Bare {
    fn encrypt_in_place(&self, _: &[u8], _: &mut u8, _: &mut [u8]) -> Result<(), Error> {
        Ok(())
    }

    fn decrypt_in_place(&self, _: &[u8], _: &mut u8, _: &mut [u8]) -> Result<(), Error> {
        Ok(())
    }

    fn sample_len(&self) -> usize {
        equic_wire::packet::SAMPLE_LEN
    }
}

/// Returns the keys for the packets that one side, `sender`, sends at this encryption level.
pub(super) fn directional(level: Level, sender: Side) -> DirectionalKeys {
    DirectionalKeys { header: Box::new(Bare), packet: Box::new(NullKey::new(level, sender)) }
}

pub(super) fn pair(level: Level, side: Side) -> Keys {
    Keys { local: directional(level, side), remote: directional(level, !side) }
}

/// Returns the keys of Initial packets without protection. `dcid` is the Destination Connection ID
/// of the client's first packet.
pub(crate) fn initial_keys(side: Side, dcid: ConnectionId) -> Keys {
    pair(Level::Initial(dcid), side)
}

/// Creates the 1-RTT keys for each key update.
#[derive(Debug)]
pub(crate) struct Generations {
    side: Side,
    next: u64,
}

impl Generations {
    pub(super) fn new(side: Side) -> Generations {
        // The handshake creates the first keys (generation 0), so the next generation is 1.
        Generations { side, next: 1 }
    }

    pub(crate) fn next_packet_keys(&mut self) -> PacketKeySet {
        let level = Level::OneRtt(self.next);
        self.next += 1;
        PacketKeySet {
            local: Box::new(NullKey::new(level, self.side)),
            remote: Box::new(NullKey::new(level, !self.side)),
        }
    }
}
