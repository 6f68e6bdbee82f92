//! Attacks of a peer that has the keys on each limit. Memory must stay within the documented
//! limits, and the answers must stay in proportion. The connection continues or ends with the right
//! error.

use equic_wire::frame::{
    AckRange, Crypto, Frame, FrameErrorKind, NewConnectionId, PathNewConnectionId, ResetStream,
    StopSending, Stream, StreamLimit, write_ack,
};
use equic_wire::{PacketNumber, PathId, ResetToken, StreamCount, Writer};

use super::attacker::Attacker;
use super::*;
use crate::cid::ID_LEN;
use crate::connection::space::SpaceId;

/// Memory of a stream without its data, in bytes: the stream itself, and at most one page of 4,096
/// bytes.
const PER_STREAM: usize = 4096 + 1024;
/// Memory of a connection without streams and windows, in bytes.
const BASE: usize = 64 * 1024;

/// Returns the most memory that a peer can make a connection with the default configuration use
/// before the application reads.
fn most() -> usize {
    let streams = TransportConfig::default().streams;
    let open = (streams.max_streams_bidi + streams.max_streams_uni) as usize;
    // Gaps can double the memory of the data.
    2 * streams.connection_window as usize
        + TransportConfig::default().datagram_receive_buffer
        + open * PER_STREAM
        + BASE
}

fn varint(value: u64) -> VarInt {
    VarInt::new(value).unwrap()
}

fn stream(direction: Direction, index: u64) -> StreamId {
    StreamId::new(Side::Client, direction, index).unwrap()
}

fn piece(id: StreamId, offset: u64, data: &[u8], fin: bool) -> Frame<'_> {
    Frame::Stream(Stream::new(id, varint(offset), data, fin).unwrap())
}

#[test]
fn stream_gaps_are_bounded() {
    let mut attacker = Attacker::new(1);
    // One stream: every other byte in descending order, so that no ranges can be merged.
    for offset in (0..20_000u64).rev().step_by(2) {
        attacker.send(&[piece(stream(Direction::Bidirectional, 0), offset, &[1], false)]);
    }
    assert!(attacker.victim().memory() < BASE + 20_000 + 100 * PER_STREAM);
    // All streams: one byte on every page.
    for index in 0..100 {
        for direction in [Direction::Bidirectional, Direction::Unidirectional] {
            for page in 0..2u64 {
                attacker.send(&[piece(stream(direction, index), page * 2047, &[1], false)]);
            }
        }
    }
    assert!(attacker.victim().memory() < most(), "{}", attacker.victim().memory());
    attacker.assert_open();
}

#[test]
fn stream_of_single_bytes_is_bounded() {
    let mut attacker = Attacker::new(1);
    let id = stream(Direction::Bidirectional, 0);
    for packet in 0..200u64 {
        let frames: Vec<Frame<'_>> =
            (0..150).map(|at| piece(id, packet * 150 + at, &[7], false)).collect();
        attacker.send(&frames);
    }
    let memory = attacker.victim().memory();
    assert!(memory < 30_000 + 8192 + BASE, "{memory}");
    let mut buffer = vec![0; 50_000];
    let read = attacker.victim().streams().read(id, &mut buffer);
    assert_eq!(read, Ok(ReadOutcome::Bytes(30_000)));
    attacker.assert_open();
}

#[test]
fn stream_frames_that_are_empty_are_bounded() {
    let mut attacker = Attacker::new(1);
    let before = attacker.victim().memory();
    for round in 0..200 {
        let frames: Vec<Frame<'_>> = (0..300)
            .map(|at| piece(stream(Direction::Bidirectional, (round + at) % 100), 0, &[], false))
            .collect();
        attacker.send(&frames);
    }
    attacker.assert_open();
    // A hundred streams without data.
    let memory = attacker.victim().memory();
    assert!(memory < before + 100 * 1024 + 8192, "{before} {memory}");
    attacker.send(&[piece(stream(Direction::Bidirectional, 100), 0, &[], false)]);
    attacker.assert_closed(Violation::StreamLimit);
}

#[test]
fn crypto_in_tiny_pieces_far_apart_is_bounded() {
    let mut attacker = Attacker::on_client(1);
    for offset in (2..60_000u64).step_by(2) {
        let frame = Frame::Crypto(Crypto::new(varint(offset), &[1]).unwrap());
        attacker.send(&[frame]);
    }
    let memory = attacker.victim().memory();
    assert!(memory < 64 * 1024 + BASE, "{memory}");
    attacker.assert_open();
}

/// RFC 9000 s.7.5.
#[test]
fn crypto_beyond_its_buffer_is_a_violation() {
    for offset in [1 << 20, 1 << 40, (1 << 62) - 2] {
        let mut attacker = Attacker::on_client(1);
        attacker.send(&[Frame::Crypto(Crypto::new(varint(offset), &[1]).unwrap())]);
        attacker.assert_closed(Violation::CryptoBufferExceeded);
    }
}

#[test]
fn crypto_after_the_handshake_is_refused() {
    // RFC 8446 s.6.2: a client has no such message to send. The alert unexpected_message is 10.
    let mut attacker = Attacker::new(7);
    let alpn = attacker.victim().alpn().map(<[u8]>::to_vec);
    assert!(alpn.is_some(), "the negotiated protocol is still known");
    attacker.send(&[Frame::Crypto(Crypto::new(varint(0), &[24, 0, 0, 1, 0]).unwrap())]);
    attacker.assert_closed(Violation::Tls(10));
    assert_eq!(attacker.victim().alpn().map(<[u8]>::to_vec), alpn);
}

fn new_id(sequence: u64, retire_prior_to: u64) -> Frame<'static> {
    let id = ConnectionId::cut(&(sequence + 77).to_be_bytes());
    let token = ResetToken([sequence as u8; 16]);
    let new = NewConnectionId::new(varint(sequence), varint(retire_prior_to), id, token);
    Frame::NewConnectionId(new.unwrap())
}

#[test]
fn cid_churn_of_the_peer_is_bounded() {
    // The attacker never learns that its IDs are retired. The number of pending
    // RETIRE_CONNECTION_ID frames is bounded.
    let mut attacker = Attacker::new(1);
    attacker.listens = false;
    let before = attacker.victim().memory();
    let mut count = 100;
    while !attacker.victim().closing.is_closed() {
        count += 1;
        attacker.send(&[new_id(count, count)]);
        assert!(count < 200, "without end");
        assert!(attacker.victim().memory() < before + 32 * 1024);
    }
    attacker.assert_closed(Violation::UnacknowledgedRetirements);
    // The attacker acknowledges the retirements, so this can continue endlessly without any effect.
    let mut attacker = Attacker::new(1);
    for number in 0..500u64 {
        let mut id = [0; ID_LEN];
        id[..8].copy_from_slice(&(number + 77).to_be_bytes());
        let id = ConnectionId::cut(&id);
        attacker.own.ids.local.issue(id, ResetToken([number as u8; 16]));
        let new = attacker.own.ids.local.next_to_announce().unwrap();
        let sequence = varint(new.sequence);
        let frame = NewConnectionId::new(sequence, sequence, new.id, new.token).unwrap();
        attacker.send(&[Frame::NewConnectionId(frame)]);
        attacker.be_honest();
    }
    attacker.assert_open();
    assert!(attacker.victim().memory() < before + 32 * 1024);
    // More connection IDs than the victim stores.
    let mut attacker = Attacker::new(1);
    attacker.send(&(1..10).map(|sequence| new_id(100 + sequence, 0)).collect::<Vec<_>>());
    attacker.assert_closed(Violation::ConnectionIdLimit);
}

#[test]
fn cid_retirement_of_the_peer_is_bounded() {
    let mut attacker = Attacker::new(1);
    let before = attacker.victim().memory();
    for sequence in 1..1000 {
        // The attacker uses another ID, because forged packets use the newest ID that it knows.
        let next = attacker.victim().ids.local.iter().count();
        assert!(next <= 5 + 4, "{next} IDs: more than five to use and the last four used");
        attacker.send(&[Frame::RetireConnectionId(varint(sequence))]);
        attacker.be_honest();
    }
    attacker.assert_open();
    let memory = attacker.victim().memory();
    // Records of packets that contain only ACK frames.
    assert!(memory < before + 64 * 1024, "{before} {memory}");
    // A sequence number that was never issued.
    attacker.send(&[Frame::RetireConnectionId(varint(1 << 40))]);
    attacker.assert_closed(Violation::RetiredUnissuedId);
}

#[test]
fn memory_floods_of_path_challenges_pings_and_requests() {
    let frames: [fn(u64) -> Frame<'static>; 4] = [
        |number| Frame::PathChallenge(number.to_be_bytes()),
        |_| Frame::Ping,
        |_| Frame::ImmediateAck,
        |number| Frame::DataBlocked(varint(number)),
    ];
    for frame in frames {
        for listens in [true, false] {
            let mut attacker = Attacker::new(1);
            attacker.listens = listens;
            let before = attacker.victim().memory();
            for packet in 0..2000 {
                let many: Vec<_> = (0..100).map(|at| frame(packet * 100 + at)).collect();
                attacker.send(&many);
            }
            attacker.assert_open();
            let memory = attacker.victim().memory();
            // The limit is one window of tiny packets, plus the answers that may exceed the window.
            assert!(memory < before + 400_000, "{memory}");
            // At most one answer for each packet, of the size of the packet.
            assert!(attacker.answers.0 <= 2000 + 100, "{:?}", attacker.answers);
        }
    }
}

/// A peer that acknowledges nothing must not cause unbounded records of sent packets. Packets with
/// only ACK frames need no acknowledgement. Other contents are retransmitted instead of stored.
#[test]
fn ack_that_never_comes_is_bounded() {
    let mut attacker = Attacker::new(1);
    attacker.listens = false;
    attacker.victim().ping();
    let mut highest = 0;
    for _ in 0..20_000 {
        attacker.send(&[Frame::Ping]);
        highest = highest.max(attacker.victim().memory());
    }
    assert!(attacker.answers.0 > 5000, "{:?}", attacker.answers);
    // 4,096 records, and those of packets in flight.
    assert!(highest < 1_500_000, "{highest}");
    let space = &attacker.victim().spaces.data();
    assert!(space.loss.sent().len() < 1000, "{}", space.loss.sent().len());
}

fn acknowledge(attacker: &mut Attacker, ranges: impl Iterator<Item = (u64, u64)> + Clone) {
    let mut payload = vec![0; 1400];
    let mut writer = Writer::new(&mut payload);
    let ranges = ranges.map(|(low, high)| {
        let number = |number| PacketNumber::new(number).unwrap();
        AckRange::new(number(low), number(high)).unwrap()
    });
    write_ack(&mut writer, ranges, VarInt::ZERO, None).unwrap();
    let length = writer.position();
    attacker.send_raw(SpaceId::DATA, &payload[..length]);
}

/// RFC 9000 s.21.4: the attacker acknowledges packets that it has not received, to get more data.
#[test]
fn ack_of_unsent_packets_is_a_violation() {
    let mut attacker = Attacker::new(1);
    let next = attacker.victim().spaces.data().numbers.next();
    acknowledge(&mut attacker, [(0, next + 5)].into_iter());
    attacker.assert_closed(Violation::AckOfUnsentPacket);
    // The attacker guesses numbers well, and is detected by a skipped packet number.
    let mut attacker = Attacker::new(2);
    attacker.listens = false;
    attacker.own.path_mut().on_peer_limit(1200);
    let id = attacker.victim().open(Direction::Unidirectional).unwrap();
    let mut rounds = 0;
    while !attacker.victim().closing.is_closed() {
        let _ = attacker.victim().streams().write(id, &[1; 20_000]);
        attacker.wait(Duration::from_millis(20));
        let next = attacker.victim().spaces.data().numbers.next();
        acknowledge(&mut attacker, [(0, next - 1)].into_iter());
        rounds += 1;
        assert!(rounds < 100, "the attack is not detected");
    }
    attacker.assert_closed(Violation::AckOfUnsentPacket);
}

#[test]
fn ack_of_very_many_ranges_is_bounded() {
    let mut attacker = Attacker::new(1);
    attacker.listens = false;
    let id = attacker.victim().open(Direction::Unidirectional).unwrap();
    let _ = attacker.victim().streams().write(id, &vec![1; 500_000]);
    attacker.pump();
    attacker.wait(Duration::from_millis(5));
    let space = &attacker.victim().spaces.data();
    let sent: Vec<u64> = space.loss.sent().iter().map(|(number, _)| number).collect();
    assert!(sent.len() > 5);
    let memory = attacker.victim().memory();
    for _ in 0..500 {
        // Every other packet, down to the first.
        let ranges: Vec<(u64, u64)> =
            sent.iter().rev().step_by(2).map(|number| (*number, *number)).collect();
        acknowledge(&mut attacker, ranges.iter().copied());
        // Two hundred ACK frames in one packet.
        let mut payload = Vec::new();
        for _ in 0..200 {
            payload.extend_from_slice(&[0x02, sent[0] as u8 & 0x3f, 0, 0, 0]);
        }
        attacker.send_raw(SpaceId::DATA, &payload);
    }
    attacker.assert_open();
    assert!(attacker.victim().memory() < memory + 500_000);
}

/// Thousands of streams are opened and reset at once ("rapid reset").
#[test]
fn stream_opened_and_reset_is_bounded() {
    let mut attacker = Attacker::new(1);
    let before = attacker.victim().memory();
    let (mut accepted, mut index, mut rounds) = (0, 0, 0);
    while accepted < 5000 {
        rounds += 1;
        assert!(rounds < 1000, "{accepted} of {index}");
        let allowed = attacker.victim().streams.peer_limit(Direction::Bidirectional);
        assert!(allowed <= accepted + 100, "{allowed} {accepted}");
        while index < allowed {
            let stream_id = stream(Direction::Bidirectional, index);
            let (error_code, final_size) = (VarInt::ZERO, varint(1));
            attacker.send(&[
                piece(stream_id, 0, &[1], false),
                Frame::ResetStream(ResetStream { stream_id, error_code, final_size }),
                Frame::StopSending(StopSending { stream_id, error_code }),
            ]);
            index += 1;
        }
        attacker.be_honest();
        assert!(attacker.victim().memory() < before + 100 * PER_STREAM);
        attacker.assert_open();
        // The application accepts the streams as usual.
        while let Some(id) = attacker.victim().accept(Direction::Bidirectional) {
            accepted += 1;
            let _ = attacker.victim().streams().read(id, &mut [0; 10]);
        }
        attacker.pump();
        attacker.be_honest();
    }
    attacker.wait(Duration::from_secs(1));
    attacker.be_honest();
    assert!(attacker.victim().streams().len() <= 1);
    // The application accepts no streams: at most a hundred are open.
    let mut attacker = Attacker::new(1);
    for index in 0..=100 {
        let stream_id = stream(Direction::Bidirectional, index);
        let (error_code, final_size) = (VarInt::ZERO, VarInt::ZERO);
        attacker.send(&[Frame::ResetStream(ResetStream { stream_id, error_code, final_size })]);
    }
    attacker.assert_closed(Violation::StreamLimit);
}

#[test]
fn flow_control_limits_as_high_as_possible() {
    let mut attacker = Attacker::new(1);
    let most = VarInt::MAX;
    let id = attacker.victim().open(Direction::Bidirectional).unwrap();
    let stream_limit = StreamLimit { stream_id: id, limit: most };
    attacker.send(&[
        Frame::MaxData(most),
        Frame::MaxStreams(Direction::Bidirectional, StreamCount::new(1 << 60).unwrap()),
        Frame::MaxStreams(Direction::Unidirectional, StreamCount::new(1 << 60).unwrap()),
        Frame::MaxStreamData(stream_limit),
    ]);
    let memory = attacker.victim().memory();
    for _ in 0..1000 {
        let id =
            attacker.victim().open(Direction::Unidirectional).expect("the peer permits streams");
        let _ = attacker.victim().streams().write(id, b"hello");
    }
    let _ = attacker.victim().streams().write(id, &[1; 100_000]);
    attacker.pump();
    attacker.be_honest();
    attacker.assert_open();
    assert!(attacker.victim().memory() < memory + 1000 * 2048);
}

#[test]
fn flow_control_if_the_application_never_reads() {
    let mut attacker = Attacker::new(1);
    let window = TransportConfig::default().streams;
    let (mut total, data) = (0, [9; 1024]);
    // As much data as all windows permit.
    for index in 0.. {
        let id = stream(Direction::Unidirectional, index);
        let mut offset = 0;
        while offset < window.stream_window && total < window.connection_window {
            attacker.send(&[piece(id, offset, &data, false)]);
            (offset, total) = (offset + 1024, total + 1024);
        }
        if total == window.connection_window {
            break;
        }
    }
    attacker.be_honest();
    attacker.assert_open();
    assert!(attacker.victim().memory() < most());
    attacker.send(&[piece(stream(Direction::Unidirectional, 50), 0, &[1], false)]);
    attacker.assert_closed(Violation::FlowControl);
}

#[test]
fn flow_control_if_the_application_reads_byte_by_byte() {
    let mut attacker = Attacker::new(1);
    let id = stream(Direction::Unidirectional, 0);
    for offset in (0..200 * 1024u64).step_by(1024) {
        attacker.send(&[piece(id, offset, &[9; 1024], false)]);
    }
    attacker.wait(Duration::from_secs(1));
    let before = attacker.answers.0;
    for _ in 0..200 * 1024 {
        assert_eq!(attacker.victim().streams().read(id, &mut [0]), Ok(ReadOutcome::Bytes(1)));
        attacker.pump();
    }
    // Windows are raised in steps of a half, not byte by byte.
    assert!(attacker.answers.0 < before + 10, "{} {before}", attacker.answers.0);
    assert!(attacker.victim().memory() < BASE + 100 * 1024);
}

#[test]
fn key_update_without_end_is_bounded() {
    let mut attacker = Attacker::new(1);
    let before = attacker.victim().memory();
    let mut updates = 0;
    for _ in 0..2000 {
        // The attacker updates keys as often as permitted: whenever a packet with the new keys is
        // acknowledged.
        updates += u64::from(attacker.own.update_keys());
        attacker.send(&[Frame::Ping, Frame::ImmediateAck]);
    }
    assert!(updates > 500, "{updates}");
    assert_eq!(attacker.victim().key_updates(), updates);
    let memory = attacker.victim().memory();
    assert!(memory < before + 300_000, "{memory}");
    attacker.assert_open();
}

#[test]
fn memory_of_packets_that_cannot_be_opened_is_bounded() {
    let mut attacker = Attacker::new(1);
    let before = attacker.victim().memory();
    let id = attacker.victim().ids.local.iter().next().unwrap();
    for number in 0..5000u32 {
        let mut datagram = vec![number as u8; 1200];
        // Short headers, Initial, Handshake and 0-RTT packets, and other versions.
        datagram[0] = [0x40, 0xc0, 0xe0, 0xd0, 0x80][number as usize % 5];
        datagram[1..][..ID_LEN].copy_from_slice(id.as_bytes());
        if datagram[0] & 0x80 != 0 {
            datagram[1..5].copy_from_slice(&[0, 0, 0, 1]);
            datagram[5] = ID_LEN as u8;
            datagram[6..][..ID_LEN].copy_from_slice(id.as_bytes());
        }
        attacker.deliver(&mut datagram);
    }
    assert_eq!(attacker.answers.0, 0, "the victim answered");
    assert!(attacker.victim().stats().packets_dropped >= 5000);
    assert!(attacker.victim().memory() <= before + 1024);
    attacker.assert_open();
}

/// RFC 10069 s.2: its frames are permitted only if both endpoints declared initial_max_path_id. The
/// victim did not.
#[test]
fn multipath_frames_without_negotiation_are_a_violation() {
    let payloads: [&[u8]; 9] = [
        &[0x3e, 0, 0, 0, 0, 0],
        &[0x3f, 0, 0, 0, 0, 0, 0, 0, 0],
        &[0x7e, 0x75, 0, 0],
        &[0x7e, 0x76, 0, 0],
        &[0x7e, 0x77, 0, 0],
        &[0x7e, 0x79, 0, 0],
        &[0x7e, 0x7a, 1],
        &[0x7e, 0x7b, 0],
        &[0x7e, 0x7c, 0, 1],
    ];
    let token = ResetToken([7; ResetToken::LEN]);
    let id = ConnectionId::new(&[9; 8]).unwrap();
    let new = NewConnectionId::new(varint(0), varint(0), id, token).unwrap();
    let new = PathNewConnectionId { path_id: PathId::new(1), new };
    for payload in payloads {
        let mut attacker = Attacker::new(1);
        attacker.send_raw(SpaceId::DATA, payload);
        attacker.assert_closed(Violation::Frame(FrameErrorKind::UnknownType));
    }
    let mut attacker = Attacker::new(1);
    attacker.send(&[Frame::PathNewConnectionId(new)]);
    attacker.assert_closed(Violation::Frame(FrameErrorKind::UnknownType));
}
