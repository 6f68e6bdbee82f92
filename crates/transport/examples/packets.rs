//! Program whose instructions are counted to know what a packet costs: `make profile-transport`.
//!
//! A client sends one stream to a server in the same process, without a network and without a clock. Datagrams go
//! from one end to the other in batches, as a socket with segmentation offload takes and gives them. After the
//! handshake all that the sender of data does is called from [`send_turn`], and all that its receiver does from
//! [`receive_turn`]: valgrind counts what runs inside one of them.
//!
//!     cargo run --release -p equic-transport --features null-crypto --example packets -- [--null] [--bytes N]
//!         [--max-paths N] [--paths N] [--in-turn]
//!
//! `--null` leaves packet protection out, but for a checksum. `--max-paths` is how many paths both ends allow
//! (RFC 10069), `--paths` how many of them are open: the client has an address for each. `--in-turn` has them carry a packet
//! each in turn; else the scheduler is the default one. The program says how many packets each end sent.

use std::error::Error;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use equic_transport::null::{InsecureNullConfig, InsecureNullCrypto};
use equic_transport::{
    ClientConfig, Connection, DatagramMeta, Direction, Endpoint, EndpointConfig, Event, Handle,
    ReadOutcome, Received, Scheduler, ServerConfig, StreamId, Timestamp, Transmit, TransportConfig,
};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};

/// Datagrams of a batch: as many as one message to the system holds.
const BATCH: usize = 44;

/// Bytes of the room for each datagram.
const ROOM: usize = 1500;

/// Time that a batch takes from one end to the other.
const DELAY: Duration = Duration::from_micros(100);

/// Bytes that the application writes and reads at a time.
const CHUNK: usize = 65_536;

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let args: Vec<String> = std::env::args().collect();
    let null = args.iter().any(|arg| arg == "--null");
    let number = |name: &str, usual: usize| {
        let given = args.iter().position(|arg| arg == name).and_then(|at| args.get(at + 1));
        given.map_or(Ok(usual), |text| text.parse())
    };
    let (bytes, paths) = (number("--bytes", 20_000_000)?, number("--paths", 1)?);
    let max_paths = number("--max-paths", paths)?;
    let in_turn = args.iter().any(|arg| arg == "--in-turn");
    let scheduler = if in_turn { Scheduler::RoundRobin } else { Scheduler::default() };
    let mut pair = Pair::connect(
        null,
        TransportConfig { max_paths, scheduler, ..TransportConfig::default() },
    )?;
    for path in 1..paths {
        pair.open(path)?;
    }
    let before = pair.sent();
    pair.transfer(bytes)?;
    let after = pair.sent();
    println!("sender {} receiver {}", after[0] - before[0], after[1] - before[1]);
    Ok(())
}

/// Datagrams on their way.
struct Batch {
    bytes: Vec<u8>,
    sent: Vec<Transmit>,
}

impl Batch {
    fn new() -> Batch {
        Batch { bytes: vec![0; BATCH * ROOM], sent: Vec::with_capacity(BATCH) }
    }
}

/// One end: an endpoint, which knows whose a datagram is, and its only connection.
struct End {
    address: SocketAddr,
    endpoint: Endpoint,
    connection: Option<(Handle, Connection)>,
    response: Vec<u8>,
    timer: Option<Timestamp>,
    /// It has several addresses: each datagram says to which one it goes.
    several: bool,
}

impl End {
    fn new(address: &str, provider: &CryptoProvider, seed: u8) -> Outcome<End> {
        let endpoint = Endpoint::new(EndpointConfig::new(provider)?, None, [seed; 32]);
        let (address, response) = (address.parse()?, Vec::new());
        Ok(End { address, endpoint, connection: None, response, timer: None, several: false })
    }

    fn connection(&mut self) -> Outcome<&mut Connection> {
        Ok(&mut self.connection.as_mut().ok_or("there is no connection")?.1)
    }

    /// Takes a batch in, as the task of a socket does.
    fn take(&mut self, now: Timestamp, remote: SocketAddr, batch: &mut Batch) -> Outcome<()> {
        if self.timer.is_some_and(|at| at <= now)
            && let Some((_, connection)) = &mut self.connection
        {
            connection.handle_timeout(now);
        }
        let mut rest = &mut batch.bytes[..];
        for sent in batch.sent.drain(..) {
            let bytes;
            (bytes, rest) = rest.split_at_mut(sent.size);
            // Where a path has an address of its own at the client, it comes from there, or goes there.
            let remote = SocketAddr::new(sent.source.unwrap_or(remote.ip()), remote.port());
            let local = self.several.then(|| sent.destination.ip());
            let arrival = DatagramMeta { remote, local, ecn: sent.ecn };
            let datagram = bytes;
            match self.endpoint.handle_datagram(now, arrival, datagram, &mut self.response) {
                Received::Incoming(incoming) => {
                    self.connection = Some(self.endpoint.accept(now, incoming)?);
                }
                Received::Connection(_) => {
                    if let Some((_, connection)) = &mut self.connection {
                        connection.handle_datagram(now, arrival, datagram);
                    }
                }
                Received::Respond | Received::Nothing => {}
            }
        }
        Ok(())
    }

    /// Fills a batch with what there is to send, and asks when to be called again.
    fn fill(&mut self, now: Timestamp, batch: &mut Batch) {
        let Some((handle, connection)) = &mut self.connection else { return };
        let mut at = 0;
        while batch.sent.len() < BATCH {
            let Some(sent) = connection.poll_transmit(now, &mut batch.bytes[at..at + ROOM]) else {
                break;
            };
            at += sent.size;
            batch.sent.push(sent);
            let most = BATCH - batch.sent.len();
            let more = connection.poll_transmit_more(now, &sent, &mut batch.bytes[at..], most);
            let whole = (0..more / sent.size).map(|_| sent.size);
            let sizes = whole.chain(Some(more % sent.size).filter(|last| *last > 0));
            batch.sent.extend(sizes.map(|size| Transmit { size, ..sent }));
            at += more;
        }
        while let Some(change) = connection.poll_endpoint_event() {
            self.endpoint.handle_endpoint_event(*handle, change);
        }
        self.timer = connection.poll_timeout();
    }
}

/// A client and a server, the datagrams between them, and the time that it is for both.
struct Pair {
    now: Timestamp,
    client: End,
    server: End,
    up: Batch,
    down: Batch,
}

/// The sender's part of a turn: acknowledgements in, data of the application, datagrams out.
#[inline(never)]
fn send_turn(pair: &mut Pair, id: StreamId, data: &[u8]) -> Outcome<usize> {
    pair.client.take(pair.now, pair.server.address, &mut pair.down)?;
    let connection = pair.client.connection()?;
    while connection.poll_event().is_some() {}
    let written = connection.write(id, data).unwrap_or(0);
    pair.client.fill(pair.now, &mut pair.up);
    Ok(written)
}

/// The receiver's part of a turn: datagrams in, data for the application, acknowledgements out.
#[inline(never)]
fn receive_turn(pair: &mut Pair, id: &mut Option<StreamId>, buffer: &mut [u8]) -> Outcome<usize> {
    pair.server.take(pair.now, pair.client.address, &mut pair.up)?;
    let connection = pair.server.connection()?;
    while connection.poll_event().is_some() {}
    *id = id.or_else(|| connection.accept(Direction::Unidirectional));
    let mut read = 0;
    while let Some(Ok(ReadOutcome::Bytes(count))) = id.map(|id| connection.read(id, buffer)) {
        read += count;
    }
    pair.server.fill(pair.now, &mut pair.down);
    Ok(read)
}

impl Pair {
    /// Two ends that have shaken hands.
    fn connect(null: bool, transport: TransportConfig) -> Outcome<Pair> {
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        let mut client = End::new("198.51.100.1:50000", &provider, 1)?;
        let mut server = End::new("192.0.2.1:443", &provider, 2)?;
        let now = Timestamp::START;
        client.connection = Some(if null {
            let config = InsecureNullConfig {
                transport: Arc::new(transport),
                ..InsecureNullConfig::new(InsecureNullCrypto::for_simulation_only())
            };
            server.endpoint.set_insecure_null_server(Arc::new(config.clone()));
            client.endpoint.connect_insecure_null(now, &config, server.address)?
        } else {
            let (ours, theirs) = configs(provider, transport)?;
            server.endpoint.set_server(Some(Arc::new(theirs)));
            let name = ServerName::try_from("equic.test")?;
            client.endpoint.connect(now, &ours, name, server.address)?
        });
        let mut pair = Pair { now, client, server, up: Batch::new(), down: Batch::new() };
        pair.run_until(|event| *event == Event::Confirmed)?;
        Ok(pair)
    }

    /// Lets both ends speak until the client has this event.
    fn run_until(&mut self, wanted: impl Fn(&Event) -> bool) -> Outcome<()> {
        let mut happened = false;
        while !happened {
            self.client.take(self.now, self.server.address, &mut self.down)?;
            while let Some(event) = self.client.connection()?.poll_event() {
                happened |= wanted(&event);
            }
            self.client.fill(self.now, &mut self.up);
            self.pass();
            self.server.take(self.now, self.client.address, &mut self.up)?;
            self.server.fill(self.now, &mut self.down);
            self.pass();
        }
        Ok(())
    }

    /// The client opens another path, from an address of its own.
    fn open(&mut self, path: usize) -> Outcome<()> {
        let local = IpAddr::from([198, 51, 100, 1 + u8::try_from(path)?]);
        let (now, server) = (self.now, self.server.address);
        self.client.several = true;
        let id = self.client.connection()?.open_path(now, Some(local), server)?;
        self.client.fill(now, &mut self.up);
        self.run_until(|event| *event == Event::PathOpened(id))
    }

    /// Lets a batch arrive, or, if nothing is on its way, time pass until the next timer.
    fn pass(&mut self) {
        let on_the_way = !self.up.sent.is_empty() || !self.down.sent.is_empty();
        let timer = [self.client.timer, self.server.timer].into_iter().flatten().min();
        self.now = match timer {
            Some(timer) if !on_the_way => timer.max(self.now),
            _ => self.now + DELAY,
        };
    }

    /// Sends so many bytes from the client to the server.
    fn transfer(&mut self, bytes: usize) -> Outcome<()> {
        let id = self.client.connection()?.open(Direction::Unidirectional);
        let id = id.ok_or("no stream is allowed")?;
        let (chunk, mut buffer) = (vec![7; CHUNK], vec![0; CHUNK]);
        let (mut written, mut read, mut incoming) = (0, 0, None);
        while read < bytes {
            let left = (bytes - written).min(CHUNK);
            written += send_turn(self, id, &chunk[..left])?;
            self.pass();
            read += receive_turn(self, &mut incoming, &mut buffer)?;
            self.pass();
        }
        Ok(())
    }

    /// Packets that the client and the server have sent.
    fn sent(&mut self) -> [u64; 2] {
        let sent = |end: &mut End| end.connection().map_or(0, |one| one.stats().packets_sent);
        [sent(&mut self.client), sent(&mut self.server)]
    }
}

/// A server with a certificate that it made itself, and a client that trusts it.
fn configs(
    provider: CryptoProvider,
    transport: TransportConfig,
) -> Outcome<(ClientConfig, ServerConfig)> {
    let made = rcgen::generate_simple_self_signed(vec!["equic.test".into()])?;
    let certificate = CertificateDer::from(made.cert);
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der())?;
    let (provider, versions) = (Arc::new(provider), [&rustls::version::TLS13]);
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate.clone())?;
    let client = rustls::ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&versions)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let server = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&versions)?
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)?;
    let transport = Arc::new(transport);
    let client = ClientConfig { tls: Arc::new(client), transport: Arc::clone(&transport) };
    let server = ServerConfig { tls: Arc::new(server), transport, preferred_addresses: None };
    Ok((client, server))
}
