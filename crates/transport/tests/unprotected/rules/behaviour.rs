//! Rules of RFC 9000 about what an endpoint sends, and about packets that it discards.

use std::time::Duration;

use equic_transport::ReadOutcome;
use equic_wire::{Direction, Side, Version};

use super::{CLIENT, CONNECTED, LARGE_CERTIFICATE, hex, side};
use crate::unprotected::case::{Case, ELSEWHERE, PUPPET, address};
use crate::unprotected::puppet::Space;

const MS: Duration = Duration::from_millis(1);

/// A packet that elicits an acknowledgement gets one within the delay. Other packets get none.
// RFC 9000 s.13.2.1 #6
#[test]
fn ack_of_one_packet_is_sent_once_and_in_time() {
    for victim in [Side::Client, Side::Server] {
        let mut case = Case::new(side(victim) | CONNECTED);
        case.pass(MS * 200);
        let ack = case.puppet.ack(Space::OneRtt);
        case.say(Space::OneRtt, &ack, 0);
        case.pass(MS * 200);
        // RFC 9000 s.13.2.1 #4
        let before = case.sent();
        let ack = case.puppet.ack(Space::OneRtt);
        for _ in 0..10 {
            // Gaps in the packet numbers are not a sufficient reason to acknowledge these packets.
            case.puppet.number(Space::OneRtt, None);
            case.say(Space::OneRtt, &ack, 0);
        }
        case.pass(MS * 200);
        assert_eq!(case.sent(), before, "{victim:?}");
        // RFC 9000 s.13.2.1 #1 #2 #3
        case.say(Space::OneRtt, &[0x01], 0);
        case.pass(MS * 26);
        assert_eq!(case.sent(), before + 1, "{victim:?}");
        case.pass(MS * 500);
        assert_eq!(case.sent(), before + 1, "{victim:?}");
    }
}

// RFC 9000 s.13.2.1 #2
#[test]
fn ack_of_handshake_packets_is_immediate() {
    let mut case = Case::new(0);
    case.shake_hands();
    for space in [Space::Initial, Space::Handshake] {
        let before = case.sent();
        case.say(space, &[0x01], if space == Space::Initial { 1200 } else { 0 });
        assert!(case.sent() > before, "{space:?}");
    }
}

// RFC 9000 s.8.2.2 #1 #2 #5 #7
#[test]
fn path_response_is_one_full_datagram_at_once() {
    for victim in [Side::Client, Side::Server] {
        let mut case = Case::new(side(victim) | CONNECTED);
        case.pass(MS * 200);
        let before = case.sent();
        case.say(Space::OneRtt, &hex("1a 0102030405060708"), 0);
        assert_eq!(case.sent(), before + 1);
        assert!(case.last[0].len() >= 1200, "{}", case.last[0].len());
        let frame = hex("1b 0102030405060708");
        case.pass(MS * 500);
        let sent = case.taken.iter().flat_map(|(_, datagram)| datagram.windows(frame.len()));
        assert_eq!(sent.filter(|bytes| *bytes == frame).count(), 1);
    }
}

// RFC 9000 s.8.2.1 #4 #6, s.9 #4
#[test]
fn path_challenge_has_a_full_datagram_if_the_limit_permits_it() {
    let mut case = Case::new(CONNECTED);
    let number = case.puppet.number(Space::OneRtt, None);
    let mut datagram = Vec::new();
    case.puppet.packet((Space::OneRtt, number, 0), &[0x01], 1200, &mut datagram).unwrap();
    case.deliver(address(ELSEWHERE), datagram);
    let elsewhere = case.taken.iter().filter(|sent| sent.0 == address(ELSEWHERE));
    let challenges: Vec<usize> = elsewhere.map(|sent| sent.1.len()).collect();
    assert!(!challenges.is_empty() && challenges.iter().all(|size| *size >= 1200));
}

// RFC 9000 s.9 #5, s.9.6 #1
#[test]
fn packet_of_another_server_address_is_discarded() {
    let mut case = Case::new(CLIENT | CONNECTED);
    let before = case.victim.stats();
    let number = case.puppet.number(Space::OneRtt, None);
    let mut datagram = Vec::new();
    case.puppet.packet((Space::OneRtt, number, 0), &[0x01], 0, &mut datagram).unwrap();
    case.deliver(address(ELSEWHERE), datagram.clone());
    case.pass(MS * 100);
    let discarded = case.victim.stats();
    assert_eq!(discarded.packets_received, before.packets_received);
    assert_eq!(discarded.packets_dropped, before.packets_dropped + 1);
    assert!(case.taken.iter().all(|(to, _)| *to == address(PUPPET)));
    // From the server's own address, the client accepts the same packet.
    case.deliver(address(PUPPET), datagram);
    let accepted = case.victim.stats();
    assert_eq!(accepted.packets_received, before.packets_received + 1);
    assert_eq!(accepted.packets_dropped, discarded.packets_dropped);
}

/// A draining end sends nothing. A closing end sends a bounded number of datagrams.
// RFC 9000 s.10.2.1 #2, s.10.2.2 #1 #2, s.11.1 #2
#[test]
fn close_draining_end_is_silent() {
    for victim in [Side::Client, Side::Server] {
        let mut case = Case::new(side(victim) | CONNECTED);
        // RFC 9000 s.10.2.2 #1 #2
        case.say(Space::OneRtt, &hex("1c 00 00 00"), 0);
        let sent = case.victim.stats().datagrams_sent;
        for _ in 0..20 {
            case.say(Space::OneRtt, &[0x01], 0);
        }
        case.pass(MS * 100);
        assert_eq!(case.victim.stats().datagrams_sent, sent);
        // RFC 9000 s.10.2.1 #2 #3, s.11.1 #1
        let mut case = Case::new(side(victim) | CONNECTED);
        let before = case.victim.stats();
        for _ in 0..100 {
            case.say(Space::OneRtt, &hex("7fff"), 0);
        }
        let after = case.victim.stats();
        let sent = after.bytes_sent - before.bytes_sent;
        assert!(after.datagrams_sent > before.datagrams_sent);
        assert!(sent <= 3 * (after.bytes_received - before.bytes_received));
        assert!(after.datagrams_sent - before.datagrams_sent <= 10);
    }
}

// RFC 9000 s.12.2 #1 #5 #6
#[test]
fn packet_behind_one_that_cannot_be_opened_is_read() {
    let mut case = Case::new(CONNECTED);
    let before = case.victim.stats().packets_received;
    let mut datagram = Vec::new();
    let number = case.puppet.number(Space::OneRtt, None);
    case.puppet.packet((Space::Handshake, 60, 0), &[0x01], 0, &mut datagram).unwrap();
    case.puppet.packet((Space::OneRtt, number, 0), &[0x01], 0, &mut datagram).unwrap();
    case.deliver(address(PUPPET), datagram);
    assert_eq!(case.victim.stats().packets_received, before + 1);
}

// RFC 9000 s.12.3 #4 #5
#[test]
fn packet_number_that_came_before_is_discarded() {
    let mut case = Case::new(CONNECTED);
    let number = case.puppet.number(Space::OneRtt, None);
    let before = case.victim.stats();
    for _ in 0..3 {
        let mut datagram = Vec::new();
        case.puppet.packet((Space::OneRtt, number, 0), &[0x01], 0, &mut datagram).unwrap();
        case.deliver(address(PUPPET), datagram);
    }
    let after = case.victim.stats();
    assert_eq!(after.packets_received, before.packets_received + 1);
    assert_eq!(after.packets_dropped, before.packets_dropped + 2);
}

// RFC 9000 s.5.2.1 #1
// RFC 9369 s.4.1 #8
#[test]
fn packet_of_another_version_is_discarded() {
    let mut case = Case::new(CLIENT);
    let hello = case.puppet.message((Space::Initial, 1), &[], None);
    for version in [Version::V1, Version::V2, Version(0x1a2a_3a4a)] {
        // Apart from its version, the packet is authentic.
        case.puppet.other_version = Some(version);
        case.say(Space::Initial, &hello, 0);
        assert_eq!(case.victim.stats().packets_received, 0);
    }
    case.puppet.other_version = None;
    case.say(Space::Initial, &hello, 0);
    assert_eq!(case.victim.stats().packets_received, 1);
}

/// The server may be unable to send before it has validated the client's address, so the client
/// sends probes although it has nothing in flight.
// RFC 9002 s.6.2.2.1 #2 #3
// RFC 9000 s.14.1 #1
// RFC 9001 s.9.3 #1
#[test]
fn pto_probe_of_a_client_with_nothing_in_flight() {
    // RFC 9000 s.8.1 #3 #4 #5
    let mut case = Case::new(CLIENT);
    let ack = case.puppet.ack(Space::Initial);
    case.say(Space::Initial, &ack, 0);
    case.taken.clear();
    case.pass(Duration::from_secs(2));
    assert!(!case.taken.is_empty());
    assert!(case.taken.iter().all(|(_, sent)| sent.len() >= 1200 && sent[0] & 0xb0 == 0x80));
    // If the client has keys for Handshake packets, it sends these as probes.
    let mut case = Case::new(CLIENT);
    let hello = case.puppet.message((Space::Initial, 1), &[], None);
    let hello = [case.puppet.ack(Space::Initial), hello].concat();
    case.say(Space::Initial, &hello, 0);
    let ack = case.puppet.ack(Space::Initial);
    case.say(Space::Initial, &ack, 0);
    assert!(!case.puppet.has_seen(Space::Handshake));
    case.pass(Duration::from_secs(2));
    assert!(case.puppet.has_seen(Space::Handshake));
}

// RFC 9002 s.7.5 #1, s.7 #2, s.6.2.4 #1 #2
#[test]
fn pto_probe_is_sent_with_a_full_window() {
    for victim in [Side::Client, Side::Server] {
        let mut case = Case::new(side(victim) | CONNECTED);
        let id = case.victim.open(Direction::Unidirectional).unwrap();
        case.victim.streams().write(id, &[7; 60_000]).unwrap();
        let before = case.victim.stats();
        // The application writes, and the pacer needs some time to release the data.
        case.application(0);
        case.pass(MS * 15);
        let filled = case.victim.stats();
        let sent = filled.bytes_sent - before.bytes_sent;
        assert!((10_000..=14_720).contains(&sent), "{victim:?}: {sent}");
        assert_eq!(filled.probe_timeouts, before.probe_timeouts);
        case.pass(Duration::from_secs(2));
        let after = case.victim.stats();
        assert!(after.probe_timeouts > before.probe_timeouts);
        assert!(after.packets_sent > filled.packets_sent);
    }
}

// RFC 9000 s.17.4 #1 #4
#[test]
fn packet_spin_bit_is_not_used() {
    let mut case = Case::new(CONNECTED);
    for turn in 0..20 {
        case.puppet.first_bits = if turn % 2 == 0 { 0x20 } else { 0 };
        case.say(Space::OneRtt, &[0x01], 0);
        case.pass(MS * 30);
    }
    assert!(case.taken.len() > 5);
    assert!(case.taken.iter().all(|(_, sent)| sent[0] & 0xa0 == 0));
}

// RFC 9001 s.5.7 #1 #2 #3
#[test]
fn packet_of_1_rtt_waits_for_the_handshake() {
    for victim in [Side::Client, Side::Server] {
        let mut case = Case::new(side(victim));
        if victim == Side::Client {
            let hello = case.puppet.message((Space::Initial, 1), &[], None);
            case.say(Space::Initial, &hello, 0);
            let answer = case.puppet.message((Space::Handshake, 2), &[], None);
            case.say(Space::Handshake, &answer, 0);
        } else {
            case.shake_hands();
        }
        let before = case.victim.stats().packets_received;
        // The puppet sends two bytes on its first bidirectional stream.
        let stream = if victim == Side::Client { "0a 01 02 6162" } else { "0a 00 02 6162" };
        case.say(Space::OneRtt, &hex(stream), 0);
        let waiting = case.victim.stats();
        assert_eq!((waiting.packets_received, waiting.packets_dropped), (before, 0), "{victim:?}");
        assert!(case.victim.accept(Direction::Bidirectional).is_none());
        // The puppet's Finished completes the handshake, and then the victim reads the packet.
        assert!(!case.victim.is_connected());
        let finished = case.puppet.message((Space::Handshake, 4), &[], None);
        case.say(Space::Handshake, &finished, 0);
        assert!(case.victim.is_connected());
        let after = case.victim.stats();
        assert_eq!((after.packets_received, after.packets_dropped), (before + 2, 0), "{victim:?}");
        let id = case.victim.accept(Direction::Bidirectional).expect("the packet opens a stream");
        let mut buffer = [0; 10];
        let read = case.victim.streams().read(id, &mut buffer);
        assert!(matches!(read, Ok(ReadOutcome::Bytes(2))), "{victim:?}: {read:?}");
        assert_eq!(&buffer[..2], b"ab");
    }
}

// RFC 9000 s.10.1 #1
#[test]
fn idle_timer_is_at_least_three_ptos() {
    let mut case = Case::new(0);
    // The client's `max_idle_timeout` is 10 ms.
    let hello = case.puppet.message((Space::Initial, 0), &hex("01 01 0a"), Some(0));
    case.say(Space::Initial, &hello, 1200);
    case.shake_hands();
    case.shake_hands();
    assert!(case.victim.is_connected());
    // The PTO is at least the peer's max_ack_delay, 25 ms.
    case.pass(MS * 70);
    assert!(!case.victim.is_drained());
    case.pass(Duration::from_secs(2));
    assert!(case.victim.is_drained());
}

/// A server that must not send before it receives more data does not set its PTO timer.
// RFC 9002 s.6.2.2.1 #1
#[test]
fn pto_of_a_server_that_may_not_send_does_not_run() {
    let mut case = Case::new(LARGE_CERTIFICATE);
    case.shake_hands();
    let sent = case.victim.stats();
    assert!(sent.bytes_sent > 3000 && sent.bytes_sent <= 3600, "{sent:?}");
    case.pass(Duration::from_secs(8));
    let after = case.victim.stats();
    assert_eq!((after.probe_timeouts, after.bytes_sent), (0, sent.bytes_sent));
    // More received datagrams provide credit for the rest and for probes.
    for _ in 0..4 {
        case.say(Space::Initial, &[0x01], 1200);
    }
    case.pass(Duration::from_secs(8));
    assert!(case.victim.stats().probe_timeouts > 0);
}

// RFC 9221 s.5.4 #1
#[test]
fn datagram_frames_wait_for_the_window() {
    let mut case = Case::new(CONNECTED);
    let before = case.victim.stats();
    for number in 0..40 {
        case.victim.send_datagram(vec![number; 1000]).unwrap();
    }
    case.application(0);
    case.pass(MS * 15);
    let filled = case.victim.stats();
    let sent = filled.bytes_sent - before.bytes_sent;
    assert!((10_000..=14_720).contains(&sent), "{sent}");
    // After acknowledgements, the victim sends all DATAGRAM frames.
    for _ in 0..10 {
        let ack = case.puppet.ack(Space::OneRtt);
        case.say(Space::OneRtt, &ack, 0);
        case.pass(MS * 50);
    }
    assert_eq!(case.victim.stats().datagram_frames_sent, 40);
}
