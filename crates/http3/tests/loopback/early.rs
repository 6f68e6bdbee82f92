//! Tests of HTTP requests that are sent before the handshake is complete (0-RTT).

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use equic_http3::{
    Client, ClientConfig as HttpConfig, IdentitySource, ServerConfig, Trust, binding,
};
use equic_quic::{self as quic, ClientConfig, EarlyData, Endpoint, EndpointConfig};
use equic_wire::VarInt;
use http::{Method, Request, StatusCode};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ServerSessionMemoryCache, StoresServerSessions};
use tokio::net::UdpSocket;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::common::{PATIENCE, loopback, start, until};
use crate::relay::Relay;

/// Returns settings of a client that trusts the certificate in the file, resumes sessions and sends
/// early data.
fn config(certificate: &Path) -> ClientConfig {
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(certificate).unwrap() {
        roots.add(certificate.unwrap()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    tls.alpn_protocols = vec![b"h3".to_vec()];
    tls.enable_early_data = true;
    ClientConfig::new(tls)
}

type Http = h3::client::SendRequest<binding::OpenStreams, Bytes>;
type Asked = h3::client::RequestStream<binding::BidiStream<Bytes>, Bytes>;

async fn begin(connection: &quic::Connection) -> Http {
    let transport = binding::QuicConnection::new(connection.clone());
    let (mut driver, http) = h3::client::new(transport).await.unwrap();
    tokio::spawn(async move { driver.wait_idle().await });
    http
}

async fn ask(http: &mut Http, method: Method) -> Asked {
    let request = Request::builder().method(method).uri("https://localhost/health");
    let mut stream = http.send_request(request.body(()).unwrap()).await.unwrap();
    stream.finish().await.unwrap();
    stream
}

async fn status(mut asked: Asked) -> StatusCode {
    timeout(PATIENCE, asked.recv_response()).await.unwrap().unwrap().status()
}

/// The server must answer a safe early request before the client has received anything, and must
/// answer other early requests with 425. If an attacker replays all datagrams, the server must not
/// answer the requests again.
// RFC 9001 s.9.2 #1
// RFC 9114 s.10.9 #1
#[tokio::test]
async fn early_data_has_safe_requests_only_and_each_once() {
    let directory = tempfile::tempdir().unwrap();
    let kept = Some(directory.path().to_owned());
    let server = start(ServerConfig {
        identity: IdentitySource::SelfSigned { names: Vec::new(), directory: kept },
        early_data: true,
        ..ServerConfig::new(loopback())
    });
    let relay = Relay::start(server.address).await;
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    let settings = EndpointConfig::new(&provider).unwrap();
    let socket = std::net::UdpSocket::bind(loopback()).unwrap();
    let client = Endpoint::new(settings, None, vec![socket]).unwrap();
    let config = config(&directory.path().join("cert.pem"));
    let connect = || client.connect_with(&config, relay.address, "localhost").unwrap();

    let first = connect().into_0rtt().err().expect("no session yet");
    let first = timeout(PATIENCE, first).await.unwrap().unwrap();
    let mut http = begin(&first).await;
    assert_eq!(status(ask(&mut http, Method::GET).await).await, StatusCode::OK);
    assert_eq!(status(ask(&mut http, Method::POST).await).await, StatusCode::METHOD_NOT_ALLOWED);
    first.close(VarInt::ZERO, "");

    relay.hold.send(true).unwrap();
    let Ok(second) = connect().into_0rtt() else { panic!("no session") };
    let mut http = begin(&second).await;
    let (get, post) = (ask(&mut http, Method::GET).await, ask(&mut http, Method::POST).await);
    until("answered", || server.stats.snapshot().requests == 4).await;
    assert!(second.is_early());
    let recorded = relay.sent.lock().unwrap().clone();
    relay.hold.send(false).unwrap();
    assert_eq!(status(get).await, StatusCode::OK);
    assert_eq!(status(post).await, StatusCode::TOO_EARLY);
    assert_eq!(second.handshake().await, Ok(EarlyData::Accepted));
    let late = ask(&mut http, Method::POST).await;
    assert_eq!(status(late).await, StatusCode::METHOD_NOT_ALLOWED);
    second.close(VarInt::ZERO, "");

    // The server has forgotten the connection. An attacker now replays the client's datagrams.
    let attempts = server.stats.snapshot().attempts;
    let attacker = UdpSocket::bind(loopback()).await.unwrap();
    let mut answer = vec![0; 65_536];
    let answered = async {
        loop {
            for datagram in &recorded {
                attacker.send_to(datagram, server.address).await.unwrap();
            }
            let some = timeout(Duration::from_millis(50), attacker.recv(&mut answer)).await;
            if some.is_ok() && server.stats.snapshot().attempts > attempts {
                return;
            }
        }
    };
    timeout(PATIENCE, answered).await.expect("the server begins a handshake");
    let stats = server.stop().await;
    assert_eq!((stats.requests, stats.opened), (5, 2), "{stats:?}");
}

/// A store of sessions. The test can make it forget all of them.
#[derive(Debug)]
struct Sessions {
    kept: Arc<dyn StoresServerSessions>,
    forgotten: AtomicBool,
}

impl StoresServerSessions for Sessions {
    fn put(&self, key: Vec<u8>, value: Vec<u8>) -> bool {
        self.kept.put(key, value)
    }

    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.kept.get(key).filter(|_| !self.forgotten.load(Ordering::Relaxed))
    }

    fn take(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.kept.take(key).filter(|_| !self.forgotten.load(Ordering::Relaxed))
    }

    fn can_cache(&self) -> bool {
        true
    }
}

/// Starts an HTTP/3 server that accepts early data and answers every request with its name.
fn http(name: &'static str) -> Endpoint {
    serve(name, ServerSessionMemoryCache::new(256), Arc::default())
}

/// Like [`http`], with this store of sessions. Counts the connections.
fn serve(
    name: &'static str,
    sessions: Arc<dyn StoresServerSessions>,
    connections: Arc<AtomicUsize>,
) -> Endpoint {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".into()]).unwrap();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    let settings = EndpointConfig::new(&provider).unwrap();
    let mut tls = rustls::ServerConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    tls.alpn_protocols = vec![b"h3".to_vec()];
    tls.max_early_data_size = u32::MAX;
    tls.session_storage = sessions;
    let config = quic::ServerConfig::new(tls);
    let sockets = Endpoint::bind(loopback(), 1, None).unwrap();
    let server = Endpoint::new(settings, Some(config), sockets).unwrap();
    let accepting = server.clone();
    tokio::spawn(async move {
        while let Some(incoming) = accepting.accept().await {
            let Ok(connection) = incoming.accept().unwrap().into_0rtt() else { panic!("a client") };
            connections.fetch_add(1, Ordering::Relaxed);
            tokio::spawn(async move {
                let transport = binding::QuicConnection::new(connection);
                let mut http = h3::server::Connection::<_, Bytes>::new(transport).await.unwrap();
                while let Ok(Some(resolver)) = http.accept().await {
                    let (_, mut stream) = resolver.resolve_request().await.unwrap();
                    stream.send_response(http::Response::new(())).await.unwrap();
                    stream.send_data(name.into()).await.unwrap();
                    stream.finish().await.unwrap();
                }
            });
        }
    });
    server
}

/// The client sends its request early on the second connection. If the server rejects the early
/// data, the client must send the request again.
// RFC 9114 s.4.1 #1, s.7.2.4.2 #3 #6 #7 #10
#[tokio::test]
async fn early_data_carries_requests() {
    let (one, other) = (http("one"), http("other"));
    let address = one.local_addr().unwrap();
    let config = HttpConfig { trust: Trust::Insecure, early_data: true, ..HttpConfig::default() };
    let client = Client::new(config).unwrap();
    let url = format!("https://{address}/");
    let get = async |url: &str| {
        let mut response = timeout(PATIENCE, client.get(url)).await.unwrap().unwrap();
        let body = timeout(PATIENCE, response.body(100)).await.unwrap().unwrap();
        (body, response.connection().early_data())
    };
    assert_eq!(get(&url).await, ("one".into(), EarlyData::None));
    client.leave(&url).await.unwrap();
    assert_eq!(get(&url).await, ("one".into(), EarlyData::Accepted));
    // Another server with the same name, which does not know the first server's sessions.
    let elsewhere = format!("https://{}/", other.local_addr().unwrap());
    assert_eq!(get(&elsewhere).await, ("other".into(), EarlyData::None));
    client.leave(&elsewhere).await.unwrap();
    assert_eq!(get(&elsewhere).await, ("other".into(), EarlyData::Accepted));
}

/// Several requests are in early data that the server rejects. All of them must be sent again on
/// one new connection.
#[tokio::test]
async fn early_data_that_is_rejected_is_sent_on_one_new_connection() {
    let sessions = Arc::new(Sessions {
        kept: ServerSessionMemoryCache::new(256),
        forgotten: AtomicBool::new(false),
    });
    let connections: Arc<AtomicUsize> = Arc::default();
    let server = serve("name", Arc::clone(&sessions) as _, Arc::clone(&connections));
    let config = HttpConfig { trust: Trust::Insecure, early_data: true, ..HttpConfig::default() };
    let client = Client::new(config).unwrap();
    let url = format!("https://{}/", server.local_addr().unwrap());
    let get = async |client: Client, url: String| {
        let mut response = client.get(&url).await.unwrap();
        assert_eq!(&response.body(100).await.unwrap()[..], b"name");
        response.connection().early_data()
    };
    // Two connections give the client more than one session ticket, so that it could send early
    // data again in a further attempt.
    for _ in 0..2 {
        timeout(PATIENCE, get(client.clone(), url.clone())).await.unwrap();
        client.leave(&url).await.unwrap();
    }
    sessions.forgotten.store(true, Ordering::Relaxed);
    let before = connections.load(Ordering::Relaxed);
    let mut running = JoinSet::new();
    for _ in 0..10 {
        running.spawn(get(client.clone(), url.clone()));
    }
    let early = timeout(PATIENCE, running.join_all()).await.unwrap();
    assert_eq!(early, [EarlyData::None; 10]);
    assert_eq!(connections.load(Ordering::Relaxed) - before, 2);
}
