//! Tests of work that is done before any connection waits for it.

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use equic_quic::{Endpoint, ServerConfig, Settings};
use equic_transport::EndpointConfig;
use rustls::crypto::{CryptoProvider, GetRandomFailed, SecureRandom, ring};

use crate::common::{Identity, transport};

/// Counts how often it is asked, as AWS-LC does its slow gathering of entropy the first time.
#[derive(Debug)]
struct Counting(AtomicUsize);

impl SecureRandom for Counting {
    fn fill(&self, buffer: &mut [u8]) -> Result<(), GetRandomFailed> {
        self.0.fetch_add(1, Ordering::SeqCst);
        ring::default_provider().secure_random.fill(buffer)
    }
}

/// The clock of a handshake starts when `connect` is called, and a server is ready when it has been made:
/// the randomness has been asked for by then, without a connection.
#[tokio::test]
async fn the_cryptography_is_warm_before_the_first_connection() {
    static CLIENT: Counting = Counting(AtomicUsize::new(0));
    static SERVER: Counting = Counting(AtomicUsize::new(0));
    let settings = |random: &'static Counting| {
        let provider = CryptoProvider { secure_random: random, ..ring::default_provider() };
        Settings::new(EndpointConfig::new(&provider).unwrap())
    };
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let _client = Endpoint::client(socket, settings(&CLIENT)).unwrap();
    assert_eq!(CLIENT.0.load(Ordering::SeqCst), 1);
    let config = ServerConfig {
        tls: Arc::new(Identity::new().server_tls()),
        transport: transport(),
        preferred_addresses: None,
    };
    let sockets = Endpoint::bind("127.0.0.1:0".parse().unwrap(), 2, None).unwrap();
    let _server = Endpoint::server(sockets, settings(&SERVER), Arc::new(config)).unwrap();
    assert_eq!(SERVER.0.load(Ordering::SeqCst), 1, "once, for however many sockets");
}
