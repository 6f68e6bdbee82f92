//! Tests of initialisation before the first connection.

use std::net::UdpSocket;
use std::sync::atomic::{AtomicUsize, Ordering};

use equic_quic::{Endpoint, EndpointConfig, ServerConfig};
use rustls::crypto::{CryptoProvider, GetRandomFailed, SecureRandom, aws_lc_rs};

use crate::common::Identity;

/// Counts the calls. AWS-LC collects entropy at the first call, which is slow.
#[derive(Debug)]
struct Counting(AtomicUsize);

impl SecureRandom for Counting {
    fn fill(&self, buffer: &mut [u8]) -> Result<(), GetRandomFailed> {
        self.0.fetch_add(1, Ordering::SeqCst);
        aws_lc_rs::default_provider().secure_random.fill(buffer)
    }
}

/// The time of a handshake starts with `connect`, and a server is ready when it was created. Each
/// endpoint must therefore have used the random generator before its first connection.
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
    assert_eq!(SERVER.0.load(Ordering::SeqCst), 1, "once for all sockets");
}
