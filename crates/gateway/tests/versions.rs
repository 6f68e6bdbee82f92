//! Tests that the gateway answers clients whose version the service does not accept, on a real
//! interface. The answer must contain the accepted versions, and the server's socket must receive
//! none of the clients' packets. Needs root.

mod support;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use equic_gateway::{Config, Gateway, Mode, ObjectSource, Reason, Setting, Versions};
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use rustls::RootCertStore;
use rustls::crypto::aws_lc_rs::default_provider;
use support::{config, in_namespace};

/// Draft 29 of RFC 9000, which quinn still supports as a client.
const DRAFT_29: u32 = 0xff00_001d;
const VERSION_1: u32 = 1;
const PORT: u16 = 4433;
/// Timeout of a step. It is much longer than any step of these tests takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// Returns a gateway on the loopback interface whose service accepts version 1.
fn answering(what: &str) -> Gateway {
    let config: Config = {
        let mut config = config(what);
        let service = &mut config.services[0];
        (service.version_negotiation, service.versions) = (true, Versions::V1);
        config
    };
    let gateway = Gateway::load(&config, ObjectSource::Embedded).expect("it is loaded");
    gateway.attach("lo", Mode::Generic).expect("it is attached");
    gateway
}

fn packets(gateway: &Gateway, reason: Reason) -> u64 {
    let status = gateway.control().status().expect("there is a status");
    let verdicts = &status.services[0].verdicts;
    verdicts.iter().find(|row| row.reason == reason).map_or(0, |row| row.packets)
}

/// Makes a quinn client connect to the port with `version`. The client also supports version 1.
async fn attempt(
    address: IpAddr,
    roots: RootCertStore,
    version: u32,
) -> Result<quinn::Connection, quinn::ConnectionError> {
    let mut tls = rustls::ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("TLS 1.3")
        .with_root_certificates(roots)
        .with_no_client_auth();
    tls.alpn_protocols = vec![b"test".to_vec()];
    let crypto = QuicClientConfig::try_from(tls).expect("TLS 1.3");
    let mut config = quinn::ClientConfig::new(Arc::new(crypto));
    config.version(version);
    let mut speaks = quinn::EndpointConfig::default();
    speaks.supported_versions(vec![DRAFT_29, VERSION_1]);
    let socket = UdpSocket::bind((address, 0)).expect("a socket");
    let runtime = Arc::new(quinn::TokioRuntime);
    let endpoint = quinn::Endpoint::new(speaks, None, socket, runtime).expect("an endpoint");
    let to = SocketAddr::new(address, PORT);
    let connecting = endpoint.connect_with(config, to, "localhost").expect("an attempt");
    tokio::time::timeout(PATIENCE, connecting).await.expect("it ends")
}

/// Returns the packets that have arrived at the server's socket. To find the last one, it sends a
/// short header packet now, and returns the packets before it.
fn seen_so_far(server: &UdpSocket) -> Vec<Vec<u8>> {
    const LAST: [u8; 30] = [0x41; 30];
    let to = server.local_addr().expect("it is bound");
    let client = UdpSocket::bind((to.ip(), 0)).expect("a socket");
    client.send_to(&LAST, to).expect("it is sent");
    let mut buffer = [0; 2000];
    let datagrams = std::iter::from_fn(|| {
        let length = server.recv(&mut buffer).expect("the last one comes");
        Some(buffer[..length].to_vec()).filter(|datagram| *datagram != LAST)
    });
    datagrams.collect()
}

fn runtime() -> tokio::runtime::Runtime {
    // The runtime has a single thread, because only this thread is in the test's network namespace.
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

#[test]
fn version_that_is_unknown_never_reaches_the_server() {
    in_namespace(|| {
        let gateway = answering("unseen");
        let addresses = [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()];
        let mut answered = 0;
        for address in addresses {
            let server = UdpSocket::bind((address, PORT)).expect("a socket");
            server.set_read_timeout(Some(PATIENCE)).expect("a time");
            let ended = runtime().block_on(attempt(address, RootCertStore::empty(), DRAFT_29));
            let ended = ended.expect_err("nobody speaks draft 29");
            assert!(matches!(ended, quinn::ConnectionError::VersionMismatch), "{ended}");
            assert_eq!(seen_so_far(&server), Vec::<Vec<u8>>::new());
            let so_far = packets(&gateway, Reason::VersionNegotiationSent);
            assert!(so_far > answered, "{so_far}");
            answered = so_far;
        }
        assert_eq!(packets(&gateway, Reason::NewVersion), 0);
        assert_eq!(packets(&gateway, Reason::Established), 2);

        // If the setting is off, the server must answer.
        let off = Setting::parse("version_negotiation", "off").expect("a setting");
        gateway.control().apply(&off).expect("it is stored");
        let server = UdpSocket::bind((Ipv4Addr::LOCALHOST, PORT)).expect("a socket");
        server.set_read_timeout(Some(PATIENCE)).expect("a time");
        let mut packet = vec![0xc0, 0xff, 0, 0, 0x1d, 8, 1, 2, 3, 4, 5, 6, 7, 8, 0];
        packet.resize(1200, 0);
        let client = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
        client.send_to(&packet, (Ipv4Addr::LOCALHOST, PORT)).expect("it is sent");
        let mut buffer = [0; 2000];
        let length = server.recv(&mut buffer).expect("it comes");
        assert_eq!(buffer[..length], packet[..]);
        assert_eq!(packets(&gateway, Reason::VersionNegotiationSent), answered);
    });
}

#[test]
fn version_negotiation_leads_to_an_accepted_version() {
    in_namespace(|| {
        let gateway = answering("again");
        let certified =
            rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a key");
        let mut roots = RootCertStore::empty();
        roots.add(certified.cert.der().clone()).expect("a certificate");
        let key =
            rustls::pki_types::PrivateKeyDer::Pkcs8(certified.signing_key.serialize_der().into());
        let mut tls = rustls::ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .expect("TLS 1.3")
            .with_no_client_auth()
            .with_single_cert(vec![certified.cert.der().clone()], key)
            .expect("a key of the certificate");
        tls.alpn_protocols = vec![b"test".to_vec()];
        runtime().block_on(async move {
            let address = IpAddr::from(Ipv4Addr::LOCALHOST);
            let crypto = QuicServerConfig::try_from(tls).expect("TLS 1.3");
            let config = quinn::ServerConfig::with_crypto(Arc::new(crypto));
            let server = quinn::Endpoint::server(config, SocketAddr::new(address, PORT));
            let server = server.expect("an endpoint");
            let accepting = tokio::spawn(async move { server.accept().await?.await.ok() });
            let mut told = Vec::new();
            let connection = loop {
                let version = [DRAFT_29, VERSION_1][told.len()];
                match attempt(address, roots.clone(), version).await {
                    Ok(connection) => break connection,
                    Err(error) => told.push(error),
                }
            };
            assert!(matches!(told[..], [quinn::ConnectionError::VersionMismatch]), "{told:?}");
            assert!(accepting.await.expect("it does not panic").is_some());
            drop(connection);
        });
        assert_eq!(packets(&gateway, Reason::New), 1);
        assert_eq!(packets(&gateway, Reason::NewVersion), 0);
        assert!(packets(&gateway, Reason::VersionNegotiationSent) > 0);
    });
}
