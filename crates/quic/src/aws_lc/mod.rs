//! rustls's AWS-LC provider, with packet keys that take less time for each packet: see
//! docs/notebook/performance.md.
//!
//! The keys compute the same as rustls's keys (RFC 9001 s.5.3, RFC 10069 s.2.4). The tests compare
//! them. They call the same functions of AWS-LC. With the feature `boringssl`, they call
//! BoringSSL's functions for AES-GCM.
//!
//! The keys write a nonce in the two pieces in which these functions read it. If a CPU reads bytes
//! that it has just stored in different pieces, the read waits until all earlier stores are in the
//! cache (a failed store-to-load forwarding). Those stores are the data of the last packet.
//!
//! * `mod.rs`: the provider; `key.rs`: a key.
//!
//! Keys can also decrypt into the memory from which the application reads
//! (`equic_transport::crypto::PacketKey`). rustls's trait has no function for that. Therefore a key
//! for rustls passes a `PacketKey` to the connection in the error for an empty payload.

mod key;

use std::sync::LazyLock;

use aws_lc_rs::aead::{AES_128_GCM, AES_256_GCM, CHACHA20_POLY1305, LessSafeKey, UnboundKey};
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::{cipher_suite, default_provider};
use rustls::crypto::cipher::{AeadKey, Iv};
use rustls::quic::{Algorithm, HeaderProtectionKey, PacketKey};
use rustls::{CipherSuiteCommon, SupportedCipherSuite, Tls13CipherSuite};

use self::key::SharedKey;

/// Returns rustls's AWS-LC crypto provider with faster keys for QUIC packets. Otherwise it is the
/// same as [`rustls::crypto::aws_lc_rs::default_provider`]. It is not for FIPS, and reports that.
///
/// With the feature `boringssl`, BoringSSL encrypts and decrypts packets with AES-GCM on x86-64,
/// which takes less time there. AWS-LC does everything else.
pub fn aws_lc_provider() -> CryptoProvider {
    let mut provider = default_provider();
    for suite in &mut provider.cipher_suites {
        if let Some(ours) = SUITES.iter().find(|ours| ours.common.suite == suite.suite()) {
            *suite = SupportedCipherSuite::Tls13(ours);
        }
    }
    provider
}

/// Names of the libraries behind [`aws_lc_provider`] in this build. The value is `AWS-LC`, or
/// `AWS-LC, packets: BoringSSL` with the feature `boringssl` on x86-64.
pub const AWS_LC_PROVIDER_LIBRARIES: &str =
    if cfg!(all(feature = "boringssl", target_arch = "x86_64")) {
        "AWS-LC, packets: BoringSSL"
    } else {
        "AWS-LC"
    };

/// The cipher suites with this module's packet keys.
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

/// Creates keys of one algorithm.
struct Keys {
    algorithm: &'static aws_lc_rs::aead::Algorithm,
    /// rustls's implementation, which creates the header protection keys.
    rustls: &'static dyn Algorithm,
}

impl Keys {
    fn of(
        suite: SupportedCipherSuite,
        algorithm: &'static aws_lc_rs::aead::Algorithm,
    ) -> Option<Keys> {
        Some(Keys { algorithm, rustls: suite.tls13()?.quic? })
    }

    /// Creates a packet key. Returns `None` if the key has the wrong length. rustls never passes
    /// such a key, because it uses `aead_key_len`.
    fn make(&self, key: &[u8], iv: &Iv) -> Option<Made> {
        #[cfg(all(feature = "boringssl", target_arch = "x86_64"))]
        if let Some(cipher) = boringssl(self.algorithm, key) {
            return Some(Made::BoringSsl(SharedKey::new(cipher, iv)));
        }
        let key = UnboundKey::new(self.algorithm, key).ok()?;
        Some(Made::AwsLc(SharedKey::new(LessSafeKey::new(key), iv)))
    }
}

/// A packet key of one of the two libraries.
enum Made {
    AwsLc(SharedKey<LessSafeKey>),
    #[cfg(all(feature = "boringssl", target_arch = "x86_64"))]
    BoringSsl(SharedKey<equic_boringssl::AesGcm>),
}

impl Algorithm for Keys {
    fn packet_key(&self, key: AeadKey, iv: Iv) -> Box<dyn PacketKey> {
        match self.make(key.as_ref(), &iv) {
            Some(Made::AwsLc(key)) => Box::new(key),
            #[cfg(all(feature = "boringssl", target_arch = "x86_64"))]
            Some(Made::BoringSsl(key)) => Box::new(key),
            None => self.rustls.packet_key(key, iv),
        }
    }

    fn header_protection_key(&self, key: AeadKey) -> Box<dyn HeaderProtectionKey> {
        self.rustls.header_protection_key(key)
    }

    fn aead_key_len(&self) -> usize {
        self.rustls.aead_key_len()
    }

    fn fips(&self) -> bool {
        // The function of AWS-LC's Rust interface that decrypts here is not approved for FIPS.
        false
    }
}

/// Creates BoringSSL's AES-GCM. Returns `None` for another algorithm or if the key has the wrong
/// length.
#[cfg(all(feature = "boringssl", target_arch = "x86_64"))]
fn boringssl(
    algorithm: &aws_lc_rs::aead::Algorithm,
    key: &[u8],
) -> Option<equic_boringssl::AesGcm> {
    let is_gcm = [&AES_128_GCM, &AES_256_GCM].contains(&algorithm);
    let fits = is_gcm && key.len() == algorithm.key_len();
    fits.then(|| equic_boringssl::AesGcm::new(key)).flatten()
}

#[cfg(test)]
mod tests;
