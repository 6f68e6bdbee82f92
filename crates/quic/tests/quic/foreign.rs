//! Tests with quinn: our server with its client, and our client with its server.

use std::sync::Arc;

use equic_quic::{ConnectionError, DatagramError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::common::{Identity, NAME, body, client, decide, echo, soon};

fn quinn_client(identity: &Identity) -> quinn::Endpoint {
    quinn_client_with(identity.client_tls())
}

pub(crate) fn quinn_server(identity: &Identity) -> quinn::Endpoint {
    let crypto = quinn::crypto::rustls::QuicServerConfig::try_from(identity.server_tls()).unwrap();
    let config = quinn::ServerConfig::with_crypto(Arc::new(crypto));
    quinn::Endpoint::server(config, "127.0.0.1:0".parse().unwrap()).unwrap()
}

pub(crate) fn quinn_client_with(tls: rustls::ClientConfig) -> quinn::Endpoint {
    let crypto = quinn::crypto::rustls::QuicClientConfig::try_from(tls).unwrap();
    let mut endpoint = quinn::Endpoint::client("127.0.0.1:0".parse().unwrap()).unwrap();
    endpoint.set_default_client_config(quinn::ClientConfig::new(Arc::new(crypto)));
    endpoint
}

async fn echo_by_quinn(connection: &quinn::Connection, length: usize) {
    let (mut send, mut receive) = connection.open_bi().await.unwrap();
    let data = body(length);
    let expected = data.clone();
    let writer = tokio::spawn(async move {
        send.write_all(&data).await.unwrap();
        send.finish().unwrap();
    });
    assert!(receive.read_to_end(64 << 20).await.unwrap() == expected, "{length} bytes");
    writer.await.unwrap();
}

#[tokio::test]
async fn interop_our_server_with_quinns_client() {
    let identity = Identity::new();
    let server = identity.server(2);
    echo(server.clone());
    let endpoint = quinn_client(&identity);
    let connecting = endpoint.connect(server.local_addr().unwrap(), NAME).unwrap();
    let connection = soon("connected", connecting).await.unwrap();
    soon("echoed", async {
        for length in [0, 1, 100_000, 5_000_000] {
            echo_by_quinn(&connection, length).await;
        }
    })
    .await;
    connection.close(3u32.into(), b"bye");
    soon("the server is idle", server.wait_idle()).await;
}

/// quinn's client validates its address when the server sends a Retry packet.
#[tokio::test]
async fn retry_with_quinns_client() {
    let identity = Identity::new();
    let server = identity.server(2);
    let asked = Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = Arc::clone(&asked);
    decide(
        server.clone(),
        move |incoming| {
            seen.lock().unwrap().push(incoming.is_validated());
            if incoming.may_retry() {
                incoming.retry();
                return None;
            }
            Some(incoming)
        },
        |connection| async move {
            let (mut send, mut receive) = connection.accept_bi().await.unwrap();
            let mut all = Vec::new();
            AsyncReadExt::read_to_end(&mut receive, &mut all).await.unwrap();
            send.write_all(&all).await.unwrap();
            send.shutdown().await.unwrap();
            connection.closed().await;
        },
    );
    let endpoint = quinn_client(&identity);
    let connecting = endpoint.connect(server.local_addr().unwrap(), NAME).unwrap();
    let connection = soon("connected", connecting).await.unwrap();
    soon("echoed", echo_by_quinn(&connection, 10_000)).await;
    assert_eq!(*asked.lock().unwrap(), [false, true]);
}

#[tokio::test]
async fn interop_our_client_with_quinns_server() {
    let identity = Identity::new();
    let server = quinn_server(&identity);
    let address = server.local_addr().unwrap();
    let serving = tokio::spawn(async move {
        let connection = server.accept().await.unwrap().await.unwrap();
        while let Ok((mut send, mut receive)) = connection.accept_bi().await {
            let data = receive.read_to_end(64 << 20).await.unwrap();
            send.write_all(&data).await.unwrap();
            send.finish().unwrap();
        }
        connection.close_reason()
    });
    let client = client();
    let connecting = client.connect_with(&identity.client(), address, NAME).unwrap();
    let connection = soon("connected", connecting).await.unwrap();
    for length in [0, 1, 100_000, 5_000_000] {
        let (mut send, mut receive) = connection.open_bi().await.unwrap();
        let data = body(length);
        send.write_all(&data).await.unwrap();
        send.shutdown().await.unwrap();
        let mut back = Vec::new();
        soon("echoed", AsyncReadExt::read_to_end(&mut receive, &mut back)).await.unwrap();
        assert!(back == data, "{length} bytes");
    }
    connection.close(equic_wire::VarInt::from_u32(3), "bye");
    let reason = soon("quinn is notified", serving).await.unwrap();
    let Some(quinn::ConnectionError::ApplicationClosed(close)) = reason else {
        panic!("{reason:?}")
    };
    assert_eq!((close.error_code.into_inner(), &*close.reason), (3, &b"bye"[..]));
}

/// Datagrams in both directions (RFC 9221). quinn echoes them.
#[tokio::test]
async fn datagram_frames_with_quinns_server() {
    let identity = Identity::new();
    let server = quinn_server(&identity);
    let address = server.local_addr().unwrap();
    tokio::spawn(async move {
        let connection = server.accept().await.unwrap().await.unwrap();
        while let Ok(data) = connection.read_datagram().await {
            connection.send_datagram(data).unwrap();
        }
    });
    let client = client();
    let connecting = client.connect_with(&identity.client(), address, NAME).unwrap();
    let connection = soon("connected", connecting).await.unwrap();
    let most = connection.max_datagram_size().unwrap();
    assert!(most > 1100, "{most}");
    for length in [0, 1, most] {
        let data = body(length);
        connection.send_datagram(data.clone()).unwrap();
        let back = soon("echoed", connection.read_datagram()).await.unwrap();
        assert!(back == data, "{length} bytes");
    }
    let error = connection.send_datagram(vec![0; 65_536]).unwrap_err();
    assert!(matches!(error, DatagramError::TooLarge(_)), "{error}");
    // A task that waits for a datagram is woken when the connection is closed.
    let waiting = tokio::spawn({
        let connection = connection.clone();
        async move { connection.read_datagram().await }
    });
    tokio::task::yield_now().await;
    connection.close(equic_wire::VarInt::ZERO, "");
    let error = soon("the end", waiting).await.unwrap().unwrap_err();
    assert_eq!(error, ConnectionError::LocallyClosed);
    assert_eq!(connection.send_datagram(vec![0]), Err(DatagramError::Closed));
}

#[tokio::test]
async fn tls_untrusted_certificate_is_refused() {
    let (identity, other) = (Identity::new(), Identity::new());
    let server = identity.server(1);
    echo(server.clone());
    let client = client();
    let connecting =
        client.connect_with(&other.client(), server.local_addr().unwrap(), NAME).unwrap();
    let error = soon("refused", connecting).await.err().unwrap();
    let ConnectionError::Transport { code, reason } = error else { panic!("{error}") };
    assert_eq!(code >> 8, 1, "a TLS alert");
    assert!(reason.contains("certificate"), "{reason}");
    let endpoint = quinn_client(&other);
    let connecting = endpoint.connect(server.local_addr().unwrap(), NAME).unwrap();
    assert!(soon("refused", connecting).await.is_err());
    soon("the server is idle", server.wait_idle()).await;
}
