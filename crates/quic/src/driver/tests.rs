//! Tests of how much one turn sends. The handshakes take place in memory. The peers' socket is
//! never read, and the clock does not matter: the tests check what one round of sending produces.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use equic_transport::{
    ClientConfig, Connection, DatagramMeta, Direction, EcnCodepoint, Endpoint, EndpointConfig,
    Handle, ServerConfig, StreamConfig, TransportConfig,
};
use equic_wire::{KnownVersion, VarInt};
use rustls::pki_types::PrivateKeyDer;

use super::*;
use crate::endpoint_shared::EndpointShared;
use crate::memory::SendMemory;
use crate::tokens::Tokens;
use crate::udp::Offloads;

mod grouping;
mod validated;

/// Maximum size in bytes of a message that the system accepts.
const MESSAGE: u64 = 65_536;

/// A socket's task that the runtime does not run. Tests call its functions.
struct Idle {
    driver: Driver,
    connections: Vec<Arc<SharedConnection>>,
    /// The peers' ends of the connections.
    clients: Vec<Connection>,
    /// The socket to which the connections send.
    peers: std::net::UdpSocket,
    tls: (Arc<rustls::ClientConfig>, Arc<rustls::ServerConfig>),
}

const NAME: &str = "equic.test";

/// Returns the TLS configurations of both ends, with a new certificate.
fn tls() -> (Arc<rustls::ClientConfig>, Arc<rustls::ServerConfig>) {
    let provider = crate::default_provider().unwrap();
    let made = rcgen::generate_simple_self_signed(vec![NAME.into()]).unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let versions = &[&rustls::version::TLS13];
    let client = rustls::ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let server = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    (Arc::new(client), Arc::new(server))
}

impl Idle {
    /// Creates a task with `count` connections. Each has `bytes` bytes to send and a congestion
    /// window of `window` bytes.
    async fn new(count: usize, window: u64, bytes: usize) -> Idle {
        let bind = || std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let (own, peers) = (bind(), bind());
        let udp = Udp::new(own, Offloads { receive: true, send: true }, true).unwrap();
        let shared = Arc::new(EndpointShared {
            gone: tokio::sync::Notify::new(),
            broken: Default::default(),
            #[cfg(feature = "qlog")]
            logs: crate::log::Logs { qlog: None, trace: None, subscriber: None },
            tokens: Arc::new(Tokens::default()),
            gives_tokens: false,
            keeps_tokens: false,
            heeds_unreachable: false,
            send_memory: SendMemory::default(),
            ids: None,
        });
        let config = EndpointConfig::new(&crate::default_provider().unwrap()).unwrap();
        let endpoint = Endpoint::new(config, None, [7; 32]);
        let socket = Socket::new(endpoint, udp, None, Instant::now(), shared);
        let driver = Driver::new(Arc::clone(&socket), Vec::new(), 0, Arc::default());
        let (connections, clients) = (Vec::new(), Vec::new());
        let mut idle = Idle { driver, connections, clients, peers, tls: tls() };
        for number in 0..count {
            let peer = idle.peers.local_addr().unwrap();
            let (client, connection) = idle.connection(number, peer, window, bytes);
            let conn = socket.add(&mut socket.lock(), Handle(number), connection);
            idle.connections.push(conn);
            idle.clients.push(client);
        }
        // The runtime must learn from the system that the socket is writable.
        let udp = Arc::clone(&socket.lock().udp);
        std::future::poll_fn(|cx| udp.poll_send_ready(cx)).await.unwrap();
        idle
    }

    /// Returns a client's connection from this address, and the server's connection to it. The
    /// server's handshake is complete, and it has this many bytes to send.
    fn connection(
        &self,
        number: usize,
        client_address: SocketAddr,
        window: u64,
        bytes: usize,
    ) -> (Connection, Connection) {
        let transport = Arc::new(
            TransportConfig::default()
                .with_initial_window(Some(window))
                // Handshake packets in flight are then acknowledged at once.
                .with_max_ack_delay(Duration::ZERO)
                // A probe would be a separate message.
                .with_mtu_discovery(false)
                .with_streams(
                    StreamConfig::default()
                        .with_stream_window(4 << 20)
                        .with_connection_window(4 << 20),
                )
                .with_initial_rtt(Duration::from_micros(1)),
        );
        let now = self.driver.socket.now();
        let server_address = self.driver.socket.lock().udp.local_addr();
        let seed = |side: u8| {
            let mut seed = [side; 32];
            seed[..8].copy_from_slice(&number.to_be_bytes());
            seed
        };
        let (client, server) = self.tls.clone();
        let config = ClientConfig::new(client).with_transport(Arc::clone(&transport));
        let name = NAME.try_into().unwrap();
        let mut client = Connection::connect(now, &config, name, server_address, seed(1)).unwrap();
        let (to, from) = (client.original_dcid(), client.local_ids().next().unwrap());
        let config = ServerConfig::new(server).with_transport(transport);
        let version = KnownVersion::V1;
        let mut server =
            Connection::accept_from(now, &config, version, to, from, client_address, seed(2))
                .unwrap();
        let mut buffer = vec![0; 2048];
        let arrival = |remote| DatagramMeta { remote, local: None, ecn: EcnCodepoint::NotEct };
        loop {
            let mut moved = false;
            while let Some(sent) = client.poll_transmit(now, &mut buffer) {
                server.handle_datagram(now, arrival(client_address), &mut buffer[..sent.size]);
                moved = true;
            }
            while let Some(sent) = server.poll_transmit(now, &mut buffer) {
                client.handle_datagram(now, arrival(server_address), &mut buffer[..sent.size]);
                moved = true;
            }
            if !moved {
                break;
            }
        }
        assert!(server.is_connected());
        let id = server.open(Direction::Unidirectional).unwrap();
        assert_eq!(server.streams().write(id, &vec![7; bytes]).unwrap(), bytes);
        (client, server)
    }

    /// Runs one round of sending for the scheduled connections. Returns `true` if the task has more
    /// to send at once.
    fn work(&mut self) -> bool {
        let socket = Arc::clone(&self.driver.socket);
        let _ = socket.driver.take_work(&mut self.driver.work, std::task::Waker::noop());
        let mut inner = socket.lock();
        let udp = Arc::clone(&inner.udp);
        assert!(self.driver.work(SendSockets { first: &udp, others: &[] }, &mut inner));
        !self.driver.work.is_empty() || inner.bottlenecks.may_go()
    }

    /// Returns the bytes in flight of each connection.
    fn in_flight(&self) -> Vec<u64> {
        self.connections
            .iter()
            .map(|conn| conn.lock().connection.stats().path.bytes_in_flight)
            .collect()
    }
}

/// Asks whether a connection may send now.
fn begin(inner: &mut Inner, state: &mut State, now: Timestamp, first: bool) -> Turn {
    let State { connection, membership, .. } = state;
    inner.bottlenecks.begin(connection, membership, now, first)
}

/// Ends the turn of a connection that has more to send.
fn end(
    inner: &mut Inner,
    conn: &Arc<SharedConnection>,
    state: &mut State,
    now: Timestamp,
    turn: Turn,
) {
    let State { connection, membership, .. } = state;
    inner.bottlenecks.end(conn, connection, membership, now, turn, true);
}

/// Removes a connection from its group.
fn leave(inner: &mut Inner, state: &mut State) {
    let State { connection, membership, .. } = state;
    inner.bottlenecks.leave(connection, membership);
}

/// The limit applies even if the congestion window is larger. The task then receives what has
/// arrived.
#[tokio::test]
async fn turn_of_a_connection_sends_256_kib_at_most() {
    let mut idle = Idle::new(1, 4 << 20, 1 << 20).await;
    let mut before = 0;
    for _ in 0..3 {
        assert!(idle.work(), "there is more");
        let sent = idle.in_flight()[0];
        assert!((256 << 10..(256 << 10) + MESSAGE).contains(&(sent - before)), "{sent} {before}");
        before = sent;
    }
}

#[tokio::test]
async fn turn_of_few_connections_waits_for_no_other() {
    let mut idle = Idle::new(31, 12_000, 100_000).await;
    while idle.work() {}
    assert!(idle.in_flight().iter().all(|sent| *sent >= 10_000), "{:?}", idle.in_flight());
}

/// Until something is acknowledged, a hundred connections to one address send at most thirty-two
/// windows of data. They send less, because each also has small handshake packets in flight. When
/// packets of one connection are no longer in flight, waiting connections send in the order of
/// their arrival. The order in which the task handles connections does not matter.
#[tokio::test]
async fn turn_is_shared_by_many_connections_to_one_address() {
    let mut idle = Idle::new(100, 12_000, 100_000).await;
    let before = idle.in_flight();
    while idle.work() {}
    let first = idle.in_flight();
    let sent = |now: &[u64]| -> Vec<u64> { now.iter().zip(&before).map(|(a, b)| a - b).collect() };
    let sum: u64 = sent(&first).iter().sum();
    assert!((16 * 12_000..33 * 12_000).contains(&sum), "{sum}");
    let count = sent(&first).iter().filter(|sent| **sent > 0).count();
    assert!((16..=40).contains(&count), "{first:?}");
    assert!(sent(&first)[..count].iter().all(|sent| *sent > 0), "not in order: {first:?}");
    assert!(!idle.work(), "the window is full until something is acknowledged");
    assert_eq!(idle.in_flight(), first);
    // The packets of these connections are then no longer in flight.
    for conn in &idle.connections[..count] {
        conn.close(VarInt::from_u32(0), "");
    }
    // This happens when the application writes: the connection is handled before those that wait
    // for their turn.
    let last = &idle.connections[99];
    last.wake_driver(&mut last.lock());
    while idle.work() {}
    let second = sent(&idle.in_flight());
    let next: u64 = second[count..].iter().sum();
    assert!((16 * 12_000..33 * 12_000).contains(&next), "{second:?}");
    assert!(second[count..count + 16].iter().all(|sent| *sent > 0), "{second:?}");
    assert_eq!(second[99], 0, "{second:?}");
}

/// The turn of one of many connections is a single message, even if its window has more room. The
/// first connection has two messages, because no other connection waited at its first one.
#[tokio::test]
async fn turn_is_one_message() {
    let mut idle = Idle::new(40, 1 << 20, 200_000).await;
    let before = idle.in_flight();
    idle.work();
    let sent: Vec<u64> = idle.in_flight().iter().zip(&before).map(|(a, b)| a - b).collect();
    assert!(sent[0] > 0 && sent[0] < 2 * MESSAGE, "{sent:?}");
    assert!(sent[1..].iter().all(|sent| *sent < MESSAGE), "{sent:?}");
    assert!(sent.iter().sum::<u64>() < 32 * 12_000 + MESSAGE, "{sent:?}");
}

/// In a round, the connections without a group together send up to 256 KiB, and so do those in
/// groups. The number of connections that have something to send does not matter.
#[tokio::test]
async fn turn_of_many_connections_sends_256_kib_before_receiving() {
    for (count, least) in [(10, 256 << 10), (40, 200_000)] {
        let mut idle = Idle::new(count, 1 << 20, 100_000).await;
        let socket = Arc::clone(&idle.driver.socket);
        let others = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        for number in count..2 * count {
            let peer = others.local_addr().unwrap();
            let (_, connection) = idle.connection(number, peer, 1 << 20, 100_000);
            idle.connections.push(socket.add(&mut socket.lock(), Handle(number), connection));
        }
        let before: u64 = idle.in_flight().iter().sum();
        assert!(idle.work(), "there is more");
        let sent = idle.in_flight().iter().sum::<u64>() - before;
        assert!((least..(256 << 10) + 4 * MESSAGE).contains(&sent), "{sent} of {count}");
        while idle.work() {}
        let all = idle.in_flight().iter().sum::<u64>() - before;
        assert!(all > sent + 2 * MESSAGE, "{all} {sent}");
    }
}

/// Acknowledgements of many connections come in one message each. The task receives more than one
/// batch of them before it sends again.
#[tokio::test]
async fn receive_takes_small_messages_all_at_once() {
    let mut idle = Idle::new(1, 12_000, 100_000).await;
    let socket = Arc::clone(&idle.driver.socket);
    let udp = Arc::clone(&socket.lock().udp);
    let batch = idle.driver.buffers.count();
    let senders: Vec<_> =
        (0..3 * batch).map(|_| std::net::UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
    for (size, expected) in [(40, 3 * batch * 40), (1200, batch * 1200)] {
        // Each message comes from another address, so that the system does not combine them.
        for sender in &senders {
            sender.send_to(&vec![7; size], udp.local_addr()).unwrap();
        }
        idle.driver.asks_system = true;
        let mut cx = Context::from_waker(std::task::Waker::noop());
        let received = idle.driver.receive(&mut cx, &udp, &mut socket.lock()).unwrap();
        assert_eq!(received, Some(expected));
    }
}

/// A connection that sends now and then need not wait for all connections that send without a
/// pause. One of nine turns is for the latter.
#[tokio::test]
async fn receive_answers_small_messages_without_waiting_for_all_senders() {
    let idle = Idle::new(50, 1 << 20, 100_000).await;
    let socket = Arc::clone(&idle.driver.socket);
    let (now, mut inner) = (socket.now(), socket.lock());
    let (bulk, fresh) = idle.connections.split_at(38);
    for conn in bulk {
        let mut state = conn.lock();
        let turn = begin(&mut inner, &mut state, now, true);
        assert!(matches!(turn, Turn::Now(20_000..25_000)), "a 16th of the minimum window");
        end(&mut inner, conn, &mut state, now, turn);
    }
    for conn in fresh {
        let mut state = conn.lock();
        let turn = begin(&mut inner, &mut state, now, false);
        assert!(turn == Turn::Later, "others wait");
        end(&mut inner, conn, &mut state, now, turn);
    }
    let order = [&fresh[..8], &bulk[..1], &fresh[8..], &bulk[1..]].concat();
    for (number, expected) in order.iter().enumerate() {
        let next = inner.bottlenecks.next(now).unwrap();
        assert!(Arc::ptr_eq(&next, expected), "{number}");
    }
    assert!(inner.bottlenecks.next(now).is_none());
}

/// The runtime polls sockets when tasks have nothing to do. A task that sends all the time must
/// nevertheless see what arrives.
#[tokio::test]
async fn receive_runs_after_256_kib_were_sent() {
    let mut idle = Idle::new(1, 4 << 20, 1 << 20).await;
    let socket = Arc::clone(&idle.driver.socket);
    let udp = Arc::clone(&socket.lock().udp);
    // The datagram belongs to no connection, because only its receipt matters. On loopback, it has
    // arrived when the call returns.
    idle.peers.send_to(&[7; 100], udp.local_addr()).unwrap();
    let mut cx = Context::from_waker(std::task::Waker::noop());
    let mut receive = |idle: &mut Idle| {
        idle.driver.asks_system = idle.driver.batch.has_sent(SEND_QUANTUM);
        idle.driver.receive(&mut cx, &udp, &mut socket.lock()).unwrap()
    };
    assert_eq!(receive(&mut idle), None, "the runtime has not polled");
    assert!(idle.work());
    assert_eq!(receive(&mut idle), Some(100));
    assert!(idle.work());
    assert_eq!(receive(&mut idle), None, "nothing more has arrived");
}

/// A client that shares its address with no other client is in no group. Many clients at one
/// address are a group. At the end, no group is left.
#[tokio::test]
async fn bottleneck_group_needs_several_connections_to_one_address() {
    let idle = Idle::new(0, 12_000, 0).await;
    let socket = Arc::clone(&idle.driver.socket);
    let add = |number: usize, host: usize| {
        let address = SocketAddr::from(([127, 0, 1, host as u8], 4433));
        let (_, connection) = idle.connection(number, address, 12_000, 0);
        socket.add(&mut socket.lock(), Handle(number), connection)
    };
    let mut connections: Vec<_> = (0..100).map(|number| add(number, number)).collect();
    assert_eq!(socket.lock().bottlenecks.count(), 0);
    connections.extend((100..140).map(|number| add(number, 200)));
    let mut inner = socket.lock();
    assert_eq!(inner.bottlenecks.count(), 1);
    let now = socket.now();
    let turns: Vec<_> =
        connections.iter().map(|conn| begin(&mut inner, &mut conn.lock(), now, false)).collect();
    assert!(turns[..100].iter().all(|turn| *turn == Turn::Alone));
    assert!(turns[100..].iter().all(|turn| *turn != Turn::Alone));
    connections.iter().for_each(|conn| leave(&mut inner, &mut conn.lock()));
    assert!(inner.bottlenecks.are_empty());
}

/// A connection that leaves a group, for example by migrating, no longer waits for the others.
#[tokio::test]
async fn bottleneck_group_that_is_left_holds_nothing_back() {
    let mut idle = Idle::new(100, 12_000, 100_000).await;
    idle.work();
    let before = idle.in_flight()[99];
    let conn = Arc::clone(&idle.connections[99]);
    {
        let socket = Arc::clone(&idle.driver.socket);
        let mut state = conn.lock();
        leave(&mut socket.lock(), &mut state);
        conn.wake_driver(&mut state);
    }
    idle.work();
    assert!(idle.in_flight()[99] >= before + 10_000, "{} {before}", idle.in_flight()[99]);
}

/// The bytes in flight of a connection that leaves no longer count in the group, so that others get
/// a turn.
#[tokio::test]
async fn bottleneck_group_that_is_left_makes_room_for_others() {
    let mut idle = Idle::new(100, 12_000, 100_000).await;
    let before = idle.in_flight();
    while idle.work() {}
    let sent: Vec<u64> = idle.in_flight().iter().zip(&before).map(|(a, b)| a - b).collect();
    let count = sent.iter().filter(|sent| **sent > 0).count();
    assert!((16..=40).contains(&count), "{sent:?}");
    {
        let socket = Arc::clone(&idle.driver.socket);
        let mut inner = socket.lock();
        for conn in &idle.connections[..count] {
            leave(&mut inner, &mut conn.lock());
        }
    }
    let before = idle.in_flight();
    while idle.work() {}
    let sent: Vec<u64> = idle.in_flight().iter().zip(&before).map(|(a, b)| a - b).collect();
    assert!(sent[count..count + 16].iter().all(|sent| *sent > 0), "{sent:?}");
}
