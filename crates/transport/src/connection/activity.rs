//! Times of the last packets received and sent, from which the idle timeout is measured (RFC 9000
//! s.10.1).

use std::time::Duration;

use crate::Timestamp;

/// Times of a connection's last activity.
#[derive(Debug)]
pub(super) struct Activity {
    /// Time at which the last packet was received, or at which the first ack-eliciting packet after
    /// it was sent.
    since: Timestamp,
    /// True if an ack-eliciting packet was sent after the last packet was received.
    sent_since: bool,
    /// Time of the last keep-alive PING.
    kept_alive: Timestamp,
    /// Set if a PING must be sent.
    ping: bool,
    /// True if a timer ran after the connection last came to rest.
    timer_ran: bool,
    /// Time at which the connection last came to rest. `None` if it never did.
    rested: Option<Timestamp>,
}

/// Minimum interval between two times of rest without a timer. An active connection must not free
/// memory after each request and allocate it again for the next.
const REST_INTERVAL: Duration = Duration::from_secs(1);

impl Activity {
    pub(super) fn new(now: Timestamp) -> Activity {
        Activity {
            since: now,
            sent_since: false,
            kept_alive: now,
            ping: false,
            timer_ran: false,
            rested: None,
        }
    }

    /// Records that a packet was received from the peer.
    pub(super) fn on_received(&mut self, now: Timestamp) {
        (self.since, self.sent_since) = (now, false);
    }

    /// Records that the connection starts again, after a Retry or Version Negotiation packet.
    pub(super) fn restart(&mut self, now: Timestamp) {
        self.since = now;
    }

    /// Records that an ack-eliciting packet is sent.
    pub(super) fn on_eliciting_sent(&mut self, now: Timestamp) {
        if !self.sent_since {
            // RFC 9000 s.10.1: the first ack-eliciting packet after a received packet restarts the
            // idle timer.
            (self.since, self.sent_since) = (now, true);
        }
    }

    /// Records that timers ran, which means that no packet arrived before the first of them was
    /// due.
    pub(super) fn on_timer(&mut self) {
        self.timer_ran = true;
    }

    /// Must be called when nothing is in flight and nothing waits to be sent. Returns true if the
    /// connection comes to rest, so that it frees memory. This is the case the first time, after a
    /// timer has run, and at most once per `REST_INTERVAL` otherwise. No timer is set for that.
    pub(super) fn comes_to_rest(&mut self, now: Timestamp) -> bool {
        let rests = self.timer_ran || self.rested.is_none_or(|last| last + REST_INTERVAL <= now);
        if rests {
            (self.timer_ran, self.rested) = (false, Some(now));
        }
        rests
    }

    /// Returns the time from which the idle timeout is measured.
    pub(super) fn since(&self) -> Timestamp {
        self.since
    }

    /// Returns the time at which the next keep-alive PING is due, with one PING per `interval` (RFC
    /// 9000 s.10.1.2).
    pub(super) fn keep_alive(&self, interval: Duration) -> Timestamp {
        self.since.max(self.kept_alive) + interval
    }

    /// Requests a keep-alive PING.
    pub(super) fn on_keep_alive(&mut self, now: Timestamp) {
        self.kept_alive = now;
        self.ping();
    }

    /// Requests a PING.
    pub(super) fn ping(&mut self) {
        self.ping = true;
    }

    /// Returns true if a PING must be sent.
    pub(super) fn wants_ping(&self) -> bool {
        self.ping
    }

    /// Returns true if a PING must be sent, and clears the request. The caller then sends a PING or
    /// another ack-eliciting frame.
    pub(super) fn take_ping(&mut self) -> bool {
        std::mem::take(&mut self.ping)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn idle_timer_restarts_with_the_first_packet_sent_after_one_received() {
        let start = Timestamp::START;
        let mut activity = Activity::new(start);
        activity.on_eliciting_sent(start + SECOND);
        assert_eq!(activity.since(), start + SECOND);
        activity.on_eliciting_sent(start + SECOND * 2);
        assert_eq!(
            activity.since(),
            start + SECOND,
            "a peer that is gone is not waited for longer"
        );
        activity.on_received(start + SECOND * 3);
        activity.on_eliciting_sent(start + SECOND * 4);
        assert_eq!(activity.since(), start + SECOND * 4);
        activity.restart(start + SECOND * 5);
        activity.on_eliciting_sent(start + SECOND * 6);
        assert_eq!(activity.since(), start + SECOND * 5);
    }

    #[test]
    fn idle_connection_releases_memory() {
        let start = Timestamp::START;
        let mut activity = Activity::new(start);
        assert!(activity.comes_to_rest(start) && !activity.comes_to_rest(start));
        assert!(!activity.comes_to_rest(start + SECOND / 2), "an active connection does not");
        activity.on_timer();
        assert!(activity.comes_to_rest(start + SECOND / 2));
        assert!(
            !activity.comes_to_rest(start + SECOND) && activity.comes_to_rest(start + SECOND * 2)
        );
    }

    #[test]
    fn idle_keep_alive_is_sent_after_its_interval() {
        let start = Timestamp::START;
        let mut activity = Activity::new(start);
        assert_eq!(activity.keep_alive(SECOND), start + SECOND);
        activity.on_keep_alive(start + SECOND);
        assert_eq!(activity.keep_alive(SECOND), start + SECOND * 2);
        assert!(activity.wants_ping() && activity.take_ping() && !activity.take_ping());
        activity.on_received(start + SECOND * 5);
        assert_eq!(activity.keep_alive(SECOND), start + SECOND * 6);
    }
}
