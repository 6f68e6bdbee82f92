//! Measures the cost of a handshake, and the memory of an idle connection:
//! docs/notebook/performance.md. Valgrind counts the instructions of this program.
//!
//! Clients connect to a server in the same process, one after the other, without a network and
//! without a clock. Each client opens a stream, sends a byte, receives one and closes, as in the
//! workload *handshakes* of `equic-lab bench`. All work of an end is called from [`client_turn`] or
//! [`server_turn`], and valgrind counts what runs inside one of these functions.
//!
//!     cargo run --release -p equic-transport --example handshakes -- \
//!         [--count N] [--resumed | --idle] [--post-quantum] [--chain] [--compress]
//!
//! * `--resumed`: each handshake except the first resumes a session with a ticket.
//! * `--idle`: connections stay open, and the program prints how many bytes of the heap one of them
//!   takes at each end. This does not include memory that AWS-LC allocates, because that library is
//!   written in C.
//! * `--post-quantum`: the key exchange is X25519MLKEM768.
//! * `--chain`: the server's certificate has the usual content of a Web server's certificate and is
//!   sent with the certificate of an authority. Both are signed with RSA.
//! * `--compress`: the server compresses its certificates (RFC 8879). This needs the feature
//!   `cert-compression`.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use equic_transport::{
    ClientConfig, Connection, DatagramMeta, Direction, Endpoint, EndpointConfig, Event, Handle,
    ReadOutcome, Received, ServerConfig, Timestamp, Transmit,
};
use equic_wire::{StreamId, VarInt};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, CustomExtension, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose,
};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};

/// Size of the buffer for each datagram, in bytes.
const ROOM: usize = 1500;

/// One-way delay of a datagram.
const DELAY: Duration = Duration::from_micros(100);

/// The system's allocator, with counters for the current thread.
struct Counting;

thread_local! {
    static TAKEN: Cell<isize> = const { Cell::new(0) };
    static CALLS: Cell<u64> = const { Cell::new(0) };
}

fn count(change: isize) {
    TAKEN.set(TAKEN.get() + change);
    CALLS.set(CALLS.get() + u64::from(change > 0));
}

// SAFETY: all calls are forwarded to the system's allocator, and counting allocates no memory.
#[allow(unsafe_code, reason = "an allocator cannot be written without")]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller meets the requirements of this method, which are the same for the
        // system's allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller meets the requirements of this method, which are the same for the
        // system's allocator.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let args: Vec<String> = std::env::args().collect();
    let given = |name: &str| args.iter().any(|arg| arg == name);
    let count = args.iter().position(|arg| arg == "--count").and_then(|at| args.get(at + 1));
    let count: usize = count.map_or(Ok(50), |text| text.parse())?;
    if given("--compress") && !cfg!(feature = "cert-compression") {
        return Err("--compress needs the feature cert-compression".into());
    }
    let options = Options {
        resumed: given("--resumed"),
        post_quantum: given("--post-quantum"),
        chain: given("--chain"),
        compress: given("--compress"),
    };
    let mut pair = Pair::new(&options)?;
    // The first handshake is not counted, because it makes one-time allocations and provides the
    // first ticket.
    pair.handshake(false)?;
    pair.client.reset();
    pair.server.reset();
    pair.waited = Duration::ZERO;
    for _ in 0..count {
        pair.handshake(given("--idle"))?;
    }
    for (name, end) in [("client", &pair.client), ("server", &pair.server)] {
        let each = |total: u64| total as f64 / count as f64;
        println!(
            "{name}: {count} handshakes, {:.1} datagrams of {:.0} bytes together and {:.0} allocations each",
            each(end.datagrams),
            each(end.bytes),
            each(end.calls)
        );
        if given("--idle") {
            println!(
                "{name}: {:.0} bytes of the heap each, {} of them a Connection",
                end.taken as f64 / count as f64,
                size_of::<Connection>()
            );
        }
    }
    let trips = pair.waited.as_secs_f64() / (2.0 * DELAY.as_secs_f64()) / count as f64;
    println!("the client is connected after {trips:.2} round trips");
    Ok(())
}

/// Options of the command line. They are off by default.
struct Options {
    resumed: bool,
    post_quantum: bool,
    chain: bool,
    compress: bool,
}

/// Datagrams on the way from one end to the other.
type Batch = Vec<(Vec<u8>, Transmit)>;

/// One end of the connections: an endpoint, the connection in use, and the idle connections.
struct End {
    address: SocketAddr,
    endpoint: Endpoint,
    busy: Option<(Handle, Connection)>,
    #[allow(
        clippy::vec_box,
        reason = "a Vec has room for more than there are, which would be counted"
    )]
    idle: Vec<Box<(Handle, Connection)>>,
    /// The stream in use. `done` says whether this end has finished with it.
    stream: Option<StreamId>,
    done: bool,
    confirmed: bool,
    datagrams: u64,
    bytes: u64,
    calls: u64,
    taken: isize,
}

impl End {
    fn new(address: &str, provider: &CryptoProvider, seed: u8) -> Outcome<End> {
        let endpoint = Endpoint::new(EndpointConfig::new(provider)?, None, [seed; 32]);
        let address = address.parse()?;
        let (busy, idle, stream) = (None, Vec::new(), None);
        let (done, confirmed, datagrams, bytes, calls, taken) = (false, false, 0, 0, 0, 0);
        Ok(End {
            address,
            endpoint,
            busy,
            idle,
            stream,
            done,
            confirmed,
            datagrams,
            bytes,
            calls,
            taken,
        })
    }

    fn reset(&mut self) {
        (self.datagrams, self.bytes, self.calls, self.taken) = (0, 0, 0, 0);
    }

    /// Processes the datagrams that have arrived, as a program does that reads a socket.
    fn take(&mut self, now: Timestamp, remote: SocketAddr, batch: &mut Batch) -> Outcome<()> {
        let mut response = Vec::new();
        for (bytes, sent) in batch {
            let arrival = DatagramMeta { remote, local: None, ecn: sent.ecn };
            match self.endpoint.handle_datagram(now, arrival, bytes, &mut response) {
                Received::Incoming(incoming) => {
                    self.busy = Some(self.endpoint.accept(now, incoming)?);
                }
                Received::Connection(handle) => {
                    if let Some((busy, connection)) = &mut self.busy
                        && *busy == handle
                    {
                        connection.handle_datagram(now, arrival, bytes);
                    }
                }
                Received::Respond | Received::Nothing => {}
            }
        }
        Ok(())
    }

    /// Runs the timers that are due, and collects the datagrams to send.
    fn fill(&mut self, now: Timestamp, batch: &mut Batch) {
        let Some((handle, connection)) = &mut self.busy else { return };
        if connection.poll_timeout().is_some_and(|at| at <= now) {
            connection.handle_timeout(now);
        }
        let mut room = [0; ROOM];
        while let Some(sent) = connection.poll_transmit(now, &mut room) {
            batch.push((room[..sent.size].to_vec(), sent));
            self.datagrams += 1;
            self.bytes += sent.size as u64;
        }
        while let Some(change) = connection.poll_endpoint_event() {
            self.endpoint.handle_endpoint_event(*handle, change);
        }
    }

    fn events(&mut self) {
        while let Some(event) = self.busy.as_mut().and_then(|(_, one)| one.poll_event()) {
            self.confirmed |= event == Event::Confirmed;
        }
    }

    /// Ends this end's exchange. The connection is removed, or kept idle if `keep` is true.
    fn rest(&mut self, keep: bool) {
        if let Some((handle, connection)) = self.busy.take() {
            if keep {
                self.idle.push(Box::new((handle, connection)));
            } else {
                self.endpoint.remove(handle);
            }
        }
        (self.stream, self.done, self.confirmed) = (None, false, false);
    }
}

/// Reads all data of a stream that has arrived. Returns true if the stream has ended.
fn read(connection: &mut Connection, id: StreamId) -> bool {
    let mut buffer = [0; 16];
    loop {
        match connection.streams().read(id, &mut buffer) {
            Ok(ReadOutcome::Bytes(_)) => {}
            Ok(ReadOutcome::Finished) => return true,
            _ => return false,
        }
    }
}

/// A client and a server, the datagrams between them, and their common time.
struct Pair {
    now: Timestamp,
    client: End,
    server: End,
    config: ClientConfig,
    name: ServerName<'static>,
    up: Batch,
    down: Batch,
    /// Total time that clients have waited for their connections.
    waited: Duration,
}

/// Calls `work` and counts its allocations for the end that `end` returns.
fn counted(pair: &mut Pair, work: fn(&mut Pair) -> Outcome<()>, end: fn(&mut Pair) -> &mut End) {
    let before = (TAKEN.get(), CALLS.get());
    let worked = work(pair);
    let end = end(pair);
    end.taken += TAKEN.get() - before.0;
    end.calls += CALLS.get() - before.1;
    if let Err(error) = worked {
        eprintln!("{error}");
    }
}

/// Drops the datagrams that have arrived, so that they do not count as memory of the end that sent
/// them.
fn arrived(batch: &mut Batch, sender: &mut End) {
    let before = TAKEN.get();
    batch.clear();
    sender.taken += TAKEN.get() - before;
}

/// Runs the client's half of a turn: processes what has arrived, and queues what the client sends.
#[inline(never)]
fn client_turn(pair: &mut Pair) -> Outcome<()> {
    let Pair { client, server, .. } = pair;
    if client.busy.is_none() {
        let connected =
            client.endpoint.connect(pair.now, &pair.config, pair.name.clone(), server.address)?;
        client.busy = Some(connected);
    }
    client.take(pair.now, server.address, &mut pair.down)?;
    client.events();
    let (stream, done) = (client.stream, client.done);
    if let Some((_, connection)) = &mut client.busy
        && connection.is_connected()
        && !done
    {
        match stream {
            Some(id) => client.done = read(connection, id),
            None => {
                let id = connection.open(Direction::Bidirectional).ok_or("no stream")?;
                connection.streams().write(id, b"?")?;
                connection.streams().finish(id)?;
                client.stream = Some(id);
            }
        }
    }
    client.fill(pair.now, &mut pair.up);
    Ok(())
}

/// Runs the server's half of a turn: processes what has arrived, and queues what the server sends.
#[inline(never)]
fn server_turn(pair: &mut Pair) -> Outcome<()> {
    let Pair { client, server, .. } = pair;
    server.take(pair.now, client.address, &mut pair.up)?;
    server.events();
    if let Some((_, connection)) = &mut server.busy
        && !server.done
    {
        server.stream = server.stream.or_else(|| connection.accept(Direction::Bidirectional));
        if let Some(id) = server.stream
            && read(connection, id)
        {
            connection.streams().write(id, b"!")?;
            connection.streams().finish(id)?;
            server.done = true;
        }
    }
    server.fill(pair.now, &mut pair.down);
    Ok(())
}

/// Closes the client's connection.
fn close(pair: &mut Pair) -> Outcome<()> {
    if let Some((_, connection)) = &mut pair.client.busy {
        connection.close(pair.now, VarInt::from_u32(0), "");
    }
    Ok(())
}

impl Pair {
    fn new(options: &Options) -> Outcome<Pair> {
        let provider = aws_lc_rs::default_provider();
        let client = End::new("198.51.100.1:50000", &provider, 1)?;
        let mut server = End::new("192.0.2.1:443", &provider, 2)?;
        let (config, theirs) = configs(provider, options)?;
        server.endpoint.set_server(Some(Arc::new(theirs)));
        let name = ServerName::try_from("equic.test")?;
        let (now, up, down) = (Timestamp::START, Batch::new(), Batch::new());
        let waited = Duration::ZERO;
        Ok(Pair { now, client, server, config, name, up, down, waited })
    }

    /// Runs one connection with its exchange of bytes. If `keep` is true, does not close the
    /// connection, and returns when neither end has anything more to send.
    fn handshake(&mut self, keep: bool) -> Outcome<()> {
        let (mut quiet, mut closed, mut connected) = (0, false, false);
        let begun = self.now;
        for _ in 0..200 {
            counted(self, client_turn, |pair| &mut pair.client);
            if !connected && self.client.busy.as_ref().is_some_and(|(_, one)| one.is_connected()) {
                connected = true;
                self.waited += self.now - begun;
            }
            arrived(&mut self.down, &mut self.server);
            self.now += DELAY;
            let said = self.up.len();
            counted(self, server_turn, |pair| &mut pair.server);
            arrived(&mut self.up, &mut self.client);
            self.now += DELAY;
            quiet = if said + self.down.len() == 0 { quiet + 1 } else { 0 };
            if closed {
                break;
            }
            if self.client.done && self.client.confirmed {
                if !keep {
                    close(self)?;
                    closed = true;
                } else if quiet > 8 {
                    break;
                } else if quiet > 0 {
                    self.now += Duration::from_millis(100);
                }
            } else if quiet > 0 {
                self.now += Duration::from_millis(10);
            }
        }
        if !self.client.done || !self.server.done {
            return Err("the exchange was not completed".into());
        }
        arrived(&mut self.down, &mut self.server);
        arrived(&mut self.up, &mut self.client);
        for end in [&mut self.client, &mut self.server] {
            let before = TAKEN.get();
            end.rest(keep);
            end.taken += TAKEN.get() - before;
        }
        Ok(())
    }
}

/// Returns the configuration of a server with a self-signed certificate and stateless tickets, and
/// of a client that trusts it. The TLS settings are those of `equic-lab bench`.
fn configs(
    mut provider: CryptoProvider,
    options: &Options,
) -> Outcome<(ClientConfig, ServerConfig)> {
    let aes = rustls::CipherSuite::TLS13_AES_128_GCM_SHA256;
    provider.cipher_suites.retain(|suite| suite.suite() == aes);
    if options.post_quantum {
        provider.kx_groups.insert(0, aws_lc_rs::kx_group::X25519MLKEM768);
    }
    let (chain, key, root) = if options.chain { signed_chain()? } else { self_signed()? };
    let (provider, versions) = (Arc::new(provider), [&rustls::version::TLS13]);
    let mut roots = rustls::RootCertStore::empty();
    roots.add(root)?;
    let mut client = rustls::ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&versions)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    if !options.resumed {
        client.resumption = rustls::client::Resumption::disabled();
    }
    let mut server = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&versions)?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    server.ticketer = aws_lc_rs::Ticketer::new()?;
    if !options.compress {
        client.cert_decompressors.clear();
        server.cert_compressors.clear();
    }
    client.alpn_protocols = vec![b"bench".to_vec()];
    server.alpn_protocols = vec![b"bench".to_vec()];
    let transport = Arc::default();
    let client = ClientConfig::new(Arc::new(client)).with_transport(Arc::clone(&transport));
    let server = ServerConfig::new(Arc::new(server)).with_transport(transport);
    Ok((client, server))
}

/// The certificates that a server sends, its key, and the certificate that clients trust.
type Chain = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>, CertificateDer<'static>);

fn self_signed() -> Outcome<Chain> {
    let made = rcgen::generate_simple_self_signed(vec!["equic.test".into()])?;
    let certificate = CertificateDer::from(made.cert);
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der())?;
    Ok((vec![certificate.clone()], key, certificate))
}

/// Creates a certificate with an ECDSA P-256 key that is signed by an RSA-2048 authority, as is
/// usual for Web servers.
fn signed_chain() -> Outcome<Chain> {
    let authority = |name: &str| {
        let mut parameters = CertificateParams::default();
        parameters.distinguished_name.push(DnType::CountryName, "XX");
        parameters.distinguished_name.push(DnType::OrganizationName, "Equic Test Authority");
        parameters.distinguished_name.push(DnType::CommonName, name);
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        parameters
    };
    let rsa = || KeyPair::generate_for(&rcgen::PKCS_RSA_SHA256);
    let root = CertifiedIssuer::self_signed(authority("Equic Test Root X1"), rsa()?)?;
    let middle = CertifiedIssuer::signed_by(authority("Equic Test R10"), rsa()?, &root)?;
    let names = ["equic.test", "www.equic.test", "static.equic.test"].map(str::to_owned);
    let mut leaf = CertificateParams::new(names)?;
    leaf.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    // Two signed certificate timestamps (RFC 6962). Their content looks random, so it cannot be
    // compressed.
    let random = |index: u32| (index.wrapping_mul(2_654_435_761) >> 13) as u8;
    let timestamps: Vec<u8> = (0..242).map(random).collect();
    let id = [1, 3, 6, 1, 4, 1, 11129, 2, 4, 2];
    leaf.custom_extensions.push(CustomExtension::from_oid_content(&id, timestamps));
    let key = KeyPair::generate()?;
    let leaf = leaf.signed_by(&key, &middle)?;
    let key = PrivateKeyDer::try_from(key.serialize_der())?;
    Ok((vec![leaf.into(), middle.der().clone()], key, root.der().clone()))
}
