//! The part of packets that frames of brought hooks get while the application has data to send: what a peer's plugin
//! sends must not keep the application from sending.

/// Percent of the room in packets, unless [`HookContext::share_frames`](super::HookContext::share_frames) says otherwise.
const USUAL: u8 = 25;

/// Account of the bytes that frames of brought hooks may have. It goes below zero by less than a packet, since a frame
/// is written whole or not at all; then the hooks wait until packets have brought it up again.
#[derive(Debug)]
pub(crate) struct Share {
    percent: u8,
    /// Bytes that may be written; at most those of a packet.
    credit: i64,
    /// True if the application has data for the packet that is being written.
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

    /// Sets the share, in percent of the room in packets.
    pub(super) fn set(&mut self, percent: u8) {
        self.percent = percent.min(100);
    }

    /// A packet is being written that has `room` bytes for frames; `contended` says that the application has data for
    /// it, too.
    pub(crate) fn begin_packet(&mut self, room: usize, contended: bool) {
        let room = i64::try_from(room).unwrap_or(i64::MAX);
        self.contended = contended;
        self.credit = (self.credit + room * i64::from(self.percent) / 100).min(room);
    }

    /// True if a frame of a brought hook may be written into this packet.
    pub(crate) fn allows(&self) -> bool {
        !self.contended || self.credit > 0
    }

    /// A frame of so many bytes was written.
    pub(crate) fn on_written(&mut self, bytes: usize) {
        if self.contended {
            self.credit -= i64::try_from(bytes).unwrap_or(i64::MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes that hooks get of 1,000 packets of 1,000 bytes, if they always want to send frames of `size` bytes.
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
    fn frames_of_any_size_keep_to_their_share() {
        for size in [1, 10, 250, 999, 1000] {
            let sum = written(&mut Share::default(), size, true);
            assert!((248_000..=252_000).contains(&sum), "{sum} of 1,000,000 in frames of {size}");
        }
        let mut none = Share::default();
        none.set(0);
        assert_eq!(written(&mut none, 10, true), 0);
        assert_eq!(written(&mut none, 10, false), 1_000_000, "what nobody else wants");
    }

    #[test]
    fn what_was_not_used_is_not_saved_up() {
        let mut share = Share::default();
        for _ in 0..1000 {
            share.begin_packet(1000, true);
        }
        assert!(written(&mut share, 10, true) <= 252_000);
    }
}
