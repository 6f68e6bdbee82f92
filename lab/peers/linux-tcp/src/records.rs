//! TLS 1.3 records (RFC 8446 s.5.2) encrypted by BoringSSL's AES-GCM, in rustls's provider for
//! AWS-LC. Our QUIC packets use the same cryptography, so that the comparison with TCP is fair.

use std::sync::LazyLock;

use equic_boringssl::{AesGcm, TAG_LEN};
use rustls::crypto::cipher::{
    AeadKey, InboundOpaqueMessage, InboundPlainMessage, Iv, MessageDecrypter, MessageEncrypter,
    Nonce, OutboundOpaqueMessage, OutboundPlainMessage, PrefixedPayload, Tls13AeadAlgorithm,
    UnsupportedOperationError, make_tls13_aad,
};
use rustls::crypto::{CryptoProvider, aws_lc_rs, aws_lc_rs::cipher_suite};
use rustls::{
    CipherSuiteCommon, ConnectionTrafficSecrets, ContentType, Error, ProtocolVersion,
    SupportedCipherSuite, Tls13CipherSuite,
};

/// Returns rustls's provider for AWS-LC, with AES-GCM records by BoringSSL.
pub(crate) fn provider() -> CryptoProvider {
    let mut provider = aws_lc_rs::default_provider();
    for suite in &mut provider.cipher_suites {
        if let Some(ours) = SUITES.iter().find(|ours| ours.common.suite == suite.suite()) {
            *suite = SupportedCipherSuite::Tls13(ours);
        }
    }
    provider
}

static SUITES: LazyLock<Vec<Tls13CipherSuite>> = LazyLock::new(|| {
    let suites = [
        (cipher_suite::TLS13_AES_128_GCM_SHA256, &Records(16)),
        (cipher_suite::TLS13_AES_256_GCM_SHA384, &Records(32)),
    ];
    let ours = |(suite, records): (SupportedCipherSuite, &'static Records)| {
        let suite = suite.tls13()?;
        let common = CipherSuiteCommon { ..suite.common };
        Some(Tls13CipherSuite { common, aead_alg: records, quic: None, ..*suite })
    };
    suites.into_iter().filter_map(ours).collect()
});

/// AES-GCM with keys of this length, in bytes.
struct Records(usize);

impl Tls13AeadAlgorithm for Records {
    fn encrypter(&self, key: AeadKey, iv: Iv) -> Box<dyn MessageEncrypter> {
        Box::new(Direction { key: AesGcm::new(&key.as_ref()[..self.0]), iv })
    }

    fn decrypter(&self, key: AeadKey, iv: Iv) -> Box<dyn MessageDecrypter> {
        Box::new(Direction { key: AesGcm::new(&key.as_ref()[..self.0]), iv })
    }

    fn key_len(&self) -> usize {
        self.0
    }

    fn extract_keys(
        &self,
        _: AeadKey,
        _: Iv,
    ) -> Result<ConnectionTrafficSecrets, UnsupportedOperationError> {
        Err(UnsupportedOperationError)
    }
}

/// Encrypts or decrypts the records of one direction. Without a key (if memory ran out) it fails
/// for every record.
struct Direction {
    key: Option<AesGcm>,
    iv: Iv,
}

impl MessageEncrypter for Direction {
    fn encrypt(
        &mut self,
        message: OutboundPlainMessage<'_>,
        number: u64,
    ) -> Result<OutboundOpaqueMessage, Error> {
        let length = self.encrypted_payload_len(message.payload.len());
        let mut payload = PrefixedPayload::with_capacity(length);
        payload.extend_from_chunks(&message.payload);
        payload.extend_from_slice(&message.typ.to_array());
        let (nonce, aad) = (Nonce::new(&self.iv, number), make_tls13_aad(length));
        let key = self.key.as_ref().ok_or(Error::EncryptError)?;
        let tag = key.seal_in_place(&nonce.0, &aad, payload.as_mut()).ok_or(Error::EncryptError)?;
        payload.extend_from_slice(&tag);
        let (kind, version) = (ContentType::ApplicationData, ProtocolVersion::TLSv1_2);
        Ok(OutboundOpaqueMessage::new(kind, version, payload))
    }

    fn encrypted_payload_len(&self, payload_len: usize) -> usize {
        // The additional byte is the content type of the record.
        payload_len + 1 + TAG_LEN
    }
}

impl MessageDecrypter for Direction {
    fn decrypt<'a>(
        &mut self,
        mut message: InboundOpaqueMessage<'a>,
        number: u64,
    ) -> Result<InboundPlainMessage<'a>, Error> {
        let payload = &mut message.payload;
        let (nonce, aad) = (Nonce::new(&self.iv, number), make_tls13_aad(payload.len()));
        let key = self.key.as_ref().ok_or(Error::DecryptError)?;
        let (data, tag) = payload.split_last_chunk_mut::<TAG_LEN>().ok_or(Error::DecryptError)?;
        let (opened, length) = (key.open_in_place(&nonce.0, &aad, data, tag), data.len());
        if !opened {
            return Err(Error::DecryptError);
        }
        payload.truncate(length);
        message.into_tls13_unpadded_message()
    }
}
