//! Tests of work that is done before any connection waits for it.

use std::net::UdpSocket;
use std::sync::atomic::{AtomicUsize, Ordering};

use equic_quic::{Endpoint, EndpointConfig, ServerConfig};
use rustls::crypto::{CryptoProvider, GetRandomFailed, SecureRandom, aws_lc_rs};

use crate::common::Identity;

/// Counts how often it is asked, as AWS-LC does its slow gathering of entropy the first time.
#[derive(Debug)]
struct Counting(AtomicUsize);

impl SecureRandom for Counting {
    fn fill(&self, buffer: &mut [u8]) -> Result<(), GetRandomFailed> {
        self.0.fetch_add(1, Ordering::SeqCst);
        aws_lc_rs::default_provider().secure_random.fill(buffer)
    }
}

/// The clock of a handshake starts when `connect` is called, and a server is ready when it has been made:
/// the randomness has been asked for by then, without a connection.
#[tokio::test]
async fn aead_is_initialised_before_the_first_connection() {
    static CLIENT: Counting = Counting(AtomicUsize::new(0));
    static SERVER: Counting = Counting(AtomicUsize::new(0));
    let settings = |random: &'static Counting| {
        let provider = CryptoProvider { secure_random: random, ..aws_lc_rs::default_provider() };
        EndpointConfig::new(&provider).unwrap()
    };
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let _client = Endpoint::new(settings(&CLIENT), None, vec![socket]).unwrap();
    assert_eq!(CLIENT.0.load(Ordering::SeqCst), 1);
    let config = ServerConfig::new(Identity::new().server_tls());
    let sockets = Endpoint::bind("127.0.0.1:0".parse().unwrap(), 2, None).unwrap();
    let _server = Endpoint::new(settings(&SERVER), Some(config), sockets).unwrap();
    assert_eq!(SERVER.0.load(Ordering::SeqCst), 1, "once, for however many sockets");
}
