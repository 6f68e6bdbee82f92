//! Most packets take early exits of the routes. The result is the same as on the general routes. A
//! connection uses the general routes if a hook is attached to an operation that the exits skip.

use super::*;
use crate::connection::receive_plain::EARLY_EXITS;
use crate::operation::{AttachPoint, Hook, Operation};

/// Does nothing.
struct Idle;

impl Hook for Idle {}

/// Operations that early exits skip: one for a datagram to send, one for a received datagram, and
/// one for received STREAM frames.
pub(super) const LONG: &[Operation] =
    &[Operation::PadPacket, Operation::HandleDatagram, Operation::CheckFrame];

/// An operation that no fast route skips. Timers are as with other hooks, for which some timers are
/// delayed a moment.
pub(super) const SHORT: &[Operation] = &[Operation::PathRemoved];

/// Attaches a hook that does nothing.
pub(super) fn attach_to(connection: &mut Connection, operations: &[Operation]) {
    let points: Vec<AttachPoint> = operations.iter().copied().map(AttachPoint::observe).collect();
    connection.attach(Box::new(Idle), &points).unwrap();
}

fn lengthen(connection: &mut Connection) {
    attach_to(connection, LONG);
}

/// Operations of received packets and frames that the early exit does not skip.
const OF_PACKETS: &[Operation] = &[
    Operation::RestorePacketNumber,
    Operation::IsDuplicate,
    Operation::AfterPacketRead,
    Operation::ParseFrames,
    Operation::ParseFrame,
    Operation::CheckFrame,
    Operation::ProcessFrame,
];

/// Echoes data over a bad network, with idle hooks on `watched` at both ends. Returns all datagrams
/// with their times and sizes, and the counters of each end.
fn run(seed: u64, watched: &[Operation]) -> (Vec<(Timestamp, bool, usize)>, [Stats; 2]) {
    let mut network = Network::new(seed, Faults::by_chance(seed));
    network.connect();
    if !watched.is_empty() {
        attach_to(&mut network.client, watched);
        attach_to(network.server_mut(), watched);
    }
    for length in [1, 700, 50_000] {
        echo(&mut network, length);
    }
    // Ignores whether packets were decrypted directly into stream buffers. The general route never
    // does this.
    let stats = [network.client.stats(), network.server().stats()]
        .map(|stats| Stats { packets_opened_to_streams: 0, ..stats });
    (network.trace(), stats)
}

#[test]
fn fast_path_equals_slow_path_on_bad_networks() {
    for seed in 0..cases(60) {
        let short = run(seed, &[]);
        assert_eq!(short, run(seed, LONG), "seed {seed}");
        assert_eq!(short, run(seed, OF_PACKETS), "seed {seed}");
    }
}

/// The early exit of a received datagram skips only [`Operation::HandleDatagram`]. Hooks on payloads
/// and frames turn off only the decryption into the memory of streams.
#[test]
fn fast_path_receives_packets_that_hooks_see() {
    let both: &[Operation] = &[Operation::HandleDatagram, Operation::CheckFrame];
    let numbers = &OF_PACKETS[..2];
    for (watched, exits, placed) in [
        (&[][..], true, true),
        (numbers, true, true),
        (OF_PACKETS, true, false),
        (both, false, false),
    ] {
        let mut network = Network::new(5, Faults::none());
        network.connect();
        attach_to(&mut network.client, watched);
        attach_to(network.server_mut(), watched);
        let opened = |network: &Network| network.server().stats().packets_opened_to_streams;
        let before = (EARLY_EXITS.get(), opened(&network));
        echo(&mut network, 200_000);
        let exited = EARLY_EXITS.get() - before.0;
        assert_eq!((exited > 100, exited > 0), (exits, exits), "{watched:?}");
        assert_eq!(opened(&network) - before.1 > 0, placed, "{watched:?}");
    }
}

/// An invalid frame closes the connection with the same error, whichever frame of the packet it is.
#[test]
fn fast_path_finds_the_same_frame_errors() {
    // STREAM frames with offset and length, in order.
    let good: &[u8] = &[0x0e, 0x02, 0x00, 0x02, b'o', b'k'];
    let again: &[u8] = &[0x0e, 0x02, 0x01, 0x02, b'k', b'!'];
    let ours: &[u8] = &[0x0e, 0x03, 0x00, 0x01, b'x'];
    let beyond: &[u8] = &[0x0e, 0x02, 0xbf, 0xff, 0xff, 0xff, 0x01, b'x'];
    let cut: &[u8] = &[0x0e, 0x02, 0x00, 0x09, b'x'];
    let many: &[u8] = &[0x0e, 0x9f, 0xff, 0xff, 0xfe, 0x00, 0x01, b'x'];
    let end: &[u8] = &[0x0f, 0x02, 0x03, 0x00];
    let after: &[u8] = &[0x0e, 0x02, 0x03, 0x01, b'x'];
    let ping: &[u8] = &[0x01];
    for frames in [
        vec![good, again],
        vec![good, ping, again],
        vec![good, ours],
        vec![good, beyond],
        vec![good, cut],
        vec![many, good],
        vec![good, again, end, after],
    ] {
        let payload = frames.concat();
        let outcome = |hooks: bool| {
            let mut network = Network::new(5, Faults::none());
            network.connect();
            if hooks {
                lengthen(network.server_mut());
            }
            let (mut now, server) = (network.now(), network.server_mut());
            now += MS;
            let (path, largest) = (server.path().key(), server.spaces.data().received.largest());
            let number = largest.map_or(0, |(largest, _)| largest + 1);
            let accepted = server.pretend_payload(now, number, path, &payload);
            let received = &server.spaces.data().received;
            let state = (received.ranges().clone(), received.deadline(), received.is_due(now));
            let mut events = Vec::new();
            while let Some(event) = server.poll_event() {
                events.push(event);
            }
            let mut read = Vec::new();
            let id = server.accept(Direction::Unidirectional);
            let outcome = id.map(|id| server.streams().read_to(id, &mut read, 100));
            (accepted, state, events, outcome, read)
        };
        assert_eq!(outcome(false), outcome(true), "{payload:x?}");
    }
}

/// Frames other than stream data are sent first, even if they become due after the first datagram
/// of a batch.
#[test]
fn fast_path_sends_a_due_acknowledgement_first() {
    let outcome = |comes: bool| {
        let mut network = Network::new(5, Faults::none());
        network.connect();
        echo(&mut network, 100_000);
        network.wait(Duration::from_secs(2));
        let (mut client, mut server, now) = network.into_ends();
        let id = client.open(Direction::Unidirectional).unwrap();
        client.streams().write(id, &[7; 50_000]).unwrap();
        let mut buffer = vec![0; 50_000];
        let sent = client.poll_transmit(now, &mut buffer[..1500]).unwrap();
        if comes {
            server.ping();
            let size = server.poll_transmit(now, &mut buffer).unwrap().size;
            let arrival =
                DatagramMeta { remote: sent.destination, local: None, ecn: EcnCodepoint::NotEct };
            client.handle_datagram(now, arrival, &mut buffer[..size]);
        }
        let more = client.poll_transmit_more(now, &sent, &mut buffer, 3);
        let before = client.stats().acks_sent;
        client.poll_transmit(now, &mut buffer[..1500]).unwrap();
        (more / sent.size, client.stats().acks_sent - before)
    };
    assert_eq!(outcome(false), (3, 0));
    assert_eq!(outcome(true), (0, 1));
}

/// Returns what a server takes from a client's datagrams, which it gets one by one or as one
/// message of the system. One of them is damaged, one belongs to another connection, and the last
/// is shorter. Returns only the sizes of the answers, because the keys are different each time.
fn taken(several: bool, hooked: bool) -> (Stats, Vec<Event>, Vec<usize>) {
    let mut network = Network::new(3, Faults::none());
    network.connect();
    if hooked {
        lengthen(network.server_mut());
    }
    let now = network.now() + MS;
    let id = network.client.open(Direction::Unidirectional).unwrap();
    network.client.streams().write(id, &[7; 8000]).unwrap();
    let mut buffer = vec![0; 2000];
    let first = network.client.poll_transmit(now, &mut buffer).unwrap();
    let mut bytes = buffer[..first.size].to_vec();
    while let Some(sent) = network.client.poll_transmit(now, &mut buffer) {
        assert!(bytes.len().is_multiple_of(first.size) && sent.size <= first.size);
        bytes.extend_from_slice(&buffer[..sent.size]);
    }
    assert!(bytes.len() > 5 * first.size && !bytes.len().is_multiple_of(first.size));
    bytes[2 * first.size + 500] ^= 1;
    bytes[3 * first.size + 2] ^= 1;
    let server = network.server_mut();
    while server.poll_event().is_some() {}
    let remote = server.remote_address();
    let arrival = DatagramMeta { remote, local: None, ecn: EcnCodepoint::NotEct };
    if several {
        server.handle_datagrams(now, &arrival, &mut bytes, first.size);
    } else {
        for datagram in bytes.chunks_mut(first.size) {
            server.handle_datagram(now, arrival, datagram);
        }
    }
    let stats = server.stats();
    let events = std::iter::from_fn(|| server.poll_event()).collect();
    let mut answers = Vec::new();
    while let Some(sent) = server.poll_transmit(now, &mut buffer) {
        answers.push(sent.size);
    }
    (stats, events, answers)
}

#[test]
fn fast_path_takes_batches_like_single_datagrams() {
    for hooked in [false, true] {
        let one_by_one = taken(false, hooked);
        let Stats { datagrams_received, packets_dropped, .. } = one_by_one.0;
        assert!(datagrams_received > 5 && packets_dropped >= 2, "{:?}", one_by_one.0);
        assert!(!one_by_one.2.is_empty());
        assert_eq!(taken(true, hooked), one_by_one, "{hooked}");
    }
}

/// Whatever segment size the caller passes.
#[test]
fn fast_path_survives_impossible_sizes() {
    for segment in [0, 1, 21, 1200, usize::MAX] {
        let mut network = Network::new(3, Faults::none());
        network.connect();
        let (now, server) = (network.now(), network.server_mut());
        let remote = server.remote_address();
        let arrival = DatagramMeta { remote, local: None, ecn: EcnCodepoint::NotEct };
        server.handle_datagrams(now, &arrival, &mut [], segment);
        server.handle_datagrams(now, &arrival, &mut [0x40; 3000], segment);
        echo(&mut network, 5000);
    }
}
