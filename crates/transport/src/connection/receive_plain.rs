//! The short way of a datagram that came: one packet with a short header on the only path of a connection that is past its
//! handshake and has no hooks, as nearly all are.
//!
//! It does what the long way (`receive.rs`) does for the same packet, and leaves to it whatever is not so; tests compare them.

use equic_wire::frame::Stream;
use equic_wire::packet::{LongInvariant, MIN_PROTECTED_LEN, PacketType, Protected};
use equic_wire::{ConnectionId, PacketNumber, ResetToken, Side, TransportErrorCode};

use super::close::CloseReason;
use super::presence::NoneAttached;
use super::receive::ProtectedPacket;
use super::space::{PathId, SpaceId};
use super::{Connection, DatagramMeta};
use crate::Timestamp;
use crate::crypto::header_mask;
use crate::received::EcnCodepoint;

/// An opened packet: its number, the bytes that its header takes, and those of its frames.
struct Opened {
    number: u64,
    header: usize,
    length: usize,
    /// Its reserved bits are as they must be.
    sound: bool,
}

impl Connection {
    /// Takes a datagram in; false, and nothing done: it is for the long way.
    #[inline(always)]
    pub(super) fn take_plain_datagram(
        &mut self,
        now: Timestamp,
        arrival: &DatagramMeta,
        datagram: &mut [u8],
    ) -> bool {
        let Some(protected) = self.plain_packet(arrival, datagram) else { return false };
        self.stats.datagrams_received += 1;
        self.stats.bytes_received += datagram.len() as u64;
        let path = self.paths.active_mut();
        path.on_datagram_received(datagram.len());
        path.learn_local(arrival.local);
        let last = datagram.last_chunk::<{ ResetToken::LEN }>().copied();
        match self.open_plain_packet(now, protected, datagram) {
            Some(opened) => self.take_plain_packet(now, arrival.ecn, protected, &opened, datagram),
            None => self.on_unopened(now, datagram, last),
        }
        self.run_requests();
        true
    }

    /// The header of a datagram that is for the short way.
    #[inline(always)]
    fn plain_packet(&self, arrival: &DatagramMeta, datagram: &[u8]) -> Option<Protected> {
        let path = self.paths.active();
        let ours = self.side == Side::Client
            || path.local().is_none()
            || arrival.local.is_none()
            || path.local() == arrival.local;
        let settled = self.multipath.is_none()
            && path.remote() == arrival.remote
            && ours
            && self.keys.are_one_rtt_alone()
            && self.handshake.is_confirmed()
            && !self.closing.is_closed()
            && self.waiting.is_empty()
            && !self.forgeries.is_spent()
            && !self.is_logged();
        let first = *datagram.first()?;
        if !settled || LongInvariant::is_long(first) {
            return None;
        }
        let protected = Protected::of_short_header(first, self.ids.id_len(), self.config.grease)?;
        let (id, behind) = datagram.get(1..)?.split_at_checked(self.ids.id_len())?;
        (behind.len() >= MIN_PROTECTED_LEN && self.ids.local.contains_bytes(id))
            .then_some(protected)
    }

    /// Removes header and packet protection; none: it does not open.
    #[inline(always)]
    fn open_plain_packet(
        &mut self,
        now: Timestamp,
        protected: Protected,
        packet: &mut [u8],
    ) -> Option<Opened> {
        let sample = *protected.sample(packet)?;
        let largest = self.spaces[SpaceId::DATA].received.largest().map(|(number, _)| number);
        let mask = header_mask(self.keys.one_rtt()?.remote_header(), &sample)?;
        let header = protected.remove(packet, &mask)?;
        let number = header.packet_number().restore(largest.and_then(PacketNumber::new))?.get();
        let (head, payload) = packet.split_at_mut(header.header_len());
        let (bit, of) = (header.key_phase()?, (PathId::ZERO, number));
        match self.open_one_rtt(now, of, bit, head, payload, largest)? {
            Ok(length) => {
                let sound = header.check_reserved_bits().is_ok();
                Some(Opened { number, header: head.len(), length, sound })
            }
            Err(limit) => {
                self.on_forgery(now, limit);
                None
            }
        }
    }

    /// A packet is the peer's.
    #[inline(always)]
    fn take_plain_packet(
        &mut self,
        now: Timestamp,
        ecn: EcnCodepoint,
        protected: Protected,
        opened: &Opened,
        datagram: &[u8],
    ) {
        let number = opened.number;
        if self.spaces[SpaceId::DATA].received.is_duplicate(number) {
            self.drop_packet(Some(PacketType::OneRtt), datagram.len(), "duplicate");
            return;
        }
        self.stats.packets_received += 1;
        self.activity.on_received(now);
        self.on_one_rtt_packet(now);
        if !opened.sound {
            // RFC 9000 s.17.2.
            self.fail(now, TransportErrorCode::PROTOCOL_VIOLATION, "reserved bits are set");
            return;
        }
        let path = self.path().key();
        let payload = &datagram[opened.header..opened.header + opened.length];
        let mut rest = payload;
        while let Some((stream, behind)) = Stream::first_of(rest)
            && self.take_stream(&stream).is_ok()
        {
            rest = behind;
        }
        let some = rest.len() < payload.len();
        if some && rest.is_empty() {
            let place = (SpaceId::DATA, number, path);
            return self.handled(NoneAttached, now, place, (true, false), ecn);
        }
        self.take_other_frames(now, ecn, protected, number, (rest, some), datagram);
    }

    /// What is left of a packet is not STREAM frames alone; `some`: such were there before.
    fn take_other_frames(
        &mut self,
        now: Timestamp,
        ecn: EcnCodepoint,
        protected: Protected,
        number: u64,
        (rest, some): (&[u8], bool),
        datagram: &[u8],
    ) {
        let path = self.path().key();
        let id = datagram.get(1..=self.ids.id_len()).unwrap_or_default();
        let found = ProtectedPacket::of_short(ConnectionId::cut(id), protected, datagram.len());
        let accepted = if some {
            self.handle_frames(NoneAttached, now, ecn, &found, (number, path), (rest, true, false))
        } else {
            self.handle_payload(NoneAttached, now, ecn, &found, (number, path), rest)
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
