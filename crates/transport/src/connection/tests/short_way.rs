//! There are short ways for what most packets are. They come to the same as the long ones, which a connection takes when
//! a hook is attached to an operation that the short ways pass over.

use super::*;
use crate::operation::{AttachPoint, Hook, Operation};

/// Does nothing.
struct Idle;

impl Hook for Idle {}

/// Two operations, one that the short way of a packet to send passes over, and one of a packet that came.
pub(super) const LONG: &[Operation] = &[Operation::PadPacket, Operation::CheckFrame];

/// One that no short way passes over: timers are as with other hooks, which some wait a moment for.
pub(super) const SHORT: &[Operation] = &[Operation::PathRemoved];

/// Attaches a hook that does nothing.
pub(super) fn attach_to(connection: &mut Connection, operations: &[Operation]) {
    let points: Vec<AttachPoint> = operations.iter().copied().map(AttachPoint::observe).collect();
    connection.attach(Box::new(Idle), &points).unwrap();
}

fn lengthen(connection: &mut Connection) {
    attach_to(connection, LONG);
}

/// Echoes over a bad network; all datagrams with their times and sizes, and what each end counted.
fn run(seed: u64, hooked: bool) -> (Vec<(Timestamp, bool, usize)>, [Stats; 2]) {
    let mut network = Network::new(seed, Faults::by_chance(seed));
    network.connect();
    if hooked {
        lengthen(&mut network.client);
        lengthen(network.server_mut());
    }
    for length in [1, 700, 50_000] {
        echo(&mut network, length);
    }
    let stats = [network.client.stats(), network.server().stats()];
    (network.trace(), stats)
}

#[test]
fn both_ways_come_to_the_same_on_bad_networks() {
    for seed in 0..cases(60) {
        assert_eq!(run(seed, false), run(seed, true), "seed {seed}");
    }
}

/// What breaks a rule ends the connection in the same way, whichever of a packet's frames it is.
#[test]
fn what_is_wrong_with_a_frame_is_found_as_on_the_long_way() {
    // In this order: STREAM frames with offset and length.
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
            let (path, largest) =
                (server.path().key(), server.spaces[SpaceId::DATA].received.largest());
            let number = largest.map_or(0, |(largest, _)| largest + 1);
            let accepted = server.take_payload(now, number, path, &payload);
            let received = &server.spaces[SpaceId::DATA].received;
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

/// What is due beside stream data goes first, even if it became due after the datagram that more are asked for behind.
#[test]
fn nothing_goes_together_before_an_acknowledgement_that_became_due() {
    let outcome = |comes: bool| {
        let mut network = Network::new(5, Faults::none());
        network.connect();
        echo(&mut network, 100_000);
        network.wait(Duration::from_secs(2));
        let (mut client, mut server, now) = network.into_ends();
        let id = client.open(Direction::Unidirectional).unwrap();
        client.write(id, &[7; 50_000]).unwrap();
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
