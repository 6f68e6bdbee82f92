//! Hooks that other hooks attached, as for a peer's plugins. Their frames leave the application its
//! share, their memory is counted, and their frames are skipped after they are detached.

use std::sync::{Arc, Mutex};

use equic_wire::Reader;

use super::operations::{STAMP, doing};
use super::requests::brings;
use super::*;
use crate::operation::{
    AttachPoint, Bytes, Call, Decision, Denied, Field, Hook, HookContext, HookError, HookId,
    Operation, OwnFrame,
};

/// Writes a frame of type [`STAMP`] with a length, `size` bytes in total. Returns the number of
/// bytes written, or 0 if there is no room.
fn write_long(room: &mut [u8], size: usize) -> u64 {
    let Some(room) = room.get_mut(..size) else { return 0 };
    room.fill(0);
    room[..2].copy_from_slice(&[0x6f, 0x5a]);
    room[2..4].copy_from_slice(&(0x4000 | (size - 4) as u16).to_be_bytes());
    size as u64
}

/// Returns the length of a frame with its type and length fields.
fn length(bytes: &[u8]) -> u64 {
    let mut reader = Reader::new(bytes);
    let whole = reader.varint().and_then(|_| reader.varint_bytes()).is_ok();
    if whole { (bytes.len() - reader.len()) as u64 } else { 0 }
}

fn points() -> Vec<AttachPoint> {
    let of_frames = [Operation::ParseFrame, Operation::ProcessFrame, Operation::WriteFrame];
    let of_frames = of_frames.map(|operation| AttachPoint::replace(operation).of_frame(STAMP));
    let begin = [Operation::InitOpaqueData].map(AttachPoint::replace);
    of_frames.into_iter().chain(begin).collect()
}

/// Returns a hook that sends frames of this size endlessly. It counts the bytes that it sends while
/// the application has data to send.
fn floods(size: usize, sent: &Arc<Mutex<usize>>) -> Box<dyn Hook> {
    let sent = sent.clone();
    doing(move |host, call, outputs| {
        match (call.operation, &mut call.bytes) {
            (Operation::InitOpaqueData, _) => while host.queue_frame(STAMP, 0).is_ok() {},
            (Operation::WriteFrame, Bytes::Out(room)) => {
                outputs[0] = write_long(room, size);
                let _ = host.queue_frame(STAMP, 0);
                if host.get(Field::ApplicationWaits) != 0 {
                    *sent.lock().unwrap() += outputs[0] as usize;
                }
            }
            (Operation::ParseFrame, bytes) => outputs[0] = length(bytes.as_slice()),
            _ => outputs.fill(1),
        }
        Ok(Decision::Done)
    })
}

/// Makes a connection skip frames of type [`STAMP`].
fn skips(connection: &mut Connection) {
    let (id, _) = brings(connection, |host, _| host.skip_frames(vec![STAMP]).unwrap());
    connection.tell_hook(id, b"").unwrap();
}

#[test]
fn hook_nested_frames_leave_the_application_its_share() {
    const STREAM: usize = 1_000_000;
    for (size, percent) in [(20, 25), (300, 25), (1100, 25), (300, 5)] {
        let mut network = Network::new(1, Faults::none());
        network.connect();
        skips(network.server_mut());
        let sent = Arc::<Mutex<usize>>::default();
        let flood = sent.clone();
        let (id, _) = brings(&mut network.client, move |host, _| {
            host.share_frames(percent);
            let frames = vec![OwnFrame::new(STAMP)];
            host.attach(0, floods(size, &flood), points(), frames).unwrap();
        });
        network.client.tell_hook(id, b"").unwrap();
        echo(&mut network, STREAM);
        let sent = *sent.lock().unwrap();
        let (percent, all) = (usize::from(percent), STREAM + sent);
        let least = 100 * sent >= (percent - 2) * all;
        let most = 100 * sent <= (percent + 3) * all;
        assert!(least && most, "{sent} of {all} bytes in frames of {size}, {percent} percent");
    }
}

/// A hook sends without end while the application has nothing to send. This is no evidence that the
/// path can carry more, so the window does not grow, although it is full.
#[test]
fn hook_nested_frames_do_not_raise_the_window_of_an_idle_connection() {
    let mut network = Network::new(1, Faults::none());
    network.connect();
    skips(network.server_mut());
    network.pass(Duration::from_millis(500));
    let window = |network: &Network| network.client.path().controller().window();
    let (before, sent) = (window(&network), network.client.stats().bytes_sent);
    let (id, _) = brings(&mut network.client, move |host, _| {
        host.attach(0, floods(1100, &Arc::default()), points(), vec![OwnFrame::new(STAMP)])
            .unwrap();
    });
    network.client.tell_hook(id, b"").unwrap();
    network.pass(Duration::from_secs(5));
    let sent = network.client.stats().bytes_sent - sent;
    assert!(
        sent > 20 * before,
        "the window is not full: {sent} bytes sent, {before} bytes of window"
    );
    assert!(window(&network) <= before, "{} from {before}", window(&network));
    // Data of the application in addition to the frames grows the window as usual.
    echo(&mut network, 2_000_000);
    assert!(window(&network) > 2 * before, "{} from {before}", window(&network));
}

/// The client has nothing to send, and the peer can send only if the client sends MAX_DATA frames.
#[test]
fn hook_nested_frames_do_not_keep_the_peer_from_sending() {
    let faults = Faults { rate: Some(5_000_000), ..Faults::none() };
    let mut network = Network::with(1, faults, |config| config.streams.connection_window = 100_000);
    network.connect();
    skips(network.server_mut());
    let sent = Arc::<Mutex<usize>>::default();
    let (id, _) = brings(&mut network.client, move |host, _| {
        host.attach(0, floods(1150, &sent), points(), vec![OwnFrame::new(STAMP)]).unwrap();
    });
    network.client.tell_hook(id, b"").unwrap();
    let stream = network.server_mut().open(Direction::Unidirectional).unwrap();
    let (mut written, mut read, mut incoming) = (0, 0, None);
    let all = 1_000_000;
    network.run_until(Duration::from_secs(60), |client, server| {
        written += server.streams().write(stream, &vec![7; (all - written).min(8192)]).unwrap_or(0);
        incoming = incoming.or_else(|| client.accept(Direction::Unidirectional));
        let mut buffer = [0; 8192];
        while let Some(id) = incoming
            && let Ok(ReadOutcome::Bytes(count)) = client.streams().read(id, &mut buffer)
        {
            read += count;
        }
        read == all
    });
}

/// The client attaches a hook that fails in `operation` for the first frame. The server sends
/// `count` such frames in one packet.
fn fails_at_the_first(operation: Operation, count: u64, skip: bool) -> Network {
    let mut network = Network::new(1, Faults::none());
    network.connect();
    let (id, _) = brings(&mut network.client, move |host, _| {
        let fails = doing(move |_, call, outputs| match call.operation {
            one if one == operation => Err(HookError("broken".to_owned())),
            Operation::ParseFrame => {
                outputs[0] = length(call.bytes.as_slice());
                Ok(Decision::Done)
            }
            _ => Ok(Decision::Default),
        });
        host.attach(0, fails, points(), vec![OwnFrame::new(STAMP)]).unwrap();
        if skip {
            host.skip_frames(vec![7, STAMP]).unwrap();
        }
    });
    network.client.tell_hook(id, b"").unwrap();
    let sends = doing(move |host, call, outputs| {
        match (call.operation, &mut call.bytes) {
            (Operation::InitOpaqueData, _) => {
                for token in 0..count {
                    host.queue_frame(STAMP, token).unwrap();
                }
            }
            (Operation::WriteFrame, Bytes::Out(room)) => outputs[0] = write_long(room, 20),
            (_, bytes) => outputs[0] = length(bytes.as_slice()),
        }
        Ok(Decision::Done)
    });
    let server = network.server_mut();
    server.attach_with_frames(sends, &points(), &[OwnFrame::new(STAMP)]).unwrap();
    network.pass(Duration::from_millis(200));
    assert_eq!(network.failed.len(), 1, "the hook fails once");
    network
}

#[test]
fn hook_nested_frames_behind_a_failed_hook_are_skipped() {
    for operation in [Operation::ParseFrame, Operation::ProcessFrame] {
        let mut network = fails_at_the_first(operation, 5, true);
        assert_eq!(network.closed(), [None, None], "{operation}");
        echo(&mut network, 10_000);
        // Without permission to skip them, the frames close the connection.
        let network = fails_at_the_first(operation, 2, false);
        assert!(network.closed()[0].is_some(), "{operation}");
    }
}

#[test]
fn hook_nested_frames_are_skipped_by_declared_types() {
    let mut network = Network::new(1, Faults::none());
    network.connect();
    let client = &mut network.client;
    skips(client);
    assert!(client.extensions.skips(STAMP) && !client.extensions.skips(STAMP + 1));
    let (other, _) = brings(client, |host, _| {
        assert_eq!(host.skip_frames(vec![1]), Err(Denied::Full), "another hook has declared types");
    });
    client.tell_hook(other, b"").unwrap();
    let (hook, _) = brings(network.server_mut(), |host, _| {
        assert_eq!(host.skip_frames((0..257).collect()), Err(Denied::Full));
        host.skip_frames((0..256).collect()).unwrap();
    });
    let server = network.server_mut();
    server.tell_hook(hook, b"").unwrap();
    assert!(server.extensions.skips(255));
    server.detach(hook).unwrap();
    assert!(!server.extensions.skips(255), "a detached hook's types are still skipped");
}

/// A hook that uses memory, and sends as many messages to the application as it can.
struct Talks(Arc<Mutex<usize>>);

impl Hook for Talks {
    fn before(&mut self, host: &mut HookContext<'_>, _call: &Call<'_>) -> Result<(), HookError> {
        while host.tell(&[0; 1000]).is_ok() {
            *self.0.lock().unwrap() += 1;
        }
        Ok(())
    }

    fn memory(&self) -> usize {
        100_000
    }
}

fn talks(connection: &mut Connection) -> (HookId, usize) {
    let said = Arc::<Mutex<usize>>::default();
    let points = [AttachPoint { after: false, ..AttachPoint::observe(Operation::HookMessage) }];
    let id = connection.attach(Box::new(Talks(said.clone())), &points).unwrap();
    connection.tell_hook(id, b"").unwrap();
    let said = *said.lock().unwrap();
    (id, said)
}

#[test]
fn hook_nested_frames_of_one_hook_leave_others_room() {
    let mut network = Network::new(1, Faults::none());
    network.connect();
    let client = &mut network.client;
    let said: Vec<usize> = (0..10).map(|_| talks(client).1).collect();
    assert_eq!(said, [16; 10]);
    // The messages of hooks that were attached and detached are limited to 64.
    let mut network = Network::new(1, Faults::none());
    network.connect();
    let client = &mut network.client;
    for _ in 0..100 {
        let (id, said) = talks(client);
        assert_eq!(said, 16);
        client.detach(id).unwrap();
    }
    let mut left = 0;
    while let Some(event) = client.poll_event() {
        left += usize::from(matches!(event, Event::HookMessage(..)));
    }
    assert_eq!(left, 64);
}

#[test]
fn memory_of_hooks_counts_for_the_connection() {
    let mut network = Network::new(1, Faults::none());
    network.connect();
    let client = &mut network.client;
    let before = client.memory();
    let (id, _) = talks(client);
    let with = client.memory();
    assert!(with >= before + 100_000 + 16 * 1000, "{before} bytes, then {with}");
    client.detach(id).unwrap();
    assert!(client.memory() < before + 20_000, "its messages are still there");
    while client.poll_event().is_some() {}
    assert!(client.memory() <= before + 4096);
}
