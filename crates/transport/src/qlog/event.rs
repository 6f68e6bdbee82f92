//! The events that a qlog log records. Names and meanings are those of
//! draft-ietf-quic-qlog-quic-events. The code in `json/` that writes an event names the section of
//! the draft for it.

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::time::Duration;

use equic_wire::frame::Frame;
use equic_wire::packet::{PacketType, Retry, VersionNegotiation, Versions};
use equic_wire::params::TransportParameters;
use equic_wire::{ConnectionId, StreamId, Version};

use super::packet::Packet;
use crate::Timestamp;
use crate::connection::CloseReason;
use crate::path::EcnState;
use crate::received::EcnCodepoint;

/// An event of a connection, as a qlog log records it.
#[derive(Debug, Clone, Copy)]
pub struct Event<'a> {
    /// Time of the event.
    pub time: Timestamp,
    /// Number of the path that the event is about. The first path has number 0, and numbers are
    /// never reused.
    pub path: u32,
    /// The kind of the event, with its details.
    pub kind: EventKind<'a>,
}

/// The kind of an event, with its details.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum EventKind<'a> {
    /// A client opens the connection, or a server accepts it.
    ConnectionStarted {
        /// Local IP address, or `None` if it is unknown.
        local: Option<IpAddr>,
        /// The peer's address.
        remote: SocketAddr,
        /// Connection IDs of the handshake: the local one and the peer's.
        ids: [ConnectionId; 2],
    },
    /// The connection was closed.
    ConnectionClosed(&'a CloseReason),
    /// The connection has changed its state. The states are those of the draft's `ConnectionState`.
    ConnectionStateUpdated {
        /// State of the connection before the change. `None` if it is unknown.
        old: Option<&'static str>,
        /// State of the connection after the change.
        new: &'static str,
    },
    /// The connection ID in packets has changed: the peer uses another ID of this end (initiator:
    /// local), or this end uses another ID of the peer (initiator: remote).
    ConnectionIdUpdated {
        /// The end that chose the connection ID.
        initiator: Initiator,
        /// The previous connection ID.
        old: ConnectionId,
        /// The new connection ID.
        new: ConnectionId,
    },
    /// The spin bit of the packets that this end sends has changed.
    SpinBitUpdated(bool),
    /// The path of the event has these addresses: the local one, if it is known, and the peer's.
    /// `None` means that the path was removed.
    TupleAssigned(Option<(Option<IpAddr>, SocketAddr)>),
    /// The largest datagram size on the path of the event has changed.
    MtuUpdated {
        /// The previous largest datagram size, in bytes.
        old: u16,
        /// The new largest datagram size, in bytes.
        new: u16,
    },
    /// The QUIC version in use, and the versions that the ends support.
    VersionInformation {
        /// Versions that this end supports. On a client, they are in order of preference.
        ours: &'a [Version],
        /// True if this end is the client.
        client: bool,
        /// Versions that a Version Negotiation packet of the server has listed. `None` if there was
        /// no such packet.
        theirs: Option<Versions<'a>>,
        /// The QUIC version in use, or `None` if the ends have no common version.
        chosen: Option<Version>,
    },
    /// The application protocol that TLS negotiated.
    AlpnInformation(&'a [u8]),
    /// One end has declared its transport parameters.
    ParametersSet {
        /// The end that declared the parameters.
        initiator: Initiator,
        /// The declared parameters.
        parameters: &'a TransportParameters<'a>,
    },
    /// The cipher suite that TLS negotiated.
    CipherSelected(&'a str),
    /// A packet was sent.
    PacketSent(Packet<'a>),
    /// A packet was decrypted and is now processed.
    PacketReceived(Packet<'a>),
    /// A Retry or Version Negotiation packet was received and accepted. These packets have no
    /// protection.
    UnprotectedReceived {
        /// The packet that was received.
        packet: Unprotected<'a>,
        /// Length of the packet in bytes.
        length: usize,
        /// CRC32c of the datagram that contained the packet.
        checksum: u32,
    },
    /// A packet was received and dropped.
    PacketDropped {
        /// Packet type, or `None` if it is unknown.
        packet_type: Option<PacketType>,
        /// Length of the packet in bytes.
        length: usize,
        /// CRC32c of the datagram that contained the packet.
        checksum: u32,
        /// Reason why the packet was dropped: one of the draft's values of `trigger`.
        trigger: &'static str,
    },
    /// Packets were acknowledged for the first time.
    PacketsAcked {
        /// Packet number space of the packets. The type 1-RTT stands for the application data
        /// space.
        space: PacketType,
        /// Packet numbers, from the highest down.
        numbers: &'a [u64],
    },
    /// A datagram was passed to the caller to be sent.
    DatagramSent {
        /// Length of the UDP payload in bytes.
        length: usize,
        /// ECN codepoint of the datagram.
        ecn: EcnCodepoint,
        /// CRC32c of the datagram.
        checksum: u32,
    },
    /// The caller passed a received datagram to the connection.
    DatagramReceived {
        /// Length of the UDP payload in bytes.
        length: usize,
        /// ECN codepoint of the datagram.
        ecn: EcnCodepoint,
        /// CRC32c of the datagram.
        checksum: u32,
    },
    /// The sending or the receiving part of a stream has changed its state. The states are those of
    /// the draft's `StreamState`.
    StreamStateUpdated {
        /// ID of the stream.
        id: StreamId,
        /// The part of the stream that has changed: sending or receiving.
        part: StreamPart,
        /// State of the part before the change. `None` if it is unknown.
        old: Option<&'static str>,
        /// State of the part after the change.
        new: &'static str,
    },
    /// The connection migrates to the path of the event, or has done so. The states are those of
    /// the draft's `MigrationState`.
    MigrationStateUpdated {
        /// State of the migration before the change. `None` if it is unknown.
        old: Option<&'static str>,
        /// State of the migration after the change.
        new: &'static str,
    },
    /// A timer was set, expired, or was cancelled.
    TimerUpdated {
        /// The timer that has changed.
        timer: Timer,
        /// The change of the timer.
        change: TimerChange,
    },
    /// New keys were installed.
    KeyUpdated(KeyChange),
    /// Keys were discarded.
    KeyDiscarded(KeyChange),
    /// The parameters with which loss recovery and congestion control start.
    RecoveryParametersSet {
        /// RTT that the connection assumes before the first sample.
        initial_rtt: Duration,
        /// Datagram size at the start, in bytes.
        datagram: u16,
        /// Initial congestion window in bytes.
        window: u64,
        /// Name of the congestion control algorithm.
        algorithm: &'static str,
    },
    /// Metrics of the path of the event have changed since the last event of this kind.
    RecoveryMetricsUpdated(Metrics),
    /// The congestion controller has changed its state. The names of the states depend on the
    /// algorithm.
    CongestionStateUpdated {
        /// State of the congestion controller before the change. `None` if it is unknown.
        old: Option<&'static str>,
        /// State of the congestion controller after the change.
        new: &'static str,
        /// Reason why the congestion controller changed its state, or `None` if it is unknown.
        trigger: Option<&'static str>,
    },
    /// A packet was declared lost.
    PacketLost(Lost),
    /// The content of a lost packet will be sent again.
    MarkedForRetransmit(&'a [Retransmitted]),
    /// The state of ECN validation has changed on the path of the event.
    EcnStateUpdated {
        /// State of ECN validation before the change. `None` if it is unknown.
        old: Option<EcnState>,
        /// State of ECN validation after the change.
        new: EcnState,
    },
}

/// A packet that has no packet number, frames or protection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unprotected<'a> {
    /// A Retry packet (RFC 9000 s.17.2.5).
    Retry(Retry<'a>),
    /// A Version Negotiation packet (RFC 9000 s.17.2.1).
    VersionNegotiation(VersionNegotiation<'a>),
}

/// The end of the connection that caused an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Initiator {
    /// This end of the connection.
    Local,
    /// The peer.
    Remote,
}

/// A part of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamPart {
    /// The sending part, on which this end sends data.
    Sending,
    /// The receiving part, on which the peer sends data.
    Receiving,
}

/// A timer of the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Timer {
    /// The loss detection timer: the time threshold of a packet, or a probe timeout (RFC 9002
    /// s.6.2).
    Loss,
    /// The timer after which a delayed acknowledgment is sent.
    Ack,
    /// The timer for the idle timeout of the connection.
    Idle,
}

/// A change of a timer: set, expired or cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimerChange {
    /// The timer was set. It expires after this duration.
    Set(Duration),
    /// The timer expired.
    Expired,
    /// The timer was cancelled.
    Cancelled,
}

/// The encryption level of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyLevel {
    /// The keys of Initial packets.
    Initial,
    /// The keys of Handshake packets.
    Handshake,
    /// The keys of 1-RTT packets.
    OneRtt,
}

/// Describes keys that were installed or discarded. It never contains the keys themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyChange {
    /// Encryption level of the keys.
    pub level: KeyLevel,
    /// True for the client's keys, false for the server's.
    pub client: bool,
    /// For 1-RTT keys, the number of key updates since the first keys; otherwise `None`.
    pub phase: Option<u64>,
    /// The end that caused the change of keys. `None` if TLS caused it.
    pub trigger: Option<Initiator>,
}

/// Metrics of a path. A metric is `None` if it has not changed since the last event of this kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Metrics {
    /// Smallest RTT sample of the path so far.
    pub min_rtt: Option<Duration>,
    /// Smoothed RTT.
    pub smoothed_rtt: Option<Duration>,
    /// Latest RTT sample of the path.
    pub latest_rtt: Option<Duration>,
    /// RTT variation.
    pub rtt_variance: Option<Duration>,
    /// Number of consecutive probe timeouts.
    pub pto_count: Option<u32>,
    /// Congestion window in bytes.
    pub congestion_window: Option<u64>,
    /// Number of bytes in flight on the path.
    pub bytes_in_flight: Option<u64>,
    /// Slow start threshold in bytes.
    pub ssthresh: Option<u64>,
    /// Pacing rate in bits per second.
    pub pacing_rate: Option<u64>,
}

/// Details of a lost packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lost {
    /// Type of the lost packet. The type 1-RTT stands for the application data space.
    pub packet_type: PacketType,
    /// Packet number of the lost packet.
    pub number: u64,
    /// True if the lost packet was a PMTU probe.
    pub mtu_probe: bool,
    /// The loss detection threshold that was exceeded. `None` if it is unknown.
    pub trigger: Option<&'static str>,
}

/// A frame that will be sent again. For stream and CRYPTO data, only the range is recorded, not the
/// bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Retransmitted {
    /// CRYPTO data of the TLS handshake: its range of offsets.
    Crypto(Range<u64>),
    /// STREAM data of the stream `id`.
    Stream {
        /// The stream ID.
        id: StreamId,
        /// Range of offsets in the stream.
        range: Range<u64>,
        /// True if the data ends the stream.
        fin: bool,
    },
    /// A frame that carries neither STREAM nor CRYPTO data.
    Frame(Frame<'static>),
}
