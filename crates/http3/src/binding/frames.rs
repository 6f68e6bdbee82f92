//! Parses the frames of a stream (RFC 9114 s.7) before `h3` sees them, and forwards them one by
//! one.
//!
//! The parser works around the way in which `h3` reads: `h3` buffers until a frame is complete,
//! reads ahead, and ends a body at the first empty DATA frame. So the parser:
//!
//! * forwards a HEADERS frame only when it is complete;
//! * forwards content as it arrives, as a DATA frame for each piece that has arrived;
//! * does not forward frames that `h3` would skip.
//!
//! It never holds more than one frame or piece of content.

use std::sync::Arc;

use bytes::{Buf as _, Bytes, BytesMut};
use equic_wire::{Reader, VarInt, VarIntLen, Writer};

use super::control::{self, Control};

use super::fields::{self, Section, SectionCheck};
use super::shared::{Kept, Shared};
use super::violation::Violation;

const DATA: u64 = 0x0;
const HEADERS: u64 = 0x1;
pub(super) const CANCEL_PUSH: u64 = 0x3;
pub(super) const SETTINGS: u64 = 0x4;
const PUSH_PROMISE: u64 = 0x5;
pub(super) const GOAWAY: u64 = 0x7;
pub(super) const MAX_PUSH_ID: u64 = 0xd;

/// Largest encoding of a frame's type and length, in bytes.
const HEADER: usize = 16;

/// Largest number of interim responses to one request. A server that sends more breaks a rule.
const INTERIM: u32 = 64;

/// A HEADERS frame closes the connection if it is this many times longer than the limit of field
/// sections, because that cannot be a mistake.
const ABSURD: u64 = 64;

/// A one-byte reference to an entry of QPACK's static table. Each such entry adds more than 32
/// bytes to the size of a field section (RFC 9114 s.4.2.2).
const ENTRY: u8 = 0xc1;

/// Field section of GET https://a/, which `h3` gets instead of one that is too long. The server
/// then answers with 431. Without the replacement, `h3` itself would answer, without a Date field,
/// and drop the request's stream at once.
const STAND_IN: &[u8] = &[0, 0, 0xd1, 0xd7, 0x50, 1, b'a', 0xc1];

/// The kind of a stream: it carries a request, a response, or the frames of the control stream.
#[derive(Debug)]
pub(super) enum Kind {
    Request,
    Response,
    Control(Control),
}

/// How much of a message has been read (RFC 9114 s.4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FrameStage {
    Start,
    Body,
    Trailers,
}

#[derive(Debug)]
enum At {
    /// Within or before a frame header. The value is the number of the header's bytes that have
    /// arrived.
    Header(usize),
    /// Inside a DATA frame. The value is the number of payload bytes still to come.
    Data(u64),
    /// Inside a frame that is skipped. The value is the number of payload bytes still to come.
    Skip(u64),
    /// Inside a field section that is too long and is discarded. The value is the number of payload
    /// bytes still to come.
    Refused(u64),
    /// Inside a frame that is kept until it is complete. The values are the frame's type, its
    /// length, and the bytes that have arrived.
    Keep(u64, usize, Kept),
}

/// Parses the frames of a stream.
#[derive(Debug)]
pub(super) struct Frames {
    shared: Arc<Shared>,
    kind: Kind,
    stage: FrameStage,
    at: At,
    header: [u8; HEADER],
    /// Number of payload bytes that belong to the last forwarded DATA frame header. They are
    /// forwarded next.
    due: usize,
    interim: u32,
    /// The HEADERS frame that `h3` gets instead of one that is too long. It is `None` after it was
    /// forwarded.
    refused: Option<Bytes>,
    /// True if the request's field section is too long.
    too_long: bool,
    /// The trailers. They are forwarded to `h3` when the stream ends without an error.
    trailers: Option<Bytes>,
}

impl Frames {
    pub(super) fn new(kind: Kind, shared: Arc<Shared>) -> Frames {
        Frames {
            shared,
            kind,
            stage: FrameStage::Start,
            at: At::Header(0),
            header: [0; HEADER],
            due: 0,
            interim: 0,
            refused: None,
            too_long: false,
            trailers: None,
        }
    }

    /// Returns the next piece of `input` for `h3`, or `None` when all of `input` was consumed.
    pub(super) fn next(&mut self, input: &mut Bytes) -> Result<Option<Bytes>, Violation> {
        if self.due > 0 {
            return Ok(Some(input.split_to(std::mem::take(&mut self.due))));
        }
        while !input.is_empty() {
            if let Some(piece) = self.whole_frame(input)? {
                return Ok(Some(piece));
            }
            match &mut self.at {
                At::Header(have) => {
                    self.header[*have] = input.get_u8();
                    *have += 1;
                    let have = *have;
                    if let Some((kind, length)) = header(&self.header[..have]) {
                        self.at = self.begin(kind, length, have)?;
                        // A frame without payload is complete at once.
                        if let Some(piece) = self.refused.take().or(self.complete()?) {
                            return Ok(Some(piece));
                        }
                    }
                }
                At::Data(left) => {
                    let count = take(left, input.len());
                    if *left == 0 {
                        self.at = At::Header(0);
                    }
                    self.due = count;
                    return Ok(Some(frame_header(DATA, count).freeze()));
                }
                At::Skip(left) => {
                    let count = take(left, input.len());
                    let over = *left == 0;
                    input.advance(count);
                    if over {
                        self.at = At::Header(0);
                    }
                    self.shared.charge(count as u64)?;
                }
                At::Refused(left) => {
                    // These bytes do not count as useless bytes of the peer, because the server
                    // stops reading early and counts the whole request as malformed.
                    let count = take(left, input.len());
                    let over = *left == 0;
                    input.advance(count);
                    if over {
                        self.at = At::Header(0);
                    }
                }
                At::Keep(_, length, kept) => {
                    let count = input.len().min(*length - kept.bytes.len());
                    kept.push(&input[..count])?;
                    input.advance(count);
                    if let Some(piece) = self.complete()? {
                        return Ok(Some(piece));
                    }
                }
            }
        }
        Ok(None)
    }

    /// Forwards a frame without copying it, if the whole frame is at the beginning of `input`.
    /// Returns `None` if the frame must be parsed byte by byte.
    fn whole_frame(&mut self, input: &mut Bytes) -> Result<Option<Bytes>, Violation> {
        if !matches!(self.at, At::Header(0)) || matches!(self.kind, Kind::Control(_)) {
            return Ok(None);
        }
        let mut reader = Reader::new(input);
        let (Ok(frame), Ok(length)) = (reader.varint(), reader.varint()) else { return Ok(None) };
        let (frame, start) = (frame.get(), input.len() - reader.len());
        let Some(length) = usize::try_from(length.get()).ok().filter(|length| *length > 0) else {
            return Ok(None);
        };
        let Some(payload) = input.get(start..).and_then(|rest| rest.get(..length)) else {
            return Ok(None);
        };
        match (frame, self.stage) {
            (DATA, FrameStage::Body) => {}
            (HEADERS, FrameStage::Start) if length <= self.shared.limits.field_section => {
                let found = self.check(payload)?;
                if found == SectionCheck::TooLong {
                    input.advance(start + length);
                    return Ok(Some(self.stand_in()));
                }
            }
            _ => return Ok(None),
        }
        Ok(Some(input.split_to(start + length)))
    }

    /// Returns the kind of the next field section on this stream.
    fn section(&self) -> Section {
        match self.kind {
            _ if self.stage == FrameStage::Body => Section::Trailers,
            Kind::Request => Section::Request,
            // A control stream has no field section, so this value is not used.
            Kind::Response | Kind::Control(_) => Section::Response,
        }
    }

    /// Checks a field section.
    fn check(&mut self, payload: &[u8]) -> Result<SectionCheck, Violation> {
        let section = self.section();
        // Only requests need the limit here. On a client, `h3` enforces the limit of responses
        // itself.
        let limit = matches!(self.kind, Kind::Request).then_some(self.shared.limits.field_section);
        let found = fields::check(payload, section, limit.map(|limit| limit as u64))?;
        match (section, found) {
            (Section::Trailers, SectionCheck::TooLong) => {
                return Err(Violation::TrailersTooLong);
            }
            _ => self.checked(section, found)?,
        }
        Ok(found)
    }

    /// Returns the frame that `h3` gets instead of a request's field section that is too long.
    fn stand_in(&mut self) -> Bytes {
        self.too_long = true;
        whole(HEADERS, STAND_IN)
    }

    /// Advances to the next stage of the message after a valid field section.
    fn checked(&mut self, section: Section, found: SectionCheck) -> Result<(), Violation> {
        match (section, found) {
            (Section::Trailers, _) => self.stage = FrameStage::Trailers,
            (_, SectionCheck::Interim) => {
                self.interim += 1;
                if self.interim > INTERIM {
                    return Err(Violation::InterimResponses);
                }
            }
            (_, SectionCheck::TooLong | SectionCheck::Other) => self.stage = FrameStage::Body,
        }
        Ok(())
    }

    /// Processes the end of the stream. Returns the last piece to forward, or `None`.
    pub(super) fn end(&mut self) -> Result<Option<Bytes>, Violation> {
        if let Kind::Control(_) = self.kind {
            // RFC 9114 s.6.2.1: the control stream must not end.
            return Err(Violation::CriticalStreamClosed);
        }
        // RFC 9114 s.7.1: the stream must not end inside a frame.
        if !matches!(self.at, At::Header(0)) {
            return Err(Violation::TruncatedFrame);
        }
        // RFC 9114 s.4.1: a response must have header fields. For requests, `h3` checks this.
        if matches!((&self.kind, self.stage), (Kind::Response, FrameStage::Start)) {
            return Err(Violation::MissingHeaderSection);
        }
        Ok(self.trailers.take())
    }

    /// Returns the number of bytes still to come of the DATA frame, or of the too long field
    /// section, that is arriving.
    pub(super) fn content_left(&self) -> u64 {
        match self.at {
            At::Data(left) | At::Refused(left) => left,
            _ => 0,
        }
    }

    /// Returns `true` if the request's field section is too long. The request that `h3` has is then
    /// a replacement, not the one that the client sent.
    pub(super) fn is_too_long(&self) -> bool {
        self.too_long
    }

    /// Returns `true` if this stream carries a server's response.
    pub(super) fn is_response(&self) -> bool {
        matches!(self.kind, Kind::Response)
    }

    /// Returns the violation if the peer must not reset this stream. Only the control stream must
    /// not be reset.
    pub(super) fn on_reset(&self) -> Option<Violation> {
        matches!(self.kind, Kind::Control(_)).then_some(Violation::CriticalStreamClosed)
    }

    /// Begins a frame of this type and payload length. `header` is the length of the frame's header
    /// in bytes.
    // RFC 9114 s.9 #1
    fn begin(&mut self, frame: u64, length: u64, header: usize) -> Result<At, Violation> {
        // RFC 9114 s.7.2.8 #1: HTTP/2 has these frame types, and HTTP/3 does not permit them.
        if matches!(frame, 0x2 | 0x6 | 0x8 | 0x9) {
            return Err(Violation::Http2Frame);
        }
        let at = match &self.kind {
            Kind::Control(control) => {
                let wanted = control.may_begin(frame)?;
                // Each frame on the control stream counts as useless bytes of the peer, so that the
                // peer cannot send such frames without limit.
                self.shared.charge(header as u64)?;
                if wanted { self.keep(frame, length, control::LONGEST)? } else { At::Skip(length) }
            }
            _ => match (frame, self.stage) {
                (DATA, FrameStage::Body) if length == 0 => {
                    self.shared.charge(header as u64)?;
                    At::Header(0)
                }
                (DATA, FrameStage::Body) => At::Data(length),
                (HEADERS, FrameStage::Start | FrameStage::Body) => {
                    return self.headers(length);
                }
                // RFC 9114 s.4.1: DATA must not precede HEADERS, and neither may follow trailers.
                (DATA | HEADERS, _) => return Err(Violation::FrameOrder),
                // RFC 9114 s.7.2.5: this client never permits a push.
                (PUSH_PROMISE, _) if matches!(self.kind, Kind::Response) => {
                    return Err(Violation::PushNotAllowed);
                }
                (CANCEL_PUSH | SETTINGS | PUSH_PROMISE | GOAWAY | MAX_PUSH_ID, _) => {
                    return Err(Violation::FrameOnRequestStream);
                }
                _ => {
                    self.shared.charge(header as u64)?;
                    At::Skip(length)
                }
            },
        };
        Ok(if matches!(at, At::Skip(0)) { At::Header(0) } else { at })
    }

    fn headers(&mut self, length: u64) -> Result<At, Violation> {
        let limit = self.shared.limits.field_section;
        if length <= limit as u64 {
            return self.keep(HEADERS, length, limit);
        }
        if length > (limit as u64).saturating_mul(ABSURD) {
            return Err(Violation::HeadersTooLong);
        }
        if self.stage == FrameStage::Body {
            return Err(Violation::TrailersTooLong);
        }
        if let Kind::Request = self.kind {
            self.stage = FrameStage::Body;
            self.refused = Some(self.stand_in());
            return Ok(At::Refused(length));
        }
        // `h3` gets a short field section instead of this one. It consists of static-table entries
        // whose decoded size exceeds the limit of `h3`, so `h3` rejects it.
        let mut block = vec![ENTRY; limit / 32 + 3];
        block[..2].fill(0);
        self.stage = FrameStage::Body;
        self.refused = Some(whole(HEADERS, &block));
        Ok(At::Skip(length))
    }

    fn keep(&self, frame: u64, length: u64, most: usize) -> Result<At, Violation> {
        match usize::try_from(length) {
            Ok(length) if length <= most => Ok(At::Keep(frame, length, Kept::new(&self.shared))),
            _ => Err(Violation::FrameTooLong),
        }
    }

    /// Returns the kept frame, or its replacement, if the frame is complete and `h3` needs it.
    /// Otherwise returns `None`.
    fn complete(&mut self) -> Result<Option<Bytes>, Violation> {
        if !matches!(&self.at, At::Keep(_, length, kept) if kept.bytes.len() == *length) {
            return Ok(None);
        }
        let At::Keep(frame, _, kept) = std::mem::replace(&mut self.at, At::Header(0)) else {
            return Ok(None);
        };
        if let Kind::Control(control) = &mut self.kind {
            // `h3` does not need this frame, so it is only charged to the peer.
            self.shared.charge(kept.bytes.len() as u64)?;
            let goes_on = control.take(frame, &kept.bytes)?;
            if frame == GOAWAY {
                self.shared.requests.set_client_leaves();
            }
            if let Some(stream) = control.refused_from() {
                self.shared.set_goaway(stream);
            }
            return Ok(goes_on.then(|| whole(frame, &kept.bytes)));
        }
        let section = self.section();
        if self.check(&kept.bytes)? == SectionCheck::TooLong {
            return Ok(Some(self.stand_in()));
        }
        let piece = whole(HEADERS, &kept.bytes);
        if section == Section::Trailers {
            // The trailers are held back until the stream ends, because `h3` stops reading after
            // trailers.
            self.trailers = Some(piece);
            return Ok(None);
        }
        Ok(Some(piece))
    }
}

/// Subtracts the smaller of `left` and `there` from `left`, and returns that number.
fn take(left: &mut u64, there: usize) -> usize {
    let count = usize::try_from(*left).unwrap_or(usize::MAX).min(there);
    *left -= count as u64;
    count
}

/// Reads a frame's type and length. Returns `None` if they are incomplete.
fn header(bytes: &[u8]) -> Option<(u64, u64)> {
    // An incomplete header is the common case, so check the lengths before reading.
    let first = VarIntLen::of_first_byte(*bytes.first()?).bytes();
    let second = VarIntLen::of_first_byte(*bytes.get(first)?).bytes();
    if bytes.len() < first + second {
        return None;
    }
    let mut reader = Reader::new(bytes);
    Some((reader.varint().ok()?.get(), reader.varint().ok()?.get()))
}

fn frame_header(frame: u64, length: usize) -> BytesMut {
    let mut buffer = [0; HEADER];
    let mut writer = Writer::new(&mut buffer);
    for value in [frame, length as u64] {
        // Cannot fail: the buffer has room for two variable-length integers, and both values were
        // decoded from such integers.
        let _ = writer.varint(VarInt::new(value).unwrap_or(VarInt::MAX));
    }
    BytesMut::from(writer.written())
}

fn whole(frame: u64, payload: &[u8]) -> Bytes {
    let mut piece = frame_header(frame, payload.len());
    piece.extend_from_slice(payload);
    piece.freeze()
}

#[cfg(test)]
#[path = "frames_tests.rs"]
mod tests;
