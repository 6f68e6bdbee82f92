//! Adds datagrams of stream data that are sent in the same GSO message as the last datagram.
//!
//! [`Connection::poll_transmit`] would return the same datagrams one after the other, byte for
//! byte, and tests compare them. Conditions that cannot have changed since the last datagram are
//! checked only once: pending content other than stream data, the path, and the header. With
//! several paths, a batch stays on the path of the last datagram as long as that path has room. The
//! inputs of the choice stay the same.

use super::Connection;
use super::Transmit;
use super::path::Path;
use super::paths::PathKey;
use super::presence::{MayBeAttached, Presence};
use super::send_plain::PASSED_OVER_BUT_CHOICE;
use crate::Timestamp;
use crate::crypto::Wear;
use crate::operation::Operation;
use crate::received::EcnCodepoint;

impl Connection {
    /// Writes more datagrams for the GSO message in which the datagram `last` will be sent. See
    /// [`Driver::poll_transmit_more`](super::driver::Driver::poll_transmit_more).
    pub(super) fn poll_transmit_more(
        &mut self,
        now: Timestamp,
        last: &Transmit,
        buffer: &mut [u8],
        most: usize,
    ) -> usize {
        self.now = now;
        if self.closing.is_closed() || self.extensions.has_requests() {
            return 0;
        }
        let Some((key, holds)) = self.path_again(now, last) else { return 0 };
        let most = holds.map_or(most, |holds| most.min(holds));
        let bytes = self.write_more(now, key, last, buffer, most);
        if bytes > 0 {
            if holds.is_some() {
                self.use_choice(bytes.div_ceil(last.size));
            }
            self.on_data_sent(key);
        }
        bytes
    }

    /// Writes datagrams until one would differ from `last`, and returns their total size in bytes.
    /// The caller has checked the first one.
    #[inline(always)]
    fn write_more(
        &mut self,
        now: Timestamp,
        key: PathKey,
        last: &Transmit,
        buffer: &mut [u8],
        most: usize,
    ) -> usize {
        let marked = last.ecn == EcnCodepoint::Ect0;
        let Some(packet) = self.stream_packet(key, last.size) else { return 0 };
        let path = &self.paths[key];
        let (mtu, rate) = (path.mtu(), path.whole_rate());
        // The caller has checked that there is something to send.
        let mut more = true;
        let mut at = 0;
        for _ in 0..most {
            let Some(room) = buffer.get_mut(at..at + last.size) else { break };
            if !self.takes_another(more) {
                break;
            }
            let path = &mut self.paths[key];
            if path.marks() != marked || !path.admits(now, mtu, |_| rate) {
                break;
            }
            let Some(sent) = self.transmit_streams(now, packet, room) else { break };
            at += sent.size;
            more = sent.more;
            if sent.size < last.size {
                break;
            }
        }
        at
    }

    /// Returns the path of the next datagram. Returns `None` if it has other content than stream
    /// data, or other addresses or another size than `last`. If a hook chose the path, also returns
    /// the number of datagrams for which the choice holds.
    fn path_again(&mut self, now: Timestamp, last: &Transmit) -> Option<(PathKey, Option<usize>)> {
        if !MayBeAttached.may_pass_over(self, PASSED_OVER_BUT_CHOICE) {
            return None;
        }
        let chosen = self.hooks.is_hooked(Operation::SelectPath);
        if !chosen && self.takes_turns() {
            return None;
        }
        self.issue_ids();
        if !self.is_streams_only() {
            return None;
        }
        let held = if chosen { Some(self.held_choice(now)?) } else { None };
        let (chosen, holds) = held.unzip();
        let budget = self.budget_of_streams(now, chosen)?;
        is_to(&self.paths[budget.path], last).then_some((budget.path, holds))
    }

    /// Returns true if the next datagram has only stream data, too. Checks only what the last one
    /// can have changed. `waits` is true if a stream is known to have data.
    #[inline(always)]
    fn takes_another(&mut self, waits: bool) -> bool {
        let fresh = self.keys.one_rtt().is_some_and(|keys| keys.wear() == Wear::Fresh);
        fresh && self.pending_of_streams(waits).is_streams_only()
    }
}

/// Returns true if the datagram `last` has the addresses and the maximum size of a path.
fn is_to(path: &Path, last: &Transmit) -> bool {
    usize::from(path.mtu()) == last.size
        && (path.remote(), path.local()) == (last.destination, last.source)
}
