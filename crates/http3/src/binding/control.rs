//! Checks the frames of a control stream (RFC 9114 s.6.2.1) and the instructions on the two QPACK
//! streams.

use std::collections::BTreeSet;

use equic_wire::{Reader, Side};

use super::frames::{CANCEL_PUSH, GOAWAY, MAX_PUSH_ID, SETTINGS};
use super::violation::Violation;

/// Largest payload of a frame on the control stream, in bytes. It has room for SETTINGS with a few
/// hundred settings.
pub(super) const LONGEST: usize = 4096;

/// The control stream of the peer.
#[derive(Debug)]
pub(super) struct Control {
    /// The side of the connection that this endpoint is on.
    side: Side,
    settings: bool,
    max_push_id: Option<u64>,
    goaway: Option<u64>,
}

impl Control {
    pub(super) fn new(side: Side) -> Control {
        Control { side, settings: false, max_push_id: None, goaway: None }
    }

    /// Checks that a frame of this type is permitted at this point. Returns `true` if its payload
    /// must be read.
    pub(super) fn may_begin(&self, frame: u64) -> Result<bool, Violation> {
        match (frame, self.settings) {
            (SETTINGS, false) => Ok(true),
            // RFC 9114 s.7.2.4: a second SETTINGS frame is an error.
            (SETTINGS, true) => Err(Violation::SecondSettings),
            // RFC 9114 s.6.2.1: the first frame must be SETTINGS.
            (_, false) => Err(Violation::MissingSettings),
            // RFC 9114 s.7.2.7: only clients may send MAX_PUSH_ID.
            (MAX_PUSH_ID, _) if self.side == Side::Client => Err(Violation::MaxPushIdFromServer),
            (GOAWAY | MAX_PUSH_ID | CANCEL_PUSH, _) => Ok(true),
            // RFC 9114 s.7.2.1, s.7.2.2, s.7.2.5: DATA, HEADERS and PUSH_PROMISE are not permitted
            // on the control stream.
            (0x0 | 0x1 | 0x5, _) => Err(Violation::FrameOnControlStream),
            _ => Ok(false),
        }
    }

    /// Returns the lowest stream ID that the server's GOAWAY frames have named, or `None` if there
    /// was no GOAWAY. The server processes no request from this ID on.
    pub(super) fn refused_from(&self) -> Option<u64> {
        self.goaway.filter(|_| self.side == Side::Client)
    }

    /// Processes a complete frame. Returns `true` if the frame must be forwarded to `h3`.
    pub(super) fn take(&mut self, frame: u64, payload: &[u8]) -> Result<bool, Violation> {
        match frame {
            SETTINGS => {
                self.settings = true;
                settings(payload).map(|()| true)
            }
            GOAWAY => {
                let id = only_id(payload)?;
                // RFC 9114 s.5.2: the ID must not be larger than that of an earlier GOAWAY.
                if self.goaway.is_some_and(|before| id > before) {
                    return Err(Violation::GoawayIncreased);
                }
                // RFC 9114 s.7.2.6: the ID in a server's GOAWAY must be that of a request stream.
                if self.side == Side::Client && id % 4 != 0 {
                    return Err(Violation::GoawayStream);
                }
                let first = self.goaway.replace(id) != Some(id);
                // A client's GOAWAY is not forwarded to `h3`. Otherwise `h3` would answer with a
                // GOAWAY that names the last request that it serves, instead of the first one that
                // it rejects.
                Ok(first && self.side == Side::Client)
            }
            MAX_PUSH_ID => {
                let id = only_id(payload)?;
                // RFC 9114 s.7.2.7: MAX_PUSH_ID must not decrease.
                if self.max_push_id.is_some_and(|before| id < before) {
                    return Err(Violation::MaxPushIdReduced);
                }
                self.max_push_id = Some(id);
                Ok(false)
            }
            // RFC 9114 s.7.2.3: the frame is CANCEL_PUSH, but this endpoint neither pushes nor
            // permits a push.
            _ => {
                only_id(payload)?;
                Err(Violation::UnknownPushId)
            }
        }
    }
}

/// Reads the payload of a frame that has an ID as its only field. A payload that is shorter or
/// longer is an error (RFC 9114 s.7.1).
fn only_id(payload: &[u8]) -> Result<u64, Violation> {
    let mut reader = Reader::new(payload);
    match reader.varint() {
        Ok(id) if reader.is_empty() => Ok(id.get()),
        _ => Err(Violation::FrameLength),
    }
}

fn settings(payload: &[u8]) -> Result<(), Violation> {
    let mut reader = Reader::new(payload);
    let mut seen = BTreeSet::new();
    while !reader.is_empty() {
        let (Ok(id), Ok(_)) = (reader.varint(), reader.varint()) else {
            return Err(Violation::TruncatedSettings);
        };
        // RFC 9114 s.7.2.4.1, s.11.2.2: these settings belong to HTTP/2 and must not be sent.
        if matches!(id.get(), 0x0 | 0x2..=0x5) {
            return Err(Violation::Http2Setting);
        }
        // RFC 9114 s.7.2.4: a setting must not occur twice.
        if !seen.insert(id.get()) {
            return Err(Violation::DuplicateSetting);
        }
    }
    Ok(())
}

/// The peer's QPACK encoder or decoder stream (RFC 9204 s.4.2). This endpoint neither accepts nor
/// uses a dynamic table.
#[derive(Debug)]
pub(super) enum Qpack {
    Encoder,
    /// The decoder stream. The value is `Some(count)` if the stream has so far delivered only the
    /// beginning of a Stream Cancellation instruction: `count` bytes of its stream ID after the
    /// first byte. It is `None` between instructions.
    Decoder(Option<u8>),
}

impl Qpack {
    /// Checks the next bytes of a QPACK instruction stream.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Result<(), Violation> {
        bytes.iter().try_for_each(|byte| self.take_byte(*byte))
    }

    fn take_byte(&mut self, byte: u8) -> Result<(), Violation> {
        match self {
            // RFC 9204 s.4.3.1: this instruction sets the capacity of the dynamic table to zero.
            // All other encoder instructions need a capacity above zero.
            Qpack::Encoder if byte == 0x20 => Ok(()),
            Qpack::Encoder => Err(Violation::EncoderInstruction),
            // RFC 9204 s.4.4.2: the instruction is Stream Cancellation. Its stream ID has at most
            // 62 bits.
            Qpack::Decoder(more @ None) if byte & 0xc0 == 0x40 => {
                *more = (byte & 0x3f == 0x3f).then_some(0);
                Ok(())
            }
            Qpack::Decoder(Some(count)) if *count < 9 => {
                *self = Qpack::Decoder((byte & 0x80 != 0).then_some(*count + 1));
                Ok(())
            }
            // RFC 9204 s.4.4.1, s.4.4.3: these instructions acknowledge entries of the dynamic
            // table, and this endpoint never inserts any.
            Qpack::Decoder(_) => Err(Violation::DecoderInstruction),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // RFC 9114 s.6.2.1 #2, s.7.2.1 #2, s.7.2.4 #2, s.7.2.5 #8, s.9 #3
    #[test]
    fn settings_come_first_and_once() {
        let mut control = Control::new(Side::Server);
        assert_eq!(control.may_begin(GOAWAY), Err(Violation::MissingSettings));
        assert_eq!(control.may_begin(0x21), Err(Violation::MissingSettings));
        assert_eq!(control.may_begin(SETTINGS), Ok(true));
        assert_eq!(control.take(SETTINGS, &[6, 1, 0x21, 2]), Ok(true));
        assert_eq!(control.may_begin(SETTINGS), Err(Violation::SecondSettings));
        for frame in [0, 1, 5] {
            assert_eq!(control.may_begin(frame), Err(Violation::FrameOnControlStream));
        }
        assert_eq!(control.may_begin(0x21), Ok(false));
    }

    // RFC 9114 s.7.2.4 #5, s.7.2.4.1 #3
    #[test]
    fn settings_are_checked() {
        for (payload, expected) in [
            (&[6][..], Violation::TruncatedSettings),
            (&[6, 1, 6, 1], Violation::DuplicateSetting),
            (&[2, 0], Violation::Http2Setting),
        ] {
            assert_eq!(settings(payload), Err(expected), "{payload:?}");
        }
    }

    // RFC 9114 s.5.2 #6, s.7.1 #2 #3, s.7.2.3 #7 #8, s.7.2.6 #1, s.7.2.7 #3 #4, s.10.8 #1
    #[test]
    fn goaway_and_push_ids_change_in_one_direction_only() {
        let mut server = Control::new(Side::Server);
        assert_eq!(server.take(GOAWAY, &[9]), Ok(false));
        assert_eq!(server.take(GOAWAY, &[9]), Ok(false));
        assert_eq!(server.take(GOAWAY, &[10]), Err(Violation::GoawayIncreased));
        assert_eq!(server.take(GOAWAY, &[]), Err(Violation::FrameLength));
        assert_eq!(server.take(GOAWAY, &[1, 1]), Err(Violation::FrameLength));
        assert_eq!(server.take(MAX_PUSH_ID, &[7]), Ok(false));
        assert_eq!(server.take(MAX_PUSH_ID, &[7]), Ok(false));
        assert_eq!(server.take(MAX_PUSH_ID, &[6]), Err(Violation::MaxPushIdReduced));
        assert_eq!(server.take(CANCEL_PUSH, &[0]), Err(Violation::UnknownPushId));
        assert_eq!(server.refused_from(), None, "a client's GOAWAY is about pushes");
        let mut client = Control::new(Side::Client);
        assert_eq!(client.take(GOAWAY, &[1]), Err(Violation::GoawayStream));
        assert_eq!(client.refused_from(), None);
        assert_eq!(client.take(GOAWAY, &[8]), Ok(true));
        assert_eq!(client.take(GOAWAY, &[4]), Ok(true));
        assert_eq!(client.take(GOAWAY, &[4]), Ok(false), "once is enough");
        assert_eq!(client.refused_from(), Some(4));
        client.settings = true;
        assert_eq!(client.may_begin(MAX_PUSH_ID), Err(Violation::MaxPushIdFromServer));
    }

    // RFC 9204 s.2.2.3 #2, s.3.1 #2, s.3.2.2 #2, s.4.3.1 #2
    #[test]
    fn qpack_streams_without_a_dynamic_table() {
        assert_eq!(Qpack::Encoder.take(&[0x20, 0x20]), Ok(()));
        for byte in [0x21, 0x3f, 0x00, 0x80, 0xc0, 0x40] {
            assert_eq!(
                Qpack::Encoder.take(&[byte]),
                Err(Violation::EncoderInstruction),
                "{byte:#x}"
            );
        }
        let mut decoder = Qpack::Decoder(None);
        assert_eq!(decoder.take(&[0x44, 0x7f, 0x80, 0x01, 0x40]), Ok(()));
        for bytes in [&[0x80][..], &[0x84], &[0x01], &[0x00], &[0x7f; 12]] {
            let mut decoder = Qpack::Decoder(None);
            let mut bytes = bytes.to_vec();
            bytes.iter_mut().skip(1).for_each(|byte| *byte |= 0x80);
            assert_eq!(decoder.take(&bytes), Err(Violation::DecoderInstruction), "{bytes:?}");
        }
    }
}
