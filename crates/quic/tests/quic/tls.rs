//! Tests of TLS options: post-quantum key exchange, compressed certificates.

use std::sync::Arc;

use equic_quic::{ClientConfig, ConfigError, ServerConfig, prefer_post_quantum};
use rustls::NamedGroup;
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::{default_provider, kx_group, sign};
use rustls::sign::{CertifiedKey, SingleCertAndKey};

use crate::common::{ALPN, Identity, NAME, client, connect, echo, settings};

#[test]
fn tls_post_quantum_key_exchange_comes_first() {
    let usual = default_provider();
    let preferred = prefer_post_quantum(&usual).unwrap();
    let names = |provider: &CryptoProvider| -> Vec<NamedGroup> {
        provider.kx_groups.iter().map(|group| group.name()).collect()
    };
    let mut rest = names(&usual);
    rest.retain(|&name| name != NamedGroup::X25519MLKEM768);
    assert_eq!(names(&preferred)[0], NamedGroup::X25519MLKEM768);
    assert_eq!(names(&preferred)[1..], rest);
    // A second call changes nothing.
    assert_eq!(names(&prefer_post_quantum(&preferred).unwrap()), names(&preferred));
    let without = CryptoProvider { kx_groups: vec![kx_group::X25519], ..usual };
    assert_eq!(prefer_post_quantum(&without).err(), Some(ConfigError::NoPostQuantum));
}

#[tokio::test]
async fn tls_post_quantum_key_exchange_with_a_default_server() {
    let identity = Identity::new();
    let server = identity.server(1);
    echo(server.clone());
    let mut provider = prefer_post_quantum(&default_provider()).unwrap();
    // The client offers only this group.
    provider.kx_groups.truncate(1);
    let config = ClientConfig::new(identity.client_tls_by(provider));
    connect(&client(), &config, &server).await;
}

/// A remembered chain does not prove that the server has its private key.
#[tokio::test]
async fn tls_remembered_certificate_needs_its_key() {
    let identity = Identity::new();
    let server = identity.server(1);
    echo(server.clone());
    let mut roots = rustls::RootCertStore::empty();
    roots.add(identity.certificate.clone()).unwrap();
    let config = ClientConfig::with_root_certificates(roots).unwrap().with_alpn(&[ALPN]);
    let mut tls = (*config.tls).clone();
    // Without resumption, the server sends its certificate in each handshake.
    tls.resumption = rustls::client::Resumption::disabled();
    let config = ClientConfig::new(tls);
    for _ in 0..3 {
        connect(&client(), &config, &server).await;
    }
    let mut tls = identity.server_tls();
    let other = sign::any_supported_type(&Identity::new().key).unwrap();
    let stolen = CertifiedKey::new(vec![identity.certificate.clone()], other);
    tls.cert_resolver = Arc::new(SingleCertAndKey::from(stolen));
    let impostor = identity.server_with(1, settings(), ServerConfig::new(tls));
    echo(impostor.clone());
    let address = impostor.local_addr().unwrap();
    let refused = client().connect_with(&config, address, NAME).unwrap().await;
    let error = refused.map(drop).unwrap_err().to_string();
    assert!(error.contains("BadSignature"), "{error}");
    connect(&client(), &config, &server).await;
}

/// A certificate with many similar names compresses well.
#[cfg(feature = "cert-compression")]
#[tokio::test]
async fn tls_compressed_certificate_takes_fewer_bytes() {
    use rustls::pki_types::PrivateKeyDer;

    let names = (0..500).map(|index| format!("host-{index}.{NAME}"));
    let made =
        rcgen::generate_simple_self_signed(names.chain([NAME.to_owned()]).collect::<Vec<String>>())
            .unwrap();
    let identity = Identity {
        certificate: made.cert.der().clone(),
        key: PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap(),
    };
    let server = identity.server(1);
    echo(server.clone());
    let mut received = Vec::new();
    for compressed in [false, true] {
        let mut tls = identity.client_tls_by(default_provider());
        if !compressed {
            tls.cert_decompressors.clear();
        }
        let connection = connect(&client(), &ClientConfig::new(tls), &server).await;
        received.push(connection.stats().bytes_received);
    }
    let certificate = identity.certificate.len() as u64;
    assert!(certificate > 10_000, "{certificate} bytes");
    assert!(received[0] > certificate, "plain: {received:?}");
    assert!(received[1] < certificate, "compressed: {received:?}");
}
