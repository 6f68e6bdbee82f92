//! Frames (RFC 9000 s.12.4 and s.19, RFC 9221 s.4, draft-ietf-quic-ack-frequency s.4 and s.5, RFC
//! 10069 s.4).
//!
//! [`Frames`] reads the payload of a packet, [`Frame::write`] writes one frame. [`FrameType`] has
//! the rules for each type, such as in which packets a frame may be sent. [`Frame::fields`] lists
//! the fields of a frame for logs.
//!
//! A file for each kind of frames, such as `stream.rs`, has their types with rules, their
//! structures, and the code that reads, writes and lists their fields. This file has the sum of all
//! frames.

#[macro_use]
mod frame_type;

mod ack;
mod ack_frequency;
mod close;
mod connection_id;
mod crypto;
mod datagram;
mod error;
mod field;
mod flow_control;
mod multipath;
mod path;
mod read;
mod signal;
mod stream;
mod token;
mod unknown;

pub use ack::{Ack, AckRange, AckRanges, EcnCounts, WrittenAck, write_ack};
pub use ack_frequency::AckFrequency;
pub use close::ConnectionClose;
pub use connection_id::NewConnectionId;
pub use crypto::Crypto;
pub use datagram::DatagramFrame;
pub use error::{FrameError, FrameErrorKind};
pub use field::{Field, FieldText, FieldValue, Fields};
pub use flow_control::StreamLimit;
pub use frame_type::FrameType;
pub use multipath::{
    PathAbandon, PathAck, PathCidsBlocked, PathNewConnectionId, PathRetireConnectionId, PathStatus,
    write_path_ack,
};
pub use read::Frames;
pub use stream::{ResetStream, StopSending, Stream};
pub use token::NewToken;
pub use unknown::UnknownFrame;

use crate::cursor::{BufferFull, Counter, Reader, Sink, Writer};
use crate::{Direction, PathId, StreamCount, VarInt};
use core::num::NonZeroUsize;
use flow_control::{read_stream_count, stream_count_fields};
use frame_type::TypeRange;
use multipath::{max_path_id_fields, read_path_id};

/// The frame types of all files.
const FAMILIES: &[&[TypeRange]] = &[
    stream::TYPES,
    ack::TYPES,
    signal::TYPES,
    crypto::TYPES,
    flow_control::TYPES,
    connection_id::TYPES,
    path::TYPES,
    close::TYPES,
    token::TYPES,
    datagram::TYPES,
    ack_frequency::TYPES,
    multipath::TYPES,
];

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

impl Frame<'_> {
    /// Returns the frame's type as on the wire, including its flags.
    pub fn frame_type(&self) -> FrameType {
        match self {
            Frame::Padding(_) => FrameType::PADDING,
            Frame::Ping => FrameType::PING,
            Frame::Ack(ack) => ack.frame_type(),
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
            Frame::ConnectionClose(close) => close.frame_type(),
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

    /// Returns the RFC's name of the frame. A frame of unknown type has the name `UNKNOWN`.
    pub fn name(&self) -> &'static str {
        match self {
            Frame::Unknown(_) => "UNKNOWN",
            frame => frame.frame_type().name().unwrap_or("UNKNOWN"),
        }
    }

    /// Returns the fields of the frame, as a log shows them.
    pub fn fields(&self) -> Fields<'_> {
        match self {
            Frame::Ping | Frame::HandshakeDone | Frame::ImmediateAck => Fields::NONE,
            Frame::Padding(count) => signal::padding_fields(*count),
            Frame::Ack(ack) => ack.fields(),
            Frame::ResetStream(reset) => reset.fields(),
            Frame::StopSending(stop) => stop.fields(),
            Frame::Crypto(crypto) => crypto.fields(),
            Frame::NewToken(token) => token.fields(),
            Frame::Stream(stream) => stream.fields(),
            Frame::MaxData(limit) => Fields::of([Field::integer("maximum", *limit)]),
            Frame::MaxStreamData(max) => max.fields("maximum"),
            Frame::MaxStreams(direction, count) => {
                stream_count_fields("maximum", *direction, *count)
            }
            Frame::DataBlocked(limit) => Fields::of([Field::integer("limit", *limit)]),
            Frame::StreamDataBlocked(blocked) => blocked.fields("limit"),
            Frame::StreamsBlocked(direction, count) => {
                stream_count_fields("limit", *direction, *count)
            }
            Frame::NewConnectionId(new) => new.fields(),
            Frame::RetireConnectionId(number) => {
                Fields::of([Field::integer("sequence_number", *number)])
            }
            Frame::PathChallenge(data) | Frame::PathResponse(data) => path::fields(data),
            Frame::ConnectionClose(close) => close.fields(),
            Frame::Datagram(datagram) => datagram.fields(),
            Frame::AckFrequency(frequency) => frequency.fields(),
            Frame::PathAck(ack) => ack.fields(),
            Frame::PathAbandon(abandon) => abandon.fields(),
            Frame::PathStatusAvailable(status) | Frame::PathStatusBackup(status) => status.fields(),
            Frame::PathNewConnectionId(new) => new.fields(),
            Frame::PathRetireConnectionId(retire) => retire.fields(),
            Frame::MaxPathId(id) | Frame::PathsBlocked(id) => max_path_id_fields(*id),
            Frame::PathCidsBlocked(blocked) => blocked.fields(),
            Frame::Unknown(unknown) => unknown.fields(),
        }
    }

    /// Returns the number of bytes that [`Frame::write`] writes.
    pub fn encoded_len(&self) -> usize {
        Counter::of(|counter| self.encode(counter))
    }

    /// Writes the frame. Integers take their shortest encoding. An exception are the ranges of an
    /// ACK frame that was received: they are copied unchanged.
    ///
    /// # Errors
    /// Fails if there is no room for the frame. Nothing is written then.
    pub fn write(&self, writer: &mut Writer<'_>) -> Result<(), BufferFull> {
        writer.atomically(|writer| self.encode(writer))
    }

    fn encode(&self, sink: &mut impl Sink) -> Result<(), BufferFull> {
        let frame_type = self.frame_type();
        match self {
            Frame::Padding(len) => sink.zeros(len.get()),
            Frame::Ping | Frame::HandshakeDone | Frame::ImmediateAck => sink.varint(frame_type.0),
            Frame::Ack(ack) => ack.encode(sink),
            Frame::ResetStream(reset) => reset.encode(sink),
            Frame::StopSending(stop) => stop.encode(sink),
            Frame::Crypto(crypto) => crypto.encode(sink),
            Frame::NewToken(token) => token.encode(sink),
            Frame::Stream(stream) => stream.encode(sink),
            Frame::MaxData(value)
            | Frame::DataBlocked(value)
            | Frame::RetireConnectionId(value) => write_varints(sink, [frame_type.0, *value]),
            Frame::MaxStreamData(limit) | Frame::StreamDataBlocked(limit) => {
                limit.encode(sink, frame_type)
            }
            Frame::MaxStreams(_, count) | Frame::StreamsBlocked(_, count) => {
                write_varints(sink, [frame_type.0, count.as_varint()])
            }
            Frame::NewConnectionId(new) => new.encode(sink),
            Frame::PathChallenge(data) | Frame::PathResponse(data) => {
                path::encode(sink, frame_type, data)
            }
            Frame::ConnectionClose(close) => close.encode(sink),
            Frame::Datagram(datagram) => datagram.encode(sink),
            Frame::AckFrequency(frequency) => frequency.encode(sink),
            Frame::PathAck(ack) => ack.encode(sink),
            Frame::PathAbandon(abandon) => abandon.encode(sink),
            Frame::PathStatusAvailable(status) | Frame::PathStatusBackup(status) => {
                status.encode(sink, frame_type)
            }
            Frame::PathNewConnectionId(new) => new.encode(sink),
            Frame::PathRetireConnectionId(retire) => retire.encode(sink),
            Frame::MaxPathId(path_id) | Frame::PathsBlocked(path_id) => {
                write_varints(sink, [frame_type.0, path_id.as_varint()])
            }
            Frame::PathCidsBlocked(blocked) => blocked.encode(sink),
            Frame::Unknown(unknown) => unknown.encode(sink),
        }
    }
}

impl<'a> Frame<'a> {
    /// Reads the content of a frame of this type.
    fn read_fields(
        reader: &mut Reader<'a>,
        frame_type: FrameType,
    ) -> Result<Frame<'a>, FrameErrorKind> {
        Ok(match frame_type.0.get() {
            signal::number::PADDING => Frame::Padding(signal::read_padding(reader)),
            signal::number::PING => Frame::Ping,
            ack::number::ACK => Frame::Ack(Ack::read_fields(reader, false)?),
            ack::number::ACK_ECN => Frame::Ack(Ack::read_fields(reader, true)?),
            stream::number::RESET_STREAM => Frame::ResetStream(ResetStream::read(reader)?),
            stream::number::STOP_SENDING => Frame::StopSending(StopSending::read(reader)?),
            crypto::number::CRYPTO => Frame::Crypto(Crypto::read(reader)?),
            token::number::NEW_TOKEN => Frame::NewToken(NewToken::read(reader)?),
            number @ stream::STREAM..=stream::STREAM_LAST => {
                Frame::Stream(Stream::read(reader, number)?)
            }
            flow_control::number::MAX_DATA => Frame::MaxData(reader.varint()?),
            flow_control::number::MAX_STREAM_DATA => {
                Frame::MaxStreamData(StreamLimit::read(reader)?)
            }
            flow_control::number::MAX_STREAMS_BIDI => {
                Frame::MaxStreams(Direction::Bidirectional, read_stream_count(reader)?)
            }
            flow_control::number::MAX_STREAMS_UNI => {
                Frame::MaxStreams(Direction::Unidirectional, read_stream_count(reader)?)
            }
            flow_control::number::DATA_BLOCKED => Frame::DataBlocked(reader.varint()?),
            flow_control::number::STREAM_DATA_BLOCKED => {
                Frame::StreamDataBlocked(StreamLimit::read(reader)?)
            }
            flow_control::number::STREAMS_BLOCKED_BIDI => {
                Frame::StreamsBlocked(Direction::Bidirectional, read_stream_count(reader)?)
            }
            flow_control::number::STREAMS_BLOCKED_UNI => {
                Frame::StreamsBlocked(Direction::Unidirectional, read_stream_count(reader)?)
            }
            connection_id::number::NEW_CONNECTION_ID => {
                Frame::NewConnectionId(NewConnectionId::read(reader)?)
            }
            connection_id::number::RETIRE_CONNECTION_ID => {
                Frame::RetireConnectionId(reader.varint()?)
            }
            path::number::PATH_CHALLENGE => Frame::PathChallenge(*reader.array()?),
            path::number::PATH_RESPONSE => Frame::PathResponse(*reader.array()?),
            close::number::CONNECTION_CLOSE => {
                Frame::ConnectionClose(ConnectionClose::read_transport(reader)?)
            }
            close::number::CONNECTION_CLOSE_APPLICATION => {
                Frame::ConnectionClose(ConnectionClose::read_application(reader)?)
            }
            signal::number::HANDSHAKE_DONE => Frame::HandshakeDone,
            datagram::number::DATAGRAM => Frame::Datagram(DatagramFrame::read(reader, true)?),
            datagram::number::DATAGRAM_LEN => Frame::Datagram(DatagramFrame::read(reader, false)?),
            ack_frequency::number::ACK_FREQUENCY => {
                Frame::AckFrequency(AckFrequency::read(reader)?)
            }
            ack_frequency::number::IMMEDIATE_ACK => Frame::ImmediateAck,
            _ if frame_type.is_multipath() => return Frame::read_multipath(reader, frame_type),
            _ => Frame::Unknown(UnknownFrame { frame_type, rest: reader.take_rest() }),
        })
    }

    /// Reads the fields of a multipath frame (RFC 10069).
    fn read_multipath(
        reader: &mut Reader<'a>,
        frame_type: FrameType,
    ) -> Result<Frame<'a>, FrameErrorKind> {
        Ok(match frame_type.0.get() {
            multipath::number::PATH_ACK => Frame::PathAck(PathAck::read(reader, false)?),
            multipath::number::PATH_ACK_ECN => Frame::PathAck(PathAck::read(reader, true)?),
            multipath::number::PATH_ABANDON => Frame::PathAbandon(PathAbandon::read(reader)?),
            multipath::number::PATH_STATUS_AVAILABLE => {
                Frame::PathStatusAvailable(PathStatus::read(reader)?)
            }
            multipath::number::PATH_STATUS_BACKUP => {
                Frame::PathStatusBackup(PathStatus::read(reader)?)
            }
            multipath::number::PATH_NEW_CONNECTION_ID => {
                Frame::PathNewConnectionId(PathNewConnectionId::read(reader)?)
            }
            multipath::number::PATH_RETIRE_CONNECTION_ID => {
                Frame::PathRetireConnectionId(PathRetireConnectionId::read(reader)?)
            }
            multipath::number::MAX_PATH_ID => Frame::MaxPathId(read_path_id(reader)?),
            multipath::number::PATHS_BLOCKED => Frame::PathsBlocked(read_path_id(reader)?),
            multipath::number::PATH_CIDS_BLOCKED => {
                Frame::PathCidsBlocked(PathCidsBlocked::read(reader)?)
            }
            _ => Frame::Unknown(UnknownFrame { frame_type, rest: reader.take_rest() }),
        })
    }
}

/// Writes a sequence of integers.
fn write_varints<const N: usize>(
    sink: &mut impl Sink,
    values: [VarInt; N],
) -> Result<(), BufferFull> {
    values.into_iter().try_for_each(|value| sink.varint(value))
}
