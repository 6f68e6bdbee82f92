//! Backoff of a path's probe timeouts (RFC 9002 s.6.2.1).

/// Maximum number of doublings. 2^10 round trips are far longer than any idle timeout.
const MAX_DOUBLINGS: u32 = 10;

/// Number of consecutive probe timeouts. Each doubles the time until the next.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Backoff {
    count: u32,
}

impl Backoff {
    /// Returns the number of probe timeouts since the last acknowledgement on the path.
    pub(super) fn count(self) -> u32 {
        self.count
    }

    /// Returns the factor by which the next probe timeout is multiplied.
    pub(super) fn factor(self) -> u32 {
        1 << self.count.min(MAX_DOUBLINGS)
    }

    /// Returns the permitted factor that is closest to `wish`.
    pub(super) fn bound(wish: u32) -> u32 {
        wish.clamp(1, 1 << MAX_DOUBLINGS)
    }

    /// Counts a probe timeout.
    pub(super) fn on_timeout(&mut self) {
        self.count = self.count.saturating_add(1);
    }

    /// Resets the count, because an acknowledgement arrived or everything sent before is obsolete.
    pub(super) fn restart(&mut self) {
        self.count = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pto_backoff_doubles_up_to_its_limit() {
        let mut backoff = Backoff::default();
        for count in 0..40 {
            assert_eq!(backoff.count(), count);
            assert_eq!(backoff.factor(), 2u32.pow(count.min(10)));
            backoff.on_timeout();
        }
        backoff.restart();
        assert_eq!((backoff.count(), backoff.factor()), (0, 1));
    }

    #[test]
    fn pto_backoff_of_a_hook_is_bounded() {
        assert_eq!(
            [0, 1, 3, 1024, 1025, u32::MAX].map(Backoff::bound),
            [1, 1, 3, 1024, 1024, 1024]
        );
    }
}
