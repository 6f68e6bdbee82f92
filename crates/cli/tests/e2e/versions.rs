//! Tests of clients that use QUIC versions that a service does not support. The gateway must answer
//! with the supported versions, and nothing may reach the server.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;

use equic_quic::TransportConfig;
use rustls::RootCertStore;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use tokio::time::timeout;

use crate::common::PATIENCE;
use crate::stage::{Host, TestStage};

/// Draft 29 of RFC 9000. quinn still supports this version, eQUIC's own stack does not.
const DRAFT_29: u32 = 0xff00_001d;

fn tls(roots: RootCertStore) -> rustls::ClientConfig {
    let mut tls = rustls::ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("TLS 1.3")
        .with_root_certificates(roots)
        .with_no_client_auth();
    tls.alpn_protocols = vec![b"h3".to_vec()];
    tls
}

/// Makes one connection attempt with quinn, which starts with draft 29 and also supports version 1.
/// Returns why the attempt ended.
fn attempt_by_quinn(host: &Host, address: IpAddr, server: SocketAddr) -> quinn::ConnectionError {
    host.run(async move {
        let crypto = quinn::crypto::rustls::QuicClientConfig::try_from(tls(RootCertStore::empty()));
        let mut config = quinn::ClientConfig::new(Arc::new(crypto.expect("TLS 1.3")));
        config.version(DRAFT_29);
        let mut speaks = quinn::EndpointConfig::default();
        speaks.supported_versions(vec![DRAFT_29, 1]);
        let socket = UdpSocket::bind((address, 0)).expect("a socket");
        let runtime = Arc::new(quinn::TokioRuntime);
        let endpoint = quinn::Endpoint::new(speaks, None, socket, runtime).expect("an endpoint");
        let connecting = endpoint.connect_with(config, server, "localhost").expect("an attempt");
        let ended = timeout(PATIENCE, connecting).await.expect("it is told something");
        ended.expect_err("nobody speaks draft 29")
    })
}

/// Sends a packet with a short header, and returns the datagrams that arrived at the server's
/// socket before this packet.
fn seen_so_far(
    host: &Host,
    address: IpAddr,
    server: SocketAddr,
    socket: &UdpSocket,
) -> Vec<Vec<u8>> {
    const LAST: [u8; 30] = [0x41; 30];
    host.run(async move {
        let socket = UdpSocket::bind((address, 0)).expect("a socket");
        socket.send_to(&LAST, server).expect("it is sent");
    });
    let mut buffer = [0; 2000];
    let datagrams = std::iter::from_fn(|| {
        let length = socket.recv(&mut buffer).expect("the last one comes");
        Some(buffer[..length].to_vec()).filter(|datagram| *datagram != LAST)
    });
    datagrams.collect()
}

#[test]
fn version_that_is_unknown_never_reaches_the_server() {
    let Some(stage) = TestStage::new("versions", 1) else { return };
    // On a veth interface, answers of an XDP program only arrive in generic mode, or if the other
    // end has a program, too.
    let _gateway =
        stage.gateway(&["-o", "version_negotiation=true", "-o", "versions=1", "--mode", "generic"]);
    let socket = stage.lab.server().run(|| UdpSocket::bind("[::]:443")).expect("inside");
    let socket = socket.expect("a socket");
    socket.set_read_timeout(Some(PATIENCE)).expect("a time");
    let host = stage.host(0);
    for (number, address) in (1..).zip([host.v4(), host.v6()]) {
        let server = stage.target(address);
        let ended = attempt_by_quinn(host, address, server);
        assert!(matches!(ended, quinn::ConnectionError::VersionMismatch), "{ended}");
        let told = stage.verdict("version_negotiation_sent");
        assert!(told.packets >= number && told.answered == told.packets, "{told:?}");
        assert_eq!(seen_so_far(host, address, server, &socket), Vec::<Vec<u8>>::new());
        assert_eq!(stage.verdict("new_version").packets, 0);
    }
    let counted: Vec<_> =
        stage.source(host.v4()).iter().map(|row| row["packets"].clone()).collect();
    assert_eq!(counted, [1], "one short header packet, and no answered one");

    // If the setting is disabled, the gateway must pass the packet, because the server must answer.
    stage.set("version_negotiation=false");
    let server = stage.target(host.v4());
    host.run(async move {
        let mut packet = vec![0xc0, 0xff, 0, 0, 0x1d, 8, 1, 2, 3, 4, 5, 6, 7, 8, 0];
        packet.resize(1200, 0);
        let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
        socket.send_to(&packet, server).expect("it is sent");
    });
    let mut buffer = [0; 2000];
    assert_eq!(socket.recv(&mut buffer).expect("it comes"), 1200);
    assert_eq!(stage.verdict("new_version").packets, 1);
}

/// A client that gets a Version Negotiation packet must connect to the server behind the gateway,
/// with a version that the packet offers.
#[test]
fn version_negotiation_leads_to_an_offered_version() {
    let Some(stage) = TestStage::new("fallback", 1) else { return };
    let _gateway = stage.gateway(&["-o", "version_negotiation=true", "--mode", "generic"]);
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().to_str().expect("UTF-8");
    let _server = stage.serve(&["--cert-dir", path, "--cert-name", "localhost"]);
    let mut roots = RootCertStore::empty();
    let certificate = CertificateDer::from_pem_file(folder.path().join("cert.pem"));
    roots.add(certificate.expect("the server wrote it")).expect("a certificate");
    let host = stage.host(0);
    for (number, address) in (1..).zip([host.v4(), host.v6()]) {
        let (server, tls) = (stage.target(address), tls(roots.clone()));
        let version = host.run(async move {
            // The client's first packets have a reserved version (RFC 9000 s.6.3).
            let transport = TransportConfig::default().with_first_unknown(true);
            let config = equic_quic::ClientConfig::new(tls).with_transport(transport);
            let endpoint = equic_quic::Endpoint::client(SocketAddr::new(address, 0));
            let endpoint = endpoint.expect("an endpoint");
            let connecting = endpoint.connect_with(&config, server, "localhost");
            let connecting = timeout(PATIENCE, connecting.expect("an attempt"));
            let connection = connecting.await.expect("an answer").expect("it is let in");
            connection.version()
        });
        assert_eq!(version, equic_wire::KnownVersion::V1);
        let told = stage.verdict("version_negotiation_sent");
        assert!(told.packets >= number && told.answered == told.packets, "{told:?}");
        assert_eq!(stage.verdict("new").packets, number);
        assert_eq!(stage.verdict("new_version").packets, 0);
    }
}
