//! Connects a client and a server of quinn on loopback, through a relay that drops packets.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use quinn::{ClientConfig, Endpoint, ServerConfig, TransportConfig};
use quinn_plugin::Controllers;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use tokio::net::UdpSocket;

/// The top folder of the repository.
pub(crate) const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Compiles a plugin with eQUIC's plugin tools, and packs it into a bundle.
pub(crate) fn bundle(manifest: &str, source: &Path) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let object = folder.path().join("object.o");
    let include = Path::new(ROOT).join("plugins/sdk");
    equic_plugin_kit::compile(source, &object, &include).unwrap();
    equic_plugin::pack(manifest, &std::fs::read(&object).unwrap(), None).unwrap()
}

/// Result of a transfer.
pub(crate) struct Done {
    /// The sender's final congestion window, as quinn reports it.
    pub(crate) window: u64,
    /// Number of datagrams that the relay dropped.
    pub(crate) dropped: u64,
}

fn any_port() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

fn configs(transport: TransportConfig) -> (ServerConfig, ClientConfig) {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let certificate = CertificateDer::from(made.cert);
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let versions = &[&rustls::version::TLS13];
    let server = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(versions)
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key.into())
        .unwrap();
    let server = quinn::crypto::rustls::QuicServerConfig::try_from(server).unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate).unwrap();
    let client = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let client = quinn::crypto::rustls::QuicClientConfig::try_from(client).unwrap();
    let mut client = ClientConfig::new(Arc::new(client));
    client.transport_config(Arc::new(transport));
    (ServerConfig::with_crypto(Arc::new(server)), client)
}

/// Forwards datagrams between a client and the server. After the first 50 datagrams from the
/// client, drops one in every `drop` datagrams.
async fn relay(socket: UdpSocket, server: SocketAddr, drop: Option<u64>, dropped: Arc<AtomicU64>) {
    let mut buffer = vec![0; 65_536];
    let (mut client, mut seen) = (None, 0);
    loop {
        let Ok((length, from)) = socket.recv_from(&mut buffer).await else { continue };
        let to = if from == server {
            client
        } else {
            client = Some(from);
            seen += 1;
            if seen > 50 && drop.is_some_and(|drop| seen % drop == 0) {
                dropped.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            Some(server)
        };
        if let Some(to) = to {
            // If the system does not accept a datagram, it is lost, as on any network.
            let _ = socket.send_to(&buffer[..length], to).await;
        }
    }
}

/// Sends `bytes` bytes from a client with these congestion controllers. Checks that the server
/// receives them unchanged.
pub(crate) async fn transfer(controllers: Controllers, bytes: usize, drop: Option<u64>) -> Done {
    let mut transport = TransportConfig::default();
    transport.congestion_controller_factory(Arc::new(controllers));
    let (server_config, client_config) = configs(transport);
    let server = Endpoint::server(server_config, any_port()).unwrap();
    let socket = UdpSocket::bind(any_port()).await.unwrap();
    let between = socket.local_addr().unwrap();
    let dropped = Arc::new(AtomicU64::new(0));
    let relaying =
        tokio::spawn(relay(socket, server.local_addr().unwrap(), drop, Arc::clone(&dropped)));
    let payload: Vec<u8> = (0..bytes).map(|at| (at * 31 % 251) as u8).collect();
    let expected = payload.clone();
    let receiving = tokio::spawn(async move {
        let connection = server.accept().await.unwrap().await.unwrap();
        let mut stream = connection.accept_uni().await.unwrap();
        let received = stream.read_to_end(bytes).await.unwrap();
        assert!(received == expected, "the bytes arrive as they were sent");
        connection
    });
    let mut client = Endpoint::client(any_port()).unwrap();
    client.set_default_client_config(client_config);
    let connection = client.connect(between, "localhost").unwrap().await.unwrap();
    let mut stream = connection.open_uni().await.unwrap();
    stream.write_all(&payload).await.unwrap();
    stream.finish().unwrap();
    // At this point, all bytes are acknowledged, and the controller has been notified about all of
    // them.
    assert_eq!(stream.stopped().await.unwrap(), None);
    let server_side = receiving.await.unwrap();
    let window = connection.stats().path.cwnd;
    drop_both(connection, server_side);
    relaying.abort();
    Done { window, dropped: dropped.load(Ordering::Relaxed) }
}

fn drop_both(client: quinn::Connection, server: quinn::Connection) {
    client.close(0u32.into(), b"");
    server.close(0u32.into(), b"");
}
