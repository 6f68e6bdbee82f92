//! One end of a QUIC connection without an application, and the packet protection of both ends.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use equic_transport::null::InsecureNullConfig;
use equic_transport::qlog::ReferenceTime;
use equic_transport::{
    Connection, ConnectionId, DatagramMeta, EcnCodepoint, StartError, Stats, Timestamp,
};
use equic_wire::packet::LongInvariant;

use super::hooks::{Additions, Listeners};
use super::paths::Paths;
#[cfg(feature = "tls")]
use super::tls;
use super::{FileHeader, PathState};
use crate::agent::{Datagram, Transmit};
use crate::packet::{Address, Ecn, FlowId};
use crate::time::Time;
use crate::transfer::SenderState;

/// Converts an address of the simulation into an IPv4 address in 10.0.0.0/8 that contains the
/// interface and the node. Nodes have numbers of 20 bits ([`crate::MAX_NODES`]), so four bits are
/// left for the interface.
pub(super) fn socket_address(address: Address, interface: u16) -> SocketAddr {
    let [_, a, b, c] = address.node.0.to_be_bytes();
    let a = a | (interface as u8 & 0xf) << 4;
    SocketAddr::from((Ipv4Addr::new(10, a, b, c), address.port))
}

/// Returns the interface that an address from [`socket_address`] contains.
fn interface_of(address: SocketAddr) -> u16 {
    match address {
        SocketAddr::V4(address) => u16::from(address.ip().octets()[1] >> 4),
        SocketAddr::V6(_) => 0,
    }
}

pub(super) fn timestamp(time: Time) -> Timestamp {
    Timestamp::from_nanos(time.as_nanos())
}

/// The configuration of one end.
#[derive(Clone)]
pub(super) enum Config {
    /// No packet protection.
    Null(InsecureNullConfig),
    /// TLS 1.3.
    #[cfg(feature = "tls")]
    Tls(tls::Config),
}

impl Config {
    pub(super) fn connect(
        &self,
        now: Timestamp,
        remote: SocketAddr,
        seed: [u8; 32],
    ) -> Result<Connection, StartError> {
        match self {
            Config::Null(config) => Connection::connect_insecure_null(now, config, remote, seed),
            #[cfg(feature = "tls")]
            Config::Tls(config) => config.connect(now, remote, seed),
        }
    }

    /// Creates a server's connection from a client's first datagram. Returns `None` if the datagram
    /// does not start a connection.
    pub(super) fn accept(
        &self,
        now: Timestamp,
        first: &[u8],
        remote: SocketAddr,
        seed: [u8; 32],
    ) -> Option<Result<Connection, StartError>> {
        let header = LongInvariant::parse(first).ok()?;
        let original = ConnectionId::new(header.dcid).ok()?;
        let client = ConnectionId::new(header.scid).ok()?;
        match self {
            Config::Null(config) => {
                Some(Connection::accept_insecure_null(now, config, original, client, remote, seed))
            }
            #[cfg(feature = "tls")]
            Config::Tls(config) => {
                let version = header.version.known()?;
                Some(config.accept(now, version, (original, client), remote, seed))
            }
        }
    }

    /// Creates the generator of random numbers for the handshake of this end, from its seed.
    #[cfg_attr(
        not(feature = "tls"),
        expect(unused_variables, reason = "only TLS draws random numbers")
    )]
    pub(super) fn random(&self, seed: [u8; 32]) -> Random {
        match self {
            Config::Null(_) => Random::None,
            #[cfg(feature = "tls")]
            Config::Tls(_) => Random::Tls(tls::Random::new(seed)),
        }
    }
}

/// The source of the random numbers that TLS draws at one end.
pub(super) enum Random {
    /// No generator. Without protection, all random values come from the connection's seed.
    None,
    /// Random numbers that come from the seed of the run.
    #[cfg(feature = "tls")]
    Tls(tls::Random),
}

impl Random {
    /// Runs `work` while this generator is installed for the current thread.
    pub(super) fn with<T>(&mut self, work: impl FnOnce() -> T) -> T {
        match self {
            Random::None => work(),
            #[cfg(feature = "tls")]
            Random::Tls(random) => random.with(work),
        }
    }
}

/// One end of a connection, without an application.
pub(super) struct QuicEnd {
    config: Config,
    pub(super) connection: Option<Box<Connection>>,
    random: Random,
    additions: Additions,
    seed: [u8; 32],
    own: Address,
    peer: Address,
    pub(super) flow: FlowId,
    listeners: Listeners,
    /// Largest number of bytes in flight that the flow-control window can permit.
    window: u64,
    /// True if the application has more data to send than the connection has room for.
    pub(super) waits: bool,
    /// Total time in which the flow-control window held back data.
    window_limited: Duration,
    /// True if the flow-control window was already checked since the last packet was sent.
    looked: bool,
    /// Start of the current pause in sending, if the flow-control window may have caused it, and
    /// the longest pause that pacing can explain.
    held_since: Option<(Time, Duration)>,
}

/// If the congestion window permits more than this number of further bytes, it is not what limits
/// the sender. The value is two packets of 1,500 bytes.
const ROOM: u64 = 3_000;

/// Number of bytes that pacing may send in one burst: 16 packets of 1,500 bytes. The pause after a
/// burst is as long as these bytes take at the pacing rate.
const BURST: f64 = 24_000.0;

impl QuicEnd {
    pub(super) fn new(
        config: Config,
        (own, peer): (Address, Address),
        flow: FlowId,
        seed: [u8; 32],
        additions: Additions,
        paths: Option<Paths>,
        window: u64,
    ) -> QuicEnd {
        QuicEnd {
            random: config.random(seed),
            config,
            connection: None,
            additions,
            seed,
            own,
            peer,
            flow,
            listeners: Listeners { paths, failed_hook: None },
            window,
            waits: false,
            window_limited: Duration::ZERO,
            looked: false,
            held_since: None,
        }
    }

    fn begin(&mut self, mut connection: Connection) -> Result<(), String> {
        if let Some(logs) = &self.additions.logs {
            let header = FileHeader {
                title: None,
                vantage_name: Some("equic-sim".to_owned()),
                vantage: connection.side(),
                odcid: connection.original_dcid(),
                reference_time: ReferenceTime::Monotonic {
                    zero: Timestamp::START,
                    wall_clock: None,
                },
            };
            logs.begin(&mut connection, &header);
        }
        if let Some(hooks) = &self.additions.hooks {
            hooks.attach(&mut connection)?;
        }
        self.connection = Some(Box::new(connection));
        Ok(())
    }

    /// Begins a client's handshake.
    pub(super) fn connect(&mut self, now: Time) -> Result<(), String> {
        let remote = socket_address(self.peer, 0);
        let QuicEnd { config, random, seed, .. } = self;
        let made = random.with(|| config.connect(timestamp(now), remote, *seed));
        self.begin(made.map_err(|error| error.to_string())?)
    }

    /// Creates the server's connection if the datagram is a client's first one.
    pub(super) fn accept(&mut self, now: Time, first: &[u8]) -> Result<(), String> {
        let remote = socket_address(self.peer, 0);
        let QuicEnd { config, random, seed, .. } = self;
        match random.with(|| config.accept(timestamp(now), first, remote, *seed)) {
            None => Ok(()),
            Some(made) => self.begin(made.map_err(|error| error.to_string())?),
        }
    }

    pub(super) fn on_datagram(&mut self, now: Time, datagram: Datagram<'_>) {
        let Some(connection) = &mut self.connection else { return };
        // The two ends of a path have the same interface number.
        let interface = self.listeners.paths.as_ref().map_or(0, |_| datagram.interface);
        let remote = socket_address(self.peer, interface);
        let local = Some(socket_address(self.own, interface).ip());
        let ecn = match datagram.ecn {
            Ecn::NotEct => EcnCodepoint::NotEct,
            Ecn::Ect1 => EcnCodepoint::Ect1,
            Ecn::Ect0 => EcnCodepoint::Ect0,
            Ecn::Ce => EcnCodepoint::Ce,
        };
        let arrival = DatagramMeta { remote, local, ecn };
        let now = timestamp(now);
        self.random.with(|| connection.handle_datagram(now, arrival, datagram.payload));
        self.open_paths(now);
    }

    /// Opens all missing paths that the connection permits now.
    fn open_paths(&mut self, now: Timestamp) {
        let (Some(paths), Some(connection)) = (&mut self.listeners.paths, &mut self.connection)
        else {
            return;
        };
        let (own, peer) = (self.own, self.peer);
        paths.open(|interface| {
            let local = socket_address(own, interface).ip();
            connection.open_path(now, Some(local), socket_address(peer, interface)).ok()
        });
    }

    /// Returns the connection and the listeners for its events.
    pub(super) fn parts(&mut self) -> Option<(&mut Connection, &mut Listeners)> {
        Some((&mut **self.connection.as_mut()?, &mut self.listeners))
    }

    /// Returns the reason why a hook was detached, or `None` if all hooks are attached.
    pub(super) fn failed_hook(&self) -> Option<&str> {
        self.listeners.failed_hook.as_deref()
    }

    /// Returns the state of each open path. The list is empty without multipath.
    pub(super) fn paths(&self) -> Vec<PathState> {
        let (Some(_), Some(connection)) = (&self.listeners.paths, &self.connection) else {
            return Vec::new();
        };
        connection.paths().map(|path| PathState::of(&path, interface_of(path.remote))).collect()
    }

    pub(super) fn on_timer(&mut self, now: Time) {
        if let Some(connection) = &mut self.connection {
            self.random.with(|| connection.handle_timeout(timestamp(now)));
        }
        self.open_paths(timestamp(now));
    }

    pub(super) fn poll_transmit(&mut self, now: Time, buffer: &mut [u8]) -> Option<Transmit> {
        let connection = self.connection.as_mut()?;
        let sent = self.random.with(|| connection.poll_transmit(timestamp(now), buffer));
        let Some(sent) = sent else {
            self.look_at_window(now);
            return None;
        };
        self.count_window_limited(now);
        let ecn = match sent.ecn {
            EcnCodepoint::NotEct => Ecn::NotEct,
            EcnCodepoint::Ect1 => Ecn::Ect1,
            EcnCodepoint::Ect0 => Ecn::Ect0,
            EcnCodepoint::Ce => Ecn::Ce,
        };
        let interface = self.listeners.paths.as_ref().map(|_| interface_of(sent.destination));
        Some(Transmit { ecn, interface, ..Transmit::udp(self.peer, self.flow, sent.size) })
    }

    /// Checks whether flow control, and not congestion control, limits the sender. It is called
    /// when nothing more can be sent.
    ///
    /// The peer raises its flow-control limits in steps of up to half the flow-control window. So
    /// flow control can be the limit as soon as the congestion window is about half as large as the
    /// flow-control window.
    fn look_at_window(&mut self, now: Time) {
        if std::mem::replace(&mut self.looked, true) || !self.waits {
            return;
        }
        let Some(connection) = &self.connection else { return };
        let path = connection.stats().path;
        let room = path.congestion_window.saturating_sub(path.bytes_in_flight);
        if path.congestion_window >= self.window / 16 * 7 && room > ROOM {
            let pause = BURST / (path.pacing_rate as f64).max(1.0);
            self.held_since = Some((now, Duration::from_secs_f64(pause.min(1e6))));
        }
    }

    /// If the flow-control window caused the pause before this packet, adds the pause to the total.
    /// It is called when a packet is sent.
    fn count_window_limited(&mut self, now: Time) {
        self.looked = false;
        if let Some((since, pause)) = self.held_since.take() {
            let held = now.since(since);
            if held > pause {
                self.window_limited += held;
            }
        }
    }

    pub(super) fn state(&self) -> SenderState {
        SenderState { window_limited: self.window_limited, ..self.stats().into() }
    }

    pub(super) fn next_timer(&mut self) -> Option<Time> {
        let timeout = self.connection.as_mut()?.poll_timeout()?;
        Some(Time::from_nanos(timeout.as_nanos()))
    }

    pub(super) fn stats(&self) -> Stats {
        self.connection.as_ref().map(|connection| connection.stats()).unwrap_or_default()
    }
}
