//! Frames of multipath QUIC (RFC 10069 s.4). They are sent only in 1-RTT packets, and only if both
//! endpoints have sent the transport parameter initial_max_path_id.

use super::ack::{Ack, AckRange, EcnCounts, WrittenAck, write_ack_of};
use super::{FrameErrorKind, FrameType, NewConnectionId};
use crate::cursor::{BufferFull, Reader, Sink, Writer};
use crate::{PathId, TransportErrorCode, VarInt};

/// PATH_ACK (RFC 10069 s.4.1): an ACK frame for the packet numbers of one path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathAck<'a> {
    /// The path on which the acknowledged packets were sent.
    pub path_id: PathId,
    /// All other fields, as in an ACK frame.
    pub ack: Ack<'a>,
}

/// PATH_ABANDON (RFC 10069 s.4.2): the sender will not send another packet on the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathAbandon {
    /// The abandoned path.
    pub path_id: PathId,
    /// Reason for abandoning the path.
    pub error_code: TransportErrorCode,
}

/// PATH_STATUS_AVAILABLE or PATH_STATUS_BACKUP (RFC 10069 s.4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathStatus {
    /// The path whose status the sender reports.
    pub path_id: PathId,
    /// The receiver ignores a status frame of either type if it has already received one for this
    /// path with the same or a larger number.
    pub sequence_number: VarInt,
}

/// PATH_NEW_CONNECTION_ID (RFC 10069 s.4.4): another connection ID for the peer to use on one path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathNewConnectionId {
    /// The only path on which the ID may be used.
    pub path_id: PathId,
    /// All other fields, as in a NEW_CONNECTION_ID frame. Each path has sequence numbers of its
    /// own.
    pub new: NewConnectionId,
}

/// PATH_RETIRE_CONNECTION_ID (RFC 10069 s.4.5): the sender will not use the connection ID with this
/// sequence number again on the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathRetireConnectionId {
    /// The path that the ID is for.
    pub path_id: PathId,
    /// The ID's sequence number on this path.
    pub sequence_number: VarInt,
}

/// PATH_CIDS_BLOCKED (RFC 10069 s.4.7): the sender has no unused connection ID to open the path or
/// to change its ID there.
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

/// Reads a path ID. Values above 2^32-1 are rejected because they exceed every possible limit (RFC
/// 10069 s.4, s.4.6).
pub(super) fn read_path_id(reader: &mut Reader<'_>) -> Result<PathId, FrameErrorKind> {
    PathId::from_varint(reader.varint()?).ok_or(FrameErrorKind::PathIdTooLarge)
}

/// Writes a PATH_ACK frame for the packets of one path. The rules of
/// [`write_ack`](super::write_ack) apply.
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
