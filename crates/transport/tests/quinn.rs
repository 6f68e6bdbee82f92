//! Interoperability with quinn over loopback: this transport's client with quinn's server, and
//! quinn's client with this transport's server.
#![expect(clippy::disallowed_methods, reason = "a real clock drives the connection here")]

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use equic_transport::{
    ClientConfig, CloseReason, Connection, DatagramMeta, EcnCodepoint, Event, ReadOutcome,
    ServerConfig, Timestamp, TransportConfig,
};
use equic_wire::packet::{Datagram, Packet, ParseOptions};
use equic_wire::{Direction, StreamId, VarInt};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};

#[path = "quinn/handshake.rs"]
mod handshake;

const ALPN: &[u8] = b"echo";
const LIMIT: Duration = Duration::from_secs(60);

struct Identity {
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
}

fn identity() -> Identity {
    let made = rcgen::generate_simple_self_signed(vec!["equic.test".into()]).unwrap();
    Identity {
        certificate: made.cert.der().clone(),
        key: PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap(),
    }
}

fn client_tls(identity: &Identity) -> rustls::ClientConfig {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(identity.certificate.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    tls.alpn_protocols = vec![ALPN.to_vec()];
    tls
}

fn server_tls(identity: &Identity) -> rustls::ServerConfig {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![identity.certificate.clone()], identity.key.clone_key())
        .unwrap();
    tls.alpn_protocols = vec![ALPN.to_vec()];
    tls
}

/// A connection that one thread drives over a socket.
struct Driver {
    socket: UdpSocket,
    connection: Connection,
    start: Instant,
    closed: Option<CloseReason>,
    /// True if the server has accepted early data.
    early: bool,
}

impl Driver {
    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(self.start.elapsed().as_nanos() as u64)
    }

    /// Runs the connection until `done` returns true. `done` is called after each event.
    fn run(&mut self, mut done: impl FnMut(&mut Connection) -> bool) {
        let mut buffer = vec![0; 65_536];
        loop {
            assert!(self.start.elapsed() < LIMIT, "{:?}", self.connection.stats());
            let finished = done(&mut self.connection);
            while let Some(sent) = self.connection.poll_transmit(self.now(), &mut buffer) {
                self.socket.send_to(&buffer[..sent.size], sent.destination).unwrap();
            }
            while let Some(event) = self.connection.poll_event() {
                match event {
                    Event::Closed(reason) => self.closed = Some(reason),
                    Event::EarlyDataAccepted => self.early = true,
                    _ => {}
                }
            }
            if finished {
                return;
            }
            let timeout = self.connection.poll_timeout().map(|at| at - self.now());
            let timeout = timeout.unwrap_or(LIMIT).clamp(Duration::from_micros(1), LIMIT);
            self.socket.set_read_timeout(Some(timeout)).unwrap();
            match self.socket.recv_from(&mut buffer) {
                Ok((size, remote)) => {
                    let now = self.now();
                    let datagram = &mut buffer[..size];
                    self.connection.handle_datagram(now, from(remote), datagram);
                }
                Err(error) if is_timeout(&error) => {}
                Err(error) => panic!("{error}"),
            }
            let now = self.now();
            if self.connection.poll_timeout().is_some_and(|at| at <= now) {
                self.connection.handle_timeout(now);
            }
        }
    }
}

fn is_timeout(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut)
}

fn body(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 31 % 251) as u8).collect()
}

/// Starts a quinn server that echoes every stream, on its own thread.
fn quinn_server(identity: &Identity) -> SocketAddr {
    let crypto = quinn::crypto::rustls::QuicServerConfig::try_from(server_tls(identity)).unwrap();
    let config = quinn::ServerConfig::with_crypto(Arc::new(crypto));
    let (address, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        tokio::runtime::Runtime::new().unwrap().block_on(async {
            let endpoint = quinn::Endpoint::server(config, "127.0.0.1:0".parse().unwrap()).unwrap();
            address.send(endpoint.local_addr().unwrap()).unwrap();
            while let Some(incoming) = endpoint.accept().await {
                tokio::spawn(async move {
                    let connection = incoming.await.unwrap();
                    while let Ok((mut send, mut receive)) = connection.accept_bi().await {
                        tokio::spawn(async move {
                            let data = receive.read_to_end(64 << 20).await.unwrap();
                            send.write_all(&data).await.unwrap();
                            send.finish().unwrap();
                        });
                    }
                });
            }
        });
    });
    told.recv().unwrap()
}

/// Data that is sent on a stream, and the data that the peer returned.
struct Exchange {
    id: StreamId,
    data: Vec<u8>,
    written: usize,
    back: Vec<u8>,
    ended: bool,
}

impl Exchange {
    fn advance(&mut self, connection: &mut Connection) {
        if self.written < self.data.len() {
            self.written +=
                connection.streams().write(self.id, &self.data[self.written..]).unwrap_or(0);
            if self.written == self.data.len() {
                connection.streams().finish(self.id).unwrap();
            }
        }
        let mut buffer = vec![0; 65_536];
        while !self.ended {
            match connection.streams().read(self.id, &mut buffer) {
                Ok(ReadOutcome::Bytes(count)) => self.back.extend_from_slice(&buffer[..count]),
                Ok(ReadOutcome::Finished) => self.ended = true,
                _ => break,
            }
        }
    }
}

fn from(remote: SocketAddr) -> DatagramMeta {
    DatagramMeta { remote, local: None, ecn: EcnCodepoint::NotEct }
}

#[test]
fn interop_our_client_with_quinns_server() {
    let identity = identity();
    let remote = quinn_server(&identity);
    let config = ClientConfig::new(Arc::new(client_tls(&identity)))
        .with_transport(Arc::new(TransportConfig::default().with_ecn(false)));
    let name = ServerName::try_from("equic.test").unwrap();
    let connection = Connection::connect(Timestamp::START, &config, name, remote, [7; 32]).unwrap();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut driver =
        Driver { socket, connection, start: Instant::now(), closed: None, early: false };
    driver.run(|connection| connection.is_connected());
    assert_eq!(driver.connection.alpn(), Some(ALPN));
    for round in 0..3 {
        let mut exchanges: Vec<Exchange> = Vec::new();
        driver.run(|connection| {
            while exchanges.len() < 20 {
                let Some(id) = connection.open(Direction::Bidirectional) else { break };
                let data = body(1 + exchanges.len() * 30_000);
                exchanges.push(Exchange { id, data, written: 0, back: vec![], ended: false });
            }
            exchanges.iter_mut().for_each(|exchange| exchange.advance(connection));
            exchanges.len() == 20 && exchanges.iter().all(|exchange| exchange.ended)
        });
        for exchange in &exchanges {
            assert!(exchange.back == exchange.data, "round {round}, {:?}", exchange.id);
        }
        assert!(driver.connection.update_keys(), "quinn acknowledged packets of round {round}");
    }
    let now = driver.now();
    driver.connection.close(now, VarInt::from_u32(0), "done");
    driver.run(|connection| connection.is_drained());
    assert!(matches!(driver.closed, Some(CloseReason::Local(_))));
}

/// RFC 9001 s.6.6: the keys must be updated automatically when they have protected half of the
/// packets that they may.
#[test]
fn key_update_in_time_with_quinns_server() {
    let identity = identity();
    let remote = quinn_server(&identity);
    let mut transport = TransportConfig::default().with_ecn(false);
    transport.key_limits.packets_per_key = 10_000;
    let config =
        ClientConfig::new(Arc::new(client_tls(&identity))).with_transport(Arc::new(transport));
    let name = ServerName::try_from("equic.test").unwrap();
    let connection = Connection::connect(Timestamp::START, &config, name, remote, [8; 32]).unwrap();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut driver =
        Driver { socket, connection, start: Instant::now(), closed: None, early: false };
    driver.run(|connection| connection.is_connected());
    while driver.connection.stats().packets_sent < 25_000 {
        let id = driver.connection.open(Direction::Bidirectional).expect("streams are allowed");
        let data = body(4_000_000);
        let mut exchange = Exchange { id, data, written: 0, back: vec![], ended: false };
        driver.run(|connection| {
            exchange.advance(connection);
            exchange.ended
        });
        assert!(exchange.back == exchange.data);
    }
    assert!(driver.connection.key_updates() >= 2, "{}", driver.connection.key_updates());
    assert_eq!(driver.closed, None);
}

/// Starts a quinn client. It sends `count` bodies, each on its own stream, and expects each body
/// back.
fn quinn_client(
    identity: &Identity,
    remote: SocketAddr,
    count: usize,
) -> std::thread::JoinHandle<()> {
    let crypto = quinn::crypto::rustls::QuicClientConfig::try_from(client_tls(identity)).unwrap();
    let config = quinn::ClientConfig::new(Arc::new(crypto));
    std::thread::spawn(move || {
        tokio::runtime::Runtime::new().unwrap().block_on(async {
            let endpoint = quinn::Endpoint::client("127.0.0.1:0".parse().unwrap()).unwrap();
            let connecting = endpoint.connect_with(config, remote, "equic.test").unwrap();
            let connection = connecting.await.unwrap();
            let mut tasks = Vec::new();
            for number in 0..count {
                let connection = connection.clone();
                tasks.push(tokio::spawn(async move {
                    let (mut send, mut receive) = connection.open_bi().await.unwrap();
                    let data = body(1 + number * 40_000);
                    let writing = data.clone();
                    let writer = tokio::spawn(async move {
                        send.write_all(&writing).await.unwrap();
                        send.finish().unwrap();
                        send.stopped().await.unwrap();
                    });
                    assert!(receive.read_to_end(64 << 20).await.unwrap() == data);
                    writer.await.unwrap();
                }));
            }
            for task in tasks {
                task.await.unwrap();
            }
            connection.close(5u32.into(), b"thanks");
            endpoint.wait_idle().await;
        });
    })
}

// RFC 9001 s.5.3 #2
#[test]
fn interop_quinns_client_with_our_server() {
    let identity = identity();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let client = quinn_client(&identity, socket.local_addr().unwrap(), 30);
    let mut first = vec![0; 65_536];
    socket.set_read_timeout(Some(LIMIT)).unwrap();
    let (size, remote) = socket.recv_from(&mut first).unwrap();
    let mut packets = Datagram::new(&first[..size], ParseOptions::default());
    let Some(Ok(Packet::Long(initial))) = packets.next() else {
        panic!("the client sent no Initial packet")
    };
    let config = ServerConfig::new(Arc::new(server_tls(&identity)))
        .with_transport(Arc::new(TransportConfig::default().with_ecn(false)));
    let (version, original, scid) = (initial.version(), initial.dcid(), initial.scid());
    let start = Timestamp::START;
    let mut connection =
        Connection::accept_from(start, &config, version, original, scid, remote, [8; 32]).unwrap();
    connection.handle_datagram(start, from(remote), &mut first[..size]);
    let mut driver =
        Driver { socket, connection, start: Instant::now(), closed: None, early: false };
    let mut streams: Vec<(StreamId, Vec<u8>, bool, bool)> = Vec::new();
    driver.run(|connection| {
        while let Some(id) = connection.accept(Direction::Bidirectional) {
            streams.push((id, vec![], false, false));
        }
        let mut buffer = vec![0; 65_536];
        for (id, pending, ended, finished) in streams.iter_mut().filter(|stream| !stream.3) {
            while !*ended && pending.len() < 1 << 20 {
                match connection.streams().read(*id, &mut buffer) {
                    Ok(ReadOutcome::Bytes(count)) => pending.extend_from_slice(&buffer[..count]),
                    Ok(ReadOutcome::Finished) => *ended = true,
                    _ => break,
                }
            }
            let count = connection.streams().write(*id, pending).unwrap_or(0);
            pending.drain(..count);
            if *ended && pending.is_empty() {
                *finished = connection.streams().finish(*id).is_ok();
            }
        }
        connection.is_drained()
    });
    client.join().unwrap();
    let Some(CloseReason::Peer(error)) = driver.closed else { panic!("{:?}", driver.closed) };
    assert_eq!((error.application, error.code, &*error.reason), (true, 5, "thanks"));
}
