//! Multipath (RFC 10069) between our stack and noq. noq implements draft-ietf-quic-multipath-17,
//! which has the same code points. Each is tested as client and as server, over two loopback
//! addresses. The tests send data both ways on both paths, and then close one path. `make
//! interop-multipath` runs them.

use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use equic_quic::TransportErrorCode;
use noq::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use noq::{FourTuple, PathEvent, PathId, PathStatus};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_stream::StreamExt as _;

const NAME: &str = "equic.test";
const ALPN: &[u8] = b"test";
const SECOND: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
/// Longer than any step takes, unless it hangs.
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

async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future)
        .await
        .unwrap_or_else(|_| panic!("timed out waiting for: {what}"))
}

/// Returns a configuration that sends on all paths in turn, so that each path carries data
/// regardless of its round-trip time.
fn our_transport() -> equic_quic::TransportConfig {
    equic_quic::TransportConfig::default()
        .with_max_paths(4)
        .with_scheduler(equic_quic::Scheduler::RoundRobin)
}

fn noq_transport() -> Arc<noq::TransportConfig> {
    let mut transport = noq::TransportConfig::default();
    transport.max_concurrent_multipath_paths(4);
    Arc::new(transport)
}

fn our_settings() -> equic_quic::EndpointConfig {
    equic_quic::EndpointConfig::new(&rustls::crypto::ring::default_provider()).unwrap()
}

/// Sends data on a new stream and checks that the peer returns the same data.
macro_rules! echoed {
    ($connection:expr, $length:expr) => {{
        let (mut send, mut receive) = $connection.open_bi().await.unwrap();
        let body: Vec<u8> = (0..$length).map(|at: usize| (at * 31 % 251) as u8).collect();
        let sent = body.clone();
        let writer = tokio::spawn(async move {
            send.write_all(&sent).await.unwrap();
            send.finish().unwrap();
        });
        assert!(soon("echoed", receive.read_to_end(2 * LENGTH)).await.unwrap() == body);
        writer.await.unwrap();
    }};
}

/// Accepts the next stream and sends its data back. `$and` is evaluated when all data has arrived.
macro_rules! echo {
    ($connection:expr, $and:expr) => {{
        let (mut send, mut receive) = soon("a stream", $connection.accept_bi()).await.unwrap();
        let data = soon("all of it", receive.read_to_end(2 * LENGTH)).await.unwrap();
        let value = $and;
        soon("sent back", send.write_all(&data)).await.unwrap();
        send.finish().unwrap();
        value
    }};
}

/// Bytes of datagrams that an endpoint has sent and received on each path, by path ID.
type Bytes = Vec<(u64, u64)>;

fn of_ours(connection: &equic_quic::Connection) -> Bytes {
    let paths = connection.paths();
    paths.iter().map(|path| (path.bytes_sent, path.bytes_received)).collect()
}

/// Like [`of_ours`]. Also checks that noq has sent stream data on both paths.
fn of_noq(connection: &noq::Connection) -> Bytes {
    let ids = [0u32, 1].map(PathId::from);
    let stats = ids.map(|id| connection.path_stats(id).expect("the path is open"));
    assert!(stats.iter().all(|path| path.frame_tx.stream >= 10), "{stats:?}");
    stats.iter().map(|path| (path.udp_tx.bytes, path.udp_rx.bytes)).collect()
}

/// Checks that each path has carried data both ways. Our stack sends on both paths in turn, within
/// their congestion windows. noq uses the second path only if the first one's window is full, so
/// that path may carry little.
fn both_have_carried_data(ours: &Bytes, noq: &Bytes) {
    println!("sent and received by path: ours {ours:?}, noq {noq:?}");
    assert_eq!((ours.len(), noq.len()), (2, 2));
    for ((ours_sent, ours_received), (noq_sent, noq_received)) in ours.iter().zip(noq) {
        let by_ours = LENGTH as u64 / 64;
        assert!(*ours_sent > by_ours && *noq_received > by_ours, "ours {ours:?}, noq {noq:?}");
        let by_noq = 10_000;
        assert!(*noq_sent > by_noq && *ours_received > by_noq, "ours {ours:?}, noq {noq:?}");
    }
}

/// Waits until noq reports that its peer closed the path.
async fn noq_sees_the_path_closed(events: &mut noq::PathEvents, of: PathId) {
    let heard = async {
        loop {
            if let Ok(PathEvent::Abandoned { id, reason, .. }) = events.next().await.unwrap() {
                assert_eq!(id, of);
                // noq does not export the type of `reason`, so this compares its debug output.
                let reason = format!("{reason:?}");
                assert!(reason.starts_with("RemoteAbandoned"), "{reason}");
                break;
            }
        }
    };
    soon("noq hears that the path is closed", heard).await;
}

/// Wakes the waiting tasks at each event of our connection.
struct Waker(Arc<tokio::sync::Notify>);

impl equic_quic::event::EventSink for Waker {
    fn event(&mut self, _: &equic_quic::event::Event<'_>) {
        self.0.notify_one();
    }
}

/// Waits until our connection has only one path left.
async fn one_is_left(connection: &equic_quic::Connection) -> equic_quic::PathInfo {
    let events = Arc::new(tokio::sync::Notify::new());
    connection.subscribe(Waker(Arc::clone(&events)));
    let left = async {
        loop {
            match connection.paths().as_slice() {
                [left] => break *left,
                _ => events.notified().await,
            }
        }
    };
    soon("a path is closed", left).await
}

/// Our client opens a second path to noq's server, sends data both ways on both paths, and then
/// closes the first path.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn multipath_of_our_client_with_noqs_server() {
    let identity = Identity::new();
    let tls = QuicServerConfig::try_from(Arc::new(identity.server())).unwrap();
    let mut config = noq::ServerConfig::with_crypto(Arc::new(tls));
    config.transport_config(noq_transport());
    let server = noq::Endpoint::server(config, (Ipv4Addr::UNSPECIFIED, 0).into()).unwrap();
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, server.local_addr().unwrap().port()));
    let serving = tokio::spawn(async move {
        let connection = server.accept().await.unwrap().await.unwrap();
        assert!(connection.is_multipath_enabled());
        let mut events = connection.path_events();
        echo!(connection, ());
        let bytes = echo!(connection, of_noq(&connection));
        noq_sees_the_path_closed(&mut events, PathId::from(0u32)).await;
        echo!(connection, ());
        connection.closed().await;
        bytes
    });

    let socket = equic_quic::Endpoint::bind((Ipv4Addr::LOCALHOST, 0).into(), 1, None).unwrap();
    let client = equic_quic::Endpoint::new(our_settings(), None, socket).unwrap();
    client.add_local_address(SECOND).unwrap();
    let config = equic_quic::ClientConfig::new(identity.client()).with_transport(our_transport());
    let connecting = client.connect_with(&config, address, NAME).unwrap();
    let connection = soon("connected", connecting).await.unwrap();
    let id = soon("a second path", connection.open_path(SECOND)).await.unwrap();
    assert_eq!(id.get(), 1);
    echoed!(connection, LENGTH);
    let ours = of_ours(&connection);
    echoed!(connection, 1);
    let first = connection.paths()[0].id;
    connection.close_path(first, TransportErrorCode::APPLICATION_ABANDON_PATH).unwrap();
    echoed!(connection, LENGTH / 8);
    assert_eq!(one_is_left(&connection).await.local, Some(SECOND));
    connection.close(equic_quic::VarInt::from_u32(0), "done");
    both_have_carried_data(&ours, &soon("the server ends", serving).await.unwrap());
}

/// noq's client opens a second path to our server, sends data both ways on both paths, and then
/// closes the second path.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn multipath_of_noqs_client_with_our_server() {
    let identity = Identity::new();
    let config = equic_quic::ServerConfig::new(identity.server()).with_transport(our_transport());
    let sockets = equic_quic::Endpoint::bind((Ipv4Addr::UNSPECIFIED, 0).into(), 1, None).unwrap();
    let server = equic_quic::Endpoint::new(our_settings(), Some(config), sockets).unwrap();
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, server.local_addr().unwrap().port()));
    let serving = tokio::spawn(async move {
        let connection = server.accept().await.unwrap().await.unwrap();
        echo!(connection, ());
        let from = |path: &equic_quic::PathInfo| path.remote.ip();
        let (bytes, clients) = echo!(connection, {
            let clients: Vec<IpAddr> = connection.paths().iter().map(from).collect();
            (of_ours(&connection), clients)
        });
        assert_eq!(clients, [IpAddr::V4(Ipv4Addr::LOCALHOST), SECOND]);
        assert_eq!(from(&one_is_left(&connection).await), Ipv4Addr::LOCALHOST);
        echo!(connection, ());
        connection.closed().await;
        bytes
    });

    // One socket serves all local addresses, because noq sets the source address of each datagram.
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
                // noq has not yet received our connection IDs for the new path.
                Err(noq::PathError::RemoteCidsExhausted) => tokio::task::yield_now().await,
                opened => break opened.unwrap(),
            }
        }
    })
    .await;
    echoed!(connection, LENGTH);
    let noq = of_noq(&connection);
    echoed!(connection, 1);
    path.close().unwrap();
    echoed!(connection, LENGTH / 8);
    connection.close(0u32.into(), b"done");
    both_have_carried_data(&soon("the server ends", serving).await.unwrap(), &noq);
}
