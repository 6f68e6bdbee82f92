//! Tests the encoding of exchange frames and of the exchange's transport parameter.

use equic_plugin::exchange::{
    Budgets, Frame, Kind, MAX_CARRIED, MAX_REASON, Offer, Parameter, Status, Violation,
};
use equic_plugin::{Class, Policy};

fn written(frame: &Frame<'_>) -> Vec<u8> {
    let mut room = [0; 2000];
    let length = frame.write(&mut room).unwrap();
    room[..length].to_vec()
}

fn offer() -> Offer {
    Offer {
        plugin: 7,
        hash: [0xab; 32],
        size: 4321,
        preamble: 500,
        replaces: Some(3),
        frame_types: vec![0x1f00, 0x2f01_0203],
        carried: b"abc".to_vec(),
    }
}

#[test]
fn frame_encodings_match_the_document() {
    let head = [0xaf, 0x50, 0x4c, 0x01];
    let want = Frame::Want { plugin: 1, limit: 16_384 };
    assert_eq!(written(&want), [&head[..], &[5, 1, 0x80, 0, 0x40, 0]].concat());
    let data = Frame::Data { plugin: 2, offset: 9, data: b"abc" };
    assert_eq!(written(&data), b"\xaf\x50\x4c\x02\x05\x02\x09abc");
    let status = Frame::Status { plugin: 2, status: Status::Refused, reason: "no" };
    assert_eq!(written(&status), b"\xaf\x50\x4c\x03\x05\x02\x01\x02no");
    assert_eq!(written(&Frame::Detach { plugin: 5 }), b"\xaf\x50\x4c\x04\x01\x05");
    assert_eq!(written(&Frame::Reserved), b"\xaf\x50\x4c\x05\x00");
    let offer = written(&Frame::Offer(offer()));
    assert_eq!(offer[..6], *b"\xaf\x50\x4c\x00\x31\x07");
    assert_eq!(offer[38..], *b"\x50\xe1\x41\xf4\x04\x02\x5f\x00\xaf\x01\x02\x03\x03abc");
}

#[test]
fn frame_round_trip() {
    let frames = [
        Frame::Offer(offer()),
        Frame::Offer(Offer { replaces: None, frame_types: vec![], ..offer() }),
        Frame::Offer(Offer { carried: vec![], ..offer() }),
        Frame::Offer(Offer { preamble: 8000, carried: vec![7; MAX_CARRIED], ..offer() }),
        Frame::Want { plugin: 255, limit: (1 << 62) - 1 },
        Frame::Data { plugin: 0, offset: 1 << 40, data: &[7; 1000] },
        Frame::Data { plugin: 0, offset: 0, data: &[] },
        Frame::Status { plugin: 9, status: Status::Active, reason: "" },
        Frame::Status { plugin: 9, status: Status::Removed, reason: "\u{e9}" },
        Frame::Status { plugin: 9, status: Status::Other(4711), reason: "" },
        Frame::Detach { plugin: 64 },
        Frame::Reserved,
    ];
    for frame in frames {
        let bytes = written(&frame);
        assert_eq!(Frame::read(&bytes), Ok((frame.clone(), bytes.len())));
        // Bytes after a frame belong to the next frame, so they must not be read.
        let more = [&bytes[..], &[1, 2, 3]].concat();
        assert_eq!(Frame::read(&more), Ok((frame.clone(), bytes.len())));
        for cut in 0..bytes.len() {
            assert_eq!(Frame::read(&bytes[..cut]), Err(Violation::Cut), "{frame:?}");
        }
        for room in 0..bytes.len() {
            assert!(frame.write(&mut vec![0; room]).is_err());
        }
    }
}

/// Returns a frame of this kind with this body.
fn raw(kind: Kind, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0xaf, 0x50, 0x4c, kind as u8, 0x40, body.len() as u8];
    bytes.extend_from_slice(body);
    bytes
}

#[test]
fn frame_with_invalid_fields_is_a_violation() {
    let read = |kind, body: &[u8]| Frame::read(&raw(kind, body)).map(|(frame, _)| frame.kind());
    assert_eq!(read(Kind::Detach, &[0x41, 0x00]), Err(Violation::PluginId(256)));
    assert_eq!(read(Kind::Status, &[0, 1, 1, 0xff]), Err(Violation::Reason));
    let long = [&[0, 1, 0x40, MAX_REASON as u8 + 1][..], &[b'a'; MAX_REASON + 1]].concat();
    assert_eq!(read(Kind::Status, &long), Err(Violation::Reason));
    let offer = |rest: &[u8]| read(Kind::Offer, &[&[1][..], &[0; 32], &[5, 3], rest].concat());
    assert_eq!(offer(&[0, 0, 0]), Ok(Kind::Offer));
    assert_eq!(offer(&[0, 0, 3, 1, 2, 3]), Ok(Kind::Offer));
    assert_eq!(offer(&[2, 0, 0]), Err(Violation::PluginId(1)), "it would replace itself");
    assert_eq!(offer(&[0x41, 0x01, 0, 0]), Err(Violation::PluginId(256)));
    assert_eq!(offer(&[0, 9]), Err(Violation::TooManyTypes));
    assert_eq!(offer(&[0, 0, 4, 1, 2, 3, 4]), Err(Violation::Carried(1)), "more than the preamble");
    assert_eq!(offer(&[0, 0, 4, 1, 2, 3]), Err(Violation::Cut));
    let mut much = [&[1][..], &[0; 32], &[0x60, 0, 0x60, 0, 0, 0, 0x44, 1]].concat();
    much.extend([0; MAX_CARRIED + 1]);
    let mut bytes = b"\xaf\x50\x4c\x00\x44".to_vec();
    bytes.push((much.len() - 0x400) as u8);
    bytes.extend(much);
    assert_eq!(Frame::read(&bytes), Err(Violation::Carried(1)), "more than fits");
    assert_eq!(Frame::read(&[0x1f, 0]), Err(Violation::FrameType(0x1f)));
}

#[test]
fn frame_options_and_codes_that_are_unknown_are_skipped() {
    let read = |kind, body: &[u8]| Frame::read(&raw(kind, body)).map(|(frame, _)| frame.kind());
    // A complete option must be skipped, and a truncated option must be an error.
    assert_eq!(read(Kind::Detach, &[3, 0x1b, 2, 1, 2]), Ok(Kind::Detach));
    assert_eq!(read(Kind::Want, &[3, 5, 0x1b, 2, 1]), Err(Violation::Cut));
    // A STATUS frame with a reserved code, and a reserved frame with content, must be skipped.
    assert_eq!(read(Kind::Status, &[3, 27 + 31, 0]), Ok(Kind::Reserved));
    assert_eq!(read(Kind::Reserved, b"anything"), Ok(Kind::Reserved));
}

#[test]
fn parameter_round_trip() {
    let policy = "anyone = [\"observe\"]\n";
    let policy = Policy::parse(policy).unwrap();
    let parameter = Parameter::of(Some(&policy), Budgets::default(), false);
    let bytes = parameter.write(None);
    let expected = [2, 2, 0x80, 1, 0, 0, 0x80, 4, 0, 0, 16, 1, 0x44, 0];
    assert_eq!(bytes, expected);
    assert_eq!(Parameter::read(&bytes), Ok(parameter.clone()));
    // An unknown option and unknown classes must be ignored.
    let greased = parameter.write(Some((9, b"grease")));
    assert!(greased.len() > bytes.len());
    assert_eq!(Parameter::read(&greased), Ok(parameter.clone()));
    let mut classes = bytes.clone();
    classes[11] = 0x21;
    assert_eq!(Parameter::read(&classes), Ok(parameter.clone()));
    for cut in 0..bytes.len() {
        assert_eq!(Parameter::read(&bytes[..cut]), Err(Violation::Cut));
    }
    let many = [2, 2, 0x80, 1, 0, 0, 0x80, 4, 0, 0, 0x41, 0x01, 1, 0];
    assert!(matches!(Parameter::read(&many), Err(Violation::Parameter(_))));
    let much = [2, 2, 0x80, 1, 0, 0, 0x80, 4, 0, 0, 16, 1, 0x44, 1];
    assert!(matches!(Parameter::read(&much), Err(Violation::Parameter(_))));
    // An endpoint with a cache must permit no bundle bytes in offers, because the hash may be
    // enough.
    let cached = Parameter::of(Some(&policy), Budgets::default(), true);
    assert_eq!((parameter.carried, cached.carried), (MAX_CARRIED as u64, 0));
    // An endpoint whose policy grants nothing must declare limits of zero.
    let none = Parameter::of(Some(&Policy::default()), Budgets::default(), false);
    assert_eq!((none.budgets, none.classes.len(), none.carried), (Budgets::NONE, 0, 0));
    let all = Class::ALL.iter().copied().collect();
    let all = Parameter { classes: all, ..none };
    assert!(!Parameter::read(&all.write(None)).unwrap().classes.contains(&Class::Payload));
}
