//! State of acknowledgement frequency (draft-ietf-quic-ack-frequency): the policy that we follow,
//! and the policy that we have requested from the peer.

use std::time::Duration;

use crate::Timestamp;
use crate::received::AckPolicy;

/// Number of packets of application data that are acknowledged according to
/// [`Acknowledgements::early_policy`]. After that, a window has so many packets that a late
/// acknowledgement of one of them no longer matters.
pub(super) const EARLY_PACKETS: u64 = 100;

/// Longest delay of an acknowledgement of the first packets: the timer granularity of RFC 9002
/// s.6.1.2. An answer of the application is often ready within this time, and then carries the
/// acknowledgement.
const EARLY_DELAY: Duration = Duration::from_millis(1);

/// Acknowledgement policies of both ends.
#[derive(Debug)]
pub(super) struct Acknowledgements {
    /// Our policy: packets and delay after which we acknowledge application data.
    policy: AckPolicy,
    /// Sequence number of the peer's latest request that was applied.
    seen: Option<u64>,
    /// Sequence number of our next request.
    next: u64,
    /// The policy in our latest request. The peer follows it, as far as we know.
    asked: AckPolicy,
    /// Number of our request in flight.
    in_flight: Option<u64>,
    /// Largest delay among our requests that are not acknowledged.
    pending_delay: Duration,
    /// Time of our latest request.
    asked_at: Option<Timestamp>,
    /// Set if the request must be sent, or sent again.
    due: bool,
}

impl Acknowledgements {
    /// Creates the state with the policy of RFC 9000 and the given maximum delay for our
    /// acknowledgements.
    pub(super) fn new(max_ack_delay: Duration) -> Acknowledgements {
        Acknowledgements {
            policy: AckPolicy { max_ack_delay, ..AckPolicy::default() },
            seen: None,
            next: 0,
            asked: AckPolicy::default(),
            in_flight: None,
            pending_delay: Duration::ZERO,
            asked_at: None,
            due: false,
        }
    }

    /// Returns our policy for application data.
    pub(super) fn policy(&self) -> AckPolicy {
        self.policy
    }

    /// Returns the policy for the first packets of application data: an acknowledgement waits for
    /// at most [`EARLY_DELAY`], unless the peer has requested another policy. With a longer delay,
    /// the last packet of a round trip would often be acknowledged too late for the next one. The
    /// congestion window of a peer in slow start would then less than double.
    pub(super) fn early_policy(&self) -> AckPolicy {
        let usual = self.policy;
        if self.seen.is_some() {
            return usual;
        }
        AckPolicy { max_ack_delay: usual.max_ack_delay.min(EARLY_DELAY), ..usual }
    }

    /// Records the sequence number of a request from the peer. Returns true if the request applies.
    /// A reordered, older request does not (s.4).
    pub(super) fn is_news(&mut self, sequence: u64) -> bool {
        let news = self.seen.is_none_or(|seen| sequence > seen);
        if news {
            self.seen = Some(sequence);
        }
        news
    }

    /// Sets our policy for application data.
    pub(super) fn obey(&mut self, policy: AckPolicy) {
        self.policy = policy;
    }

    /// Returns the time of our latest request, or `None` before the first.
    pub(super) fn asked_at(&self) -> Option<Timestamp> {
        self.asked_at
    }

    /// Returns the policy in our latest request.
    #[cfg(test)]
    pub(super) fn asked(&self) -> AckPolicy {
        self.asked
    }

    /// Schedules a request for `wanted` if it differs from the latest request by a factor of two or
    /// more.
    pub(super) fn ask(&mut self, now: Timestamp, wanted: AckPolicy) {
        let far = |one: u128, other: u128| one.max(other) >= 2 * one.min(other).max(1);
        let (threshold, asked) = (wanted.ack_eliciting_threshold, self.asked);
        let threshold_changed = far(threshold.into(), asked.ack_eliciting_threshold.into());
        // A change of only the delay justifies a frame only if acknowledgements cover several
        // packets.
        let delays = (wanted.max_ack_delay.as_micros(), asked.max_ack_delay.as_micros());
        let delay_changed = threshold > 1 && far(delays.0, delays.1);
        if threshold_changed || delay_changed {
            (self.asked, self.asked_at, self.due) = (wanted, Some(now), true);
        }
    }

    /// Returns the request that must be sent now, with its sequence number.
    pub(super) fn due(&self) -> Option<(u64, AckPolicy)> {
        self.due.then_some((self.next, self.asked))
    }

    /// Records that the pending ACK_FREQUENCY frame is in a packet.
    pub(super) fn on_sent(&mut self) {
        (self.due, self.in_flight) = (false, Some(self.next));
        self.pending_delay = self.pending_delay.max(self.asked.max_ack_delay);
        self.next += 1;
    }

    /// Processes the acknowledgement of a request. Returns the peer's new maximum delay if it was
    /// the latest request.
    pub(super) fn on_acked(&mut self, number: u64) -> Option<Duration> {
        if self.in_flight != Some(number) {
            return None;
        }
        (self.in_flight, self.pending_delay) = (None, Duration::ZERO);
        Some(self.asked.max_ack_delay)
    }

    /// Processes the loss of a request. It is sent again unless a newer request is in flight (s.4).
    pub(super) fn on_lost(&mut self, number: u64) {
        if self.in_flight == Some(number) {
            (self.in_flight, self.due) = (None, true);
        }
    }

    /// Returns the largest delay among our requests whose outcome is unknown (s.6).
    pub(super) fn pending_delay(&self) -> Duration {
        self.pending_delay
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn policy(threshold: u64, delay: Duration) -> AckPolicy {
        let (ack_eliciting_threshold, max_ack_delay) = (threshold, delay);
        AckPolicy { ack_eliciting_threshold, max_ack_delay, reordering_threshold: 3 }
    }

    #[test]
    fn ack_frequency_ignores_outdated_requests() {
        let mut acks = Acknowledgements::new(5 * MS);
        assert_eq!(acks.policy(), AckPolicy { max_ack_delay: 5 * MS, ..AckPolicy::default() });
        assert!(acks.is_news(3) && !acks.is_news(3) && !acks.is_news(2) && acks.is_news(4));
        acks.obey(policy(9, MS));
        assert_eq!(acks.policy(), policy(9, MS));
    }

    #[test]
    fn ack_delay_of_the_first_packets_is_short_unless_the_peer_requests_another() {
        let mut acks = Acknowledgements::new(25 * MS);
        let early = AckPolicy { max_ack_delay: MS, ..acks.policy() };
        assert_eq!(acks.early_policy(), early);
        assert!(acks.is_news(0));
        acks.obey(AckPolicy { max_ack_delay: 5 * MS, ..AckPolicy::default() });
        assert_eq!(acks.early_policy(), acks.policy());
        assert_eq!(Acknowledgements::new(MS / 2).early_policy().max_ack_delay, MS / 2);
    }

    #[test]
    fn ack_frequency_is_not_sent_for_small_changes() {
        let mut acks = Acknowledgements::new(25 * MS);
        acks.ask(Timestamp::START, policy(1, MS));
        assert_eq!(
            acks.due(),
            None,
            "packets do not wait for each other, so the delay does not matter"
        );
        acks.ask(Timestamp::START, policy(2, 25 * MS));
        assert_eq!(acks.due(), Some((0, policy(2, 25 * MS))));
        acks.on_sent();
        acks.ask(Timestamp::START + MS, policy(3, 20 * MS));
        assert_eq!((acks.due(), acks.asked_at()), (None, Some(Timestamp::START)));
        acks.ask(Timestamp::START + MS, policy(3, 12 * MS));
        assert_eq!(acks.due(), Some((1, policy(3, 12 * MS))));
    }

    #[test]
    fn ack_frequency_that_is_lost_is_sent_again_unless_outdated() {
        let mut acks = Acknowledgements::new(25 * MS);
        acks.ask(Timestamp::START, policy(10, 50 * MS));
        acks.on_sent();
        assert_eq!(acks.pending_delay(), 50 * MS);
        acks.on_lost(0);
        assert_eq!(acks.due(), Some((1, policy(10, 50 * MS))));
        acks.on_sent();
        acks.ask(Timestamp::START, policy(30, 10 * MS));
        acks.on_sent();
        acks.on_lost(1);
        assert_eq!((acks.due(), acks.on_acked(1)), (None, None), "a newer request is in flight");
        assert_eq!(acks.pending_delay(), 50 * MS, "the peer may have received any of them");
        assert_eq!((acks.on_acked(2), acks.pending_delay()), (Some(10 * MS), Duration::ZERO));
    }
}
