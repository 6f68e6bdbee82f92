//! Makes TLS configurations from certificates and a [`Trust`]. They use TLS 1.3 and ALPN `h3` only,
//! and 0-RTT if it is enabled. `certificate` generates and reads certificates.

mod certificate;

use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use equic_quic::EndpointConfig;
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ServerSessionMemoryCache;
use rustls::{DigitallySignedStruct, RootCertStore, SignatureScheme};

use certificate::read_certificates;
pub use certificate::{CERTIFICATE_FILE, CertificateError, Fingerprint, Identity, KEY_FILE};

const ALPN: &[u8] = b"h3";

/// Which servers a client trusts, by their certificates.
#[derive(Clone, Debug, Default)]
pub enum Trust {
    /// Trusts servers with a certificate from a root that the system trusts.
    #[default]
    System,
    /// Trusts servers whose certificate is in this PEM file, or was issued by a CA in it.
    Ca(PathBuf),
    /// Trusts only the server that presents exactly this certificate. The names and the validity
    /// period in the certificate do not matter.
    Fingerprint(Fingerprint),
    /// Trusts any server. The server must still hold the key of its certificate.
    Insecure,
}

/// A file that TLS secrets are appended to, in the NSS format (draft-ietf-tls-keylogfile). Anyone
/// who can read the file can decrypt the connections. Clones write to the same file.
#[derive(Clone, Debug)]
pub struct KeyLog(Arc<Mutex<File>>);

impl KeyLog {
    /// Opens or creates the file. Only its owner can read a file that this function creates.
    ///
    /// # Errors
    /// Returns the system's error if the file cannot be opened or created.
    pub fn open(path: &Path) -> std::io::Result<KeyLog> {
        let file = File::options().create(true).append(true).mode(0o600).open(path)?;
        Ok(KeyLog(Arc::new(Mutex::new(file))))
    }
}

impl rustls::KeyLog for KeyLog {
    fn log(&self, label: &str, client_random: &[u8], secret: &[u8]) {
        let mut line = format!("{label} ");
        let hex = |line: &mut String, bytes: &[u8]| {
            bytes.iter().for_each(|byte| line.push_str(&format!("{byte:02x}")));
        };
        hex(&mut line, client_random);
        line.push(' ');
        hex(&mut line, secret);
        line.push('\n');
        let mut file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = file.write_all(line.as_bytes()) {
            tracing::warn!(%error, "cannot write to the key log");
        }
    }
}

/// Returns the crypto provider of servers and clients of this crate: AWS-LC
/// (docs/decisions/0018-aws-lc.md).
pub fn crypto_provider() -> CryptoProvider {
    equic_quic::aws_lc_provider()
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(crypto_provider())
}

fn unusable(error: impl std::fmt::Display) -> CertificateError {
    CertificateError::Unusable(error.to_string())
}

/// Returns the settings of a QUIC endpoint that uses [`crypto_provider`].
pub(crate) fn endpoint() -> Result<EndpointConfig, CertificateError> {
    EndpointConfig::new(&provider()).map_err(unusable)
}

/// Number of sessions that a server with 0-RTT remembers. Each takes less than a kilobyte. The
/// oldest ones are removed first.
const SESSIONS: usize = 8192;

/// Returns the TLS configuration of a server. `early` permits 0-RTT. Each ticket then identifies a
/// session that the server stores. The session is removed when it is used, so that no early data is
/// accepted twice (RFC 8446 s.8.1).
pub(crate) fn server(
    identity: &Identity,
    early: bool,
) -> Result<rustls::ServerConfig, CertificateError> {
    let mut config = rustls::ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(unusable)?
        .with_no_client_auth()
        .with_single_cert(identity.chain.clone(), identity.key.clone_key())
        .map_err(unusable)?;
    config.alpn_protocols = vec![ALPN.to_vec()];
    if early {
        config.session_storage = ServerSessionMemoryCache::new(SESSIONS);
    }
    // RFC 9001 s.4.6.1: QUIC permits no values other than these two.
    config.max_early_data_size = if early { u32::MAX } else { 0 };
    Ok(config)
}

/// Returns the TLS configuration of a client, without session resumption. Every connection then
/// makes a full handshake, so that all connections cost the server the same and can be compared.
pub(crate) fn client(trust: &Trust) -> Result<rustls::ClientConfig, CertificateError> {
    let provider = provider();
    let builder = rustls::ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(unusable)?;
    let pinned = match trust {
        Trust::System | Trust::Ca(_) => None,
        Trust::Fingerprint(fingerprint) => Some(Pinned { pin: Some(*fingerprint), provider }),
        Trust::Insecure => Some(Pinned { pin: None, provider }),
    };
    let mut config = match pinned {
        Some(pinned) => builder.dangerous().with_custom_certificate_verifier(Arc::new(pinned)),
        None => builder.with_root_certificates(roots(trust)?),
    }
    .with_no_client_auth();
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.resumption = Resumption::disabled();
    config.enable_early_data = false;
    Ok(config)
}

fn roots(trust: &Trust) -> Result<RootCertStore, CertificateError> {
    let mut roots = RootCertStore::empty();
    match trust {
        Trust::Ca(path) => {
            for certificate in read_certificates(path)? {
                roots.add(certificate).map_err(|e| CertificateError::Pem {
                    what: "usable certificate",
                    path: path.clone(),
                    reason: e.to_string(),
                })?;
            }
        }
        // This error is ignored, because system stores contain a few roots that no library can
        // parse. If there is no usable root, the handshake fails.
        _ => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    Ok(roots)
}

/// The server's certificate is not the pinned one.
#[derive(Debug, thiserror::Error)]
#[error(
    "{WRONG_FINGERPRINT} {actual}, not the pinned {pin}: if the server has a new certificate, use `--pin` with the fingerprint that the server prints"
)]
struct WrongFingerprint {
    pin: Fingerprint,
    actual: Fingerprint,
}

/// Beginning of the message of [`WrongFingerprint`].
pub(crate) const WRONG_FINGERPRINT: &str = "its fingerprint is";

/// Accepts either one certificate, by its fingerprint, or any certificate. In both cases, checks
/// that the server holds the key.
#[derive(Debug)]
struct Pinned {
    pin: Option<Fingerprint>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        match self.pin {
            Some(pin) if pin != Fingerprint::of(end_entity) => {
                let error = WrongFingerprint { pin, actual: Fingerprint::of(end_entity) };
                let error = rustls::OtherError(Arc::new(error));
                Err(rustls::CertificateError::Other(error).into())
            }
            _ => Ok(ServerCertVerified::assertion()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
