//! HyStart++ (RFC 9406): ends slow start when the round-trip time grows, before packets are lost.

use std::time::Duration;

use crate::Timestamp;

// Constants of RFC 9406 s.4.3. Its limit L on the growth for one acknowledgment is not implemented,
// because that limit is for senders without pacing.
const MIN_RTT_THRESH: Duration = Duration::from_millis(4);
const MAX_RTT_THRESH: Duration = Duration::from_millis(16);
const MIN_RTT_DIVISOR: u32 = 8;
const N_RTT_SAMPLE: u32 = 8;
const CSS_GROWTH_DIVISOR: u64 = 4;
const CSS_ROUNDS: u32 = 5;

/// Effect of acknowledged bytes on the congestion window in slow start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SlowStart {
    /// Add this many bytes to the congestion window.
    Grow(u64),
    /// End slow start, because the round-trip time stayed high.
    Leave,
}

/// HyStart++ for the slow start of one path. A round ends when the peer acknowledges a packet that
/// was sent after the round began.
#[derive(Debug, Clone)]
pub(crate) struct HyStart {
    round_start: Option<Timestamp>,
    last_round_min: Option<Duration>,
    round_min: Option<Duration>,
    samples: u32,
    conservative: Option<Conservative>,
}

/// Conservative slow start: a few rounds of slower growth, to find out whether the higher
/// round-trip time was only a spike.
#[derive(Debug, Clone)]
struct Conservative {
    baseline: Duration,
    rounds: u32,
}

impl Default for HyStart {
    fn default() -> HyStart {
        HyStart::new()
    }
}

impl HyStart {
    /// Creates the state for the beginning of slow start.
    pub(crate) const fn new() -> HyStart {
        HyStart {
            round_start: None,
            last_round_min: None,
            round_min: None,
            samples: 0,
            conservative: None,
        }
    }

    /// Processes an ACK frame in slow start, which acknowledges `acked` bytes. Its largest packet
    /// was sent at `largest_sent` and has the round-trip time `rtt`.
    pub(crate) fn on_ack(
        &mut self,
        now: Timestamp,
        acked: u64,
        largest_sent: Timestamp,
        rtt: Duration,
    ) -> SlowStart {
        self.round_min = Some(self.round_min.map_or(rtt, |min| min.min(rtt)));
        self.samples += 1;
        self.compare();
        if self.round_start.is_none_or(|start| largest_sent >= start) && self.end_round(now) {
            return SlowStart::Leave;
        }
        match self.conservative {
            Some(_) => SlowStart::Grow(acked / CSS_GROWTH_DIVISOR),
            None => SlowStart::Grow(acked),
        }
    }

    /// RFC 9406 s.4.2: enters or leaves conservative slow start, depending on the round-trip time.
    fn compare(&mut self) {
        if self.samples < N_RTT_SAMPLE {
            return;
        }
        let Some(current) = self.round_min else { return };
        match &self.conservative {
            Some(conservative) if current < conservative.baseline => self.conservative = None,
            Some(_) => {}
            None => {
                let Some(last) = self.last_round_min else { return };
                let threshold = (last / MIN_RTT_DIVISOR).clamp(MIN_RTT_THRESH, MAX_RTT_THRESH);
                if current >= last + threshold {
                    self.conservative = Some(Conservative { baseline: current, rounds: 0 });
                }
            }
        }
    }

    /// Ends a round of slow start. Returns true if conservative slow start is over.
    fn end_round(&mut self, now: Timestamp) -> bool {
        self.round_start = Some(now);
        self.last_round_min = self.round_min.take();
        self.samples = 0;
        let Some(conservative) = &mut self.conservative else { return false };
        // RFC 9406 s.4.2: the partial round in which conservative slow start began counts as a
        // round.
        conservative.rounds += 1;
        conservative.rounds >= CSS_ROUNDS
    }
}
