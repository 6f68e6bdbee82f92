//! Tests with quinn: the peer's identity, the results of the handshake, and exported keying
//! material.

use std::sync::Arc;

use equic_quic::{ExportError, ServerConfig, TransportConfig};
use rustls::server::WebPkiClientVerifier;

use crate::common::{ALPN, Identity, NAME, client, settings, soon};
use crate::foreign::{quinn_client_with, quinn_server};

const LABEL: &[u8] = b"EXPORTER-test";

/// Returns the TLS configuration of a server that requests the client certificate of `theirs`.
fn asking(identity: &Identity, theirs: &Identity) -> rustls::ServerConfig {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut roots = rustls::RootCertStore::empty();
    roots.add(theirs.certificate.clone()).unwrap();
    let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), Arc::clone(&provider));
    let mut tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_client_cert_verifier(verifier.build().unwrap())
        .with_single_cert(vec![identity.certificate.clone()], identity.key.clone_key())
        .unwrap();
    tls.alpn_protocols = vec![ALPN.to_vec()];
    tls
}

/// Returns the TLS configuration of a client that sends a certificate.
fn showing(server: &Identity, own: &Identity) -> rustls::ClientConfig {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut roots = rustls::RootCertStore::empty();
    roots.add(server.certificate.clone()).unwrap();
    let mut tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_client_auth_cert(vec![own.certificate.clone()], own.key.clone_key())
        .unwrap();
    tls.alpn_protocols = vec![ALPN.to_vec()];
    tls
}

fn exported(
    export: impl FnOnce(&mut [u8]) -> Result<(), ExportError>,
) -> Result<[u8; 32], ExportError> {
    let mut secret = [0; 32];
    export(&mut secret).map(|()| secret)
}

#[tokio::test]
async fn tls_client_certificate_of_quinn() {
    let (ours, theirs) = (Identity::new(), Identity::new());
    for keep_exporter in [true, false] {
        let transport = TransportConfig::default().with_keep_exporter(keep_exporter);
        let config = ServerConfig::new(asking(&ours, &theirs)).with_transport(transport);
        let server = ours.server_with(1, settings(), config);
        let endpoint = quinn_client_with(showing(&ours, &theirs));
        let connecting = endpoint.connect(server.local_addr().unwrap(), NAME).unwrap();
        let incoming = soon("an attempt", server.accept()).await.unwrap();
        let (accepted, connected) =
            soon("connected", async { tokio::join!(incoming.into_future(), connecting) }).await;
        let (accepted, connected) = (accepted.unwrap(), connected.unwrap());
        assert_eq!(accepted.peer_identity(), Some(vec![theirs.certificate.clone()]));
        let agreed = accepted.handshake_data();
        assert_eq!(agreed.protocol.as_deref(), Some(ALPN));
        assert_eq!(agreed.server_name.as_deref(), Some(NAME));
        let ours = exported(|out| accepted.export_keying_material(out, LABEL, b"one"));
        let mut theirs = [0; 32];
        connected.export_keying_material(&mut theirs, LABEL, b"one").unwrap();
        if keep_exporter {
            assert_eq!(ours, Ok(theirs));
            let other = exported(|out| accepted.export_keying_material(out, LABEL, b"other"));
            assert_ne!(other, Ok(theirs));
        } else {
            assert_eq!(ours, Err(ExportError::NotKept));
        }
    }
}

#[tokio::test]
async fn tls_client_certificate_to_quinn() {
    let identity = Identity::new();
    let server = quinn_server(&identity);
    let client = client();
    let config = identity.client();
    let connecting = client.connect_with(&config, server.local_addr().unwrap(), NAME).unwrap();
    let incoming = soon("an attempt", server.accept()).await.unwrap();
    let (accepted, connected) =
        soon("connected", async { tokio::join!(incoming.into_future(), connecting) }).await;
    let (accepted, connected) = (accepted.unwrap(), connected.unwrap());
    assert_eq!(connected.peer_identity(), Some(vec![identity.certificate.clone()]));
    let agreed = connected.handshake_data();
    assert_eq!((agreed.protocol.as_deref(), agreed.server_name), (Some(ALPN), None));
    let mut theirs = [0; 32];
    accepted.export_keying_material(&mut theirs, LABEL, b"").unwrap();
    let ours = exported(|out| connected.export_keying_material(out, LABEL, b""));
    assert_eq!(ours, Ok(theirs));
    let refused = connected.export_keying_material(&mut [], LABEL, b"");
    assert!(matches!(refused, Err(ExportError::Refused(_))), "{refused:?}");
}

/// A client without a certificate has no identity. Before the handshake is complete, neither end
/// has one.
#[tokio::test]
async fn tls_without_a_client_certificate() {
    let identity = Identity::new();
    let server = identity.server(1);
    let address = server.local_addr().unwrap();
    let client = client();
    let connecting = client.connect_with(&identity.client(), address, NAME).unwrap();
    let incoming = soon("an attempt", server.accept()).await.unwrap();
    let Ok(accepted) = incoming.accept().unwrap().into_0rtt() else { panic!("not a server") };
    // The client has not answered yet, because no other task runs at the same time.
    assert_eq!(accepted.peer_identity(), None);
    let early = accepted.export_keying_material(&mut [0; 32], LABEL, b"");
    assert_eq!(early, Err(ExportError::NotConnected));
    let connection = soon("connected", connecting).await.unwrap();
    soon("complete", accepted.handshake()).await.unwrap();
    assert_eq!(accepted.peer_identity(), None);
    assert_eq!(connection.peer_identity().map(|chain| chain.len()), Some(1));
}
