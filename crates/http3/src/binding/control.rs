//! Frames of a control stream (RFC 9114 s.6.2.1), and the instructions of QPACK's streams.

use std::collections::BTreeSet;

use equic_wire::{Reader, Side};
use h3::error::Code;

use super::fault::{DECODER_STREAM_ERROR, ENCODER_STREAM_ERROR, Fault};
use super::frames::{CANCEL_PUSH, GOAWAY, MAX_PUSH_ID, SETTINGS, unexpected};

/// Bytes of a frame of the control stream, at most: SETTINGS with a few hundred of them.
pub(super) const LONGEST: usize = 4096;

/// The control stream of the peer.
#[derive(Debug)]
pub(super) struct Control {
    /// Side of the connection that this endpoint is on.
    side: Side,
    settings: bool,
    max_push_id: Option<u64>,
    goaway: Option<u64>,
}

fn wrong_id(reason: &'static str) -> Fault {
    Fault::Connection(Code::H3_ID_ERROR, reason)
}

impl Control {
    pub(super) fn new(side: Side) -> Control {
        Control { side, settings: false, max_push_id: None, goaway: None }
    }

    /// Checks that a frame of this type may begin; true if its payload has to be looked at.
    pub(super) fn may_begin(&self, frame: u64) -> Result<bool, Fault> {
        match (frame, self.settings) {
            (SETTINGS, false) => Ok(true),
            // RFC 9114 s.7.2.4.
            (SETTINGS, true) => Err(unexpected("SETTINGS a second time")),
            // RFC 9114 s.6.2.1.
            (_, false) => {
                let reason = "the control stream does not begin with SETTINGS";
                Err(Fault::Connection(Code::H3_MISSING_SETTINGS, reason))
            }
            // RFC 9114 s.7.2.7.
            (MAX_PUSH_ID, _) if self.side == Side::Client => {
                Err(unexpected("MAX_PUSH_ID of a server"))
            }
            (GOAWAY | MAX_PUSH_ID | CANCEL_PUSH, _) => Ok(true),
            // RFC 9114 s.7.2.1, s.7.2.2, s.7.2.5: DATA, HEADERS, PUSH_PROMISE.
            (0x0 | 0x1 | 0x5, _) => Err(unexpected("a frame that is not for the control stream")),
            _ => Ok(false),
        }
    }

    /// Returns the first request that the server does not process, if it has sent GOAWAY.
    pub(super) fn refused_from(&self) -> Option<u64> {
        self.goaway.filter(|_| self.side == Side::Client)
    }

    /// A frame is whole: true if it is of use to `h3`.
    pub(super) fn take(&mut self, frame: u64, payload: &[u8]) -> Result<bool, Fault> {
        match frame {
            SETTINGS => {
                self.settings = true;
                settings(payload).map(|()| true)
            }
            GOAWAY => {
                let id = only_id(payload)?;
                // RFC 9114 s.5.2.
                if self.goaway.is_some_and(|before| id > before) {
                    return Err(wrong_id("GOAWAY with a larger identifier than before"));
                }
                // RFC 9114 s.7.2.6: a server names a request stream.
                if self.side == Side::Client && id % 4 != 0 {
                    return Err(wrong_id("GOAWAY that names no request stream"));
                }
                let first = self.goaway.replace(id) != Some(id);
                // Answering a client's, `h3` would send GOAWAY with the last request that is served.
                Ok(first && self.side == Side::Client)
            }
            MAX_PUSH_ID => {
                let id = only_id(payload)?;
                // RFC 9114 s.7.2.7.
                if self.max_push_id.is_some_and(|before| id < before) {
                    return Err(wrong_id("MAX_PUSH_ID that is less than before"));
                }
                self.max_push_id = Some(id);
                Ok(false)
            }
            // RFC 9114 s.7.2.3: nothing is pushed here, and no push allowed.
            _ => {
                only_id(payload)?;
                Err(wrong_id("CANCEL_PUSH of a push that there is not"))
            }
        }
    }
}

/// RFC 9114 s.7.1: a frame that is shorter or longer than its fields.
fn only_id(payload: &[u8]) -> Result<u64, Fault> {
    let mut reader = Reader::new(payload);
    match reader.varint() {
        Ok(id) if reader.is_empty() => Ok(id.get()),
        _ => Err(Fault::Connection(Code::H3_FRAME_ERROR, "a frame that is not as long as its ID")),
    }
}

fn settings(payload: &[u8]) -> Result<(), Fault> {
    let wrong = |reason| Err(Fault::Connection(Code::H3_SETTINGS_ERROR, reason));
    let mut reader = Reader::new(payload);
    let mut seen = BTreeSet::new();
    while !reader.is_empty() {
        let (Ok(id), Ok(_)) = (reader.varint(), reader.varint()) else {
            return Err(Fault::Connection(Code::H3_FRAME_ERROR, "SETTINGS that are cut short"));
        };
        // RFC 9114 s.7.2.4.1, s.11.2.2: settings of HTTP/2.
        if matches!(id.get(), 0x0 | 0x2..=0x5) {
            return wrong("a setting of HTTP/2");
        }
        // RFC 9114 s.7.2.4.
        if !seen.insert(id.get()) {
            return wrong("a setting twice");
        }
    }
    Ok(())
}

/// A stream of QPACK (RFC 9204 s.4.2), to an endpoint that has no dynamic table and makes none.
#[derive(Debug)]
pub(super) enum Qpack {
    Encoder,
    /// Of a Stream Cancellation's number so many bytes have come; none: something else begins.
    Decoder(Option<u8>),
}

impl Qpack {
    /// Checks the next bytes of the stream of instructions.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        bytes.iter().try_for_each(|byte| self.take_byte(*byte))
    }

    fn take_byte(&mut self, byte: u8) -> Result<(), Fault> {
        match self {
            // RFC 9204 s.4.3.1: a capacity of zero; anything else needs room that there is not.
            Qpack::Encoder if byte == 0x20 => Ok(()),
            Qpack::Encoder => {
                let reason = "an instruction for a dynamic table that there is not";
                Err(Fault::Connection(ENCODER_STREAM_ERROR, reason))
            }
            // RFC 9204 s.4.4.2; the integer has at most 62 bits.
            Qpack::Decoder(more @ None) if byte & 0xc0 == 0x40 => {
                *more = (byte & 0x3f == 0x3f).then_some(0);
                Ok(())
            }
            Qpack::Decoder(Some(count)) if *count < 9 => {
                *self = Qpack::Decoder((byte & 0x80 != 0).then_some(*count + 1));
                Ok(())
            }
            // RFC 9204 s.4.4.1, s.4.4.3: of nothing that was sent.
            Qpack::Decoder(_) => {
                let reason = "an acknowledgement of insertions that there are not";
                Err(Fault::Connection(DECODER_STREAM_ERROR, reason))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(result: Result<impl std::fmt::Debug, Fault>) -> Code {
        match result.unwrap_err() {
            Fault::Connection(code, _) | Fault::Stream(code, _) => code,
        }
    }

    #[test]
    fn settings_come_first_and_once() {
        let mut control = Control::new(Side::Server);
        assert_eq!(code(control.may_begin(GOAWAY)), Code::H3_MISSING_SETTINGS);
        assert_eq!(code(control.may_begin(0x21)), Code::H3_MISSING_SETTINGS);
        assert_eq!(control.may_begin(SETTINGS), Ok(true));
        assert_eq!(control.take(SETTINGS, &[6, 1, 0x21, 2]), Ok(true));
        assert_eq!(code(control.may_begin(SETTINGS)), Code::H3_FRAME_UNEXPECTED);
        for frame in [0, 1, 5] {
            assert_eq!(code(control.may_begin(frame)), Code::H3_FRAME_UNEXPECTED);
        }
        assert_eq!(control.may_begin(0x21), Ok(false));
    }

    #[test]
    fn settings_are_checked() {
        for (payload, expected) in [
            (&[6][..], Code::H3_FRAME_ERROR),
            (&[6, 1, 6, 1], Code::H3_SETTINGS_ERROR),
            (&[2, 0], Code::H3_SETTINGS_ERROR),
        ] {
            assert_eq!(code(settings(payload)), expected, "{payload:?}");
        }
    }

    #[test]
    fn identifiers_go_one_way() {
        let mut server = Control::new(Side::Server);
        assert_eq!(server.take(GOAWAY, &[9]), Ok(false));
        assert_eq!(server.take(GOAWAY, &[9]), Ok(false));
        assert_eq!(code(server.take(GOAWAY, &[10])), Code::H3_ID_ERROR);
        assert_eq!(code(server.take(GOAWAY, &[])), Code::H3_FRAME_ERROR);
        assert_eq!(code(server.take(GOAWAY, &[1, 1])), Code::H3_FRAME_ERROR);
        assert_eq!(server.take(MAX_PUSH_ID, &[7]), Ok(false));
        assert_eq!(server.take(MAX_PUSH_ID, &[7]), Ok(false));
        assert_eq!(code(server.take(MAX_PUSH_ID, &[6])), Code::H3_ID_ERROR);
        assert_eq!(code(server.take(CANCEL_PUSH, &[0])), Code::H3_ID_ERROR);
        assert_eq!(server.refused_from(), None, "a client's GOAWAY is about pushes");
        let mut client = Control::new(Side::Client);
        assert_eq!(code(client.take(GOAWAY, &[1])), Code::H3_ID_ERROR);
        assert_eq!(client.refused_from(), None);
        assert_eq!(client.take(GOAWAY, &[8]), Ok(true));
        assert_eq!(client.take(GOAWAY, &[4]), Ok(true));
        assert_eq!(client.take(GOAWAY, &[4]), Ok(false), "once is enough");
        assert_eq!(client.refused_from(), Some(4));
        client.settings = true;
        assert_eq!(code(client.may_begin(MAX_PUSH_ID)), Code::H3_FRAME_UNEXPECTED);
    }

    #[test]
    fn qpack_streams_without_a_table() {
        assert_eq!(Qpack::Encoder.take(&[0x20, 0x20]), Ok(()));
        for byte in [0x21, 0x3f, 0x00, 0x80, 0xc0, 0x40] {
            assert_eq!(code(Qpack::Encoder.take(&[byte])), ENCODER_STREAM_ERROR, "{byte:#x}");
        }
        let mut decoder = Qpack::Decoder(None);
        assert_eq!(decoder.take(&[0x44, 0x7f, 0x80, 0x01, 0x40]), Ok(()));
        for bytes in [&[0x80][..], &[0x84], &[0x01], &[0x00], &[0x7f; 12]] {
            let mut decoder = Qpack::Decoder(None);
            let mut bytes = bytes.to_vec();
            bytes.iter_mut().skip(1).for_each(|byte| *byte |= 0x80);
            assert_eq!(code(decoder.take(&bytes)), DECODER_STREAM_ERROR, "{bytes:?}");
        }
    }
}
