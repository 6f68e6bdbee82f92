//! Datagrams of stream data behind one that is written: as many as go with it in one message to the system.
//!
//! They are those that [`Connection::poll_transmit`] would give one after the other, byte for byte; tests compare them. What
//! cannot have changed since the last one is asked for once: what is due beside stream data, the path, the header.

use super::Connection;
use super::Transmit;
use super::presence::{MayBeAttached, Presence};
use super::send_plain::{PASSED_OVER, Room, settled_room};
use super::space::SpaceId;
use crate::Timestamp;
use crate::crypto::Wear;
use crate::received::EcnCodepoint;

impl Connection {
    /// More datagrams for the message to the system that one from [`Connection::poll_transmit`] goes in (GSO): they have its
    /// addresses, mark and size, but for the last, which may be shorter. At most `most` are written into `buffer`, one
    /// behind the other without a gap. Returns how many bytes they take; 0: what is next, if anything, is for
    /// [`Connection::poll_transmit`].
    ///
    /// To be called at the same time as that, right after it. What both give is the same as without this one.
    pub fn poll_transmit_more(
        &mut self,
        now: Timestamp,
        last: &Transmit,
        buffer: &mut [u8],
        most: usize,
    ) -> usize {
        self.now = now;
        if !self.continues(now, last) {
            return 0;
        }
        let key = self.path().key();
        let Some(mut header) = self.plain_header(key) else { return 0 };
        let marked = last.ecn == EcnCodepoint::Ect0;
        // `continues` has found something to send.
        let (mut at, mut waits) = (0, true);
        for _ in 0..most {
            let Some(room) = buffer.get_mut(at..at + last.size) else { break };
            if !self.takes_another(now, marked, waits) {
                break;
            }
            let ways = (&mut header, &mut waits);
            let written = self.write_plain_packet(now, (SpaceId::DATA, key, marked), ways, room);
            let Some(size) = written else { break };
            at += size;
            if size < last.size {
                break;
            }
        }
        at
    }

    /// True if the next datagram is one of nothing but stream data to where the last one went, with room for as much.
    fn continues(&mut self, now: Timestamp, last: &Transmit) -> bool {
        if self.closing.is_closed()
            || self.multipath.is_some()
            || self.extensions.has_requests()
            || !MayBeAttached.may_pass_over(self, PASSED_OVER)
        {
            return false;
        }
        self.issue_ids();
        let data = &self.spaces[SpaceId::DATA];
        let path = self.path();
        let goes_on = data.probes() == 0
            && !data.received.has_news()
            && path.is_settled(now)
            && usize::from(path.mtu()) == last.size
            && (path.remote(), path.local()) == (last.destination, last.source)
            && self.is_plain();
        if goes_on {
            // As each time that a path is asked for room.
            self.paths.active_mut().set_hook_window(None);
        }
        goes_on
    }

    /// What each datagram may change for the next; `waits`: it is known that there is something to send.
    #[inline(always)]
    fn takes_another(&mut self, now: Timestamp, marked: bool, waits: bool) -> bool {
        let fresh = self.keys.one_rtt().is_some_and(|keys| keys.wear() == Wear::Fresh);
        if !fresh || self.streams.has_control() || !(waits || self.streams.wants_to_send()) {
            return false;
        }
        let path = self.paths.active_mut();
        path.marks() == marked && matches!(settled_room(path, now), Room::For(_))
    }
}
