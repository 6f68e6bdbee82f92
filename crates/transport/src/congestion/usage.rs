//! Records whether a path's congestion window is fully used (RFC 9002 s.7.8).

use crate::Timestamp;

/// Records whether the congestion window or the lack of data limited the sender on one path.
///
/// While pacing delays a datagram, neither is recorded. It becomes known only later whether the
/// data would have filled the window: when the window is full, or when no data waits.
#[derive(Debug, Clone, Default)]
pub struct WindowUsage {
    /// Last time at which the congestion window was full. `None` if it never was.
    full_at: Option<Timestamp>,
    /// Last time at which the congestion window had room and no data waited. `None` if that never
    /// happened.
    underused_at: Option<Timestamp>,
}

impl WindowUsage {
    /// Records that the congestion window has no room for another datagram.
    pub fn on_full(&mut self, now: Timestamp) {
        self.full_at = Some(now);
    }

    /// Records that the congestion window has room, and that neither the window nor the pacer
    /// limits the sender.
    pub fn on_underused(&mut self, now: Timestamp) {
        self.underused_at = Some(now);
    }

    /// Returns true if the window was full at some time since `sent`, or if it was not underused
    /// since then. The window may then grow when a packet that was sent at `sent` is acknowledged.
    pub fn was_used_since(&self, sent: Timestamp) -> bool {
        let full = self.full_at.is_some_and(|at| at >= sent);
        full || self.underused_at.is_none_or(|at| at < sent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(ms: u64) -> Timestamp {
        Timestamp::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn cwnd_usage_of_a_flight_that_fills_the_window() {
        let mut usage = WindowUsage::default();
        usage.on_underused(at(0));
        // A flight that is sent at time 10 fills the window. Then the application has no more data.
        usage.on_full(at(10));
        assert!(usage.was_used_since(at(10)));
        usage.on_underused(at(30));
        assert!(usage.was_used_since(at(10)), "the window was full while the packet was in flight");
        assert!(!usage.was_used_since(at(20)), "the packet was sent when the window had room");
    }

    #[test]
    fn cwnd_usage_of_a_paced_flight() {
        let mut usage = WindowUsage::default();
        usage.on_underused(at(0));
        assert!(usage.was_used_since(at(10)), "only the pacer delays the data");
        usage.on_underused(at(15));
        assert!(!usage.was_used_since(at(10)), "no data was left to fill the window");
    }
}
