//! Tests of a server behind a gateway that sends Retry packets. The handshake completes only if the
//! server's transport parameters agree with the token (RFC 9000 s.7.3).

#[path = "../examples/retry_offload.rs"]
#[allow(dead_code, unreachable_pub, reason = "its main serves")]
mod server;

use std::sync::atomic::Ordering::SeqCst;

use equic_quic::{ClientConfig, ConnectError, ConnectionError, Endpoint, VarInt};
use equic_test_kit::token::Gateway;
use equic_token::{Clock, IdFormat, IdGenerator, KeyRing};

fn serving(ring: KeyRing, format: IdFormat) -> (Endpoint, ClientConfig) {
    let server_id = vec![7; format.server_id_len()];
    let ids = IdGenerator::new(format, &server_id, ring.clone()).unwrap();
    let (server, client) = server::serve("127.0.0.1:0".parse().unwrap(), ring, ids).unwrap();
    tokio::spawn({
        let server = server.clone();
        async move {
            while let Some(incoming) = server.accept().await {
                tokio::spawn(server::echo(incoming));
            }
        }
    });
    (server, client)
}

#[tokio::test]
async fn retry_offload_accepts_tokens_of_the_gateway_and_issues_verifiable_ids() {
    let ring = KeyRing::generate(Clock::Monotonic).unwrap();
    let format = IdFormat::new(12, 1).unwrap();
    let (server, config) = serving(ring.clone(), format);
    let gateway = Gateway::start(&ring, Some(format), server.local_addr().unwrap());
    let client = Endpoint::client("127.0.0.1:0".parse().unwrap()).unwrap();
    let connect = || client.connect_with(&config, gateway.address, server::local::NAME);
    for _ in 0..3 {
        let connection = connect().unwrap().await.expect("the handshake completes");
        let (mut send, mut receive) = connection.open_bi().await.unwrap();
        send.write_all(&[5; 10_000]).await.unwrap();
        send.finish().unwrap();
        let answer = receive.read_to_end(1 << 20).await.unwrap();
        assert_eq!(answer[0], 1, "the server has not validated the address");
        assert_eq!(answer[1..], [5; 10_000]);
        connection.close(VarInt::ZERO, "done");
    }
    client.wait_idle().await;
    let counts = &gateway.counts;
    assert!(counts.retries.load(SeqCst) >= 1 && counts.proved.load(SeqCst) >= 1);
    assert!(counts.ids.load(SeqCst) > 3, "too few short headers with verifiable IDs");
    assert_eq!(counts.forged_ids.load(SeqCst), 0);
    drop(gateway);
    // The server also accepts clients without the gateway and without a Retry packet.
    let direct = client.connect_with(&config, server.local_addr().unwrap(), server::local::NAME);
    let direct: Result<_, ConnectError> = direct;
    direct.unwrap().await.expect("the server works without the gateway");
}

/// The server has failed. The gateway sends a stateless reset with the token of the server's
/// connection ID.
#[tokio::test]
async fn reset_is_sent_to_clients_of_a_dead_server() {
    let ring = KeyRing::generate(Clock::Monotonic).unwrap();
    let format = IdFormat::new(12, 2).unwrap();
    let (server, config) = serving(ring.clone(), format);
    let gateway = Gateway::start(&ring, Some(format), server.local_addr().unwrap());
    let client = Endpoint::client("127.0.0.1:0".parse().unwrap()).unwrap();
    let connecting = client.connect_with(&config, gateway.address, server::local::NAME);
    let connection = connecting.unwrap().await.expect("the handshake completes");
    gateway.dead.store(true, SeqCst);
    connection.ping();
    let ended = connection.closed().await;
    assert!(matches!(ended, ConnectionError::Reset), "{ended}");
}

/// The server has another key ring than the gateway, with the same epoch. It rejects the gateway's
/// tokens as forged.
#[tokio::test]
async fn token_of_another_key_ring_is_refused() {
    use equic_token::{Epoch, Key};
    let ring =
        |key| KeyRing::new(Clock::Monotonic, Epoch::new(1).unwrap(), Key::from_bytes([key; 16]));
    let (server, config) = serving(ring(2), IdFormat::new(8, 0).unwrap());
    let gateway = Gateway::start(&ring(1), None, server.local_addr().unwrap());
    let client = Endpoint::client("127.0.0.1:0".parse().unwrap()).unwrap();
    let connecting = client.connect_with(&config, gateway.address, server::local::NAME).unwrap();
    let error = connecting.await.err().expect("closed with INVALID_TOKEN");
    assert!(error.to_string().to_lowercase().contains("token"), "{error}");
}
