//! Frames that issue and retire connection IDs: NEW_CONNECTION_ID and RETIRE_CONNECTION_ID (RFC
//! 9000 s.19.15, s.19.16).

use super::field::{Field, FieldValue, Fields};
use super::{FrameErrorKind, FrameType};
use crate::cursor::{BufferFull, Reader, Sink};
use crate::{ConnectionId, ResetToken, VarInt};

frame_types! {
    /// NEW_CONNECTION_ID.
    NEW_CONNECTION_ID = 0x18, "NEW_CONNECTION_ID", Rules::USUAL.with(PROBING);
    // RFC 9000 table 3 and s.12.5 contradict each other: this code follows s.12.5, because a client
    // has no connection ID to retire in 0-RTT.
    /// RETIRE_CONNECTION_ID.
    RETIRE_CONNECTION_ID = 0x19, "RETIRE_CONNECTION_ID", Rules::USUAL.packets(IN_ONE_RTT);
}

/// A NEW_CONNECTION_ID frame (RFC 9000 s.19.15). Its ID is not empty, and `retire_prior_to` does
/// not exceed `sequence_number`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewConnectionId {
    sequence_number: VarInt,
    retire_prior_to: VarInt,
    connection_id: ConnectionId,
    reset_token: ResetToken,
}

impl NewConnectionId {
    /// Creates a frame. Returns `None` if the ID is empty, or if `retire_prior_to` is larger than
    /// `sequence_number`.
    pub fn new(
        sequence_number: VarInt,
        retire_prior_to: VarInt,
        connection_id: ConnectionId,
        reset_token: ResetToken,
    ) -> Option<Self> {
        let legal = !connection_id.is_empty() && retire_prior_to <= sequence_number;
        legal.then_some(NewConnectionId {
            sequence_number,
            retire_prior_to,
            connection_id,
            reset_token,
        })
    }

    /// The sequence number of the new connection ID.
    pub const fn sequence_number(&self) -> VarInt {
        self.sequence_number
    }

    /// The peer must retire all connection IDs whose sequence number is smaller than this.
    pub const fn retire_prior_to(&self) -> VarInt {
        self.retire_prior_to
    }

    /// The connection ID, of 1 to 20 bytes.
    pub const fn connection_id(&self) -> ConnectionId {
        self.connection_id
    }

    /// The stateless reset token of the new connection ID.
    pub const fn reset_token(&self) -> ResetToken {
        self.reset_token
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, FrameErrorKind> {
        let sequence_number = reader.varint()?;
        let retire_prior_to = reader.varint()?;
        let len = reader.u8()?;
        // The length is checked before the ID is read. So an invalid length is reported as such,
        // even if the bytes end inside the ID.
        if len == 0 || usize::from(len) > ConnectionId::MAX_LEN {
            return Err(FrameErrorKind::ConnectionIdLength);
        }
        let connection_id = ConnectionId::new(reader.bytes(len.into())?)
            .map_err(|_| FrameErrorKind::ConnectionIdLength)?;
        let reset_token = ResetToken(*reader.array()?);
        NewConnectionId::new(sequence_number, retire_prior_to, connection_id, reset_token)
            .ok_or(FrameErrorKind::RetirePriorTo)
    }

    pub(super) fn encode(&self, sink: &mut impl Sink) -> Result<(), BufferFull> {
        sink.varint(FrameType::NEW_CONNECTION_ID.0)?;
        self.encode_fields(sink)
    }

    /// Writes all fields of the frame after its type. A PATH_NEW_CONNECTION_ID frame has the same
    /// fields after its path ID.
    pub(super) fn encode_fields(&self, sink: &mut impl Sink) -> Result<(), BufferFull> {
        sink.varint(self.sequence_number)?;
        sink.varint(self.retire_prior_to)?;
        sink.u8(self.connection_id.len_byte())?;
        sink.bytes(self.connection_id.as_bytes())?;
        sink.bytes(&self.reset_token.0)
    }

    /// Returns the fields, without the secret stateless reset token.
    pub(super) fn fields(&self) -> Fields<'static> {
        Fields::of([
            Field::integer("sequence_number", self.sequence_number),
            Field::integer("retire_prior_to", self.retire_prior_to).hidden(),
            Field::new("connection_id", FieldValue::ConnectionId(self.connection_id)),
        ])
    }
}
