//! Backoff of a path's probe timeouts (RFC 9002 s.6.2.1).

/// The backoff ends here: 2^10 round trips are long beyond any idle timeout.
const MAX_DOUBLINGS: u32 = 10;

/// Probe timeouts in a row, each of which has the next wait twice as long. Nothing else of the path is known here.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Backoff {
    count: u32,
}

impl Backoff {
    /// Probe timeouts since the path was last heard of.
    pub(super) fn count(self) -> u32 {
        self.count
    }

    /// Probe timeouts that the next one is as long as.
    pub(super) fn factor(self) -> u32 {
        1 << self.count.min(MAX_DOUBLINGS)
    }

    /// The factor nearest to the one wished for that is allowed.
    pub(super) fn bound(wish: u32) -> u32 {
        wish.clamp(1, 1 << MAX_DOUBLINGS)
    }

    /// A probe timeout: nothing was heard.
    pub(super) fn on_timeout(&mut self) {
        self.count = self.count.saturating_add(1);
    }

    /// Something was heard, or nothing that was sent before counts any more.
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
