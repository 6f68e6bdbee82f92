//! A cipher suite that protects nothing: checksums replace HMAC and AEAD. With this suite, an
//! endpoint without protection needs no crypto provider for its tokens.
//!
//! Only `InsecureNullCrypto` uses this suite. TLS does not know its number, and the suite cannot
//! encrypt records, so no TLS handshake can select it.

use rustls::crypto::CipherSuiteCommon;
use rustls::crypto::cipher::{
    AeadKey, InboundOpaqueMessage, InboundPlainMessage, Iv, MessageDecrypter, MessageEncrypter,
    OutboundOpaqueMessage, OutboundPlainMessage, Tls13AeadAlgorithm, UnsupportedOperationError,
};
use rustls::crypto::hash::{Context, Hash, HashAlgorithm, Output};
use rustls::crypto::hmac::Tag;
use rustls::crypto::tls13::{Hkdf, HkdfExpander, OkmBlock, OutputLengthError};
use rustls::quic::{Algorithm, HeaderProtectionKey, PacketKey, Suite};
use rustls::{CipherSuite, ConnectionTrafficSecrets, Error, Tls13CipherSuite};

use super::keys::{Bare, KEYED_LEN, NullKey, keyed};

/// Length of a key in bytes, as for AES-128.
const KEY_LEN: usize = 16;

static SUITE: Tls13CipherSuite = Tls13CipherSuite {
    common: CipherSuiteCommon {
        // RFC 8701 reserves this number, so no real cipher suite will ever have it.
        suite: CipherSuite::Unknown(0x0a0a),
        hash_provider: &Null,
        confidentiality_limit: 0,
    },
    hkdf_provider: &Null,
    aead_alg: &Null,
    quic: Some(&Null),
};

/// Returns the cipher suite without protection, which is used only for tokens.
pub(super) fn suite() -> Suite {
    Suite { suite: &SUITE, quic: &Null }
}

/// Implements all algorithms of the cipher suite without protection.
#[derive(Clone, Copy)]
struct Null;

impl Hash for Null {
    fn start(&self) -> Box<dyn Context> {
        Box::new(Bytes(Vec::new()))
    }

    fn hash(&self, data: &[u8]) -> Output {
        Output::new(&keyed(&[], data))
    }

    fn output_len(&self) -> usize {
        KEYED_LEN
    }

    fn algorithm(&self) -> HashAlgorithm {
        HashAlgorithm::NONE
    }
}

/// Collects bytes and hashes them at the end.
struct Bytes(Vec<u8>);

impl Context for Bytes {
    fn fork_finish(&self) -> Output {
        Null.hash(&self.0)
    }

    fn fork(&self) -> Box<dyn Context> {
        Box::new(Bytes(self.0.clone()))
    }

    fn finish(self: Box<Self>) -> Output {
        self.fork_finish()
    }

    fn update(&mut self, data: &[u8]) {
        self.0.extend_from_slice(data);
    }
}

impl Hkdf for Null {
    fn extract_from_zero_ikm(&self, salt: Option<&[u8]>) -> Box<dyn HkdfExpander> {
        self.extract_from_secret(salt, &[0; KEYED_LEN])
    }

    fn extract_from_secret(&self, salt: Option<&[u8]>, secret: &[u8]) -> Box<dyn HkdfExpander> {
        Box::new(Expander(keyed(salt.unwrap_or_default(), secret)))
    }

    fn expander_for_okm(&self, okm: &OkmBlock) -> Box<dyn HkdfExpander> {
        Box::new(Expander(keyed(&[], okm.as_ref())))
    }

    fn hmac_sign(&self, key: &OkmBlock, message: &[u8]) -> Tag {
        Tag::new(&keyed(key.as_ref(), message))
    }
}

/// Derives keys from a secret with checksums, in place of HKDF.
struct Expander([u8; KEYED_LEN]);

impl Expander {
    /// Returns the block of derived key material with this number.
    fn block(&self, info: &[&[u8]], number: usize) -> [u8; KEYED_LEN] {
        let mut message = info.concat();
        message.extend_from_slice(&number.to_le_bytes());
        keyed(&self.0, &message)
    }
}

impl HkdfExpander for Expander {
    fn expand_slice(&self, info: &[&[u8]], output: &mut [u8]) -> Result<(), OutputLengthError> {
        for (number, part) in output.chunks_mut(KEYED_LEN).enumerate() {
            let block = self.block(info, number);
            part.iter_mut().zip(block).for_each(|(byte, made)| *byte = made);
        }
        Ok(())
    }

    fn expand_block(&self, info: &[&[u8]]) -> OkmBlock {
        OkmBlock::new(&self.block(info, 0))
    }

    fn hash_len(&self) -> usize {
        KEYED_LEN
    }
}

impl Algorithm for Null {
    fn packet_key(&self, key: AeadKey, _: Iv) -> Box<dyn PacketKey> {
        Box::new(NullKey::of(key.as_ref()))
    }

    fn header_protection_key(&self, _: AeadKey) -> Box<dyn HeaderProtectionKey> {
        Box::new(Bare)
    }

    fn aead_key_len(&self) -> usize {
        KEY_LEN
    }
}

/// As an AEAD for TLS records, the suite rejects everything, because it is for tokens only.
impl Tls13AeadAlgorithm for Null {
    fn encrypter(&self, _: AeadKey, _: Iv) -> Box<dyn MessageEncrypter> {
        Box::new(Null)
    }

    fn decrypter(&self, _: AeadKey, _: Iv) -> Box<dyn MessageDecrypter> {
        Box::new(Null)
    }

    fn key_len(&self) -> usize {
        KEY_LEN
    }

    fn extract_keys(
        &self,
        _: AeadKey,
        _: Iv,
    ) -> Result<ConnectionTrafficSecrets, UnsupportedOperationError> {
        Err(UnsupportedOperationError)
    }
}

impl MessageEncrypter for Null {
    fn encrypt(
        &mut self,
        _: OutboundPlainMessage<'_>,
        _: u64,
    ) -> Result<OutboundOpaqueMessage, Error> {
        Err(Error::EncryptError)
    }

    fn encrypted_payload_len(&self, payload_len: usize) -> usize {
        payload_len
    }
}

impl MessageDecrypter for Null {
    fn decrypt<'a>(
        &mut self,
        _: InboundOpaqueMessage<'a>,
        _: u64,
    ) -> Result<InboundPlainMessage<'a>, Error> {
        Err(Error::DecryptError)
    }
}

#[cfg(test)]
mod tests {
    use rustls::Side;
    use rustls::quic::Version;

    use super::*;

    #[test]
    fn null_crypto_checksum_changes_with_every_byte() {
        let sum = |key: &[u8], message: &[u8]| keyed(key, message);
        let usual = sum(b"key", b"message");
        assert_eq!(usual, sum(b"key", b"message"));
        for other in [sum(b"kez", b"message"), sum(b"key", b"messagf"), sum(b"", b"keymessage")] {
            assert_ne!(usual, other);
        }
        let signed = Null.hmac_sign(&OkmBlock::new(b"key"), b"message");
        assert_eq!(signed.as_ref(), &usual[..]);
        assert_ne!(usual[..16], usual[16..], "the halves of the output differ");
    }

    #[test]
    fn null_crypto_keys_differ() {
        let keys = |id: &[u8]| suite().keys(id, Side::Server, Version::V1);
        let (one, other) = (keys(b"one"), keys(b"two"));
        let mut bytes = b"content".to_vec();
        let tag = one.local.packet.encrypt_in_place(0, b"salt", &mut bytes).unwrap();
        bytes.extend_from_slice(tag.as_ref());
        for (keys, header, opens) in
            [(&one, &b"salt"[..], true), (&one, b"salu", false), (&other, b"salt", false)]
        {
            let mut copy = bytes.clone();
            let opened = keys.local.packet.decrypt_in_place(0, header, &mut copy);
            assert_eq!(opened.is_ok(), opens);
        }
        let back = keys(b"one").remote;
        assert!(
            back.packet.decrypt_in_place(0, b"salt", &mut bytes).is_err(),
            "each direction has its own key"
        );
    }

    /// Even if TLS were configured with this suite, it must not send anything.
    #[test]
    fn null_crypto_cannot_be_used_by_tls() {
        assert!(
            !rustls::crypto::aws_lc_rs::ALL_CIPHER_SUITES
                .iter()
                .any(|known| known.suite() == SUITE.common.suite)
        );
        let (key, iv) = (AeadKey::from([0; 32]), Iv::from([0; 12]));
        let plain = OutboundPlainMessage {
            typ: rustls::ContentType::ApplicationData,
            version: rustls::ProtocolVersion::TLSv1_3,
            payload: rustls::crypto::cipher::OutboundChunks::Single(b"secret"),
        };
        assert!(SUITE.aead_alg.encrypter(key, iv).encrypt(plain, 0).is_err());
    }
}
