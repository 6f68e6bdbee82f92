//! Frames that change how often the peer acknowledges: ACK_FREQUENCY and IMMEDIATE_ACK
//! (draft-ietf-quic-ack-frequency s.4, s.5).

use super::field::{Field, FieldValue, Fields};
use super::{FrameErrorKind, FrameType, write_varints};
use crate::VarInt;
use crate::cursor::{BufferFull, Reader, Sink};
use core::time::Duration;

frame_types! {
    /// IMMEDIATE_ACK (draft-ietf-quic-ack-frequency s.5).
    IMMEDIATE_ACK = 0x1f, "IMMEDIATE_ACK", Rules::USUAL.packets(IN_ONE_RTT);
    /// ACK_FREQUENCY (draft-ietf-quic-ack-frequency s.4).
    ACK_FREQUENCY = 0xaf, "ACK_FREQUENCY", Rules::USUAL.packets(IN_ONE_RTT);
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

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, FrameErrorKind> {
        Ok(AckFrequency {
            sequence_number: reader.varint()?,
            ack_eliciting_threshold: reader.varint()?,
            requested_max_ack_delay_us: reader.varint()?,
            reordering_threshold: reader.varint()?,
        })
    }

    pub(super) fn encode(&self, sink: &mut impl Sink) -> Result<(), BufferFull> {
        let values = [
            FrameType::ACK_FREQUENCY.0,
            self.sequence_number,
            self.ack_eliciting_threshold,
            self.requested_max_ack_delay_us,
            self.reordering_threshold,
        ];
        write_varints(sink, values)
    }

    /// Returns the fields, with the names in the figure of the draft. No qlog draft names them.
    pub(super) fn fields(&self) -> Fields<'static> {
        let delay = FieldValue::Duration(self.requested_max_ack_delay());
        Fields::of([
            Field::integer("sequence_number", self.sequence_number).hidden(),
            Field::integer("ack_eliciting_threshold", self.ack_eliciting_threshold)
                .with_unit("packets"),
            Field::new("requested_max_ack_delay", delay),
            Field::integer("reordering_threshold", self.reordering_threshold).hidden(),
        ])
    }
}
