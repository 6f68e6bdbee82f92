//! How often acknowledgements go (draft-ietf-quic-ack-frequency): how often we acknowledge, and how often the peer
//! was asked to.

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

/// What we and the peer acknowledge with. Nothing else of the connection is known here.
#[derive(Debug)]
pub(super) struct Acknowledgements {
    /// Packets and delay after which application data is acknowledged.
    policy: AckPolicy,
    /// The sequence number of the peer's last request that counted.
    seen: Option<u64>,
    /// The sequence number of our next request.
    next: u64,
    /// What was asked last, and what the peer does now as far as we know.
    asked: AckPolicy,
    /// The request on its way: its number.
    in_flight: Option<u64>,
    /// The largest delay asked for in requests that are not acknowledged.
    pending_delay: Duration,
    /// Time at which the peer was last asked for another frequency.
    asked_at: Option<Timestamp>,
    /// To be sent, or sent again.
    due: bool,
}

impl Acknowledgements {
    /// As RFC 9000 has it, with a delay of ours.
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

    /// Packets and delay after which application data is acknowledged.
    pub(super) fn policy(&self) -> AckPolicy {
        self.policy
    }

    /// Returns the policy for the first packets of application data: an acknowledgement waits for at
    /// most [`EARLY_DELAY`], unless the peer has requested another policy. If it waited longer, the
    /// last packet of a round trip would often be acknowledged too late for the next one, and the
    /// congestion window of a peer in slow start would less than double.
    pub(super) fn early_policy(&self) -> AckPolicy {
        let usual = self.policy;
        if self.seen.is_some() {
            return usual;
        }
        AckPolicy { max_ack_delay: usual.max_ack_delay.min(EARLY_DELAY), ..usual }
    }

    /// Takes note of the number of a request of the peer; returns whether the request counts: late ones do not
    /// (s.4).
    pub(super) fn is_news(&mut self, sequence: u64) -> bool {
        let news = self.seen.is_none_or(|seen| sequence > seen);
        if news {
            self.seen = Some(sequence);
        }
        news
    }

    /// We acknowledge application data so from now on.
    pub(super) fn obey(&mut self, policy: AckPolicy) {
        self.policy = policy;
    }

    /// When the peer was last asked for something.
    pub(super) fn asked_at(&self) -> Option<Timestamp> {
        self.asked_at
    }

    /// Last ACK_FREQUENCY request to the peer.
    #[cfg(test)]
    pub(super) fn asked(&self) -> AckPolicy {
        self.asked
    }

    /// Asks the peer for this, if that is far from what it was asked for last.
    pub(super) fn ask(&mut self, now: Timestamp, wanted: AckPolicy) {
        let far = |one: u128, other: u128| one.max(other) >= 2 * one.min(other).max(1);
        let (threshold, asked) = (wanted.ack_eliciting_threshold, self.asked);
        let threshold_changed = far(threshold.into(), asked.ack_eliciting_threshold.into());
        // The delay alone is worth a frame only where packets wait for each other.
        let delays = (wanted.max_ack_delay.as_micros(), asked.max_ack_delay.as_micros());
        let delay_changed = threshold > 1 && far(delays.0, delays.1);
        if threshold_changed || delay_changed {
            (self.asked, self.asked_at, self.due) = (wanted, Some(now), true);
        }
    }

    /// The request to be sent now, with its number.
    pub(super) fn due(&self) -> Option<(u64, AckPolicy)> {
        self.due.then_some((self.next, self.asked))
    }

    /// Called once the ACK_FREQUENCY frame that was due is in a packet.
    pub(super) fn on_sent(&mut self) {
        (self.due, self.in_flight) = (false, Some(self.next));
        self.pending_delay = self.pending_delay.max(self.asked.max_ack_delay);
        self.next += 1;
    }

    /// A request is acknowledged; returns how long the peer may wait from now on, if it is the last one.
    pub(super) fn on_acked(&mut self, number: u64) -> Option<Duration> {
        if self.in_flight != Some(number) {
            return None;
        }
        (self.in_flight, self.pending_delay) = (None, Duration::ZERO);
        Some(self.asked.max_ack_delay)
    }

    /// A request is lost: it is made again unless a newer one is under way (s.4).
    pub(super) fn on_lost(&mut self, number: u64) {
        if self.in_flight == Some(number) {
            (self.in_flight, self.due) = (None, true);
        }
    }

    /// The largest delay that the peer may have by a request whose fate is not known (s.6).
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
        assert_eq!((acks.due(), acks.on_acked(1)), (None, None), "a newer one is under way");
        assert_eq!(acks.pending_delay(), 50 * MS, "the peer may have got any of them");
        assert_eq!((acks.on_acked(2), acks.pending_delay()), (Some(10 * MS), Duration::ZERO));
    }
}
