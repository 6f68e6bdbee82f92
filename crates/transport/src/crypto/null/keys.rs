//! Keys that protect nothing: a checksum instead of the AEAD tag, and no header protection.
//!
//! Without attackers they behave like an AEAD: they reject a corrupted packet, a packet with another packet number,
//! level, direction or key phase, and an Initial packet to another connection ID.

use std::sync::Arc;

use equic_wire::{ConnectionId, Side};
use rustls::Error;
use rustls::quic::{DirectionalKeys, HeaderProtectionKey, Keys, PacketKey, PacketKeySet, Tag};

use crate::crypto::OpenTo;

/// Bytes of the checksum, as of every AEAD tag in QUIC (RFC 9001 s.5.3).
pub(super) const TAG_LEN: usize = 16;

/// Those of AES-128-GCM (RFC 9001 s.6.6), so that keys are updated when they would be.
const CONFIDENTIALITY_LIMIT: u64 = 1 << 23;
const INTEGRITY_LIMIT: u64 = 1 << 52;

/// Kind of packets that a key is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// Initial packets of a client that sends to this ID.
    Initial(ConnectionId),
    /// Early data.
    ZeroRtt,
    /// The rest of the handshake.
    Handshake,
    /// 1-RTT packets after this many key updates.
    OneRtt(u64),
}

/// Key of the checksum on the packets of one sender at one level. It is not secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NullKey(u64);

impl NullKey {
    /// The key for packets of this sender at this level.
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

    /// The key that these bytes make.
    pub(super) fn of(bytes: &[u8]) -> NullKey {
        let [a, b] = sum(P3, &[], bytes);
        NullKey(a ^ b)
    }

    /// The key for packets of a path other than path 0 (RFC 10069 s.2.4). On path 0 the path ID changes nothing.
    fn for_path(self, path: u32) -> NullKey {
        if path == 0 { self } else { NullKey(mix(self.0 ^ u64::from(path), P3)) }
    }

    /// Checksum at the end of the packet with this number, header and payload.
    pub fn tag(self, number: u64, header: &[u8], payload: &[u8]) -> [u8; TAG_LEN] {
        let sums = sum(mix(self.0 ^ number, P2), header, payload);
        let mut tag = [0; TAG_LEN];
        for (place, sum) in tag.chunks_exact_mut(8).zip(sums) {
            place.copy_from_slice(&sum.to_le_bytes());
        }
        tag
    }
}

/// Odd numbers without pattern: digits of the fractions of the square roots of 2, 3, 5 and 7.
const P0: u64 = 0x6a09_e667_f3bc_c909;
const P1: u64 = 0xbb67_ae85_84ca_a73b;
const P2: u64 = 0x3c6e_f372_fe94_f82b;
const P3: u64 = 0xa54f_f53a_5f1d_36f1;

/// Both halves of a product, folded.
fn mix(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product as u64) ^ ((product >> 64) as u64)
}

/// Two sums of which every byte of both counts in one at least, and their lengths in both.
fn sum(seed: u64, header: &[u8], payload: &[u8]) -> [u64; 2] {
    let lengths = (header.len() as u64) << 32 | payload.len() as u64;
    let mut sums = [seed ^ P0, seed.rotate_left(32) ^ P1];
    absorb(&mut sums, header);
    absorb(&mut sums, payload);
    let [a, b] = sums;
    [mix(a ^ lengths, b ^ P2), mix(b ^ lengths, a ^ P3)]
}

/// Digest of `bytes`.
pub(super) fn digest(bytes: &[u8]) -> [u8; TAG_LEN] {
    NullKey(0).tag(0, &[], bytes)
}

/// Bytes of what [`keyed`] gives.
pub(super) const KEYED_LEN: usize = 2 * TAG_LEN;

/// Digest of a message that depends on a key as well.
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

/// Two products that do not wait for each other.
fn step([a, b]: &mut [u64; 2], block: &[u8; 32]) {
    let [w0, w1, w2, w3] = block.as_chunks::<8>().0 else { return };
    let word = |bytes: &[u8; 8]| u64::from_le_bytes(*bytes);
    *a = mix(*a ^ word(w0), P2 ^ word(w1));
    *b = mix(*b ^ word(w2), P3 ^ word(w3));
}

impl PacketKey for NullKey {
    fn encrypt_in_place(
        &self,
        number: u64,
        header: &[u8],
        payload: &mut [u8],
    ) -> Result<Tag, Error> {
        Ok(Tag::from(&self.tag(number, header, payload)[..]))
    }

    fn encrypt_in_place_for_path(
        &self,
        path: u32,
        number: u64,
        header: &[u8],
        payload: &mut [u8],
    ) -> Result<Tag, Error> {
        self.for_path(path).encrypt_in_place(number, header, payload)
    }

    fn decrypt_in_place<'a>(
        &self,
        number: u64,
        header: &[u8],
        payload: &'a mut [u8],
    ) -> Result<&'a [u8], Error> {
        let payload: &'a [u8] = payload;
        let (plain, tag) = payload.split_last_chunk::<TAG_LEN>().ok_or(Error::DecryptError)?;
        if self.tag(number, header, plain) == *tag { Ok(plain) } else { Err(Error::DecryptError) }
    }

    fn decrypt_in_place_for_path<'a>(
        &self,
        path: u32,
        number: u64,
        header: &[u8],
        payload: &'a mut [u8],
    ) -> Result<&'a [u8], Error> {
        self.for_path(path).decrypt_in_place(number, header, payload)
    }

    fn tag_len(&self) -> usize {
        TAG_LEN
    }

    fn confidentiality_limit(&self) -> u64 {
        CONFIDENTIALITY_LIMIT
    }

    fn integrity_limit(&self) -> u64 {
        <dyn OpenTo>::offer(|| Arc::new(*self));
        INTEGRITY_LIMIT
    }
}

/// As keys of AEAD do it, so that simulations and fuzzers go the ways that connections go.
impl OpenTo for NullKey {
    fn open_to(&self, path: u32, number: u64, header: &[u8], sealed: &[u8], to: &mut [u8]) -> bool {
        let Some((plain, tag)) = sealed.split_last_chunk::<TAG_LEN>() else { return false };
        let opens =
            plain.len() == to.len() && self.for_path(path).tag(number, header, plain) == *tag;
        if opens {
            to.copy_from_slice(plain);
        }
        opens
    }
}

/// Headers as they are.
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

/// Those of packets that `sender` sends.
pub(super) fn directional(level: Level, sender: Side) -> DirectionalKeys {
    DirectionalKeys { header: Box::new(Bare), packet: Box::new(NullKey::new(level, sender)) }
}

pub(super) fn pair(level: Level, side: Side) -> Keys {
    Keys { local: directional(level, side), remote: directional(level, !side) }
}

/// Keys of Initial packets to or from a client that sends to `dcid`.
pub(crate) fn initial_keys(side: Side, dcid: ConnectionId) -> Keys {
    pair(Level::Initial(dcid), side)
}

/// Makes the keys of 1-RTT packets, one generation after the other.
#[derive(Debug)]
pub(crate) struct Generations {
    side: Side,
    next: u64,
}

impl Generations {
    pub(super) fn new(side: Side) -> Generations {
        // The first are the handshake's to give.
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
