//! Record of whether a path's congestion window is used up (RFC 9002 s.7.8).

use crate::Timestamp;

/// Notes, whenever something could be sent, what stood in the way: the window, or that there was
/// nothing to send. One a path.
///
/// Pacing that holds back what waits is neither: whether the window would have been filled shows when
/// it is full, or when nothing waits any more.
#[derive(Debug, Clone, Default)]
pub struct WindowUsage {
    /// Time at which the window was last found full; none: never.
    full_at: Option<Timestamp>,
    /// Time at which the window last had room and nothing was waiting to fill it; none: never.
    underused_at: Option<Timestamp>,
}

impl WindowUsage {
    /// The window has no room for a datagram.
    pub fn on_full(&mut self, now: Timestamp) {
        self.full_at = Some(now);
    }

    /// The window has room and something else than the window or the pacer holds the sender back.
    pub fn on_underused(&mut self, now: Timestamp) {
        self.underused_at = Some(now);
    }

    /// True if the window was used up while a packet sent at `sent` was in flight, so that its
    /// acknowledgement may let the window grow.
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
    fn a_flight_that_fills_the_window_uses_it() {
        let mut usage = WindowUsage::default();
        usage.on_underused(at(0));
        // A flight at 10 fills the window; then the application has nothing more.
        usage.on_full(at(10));
        assert!(usage.was_used_since(at(10)));
        usage.on_underused(at(30));
        assert!(usage.was_used_since(at(10)), "it was full before");
        assert!(!usage.was_used_since(at(20)), "sent when it no longer was");
    }

    #[test]
    fn a_paced_flight_uses_it_until_nothing_waits() {
        let mut usage = WindowUsage::default();
        usage.on_underused(at(0));
        assert!(usage.was_used_since(at(10)), "the pacer holds the rest back");
        usage.on_underused(at(15));
        assert!(!usage.was_used_since(at(10)), "there was no rest that would have filled it");
    }
}
