//! The transport of this tree as an inhabitant: `equic-transport` itself, without protection
//! (`null-crypto`: handshakes and packets of the sizes that TLS has).
//!
//! [`bulk`] sets both ends of a transfer in their places; [`BulkReceiver::outcome`] says what became of it.
//! The connection's calls are made in the order that its documentation asks for: what came is read and what
//! is to go is written before `poll_transmit`, or the transport would take the flow for one whose
//! application has nothing to send.

mod channel;
mod resume;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use equic_transport::null::{InsecureNullConfig, InsecureNullCrypto};
use equic_transport::qlog::ReferenceTime;
use equic_transport::{
    Arrival, Connection, ConnectionId, Direction, EcnCodepoint, Event, ReadOutcome, StartError,
    Stats, StreamEvent, StreamId, Timestamp, VarInt,
};
use equic_wire::packet::LongInvariant;

use crate::agent::{Agent, Datagram, Status, Transmit};
use crate::app::{Application, ends};
use crate::packet::{Address, Ecn, FlowId};
use crate::simulation::Simulation;
use crate::time::Time;
use crate::topology::{NodeId, TopologyError};

use channel::QuicChannel;

pub use crate::app::Party;
pub use crate::transfer::{BulkIds, Outcome, SenderState};
pub use equic_transport::TransportConfig;
pub use equic_transport::congestion::{Algorithm, ControllerFactory};
pub use equic_transport::qlog::{Event as QlogEvent, FileHeader, JsonSeq, QlogSink};

/// Bytes that are written and read at a time.
const CHUNK: usize = 16 * 1024;
/// The content of streams begins anew after so many bytes: a prime, so that no packet or page is like another.
const PERIOD: usize = 251;

/// A transfer of `bytes` from the client to the server, on one stream.
#[derive(Clone, Debug)]
pub struct Bulk {
    /// Bytes to transfer.
    pub bytes: u64,
    /// Time at which the client begins its handshake.
    pub start: Time,
    /// Transport configuration of both ends.
    pub transport: TransportConfig,
    /// Session of an earlier connection that the client has.
    pub resumption: Resumption,
    /// Logs of both ends, if any; they change nothing about the run.
    pub logs: Option<Logs>,
}

/// What a client has of an earlier connection to the same server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Resumption {
    /// Nothing: the server sends its certificate.
    #[default]
    None,
    /// A session: the server sends no certificate (RFC 8446 s.2.2).
    Session,
    /// A session with which the client sends before the handshake is complete, 0-RTT (RFC 9001 s.4.6).
    EarlyData,
}

/// Makes the log of each end of a connection, from the header that its file is to have.
#[derive(Clone)]
pub struct Logs(Arc<MakeLog>);

type MakeLog = dyn Fn(&FileHeader) -> Box<dyn QlogSink> + Send + Sync;

impl Logs {
    /// Logs that this function makes.
    pub fn new(make: impl Fn(&FileHeader) -> Box<dyn QlogSink> + Send + Sync + 'static) -> Logs {
        Logs(Arc::new(make))
    }

    /// Logs a connection from now on. Times in the log count from the start of the run.
    fn begin(&self, connection: &mut Connection) {
        let header = FileHeader {
            title: None,
            vantage_name: Some("equic-sim".to_owned()),
            vantage: connection.side(),
            odcid: connection.original_dcid(),
            reference_time: ReferenceTime::Monotonic { zero: Timestamp::START, wall_clock: None },
        };
        connection.set_qlog((self.0)(&header));
    }
}

impl std::fmt::Debug for Logs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Logs")
    }
}

impl Bulk {
    /// A transfer that begins with the run, with the default transport configuration.
    pub fn new(bytes: u64) -> Bulk {
        Bulk {
            bytes,
            start: Time::START,
            transport: TransportConfig::default(),
            resumption: Resumption::None,
            logs: None,
        }
    }

    /// The same with this congestion control: an [`Algorithm`], or one of your own.
    #[must_use]
    pub fn congestion(mut self, factory: impl ControllerFactory + 'static) -> Bulk {
        self.transport.congestion = Arc::new(factory);
        self
    }
}

/// Error of setting up a transfer.
#[derive(Debug)]
#[non_exhaustive]
pub enum QuicError {
    /// No route leads from one end to the other, or a node has no port number left.
    Topology(TopologyError),
    /// The transport refuses its configuration.
    Start(StartError),
    /// An earlier connection with this configuration gives the client no session to send early data with.
    NoSession,
}

impl std::fmt::Display for QuicError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            QuicError::Topology(error) => error.fmt(f),
            QuicError::Start(error) => error.fmt(f),
            QuicError::NoSession => f.write_str("the server gives no session for early data"),
        }
    }
}

impl std::error::Error for QuicError {}

impl From<StartError> for QuicError {
    fn from(error: StartError) -> QuicError {
        QuicError::Start(error)
    }
}

impl From<TopologyError> for QuicError {
    fn from(error: TopologyError) -> QuicError {
        QuicError::Topology(error)
    }
}

/// Both ends of a connection without applications, in the order client, server, with their addresses and flows.
struct Pair {
    client: QuicEnd,
    server: QuicEnd,
    from: Address,
    to: Address,
}

fn pair(
    run: &mut Simulation,
    client: NodeId,
    server: NodeId,
    transport: &TransportConfig,
    resumption: Resumption,
    logs: Option<&Logs>,
) -> Result<Pair, QuicError> {
    // Only tokens would be made with it, and none are.
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    let crypto = InsecureNullCrypto::for_simulation_only(&provider).map_err(QuicError::Start)?;
    let mut config = InsecureNullConfig::new(crypto);
    config.transport = transport.clone().into();
    let (from, to) = (run.address(client)?, run.address(server)?);
    let (there, back) = (run.flow(from, to)?, run.flow(to, from)?);
    let [ours, theirs] = resume::configs(config, resumption)?;
    let end = |config, own: Address, peer, flow, seed| QuicEnd {
        config,
        connection: None,
        logs: logs.cloned(),
        seed,
        remote: socket_address(peer),
        local: socket_address(own),
        peer,
        flow,
    };
    let client = end(ours, from, to, there, run.agent_seed(from));
    let server = end(theirs, to, from, back, run.agent_seed(to));
    Ok(Pair { client, server, from, to })
}

/// Puts both ends of a transfer on their nodes.
///
/// # Errors
/// [`QuicError`].
pub fn bulk(
    run: &mut Simulation,
    client: NodeId,
    server: NodeId,
    bulk: &Bulk,
) -> Result<BulkIds, QuicError> {
    let Pair { client, server, from, to } =
        pair(run, client, server, &bulk.transport, bulk.resumption, bulk.logs.as_ref())?;
    let (there, back) = (client.flow, server.flow);
    let sender = BulkSender {
        end: client,
        start: bulk.start,
        bytes: bulk.bytes,
        stream: None,
        written: 0,
        delivered: false,
        failure: None,
    };
    let receiver = BulkReceiver { end: server, stream: None, outcome: Outcome::default() };
    let (sender, receiver) = (Box::new(sender), Box::new(receiver));
    let (sender, receiver) = (run.attach(from, sender), run.attach(to, receiver));
    Ok(BulkIds { sender, receiver, there, back })
}

/// A connection that carries an [`Application`].
#[derive(Clone, Debug)]
pub struct Carrier {
    /// Time at which the client begins its handshake.
    pub start: Time,
    /// Transport configuration of both ends.
    pub transport: TransportConfig,
    /// Session of an earlier connection that the client has.
    pub resumption: Resumption,
    /// Logs of both ends, if any; they change nothing about the run.
    pub logs: Option<Logs>,
}

/// Puts both ends of a connection with an application on their nodes. They are of the type [`Party`].
///
/// # Errors
/// [`QuicError`].
pub fn attach(
    run: &mut Simulation,
    client: NodeId,
    server: NodeId,
    application: &Application,
    carrier: &Carrier,
) -> Result<BulkIds, QuicError> {
    let mut transport = carrier.transport.clone();
    let streams = &mut transport.streams;
    streams.max_streams_bidi = streams.max_streams_bidi.max(application.concurrent());
    let Pair { client, server, from, to } =
        pair(run, client, server, &transport, carrier.resumption, carrier.logs.as_ref())?;
    let (up, down) = (client.flow, server.flow);
    let (client, server) =
        (Box::new(QuicChannel::new(client, true)), Box::new(QuicChannel::new(server, false)));
    let ends = ends(application, carrier.start, client, server);
    let (client, server) =
        (run.attach(from, Box::new(ends.client)), run.attach(to, Box::new(ends.server)));
    Ok(BulkIds::of(application, (client, up), (server, down)))
}

/// Addresses of the simulation as those of the Internet: the node within 10.0.0.0/8.
fn socket_address(address: Address) -> SocketAddr {
    let [_, a, b, c] = address.node.0.to_be_bytes();
    SocketAddr::from((Ipv4Addr::new(10, a, b, c), address.port))
}

fn timestamp(time: Time) -> Timestamp {
    Timestamp::from_nanos(time.as_nanos())
}

/// One end of a connection, without an application.
struct QuicEnd {
    config: InsecureNullConfig,
    connection: Option<Box<Connection>>,
    logs: Option<Logs>,
    seed: [u8; 32],
    local: SocketAddr,
    remote: SocketAddr,
    peer: Address,
    flow: FlowId,
}

impl QuicEnd {
    fn begin_logs(&mut self) {
        if let (Some(logs), Some(connection)) = (&self.logs, &mut self.connection) {
            logs.begin(connection);
        }
    }

    /// Begins a client's handshake.
    fn connect(&mut self, now: Time) {
        let made =
            Connection::connect_insecure_null(timestamp(now), &self.config, self.remote, self.seed);
        self.connection = made.ok().map(Box::new);
        self.begin_logs();
    }

    /// Takes the connection that a client's first datagram begins, if it is one.
    fn accept(&mut self, now: Time, first: &[u8]) -> Result<(), String> {
        let Ok(header) = LongInvariant::parse(first) else { return Ok(()) };
        let (Ok(original), Ok(client)) =
            (ConnectionId::new(header.dcid), ConnectionId::new(header.scid))
        else {
            return Ok(());
        };
        let QuicEnd { config, remote, seed, .. } = self;
        let now = timestamp(now);
        let made = Connection::accept_insecure_null(now, config, original, client, *remote, *seed);
        self.connection = Some(Box::new(made.map_err(|error| error.to_string())?));
        self.begin_logs();
        Ok(())
    }

    fn on_datagram(&mut self, now: Time, datagram: Datagram<'_>) {
        let Some(connection) = &mut self.connection else { return };
        let ecn = match datagram.ecn {
            Ecn::NotEct => EcnCodepoint::NotEct,
            Ecn::Ect1 => EcnCodepoint::Ect1,
            Ecn::Ect0 => EcnCodepoint::Ect0,
            Ecn::Ce => EcnCodepoint::Ce,
        };
        let arrival = Arrival { remote: self.remote, local: Some(self.local.ip()), ecn };
        connection.handle_datagram(timestamp(now), arrival, datagram.payload);
    }

    fn on_timer(&mut self, now: Time) {
        if let Some(connection) = &mut self.connection {
            connection.handle_timeout(timestamp(now));
        }
    }

    fn poll_transmit(&mut self, now: Time, buffer: &mut [u8]) -> Option<Transmit> {
        let sent = self.connection.as_mut()?.poll_transmit(timestamp(now), buffer)?;
        let ecn = match sent.ecn {
            EcnCodepoint::NotEct => Ecn::NotEct,
            EcnCodepoint::Ect1 => Ecn::Ect1,
            EcnCodepoint::Ect0 => Ecn::Ect0,
            EcnCodepoint::Ce => Ecn::Ce,
        };
        Some(Transmit { ecn, ..Transmit::udp(self.peer, self.flow, sent.size) })
    }

    fn next_timer(&mut self) -> Option<Time> {
        let timeout = self.connection.as_mut()?.poll_timeout()?;
        Some(Time::from_nanos(timeout.as_nanos()))
    }

    fn stats(&self) -> Stats {
        self.connection.as_ref().map(|connection| connection.stats()).unwrap_or_default()
    }
}

/// The client of a [`bulk`] transfer.
pub struct BulkSender {
    end: QuicEnd,
    start: Time,
    bytes: u64,
    stream: Option<StreamId>,
    written: u64,
    /// True once the peer has acknowledged every byte of the transfer.
    delivered: bool,
    failure: Option<String>,
}

impl BulkSender {
    /// Counters of its connection.
    pub fn stats(&self) -> Stats {
        self.end.stats()
    }

    /// Reason for which its connection failed, if it did: the server may never have heard of it.
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// Reads what happened and writes what there is room for.
    fn work(&mut self, now: Time) {
        let Some(connection) = &mut self.end.connection else { return };
        let mut done = false;
        while let Some(event) = connection.poll_event() {
            match event {
                Event::Stream(StreamEvent::Finished(_)) => done = true,
                Event::Closed(reason) if !self.delivered => {
                    self.failure = Some(reason.to_string());
                }
                _ => {}
            }
        }
        if self.stream.is_none() && (connection.is_connected() || connection.is_early()) {
            self.stream = connection.open(Direction::Unidirectional);
        }
        let Some(stream) = self.stream else { return };
        self.delivered |= done;
        if done {
            connection.close(timestamp(now), VarInt::from_u32(0), "");
        }
        while self.written < self.bytes {
            let chunk = content(self.written, self.bytes);
            match connection.write(stream, chunk) {
                Ok(count) if count > 0 => self.written += count as u64,
                // No room now; or the connection is over, which the receiver says.
                Ok(_) | Err(_) => return,
            }
            if self.written == self.bytes {
                // It was open a moment ago.
                let _ = connection.streams().finish(stream);
            }
        }
    }
}

impl Agent for BulkSender {
    fn on_datagram(&mut self, now: Time, datagram: Datagram<'_>) {
        self.end.on_datagram(now, datagram);
        self.work(now);
    }

    fn on_timer(&mut self, now: Time) {
        if self.end.connection.is_none() && now >= self.start {
            self.end.connect(now);
        }
        self.end.on_timer(now);
        self.work(now);
    }

    fn poll_transmit(&mut self, now: Time, buffer: &mut [u8]) -> Option<Transmit> {
        self.end.poll_transmit(now, buffer)
    }

    fn next_timer(&mut self) -> Option<Time> {
        if self.end.connection.is_none() {
            return Some(self.start);
        }
        self.end.next_timer()
    }
}

/// The server of a [`bulk`] transfer: it takes one connection.
pub struct BulkReceiver {
    end: QuicEnd,
    stream: Option<StreamId>,
    outcome: Outcome,
}

impl BulkReceiver {
    /// Result of the transfer so far.
    pub fn outcome(&self) -> &Outcome {
        &self.outcome
    }

    /// Counters of its connection.
    pub fn stats(&self) -> Stats {
        self.end.stats()
    }

    fn work(&mut self, now: Time) {
        let Some(connection) = &mut self.end.connection else { return };
        while let Some(event) = connection.poll_event() {
            if let Event::Closed(reason) = event
                && self.outcome.completed.is_none()
            {
                self.outcome.failure = Some(reason.to_string());
            }
        }
        self.stream = self.stream.or_else(|| connection.accept(Direction::Unidirectional));
        let Some(stream) = self.stream.filter(|_| self.outcome.completed.is_none()) else { return };
        let mut buffer = [0; CHUNK];
        loop {
            match connection.read(stream, &mut buffer) {
                Ok(ReadOutcome::Bytes(count)) => {
                    let end = self.outcome.bytes + count as u64;
                    if content(self.outcome.bytes, end) != &buffer[..count] {
                        self.outcome.failure = Some(format!("wrong bytes before {end}"));
                    }
                    self.outcome.bytes = end;
                }
                Ok(ReadOutcome::Finished) => {
                    self.outcome.completed = Some(now);
                    return;
                }
                Ok(ReadOutcome::Blocked | ReadOutcome::Reset(_)) | Err(_) => return,
            }
        }
    }
}

impl Agent for BulkReceiver {
    fn on_datagram(&mut self, now: Time, datagram: Datagram<'_>) {
        if self.end.connection.is_none()
            && let Err(reason) = self.end.accept(now, datagram.payload)
        {
            self.outcome.failure = Some(reason);
        }
        self.end.on_datagram(now, datagram);
        self.work(now);
    }

    fn on_timer(&mut self, now: Time) {
        self.end.on_timer(now);
        self.work(now);
    }

    fn poll_transmit(&mut self, now: Time, buffer: &mut [u8]) -> Option<Transmit> {
        self.end.poll_transmit(now, buffer)
    }

    fn next_timer(&mut self) -> Option<Time> {
        self.end.next_timer()
    }

    fn status(&self) -> Status {
        let over = self.outcome.completed.is_some() || self.outcome.failure.is_some();
        if over { Status::Finished } else { Status::Working }
    }

    fn goodput(&self) -> u64 {
        self.outcome.bytes
    }
}

/// What a stream has from one offset up to another, but no more than a chunk of it.
fn content(from: u64, to: u64) -> &'static [u8] {
    static BYTES: [u8; CHUNK + PERIOD] = {
        let mut bytes = [0; CHUNK + PERIOD];
        let mut index = 0;
        while index < bytes.len() {
            bytes[index] = (index % PERIOD) as u8;
            index += 1;
        }
        bytes
    };
    let begin = (from % PERIOD as u64) as usize;
    let count = (to - from).min(CHUNK as u64) as usize;
    &BYTES[begin..begin + count]
}
