//! The address that a client has proved, behind a relay that forges source addresses.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use equic_quic::Connection;
use tokio::net::UdpSocket;
use tokio::time::timeout;

use crate::common::{Identity, NAME, client};

const PATIENCE: Duration = Duration::from_secs(60);

/// Stands between a client and a server, and sends what the client sends from one of two addresses. What the server
/// sends to the one that is not in use is dropped, as if another host had it.
struct Relay {
    front: UdpSocket,
    backs: [UdpSocket; 2],
    client: Option<SocketAddr>,
}

impl Relay {
    async fn new(server: SocketAddr) -> Relay {
        let bind = || UdpSocket::bind((Ipv4Addr::LOCALHOST, 0));
        let backs = [bind().await.unwrap(), bind().await.unwrap()];
        for back in &backs {
            back.connect(server).await.unwrap();
        }
        Relay { front: bind().await.unwrap(), backs, client: None }
    }

    fn address(&self) -> SocketAddr {
        self.front.local_addr().unwrap()
    }

    /// The address that the server sees if `back` is used.
    fn seen(&self, back: usize) -> SocketAddr {
        self.backs[back].local_addr().unwrap()
    }

    /// Relays by one address; ends when `end` does. With `silent`, only the first datagram of the client goes on, and
    /// none of the server's.
    async fn run<T>(&mut self, back: usize, silent: bool, end: impl Future<Output = T>) -> T {
        let (mut up, mut down) = ([0; 2048], [0; 2048]);
        let mut forwarded = false;
        tokio::pin!(end);
        loop {
            tokio::select! {
                biased;
                done = &mut end => return done,
                got = self.front.recv_from(&mut up) => {
                    let (length, from) = got.unwrap();
                    self.client = Some(from);
                    if !(silent && forwarded) {
                        self.backs[back].send(&up[..length]).await.unwrap();
                        forwarded = true;
                    }
                }
                got = self.backs[back].recv(&mut down) => {
                    let length = got.unwrap();
                    if let Some(client) = self.client.filter(|_| !silent) {
                        self.front.send_to(&down[..length], client).await.unwrap();
                    }
                }
            }
        }
    }
}

/// Waits until the server has changed the address that it sends to so often.
async fn moved(connection: &Connection, moves: u64) {
    while connection.moves() < moves {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn validated_address_changes_when_the_client_answers_and_not_before() {
    let identity = Identity::new();
    let server = identity.server(1);
    let (endpoint, mut relay) = (client(), Relay::new(server.local_addr().unwrap()).await);
    let (home, other) = (relay.seen(0), relay.seen(1));
    let address = relay.address();
    let handshake = async {
        let connect = endpoint.connect_with(&identity.client(), address, NAME).unwrap();
        let accept = async { server.accept().await.unwrap().accept().unwrap().await.unwrap() };
        let (connection, served) = tokio::join!(connect, accept);
        let connection = connection.unwrap();
        // A client moves nowhere before the handshake is confirmed at both ends.
        connection.send_datagram("").ok();
        let (mut send, _) = connection.open_bi().await.unwrap();
        send.write_all(b"x").await.unwrap();
        let mut stream = served.accept_bi().await.unwrap();
        assert_eq!(stream.1.read_chunk().await.unwrap().as_deref(), Some(&b"x"[..]));
        stream.0.write_all(b"y").await.unwrap();
        (connection, served)
    };
    let (connection, served) =
        timeout(PATIENCE, relay.run(0, false, handshake)).await.expect("they connect");
    assert_eq!((served.remote_address(), served.validated_address()), (home, Some(home)));

    // One packet from another address, and silence.
    connection.ping();
    let proved = served.address_validated(Some(home));
    tokio::pin!(proved);
    let forged = async {
        tokio::select! {
            address = &mut proved => panic!("nobody answered at {address:?}"),
            () = moved(&served, 1) => assert_eq!(served.remote_address(), other),
        }
        assert_eq!(served.validated_address(), Some(home));
        tokio::select! {
            address = &mut proved => panic!("nobody answered at {address:?}"),
            () = moved(&served, 2) => assert_eq!(served.remote_address(), home),
        }
        assert_eq!(served.validated_address(), Some(home));
    };
    timeout(PATIENCE, relay.run(1, true, forged)).await.expect("the server returns");

    // The client is there after all.
    connection.ping();
    let address = timeout(PATIENCE, relay.run(1, false, proved)).await.expect("it answers");
    assert_eq!((address, served.validated_address()), (Ok(other), Some(other)));
    connection.close(equic_quic::VarInt::ZERO, "");
}
