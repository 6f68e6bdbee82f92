//! How much goes out in a turn. The connections have no protection, their peers' socket is one that nobody reads, and time
//! plays no part: all that is asked is what one round of sending makes.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use equic_transport::null::{InsecureNullConfig, InsecureNullCrypto};
use equic_transport::{
    Connection, DatagramMeta, Direction, EcnCodepoint, Endpoint, EndpointConfig, Handle,
    StreamConfig, TransportConfig,
};

use super::*;
use crate::memory::SendMemory;
use crate::socket::{IncomingQueue, Shared};
use crate::tokens::Tokens;
use crate::udp::Offloads;

/// Bytes of a message that is as large as the system takes.
const MESSAGE: u64 = 65_536;

/// A socket's task that nobody runs.
struct Idle {
    driver: Driver,
    cells: Vec<Arc<Cell>>,
    /// Address of the peers.
    peers: std::net::UdpSocket,
}

impl Idle {
    /// With connections that have `bytes` to send each, and windows of `window` bytes.
    async fn new(count: usize, window: u64, bytes: usize) -> Idle {
        let bind = || std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let (own, peers) = (bind(), bind());
        let udp = Udp::new(own, Offloads { receive: true, send: true }, true).unwrap();
        let shared = Arc::new(Shared {
            incoming: Mutex::new(IncomingQueue::default()),
            arrived: tokio::sync::Notify::new(),
            gone: tokio::sync::Notify::new(),
            #[cfg(feature = "qlog")]
            logs: crate::log::Logs { qlog: None, trace: None, subscriber: None },
            tokens: Arc::new(Tokens::default()),
            gives_tokens: false,
            keeps_tokens: false,
            heeds_unreachable: false,
            send_memory: SendMemory::default(),
            number_at: 0,
        });
        let config = EndpointConfig::new(&crate::default_provider().unwrap()).unwrap();
        let endpoint = Endpoint::new(config, None, [7; 32]);
        let socket = Socket::new(endpoint, udp, None, Instant::now(), shared);
        let driver = Driver::new(Arc::clone(&socket), Vec::new(), 0);
        let mut idle = Idle { driver, cells: Vec::new(), peers };
        for number in 0..count {
            let connection = idle.connection(number, window, bytes);
            let cell = socket.add(&mut socket.lock(), Handle(number), connection);
            idle.cells.push(cell);
        }
        // The runtime learns from the system that the socket takes anything.
        let udp = Arc::clone(&socket.lock().udp);
        std::future::poll_fn(|cx| udp.poll_send_ready(cx)).await.unwrap();
        idle
    }

    /// A server's connection whose handshake is complete, and which has so many bytes to send.
    fn connection(&self, number: usize, window: u64, bytes: usize) -> Connection {
        let crypto = InsecureNullCrypto::for_simulation_only();
        let mut config = InsecureNullConfig::new(crypto);
        config.transport = Arc::new(TransportConfig {
            initial_window: Some(window),
            // What the handshake had in flight is acknowledged at once.
            max_ack_delay: Duration::ZERO,
            streams: StreamConfig {
                stream_window: 4 << 20,
                connection_window: 4 << 20,
                ..StreamConfig::default()
            },
            initial_rtt: Duration::from_micros(1),
            ..TransportConfig::default()
        });
        let now = self.driver.socket.now();
        let client_address: SocketAddr = self.peers.local_addr().unwrap();
        let server_address = self.driver.socket.lock().udp.local_addr();
        let seed = |side: u8| {
            let mut seed = [side; 32];
            seed[..8].copy_from_slice(&number.to_be_bytes());
            seed
        };
        let mut client =
            Connection::connect_insecure_null(now, &config, server_address, seed(1)).unwrap();
        let (to, from) = (client.original_dcid(), client.local_ids().next().unwrap());
        let mut server =
            Connection::accept_insecure_null(now, &config, to, from, client_address, seed(2))
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
        assert_eq!(server.write(id, &vec![7; bytes]).unwrap(), bytes);
        server
    }

    /// One round of sending, of the connections that were touched; true if the task has more to do at once.
    fn work(&mut self) -> bool {
        let socket = Arc::clone(&self.driver.socket);
        let _ = socket.take_touched(&mut self.driver.work, std::task::Waker::noop());
        let mut inner = socket.lock();
        let udp = Arc::clone(&inner.udp);
        assert!(self.driver.work(Outlets { first: &udp, others: &[] }, &mut inner));
        !self.driver.work.is_empty() || inner.crowds.may_go()
    }

    /// Bytes that each connection has in flight.
    fn in_flight(&self) -> Vec<u64> {
        self.cells.iter().map(|cell| cell.lock().connection.stats().path.bytes_in_flight).collect()
    }
}

/// However large the window: what has come in the meantime is received after so much.
#[tokio::test]
async fn a_connection_sends_no_more_than_256_kib_before_others_have_their_turn() {
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
async fn few_connections_do_not_wait_for_each_other() {
    let mut idle = Idle::new(31, 12_000, 100_000).await;
    assert!(!idle.work());
    assert!(idle.in_flight().iter().all(|sent| *sent >= 10_000), "{:?}", idle.in_flight());
}
