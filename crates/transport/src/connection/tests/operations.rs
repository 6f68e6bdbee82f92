//! Every operation can be observed and replaced by a hook in Rust.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use equic_wire::frame::FrameErrorKind;
use equic_wire::{Reader, Writer};

use super::handshake::violation;

use super::*;
use crate::operation::{
    AttachPoint, Bytes, Call, Decision, Denied, Field, Hook, HookContext, HookError, Operation,
    OwnFrame, PayloadKind,
};

pub(super) type Calls = Arc<Mutex<BTreeMap<Operation, Vec<(u64, Vec<u64>, Vec<u64>)>>>>;

/// Records all calls.
struct Witness(Calls);

impl Hook for Witness {
    fn after(
        &mut self,
        _host: &mut HookContext<'_>,
        call: &Call<'_>,
        outputs: &[u64],
    ) -> Result<(), HookError> {
        let described = call.operation.describe();
        assert_eq!(call.inputs.len(), described.inputs.len(), "{}", call.operation);
        assert_eq!(outputs.len(), described.outputs.len(), "{}", call.operation);
        if described.carries == PayloadKind::Words {
            assert!(call.bytes.as_slice().is_empty());
        }
        let mut calls = self.0.lock().unwrap();
        let seen = (call.parameter, call.inputs.to_vec(), outputs.to_vec());
        calls.entry(call.operation).or_default().push(seen);
        Ok(())
    }
}

pub(super) fn watch_all(connection: &mut Connection, calls: &Calls) {
    let points: Vec<AttachPoint> =
        Operation::ALL.iter().map(|one| AttachPoint::observe(*one)).collect();
    connection.attach(Box::new(Witness(calls.clone())), &points).unwrap();
}

/// A hook that calls a closure.
struct Doing<F>(F);

impl<F> Hook for Doing<F>
where
    F: FnMut(&mut HookContext<'_>, &mut Call<'_>, &mut [u64]) -> Result<Decision, HookError> + Send,
{
    fn replace(
        &mut self,
        host: &mut HookContext<'_>,
        call: &mut Call<'_>,
        outputs: &mut [u64],
    ) -> Result<Decision, HookError> {
        (self.0)(host, call, outputs)
    }
}

pub(super) fn doing(
    does: impl FnMut(&mut HookContext<'_>, &mut Call<'_>, &mut [u64]) -> Result<Decision, HookError>
    + Send
    + 'static,
) -> Box<dyn Hook> {
    Box::new(Doing(does))
}

/// Returns a hook that always sets these outputs.
pub(super) fn always(words: &'static [u64]) -> Box<dyn Hook> {
    doing(move |_, _, outputs| {
        outputs.copy_from_slice(words);
        Ok(Decision::Done)
    })
}

pub(super) fn replace(connection: &mut Connection, operation: Operation, hook: Box<dyn Hook>) {
    connection.attach(hook, &[AttachPoint::replace(operation)]).unwrap();
}

/// Type of a frame that only hooks know. The frame has its type and 8 bytes.
pub(super) const STAMP: u64 = 0x2f5a;

/// State that the hooks of the two ends share.
#[derive(Default)]
pub(super) struct Post {
    /// Tokens to send.
    pub waiting: Vec<u64>,
    /// Tokens received, including repetitions.
    pub taken: Vec<u64>,
    /// Tokens of frames sent that were acknowledged. The next field has those that were lost.
    pub acked: Vec<u64>,
    pub lost: Vec<u64>,
    /// If set, the hook retransmits lost frames.
    pub again: bool,
}

/// Sends and receives frames with a token each.
pub(super) struct Stamps(pub Arc<Mutex<Post>>);

impl Stamps {
    pub(super) const POINTS: [AttachPoint; 6] = [
        AttachPoint::replace(Operation::SelectPath),
        AttachPoint::replace(Operation::WriteFrame).of_frame(STAMP),
        AttachPoint::replace(Operation::ParseFrame).of_frame(STAMP),
        AttachPoint::replace(Operation::ProcessFrame).of_frame(STAMP),
        AttachPoint::replace(Operation::FrameAcked).of_frame(STAMP),
        AttachPoint::replace(Operation::FrameLost).of_frame(STAMP),
    ];

    pub(super) fn attach(connection: &mut Connection, post: &Arc<Mutex<Post>>) -> HookId {
        let hook = Box::new(Stamps(post.clone()));
        connection.attach_with_frames(hook, &Stamps::POINTS, &[OwnFrame::new(STAMP)]).unwrap()
    }
}

impl Hook for Stamps {
    fn replace(
        &mut self,
        host: &mut HookContext<'_>,
        call: &mut Call<'_>,
        outputs: &mut [u64],
    ) -> Result<Decision, HookError> {
        let mut post = self.0.lock().unwrap();
        match call.operation {
            Operation::SelectPath => {
                while let Some(token) = post.waiting.last() {
                    if host.queue_frame(STAMP, *token).is_err() {
                        break;
                    }
                    post.waiting.pop();
                }
                return Ok(Decision::Default);
            }
            Operation::WriteFrame => return write_stamp(call, outputs),
            Operation::ParseFrame => outputs[0] = stamp_length(call),
            Operation::ProcessFrame => {
                let mut reader = Reader::new(call.bytes.as_slice());
                assert_eq!(reader.varint().unwrap().get(), STAMP);
                post.taken.push(u64::from_be_bytes(*reader.array().unwrap()));
                outputs[0] = 1;
            }
            Operation::FrameAcked => post.acked.push(call.inputs[0]),
            Operation::FrameLost => {
                post.lost.push(call.inputs[0]);
                if post.again {
                    host.queue_frame(STAMP, call.inputs[0]).unwrap();
                }
            }
            other => panic!("{other}"),
        }
        Ok(Decision::Done)
    }
}

/// Returns the length of a stamp frame at the start of the call's bytes, or 0 if they are too
/// short.
pub(super) fn stamp_length(call: &Call<'_>) -> u64 {
    let length = usize::from(call.parameter > 0x3fff) * 2 + 2 + 8;
    if call.bytes.as_slice().len() < length { 0 } else { length as u64 }
}

/// Writes a frame with its token.
pub(super) fn write_stamp(call: &mut Call<'_>, outputs: &mut [u64]) -> Result<Decision, HookError> {
    let Bytes::Out(room) = &mut call.bytes else { return Err(HookError("no room".into())) };
    let mut writer = Writer::new(room);
    let kind = VarInt::new(call.parameter).unwrap();
    if writer.varint(kind).and_then(|()| writer.bytes(&call.inputs[1].to_be_bytes())).is_ok() {
        outputs[0] = writer.position() as u64;
    }
    Ok(Decision::Done)
}

/// Attaches hooks for stamp frames to both ends. The client's hook sends the waiting tokens.
pub(super) fn with_stamps(network: &mut Network) -> Arc<Mutex<Post>> {
    let post = Arc::<Mutex<Post>>::default();
    let arrived = post.clone();
    network.on_server = Some(Box::new(move |server| {
        let points = &Stamps::POINTS[2..4];
        let hook = Box::new(Stamps(arrived));
        server.attach_with_frames(hook, points, &[OwnFrame::new(STAMP)]).unwrap();
    }));
    post
}

/// Adds tokens at the client's end of [`with_stamps`].
pub(super) fn queue(
    network: &mut Network,
    post: &Arc<Mutex<Post>>,
    tokens: std::ops::Range<u64>,
) -> HookId {
    post.lock().unwrap().waiting.extend(tokens.rev());
    Stamps::attach(&mut network.client, post)
}

#[test]
fn hook_can_watch_every_operation() {
    let calls = Calls::default();
    let faults = Faults { loss: 0.15, jitter: Duration::from_millis(40), ..Faults::none() };
    for (seed, faults) in [(1, Faults::none()), (2, faults)] {
        let mut network = Network::new(seed, faults);
        watch_all(&mut network.client, &calls);
        let post = with_stamps(&mut network);
        network.connect();
        queue(&mut network, &post, 0..200);
        echo(&mut network, 600_000);
        network.client.update_keys();
        echo(&mut network, 100_000);
        network.forge_to_client(vec![0x40; 60]);
        let taken: BTreeSet<u64> = post.lock().unwrap().taken.iter().copied().collect();
        assert!(taken.len() > 100, "{}", taken.len());
        let now = network.now();
        network.server_mut().close(now, VarInt::from_u32(1), "enough");
        network.run_until(Duration::from_secs(10), |client, _| client.is_drained());
    }
    // Watches the other end, for operations that both ends have.
    let mut network = Network::new(3, Faults::none());
    let seen = calls.clone();
    network.on_server = Some(Box::new(move |server| watch_all(server, &seen)));
    network.connect();
    network.client.send_datagram(vec![1; 100]).unwrap();
    echo(&mut network, 600_000);
    network.client_address.set_port(5);
    network.pass(Duration::from_secs(1));
    // The client's old address does not answer.
    network.run_until(Duration::from_secs(20), |_, _| {
        calls.lock().unwrap().contains_key(&Operation::PathRemoved)
    });
    let now = network.now();
    network.client.close(now, VarInt::from_u32(1), "enough");
    network.run_until(Duration::from_secs(10), |_, server| server.is_drained());
    let now = network.now();
    network.server_mut().handle_timeout(now);

    let mut network = Network::new(4, Faults::none());
    watch_all(&mut network.client, &calls);
    network.connect();
    let now = network.now();
    network.client.close(now, VarInt::from_u32(1), "enough");

    let mut network = Network::new(5, Faults::none());
    let seen = calls.clone();
    network.on_server = Some(Box::new(move |server| watch_all(server, &seen)));
    challenge_and_retire(&mut network);
    network.run_until(Duration::from_secs(10), |_, _| {
        let calls = calls.lock().unwrap();
        calls.contains_key(&Operation::AnswerChallenge)
            && calls.contains_key(&Operation::RetireConnectionId)
    });

    handshake::watch_beginnings(&calls);
    multipath::watch_copies(&calls);
    let calls = calls.lock().unwrap();
    // Other tests cover operations that a single hook requests: messages.rs, own_parameters.rs.
    let asked_for = [
        Operation::HookTimer,
        Operation::HookMessage,
        Operation::WriteParameters,
        Operation::PeerParameter,
    ];
    let missed = Operation::ALL.iter().filter(|one| !calls.contains_key(one));
    let missed: Vec<_> = missed.filter(|one| !asked_for.contains(one)).collect();
    assert!(missed.is_empty(), "never called: {missed:?}");
    let frame_types: BTreeSet<u64> =
        calls[&Operation::ProcessFrame].iter().map(|(frame_type, ..)| *frame_type).collect();
    // CRYPTO, ACK, HANDSHAKE_DONE, MAX_STREAM_DATA, NEW_CONNECTION_ID, STREAM, CONNECTION_CLOSE.
    for frame_type in [0x06, 0x02, 0x1e, 0x11, 0x18, 0x0a, 0x1d] {
        assert!(frame_types.contains(&frame_type), "{frame_type:#x} not in {frame_types:x?}");
    }
}

/// Sends a PATH_CHALLENGE and a RETIRE_CONNECTION_ID frame to the server.
fn challenge_and_retire(network: &mut Network) {
    network.connect();
    network.pass(Duration::from_secs(1));
    let payload = [&[0x1a, 1, 2, 3, 4, 5, 6, 7, 8], &[0x19, 1][..]].concat();
    let mut datagram = network.client.forge(SpaceId::DATA, &payload);
    let remote = network.client_address;
    let arrival = DatagramMeta { remote, local: None, ecn: EcnCodepoint::NotEct };
    let now = network.now();
    network.server_mut().handle_datagram(now, arrival, &mut datagram);
}

#[test]
fn hook_frames_arrive() {
    let faults = Faults { loss: 0.2, ..Faults::none() };
    let mut network = Network::new(5, faults);
    let post = with_stamps(&mut network);
    // The hook itself sends a lost frame again.
    post.lock().unwrap().again = true;
    network.connect();
    queue(&mut network, &post, 0..50);
    let all: BTreeSet<u64> = (0..50).collect();
    network.run_until(Duration::from_secs(60), |_, _| {
        post.lock().unwrap().taken.iter().copied().collect::<BTreeSet<_>>() == all
    });
}

/// Frames that a hook queues while it writes a frame are sent in a later packet, whether or not it
/// writes the frame.
#[test]
fn hook_that_queues_frames_while_writing_is_bounded() {
    for writes in [true, false] {
        let mut network = Network::new(5, Faults::none());
        network.connect();
        let calls = Arc::new(Mutex::new(0));
        let count = calls.clone();
        let mut begun = false;
        let write = doing(move |host, call, outputs| {
            match call.operation {
                Operation::SelectPath => {
                    if !std::mem::replace(&mut begun, true) {
                        host.queue_frame(STAMP, 0).unwrap();
                    }
                    return Ok(Decision::Default);
                }
                Operation::ParseFrame => {
                    outputs[0] = stamp_length(call);
                    return Ok(Decision::Done);
                }
                _ => {}
            }
            *count.lock().unwrap() += 1;
            let _ = host.queue_frame(STAMP, call.inputs[1] + 1);
            let _ = host.queue_frame(STAMP, call.inputs[1] + 2);
            if writes { write_stamp(call, outputs) } else { Ok(Decision::Done) }
        });
        let points = &Stamps::POINTS[..3];
        network.client.attach_with_frames(write, points, &[OwnFrame::new(STAMP)]).unwrap();
        let (now, mut buffer, mut most) = (network.now(), vec![0; 1500], 0);
        for _ in 0..10 {
            let waiting = network.client.extensions.len(false);
            network.client.poll_transmit(now, &mut buffer);
            // The first frame is queued during the call.
            let called = std::mem::take(&mut *calls.lock().unwrap());
            assert!(called <= waiting.max(1), "{called} of {waiting}");
            most = most.max(called);
        }
        assert!(most > 1, "no call for a frame that the hook queued");
    }
}

#[test]
fn frame_of_an_unknown_type_is_a_violation() {
    let mut network = Network::new(5, Faults::none());
    let post = Arc::default();
    queue(&mut network, &post, 0..1);
    network.run_until(Duration::from_secs(60), |_, server| server.is_drained());
    let closed = network.closed();
    let unknown = Violation::Frame(FrameErrorKind::UnknownType);
    assert_eq!(violation(&network, 1), Some(unknown), "{closed:?}");
}

#[test]
fn hook_replaces_operations() {
    // The policy delays acknowledgements for a hundred packets or 20 ms. The sender continues to
    // send.
    let acks = |policy: Option<&'static [u64]>| {
        // Packets arrive one by one, and the sender does not request fewer acknowledgements.
        let faults = Faults { rate: Some(10_000_000 / 8), ..Faults::none() };
        let mut network = Network::with(6, faults, |config| config.ack_frequency = false);
        let calls = Calls::default();
        watch_all(&mut network.client, &calls);
        network.on_server = Some(Box::new(move |server| {
            if let Some(policy) = policy {
                replace(server, Operation::AckPolicy, always(policy));
            }
        }));
        network.connect();
        send_one_way(&mut network, 400_000);
        calls.lock().unwrap()[&Operation::ProcessAck].len()
    };
    let (usual, rare) = (acks(None), acks(Some(&[100, 20_000_000, 0])));
    assert!(rare * 4 < usual, "{rare} of {usual}");

    // A window of three datagrams.
    let mut network = Network::new(6, Faults::none());
    replace(&mut network.client, Operation::CongestionWindow, always(&[3 * 1472]));
    network.connect();
    let took = echo(&mut network, 100_000);
    // 100,000 bytes with three datagrams per round trip of 20 ms.
    assert!(took > Duration::from_millis(400), "{took:?}");
    assert!(network.client.path().in_flight() <= 3 * 1472);

    // 50,000 bytes per second.
    let mut network = Network::new(6, Faults::none());
    replace(&mut network.client, Operation::PacingRate, always(&[50_000]));
    network.connect();
    let took = echo(&mut network, 100_000);
    assert!(took > Duration::from_millis(1500), "{took:?}");

    // A hook sets the round-trip time.
    let mut network = Network::new(6, Faults::none());
    let hook = doing(|host, call, _| {
        assert_eq!(host.set(Field::BytesInFlight, 1), Err(Denied::ReadOnly(Field::BytesInFlight)));
        host.set(Field::SmoothedRtt, call.inputs[1] * 2).unwrap();
        Ok(Decision::Done)
    });
    replace(&mut network.client, Operation::UpdateRtt, hook);
    network.connect();
    echo(&mut network, 10_000);
    let rtt = network.client.path().rtt().smoothed();
    assert!((40..60).contains(&rtt.as_millis()), "{rtt:?}");

    // Smaller datagrams without probes for larger ones.
    let mut network = Network::new(6, Faults::none());
    network.connect();
    echo(&mut network, 100_000);
    assert_eq!(network.client.path().mtu(), 1472);
    replace(&mut network.client, Operation::DatagramSize, always(&[1230]));
    replace(&mut network.client, Operation::ProbeMtu, always(&[0]));
    let before = network.trace().len();
    echo(&mut network, 50_000);
    let sent = network.trace()[before..].to_vec();
    let sizes: BTreeSet<usize> =
        sent.iter().filter(|(_, to, _)| *to).map(|(.., size)| *size).collect();
    assert_eq!(sizes.last(), Some(&1230));

    let mut network = Network::new(6, Faults::none());
    network.connect();
    replace(&mut network.client, Operation::OpenStream, always(&[0]));
    assert_eq!(network.client.open(Direction::Bidirectional), None);
}

#[test]
fn hook_replaces_the_stream_schedule() {
    let mut network = Network::new(7, Faults::none());
    network.connect();
    let ids: Vec<StreamId> =
        (0..4).filter_map(|_| network.client.open(Direction::Unidirectional)).collect();
    let last = ids[3].as_varint().get();
    let hook = doing(move |_, _, outputs| {
        outputs[0] = last;
        Ok(Decision::Done)
    });
    replace(&mut network.client, Operation::ScheduleStream, hook);
    for id in &ids {
        network.client.streams().write(*id, &[7; 5000]).unwrap();
        network.client.streams().finish(*id).unwrap();
    }
    // The stream that was opened last arrives first and complete.
    let mut arrived = Vec::new();
    network.run_until(Duration::from_secs(10), |_, server| {
        while server.accept(Direction::Unidirectional).is_some() {}
        for id in &ids {
            let mut buffer = [0; 8192];
            while let Ok(outcome) = server.streams().read(*id, &mut buffer) {
                match outcome {
                    ReadOutcome::Finished => arrived.push(*id),
                    ReadOutcome::Bytes(_) => continue,
                    _ => {}
                }
                break;
            }
        }
        arrived.len() == 4
    });
    assert_eq!(arrived[0].as_varint().get(), last, "{arrived:?}");
}

#[test]
fn hook_that_fails_is_detached() {
    let mut network = Network::new(8, Faults::none());
    let hook = doing(|_, _, _| Err(HookError("broken".into())));
    let failing =
        network.client.attach(hook, &[AttachPoint::replace(Operation::UpdateRtt)]).unwrap();
    // Neither 0 nor 1, so not a valid answer.
    let lying = network
        .client
        .attach(always(&[2]), &[AttachPoint::replace(Operation::IsDuplicate)])
        .unwrap();
    network.connect();
    echo(&mut network, 1000);
    network.failed.sort();
    assert_eq!(network.failed, [failing, lying]);
    assert!(network.client.detach(failing).is_none(), "the hook is already detached");
}

/// An observing hook that fails is detached at once, even if it is attached several times. The
/// other hooks are called at all their points.
#[test]
fn hook_that_fails_does_not_affect_others() {
    struct Watcher(u8, Arc<Mutex<Vec<u8>>>);

    impl Watcher {
        fn call(&self) -> Result<(), HookError> {
            self.1.lock().unwrap().push(self.0);
            if self.0 < 5 { Ok(()) } else { Err(HookError("broken".into())) }
        }
    }

    impl Hook for Watcher {
        fn before(&mut self, _: &mut HookContext<'_>, _: &Call<'_>) -> Result<(), HookError> {
            self.call()
        }

        fn after(
            &mut self,
            _: &mut HookContext<'_>,
            _: &Call<'_>,
            _: &[u64],
        ) -> Result<(), HookError> {
            self.call()
        }
    }

    let (operation, calls) = (Operation::UpdateKeys, Arc::default());
    for (before, after) in [(true, false), (false, true)] {
        let mut client = Network::new(1, Faults::none()).client;
        let point = AttachPoint { before, after, ..AttachPoint::observe(operation) };
        for (name, points) in [(1, 2), (7, 3), (2, 1), (8, 1), (3, 1)] {
            let watcher = Watcher(name, Arc::clone(&calls));
            client.attach(Box::new(watcher), &vec![point; points]).unwrap();
        }
        for called in [&[1, 1, 7, 2, 8, 3][..], &[1, 1, 2, 3]] {
            assert!(!client.update_keys(), "the handshake is not confirmed");
            assert_eq!(std::mem::take(&mut *calls.lock().unwrap()), called);
        }
    }
}

/// No answer of a hook to any operation causes a panic or an endless loop.
#[test]
fn hook_answers_keep_invariants() {
    let answers: [&'static [u64]; 4] = [&[0; 8], &[1; 8], &[u64::MAX; 8], &[1200; 8]];
    for operation in Operation::ALL {
        for words in answers {
            let count = operation.describe().outputs.len();
            let hook = move || {
                doing(move |_, call: &mut Call<'_>, outputs: &mut [u64]| {
                    outputs.copy_from_slice(&words[..count]);
                    if let Bytes::Out(room) = &mut call.bytes {
                        room.fill(words[0] as u8);
                    }
                    Ok(Decision::Done)
                })
            };
            let mut network = Network::new(9, Faults { loss: 0.05, ..Faults::none() });
            replace(&mut network.client, *operation, hook());
            let id = *operation;
            network.on_server = Some(Box::new(move |server| replace(server, id, hook())));
            network.run_some(2000);
        }
    }
}

/// The default of an operation whose answer it limits is computed once, also for a hook that gets
/// it. It may call other operations, whose hooks would otherwise be called twice.
#[test]
fn hook_that_refines_a_default_does_not_compute_the_default_twice() {
    let calls = |refined: bool| {
        let mut network = Network::new(3, Faults::none());
        network.connect();
        let calls = Calls::default();
        watch_all(&mut network.client, &calls);
        if refined {
            // The outputs are the default already.
            let same = doing(|_, _, _| Ok(Decision::Done));
            let point = AttachPoint::refine(Operation::HasContent);
            network.client.attach(same, &[point]).unwrap();
        }
        echo(&mut network, 20_000);
        let calls = calls.lock().unwrap();
        [Operation::HasContent, Operation::AckIsDue].map(|operation| calls[&operation].len())
    };
    assert_eq!(calls(false), calls(true));
}
