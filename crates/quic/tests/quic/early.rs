//! Tests of how connections start: 0-RTT, tokens, versions. The peer is this crate or quinn.

use std::net::UdpSocket;
use std::sync::{Arc, Mutex};

use equic_quic::{
    ClientConfig, Connection, ConnectionError, EarlyData, Endpoint, ReadError, SendMemory,
    ServerConfig, TransportConfig, WriteError,
};
use equic_wire::KnownVersion;
use tokio::io::AsyncReadExt;

use crate::common::{ALPN, Identity, NAME, body, client, connect, decide, echo, settings, soon};

/// Returns the configuration of a client that tries 0-RTT.
fn early_client(identity: &Identity) -> ClientConfig {
    let mut tls = identity.client_tls();
    tls.enable_early_data = true;
    ClientConfig::new(tls)
}

/// Returns a server that accepts 0-RTT. It has no sessions yet.
fn early_server(identity: &Identity) -> Endpoint {
    let mut tls = identity.server_tls();
    tls.max_early_data_size = u32::MAX;
    let config = ServerConfig::new(tls);
    identity.server_with(1, settings(), config)
}

/// Accepts streams before the handshake is complete, and echoes them. Reports for each stream
/// whether its data may be a replay.
fn echo_early(server: Endpoint) -> tokio::sync::mpsc::UnboundedReceiver<bool> {
    let (tell, told) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(incoming) = server.accept().await {
            let Ok(connection) = incoming.accept().unwrap().into_0rtt() else { panic!("a client") };
            let tell = tell.clone();
            tokio::spawn(async move {
                while let Ok((mut send, mut receive)) = connection.accept_bi().await {
                    tell.send(connection.is_early()).unwrap();
                    let mut all = Vec::new();
                    AsyncReadExt::read_to_end(&mut receive, &mut all).await.unwrap();
                    send.write_all(&all).await.unwrap();
                    send.finish().unwrap();
                }
            });
        }
    });
    told
}

async fn exchange(connection: &Connection, length: usize) {
    let (mut send, mut receive) = connection.open_bi().await.unwrap();
    let data = body(length);
    soon("written", send.write_all(&data)).await.unwrap();
    send.finish().unwrap();
    let mut back = Vec::new();
    soon("echoed", AsyncReadExt::read_to_end(&mut receive, &mut back)).await.unwrap();
    assert!(back == data, "{length} bytes");
}

#[tokio::test]
async fn early_data_is_accepted() {
    let identity = Identity::new();
    let server = early_server(&identity);
    let mut told = echo_early(server.clone());
    let (client, config) = (client(), early_client(&identity));
    let address = server.local_addr().unwrap();
    let first = client.connect_with(&config, address, NAME).unwrap();
    let first = first.into_0rtt().err().expect("there is no session yet");
    let first = soon("connected", first).await.unwrap();
    exchange(&first, 1000).await;
    assert_eq!(first.handshake().await, Ok(EarlyData::None));
    assert_eq!(told.recv().await, Some(false));
    let second = client.connect_with(&config, address, NAME).unwrap().into_0rtt();
    let Ok(second) = second else { panic!("no session") };
    assert!(second.is_early());
    exchange(&second, 5000).await;
    assert_eq!(told.recv().await, Some(true));
    assert_eq!(soon("connected", second.handshake()).await, Ok(EarlyData::Accepted));
    exchange(&second, 100_000).await;
    assert!(!second.is_early());
}

/// An ICMP error ends a connection that has early data to send. The data must no longer count.
#[tokio::test]
async fn early_data_to_a_closed_port_frees_its_memory() {
    let identity = Identity::new();
    let server = early_server(&identity);
    let _told = echo_early(server.clone());
    let memory = SendMemory::new(1 << 20);
    let settings = settings().with_heed_unreachable(true).with_send_memory(memory.clone());
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let client = Endpoint::new(settings, None, vec![socket]).unwrap();
    let config = early_client(&identity);
    exchange(&connect(&client, &config, &server).await, 1000).await;
    let closed = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let connection = client.connect_with(&config, closed, NAME).unwrap().into_0rtt();
    let Ok(connection) = connection else { panic!("no session") };
    let (mut send, _receive) = connection.open_bi().await.unwrap();
    send.write_all(&body(50_000)).await.unwrap();
    let closed = soon("closed", connection.closed()).await;
    assert!(matches!(closed, ConnectionError::Unreachable(_)), "{closed}");
    drop(server);
    soon("idle", client.wait_idle()).await;
    assert_eq!(memory.used(), 0);
}

/// The server has forgotten the session. The client must send its data again, on streams that have
/// the same IDs as the rejected ones.
#[tokio::test]
async fn early_data_is_rejected() {
    let identity = Identity::new();
    let (one, other) = (early_server(&identity), early_server(&identity));
    let _told = echo_early(one.clone());
    let mut told = echo_early(other.clone());
    let (client, config) = (client(), early_client(&identity));
    exchange(&connect(&client, &config, &one).await, 1000).await;
    let connection = client.connect_with(&config, other.local_addr().unwrap(), NAME).unwrap();
    let Ok(connection) = connection.into_0rtt() else { panic!("no session") };
    let (mut send, mut receive) = connection.open_bi().await.unwrap();
    let (mut unused, _) = connection.open_bi().await.unwrap();
    send.write_all(b"early").await.unwrap();
    send.finish().unwrap();
    let read = soon("an end", receive.read_chunk()).await;
    assert_eq!(read, Err(ReadError::EarlyDataRejected));
    assert_eq!(soon("connected", connection.handshake()).await, Ok(EarlyData::Rejected));
    let gone = WriteError::EarlyDataRejected;
    assert_eq!(unused.write(b"late").await, Err(gone.clone()));
    assert_eq!(unused.finish(), Err(gone.clone()));
    assert_eq!(soon("an end", send.stopped()).await, Err(gone));
    let (mut again, mut answer) = connection.open_bi().await.unwrap();
    assert_eq!(again.id(), send.id());
    // The handles of the rejected streams must not affect the new stream.
    unused.reset(equic_wire::VarInt::ZERO);
    drop((send, receive, unused));
    again.write_all(b"late").await.unwrap();
    again.finish().unwrap();
    let mut back = Vec::new();
    soon("echoed", AsyncReadExt::read_to_end(&mut answer, &mut back)).await.unwrap();
    assert_eq!(back, b"late");
    assert_eq!(told.recv().await, Some(false), "early data arrived");
}

#[tokio::test]
async fn early_data_to_quinn() {
    let identity = Identity::new();
    let mut tls = identity.server_tls();
    tls.max_early_data_size = u32::MAX;
    let crypto = quinn::crypto::rustls::QuicServerConfig::try_from(tls).unwrap();
    let config = quinn::ServerConfig::with_crypto(Arc::new(crypto));
    let server = quinn::Endpoint::server(config, "127.0.0.1:0".parse().unwrap()).unwrap();
    let address = server.local_addr().unwrap();
    tokio::spawn(async move {
        while let Some(incoming) = server.accept().await {
            let Ok((connection, _)) = incoming.accept().unwrap().into_0rtt() else { panic!() };
            tokio::spawn(async move {
                while let Ok((mut send, mut receive)) = connection.accept_bi().await {
                    let data = receive.read_to_end(1 << 20).await.unwrap();
                    send.write_all(&data).await.unwrap();
                    send.finish().unwrap();
                }
            });
        }
    });
    let (client, config) = (client(), early_client(&identity));
    let first = client.connect_with(&config, address, NAME).unwrap();
    exchange(&soon("connected", first).await.unwrap(), 1000).await;
    let second = client.connect_with(&config, address, NAME).unwrap().into_0rtt();
    let Ok(second) = second else { panic!("no session") };
    exchange(&second, 5000).await;
    assert_eq!(soon("connected", second.handshake()).await, Ok(EarlyData::Accepted));
}

fn quinn_client(identity: &Identity) -> quinn::Endpoint {
    let mut tls = identity.client_tls();
    tls.enable_early_data = true;
    let crypto = quinn::crypto::rustls::QuicClientConfig::try_from(tls).unwrap();
    let mut endpoint = quinn::Endpoint::client("127.0.0.1:0".parse().unwrap()).unwrap();
    endpoint.set_default_client_config(quinn::ClientConfig::new(Arc::new(crypto)));
    endpoint
}

async fn exchange_by_quinn(connection: &quinn::Connection, length: usize) {
    let (mut send, mut receive) = connection.open_bi().await.unwrap();
    let data = body(length);
    send.write_all(&data).await.unwrap();
    send.finish().unwrap();
    assert!(receive.read_to_end(1 << 20).await.unwrap() == data, "{length} bytes");
}

#[tokio::test]
async fn early_data_of_quinn() {
    let identity = Identity::new();
    let server = early_server(&identity);
    let mut told = echo_early(server.clone());
    let (endpoint, address) = (quinn_client(&identity), server.local_addr().unwrap());
    let first = endpoint.connect(address, NAME).unwrap().into_0rtt().err().expect("no session");
    let first = soon("connected", first).await.unwrap();
    soon("echoed", exchange_by_quinn(&first, 1000)).await;
    assert_eq!(told.recv().await, Some(false));
    let second = endpoint.connect(address, NAME).unwrap().into_0rtt();
    let Ok((second, accepted)) = second else { panic!("no session") };
    soon("echoed", exchange_by_quinn(&second, 5000)).await;
    assert!(soon("answered", accepted).await);
    assert_eq!(told.recv().await, Some(true));
}

/// Runs a server that echoes streams. For each connection attempt, returns whether the client's
/// address was validated.
fn watched(server: &Endpoint) -> Arc<Mutex<Vec<bool>>> {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&seen);
    decide(
        server.clone(),
        move |incoming| {
            told.lock().unwrap().push(incoming.is_validated());
            if incoming.is_validated() {
                return Some(incoming);
            }
            incoming.retry();
            None
        },
        |connection| async move {
            while let Ok((mut send, mut receive)) = connection.accept_bi().await {
                let mut all = Vec::new();
                AsyncReadExt::read_to_end(&mut receive, &mut all).await.unwrap();
                send.write_all(&all).await.unwrap();
                send.finish().unwrap();
            }
        },
    );
    seen
}

#[tokio::test]
async fn token_is_not_kept_unless_wanted() {
    let identity = Identity::new();
    let server = identity.server(1);
    let seen = watched(&server);
    let mut settings = settings();
    settings.keep_tokens = false;
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let (client, config) =
        (Endpoint::new(settings, None, vec![socket]).unwrap(), identity.client());
    for _ in 0..2 {
        exchange(&connect(&client, &config, &server).await, 1000).await;
    }
    assert_eq!(*seen.lock().unwrap(), [false, true, false, true]);
}

/// The second connection needs no Retry packet. Neither does the third, which uses the second's
/// token.
#[tokio::test]
async fn token_replaces_a_retry() {
    let identity = Identity::new();
    let server = identity.server(2);
    let seen = watched(&server);
    let (client, config) = (client(), identity.client());
    for _ in 0..3 {
        exchange(&connect(&client, &config, &server).await, 1000).await;
    }
    assert_eq!(*seen.lock().unwrap(), [false, true, true, true]);
    // Tokens are not used from another address.
    client.rebind(UdpSocket::bind("127.0.0.1:0").unwrap()).unwrap();
    exchange(&connect(&client, &config, &server).await, 1000).await;
    assert_eq!(seen.lock().unwrap()[4..], [false, true]);
}

#[tokio::test]
async fn token_is_not_given_unless_wanted() {
    let identity = Identity::new();
    let config = ServerConfig::new(identity.server_tls());
    let mut settings = settings();
    settings.give_tokens = false;
    let server = identity.server_with(1, settings, config);
    let seen = watched(&server);
    let (client, config) = (client(), identity.client());
    for _ in 0..2 {
        exchange(&connect(&client, &config, &server).await, 1000).await;
    }
    assert_eq!(*seen.lock().unwrap(), [false, true, false, true]);
}

#[tokio::test]
async fn token_for_quinn() {
    let identity = Identity::new();
    let server = identity.server(1);
    let seen = watched(&server);
    let (endpoint, address) = (quinn_client(&identity), server.local_addr().unwrap());
    for _ in 0..2 {
        let connecting = endpoint.connect(address, NAME).unwrap();
        let connection = soon("connected", connecting).await.unwrap();
        soon("echoed", exchange_by_quinn(&connection, 1000)).await;
    }
    assert_eq!(*seen.lock().unwrap(), [false, true, true]);
}

fn speaking(versions: &[KnownVersion], first: Option<KnownVersion>) -> Arc<TransportConfig> {
    let versions = versions.to_vec();
    Arc::new(TransportConfig::default().with_versions(versions).with_first_version(first))
}

/// A server answers an unknown version with the versions that it supports. quinn does that, too.
#[tokio::test]
async fn version_without_support_is_refused() {
    let identity = Identity::new();
    let transport = TransportConfig::default().with_first_unknown(true);
    let tls = Arc::new(identity.client_tls());
    let config = ClientConfig::new(tls).with_transport(transport);
    let server = identity.server(1);
    echo(server.clone());
    let connection = connect(&client(), &config, &server).await;
    exchange(&connection, 10_000).await;
    assert_eq!(connection.version(), KnownVersion::V1);
    let crypto = quinn::crypto::rustls::QuicServerConfig::try_from(identity.server_tls()).unwrap();
    let quinn_config = quinn::ServerConfig::with_crypto(Arc::new(crypto));
    let server = quinn::Endpoint::server(quinn_config, "127.0.0.1:0".parse().unwrap()).unwrap();
    let address = server.local_addr().unwrap();
    let accepting = tokio::spawn(async move { server.accept().await.unwrap().await.unwrap() });
    let connecting = client().connect_with(&config, address, NAME).unwrap();
    assert!(soon("connected", connecting).await.is_ok());
    soon("quinn's side", accepting).await.unwrap();
}

/// Initial packets always use AES (RFC 9001 s.5.2).
#[tokio::test]
async fn tls_with_chacha20_only() {
    let identity = Identity::new();
    let mut provider = rustls::crypto::aws_lc_rs::default_provider();
    provider.cipher_suites =
        vec![rustls::crypto::aws_lc_rs::cipher_suite::TLS13_CHACHA20_POLY1305_SHA256];
    let provider = Arc::new(provider);
    let mut roots = rustls::RootCertStore::empty();
    roots.add(identity.certificate.clone()).unwrap();
    let mut tls = rustls::ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    tls.alpn_protocols = vec![ALPN.to_vec()];
    let only_chacha = ClientConfig::new(tls);
    let mut tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![identity.certificate.clone()], identity.key.clone_key())
        .unwrap();
    tls.alpn_protocols = vec![ALPN.to_vec()];
    let config = ServerConfig::new(tls);
    let server = identity.server_with(1, settings(), config);
    echo(server.clone());
    for config in [only_chacha, identity.client()] {
        exchange(&connect(&client(), &config, &server).await, 10_000).await;
    }
}

/// The negotiated version is the server's preferred one among the versions that both ends support.
#[tokio::test]
async fn version_is_negotiated() {
    use KnownVersion::{V1, V2};
    let identity = Identity::new();
    for (ours, first, theirs, agreed) in [
        (&[V2, V1][..], Some(V1), &[V2, V1][..], V2),
        (&[V2, V1], Some(V1), &[V1], V1),
        (&[V2, V1], None, &[V1], V1),
        (&[V2, V1], None, &[V2], V2),
        (&[V1, V2], None, &[V2, V1], V1),
    ] {
        let config =
            ServerConfig::new(identity.server_tls()).with_transport(speaking(theirs, None));
        let server = identity.server_with(1, settings(), config);
        echo(server.clone());
        let tls = Arc::new(identity.client_tls());
        let config = ClientConfig::new(tls).with_transport(speaking(ours, first));
        let connection = connect(&client(), &config, &server).await;
        exchange(&connection, 10_000).await;
        assert_eq!(connection.version(), agreed, "{ours:?} {first:?} {theirs:?}");
    }
}
