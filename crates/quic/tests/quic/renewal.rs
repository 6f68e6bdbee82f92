//! Tests that connection IDs are replaced when the keys that made them are rotated (docs/policy.md
//! s.10).

use std::net::SocketAddr;
use std::sync::{Arc, PoisonError, RwLock};

use equic_quic::{ConnectionId, ConnectionIdGenerator, Endpoint, EndpointConfig, ServerConfig};
use equic_token::{Clock, IdFormat, IdGenerator, Key, KeyRing};
use tokio::net::UdpSocket;
use tokio::sync::watch;

use crate::common::{ALPN, Identity, NAME, client, echo, settings, soon};

/// More rotations than epoch numbers, so that each number is used with two keys.
const ROTATIONS: usize = 9;

/// The key ring that server and gateway share.
type Ring = Arc<RwLock<KeyRing>>;

fn format() -> IdFormat {
    IdFormat::new(12, 2).unwrap()
}

/// Generates IDs with the current ring.
struct Ids {
    ring: Ring,
    generator: IdGenerator,
}

impl Ids {
    fn generator(&self) -> &IdGenerator {
        let ring = self.ring.read().unwrap_or_else(PoisonError::into_inner);
        self.generator.set_ring(ring.clone());
        &self.generator
    }
}

impl ConnectionIdGenerator for Ids {
    fn generate(&self, _: &mut dyn rand::RngCore) -> ConnectionId {
        self.generator().generate()
    }

    fn id_len(&self) -> usize {
        format().len()
    }

    fn generation(&self) -> Option<u64> {
        Some(self.generator().mark())
    }
}

fn server(identity: &Identity, ring: &Ring) -> Endpoint {
    let first = ring.read().unwrap().clone();
    let generator = IdGenerator::new(format(), &[1, 0], first).unwrap();
    let mut settings: EndpointConfig = settings();
    settings.core.ids = Arc::new(Ids { ring: Arc::clone(ring), generator });
    identity.server_with(1, settings, ServerConfig::new(identity.server_tls()))
}

/// Runs a gateway between one client and a server. It drops short headers whose ID was not made
/// with the ring. Returns its address, and the epoch of the last ID that it forwarded.
async fn gateway(server: SocketAddr, ring: Ring) -> (SocketAddr, watch::Receiver<Option<u8>>) {
    let [front, behind] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0"));
    let (front, behind) = (front.await.unwrap(), behind.await.unwrap());
    behind.connect(server).await.unwrap();
    let address = front.local_addr().unwrap();
    let (seen, rotation) = watch::channel(None);
    tokio::spawn(async move {
        let (mut up, mut down) = ([0; 2048], [0; 2048]);
        let mut client = None;
        loop {
            tokio::select! {
                Ok((length, from)) = front.recv_from(&mut up) => {
                    client = Some(from);
                    let packet = &up[..length];
                    if packet[0] & 0x80 == 0 {
                        let id = packet.get(1..13).unwrap_or_default();
                        let proven = format().open(&ring.read().unwrap(), id);
                        let Ok(proven) = proven else { continue };
                        seen.send_replace(Some(proven.epoch.number()));
                    }
                    let _ = behind.send(packet).await;
                }
                Ok(length) = behind.recv(&mut down) => {
                    if let Some(client) = client {
                        let _ = front.send_to(&down[..length], client).await;
                    }
                }
                else => {}
            }
        }
    });
    (address, rotation)
}

fn rotate(ring: &Ring) -> u8 {
    let mut ring = ring.write().unwrap();
    ring.announce(Key::random().unwrap()).unwrap();
    ring.advance().unwrap().number()
}

/// Rotates keys until each epoch number was used with a second key. `exchange` sends data and waits
/// for the answer, so that the client must use IDs of each key. Returns the last value of
/// `exchange`.
async fn through_rotations<T, F: Future<Output = T>>(
    ring: &Ring,
    rotation: &mut watch::Receiver<Option<u8>>,
    mut context: T,
    exchange: impl Fn(T) -> F,
) -> T {
    for _ in 0..ROTATIONS {
        let now = rotate(ring);
        let moved = async {
            while *rotation.borrow_and_update() != Some(now) {
                context = exchange(context).await;
            }
            context
        };
        context = soon("the client uses an ID of the new key", moved).await;
    }
    context
}

#[tokio::test]
async fn key_update_and_cid_rotation_during_a_long_connection() {
    let identity = Identity::new();
    let ring = Arc::new(RwLock::new(KeyRing::generate(Clock::Monotonic).unwrap()));
    let server = server(&identity, &ring);
    echo(server.clone());
    let (address, mut rotation) = gateway(server.local_addr().unwrap(), Arc::clone(&ring)).await;
    let client = client();
    let connecting = client.connect_with(&identity.client(), address, NAME).unwrap();
    let connection = soon("connected", connecting).await.unwrap();
    let exchange = |connection: equic_quic::Connection| async {
        let (mut send, mut receive) = connection.open_bi().await.expect("connection closed");
        send.write_all(b"ping").await.expect("connection closed");
        send.finish().expect("connection closed");
        let back = soon("an answer", receive.read_to_end(10)).await.expect("connection closed");
        assert_eq!(back, b"ping");
        connection
    };
    let connection = through_rotations(&ring, &mut rotation, connection, exchange).await;
    assert!(connection.close_reason().is_none());
}

/// quinn's client retires IDs when the server requests it.
#[tokio::test]
async fn key_update_and_cid_rotation_with_quinn() {
    let identity = Identity::new();
    let ring = Arc::new(RwLock::new(KeyRing::generate(Clock::Monotonic).unwrap()));
    let server = server(&identity, &ring);
    echo(server.clone());
    let (address, mut rotation) = gateway(server.local_addr().unwrap(), Arc::clone(&ring)).await;
    let mut tls = identity.client_tls();
    tls.alpn_protocols = vec![ALPN.to_vec()];
    let crypto = quinn::crypto::rustls::QuicClientConfig::try_from(tls).unwrap();
    let client = quinn::Endpoint::client("127.0.0.1:0".parse().unwrap()).unwrap();
    let config = quinn::ClientConfig::new(Arc::new(crypto));
    let connecting = client.connect_with(config, address, NAME).unwrap();
    let connection = soon("connected", connecting).await.unwrap();
    let exchange = |connection: quinn::Connection| async {
        let (mut send, mut receive) = connection.open_bi().await.expect("connection closed");
        send.write_all(b"ping").await.expect("connection closed");
        send.finish().expect("connection closed");
        let back = soon("an answer", receive.read_to_end(10)).await.expect("connection closed");
        assert_eq!(back, b"ping");
        connection
    };
    let connection = through_rotations(&ring, &mut rotation, connection, exchange).await;
    assert!(connection.close_reason().is_none());
}
