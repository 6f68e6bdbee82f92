//! Tests of stateless resets: if a server dies, the gateway sends resets to its clients. A server
//! that is only suspended must not lose its connections.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use equic_quic::TransportConfig;
use nix::sys::signal::Signal;
use rustls::RootCertStore;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use tokio::time::timeout;

use crate::common::{EQUIC, PATIENCE, Running, eventually};
use crate::stage::{Host, TestStage};

/// Duration in milliseconds of a suspension without a heartbeat. Even after this time, a living
/// server must keep its slot in the gateway.
const LONG: f64 = 12_000.0;

/// Returns a TLS configuration that trusts the server whose certificate is in this folder.
pub(crate) fn tls(folder: &Path) -> rustls::ClientConfig {
    let mut roots = RootCertStore::empty();
    let certificate = CertificateDer::from_pem_file(folder.join("cert.pem"));
    roots.add(certificate.expect("the server wrote it")).expect("a certificate");
    let mut tls = rustls::ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("TLS 1.3")
        .with_root_certificates(roots)
        .with_no_client_auth();
    tls.alpn_protocols = vec![b"h3".to_vec()];
    tls
}

/// Opens a connection that never times out, with eQUIC's own client.
fn ours(
    host: &Host,
    address: IpAddr,
    server: SocketAddr,
    tls: rustls::ClientConfig,
) -> (equic_quic::Endpoint, equic_quic::Connection) {
    host.run(async move {
        let never = Duration::from_secs(24 * 3_600);
        let transport = TransportConfig::default().with_max_idle_timeout(never);
        let config = equic_quic::ClientConfig::new(tls).with_transport(transport);
        let mut settings = equic_quic::EndpointConfig::with_default_provider().expect("a provider");
        // On a veth interface, two probes that are sent in one batch stay one packet. In generic
        // mode, the program's answer would then be split at the boundaries of the original batch.
        settings.send_offload = false;
        let sockets = equic_quic::Endpoint::bind(SocketAddr::new(address, 0), 1, None);
        let endpoint = equic_quic::Endpoint::new(settings, None, sockets.expect("a socket"));
        let endpoint = endpoint.expect("an endpoint");
        let connecting = endpoint.connect_with(&config, server, "localhost").expect("an attempt");
        let connection = timeout(PATIENCE, connecting).await.expect("an answer");
        (endpoint, connection.expect("it is let in"))
    })
}

/// Opens a connection with quinn.
pub(crate) fn quinns(
    host: &Host,
    address: IpAddr,
    server: SocketAddr,
    tls: rustls::ClientConfig,
) -> (quinn::Endpoint, quinn::Connection) {
    host.run(async move {
        let crypto = quinn::crypto::rustls::QuicClientConfig::try_from(tls).expect("TLS 1.3");
        let mut config = quinn::ClientConfig::new(Arc::new(crypto));
        let mut transport = quinn::TransportConfig::default();
        transport.max_idle_timeout(None).enable_segmentation_offload(false);
        config.transport_config(Arc::new(transport));
        let socket = UdpSocket::bind((address, 0)).expect("a socket");
        let runtime = Arc::new(quinn::TokioRuntime);
        let endpoint =
            quinn::Endpoint::new(quinn::EndpointConfig::default(), None, socket, runtime);
        let endpoint = endpoint.expect("an endpoint");
        let connecting = endpoint.connect_with(config, server, "localhost").expect("an attempt");
        let connection = timeout(PATIENCE, connecting).await.expect("an answer");
        (endpoint, connection.expect("it is let in"))
    })
}

/// The server has died. Clients of both QUIC stacks and both address families must learn this from
/// the answer to their next packet.
fn check_clients_of_a_killed_server(stage: &TestStage, folder: &Path, mut server: Running) {
    let host = stage.host(0);
    let tls = tls(folder);
    let (address, target) = (host.v4(), stage.target(host.v4()));
    let (_endpoint, connection) = ours(host, address, target, tls.clone());
    let (_other, of_quinn) = quinns(host, host.v6(), stage.target(host.v6()), tls);
    stage.await_connections(address, 1);
    assert_eq!(stage.verdict("reset_sent").packets, 0);

    server.signal(Signal::SIGKILL);
    server.wait();
    stage.await_servers(0);
    let ended = host.run(async move {
        connection.ping();
        timeout(PATIENCE, connection.closed()).await.expect("it is told")
    });
    assert!(matches!(ended, equic_quic::ConnectionError::Reset), "{ended}");
    let ended = host.run(async move {
        // The connection may already be reset, because quinn also sends packets by itself.
        if let Ok(mut stream) = of_quinn.open_uni().await {
            let _ = stream.write_all(b"is anybody there?").await;
        }
        timeout(PATIENCE, of_quinn.closed()).await.expect("it is told")
    });
    assert!(matches!(ended, quinn::ConnectionError::Reset), "{ended}");
    let told = stage.verdict("reset_sent");
    assert!(told.packets >= 2 && told.answered == told.packets && told.dropped == 0, "{told:?}");
}

pub(crate) fn with_certificate(folder: &Path) -> [&str; 4] {
    ["--cert-dir", folder.to_str().expect("UTF-8"), "--cert-name", "localhost"]
}

#[test]
fn reset_reaches_clients_of_a_killed_server() {
    let Some(stage) = TestStage::new("resets", 1) else { return };
    // On a veth interface, answers of an XDP program only arrive in generic mode, or if the other
    // end has a program, too.
    let _gateway = stage.gateway(&["-o", "stateless_reset=true", "--mode", "generic"]);
    let folder = tempfile::tempdir().expect("a directory");
    let server = stage.serve(&with_certificate(folder.path()));
    check_clients_of_a_killed_server(&stage, folder.path(), server);

    // Clients of the next server must not be reset.
    let _server = stage.serve(&[]);
    let told = stage.verdict("reset_sent");
    let host = stage.host(0);
    host.peer(host.v4()).connect().fetch(100_000);
    assert_eq!(stage.verdict("reset_sent"), told);
}

#[test]
fn reset_reaches_clients_of_a_killed_unprivileged_server() {
    let Some(stage) = TestStage::new("socket-resets", 1) else { return };
    let folder = tempfile::tempdir().expect("a directory");
    let socket = folder.path().join("sock");
    let socket = socket.to_str().expect("UTF-8");
    let rest = [
        "-o",
        "check_ids=true",
        "-o",
        "stateless_reset=true",
        "--mode",
        "generic",
        "--socket",
        socket,
    ];
    let _gateway = stage.gateway(&rest);
    let listen = ["--listen", "[::]:443", "--gateway", socket, "--idle-timeout", "1h"];
    let args = [&["serve", "--json"], &listen[..], &with_certificate(folder.path())].concat();
    let server = Running::start(stage.lab.server().command(EQUIC), &args);
    server.event("ready");
    check_clients_of_a_killed_server(&stage, folder.path(), server);
}

/// The server is suspended for a long time, but it is alive. The gateway must send no resets for
/// it, so its connections must continue.
#[test]
fn reset_is_not_sent_for_a_stopped_server() {
    let Some(stage) = TestStage::new("no-resets", 1) else { return };
    let _gateway = stage.gateway(&["-o", "stateless_reset=true", "--mode", "generic"]);
    let server = stage.serve(&[]);
    let host = stage.host(0);
    let link = host.peer(host.v4()).connect();
    link.fetch(10_000);

    server.signal(Signal::SIGSTOP);
    let ledger = || stage.status()["ledgers"][0].clone();
    eventually("its lease expires", || (ledger()["counts"] == false).then_some(()));
    let before = stage.verdict("established").packets;
    assert!(!link.answers());
    eventually("it was silent for long", || {
        (ledger()["heartbeat_age_ms"].as_f64()? > LONG).then_some(())
    });
    assert!(!link.answers());
    assert!(stage.verdict("established").packets > before, "its clients asked for it");
    server.signal(Signal::SIGCONT);
    link.fetch(10_000);
    assert_eq!(stage.verdict("reset_sent").packets, 0, "{}", stage.status());
}
