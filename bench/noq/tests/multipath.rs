//! Several paths (RFC 10069) between ours and noq, which speaks draft-ietf-quic-multipath-17 with the same code points:
//! each as client and as server, over two addresses of the loopback interface.
//!
//!     cargo test --manifest-path bench/Cargo.toml -p bench-noq

use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use noq::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use noq::{FourTuple, PathId, PathStatus};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

const NAME: &str = "equic.test";
const ALPN: &[u8] = b"test";
const SECOND: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
/// Longer than anything here takes, unless it hangs.
const PATIENCE: Duration = Duration::from_secs(60);
const LENGTH: usize = 8 << 20;

struct Identity {
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
}

impl Identity {
    fn new() -> Identity {
        let made = rcgen::generate_simple_self_signed(vec![NAME.into()]).unwrap();
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        Identity { certificate: made.cert.der().clone(), key }
    }

    fn client(&self) -> rustls::ClientConfig {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(self.certificate.clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut tls = rustls::ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        tls.alpn_protocols = vec![ALPN.to_vec()];
        tls
    }

    fn server(&self) -> rustls::ServerConfig {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut tls = rustls::ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![self.certificate.clone()], self.key.clone_key())
            .unwrap();
        tls.alpn_protocols = vec![ALPN.to_vec()];
        tls
    }
}

fn body() -> Vec<u8> {
    (0..LENGTH).map(|at| (at * 31 % 251) as u8).collect()
}

async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("never: {what}"))
}

/// All paths in turn, so that each of them carries data whatever its round-trip time is.
fn our_transport() -> equic_quic::TransportConfig {
    equic_quic::TransportConfig {
        max_paths: 4,
        scheduler: equic_quic::Scheduler::RoundRobin,
        ..equic_quic::TransportConfig::default()
    }
}

fn noq_transport() -> Arc<noq::TransportConfig> {
    let mut transport = noq::TransportConfig::default();
    transport.max_concurrent_multipath_paths(4);
    Arc::new(transport)
}

fn our_settings() -> equic_quic::EndpointConfig {
    equic_quic::EndpointConfig::new(&rustls::crypto::ring::default_provider()).unwrap()
}

/// Our client opens a second path to noq's server, and data goes both ways on both.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn our_client_with_noqs_server() {
    let identity = Identity::new();
    let tls = QuicServerConfig::try_from(Arc::new(identity.server())).unwrap();
    let mut config = noq::ServerConfig::with_crypto(Arc::new(tls));
    config.transport_config(noq_transport());
    let server = noq::Endpoint::server(config, (Ipv4Addr::UNSPECIFIED, 0).into()).unwrap();
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, server.local_addr().unwrap().port()));
    let serving = tokio::spawn(async move {
        let connection = server.accept().await.unwrap().await.unwrap();
        let (mut send, mut receive) = connection.accept_bi().await.unwrap();
        let data = receive.read_to_end(2 * LENGTH).await.unwrap();
        send.write_all(&data).await.unwrap();
        send.finish().unwrap();
        connection.closed().await;
        (connection.is_multipath_enabled(), received(&connection))
    });

    let socket = equic_quic::Endpoint::bind((Ipv4Addr::LOCALHOST, 0).into(), 1, None).unwrap();
    let client = equic_quic::Endpoint::new(our_settings(), None, socket).unwrap();
    client.add_local_address(SECOND).unwrap();
    let config = equic_quic::ClientConfig::new(identity.client()).with_transport(our_transport());
    let connecting = client.connect_with(&config, address, NAME).unwrap();
    let connection = soon("connected", connecting).await.unwrap();
    let id = soon("a second path", connection.open_path(SECOND)).await.unwrap();
    assert_eq!(id.get(), 1);
    let (mut send, mut receive) = connection.open_bi().await.unwrap();
    let writer = tokio::spawn(async move {
        send.write_all(&body()).await.unwrap();
        send.finish().unwrap();
    });
    assert!(soon("echoed", receive.read_to_end(2 * LENGTH)).await.unwrap() == body());
    writer.await.unwrap();
    assert_eq!(connection.paths().len(), 2);
    connection.close(equic_quic::VarInt::from_u32(0), "done");
    let (enabled, received) = soon("the server ends", serving).await.unwrap();
    assert!(enabled);
    assert!(received.iter().all(|bytes| *bytes > LENGTH as u64 / 10), "{received:?}");
}

/// Bytes that noq has received on paths 0 and 1.
fn received(connection: &noq::Connection) -> [u64; 2] {
    let of = |id: u32| connection.path_stats(PathId::from(id)).map_or(0, |path| path.udp_rx.bytes);
    [of(0), of(1)]
}

/// noq's client opens a second path to our server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn noqs_client_with_our_server() {
    let identity = Identity::new();
    let config = equic_quic::ServerConfig::new(identity.server()).with_transport(our_transport());
    let sockets = equic_quic::Endpoint::bind((Ipv4Addr::UNSPECIFIED, 0).into(), 1, None).unwrap();
    let server = equic_quic::Endpoint::new(our_settings(), Some(config), sockets).unwrap();
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, server.local_addr().unwrap().port()));
    let serving = tokio::spawn(async move {
        let connection = server.accept().await.unwrap().await.unwrap();
        let (mut send, mut receive) = connection.accept_bi().await.unwrap();
        let data = receive.read_to_end(2 * LENGTH).await.unwrap();
        send.write_all(&data).await.unwrap();
        send.finish().unwrap();
        let paths = connection.paths();
        connection.closed().await;
        paths
    });

    // One socket for all addresses: noq says the source of each datagram.
    let endpoint = noq::Endpoint::client((Ipv4Addr::UNSPECIFIED, 0).into()).unwrap();
    let tls = QuicClientConfig::try_from(Arc::new(identity.client())).unwrap();
    let mut config = noq::ClientConfig::new(Arc::new(tls));
    config.transport_config(noq_transport());
    endpoint.set_default_client_config(config);
    let connection = soon("connected", endpoint.connect(address, NAME).unwrap()).await.unwrap();
    assert!(connection.is_multipath_enabled());
    let tuple = FourTuple::new(address, Some(SECOND));
    let path = soon("a second path", async {
        loop {
            match connection.open_path(tuple, PathStatus::Available).await {
                // Our connection IDs for it are under way.
                Err(noq::PathError::RemoteCidsExhausted) => tokio::task::yield_now().await,
                opened => break opened.unwrap(),
            }
        }
    })
    .await;
    let (mut send, mut receive) = connection.open_bi().await.unwrap();
    let writer = tokio::spawn(async move {
        send.write_all(&body()).await.unwrap();
        send.finish().unwrap();
    });
    assert!(soon("echoed", receive.read_to_end(2 * LENGTH)).await.unwrap() == body());
    writer.await.unwrap();
    // Our server sends on both in turn.
    let received = received(&connection);
    assert!(received.iter().all(|bytes| *bytes > LENGTH as u64 / 10), "{received:?}");
    drop(path);
    connection.close(0u32.into(), b"done");
    let paths = soon("the server ends", serving).await.unwrap();
    let from: Vec<IpAddr> = paths.iter().map(|path| path.remote.ip()).collect();
    assert_eq!(from, [IpAddr::V4(Ipv4Addr::LOCALHOST), SECOND]);
}
