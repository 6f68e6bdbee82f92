//! The loss detection timer. A connection has one such timer for all packet number spaces (RFC 9002
//! s.6.2, A.8).
//!
//! If a packet will be declared lost at a known time, the timer is set to that time
//! ([`LossTimer::of_losses`]). Otherwise, a [`ProbeTimer`] chooses the space whose probe timeout
//! ends first. The caller determines the length of each timeout and what to send. The type
//! parameter `S` names a space. If two spaces are due at the same time, the lesser `S` is chosen.

use std::time::Duration;

use crate::Timestamp;

/// The reason why the loss detection timer runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Due {
    /// A packet will be declared lost when the timer expires.
    Loss,
    /// A probe timeout (PTO) ends when the timer expires, so a probe must be sent.
    Probe,
}

/// Time at which the loss detection timer expires, and the reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LossTimer<S> {
    pub at: Timestamp,
    pub space: S,
    pub due: Due,
}

impl<S: Copy + Ord> LossTimer<S> {
    /// Returns the timer for the earliest time at which a packet of any space will be declared
    /// lost, or `None` if there is no such time.
    // RFC 9002 s.6.2.1 #6
    pub(crate) fn of_losses(
        times: impl Iterator<Item = (S, Option<Timestamp>)>,
    ) -> Option<LossTimer<S>> {
        let first = times.filter_map(|(space, at)| Some((at?, space))).min();
        first.map(|(at, space)| LossTimer { at, space, due: Due::Loss })
    }
}

/// The state of a packet number space that determines its probe timeout.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ProbeState {
    /// True for the application data space, which contains 0-RTT and 1-RTT packets.
    pub application: bool,
    /// Time at which the last ack-eliciting packet was sent. `None` if no ack-eliciting packet is
    /// in flight.
    pub last_ack_eliciting: Option<Timestamp>,
    /// True if the space has CRYPTO data that only the congestion window prevents from being sent.
    pub held: bool,
}

/// Chooses the packet number space that sends the next probe.
#[derive(Debug, Clone)]
pub(crate) struct ProbeTimer<S> {
    confirmed: bool,
    since: Timestamp,
    backoff: u32,
    first: Option<(Timestamp, S)>,
}

impl<S: Copy + Ord> ProbeTimer<S> {
    /// Creates a probe timer without packet number spaces.
    ///
    /// * `confirmed`: true if the handshake is confirmed;
    /// * `since`: the time from which the PTO counts if no packet is in flight;
    /// * `backoff`: the factor by which probe timeouts are multiplied.
    pub(crate) fn new(confirmed: bool, since: Timestamp, backoff: u32) -> ProbeTimer<S> {
        ProbeTimer { confirmed, since, backoff, first: None }
    }

    /// Returns the time from which the PTO of a packet number space counts, or `None` if the space
    /// needs no probe.
    pub(crate) fn counts_from(&self, space: ProbeState) -> Option<Timestamp> {
        // RFC 9002 s.6.2.1 #3: the application data space sends no probes before the handshake is
        // confirmed.
        if space.application && !self.confirmed {
            return None;
        }
        // 0-RTT data in flight can fill the congestion window, and the server acknowledges it only
        // after the handshake has made progress. So CRYPTO data that waits for the window must
        // start the timer, too.
        space.last_ack_eliciting.or(space.held.then_some(self.since))
    }

    /// Adds a packet number space. `from` is the time from which its probe timeout counts. `pto` is
    /// the timeout without backoff.
    pub(crate) fn add(&mut self, space: S, from: Timestamp, pto: Duration) {
        self.add_with(space, from, pto, self.backoff);
    }

    /// Like [`ProbeTimer::add`], for a packet number space whose path has its own backoff.
    pub(crate) fn add_with(&mut self, space: S, from: Timestamp, pto: Duration, backoff: u32) {
        let probe = (from + pto * backoff, space);
        self.first = Some(self.first.map_or(probe, |first| first.min(probe)));
    }

    /// Returns the time from which the PTO counts for a client with nothing in flight, or `None` if
    /// no PTO is needed. `unvalidated` is true if the server may not have validated the client's
    /// address, so that the server may be unable to send (RFC 9002 s.6.2.2.1 #2).
    // RFC 9000 s.8.1 #4 #5
    pub(crate) fn anti_deadlock(&self, unvalidated: bool) -> Option<Timestamp> {
        (unvalidated && self.first.is_none()).then_some(self.since)
    }

    /// Returns the timer for the packet number space that is due first, or `None` if no space was
    /// added.
    // RFC 9002 s.6.2.1 #2
    pub(crate) fn timer(self) -> Option<LossTimer<S>> {
        self.first.map(|(at, space)| LossTimer { at, space, due: Due::Probe })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(seconds: u32) -> Timestamp {
        Timestamp::START + SECOND * seconds
    }

    const EMPTY: ProbeState =
        ProbeState { application: false, last_ack_eliciting: None, held: false };

    #[test]
    fn loss_timer_is_the_earliest_of_all_spaces() {
        let of = |times: [Option<u32>; 3]| {
            let times = times.map(|time| time.map(at));
            LossTimer::of_losses((0..).zip(times)).map(|timer| (timer.at, timer.space, timer.due))
        };
        assert_eq!(of([None, None, None]), None);
        assert_eq!(of([None, Some(3), None]), Some((at(3), 1, Due::Loss)));
        assert_eq!(of([Some(5), Some(4), Some(3)]), Some((at(3), 2, Due::Loss)));
        assert_eq!(of([Some(5), Some(3), Some(3)]), Some((at(3), 1, Due::Loss)));
    }

    // RFC 9002 s.6.2.1 #2
    #[test]
    fn pto_counts_from_the_last_packet_and_doubles() {
        let mut probes = ProbeTimer::new(true, at(1), 4);
        let sent = ProbeState { last_ack_eliciting: Some(at(10)), ..EMPTY };
        assert_eq!(probes.counts_from(EMPTY), None, "nothing is in flight");
        assert_eq!(probes.counts_from(sent), Some(at(10)));
        probes.add('i', at(10), SECOND);
        assert_eq!(
            probes.clone().timer(),
            Some(LossTimer { at: at(14), space: 'i', due: Due::Probe })
        );
        // This space has a later packet and a shorter timeout.
        probes.add('h', at(11), SECOND / 2);
        assert_eq!(
            probes.clone().timer().map(|timer| (timer.at, timer.space)),
            Some((at(13), 'h'))
        );
        // Two spaces are due at the same time, so the space with the lesser name must be chosen.
        probes.add('a', at(9), SECOND);
        assert_eq!(probes.timer().map(|timer| (timer.at, timer.space)), Some((at(13), 'a')));
    }

    // RFC 9002 s.6.2.1 #3
    #[test]
    fn pto_of_application_data_waits_for_the_handshake() {
        let data = ProbeState { application: true, last_ack_eliciting: Some(at(5)), held: true };
        let before = ProbeTimer::<u8>::new(false, at(1), 1);
        assert_eq!(before.counts_from(data), None);
        assert_eq!(before.counts_from(ProbeState { application: false, ..data }), Some(at(5)));
        assert_eq!(ProbeTimer::<u8>::new(true, at(1), 1).counts_from(data), Some(at(5)));
    }

    #[test]
    fn pto_counts_from_the_last_activity_if_the_window_is_full() {
        let probes = ProbeTimer::<u8>::new(false, at(1), 1);
        let held = ProbeState { held: true, ..EMPTY };
        assert_eq!(probes.counts_from(held), Some(at(1)));
        let sent = ProbeState { last_ack_eliciting: Some(at(2)), ..held };
        assert_eq!(probes.counts_from(sent), Some(at(2)), "a packet in flight takes precedence");
    }

    // RFC 9002 s.6.2.2.1 #2
    #[test]
    fn pto_of_a_client_with_nothing_in_flight() {
        let mut probes = ProbeTimer::new(false, at(1), 2);
        assert_eq!(probes.anti_deadlock(false), None);
        assert_eq!(probes.anti_deadlock(true), Some(at(1)));
        assert_eq!(probes.clone().timer(), None, "no space was added");
        probes.add('h', at(1), SECOND);
        assert_eq!(probes.anti_deadlock(true), None, "another space sends a probe");
        assert_eq!(probes.timer().map(|timer| (timer.at, timer.space)), Some((at(3), 'h')));
    }
}
