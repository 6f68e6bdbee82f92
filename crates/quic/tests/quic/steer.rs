//! Tests of several sockets that share a port: packets of clients that migrate must reach their
//! connection's socket.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use equic_quic::{Endpoint, ServerConfig};
use nix::libc;
use nix::sys::socket::{setsockopt, sockopt};
use tracing::span;

use crate::common::{Identity, NAME, client, echo, exchange, settings, soon};

/// Each test of this file holds this lock, because `tracing` may miss events of one test while
/// another starts.
static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// Counts the datagrams that one socket has passed to another.
#[derive(Clone, Default)]
struct Handed(Arc<AtomicU64>);

impl tracing::Subscriber for Handed {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target() == "equic_quic::route"
    }
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn event(&self, _: &tracing::Event<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

/// Makes the kernel choose by addresses and ports, in place of the program that was attached.
fn by_address(socket: &UdpSocket) {
    let ret = (libc::BPF_RET | libc::BPF_K) as u16;
    let mut program = [libc::sock_filter { code: ret, jt: 0, jf: 0, k: u32::MAX }];
    let program = libc::sock_fprog { len: 1, filter: (&raw mut program).cast() };
    setsockopt(socket, sockopt::AttachReusePortCbpf, &program).unwrap();
}

/// Migrates a client of a server with eight sockets. Returns the number of datagrams that the
/// sockets have passed to each other.
async fn handed_while_moving(steered: bool, hidden: bool) -> u64 {
    let _alone = ALONE.lock().await;
    let identity = Identity::new();
    let sockets = Endpoint::bind("127.0.0.1:0".parse().unwrap(), 8, None).unwrap();
    let first = sockets[0].try_clone().unwrap();
    let config = ServerConfig::new(identity.server_tls());
    let settings = settings().with_hide_sockets(hidden);
    let server = Endpoint::new(settings, Some(config), sockets).unwrap();
    if !steered {
        by_address(&first);
    }
    echo(server.clone());
    let client = client();
    let address = server.local_addr().unwrap();
    let connecting = client.connect_with(&identity.client(), address, NAME).unwrap();
    let connection = soon("connected", connecting).await.unwrap();
    exchange(&connection, 1000).await;
    let handed = Handed::default();
    let _counting = tracing::subscriber::set_default(handed.clone());
    for _ in 0..12 {
        client.rebind(UdpSocket::bind("127.0.0.1:0").unwrap()).unwrap();
        exchange(&connection, 50_000).await;
    }
    handed.0.load(Ordering::Relaxed)
}

#[tokio::test]
async fn steering_by_the_kernel_finds_the_socket_of_a_client_that_migrated() {
    assert_eq!(handed_while_moving(true, false).await, 0);
}

/// If the kernel does not choose by the ID, the endpoint does. It is practically impossible that
/// twelve migrations all reach the right one of eight sockets at random.
#[tokio::test]
async fn steering_hands_packets_of_the_wrong_socket_on() {
    assert_ne!(handed_while_moving(false, false).await, 0);
}

/// IDs that hide their socket (RFC 9000 s.9.5): the kernel cannot choose by them, but the endpoint
/// can.
#[tokio::test]
async fn steering_hands_packets_to_hidden_ids_on() {
    assert_ne!(handed_while_moving(true, true).await, 0);
}

/// Runs a NAT between a client and this server. It changes the client's port after the server's
/// first flight. Returns the address to which the client must send.
async fn rebinding_nat(server: SocketAddr) -> SocketAddr {
    let bind = async || tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let (inside, before, after) = (bind().await, bind().await, bind().await);
    let address = inside.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut client, mut rebound) = (None, false);
        let [mut up, mut first, mut second] = [vec![0; 65_536], vec![0; 65_536], vec![0; 65_536]];
        loop {
            let down = tokio::select! {
                Ok((length, from)) = inside.recv_from(&mut up) => {
                    client = Some(from);
                    let outside = if rebound { &after } else { &before };
                    let _ = outside.send_to(&up[..length], server).await;
                    continue;
                }
                Ok(length) = before.recv(&mut first) => &first[..length],
                Ok(length) = after.recv(&mut second) => &second[..length],
            };
            rebound = true;
            if let Some(client) = client {
                let _ = inside.send_to(down, client).await;
            }
        }
    });
    address
}

/// The client's last flight starts with long headers, and the kernel does not choose by their IDs.
/// Most of these handshakes continue at another one of eight sockets.
#[tokio::test]
async fn steering_completes_handshakes_after_a_nat_rebinding() {
    let _alone = ALONE.lock().await;
    for hidden in [false, true] {
        let identity = Identity::new();
        let sockets = Endpoint::bind("127.0.0.1:0".parse().unwrap(), 8, None).unwrap();
        let config = ServerConfig::new(identity.server_tls());
        let settings = settings().with_hide_sockets(hidden);
        let server = Endpoint::new(settings, Some(config), sockets).unwrap();
        echo(server.clone());
        for _ in 0..8 {
            let nat = rebinding_nat(server.local_addr().unwrap()).await;
            let client = client();
            let connecting = client.connect_with(&identity.client(), nat, NAME).unwrap();
            let connection = soon("connected", connecting).await.unwrap();
            exchange(&connection, 1000).await;
        }
    }
}
