//! Times of the last packets received and sent, which the idle timeout is counted from (RFC 9000 s.10.1).

use std::time::Duration;

use crate::Timestamp;

/// Moments of a connection's life. Nothing else of the connection is known here.
#[derive(Debug)]
pub(super) struct Activity {
    /// Time at which the last packet came, or the first ack-eliciting one after it was sent.
    since: Timestamp,
    /// True if something ack-eliciting was sent since the last packet came.
    sent_since: bool,
    /// Time at which the last PING to keep the connection alive was asked for.
    kept_alive: Timestamp,
    /// A PING is to be sent.
    ping: bool,
    /// A timer ran since the connection last came to rest.
    timer_ran: bool,
    /// Time at which it last came to rest; none: not yet.
    rested: Option<Timestamp>,
}

/// A connection whose timers do not run comes to rest no more often than this: one that is in use must not give memory
/// back after each request and make it again for the next.
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

    /// A packet of the peer came.
    pub(super) fn on_received(&mut self, now: Timestamp) {
        (self.since, self.sent_since) = (now, false);
    }

    /// The connection begins again: a Retry packet or another version.
    pub(super) fn restart(&mut self, now: Timestamp) {
        self.since = now;
    }

    /// An ack-eliciting packet leaves.
    pub(super) fn on_eliciting_sent(&mut self, now: Timestamp) {
        if !self.sent_since {
            // RFC 9000 s.10.1: the first after something came starts the idle timer anew.
            (self.since, self.sent_since) = (now, true);
        }
    }

    /// Timers ran: nothing has come for as long as the first of them waited.
    pub(super) fn on_timer(&mut self) {
        self.timer_ran = true;
    }

    /// Must be called when nothing is in flight and nothing is to be sent. Returns true if the
    /// connection comes to rest, so that it frees memory. This is the case the first time, after a
    /// timer has run, and at most once per `REST_INTERVAL` otherwise. No timer is set for that.
    pub(super) fn comes_to_rest(&mut self, now: Timestamp) -> bool {
        let rests = self.timer_ran || self.rested.is_none_or(|last| last + REST_INTERVAL <= now);
        if rests {
            (self.timer_ran, self.rested) = (false, Some(now));
        }
        rests
    }

    /// The moment from which idleness counts.
    pub(super) fn since(&self) -> Timestamp {
        self.since
    }

    /// Time at which a PING is to keep the connection alive, if one is sent this often (RFC 9000 s.10.1.2).
    pub(super) fn keep_alive(&self, interval: Duration) -> Timestamp {
        self.since.max(self.kept_alive) + interval
    }

    /// The connection is kept alive: by a PING.
    pub(super) fn on_keep_alive(&mut self, now: Timestamp) {
        self.kept_alive = now;
        self.ping();
    }

    /// A PING is to be sent.
    pub(super) fn ping(&mut self) {
        self.ping = true;
    }

    /// True if a PING is to be sent.
    pub(super) fn wants_ping(&self) -> bool {
        self.ping
    }

    /// True if a PING is to be sent: it is now, or something else that elicits an acknowledgement.
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
        assert!(!activity.comes_to_rest(start + SECOND / 2), "one that is in use does not");
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
