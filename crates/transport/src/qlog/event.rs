//! The events. Names and meanings are those of draft-ietf-quic-qlog-quic-events; the section of each
//! is named where it is written out, in `json/`.

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

/// Something that happened.
#[derive(Debug, Clone, Copy)]
pub struct Event<'a> {
    /// Time of the event.
    pub time: Timestamp,
    /// Number of the event's path: 0 is the first, numbers are never used again.
    pub path: u32,
    /// Kind of event, with its details.
    pub kind: EventKind<'a>,
}

/// Kind of event, with its details.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum EventKind<'a> {
    /// The connection is being opened, by a client, or taken on, by a server.
    ConnectionStarted {
        /// Local address, if it is known.
        local: Option<IpAddr>,
        /// The peer's.
        remote: SocketAddr,
        /// The IDs of the handshake: ours and the one that we send to.
        ids: [ConnectionId; 2],
    },
    /// It was closed.
    ConnectionClosed(&'a CloseReason),
    /// The connection's state has changed: a `ConnectionState` of the draft.
    ConnectionStateUpdated {
        /// Before.
        old: Option<&'static str>,
        /// Now.
        new: &'static str,
    },
    /// The peer sends to another of our IDs (local), or we to another of its (remote).
    ConnectionIdUpdated {
        /// Side that chose the connection ID.
        initiator: Initiator,
        /// Before.
        old: ConnectionId,
        /// Now.
        new: ConnectionId,
    },
    /// The spin bit of the packets that we send has changed.
    SpinBitUpdated(bool),
    /// The event's path has these addresses. `None`: the path was removed.
    TupleAssigned(Option<(Option<IpAddr>, SocketAddr)>),
    /// Datagrams may be so large now, in bytes.
    MtuUpdated {
        /// Before.
        old: u16,
        /// Now.
        new: u16,
    },
    /// The version in use, and what this side knows.
    VersionInformation {
        /// In order of preference; of the client, if we are it.
        ours: &'a [Version],
        /// True if this end is the client.
        client: bool,
        /// The server's, if a Version Negotiation packet told.
        theirs: Option<Versions<'a>>,
        /// The version in use. `None` if there is no common version.
        chosen: Option<Version>,
    },
    /// The protocol that TLS agreed on.
    AlpnInformation(&'a [u8]),
    /// Transport parameters.
    ParametersSet {
        /// Side that declared the parameters.
        initiator: Initiator,
        /// The parameters declared.
        parameters: &'a TransportParameters<'a>,
    },
    /// The cipher suite that TLS agreed on.
    CipherSelected(&'a str),
    /// A packet went out.
    PacketSent(Packet<'a>),
    /// A packet was opened, and is being processed.
    PacketReceived(Packet<'a>),
    /// A packet that has no protection came, and is followed.
    UnprotectedReceived {
        /// The packet.
        packet: Unprotected<'a>,
        /// Bytes.
        length: usize,
        /// The CRC32c of the datagram it came in.
        checksum: u32,
    },
    /// A packet was not.
    PacketDropped {
        /// Packet type, if it is known.
        packet_type: Option<PacketType>,
        /// Bytes.
        length: usize,
        /// The CRC32c of the datagram it came in.
        checksum: u32,
        /// Reason for the drop: a `trigger` of the draft.
        trigger: &'static str,
    },
    /// Packets were acknowledged for the first time.
    PacketsAcked {
        /// Their packet number space; 1-RTT stands for application data.
        space: PacketType,
        /// Their numbers, from the highest down.
        numbers: &'a [u64],
    },
    /// A datagram was handed to the caller.
    DatagramSent {
        /// Bytes of UDP payload.
        length: usize,
        /// ECN mark on the datagram.
        ecn: EcnCodepoint,
        /// Its CRC32c.
        checksum: u32,
    },
    /// A datagram came from the caller.
    DatagramReceived {
        /// Bytes of UDP payload.
        length: usize,
        /// ECN mark on the datagram.
        ecn: EcnCodepoint,
        /// Its CRC32c.
        checksum: u32,
    },
    /// One part of a stream is in another state: a `StreamState` of the draft.
    StreamStateUpdated {
        /// The stream.
        id: StreamId,
        /// The part of the stream: sending or receiving.
        part: StreamPart,
        /// Before.
        old: Option<&'static str>,
        /// Now.
        new: &'static str,
    },
    /// The connection moves to the event's path: a `MigrationState` of the draft.
    MigrationStateUpdated {
        /// Before.
        old: Option<&'static str>,
        /// Now.
        new: &'static str,
    },
    /// A timer was set, expired, or was cancelled.
    TimerUpdated {
        /// The timer.
        timer: Timer,
        /// The change of the timer.
        change: TimerChange,
    },
    /// There are new keys.
    KeyUpdated(KeyChange),
    /// Keys are gone.
    KeyDiscarded(KeyChange),
    /// The values that loss recovery starts with.
    RecoveryParametersSet {
        /// The round-trip time that is assumed.
        initial_rtt: Duration,
        /// Bytes of a datagram.
        datagram: u16,
        /// The first congestion window, in bytes.
        window: u64,
        /// The name of the algorithm.
        algorithm: &'static str,
    },
    /// Metrics of the event's path that have changed since the last event of this kind.
    RecoveryMetricsUpdated(Metrics),
    /// Congestion control is in another state; names are the algorithm's.
    CongestionStateUpdated {
        /// Before.
        old: Option<&'static str>,
        /// Now.
        new: &'static str,
        /// Reason for the change, if it is known.
        trigger: Option<&'static str>,
    },
    /// A packet was declared lost.
    PacketLost(Lost),
    /// The content of a lost packet will be sent again.
    MarkedForRetransmit(&'a [Retransmitted]),
    /// ECN validation went on.
    EcnStateUpdated {
        /// Before.
        old: Option<EcnState>,
        /// Now.
        new: EcnState,
    },
}

/// A packet without number, frames and protection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unprotected<'a> {
    /// RFC 9000 s.17.2.5.
    Retry(Retry<'a>),
    /// RFC 9000 s.17.2.1.
    VersionNegotiation(VersionNegotiation<'a>),
}

/// Side of the connection that did something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Initiator {
    /// Ours.
    Local,
    /// The peer's.
    Remote,
}

/// A part of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamPart {
    /// The part on which this end sends.
    Sending,
    /// The part on which the peer sends.
    Receiving,
}

/// A timer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Timer {
    /// Of loss detection: loss by time, or a probe (RFC 9002 s.6.2).
    Loss,
    /// An acknowledgement is due.
    Ack,
    /// The connection has been silent for too long.
    Idle,
}

/// Change of a timer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimerChange {
    /// The timer expires after this time.
    Set(Duration),
    /// It went off.
    Expired,
    /// The timer was cancelled.
    Cancelled,
}

/// Encryption level that keys are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyLevel {
    /// Initial packets.
    Initial,
    /// Handshake packets.
    Handshake,
    /// 1-RTT packets.
    OneRtt,
}

/// Keys that came or went; never the keys themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyChange {
    /// Encryption level of the keys.
    pub level: KeyLevel,
    /// The client's or the server's.
    pub client: bool,
    /// Of 1-RTT keys: how many updates they are from the first.
    pub phase: Option<u64>,
    /// Side that caused the change. `None`: TLS did.
    pub trigger: Option<Initiator>,
}

/// Metrics of a path. `None`: unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Metrics {
    /// The least round-trip time.
    pub min_rtt: Option<Duration>,
    /// The smoothed one.
    pub smoothed_rtt: Option<Duration>,
    /// The last one.
    pub latest_rtt: Option<Duration>,
    /// Its variation.
    pub rtt_variance: Option<Duration>,
    /// Probe timeouts in a row.
    pub pto_count: Option<u32>,
    /// Bytes.
    pub congestion_window: Option<u64>,
    /// Bytes.
    pub bytes_in_flight: Option<u64>,
    /// The slow start threshold in bytes.
    pub ssthresh: Option<u64>,
    /// Bits a second.
    pub pacing_rate: Option<u64>,
}

/// A lost packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lost {
    /// Its kind; 1-RTT stands for application data.
    pub packet_type: PacketType,
    /// Its number.
    pub number: u64,
    /// It was sent to find out whether its size gets through.
    pub mtu_probe: bool,
    /// The threshold that was exceeded. `None` if it is unknown.
    pub trigger: Option<&'static str>,
}

/// A frame that is to go again; data without its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Retransmitted {
    /// Bytes of the TLS handshake.
    Crypto(Range<u64>),
    /// Bytes of a stream.
    Stream {
        /// Identifier of the stream.
        id: StreamId,
        /// The bytes.
        range: Range<u64>,
        /// And its end.
        fin: bool,
    },
    /// Any other.
    Frame(Frame<'static>),
}
