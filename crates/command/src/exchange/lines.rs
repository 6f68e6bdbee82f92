//! Rate limit for the output lines that peers can cause.

use std::time::{Duration, Instant};

/// Maximum number of lines that peers can cause in a burst.
const BURST: u32 = 100;

/// Interval after which one more line is permitted.
const INTERVAL: Duration = Duration::from_millis(100);

/// A token bucket for output lines: the number of lines that peers may still cause, and the number
/// of lines that were suppressed.
#[derive(Debug)]
pub struct Lines {
    tokens: u32,
    counted_to: Instant,
    left_out: u64,
}

impl Lines {
    /// Creates the limit at the time `now`. A full burst is available.
    pub fn new(now: Instant) -> Lines {
        Lines { tokens: BURST, counted_to: now, left_out: 0 }
    }

    /// Asks for permission to print a line. Returns `None` if the line must be suppressed.
    /// Otherwise returns how many lines were suppressed since the last permitted one.
    pub fn admit(&mut self, now: Instant) -> Option<u64> {
        let elapsed = now.saturating_duration_since(self.counted_to);
        let more = u32::try_from(elapsed.as_millis() / INTERVAL.as_millis()).unwrap_or(u32::MAX);
        if more > 0 {
            self.counted_to = now;
            self.tokens = self.tokens.saturating_add(more).min(BURST);
        }
        if self.tokens == 0 {
            self.left_out += 1;
            return None;
        }
        self.tokens -= 1;
        Some(std::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_beyond_the_burst_are_left_out_and_counted() {
        let start = Instant::now();
        let mut lines = Lines::new(start);
        let admitted = (0..1_000).filter(|_| lines.admit(start).is_some()).count();
        assert_eq!(admitted, 100);
        assert_eq!(lines.admit(start + INTERVAL / 2), None);
        assert_eq!(lines.admit(start + INTERVAL), Some(901));
        assert_eq!(lines.admit(start + INTERVAL), None);
        let later = start + Duration::from_secs(3_600);
        assert_eq!(lines.admit(later), Some(1));
        assert_eq!((0..1_000).filter(|_| lines.admit(later).is_some()).count(), 99);
    }
}
