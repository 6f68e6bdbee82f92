//! Records the packets received in a packet number space, and decides when to acknowledge them (RFC
//! 9000 s.13.2; draft-ietf-quic-ack-frequency).

use std::time::Duration;

use crate::Timestamp;
use crate::ranges::RangeSet;

/// Largest number of packet number ranges that are remembered and reported in ACK frames (RFC 9000
/// s.13.2.3). A packet with a number below all remembered ranges counts as a duplicate.
const RANGES: usize = 64;

/// An ECN codepoint, as in the IP header (RFC 3168 s.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EcnCodepoint {
    /// Not-ECT: the sender of the packet does not use ECN.
    #[default]
    NotEct,
    /// ECT(1), which this transport never sends.
    Ect1,
    /// ECT(0), the codepoint that this transport sends.
    Ect0,
    /// CE: a router on the path has marked the packet because of congestion.
    Ce,
}

/// Number of received packets for each ECN codepoint, as reported in ACK frames (RFC 9000
/// s.19.3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct EcnCounts {
    /// Number of received packets marked ECT(0).
    pub ect0: u64,
    /// Number of received packets marked ECT(1).
    pub ect1: u64,
    /// Number of received packets marked CE.
    pub ce: u64,
}

impl EcnCounts {
    /// Returns true if all counts are zero, because no packet carried a mark.
    pub(crate) fn is_zero(&self) -> bool {
        *self == EcnCounts::default()
    }

    fn count(&mut self, codepoint: EcnCodepoint) {
        match codepoint {
            EcnCodepoint::NotEct => {}
            EcnCodepoint::Ect0 => self.ect0 += 1,
            EcnCodepoint::Ect1 => self.ect1 += 1,
            EcnCodepoint::Ce => self.ce += 1,
        }
    }
}

/// Decides how soon and how often this end acknowledges packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AckPolicy {
    /// An acknowledgment is due when more than this number of ack-eliciting packets wait for one
    /// (draft-ietf-quic-ack-frequency s.4). RFC 9000 s.13.2.2 recommends 1.
    pub ack_eliciting_threshold: u64,
    /// Longest time that an acknowledgment may be delayed.
    pub max_ack_delay: Duration,
    /// Smallest extent of reordering, in packets, that causes an immediate acknowledgment. With 0,
    /// reordering never does; with 1, any reordering does (draft-ietf-quic-ack-frequency s.6.2).
    pub reordering_threshold: u64,
}

impl AckPolicy {
    /// Acknowledges each packet at once, as is required for Initial and Handshake packets (RFC 9000
    /// s.13.2.1).
    pub(crate) const IMMEDIATE: AckPolicy = AckPolicy {
        ack_eliciting_threshold: 0,
        max_ack_delay: Duration::ZERO,
        reordering_threshold: 1,
    };
}

impl Default for AckPolicy {
    /// Returns the policy of RFC 9000: acknowledge every second packet, after at most 25 ms, and
    /// acknowledge at once if packets are reordered.
    fn default() -> AckPolicy {
        AckPolicy {
            ack_eliciting_threshold: 1,
            max_ack_delay: Duration::from_millis(25),
            reordering_threshold: 1,
        }
    }
}

/// The packets received in one packet number space.
#[derive(Debug, Clone, Default)]
pub(crate) struct ReceivedPackets {
    ranges: RangeSet,
    /// Packet numbers below this one count as duplicates.
    floor: u64,
    largest: Option<(u64, Timestamp)>,
    /// Largest packet number of an ack-eliciting packet ("Largest Unacked" in
    /// draft-ietf-quic-ack-frequency).
    largest_eliciting: Option<u64>,
    /// Largest packet number in the last ACK frame that was sent ("Largest Acked" in
    /// draft-ietf-quic-ack-frequency).
    reported: Option<u64>,
    /// Number of ack-eliciting packets that no ACK frame has reported yet.
    waiting: u64,
    /// Latest time at which the first packet that waits for an acknowledgment must be acknowledged.
    /// `None` if no packet waits.
    deadline: Option<Timestamp>,
    /// True if an acknowledgment must be sent as soon as possible.
    immediate: bool,
    ecn: EcnCounts,
    /// True if the last received packet was marked CE.
    was_ce: bool,
}

impl ReceivedPackets {
    /// Releases unused memory.
    pub(crate) fn shrink(&mut self) {
        self.ranges.shrink();
    }

    /// Returns true if the packet with this number was received before, or is so old that this is
    /// unknown.
    // RFC 9000 s.12.3 #4, s.13.2.3 #3
    #[inline(always)]
    pub(crate) fn is_duplicate(&self, number: u64) -> bool {
        number < self.floor || self.ranges.contains(number)
    }

    /// Records a received packet that was decrypted and is not a duplicate.
    // RFC 9000 s.13.2.1 #1 #2
    pub(crate) fn on_received(
        &mut self,
        now: Timestamp,
        number: u64,
        eliciting: bool,
        ecn: EcnCodepoint,
        policy: &AckPolicy,
    ) {
        if !self.ranges.extend(number, 1) {
            self.ranges.insert_one(number);
            while self.ranges.len() > RANGES {
                self.floor = self.ranges.pop_min().map_or(self.floor, |gone| gone.end);
            }
        }
        if self.largest.is_none_or(|(largest, _)| number > largest) {
            self.largest = Some((number, now));
        }
        self.ecn.count(ecn);
        let was_ce = std::mem::replace(&mut self.was_ce, ecn == EcnCodepoint::Ce);
        if !eliciting {
            return;
        }
        let reordered = self.is_reordered(number, policy.reordering_threshold);
        self.largest_eliciting = self.largest_eliciting.max(Some(number));
        self.waiting += 1;
        self.deadline.get_or_insert_with(|| now + policy.max_ack_delay);
        // RFC 9000 s.13.2.1: CE marks and reordering are reported at once. If the peer wants few
        // acknowledgments, only the first of several consecutive CE marks is reported at once
        // (draft-ietf-quic-ack-frequency s.6.4).
        let marked = self.was_ce && (policy.ack_eliciting_threshold <= 1 || !was_ce);
        // Report the ranges now, before the limit on their number forces this end to forget some.
        let crowded = self.ranges.len() >= RANGES * 3 / 4;
        let enough = self.waiting > policy.ack_eliciting_threshold;
        if marked || reordered || crowded || enough {
            self.immediate = true;
        }
    }

    /// Returns true if the packet with this number shows reordering that must be reported at once
    /// (draft-ietf-quic-ack-frequency s.6.2).
    // RFC 9000 s.13.2.1 #7 #8
    fn is_reordered(&self, number: u64, threshold: u64) -> bool {
        if threshold == 0 {
            return false;
        }
        // The packet arrived so late that the peer must have declared it lost already.
        let late =
            self.reported.is_some_and(|reported| number.saturating_add(threshold) <= reported);
        let top = self.largest_eliciting.map_or(number, |largest| largest.max(number));
        // When the peer received the last ACK frame, it could already declare some packets lost.
        // The gaps of these packets need no second report.
        let from = match self.reported {
            Some(reported) => (reported + 1).saturating_sub(threshold).max(self.floor),
            None => self.floor,
        };
        // Usually no packet is missing, because the last range of received numbers covers all
        // numbers from `from` to `top`.
        let missing = if self.ranges.ends_with(from..top) {
            None
        } else {
            self.ranges.gaps(from..top).next()
        };
        late || missing.is_some_and(|gap| top - gap.start >= threshold)
    }

    /// Makes an acknowledgment due at once, because the peer sent IMMEDIATE_ACK or uses another
    /// path.
    pub(crate) fn ask(&mut self) {
        self.immediate = true;
    }

    /// Returns true if an ACK frame is due now.
    pub(crate) fn is_due(&self, now: Timestamp) -> bool {
        self.largest.is_some()
            && (self.immediate || self.deadline.is_some_and(|deadline| deadline <= now))
    }

    /// Returns true if an ACK frame would report packets that were not reported yet. The frame is
    /// then added to any packet that has room for it.
    pub(crate) fn has_news(&self) -> bool {
        self.waiting > 0 || self.immediate
    }

    /// Returns the time at which an ACK frame becomes due, or `None` if no packet waits for one.
    pub(crate) fn deadline(&self) -> Option<Timestamp> {
        self.deadline
    }

    /// Returns the packet number ranges that an ACK frame must report. The set is empty if nothing
    /// was received.
    pub(crate) fn ranges(&self) -> &RangeSet {
        &self.ranges
    }

    /// Returns the memory that the ranges of packet numbers take, in bytes.
    pub(crate) fn memory(&self) -> usize {
        self.ranges.len() * size_of::<std::ops::Range<u64>>()
    }

    /// Returns the largest packet number received, and the time at which that packet arrived.
    // RFC 9000 s.13.2.3 #4
    pub(crate) fn largest(&self) -> Option<(u64, Timestamp)> {
        self.largest
    }

    /// Returns the ECN counts that an ACK frame must report.
    // RFC 9000 s.13.4.1 #1
    pub(crate) fn ecn(&self) -> EcnCounts {
        self.ecn
    }

    /// Records that an ACK frame with all ranges of received packet numbers was sent.
    // RFC 9000 s.13.2.1 #3 #4
    pub(crate) fn on_ack_sent(&mut self) {
        self.reported = self.largest.map(|(number, _)| number);
        (self.waiting, self.deadline, self.immediate) = (0, None, false);
    }

    /// Records that the peer has received an ACK frame whose largest packet number is `largest`.
    /// Packet numbers up to it need not be reported again (RFC 9000 s.13.2.4).
    // RFC 9000 s.13.2.3 #2
    pub(crate) fn on_ack_acked(&mut self, largest: u64) {
        self.floor = self.floor.max(largest);
        self.ranges.remove_below(self.floor);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_nanos(ms * 1_000_000)
    }

    fn receive(packets: &mut ReceivedPackets, number: u64, policy: &AckPolicy) -> bool {
        packets.on_received(at(0), number, true, EcnCodepoint::NotEct, policy);
        packets.is_due(at(0))
    }

    // RFC 9000 s.13.2.1 #1 #2 #3 #4, s.13.2.2 #1
    #[test]
    fn ack_is_due_after_two_packets_or_the_delay() {
        let (mut packets, policy) = (ReceivedPackets::default(), AckPolicy::default());
        assert!(!receive(&mut packets, 0, &policy));
        assert!(packets.has_news() && !packets.is_due(at(24)) && packets.is_due(at(25)));
        assert!(receive(&mut packets, 1, &policy));
        packets.on_ack_sent();
        assert!(!packets.is_due(at(1000)) && packets.deadline().is_none());
        packets.on_received(at(0), 2, false, EcnCodepoint::NotEct, &policy);
        assert!(!packets.has_news(), "an ACK frame elicits no acknowledgment");
    }

    // RFC 9000 s.13.2.1 #7 #8, s.13.4.1 #1
    #[test]
    fn ack_is_immediate_for_gaps_late_packets_and_marks() {
        let (mut packets, policy) = (ReceivedPackets::default(), AckPolicy::default());
        receive(&mut packets, 0, &policy);
        packets.on_ack_sent();
        assert!(receive(&mut packets, 2, &policy), "packet 1 is missing");
        packets.on_ack_sent();
        assert!(receive(&mut packets, 1, &policy), "packet 1 arrives late");
        packets.on_ack_sent();
        packets.on_received(at(0), 3, true, EcnCodepoint::Ce, &policy);
        assert!(packets.is_due(at(0)));
        assert_eq!(packets.ecn().ce, 1);
    }

    /// Checks the tables of draft-ietf-quic-ack-frequency s.6.2.1.
    #[test]
    fn ack_reordering_threshold_as_in_the_draft() {
        let three = [
            (0, false),
            (1, false),
            (3, false),
            (4, false),
            (5, true),
            (8, false),
            (9, true),
            (10, true),
        ];
        let five = [
            (0, false),
            (1, false),
            (3, false),
            (5, false),
            (6, false),
            (7, true),
            (8, false),
            (9, true),
        ];
        for (threshold, table) in [(3, three), (5, five)] {
            let policy = AckPolicy {
                ack_eliciting_threshold: 1000,
                reordering_threshold: threshold,
                ..AckPolicy::default()
            };
            let mut packets = ReceivedPackets::default();
            for (number, due) in table {
                assert_eq!(receive(&mut packets, number, &policy), due, "{threshold}: {number}");
                if due {
                    packets.on_ack_sent();
                }
            }
        }
        let never = AckPolicy {
            ack_eliciting_threshold: 9,
            reordering_threshold: 0,
            ..AckPolicy::default()
        };
        let mut packets = ReceivedPackets::default();
        assert!(!receive(&mut packets, 5, &never) && !receive(&mut packets, 2, &never));
    }

    // RFC 9000 s.12.3 #4, s.13.2.3 #2 #3 #4
    #[test]
    fn ack_memory_is_bounded_and_forgotten_packets_are_duplicates() {
        let (mut packets, policy) = (ReceivedPackets::default(), AckPolicy::default());
        for number in (0..10_000).step_by(2) {
            receive(&mut packets, number, &policy);
        }
        assert_eq!(packets.ranges().len(), RANGES);
        assert!(
            packets.is_duplicate(1) && packets.is_duplicate(9998) && !packets.is_duplicate(9999)
        );
        packets.on_ack_acked(9990);
        assert_eq!(packets.ranges().min(), Some(9990));
        assert!(packets.is_duplicate(9989));
    }
}
