//! Tests of the acknowledgement frequency, of keep-alive, and of skipped packet numbers.

use equic_wire::frame::{AckFrequency, Frame};

use super::attacker::Attacker;
use super::network::{Faults, Network};
use super::*;
use crate::received::AckPolicy;

/// Uploads 4 MB over 100 Mb/s. Returns the number of the server's acknowledgements, and the time
/// that it took.
fn upload(ask: bool) -> (u64, Duration) {
    let faults = Faults { rate: Some(100_000_000 / 8), ..Faults::none() };
    // The queue holds the whole window, so that no packet is lost. After a loss, every packet is
    // acknowledged at once.
    let mut network = Network::with(1, faults, |config| {
        config.ack_frequency = ask;
        config.streams.max_stream_window = 512 << 10;
    });
    network.connect();
    let start = network.now();
    send_one_way(&mut network, 4_000_000);
    let took = network.now().since(start);
    assert!(network.server().stats().packets_lost < 100, "{}", network.describe());
    (network.server().stats().acks_sent, took)
}

#[test]
fn ack_frequency_is_lower_where_the_window_is_large() {
    let (usual, usual_time) = upload(false);
    let (fewer, time) = upload(true);
    assert!(fewer * 2 < usual, "{fewer} of {usual}");
    assert!(time < usual_time * 11 / 10, "{time:?} instead of {usual_time:?}");
}

#[test]
fn ack_frequency_is_not_sent_to_a_peer_without_support() {
    let mut network = Network::new(1, Faults::none());
    network.run_until(Duration::from_secs(10), |client, _| client.is_connected());
    network.client.peer.as_mut().unwrap().pretend_no_ack_frequency();
    echo(&mut network, 500_000);
    assert_eq!(network.client.acks.asked(), AckPolicy::default());
    assert_eq!(network.server().acks.policy(), AckPolicy::default());
}

#[test]
fn ack_frequency_requests_that_are_lost_are_sent_again_and_old_ones_ignored() {
    let mut network = Network::new(3, Faults { loss: 0.01, ..Faults::none() });
    network.connect();
    echo(&mut network, 2_000_000);
    assert_ne!(network.client.acks.asked(), AckPolicy::default());
    // Wait until the server applies the client's last request, which may arrive after the data.
    network.run_until(Duration::from_secs(10), |client, server| {
        server.acks.policy() == client.acks.asked()
    });
    let peer = network.client.peer.unwrap();
    assert!(peer.max_ack_delay() <= peer.declared_max_ack_delay());
}

fn frequency(sequence: u32, delay_us: u64, threshold: u32) -> Frame<'static> {
    Frame::AckFrequency(AckFrequency {
        sequence_number: VarInt::from_u32(sequence),
        ack_eliciting_threshold: VarInt::from_u32(threshold),
        requested_max_ack_delay_us: VarInt::new(delay_us).unwrap(),
        reordering_threshold: VarInt::from_u32(3),
    })
}

#[test]
fn ack_frequency_of_the_peer_is_obeyed_in_order() {
    let mut attacker = Attacker::new(1);
    attacker.send(&[frequency(5, 10_000, 7)]);
    let policy = attacker.victim().acks.policy();
    assert_eq!(policy.ack_eliciting_threshold, 7);
    assert_eq!(policy.max_ack_delay, Duration::from_millis(10));
    assert_eq!(policy.reordering_threshold, 3);
    // A reordered frame, and a repeated one.
    attacker.send(&[frequency(4, 20_000, 9)]);
    attacker.send(&[frequency(5, 20_000, 9)]);
    assert_eq!(attacker.victim().acks.policy(), policy);
    attacker.send(&[frequency(6, 20_000, 9)]);
    assert_eq!(attacker.victim().acks.policy().ack_eliciting_threshold, 9);
}

#[test]
fn ack_frequency_delay_out_of_range_is_a_violation() {
    // Below our min_ack_delay, and 2^14 ms (s.4).
    for delay in [0, 999, 16_384_000, (1 << 62) - 1] {
        let mut attacker = Attacker::new(1);
        attacker.send(&[frequency(0, delay, 1)]);
        attacker.assert_closed(Violation::AckFrequencyDelay);
    }
    let mut attacker = Attacker::new(1);
    attacker.send(&[frequency(0, 16_383_999, 1)]);
    attacker.assert_open();
}

#[test]
fn ack_immediate_is_sent_at_once() {
    let mut attacker = Attacker::new(1);
    attacker.send(&[frequency(0, 1_000_000, 1000)]);
    attacker.wait(Duration::from_secs(2));
    let before = attacker.victim().stats().acks_sent;
    attacker.send(&[Frame::Ping]);
    assert_eq!(
        attacker.victim().stats().acks_sent,
        before,
        "one packet may wait for its acknowledgement"
    );
    attacker.send(&[Frame::Ping, Frame::ImmediateAck, Frame::ImmediateAck]);
    assert_eq!(attacker.victim().stats().acks_sent, before + 1);
}

#[test]
fn idle_keep_alive_keeps_a_connection_open() {
    let set = |config: &mut TransportConfig| config.keep_alive = Duration::from_secs(20);
    let mut network = Network::with(1, Faults::none(), set);
    network.connect();
    let end = network.now() + Duration::from_secs(300);
    network.run_until(Duration::from_secs(400), |client, server| {
        assert!(!client.closing.is_closed() && !server.closing.is_closed());
        client.now >= end
    });
    // PINGs are sent after half the idle timeout of 30 s. A PING of one side also keeps the other
    // side's idle timer from expiring.
    let pings = network.client.stats().keep_alives + network.server().stats().keep_alives;
    assert!((15..=45).contains(&pings), "{pings}");
    assert!(network.client.stats().packets_sent < 200);
}

#[test]
fn packet_number_gaps_are_skipped_and_their_acknowledgement_is_a_violation() {
    let mut network = Network::new(1, Faults::none());
    network.connect();
    echo(&mut network, 3_000_000);
    let skipped = network.client.stats().numbers_skipped;
    let sent = network.client.stats().packets_sent;
    assert!(skipped >= 3 && skipped < sent / 20, "{skipped} of {sent}");
}
