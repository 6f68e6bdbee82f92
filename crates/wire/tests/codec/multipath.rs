//! Tests the frames, the transport parameter and the error codes of multipath QUIC (RFC 10069). The
//! expected bytes were written by hand from the figures of the RFC.

use crate::support::hex;
use equic_wire::frame::{
    AckRange, EcnCounts, Frame, FrameErrorKind, FrameType, Frames, NewConnectionId, PathAbandon,
    PathCidsBlocked, PathNewConnectionId, PathRetireConnectionId, PathStatus, write_path_ack,
};
use equic_wire::packet::PacketType;
use equic_wire::params::{ParameterErrorKind, ParameterId, TransportParameters};
use equic_wire::{
    ConnectionId, PacketNumber, PathId, ResetToken, Side, TransportErrorCode as Code, VarInt,
    Writer,
};

fn only(payload: &[u8]) -> Frame<'_> {
    let mut frames = Frames::new(payload).expect("it is not empty");
    let frame = frames.next().expect("there is one").expect("it parses");
    assert_eq!(frames.next(), None);
    frame
}

fn written(frame: &Frame<'_>) -> Vec<u8> {
    let mut buffer = vec![0; frame.encoded_len()];
    frame.write(&mut Writer::new(&mut buffer)).expect("as long as it says");
    buffer
}

fn range(smallest: u64, largest: u64) -> AckRange {
    let number = |number| PacketNumber::new(number).expect("in range");
    AckRange::new(number(smallest), number(largest)).expect("in order")
}

fn varint(value: u32) -> VarInt {
    VarInt::from_u32(value)
}

#[test]
fn multipath_frame_bytes() {
    let path_id = PathId::new;
    let token = ResetToken([0x5a; 16]);
    let connection_id = ConnectionId::new(&[0xc0, 0xff, 0xee]).expect("it is short");
    let new = NewConnectionId::new(varint(2), varint(1), connection_id, token).expect("legal");
    let rows = [
        (
            "7e75 03 3e",
            Frame::PathAbandon(PathAbandon {
                path_id: path_id(3),
                error_code: Code::APPLICATION_ABANDON_PATH,
            }),
        ),
        (
            "7e75 00 7e77",
            Frame::PathAbandon(PathAbandon {
                path_id: PathId::ZERO,
                error_code: Code::NO_CID_AVAILABLE_FOR_PATH,
            }),
        ),
        (
            "7e76 01 4040",
            Frame::PathStatusBackup(PathStatus {
                path_id: path_id(1),
                sequence_number: varint(64),
            }),
        ),
        (
            "7e77 01 4041",
            Frame::PathStatusAvailable(PathStatus {
                path_id: path_id(1),
                sequence_number: varint(65),
            }),
        ),
        (
            "7e78 05 02 01 03 c0ffee 5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a",
            Frame::PathNewConnectionId(PathNewConnectionId { path_id: path_id(5), new }),
        ),
        (
            "7e79 4100 07",
            Frame::PathRetireConnectionId(PathRetireConnectionId {
                path_id: path_id(256),
                sequence_number: varint(7),
            }),
        ),
        ("7e7a c0000000ffffffff", Frame::MaxPathId(PathId::MAX)),
        ("7e7b 08", Frame::PathsBlocked(path_id(8))),
        (
            "7e7c 09 0a",
            Frame::PathCidsBlocked(PathCidsBlocked {
                path_id: path_id(9),
                next_sequence_number: varint(10),
            }),
        ),
    ];
    for (text, frame) in rows {
        let bytes = hex(&text.replace(' ', ""));
        assert_eq!(only(&bytes), frame, "{text}");
        assert_eq!(written(&frame), bytes, "{text}");
        assert_eq!(frame.frame_type().allowed_in(PacketType::OneRtt), Some(true));
    }
}

// RFC 10069 s.2.3 #1
#[test]
fn multipath_path_ack() {
    // On path 2, packets 20 to 17 are acknowledged, 16 and 15 are missing, and 14 is acknowledged.
    // The ACK Delay field is 100.
    let bytes = hex("3e02144064010301 00".replace(' ', "").as_str());
    let Frame::PathAck(path_ack) = only(&bytes) else { panic!("not a PATH_ACK") };
    assert_eq!(path_ack.path_id, PathId::new(2));
    assert_eq!((path_ack.ack.raw_delay(), path_ack.ack.ecn()), (varint(100), None));
    assert!(path_ack.ack.ranges().eq([range(17, 20), range(14, 14)]));
    assert_eq!(written(&Frame::PathAck(path_ack)), bytes);
    let mut buffer = [0; 32];
    let mut writer = Writer::new(&mut buffer);
    let ranges = [range(17, 20), range(14, 14)];
    let ack = write_path_ack(&mut writer, PathId::new(2), ranges, varint(100), None);
    assert_eq!(ack.expect("it fits").ranges, 2);
    assert_eq!(writer.written(), bytes);
}

#[test]
fn multipath_path_ack_with_ecn_counts() {
    // On path 2^32-1, packet 5 is acknowledged without delay. The ECN counts are 3 packets with
    // ECT(0), 1 with ECT(1) and 64 with CE.
    let bytes = hex("3fc0000000ffffffff050000000301 4040".replace(' ', "").as_str());
    let Frame::PathAck(path_ack) = only(&bytes) else { panic!("not a PATH_ACK") };
    let counts = EcnCounts { ect0: varint(3), ect1: varint(1), ce: varint(64) };
    assert_eq!((path_ack.path_id, path_ack.ack.ecn()), (PathId::MAX, Some(counts)));
    assert_eq!(Frame::PathAck(path_ack).frame_type(), FrameType::PATH_ACK_ECN);
    let mut buffer = [0; 32];
    let mut writer = Writer::new(&mut buffer);
    write_path_ack(&mut writer, PathId::MAX, [range(5, 5)], VarInt::ZERO, Some(counts))
        .expect("it fits");
    assert_eq!(writer.written(), bytes);
    // Nothing is written into a buffer that is one byte too small.
    let mut less = [0; 16];
    let mut writer = Writer::new(&mut less[..bytes.len() - 1]);
    let ack = write_path_ack(&mut writer, PathId::MAX, [range(5, 5)], VarInt::ZERO, Some(counts));
    assert!(ack.is_err() && writer.position() == 0);
}

// RFC 10069 s.4.6 #1 #3
#[test]
fn multipath_path_id_has_32_bits() {
    let types = ["3e", "3f", "7e75", "7e76", "7e77", "7e78", "7e79", "7e7a", "7e7b", "7e7c"];
    for frame_type in types {
        let payload = hex(&format!("{frame_type}c000000100000000{}", "01".repeat(30)));
        let error = Frames::new(&payload).unwrap().next().unwrap().expect_err(frame_type);
        assert_eq!(error.kind, FrameErrorKind::PathIdTooLarge, "{error}");
        assert_eq!(error.code(), Code::PROTOCOL_VIOLATION);
        let cut = hex(&format!("{frame_type}40"));
        let error = Frames::new(&cut).unwrap().next().unwrap().expect_err(frame_type);
        assert_eq!(
            (error.kind, error.code()),
            (FrameErrorKind::Truncated, Code::FRAME_ENCODING_ERROR)
        );
    }
}

#[test]
fn multipath_frames_have_the_rules_of_ack_and_new_connection_id() {
    use FrameErrorKind::{ConnectionIdLength, NegativePacketNumber, RetirePriorTo};
    let rows = [
        ("3e010500 0006", NegativePacketNumber),
        ("3f010500 01040000", NegativePacketNumber),
        ("7e7801 010000", ConnectionIdLength),
        ("7e7801 010015", ConnectionIdLength),
        ("7e7801 010201aa00112233445566778899aabbccddeeff", RetirePriorTo),
    ];
    for (bytes, kind) in rows {
        let payload = hex(&bytes.replace(' ', ""));
        let error = Frames::new(&payload).unwrap().next().unwrap().expect_err(bytes);
        assert_eq!((error.kind, error.code()), (kind, Code::FRAME_ENCODING_ERROR), "{bytes}");
    }
}

#[test]
fn multipath_frames_are_known_by_their_type() {
    let of_multipath = |number: u32| FrameType(varint(number)).is_multipath();
    assert!((0x3e..=0x3f).chain(0x3e75..=0x3e7c).all(of_multipath));
    assert_eq!((0..0x1_0000).filter(|number| of_multipath(*number)).count(), 10);
}

#[test]
fn multipath_param() {
    let mandatory = hex("0f0401020304");
    let parse = |more: &str| {
        let bytes = [&mandatory[..], &hex(more)].concat();
        let parameters = TransportParameters::parse(&bytes, Side::Client);
        parameters.map(|parameters| parameters.initial_max_path_id)
    };
    assert_eq!(parse(""), Ok(None));
    assert_eq!(parse("3e0100"), Ok(Some(PathId::ZERO)));
    assert_eq!(parse("3e024100"), Ok(Some(PathId::new(256))));
    assert_eq!(parse("3e08c0000000ffffffff"), Ok(Some(PathId::MAX)));
    let error = parse("3e08c000000100000000").expect_err("beyond 2^32-1");
    assert_eq!(error.id, Some(ParameterId::INITIAL_MAX_PATH_ID));
    assert_eq!(
        (error.kind, error.code()),
        (ParameterErrorKind::Value, Code::TRANSPORT_PARAMETER_ERROR)
    );
    assert_eq!(parse("3e00").expect_err("no integer").kind, ParameterErrorKind::Length);
    assert_eq!(parse("3e01013e0101").expect_err("twice").kind, ParameterErrorKind::Duplicate);

    // The parameter is written even if its value is 0, because its presence enables multipath.
    let mut set = TransportParameters::client(ConnectionId::new(&[1, 2, 3, 4]).unwrap());
    for (id, bytes) in
        [(PathId::ZERO, "3e01000f0401020304"), (PathId::new(4), "3e01040f0401020304")]
    {
        set.initial_max_path_id = Some(id);
        let mut buffer = vec![0; set.encoded_len()];
        set.write(&mut Writer::new(&mut buffer)).expect("as long as it says");
        assert_eq!(buffer, hex(bytes));
    }
}

#[test]
fn multipath_path_abandon_codes() {
    let codes = [
        (0x3e, "APPLICATION_ABANDON_PATH"),
        (0x3e75, "PATH_RESOURCE_LIMIT_REACHED"),
        (0x3e76, "PATH_UNSTABLE_OR_POOR"),
        (0x3e77, "NO_CID_AVAILABLE_FOR_PATH"),
    ];
    for (number, name) in codes {
        assert_eq!(Code(varint(number)).name(), Some(name));
    }
}
