//! Frames (RFC 9000 s.12.4 and s.19, RFC 9221 s.4, draft-ietf-quic-ack-frequency s.4 and s.5, RFC 10069 s.4).
//!
//! [`Frames`] reads the payload of a packet, [`Frame::write`] writes one frame. What a frame type is
//! allowed to do, and where, is asked of the [`FrameType`].

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
    /// So many PADDING frames in a row, each a byte long.
    Padding(NonZeroUsize),
    /// PING.
    Ping,
    /// ACK, with or without ECN counts.
    Ack(Ack<'a>),
    /// The sender gives up its part of a stream.
    ResetStream(ResetStream),
    /// The receiver asks the sender to do so.
    StopSending(StopSending),
    /// Bytes of the TLS handshake.
    Crypto(Crypto<'a>),
    /// A token for a later connection.
    NewToken(NewToken<'a>),
    /// Bytes of a stream.
    Stream(Stream<'a>),
    /// The receiver takes so many bytes on all streams together.
    MaxData(VarInt),
    /// The receiver takes so many bytes on a stream.
    MaxStreamData(StreamLimit),
    /// The peer may open so many streams of a direction, from the beginning of the connection.
    MaxStreams(Direction, StreamCount),
    /// The sender is held up by this limit of the connection.
    DataBlocked(VarInt),
    /// The sender is held up by this limit of a stream.
    StreamDataBlocked(StreamLimit),
    /// The sender would open a stream of this direction beyond this limit.
    StreamsBlocked(Direction, StreamCount),
    /// Another connection ID for the peer to use.
    NewConnectionId(NewConnectionId),
    /// The connection ID of this sequence number will not be used again.
    RetireConnectionId(VarInt),
    /// Data that the peer is to send back.
    PathChallenge([u8; 8]),
    /// Sent back.
    PathResponse([u8; 8]),
    /// The connection is closed.
    ConnectionClose(ConnectionClose<'a>),
    /// The server confirms the handshake.
    HandshakeDone,
    /// An unreliable datagram.
    Datagram(DatagramFrame<'a>),
    /// Request of the sender of this frame for ACK frames of another frequency.
    AckFrequency(AckFrequency),
    /// The sender of this frame would like to see an ACK now.
    ImmediateAck,
    /// An ACK frame for the packets of one path, with or without ECN counts.
    PathAck(PathAck<'a>),
    /// The sender gives up a path.
    PathAbandon(PathAbandon),
    /// The sender of this frame has no objection to packets on a path.
    PathStatusAvailable(PathStatus),
    /// The sender of this frame wants packets on a path only if no available path works.
    PathStatusBackup(PathStatus),
    /// Another connection ID for the peer to use on one path.
    PathNewConnectionId(PathNewConnectionId),
    /// A connection ID of one path will not be used again.
    PathRetireConnectionId(PathRetireConnectionId),
    /// The peer may use path IDs up to this one.
    MaxPathId(PathId),
    /// The sender would open a path beyond this limit.
    PathsBlocked(PathId),
    /// The sender has no unused connection ID for a path.
    PathCidsBlocked(PathCidsBlocked),
    /// A type this crate does not know.
    Unknown(UnknownFrame<'a>),
}

/// RESET_STREAM (RFC 9000 s.19.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResetStream {
    /// The stream.
    pub stream_id: StreamId,
    /// The application's reason.
    pub error_code: VarInt,
    /// Bytes the sender has sent on the stream.
    pub final_size: VarInt,
}

/// STOP_SENDING (RFC 9000 s.19.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StopSending {
    /// The stream.
    pub stream_id: StreamId,
    /// The application's reason.
    pub error_code: VarInt,
}

/// MAX_STREAM_DATA or STREAM_DATA_BLOCKED (RFC 9000 s.19.10, s.19.13).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamLimit {
    /// The stream.
    pub stream_id: StreamId,
    /// Bytes from the beginning of the stream.
    pub limit: VarInt,
}

/// CONNECTION_CLOSE (RFC 9000 s.19.19). The reason is whatever the peer sent, not always UTF-8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionClose<'a> {
    /// Type 0x1c: QUIC itself closes.
    Transport {
        /// Reason for the close.
        error_code: TransportErrorCode,
        /// The type of the frame that was wrong; PADDING if that is not known.
        frame_type: FrameType,
        /// Reason phrase, for a person to read.
        reason: &'a [u8],
    },
    /// Type 0x1d: the application closes.
    Application {
        /// Reason for the close, as a code of the application's own.
        error_code: VarInt,
        /// Reason phrase, for a person to read.
        reason: &'a [u8],
    },
}

/// ACK_FREQUENCY (draft-ietf-quic-ack-frequency s.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AckFrequency {
    /// A frame with a smaller number than one received before is ignored.
    pub sequence_number: VarInt,
    /// Ack-eliciting packets that may go without an ACK.
    pub ack_eliciting_threshold: VarInt,
    /// Microseconds.
    pub requested_max_ack_delay_us: VarInt,
    /// Packets of reordering before an immediate ACK; 0: reordering causes none.
    pub reordering_threshold: VarInt,
}

impl AckFrequency {
    /// The delay asked for.
    pub const fn requested_max_ack_delay(&self) -> Duration {
        Duration::from_micros(self.requested_max_ack_delay_us.get())
    }
}

/// A frame of a type this crate does not know. QUIC frames do not say where they end (RFC 9000
/// s.19.21): who knows the type takes its fields from `rest` and tells [`Frames::resume`] what is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownFrame<'a> {
    /// Type of the frame.
    pub frame_type: FrameType,
    /// Everything behind the type, up to the end of the packet.
    pub rest: &'a [u8],
}

impl UnknownFrame<'_> {
    /// Error to close the connection with if no extension knows the type either (RFC 9000 s.12.4).
    pub const fn error(&self) -> FrameError {
        FrameError { frame_type: self.frame_type, kind: FrameErrorKind::UnknownType }
    }
}

impl Frame<'_> {
    /// The type as it stands on the wire, flags included.
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
