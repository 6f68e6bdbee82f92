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
use super::presence::{MayBeAttached, Presence};
use super::send::TxPlace;
use super::send_plain::{PASSED_OVER, PASSED_OVER_BUT_CHOICE, Room, settled_room, whole_rate};
use super::space::SpaceId;
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
        if self.multipath.is_some() {
            let turns = self.takes_turns() && !self.hooks.is_hooked(Operation::SelectPath);
            return if turns { 0 } else { self.more_of_paths(now, last, buffer, most) };
        }
        if !MayBeAttached.may_pass_over(self, PASSED_OVER) || !self.continues(now, last) {
            return 0;
        }
        let place = TxPlace { space: SpaceId::DATA, path: self.path().key() };
        self.write_more(now, place, last, buffer, most)
    }

    /// Like [`Connection::poll_transmit_more`]. The connection has or may have several
    /// paths. Ends the batch if the next choice of a path would differ.
    #[inline(never)]
    fn more_of_paths(
        &mut self,
        now: Timestamp,
        last: &Transmit,
        buffer: &mut [u8],
        most: usize,
    ) -> usize {
        let Some((place, holds)) = self.path_again(now, last) else { return 0 };
        let most = holds.map_or(most, |holds| most.min(holds));
        let bytes = self.write_more(now, place, last, buffer, most);
        if bytes > 0 {
            if holds.is_some() {
                self.use_choice(bytes.div_ceil(last.size));
            }
            self.on_data_sent(place.path);
        }
        bytes
    }

    /// Writes datagrams until one would differ from `last`, and returns their total size in bytes.
    /// The caller has checked the first one.
    #[inline(always)]
    fn write_more(
        &mut self,
        now: Timestamp,
        place: TxPlace,
        last: &Transmit,
        buffer: &mut [u8],
        most: usize,
    ) -> usize {
        let marked = last.ecn == EcnCodepoint::Ect0;
        let Some(mut run) = self.begin_run(place, marked) else { return 0 };
        let rate = whole_rate(&self.paths[place.path]);
        // The caller has checked that there is something to send.
        run.more = true;
        let mut at = 0;
        for _ in 0..most {
            let Some(room) = buffer.get_mut(at..at + last.size) else { break };
            if !self.takes_another(run.more) {
                break;
            }
            let several = self.multipath.is_some();
            let path = if several { &mut self.paths[place.path] } else { self.paths.active_mut() };
            if path.marks() != marked || !matches!(settled_room(path, now, |_| rate), Room::For(_))
            {
                break;
            }
            let Some(size) = self.write_plain_packet(now, &mut run, room) else { break };
            at += size;
            if size < last.size {
                break;
            }
        }
        at
    }

    /// Returns true if the next datagram has only stream data, and the addresses and size of
    /// `last`.
    fn continues(&mut self, now: Timestamp, last: &Transmit) -> bool {
        self.issue_ids();
        let place = TxPlace { space: SpaceId::DATA, path: self.path().key() };
        let goes_on = self.pending_on(place).is_empty()
            && self.path().is_settled(now)
            && is_to(self.path(), last)
            && self.is_plain();
        if goes_on {
            // `plain_room` does this, too.
            self.paths.active_mut().set_hook_window(None);
        }
        goes_on
    }

    /// Returns the path and packet number space of the next datagram on a connection with several
    /// paths. Returns `None` if it has other content than stream data, or other addresses or
    /// another size than `last`. If a hook chose the path, also returns the number of datagrams for
    /// which the choice holds.
    fn path_again(&mut self, now: Timestamp, last: &Transmit) -> Option<(TxPlace, Option<usize>)> {
        let chosen = !MayBeAttached.may_pass_over(self, PASSED_OVER);
        if chosen && !MayBeAttached.may_pass_over(self, PASSED_OVER_BUT_CHOICE) {
            return None;
        }
        self.issue_ids();
        if !self.is_plain() {
            return None;
        }
        let (place, holds) = if chosen {
            let (key, holds) = self.held_choice(now)?;
            (self.plain_room_on(now, key)?.0, Some(holds))
        } else {
            (self.plain_room_of_paths(now)?.0, None)
        };
        is_to(&self.paths[place.path], last).then_some((place, holds))
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
