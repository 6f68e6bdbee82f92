//! A packet key that calls the functions of one of the two libraries.

use std::sync::Arc;

use aws_lc_rs::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce};
use equic_transport::crypto::PacketKey;
use rustls::crypto::cipher::Iv;
use rustls::quic::Tag;

/// Size of a tag in bytes. It is the same for all algorithms of TLS 1.3 that QUIC may use (RFC 9001
/// s.5.3).
pub(super) const TAG_LEN: usize = 16;

/// Maximum number of packets that a key may protect, and of packets that may fail to open (RFC 9001
/// s.6.6).
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Limits {
    confidentiality: u64,
    integrity: u64,
}

const OF_GCM: Limits = Limits { confidentiality: 1 << 23, integrity: 1 << 52 };
/// The confidentiality limit exceeds the number of packet numbers.
const OF_CHACHA20: Limits = Limits { confidentiality: u64::MAX, integrity: 1 << 36 };

/// A nonce in two pieces: its first eight bytes and its last four, as big-endian numbers.
pub(super) type Pieces = (u64, u32);

/// Seals and opens packet payloads with the functions of a library.
pub(super) trait Cipher: Send + Sync + 'static {
    /// Encrypts `data` in place and returns the tag. Returns `None` on failure.
    fn seal(&self, nonce: Pieces, header: &[u8], data: &mut [u8]) -> Option<[u8; TAG_LEN]>;

    /// Decrypts `data` in place. Returns `false` if the data is not authentic.
    fn open(&self, nonce: Pieces, header: &[u8], data: &mut [u8], tag: &[u8; TAG_LEN]) -> bool;

    /// Decrypts `data` into `to`. Returns `false` if the data is not authentic or `to` has another
    /// length.
    fn open_to(
        &self,
        nonce: Pieces,
        header: &[u8],
        data: &[u8],
        tag: &[u8; TAG_LEN],
        to: &mut [u8],
    ) -> bool;

    fn limits(&self) -> Limits;
}

/// Returns AWS-LC's nonce. Never inlined, because `Nonce` overwrites its bytes one by one when it
/// is dropped. A compiler that sees both the creation and the drop would also write the bytes one
/// by one.
#[inline(never)]
fn aws_lc_nonce(pieces: Pieces) -> Nonce {
    Nonce::assume_unique_for_key(in_pieces(pieces))
}

/// Writes the nonce in the two pieces in which the library reads it.
#[inline(always)]
fn in_pieces((first, last): Pieces) -> [u8; 12] {
    let mut nonce = [0; 12];
    let (upper, lower) = nonce.split_at_mut(8);
    upper.copy_from_slice(&first.to_be_bytes());
    lower.copy_from_slice(&last.to_be_bytes());
    nonce
}

impl Cipher for LessSafeKey {
    #[inline]
    fn seal(&self, nonce: Pieces, header: &[u8], data: &mut [u8]) -> Option<[u8; TAG_LEN]> {
        let mut tag = [0; TAG_LEN];
        let (nonce, aad) = (aws_lc_nonce(nonce), Aad::from(header));
        let sealed = self.seal_in_place_scatter(nonce, aad, data, &[], &mut tag);
        sealed.is_ok().then_some(tag)
    }

    #[inline]
    fn open(&self, nonce: Pieces, header: &[u8], data: &mut [u8], tag: &[u8; TAG_LEN]) -> bool {
        let (nonce, aad) = (aws_lc_nonce(nonce), Aad::from(header));
        self.open_in_place_separate_tag(nonce, aad, tag, data).is_ok()
    }

    #[inline]
    fn open_to(
        &self,
        nonce: Pieces,
        header: &[u8],
        data: &[u8],
        tag: &[u8; TAG_LEN],
        to: &mut [u8],
    ) -> bool {
        let (nonce, aad) = (aws_lc_nonce(nonce), Aad::from(header));
        self.open_separate_gather(nonce, aad, data, tag, to).is_ok()
    }

    fn limits(&self) -> Limits {
        if self.algorithm() == &CHACHA20_POLY1305 { OF_CHACHA20 } else { OF_GCM }
    }
}

#[cfg(all(feature = "boringssl", target_arch = "x86_64"))]
impl Cipher for equic_boringssl::AesGcm {
    #[inline]
    fn seal(&self, nonce: Pieces, header: &[u8], data: &mut [u8]) -> Option<[u8; TAG_LEN]> {
        self.seal_in_place(&in_pieces(nonce), header, data)
    }

    #[inline]
    fn open(&self, nonce: Pieces, header: &[u8], data: &mut [u8], tag: &[u8; TAG_LEN]) -> bool {
        self.open_in_place(&in_pieces(nonce), header, data, tag)
    }

    #[inline]
    fn open_to(
        &self,
        nonce: Pieces,
        header: &[u8],
        data: &[u8],
        tag: &[u8; TAG_LEN],
        to: &mut [u8],
    ) -> bool {
        equic_boringssl::AesGcm::open_to(self, &in_pieces(nonce), header, data, tag, to)
    }

    fn limits(&self) -> Limits {
        OF_GCM
    }
}

/// Protects packets of one direction, through rustls's trait.
pub(super) struct SharedKey<C>(Arc<Key<C>>);

/// Protects packets of one direction.
struct Key<C> {
    cipher: C,
    /// The IV in two pieces. It is the nonce of packet 0 on path 0 (RFC 9001 s.5.3).
    iv: Pieces,
}

impl<C: Cipher> SharedKey<C> {
    pub(super) fn new(cipher: C, iv: &Iv) -> SharedKey<C> {
        let iv = rustls::crypto::cipher::Nonce::new(iv, 0).0;
        let number =
            |bytes: &[u8]| bytes.iter().fold(0, |number, &byte| number << 8 | u64::from(byte));
        SharedKey(Arc::new(Key { cipher, iv: (number(&iv[..8]), number(&iv[8..]) as u32) }))
    }

    /// Returns the key that this key offers to connections.
    #[cfg(test)]
    pub(super) fn offered(&self) -> &dyn PacketKey {
        &*self.0
    }
}

impl<C> Key<C> {
    /// Returns the nonce of a packet on a path (RFC 10069 s.2.4).
    #[inline(always)]
    fn nonce(&self, path: u32, number: u64) -> Pieces {
        let upper = u64::from(path) << 32 | number >> 32;
        (self.iv.0 ^ upper, self.iv.1 ^ number as u32)
    }
}

impl<C: Cipher> rustls::quic::PacketKey for SharedKey<C> {
    fn encrypt_in_place(
        &self,
        number: u64,
        header: &[u8],
        payload: &mut [u8],
    ) -> Result<Tag, rustls::Error> {
        self.encrypt_in_place_for_path(0, number, header, payload)
    }

    #[inline]
    fn encrypt_in_place_for_path(
        &self,
        path: u32,
        number: u64,
        header: &[u8],
        payload: &mut [u8],
    ) -> Result<Tag, rustls::Error> {
        self.0.seal(path, number, header, payload)
    }

    fn decrypt_in_place<'a>(
        &self,
        number: u64,
        header: &[u8],
        payload: &'a mut [u8],
    ) -> Result<&'a [u8], rustls::Error> {
        self.decrypt_in_place_for_path(0, number, header, payload)
    }

    #[inline]
    fn decrypt_in_place_for_path<'a>(
        &self,
        path: u32,
        number: u64,
        header: &[u8],
        payload: &'a mut [u8],
    ) -> Result<&'a [u8], rustls::Error> {
        if payload.is_empty() {
            return Err(<dyn PacketKey>::offer(Arc::<Key<C>>::clone(&self.0)));
        }
        self.0.open(path, number, header, payload)
    }

    fn tag_len(&self) -> usize {
        TAG_LEN
    }

    fn confidentiality_limit(&self) -> u64 {
        self.0.cipher.limits().confidentiality
    }

    fn integrity_limit(&self) -> u64 {
        self.0.cipher.limits().integrity
    }
}

impl<C: Cipher> PacketKey for Key<C> {
    #[inline]
    fn seal(
        &self,
        path: u32,
        number: u64,
        header: &[u8],
        payload: &mut [u8],
    ) -> Result<Tag, rustls::Error> {
        match self.cipher.seal(self.nonce(path, number), header, payload) {
            Some(tag) => Ok(Tag::from(&tag[..])),
            None => Err(rustls::Error::EncryptError),
        }
    }

    #[inline]
    fn open<'a>(
        &self,
        path: u32,
        number: u64,
        header: &[u8],
        payload: &'a mut [u8],
    ) -> Result<&'a [u8], rustls::Error> {
        let Some((data, tag)) = payload.split_last_chunk_mut::<TAG_LEN>() else {
            return Err(rustls::Error::DecryptError);
        };
        match self.cipher.open(self.nonce(path, number), header, data, tag) {
            true => Ok(data),
            false => Err(rustls::Error::DecryptError),
        }
    }

    fn open_to(&self, path: u32, number: u64, header: &[u8], sealed: &[u8], to: &mut [u8]) -> bool {
        let Some((data, tag)) = sealed.split_last_chunk::<TAG_LEN>() else { return false };
        self.cipher.open_to(self.nonce(path, number), header, data, tag, to)
    }

    fn confidentiality_limit(&self) -> u64 {
        self.cipher.limits().confidentiality
    }

    fn integrity_limit(&self) -> u64 {
        self.cipher.limits().integrity
    }
}
