//! Runs `equic-transport` as an agent. By default connections have no packet protection
//! (`null-crypto`), but handshakes and packets have the same sizes as with TLS. With the feature
//! `tls`, a connection can use TLS.
//!
//! [`bulk`] creates both ends of a transfer on their nodes, and [`BulkReceiver::outcome`] returns
//! the result. The agents read all received data and write all pending data before they call
//! `poll_transmit`, as its documentation requires. Otherwise the transport would treat the flow as
//! application-limited.

mod channel;
mod end;
mod hooks;
mod paths;
mod resume;
#[cfg(feature = "tls")]
mod tls;

use std::sync::Arc;

use equic_transport::{
    Direction, Event, ReadOutcome, StartError, Stats, StreamEvent, StreamId, VarInt,
};

use crate::agent::{Agent, Datagram, Status, Transmit};
use crate::app::{Application, ends};
use crate::packet::Address;
use crate::payload;
use crate::simulation::Simulation;
use crate::time::Time;
use crate::topology::{NodeId, TopologyError};

use channel::QuicChannel;
use end::{QuicEnd, timestamp};
use hooks::Additions;
use paths::Paths;

pub use crate::app::Party;
pub use crate::transfer::{BulkIds, Outcome, SenderState};
pub use equic_transport::congestion::{Algorithm, ControllerFactory};
pub use equic_transport::qlog::{Event as QlogEvent, FileHeader, JsonSeq, QlogSink};
pub use equic_transport::{Connection, Scheduler, TransportConfig, operation};
pub use hooks::{Hooks, HooksOfEnds};
pub use paths::PathState;

/// Size of the read buffer in bytes. A larger buffer would be slower, because it must be cleared
/// for each read, and most datagrams make only one packet's data readable.
const READ: usize = 4096;

/// A transfer from the client to the server, on one stream.
#[derive(Clone, Debug)]
pub struct Bulk {
    /// Number of bytes to transfer.
    pub bytes: u64,
    /// Time at which the client begins its handshake.
    pub start: Time,
    /// Transport configuration of both ends.
    pub transport: TransportConfig,
    /// Packet protection of the connection.
    pub protection: Protection,
    /// State from an earlier connection that the client uses.
    pub resumption: Resumption,
    /// Logs of both ends. `None`: no logs. Logs do not change the run.
    pub logs: Option<Logs>,
    /// Hooks of both ends. They may be empty.
    pub hooks: HooksOfEnds,
}

/// Packet protection of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protection {
    /// No protection. Handshakes and packets have the same length as with TLS, but no time is spent
    /// on cryptography.
    #[default]
    None,
    /// TLS 1.3 with X25519 and a certificate that is generated in memory. The same seed gives the
    /// same keys, so nothing is secret. Needs the feature `tls`.
    Tls,
}

/// The state that a client has kept from an earlier connection to the same server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Resumption {
    /// The client has no state. The server sends its certificate.
    #[default]
    None,
    /// The client has a session. The server sends no certificate (RFC 8446 s.2.2).
    Session,
    /// The client has a session that permits 0-RTT. It sends data before the handshake is complete
    /// (RFC 9001 s.4.6).
    EarlyData,
}

/// A function that creates the log of each end of a connection. It gets the header of the log file.
#[derive(Clone)]
pub struct Logs(Arc<MakeLog>);

type MakeLog = dyn Fn(&FileHeader) -> Box<dyn QlogSink> + Send + Sync;

impl Logs {
    /// Creates logs from a function that opens a log for the given file header.
    pub fn new(make: impl Fn(&FileHeader) -> Box<dyn QlogSink> + Send + Sync + 'static) -> Logs {
        Logs(Arc::new(make))
    }

    /// Starts the log of a connection. Times in the log count from the start of the run.
    fn begin(&self, connection: &mut Connection, header: &FileHeader) {
        connection.set_qlog((self.0)(header));
    }
}

impl std::fmt::Debug for Logs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Logs")
    }
}

impl Bulk {
    /// Creates a transfer that begins at the start of the run, with the default transport
    /// configuration.
    pub fn new(bytes: u64) -> Bulk {
        Bulk {
            bytes,
            start: Time::START,
            transport: TransportConfig::default(),
            protection: Protection::None,
            resumption: Resumption::None,
            logs: None,
            hooks: HooksOfEnds::default(),
        }
    }

    /// Sets the congestion controller: an [`Algorithm`] or a custom controller.
    #[must_use]
    pub fn congestion(mut self, factory: impl ControllerFactory + 'static) -> Bulk {
        self.transport.congestion = Arc::new(factory);
        self
    }
}

/// The reason why a transfer cannot be set up.
#[derive(Debug)]
#[non_exhaustive]
pub enum QuicError {
    /// There is no route between the ends, or a node has no free port number.
    Topology(TopologyError),
    /// The transport rejects its configuration.
    Start(StartError),
    /// The client got no session for early data from the earlier connection with this
    /// configuration.
    NoSession,
    /// TLS was requested, but the feature `tls` is not enabled.
    NoTls,
    /// TLS could not be set up. The field has the reason.
    Tls(String),
    /// One of the nodes has fewer interfaces than the connection needs for its paths. The field is
    /// the number of interfaces that are needed.
    TooFewInterfaces(u16),
}

impl std::fmt::Display for QuicError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            QuicError::Topology(error) => error.fmt(f),
            QuicError::Start(error) => error.fmt(f),
            QuicError::NoSession => f.write_str(
                "early data is not possible, because the server issued no session ticket",
            ),
            QuicError::NoTls => {
                f.write_str("this program cannot simulate TLS: build it with the feature `tls`")
            }
            QuicError::Tls(reason) => f.write_str(reason),
            QuicError::TooFewInterfaces(paths) => {
                write!(f, "a connection with {paths} paths needs {paths} interfaces at both nodes")
            }
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

/// The client and the server of a connection without applications, in that order, with their
/// addresses and flows.
struct Pair {
    client: QuicEnd,
    server: QuicEnd,
    from: Address,
    to: Address,
}

fn pair(
    run: &mut Simulation,
    (client, server): (NodeId, NodeId),
    transport: &TransportConfig,
    (protection, resumption): (Protection, Resumption),
    (logs, hooks): (Option<&Logs>, &HooksOfEnds),
) -> Result<Pair, QuicError> {
    let (from, to) = (run.address(client)?, run.address(server)?);
    let (there, back) = (run.flow(from, to)?, run.flow(to, from)?);
    // The addresses that the agents use can encode at most 15 interfaces.
    let count = transport.max_paths.clamp(1, 15) as u16;
    let several = count > 1;
    if several && [client, server].iter().any(|node| run.topology().links(*node) < count.into()) {
        return Err(QuicError::TooFewInterfaces(count));
    }
    let [ours, theirs] = resume::configs(transport, protection, resumption)?;
    let (own, seed, paths) = ((from, to), run.agent_seed(from), Paths::of_client(count));
    let of = |hooks: &Option<Hooks>| Additions { logs: logs.cloned(), hooks: hooks.clone() };
    let paths = several.then_some(paths);
    let streams = &transport.streams;
    let window = streams.max_stream_window.min(streams.max_connection_window);
    let client = QuicEnd::new(ours, own, there, seed, of(&hooks.client), paths, window);
    let (own, seed, paths) = ((to, from), run.agent_seed(to), Paths::default());
    let paths = several.then_some(paths);
    let server = QuicEnd::new(theirs, own, back, seed, of(&hooks.server), paths, window);
    Ok(Pair { client, server, from, to })
}

/// Creates both ends of a transfer on their nodes.
///
/// If [`TransportConfig::max_paths`] is above 1, the client opens that many paths (RFC 10069). The
/// first path is between the first interfaces of both nodes, the second between the second
/// interfaces, and so on. Interfaces with the same index must lead to each other, as in
/// [`two_path`](crate::two_path).
///
/// # Errors
/// Returns a [`QuicError`] if the transfer cannot be set up.
pub fn bulk(
    run: &mut Simulation,
    client: NodeId,
    server: NodeId,
    bulk: &Bulk,
) -> Result<BulkIds, QuicError> {
    let Pair { client, server, from, to } = pair(
        run,
        (client, server),
        &bulk.transport,
        (bulk.protection, bulk.resumption),
        (bulk.logs.as_ref(), &bulk.hooks),
    )?;
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

/// Describes a connection that carries an [`Application`].
#[derive(Clone, Debug)]
pub struct Carrier {
    /// Time at which the client begins its handshake.
    pub start: Time,
    /// Transport configuration of both ends.
    pub transport: TransportConfig,
    /// Packet protection of the connection.
    pub protection: Protection,
    /// State from an earlier connection that the client uses.
    pub resumption: Resumption,
    /// Logs of both ends. `None`: no logs. Logs do not change the run.
    pub logs: Option<Logs>,
    /// Hooks of both ends. They may be empty.
    pub hooks: HooksOfEnds,
}

/// Creates both ends of a connection with an application on their nodes. The agents have the type
/// [`Party`].
///
/// # Errors
/// Returns a [`QuicError`] if the connection cannot be set up.
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
    let Pair { client, server, from, to } = pair(
        run,
        (client, server),
        &transport,
        (carrier.protection, carrier.resumption),
        (carrier.logs.as_ref(), &carrier.hooks),
    )?;
    let (up, down) = (client.flow, server.flow);
    let (client, server) =
        (Box::new(QuicChannel::new(client, true)), Box::new(QuicChannel::new(server, false)));
    let ends = ends(application, carrier.start, client, server);
    let (client, server) =
        (run.attach(from, Box::new(ends.client)), run.attach(to, Box::new(ends.server)));
    Ok(BulkIds::of(application, (client, up), (server, down)))
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
    /// Returns the counters of the client's connection.
    pub fn stats(&self) -> Stats {
        self.end.stats()
    }

    /// Returns the state and the counters in the form that all protocols share.
    pub fn state(&self) -> SenderState {
        self.end.state()
    }

    /// Returns the state of each path at this end. The list is empty without multipath.
    pub fn paths(&self) -> Vec<PathState> {
        self.end.paths()
    }

    /// Returns the reason why a hook of the client was detached, or `None` if all hooks are
    /// attached.
    pub fn failed_hook(&self) -> Option<&str> {
        self.end.failed_hook()
    }

    /// Returns the reason why the connection failed, or `None` if it did not fail. The server may
    /// not have noticed the failure.
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// Handles the connection's events, and writes as much data as the connection accepts.
    fn work(&mut self, now: Time) {
        let Some((connection, listeners)) = self.end.parts() else { return };
        let mut done = false;
        while let Some(event) = connection.poll_event() {
            listeners.on_event(&event);
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
            let chunk = payload::between(self.written, self.bytes);
            match connection.streams().write(stream, chunk) {
                Ok(count) if count > 0 => self.written += count as u64,
                // The connection has no room now, or is closed. The receiver reports a closed
                // connection.
                Ok(_) | Err(_) => break,
            }
            if self.written == self.bytes {
                // Cannot fail, because the stream was written to just now.
                let _ = connection.streams().finish(stream);
            }
        }
        self.end.waits = self.written < self.bytes;
    }
}

impl Agent for BulkSender {
    fn on_datagram(&mut self, now: Time, datagram: Datagram<'_>) {
        self.end.on_datagram(now, datagram);
        self.work(now);
    }

    fn on_timer(&mut self, now: Time) {
        if self.end.connection.is_none()
            && self.failure.is_none()
            && now >= self.start
            && let Err(reason) = self.end.connect(now)
        {
            self.failure = Some(reason);
        }
        self.end.on_timer(now);
        self.work(now);
    }

    fn poll_transmit(&mut self, now: Time, buffer: &mut [u8]) -> Option<Transmit> {
        self.end.poll_transmit(now, buffer)
    }

    fn next_timer(&mut self) -> Option<Time> {
        if self.end.connection.is_none() {
            return self.failure.is_none().then_some(self.start);
        }
        self.end.next_timer()
    }
}

/// The server of a [`bulk`] transfer. It accepts one connection.
pub struct BulkReceiver {
    end: QuicEnd,
    stream: Option<StreamId>,
    outcome: Outcome,
}

impl BulkReceiver {
    /// Returns the result of the transfer so far.
    pub fn outcome(&self) -> &Outcome {
        &self.outcome
    }

    /// Returns the counters of the server's connection.
    pub fn stats(&self) -> Stats {
        self.end.stats()
    }

    /// Returns the reason why a hook of the server was detached, or `None` if all hooks are
    /// attached.
    pub fn failed_hook(&self) -> Option<&str> {
        self.end.failed_hook()
    }

    fn work(&mut self, now: Time) {
        let Some((connection, listeners)) = self.end.parts() else { return };
        while let Some(event) = connection.poll_event() {
            listeners.on_event(&event);
            if let Event::Closed(reason) = event
                && self.outcome.completed.is_none()
            {
                self.outcome.failure = Some(reason.to_string());
            }
        }
        self.stream = self.stream.or_else(|| connection.accept(Direction::Unidirectional));
        let Some(stream) = self.stream.filter(|_| self.outcome.completed.is_none()) else { return };
        let mut buffer = [0; READ];
        loop {
            match connection.streams().read(stream, &mut buffer) {
                Ok(ReadOutcome::Bytes(count)) => {
                    let end = self.outcome.bytes + count as u64;
                    if payload::between(self.outcome.bytes, end) != &buffer[..count] {
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
