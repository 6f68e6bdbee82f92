//! Frames (RFC 9000 s.12.4 and s.19, RFC 9221 s.4, draft-ietf-quic-ack-frequency s.4 and s.5, RFC
//! 10069 s.4).
//!
//! [`Frames`] reads the payload of a packet, [`Frame::write`] writes one frame. [`FrameType`] has
//! the rules for each type, such as in which packets a frame may be sent.

mod ack;
mod data;
mod error;
mod frame_type;
mod multipath;
mod read;
mod write;

pub use ack::{Ack, AckRange, AckRanges, EcnCounts, WrittenAck, write_ack};
pub use data::{Crypto, DatagramFrame, NewConnectionId, NewToken, Stream};
pub use error::{FrameError, FrameErrorKind};
pub use frame_type::FrameType;
pub use multipath::{
    PathAbandon, PathAck, PathCidsBlocked, PathNewConnectionId, PathRetireConnectionId, PathStatus,
    write_path_ack,
};
pub use read::Frames;

use crate::{Direction, PathId, StreamCount, StreamId, TransportErrorCode, VarInt};
use core::num::NonZeroUsize;
use core::time::Duration;

/// One frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// A number of consecutive PADDING frames. Each is one byte long.
    Padding(NonZeroUsize),
    /// PING.
    Ping,
    /// ACK, with or without ECN counts.
    Ack(Ack<'a>),
    /// RESET_STREAM: the sender of this frame aborts the stream in its own sending direction.
    ResetStream(ResetStream),
    /// STOP_SENDING: the sender of this frame asks its peer to stop sending on a stream.
    StopSending(StopSending),
    /// CRYPTO: bytes of the TLS handshake.
    Crypto(Crypto<'a>),
    /// NEW_TOKEN: a token that the client can use for a later connection.
    NewToken(NewToken<'a>),
    /// STREAM: bytes of a stream.
    Stream(Stream<'a>),
    /// MAX_DATA: limit on the total bytes of all streams.
    MaxData(VarInt),
    /// MAX_STREAM_DATA: limit on the bytes of one stream.
    MaxStreamData(StreamLimit),
    /// MAX_STREAMS: limit on the total number of streams of a direction that the peer may open.
    MaxStreams(Direction, StreamCount),
    /// DATA_BLOCKED: the sender has more data, but is blocked by this limit of the connection.
    DataBlocked(VarInt),
    /// STREAM_DATA_BLOCKED: the sender has more data, but is blocked by this limit of a stream.
    StreamDataBlocked(StreamLimit),
    /// STREAMS_BLOCKED: the sender cannot open a stream of this direction because of this limit.
    StreamsBlocked(Direction, StreamCount),
    /// NEW_CONNECTION_ID: another connection ID that the peer may use.
    NewConnectionId(NewConnectionId),
    /// RETIRE_CONNECTION_ID: the sender will no longer use the connection ID with this sequence
    /// number.
    RetireConnectionId(VarInt),
    /// PATH_CHALLENGE: data that the peer must echo.
    PathChallenge([u8; 8]),
    /// PATH_RESPONSE: the echoed data of a PATH_CHALLENGE.
    PathResponse([u8; 8]),
    /// CONNECTION_CLOSE: the sender closes the connection.
    ConnectionClose(ConnectionClose<'a>),
    /// HANDSHAKE_DONE: the server confirms the handshake.
    HandshakeDone,
    /// DATAGRAM: an unreliable datagram.
    Datagram(DatagramFrame<'a>),
    /// ACK_FREQUENCY: the sender of this frame asks for more or fewer ACK frames.
    AckFrequency(AckFrequency),
    /// IMMEDIATE_ACK: the sender of this frame asks for an ACK frame now.
    ImmediateAck,
    /// PATH_ACK: an ACK frame for the packets of one path, with or without ECN counts.
    PathAck(PathAck<'a>),
    /// PATH_ABANDON: the sender abandons a path.
    PathAbandon(PathAbandon),
    /// PATH_STATUS_AVAILABLE: the peer may send packets on this path.
    PathStatusAvailable(PathStatus),
    /// PATH_STATUS_BACKUP: the peer should use this path only if no available path works.
    PathStatusBackup(PathStatus),
    /// PATH_NEW_CONNECTION_ID: another connection ID that the peer may use on one path.
    PathNewConnectionId(PathNewConnectionId),
    /// PATH_RETIRE_CONNECTION_ID: the sender will no longer use a connection ID of one path.
    PathRetireConnectionId(PathRetireConnectionId),
    /// MAX_PATH_ID: the peer may use path IDs up to this one.
    MaxPathId(PathId),
    /// PATHS_BLOCKED: the sender cannot open a path because of this limit.
    PathsBlocked(PathId),
    /// PATH_CIDS_BLOCKED: the sender has no unused connection ID for a path.
    PathCidsBlocked(PathCidsBlocked),
    /// A frame of a type that this crate does not know.
    Unknown(UnknownFrame<'a>),
}

/// A RESET_STREAM frame (RFC 9000 s.19.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResetStream {
    /// The stream.
    pub stream_id: StreamId,
    /// Error code that the application chose.
    pub error_code: VarInt,
    /// Final size of the stream, in bytes: the number of bytes that the sender has sent on it.
    pub final_size: VarInt,
}

/// A STOP_SENDING frame (RFC 9000 s.19.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StopSending {
    /// The stream.
    pub stream_id: StreamId,
    /// Error code that the application chose.
    pub error_code: VarInt,
}

/// The fields of a MAX_STREAM_DATA or STREAM_DATA_BLOCKED frame (RFC 9000 s.19.10, s.19.13).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamLimit {
    /// The stream.
    pub stream_id: StreamId,
    /// The limit, in bytes from the beginning of the stream.
    pub limit: VarInt,
}

/// A CONNECTION_CLOSE frame (RFC 9000 s.19.19). The reason phrase of a received frame may be
/// invalid UTF-8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionClose<'a> {
    /// Type 0x1c: the transport closes the connection.
    Transport {
        /// Reason for the close.
        error_code: TransportErrorCode,
        /// Type of the frame that caused the error, or PADDING if that is unknown.
        frame_type: FrameType,
        /// Reason phrase, which explains the close to people.
        reason: &'a [u8],
    },
    /// Type 0x1d: the application closes the connection.
    Application {
        /// Error code that the application chose.
        error_code: VarInt,
        /// Reason phrase, which explains the close to people.
        reason: &'a [u8],
    },
}

/// An ACK_FREQUENCY frame (draft-ietf-quic-ack-frequency s.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AckFrequency {
    /// Sequence number of this frame. The receiver ignores the frame if it has already received one
    /// with a larger number.
    pub sequence_number: VarInt,
    /// Number of ack-eliciting packets that the peer may receive before it must send an ACK.
    pub ack_eliciting_threshold: VarInt,
    /// The requested maximum ACK delay, in microseconds.
    pub requested_max_ack_delay_us: VarInt,
    /// Number of reordered packets that cause an immediate ACK. If it is 0, reordering never causes
    /// an immediate ACK.
    pub reordering_threshold: VarInt,
}

impl AckFrequency {
    /// The requested maximum ACK delay.
    pub const fn requested_max_ack_delay(&self) -> Duration {
        Duration::from_micros(self.requested_max_ack_delay_us.get())
    }
}

/// A frame of a type that this crate does not know. Its length is unknown, because QUIC frames do
/// not carry their own length (RFC 9000 s.19.21). An extension that knows the type reads the fields
/// from `rest`, and passes the remaining bytes to [`Frames::resume`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownFrame<'a> {
    /// Type of the frame.
    pub frame_type: FrameType,
    /// All bytes after the frame type, up to the end of the packet.
    pub rest: &'a [u8],
}

impl UnknownFrame<'_> {
    /// Returns the error with which to close the connection if no extension knows the frame type
    /// (RFC 9000 s.12.4).
    pub const fn error(&self) -> FrameError {
        FrameError { frame_type: self.frame_type, kind: FrameErrorKind::UnknownType }
    }
}

impl Frame<'_> {
    /// Returns the frame's type as on the wire, including its flags.
    pub fn frame_type(&self) -> FrameType {
        match self {
            Frame::Padding(_) => FrameType::PADDING,
            Frame::Ping => FrameType::PING,
            Frame::Ack(ack) if ack.ecn().is_some() => FrameType::ACK_ECN,
            Frame::Ack(_) => FrameType::ACK,
            Frame::ResetStream(_) => FrameType::RESET_STREAM,
            Frame::StopSending(_) => FrameType::STOP_SENDING,
            Frame::Crypto(_) => FrameType::CRYPTO,
            Frame::NewToken(_) => FrameType::NEW_TOKEN,
            Frame::Stream(stream) => stream.frame_type(),
            Frame::MaxData(_) => FrameType::MAX_DATA,
            Frame::MaxStreamData(_) => FrameType::MAX_STREAM_DATA,
            Frame::MaxStreams(Direction::Bidirectional, _) => FrameType::MAX_STREAMS_BIDI,
            Frame::MaxStreams(Direction::Unidirectional, _) => FrameType::MAX_STREAMS_UNI,
            Frame::DataBlocked(_) => FrameType::DATA_BLOCKED,
            Frame::StreamDataBlocked(_) => FrameType::STREAM_DATA_BLOCKED,
            Frame::StreamsBlocked(Direction::Bidirectional, _) => FrameType::STREAMS_BLOCKED_BIDI,
            Frame::StreamsBlocked(Direction::Unidirectional, _) => FrameType::STREAMS_BLOCKED_UNI,
            Frame::NewConnectionId(_) => FrameType::NEW_CONNECTION_ID,
            Frame::RetireConnectionId(_) => FrameType::RETIRE_CONNECTION_ID,
            Frame::PathChallenge(_) => FrameType::PATH_CHALLENGE,
            Frame::PathResponse(_) => FrameType::PATH_RESPONSE,
            Frame::ConnectionClose(ConnectionClose::Transport { .. }) => {
                FrameType::CONNECTION_CLOSE
            }
            Frame::ConnectionClose(ConnectionClose::Application { .. }) => {
                FrameType::CONNECTION_CLOSE_APPLICATION
            }
            Frame::HandshakeDone => FrameType::HANDSHAKE_DONE,
            Frame::Datagram(datagram) => datagram.frame_type(),
            Frame::AckFrequency(_) => FrameType::ACK_FREQUENCY,
            Frame::ImmediateAck => FrameType::IMMEDIATE_ACK,
            Frame::PathAck(ack) => ack.frame_type(),
            Frame::PathAbandon(_) => FrameType::PATH_ABANDON,
            Frame::PathStatusAvailable(_) => FrameType::PATH_STATUS_AVAILABLE,
            Frame::PathStatusBackup(_) => FrameType::PATH_STATUS_BACKUP,
            Frame::PathNewConnectionId(_) => FrameType::PATH_NEW_CONNECTION_ID,
            Frame::PathRetireConnectionId(_) => FrameType::PATH_RETIRE_CONNECTION_ID,
            Frame::MaxPathId(_) => FrameType::MAX_PATH_ID,
            Frame::PathsBlocked(_) => FrameType::PATHS_BLOCKED,
            Frame::PathCidsBlocked(_) => FrameType::PATH_CIDS_BLOCKED,
            Frame::Unknown(unknown) => unknown.frame_type,
        }
    }
}
