//! Runs TCP on the nodes of a simulation. It uses `equic-tcp`, which models the TCP of today's
//! Linux, with the congestion controllers of QUIC.
//!
//! [`bulk`] creates both ends of a transfer on their nodes, and [`TcpBulkReceiver::outcome`]
//! returns the result. A segment delivers its header, but its payload has only a length and no
//! content. The size on the wire includes the header with its options.

mod channel;

use equic_tcp::{CloseReason, Connection, Event, Flags, MAX_HEADER, Segment, Session, Timestamp};

use crate::agent::{Agent, Datagram, Status, Transmit};
use crate::app::{Application, ends};
use crate::link::DEFAULT_MTU;
use crate::packet::{Address, Ecn, FlowId, Protocol};
use crate::simulation::Simulation;
use crate::time::Time;
use crate::topology::{NodeId, TopologyError};
use crate::transfer::TimeOf;

use channel::{Frames, TcpChannel};

pub use crate::app::Party;
pub use crate::transfer::{BulkIds, Outcome, SenderState};
pub use equic_tcp::{
    Algorithm, Classic, Stats, TcpConfig, TcpControllerFactory, TlsConfig, TlsVersion,
};

/// Length of a TCP header without options, in bytes.
const TCP_HEADER: u32 = 20;

/// A transfer from the client to the server, on one connection.
#[derive(Clone, Debug)]
pub struct TcpBulk {
    /// Number of bytes to transfer.
    pub bytes: u64,
    /// Time at which the client begins its handshake.
    pub start: Time,
    /// Configuration of both ends. In an IPv6 network, the MSS is reduced by 20 bytes if segments
    /// would otherwise exceed an MTU of 1,500 bytes.
    pub config: TcpConfig,
    /// TLS above the connection, or `None` for plain TCP.
    pub tls: Option<TlsConfig>,
}

impl TcpBulk {
    /// Creates a transfer that begins at the start of the run, with the default configuration.
    pub fn new(bytes: u64) -> TcpBulk {
        TcpBulk { bytes, start: Time::START, config: TcpConfig::default(), tls: None }
    }

    /// Sets the congestion controller: an [`Algorithm`] or a custom controller.
    #[must_use]
    pub fn congestion(mut self, factory: impl TcpControllerFactory + 'static) -> TcpBulk {
        self.config = self.config.congestion(factory);
        self
    }

    /// Adds TLS to the connection.
    #[must_use]
    pub fn tls(self, tls: TlsConfig) -> TcpBulk {
        TcpBulk { tls: Some(tls), ..self }
    }
}

/// Both ends of a TCP connection without applications, with their addresses.
struct Pair {
    client: TcpEnd,
    server: TcpEnd,
    from: Address,
    to: Address,
}

fn pair(
    run: &mut Simulation,
    client: NodeId,
    server: NodeId,
    config: &TcpConfig,
) -> Result<Pair, TopologyError> {
    let (from, to) = (run.address(client)?, run.address(server)?);
    let (there, back) = (run.flow(from, to)?, run.flow(to, from)?);
    let mut config = config.clone();
    let default_mss = |ip: u32| (DEFAULT_MTU - ip - TCP_HEADER) as u16;
    let ip = run.topology().ip.header();
    if config.mss == default_mss(20) {
        config.mss = default_mss(ip);
    }
    let end = |own: Address, peer: Address, flow, seed| TcpEnd {
        config: config.clone(),
        connection: None,
        seed,
        ports: (own.port, peer.port),
        peer,
        flow,
        window_limited: TimeOf::default(),
    };
    let client = end(from, to, there, run.agent_seed(from));
    let server = end(to, from, back, run.agent_seed(to));
    Ok(Pair { client, server, from, to })
}

/// Creates both ends of a transfer on their nodes.
///
/// # Errors
/// Fails if there is no route between the ends, or if a node has no free port number.
pub fn bulk(
    run: &mut Simulation,
    client: NodeId,
    server: NodeId,
    bulk: &TcpBulk,
) -> Result<BulkIds, TopologyError> {
    let Pair { client, server, from, to } = pair(run, client, server, &bulk.config)?;
    let (there, back) = (client.flow, server.flow);
    let sender = TcpBulkSender {
        end: client,
        start: bulk.start,
        bytes: bulk.bytes,
        tls: bulk.tls.map(Session::client),
        finished: false,
        delivered: false,
        failure: None,
    };
    let receiver = TcpBulkReceiver {
        end: server,
        tls: bulk.tls.map(Session::server),
        outcome: Outcome::default(),
    };
    let (sender, receiver) = (Box::new(sender), Box::new(receiver));
    let (sender, receiver) = (run.attach(from, sender), run.attach(to, receiver));
    Ok(BulkIds { sender, receiver, there, back })
}

/// A connection that carries an [`Application`].
#[derive(Clone, Debug)]
pub struct TcpCarrier {
    /// Time at which the client begins its handshake.
    pub start: Time,
    /// Configuration of both ends, as in [`TcpBulk::config`].
    pub config: TcpConfig,
    /// TLS above the connection, or `None` for plain TCP.
    pub tls: Option<TlsConfig>,
}

/// Creates both ends of a connection with an application on their nodes. The agents have the type
/// [`Party`].
///
/// # Errors
/// The errors of [`bulk`].
pub fn attach(
    run: &mut Simulation,
    client: NodeId,
    server: NodeId,
    application: &Application,
    carrier: &TcpCarrier,
) -> Result<BulkIds, TopologyError> {
    let Pair { client, server, from, to } = pair(run, client, server, &carrier.config)?;
    let (up, down) = (client.flow, server.flow);
    let (one, other) = (Frames::default(), Frames::default());
    let tls = carrier.tls;
    let client = TcpChannel::new(client, true, tls, one.clone(), other.clone());
    let server = TcpChannel::new(server, false, tls, other, one);
    let ends = ends(application, carrier.start, Box::new(client), Box::new(server));
    let (client, server) =
        (run.attach(from, Box::new(ends.client)), run.attach(to, Box::new(ends.server)));
    Ok(BulkIds::of(application, (client, up), (server, down)))
}

fn timestamp(time: Time) -> Timestamp {
    Timestamp::from_nanos(time.as_nanos())
}

/// One end of a TCP connection, without an application.
struct TcpEnd {
    config: TcpConfig,
    connection: Option<Box<Connection>>,
    seed: [u8; 32],
    /// Port numbers of this end and of the peer.
    ports: (u16, u16),
    peer: Address,
    flow: FlowId,
    window_limited: TimeOf,
}

impl TcpEnd {
    fn on_segment(&mut self, now: Time, segment: &Segment, ecn: Ecn) {
        if let Some(connection) = &mut self.connection {
            connection.handle_segment(timestamp(now), segment, ecn == Ecn::Ce);
        }
    }

    fn on_timer(&mut self, now: Time) {
        if let Some(connection) = &mut self.connection {
            connection.handle_timeout(timestamp(now));
        }
    }

    fn poll_transmit(&mut self, now: Time, buffer: &mut [u8]) -> Option<Transmit> {
        // Cannot fail, because the MTU of every link is larger than a header.
        let buffer = buffer.get_mut(..MAX_HEADER)?;
        let connection = self.connection.as_mut()?;
        let Some(mut sent) = connection.poll_transmit(timestamp(now)) else {
            self.window_limited.note(now, connection.is_window_limited());
            return None;
        };
        (sent.segment.source_port, sent.segment.destination_port) = self.ports;
        let size = sent.segment.write(buffer);
        let options = (size - TCP_HEADER as usize) as u8;
        Some(Transmit {
            header_fields: size,
            padding: sent.segment.payload,
            protocol: Protocol::Tcp { options },
            ecn: if sent.ecn_capable { Ecn::Ect0 } else { Ecn::NotEct },
            ..Transmit::udp(self.peer, self.flow, size)
        })
    }

    fn next_timer(&self) -> Option<Time> {
        let timeout = self.connection.as_ref()?.poll_timeout()?;
        Some(Time::from_nanos(timeout.as_nanos()))
    }

    fn stats(&self) -> Stats {
        self.connection.as_ref().map(|connection| connection.stats()).unwrap_or_default()
    }

    fn state(&self) -> SenderState {
        SenderState { window_limited: self.window_limited.total(), ..self.stats().into() }
    }
}

/// Returns a text that says why a connection ended before its transfer was complete.
fn describe(reason: CloseReason, connection: &Connection) -> String {
    match reason {
        CloseReason::TimedOut if connection.stats().segments_received == 0 => {
            "the handshake timed out: no SYN was answered".to_owned()
        }
        CloseReason::TimedOut => "timed out".to_owned(),
        CloseReason::Reset => "the peer reset the connection".to_owned(),
        CloseReason::Finished => "the connection was closed before the transfer ended".to_owned(),
    }
}

fn segment(datagram: &Datagram<'_>) -> Option<Segment> {
    Segment::parse(datagram.payload, datagram.padding).ok()
}

/// Writes all bytes that the TLS session has to send to the connection.
fn write(connection: &mut Connection, session: &mut Session) {
    loop {
        match session.poll_write() {
            0 => return,
            bytes => connection.write(bytes),
        }
    }
}

/// The client of a [`bulk`] transfer.
pub struct TcpBulkSender {
    end: TcpEnd,
    start: Time,
    bytes: u64,
    tls: Option<Session>,
    /// True if all bytes of the transfer were written.
    finished: bool,
    /// True once the peer has acknowledged every byte of the transfer.
    delivered: bool,
    failure: Option<String>,
}

impl TcpBulkSender {
    /// Returns the state and the counters of the client's connection.
    pub fn stats(&self) -> Stats {
        self.end.stats()
    }

    /// Returns the state and the counters in the form that all protocols share.
    pub fn state(&self) -> SenderState {
        self.end.state()
    }

    /// Returns the reason why the connection failed, or `None` if it did not fail. The server may
    /// not have received any segment.
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    fn work(&mut self) {
        let Some(connection) = &mut self.end.connection else { return };
        while let Some(event) = connection.poll_event() {
            match event {
                Event::Acknowledged => self.delivered = true,
                Event::Closed(reason) if !self.delivered => {
                    self.failure = Some(describe(reason, connection));
                }
                _ => {}
            }
        }
        let came = connection.read();
        let Some(session) = self.tls.as_mut().filter(|_| !self.finished) else { return };
        session.on_received(came);
        write(connection, session);
        if session.has_written() {
            self.finished = true;
            connection.finish();
        }
    }
}

impl Agent for TcpBulkSender {
    fn on_datagram(&mut self, now: Time, datagram: Datagram<'_>) {
        if let Some(segment) = segment(&datagram) {
            self.end.on_segment(now, &segment, datagram.ecn);
        }
        self.work();
    }

    fn on_timer(&mut self, now: Time) {
        let end = &mut self.end;
        if end.connection.is_none() && now >= self.start {
            let mut connection = Connection::connect(timestamp(now), &end.config, end.seed);
            match &mut self.tls {
                Some(session) => session.write(self.bytes),
                None => {
                    connection.write(self.bytes);
                    connection.finish();
                }
            }
            end.connection = Some(Box::new(connection));
        }
        self.end.on_timer(now);
        self.work();
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

/// The server of a [`bulk`] transfer. It accepts one connection.
pub struct TcpBulkReceiver {
    end: TcpEnd,
    tls: Option<Session>,
    outcome: Outcome,
}

impl TcpBulkReceiver {
    /// Returns the result of the transfer so far.
    pub fn outcome(&self) -> &Outcome {
        &self.outcome
    }

    /// Returns the state and the counters of the server's connection.
    pub fn stats(&self) -> Stats {
        self.end.stats()
    }

    fn work(&mut self, now: Time) {
        let Some(connection) = &mut self.end.connection else { return };
        let came = connection.read();
        match &mut self.tls {
            None => self.outcome.bytes += came,
            Some(session) => {
                session.on_received(came);
                self.outcome.bytes += session.read(connection.has_finished());
                write(connection, session);
            }
        }
        while let Some(event) = connection.poll_event() {
            match event {
                Event::Finished => {
                    self.outcome.completed = Some(now);
                    connection.finish();
                }
                Event::Closed(reason) if self.outcome.completed.is_none() => {
                    self.outcome.failure = Some(describe(reason, connection));
                }
                _ => {}
            }
        }
    }
}

impl Agent for TcpBulkReceiver {
    fn on_datagram(&mut self, now: Time, datagram: Datagram<'_>) {
        let Some(segment) = segment(&datagram) else { return };
        let end = &mut self.end;
        if end.connection.is_some() {
            end.on_segment(now, &segment, datagram.ecn);
        } else if segment.flags.has(Flags::SYN) {
            let made = Connection::accept(timestamp(now), &end.config, &segment, end.seed);
            end.connection = made.map(Box::new);
        }
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
