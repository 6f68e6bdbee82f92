//! TLS_AES_128_GCM_SHA256 only, tickets that cost the server no memory, and a count of full handshakes.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{CipherSuite, DigitallySignedStruct, SignatureScheme};

use super::{H3, PERF};
use crate::failure::{Done, Failure};

fn provider() -> Arc<CryptoProvider> {
    let mut provider = aws_lc_rs::default_provider();
    provider.cipher_suites.retain(|suite| suite.suite() == CipherSuite::TLS13_AES_128_GCM_SHA256);
    Arc::new(provider)
}

fn certificates(path: &Path) -> Done<Vec<CertificateDer<'static>>> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    read.map_err(|error| Failure::because(format_args!("cannot read {}", path.display()), error))
}

/// A server's, for both protocols.
pub fn server(cert: &Path, key: &Path) -> Done<rustls::ServerConfig> {
    let private = PrivateKeyDer::from_pem_file(key)
        .map_err(|error| Failure::because(format_args!("cannot read {}", key.display()), error))?;
    let mut tls = rustls::ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_single_cert(certificates(cert)?, private)?;
    tls.ticketer = aws_lc_rs::Ticketer::new()?;
    tls.alpn_protocols = vec![PERF.to_vec(), H3.to_vec()];
    Ok(tls)
}

/// A client's, and how many handshakes were full: their certificate was looked at.
pub fn client(ca: &Path, alpn: &[u8]) -> Done<(rustls::ClientConfig, Arc<AtomicU64>)> {
    let mut roots = rustls::RootCertStore::empty();
    for certificate in certificates(ca)? {
        roots.add(certificate)?;
    }
    let inner = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider()).build()?;
    let full = Arc::new(AtomicU64::new(0));
    let verifier = Arc::new(Counting { inner, full: Arc::clone(&full) });
    let mut tls = rustls::ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    tls.alpn_protocols = vec![alpn.to_vec()];
    Ok((tls, full))
}

/// The usual verifier, which counts: a resumed handshake has no certificate (RFC 8446 s.2.2).
#[derive(Debug)]
struct Counting {
    inner: Arc<WebPkiServerVerifier>,
    full: Arc<AtomicU64>,
}

impl ServerCertVerifier for Counting {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.full.fetch_add(1, Ordering::Relaxed);
        self.inner.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.inner.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.inner.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}
