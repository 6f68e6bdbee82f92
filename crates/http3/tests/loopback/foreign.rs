//! Tests with quinn and h3-quinn as the peer: as a client of our server, and as a server for our
//! client.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::{Buf, Bytes};
use equic_http3::{Client, ClientConfig, Congestion, Fingerprint, KeyLog, ServerConfig, Trust};
use http::{Request, Response, StatusCode, header};
use quinn::{Connection, Endpoint};
use tokio::time::timeout;

use crate::common::{PATIENCE, Running, loopback, start};

/// Opens a QUIC connection on which the test writes raw streams instead of using HTTP/3.
pub(crate) async fn raw(server: &Running) -> (Endpoint, Connection) {
    raw_with(server, quinn::TransportConfig::default()).await
}

/// Like [`raw`], with the given transport settings.
pub(crate) async fn raw_with(
    server: &Running,
    transport: quinn::TransportConfig,
) -> (Endpoint, Connection) {
    raw_at(server.address, transport).await
}

/// Like [`raw_with`], to a server at this address.
pub(crate) async fn raw_at(
    address: SocketAddr,
    transport: quinn::TransportConfig,
) -> (Endpoint, Connection) {
    #[derive(Debug)]
    struct Any(Arc<rustls::crypto::CryptoProvider>);
    impl rustls::client::danger::ServerCertVerifier for Any {
        fn verify_server_cert(
            &self,
            _: &rustls::pki_types::CertificateDer<'_>,
            _: &[rustls::pki_types::CertificateDer<'_>],
            _: &rustls::pki_types::ServerName<'_>,
            _: &[u8],
            _: rustls::pki_types::UnixTime,
        ) -> Result<rustls::client::danger::ServerCertVerified, rustls::Error> {
            Ok(rustls::client::danger::ServerCertVerified::assertion())
        }
        fn verify_tls12_signature(
            &self,
            _: &[u8],
            _: &rustls::pki_types::CertificateDer<'_>,
            _: &rustls::DigitallySignedStruct,
        ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
            Err(rustls::Error::General("not TLS 1.3".into()))
        }
        fn verify_tls13_signature(
            &self,
            _: &[u8],
            _: &rustls::pki_types::CertificateDer<'_>,
            _: &rustls::DigitallySignedStruct,
        ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
            Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
        }
        fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
            self.0.signature_verification_algorithms.supported_schemes()
        }
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut tls = rustls::ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Any(provider)))
        .with_no_client_auth();
    tls.alpn_protocols = vec![b"h3".to_vec()];
    let crypto = quinn::crypto::rustls::QuicClientConfig::try_from(tls).unwrap();
    let endpoint = Endpoint::client(loopback()).unwrap();
    let mut config = quinn::ClientConfig::new(Arc::new(crypto));
    config.transport_config(Arc::new(transport));
    let connecting = endpoint.connect_with(config, address, "localhost").unwrap();
    let connection = connecting.await.unwrap();
    (endpoint, connection)
}

/// Sends a GET request with h3 over quinn. Returns the status and the length of the body.
pub(crate) async fn get(server: &Running, path: &str) -> (StatusCode, usize) {
    let (response, body) = request(server, Request::get(format!("https://localhost{path}"))).await;
    (response.status(), body.len())
}

async fn request(server: &Running, request: http::request::Builder) -> (Response<()>, Vec<u8>) {
    let (_endpoint, connection) = raw(server).await;
    let connection = h3_quinn::Connection::new(connection);
    let (mut driver, mut send) = h3::client::new(connection).await.unwrap();
    let driving = tokio::spawn(async move { driver.wait_idle().await });
    let mut stream = send.send_request(request.body(()).unwrap()).await.unwrap();
    stream.finish().await.unwrap();
    let response = stream.recv_response().await.unwrap();
    let mut body = Vec::new();
    while let Some(mut data) = stream.recv_data().await.unwrap() {
        body.extend_from_slice(&data.copy_to_bytes(data.remaining()));
    }
    drop(send);
    let _ = driving.await;
    (response, body)
}

#[tokio::test]
async fn range_requests_by_another_client() {
    let root = tempfile::tempdir().unwrap();
    std::fs::write(root.path().join("file.txt"), "0123456789").unwrap();
    let root = Some(root.path().to_owned());
    let server = start(ServerConfig { root, ..ServerConfig::new(loopback()) });
    for (range, status, content_range, body) in [
        ("bytes=0-3", StatusCode::PARTIAL_CONTENT, Some("bytes 0-3/10"), "0123"),
        ("bytes=-2", StatusCode::PARTIAL_CONTENT, Some("bytes 8-9/10"), "89"),
        (
            "bytes=10-",
            StatusCode::RANGE_NOT_SATISFIABLE,
            Some("bytes */10"),
            "the requested range is outside of the file\n",
        ),
        ("bytes=1-2,4-5", StatusCode::OK, None, "0123456789"),
    ] {
        let asked = Request::get("https://localhost/file.txt").header(header::RANGE, range);
        let (response, got) = request(&server, asked).await;
        let field = response.headers().get(header::CONTENT_RANGE).map(|v| v.to_str().unwrap());
        assert_eq!((response.status(), field), (status, content_range), "{range}");
        assert_eq!(got, body.as_bytes(), "{range}");
    }
    let asked = Request::head("https://localhost/file.txt").header(header::RANGE, "bytes=0-3");
    let (response, _) = request(&server, asked).await;
    let fields = response.headers();
    assert_eq!(response.status(), StatusCode::OK);
    assert!(fields[header::ACCEPT_RANGES] == "bytes" && fields[header::CONTENT_LENGTH] == "10");
    server.stop().await;
}

/// Our client connects to a quinn server that sends Retry to every client. Each congestion
/// controller is tested, and a key log is written.
#[tokio::test]
async fn retry_congestion_and_key_log() {
    let directory = tempfile::tempdir().unwrap();
    for congestion in [Congestion::NewReno, Congestion::Cubic, Congestion::Bbr] {
        let path = directory.path().join(congestion.to_string());
        let server = start(ServerConfig {
            retry: true,
            congestion,
            key_log: Some(KeyLog::open(&path).unwrap()),
            ..ServerConfig::new(loopback())
        });
        assert_eq!(get(&server, "/bytes/1000000").await, (StatusCode::OK, 1_000_000));
        let stats = server.stop().await;
        assert_eq!((stats.attempts, stats.retried, stats.opened), (2, 1, 1));
        let log = std::fs::read_to_string(&path).unwrap();
        assert!(log.lines().any(|line| line.starts_with("SERVER_TRAFFIC_SECRET_0 ")), "{log}");
        assert!(log.lines().all(|line| line.split(' ').count() == 3), "{log}");
    }
}

// RFC 9114 s.4.2 #1, s.7.2.1 #1
// RFC 9204 s.2.2 #1
#[tokio::test]
async fn interop_our_server_with_h3_over_quinn() {
    let server = start(ServerConfig::new(loopback()));
    for (path, expected) in [
        ("/health", (StatusCode::OK, 3)),
        ("/bytes/10000000", (StatusCode::OK, 10_000_000)),
        ("/nothing", (StatusCode::NOT_FOUND, 10)),
    ] {
        assert_eq!(timeout(PATIENCE, get(&server, path)).await.unwrap(), expected, "{path}");
    }
    let stats = server.stop().await;
    assert_eq!((stats.opened, stats.requests, stats.failed), (3, 3, 0));
}

/// Returns a quinn server with the ALPN of HTTP/3, and the fingerprint of its certificate.
pub(crate) fn raw_server() -> (Endpoint, Fingerprint) {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".into()]).unwrap();
    let certificate = made.cert.der().clone();
    let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key)
        .unwrap();
    tls.alpn_protocols = vec![b"h3".to_vec()];
    let crypto = quinn::crypto::rustls::QuicServerConfig::try_from(tls).unwrap();
    let config = quinn::ServerConfig::with_crypto(Arc::new(crypto));
    (Endpoint::server(config, loopback()).unwrap(), Fingerprint::of(&certificate))
}

// RFC 9114 s.4.1 #6 #7, s.4.3 #1 #5, s.7.1 #1, s.7.2.4.2 #1
// RFC 9204 s.2.1 #1, s.3.2.3 #1 #3, s.4.2 #1
#[tokio::test]
async fn interop_our_client_with_h3_over_quinn() {
    let (endpoint, fingerprint) = raw_server();
    let address = endpoint.local_addr().unwrap();
    let serving = tokio::spawn(async move {
        let connection = endpoint.accept().await.unwrap().await.unwrap();
        let connection = h3_quinn::Connection::new(connection);
        let mut h3 = h3::server::Connection::<_, Bytes>::new(connection).await.unwrap();
        while let Ok(Some(resolver)) = h3.accept().await {
            let (request, mut stream) = resolver.resolve_request().await.unwrap();
            let body = Bytes::from(request.uri().path().repeat(100_000));
            stream.send_response(Response::new(())).await.unwrap();
            stream.send_data(body).await.unwrap();
            stream.finish().await.unwrap();
        }
    });
    let trust = Trust::Fingerprint(fingerprint);
    let config = ClientConfig { trust, bind: Some(loopback()), ..ClientConfig::default() };
    let client = Client::new(config).unwrap();
    for path in ["/a", "/bcd"] {
        let mut response = client.get(&format!("https://{address}{path}")).await.unwrap();
        let body = response.body(1 << 20).await.unwrap();
        assert_eq!((response.status, &*body), (StatusCode::OK, path.repeat(100_000).as_bytes()));
    }
    client.close().await;
    timeout(PATIENCE, serving).await.unwrap().unwrap();
}
