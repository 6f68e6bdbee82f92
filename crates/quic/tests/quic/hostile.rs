//! Tests that a client that sends garbage does not affect others.

use std::net::UdpSocket;

use equic_quic::ServerConfig;
use rand::rngs::StdRng;
use rand::{Rng, RngCore, SeedableRng};
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::common::{Identity, client, connect, echo, settings, soon};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn garbage_does_not_affect_other_clients() {
    let seed: u64 = match std::env::var("EQUIC_SEED") {
        Ok(seed) => seed.parse().expect("EQUIC_SEED is not a number"),
        Err(_) => rand::random(),
    };
    println!("garbage_does_not_affect_other_clients: EQUIC_SEED={seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let identity = Identity::new();
    let server = identity.server(2);
    echo(server.clone());
    let client = client();
    let connection = connect(&client, &identity.client(), &server).await;
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(server.local_addr().unwrap()).unwrap();
    socket.set_nonblocking(true).unwrap();
    let (mut sent, mut answered) = (0, 0);
    let mut buffer = [0; 2048];
    for round in 0..3000 {
        let length = random.random_range(0..1400);
        let bytes = &mut buffer[..length];
        random.fill_bytes(bytes);
        match (random.random_range(0..3), bytes) {
            // Version 1, and otherwise a version that does not exist.
            (0, [first, version @ .., _, _]) if version.len() > 4 => {
                *first |= 0xc0;
                version[..4].copy_from_slice(&[0, 0, 0, 1]);
            }
            (1, [first, ..]) => *first |= 0x80,
            (2, [first, ..]) => *first = *first & 0x7f | 0x40,
            _ => {}
        }
        if socket.send(&buffer[..length]).is_ok() {
            sent += length;
        }
        while let Ok(count) = socket.recv(&mut [0; 2048]) {
            answered += count;
        }
        if round % 100 == 0 {
            let (mut send, mut receive) = connection.open_bi().await.unwrap();
            send.write_all(b"still there?").await.unwrap();
            send.shutdown().await.unwrap();
            let mut back = String::new();
            soon("echoed", receive.read_to_string(&mut back)).await.unwrap();
            assert_eq!(back, "still there?");
        }
    }
    assert!(answered < sent, "{answered} for {sent}");
    assert_eq!(server.open_connections(), 1);
}

/// Attempts above the limit are dropped until the application decides on earlier ones.
#[tokio::test]
async fn accept_queue_is_limited() {
    let identity = Identity::new();
    let mut settings = settings();
    settings.core.max_incoming = 3;
    let tls = Arc::new(identity.server_tls());
    let server = identity.server_with(1, settings, ServerConfig::new(tls));
    let config = identity.client();
    let clients: Vec<_> = (0..10).map(|_| client()).collect();
    let address = server.local_addr().unwrap();
    let connecting: Vec<_> = clients
        .iter()
        .map(|client| client.connect_with(&config, address, crate::common::NAME).unwrap())
        .collect();
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(soon("an attempt", server.accept()).await.unwrap());
    }
    // The clients repeat their Initial packets every second.
    let more = tokio::time::timeout(std::time::Duration::from_millis(1500), server.accept()).await;
    assert!(more.is_err(), "a fourth attempt");
    drop(held);
    assert!(soon("another", server.accept()).await.is_some());
    drop(connecting);
}
