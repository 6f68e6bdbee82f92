//! A peer that breaks the rules of RFC 10069. Each violation has its error, and none makes an end
//! use more memory than permitted.

use equic_wire::frame::{
    AckRange, Frame, NewConnectionId, PathAbandon, PathCidsBlocked, PathNewConnectionId,
    PathRetireConnectionId, PathStatus as StatusFrame, write_path_ack,
};
use equic_wire::{PacketNumber, ResetToken, Writer};

use super::super::attacker::Attacker;
use super::*;
use crate::violation::{Condition, Violation};

/// Returns a client that attacks a server which permits four paths.
fn attacker() -> Attacker {
    Attacker::with(1, |config| config.max_paths = 4)
}

fn varint(value: u64) -> VarInt {
    VarInt::new(value).unwrap()
}

fn new_id(path: u32, sequence: u64, id: u8) -> Frame<'static> {
    let (id, token) = (ConnectionId::new(&[id; 8]).unwrap(), ResetToken([id; ResetToken::LEN]));
    let new = NewConnectionId::new(varint(sequence), varint(0), id, token).unwrap();
    Frame::PathNewConnectionId(PathNewConnectionId { path_id: PathId::new(path), new })
}

fn abandon(path: u32) -> Frame<'static> {
    let error_code = TransportErrorCode::NO_ERROR;
    Frame::PathAbandon(PathAbandon { path_id: PathId::new(path), error_code })
}

fn status(path: u32) -> Frame<'static> {
    let sequence_number = varint(0);
    Frame::PathStatusBackup(StatusFrame { path_id: PathId::new(path), sequence_number })
}

fn retire(path: u32, sequence: u64) -> Frame<'static> {
    let (path_id, sequence_number) = (PathId::new(path), varint(sequence));
    Frame::PathRetireConnectionId(PathRetireConnectionId { path_id, sequence_number })
}

fn cids_blocked(path: u32, next: u64) -> Frame<'static> {
    let (path_id, next_sequence_number) = (PathId::new(path), varint(next));
    Frame::PathCidsBlocked(PathCidsBlocked { path_id, next_sequence_number })
}

fn path_ack(path: u32, number: u64) -> Vec<u8> {
    let mut payload = vec![0; 100];
    let mut writer = Writer::new(&mut payload);
    let number = PacketNumber::new(number).unwrap();
    let range = AckRange::new(number, number).unwrap();
    write_path_ack(&mut writer, PathId::new(path), [range], varint(0), None).unwrap();
    let length = writer.position();
    payload.truncate(length);
    payload
}

#[test]
fn multipath_path_id_beyond_the_limit_is_a_violation() {
    for path in [4, 5, u32::MAX] {
        let id = PathId::new(path);
        let frames = [
            new_id(path, 0, 9),
            abandon(path),
            status(path),
            retire(path, 0),
            cids_blocked(path, 0),
        ];
        for frame in frames {
            let mut attacker = attacker();
            attacker.send(&[frame]);
            attacker.assert_closed(Violation::PathIdLimit);
        }
        let mut attacker = attacker();
        attacker.send(&[Frame::PathsBlocked(id)]);
        attacker.assert_closed(Violation::PathsBlockedLimit);
        let mut attacker = self::attacker();
        attacker.send_raw(SpaceId::DATA, &path_ack(path, 0));
        attacker.assert_closed(Violation::PathIdLimit);
    }
}

#[test]
fn multipath_frames_within_the_limits_are_accepted() {
    for path in [1, 3] {
        let mut attacker = attacker();
        let frames = [status(path), cids_blocked(path, 4), Frame::PathsBlocked(ONE)];
        for frame in frames {
            attacker.send(&[frame]);
        }
        attacker.send(&[retire(path, 0), retire(path, 1)]);
        attacker.assert_open();
    }
}

#[test]
fn multipath_ack_of_unsent_packets_is_a_violation() {
    for path in [1, 3] {
        let mut attacker = attacker();
        attacker.send_raw(SpaceId::DATA, &path_ack(path, 0));
        attacker.assert_closed(Violation::AckOfUnsentPacket);
    }
    let mut attacker = attacker();
    attacker.send_raw(SpaceId::DATA, &path_ack(0, 1_000_000));
    attacker.assert_closed(Violation::AckOfUnsentPacket);
}

#[test]
fn multipath_limits_that_fall_are_a_violation() {
    // The client's transport parameter was 3.
    let mut attacker = attacker();
    attacker.send(&[Frame::MaxPathId(PathId::new(2))]);
    attacker.assert_closed(Violation::MaxPathIdReduced);
    let mut attacker = self::attacker();
    attacker.send(&[Frame::MaxPathId(PathId::MAX), Frame::MaxPathId(PathId::new(3))]);
    attacker.assert_open();
    attacker.send(&[cids_blocked(1, 1_000)]);
    attacker.assert_closed(Violation::PathCidsBlockedSequence);
}

#[test]
fn multipath_cid_of_two_paths_is_a_violation() {
    let mut attacker = attacker();
    attacker.send(&[retire(1, 0)]);
    attacker.send(&[new_id(1, 4, 9)]);
    attacker.assert_closed(Violation::ConnectionIdLimit);
    let mut attacker = self::attacker();
    let used = attacker.own.ids.local_of(ONE).unwrap().iter().next().unwrap();
    let token = ResetToken([1; ResetToken::LEN]);
    let new = NewConnectionId::new(varint(4), varint(4), used, token).unwrap();
    let new = PathNewConnectionId { path_id: PathId::new(2), new };
    attacker.send(&[Frame::PathNewConnectionId(new)]);
    attacker.assert_closed(Violation::ConnectionIdReused);
}

#[test]
fn multipath_cid_limit_of_a_path() {
    let mut attacker = attacker();
    for sequence in 4..40 {
        attacker.send(&[new_id(1, sequence, sequence as u8)]);
        if attacker.victim().closing.is_closed() {
            break;
        }
    }
    attacker.assert_closed(Violation::ConnectionIdLimit);
}

#[test]
fn multipath_cid_retired_but_never_issued_is_a_violation() {
    let mut attacker = attacker();
    attacker.send(&[retire(1, 9)]);
    attacker.assert_closed(Violation::RetiredUnissuedId);
}

#[test]
fn multipath_last_path_abandoned_closes_the_connection() {
    let mut attacker = attacker();
    attacker.send(&[abandon(0)]);
    attacker.assert_closed_for(Condition::LastPathAbandoned);
}

#[test]
fn multipath_unopened_paths_abandoned_without_end_are_bounded() {
    let mut attacker = attacker();
    let before = attacker.victim().memory();
    let (mut path, mut highest) = (1, 3);
    for _ in 0..200 {
        attacker.send(&[abandon(path)]);
        attacker.be_honest();
        attacker.assert_open();
        attacker.send(&[abandon(path), status(path), new_id(path, 0, 1)]);
        attacker.assert_open();
        let victim = attacker.victim();
        let ids: Vec<PathId> = (0..=highest + 1).map(PathId::new).collect();
        let kept = ids.iter().filter(|id| victim.ids.local_of(**id).is_some()).count();
        assert!(kept <= 4, "{kept}");
        assert!(victim.memory() < before + 20_000, "{}", victim.memory());
        assert!(victim.paths.iter().count() == 1);
        attacker.wait(Duration::from_secs(2));
        attacker.be_honest();
        if attacker.victim().ids.local_of(PathId::new(highest + 1)).is_some() {
            highest += 1;
        }
        path = (path + 1).min(highest);
    }
    assert!(highest > 20, "{highest}");
    assert!(attacker.events().len() < 100);
}

/// Frames of a path that was abandoned and discarded are late. They are no error.
#[test]
fn multipath_frames_of_ended_paths_are_ignored() {
    let mut attacker = attacker();
    attacker.send(&[abandon(1)]);
    for _ in 0..5 {
        attacker.be_honest();
        attacker.wait(Duration::from_secs(2));
    }
    assert!(attacker.victim().ids.local_of(ONE).is_none());
    attacker.send(&[abandon(1), status(1), retire(1, 0), cids_blocked(1, 0), new_id(1, 0, 5)]);
    attacker.send_raw(SpaceId::DATA, &path_ack(1, 7));
    attacker.assert_open();
}

/// A client begins as many paths as permitted, and sends on each from ever new addresses. It
/// answers at none of them.
#[test]
fn multipath_flood_of_paths_and_addresses_is_bounded() {
    let mut attacker = attacker();
    let remote = SERVER.parse().unwrap();
    for path in 1..4 {
        assert_eq!(attacker.own.open_path(attacker.now, None, remote), Ok(PathId::new(path)));
    }
    let refused = attacker.own.open_path(attacker.now, None, remote);
    assert_eq!(refused, Err(OpenPathError::TooMany));
    let before = attacker.victim().memory();
    let (mut most, mut sent, mut memory) = (0, 0, 0);
    for round in 0..200u8 {
        for path in 0..4u8 {
            let mut datagram =
                attacker.own.forge(SpaceId::Data(PathId::new(path.into())), &[1; 100]);
            sent += datagram.len() as u64;
            let from = SocketAddr::from(([203, 0, path, round], 4433));
            attacker.deliver_from(from, &mut datagram);
        }
        let victim = attacker.victim();
        most = most.max(victim.paths.iter().count());
        memory = memory.max(victim.memory());
        attacker.wait(20 * MS);
    }
    assert!(memory < before + 400_000, "{before} {memory}");
    attacker.assert_open();
    assert!((8..=16).contains(&most), "four addresses for each path at a time: {most}");
    let (_, answered) = attacker.answers;
    assert!(answered <= 3 * sent + 10_000, "{answered} bytes for {sent}");
}

/// The peer acknowledges no packet of one path. The data is sent on the other.
#[test]
fn multipath_path_without_acknowledgements_is_bounded() {
    let mut pair = Pair::new(1, &[link(10), link(10)]);
    pair.connect();
    pair.open(1);
    pair.down[1] = true;
    pair.exchange(300_000, |_, _| {});
    for end in pair.ends() {
        let path = end.paths().nth(1).unwrap();
        assert!(path.stats.bytes_in_flight < 60_000, "{}", pair.describe());
        assert!(end.memory() < 2 << 20);
    }
}

/// Until the client has answered on a path, the server sends at most three times the received bytes
/// there (RFC 9000 s.8.1).
#[test]
fn multipath_anti_amplification_of_a_forged_address() {
    let mut pair = Pair::new(1, &[link(10), link(10)]);
    pair.connect();
    pair.begin(1);
    // The client receives nothing of what the server sends on this path.
    pair.wait(15 * MS);
    pair.down[1] = true;
    pair.exchange(200_000, |_, _| {});
    assert!(pair.sent[1][1] <= 3 * pair.sent[1][0], "{:?}", pair.sent);
}
