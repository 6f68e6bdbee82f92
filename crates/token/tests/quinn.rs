//! Tests a quinn server behind a gateway. The gateway answers the client with a Retry packet, and
//! the handshake completes only if the server's transport parameters match the token (RFC 9000
//! s.7.3).

#[path = "../examples/quinn_tokens.rs"]
#[allow(dead_code, reason = "its main serves")]
mod server;

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use equic_test_kit::token::Gateway;
use equic_token::{Clock, IdFormat, IdGenerator, KeyRing};

#[tokio::test]
async fn quinn_server_accepts_the_tokens_of_the_gateway() {
    let ring = KeyRing::generate(Clock::Monotonic).unwrap();
    let format = IdFormat::new(12, 1).unwrap();
    let ids = IdGenerator::new(format, &[7], ring.clone()).unwrap();
    let (server, certificate) =
        server::serve("127.0.0.1:0".parse().unwrap(), ring.clone(), &ids).unwrap();
    let gateway = Gateway::start(&ring, Some(format), server.local_addr().unwrap());
    let accepting = tokio::spawn({
        let server = server.clone();
        async move {
            while let Some(incoming) = server.accept().await {
                tokio::spawn(server::echo(incoming));
            }
        }
    });

    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate).unwrap();
    let config = quinn::ClientConfig::with_root_certificates(Arc::new(roots)).unwrap();
    let client = quinn::Endpoint::client("127.0.0.1:0".parse().unwrap()).unwrap();
    for _ in 0..3 {
        let connecting = client.connect_with(config.clone(), gateway.address, "localhost").unwrap();
        let connection = connecting.await.expect("the handshake is complete");
        let (mut send, mut receive) = connection.open_bi().await.unwrap();
        send.write_all(&[5; 10_000]).await.unwrap();
        send.finish().unwrap();
        let answer = receive.read_to_end(1 << 20).await.unwrap();
        assert_eq!(answer[0], 1, "the server knows that the address is validated");
        assert_eq!(answer[1..], [5; 10_000]);
        connection.close(0u8.into(), b"");
    }
    client.wait_idle().await;
    let counts = &gateway.counts;
    assert!(counts.retries.load(SeqCst) >= 3 && counts.proved.load(SeqCst) >= 3);
    assert!(counts.ids.load(SeqCst) > 3, "short headers had IDs that prove themselves");
    assert_eq!((counts.refused.load(SeqCst), counts.forged_ids.load(SeqCst)), (0, 0));
    accepting.abort();
}

/// If the server is dead, the gateway must send the stateless reset token that the server gave its
/// client with the connection ID.
#[tokio::test]
async fn quinn_clients_of_a_dead_server_get_a_reset() {
    let ring = KeyRing::generate(Clock::Monotonic).unwrap();
    let format = IdFormat::new(12, 2).unwrap();
    let ids = IdGenerator::new(format, &[7, 0], ring.clone()).unwrap();
    let (server, certificate) =
        server::serve("127.0.0.1:0".parse().unwrap(), ring.clone(), &ids).unwrap();
    let gateway = Gateway::start(&ring, Some(format), server.local_addr().unwrap());
    let accepting = tokio::spawn(async move {
        while let Some(incoming) = server.accept().await {
            tokio::spawn(server::echo(incoming));
        }
    });
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate).unwrap();
    let mut config = quinn::ClientConfig::with_root_certificates(Arc::new(roots)).unwrap();
    let mut transport = quinn::TransportConfig::default();
    transport.max_idle_timeout(None);
    config.transport_config(Arc::new(transport));
    let client = quinn::Endpoint::client("127.0.0.1:0".parse().unwrap()).unwrap();
    let connecting = client.connect_with(config, gateway.address, "localhost").unwrap();
    let connection = connecting.await.expect("the handshake is complete");
    gateway.dead.store(true, SeqCst);
    let mut stream = connection.open_uni().await.unwrap();
    stream.write_all(b"is anybody there?").await.unwrap();
    let patience = std::time::Duration::from_secs(60);
    let ended = tokio::time::timeout(patience, connection.closed()).await.expect("it is told");
    assert!(matches!(ended, quinn::ConnectionError::Reset), "{ended}");
    accepting.abort();
}

/// The server's ring differs from the gateway's, so the server considers the token invalid and does
/// not send the transport parameters that must follow a Retry. The client must close the
/// connection.
#[tokio::test]
async fn quinn_handshake_fails_without_the_ring() {
    let ring = KeyRing::generate(Clock::Monotonic).unwrap();
    let other = KeyRing::generate(Clock::Monotonic).unwrap();
    let ids = IdGenerator::new(IdFormat::new(8, 0).unwrap(), &[], other.clone()).unwrap();
    let (server, certificate) = server::serve("127.0.0.1:0".parse().unwrap(), other, &ids).unwrap();
    let gateway = Gateway::start(&ring, None, server.local_addr().unwrap());
    let accepting = tokio::spawn(async move {
        while let Some(incoming) = server.accept().await {
            tokio::spawn(server::echo(incoming));
        }
    });
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate).unwrap();
    let config = quinn::ClientConfig::with_root_certificates(Arc::new(roots)).unwrap();
    let client = quinn::Endpoint::client("127.0.0.1:0".parse().unwrap()).unwrap();
    let connecting = client.connect_with(config, gateway.address, "localhost").unwrap();
    let error = connecting.await.expect_err("the parameters are missing");
    assert!(matches!(error, quinn::ConnectionError::TransportError(_)), "{error}");
    accepting.abort();
}
