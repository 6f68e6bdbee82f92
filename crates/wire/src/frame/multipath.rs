//! Frames of multipath QUIC (RFC 10069 s.4). They are sent only in 1-RTT packets, and only if both
//! endpoints have sent the transport parameter initial_max_path_id.

use super::ack::{Ack, AckRange, EcnCounts, WrittenAck, write_ack_of};
use super::field::{Field, FieldValue, Fields};
use super::{FrameErrorKind, FrameType, NewConnectionId, write_varints};
use crate::cursor::{BufferFull, Reader, Sink, Writer};
use crate::{PathId, TransportErrorCode, VarInt};

/// Rules of all these frames: they are sent only in 1-RTT packets.
const MULTIPATH_RULES: Rules = Rules::USUAL.packets(IN_ONE_RTT);

frame_types! {
    /// PATH_ACK without ECN counts (RFC 10069 s.4.1).
    PATH_ACK = 0x3e, "PATH_ACK", MULTIPATH_RULES.with(NOT_ELICITING);
    /// PATH_ACK with ECN counts (RFC 10069 s.4.1).
    PATH_ACK_ECN = 0x3f, "PATH_ACK", MULTIPATH_RULES.with(NOT_ELICITING);
    /// PATH_ABANDON (RFC 10069 s.4.2).
    PATH_ABANDON = 0x3e75, "PATH_ABANDON", MULTIPATH_RULES;
    /// PATH_STATUS_BACKUP (RFC 10069 s.4.3).
    PATH_STATUS_BACKUP = 0x3e76, "PATH_STATUS_BACKUP", MULTIPATH_RULES;
    /// PATH_STATUS_AVAILABLE (RFC 10069 s.4.3).
    PATH_STATUS_AVAILABLE = 0x3e77, "PATH_STATUS_AVAILABLE", MULTIPATH_RULES;
    /// PATH_NEW_CONNECTION_ID (RFC 10069 s.4.4).
    PATH_NEW_CONNECTION_ID = 0x3e78, "PATH_NEW_CONNECTION_ID", MULTIPATH_RULES;
    /// PATH_RETIRE_CONNECTION_ID (RFC 10069 s.4.5).
    PATH_RETIRE_CONNECTION_ID = 0x3e79, "PATH_RETIRE_CONNECTION_ID", MULTIPATH_RULES;
    /// MAX_PATH_ID (RFC 10069 s.4.6).
    MAX_PATH_ID = 0x3e7a, "MAX_PATH_ID", MULTIPATH_RULES;
    /// PATHS_BLOCKED (RFC 10069 s.4.7).
    PATHS_BLOCKED = 0x3e7b, "PATHS_BLOCKED", MULTIPATH_RULES;
    /// PATH_CIDS_BLOCKED (RFC 10069 s.4.7).
    PATH_CIDS_BLOCKED = 0x3e7c, "PATH_CIDS_BLOCKED", MULTIPATH_RULES;
}

impl FrameType {
    /// Returns `true` for a frame type of multipath QUIC. An endpoint may send such a frame only if
    /// both endpoints have sent initial_max_path_id (RFC 10069 s.2).
    pub const fn is_multipath(self) -> bool {
        matches!(
            self.0.get(),
            number::PATH_ACK | number::PATH_ACK_ECN | number::PATH_ABANDON
                ..=number::PATH_CIDS_BLOCKED
        )
    }
}

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

    pub(super) fn fields(&self) -> Fields<'a> {
        let ack = FieldValue::Ack(self.ack);
        Fields::of([path_id(self.path_id), Field::new("acked_ranges", ack)])
    }
}

impl PathAbandon {
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, FrameErrorKind> {
        let path_id = read_path_id(reader)?;
        Ok(PathAbandon { path_id, error_code: TransportErrorCode(reader.varint()?) })
    }

    pub(super) fn encode(&self, sink: &mut impl Sink) -> Result<(), BufferFull> {
        let frame_type = FrameType::PATH_ABANDON.0;
        write_varints(sink, [frame_type, self.path_id.as_varint(), self.error_code.0])
    }

    pub(super) fn fields(&self) -> Fields<'static> {
        let error = FieldValue::ErrorCode(self.error_code);
        Fields::of([path_id(self.path_id), Field::new("error_code", error)])
    }
}

impl PathStatus {
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, FrameErrorKind> {
        Ok(PathStatus { path_id: read_path_id(reader)?, sequence_number: reader.varint()? })
    }

    pub(super) fn encode(
        &self,
        sink: &mut impl Sink,
        frame_type: FrameType,
    ) -> Result<(), BufferFull> {
        write_varints(sink, [frame_type.0, self.path_id.as_varint(), self.sequence_number])
    }

    pub(super) fn fields(&self) -> Fields<'static> {
        let number = Field::integer("path_status_sequence_number", self.sequence_number);
        Fields::of([path_id(self.path_id), number])
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

    pub(super) fn fields(&self) -> Fields<'static> {
        let mut fields = Fields::of([path_id(self.path_id)]);
        self.new.fields().for_each(|field| fields.push(field));
        fields
    }
}

impl PathRetireConnectionId {
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, FrameErrorKind> {
        let path_id = read_path_id(reader)?;
        Ok(PathRetireConnectionId { path_id, sequence_number: reader.varint()? })
    }

    pub(super) fn encode(&self, sink: &mut impl Sink) -> Result<(), BufferFull> {
        let frame_type = FrameType::PATH_RETIRE_CONNECTION_ID.0;
        write_varints(sink, [frame_type, self.path_id.as_varint(), self.sequence_number])
    }

    pub(super) fn fields(&self) -> Fields<'static> {
        let number = Field::integer("sequence_number", self.sequence_number);
        Fields::of([path_id(self.path_id), number])
    }
}

impl PathCidsBlocked {
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, FrameErrorKind> {
        let path_id = read_path_id(reader)?;
        Ok(PathCidsBlocked { path_id, next_sequence_number: reader.varint()? })
    }

    pub(super) fn encode(&self, sink: &mut impl Sink) -> Result<(), BufferFull> {
        let frame_type = FrameType::PATH_CIDS_BLOCKED.0;
        write_varints(sink, [frame_type, self.path_id.as_varint(), self.next_sequence_number])
    }

    pub(super) fn fields(&self) -> Fields<'static> {
        let number = Field::integer("next_sequence_number", self.next_sequence_number);
        Fields::of([path_id(self.path_id), number])
    }
}

/// Reads a path ID. A value above 2^32-1 is an error, because it exceeds every possible limit (RFC
/// 10069 s.4, s.4.6).
pub(super) fn read_path_id(reader: &mut Reader<'_>) -> Result<PathId, FrameErrorKind> {
    PathId::from_varint(reader.varint()?).ok_or(FrameErrorKind::PathIdTooLarge)
}

fn path_id(id: PathId) -> Field<'static> {
    Field::new("path_id", FieldValue::PathId(id))
}

/// Returns the field of a MAX_PATH_ID or PATHS_BLOCKED frame.
pub(super) fn max_path_id_fields(id: PathId) -> Fields<'static> {
    Fields::of([Field::new("maximum_path_id", FieldValue::PathId(id))])
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
