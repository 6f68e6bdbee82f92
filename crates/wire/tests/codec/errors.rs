//! Tests that malformed input is rejected with the right error code, and that each frame type is
//! accepted only in the packets that may contain it.

use crate::support::frames::{ROWS, Row};
use crate::support::hex;
use equic_wire::TransportErrorCode as Code;
use equic_wire::frame::{Frame, FrameErrorKind, FrameType, Frames};
use equic_wire::packet::{
    Datagram, LongInvariant, Packet, PacketError, PacketType, ParseOptions, Protected,
};
use equic_wire::{ConnectionId, Side, VarInt, Version};

// RFC 9000 s.12.4 #2 #5, s.19.3.1 #1, s.19.6 #1, s.19.7 #1 #2, s.19.11 #1, s.19.14 #2, s.19.15 #1
// RFC 9000 s.19.15 #5 #6, s.19.20 #2
#[test]
fn frame_errors() {
    use FrameErrorKind::*;
    let rows = [
        ("4001", TypeNotShortest, Code::PROTOCOL_VIOLATION),
        ("80000000", TypeNotShortest, Code::PROTOCOL_VIOLATION),
        ("40", Truncated, Code::FRAME_ENCODING_ERROR),
        // These ACK frames have a first range, a gap, or another range that goes below zero.
        ("0205000006", NegativePacketNumber, Code::FRAME_ENCODING_ERROR),
        ("02050001040000", NegativePacketNumber, Code::FRAME_ENCODING_ERROR),
        ("02050001000303", NegativePacketNumber, Code::FRAME_ENCODING_ERROR),
        ("020500010000ff", Truncated, Code::FRAME_ENCODING_ERROR),
        // An ACK frame that declares the largest possible number of ranges, and contains none.
        ("020500ffffffffffffffff00", Truncated, Code::FRAME_ENCODING_ERROR),
        ("03050000000000", Truncated, Code::FRAME_ENCODING_ERROR),
        ("06ffffffffffffffff0100", OffsetTooLarge, Code::FRAME_ENCODING_ERROR),
        ("0605ffffffffffffffff", Truncated, Code::FRAME_ENCODING_ERROR),
        ("0700", EmptyToken, Code::FRAME_ENCODING_ERROR),
        ("0c04ffffffffffffffff00", OffsetTooLarge, Code::FRAME_ENCODING_ERROR),
        ("0e04ffffffffffffffff0100", OffsetTooLarge, Code::FRAME_ENCODING_ERROR),
        ("12d000000000000001", StreamCountTooLarge, Code::FRAME_ENCODING_ERROR),
        ("13d000000000000001", StreamCountTooLarge, Code::FRAME_ENCODING_ERROR),
        ("16d000000000000001", StreamCountTooLarge, Code::FRAME_ENCODING_ERROR),
        ("17d000000000000001", StreamCountTooLarge, Code::FRAME_ENCODING_ERROR),
        ("18010000", ConnectionIdLength, Code::FRAME_ENCODING_ERROR),
        ("18010015", ConnectionIdLength, Code::FRAME_ENCODING_ERROR),
        ("18010201aa00112233445566778899aabbccddeeff", RetirePriorTo, Code::FRAME_ENCODING_ERROR),
        ("1a01020304050607", Truncated, Code::FRAME_ENCODING_ERROR),
        ("1c000005", Truncated, Code::FRAME_ENCODING_ERROR),
        ("3102", Truncated, Code::FRAME_ENCODING_ERROR),
    ];
    for (bytes, kind, code) in rows {
        // A valid PING frame precedes the malformed frame, which therefore is not at the start.
        let payload = [vec![1], hex(bytes)].concat();
        let mut frames = Frames::new(&payload).expect("it is not empty");
        assert_eq!(frames.next(), Some(Ok(Frame::Ping)));
        let error = frames.next().expect("there is more").expect_err(bytes);
        assert_eq!((error.kind, error.code()), (kind, code), "{bytes}: {error}");
        assert_eq!(frames.next(), None);
    }
    let error = Frames::new(&[]).expect_err("no frame");
    assert_eq!((error.kind, error.code()), (NoFrames, Code::PROTOCOL_VIOLATION));
}

#[test]
fn frame_edges_that_are_legal() {
    // These frames are exactly at the limits: 2^60 streams, data up to offset 2^62-1, and packet
    // numbers down to 0.
    for bytes in ["12d000000000000000", "0e04fffffffffffffffe01aa", "0205000005", "02050001020100"]
    {
        let payload = hex(bytes);
        let mut frames = Frames::new(&payload).expect("it is not empty");
        assert!(matches!(frames.next(), Some(Ok(_))), "{bytes}");
        assert_eq!(frames.next(), None, "{bytes}");
    }
}

#[test]
fn frame_padding_is_counted_in_one_piece() {
    for len in 1..70 {
        let payload = [vec![0; len], vec![1], vec![0; len], vec![1]].concat();
        let frames: Vec<_> = Frames::new(&payload).unwrap().map(Result::unwrap).collect();
        let padding = Frame::Padding(len.try_into().unwrap());
        assert_eq!(frames, [padding, Frame::Ping, padding, Frame::Ping]);
    }
}

#[test]
fn frame_of_an_unknown_type_is_for_the_extension() {
    // The payload is a PING frame, a frame of an extension (type 0x2f5a, with one integer), and
    // another PING frame.
    let payload = hex("016f5a4a0101");
    let mut frames = Frames::new(&payload).unwrap();
    assert_eq!(frames.next(), Some(Ok(Frame::Ping)));
    let Some(Ok(Frame::Unknown(unknown))) = frames.next() else { panic!("not unknown") };
    assert_eq!((unknown.frame_type.0.get(), unknown.rest), (0x2f5a, &payload[3..]));
    assert_eq!(unknown.error().code(), Code::FRAME_ENCODING_ERROR);
    assert_eq!(frames.next(), None, "nobody knows where it ends");
    frames.resume(&unknown.rest[2..]);
    assert_eq!(frames.next(), Some(Ok(Frame::Ping)));
    assert_eq!(frames.next(), None);
}

/// Checks the properties of each frame type against RFC 9000 table 3, and against the
/// specifications of the extensions.
// RFC 9221 s.5 #3, s.6 #1
// RFC 9000 s.12.5 #1 #2, s.17.2.4 #1
// RFC 9001 s.8.3 #2
// RFC 10069 s.4 #1 #2
#[test]
fn frame_types_permitted_by_packet_type() {
    let packets =
        [PacketType::Initial, PacketType::Handshake, PacketType::ZeroRtt, PacketType::OneRtt];
    let mut known = 0;
    for Row { types, packets: allowed, marks, server_only, .. } in ROWS {
        for number in *types {
            known += 1;
            let frame_type = FrameType(VarInt::new(*number).unwrap());
            assert!(frame_type.is_known());
            for (packet, mark) in packets.into_iter().zip(allowed.chars()) {
                assert_eq!(frame_type.allowed_in(packet), Some(mark != '_'), "{frame_type:?}");
            }
            let mark = |is: bool, mark: char| if is { mark } else { '_' };
            let of_type = [
                mark(frame_type.is_ack_eliciting(), 'a'),
                mark(frame_type.is_in_flight(), 'f'),
                mark(frame_type.is_probing(), 'p'),
                mark(frame_type.is_flow_controlled(), 'c'),
            ];
            assert!(of_type.into_iter().eq(marks.chars()), "{frame_type:?}: {of_type:?}");
            assert_eq!(frame_type.may_be_sent_by(Side::Client), !*server_only);
            assert!(frame_type.may_be_sent_by(Side::Server));
        }
    }
    let all = (0..0x1_0000).filter(|n| FrameType(VarInt::from_u32(*n)).is_known()).count();
    assert_eq!(all, known, "each known type is in a row");
    let extension = FrameType(VarInt::from_u32(0x2f5a));
    assert!(extension.is_ack_eliciting() && extension.is_in_flight());
    assert_eq!(extension.allowed_in(PacketType::Initial), None);
}

// RFC 9000 s.12.4 #3
#[test]
fn frame_in_the_wrong_packet_is_a_protocol_violation() {
    let error = Frame::Ping.check_allowed(PacketType::Initial, Side::Client);
    assert_eq!(error, Ok(()));
    let error = Frame::MaxData(VarInt::ZERO).check_allowed(PacketType::Handshake, Side::Client);
    let error = error.unwrap_err();
    assert_eq!(error.kind, FrameErrorKind::WrongPacketType);
    assert_eq!(error.code(), Code::PROTOCOL_VIOLATION);
    let error = Frame::HandshakeDone.check_allowed(PacketType::OneRtt, Side::Client).unwrap_err();
    assert_eq!((error.kind, error.code()), (FrameErrorKind::WrongSender, Code::PROTOCOL_VIOLATION));
}

// RFC 9000 s.10.3 #6, s.17.2 #1 #2 #3 #5 #6, s.17.2.5.2 #4
// RFC 9001 s.5.4.2 #1
#[test]
fn packet_errors() {
    let rows = [
        ("8000000001", PacketError::Truncated),
        ("800000000100004000", PacketError::FixedBit),
        ("c00000000115", PacketError::Truncated),
        ("00112233445566778899aabbccddeeff0011223344", PacketError::FixedBit),
        ("40112233445566778899aabbccddeeff00112233", PacketError::TooShortToSample),
        ("c0000000010000004013", PacketError::Truncated),
        ("f00000000100001122", PacketError::Truncated),
        ("f00000000100000102030405060708090a0b0c0d0e0f10", PacketError::EmptyRetryToken),
        ("80000000000000000000", PacketError::VersionList),
    ];
    for (bytes, error) in rows {
        let bytes = hex(bytes);
        let read = Datagram::new(&bytes, ParseOptions::default()).next();
        assert_eq!(read, Some(Err(error)), "{bytes:02x?}");
    }
    let long_id = [hex("c00000000115"), vec![1; 21], vec![0; 40]].concat();
    let read = Datagram::new(&long_id, ParseOptions::default()).next();
    assert_eq!(read, Some(Err(PacketError::ConnectionIdTooLong)));
    // A packet of another version may have a connection ID of 21 bytes.
    let other = [hex("c00a1a2a3a15"), vec![1; 21], vec![0; 40]].concat();
    let read = Datagram::new(&other, ParseOptions::default()).next();
    let Some(Ok(Packet::UnknownVersion(LongInvariant { version, dcid, .. }))) = read else {
        panic!("{read:?}");
    };
    assert_eq!((version, dcid.len()), (Version(0x0a1a_2a3a), 21));
    assert!(version.is_reserved() && Version::reserved(0x1234_5678).is_reserved());
    assert_eq!(version, Version::reserved(version.0));
}

// RFC 9000 s.12.2 #1 #5 #6
#[test]
fn packet_behind_one_too_short_to_open_is_read() {
    let short = hex("e00000000100000401020304");
    let good = [hex("e0000000010000"), vec![20], vec![9; 20]].concat();
    let one_rtt = [vec![0x40], vec![8; 30]].concat();
    let datagram = [good.clone(), short, good, one_rtt].concat();
    let packets: Vec<_> = Datagram::new(&datagram, ParseOptions::default()).collect();
    assert!(
        matches!(
            packets[..],
            [
                Ok(Packet::Long(_)),
                Err(PacketError::TooShortToSample),
                Ok(Packet::Long(_)),
                Ok(Packet::Short(_))
            ]
        ),
        "{packets:?}"
    );
}

#[test]
fn error_codes() {
    assert_eq!(Code::crypto(40).0.get(), 0x128);
    assert_eq!(Code::crypto(40).tls_alert(), Some(40));
    assert_eq!(Code::crypto(40).name(), Some("CRYPTO_ERROR"));
    assert_eq!(Code::NO_VIABLE_PATH.to_string(), "NO_VIABLE_PATH");
    assert_eq!(Code(VarInt::from_u32(0x200)).name(), None);
    assert_eq!(Code(VarInt::from_u32(0x200)).tls_alert(), None);
}

// RFC 9000 s.17.3.1 #1
#[test]
fn packet_short_header_by_its_parts() {
    let packet = [vec![0x40], vec![8; 30]].concat();
    let Some(Ok(Packet::Short(short))) = Datagram::new(&packet, ParseOptions::default()).next()
    else {
        panic!("the first byte says that its header is short");
    };
    let dcid_len = ParseOptions::default().dcid_len;
    assert_eq!(Protected::of_short_header(0x40, dcid_len, false), Some(short.protected()));
    assert_eq!(Protected::of_short_header(0x00, dcid_len, true), Some(short.protected()));
    assert_eq!(Protected::of_short_header(0x00, dcid_len, false), None, "no Fixed Bit");
}

#[test]
fn cid_bytes_are_its_own() {
    for len in 0..=ConnectionId::MAX_LEN {
        let mut bytes = vec![7; len];
        let id = ConnectionId::new(&bytes).unwrap();
        assert!(id.is(&bytes), "{len}");
        assert!(!id.is(&[&bytes[..], &[0]].concat()), "{len}: one more, as behind it in memory");
        if let Some(last) = bytes.last_mut() {
            *last = 8;
            assert!(!id.is(&bytes) && !id.is(&bytes[1..]), "{len}");
        }
    }
}
