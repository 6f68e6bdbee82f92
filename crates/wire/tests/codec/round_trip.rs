//! Tests that every legal value survives a round trip, and that every truncated encoding is an
//! error.

use crate::support::frames::{Example, ROWS};
use crate::support::strategies::*;
use crate::support::{check, laws};
use equic_wire::frame::{
    AckFrequency, ConnectionClose, Crypto, DatagramFrame, Frame, FrameErrorKind, FrameType, Frames,
    NewConnectionId, NewToken, PathAbandon, PathAck, PathCidsBlocked, PathNewConnectionId,
    PathRetireConnectionId, PathStatus, ResetStream, StopSending, Stream, StreamLimit,
    UnknownFrame, write_ack, write_path_ack,
};
use equic_wire::packet::{
    Datagram, LongHeader, Packet, PacketError, ParseOptions, Retry, ShortHeader, VersionNegotiation,
};
use equic_wire::{
    PacketNumber, PacketNumberLen, PathId, Reader, Side, StreamId, TransportErrorCode, VarInt,
    VarIntLen, Version, Writer,
};
use proptest::collection::vec;
use proptest::prelude::*;
use std::num::NonZeroUsize;

/// Checks that the frame is the same after it is written and read, that `encoded_len` is its
/// length, and that every truncated encoding is an error.
fn law_of_frame(frame: &Frame<'_>) {
    let mut buffer = vec![0; frame.encoded_len()];
    let mut writer = Writer::new(&mut buffer);
    frame.write(&mut writer).expect("as long as it says");
    assert_eq!(writer.remaining(), 0);
    let mut frames = Frames::new(&buffer).expect("it is not empty");
    assert_eq!(frames.next(), Some(Ok(*frame)));
    assert_eq!(frames.next(), None);
    let ends_itself = match frame {
        Frame::Padding(_) | Frame::Unknown(_) => false,
        Frame::Stream(stream) => !stream.is_to_end_of_packet(),
        Frame::Datagram(datagram) => !datagram.to_end_of_packet,
        _ => true,
    };
    for len in 1..buffer.len() {
        let read = Frame::read(&mut Reader::new(&buffer[..len]));
        if ends_itself {
            assert_eq!(read.map_err(|error| error.kind), Err(FrameErrorKind::Truncated), "{len}");
        }
    }
    laws::frames(&buffer);
}

#[test]
fn varint_round_trip() {
    check(varint(), |value| {
        for len in [VarIntLen::One, VarIntLen::Two, VarIntLen::Four, VarIntLen::Eight] {
            let mut buffer = [0xff; 8];
            let mut writer = Writer::new(&mut buffer);
            let fits = writer.varint_of_len(value, len).is_ok();
            assert_eq!(fits, len >= value.shortest());
            if fits {
                let mut reader = Reader::new(writer.written());
                assert_eq!(reader.varint_and_len(), Ok((value, len)));
                assert!(reader.is_empty());
            }
        }
    });
}

#[test]
fn packet_number_round_trip() {
    // The largest packet number that the peer has received is `acked`, or any number up to the one
    // before this packet. In each case, it must be able to restore the number.
    check((varint(), 1..1u64 << 31, any::<u64>()), |(acked, ahead, seen)| {
        let Some(sent) = PacketNumber::new(acked.get() + ahead) else { return };
        let acked = PacketNumber::from(acked);
        let truncated = sent.truncate(Some(acked)).unwrap_or_else(|| panic!("{ahead} ahead"));
        let largest = PacketNumber::new(acked.get() + seen % ahead).unwrap();
        assert_eq!(truncated.restore(Some(largest)), Some(sent));
        assert_eq!(truncated.len() == PacketNumberLen::One, ahead < 128);
    });
    assert_eq!(PacketNumber::ZERO.truncate(Some(PacketNumber::ZERO)), None);
    assert_eq!(PacketNumber::MAX.truncate(None), None);
    assert_eq!(PacketNumber::MAX.next(), None);
}

/// Returns the type of the only frame in an example. Checks that the frame survives a round trip.
fn type_of(example: &Example) -> u64 {
    let payload = example.payload();
    let mut frames = Frames::new(&payload).expect("it is not empty");
    let frame = frames.next().expect("it has a frame").expect(example.bytes);
    assert_eq!(frames.next(), None, "{}", example.bytes);
    law_of_frame(&frame);
    let mut written = vec![0; payload.len()];
    frame.write(&mut Writer::new(&mut written)).expect(example.bytes);
    assert_eq!(written, payload, "{frame:?}");
    frame.frame_type().0.get()
}

#[test]
fn frame_round_trip_of_every_type() {
    for row in ROWS {
        let mut types: Vec<u64> = row.examples.iter().map(type_of).collect();
        types.sort_unstable();
        types.dedup();
        assert_eq!(types, row.types, "each type has an example");
    }
}

#[test]
fn frame_round_trip_without_data() {
    let integers = (varint(), varint(), varint(), varint());
    check((integers, stream_id(), stream_count(), direction(), any::<[u8; 8]>()), |input| {
        let ((a, b, c, d), stream_id, count, direction, data) = input;
        let frames = [
            Frame::Padding(NonZeroUsize::MIN.saturating_add(data[0].into())),
            Frame::Ping,
            Frame::ResetStream(ResetStream { stream_id, error_code: a, final_size: b }),
            Frame::StopSending(StopSending { stream_id, error_code: a }),
            Frame::MaxData(a),
            Frame::MaxStreamData(StreamLimit { stream_id, limit: b }),
            Frame::MaxStreams(direction, count),
            Frame::DataBlocked(b),
            Frame::StreamDataBlocked(StreamLimit { stream_id, limit: c }),
            Frame::StreamsBlocked(direction, count),
            Frame::RetireConnectionId(a),
            Frame::PathChallenge(data),
            Frame::PathResponse(data),
            Frame::HandshakeDone,
            Frame::AckFrequency(AckFrequency {
                sequence_number: a,
                ack_eliciting_threshold: b,
                requested_max_ack_delay_us: c,
                reordering_threshold: d,
            }),
            Frame::ImmediateAck,
        ];
        frames.iter().for_each(law_of_frame);
    });
}

#[test]
fn multipath_frame_round_trip() {
    check((any::<u32>(), varint()), |(path_id, number)| {
        let path_id = PathId::new(path_id);
        let status = PathStatus { path_id, sequence_number: number };
        let frames = [
            Frame::PathAbandon(PathAbandon { path_id, error_code: TransportErrorCode(number) }),
            Frame::PathStatusAvailable(status),
            Frame::PathStatusBackup(status),
            Frame::PathRetireConnectionId(PathRetireConnectionId {
                path_id,
                sequence_number: number,
            }),
            Frame::MaxPathId(path_id),
            Frame::PathsBlocked(path_id),
            Frame::PathCidsBlocked(PathCidsBlocked { path_id, next_sequence_number: number }),
        ];
        frames.iter().for_each(law_of_frame);
    });
}

// RFC 9000 s.19.3 #1
#[test]
fn frame_round_trip_with_data() {
    check((stream_id(), varint(), varint(), bytes(0..=70), any::<bool>()), |input| {
        let (stream_id, a, b, data, flag) = input;
        let room = VarInt::MAX.get() - a.get() >= data.len() as u64;
        assert_eq!(Crypto::new(a, &data).is_some(), room);
        let stream = Stream::new(stream_id, a, &data, flag);
        assert_eq!(stream.is_some(), room);
        if let Some((stream, crypto)) = stream.zip(Crypto::new(a, &data)) {
            law_of_frame(&Frame::Stream(stream));
            law_of_frame(&Frame::Stream(stream.to_end_of_packet()));
            law_of_frame(&Frame::Crypto(crypto));
            header_of_stream(&stream);
        }
        assert_eq!(NewToken::new(&data).is_some(), !data.is_empty());
        if let Some(token) = NewToken::new(&data) {
            law_of_frame(&Frame::NewToken(token));
        }
        law_of_frame(&Frame::Datagram(DatagramFrame { data: &data, to_end_of_packet: flag }));
        law_of_frame(&Frame::ConnectionClose(ConnectionClose::Application {
            error_code: a,
            reason: &data,
        }));
        law_of_frame(&Frame::ConnectionClose(ConnectionClose::Transport {
            error_code: TransportErrorCode(a),
            frame_type: FrameType(b),
            reason: &data,
        }));
        if !FrameType(b).is_known() {
            law_of_frame(&Frame::Unknown(UnknownFrame { frame_type: FrameType(b), rest: &data }));
        }
    });
}

/// Checks that a STREAM frame has the same bytes if its header and its data are written separately.
fn header_of_stream(stream: &Stream<'_>) {
    let whole = Frame::Stream(*stream);
    let (id, offset, len) = (stream.stream_id(), stream.offset(), Some(stream.data().len()));
    let mut buffer = vec![0; whole.encoded_len()];
    let mut writer = Writer::new(&mut buffer);
    Stream::write_header(&mut writer, id, offset, len, stream.fin()).expect("it fits");
    assert_eq!(writer.position(), Stream::header_len(id, offset, len));
    writer.bytes(stream.data()).expect("it fits");
    assert_eq!(Frames::new(&buffer).unwrap().next(), Some(Ok(whole)));
}

#[test]
fn frame_round_trip_of_new_connection_id() {
    check((varint(), varint(), connection_id(0..=20), reset_token()), |input| {
        let (sequence, prior_to, id, token) = input;
        let new = NewConnectionId::new(sequence, prior_to, id, token);
        assert_eq!(new.is_some(), !id.is_empty() && prior_to <= sequence);
        if let Some(new) = new {
            law_of_frame(&Frame::NewConnectionId(new));
            let path_id = PathId::new(u32::from_be_bytes([token.0[0], token.0[1], 0, 7]));
            law_of_frame(&Frame::PathNewConnectionId(PathNewConnectionId { path_id, new }));
        }
    });
}

// RFC 9000 s.13.2.3 #1
#[test]
fn ack_holds_as_many_ranges_as_fit() {
    check((ack_ranges(), varint(), ecn(), 0..200usize), |(ranges, delay, ecn, room)| {
        let mut buffer = vec![0; 4096];
        let mut writer = Writer::new(&mut buffer);
        let all = write_ack(&mut writer, ranges.iter().copied(), delay, ecn).expect("it fits");
        assert_eq!(all.ranges, ranges.len());
        let Some(Ok(frame @ Frame::Ack(ack))) = Frames::new(writer.written()).unwrap().next()
        else {
            panic!("not an ACK");
        };
        assert!(ack.ranges().eq(ranges.iter().copied()));
        assert_eq!((ack.raw_delay(), ack.ecn()), (delay, ecn));
        law_of_frame(&frame);
        // The same properties must hold for a PATH_ACK frame.
        let path_id = PathId::new(room as u32);
        law_of_frame(&Frame::PathAck(PathAck { path_id, ack }));
        let bytes = writer.written().to_vec();
        let mut path_buffer = vec![0; 4096];
        let mut path_writer = Writer::new(&mut path_buffer);
        let all_of_path =
            write_path_ack(&mut path_writer, path_id, ranges.iter().copied(), delay, ecn);
        assert_eq!(all_of_path.expect("it fits").ranges, ranges.len());
        let head = 1 + path_id.as_varint().encoded_len();
        assert_eq!(path_writer.written()[head..], bytes[1..]);

        let mut less = vec![0; room];
        let mut writer = Writer::new(&mut less);
        match write_ack(&mut writer, ranges.iter().copied(), delay, ecn) {
            Ok(some) => {
                let with_one_more = ranges.iter().copied().take(some.ranges + 1);
                let Some(Ok(Frame::Ack(ack))) = Frames::new(writer.written()).unwrap().next()
                else {
                    panic!("not an ACK");
                };
                assert!(ack.ranges().eq(ranges.iter().copied().take(some.ranges)));
                let mut writer = Writer::new(&mut buffer);
                write_ack(&mut writer, with_one_more, delay, ecn).expect("it fits");
                assert!(some.ranges == ranges.len() || writer.position() > room, "one more fits");
            }
            Err(_) => {
                assert_eq!(writer.position(), 0);
                let first = ranges[0];
                let mut writer = Writer::new(&mut buffer);
                write_ack(&mut writer, [first], delay, ecn).expect("it fits");
                assert!(writer.position() > room, "the first range fits");
            }
        }
    });
}

// RFC 9000 s.17.2 #8
#[test]
fn packet_long_round_trip() {
    let ids = (connection_id(0..=20), connection_id(0..=20));
    let content = (bytes(0..=40), bytes(0..=60), varint(), any::<u8>(), any::<bool>());
    check((version(), ids, content, 4..=20usize), |(version, (dcid, scid), content, tag_len)| {
        let (token, payload, pn, index, fixed_bit) = content;
        let kind = long_kind(index, &token);
        let header = LongHeader { version, kind, dcid, scid, fixed_bit };
        let pn_len = PacketNumberLen::of_first_byte(index >> 3);
        let pn = PacketNumber::from(pn).truncate_to(pn_len);
        let mut buffer = vec![0; 256];
        let mut writer = Writer::new(&mut buffer);
        writer.bytes(b"coalesced").expect("it fits");
        let open = header.open(&mut writer, pn, VarIntLen::Two).expect("it fits");
        assert_eq!(writer.position() - 9, header.encoded_len(pn, VarIntLen::Two));
        writer.bytes(&payload).expect("it fits");
        writer.zeros(open.padding_needed(&writer, tag_len)).expect("it fits");
        let finished = open.finish(&mut writer, tag_len).expect("it is long enough");
        let mask = [index, 0x11, 0x22, 0x33, 0x44];
        let packet = &mut buffer[finished.packet.clone()];
        finished.protect(packet, &mask).expect("it is all there");

        let options = ParseOptions { dcid_len: 0, greased_fixed_bit: !fixed_bit };
        let Some(Ok(Packet::Long(long))) = Datagram::new(packet, options).next() else {
            panic!("not a long header");
        };
        assert_eq!((long.version(), long.kind()), (version, kind));
        assert_eq!((long.dcid(), long.scid()), (dcid, scid));
        let mut open = packet.to_vec();
        let unprotected = long.protected().remove(&mut open, &mask).expect("it is long enough");
        assert_eq!(unprotected.packet_number(), pn);
        assert_eq!(unprotected.header_len(), finished.header_len);
        assert!(open[finished.header_len..].starts_with(&payload));
        for len in 1..packet.len() {
            let error = Datagram::new(&packet[..len], options).next();
            assert_eq!(error, Some(Err(PacketError::Truncated)), "{len} bytes");
        }
        if !fixed_bit {
            let strict = ParseOptions::default();
            let error = Datagram::new(packet, strict).next();
            assert_eq!(error, Some(Err(PacketError::FixedBit)));
        }
    });
}

// RFC 9000 s.17.3.1 #2
#[test]
fn packet_short_round_trip() {
    check((connection_id(0..=20), bytes(20..=60), varint(), any::<[u8; 5]>()), |input| {
        let (dcid, payload, pn, mask) = input;
        let bit = |bit: u8| mask[4] & bit != 0;
        let header = ShortHeader { dcid, spin: bit(1), key_phase: bit(2), fixed_bit: true };
        let pn = PacketNumber::from(pn).truncate_to(PacketNumberLen::of_first_byte(mask[3]));
        let mut buffer = vec![0; 128];
        let mut writer = Writer::new(&mut buffer);
        let open = header.open(&mut writer, pn).expect("it fits");
        writer.bytes(&payload).expect("it fits");
        let finished = open.finish(&mut writer, 0).expect("it is long enough");
        let packet = &mut buffer[finished.packet.clone()];
        finished.protect(packet, &mask).expect("it is all there");
        let options = ParseOptions { dcid_len: dcid.len(), greased_fixed_bit: false };
        let Some(Ok(Packet::Short(short))) = Datagram::new(packet, options).next() else {
            panic!("not a short header");
        };
        assert_eq!(short.dcid(), dcid);
        let mut open = packet.to_vec();
        let unprotected = short.protected().remove(&mut open, &mask).expect("it is long enough");
        assert_eq!(unprotected.packet_number(), pn);
        assert_eq!(unprotected.check_reserved_bits(), Ok(()));
        assert_eq!((unprotected.spin(), unprotected.key_phase()), (Some(bit(1)), Some(bit(2))));
        assert_eq!(open[unprotected.header_len()..], payload);
        for len in 1..packet.len() {
            let read = Datagram::new(&packet[..len], options).next();
            assert_eq!(matches!(read, Some(Ok(_))), len >= 1 + dcid.len() + 20, "{len} bytes");
        }
    });
}

// RFC 9000 s.17.2.1 #1 #3, s.17.2.5 #1
#[test]
fn retry_and_version_negotiation_round_trip() {
    let ids = (connection_id(0..=20), connection_id(0..=20));
    let versions = vec(any::<u32>().prop_map(Version), 0..8);
    let long_ids = (bytes(0..=255), bytes(0..=255));
    check((version(), ids, bytes(1..=99), long_ids, versions), |input| {
        let (version, (dcid, scid), token, long_ids, versions) = input;
        let mut buffer = vec![0; 1024];
        let mut writer = Writer::new(&mut buffer);
        Retry::write_without_tag(&mut writer, version, dcid, scid, &token, token[0])
            .expect("it fits");
        writer.bytes(&[7; 16]).expect("it fits");
        let options = ParseOptions::default();
        let Some(Ok(Packet::Retry(retry))) = Datagram::new(writer.written(), options).next() else {
            panic!("not a Retry");
        };
        assert_eq!((retry.version(), retry.token()), (version, &token[..]));
        assert_eq!((retry.dcid(), retry.scid()), (dcid, scid));
        assert_eq!(retry.integrity_tag(), &[7; 16]);
        let too_short = writer.position() - token.len();
        for len in 1..=too_short {
            assert!(Datagram::new(&writer.written()[..len], options).next().unwrap().is_err());
        }

        let mut writer = Writer::new(&mut buffer);
        let (dcid, scid) = (&long_ids.0[..], &long_ids.1[..]);
        VersionNegotiation::write(&mut writer, dcid, scid, versions.iter().copied(), token[0])
            .expect("it fits");
        let packet = writer.written();
        let Some(Ok(Packet::VersionNegotiation(vn))) = Datagram::new(packet, options).next() else {
            panic!("not a Version Negotiation packet");
        };
        assert_eq!((vn.dcid(), vn.scid()), (dcid, scid));
        assert!(vn.versions().iter().eq(versions.iter().copied()));
        for len in 1..packet.len() {
            let whole = len >= 7 + dcid.len() + scid.len() && (packet.len() - len) % 4 == 0;
            let read = Datagram::new(&packet[..len], options).next().unwrap();
            assert_eq!(read.is_ok(), whole, "{len} bytes");
        }
    });
}

#[test]
fn stream_id_round_trip() {
    check(stream_id(), |id| {
        let again = StreamId::new(id.initiator(), id.direction(), id.index());
        assert_eq!(again, Some(id));
        assert!(id.may_send(id.initiator()));
        assert_eq!(id.may_send(Side::Client), id.as_varint().get() & 3 != 3);
    });
    assert_eq!(StreamId::new(Side::Client, equic_wire::Direction::Bidirectional, 1 << 60), None);
}
