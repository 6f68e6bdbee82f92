//! A relay that can hold back the server's datagrams.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use equic_http3::{Client, ClientConfig, ServerConfig};
use tokio::net::UdpSocket;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::common::{PATIENCE, loopback, start, until};

/// Forwards datagrams between one client and a server. The first datagram determines the client's
/// address.
pub(crate) struct Relay {
    pub address: SocketAddr,
    /// True while the server's datagrams are held back.
    pub hold: watch::Sender<bool>,
    /// Datagrams that the client sent while the server's datagrams were held back.
    pub sent: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Relay {
    pub(crate) async fn start(server: SocketAddr) -> Relay {
        let front = UdpSocket::bind(loopback()).await.unwrap();
        let back = UdpSocket::bind(loopback()).await.unwrap();
        back.connect(server).await.unwrap();
        let (hold, mut held) = watch::channel(false);
        let sent = Arc::new(Mutex::new(Vec::new()));
        let relay = Relay { address: front.local_addr().unwrap(), hold, sent: sent.clone() };
        tokio::spawn(async move {
            let (mut client, mut waiting) = (None, Vec::new());
            let (mut one, mut other) = (vec![0; 65_536], vec![0; 65_536]);
            loop {
                tokio::select! {
                    Ok((length, from)) = front.recv_from(&mut one) => {
                        if *client.get_or_insert(from) != from {
                            continue;
                        }
                        if *held.borrow() {
                            sent.lock().unwrap().push(one[..length].to_vec());
                        }
                        let _ = back.send(&one[..length]).await;
                    }
                    Ok(length) = back.recv(&mut other) => waiting.push(other[..length].to_vec()),
                    changed = held.changed() => if changed.is_err() { return },
                }
                let holds = *held.borrow();
                if let (false, Some(client)) = (holds, client) {
                    for datagram in waiting.drain(..) {
                        let _ = front.send_to(&datagram, client).await;
                    }
                }
            }
        });
        relay
    }
}

/// A client moves to another address while a response is on its way to the old one. It must still
/// receive the response.
#[tokio::test]
async fn migration_loses_no_response_under_way() {
    let server = start(ServerConfig::new(loopback()));
    let relay = Relay::start(server.address).await;
    let config = server.client_config(loopback());
    let client = Client::new(ClientConfig { connect_to: Some(relay.address), ..config }).unwrap();
    let connection = client.connect(&server.url("/")).await.unwrap();
    relay.hold.send(true).unwrap();
    let asked = tokio::spawn(async move {
        let mut response = connection.get(&crate::common::path("/health")).await.unwrap();
        response.body(100).await.unwrap()
    });
    until("answered", || server.stats.snapshot().requests == 1).await;
    client.rebind(loopback()).unwrap();
    relay.hold.send(false).unwrap();
    assert_eq!(timeout(PATIENCE, asked).await.unwrap().unwrap(), "ok\n");
}
