//! Frames that wait while the application sends much. The fast route must leave them to the general
//! one, or they wait until the application has nothing to send.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use equic_wire::frame::FrameType;
use equic_wire::{ConnectionId, Direction, ResetToken, Side, StreamId};

use super::*;
use crate::connection::space::{PathFrame, SentFrame};
use crate::received::AckPolicy;
use crate::stream::{Control, ReadOutcome};

/// Receive window of each stream, and of the connection at the end that sends the frame.
const WINDOW: u64 = 64 << 10;

/// Datagrams that may leave before the frame.
const DATAGRAMS: usize = 4;

/// Names of the frame types that a receiver has processed.
type Seen = Arc<Mutex<BTreeSet<&'static str>>>;

struct Watch(Seen);

impl Hook for Watch {
    fn before(&mut self, _: &mut HookContext<'_>, call: &Call<'_>) -> Result<(), HookError> {
        let kind = FrameType(VarInt::new(call.parameter).unwrap());
        self.0.lock().unwrap().insert(kind.name().unwrap());
        Ok(())
    }
}

/// Makes a frame wait at an end.
type Cause = fn(&mut Connection, Timestamp);

/// Connections in which a frame can be sent.
#[derive(PartialEq)]
enum On {
    OnePath,
    Paths,
    Both,
}

/// Returns how a frame comes to wait, or the reason for which it need not be tested.
fn row(name: &str) -> Result<(On, Side, Cause), &'static str> {
    use Side::{Client, Server};
    Ok(match name {
        "PADDING" => return Err("fills packets that have other frames"),
        "STREAM" => return Err("is what the application sends"),
        "DATA_BLOCKED" => return Err("waits only while no stream data can be sent"),
        "PING" => return Err("is omitted if the packet elicits an acknowledgement"),
        "IMMEDIATE_ACK" => return Err("accompanies a probe that has room for it"),
        "CONNECTION_CLOSE" => return Err("is sent after the end of all transfers"),
        "ACK" => (On::OnePath, Client, |_, _| {}),
        "PATH_ACK" => (On::Paths, Client, |_, _| {}),
        "RESET_STREAM" => (On::Both, Client, |end, _| {
            let id = end.open(Direction::Unidirectional).unwrap();
            end.streams().write(id, &[1; 100]).unwrap();
            end.streams().reset(id, 7).unwrap();
        }),
        "STOP_SENDING" => (On::Both, Client, |end, _| {
            let id = end.accept(Direction::Unidirectional).unwrap();
            end.streams().stop(id, 7).unwrap();
        }),
        "CRYPTO" => (On::Both, Server, |end, _| {
            let space = end.space(SpaceId::DATA).unwrap();
            space.crypto_out.get_mut().write_bytes(Bytes::from_static(&[0; 8]));
        }),
        "NEW_TOKEN" => (On::Both, Server, |end, _| {
            end.outbox.push(SentFrame::NewToken(Bytes::from_static(b"token")));
        }),
        "MAX_DATA" | "MAX_STREAM_DATA" | "MAX_STREAMS" => {
            (On::Both, Client, |end, _| read_all(end))
        }
        "STREAM_DATA_BLOCKED" => (On::Both, Client, |end, _| {
            let id = StreamId::new(Client, Direction::Unidirectional, 0).unwrap();
            lose(end, SentFrame::Control(Control::StreamDataBlocked(id, WINDOW)));
        }),
        "STREAMS_BLOCKED" => {
            (On::Both, Client, |end, _| while end.open(Direction::Bidirectional).is_some() {})
        }
        "NEW_CONNECTION_ID" => (On::Both, Client, |end, _| issue_id(end, PathId::ZERO)),
        "RETIRE_CONNECTION_ID" => (On::Both, Client, |end, _| retire_id(end, PathId::ZERO)),
        "PATH_CHALLENGE" => (On::Both, Client, |end, now| end.challenge(now, end.path().key())),
        "PATH_RESPONSE" => {
            (On::Both, Client, |end, _| end.on_path_challenge(end.path().key(), [1; 8]))
        }
        "HANDSHAKE_DONE" => (On::Both, Server, |end, _| lose(end, SentFrame::HandshakeDone)),
        "DATAGRAM" => (On::Both, Client, |end, _| end.send_datagram(vec![1; 100]).unwrap()),
        "ACK_FREQUENCY" => (On::Both, Client, |end, now| {
            end.acks.ask(now, AckPolicy { ack_eliciting_threshold: 90, ..AckPolicy::default() });
        }),
        "PATH_ABANDON" => (On::Paths, Client, |end, now| {
            end.close_path(now, ONE, TransportErrorCode::NO_ERROR).unwrap();
        }),
        "PATH_STATUS_BACKUP" => (On::Paths, Client, |end, _| {
            end.set_path_status(ONE, PathStatus::Backup).unwrap();
        }),
        "PATH_STATUS_AVAILABLE" => (On::Paths, Client, |end, _| {
            end.set_path_status(ONE, PathStatus::Available).unwrap();
        }),
        "PATH_NEW_CONNECTION_ID" => (On::Paths, Client, |end, _| issue_id(end, ONE)),
        "PATH_RETIRE_CONNECTION_ID" => (On::Paths, Client, |end, _| retire_id(end, ONE)),
        "MAX_PATH_ID" => (On::Paths, Client, |end, _| {
            let max = PathId::new(end.config.max_paths as u32 - 1);
            lose(end, SentFrame::Multipath(PathFrame::MaxPathId(max)));
        }),
        "PATHS_BLOCKED" => (On::Paths, Client, |end, now| {
            let remote = SERVER.parse().unwrap();
            while end.open_path(now, local(1), remote).is_ok() {}
        }),
        "PATH_CIDS_BLOCKED" => (On::Paths, Client, |end, now| {
            end.ids.remote_of_mut(PathId::new(2)).unwrap().forget_all();
            end.open_path(now, local(1), SERVER.parse().unwrap()).unwrap_err();
        }),
        _ => panic!("{name} has no row: how does it come to wait?"),
    })
}

/// Declares a frame lost, so that it is sent again.
fn lose(end: &mut Connection, frame: SentFrame) {
    end.send_again(SpaceId::DATA, 0, false, &[frame]);
}

fn issue_id(end: &mut Connection, path: PathId) {
    let id = ConnectionId::new(&[7; 20][..end.ids.id_len()]).unwrap();
    end.ids.local_of_mut(path).unwrap().issue(id, ResetToken([7; 16]));
}

fn retire_id(end: &mut Connection, path: PathId) {
    let remote = end.ids.remote_of_mut(path).unwrap();
    let spare = remote.sequences().last().unwrap();
    remote.retire(spare);
}

/// Reads all that has arrived.
fn read_all(end: &mut Connection) {
    let mut buffer = vec![0; 1 << 20];
    while let Some(id) = end.accept(Direction::Unidirectional) {
        while let Ok(ReadOutcome::Bytes(_)) = end.streams().read(id, &mut buffer) {}
    }
}

/// Returns two connected ends. The sending end has received data that it has not read, and one of
/// its streams is blocked.
fn prepared(paths: bool, sender: Side) -> Pair {
    let set = |side: Side, config: &mut TransportConfig| {
        let max_paths = if side == Side::Client { 4 } else { 3 };
        config.max_paths = if paths { max_paths } else { 1 };
        let streams = &mut config.streams;
        (streams.stream_window, streams.max_stream_window) = (WINDOW, WINDOW);
        streams.connection_window = if side == sender { WINDOW } else { 16 * WINDOW };
        streams.max_connection_window = streams.connection_window;
        (streams.max_streams_uni, streams.max_streams_bidi) = (8, 2);
    };
    let mut pair =
        Pair::unlike(1, &[link(10), link(10)], &|config| set(Side::Client, config), &|config| {
            set(Side::Server, config)
        });
    pair.connect();
    if paths {
        pair.open(1);
    }
    let client_sends = sender == Side::Client;
    let fill = |end: &mut Connection, sends: bool| {
        for stream in 0..if sends { 1 } else { 8 } {
            let id = end.open(Direction::Unidirectional).unwrap();
            let bytes =
                [2 * WINDOW as usize, 40_000, 1000][usize::from(!sends) + usize::from(stream > 0)];
            end.streams().write(id, &vec![7; bytes]).unwrap();
            if stream > 0 {
                end.streams().finish(id).unwrap();
            }
        }
    };
    fill(&mut pair.client, client_sends);
    fill(pair.server(), !client_sends);
    pair.wait(Duration::from_secs(2));
    pair
}

/// Returns an end of a connection.
fn end_of(pair: &mut Pair, side: Side) -> &mut Connection {
    match side {
        Side::Client => &mut pair.client,
        Side::Server => pair.server(),
    }
}

/// Returns true if the frame leaves while stream data waits.
fn leaves(name: &'static str, paths: bool, sender: Side, cause: Cause) -> bool {
    let mut pair = prepared(paths, sender);
    let seen = Seen::default();
    let points = [AttachPoint::observe(Operation::ProcessFrame)];
    let receiver = end_of(&mut pair, !sender);
    receiver.attach(Box::new(Watch(seen.clone())), &points).unwrap();
    if ["ACK", "PATH_ACK"].contains(&name) {
        receiver.ping();
        pair.transmit_one(!sender);
        pair.deliver_all();
    }
    let now = pair.now;
    let end = end_of(&mut pair, sender);
    let id = end.open(Direction::Unidirectional).unwrap();
    end.streams().write(id, &vec![8; WINDOW as usize]).unwrap();
    cause(end, now);
    for _ in 0..DATAGRAMS {
        pair.transmit_one(sender);
    }
    let more = end_of(&mut pair, sender).streams.wants_to_send();
    assert!(more, "{name}: the transfer had ended, so the test shows nothing");
    pair.deliver_all();
    let seen = seen.lock().unwrap();
    assert!(seen.contains("STREAM"), "{name}: nothing is transferred: {seen:?}");
    seen.contains(name)
}

#[test]
fn pending_frame_of_every_type_leaves_during_a_transfer() {
    let known = (0..1 << 14).map(|kind| FrameType(VarInt::from_u32(kind)));
    let names: BTreeSet<&str> = known.filter_map(|kind| kind.name()).collect();
    assert!(names.len() > 25, "{names:?}");
    let mut late = Vec::new();
    for name in names {
        let Ok((on, sender, cause)) = row(name) else { continue };
        for paths in [false, true] {
            let tested = on == On::Both || (on == On::Paths) == paths;
            if tested && !leaves(name, paths, sender, cause) {
                late.push((name, paths));
            }
        }
    }
    assert_eq!(late, [], "these frames wait (true: on a connection with several paths)");
}
