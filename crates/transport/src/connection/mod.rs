//! A connection (RFC 9000), sans I/O.
//!
//! ```text
//! handle_datagram(now, arrival, &mut bytes) a datagram came
//! handle_timeout(now)                     poll_timeout's moment has come
//! poll_event()      -> connected, stream readable, ...      until none
//! poll_transmit(now, &mut buffer) -> a datagram to send     until none
//! poll_timeout()    -> when to call handle_timeout
//! ```
//!
//! The application's calls may come at any time; after each, poll again.
//!
//! * `handshake/`: TLS, keys, transport parameters; `config.rs`: what it is told beforehand;
//! * `start.rs`: what TLS begins with; `retry.rs`: Retry and tokens; `version.rs`, `hello.rs`:
//!   which version; `early.rs`, `tickets.rs`: 0-RTT; `waiting.rs`: packets before their keys;
//! * `receive.rs`: from datagrams to packets, with an early exit for most of them
//!   (`receive_plain.rs`); `open.rs`: removal of packet protection; `payload.rs`: from payloads to
//!   frames; `frames.rs`: what each frame does; `acks.rs`: ACK frames and loss;
//! * `pending.rs`: what waits to be sent;
//! * `send.rs`: which packet next, and what goes into it; `packet_builder.rs`: how it is built; `write.rs`: its
//!   frames; `send_plain.rs`: the short way of a datagram of nothing but stream data;
//! * `datagrams.rs`: RFC 9221; `ack_frequency.rs`: when acknowledgements go, and are asked for;
//! * `identity.rs`: what TLS says of the peer; `peer.rs`: its transport parameters; `figures.rs`: what is known of
//!   the path;
//! * `driver.rs`: calls of event loops; `held.rs`: whether an event loop holds the connection back;
//! * `memory.rs`: what the peer has us keep;
//! * `timers.rs`: when to do something unasked; `pto.rs`: the probe timeout; `close.rs`: the end;
//! * `ids.rs`: connection IDs, and what an endpoint has to know of them;
//! * `log.rs`: what is told to a log;
//! * `keys.rs`: key updates and the limits of keys;
//! * `operate.rs`: calls of operations, with the hooks that are attached to them; `view.rs`: what hooks see;
//! * `requests.rs`: what hooks ask for that is done between calls;
//! * `bounds.rs`: how far the answers of hooks hold;
//! * `multipath/`: several paths at a time; `migration.rs`: other addresses; `null.rs`: simulations without protection;
//! * `space.rs`, `path.rs`: what is kept for each packet number space and path; `paths.rs`: all paths.

mod ack_frequency;
mod acknowledgements;
mod acks;
mod activity;
mod backoff;
mod bounds;
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

use bytes::Bytes;
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
    /// The handshake is complete: the peer is who it says, data is as safe as it gets.
    Connected,
    /// The peer knows that, too: keys of the handshake are gone (RFC 9001 s.4.1.2).
    Confirmed,
    /// Something about streams.
    Stream(StreamEvent),
    /// The server takes what was sent before the handshake was complete; or, on a server, there may
    /// be such data ([`Connection::is_early`]).
    EarlyDataAccepted,
    /// The server does not: all streams are gone, and numbers of new ones begin anew. What was
    /// written is for the application to write again (RFC 9001 s.4.6.2).
    EarlyDataRejected,
    /// A token for the next connection to this server ([`Connection::set_token`]), which may know by
    /// it that it is the same client. To be used once.
    NewToken(Vec<u8>),
    /// There are datagrams to read ([`Connection::read_datagram`]): all of them, this is said once until
    /// there are none.
    DatagramsReadable,
    /// After [`DatagramError::Full`]: there is room for datagrams again.
    DatagramsWritable,
    /// The connection is over.
    Closed(CloseReason),
    /// The peer's address on the active path has changed to this address. A single packet from
    /// there is enough, so the address may be forged: see [`Connection::validated_address`].
    Moved(SocketAddr),
    /// The peer has answered from an address. It is the one of [`Connection::validated_address`] if the active path has
    /// it.
    PathValidated(SocketAddr),
    /// Another path can be used (RFC 10069): the peer has answered on it.
    PathOpened(PathId),
    /// A path is closed, by this end or the peer, or because the peer did not answer on it; with the reason given.
    PathClosed(PathId, TransportErrorCode),
    /// A hook has failed and was taken off.
    HookFailed(HookId, HookError),
    /// The connection does not follow a hook's choice of a path, for this reason. The event is
    /// reported once for each operation and reason. [`Stats`] counts all cases.
    ChoiceOverruled(Operation, Overruled),
    /// A hook tells the application something, in words of its own.
    HookMessage(HookId, Vec<u8>),
}

/// Addresses and ECN mark that a datagram came with.
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
    /// Address that the datagram is to be sent to.
    pub destination: SocketAddr,
    /// Our address to send the datagram from; none: any.
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
    /// Packets that were opened.
    pub packets_received: u64,
    /// Number of those packets whose data was decrypted directly into the memory from which their
    /// stream is read, without a copy ([`PacketKey`](crate::crypto::PacketKey)).
    pub packets_opened_to_streams: u64,
    /// Packets that did not come, and whose payload a hook has put together from others.
    pub packets_recovered: u64,
    /// Packets that were not: forged, damaged, duplicate, or without keys.
    pub packets_dropped: u64,
    /// Packets sent.
    pub packets_sent: u64,
    /// Packets given up as lost.
    pub packets_lost: u64,
    /// Of those, acknowledged after all.
    pub spurious_losses: u64,
    /// Probe timeouts.
    pub probe_timeouts: u64,
    /// ACK frames sent.
    pub acks_sent: u64,
    /// ACK frames received.
    pub acks_received: u64,
    /// Packet numbers left out to catch acknowledgements of what was never sent.
    pub numbers_skipped: u64,
    /// DATA_BLOCKED and STREAM_DATA_BLOCKED frames sent (RFC 9000 s.4.1): the peer's flow control held data
    /// back that the path could have carried.
    pub flow_blocked: u64,
    /// Those frames received: our flow control held the peer's data back, because the application did not read
    /// or because a window is at its maximum ([`StreamConfig`](crate::StreamConfig)).
    pub peer_flow_blocked: u64,
    /// PINGs sent lest the connection idles away.
    pub keep_alives: u64,
    /// Choices of hooks among several paths that did not hold, for the path named was none, or none that can be used.
    pub path_choices_refused: u64,
    /// Datagrams that went on a path that a hook had left out for too long.
    pub paths_starved: u64,
    /// DATAGRAM frames sent.
    pub datagram_frames_sent: u64,
    /// Of those, given up as lost, or dropped since the path takes them no more.
    pub datagram_frames_lost: u64,
    /// DATAGRAM frames received.
    pub datagram_frames_received: u64,
    /// Of those, dropped because nobody read them.
    pub datagram_frames_dropped: u64,
    /// Statistics of the active path now; of several active paths, of one of them.
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
    /// For NEW_TOKEN frames.
    tokens: LazyBox<VecDeque<Bytes>>,
    /// Packets received in earlier attempts, of other versions.
    packets_before: u64,
    /// The moment of the last call that gave one.
    pub(crate) now: Timestamp,
    hooks: Hooks,
    #[cfg(feature = "qlog")]
    qlog: Option<Box<log::Log>>,
    /// Frames that hooks want sent.
    pub(crate) extensions: LazyBox<Extensions>,
    rng: LazyRng,
    coins: Coins,
    handshake: Handshake,
    spaces: Spaces,
    keys: PacketKeys,
    /// Packets that did not open.
    forgeries: Forgeries,
    streams: Streams,
    paths: Paths,
    /// None: there is one path at a time, as one of the ends wants it.
    multipath: Option<Box<Multipath>>,
    /// Address that the server prefers to be reached at; on a client until it has been tried.
    preferred_address: Option<Box<PreferredAddress>>,
    /// The path to or from that address, which the connection moves to once it is validated.
    preferred: Option<PathKey>,
    ids: ConnectionIds,
    /// None: its transport parameters have not come yet.
    peer: Option<Peer>,
    closing: close::Closing,
    /// Frequency of acknowledgements, ours and the one asked of the peer.
    acks: Acknowledgements,
    datagrams: datagrams::Datagrams,
    held: held::Held,
    /// Time at which timers last ran.
    timers_ran: Option<Timestamp>,
    /// Time of the last packet from the peer, for the idle timeout.
    activity: Activity,
    events: VecDeque<Event>,
    stats: Counters,
}

impl Connection {
    /// The oldest event that the application was not told of yet; none when there are no more.
    pub fn poll_event(&mut self) -> Option<Event> {
        let event = self.events.pop_front().or_else(|| self.hook_message());
        event.or_else(|| self.streams.poll_event().map(Event::Stream))
    }

    /// Side of the connection that this end is: client or server.
    pub fn side(&self) -> Side {
        self.side
    }

    /// The first connection ID that the client sent to: a name of the connection that both ends know,
    /// and which goes into logs.
    pub fn original_dcid(&self) -> ConnectionId {
        self.ids.original_dcid()
    }

    /// Address that datagrams are sent to on the active path. With several, it is that of one of them: see
    /// [`Connection::paths`].
    pub fn remote_address(&self) -> SocketAddr {
        self.path().remote()
    }

    /// Returns the last address at which the peer proved that it receives packets: by a token, by
    /// its handshake or by a PATH_RESPONSE (RFC 9000 s.8). Returns `None` before the first proof.
    ///
    /// It differs from [`Connection::remote_address`] while the validation of a new path runs.
    /// Anybody can write any source address into a packet. Code that counts connections by address
    /// must therefore use this address. It can change with every [`Event::PathValidated`],
    /// [`Event::Moved`] and [`Event::PathClosed`].
    pub fn validated_address(&self) -> Option<SocketAddr> {
        self.paths.last_validated().map(Path::remote)
    }

    /// The round-trip time as it is estimated now.
    pub fn rtt(&self) -> Duration {
        self.path().rtt().smoothed()
    }

    /// The largest datagram that the path is known to take, in bytes of UDP payload (RFC 9000 s.14.3).
    pub fn current_mtu(&self) -> u16 {
        self.path().mtu()
    }

    /// True if the handshake is complete.
    pub fn is_connected(&self) -> bool {
        self.handshake.is_complete()
    }

    /// True if the connection is over and can be dropped.
    pub fn is_drained(&self) -> bool {
        self.closing.is_drained()
    }

    /// The protocol that TLS agreed on.
    pub fn alpn(&self) -> Option<&[u8]> {
        self.handshake.tls().alpn()
    }

    /// The IDs that packets to this connection may carry.
    pub fn local_ids(&self) -> impl Iterator<Item = ConnectionId> + '_ {
        self.ids.all_local()
    }

    /// Opens a stream; none: the peer allows no more now, [`StreamEvent::Available`] will say when.
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

    /// The next stream that the peer opened.
    pub fn accept(&mut self, direction: Direction) -> Option<StreamId> {
        self.streams.accept(direction)
    }

    /// Returns the streams of the connection, for all calls that read, write, reset or stop them.
    pub fn streams(&mut self) -> &mut Streams {
        &mut self.streams
    }

    /// Has the peer say that it is there.
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

    /// The path on which packets of a space go: that of its path ID; of the handshake's, the active one.
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

    /// The space of application data on the active path.
    fn active_space(&self) -> SpaceId {
        SpaceId::Data(self.path().id())
    }

    fn fail(&mut self, now: Timestamp, why: impl Into<Failure>) {
        self.close_with(now, why.into().into());
    }
}
