//! Detection of a transfer that has come to a standstill: it is not waited for as long as one that is
//! slow.

use std::time::{Duration, Instant};

use crate::stage::Stage;

/// Longest standstill of a transfer. Probes of a connection that does come back are seconds apart.
const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes by both ends' interfaces that are no transfer: probes, and whoever else is on a loopback interface.
const TRICKLE: u64 = 100_000;

/// Looks at what came by, seldom.
pub(crate) struct Dry {
    since: Instant,
    before: Option<u64>,
}

impl Dry {
    pub(crate) fn new(stage: &Stage<'_>) -> Dry {
        Dry { since: Instant::now(), before: received(stage) }
    }

    /// Reason for which the transfer is to be given up; none: it goes on.
    pub(crate) fn why(&mut self, stage: &Stage<'_>) -> Option<String> {
        if self.since.elapsed() < PATIENCE {
            return None;
        }
        let now = received(stage);
        let is_dry = self.is_dry(now);
        (self.since, self.before) = (Instant::now(), now);
        is_dry.then(|| format!("stalled: for {PATIENCE:.0?} nothing came but a trickle"))
    }

    /// True if no bytes have come for too long. Where counters cannot be read nothing is known.
    fn is_dry(&self, now: Option<u64>) -> bool {
        let came = now.zip(self.before).map(|(now, before)| now.saturating_sub(before));
        came.is_some_and(|came| came < TRICKLE)
    }
}

/// Bytes that the interfaces of both ends received.
fn received(stage: &Stage<'_>) -> Option<u64> {
    Some(stage.server.counters()?.received + stage.client.counters()?.received)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trickle_is_a_standstill_and_ignorance_is_none() {
        let dry = Dry { since: Instant::now(), before: Some(1_000_000) };
        assert!(dry.is_dry(Some(1_000_000)));
        assert!(dry.is_dry(Some(1_000_000 + TRICKLE - 1)));
        assert!(!dry.is_dry(Some(1_000_000 + TRICKLE)));
        assert!(!dry.is_dry(None));
        assert!(!Dry { before: None, ..dry }.is_dry(Some(1)));
    }
}
