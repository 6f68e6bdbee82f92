//! Tests of several connection attempts that wait at the same time.

use std::future::{Future as _, poll_fn};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::task::Poll;

use rustls::RootCertStore;
use rustls::pki_types::PrivateKeyDer;

use super::*;

const NAME: &str = "localhost";
const LOOPBACK: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0));

/// Returns a server, and clients whose connection attempts wait there.
async fn attempts(count: usize) -> (Endpoint, Vec<(Endpoint, Connecting)>) {
    let made = rcgen::generate_simple_self_signed(vec![NAME.into()]).unwrap();
    let certificate = made.cert.der().clone();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone()).unwrap();
    let config = ServerConfig::with_single_cert(vec![certificate], key).unwrap();
    let server = Endpoint::server(config.with_alpn(&[b"x"]), LOOPBACK).unwrap();
    let config = ClientConfig::with_root_certificates(roots).unwrap().with_alpn(&[b"x"]);
    let clients = (0..count).map(|_| {
        let client = Endpoint::client(LOOPBACK).unwrap();
        let address = server.local_addr().unwrap();
        let connecting = client.connect_with(&config, address, NAME).unwrap();
        (client, connecting)
    });
    let clients = clients.collect();
    let all_wait = async {
        while server.owner.attempts.len() < count {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), all_wait).await.expect("timed out");
    (server, clients)
}

fn sent(connecting: &Connecting) -> u64 {
    connecting.0.as_ref().unwrap().stats().datagrams_sent
}

#[tokio::test]
async fn accept_sends_the_first_flight_before_the_next_attempt() {
    let (server, _clients) = attempts(4).await;
    let mut taken: Vec<Connecting> = Vec::new();
    for _ in 0..4 {
        let incoming = server.accept().await.unwrap();
        assert!(taken.iter().all(|before| sent(before) > 0), "{}", taken.len());
        taken.push(incoming.accept().unwrap());
    }
}

#[tokio::test]
async fn accept_that_is_dropped_loses_no_attempt() {
    let (server, _clients) = attempts(3).await;
    let first = server.accept().await.unwrap();
    // Two tasks wait for the next attempt. The first yields to other tasks, and is dropped while it
    // does.
    let mut given_up = Box::pin(server.accept());
    assert!(poll_fn(|cx| Poll::Ready(given_up.as_mut().poll(cx))).await.is_pending());
    let other = tokio::spawn({
        let server = server.clone();
        async move { (server.accept().await.is_some(), server.accept().await.is_some()) }
    });
    drop(given_up);
    let took = tokio::time::timeout(Duration::from_secs(60), other).await;
    assert_eq!(took.expect("timed out").unwrap(), (true, true));
    drop(first);
}
