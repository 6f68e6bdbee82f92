//! TLS of the stacks that use rustls: TLS_AES_128_GCM_SHA256 only, tickets that cost the server no
//! memory, and a count of full handshakes.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context as _, Result};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ProducesTickets;
use rustls::{CipherSuite, DigitallySignedStruct, SignatureScheme};

use crate::Server;

/// The provider with nothing but TLS_AES_128_GCM_SHA256.
fn only_aes_128(mut provider: CryptoProvider) -> Arc<CryptoProvider> {
    provider.cipher_suites.retain(|suite| suite.suite() == CipherSuite::TLS13_AES_128_GCM_SHA256);
    Arc::new(provider)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    read.with_context(|| format!("cannot read {}", path.display()))
}

pub fn server(
    server: &Server,
    provider: CryptoProvider,
    ticketer: Arc<dyn ProducesTickets>,
    alpn: &[&[u8]],
) -> Result<rustls::ServerConfig> {
    let key = PrivateKeyDer::from_pem_file(&server.key)
        .with_context(|| format!("cannot read {}", server.key.display()))?;
    let mut tls = rustls::ServerConfig::builder_with_provider(only_aes_128(provider))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_single_cert(certificates(&server.cert)?, key)?;
    tls.ticketer = ticketer;
    tls.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
    Ok(tls)
}

/// A client's, and how many handshakes were full: their certificate was looked at.
pub fn client(
    ca: &Path,
    provider: CryptoProvider,
    alpn: &[u8],
) -> Result<(rustls::ClientConfig, Arc<AtomicU64>)> {
    let mut roots = rustls::RootCertStore::empty();
    for certificate in certificates(ca)? {
        roots.add(certificate)?;
    }
    let provider = only_aes_128(provider);
    let inner = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
        .build()?;
    let full = Arc::new(AtomicU64::new(0));
    let verifier = Arc::new(Counting { inner, full: Arc::clone(&full) });
    let mut tls = rustls::ClientConfig::builder_with_provider(provider)
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
