//! Keys that protect the payload of packets: [`PacketKey`].
//!
//! A 1-RTT key comes from rustls, as a [`rustls::quic::PacketKey`]. That trait can only decrypt a
//! packet in place, so its stream data must be copied afterwards. A key that can do more also
//! implements [`PacketKey`]. The connection asks each key once, and then uses the `PacketKey`
//! instead of the key of rustls.

use std::fmt;
use std::sync::Arc;

use equic_wire::PathId;
use rustls::OtherError;
use rustls::quic::{PacketKeySet, Tag};

/// A key that protects the packets of one direction (RFC 9001 s.5.3), and can decrypt them into
/// another buffer. Implement it if the library of your crypto provider supports this.
///
/// The connection derives its keys with rustls, which does not know this trait. So your
/// implementation of [`rustls::quic::PacketKey`] must return `<dyn PacketKey>::offer(key)` as the
/// error if it must decrypt an empty payload. No packet has an empty payload, because a payload
/// ends with a tag. The connection makes this call once for each 1-RTT key. If a key returns any
/// other error, the connection uses it as it is: packets are decrypted in place, and their data is
/// copied.
///
/// If your key of rustls wraps another key, it must not forward an empty payload. Otherwise the
/// connection would use the `PacketKey` that the inner key offers, without the wrapper.
///
/// In all methods, `path` is the path ID, which is part of the nonce (RFC 10069 s.2.4). Connections
/// with one path use path 0.
pub trait PacketKey: Send + Sync {
    /// Encrypts the payload of a packet in place and returns the tag.
    ///
    /// # Errors
    /// Fails if the payload is longer than the AEAD permits, or if `path` is not 0 and the nonce
    /// has no room for a path ID.
    fn seal(
        &self,
        path: u32,
        number: u64,
        header: &[u8],
        payload: &mut [u8],
    ) -> Result<Tag, rustls::Error>;

    /// Decrypts the payload of a packet in place. The payload ends with the tag. Returns the
    /// plaintext, which is the payload without the tag.
    ///
    /// # Errors
    /// Fails if the packet is not authentic.
    fn open<'a>(
        &self,
        path: u32,
        number: u64,
        header: &[u8],
        payload: &'a mut [u8],
    ) -> Result<&'a [u8], rustls::Error>;

    /// Decrypts the payload of a packet from `sealed` into `to`, in one pass. Returns true if the
    /// packet is authentic. If it is not, the caller ignores the content of `to`.
    ///
    /// `sealed` ends with the tag, and `to` has the length of `sealed` without the tag.
    fn open_to(&self, path: u32, number: u64, header: &[u8], sealed: &[u8], to: &mut [u8]) -> bool;

    /// Returns the largest number of packets that the key may protect (RFC 9001 s.6.6).
    fn confidentiality_limit(&self) -> u64;

    /// Returns the number of packets that may fail authentication (RFC 9001 s.6.6).
    fn integrity_limit(&self) -> u64;
}

impl dyn PacketKey {
    /// Returns the error with which a key of rustls offers its `PacketKey` to the connection, if it
    /// must decrypt an empty payload. See [`PacketKey`].
    pub fn offer(key: Arc<dyn PacketKey>) -> rustls::Error {
        rustls::Error::Other(OtherError(Arc::new(Offer(key))))
    }
}

/// The answer of a key of rustls that also implements [`PacketKey`].
struct Offer(Arc<dyn PacketKey>);

impl fmt::Debug for Offer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Offer").finish_non_exhaustive()
    }
}

impl fmt::Display for Offer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the payload is empty, so the packet has no tag")
    }
}

impl std::error::Error for Offer {}

/// A 1-RTT key of one direction.
pub(crate) enum OneRttKey {
    /// A key that can also decrypt into another buffer.
    Own(Arc<dyn PacketKey>),
    /// A key that can only decrypt in place.
    Rustls(Box<dyn rustls::quic::PacketKey>),
}

impl From<Box<dyn rustls::quic::PacketKey>> for OneRttKey {
    fn from(key: Box<dyn rustls::quic::PacketKey>) -> OneRttKey {
        if let Err(rustls::Error::Other(OtherError(error))) = key.decrypt_in_place(0, &[], &mut [])
            && let Some(Offer(own)) = error.downcast_ref()
        {
            return OneRttKey::Own(Arc::clone(own));
        }
        OneRttKey::Rustls(key)
    }
}

impl OneRttKey {
    /// Encrypts the payload of a packet in place and returns the tag. See [`PacketKey::seal`].
    #[inline]
    pub(super) fn seal(
        &self,
        path: PathId,
        number: u64,
        header: &[u8],
        payload: &mut [u8],
    ) -> Result<Tag, rustls::Error> {
        match self {
            OneRttKey::Own(key) => key.seal(path.get(), number, header, payload),
            // A nonce without room for a path ID is still valid for path 0.
            OneRttKey::Rustls(key) if path == PathId::ZERO => {
                key.encrypt_in_place(number, header, payload)
            }
            OneRttKey::Rustls(key) => {
                key.encrypt_in_place_for_path(path.get(), number, header, payload)
            }
        }
    }

    /// Decrypts the payload of a packet in place. See [`PacketKey::open`].
    #[inline]
    pub(super) fn open<'a>(
        &self,
        path: PathId,
        number: u64,
        header: &[u8],
        payload: &'a mut [u8],
    ) -> Result<&'a [u8], rustls::Error> {
        match self {
            OneRttKey::Own(key) => key.open(path.get(), number, header, payload),
            OneRttKey::Rustls(key) if path == PathId::ZERO => {
                key.decrypt_in_place(number, header, payload)
            }
            OneRttKey::Rustls(key) => {
                key.decrypt_in_place_for_path(path.get(), number, header, payload)
            }
        }
    }

    /// Returns the key if it can decrypt into another buffer ([`PacketKey::open_to`]).
    #[inline]
    pub(super) fn opener(&self) -> Option<&dyn PacketKey> {
        match self {
            OneRttKey::Own(key) => Some(&**key),
            OneRttKey::Rustls(_) => None,
        }
    }

    /// Returns the largest number of packets that the key may protect (RFC 9001 s.6.6).
    pub(super) fn confidentiality_limit(&self) -> u64 {
        match self {
            OneRttKey::Own(key) => key.confidentiality_limit(),
            OneRttKey::Rustls(key) => key.confidentiality_limit(),
        }
    }

    /// Returns the number of packets that may fail authentication (RFC 9001 s.6.6).
    pub(super) fn integrity_limit(&self) -> u64 {
        match self {
            OneRttKey::Own(key) => key.integrity_limit(),
            OneRttKey::Rustls(key) => key.integrity_limit(),
        }
    }
}

/// The 1-RTT keys of both directions in one key phase.
pub(crate) struct KeyPair {
    pub local: OneRttKey,
    pub remote: OneRttKey,
}

impl From<PacketKeySet> for KeyPair {
    fn from(keys: PacketKeySet) -> KeyPair {
        KeyPair { local: keys.local.into(), remote: keys.remote.into() }
    }
}

#[cfg(test)]
mod tests {
    use equic_wire::{ConnectionId, KnownVersion, Side};
    use rustls::crypto::CryptoProvider;
    use rustls::crypto::aws_lc_rs::default_provider;
    use rustls::{CipherSuite, SupportedCipherSuite};

    use super::*;
    use crate::crypto::testing::configs;
    use crate::crypto::tls_initial_keys;

    /// Returns a key of AES-128-GCM. It is the key with which a client decrypts Initial packets.
    fn key_of(provider: &CryptoProvider) -> Box<dyn rustls::quic::PacketKey> {
        let is_aes_128 =
            |suite: &&SupportedCipherSuite| suite.suite() == CipherSuite::TLS13_AES_128_GCM_SHA256;
        let suite = provider.cipher_suites.iter().find(is_aes_128).unwrap();
        let suite = suite.tls13().unwrap().quic_suite().unwrap();
        tls_initial_keys(&suite, Side::Client, KnownVersion::V1, ConnectionId::EMPTY).remote.packet
    }

    #[test]
    fn packet_key_is_used_if_the_key_of_rustls_offers_it() {
        let offering = key_of(configs().0.crypto_provider());
        let OneRttKey::Own(key) = OneRttKey::from(offering) else { panic!("a key was offered") };
        assert_eq!(Arc::strong_count(&key), 1, "the key of rustls is dropped");
        assert!(!key.open_to(0, 0, &[], &[0; 20], &mut [0; 4]));
    }

    #[test]
    fn packet_key_of_rustls_is_used_if_it_offers_no_other() {
        let key = key_of(&default_provider());
        let key = OneRttKey::from(key);
        assert!(matches!(key, OneRttKey::Rustls(_)) && key.opener().is_none());
    }

    #[test]
    fn packet_key_opens_what_the_key_of_rustls_sealed() {
        for path in [PathId::ZERO, PathId::new(3)] {
            let sealing = key_of(&default_provider());
            let (sealing, mut packet) = (OneRttKey::from(sealing), *b"payload");
            let tag = sealing.seal(path, 5, b"header", &mut packet).unwrap();
            let sealed = [&packet[..], tag.as_ref()].concat();
            let own = OneRttKey::from(key_of(configs().0.crypto_provider()));
            for key in [&sealing, &own] {
                let mut payload = sealed.clone();
                assert_eq!(key.open(path, 5, b"header", &mut payload).unwrap(), b"payload");
                let mut payload = sealed.clone();
                assert!(key.open(PathId::new(4), 5, b"header", &mut payload).is_err());
            }
            let mut to = [0; 7];
            assert!(own.opener().unwrap().open_to(path.get(), 5, b"header", &sealed, &mut to));
            assert_eq!(&to, b"payload");
        }
    }
}
