//! quinn as an endpoint of the QUIC Interop Runner.

#![forbid(unsafe_code)]

mod client;
mod server;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use interop_contract::Contract;
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use rustls::crypto::aws_lc_rs::{self, cipher_suite};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

const BOTH: [&str; 10] = [
    "handshake",
    "transfer",
    "chacha20",
    "retry",
    "resumption",
    "zerortt",
    "http3",
    "multiconnect",
    "ecn",
    "versionnegotiation",
];

#[tokio::main]
async fn main() -> Result<()> {
    let contract = Contract::read()?;
    let both = |more: &[&'static str]| [&BOTH[..], more].concat();
    contract.require(&both(&["keyupdate", "connectionmigration"]), &both(&["connectionmigration"]));
    let contract = Arc::new(contract);
    if contract.server { server::serve(contract).await } else { client::fetch(&contract).await }
}

/// Returns a provider that offers only ChaCha20-Poly1305 in the case chacha20. Initials are
/// protected by AES in any case (RFC 9001 s.5.2), for which quinn needs a separate suite.
fn provider(contract: &Contract) -> Arc<rustls::crypto::CryptoProvider> {
    let mut provider = aws_lc_rs::default_provider();
    if contract.is("chacha20") {
        provider.cipher_suites = vec![cipher_suite::TLS13_CHACHA20_POLY1305_SHA256];
    }
    Arc::new(provider)
}

fn initial_suite() -> Result<rustls::quic::Suite> {
    let suite = cipher_suite::TLS13_AES_128_GCM_SHA256;
    suite
        .tls13()
        .and_then(|suite| suite.quic_suite())
        .context("the provider does not support AES-128-GCM for QUIC")
}

fn server_tls(contract: &Contract) -> Result<QuicServerConfig> {
    let chain = CertificateDer::pem_file_iter(contract.cert("cert.pem"))?;
    let chain = chain.collect::<Result<Vec<_>, _>>()?;
    let key = PrivateKeyDer::from_pem_file(contract.cert("priv.key"))?;
    let mut tls = rustls::ServerConfig::builder_with_provider(provider(contract))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    tls.alpn_protocols = vec![contract.alpn().to_vec()];
    tls.key_log = Arc::new(rustls::KeyLogFile::new());
    tls.max_early_data_size = if contract.is("zerortt") { u32::MAX } else { 0 };
    Ok(QuicServerConfig::with_initial(Arc::new(tls), initial_suite()?)?)
}

fn client_tls(contract: &Contract) -> Result<QuicClientConfig> {
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(contract.cert("ca.pem"))? {
        roots.add(certificate?)?;
    }
    let mut tls = rustls::ClientConfig::builder_with_provider(provider(contract))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_root_certificates(roots)
        .with_no_client_auth();
    tls.alpn_protocols = vec![contract.alpn().to_vec()];
    tls.key_log = Arc::new(rustls::KeyLogFile::new());
    tls.enable_early_data = contract.is("zerortt");
    Ok(QuicClientConfig::with_initial(Arc::new(tls), initial_suite()?)?)
}

fn transport(contract: &Contract) -> Arc<quinn::TransportConfig> {
    let mut transport = quinn::TransportConfig::default();
    if !contract.server {
        // The runner asks for small initial windows, so that a transfer must enlarge them.
        transport.stream_receive_window((256u32 << 10).into());
        transport.receive_window((512u32 << 10).into());
    }
    transport.max_idle_timeout(Duration::from_secs(30).try_into().ok());
    Arc::new(transport)
}
