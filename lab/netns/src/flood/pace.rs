//! Controls the rate of a flood, and reports its progress.

use std::num::NonZeroU64;
use std::time::{Duration, Instant};

use super::emit::Batch;
use super::{BATCH, FloodReport, Progress, STOP_LOOK};

/// Counts of the packets that were sent so far.
pub(super) struct Count {
    pub begun: Instant,
    pub sent: u64,
    pub errors: u64,
    pub last_error: Option<std::io::Error>,
    told_at: Duration,
    told_sent: u64,
}

impl Default for Count {
    fn default() -> Self {
        let told_at = Duration::ZERO;
        Self { begun: Instant::now(), sent: 0, errors: 0, last_error: None, told_at, told_sent: 0 }
    }
}

impl Count {
    pub(super) fn add(&mut self, batch: Batch) {
        self.sent += batch.sent;
        self.errors += batch.errors;
        if batch.error.is_some() {
            self.last_error = batch.error;
        }
    }

    pub(super) fn tell(&mut self, elapsed: Duration, progress: &mut dyn FnMut(&Progress)) {
        let since = elapsed.saturating_sub(self.told_at);
        if since < Duration::from_secs(1) {
            return;
        }
        progress(&Progress {
            seconds: elapsed.as_secs_f64(),
            sent: self.sent,
            errors: self.errors,
            pps: (self.sent - self.told_sent) as f64 / since.as_secs_f64(),
        });
        (self.told_at, self.told_sent) = (elapsed, self.sent);
    }

    pub(super) fn report(self) -> FloodReport {
        let seconds = self.begun.elapsed().as_secs_f64();
        FloodReport {
            sent: self.sent,
            errors: self.errors,
            seconds,
            pps: if seconds > 0.0 { self.sent as f64 / seconds } else { 0.0 },
            last_error: self.last_error.map(|e| e.to_string()),
        }
    }
}

/// A token bucket that limits the rate of packets.
pub(super) struct Pacer {
    /// Rate in packets per second, or `None` for no limit.
    pps: Option<f64>,
    burst: f64,
    credit: f64,
    filled_at: Duration,
}

impl Pacer {
    pub(super) fn new(pps: Option<NonZeroU64>) -> Self {
        let pps = pps.map(|pps| pps.get() as f64);
        let burst = (pps.unwrap_or_default() / 100.0).max(BATCH as f64);
        // The first packet is sent at once.
        Self { pps, burst, credit: 1.0, filled_at: Duration::ZERO }
    }

    /// Returns how many packets may be sent at the time `elapsed` since the start.
    pub(super) fn due(&mut self, elapsed: Duration) -> u64 {
        let Some(pps) = self.pps else { return u64::MAX };
        let since = elapsed.saturating_sub(self.filled_at).as_secs_f64();
        self.filled_at = elapsed;
        self.credit = (self.credit + since * pps).min(self.burst);
        self.credit as u64
    }

    pub(super) fn spend(&mut self, packets: u64) {
        self.credit -= packets as f64;
    }

    /// Returns the time until the next packet may be sent.
    pub(super) fn wait(&self) -> Duration {
        let missing = (1.0 - self.credit).max(0.0);
        Duration::try_from_secs_f64(missing / self.pps.unwrap_or(f64::INFINITY))
            .unwrap_or(STOP_LOOK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the pacer in virtual time for one second at each rate, in steps of 100 µs and with a
    /// stall of 200 ms.
    #[test]
    fn pacer_keeps_its_rate_and_does_not_catch_up_after_a_stall() {
        for pps in [1u64, 7, 1000, 100_000] {
            let mut pacer = Pacer::new(NonZeroU64::new(pps));
            let (mut smooth, mut stalled) = (0, 0);
            for step in 0..=10_000u64 {
                let due = pacer.due(Duration::from_micros(100 * step));
                pacer.spend(due);
                smooth += due;
            }
            assert!(smooth.abs_diff(pps) <= 1 + pps / 1000, "{smooth} at {pps}");
            stalled += pacer.due(Duration::from_millis(1200));
            assert!(stalled <= (pps / 100).max(64), "{stalled} at {pps}");
        }
        assert_eq!(Pacer::new(None).due(Duration::ZERO), u64::MAX);
    }
}
