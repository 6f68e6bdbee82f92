//! Datagrams of stream data behind one that is written: as many as go with it in one message to the
//! system.
//!
//! They are those that [`Connection::poll_transmit`] would give one after the other, byte for byte;
//! tests compare them. What cannot have changed since the last one is asked for once: what is due
//! beside stream data, the path, the header. Of several paths it is the one that the last datagram
//! went on, as long as it has room: what the choice is made from stays as it is.

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

    /// As [`Connection::poll_transmit_more`], of a connection that has several paths, or may have:
    /// as long as the choice among them would be the same.
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

    /// Writes datagrams as long as they are alike. The caller has checked that the first one is.
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
        // The caller has found something to send.
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

    /// True if the next datagram is one of nothing but stream data to where the last one went, with
    /// room for as much.
    fn continues(&mut self, now: Timestamp, last: &Transmit) -> bool {
        self.issue_ids();
        let place = TxPlace { space: SpaceId::DATA, path: self.path().key() };
        let goes_on = self.pending_on(place).is_empty()
            && self.path().is_settled(now)
            && is_to(self.path(), last)
            && self.is_plain();
        if goes_on {
            // As each time that a path is asked for room.
            self.paths.active_mut().set_hook_window(None);
        }
        goes_on
    }

    /// The path of several on which the next datagram goes, and its packets' space, if that is
    /// where the last one went, and it is one of nothing but stream data with room for as much. Of
    /// a hook's choice, for how many datagrams it holds.
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
    /// can have changed. `waits` is true if it is known that a stream has data.
    #[inline(always)]
    fn takes_another(&mut self, waits: bool) -> bool {
        let fresh = self.keys.one_rtt().is_some_and(|keys| keys.wear() == Wear::Fresh);
        fresh && self.pending_of_streams(waits).is_streams_only()
    }
}

/// True if a datagram was sent on a path, as large as those that it takes.
fn is_to(path: &Path, last: &Transmit) -> bool {
    usize::from(path.mtu()) == last.size
        && (path.remote(), path.local()) == (last.destination, last.source)
}
