//! The short way of an incoming datagram. It handles one packet with a short header on a connection
//! past its handshake, on its only path or on one of several. Nearly all datagrams are like that.
//! No hook may be attached to the operations that this way skips.
//!
//! It has the same effect as the long way (`receive.rs`) for the same packet, and leaves everything
//! else to the long way. Tests compare the two. The code for a connection with one path is compiled
//! separately, without lookups of the path and of packet numbers.

use equic_wire::frame::Stream;
use equic_wire::packet::{LongInvariant, MIN_PROTECTED_LEN, PacketType, Protected};
use equic_wire::{ConnectionId, PacketNumber, ResetToken, Side};

use super::close::CloseReason;
use super::packet_builder::TAG_LEN;
use super::path::Path;
use super::paths::PathKey;
use super::presence::Presence;
use super::receive::ProtectedPacket;
use super::space::{PathId, SpaceId};
use super::{Connection, DatagramMeta};
use crate::Timestamp;
use crate::crypto::header_mask;
use crate::operation::Operation;
use crate::received::EcnCodepoint;
use crate::violation::Violation;

/// Operations that the short way passes over: who is attached to one of these sees every packet on the long way.
const PASSED_OVER: u128 = Operation::bits(&[
    Operation::HandleDatagram,
    Operation::RestorePacketNumber,
    Operation::IsDuplicate,
    Operation::AfterPacketRead,
    Operation::ParseFrames,
    Operation::ParseFrame,
    Operation::CheckFrame,
    Operation::ProcessFrame,
]);

/// Where a packet came: the path, and the path ID whose numbers it has.
type Place = (PathId, PathKey);

/// An opened packet: its number, the bytes that its header takes, and those of its frames.
struct Opened {
    number: u64,
    header: usize,
    length: usize,
    /// Its reserved bits are as they must be.
    sound: bool,
    /// Number of data bytes, if the packet has only one STREAM frame, whose data is already in
    /// place where its stream continues. `None` if the frames are in the datagram.
    placed: Option<usize>,
}

/// True if a datagram is between the addresses of a path. Ours counts at a server, where both are known.
#[inline(always)]
fn is_from(side: Side, path: &Path, arrival: &DatagramMeta) -> bool {
    let ours = side == Side::Client
        || path.local().is_none()
        || arrival.local.is_none()
        || path.local() == arrival.local;
    path.remote() == arrival.remote && ours
}

impl Connection {
    /// Takes a datagram in; false, and nothing done: it is for the long way.
    #[inline(always)]
    pub(super) fn take_plain_datagram(
        &mut self,
        hooks: impl Presence,
        now: Timestamp,
        arrival: &DatagramMeta,
        datagram: &mut [u8],
    ) -> bool {
        if !hooks.may_pass_over(self, PASSED_OVER) {
            return false;
        }
        if self.multipath.is_some() {
            return self.take_plain_datagram_of_paths(hooks, now, arrival, datagram);
        }
        if !is_from(self.side, self.paths.active(), arrival) || !self.takes_plain() {
            return false;
        }
        let Some((protected, id)) = self.plain_header_of(datagram) else { return false };
        if !self.ids.local.take_bytes(id) {
            return false;
        }
        let path = self.paths.active_mut();
        path.on_datagram_received(datagram.len());
        path.learn_local(arrival.local);
        let place = (PathId::ZERO, path.key());
        self.take_protected(hooks, now, arrival.ecn, (protected, place), datagram);
        true
    }

    /// As [`Connection::take_plain_datagram`], of a connection that has several paths, or may have.
    #[inline(never)]
    fn take_plain_datagram_of_paths(
        &mut self,
        hooks: impl Presence,
        now: Timestamp,
        arrival: &DatagramMeta,
        datagram: &mut [u8],
    ) -> bool {
        if !self.takes_plain() {
            return false;
        }
        let Some((protected, id)) = self.plain_header_of(datagram) else { return false };
        // RFC 10069 s.3.2.
        let Some(path_id) = self.ids.path_of_bytes(id) else { return false };
        let Some(path) = self.paths.current_mut(path_id) else { return false };
        let key = path.key();
        // An abandoned one takes what is late as another does (RFC 10069 s.3.4).
        if !is_from(self.side, path, arrival) || self.spaces.get(SpaceId::Data(path_id)).is_none() {
            return false;
        }
        path.on_datagram_received(datagram.len());
        path.learn_local(arrival.local);
        if let Some(ids) = self.ids.local_of_mut(path_id) {
            ids.take_bytes(id);
        }
        let place = (path_id, key);
        self.take_protected(hooks, now, arrival.ecn, (protected, place), datagram);
        true
    }

    /// True if nothing but 1-RTT packets is awaited of the peer, and nobody wants to see them.
    #[inline(always)]
    fn takes_plain(&self) -> bool {
        self.keys.are_one_rtt_alone()
            && self.handshake.is_confirmed()
            && !self.closing.is_closed()
            && self.waiting.is_empty()
            && !self.forgeries.is_spent()
            && !self.is_logged()
    }

    /// The header of a datagram that is for the short way, and the connection ID that it is sent to.
    #[inline(always)]
    fn plain_header_of<'d>(&self, datagram: &'d [u8]) -> Option<(Protected, &'d [u8])> {
        let first = *datagram.first()?;
        if LongInvariant::is_long(first) {
            return None;
        }
        let protected = Protected::of_short_header(first, self.ids.id_len(), self.config.grease)?;
        let (id, behind) = datagram.get(1..)?.split_at_checked(self.ids.id_len())?;
        (behind.len() >= MIN_PROTECTED_LEN).then_some((protected, id))
    }

    /// Takes in the packet of a datagram that is on its path.
    #[inline(always)]
    fn take_protected(
        &mut self,
        hooks: impl Presence,
        now: Timestamp,
        ecn: EcnCodepoint,
        (protected, place): (Protected, Place),
        datagram: &mut [u8],
    ) {
        self.stats.datagrams_received += 1;
        self.stats.bytes_received += datagram.len() as u64;
        let last = datagram.last_chunk::<{ ResetToken::LEN }>().copied();
        match self.open_plain_packet(now, (protected, place.0), datagram) {
            Some(opened) => {
                self.take_plain_packet(hooks, now, ecn, (protected, place), &opened, datagram);
            }
            None => self.on_unopened(now, datagram, last),
        }
        self.run_requests();
    }

    /// Removes header and packet protection; none: it does not open.
    #[inline(always)]
    fn open_plain_packet(
        &mut self,
        now: Timestamp,
        (protected, path): (Protected, PathId),
        packet: &mut [u8],
    ) -> Option<Opened> {
        let sample = *protected.sample(packet)?;
        let largest = self.spaces.get(SpaceId::Data(path))?.received.largest();
        let largest = largest.map(|(number, _)| number);
        let mask = header_mask(self.keys.one_rtt()?.remote_header(), &sample)?;
        let header = protected.remove(packet, &mask)?;
        let number = header.packet_number().restore(largest.and_then(PacketNumber::new))?.get();
        let (head, payload) = packet.split_at_mut(header.header_len());
        let (bit, of) = (header.key_phase()?, (path, number));
        let (opened, placed) = match self.open_to_stream(of, bit, head, payload) {
            Some(Ok((length, placed))) => (Ok(length), placed),
            Some(Err(limit)) => (Err(limit), None),
            None => (self.open_one_rtt(now, of, bit, head, payload, largest)?, None),
        };
        match opened {
            Ok(length) => {
                let sound = header.check_reserved_bits().is_ok();
                Some(Opened { number, header: head.len(), length, sound, placed })
            }
            Err(limit) => {
                self.on_forgery(now, limit);
                None
            }
        }
    }

    /// Decrypts a packet into the memory from which its stream is read, if the packet is likely to
    /// have only data of that stream. Returns the number of bytes of its frames. If the packet is
    /// what was expected, also returns the number of data bytes that are now in place. If the
    /// packet is forged, returns the number of forged packets that its keys permit as an error.
    /// Returns `None` without any effect if the packet must be decrypted in the usual way.
    #[inline(always)]
    fn open_to_stream(
        &mut self,
        of: (PathId, u64),
        bit: bool,
        head: &[u8],
        payload: &mut [u8],
    ) -> Option<Result<(usize, Option<usize>), u64>> {
        let length = payload.len().checked_sub(TAG_LEN)?;
        if !self.keys.one_rtt()?.may_open_to(bit) {
            return None;
        }
        let mut place = self.streams.place_for(length)?;
        let keys = self.keys.one_rtt_mut()?;
        match keys.open_to(of, bit, head, payload, place.memory()) {
            Some(true) => {
                let placed = place.settle(payload);
                if placed.is_none() {
                    self.streams.expect_nothing();
                }
                Some(Ok((length, placed)))
            }
            Some(false) => {
                place.leave();
                Some(Err(keys.integrity_limit()))
            }
            None => None,
        }
    }

    /// A packet is the peer's.
    #[inline(always)]
    fn take_plain_packet(
        &mut self,
        hooks: impl Presence,
        now: Timestamp,
        ecn: EcnCodepoint,
        (protected, (id, path)): (Protected, Place),
        opened: &Opened,
        datagram: &[u8],
    ) {
        let (space, number) = (SpaceId::Data(id), opened.number);
        // Of a path ID whose space is gone, no packet can be told from a duplicate.
        let taken = self.spaces.get(space);
        if taken.is_none_or(|taken| taken.received.is_duplicate(number)) {
            self.drop_packet(Some(PacketType::OneRtt), datagram.len(), "duplicate");
            return;
        }
        self.stats.packets_received += 1;
        self.activity.on_received(now);
        self.on_one_rtt_packet(now);
        if !opened.sound {
            // RFC 9000 s.17.2.
            self.fail(now, Violation::ReservedBits);
            return;
        }
        if let Some(length) = opened.placed {
            self.streams.take_placed(length);
            self.stats.packets_opened_to_streams += 1;
            return self.handled(hooks, now, (space, number, path), (true, false), ecn);
        }
        let payload = &datagram[opened.header..opened.header + opened.length];
        let mut rest = payload;
        while let Some((stream, behind)) = Stream::first_of(rest)
            && self.take_stream(&stream).is_ok()
        {
            if behind.is_empty() && rest.len() == payload.len() {
                self.streams.expect_more(&stream);
            }
            rest = behind;
        }
        let some = rest.len() < payload.len();
        if some && rest.is_empty() {
            return self.handled(hooks, now, (space, number, path), (true, false), ecn);
        }
        let found = (protected, (id, path), number);
        self.take_other_frames(hooks, now, ecn, found, (rest, some), datagram);
    }

    /// What is left of a packet is not STREAM frames alone; `some`: such were there before.
    fn take_other_frames(
        &mut self,
        hooks: impl Presence,
        now: Timestamp,
        ecn: EcnCodepoint,
        (protected, (id, path), number): (Protected, Place, u64),
        (rest, some): (&[u8], bool),
        datagram: &[u8],
    ) {
        let dcid = datagram.get(1..=self.ids.id_len()).unwrap_or_default();
        let found = ProtectedPacket::of_short(
            (SpaceId::Data(id), ConnectionId::cut(dcid)),
            protected,
            datagram.len(),
        );
        let accepted = if some {
            self.handle_frames(hooks, now, ecn, &found, (number, path), (rest, true, false))
        } else {
            self.handle_payload(hooks, now, ecn, &found, (number, path), rest)
        };
        if !accepted {
            // As if it had been lost: the peer will send it again.
            self.drop_packet(Some(PacketType::OneRtt), datagram.len(), "rejected");
        }
    }

    /// A datagram did not open; it ended with these bytes.
    #[cold]
    fn on_unopened(
        &mut self,
        now: Timestamp,
        datagram: &[u8],
        last: Option<[u8; ResetToken::LEN]>,
    ) {
        self.drop_packet(Some(PacketType::OneRtt), datagram.len(), "decryption_failure");
        // RFC 9000 s.10.3.1.
        if let Some(token) = last
            && self.is_stateless_reset(datagram, ResetToken(token))
        {
            self.drain(now, CloseReason::StatelessReset);
        }
    }
}
