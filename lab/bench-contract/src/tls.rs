//! TLS configurations of stacks that use rustls: one cipher suite, session tickets without server
//! state, and a counter of full handshakes.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use anyhow::{Context as _, Result};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ProducesTickets;
use rustls::{DigitallySignedStruct, KeyLog, SignatureScheme};

use crate::{Cipher, Client, Server, Work};

/// Returns a provider with only one cipher suite. Also requests random numbers once, because AWS-LC
/// gathers entropy for a quarter of a second before the first ones. This must happen before any
/// measurement starts.
fn only(mut provider: CryptoProvider, cipher: Cipher) -> Result<Arc<CryptoProvider>> {
    provider.cipher_suites.retain(|suite| suite.suite() == cipher.suite());
    provider.secure_random.fill(&mut [0; 32]).ok().context("cannot get random numbers")?;
    Ok(Arc::new(provider))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    read.with_context(|| format!("cannot read {}", path.display()))
}

/// Returns the configuration of a server.
pub fn server(
    server: &Server,
    provider: CryptoProvider,
    ticketer: Arc<dyn ProducesTickets>,
    alpn: &[&[u8]],
) -> Result<rustls::ServerConfig> {
    let key = PrivateKeyDer::from_pem_file(&server.key)
        .with_context(|| format!("cannot read {}", server.key.display()))?;
    let provider = only(provider, server.knobs.cipher())?;
    let mut tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_single_cert(certificates(&server.cert)?, key)?;
    tls.ticketer = ticketer;
    tls.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
    if let Some(path) = &server.keylog {
        tls.key_log = Secrets::open(path)?;
    }
    Ok(tls)
}

/// Returns the configuration of a client, and the counter of its full handshakes, that is, of
/// handshakes with a certificate. Tickets are kept only for the workload that needs them.
pub fn client(
    client: &Client,
    provider: CryptoProvider,
    alpn: &[u8],
) -> Result<(rustls::ClientConfig, Arc<AtomicU64>)> {
    let (tls, certificates) = client_behind(client, provider, alpn, |usual| usual)?;
    Ok((tls, certificates.shown))
}

/// Counters of a client's handshakes with a certificate.
#[derive(Clone, Debug)]
pub struct Certificates {
    /// Number of handshakes with a certificate, which are those without resumption.
    pub shown: Arc<AtomicU64>,
    /// Number of these handshakes in which rustls verified the chain.
    pub verified: Arc<AtomicU64>,
}

/// Like [`client`], with another verifier of certificates. The function `verifier` gets the
/// verifier of rustls and returns the one to use instead.
pub fn client_behind(
    client: &Client,
    provider: CryptoProvider,
    alpn: &[u8],
    verifier: impl FnOnce(Arc<dyn ServerCertVerifier>) -> Arc<dyn ServerCertVerifier>,
) -> Result<(rustls::ClientConfig, Certificates)> {
    let mut roots = rustls::RootCertStore::empty();
    for certificate in certificates(&client.ca)? {
        roots.add(certificate)?;
    }
    let provider = only(provider, client.knobs.cipher())?;
    let inner = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
        .build()?;
    let counts = Certificates { shown: Arc::default(), verified: Arc::default() };
    let asked = Arc::new(Counting { inner, count: Arc::clone(&counts.verified) });
    let verifier = Arc::new(Counting { inner: verifier(asked), count: Arc::clone(&counts.shown) });
    let mut tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    tls.alpn_protocols = vec![alpn.to_vec()];
    if !matches!(client.work, Work::Handshakes { resume: true, .. }) {
        tls.resumption = rustls::client::Resumption::disabled();
    }
    if let Some(path) = &client.keylog {
        tls.key_log = Secrets::open(path)?;
    }
    Ok((tls, counts))
}

/// A file for TLS secrets in the format of SSLKEYLOGFILE (RFC 9850).
#[derive(Debug)]
struct Secrets(Mutex<File>);

impl Secrets {
    fn open(path: &Path) -> Result<Arc<dyn KeyLog>> {
        let file = File::options().create(true).append(true).open(path);
        let file = file.with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Arc::new(Secrets(Mutex::new(file))))
    }
}

impl KeyLog for Secrets {
    fn log(&self, label: &str, random: &[u8], secret: &[u8]) {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let line = format!("{label} {} {}\n", hex(random), hex(secret));
        if let Ok(mut file) = self.0.lock()
            && let Err(error) = file.write_all(line.as_bytes())
        {
            eprintln!("the key log: {error}");
        }
    }
}

/// A verifier of certificates that counts its calls. A resumed handshake has no certificate (RFC
/// 8446 s.2.2).
#[derive(Debug)]
struct Counting {
    inner: Arc<dyn ServerCertVerifier>,
    count: Arc<AtomicU64>,
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
        self.count.fetch_add(1, Ordering::Relaxed);
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
