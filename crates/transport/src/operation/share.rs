//! Limits the share of packets that nested hooks (those that another hook has attached) may use for
//! frames while the application has data to send. So a plugin from the peer cannot keep the
//! application from sending.

/// Default share of packets for frames of nested hooks, in percent of the room in packets.
/// [`HookContext::share_frames`](super::HookContext::share_frames) changes it.
const USUAL: u8 = 25;

/// An account of the bytes that frames of nested hooks may take. A frame is written as a whole, so
/// the account can fall below zero by less than a packet. The nested hooks then wait until later
/// packets have raised the account.
#[derive(Debug)]
pub(crate) struct Share {
    percent: u8,
    /// Number of bytes that nested hooks may write now; at most one packet.
    credit: i64,
    /// True if the application, too, has data for the packet that is being written.
    contended: bool,
}

impl Default for Share {
    fn default() -> Share {
        Share::new()
    }
}

impl Share {
    pub(super) const fn new() -> Share {
        Share { percent: USUAL, credit: 0, contended: false }
    }

    /// Sets the share of packets for frames of nested hooks, in percent of the room in packets.
    pub(super) fn set(&mut self, percent: u8) {
        self.percent = percent.min(100);
    }

    /// Begins a packet with `room` bytes for frames. `contended` is true if the application has
    /// data for the packet.
    pub(crate) fn begin_packet(&mut self, room: usize, contended: bool) {
        let room = i64::try_from(room).unwrap_or(i64::MAX);
        self.contended = contended;
        self.credit = (self.credit + room * i64::from(self.percent) / 100).min(room);
    }

    /// Returns true if a frame of a nested hook may be written into this packet.
    pub(crate) fn allows(&self) -> bool {
        !self.contended || self.credit > 0
    }

    /// Records that a frame of this size of a nested hook was written.
    pub(crate) fn on_written(&mut self, bytes: usize) {
        if self.contended {
            self.credit -= i64::try_from(bytes).unwrap_or(i64::MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns how many bytes nested hooks write in 1,000 packets of 1,000 bytes, if they always
    /// have frames of `size` bytes to send.
    fn written(share: &mut Share, size: usize, contended: bool) -> usize {
        let mut sum = 0;
        for _ in 0..1000 {
            share.begin_packet(1000, contended);
            let mut room = 1000;
            while room >= size && share.allows() {
                share.on_written(size);
                (sum, room) = (sum + size, room - size);
            }
        }
        sum
    }

    #[test]
    fn hook_share_holds_for_frames_of_any_size() {
        for size in [1, 10, 250, 999, 1000] {
            let sum = written(&mut Share::default(), size, true);
            assert!((248_000..=252_000).contains(&sum), "{sum} of 1,000,000 in frames of {size}");
        }
        let mut none = Share::default();
        none.set(0);
        assert_eq!(written(&mut none, 10, true), 0);
        assert_eq!(
            written(&mut none, 10, false),
            1_000_000,
            "the application does not need the room"
        );
    }

    #[test]
    fn hook_share_that_is_not_used_is_not_saved() {
        let mut share = Share::default();
        for _ in 0..1000 {
            share.begin_packet(1000, true);
        }
        assert!(written(&mut share, 10, true) <= 252_000);
    }
}
