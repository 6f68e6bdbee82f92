use h3::error::Code;

use super::*;
use crate::binding::shared::FrameLimits;

/// HEADERS frames for the request GET https://a/, and for a response with status 200.
const REQUEST: &[u8] = &[1, 8, 0, 0, 0xd1, 0xd7, 0x50, 1, b'a', 0xc1];
const RESPONSE: &[u8] = &[1, 3, 0, 0, 0xd9];
const INTERIM_103: &[u8] = &[1, 3, 0, 0, 0xd8];
const TRAILERS: &[u8] = &[1, 5, 0, 0, 0x21, b'a', 0];

fn shared() -> Arc<Shared> {
    Arc::new(Shared::new(FrameLimits { field_section: 4096, incomplete: 10_000 }))
}

fn frames(kind: Kind) -> Frames {
    Frames::new(kind, shared())
}

/// Feeds `bytes` to the parser, and returns all the pieces that it forwards.
fn feed(frames: &mut Frames, bytes: &[u8]) -> Result<Vec<Bytes>, Violation> {
    let mut input = Bytes::copy_from_slice(bytes);
    let mut out = Vec::new();
    while let Some(piece) = frames.next(&mut input)? {
        out.push(piece);
    }
    assert!(input.is_empty());
    Ok(out)
}

fn code(violation: Violation) -> Code {
    violation.code()
}

#[test]
fn data_frame_that_is_empty_does_not_end_a_body() {
    let mut frames = frames(Kind::Response);
    let wire = [RESPONSE, &[0, 1, b'a', 0, 0, 0, 1, b'b']].concat();
    let out = feed(&mut frames, &wire).unwrap();
    assert_eq!(out.concat(), [RESPONSE, &[0, 1, b'a', 0, 1, b'b']].concat());
    assert_eq!(frames.end(), Ok(None));
}

/// A HEADERS frame that arrives byte by byte is kept, and forwarded once.
#[test]
fn headers_frame_is_forwarded_when_complete() {
    let mut frames = frames(Kind::Request);
    let (last, before) = REQUEST.split_last().unwrap();
    for byte in before {
        assert!(feed(&mut frames, &[*byte]).unwrap().is_empty());
    }
    assert_eq!(frames.shared.incomplete(), REQUEST.len() - 3);
    assert_eq!(feed(&mut frames, &[*last]).unwrap(), [REQUEST]);
    assert_eq!(frames.shared.incomplete(), 0);
}

#[test]
fn frame_that_arrives_complete_is_forwarded_without_a_copy() {
    let mut frames = frames(Kind::Response);
    // The message has an interim response, a final response, and a DATA frame whose length field is
    // longer than necessary.
    let data: &[u8] = &[0, 0x40, 3, b'a', b'b', b'c'];
    let wire = Bytes::from([INTERIM_103, RESPONSE, data].concat());
    let (mut input, mut at) = (wire.clone(), 0);
    for expected in [INTERIM_103, RESPONSE, data] {
        let piece = frames.next(&mut input).unwrap().unwrap();
        assert_eq!(piece, expected);
        assert_eq!(piece.as_ptr(), wire[at..].as_ptr(), "it is where it was");
        at += piece.len();
    }
    assert!(input.is_empty());
    assert_eq!((frames.end(), frames.shared.incomplete()), (Ok(None), 0));
    // The shortcut for whole frames must also check field sections: those of a response are an
    // error on a request stream.
    let mut frames = self::frames(Kind::Request);
    assert_eq!(code(feed(&mut frames, RESPONSE).unwrap_err()), Code::H3_MESSAGE_ERROR);
}

#[test]
fn data_frame_is_forwarded_as_it_arrives() {
    let mut frames = frames(Kind::Response);
    feed(&mut frames, RESPONSE).unwrap();
    let start = [0, 0x80, 1, 0, 0, b'x'];
    assert_eq!(feed(&mut frames, &start).unwrap().concat(), [0, 1, b'x']);
    let out = feed(&mut frames, &[b'y'; 100]).unwrap();
    assert_eq!(out.len(), 2, "a header and its payload");
    assert_eq!((&out[0][..], out[1].len()), (&[0, 0x40, 100][..], 100));
    assert_eq!(frames.end(), Err(Violation::TruncatedFrame));
}

// RFC 9114 s.7.2.8 #1, s.9 #1
#[test]
fn unknown_frames_are_skipped_and_not_kept() {
    let mut frames = frames(Kind::Request);
    // The header of a frame of the unknown type 0x21, with a length of 2^40.
    let start = [0x21, 0xc0, 0, 1, 0, 0, 0, 0, 0];
    assert!(feed(&mut frames, &start).unwrap().is_empty());
    let mut total = 0;
    let fault = loop {
        match feed(&mut frames, &[0; 16384]) {
            Ok(out) => assert!(out.is_empty() && frames.shared.incomplete() == 0),
            Err(fault) => break fault,
        }
        total += 16384;
        assert!(total < 2 << 20, "the parser accepts bytes without end");
    };
    assert_eq!(code(fault), Code::H3_EXCESSIVE_LOAD);
    let mut frames = self::frames(Kind::Request);
    let wire = [&[0x21, 2, 9, 9, 0x40, 0x41, 0][..], REQUEST].concat();
    assert_eq!(feed(&mut frames, &wire).unwrap(), [REQUEST]);
}

#[test]
fn empty_frames_are_counted() {
    let mut frames = frames(Kind::Response);
    feed(&mut frames, RESPONSE).unwrap();
    let faults = (0..200).find_map(|_| feed(&mut frames, &[0; 16384]).err());
    assert_eq!(faults.map(code), Some(Code::H3_EXCESSIVE_LOAD));
}

#[test]
fn field_section_that_is_too_long_is_not_kept() {
    let mut frames = frames(Kind::Request);
    let out = feed(&mut frames, &[1, 0x60, 0, 7, 7]).unwrap().concat();
    assert_eq!(out, whole(HEADERS, STAND_IN));
    assert!(frames.is_too_long());
    assert_eq!(frames.content_left(), 0x2000 - 2);
    assert!(feed(&mut frames, &[7; 0x2000 - 2]).unwrap().is_empty());
    assert_eq!((frames.content_left(), frames.shared.incomplete()), (0, 0));
    assert_eq!(frames.end(), Ok(None));
    // For a response, `h3` gets a field section that exceeds its limit, and rejects it itself.
    let mut response = self::frames(Kind::Response);
    let out = feed(&mut response, &[1, 0x60, 0, 7, 7]).unwrap().concat();
    assert_eq!((&out[..6], out.len()), (&[1, 0x40, 131, 0, 0, ENTRY][..], 134));
    assert!(feed(&mut response, &[7; 0x2000 - 2]).unwrap().is_empty());
    assert_eq!(response.shared.incomplete(), 0);
    let absurd = [1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff];
    let fault = feed(&mut self::frames(Kind::Request), &absurd).unwrap_err();
    assert_eq!(code(fault), Code::H3_EXCESSIVE_LOAD);
}

/// A field section that is within the limit on the wire, but exceeds the limit when decoded, must
/// be replaced. It consists of static-table entries, which take one byte and add more than 32 bytes
/// to the decoded size (RFC 9114 s.4.2.2).
#[test]
fn field_section_that_is_too_long_when_decoded_is_refused() {
    let section = [STAND_IN, &[ENTRY | 0x2; 110]].concat();
    assert!(section.len() < 4096);
    let wire = whole(HEADERS, &section);
    for pieces in [1, 7] {
        let mut frames = frames(Kind::Request);
        let out: Vec<_> = wire
            .chunks(wire.len() / pieces)
            .flat_map(|part| feed(&mut frames, part).unwrap())
            .collect();
        assert_eq!(out.concat(), whole(HEADERS, STAND_IN));
        assert!(frames.is_too_long() && frames.content_left() == 0);
        // The rest of the message is forwarded as usual.
        assert_eq!(feed(&mut frames, &[0, 1, 7]).unwrap().concat(), [0, 1, 7]);
        assert_eq!(frames.end(), Ok(None));
    }
    let mut frames = frames(Kind::Request);
    feed(&mut frames, REQUEST).unwrap();
    let trailers = whole(HEADERS, &[&[0, 0][..], &[0xc2; 120]].concat());
    assert_eq!(code(feed(&mut frames, &trailers).unwrap_err()), Code::H3_MESSAGE_ERROR);
    assert!(!frames.is_too_long());
}

#[test]
fn incomplete_frames_of_a_connection_are_limited() {
    let shared = shared();
    let start = [&[1, 0x50, 0][..], &[0; 3000]].concat();
    let mut streams: Vec<_> =
        (0..4).map(|_| Frames::new(Kind::Request, Arc::clone(&shared))).collect();
    for stream in &mut streams[..3] {
        feed(stream, &start).unwrap();
    }
    assert_eq!(shared.incomplete(), 9000);
    assert_eq!(code(feed(&mut streams[3], &start).unwrap_err()), Code::H3_EXCESSIVE_LOAD);
    drop(streams);
    assert_eq!(shared.incomplete(), 0);
}

// RFC 9114 s.4.1 #3, s.7.2.3 #6, s.7.2.4 #3 #4, s.7.2.5 #2 #10, s.7.2.6 #2, s.7.2.7 #1, s.7.2.8 #2
#[test]
fn frame_order_is_checked() {
    for (kind, wire) in [
        (Kind::Request, &[&[0, 1, 7][..]][..]),
        (Kind::Response, &[&[0, 1, 7]]),
        (Kind::Response, &[INTERIM_103, &[0, 1, 7]]),
        (Kind::Response, &[RESPONSE, TRAILERS, &[0, 1, 7]]),
        (Kind::Response, &[RESPONSE, TRAILERS, TRAILERS]),
        (Kind::Request, &[REQUEST, &[4, 0]]),
        (Kind::Request, &[&[7, 1, 0]]),
        (Kind::Request, &[&[3, 1, 0]]),
        (Kind::Request, &[&[0xd, 1, 0]]),
        (Kind::Request, &[&[5, 1, 0]]),
        (Kind::Request, &[&[2, 0]]),
    ] {
        let fault = feed(&mut frames(kind), &wire.concat()).unwrap_err();
        assert_eq!(code(fault), Code::H3_FRAME_UNEXPECTED, "{wire:?}");
    }
    let push = feed(&mut frames(Kind::Response), &[5, 1, 0]).unwrap_err();
    assert_eq!(code(push), Code::H3_ID_ERROR);
}

#[test]
fn trailers_are_forwarded_at_the_end_only() {
    let mut frames = frames(Kind::Response);
    let wire = [INTERIM_103, RESPONSE, &[0, 1, 7], TRAILERS, &[0x21, 1, 0]].concat();
    assert_eq!(feed(&mut frames, &wire).unwrap().last().unwrap(), &[0, 1, 7][..]);
    assert_eq!(frames.end(), Ok(Some(Bytes::from_static(TRAILERS))));
    assert_eq!(frames.end(), Ok(None));
}

#[test]
fn interim_responses_are_limited() {
    let mut frames = frames(Kind::Response);
    let faults = (0..100).find_map(|_| feed(&mut frames, INTERIM_103).err());
    assert_eq!(faults.map(code), Some(Code::H3_EXCESSIVE_LOAD));
}

#[test]
fn malformed_response_without_header_fields() {
    let mut frames = frames(Kind::Response);
    feed(&mut frames, INTERIM_103).unwrap();
    assert_eq!(code(frames.end().unwrap_err()), Code::H3_MESSAGE_ERROR);
    let mut request = self::frames(Kind::Request);
    assert_eq!(request.end(), Ok(None), "h3 knows what to say to that");
}
