//! Frames of hooks: a hook sends only its own frame types, and is notified once of each frame's
//! fate.

use std::sync::{Arc, Mutex};

use equic_wire::frame::FrameErrorKind;
use rustls::pki_types::ServerName;

use super::early::{early_configs, visit};
use super::handshake::violation;
use super::operations::{Post, STAMP, Stamps, always, doing, queue, stamp_length, with_stamps};
use super::*;
use crate::cid::{IdSource, RESET_KEY_LEN, RandomIds, ResetKey};
use crate::connection::handshake::initial_suite;
use crate::connection::start::Start;
use crate::operation::{
    AttachError, AttachPoint, Bytes, Decision, Denied, HookError, HookId, Operation, OwnFrame,
};

/// A STREAM frame with the FIN bit. A hook must not write it into a packet.
const STREAM: [u8; 6] = [0x0b, 0x00, 0x03, b'y', b'e', b's'];

const STAMP_TYPE: [u8; 4] = [0x80, 0x00, 0x2f, 0x5a];

/// Attaches a hook to the client that writes these bytes once. `length` is its answer when the
/// transport asks for the length of its own frame.
fn writes(
    connection: &mut Connection,
    bytes: Vec<u8>,
    length: impl Fn(&[u8]) -> u64 + Send + 'static,
) -> HookId {
    let mut begun = false;
    let hook = doing(move |host, call, outputs| {
        match (call.operation, &mut call.bytes) {
            (Operation::SelectPath, _) if std::mem::replace(&mut begun, true) => {
                return Ok(Decision::Default);
            }
            (Operation::SelectPath, _) => {
                host.queue_frame(STAMP, 0).unwrap();
                return Ok(Decision::Default);
            }
            (Operation::WriteFrame, Bytes::Out(room)) => {
                let fits = bytes.len().min(room.len());
                room[..fits].copy_from_slice(&bytes[..fits]);
                outputs[0] = bytes.len() as u64;
            }
            (_, bytes) => outputs[0] = length(bytes.as_slice()),
        }
        Ok(Decision::Done)
    });
    let points = &Stamps::POINTS[..3];
    connection.attach_with_frames(hook, points, &[OwnFrame::new(STAMP)]).unwrap()
}

#[test]
fn hook_writes_only_frames_of_its_own() {
    let own = [&STAMP_TYPE[2..], &[7; 8]].concat();
    let own = {
        // A frame type that needs two bytes in its shortest encoding.
        let mut own = own;
        own[0] = 0x6f;
        own
    };
    let whole = |bytes: &[u8]| if bytes.len() < 10 { 0 } else { 10 };
    let all = |bytes: &[u8]| bytes.len() as u64;
    type Length = fn(&[u8]) -> u64;
    let cases: [(&str, Vec<u8>, Length); 7] = [
        ("a STREAM frame", STREAM.to_vec(), all),
        ("a STREAM frame after its own", [&own[..], &STREAM].concat(), whole),
        ("a STREAM frame before its own", [&STREAM[..], &own].concat(), whole),
        ("a truncated frame of its own", own[..9].to_vec(), whole),
        ("a frame without a valid length", own.clone(), all),
        ("a type that is not in its shortest form", [&STAMP_TYPE[..], &[7; 8]].concat(), |_| 12),
        ("more bytes than there is room for", vec![0x6f; 100_000], whole),
    ];
    for (what, bytes, length) in cases {
        let mut network = Network::new(1, Faults::none());
        let post = with_stamps(&mut network);
        network.connect();
        let id = writes(&mut network.client, bytes, length);
        network.pass(Duration::from_millis(200));
        assert_eq!(network.failed, [id], "{what}");
        assert_eq!(network.server_mut().accept(Direction::Bidirectional), None, "{what}");
        assert!(post.lock().unwrap().taken.is_empty(), "{what}");
        assert!(network.client.extensions.is_empty());
        // The connection still transfers data.
        echo(&mut network, 10_000);
        assert_eq!(network.closed(), [None, None], "{what}");
    }
    // The same hook with a correct frame.
    let mut network = Network::new(1, Faults::none());
    let post = with_stamps(&mut network);
    network.connect();
    writes(&mut network.client, own, whole);
    network.pass(Duration::from_millis(200));
    assert_eq!((network.failed.len(), post.lock().unwrap().taken.len()), (0, 1));
}

#[test]
fn hook_frame_types_belong_to_one_hook() {
    let mut network = Network::new(2, Faults::none());
    network.connect();
    let client = &mut network.client;
    let parse = AttachPoint::replace(Operation::ParseFrame);
    let mut attach = |points: &[AttachPoint], types: &[u64]| {
        let frames: Vec<OwnFrame> = types.iter().copied().map(OwnFrame::new).collect();
        client.attach_with_frames(always(&[0]), points, &frames)
    };
    // PADDING, STREAM, HANDSHAKE_DONE, IMMEDIATE_ACK, DATAGRAM, ACK_FREQUENCY, and no valid type.
    for taken in [0x00, 0x0a, 0x1e, 0x1f, 0x31, 0xaf, 1 << 62] {
        let refused = Err(AttachError::FrameType(taken));
        assert_eq!(attach(&[parse.of_frame(taken)], &[taken]), refused, "{taken:#x}");
    }
    let point = parse.of_frame(STAMP);
    assert_eq!(attach(&[point], &[STAMP, STAMP]), Err(AttachError::FrameType(STAMP)));
    assert_eq!(attach(&[], &[STAMP]), Err(AttachError::NoParser(STAMP)));
    let many: Vec<u64> = (0x4000..0x4011).collect();
    assert_eq!(attach(&[parse], &many), Err(AttachError::TooManyFrameTypes));
    for (operation, frame_type) in [
        (Operation::WriteFrame, 0x0a),
        (Operation::WriteFrame, STAMP),
        (Operation::ParseFrame, STAMP),
        (Operation::ProcessFrame, STAMP),
        (Operation::FrameLost, 0x0a),
    ] {
        let point = AttachPoint::replace(operation).of_frame(frame_type);
        assert_eq!(attach(&[point], &[]), Err(AttachError::NotOwn(operation, frame_type)));
    }
    // A frame type belongs to one hook, and is free again after the hook is detached.
    let first = attach(&[point], &[STAMP]).unwrap();
    let other = parse.of_frame(STAMP + 1);
    assert_eq!(attach(&[other], &[STAMP + 1, STAMP]), Err(AttachError::FrameType(STAMP)));
    assert!(network.client.detach(first).is_some());
    let frames = [OwnFrame::new(STAMP)];
    assert!(network.client.attach_with_frames(always(&[0]), &[point], &frames).is_ok());
}

/// A hook for every type gets its own frame types, and of all others only those that the transport
/// knows.
#[test]
fn hook_for_all_types_gets_its_own() {
    let mut network = Network::new(3, Faults::none());
    let post = with_stamps(&mut network);
    network.connect();
    let asked = Arc::new(Mutex::new(Vec::new()));
    let types = asked.clone();
    let hook = doing(move |_, call, _| {
        types.lock().unwrap().push((call.operation, call.parameter));
        Ok(Decision::Default)
    });
    let points = [Operation::WriteFrame, Operation::ParseFrame].map(AttachPoint::replace);
    network.client.attach_with_frames(hook, &points, &[OwnFrame::new(STAMP + 1)]).unwrap();
    queue(&mut network, &post, 0..3);
    network.pass(Duration::from_millis(100));
    let asked = asked.lock().unwrap();
    let ack = |asked: &(Operation, u64)| asked.0 == Operation::ParseFrame && asked.1 & !1 == 0x02;
    assert!(asked.iter().any(ack), "{asked:?}");
    assert!(!asked.iter().any(|(operation, _)| *operation == Operation::WriteFrame), "{asked:?}");
    assert!(!asked.iter().any(|(_, frame_type)| *frame_type == STAMP));
}

#[test]
fn hook_queue_that_is_full_affects_no_other() {
    let mut network = Network::new(4, Faults::none());
    network.connect();
    let queued = Arc::new(Mutex::new(Vec::new()));
    for own in [STAMP, STAMP + 1] {
        let queued = queued.clone();
        let hook = doing(move |host, call, outputs| {
            if call.operation == Operation::ParseFrame {
                outputs[0] = stamp_length(call);
                return Ok(Decision::Done);
            }
            assert_eq!(host.queue_frame(0x0a, 0), Err(Denied::FrameType));
            assert_eq!(host.queue_frame(own ^ 1, 0), Err(Denied::FrameType), "another's");
            let count = (0..1000).take_while(|token| host.queue_frame(own, *token).is_ok());
            queued.lock().unwrap().push(count.count());
            assert_eq!(host.queue_frame(own, 0), Err(Denied::Full));
            Ok(Decision::Default)
        });
        let own_point = AttachPoint::replace(Operation::ParseFrame).of_frame(own);
        let look = if own == STAMP { Operation::SelectPath } else { Operation::SetTimer };
        let points = [own_point, AttachPoint::replace(look)];
        network.client.attach_with_frames(hook, &points, &[OwnFrame::new(own)]).unwrap();
    }
    // Calls both hooks without sending anything, so that the frames stay queued.
    network.client.poll_timeout();
    let usual = network.client.path().key();
    network.client.decide(Operation::SelectPath, (), usual);
    assert_eq!(*queued.lock().unwrap(), [64, 64]);
    assert_eq!(network.client.extensions.len(false), 128);
}

#[test]
fn hook_frames_that_are_queued_are_all_written() {
    let mut network = Network::new(5, Faults::none());
    let post = with_stamps(&mut network);
    network.connect();
    queue(&mut network, &post, 0..400);
    network.pass(Duration::from_millis(500));
    let mut taken = post.lock().unwrap().taken.clone();
    taken.sort_unstable();
    assert!(taken.iter().copied().eq(0..400), "{} of 400: {taken:?}", taken.len());
}

/// If the rest of a packet is too small for a frame, the frame is sent in the next packet.
#[test]
fn hook_frame_without_room_goes_into_the_next_packet() {
    const LONG: usize = 300;
    let parse = |bytes: &[u8]| if bytes.len() < LONG { 0 } else { LONG as u64 };
    let taken = Arc::new(Mutex::new(Vec::new()));
    let arrived = taken.clone();
    let mut network = Network::new(12, Faults::none());
    network.on_server = Some(Box::new(move |server| {
        let hook = doing(move |_, call, outputs| {
            let bytes = call.bytes.as_slice();
            outputs[0] = match call.operation {
                Operation::ParseFrame => parse(bytes),
                _ => {
                    arrived.lock().unwrap().push(bytes[2]);
                    1
                }
            };
            Ok(Decision::Done)
        });
        server.attach_with_frames(hook, &Stamps::POINTS[2..4], &[OwnFrame::new(STAMP)]).unwrap();
    }));
    network.connect();
    let mut begun = false;
    let hook = doing(move |host, call, outputs| {
        let token = call.inputs.get(1).map_or(0, |token| *token as u8);
        match (call.operation, &mut call.bytes) {
            (Operation::SelectPath, _) => {
                let count = if std::mem::replace(&mut begun, true) { 0 } else { 20 };
                (0..count).for_each(|token| host.queue_frame(STAMP, token).unwrap());
                return Ok(Decision::Default);
            }
            (Operation::WriteFrame, Bytes::Out(room)) if room.len() >= LONG => {
                room[..LONG].fill(7);
                room[..3].copy_from_slice(&[0x6f, 0x5a, token]);
                outputs[0] = LONG as u64;
            }
            (Operation::WriteFrame, _) => outputs[0] = 0,
            (_, bytes) => outputs[0] = parse(bytes.as_slice()),
        }
        Ok(Decision::Done)
    });
    let points = &Stamps::POINTS[..3];
    network.client.attach_with_frames(hook, points, &[OwnFrame::new(STAMP)]).unwrap();
    network.pass(Duration::from_millis(500));
    let mut taken = taken.lock().unwrap().clone();
    taken.sort_unstable();
    assert!(taken.iter().copied().eq(0..20), "{} of 20: {taken:?}", taken.len());
}

/// Each frame is reported once, as acknowledged or lost, even if probes repeat it.
#[test]
fn hook_is_notified_once_of_the_fate_of_a_frame() {
    // A packet holds tens of frames, so several packets are needed for some to be lost.
    let (mut acked, mut lost) = (0, 0);
    for seed in 0..8 {
        let late = Duration::from_millis(30);
        let faults = Faults { loss: 0.25, jitter: late, ..Faults::none() };
        let mut network = Network::new(seed, faults);
        let post = with_stamps(&mut network);
        network.connect();
        queue(&mut network, &post, 0..100);
        network.pass(Duration::from_secs(1));
        network.run_until(Duration::from_secs(60), |client, _| client.path().in_flight() == 0);
        let post = post.lock().unwrap();
        let mut told = [&post.acked[..], &post.lost].concat();
        told.sort_unstable();
        assert!(told.iter().copied().eq(0..100), "{} of 100: {}", told.len(), network.describe());
        (acked, lost) = (acked + post.acked.len(), lost + post.lost.len());
    }
    assert!(acked > 50 && lost > 50, "{acked} acknowledged, {lost} lost");
    // The tail is lost. Probes are sent, and the hook is not notified before the fate is known.
    let mut network = Network::new(7, Faults::none());
    let post = with_stamps(&mut network);
    network.connect();
    network.pass(Duration::from_secs(1));
    network.run_until(Duration::from_secs(10), |client, _| client.path().in_flight() == 0);
    let mut dropped = 0;
    network.meddle = Some(Box::new(move |to_server, bytes| {
        dropped += u8::from(to_server);
        // Drops the first packet and the packets of the first PTO.
        if to_server && dropped <= 3 { Vec::new() } else { vec![(to_server, bytes.to_vec())] }
    }));
    queue(&mut network, &post, 0..1);
    network.run_until(Duration::from_secs(10), |client, _| client.stats().probe_timeouts == 2);
    assert_eq!(*post.lock().unwrap().lost, [0u64; 0], "reported before the fate is known");
    network.run_until(Duration::from_secs(10), |client, _| client.path().in_flight() == 0);
    let post = post.lock().unwrap();
    assert_eq!((&post.acked[..], &post.lost[..]), (&[][..], &[0][..]));
}

/// RFC 9000 s.19.21: what takes the place of ACK frames.
#[test]
fn hook_frame_that_elicits_no_acknowledgement() {
    let answers = |own: OwnFrame| {
        let mut network = Network::new(8, Faults::none());
        let arrived = Arc::new(Mutex::new(0));
        let count = arrived.clone();
        network.on_server = Some(Box::new(move |server| {
            let hook = doing(move |_, call, outputs| {
                let parse = call.operation == Operation::ParseFrame;
                outputs[0] = if parse { stamp_length(call) } else { 1 };
                *count.lock().unwrap() += u32::from(!parse);
                Ok(Decision::Done)
            });
            server.attach_with_frames(hook, &Stamps::POINTS[2..4], &[own]).unwrap();
        }));
        network.connect();
        network.pass(Duration::from_secs(1));
        network.run_until(Duration::from_secs(1), |client, server| {
            client.path().in_flight() + server.path().in_flight() == 0
        });
        let acks = network.server().stats().acks_sent;
        let post = Arc::<Mutex<Post>>::default();
        post.lock().unwrap().waiting.push(1);
        let hook = Box::new(Stamps(post.clone()));
        network.client.attach_with_frames(hook, &Stamps::POINTS, &[own]).unwrap();
        network.run_until(Duration::from_secs(1), |_, _| *arrived.lock().unwrap() > 0);
        // Both ends are silent.
        network.run_until(Duration::from_secs(60), |client, server| {
            client.is_drained() && server.is_drained()
        });
        let post = post.lock().unwrap();
        let told = post.acked.len() + post.lost.len();
        (network.server().stats().acks_sent - acks, told)
    };
    assert_eq!(answers(OwnFrame::new(STAMP)), (1, 1));
    assert_eq!(answers(OwnFrame::silent(STAMP)), (0, 0));
}

/// Initial packets may contain only the frames that the RFC permits.
#[test]
fn hook_frames_in_other_than_1_rtt_packets_are_a_violation() {
    let mut network = Network::new(9, Faults::none());
    let post = with_stamps(&mut network);
    network.run_until(Duration::from_secs(1), |client, _| client.keys.has(SpaceId::Handshake));
    let stamp = [&[0x6f, 0x5a][..], &[7; 8]].concat();
    let mut datagram = network.client.forge(SpaceId::Handshake, &stamp);
    let arrival =
        DatagramMeta { remote: network.client_address, local: None, ecn: EcnCodepoint::NotEct };
    let now = network.now();
    network.server_mut().handle_datagram(now, arrival, &mut datagram);
    network.run_until(Duration::from_secs(1), |_, server| server.closing.is_closed());
    let closed = network.closed();
    assert_eq!(violation(&network, 1), Some(Violation::ExtensionFrameOutsideOneRtt), "{closed:?}");
    assert!(post.lock().unwrap().taken.is_empty());
}

/// Hook frames are not sent in 0-RTT packets. They wait.
#[test]
fn hook_frames_wait_for_1_rtt_keys() {
    let (client, server) = early_configs();
    visit(&client, &server);
    let mut network = Network::between(1, Faults::none(), &client, server);
    assert!(network.client.is_early());
    let post = with_stamps(&mut network);
    queue(&mut network, &post, 0..3);
    echo(&mut network, 5000);
    network.connect();
    assert!(network.events[0].contains(&Event::EarlyDataAccepted));
    network.pass(Duration::from_millis(100));
    assert_eq!(post.lock().unwrap().taken, [0, 1, 2]);
    assert_eq!(network.closed(), [None, None]);
}

/// Hook frames wait even if an early packet has as much room as one with a short header, because
/// its sender uses a zero-length connection ID.
#[test]
fn hook_frames_are_in_no_early_packet() {
    let (client, server) = early_configs();
    visit(&client, &server);
    let suite = initial_suite(client.tls.crypto_provider()).unwrap();
    let key = ResetKey::new(&suite, [3; RESET_KEY_LEN]);
    let source = IdSource::new(Arc::new(RandomIds::new(0)), key);
    let start = Start::client(&client, suite, ServerName::try_from("equic.test").unwrap());
    let (now, remote) = (Timestamp::START, "192.0.2.1:443".parse().unwrap());
    let mut client =
        Connection::connect_with(now, &client.transport, start, remote, source, [1; 32]).unwrap();
    assert!(client.is_early());
    let post = Arc::<Mutex<Post>>::default();
    post.lock().unwrap().waiting.extend(0..3);
    Stamps::attach(&mut client, &post);
    let id = client.open(Direction::Unidirectional).unwrap();
    client.streams().write(id, &[7; 5000]).unwrap();
    let (mut early, mut buffer) = (0, [0; 1500]);
    while client.poll_transmit(now, &mut buffer).is_some() {
        // A long header of type 0-RTT (RFC 9000 s.17.2).
        early += usize::from(buffer[0] & 0xb0 == 0x90);
    }
    assert!(early > 2, "{early} datagrams of early data alone");
    assert_eq!(client.extensions.len(false), 3, "all hook frames wait");
}

/// Hooks can be stricter than the RFC, but not less strict. They cannot change the length of a
/// frame that the transport knows.
#[test]
fn hook_does_not_weaken_the_rules_of_frames() {
    let mut network = Network::new(10, Faults::none());
    for operation in [Operation::CheckFrame, Operation::ParseFrame] {
        network.client.attach(always(&[1]), &[AttachPoint::replace(operation)]).unwrap();
    }
    let hook = move |server: &mut Connection| {
        server.attach(always(&[1]), &[AttachPoint::replace(Operation::CheckFrame)]).unwrap();
    };
    network.on_server = Some(Box::new(hook));
    network.connect();
    echo(&mut network, 20_000);
    // HANDSHAKE_DONE, sent by a client.
    let mut datagram = network.client.forge(SpaceId::DATA, &[0x1e]);
    let arrival =
        DatagramMeta { remote: network.client_address, local: None, ecn: EcnCodepoint::NotEct };
    let now = network.now();
    network.server_mut().handle_datagram(now, arrival, &mut datagram);
    network.run_until(Duration::from_secs(1), |_, server| server.closing.is_closed());
    let closed = network.closed();
    assert_eq!(
        violation(&network, 1),
        Some(Violation::Frame(FrameErrorKind::WrongSender)),
        "{closed:?}"
    );
}

#[test]
fn hook_places_are_reused_and_ids_are_not() {
    let mut network = Network::new(11, Faults::none());
    network.connect();
    let client = &mut network.client;
    let mut names = std::collections::BTreeSet::new();
    let attach = |client: &mut Connection| client.attach(always(&[0]), &[]);
    let all: Vec<HookId> = (0..32).map(|_| attach(client).unwrap()).collect();
    assert_eq!(attach(client), Err(AttachError::TooMany));
    names.extend(all.iter().copied());
    for _ in 0..100 {
        assert!(client.detach(all[5]).is_some() == (names.len() == 32));
        let new = attach(client).unwrap();
        assert!(names.insert(new), "{new:?} was another's");
        assert!(client.detach(all[5]).is_none(), "the ID belongs to no hook");
        assert!(client.detach(new).is_some());
    }
    assert!(names.len() >= 132, "{}", names.len());
}

/// A hook that does not process its frame does not end the connection.
#[test]
fn hook_frame_that_is_not_processed_is_skipped() {
    for fails in [false, true] {
        let mut network = Network::new(5, Faults::none());
        network.on_server = Some(Box::new(move |server| {
            let hook = doing(move |_, call, outputs| match call.operation {
                Operation::ParseFrame => {
                    outputs[0] = stamp_length(call);
                    Ok(Decision::Done)
                }
                _ if fails => Err(HookError("it does not know what to do".into())),
                _ => Ok(Decision::Default),
            });
            let of = |operation| AttachPoint::replace(operation).of_frame(STAMP);
            let points = [of(Operation::ParseFrame), of(Operation::ProcessFrame)];
            server.attach_with_frames(hook, &points, &[OwnFrame::new(STAMP)]).unwrap();
        }));
        network.connect();
        let post = Arc::default();
        queue(&mut network, &post, 0..1);
        echo(&mut network, 10_000);
        assert_eq!(post.lock().unwrap().acked, [0], "fails: {fails}");
        assert!(network.closed().iter().all(Option::is_none), "{:?}", network.closed());
    }
}
