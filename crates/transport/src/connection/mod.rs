//! A connection (RFC 9000), sans I/O.
//!
//! ```text
//! handle_datagram(now, arrival, &mut bytes)   when a datagram arrives
//! handle_timeout(now)                         at the time that poll_timeout returned
//! poll_event()                                until it returns None
//! poll_transmit(now, &mut buffer)             until it returns None; writes a datagram to send
//! poll_timeout()                              time of the next handle_timeout
//! ```
//!
//! The application may call methods at any time. After each call, poll again.
//!
//! * `config.rs`: configuration; `handshake/`: TLS, keys, transport parameters;
//! * `start.rs`: start of TLS; `retry.rs`: Retry and tokens; `version.rs`, `hello.rs`: choice of
//!   the version; `early.rs`, `tickets.rs`: 0-RTT; `waiting.rs`: packets that arrive before their
//!   keys;
//! * `receive.rs`: from datagrams to packets, with a fast path for most of them
//!   (`receive_plain.rs`); `open.rs`: removal of packet protection; `payload.rs`: from payloads to
//!   frames; `frames.rs`: processing of each frame; `acks.rs`: ACK frames and loss;
//! * `pending.rs`: content that waits to be sent;
//! * `send.rs`: the next datagram and its path, with an early exit for datagrams with only stream
//!   data (`send_plain.rs`); `budget.rs`: limits on a datagram; `send_packet.rs`: from number to
//!   record of a packet; `packet_builder.rs`: building of a packet; `write.rs`: frames;
//!   `send_batch.rs`: several datagrams at once;
//! * `datagrams.rs`: RFC 9221; `ack_frequency.rs`: frequency of acknowledgements;
//! * `identity.rs`: the peer's identity; `peer.rs`: its transport parameters; `figures.rs`:
//!   statistics of a path;
//! * `driver.rs`: calls of event loops; `held.rs`: whether an event loop holds the connection back;
//! * `memory.rs`: memory used because of the peer;
//! * `timers.rs`: timers; `pto.rs`: the probe timeout; `close.rs`: closing;
//! * `ids.rs`: connection IDs, and changes that an endpoint must learn;
//! * `log.rs`: events of the log;
//! * `keys.rs`: key updates and limits of keys;
//! * `operate.rs`: calls of operations and their hooks; `view.rs`: fields that hooks read;
//! * `requests.rs`: requests of hooks that are carried out between calls;
//! * `bounds.rs`: limits on the answers of hooks;
//! * `multipath/`: several paths at a time; `migration.rs`: other addresses; `null.rs`: simulations
//!   without packet protection;
//! * `space.rs`, `path.rs`: state of a packet number space and of a path; `paths.rs`: all paths.

mod ack_frequency;
mod acknowledgements;
mod acks;
mod activity;
mod backoff;
mod bounds;
mod budget;
mod close;
mod config;
mod connection_ids;
mod datagrams;
pub mod driver;
mod early;
mod figures;
mod frames;
mod handshake;
mod held;
mod hello;
mod identity;
mod ids;
mod keys;
#[cfg(feature = "qlog")]
mod log;
mod memory;
mod messages;
mod migration;
mod multipath;
#[cfg(feature = "null-crypto")]
mod null;
mod open;
mod operate;
mod outbox;
mod own_parameters;
mod packet_builder;
pub(crate) mod packet_keys;
mod packet_numbers;
mod path;
mod paths;
mod payload;
mod peer;
mod pending;
mod presence;
mod pto;
mod receive;
mod receive_plain;
mod requests;
mod retry;
mod send;
mod send_batch;
mod send_packet;
mod send_plain;
pub(crate) mod space;
mod start;
#[cfg(test)]
mod tests;
mod tickets;
mod timers;
mod validate;
mod version;
mod view;
mod waiting;
mod write;

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use equic_wire::params::PreferredAddress;
use equic_wire::{
    ConnectionId, Direction, KnownVersion, PathId, Side, StreamId, TransportErrorCode,
};

use crate::Timestamp;
use crate::crypto::Forgeries;
use crate::lazy::{Coins, LazyBox, LazyRng};
use crate::operation::{Extensions, HookError, HookId, Hooks, Operation};
use crate::received::EcnCodepoint;
use crate::stream::{StreamEvent, Streams};
use crate::violation::Failure;

use acknowledgements::Acknowledgements;
use activity::Activity;
pub use close::{CloseReason, ConnectionError};
pub use config::{ClientConfig, PreferredAddresses, ServerConfig, TransportConfig};
use connection_ids::ConnectionIds;
pub use datagrams::DatagramError;
use figures::Counters;
pub use figures::PathStats;
use handshake::Handshake;
pub use handshake::StartError;
pub(crate) use handshake::{initial_suite, tls_version};
pub use identity::{ExportError, HandshakeData};
pub(crate) use ids::FirstPacket;
pub use messages::TellError;
pub use migration::MigrateError;
use multipath::Multipath;
pub use multipath::{ClosePathError, OpenPathError, Overruled, PathInfo, PathStatus, Scheduler};
#[cfg(feature = "null-crypto")]
pub use null::InsecureNullConfig;
use packet_keys::PacketKeys;
use path::Path;
use paths::{PathKey, Paths};
use peer::Peer;
use space::{Space, SpaceId, Spaces};
pub(crate) use start::{Serve, Start};
pub use validate::SettingError;
pub(crate) use validate::{MAX_TIME, number, time};
pub(crate) use view::View;

/// Event of a connection, for the application.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The handshake is complete: the peer is authenticated.
    Connected,
    /// The handshake is confirmed: the peer has completed it, and the handshake keys are discarded
    /// (RFC 9001 s.4.1.2).
    Confirmed,
    /// An event of the streams.
    Stream(StreamEvent),
    /// On a client, the server has accepted early data. On a server, data that is read may be early
    /// data ([`Connection::is_early`]).
    EarlyDataAccepted,
    /// The server has rejected early data. All streams are gone, and their numbering restarts. The
    /// application must write its data again (RFC 9001 s.4.6.2).
    EarlyDataRejected,
    /// A token for the next connection to this server ([`Connection::set_token`]). The server may
    /// recognize the client by it. Use each token once.
    NewToken(Vec<u8>),
    /// Datagrams can be read ([`Connection::read_datagram`]). Read until `None` is returned: only
    /// then is the event reported again.
    DatagramsReadable,
    /// There is room for datagrams again, after [`DatagramError::Full`].
    DatagramsWritable,
    /// The connection is closed.
    Closed(CloseReason),
    /// The peer's address on the active path has changed to this address. A single packet from
    /// there is enough, so the address may be forged: see [`Connection::validated_address`].
    Moved(SocketAddr),
    /// The peer has validated a path from this address. It becomes
    /// [`Connection::validated_address`] if it belongs to the active path.
    PathValidated(SocketAddr),
    /// The peer has answered on another path, which can now carry data (RFC 10069).
    PathOpened(PathId),
    /// A path was closed with this error code, by either end or because the peer did not answer on
    /// it.
    PathClosed(PathId, TransportErrorCode),
    /// A hook has failed and was detached.
    HookFailed(HookId, HookError),
    /// The connection does not follow a hook's choice of a path, for this reason. The event is
    /// reported once for each operation and reason. [`Stats`] counts all cases.
    ChoiceOverruled(Operation, Overruled),
    /// A hook has sent a message to the application. The hook defines the format.
    HookMessage(HookId, Vec<u8>),
}

/// Addresses and ECN mark of a received datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DatagramMeta {
    /// Address that the datagram came from.
    pub remote: SocketAddr,
    /// Our address that the datagram was sent to, if known.
    pub local: Option<IpAddr>,
    /// ECN mark on the datagram.
    pub ecn: EcnCodepoint,
}

/// A datagram to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transmit {
    /// Address to send the datagram to.
    pub destination: SocketAddr,
    /// Our address to send the datagram from. `None` permits any.
    pub source: Option<IpAddr>,
    /// ECN mark to put on the datagram.
    pub ecn: EcnCodepoint,
    /// Length of the datagram in the buffer, in bytes.
    pub size: usize,
}

/// Counters of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Datagrams received.
    pub datagrams_received: u64,
    /// Bytes of UDP payload received.
    pub bytes_received: u64,
    /// Datagrams sent.
    pub datagrams_sent: u64,
    /// Bytes of UDP payload sent.
    pub bytes_sent: u64,
    /// Packets that were decrypted.
    pub packets_received: u64,
    /// Packets whose data was decrypted directly into the memory from which their stream is read,
    /// without a copy ([`PacketKey`](crate::crypto::PacketKey)).
    pub packets_opened_to_streams: u64,
    /// Lost packets whose payload a hook has recovered, for example by FEC.
    pub packets_recovered: u64,
    /// Received packets that were discarded: forged, damaged, duplicate, or without keys.
    pub packets_dropped: u64,
    /// Packets sent.
    pub packets_sent: u64,
    /// Packets declared lost.
    pub packets_lost: u64,
    /// Packets that were declared lost and acknowledged later.
    pub spurious_losses: u64,
    /// Probe timeouts.
    pub probe_timeouts: u64,
    /// ACK frames sent.
    pub acks_sent: u64,
    /// ACK frames received.
    pub acks_received: u64,
    /// Packet numbers that were skipped to detect acknowledgements of packets never sent.
    pub numbers_skipped: u64,
    /// DATA_BLOCKED and STREAM_DATA_BLOCKED frames sent (RFC 9000 s.4.1). Each means that the
    /// peer's flow control blocked data that the path could have carried.
    pub flow_blocked: u64,
    /// DATA_BLOCKED and STREAM_DATA_BLOCKED frames received. Each means that our flow control
    /// blocked the peer, because the application did not read or a window is at its maximum
    /// ([`StreamConfig`](crate::StreamConfig)).
    pub peer_flow_blocked: u64,
    /// Keep-alive PINGs sent.
    pub keep_alives: u64,
    /// Path choices of hooks that were rejected, because the path did not exist or was unusable.
    pub path_choices_refused: u64,
    /// Datagrams sent on a path because a hook had left it out for too long.
    pub paths_starved: u64,
    /// DATAGRAM frames sent.
    pub datagram_frames_sent: u64,
    /// DATAGRAM frames that were sent and declared lost, or dropped because they no longer fit the
    /// path.
    pub datagram_frames_lost: u64,
    /// DATAGRAM frames received.
    pub datagram_frames_received: u64,
    /// DATAGRAM frames received and dropped, because the application did not read them in time or a
    /// hook refused them.
    pub datagram_frames_dropped: u64,
    /// Present statistics of the active path. If there are several, statistics of one of them.
    pub path: PathStats,
}

/// One end of a connection.
pub struct Connection {
    side: Side,
    config: Arc<TransportConfig>,
    version: KnownVersion,
    start: Box<Start>,
    early: early::Early,
    waiting: waiting::UndecryptedPackets,
    /// Frames that wait to be sent, such as NEW_TOKEN.
    outbox: outbox::Outbox,
    /// Number of packets received in earlier attempts with other versions.
    packets_before: u64,
    /// Latest time that was passed to a call.
    pub(crate) now: Timestamp,
    hooks: Hooks,
    #[cfg(feature = "qlog")]
    qlog: Option<Box<log::Log>>,
    /// State of hooks, including frames that they want to send.
    pub(crate) extensions: LazyBox<Extensions>,
    rng: LazyRng,
    coins: Coins,
    handshake: Handshake,
    spaces: Spaces,
    keys: PacketKeys,
    /// Number of packets that could not be decrypted.
    forgeries: Forgeries,
    streams: Streams,
    paths: Paths,
    /// State of multipath. `None` if either end does not support it.
    multipath: Option<Box<Multipath>>,
    /// The server's preferred address. A client keeps it until it has tried the address.
    preferred_address: Option<Box<PreferredAddress>>,
    /// The path to or from the preferred address. It becomes the active path when it is validated.
    preferred: Option<PathKey>,
    ids: ConnectionIds,
    /// The peer's transport parameters. `None` until they arrive.
    peer: Option<Peer>,
    closing: close::Closing,
    /// Acknowledgement frequency of both ends.
    acks: Acknowledgements,
    datagrams: datagrams::Datagrams,
    held: held::Held,
    /// Time at which timers last ran.
    timers_ran: Option<Timestamp>,
    /// Times of the last packets. The idle timeout uses them.
    activity: Activity,
    events: VecDeque<Event>,
    stats: Counters,
}

impl Connection {
    /// Returns the oldest event that was not returned yet, or `None`.
    pub fn poll_event(&mut self) -> Option<Event> {
        let event = self.events.pop_front().or_else(|| self.hook_message());
        event.or_else(|| self.streams.poll_event().map(Event::Stream))
    }

    /// Returns whether this end is the client or the server.
    pub fn side(&self) -> Side {
        self.side
    }

    /// Returns the Destination Connection ID of the client's first packet. Both ends know it, and
    /// logs identify the connection by it.
    pub fn original_dcid(&self) -> ConnectionId {
        self.ids.original_dcid()
    }

    /// Returns the peer's address on the active path. With several paths, see
    /// [`Connection::paths`].
    pub fn remote_address(&self) -> SocketAddr {
        self.path().remote()
    }

    /// Returns the last address at which the peer proved that it receives packets: by a token, by
    /// its handshake or by a PATH_RESPONSE (RFC 9000 s.8). Returns `None` before the first proof.
    ///
    /// It differs from [`Connection::remote_address`] while the validation of a new path runs. An
    /// attacker can spoof a source address. Code that counts connections by address must therefore
    /// use this address. It can change with every [`Event::PathValidated`], [`Event::Moved`] and
    /// [`Event::PathClosed`].
    pub fn validated_address(&self) -> Option<SocketAddr> {
        self.paths.last_validated().map(Path::remote)
    }

    /// Returns the smoothed round-trip time of the active path.
    pub fn rtt(&self) -> Duration {
        self.path().rtt().smoothed()
    }

    /// Returns the largest UDP payload that the active path is known to support, in bytes (RFC 9000
    /// s.14.3).
    pub fn current_mtu(&self) -> u16 {
        self.path().mtu()
    }

    /// Returns true if the handshake is complete.
    pub fn is_connected(&self) -> bool {
        self.handshake.is_complete()
    }

    /// Returns true if the connection is closed, the draining period is over, and it can be
    /// dropped.
    pub fn is_drained(&self) -> bool {
        self.closing.is_drained()
    }

    /// Returns the application protocol (ALPN), or `None` if TLS has not negotiated one.
    pub fn alpn(&self) -> Option<&[u8]> {
        self.handshake.tls().alpn()
    }

    /// Returns our connection IDs. Packets to this connection may carry any of them.
    pub fn local_ids(&self) -> impl Iterator<Item = ConnectionId> + '_ {
        self.ids.all_local()
    }

    /// Opens a stream. Returns `None` if the connection is closed, or if the peer's limit is
    /// reached; [`StreamEvent::Available`] reports when the limit rises.
    pub fn open(&mut self, direction: Direction) -> Option<StreamId> {
        if self.closing.is_closed() {
            return None;
        }
        let input = u64::from(direction == Direction::Unidirectional);
        let allowed = self.decide(Operation::OpenStream, input, true);
        let id = if allowed { self.streams.open(direction) } else { None };
        if id.is_none() && self.handshake.is_complete() {
            self.streams.want_streams(direction);
        }
        id
    }

    /// Returns the next stream that the peer opened, or `None`.
    pub fn accept(&mut self, direction: Direction) -> Option<StreamId> {
        self.streams.accept(direction)
    }

    /// Returns the streams of the connection. Its methods read, write, reset and stop streams.
    pub fn streams(&mut self) -> &mut Streams {
        &mut self.streams
    }

    /// Sends a PING, which the peer must acknowledge.
    pub fn ping(&mut self) {
        self.activity.ping();
    }

    /// See [`Spaces::get_mut`].
    #[inline(always)]
    fn space(&mut self, id: SpaceId) -> Option<&mut Space> {
        self.spaces.get_mut(id)
    }

    fn path(&self) -> &Path {
        self.paths.active()
    }

    fn path_mut(&mut self) -> &mut Path {
        self.paths.active_mut()
    }

    /// Returns the current path of a packet number space's path ID. Initial and Handshake packets
    /// use the active path.
    fn path_of(&self, id: SpaceId) -> &Path {
        match id {
            SpaceId::Data(id) => self.paths.current(id).unwrap_or_else(|| self.path()),
            SpaceId::Initial | SpaceId::Handshake => self.path(),
        }
    }

    fn path_of_mut(&mut self, id: SpaceId) -> &mut Path {
        let key = self.path_of(id).key();
        &mut self.paths[key]
    }

    /// Returns the packet number space of application data on the active path.
    fn active_space(&self) -> SpaceId {
        SpaceId::Data(self.path().id())
    }

    fn fail(&mut self, now: Timestamp, why: impl Into<Failure>) {
        self.close_with(now, why.into().into());
    }
}
