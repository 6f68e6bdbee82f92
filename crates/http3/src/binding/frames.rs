//! Frames of a stream (RFC 9114 s.7), taken apart before `h3` sees them and handed on one by one.
//!
//! `h3` keeps what it reads until it makes a whole frame, reads one piece more than it takes, and ends
//! a body at the first empty DATA frame. So it is given a HEADERS frame only when that is whole, DATA
//! as it comes but in frames of what is there, and nothing that it would skip. It never holds more
//! than one such piece.

use std::sync::Arc;

use bytes::{Buf as _, Bytes, BytesMut};
use equic_wire::{Reader, VarInt, VarIntLen, Writer};
use h3::error::Code;

use super::control::{self, Control};
use super::fault::{Fault, Kept, Ward};
use super::fields::{self, Section, SectionCheck};

const DATA: u64 = 0x0;
const HEADERS: u64 = 0x1;
pub(super) const CANCEL_PUSH: u64 = 0x3;
pub(super) const SETTINGS: u64 = 0x4;
const PUSH_PROMISE: u64 = 0x5;
pub(super) const GOAWAY: u64 = 0x7;
pub(super) const MAX_PUSH_ID: u64 = 0xd;

/// Type and length of a frame, at most.
const HEADER: usize = 16;

/// Interim responses to one request, at most.
const INTERIM: u32 = 64;

/// Nobody announces a HEADERS frame so many times longer than the limit by mistake.
const ABSURD: u64 = 64;

/// An entry of the static table, each of which counts for more than 32 bytes (RFC 9114 s.4.2.2).
const ENTRY: u8 = 0xc1;

/// Field section that stands for one of a request that is too long: GET https://a/. The server answers
/// it with 431. `h3` would do that without Date, and would drop the request's stream at once.
const STAND_IN: &[u8] = &[0, 0, 0xd1, 0xd7, 0x50, 1, b'a', 0xc1];

/// The use of a stream: a request, a response, or the control stream.
#[derive(Debug)]
pub(super) enum Kind {
    Request,
    Response,
    Control(Control),
}

/// Progress of reading a message (RFC 9114 s.4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FrameStage {
    Start,
    Body,
    Trailers,
}

#[derive(Debug)]
enum At {
    /// Number of bytes of the next frame's header that have come.
    Header(usize),
    /// Inside a DATA frame; number of payload bytes still to come.
    Data(u64),
    /// Inside a frame that is skipped; number of payload bytes still to come.
    Skip(u64),
    /// Inside a field section that is refused; number of payload bytes still to come.
    Refused(u64),
    /// A frame of this type and length that is kept until it is whole.
    Keep(u64, usize, Kept),
}

/// Takes the frames of a stream apart.
#[derive(Debug)]
pub(super) struct Frames {
    ward: Arc<Ward>,
    kind: Kind,
    stage: FrameStage,
    at: At,
    header: [u8; HEADER],
    /// The header of a DATA frame was given for so many bytes.
    due: usize,
    interim: u32,
    /// Field section given to `h3` in the place of one that is too long.
    refused: Option<Bytes>,
    /// The request's field section is too long.
    too_long: bool,
    /// Trailers that are given to `h3` when the stream ends as it should.
    trailers: Option<Bytes>,
}

impl Frames {
    pub(super) fn new(kind: Kind, ward: Arc<Ward>) -> Frames {
        Frames {
            ward,
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

    /// The next piece for `h3`, out of `input`; none: all of that was taken.
    pub(super) fn next(&mut self, input: &mut Bytes) -> Result<Option<Bytes>, Fault> {
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
                        // An empty frame is whole at once.
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
                    self.ward.charge(count as u64)?;
                }
                At::Refused(left) => {
                    // The server reads little of it, and counts the request as malformed.
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

    /// A frame of a message that lies whole at the beginning of `input` goes on as it came, without a copy; none: it
    /// is taken apart byte by byte.
    fn whole_frame(&mut self, input: &mut Bytes) -> Result<Option<Bytes>, Fault> {
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
            (HEADERS, FrameStage::Start) if length <= self.ward.limits.field_section => {
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

    /// The part of a message that the next field section is.
    fn section(&self) -> Section {
        match self.kind {
            _ if self.stage == FrameStage::Body => Section::Trailers,
            Kind::Request => Section::Request,
            // A control stream has none.
            Kind::Response | Kind::Control(_) => Section::Response,
        }
    }

    /// Checks a field section.
    fn check(&mut self, payload: &[u8]) -> Result<SectionCheck, Fault> {
        let section = self.section();
        // `h3` knows the limit of a client.
        let limit = matches!(self.kind, Kind::Request).then_some(self.ward.limits.field_section);
        let found = fields::check(payload, section, limit.map(|limit| limit as u64))?;
        match (section, found) {
            (Section::Trailers, SectionCheck::TooLong) => {
                return Err(malformed("trailers that are too long"));
            }
            _ => self.checked(section, found)?,
        }
        Ok(found)
    }

    /// Returns the frame that `h3` gets in the place of a request's field section that is too long.
    fn stand_in(&mut self) -> Bytes {
        self.too_long = true;
        whole(HEADERS, STAND_IN)
    }

    /// A field section of header fields is in order.
    fn checked(&mut self, section: Section, found: SectionCheck) -> Result<(), Fault> {
        match (section, found) {
            (Section::Trailers, _) => self.stage = FrameStage::Trailers,
            (_, SectionCheck::Interim) => {
                self.interim += 1;
                if self.interim > INTERIM {
                    let reason = "too many interim responses";
                    return Err(Fault::Connection(Code::H3_EXCESSIVE_LOAD, reason));
                }
            }
            (_, SectionCheck::TooLong | SectionCheck::Other) => self.stage = FrameStage::Body,
        }
        Ok(())
    }

    /// The stream has ended; what is still to be handed on.
    pub(super) fn end(&mut self) -> Result<Option<Bytes>, Fault> {
        if let Kind::Control(_) = self.kind {
            // RFC 9114 s.6.2.1.
            return Err(closed());
        }
        // RFC 9114 s.7.1.
        if !matches!(self.at, At::Header(0)) {
            return Err(Fault::Connection(Code::H3_FRAME_ERROR, "the stream ends within a frame"));
        }
        // Of a request `h3` sees that itself (RFC 9114 s.4.1).
        if matches!((&self.kind, self.stage), (Kind::Response, FrameStage::Start)) {
            return Err(malformed("the response ends before its header fields"));
        }
        Ok(self.trailers.take())
    }

    /// Returns how many bytes are still to come of the DATA frame, or of the refused field section,
    /// under way.
    pub(super) fn content_left(&self) -> u64 {
        match self.at {
            At::Data(left) | At::Refused(left) => left,
            _ => 0,
        }
    }

    /// Returns true if the request's field section is too long, so that the request that `h3` has is
    /// not what the client sent.
    pub(super) fn is_too_long(&self) -> bool {
        self.too_long
    }

    /// Returns true if a server's response comes on this stream.
    pub(super) fn is_response(&self) -> bool {
        matches!(self.kind, Kind::Response)
    }

    /// The fault of resetting this stream: only a control stream must not be reset.
    pub(super) fn on_reset(&self) -> Option<Fault> {
        matches!(self.kind, Kind::Control(_)).then(closed)
    }

    /// A frame begins.
    fn begin(&mut self, frame: u64, length: u64, header: usize) -> Result<At, Fault> {
        // RFC 9114 s.7.2.8: types that HTTP/2 has and HTTP/3 has not.
        if matches!(frame, 0x2 | 0x6 | 0x8 | 0x9) {
            return Err(unexpected("a frame type of HTTP/2"));
        }
        let at = match &self.kind {
            Kind::Control(control) => {
                let wanted = control.may_begin(frame)?;
                // Whatever it says, it is nothing for anybody to send without end.
                self.ward.charge(header as u64)?;
                if wanted { self.keep(frame, length, control::LONGEST)? } else { At::Skip(length) }
            }
            _ => match (frame, self.stage) {
                (DATA, FrameStage::Body) if length == 0 => {
                    self.ward.charge(header as u64)?;
                    At::Header(0)
                }
                (DATA, FrameStage::Body) => At::Data(length),
                (HEADERS, FrameStage::Start | FrameStage::Body) => {
                    return self.headers(length);
                }
                // RFC 9114 s.4.1: DATA before HEADERS, and anything after trailers.
                (DATA | HEADERS, _) => return Err(unexpected("DATA or HEADERS out of order")),
                // RFC 9114 s.7.2.5: nobody here allows a push.
                (PUSH_PROMISE, _) if matches!(self.kind, Kind::Response) => {
                    let reason = "a push that was never allowed";
                    return Err(Fault::Connection(Code::H3_ID_ERROR, reason));
                }
                (CANCEL_PUSH | SETTINGS | PUSH_PROMISE | GOAWAY | MAX_PUSH_ID, _) => {
                    return Err(unexpected("a frame that is not for a request stream"));
                }
                _ => {
                    self.ward.charge(header as u64)?;
                    At::Skip(length)
                }
            },
        };
        Ok(if matches!(at, At::Skip(0)) { At::Header(0) } else { at })
    }

    fn headers(&mut self, length: u64) -> Result<At, Fault> {
        let limit = self.ward.limits.field_section;
        if length <= limit as u64 {
            return self.keep(HEADERS, length, limit);
        }
        if length > (limit as u64).saturating_mul(ABSURD) {
            let reason = "a HEADERS frame that is absurdly long";
            return Err(Fault::Connection(Code::H3_EXCESSIVE_LOAD, reason));
        }
        if self.stage == FrameStage::Body {
            return Err(malformed("trailers that are too long"));
        }
        if let Kind::Request = self.kind {
            self.stage = FrameStage::Body;
            self.refused = Some(self.stand_in());
            return Ok(At::Refused(length));
        }
        // A field section that is too long for certain stands for it: `h3` refuses that.
        let mut block = vec![ENTRY; limit / 32 + 3];
        block[..2].fill(0);
        self.stage = FrameStage::Body;
        self.refused = Some(whole(HEADERS, &block));
        Ok(At::Skip(length))
    }

    fn keep(&self, frame: u64, length: u64, most: usize) -> Result<At, Fault> {
        match usize::try_from(length) {
            Ok(length) if length <= most => Ok(At::Keep(frame, length, Kept::new(&self.ward))),
            _ => Err(Fault::Connection(Code::H3_EXCESSIVE_LOAD, "a frame that is too long")),
        }
    }

    /// If a kept frame is whole: what of it goes on.
    fn complete(&mut self) -> Result<Option<Bytes>, Fault> {
        if !matches!(&self.at, At::Keep(_, length, kept) if kept.bytes.len() == *length) {
            return Ok(None);
        }
        let At::Keep(frame, _, kept) = std::mem::replace(&mut self.at, At::Header(0)) else {
            return Ok(None);
        };
        if let Kind::Control(control) = &mut self.kind {
            // What is of no use to `h3` ends here.
            self.ward.charge(kept.bytes.len() as u64)?;
            let goes_on = control.take(frame, &kept.bytes)?;
            if frame == GOAWAY {
                self.ward.requests.set_client_leaves();
            }
            if let Some(stream) = control.refused_from() {
                self.ward.set_goaway(stream);
            }
            return Ok(goes_on.then(|| whole(frame, &kept.bytes)));
        }
        let section = self.section();
        if self.check(&kept.bytes)? == SectionCheck::TooLong {
            return Ok(Some(self.stand_in()));
        }
        let piece = whole(HEADERS, &kept.bytes);
        if section == Section::Trailers {
            // `h3` looks no further than to them.
            self.trailers = Some(piece);
            return Ok(None);
        }
        Ok(Some(piece))
    }
}

/// RFC 9114 s.6.2.1, RFC 9204 s.4.2.
pub(super) fn closed() -> Fault {
    Fault::Connection(Code::H3_CLOSED_CRITICAL_STREAM, "a stream that must stay open was closed")
}

pub(super) fn unexpected(reason: &'static str) -> Fault {
    Fault::Connection(Code::H3_FRAME_UNEXPECTED, reason)
}

fn malformed(reason: &'static str) -> Fault {
    Fault::Stream(Code::H3_MESSAGE_ERROR, reason)
}

/// Takes what is there of what is left; how much.
fn take(left: &mut u64, there: usize) -> usize {
    let count = usize::try_from(*left).unwrap_or(usize::MAX).min(there);
    *left -= count as u64;
    count
}

/// Type and length, if they are there.
fn header(bytes: &[u8]) -> Option<(u64, u64)> {
    // Most bytes of a header are not its last.
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
        // Two of them have room, and both have come as such.
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
