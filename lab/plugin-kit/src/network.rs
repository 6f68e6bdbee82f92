//! A simulated network: a client and a server connection in one thread and virtual time. The two
//! are connected by one link, or by several links with a path on each (RFC 10069).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::digest::{Context, SHA256};
use equic_net::{Link, Port, Queue};
use equic_transport::operation::{HookError, HookId, Operation, Overruled};
use equic_transport::{
    ClientConfig, CloseReason, Connection, DatagramMeta, Direction, EcnCodepoint, Endpoint,
    EndpointConfig, Event, Handle, OpenPathError, PathId, ReadOutcome, Received, ServerConfig,
    StreamError, StreamId, Timestamp, Transmit, TransportConfig, WriteError,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use thiserror::Error;

/// Maximum size of a datagram that an end may send, in bytes.
const LARGEST: usize = 1500;

/// Maximum number of datagrams that an end sends at once, as in one buffer of a socket with
/// segmentation offload.
const TOGETHER: usize = 44;

/// Maximum number of consecutive steps of the simulation in which time hardly advances: not at all,
/// or a timer expires less than [`TINY`] after the previous step. More steps are an error.
const STILL: u32 = 10_000;
const TINY: Duration = Duration::from_micros(1);

/// Why a network cannot be created: the configuration of TLS or of a link is invalid.
#[derive(Debug, Error)]
#[error("no connection in memory: {0}")]
pub struct StartError(String);

impl StartError {
    fn of(error: impl fmt::Display) -> StartError {
        StartError(error.to_string())
    }
}

/// Error of waiting for a condition that was not met.
#[derive(Debug, Error)]
#[error("{after:?} after the start: {why}")]
pub struct Stuck {
    /// Virtual time since the start of the network.
    pub after: Duration,
    why: String,
}

/// One end of a network's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The client.
    Client,
    /// The server.
    Server,
}

impl End {
    /// Returns the opposite end.
    pub fn other(self) -> End {
        match self {
            End::Client => End::Server,
            End::Server => End::Client,
        }
    }
}

struct Side {
    address: SocketAddr,
    endpoint: Endpoint,
    connection: Option<(Handle, Connection)>,
    /// Function that prepares the server's connection once it exists. `None` afterwards.
    prepare: Option<Prepare>,
    confirmed: bool,
    closed: Option<CloseReason>,
    failed: Vec<(HookId, HookError)>,
    /// Number of datagrams that the end has sent.
    sent: u64,
    /// Numbers of the end's datagrams that the test loses, in addition to the link's own losses.
    lost: BTreeSet<u64>,
    told: Vec<(HookId, Vec<u8>)>,
    overruled: Vec<(Operation, Overruled)>,
}

/// A link between client and server. The client has a different address on each link.
struct Line {
    client: SocketAddr,
    /// Queues of the link: the first towards the client, the second towards the server.
    ports: [Port; 2],
    /// Delay in one direction, without the queue.
    delay: Duration,
    /// Bytes of UDP payload sent over the link: to the client, and to the server.
    carried: [u64; 2],
}

/// Condition under which the links' routers mark packets with CE (ECN congestion experienced).
struct Marks {
    /// Packets are marked if their waiting time in the queue exceeds this time.
    above: Duration,
    /// Weight of each packet's waiting time in the average, from 0 to 1. With 1, only the packet's
    /// own waiting time counts.
    weight: f64,
    /// Current average waiting times in seconds: towards the client, and towards the server.
    average: [f64; 2],
}

impl Marks {
    /// Adds a packet's waiting time to the average of its direction. Returns `true` if the packet
    /// must be marked.
    fn next(&mut self, way: usize, waited: Duration) -> bool {
        let (average, waited) = (&mut self.average[way], waited.as_secs_f64());
        // With a weight of 1, the formula for the average could differ from `waited` by a rounding
        // error.
        *average =
            if self.weight >= 1.0 { waited } else { *average + self.weight * (waited - *average) };
        *average > self.above.as_secs_f64()
    }
}

struct InFlight {
    to: End,
    line: usize,
    ecn: EcnCodepoint,
    bytes: Vec<u8>,
}

/// Function that prepares a connection. It is called before the connection's first packet.
pub type Prepare = Box<dyn FnOnce(&mut Connection) + Send>;

/// Configuration of one end of a network: the transport configuration, and a function that prepares
/// the end's connection.
pub struct Beginning {
    /// The transport.
    pub config: TransportConfig,
    /// Function that prepares the connection before its first packet, for example by attaching
    /// hooks. `None` if no preparation is needed.
    pub prepare: Option<Prepare>,
}

impl Beginning {
    /// Returns the configuration of an end that uses this transport configuration and needs no
    /// preparation.
    pub fn new(config: TransportConfig) -> Beginning {
        Beginning { config, prepare: None }
    }
}

impl fmt::Debug for Beginning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Beginning").field("config", &self.config).finish_non_exhaustive()
    }
}

/// A client, a server, and the links between them.
pub struct Network {
    now: Timestamp,
    client: Side,
    server: Side,
    /// The links, of which there is at least one. The connection begins on the first link.
    lines: Vec<Line>,
    in_flight: BTreeMap<(Timestamp, u64), InFlight>,
    /// Condition under which the routers mark packets, or `None` if they mark none.
    mark: Option<Marks>,
    /// Total time that datagrams have waited in queues, and the number of these datagrams: towards
    /// the client, and towards the server.
    waited: [(Duration, u64); 2],
    /// Number of datagrams sent so far.
    sent: u64,
    /// Buffer into which a connection writes several datagrams at once.
    buffer: Vec<u8>,
    still: u32,
    /// Number of expired timers: of the client, and of the server.
    timeouts: [u64; 2],
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Network").field("now", &self.now).finish_non_exhaustive()
    }
}

/// Returns TLS configurations for a server with a self-signed certificate and for a client that
/// trusts this certificate.
fn configs(
    client_transport: TransportConfig,
    server_transport: TransportConfig,
) -> Result<(ClientConfig, ServerConfig, rustls::crypto::CryptoProvider), Box<dyn std::error::Error>>
{
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    // Ed25519 signatures always have the same length. ECDSA signatures vary in length, and so would
    // the datagrams.
    let signer = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519)?;
    let mut parameters = rcgen::CertificateParams::new(vec!["equic.test".into()])?;
    parameters.serial_number = Some(1.into());
    let certificate = CertificateDer::from(parameters.self_signed(&signer)?);
    let key = PrivateKeyDer::try_from(signer.serialize_der())?;
    let (shared, versions) = (Arc::new(provider.clone()), [&rustls::version::TLS13]);
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate.clone())?;
    let mut client = rustls::ClientConfig::builder_with_provider(shared.clone())
        .with_protocol_versions(&versions)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let mut server = rustls::ServerConfig::builder_with_provider(shared)
        .with_protocol_versions(&versions)?
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)?;
    client.alpn_protocols = vec![b"equic-plugin".to_vec()];
    server.alpn_protocols.clone_from(&client.alpn_protocols);
    let client = ClientConfig::new(Arc::new(client)).with_transport(Arc::new(client_transport));
    let server = ServerConfig::new(Arc::new(server)).with_transport(Arc::new(server_transport));
    Ok((client, server, provider))
}

impl Network {
    /// Creates a network whose client is about to connect. The link has the same properties in both
    /// directions.
    ///
    /// # Errors
    /// [`StartError`]. If the link is valid, the cause is a fault of this crate.
    pub fn new(link: &Link, config: TransportConfig, seed: u64) -> Result<Network, StartError> {
        let [client, server] = [config.clone(), config].map(Beginning::new);
        Network::between(link, client, server, seed)
    }

    /// Creates a network like [`Network::new`], with a different configuration for each end.
    ///
    /// # Errors
    /// Those of [`Network::new`].
    pub fn between(
        link: &Link,
        client_end: Beginning,
        server_end: Beginning,
        seed: u64,
    ) -> Result<Network, StartError> {
        Network::over(&[link], client_end, server_end, seed)
    }

    /// Creates a network like [`Network::between`], with several links. Each link has the same
    /// properties in both directions. The client has an address on each link, and connects over the
    /// first link. [`Network::open_path`] opens paths over the other links.
    ///
    /// # Errors
    /// Those of [`Network::new`]. The list of links must not be empty.
    pub fn over(
        links: &[&Link],
        client_end: Beginning,
        server_end: Beginning,
        seed: u64,
    ) -> Result<Network, StartError> {
        let line = |(at, link): (usize, &&Link)| -> Result<Line, StartError> {
            link.check().map_err(StartError::of)?;
            let last = u8::try_from(at + 1).map_err(StartError::of)?;
            let port =
                |way: u64| Port::new((*link).clone(), seed.rotate_left(2) ^ (at as u64) << 8 ^ way);
            Ok(Line {
                client: SocketAddr::from(([198, 51, 100, last], 50_000)),
                ports: [port(1), port(2)],
                delay: link.delay,
                carried: [0; 2],
            })
        };
        let lines = links.iter().enumerate().map(line).collect::<Result<Vec<Line>, _>>()?;
        let first =
            lines.first().ok_or_else(|| StartError("the network has no link".to_owned()))?;
        let configs = configs(client_end.config, server_end.config);
        let (client, server, provider) = configs.map_err(StartError::of)?;
        let end = |address: SocketAddr, server, seed| -> Result<Side, StartError> {
            let config = EndpointConfig::new(&provider).map_err(StartError::of)?;
            Ok(Side {
                address,
                endpoint: Endpoint::new(config, server, [seed; 32]),
                connection: None,
                prepare: None,
                confirmed: false,
                closed: None,
                failed: Vec::new(),
                sent: 0,
                lost: BTreeSet::new(),
                told: Vec::new(),
                overruled: Vec::new(),
            })
        };
        let start = Timestamp::START;
        let mut server = end(
            SocketAddr::from(([192, 0, 2, 1], 443)),
            Some(Arc::new(server)),
            seed as u8 ^ 0x5a,
        )?;
        server.prepare = server_end.prepare;
        let mut ours = end(first.client, None, seed as u8)?;
        let name = ServerName::try_from("equic.test").map_err(StartError::of)?;
        let connected = ours.endpoint.connect(start, &client, name, server.address);
        let (handle, mut connection) = connected.map_err(StartError::of)?;
        if let Some(prepare) = client_end.prepare {
            prepare(&mut connection);
        }
        ours.connection = Some((handle, connection));
        Ok(Network {
            now: start,
            client: ours,
            server,
            lines,
            in_flight: BTreeMap::new(),
            mark: None,
            waited: Default::default(),
            sent: 0,
            buffer: Vec::new(),
            still: 0,
            timeouts: [0; 2],
        })
    }

    /// Makes the routers mark packets that wait longer than `wait` in the link's queue, in both
    /// directions. Only packets with ECT(0) or ECT(1) are marked (RFC 3168 s.5). The link's jitter
    /// counts as time in the queue.
    pub fn mark_above(&mut self, wait: Duration) {
        self.mark_above_average(wait, 1.0);
    }

    /// Makes the routers mark packets like [`Network::mark_above`], but by comparing the average
    /// waiting time with `wait`. Each packet has the weight `weight` (from 0 to 1) in the average.
    /// This is RED (Floyd and Jacobson, 1993) with two equal thresholds. The average does not
    /// change while nothing is sent.
    pub fn mark_above_average(&mut self, wait: Duration, weight: f64) {
        self.mark = Some(Marks { above: wait, weight, average: [0.0; 2] });
    }

    /// Loses some of the datagrams that an end is going to send, in addition to the link's losses.
    /// `datagrams` are their numbers, where 0 is the next datagram.
    pub fn lose(&mut self, from: End, datagrams: &[u64]) {
        let side = self.side(from);
        let next = side.sent;
        side.lost.extend(datagrams.iter().map(|number| next + number));
    }

    /// Returns the mean time that datagrams from one end have waited in the queues of all links
    /// since the start. Only datagrams that arrived count. The time in a queue includes the
    /// transmission of the datagram and the link's jitter.
    pub fn mean_wait(&self, from: End) -> Duration {
        let (time, count) = self.waited[usize::from(from == End::Client)];
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        time.checked_div(count).unwrap_or_default()
    }

    /// Returns the virtual time since the start of the network.
    pub fn elapsed(&self) -> Duration {
        self.now.since(Timestamp::START)
    }

    fn side(&mut self, end: End) -> &mut Side {
        match end {
            End::Client => &mut self.client,
            End::Server => &mut self.server,
        }
    }

    /// Returns the connection of an end. The server has no connection before the client's first
    /// datagram arrives.
    pub fn connection(&mut self, end: End) -> Option<&mut Connection> {
        self.side(end).connection.as_mut().map(|(_, connection)| connection)
    }

    /// Returns the hooks of an end that have failed since the last call of this function, with
    /// their errors.
    pub fn failures(&mut self, end: End) -> Vec<(HookId, HookError)> {
        std::mem::take(&mut self.side(end).failed)
    }

    /// Returns the number of times that a timer of this end's connection has expired.
    pub fn timeouts(&self, end: End) -> u64 {
        self.timeouts[usize::from(end == End::Server)]
    }

    /// Returns the messages that an end's hooks have sent to the application since the last call of
    /// this function.
    pub fn messages(&mut self, end: End) -> Vec<(HookId, Vec<u8>)> {
        std::mem::take(&mut self.side(end).told)
    }

    /// Returns the choices of paths by an end's hooks that the transport has overruled since the
    /// last call of this function.
    pub fn overruled(&mut self, end: End) -> Vec<(Operation, Overruled)> {
        std::mem::take(&mut self.side(end).overruled)
    }

    /// Returns the number of bytes of UDP payload that an end has sent over a link. Links are
    /// numbered from 0.
    pub fn carried(&self, from: End, link: usize) -> u64 {
        self.lines.get(link).map_or(0, |line| line.carried[usize::from(from == End::Client)])
    }

    /// Changes the rate and the queue of a link in one direction. The delay stays the same. Call
    /// this before anything is sent in that direction.
    ///
    /// # Errors
    /// There is no such link, or the rate or queue is invalid.
    pub fn set_rate(
        &mut self,
        from: End,
        link: usize,
        rate: u64,
        queue: Queue,
    ) -> Result<(), StartError> {
        let line = self.lines.get_mut(link);
        let line = line.ok_or_else(|| StartError(format!("there is no link {link}")))?;
        let made =
            Link { rate: Some(rate), queue, overhead: 28, delay: line.delay, ..Link::default() };
        made.check().map_err(StartError::of)?;
        let way = usize::from(from == End::Client);
        line.ports[way] = Port::new(made, (link as u64) << 8 | way as u64);
        Ok(())
    }

    /// Opens a path over a link, from the client. Returns when both ends have validated the path.
    ///
    /// # Errors
    /// [`Stuck`] if there is no such link, the ends do not support that many paths, or the peer
    /// does not answer.
    pub fn open_path(&mut self, link: usize) -> Result<PathId, Stuck> {
        let limit = Duration::from_secs(60);
        let local = self.lines.get(link).map(|line| line.client.ip());
        let Some(local) = local else { return Err(self.stuck(format!("there is no link {link}"))) };
        let mut opened = None;
        self.run_until(limit, "the client cannot open a path", |network| {
            let (now, remote) = (network.now, network.server.address);
            let client = network.connection(End::Client);
            opened = client.map(|client| client.open_path(now, Some(local), remote));
            use OpenPathError::{NoConnectionId, NotConfirmed};
            !matches!(opened, None | Some(Err(NoConnectionId | NotConfirmed)))
        })?;
        let id = match opened {
            Some(Ok(id)) => id,
            Some(Err(error)) => return Err(self.stuck(error.to_string())),
            None => return Err(self.stuck("there is no connection".to_owned())),
        };
        self.run_until(limit, "the peer does not answer on the new path", |network| {
            [End::Client, End::Server].into_iter().all(|end| {
                let connection = network.connection(end);
                connection
                    .is_some_and(|one| one.paths().any(|path| path.id == id && path.validated))
            })
        })?;
        Ok(id)
    }

    /// Runs the network until both ends have confirmed the handshake.
    ///
    /// # Errors
    /// [`Stuck`].
    pub fn connect(&mut self) -> Result<(), Stuck> {
        self.run_until(
            Duration::from_secs(60),
            "the handshake was not confirmed in time",
            |network| network.client.confirmed && network.server.confirmed,
        )
    }

    /// Sends this many bytes from one end to the other on a new stream, reads them there, and
    /// compares them. Returns the duration of the transfer.
    ///
    /// # Errors
    /// [`Stuck`] if the transfer takes longer than `limit`, or if the bytes that arrive differ from
    /// those that were sent.
    pub fn transfer(&mut self, from: End, bytes: u64, limit: Duration) -> Result<Duration, Stuck> {
        self.transfer_hashed(from, bytes, limit).map(|carried| carried.took)
    }

    /// Sends bytes like [`Network::transfer`], and also returns the hash of the bytes that arrived.
    ///
    /// # Errors
    /// Those of [`Network::transfer`].
    pub fn transfer_hashed(
        &mut self,
        from: End,
        bytes: u64,
        limit: Duration,
    ) -> Result<Carried, Stuck> {
        let begun = self.now;
        let hash = Context::new(&SHA256);
        let mut transfer =
            Transfer { stream: None, incoming: None, written: 0, read: 0, bytes, hash };
        let mut wrong = None;
        self.run_until(limit, "the transfer did not complete in time", |network| {
            let wrote = network.connection(from).map_or(Ok(()), |end| transfer.write(end));
            let read = match network.connection(from.other()) {
                Some(end) => wrote.and_then(|()| transfer.read(end)),
                None => wrote.map(|()| false),
            };
            read.unwrap_or_else(|error| {
                wrong = Some(error);
                true
            })
        })?;
        match wrong {
            Some(why) => Err(self.stuck(why)),
            None => {
                let mut sha256 = [0; 32];
                sha256.copy_from_slice(transfer.hash.finish().as_ref());
                Ok(Carried { took: self.now.since(begun), sha256 })
            }
        }
    }

    /// Advances the time by `time`.
    ///
    /// # Errors
    /// [`Stuck`] if both connections have ended.
    pub fn pass(&mut self, time: Duration) -> Result<(), Stuck> {
        let end = self.now + time;
        while self.now < end {
            self.step(end)?;
        }
        Ok(())
    }

    /// Runs the network until `done` returns `true`. `done` is called after each step.
    ///
    /// # Errors
    /// [`Stuck`] with the text `otherwise` after `limit`, or if a connection is closed.
    pub fn run_until(
        &mut self,
        limit: Duration,
        otherwise: &str,
        mut done: impl FnMut(&mut Network) -> bool,
    ) -> Result<(), Stuck> {
        let end = self.now + limit;
        loop {
            if done(self) {
                return Ok(());
            }
            let sides = [&self.client, &self.server];
            if let Some(reason) = sides.into_iter().find_map(|side| side.closed.as_ref()) {
                let why = format!("{otherwise}: closed, {reason:?}");
                return Err(self.stuck(why));
            }
            if self.now >= end {
                return Err(self.stuck(otherwise.to_owned()));
            }
            self.step(end)?;
        }
    }

    fn stuck(&self, why: String) -> Stuck {
        Stuck { after: self.elapsed(), why }
    }

    /// Sends all pending datagrams, and then advances the time to the next event, but not beyond
    /// `end`. An event is the arrival of a datagram or the expiry of a timer.
    fn step(&mut self, end: Timestamp) -> Result<(), Stuck> {
        self.transmit(End::Client);
        self.transmit(End::Server);
        let arrival = self.in_flight.keys().next().map(|(at, _)| *at);
        let timers = [End::Client, End::Server].map(|end| self.connection(end)?.poll_timeout());
        let next = timers.into_iter().flatten().chain(arrival).min();
        let next = next.unwrap_or(end).min(end).max(self.now);
        let timer = arrival.is_none_or(|at| at > next) && next < self.now + TINY;
        self.still = if next == self.now || timer { self.still + 1 } else { 0 };
        if self.still > STILL {
            return Err(
                self.stuck("virtual time does not advance: a timer is always due".to_owned())
            );
        }
        self.now = next;
        while let Some(entry) = self.in_flight.first_entry() {
            if entry.key().0 > self.now {
                break;
            }
            let datagram = entry.remove();
            self.deliver(datagram)?;
        }
        let now = self.now;
        for end in [End::Client, End::Server] {
            if let Some(connection) = self.connection(end)
                && connection.poll_timeout().is_some_and(|at| at <= now)
            {
                connection.handle_timeout(now);
                self.timeouts[usize::from(end == End::Server)] += 1;
            }
            self.listen(end);
        }
        Ok(())
    }

    /// Sends the pending datagrams of an end, in groups as a socket passes them to the operating
    /// system.
    fn transmit(&mut self, from: End) {
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.resize(TOGETHER * LARGEST, 0);
        let now = self.now;
        loop {
            let side = self.side(from);
            let Some((handle, connection)) = &mut side.connection else { break };
            let sent = connection.poll_transmit(now, &mut buffer[..LARGEST]);
            let more = sent.map(|sent| {
                let rest = &mut buffer[sent.size..];
                (sent, connection.driver().poll_transmit_more(now, &sent, rest, TOGETHER - 1))
            });
            // The endpoint must know a connection ID before the peer can use it.
            while let Some(change) = connection.poll_endpoint_event() {
                side.endpoint.handle_endpoint_event(*handle, change);
            }
            let Some((sent, more)) = more else { break };
            for bytes in buffer[..sent.size + more].chunks(sent.size) {
                self.send(from, &sent, bytes);
            }
        }
        self.buffer = buffer;
        self.listen(from);
    }

    /// Sends one datagram over a link.
    fn send(&mut self, from: End, sent: &Transmit, bytes: &[u8]) {
        let (now, side) = (self.now, self.side(from));
        let nth = side.sent;
        side.sent += 1;
        if side.lost.remove(&nth) {
            return;
        }
        let of_client = match from {
            End::Client => sent.source,
            End::Server => Some(sent.destination.ip()),
        };
        let found = self.lines.iter().position(|line| Some(line.client.ip()) == of_client);
        let number = found.unwrap_or(0);
        let line = &mut self.lines[number];
        let way = usize::from(from == End::Client);
        line.carried[way] += bytes.len() as u64;
        let started = now.since(Timestamp::START);
        let verdict = line.ports[way].send(started, bytes.len());
        let waited = verdict.arrival.saturating_sub(started + line.delay);
        if verdict.fate.arrived() {
            let (time, count) = &mut self.waited[way];
            (*time, *count) = (*time + waited, *count + 1);
        }
        let marked = self.mark.as_mut().is_some_and(|marks| marks.next(way, waited));
        let ecn = match sent.ecn {
            EcnCodepoint::NotEct => EcnCodepoint::NotEct,
            _ if marked => EcnCodepoint::Ce,
            unmarked => unmarked,
        };
        let arrivals = verdict.fate.arrived().then_some(verdict.arrival).into_iter();
        for at in arrivals.chain(verdict.copy) {
            let mut bytes = bytes.to_vec();
            if let Some(corruption) = verdict.corruption {
                corruption.apply(&mut bytes);
            }
            self.sent += 1;
            let datagram = InFlight { to: from.other(), line: number, ecn, bytes };
            self.in_flight.insert((Timestamp::START + at, self.sent), datagram);
        }
    }

    fn deliver(&mut self, datagram: InFlight) -> Result<(), Stuck> {
        let InFlight { to, line, ecn, mut bytes } = datagram;
        let (now, client) = (self.now, self.lines[line].client);
        let (remote, local) = match to {
            // If the client has only one address, the local address of a datagram need not be set.
            End::Client => (self.server.address, (self.lines.len() > 1).then_some(client.ip())),
            End::Server => (client, None),
        };
        let arrival = DatagramMeta { remote, local, ecn };
        let side = self.side(to);
        // An endpoint writes responses to packets without a connection into this buffer. No such
        // packets occur here.
        let mut response = Vec::new();
        let failed = match side.endpoint.handle_datagram(now, arrival, &bytes, &mut response) {
            Received::Incoming(incoming) => {
                let prepare = side.prepare.take();
                let prepare = |connection: &mut Connection| {
                    if let Some(prepare) = prepare {
                        prepare(connection);
                    }
                };
                match side.endpoint.accept_with(now, incoming, prepare) {
                    Ok(accepted) => {
                        side.connection = Some(accepted);
                        None
                    }
                    Err(error) => Some(error.to_string()),
                }
            }
            Received::Connection(_) => {
                if let Some((_, connection)) = &mut side.connection {
                    connection.handle_datagram(now, arrival, &mut bytes);
                }
                None
            }
            Received::Respond | Received::Nothing => None,
        };
        self.listen(to);
        failed.map_or(Ok(()), |error| Err(self.stuck(error)))
    }

    fn listen(&mut self, end: End) {
        let side = self.side(end);
        let Some((_, connection)) = &mut side.connection else { return };
        while let Some(event) = connection.poll_event() {
            match event {
                Event::Confirmed => side.confirmed = true,
                Event::Closed(reason) => side.closed = Some(reason),
                Event::HookFailed(hook, error) => side.failed.push((hook, error)),
                Event::HookMessage(hook, message) => side.told.push((hook, message)),
                Event::ChoiceOverruled(operation, why) => side.overruled.push((operation, why)),
                _ => {}
            }
        }
    }
}

/// Result of a transfer of data from one end to the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Carried {
    /// Time until the receiver had read the last byte.
    pub took: Duration,
    /// SHA-256 of the bytes that the receiver read.
    pub sha256: [u8; 32],
}

/// Returns the SHA-256 of the first `bytes` bytes that [`Network::transfer`] sends.
pub fn sent_hash(bytes: u64) -> [u8; 32] {
    let mut hash = Context::new(&SHA256);
    for from in (0..bytes).step_by(4096) {
        let piece: Vec<u8> = (from..bytes.min(from + 4096)).map(byte).collect();
        hash.update(&piece);
    }
    let mut sha256 = [0; 32];
    sha256.copy_from_slice(hash.finish().as_ref());
    sha256
}

/// A stream that carries data from one end to the other.
struct Transfer {
    stream: Option<StreamId>,
    incoming: Option<StreamId>,
    written: u64,
    read: u64,
    bytes: u64,
    /// Hash of the bytes that the receiver has read so far.
    hash: Context,
}

/// Returns the byte at this offset of the data that [`Network::transfer`] sends.
pub(crate) fn byte(at: u64) -> u8 {
    (at ^ (at >> 8) ^ (at >> 16) ^ (at >> 24)) as u8
}

impl Transfer {
    fn write(&mut self, end: &mut Connection) -> Result<(), String> {
        let stream = match self.stream {
            Some(stream) => stream,
            None => match end.open(Direction::Unidirectional) {
                Some(stream) => *self.stream.insert(stream),
                None => return Ok(()),
            },
        };
        while self.written < self.bytes {
            let until = self.bytes.min(self.written + 4096);
            let piece: Vec<u8> = (self.written..until).map(byte).collect();
            let count = match end.streams().write(stream, &piece) {
                Ok(count) => count,
                Err(StreamError::Write(WriteError::Blocked)) => return Ok(()),
                Err(error) => return Err(error.to_string()),
            };
            self.written += count as u64;
            if self.written == self.bytes {
                end.streams().finish(stream).map_err(|error| error.to_string())?;
            }
        }
        Ok(())
    }

    /// Reads the data that has arrived. Returns `true` once all data has arrived.
    fn read(&mut self, end: &mut Connection) -> Result<bool, String> {
        self.incoming = self.incoming.or_else(|| end.accept(Direction::Unidirectional));
        let Some(stream) = self.incoming else { return Ok(false) };
        let mut buffer = [0; 4096];
        loop {
            match end.streams().read(stream, &mut buffer).map_err(|error| error.to_string())? {
                ReadOutcome::Bytes(count) => {
                    let right =
                        (self.read..).zip(&buffer[..count]).all(|(at, read)| *read == byte(at));
                    if !right {
                        return Err(format!(
                            "the received bytes differ from the sent bytes after byte {}",
                            self.read
                        ));
                    }
                    self.hash.update(&buffer[..count]);
                    self.read += count as u64;
                }
                ReadOutcome::Blocked => return Ok(false),
                ReadOutcome::Finished if self.read == self.bytes => return Ok(true),
                ReadOutcome::Finished => {
                    return Err(format!(
                        "the stream ended after {} of {} bytes",
                        self.read, self.bytes
                    ));
                }
                ReadOutcome::Reset(code) => return Err(format!("reset: {code}")),
            }
        }
    }
}
