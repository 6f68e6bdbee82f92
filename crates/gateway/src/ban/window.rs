//! Counts events within a sliding window of time, in constant memory.

/// Number of parts into which a window is divided.
const PARTS: usize = 16;

/// Number of events in each part of a sliding window. The parts cover between 15/16 of the window's
/// length and all of it. So the sum never exceeds the number of events within that length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Window {
    counts: [u32; PARTS],
    /// Index of the newest part, counted from time 0 of the clock.
    newest: u64,
}

impl Window {
    /// Adds events, and returns the number of events within the window that ends now.
    pub(super) fn add(&mut self, times: u32, now: u64, length: u64) -> u64 {
        let part = now / (length / PARTS as u64).max(1);
        let passed = part.saturating_sub(self.newest);
        for step in 0..passed.min(PARTS as u64) {
            self.counts[((part - step) % PARTS as u64) as usize] = 0;
        }
        self.newest = self.newest.max(part);
        let place = &mut self.counts[(self.newest % PARTS as u64) as usize];
        *place = place.saturating_add(times);
        self.counts.iter().map(|count| u64::from(*count)).sum()
    }
}
