//! Frames of multipath QUIC (RFC 10069 s.4). They are sent only in 1-RTT packets, and only if both
//! endpoints have sent the transport parameter initial_max_path_id.

use super::ack::{Ack, AckRange, EcnCounts, WrittenAck, write_ack_of};
use super::{FrameErrorKind, FrameType, NewConnectionId};
use crate::cursor::{BufferFull, Reader, Sink, Writer};
use crate::{PathId, TransportErrorCode, VarInt};

/// A PATH_ACK frame (RFC 10069 s.4.1): an ACK frame for the packet numbers of one path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathAck<'a> {
    /// The path on which the acknowledged packets were sent.
    pub path_id: PathId,
    /// All other fields, as in an ACK frame.
    pub ack: Ack<'a>,
}

/// A PATH_ABANDON frame (RFC 10069 s.4.2): the sender will send no more packets on the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathAbandon {
    /// The abandoned path.
    pub path_id: PathId,
    /// Reason for abandoning the path.
    pub error_code: TransportErrorCode,
}

/// The fields of a PATH_STATUS_AVAILABLE or PATH_STATUS_BACKUP frame (RFC 10069 s.4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathStatus {
    /// The path whose status the sender reports.
    pub path_id: PathId,
    /// Sequence number of the status. The receiver ignores the frame if it has already received a
    /// status frame of either type for this path with the same or a larger number.
    pub sequence_number: VarInt,
}

/// A PATH_NEW_CONNECTION_ID frame (RFC 10069 s.4.4): another connection ID that the peer may use on
/// one path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathNewConnectionId {
    /// The path on which the connection ID may be used. It may not be used on other paths.
    pub path_id: PathId,
    /// All other fields, as in a NEW_CONNECTION_ID frame. Each path counts its own sequence
    /// numbers.
    pub new: NewConnectionId,
}

/// A PATH_RETIRE_CONNECTION_ID frame (RFC 10069 s.4.5): the sender will no longer use the
/// connection ID with this sequence number on the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathRetireConnectionId {
    /// The path whose connection ID is retired.
    pub path_id: PathId,
    /// The sequence number of the retired connection ID on this path.
    pub sequence_number: VarInt,
}

/// A PATH_CIDS_BLOCKED frame (RFC 10069 s.4.7): the sender needs an unused connection ID to open
/// the path or to change the ID on it, and has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathCidsBlocked {
    /// The path without an unused connection ID.
    pub path_id: PathId,
    /// The sequence number that the sender expects of the next connection ID for the path.
    pub next_sequence_number: VarInt,
}

impl<'a> PathAck<'a> {
    pub(super) fn read(reader: &mut Reader<'a>, with_ecn: bool) -> Result<Self, FrameErrorKind> {
        Ok(PathAck { path_id: read_path_id(reader)?, ack: Ack::read_fields(reader, with_ecn)? })
    }

    pub(super) fn frame_type(&self) -> FrameType {
        if self.ack.ecn().is_some() { FrameType::PATH_ACK_ECN } else { FrameType::PATH_ACK }
    }

    pub(super) fn encode(&self, sink: &mut impl Sink) -> Result<(), BufferFull> {
        sink.varint(self.frame_type().0)?;
        sink.varint(self.path_id.as_varint())?;
        self.ack.encode_fields(sink)
    }
}

impl PathAbandon {
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, FrameErrorKind> {
        let path_id = read_path_id(reader)?;
        Ok(PathAbandon { path_id, error_code: TransportErrorCode(reader.varint()?) })
    }
}

impl PathStatus {
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, FrameErrorKind> {
        Ok(PathStatus { path_id: read_path_id(reader)?, sequence_number: reader.varint()? })
    }
}

impl PathNewConnectionId {
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, FrameErrorKind> {
        Ok(PathNewConnectionId {
            path_id: read_path_id(reader)?,
            new: NewConnectionId::read(reader)?,
        })
    }

    pub(super) fn encode(&self, sink: &mut impl Sink) -> Result<(), BufferFull> {
        sink.varint(FrameType::PATH_NEW_CONNECTION_ID.0)?;
        sink.varint(self.path_id.as_varint())?;
        self.new.encode_fields(sink)
    }
}

impl PathRetireConnectionId {
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, FrameErrorKind> {
        let path_id = read_path_id(reader)?;
        Ok(PathRetireConnectionId { path_id, sequence_number: reader.varint()? })
    }
}

impl PathCidsBlocked {
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, FrameErrorKind> {
        let path_id = read_path_id(reader)?;
        Ok(PathCidsBlocked { path_id, next_sequence_number: reader.varint()? })
    }
}

/// Reads a path ID. A value above 2^32-1 is an error, because it exceeds every possible limit (RFC
/// 10069 s.4, s.4.6).
pub(super) fn read_path_id(reader: &mut Reader<'_>) -> Result<PathId, FrameErrorKind> {
    PathId::from_varint(reader.varint()?).ok_or(FrameErrorKind::PathIdTooLarge)
}

/// Writes a PATH_ACK frame for the packets of one path. The requirements are those of
/// [`write_ack`](super::write_ack).
///
/// # Errors
/// Fails if `ranges` is empty, or if not even the first range fits. Nothing is written then.
pub fn write_path_ack(
    writer: &mut Writer<'_>,
    path_id: PathId,
    ranges: impl IntoIterator<Item = AckRange, IntoIter: Clone>,
    delay: VarInt,
    ecn: Option<EcnCounts>,
) -> Result<WrittenAck, BufferFull> {
    write_ack_of(writer, Some(path_id), ranges, delay, ecn)
}
