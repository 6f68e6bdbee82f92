//! Derives the keys of QUIC packets from the connection ID of an Initial packet, or from a line of
//! a key log (RFC 9001 s.5, RFC 9369 s.3.3). The keys are used only for decryption.

use aws_lc_rs::aead::quic::HeaderProtectionKey;
use aws_lc_rs::aead::{Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::{aead, hkdf, hmac};
use equic_wire::KnownVersion;
use equic_wire::packet::{Protected, Unprotected};

/// Salt for Initial keys of version 1 (RFC 9001 s.5.2).
const SALT_V1: [u8; 20] = [
    0x38, 0x76, 0x2c, 0xf7, 0xf5, 0x59, 0x34, 0xb3, 0x4d, 0x17, 0x9a, 0xe6, 0xa4, 0xc8, 0x0c, 0xad,
    0xcc, 0xbb, 0x7f, 0x0a,
];
/// Salt for Initial keys of version 2 (RFC 9369 s.3.3.1).
const SALT_V2: [u8; 20] = [
    0x0d, 0xed, 0xe3, 0xde, 0xf7, 0x00, 0xa6, 0xdb, 0x81, 0x93, 0x81, 0xbe, 0x6e, 0x26, 0x9d, 0xcb,
    0xf9, 0xbd, 0x2e, 0xd9,
];

/// A cipher suite of TLS 1.3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Suite {
    Aes128,
    Aes256,
    ChaCha20,
}

impl Suite {
    /// Returns the cipher suites whose secrets have the size of this one.
    pub(super) fn of_secret(secret: &[u8]) -> &'static [Suite] {
        match secret.len() {
            32 => &[Suite::Aes128, Suite::ChaCha20],
            48 => &[Suite::Aes256],
            _ => &[],
        }
    }

    fn hash(self) -> hkdf::Algorithm {
        match self {
            Suite::Aes128 | Suite::ChaCha20 => hkdf::HKDF_SHA256,
            Suite::Aes256 => hkdf::HKDF_SHA384,
        }
    }

    fn aead(self) -> &'static aead::Algorithm {
        match self {
            Suite::Aes128 => &aead::AES_128_GCM,
            Suite::Aes256 => &aead::AES_256_GCM,
            Suite::ChaCha20 => &aead::CHACHA20_POLY1305,
        }
    }

    fn header(self) -> &'static aead::quic::Algorithm {
        match self {
            Suite::Aes128 => &aead::quic::AES_128,
            Suite::Aes256 => &aead::quic::AES_256,
            Suite::ChaCha20 => &aead::quic::CHACHA20,
        }
    }
}

/// The secret and the keys with which one side protects its packets in a packet number space.
pub(super) struct Keys {
    suite: Suite,
    version: KnownVersion,
    secret: Vec<u8>,
    packet: LessSafeKey,
    iv: [u8; 12],
    header: HeaderProtectionKey,
}

impl Keys {
    /// Derives the keys from a secret. Returns `None` if the secret's size does not match the
    /// suite.
    pub(super) fn new(suite: Suite, version: KnownVersion, secret: &[u8]) -> Option<Keys> {
        let [key, iv, header] = match version {
            KnownVersion::V1 => ["quic key", "quic iv", "quic hp"],
            KnownVersion::V2 => ["quicv2 key", "quicv2 iv", "quicv2 hp"],
            _ => return None,
        };
        let hash = suite.hash();
        let key = expand(hash, secret, key, suite.aead().key_len())?;
        let packet = LessSafeKey::new(UnboundKey::new(suite.aead(), &key).ok()?);
        let iv = expand(hash, secret, iv, 12)?.try_into().ok()?;
        let header = expand(hash, secret, header, suite.header().key_len())?;
        let header = HeaderProtectionKey::new(suite.header(), &header).ok()?;
        Some(Keys { suite, version, secret: secret.to_vec(), packet, iv, header })
    }

    /// Returns the keys of Initial packets: those of the client, and those of the server.
    pub(super) fn initial(version: KnownVersion, dcid: &[u8]) -> Option<[Keys; 2]> {
        let salt = match version {
            KnownVersion::V1 => &SALT_V1,
            KnownVersion::V2 => &SALT_V2,
            _ => return None,
        };
        // This step is HKDF-Extract (RFC 5869 s.2.2).
        let initial = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, salt), dcid);
        let side = |label| {
            let secret = expand(hkdf::HKDF_SHA256, initial.as_ref(), label, 32)?;
            Keys::new(Suite::Aes128, version, &secret)
        };
        Some([side("client in")?, side("server in")?])
    }

    /// Returns the keys after a key update. The key for header protection stays the same (RFC 9001
    /// s.6).
    pub(super) fn next(&self) -> Option<Keys> {
        let label = match self.version {
            KnownVersion::V1 => "quic ku",
            KnownVersion::V2 => "quicv2 ku",
            _ => return None,
        };
        let secret = expand(self.suite.hash(), &self.secret, label, self.secret.len())?;
        Keys::new(self.suite, self.version, &secret)
    }

    /// Removes header protection in place.
    pub(super) fn unmask(&self, packet: &mut [u8], protected: Protected) -> Option<Unprotected> {
        let mask = self.header.new_mask(protected.sample(packet)?).ok()?;
        protected.remove(packet, &mask)
    }

    /// Decrypts a packet whose header protection was removed. Returns `None` if it is not
    /// authentic.
    pub(super) fn open(
        &self,
        packet: &[u8],
        header_len: usize,
        path: u32,
        number: u64,
    ) -> Option<Vec<u8>> {
        let (header, payload) = packet.split_at_checked(header_len)?;
        let mut payload = payload.to_vec();
        let nonce = Nonce::assume_unique_for_key(nonce(self.iv, path, number));
        let len = self.packet.open_in_place(nonce, Aad::from(header), &mut payload).ok()?.len();
        payload.truncate(len);
        Some(payload)
    }
}

/// Returns the nonce of a packet (RFC 10069 s.2.4). On path 0, it is the same as in RFC 9001 s.5.3.
fn nonce(iv: [u8; 12], path: u32, number: u64) -> [u8; 12] {
    let mut nonce = iv;
    let bits = path.to_be_bytes().into_iter().chain(number.to_be_bytes());
    for (byte, bits) in nonce.iter_mut().zip(bits) {
        *byte ^= bits;
    }
    nonce
}

struct Length(usize);

impl hkdf::KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

/// Computes HKDF-Expand-Label with an empty context (RFC 8446 s.7.1).
fn expand(hash: hkdf::Algorithm, secret: &[u8], label: &str, len: usize) -> Option<Vec<u8>> {
    let length = u16::try_from(len).ok()?.to_be_bytes();
    let label_len = [u8::try_from(label.len()).ok()? + 6];
    let info = [&length[..], &label_len, b"tls13 ", label.as_bytes(), &[0]];
    let mut out = vec![0; len];
    let key = hkdf::Prk::new_less_safe(hash, secret);
    key.expand(&info, Length(len)).ok()?.fill(&mut out).ok()?;
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_initial_packets_match_rfc_9001() {
        // The expected values are those of the example in RFC 9001 A.1.
        let dcid = [0x83, 0x94, 0xc8, 0xf0, 0x3e, 0x51, 0x57, 0x08];
        let [client, server] = Keys::initial(KnownVersion::V1, &dcid).expect("keys");
        assert_eq!(client.iv[..4], [0xfa, 0x04, 0x4b, 0x2f]);
        assert_eq!(server.iv[..4], [0x0a, 0xc1, 0x49, 0x3c]);
    }

    #[test]
    fn keys_nonce_matches_rfc_10069() {
        // The expected values are those of the example in RFC 10069 s.2.4.
        let iv = [0x6b, 0x26, 0x11, 0x4b, 0x9c, 0xba, 0x2b, 0x63, 0xa9, 0xe8, 0xdd, 0x4f];
        let made = [0x6b, 0x26, 0x11, 0x48, 0x9c, 0xba, 0x2b, 0x63, 0xa9, 0xe8, 0x09, 0x7e];
        assert_eq!(nonce(iv, 3, 54321), made);
    }
}
