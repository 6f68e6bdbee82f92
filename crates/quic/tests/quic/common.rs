//! Certificates, configurations and endpoints for the tests.

use std::future::Future;
use std::net::UdpSocket;
use std::sync::Arc;
use std::time::Duration;

use equic_quic::{
    ClientConfig, Connection, Endpoint, EndpointConfig, Incoming, ServerConfig, TransportConfig,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::time::timeout;

/// Timeout. Each step of a test takes less time unless it hangs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) const NAME: &str = "equic.test";
pub(crate) const ALPN: &[u8] = b"test";

/// Returns the default provider of programs.
#[cfg(feature = "aws-lc-rs")]
pub(crate) fn provider() -> rustls::crypto::CryptoProvider {
    equic_quic::aws_lc_provider()
}

/// Returns rustls's provider for AWS-LC. This crate's provider is tested elsewhere
/// (`tests/ring.rs`).
#[cfg(not(feature = "aws-lc-rs"))]
pub(crate) fn provider() -> rustls::crypto::CryptoProvider {
    rustls::crypto::aws_lc_rs::default_provider()
}

/// A certificate and its key.
pub(crate) struct Identity {
    pub certificate: CertificateDer<'static>,
    pub key: PrivateKeyDer<'static>,
}

impl Identity {
    pub(crate) fn new() -> Identity {
        let made = rcgen::generate_simple_self_signed(vec![NAME.into()]).unwrap();
        Identity {
            certificate: made.cert.der().clone(),
            key: PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap(),
        }
    }

    pub(crate) fn client_tls(&self) -> rustls::ClientConfig {
        self.client_tls_by(provider())
    }

    /// Returns a client's TLS configuration with this provider.
    pub(crate) fn client_tls_by(
        &self,
        provider: rustls::crypto::CryptoProvider,
    ) -> rustls::ClientConfig {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(self.certificate.clone()).unwrap();
        let mut tls = rustls::ClientConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        tls.alpn_protocols = vec![ALPN.to_vec()];
        tls
    }

    pub(crate) fn server_tls(&self) -> rustls::ServerConfig {
        let provider = Arc::new(provider());
        let mut tls = rustls::ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![self.certificate.clone()], self.key.clone_key())
            .unwrap();
        tls.alpn_protocols = vec![ALPN.to_vec()];
        tls
    }

    pub(crate) fn client(&self) -> ClientConfig {
        ClientConfig::new(self.client_tls())
    }

    pub(crate) fn server(&self, sockets: usize) -> Endpoint {
        let config = ServerConfig::new(self.server_tls());
        self.server_with(sockets, settings(), config)
    }

    pub(crate) fn server_with(
        &self,
        sockets: usize,
        settings: EndpointConfig,
        config: ServerConfig,
    ) -> Endpoint {
        let sockets = Endpoint::bind("127.0.0.1:0".parse().unwrap(), sockets, None).unwrap();
        Endpoint::new(settings, Some(config), sockets).unwrap()
    }
}

pub(crate) fn transport() -> Arc<TransportConfig> {
    Arc::new(TransportConfig::default())
}

pub(crate) fn settings() -> EndpointConfig {
    let provider = provider();
    EndpointConfig::new(&provider).unwrap()
}

pub(crate) fn client() -> Endpoint {
    Endpoint::new(settings(), None, vec![UdpSocket::bind("127.0.0.1:0").unwrap()]).unwrap()
}

pub(crate) fn body(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 31 % 251) as u8).collect()
}

/// Awaits a future, and panics if it does not complete in time.
pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    match timeout(PATIENCE, future).await {
        Ok(value) => value,
        Err(_) => panic!("timed out: {what}"),
    }
}

pub(crate) async fn connect(
    client: &Endpoint,
    config: &ClientConfig,
    server: &Endpoint,
) -> Connection {
    let connecting = client.connect_with(config, server.local_addr().unwrap(), NAME).unwrap();
    soon("connected", connecting).await.unwrap()
}

/// Accepts every connection attempt, and echoes every stream.
pub(crate) fn echo(server: Endpoint) -> tokio::task::JoinHandle<()> {
    serve(server, |connection| async move {
        while let Ok((mut send, mut receive)) = connection.accept_bi().await {
            tokio::spawn(async move {
                while let Ok(Some(data)) = receive.read_chunk().await {
                    if send.write_chunk(data).await.is_err() {
                        return;
                    }
                }
                let _ = send.finish();
            });
        }
    })
}

/// Accepts every connection attempt, and passes the connection to `handle`.
pub(crate) fn serve<F: Future<Output = ()> + Send + 'static>(
    server: Endpoint,
    handle: impl Fn(Connection) -> F + Clone + Send + Sync + 'static,
) -> tokio::task::JoinHandle<()> {
    decide(server, Some, handle)
}

/// Accepts the connection attempts that `decide` returns, and passes the connections to `handle`.
pub(crate) fn decide<F: Future<Output = ()> + Send + 'static>(
    server: Endpoint,
    decide: impl Fn(Incoming) -> Option<Incoming> + Send + Sync + 'static,
    handle: impl Fn(Connection) -> F + Clone + Send + Sync + 'static,
) -> tokio::task::JoinHandle<()> {
    tokio::spawn(async move {
        while let Some(incoming) = server.accept().await {
            let Some(incoming) = decide(incoming) else { continue };
            let Ok(connecting) = incoming.accept() else { continue };
            let handle = handle.clone();
            tokio::spawn(async move {
                if let Ok(connection) = connecting.await {
                    handle(connection).await;
                }
            });
        }
    })
}

/// Sends `length` bytes on a new stream, and checks that the peer echoes them.
pub(crate) async fn exchange(connection: &Connection, length: usize) {
    let (mut send, mut receive) = connection.open_bi().await.unwrap();
    let writing = tokio::spawn(async move {
        send.write_all(&body(length)).await.unwrap();
        send.finish().unwrap();
    });
    let back = soon("echoed", receive.read_to_end(length)).await.unwrap();
    assert!(back == body(length), "{length} bytes");
    writing.await.unwrap();
}
