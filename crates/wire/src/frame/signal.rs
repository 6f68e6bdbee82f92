//! Frames without content: PADDING, PING and HANDSHAKE_DONE (RFC 9000 s.19.1, s.19.2, s.19.20).

use super::FrameType;
use super::field::{Field, FieldValue, Fields};
use crate::VarInt;
use crate::cursor::Reader;
use core::num::NonZeroUsize;

frame_types! {
    /// PADDING.
    PADDING = 0x00, "PADDING",
        Rules::USUAL.packets(IN_ALL).with(NOT_ELICITING | PROBING);
    /// PING.
    PING = 0x01, "PING", Rules::USUAL.packets(IN_ALL);
    /// HANDSHAKE_DONE.
    HANDSHAKE_DONE = 0x1e, "HANDSHAKE_DONE", Rules::USUAL.packets(IN_ONE_RTT).with(SERVER_ONLY);
}

/// Reads all zero bytes that follow a PADDING frame, which are PADDING frames too. Returns the
/// number of PADDING frames, including the first.
pub(super) fn read_padding(reader: &mut Reader<'_>) -> NonZeroUsize {
    // Compares 16 bytes at a time, because a large part of a packet may be padding.
    let (chunks, _) = reader.rest().as_chunks::<16>();
    let zero_chunks = chunks.iter().take_while(|chunk| u128::from_ne_bytes(**chunk) == 0).count();
    let before = reader.len();
    let _ = reader.bytes(zero_chunks.saturating_mul(16));
    let rest = reader.rest();
    let zeros = rest.iter().take_while(|byte| **byte == 0).count();
    let _ = reader.bytes(zeros);
    NonZeroUsize::MIN.saturating_add(before.saturating_sub(reader.len()))
}

pub(super) fn padding_fields(count: NonZeroUsize) -> Fields<'static> {
    Fields::of([Field::new("raw", FieldValue::PayloadLength(count.get() as u64))])
}
