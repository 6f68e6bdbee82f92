use std::time::Duration;

use rand::{Rng, SeedableRng, rngs::StdRng};

use super::*;
use crate::Timestamp;
use crate::stream::ReadOutcome;
use crate::stream::send::Piece;

const NOW: Timestamp = Timestamp::START;
const RTT: Duration = Duration::from_millis(10);

fn streams_of(side: Side, streams: StreamConfig) -> Streams {
    Streams::new(side, Arc::new(TransportConfig { streams, ..TransportConfig::default() }))
}

fn config() -> StreamConfig {
    StreamConfig {
        max_streams_bidi: 4,
        max_streams_uni: 2,
        stream_window: 1000,
        max_stream_window: 4000,
        connection_window: 2500,
        max_connection_window: 10_000,
        send_buffer: 5000,
        max_send_buffer: 5000,
        connection_send_buffer: 5000,
    }
}

fn limits(config: &StreamConfig) -> PeerLimits {
    PeerLimits {
        max_data: config.connection_window,
        max_stream_data_bidi_local: config.stream_window,
        max_stream_data_bidi_remote: config.stream_window,
        max_stream_data_uni: config.stream_window,
        max_streams_bidi: config.max_streams_bidi,
        max_streams_uni: config.max_streams_uni,
    }
}

/// Returns the streams of a client and of a server.
fn pair() -> (Streams, Streams) {
    let mut ends = [Side::Client, Side::Server].map(|side| streams_of(side, config()));
    for end in &mut ends {
        end.set_peer_limits(limits(&config()));
    }
    ends.into()
}

/// A frame between the two ends.
#[derive(Debug)]
enum Frame {
    Piece(StreamId, Piece, Vec<u8>),
    Control(Control),
}

fn send(from: &mut Streams) -> Option<Frame> {
    if let Some(control) = from.next_control(NOW, RTT) {
        return Some(Frame::Control(control));
    }
    let (id, piece) = from.next_piece(|_, _| 300)?;
    let mut bytes = vec![0; (piece.range.end - piece.range.start) as usize];
    assert_eq!(from.copy(id, piece.range.start, &mut bytes), bytes.len());
    Some(Frame::Piece(id, piece, bytes))
}

fn receive(to: &mut Streams, frame: &Frame) -> Result<(), FrameError> {
    match frame {
        Frame::Piece(id, piece, bytes) => to.on_stream(*id, piece.range.start, bytes, piece.fin),
        Frame::Control(control) => match *control {
            Control::Reset(id, code, size) => to.on_reset(id, code, size),
            Control::Stop(id, code) => to.on_stop(id, code),
            Control::MaxData(limit) => {
                to.on_max_data(limit);
                Ok(())
            }
            Control::MaxStreamData(id, limit) => to.on_max_stream_data(id, limit),
            Control::MaxStreams(direction, limit) => {
                to.on_max_streams(direction, limit);
                Ok(())
            }
            Control::StreamDataBlocked(id, _) => to.on_stream_data_blocked(id),
            Control::DataBlocked(_) | Control::StreamsBlocked(..) => Ok(()),
        },
    }
}

fn acked(from: &mut Streams, frame: Frame) {
    match frame {
        Frame::Piece(id, piece, _) => from.on_piece_acked(id, piece.range, piece.fin),
        Frame::Control(control) => from.on_control_acked(control),
    }
}

fn lost(from: &mut Streams, frame: Frame) {
    match frame {
        Frame::Piece(id, piece, _) => from.on_piece_lost(id, piece.range, piece.fin),
        Frame::Control(control) => from.on_control_lost(control),
    }
}

fn byte(id: StreamId, offset: usize) -> u8 {
    (id.index() as usize * 31 + offset * 7) as u8
}

/// Echoes data on many streams over a network that loses and reorders frames. All data must arrive,
/// no stream may be left, and no limit may be exceeded (the receiver would report that).
#[test]
fn stream_all_end_whatever_is_lost() {
    for seed in 0..20 {
        let mut rng = StdRng::seed_from_u64(seed);
        let (mut client, mut server) = pair();
        let total = 30;
        let (mut open, mut done, mut started) = (BTreeMap::new(), 0, 0);
        let mut flight: Vec<(bool, Frame)> = Vec::new();
        for step in 0.. {
            assert!(step < 200_000, "seed {seed}: {done} of {total} after {step} steps");
            if done == total && flight.is_empty() && client.is_empty() && server.is_empty() {
                break;
            }
            if started < total
                && let Some(id) = client.open(Direction::Bidirectional)
            {
                started += 1;
                let length = rng.random_range(0..8000);
                open.insert(id, (0usize, length, 0usize));
            }
            write_some(&mut client, &mut open);
            done += read_some(&mut client, &mut open);
            echo(&mut server);
            for _ in 0..4 {
                for (from_client, end) in [(true, &mut client), (false, &mut server)] {
                    flight.extend(send(end).map(|frame| (from_client, frame)));
                }
            }
            // Check the sum explicitly, because builds without debug assertions do not.
            assert_eq!(client.bytes_unsent(), client.sum_unsent(), "seed {seed}, step {step}");
            while flight.len() > rng.random_range(0..12) {
                let (from_client, frame) = flight.swap_remove(rng.random_range(0..flight.len()));
                let (from, to) = match from_client {
                    true => (&mut client, &mut server),
                    false => (&mut server, &mut client),
                };
                if rng.random_bool(0.2) {
                    lost(from, frame);
                } else {
                    receive(to, &frame).unwrap_or_else(|e| panic!("seed {seed}: {e:?} {frame:?}"));
                    acked(from, frame);
                }
            }
        }
    }
}

/// The stored sum of bytes that were never sent must always equal the sum over all streams.
#[test]
fn stream_unsent_bytes_are_counted() {
    for seed in 0..50 {
        let mut rng = StdRng::seed_from_u64(seed);
        let (mut streams, ids) = opened(8, 20_000, 3_000);
        let mut pieces = Vec::new();
        for step in 0..400 {
            let id = ids[rng.random_range(0..ids.len())];
            // A call that fails must change nothing.
            match rng.random_range(0..9) {
                0..3 => drop(streams.write(id, &[0; 900])),
                3 => drop(streams.set_priority(id, rng.random_range(0..3))),
                4 => streams.on_max_data(20_000 + 100 * step),
                5 => drop(streams.on_max_stream_data(id, 3_000 + 50 * step)),
                6 if step > 200 => drop(streams.reset(id, 1)),
                7 if step > 200 => drop(streams.on_stop(id, 1)),
                6 => pieces.extend(streams.next_piece_of(id, |_, _| 700)),
                _ => pieces.extend(streams.next_piece(|_, _| 700)),
            }
            if rng.random_bool(0.2) && !pieces.is_empty() {
                let (id, piece) = pieces.swap_remove(rng.random_range(0..pieces.len()));
                streams.on_piece_lost(id, piece.range, piece.fin);
            }
            assert_eq!(streams.unsent, streams.sum_unsent(), "seed {seed}, step {step}");
        }
    }
}

/// For each stream: the number of bytes that were written, the length of the stream, and the number
/// of bytes that were read.
type Open = BTreeMap<StreamId, (usize, usize, usize)>;

fn write_some(client: &mut Streams, open: &mut Open) {
    for (id, (written, length, _)) in open {
        if *written < *length {
            let data: Vec<u8> = (*written..*length).map(|at| byte(*id, at)).collect();
            if let Ok(count) = client.write(*id, &data) {
                *written += count;
            }
        }
        if *written == *length {
            // After the first call this fails, because the stream is already finished.
            let _ = client.finish(*id);
        }
    }
}

fn read_some(client: &mut Streams, open: &mut Open) -> usize {
    let mut finished = Vec::new();
    for (id, (_, length, read)) in open.iter_mut() {
        let mut buffer = [0; 700];
        match client.read(*id, &mut buffer) {
            Ok(ReadOutcome::Bytes(count)) => {
                let expected: Vec<u8> = (*read..*read + count).map(|at| byte(*id, at)).collect();
                assert_eq!(buffer[..count], expected);
                *read += count;
            }
            Ok(ReadOutcome::Finished) => {
                assert_eq!(read, length);
                finished.push(*id);
            }
            Ok(ReadOutcome::Blocked) => {}
            other => panic!("{other:?}"),
        }
    }
    for id in &finished {
        open.remove(id);
    }
    finished.len()
}

/// Reads all streams of the server, and writes the data back as far as there is room.
fn echo(server: &mut Streams) {
    while server.accept(Direction::Bidirectional).is_some() {}
    let ids: Vec<StreamId> = server.streams.keys().copied().collect();
    for id in ids {
        let mut buffer = [0; 500];
        let room = match server.streams[&id].send.as_ref().map(SendHalf::writable) {
            Some(Ok(room)) => room.min(500) as usize,
            _ => continue,
        };
        match server.read(id, &mut buffer[..room]) {
            Ok(ReadOutcome::Bytes(count)) => {
                assert_eq!(server.write(id, &buffer[..count]), Ok(count));
            }
            Ok(ReadOutcome::Finished) => drop(server.finish(id)),
            _ => {}
        }
    }
}

fn close(error: FrameError) -> Violation {
    match error {
        FrameError::Close(violation) => violation,
        FrameError::TooFragmented => panic!("not a connection error"),
    }
}

fn id(side: Side, direction: Direction, index: u64) -> StreamId {
    StreamId::new(side, direction, index).unwrap()
}

// RFC 9000 s.4.1 #2, s.4.6 #3, s.19.9 #2, s.19.10 #2 #4, s.19.11 #4
#[test]
fn stream_violations_of_the_peer() {
    use Direction::{Bidirectional as Bidi, Unidirectional as Uni};
    let (_, mut server) = pair();
    let cases = [
        (id(Side::Client, Bidi, 4), 0, 1, Violation::StreamLimit),
        (id(Side::Client, Uni, 2), 0, 1, Violation::StreamLimit),
        (id(Side::Server, Bidi, 0), 0, 1, Violation::StreamNotOpened),
        (id(Side::Server, Uni, 0), 0, 1, Violation::StreamDirection),
        (id(Side::Client, Bidi, 0), 1000, 1, Violation::FlowControl),
        (id(Side::Client, Bidi, 0), (1 << 62) - 1, 1, Violation::FlowControl),
    ];
    for (id, offset, length, violation) in cases {
        let error = server.on_stream(id, offset, &vec![0; length], false).unwrap_err();
        assert_eq!(close(error), violation, "{id:?} {offset}");
    }
    // Each stream stays within its own window. Together, the streams exceed the window of the
    // connection.
    for index in 0..2 {
        server.on_stream(id(Side::Client, Bidi, index), 0, &[0; 1000], false).unwrap();
    }
    let error = server.on_stream(id(Side::Client, Bidi, 2), 0, &[0; 501], false).unwrap_err();
    assert_eq!(close(error), Violation::FlowControl);
    // The frame is a MAX_STREAM_DATA frame for a stream on which the server does not send (RFC 9000
    // s.19.10).
    let error = server.on_max_stream_data(id(Side::Client, Uni, 0), 9).unwrap_err();
    assert_eq!(close(error), Violation::StreamDirection);
}

// RFC 9000 s.3.2 #1
#[test]
fn stream_ids_of_the_peer_open_all_lower_ones() {
    let (_, mut server) = pair();
    server.on_stream(id(Side::Client, Direction::Bidirectional, 3), 0, &[1], false).unwrap();
    let opened: Vec<StreamId> =
        std::iter::from_fn(|| server.accept(Direction::Bidirectional)).collect();
    assert_eq!(opened.iter().map(|id| id.index()).collect::<Vec<_>>(), [0, 1, 2, 3]);
    assert!(opened.iter().all(|id| server.write(*id, b"x") == Ok(1)));
}

/// Frames may arrive in another order, so a limit that is lower than an earlier one has no effect.
// RFC 9000 s.4.6 #4, s.13.3 #5, s.19.11 #2
#[test]
fn stream_limits_that_fall_are_ignored() {
    let (mut client, _) = pair();
    client.on_max_streams(Direction::Bidirectional, 2);
    client.on_max_data(10);
    let ids: Vec<StreamId> = std::iter::from_fn(|| client.open(Direction::Bidirectional)).collect();
    assert_eq!(ids.len(), 4);
    client.on_max_stream_data(ids[0], 10).unwrap();
    client.write(ids[0], &[0; 900]).unwrap();
    let pieces = std::iter::from_fn(|| client.next_piece(|_, _| 300));
    assert_eq!(pieces.map(|(_, piece)| piece.fresh).sum::<u64>(), 900);
}

// RFC 9000 s.2.1 #1, s.2.3 #1, s.4.6 #2 #5, s.19.11 #3, s.19.14 #1
#[test]
fn stream_priority_and_round_robin() {
    let (mut client, _) = pair();
    let ids: Vec<StreamId> =
        (0..4).map(|_| client.open(Direction::Bidirectional).unwrap()).collect();
    for id in &ids {
        client.write(*id, &[0; 600]).unwrap();
    }
    client.set_priority(ids[3], i32::MAX).unwrap();
    client.set_priority(ids[2], -1).unwrap();
    assert_eq!((client.priority(ids[2]), client.priority(ids[0])), (Ok(-1), Ok(0)));
    let mut order = Vec::new();
    while let Some((id, _)) = client.next_piece(|_, _| 300) {
        order.push(id);
    }
    assert_eq!(order[..2], [ids[3], ids[3]]);
    assert_eq!(order[2..], [ids[0], ids[1], ids[0], ids[1], ids[2], ids[2]]);
    assert!(client.open(Direction::Bidirectional).is_none());
    for told in [true, false] {
        client.want_streams(Direction::Bidirectional);
        let blocked = Control::StreamsBlocked(Direction::Bidirectional, 4);
        let next = client.next_control(Timestamp::START, Duration::ZERO);
        assert_eq!(next == Some(blocked), told, "once for each limit: {next:?}");
    }
}

/// If the path holds many bytes in flight, a stream must send several packets in its turn. All
/// streams must have their turn within a quarter of a round trip.
#[test]
fn stream_turn_length() {
    let mut client = streams_of(Side::Client, config());
    let most = 1 << 20;
    client.set_peer_limits(PeerLimits {
        max_data: most,
        max_stream_data_bidi_remote: most,
        ..limits(&config())
    });
    let ids: Vec<StreamId> =
        (0..3).map(|_| client.open(Direction::Bidirectional).unwrap()).collect();
    let order = |client: &mut Streams, streams: usize, in_flight: u64| {
        client.set_in_flight_room(in_flight);
        for id in &ids[..streams] {
            client.write(*id, &[0; 600]).unwrap();
        }
        let mut order = Vec::new();
        while let Some((id, piece)) = client.next_piece(|_, _| 100) {
            let at = ids.iter().position(|other| *other == id).unwrap();
            order.push(at);
            client.on_piece_acked(id, piece.range, piece.fin);
        }
        order
    };
    let each = |turn: usize, streams: usize| -> Vec<usize> {
        let round = (0..streams).flat_map(|stream| vec![stream; turn]);
        round.collect::<Vec<_>>().repeat(6 / turn)
    };
    // The columns are: packets in a turn, number of streams, bytes in flight.
    for (turn, streams, in_flight) in [
        (1, 2, 0),
        (1, 2, 100 * 8),
        (2, 2, 200 * 8),
        (3, 2, 300 * 8),
        (1, 3, 100 * 12),
        (2, 3, 200 * 12),
    ] {
        assert_eq!(order(&mut client, streams, in_flight), each(turn, streams), "{in_flight}");
    }
    assert_eq!(order(&mut client, 1, 1 << 30), each(6, 1));
    assert_eq!(sending::turn(1 << 30, 99), 16 << 10);
}

// RFC 9000 s.4.4 #1, s.4.5 #1
#[test]
fn flow_control_reset_streams_leave_no_hole_in_the_window() {
    let (mut client, mut server) = pair();
    for round in 0..50 {
        let id = client.open(Direction::Bidirectional).unwrap();
        client.write(id, &[0; 900]).unwrap();
        // The first piece is lost and never sent again. The second piece arrives.
        client.next_piece(|_, _| 300).unwrap();
        let (_, second) = client.next_piece(|_, _| 300).unwrap();
        server.on_stream(id, second.range.start, &[0; 300], false).unwrap();
        client.reset(id, 1).unwrap();
        client.stop(id, 1).unwrap();
        assert!(server.accept(Direction::Bidirectional).is_some(), "round {round}");
        server.stop(id, 2).unwrap();
        server.reset(id, 2).unwrap();
        for _ in 0..10 {
            while let Some(frame) = send(&mut client) {
                receive(&mut server, &frame).unwrap();
                acked(&mut client, frame);
            }
            while let Some(frame) = send(&mut server) {
                receive(&mut client, &frame).unwrap();
                acked(&mut server, frame);
            }
        }
        assert!(client.is_empty() && server.is_empty(), "round {round}");
    }
}

/// Three streams stay open while a fourth one opens and ends repeatedly. Whenever the fourth stream
/// ends, the server must raise the limit, although one stream is less than half of the permitted
/// ones.
// RFC 9000 s.4.6 #6
#[test]
fn stream_that_ends_makes_room_for_one() {
    let (mut client, mut server) = pair();
    let open = |client: &mut Streams| client.open(Direction::Bidirectional);
    let ids: Vec<StreamId> = std::iter::from_fn(|| open(&mut client)).collect();
    assert_eq!(ids.len(), 4);
    let mut last = ids[3];
    for round in 0..10 {
        server.on_stream(last, 0, &[], false).unwrap();
        server.on_reset(last, 0, 0).unwrap();
        server.read(last, &mut [0]).unwrap();
        server.reset(last, 0).unwrap();
        let mut room = false;
        // The server sends the reset of the stream and, when the reset is acknowledged, the new
        // limit.
        while let Some(Frame::Control(control)) = send(&mut server) {
            room |= matches!(control, Control::MaxStreams(..));
            receive(&mut client, &Frame::Control(control)).unwrap();
            server.on_control_acked(control);
        }
        assert!(room, "round {round}");
        last = open(&mut client).expect("the limit was raised");
        assert!(open(&mut client).is_none(), "the limit permits only one stream");
    }
}

/// If a peer does not read many streams, this end must store at most the limit of the connection
/// and 16 KiB of each stream. A stream that the peer reads must make progress.
#[test]
fn stream_send_buffers_are_bounded_together() {
    let ours = StreamConfig {
        send_buffer: 1 << 20,
        connection_send_buffer: 3 << 20,
        ..StreamConfig::default()
    };
    let mut server = streams_of(Side::Server, ours);
    // The peer permits 100 bytes of each stream and never raises this limit.
    let theirs = StreamConfig { stream_window: 100, max_streams_uni: 100, ..config() };
    server.set_peer_limits(PeerLimits { max_data: 1 << 40, ..limits(&theirs) });
    let mut ids = Vec::new();
    while let Some(id) = server.open(Direction::Unidirectional) {
        ids.push(id);
    }
    assert_eq!(ids.len(), 100);
    let data = bytes::Bytes::from(vec![7; 1 << 21]);
    for (place, id) in ids.iter().enumerate() {
        loop {
            let written = match place % 2 {
                0 => server.write(*id, &data),
                _ => server.write_bytes(*id, &mut data.clone()),
            };
            match written {
                Ok(count) => assert!(count > 0),
                Err(error) => break assert_eq!(error, StreamError::Write(WriteError::Blocked)),
            }
        }
    }
    let waiting = |server: &Streams| -> u64 {
        server.streams.values().filter_map(|one| one.send.as_ref()).map(SendHalf::buffered).sum()
    };
    assert_eq!(server.buffered(), waiting(&server));
    assert_eq!(server.buffered(), (3 << 20) + 97 * MIN_SHARE);

    // The last stream already buffers all that it may. It must be able to write more whenever the
    // peer has read some of its data.
    let last = ids[99];
    let mut taken = 0;
    for _ in 0..1000 {
        server.on_max_stream_data(last, taken + 3000).unwrap();
        while let Some((id, piece)) = server.next_piece(|_, _| 1000) {
            taken += if id == last { piece.range.end - piece.range.start } else { 0 };
            if id == last {
                server.on_piece_acked(id, piece.range, piece.fin);
            }
        }
        while let Some(event) = server.poll_event() {
            if event == StreamEvent::Writable(last) {
                while server.write(last, &data).is_ok() {}
            }
        }
        assert!(server.buffered() <= (3 << 20) + 97 * MIN_SHARE);
    }
    assert!(taken > 1_000_000, "{taken}");
    // When all streams are reset, no data may be left in the buffers.
    for id in ids {
        server.reset(id, 1).unwrap();
    }
    assert_eq!((server.buffered(), waiting(&server)), (0, 0));
}

/// The limit of a stream's send buffer must follow the number of bytes that the path holds in
/// flight, within its bounds, also when that number decreases.
#[test]
fn stream_send_buffer_grows_with_the_path() {
    let ours = StreamConfig { send_buffer: 100, max_send_buffer: 400, ..config() };
    let mut client = streams_of(Side::Client, ours);
    client.set_peer_limits(PeerLimits { max_data: 1 << 20, ..limits(&config()) });
    let id = client.open(Direction::Bidirectional).unwrap();
    let full = Err(StreamError::Write(WriteError::Blocked));
    assert_eq!((client.write(id, &[0; 1000]), client.write(id, &[0])), (Ok(100), full));
    for (room, more) in [(50, None), (250, Some(150)), (1000, Some(150)), (0, None)] {
        client.set_in_flight_room(room);
        assert_eq!(client.sendable(id, 1000, 1 << 20, 1 << 20).ok(), more, "{room}");
        assert_eq!(client.write(id, &[0; 1000]).ok(), more.map(|count| count as usize), "{room}");
    }
    // The path holds fewer bytes than before. No data may be written until fewer bytes wait than
    // the lower limit permits.
    let (_, piece) = client.next_piece(|_, _| 350).unwrap();
    client.on_piece_acked(id, 0..299, false);
    assert_eq!((piece.range, client.write(id, &[0])), (0..350, full));
    client.on_piece_acked(id, 299..350, false);
    assert_eq!(client.write(id, &[0; 1000]), Ok(50));
    // A new stream must have the current limit from the start.
    client.set_in_flight_room(200);
    let other = client.open(Direction::Bidirectional).unwrap();
    assert_eq!(client.write(other, &[0; 1000]), Ok(200));
}

/// New data must not wait for lost data: acknowledged data after the lost data must not count
/// against the limit, up to the size of the largest buffer.
#[test]
fn flow_control_data_behind_a_loss_takes_no_room() {
    let ours = StreamConfig { send_buffer: 100, max_send_buffer: 150, ..config() };
    let mut client = streams_of(Side::Client, ours);
    client.set_peer_limits(PeerLimits { max_data: 1 << 20, ..limits(&config()) });
    let id = client.open(Direction::Bidirectional).unwrap();
    let full = Err(StreamError::Write(WriteError::Blocked));
    assert_eq!((client.write(id, &[0; 1000]), client.write(id, &[0])), (Ok(100), full));
    client.next_piece(|_, _| 100).unwrap();
    while client.poll_event().is_some() {}
    client.on_piece_acked(id, 20..50, false);
    assert_eq!(client.poll_event(), Some(StreamEvent::Writable(id)));
    assert_eq!((client.write(id, &[0; 1000]), client.write(id, &[0])), (Ok(30), full));
    client.on_piece_acked(id, 50..100, false);
    assert_eq!((client.write(id, &[0; 1000]), client.write(id, &[0])), (Ok(20), full));
    assert_eq!(client.buffered(), 150);
    // The lost data arrives, so all acknowledged data is released.
    client.on_piece_acked(id, 0..20, false);
    assert_eq!((client.buffered(), client.write(id, &[0; 1000])), (50, Ok(50)));
}

/// Opens `count` streams of a client, with these limits for the connection and for each stream.
fn opened(count: u64, max_data: u64, window: u64) -> (Streams, Vec<StreamId>) {
    let config = StreamConfig { send_buffer: 1 << 20, connection_send_buffer: 8 << 20, ..config() };
    let mut streams = streams_of(Side::Client, config);
    streams.set_peer_limits(PeerLimits {
        max_data,
        max_stream_data_bidi_remote: window,
        max_streams_bidi: count,
        ..PeerLimits::default()
    });
    let ids = (0..count).map(|_| streams.open(Direction::Bidirectional).unwrap()).collect();
    while streams.poll_event().is_some() {}
    (streams, ids)
}

const AHEAD: u64 = 128 * 1024;

fn fill(streams: &mut Streams, ids: &[StreamId], most: u64) {
    for id in ids {
        while let Ok(count) = streams.sendable(*id, 65_536, most, AHEAD) {
            assert_eq!(streams.write(*id, &vec![0; count as usize]), Ok(count as usize));
        }
    }
}

#[test]
fn stream_receive_half_that_is_not_needed_is_not_allocated() {
    let (mut streams, ids) = opened(100, 1 << 30, 0);
    fill(&mut streams, &ids, 8 << 20);
    assert_eq!(streams.buffered(), AHEAD, "all streams share this room");
    assert!(streams.sendable(ids[1], 1, 8 << 20, 0).is_err());
    let last = ids[99];
    streams.on_max_stream_data(last, 100_000).unwrap();
    assert_eq!(streams.poll_event(), Some(StreamEvent::Writable(last)));
    assert_eq!(streams.sendable(last, 65_536, 8 << 20, AHEAD), Ok(65_536));
    // The connection's limit must block the streams in the same way. When it is raised, all streams
    // must be notified.
    let (mut streams, ids) = opened(3, 0, 1 << 30);
    fill(&mut streams, &ids, 8 << 20);
    assert_eq!(streams.buffered(), AHEAD);
    streams.on_max_data(1 << 30);
    let woken: Vec<_> = std::iter::from_fn(|| streams.poll_event()).collect();
    assert_eq!(woken, ids.iter().map(|id| StreamEvent::Writable(*id)).collect::<Vec<_>>());
}

#[test]
fn stream_send_buffer_limit_of_the_application() {
    const MOST: u64 = 100_000;
    let (mut streams, ids) = opened(3, 1 << 30, 1 << 30);
    fill(&mut streams, &ids, MOST);
    let full = streams.buffered();
    assert!(full <= MOST && full > MOST - MIN_SHARE, "{full}");
    while streams.poll_event().is_some() {}
    // All waiting streams must be notified when a fourth of the buffer is free.
    let mut acked = 0;
    while acked * 4 <= MOST {
        assert!(streams.poll_event().is_none_or(|event| event == StreamEvent::Writable(ids[0])));
        let (id, piece) = streams.next_piece(|_, _| 1200).unwrap();
        acked += piece.range.end - piece.range.start;
        streams.on_piece_acked(id, piece.range, false);
    }
    let woken: Vec<_> = std::iter::from_fn(|| streams.poll_event()).collect();
    assert!(woken.contains(&StreamEvent::Writable(ids[2])), "{woken:?}");
    assert!(streams.sendable(ids[2], 65_536, MOST, AHEAD).is_ok());
    // A reset must also make room in the buffer.
    fill(&mut streams, &ids, MOST);
    while streams.poll_event().is_some() {}
    streams.reset(ids[0], 0).unwrap();
    assert!(std::iter::from_fn(|| streams.poll_event()).count() > 1);
}

/// When a stream's window grows, the connection's window must grow, too. So if the application no
/// longer reads that stream, there is room for other streams.
#[test]
fn flow_control_connection_window_is_above_those_of_streams() {
    let (mut client, mut server) = pair();
    let id = client.open(Direction::Bidirectional).unwrap();
    let mut buffer = [0; 1000];
    for _ in 0..40 {
        let _ = client.write(id, &[0; 1000]);
        while let Some(frame) = send(&mut client) {
            receive(&mut server, &frame).unwrap();
        }
        while matches!(server.read(id, &mut buffer), Ok(ReadOutcome::Bytes(1..))) {}
        while let Some(frame) = send(&mut server) {
            receive(&mut client, &frame).unwrap();
        }
        let stream = server.receive_half(id).unwrap().window_size();
        assert!(server.receive_window.size() >= (2 * stream).min(10_000), "{stream}");
    }
    assert_eq!(server.receive_half(id).unwrap().window_size(), 4000, "the window has grown");
}

/// Further writes to a blocked stream must cause no frames, because the peer already knows which
/// limit blocks the stream.
// RFC 9000 s.19.13 #1
#[test]
fn flow_control_blocked_is_not_repeated() {
    let (mut client, _) = pair();
    let id = client.open(Direction::Bidirectional).unwrap();
    assert_eq!(client.write(id, &[0; 1500]), Ok(1500));
    let frames: Vec<Frame> = std::iter::from_fn(|| send(&mut client)).collect();
    let told = |frame: &&Frame| matches!(frame, Frame::Control(Control::StreamDataBlocked(..)));
    assert_eq!(frames.iter().filter(told).count(), 1, "{frames:?}");
    assert_eq!(client.write(id, &[0; 100]), Ok(100));
    assert!(!client.has_control() && !client.wants_to_send());
    assert!(send(&mut client).is_none());
    // If the STREAM_DATA_BLOCKED frame is lost, it must be sent again.
    client.on_control_lost(Control::StreamDataBlocked(id, 1000));
    assert!(client.has_control());
    assert!(matches!(send(&mut client), Some(Frame::Control(Control::StreamDataBlocked(..)))));
}

/// If a stream is blocked by its own limit, its data must not use up the connection's limit,
/// because other streams need it.
#[test]
fn flow_control_blocked_stream_does_not_stop_others() {
    let (mut streams, ids) = opened(2, 200_000, 100_000);
    fill(&mut streams, &ids[..1], 8 << 20);
    while streams.next_piece(|_, _| 1200).is_some() {}
    assert!(streams.buffered() > 100_000, "the stream's limit blocks some data");
    let half = AHEAD - 31_072;
    assert_eq!(streams.write(ids[0], &vec![0; half as usize]), Ok(half as usize));
    assert_eq!(streams.sendable(ids[1], 10_000, 8 << 20, AHEAD), Ok(10_000));
    assert_eq!(streams.sendable(ids[1], 1, 8 << 20, 0), Ok(1));
}
