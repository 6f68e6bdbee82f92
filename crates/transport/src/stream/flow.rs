//! Flow control windows (RFC 9000 s.4). Receive windows grow with the rate at which the application
//! reads.

use std::time::Duration;

use crate::Timestamp;

/// Flow control of the data that the peer may send, on one stream or on the connection.
///
/// The window starts small. If the application reads a quarter of it within two round trips, it
/// doubles. So it stays at least eight times as large as the amount that the application reads in a
/// round trip. In slow start, a sender can send up to four times the current amount before a higher
/// limit arrives. So a sender never has to wait for a window that can still grow.
///
/// The memory that a stream takes is proportional to its rate. If the application does not read the
/// data, the peer gets only the initial window.
#[derive(Debug, Clone)]
pub(super) struct ReceiveWindow {
    /// Limit that was advertised to the peer. The peer may send bytes at offsets below it.
    limit: u64,
    /// Number of bytes of the stream or connection that the application has read.
    read: u64,
    size: u64,
    max_size: u64,
    /// Start of the measurement of the read rate, and the number of bytes read by then. `None`
    /// before the measurement begins.
    epoch: Option<(Timestamp, u64)>,
}

/// The peer gets a higher limit when it has used the window divided by this number: a fourth.
const PART: u64 = 4;
/// A receive window doubles if a fourth of it is read within this number of round trips.
const EPOCH_RTTS: u32 = 2;

impl ReceiveWindow {
    /// Creates a receive window of `size` bytes that can grow to `max_size`.
    pub(super) fn new(size: u64, max_size: u64) -> ReceiveWindow {
        ReceiveWindow { limit: size, read: 0, size, max_size: max_size.max(size), epoch: None }
    }

    /// Returns the limit that was last advertised to the peer, as an offset in bytes.
    pub(super) fn limit(&self) -> u64 {
        self.limit
    }

    /// Returns the current size of the window: how many unread bytes it permits.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Records that the application has read or discarded this many bytes.
    pub(super) fn on_read(&mut self, bytes: u64) {
        self.read += bytes;
    }

    /// Returns true if the peer should get a higher limit, because at least a fourth of the window
    /// is used.
    pub(super) fn wants_update(&self) -> bool {
        self.limit.saturating_sub(self.read) <= self.size - self.size / PART
    }

    /// Raises the limit. Returns the new limit, which the caller sends in a MAX_DATA or
    /// MAX_STREAM_DATA frame. `rtt` is the path's smoothed RTT.
    pub(super) fn update(&mut self, now: Timestamp, rtt: Duration) -> u64 {
        if let Some((start, read)) = self.epoch
            && self.read - read >= self.size / PART
            && now.since(start) < rtt * EPOCH_RTTS
        {
            self.size = self.size.saturating_mul(2).min(self.max_size);
        }
        self.epoch = Some((now, self.read));
        // The limit must not decrease (RFC 9000 s.4.1), and must not exceed the largest
        // variable-length integer.
        self.raise(self.read.saturating_add(self.size))
    }

    /// Enlarges the window to at least `size`, but not above its maximum. Returns true if the
    /// window grew, so that the peer should get a higher limit.
    pub(super) fn ensure(&mut self, size: u64) -> bool {
        let size = size.min(self.max_size);
        let grows = size > self.size;
        self.size = self.size.max(size);
        grows
    }

    /// Raises the limit to `limit`, but not so far that the window exceeds its maximum. The limit
    /// never decreases. Returns the new limit.
    pub(super) fn raise(&mut self, limit: u64) -> u64 {
        let most = self.read.saturating_add(self.max_size).min((1 << 62) - 1);
        self.limit = self.limit.max(limit.min(most));
        self.limit
    }
}

/// Flow control of the data that this end may send, on one stream or on the connection.
#[derive(Debug, Clone, Default)]
pub(super) struct SendWindow {
    limit: u64,
    used: u64,
    /// The limit in the last DATA_BLOCKED or STREAM_DATA_BLOCKED frame of this end. `None` if it
    /// has sent none, or if the frame was lost.
    told: Option<u64>,
}

impl SendWindow {
    /// Creates a window with the limit from the peer's transport parameters.
    pub(super) fn new(limit: u64) -> SendWindow {
        SendWindow { limit, used: 0, told: None }
    }

    /// Applies a new limit that the peer sent: bytes at offsets below `limit` may be sent. A limit
    /// that is lower than the current one is ignored (RFC 9000 s.4.1 #3). Returns true if the limit
    /// grew.
    // RFC 9000 s.13.3 #5
    pub(super) fn raise(&mut self, limit: u64) -> bool {
        let more = limit > self.limit;
        self.limit = self.limit.max(limit);
        more
    }

    /// Returns the peer's flow control limit.
    pub(super) fn limit(&self) -> u64 {
        self.limit
    }

    /// Returns the number of bytes sent so far.
    pub(super) fn used(&self) -> u64 {
        self.used
    }

    /// Returns the number of bytes that the peer's limit still permits.
    pub(super) fn room(&self) -> u64 {
        self.limit.saturating_sub(self.used)
    }

    /// Records that this many bytes were sent for the first time.
    pub(super) fn on_sent(&mut self, bytes: u64) {
        self.used = self.used.saturating_add(bytes);
    }

    /// Returns true if [`SendWindow::blocked`] would return a limit.
    pub(super) fn is_blocked_untold(&self) -> bool {
        self.room() == 0 && self.told != Some(self.limit)
    }

    /// Returns the limit for a DATA_BLOCKED or STREAM_DATA_BLOCKED frame, once for each limit (RFC
    /// 9000 s.4.1). Returns `None` if the sender is not blocked, or if the limit was already
    /// reported.
    pub(super) fn blocked(&mut self) -> Option<u64> {
        if !self.is_blocked_untold() {
            return None;
        }
        self.told = Some(self.limit);
        self.told
    }

    /// Makes [`SendWindow::blocked`] report the limit again, because the frame that reported it was
    /// lost.
    pub(super) fn on_blocked_lost(&mut self, limit: u64) {
        if self.told == Some(limit) {
            self.told = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(100);

    /// Reads `total` bytes at a constant rate. Returns the size of the window at the end.
    fn read_at(bytes_per_ms: u64, total: u64) -> u64 {
        let mut window = ReceiveWindow::new(1 << 16, 1 << 24);
        let (mut now, mut read) = (Timestamp::START, 0);
        while read < total {
            now += Duration::from_millis(1);
            read += bytes_per_ms;
            window.on_read(bytes_per_ms);
            if window.wants_update() {
                let before = window.limit();
                assert!(window.update(now, RTT) >= before);
                assert_eq!(window.limit() - read, window.size());
            }
        }
        window.size()
    }

    #[test]
    fn flow_control_window_grows_with_the_reader() {
        // 1,000 bytes per millisecond over 100 ms: 100 kB are in flight.
        let needed = 1000 * 100;
        let size = read_at(1000, 100 << 20);
        assert!((8 * needed..=16 * needed).contains(&size), "{size}");
        assert_eq!(read_at(1_000_000, 4000 << 20), 1 << 24, "the window grows to its maximum");
        assert_eq!(read_at(10, 10 << 20), 1 << 16, "the window of a slow reader does not grow");
    }

    #[test]
    fn flow_control_window_stays_if_nothing_is_read() {
        let window = ReceiveWindow::new(1000, 1 << 20);
        assert!(!window.wants_update());
    }

    // RFC 9000 s.4.1 #3 #4, s.19.12 #1
    #[test]
    fn flow_control_blocked_is_reported_once_a_limit() {
        let mut window = SendWindow::new(100);
        assert_eq!(window.blocked(), None);
        window.on_sent(100);
        assert_eq!((window.blocked(), window.blocked()), (Some(100), None));
        window.on_blocked_lost(100);
        assert_eq!(window.blocked(), Some(100));
        assert!(!window.raise(50) && window.raise(150));
        assert_eq!((window.room(), window.blocked()), (50, None));
    }
}
