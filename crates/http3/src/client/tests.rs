//! Tests of a client's connection attempts to addresses where nothing listens.

use super::*;
use crate::{IdentitySource, Server, ServerConfig};

fn closed() -> SocketAddr {
    std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

fn client() -> Client {
    // By what the network says, or never.
    let config = ClientConfig { trust: Trust::Insecure, ..ClientConfig::default() };
    Client::new(ClientConfig { timeout: None, idle_timeout: Duration::ZERO, ..config }).unwrap()
}

#[tokio::test]
async fn the_next_address_is_tried_where_nothing_listens() {
    let identity = IdentitySource::SelfSigned { names: Vec::new(), directory: None };
    let listen = "127.0.0.1:0".parse().unwrap();
    let server = Server::bind(ServerConfig { identity, ..ServerConfig::new(listen) }).unwrap();
    let open = server.local_addr();
    tokio::spawn(server.run(std::future::pending()));
    let (target, path) = Target::parse("https://localhost/health").unwrap();
    for early in [false, true] {
        let peers = vec![closed(), closed(), open, closed()];
        let connection = client().race(&target, peers, early).await.unwrap();
        assert_eq!(connection.peer(), open);
        assert!(connection.get(&path).await.unwrap().status.is_success());
    }
}

#[tokio::test]
async fn race_goes_on_where_the_first_address_is_silent() {
    let identity = IdentitySource::SelfSigned { names: Vec::new(), directory: None };
    let listen = "127.0.0.1:0".parse().unwrap();
    let server = Server::bind(ServerConfig { identity, ..ServerConfig::new(listen) }).unwrap();
    let open = server.local_addr();
    tokio::spawn(server.run(std::future::pending()));
    let (target, _) = Target::parse("https://localhost/").unwrap();
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    for early in [false, true] {
        let peers = vec![silent.local_addr().unwrap(), open];
        let client = client();
        let opened = client.race(&target, peers, early);
        // Without the next address it would never end.
        let connection = tokio::time::timeout(Duration::from_secs(60), opened).await;
        assert_eq!(connection.unwrap().unwrap().peer(), open);
    }
}

#[tokio::test]
async fn when_nothing_listens_anywhere_the_last_says_so() {
    let (target, _) = Target::parse("https://localhost/").unwrap();
    let peers = vec![closed(), closed()];
    let last = peers[1];
    let error = client().race(&target, peers, false).await.err().unwrap();
    assert_eq!(error.failure(), Failure::Error("unreachable"));
    let text = error.to_string();
    assert!(text.starts_with(&format!("cannot connect to {last}: nothing listens")), "{text}");
}

/// Requests that wait for one connection do not wait for one timeout after the other.
#[tokio::test]
async fn timeouts_of_requests_that_wait_together_pass_together() {
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}/", silent.local_addr().unwrap());
    let timeout = Some(Duration::from_secs(1));
    let config = ClientConfig { trust: Trust::Insecure, timeout, ..ClientConfig::default() };
    let client = Client::new(config).unwrap();
    let mut running = tokio::task::JoinSet::new();
    for _ in 0..100 {
        let (client, url) = (client.clone(), url.clone());
        running.spawn(async move { client.get(&url).await.err().map(|error| error.failure()) });
    }
    let all = tokio::time::timeout(Duration::from_secs(60), running.join_all()).await.unwrap();
    assert_eq!(all, vec![Some(Failure::Timeout); 100]);
}
