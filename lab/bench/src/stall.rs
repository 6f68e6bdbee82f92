//! Detects transfers that no longer make progress, so that they can be ended earlier than slow
//! transfers.

use std::time::{Duration, Instant};

use crate::context::CellContext;

/// Maximum time for which a transfer may pause. While a connection recovers, its probes are seconds
/// apart.
const PATIENCE: Duration = Duration::from_secs(10);
/// Traffic in bytes on the interfaces of server and client that does not count as progress: probes,
/// and other traffic on a loopback interface.
const TRICKLE: u64 = 100_000;

/// Reads the counters of received bytes, at long intervals.
pub(crate) struct StallDetector {
    since: Instant,
    before: Option<u64>,
}

impl StallDetector {
    pub(crate) fn new(context: &CellContext<'_>) -> StallDetector {
        StallDetector { since: Instant::now(), before: received(context) }
    }

    /// Returns the reason why the transfer must be ended, or `None` if it may continue.
    pub(crate) fn why(&mut self, context: &CellContext<'_>) -> Option<String> {
        if self.since.elapsed() < PATIENCE {
            return None;
        }
        let now = received(context);
        let is_stalled = self.is_stalled(now);
        (self.since, self.before) = (Instant::now(), now);
        is_stalled.then(|| format!("stalled: almost no bytes arrived for {PATIENCE:.0?}"))
    }

    /// Returns true if no bytes have arrived for too long, or false if the counters cannot be read.
    fn is_stalled(&self, now: Option<u64>) -> bool {
        let came = now.zip(self.before).map(|(now, before)| now.saturating_sub(before));
        came.is_some_and(|came| came < TRICKLE)
    }
}

/// Returns the number of bytes that the interfaces of server and client have received.
fn received(context: &CellContext<'_>) -> Option<u64> {
    Some(context.server.counters()?.received + context.client.counters()?.received)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stall_is_detected_below_the_trickle_but_not_without_counters() {
        let detector = StallDetector { since: Instant::now(), before: Some(1_000_000) };
        assert!(detector.is_stalled(Some(1_000_000)));
        assert!(detector.is_stalled(Some(1_000_000 + TRICKLE - 1)));
        assert!(!detector.is_stalled(Some(1_000_000 + TRICKLE)));
        assert!(!detector.is_stalled(None));
        assert!(!StallDetector { before: None, ..detector }.is_stalled(Some(1)));
    }
}
