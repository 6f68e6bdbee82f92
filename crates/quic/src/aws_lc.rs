//! rustls's provider of AWS-LC with packet keys that take less time for a packet: see docs/performance.md.
//!
//! What they compute is what rustls's compute (RFC 9001 s.5.3, RFC 10069 s.2.4), by the same functions of AWS-LC; the tests compare
//! them. They write a nonce in the two pieces in which AWS-LC reads it. A CPU that reads what it has just stored in other pieces
//! waits until all that it stored before is in its cache, which is the data of the last packet.

use std::sync::{Arc, LazyLock};

use aws_lc_rs::aead::{
    AES_128_GCM, AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey,
};
use equic_transport::OpenTo;
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::{cipher_suite, default_provider};
use rustls::crypto::cipher::{AeadKey, Iv};
use rustls::quic::{Algorithm, HeaderProtectionKey, PacketKey, Tag};
use rustls::{CipherSuiteCommon, SupportedCipherSuite, Tls13CipherSuite};

/// Bytes of a tag; all algorithms of TLS 1.3 that QUIC may use have tags of this length (RFC 9001 s.5.3).
const TAG_LEN: usize = 16;

/// rustls's crypto provider of AWS-LC. Keys of QUIC packets that are made with it are faster than those of
/// [`rustls::crypto::aws_lc_rs::default_provider`]; all else is the same. Not for FIPS: where rustls's is, this one says that it is not.
pub fn aws_lc_provider() -> CryptoProvider {
    let mut provider = default_provider();
    for suite in &mut provider.cipher_suites {
        if let Some(ours) = SUITES.iter().find(|ours| ours.common.suite == suite.suite()) {
            *suite = SupportedCipherSuite::Tls13(ours);
        }
    }
    provider
}

/// The cipher suites with keys of our own.
static SUITES: LazyLock<Vec<Tls13CipherSuite>> = LazyLock::new(|| {
    let suites: [(_, &'static LazyLock<Option<Keys>>); 3] = [
        (cipher_suite::TLS13_AES_128_GCM_SHA256, &AES_128),
        (cipher_suite::TLS13_AES_256_GCM_SHA384, &AES_256),
        (cipher_suite::TLS13_CHACHA20_POLY1305_SHA256, &CHACHA20),
    ];
    let with_keys = |(suite, keys): (SupportedCipherSuite, &'static LazyLock<Option<Keys>>)| {
        let suite = suite.tls13()?;
        let quic: &'static dyn Algorithm = keys.as_ref()?;
        let common = CipherSuiteCommon { ..suite.common };
        Some(Tls13CipherSuite { common, quic: Some(quic), ..*suite })
    };
    suites.into_iter().filter_map(with_keys).collect()
});

static AES_128: LazyLock<Option<Keys>> =
    LazyLock::new(|| Keys::of(cipher_suite::TLS13_AES_128_GCM_SHA256, &AES_128_GCM));
static AES_256: LazyLock<Option<Keys>> =
    LazyLock::new(|| Keys::of(cipher_suite::TLS13_AES_256_GCM_SHA384, &AES_256_GCM));
static CHACHA20: LazyLock<Option<Keys>> =
    LazyLock::new(|| Keys::of(cipher_suite::TLS13_CHACHA20_POLY1305_SHA256, &CHACHA20_POLY1305));

/// Packets that a key may protect, and those that may fail to open (RFC 9001 s.6.6).
#[derive(Clone, Copy, Debug, PartialEq)]
struct Limits {
    confidentiality: u64,
    integrity: u64,
}

const OF_GCM: Limits = Limits { confidentiality: 1 << 23, integrity: 1 << 52 };
/// More packets than there are packet numbers.
const OF_CHACHA20: Limits = Limits { confidentiality: u64::MAX, integrity: 1 << 36 };

/// Makes keys of one algorithm.
struct Keys {
    algorithm: &'static aws_lc_rs::aead::Algorithm,
    /// rustls's, for all but packets.
    rustls: &'static dyn Algorithm,
}

impl Keys {
    fn of(
        suite: SupportedCipherSuite,
        algorithm: &'static aws_lc_rs::aead::Algorithm,
    ) -> Option<Keys> {
        Some(Keys { algorithm, rustls: suite.tls13()?.quic? })
    }
}

impl Algorithm for Keys {
    fn packet_key(&self, key: AeadKey, iv: Iv) -> Box<dyn PacketKey> {
        match UnboundKey::new(self.algorithm, key.as_ref()) {
            Ok(unbound) => {
                let key = Key { key: LessSafeKey::new(unbound), nonces: Nonces::new(&iv) };
                Box::new(SharedKey(Arc::new(key)))
            }
            // A key of another length than the algorithm's: rustls makes none, and with what it is asked for (`aead_key_len`) that cannot be.
            Err(_) => self.rustls.packet_key(key, iv),
        }
    }

    fn header_protection_key(&self, key: AeadKey) -> Box<dyn HeaderProtectionKey> {
        self.rustls.header_protection_key(key)
    }

    fn aead_key_len(&self) -> usize {
        self.rustls.aead_key_len()
    }

    fn fips(&self) -> bool {
        // Of the ways to open in AWS-LC's Rust interface the one that is used here is not for FIPS.
        false
    }
}

/// What the nonces of a key are made of (RFC 9001 s.5.3): its first eight bytes and its last four, as big-endian numbers.
struct Nonces {
    first: u64,
    last: u32,
}

impl Nonces {
    fn new(iv: &Iv) -> Nonces {
        // The nonce of packet 0 is the IV.
        let iv = rustls::crypto::cipher::Nonce::new(iv, 0).0;
        let number =
            |bytes: &[u8]| bytes.iter().fold(0, |number, &byte| number << 8 | u64::from(byte));
        Nonces { first: number(&iv[..8]), last: number(&iv[8..]) as u32 }
    }

    /// The nonce of a packet on a path (RFC 10069 s.2.4). Never inlined: a nonce is overwritten byte by byte when it is dropped, so that
    /// a compiler that sees where it comes from and where it ends writes it byte by byte, too.
    #[inline(never)]
    fn of(&self, path: u32, number: u64) -> Nonce {
        let mut nonce = [0; 12];
        let (first, last) = nonce.split_at_mut(8);
        let upper = u64::from(path) << 32 | number >> 32;
        first.copy_from_slice(&(self.first ^ upper).to_be_bytes());
        last.copy_from_slice(&(self.last ^ number as u32).to_be_bytes());
        Nonce::assume_unique_for_key(nonce)
    }
}

/// Protects packets of one direction, for rustls.
struct SharedKey(Arc<Key>);

/// Protects packets of one direction.
struct Key {
    key: LessSafeKey,
    nonces: Nonces,
}

impl Key {
    /// Looked up, since a connection has two keys and more, and asks for this hardly ever.
    fn limits(&self) -> Limits {
        if self.key.algorithm() == &CHACHA20_POLY1305 { OF_CHACHA20 } else { OF_GCM }
    }
}

impl PacketKey for SharedKey {
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
        let aad = Aad::from(header);
        let mut tag = [0; TAG_LEN];
        let key = &self.0;
        let nonce = key.nonces.of(path, number);
        match key.key.seal_in_place_scatter(nonce, aad, payload, &[], &mut tag) {
            Ok(()) => Ok(Tag::from(&tag[..])),
            Err(_) => Err(rustls::Error::EncryptError),
        }
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
        let aad = Aad::from(header);
        let Some((data, tag)) = payload.split_last_chunk_mut::<TAG_LEN>() else {
            return Err(rustls::Error::DecryptError);
        };
        let key = &self.0;
        let nonce = key.nonces.of(path, number);
        match key.key.open_in_place_separate_tag(nonce, aad, tag, data) {
            Ok(data) => Ok(data),
            Err(_) => Err(rustls::Error::DecryptError),
        }
    }

    fn tag_len(&self) -> usize {
        TAG_LEN
    }

    fn confidentiality_limit(&self) -> u64 {
        self.0.limits().confidentiality
    }

    fn integrity_limit(&self) -> u64 {
        let key = &self.0;
        <dyn OpenTo>::offer(|| Arc::<Key>::clone(key));
        key.limits().integrity
    }
}

impl OpenTo for Key {
    fn open_to(&self, path: u32, number: u64, header: &[u8], sealed: &[u8], to: &mut [u8]) -> bool {
        let Some((data, tag)) = sealed.split_last_chunk::<TAG_LEN>() else { return false };
        let nonce = self.nonces.of(path, number);
        self.key.open_separate_gather(nonce, Aad::from(header), data, tag, to).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use rand::{Rng as _, RngCore as _, SeedableRng as _, rngs::StdRng};
    use rustls::quic::{Keys, Version};
    use rustls::{CipherSuite, Side};

    use super::*;

    /// Keys of Initial packets, ours and rustls's, of each suite.
    fn pairs() -> impl Iterator<Item = (CipherSuite, [Keys; 2], [Keys; 2])> {
        let keys = |suite: &SupportedCipherSuite| {
            let suite = suite.tls13().unwrap().quic_suite().unwrap();
            [Side::Client, Side::Server].map(|side| suite.keys(&[7; 8], side, Version::V1))
        };
        let is_tls13 = |suite: &SupportedCipherSuite| suite.tls13().is_some();
        let ours = aws_lc_provider().cipher_suites.into_iter().filter(is_tls13);
        let theirs = default_provider().cipher_suites.into_iter().filter(is_tls13);
        ours.zip(theirs).map(move |(ours, theirs)| {
            assert_eq!(ours.suite(), theirs.suite());
            (ours.suite(), keys(&ours), keys(&theirs))
        })
    }

    fn sealed(key: &dyn PacketKey, path: u32, number: u64, header: &[u8], data: &[u8]) -> Vec<u8> {
        let mut payload = data.to_vec();
        let tag = match path {
            0 => key.encrypt_in_place(number, header, &mut payload),
            path => key.encrypt_in_place_for_path(path, number, header, &mut payload),
        };
        payload.extend_from_slice(tag.unwrap().as_ref());
        payload
    }

    #[test]
    fn packets_are_those_of_rustls() {
        let mut rng = StdRng::seed_from_u64(0x5eed);
        let mut suites = 0;
        for (suite, [ours, _], [theirs, peer]) in pairs() {
            suites += 1;
            for round in 0..200 {
                let mut data = vec![0; rng.random_range(0..1500)];
                let mut header = vec![0; rng.random_range(1..30)];
                rng.fill_bytes(&mut data);
                rng.fill_bytes(&mut header);
                let number = rng.next_u64() >> rng.random_range(2..64);
                let path = if round % 2 == 0 { 0 } else { rng.next_u32() };
                let packet = sealed(&*ours.local.packet, path, number, &header, &data);
                let wanted = sealed(&*theirs.local.packet, path, number, &header, &data);
                assert_eq!(packet, wanted, "{suite:?} {path} {number}");
                let mut answer = sealed(&*peer.local.packet, path, number, &header, &data);
                let key = &ours.remote.packet;
                let opened = match path {
                    0 => key.decrypt_in_place(number, &header, &mut answer),
                    path => key.decrypt_in_place_for_path(path, number, &header, &mut answer),
                };
                assert_eq!(opened.unwrap(), data, "{suite:?} {path} {number}");
            }
        }
        assert_eq!(suites, 3);
    }

    /// A key as it is made, before rustls has it.
    fn key(algorithm: &'static aws_lc_rs::aead::Algorithm, iv: [u8; 12]) -> SharedKey {
        let key =
            LessSafeKey::new(UnboundKey::new(algorithm, &[7; 32][..algorithm.key_len()]).unwrap());
        SharedKey(Arc::new(Key { key, nonces: Nonces::new(&Iv::from(iv)) }))
    }

    /// To other memory a packet is opened as in place, or as little.
    #[test]
    fn packets_are_opened_to_other_memory() {
        let mut rng = StdRng::seed_from_u64(0x5eed);
        for algorithm in [&AES_128_GCM, &AES_256_GCM, &CHACHA20_POLY1305] {
            let key = key(algorithm, rng.random());
            for _ in 0..200 {
                let mut data = vec![0; rng.random_range(0..1500)];
                let mut header = vec![0; rng.random_range(1..30)];
                rng.fill_bytes(&mut data);
                rng.fill_bytes(&mut header);
                let (path, number) = (rng.next_u32(), rng.next_u64() >> 2);
                let mut packet = sealed(&key, path, number, &header, &data);
                let mut to = vec![0; data.len()];
                assert!(key.0.open_to(path, number, &header, &packet, &mut to));
                assert_eq!(to, data);
                assert!(!key.0.open_to(path ^ 1, number, &header, &packet, &mut to));
                assert!(!key.0.open_to(path, number ^ 1, &header, &packet, &mut to));
                assert!(!key.0.open_to(path, number, &header[1..], &packet, &mut to));
                let at = rng.random_range(0..packet.len());
                packet[at] ^= 1 << rng.random_range(0..8);
                assert!(!key.0.open_to(path, number, &header, &packet, &mut to));
                let mut in_place = packet.clone();
                let opened = key.decrypt_in_place_for_path(path, number, &header, &mut in_place);
                assert!(opened.is_err());
            }
            for length in 0..TAG_LEN {
                assert!(!key.0.open_to(0, 0, &[], &vec![0; length], &mut []));
            }
            // As long as what is opened, no more and no less.
            let packet = sealed(&key, 0, 0, &[], b"data");
            assert!(key.0.open_to(0, 0, &[], &packet, &mut [0; 4]));
            assert!(!key.0.open_to(0, 0, &[], &packet, &mut [0; 3]));
            assert!(!key.0.open_to(0, 0, &[], &packet, &mut [0; 5]));
        }
    }

    #[test]
    fn whatever_is_changed_does_not_open() {
        for (suite, [ours, _], [_, peer]) in pairs() {
            let header = [0x41, 7, 8, 9];
            let packet = sealed(&*peer.local.packet, 1, 3, &header, b"data");
            let open = |path, number, header: &[u8], mut packet: Vec<u8>| {
                let key = &ours.remote.packet;
                key.decrypt_in_place_for_path(path, number, header, &mut packet).is_ok()
            };
            assert!(open(1, 3, &header, packet.clone()), "{suite:?}");
            assert!(!open(1, 4, &header, packet.clone()));
            assert!(!open(1, 3 | 1 << 32, &header, packet.clone()));
            assert!(!open(0, 3, &header, packet.clone()));
            assert!(!open(1, 3, &header[..3], packet.clone()));
            for at in 0..packet.len() {
                let mut changed = packet.clone();
                changed[at] ^= 0x10;
                assert!(!open(1, 3, &header, changed), "{suite:?} {at}");
            }
            for length in 0..packet.len() {
                assert!(!open(1, 3, &header, packet[..length].to_vec()), "{suite:?} {length}");
            }
        }
    }

    #[test]
    fn limits_and_lengths_are_those_of_rustls() {
        for (suite, ours, theirs) in pairs() {
            for (ours, theirs) in ours.iter().zip(&theirs) {
                let of = |key: &dyn PacketKey| {
                    (key.confidentiality_limit(), key.integrity_limit(), key.tag_len())
                };
                assert_eq!(of(&*ours.local.packet), of(&*theirs.local.packet), "{suite:?}");
                assert_eq!(of(&*ours.remote.packet), of(&*theirs.remote.packet), "{suite:?}");
            }
        }
    }

    /// Those who ask for the default get them; else the comparisons here would be of rustls's with themselves.
    #[test]
    fn keys_are_of_our_own_making_by_default() {
        let makers = |provider: &CryptoProvider| -> Vec<*const ()> {
            let tls13 = provider.cipher_suites.iter().filter_map(SupportedCipherSuite::tls13);
            tls13.map(|suite| std::ptr::from_ref(suite.quic.unwrap()).cast()).collect()
        };
        let (ours, theirs) = (makers(&aws_lc_provider()), makers(&default_provider()));
        assert!(ours.len() == 3 && ours.iter().all(|maker| !theirs.contains(maker)));
        assert_eq!(makers(&crate::config::built_in().unwrap()), ours);
    }

    #[test]
    fn all_else_of_the_provider_is_rustls() {
        let (ours, theirs) = (aws_lc_provider(), default_provider());
        let ids = |provider: &CryptoProvider| -> Vec<CipherSuite> {
            provider.cipher_suites.iter().map(SupportedCipherSuite::suite).collect()
        };
        assert_eq!(ids(&ours), ids(&theirs));
        assert_eq!(ours.kx_groups.len(), theirs.kx_groups.len());
    }
}
