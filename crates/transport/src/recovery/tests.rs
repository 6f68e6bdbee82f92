use super::*;

const fn at(ms: u64) -> Timestamp {
    Timestamp::from_nanos(ms * 1_000_000)
}

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

impl Content for () {
    fn merge(&mut self, _count: u16, _next: &()) -> bool {
        true
    }

    fn part(&self, _all: u16, _from: u16, _count: u16) {}
}

fn packet(time_sent: Timestamp) -> SentPacket<()> {
    SentPacket {
        time_sent,
        size: 1200,
        count: 1,
        ack_eliciting: true,
        in_flight: true,
        mtu_probe: false,
        delivery: DeliveryMark::default(),
        content: (),
    }
}

/// Returns a loss detector that has sent the packets 0..count, one in each millisecond.
fn flight(count: u64) -> LossDetector<()> {
    let mut detector = LossDetector::default();
    for number in 0..count {
        detector.on_packet_sent(number, packet(at(number)));
    }
    detector
}

fn numbers(packets: &[(u64, SentPacket<()>)]) -> Vec<u64> {
    packets.iter().map(|(number, _)| *number).collect()
}

const RFC: Thresholds = Thresholds { packets: PACKET_THRESHOLD, delay: ms(112) };

// RFC 9002 s.6.1.1 #1, s.6.1.2 #1 #3
#[test]
fn loss_after_three_later_packets_and_not_two() {
    let mut detector = flight(5);
    let acked = detector.on_ack([3..=3].into_iter()).unwrap();
    assert_eq!(numbers(&acked.packets), [3]);
    assert_eq!(numbers(&detector.detect_lost(at(10), RFC)), [0]);
    // Packets 1 and 2 can only be lost by the time threshold. The earlier one determines the loss
    // time.
    assert_eq!(detector.loss_time(), Some(at(1) + ms(112)));
    assert_eq!(numbers(&detector.detect_lost(at(113), RFC)), [1]);
    assert_eq!(numbers(&detector.detect_lost(at(200), RFC)), [2]);
    // Packet 4 comes after the largest acknowledged packet, so only the PTO applies to it.
    assert_eq!((detector.loss_time(), detector.sent().len()), (None, 1));
    assert_eq!(detector.last_ack_eliciting(), Some(at(4)));
}

// RFC 9002 s.6.2 #1
#[test]
fn loss_is_not_declared_before_an_acknowledgement() {
    let mut detector = flight(100);
    assert!(detector.detect_lost(at(1_000_000), RFC).is_empty());
}

// RFC 9000 s.13.1 #2
#[test]
fn ack_of_an_unsent_packet_is_an_error() {
    let mut detector = flight(3);
    assert_eq!(detector.on_ack([2..=3].into_iter()).unwrap_err(), NeverSent(3));
    detector.on_packet_sent(5, packet(at(9)));
    assert_eq!(detector.on_ack([5..=5, 3..=3].into_iter()).unwrap_err(), NeverSent(3));
    assert_eq!(detector.sent().len(), 4, "an error changes nothing");
    assert!(detector.on_ack([5..=5, 0..=2].into_iter()).is_ok());
    assert_eq!(detector.last_ack_eliciting(), None);
}

#[test]
fn loss_that_was_spurious_is_noticed() {
    let mut detector = flight(10);
    detector.on_ack([9..=9].into_iter()).unwrap();
    assert_eq!(detector.detect_lost(at(10), RFC).len(), 7);
    let acked = detector.on_ack([4..=9].into_iter()).unwrap();
    assert_eq!((numbers(&acked.packets), acked.spurious), (vec![8, 7], 3));
    // A spurious loss must be reported only once.
    assert_eq!(detector.on_ack([4..=9].into_iter()).unwrap().spurious, 0);
}

// RFC 9002 s.5.1 #1 #2
#[test]
fn rtt_sample_is_of_the_largest_if_newly_acknowledged() {
    let mut detector = flight(4);
    let acked = detector.on_ack([1..=1].into_iter()).unwrap();
    assert_eq!(acked.rtt_sample(1).map(|packet| packet.time_sent), Some(at(1)));
    let acked = detector.on_ack([0..=1].into_iter()).unwrap();
    assert!(acked.rtt_sample(1).is_none(), "the largest packet is not newly acknowledged");
    let quiet = SentPacket { ack_eliciting: false, ..packet(at(5)) };
    detector.on_packet_sent(4, quiet);
    let acked = detector.on_ack([4..=4].into_iter()).unwrap();
    assert!(acked.rtt_sample(4).is_none(), "no newly acknowledged packet is ack-eliciting");
}

/// Checks the example of RFC 9002 s.7.6.3.
// RFC 9002 s.7.6.2 #1 #2
#[test]
fn loss_persistent_congestion_as_in_the_rfc() {
    let second = 1000;
    let sent = [0, 1, 2, 3, 4, 5, 6, 8, 12].map(|s| at(second + s * second));
    // When packet 9 is acknowledged at t = 12.2, packets 2 to 8 are lost.
    let lost: Vec<(u64, SentPacket<()>)> =
        (1..8).map(|index| (index as u64 + 1, packet(sent[index as usize]))).collect();
    let first_sample = Some(at(second + 200));
    // smoothed_rtt + max(4*rttvar, kGranularity) + max_ack_delay is 2 seconds. Three times this is
    // 6.
    assert!(persistent_congestion(&lost, first_sample, ms(6 * second)));
    assert!(
        !persistent_congestion(&lost, first_sample, ms(7 * second)),
        "8 - 1 = 7 seconds do not exceed the duration"
    );
    assert!(!persistent_congestion(&lost, None, ms(1)), "there is no RTT sample yet");
    let mut silent = lost.clone();
    silent.last_mut().unwrap().1.ack_eliciting = false;
    assert!(
        !persistent_congestion(&silent, first_sample, ms(6 * second)),
        "the peer need not acknowledge the last packet"
    );
    let mut gap = lost.clone();
    gap.remove(3);
    assert!(
        !persistent_congestion(&gap, first_sample, ms(6 * second)),
        "packet 5 was acknowledged"
    );
}

#[test]
fn pto_probe_repeats_the_oldest_ack_eliciting_packets() {
    let mut detector = flight(3);
    detector.on_packet_sent(3, SentPacket { ack_eliciting: false, ..packet(at(3)) });
    detector.on_packet_sent(4, packet(at(4)));
    detector.on_ack([0..=1].into_iter()).unwrap();
    let oldest: Vec<u64> = detector.oldest_ack_eliciting().map(|(number, _)| number).collect();
    assert_eq!(oldest, [2, 4]);
}
