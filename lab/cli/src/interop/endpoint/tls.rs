//! TLS and QUIC configurations of the interop endpoint's client and server.

use std::net::SocketAddr;
use std::sync::Arc;

use equic_plugin::exchange::ExchangeConfig;
use equic_quic::{
    ClientConfig, EndpointConfig, PreferredAddresses, Scheduler, ServerConfig, TransportConfig,
    aws_lc_provider,
};
use equic_wire::KnownVersion;
use rustls::CipherSuite;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::Contract;
use crate::exchange::attach;
use crate::failure::{Failure, Result};

/// Returns the cryptography provider. In the test case `chacha20`, its only cipher suite is
/// ChaCha20-Poly1305.
fn provider(contract: &Contract) -> Arc<CryptoProvider> {
    let mut provider = aws_lc_provider();
    if contract.is("chacha20") {
        let chacha20 = CipherSuite::TLS13_CHACHA20_POLY1305_SHA256;
        provider.cipher_suites.retain(|suite| suite.suite() == chacha20);
    }
    Arc::new(provider)
}

fn transport(contract: &Contract) -> Arc<TransportConfig> {
    let mut transport = TransportConfig::default();
    if contract.is("v2") {
        transport.versions = vec![KnownVersion::V2, KnownVersion::V1];
        transport.first_version = Some(KnownVersion::V1);
    }
    if contract.is("multipath") {
        transport.max_paths = 4;
        // Send the same share of packets on every path, regardless of its round-trip time.
        transport.scheduler = Scheduler::RoundRobin;
    }
    transport.first_unknown = contract.is("versionnegotiation");
    transport.extra_parameters.extend(contract.exchange.as_ref().map(ExchangeConfig::parameter));
    Arc::new(transport)
}

pub(super) fn settings(contract: &Contract) -> Result<EndpointConfig> {
    let settings = EndpointConfig::new(&aws_lc_provider())?;
    Ok(settings.with_qlog(contract.qlog.clone()))
}

fn certificates(contract: &Contract, file: &str) -> Result<Vec<CertificateDer<'static>>> {
    let path = contract.certs.join(file);
    let wrong = |error| Failure::because(path.display(), error);
    let read = CertificateDer::pem_file_iter(&path).map_err(wrong)?;
    read.collect::<Result<_, _>>().map_err(wrong)
}

pub(super) fn server(contract: &Contract) -> Result<ServerConfig> {
    let path = contract.certs.join("priv.key");
    let key = PrivateKeyDer::from_pem_file(&path)
        .map_err(|error| Failure::because(path.display(), error))?;
    let mut tls = rustls::ServerConfig::builder_with_provider(provider(contract))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_single_cert(certificates(contract, "cert.pem")?, key)?;
    tls.alpn_protocols = vec![contract.alpn().to_vec()];
    tls.key_log = Arc::new(rustls::KeyLogFile::new());
    if contract.is("zerortt") {
        // RFC 9001 s.4.6.1 permits only this value and zero.
        tls.max_early_data_size = u32::MAX;
    }
    let mut config = ServerConfig::new(tls).with_transport(transport(contract));
    if let Some(exchange) = contract.exchange.clone() {
        config = config.with_hooks(move |connection| attach(exchange.clone(), connection));
    }
    config.preferred_addresses = contract.preferred.map(|address| match address {
        SocketAddr::V4(address) => PreferredAddresses { ipv4: Some(address), ipv6: None },
        SocketAddr::V6(address) => PreferredAddresses { ipv4: None, ipv6: Some(address) },
    });
    Ok(config)
}

pub(super) fn client(contract: &Contract) -> Result<ClientConfig> {
    let mut roots = rustls::RootCertStore::empty();
    for certificate in certificates(contract, "ca.pem")? {
        roots.add(certificate)?;
    }
    let mut tls = rustls::ClientConfig::builder_with_provider(provider(contract))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_root_certificates(roots)
        .with_no_client_auth();
    tls.alpn_protocols = vec![contract.alpn().to_vec()];
    tls.key_log = Arc::new(rustls::KeyLogFile::new());
    tls.enable_early_data = contract.is("zerortt");
    let config = ClientConfig::new(tls).with_transport(transport(contract));
    Ok(match contract.exchange.clone() {
        Some(exchange) => config.with_hooks(move |connection| attach(exchange.clone(), connection)),
        None => config,
    })
}
