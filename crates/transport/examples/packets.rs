//! Measures the cost of a packet: `make profile-transport`. Valgrind counts the instructions of
//! this program.
//!
//! A client sends one stream to a server in the same process, without a network and without a
//! clock. Datagrams are passed between the ends in batches, as for a socket with segmentation
//! offload. After the handshake, all work of the sender is called from [`send_turn`] and all work
//! of the receiver from [`receive_turn`]. Valgrind counts what runs inside one of these functions.
//!
//!     cargo run --release -p equic-transport --features null-crypto --example packets -- \
//!         [--null] [--bytes N] [--max-paths N] [--paths N] [--in-turn]
//!
//! * `--null`: packets have a checksum in place of packet protection.
//! * `--max-paths`: the number of paths that both ends permit (RFC 10069).
//! * `--paths`: the number of open paths. The client has an address for each.
//! * `--in-turn`: the sender uses the paths round-robin, one packet on each. Without it, the
//!   default scheduler is used.
//!
//! The program prints how many packets each end has sent.

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

/// Largest number of datagrams in a batch. One system call with segmentation offload can send that
/// many.
const BATCH: usize = 44;

/// Size of the buffer for each datagram, in bytes.
const ROOM: usize = 1500;

/// One-way delay of a batch.
const DELAY: Duration = Duration::from_micros(100);

/// Number of bytes that the application writes and reads at a time.
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
        TransportConfig::default().with_max_paths(max_paths).with_scheduler(scheduler),
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

/// Datagrams on the way from one end to the other.
struct Batch {
    bytes: Vec<u8>,
    sent: Vec<Transmit>,
}

impl Batch {
    fn new() -> Batch {
        Batch { bytes: vec![0; BATCH * ROOM], sent: Vec::with_capacity(BATCH) }
    }
}

/// One end: an endpoint, which finds the connection of a datagram, and its only connection.
struct End {
    address: SocketAddr,
    endpoint: Endpoint,
    connection: Option<(Handle, Connection)>,
    response: Vec<u8>,
    timer: Option<Timestamp>,
    /// True if this end has several addresses. Each datagram then carries its destination address.
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

    /// Processes a batch of datagrams that have arrived, as a program does that reads a socket.
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
            // If there are several paths, the client has an address for each path. That address is
            // the source or the destination of the datagram.
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

    /// Fills a batch with datagrams to send, and reads the time of the connection's next timer.
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
            let more =
                connection.driver().poll_transmit_more(now, &sent, &mut batch.bytes[at..], most);
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

/// A client and a server, the datagrams between them, and their common time.
struct Pair {
    now: Timestamp,
    client: End,
    server: End,
    up: Batch,
    down: Batch,
}

/// Runs the sender's part of a turn: receives acknowledgements, writes data of the application, and
/// sends datagrams.
#[inline(never)]
fn send_turn(pair: &mut Pair, id: StreamId, data: &[u8]) -> Outcome<usize> {
    pair.client.take(pair.now, pair.server.address, &mut pair.down)?;
    let connection = pair.client.connection()?;
    while connection.poll_event().is_some() {}
    let written = connection.streams().write(id, data).unwrap_or(0);
    pair.client.fill(pair.now, &mut pair.up);
    Ok(written)
}

/// Runs the receiver's part of a turn: receives datagrams, reads data for the application, and
/// sends acknowledgements.
#[inline(never)]
fn receive_turn(pair: &mut Pair, id: &mut Option<StreamId>, buffer: &mut [u8]) -> Outcome<usize> {
    pair.server.take(pair.now, pair.client.address, &mut pair.up)?;
    let connection = pair.server.connection()?;
    while connection.poll_event().is_some() {}
    *id = id.or_else(|| connection.accept(Direction::Unidirectional));
    let mut read = 0;
    while let Some(Ok(ReadOutcome::Bytes(count))) =
        id.map(|id| connection.streams().read(id, buffer))
    {
        read += count;
    }
    pair.server.fill(pair.now, &mut pair.down);
    Ok(read)
}

impl Pair {
    /// Creates a client and a server, and completes their handshake.
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

    /// Runs both ends until the client reports an event for which `wanted` returns true.
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

    /// Opens another path of the client, from its own address.
    fn open(&mut self, path: usize) -> Outcome<()> {
        let local = IpAddr::from([198, 51, 100, 1 + u8::try_from(path)?]);
        let (now, server) = (self.now, self.server.address);
        self.client.several = true;
        let id = self.client.connection()?.open_path(now, Some(local), server)?;
        self.client.fill(now, &mut self.up);
        self.run_until(|event| *event == Event::PathOpened(id))
    }

    /// Advances the time: by the delay of a batch if one is in flight, otherwise to the next timer.
    fn pass(&mut self) {
        let on_the_way = !self.up.sent.is_empty() || !self.down.sent.is_empty();
        let timer = [self.client.timer, self.server.timer].into_iter().flatten().min();
        self.now = match timer {
            Some(timer) if !on_the_way => timer.max(self.now),
            _ => self.now + DELAY,
        };
    }

    /// Sends this number of bytes from the client to the server.
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

    /// Returns the number of packets that the client and the server have sent.
    fn sent(&mut self) -> [u64; 2] {
        let sent = |end: &mut End| end.connection().map_or(0, |one| one.stats().packets_sent);
        [sent(&mut self.client), sent(&mut self.server)]
    }
}

/// Returns the configuration of a server with a self-signed certificate, and of a client that
/// trusts it.
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
    let client = ClientConfig::new(Arc::new(client)).with_transport(Arc::clone(&transport));
    let server = ServerConfig::new(Arc::new(server)).with_transport(transport);
    Ok((client, server))
}
