//! Removal of the protection of received packets (RFC 9001 s.5).

use equic_wire::packet::{PacketType, Protected};
use equic_wire::{KnownVersion, PacketNumber};
use rustls::quic::{Keys, PacketKey};

use super::Connection;
use super::packet_builder::TAG_LEN;
use super::presence::Presence;
use super::space::{PathId, SpaceId};
use crate::Timestamp;
use crate::crypto::{OpenError, header_mask};
use crate::operation::Operation;
use crate::violation::Violation;

/// The header of a received packet, which is still protected.
#[derive(Debug, Clone, Copy)]
pub(super) struct RxHeader {
    pub protected: Protected,
    pub kind: PacketType,
    pub space: SpaceId,
    /// Version in a long header.
    pub version: Option<KnownVersion>,
    /// True if the payload may be decrypted into the memory from which its stream is read. No hook
    /// and no log may need the payload then.
    pub placed: bool,
}

/// A packet whose protection is removed.
pub(super) struct Opened {
    pub number: u64,
    /// Range of the frames in the packet.
    pub payload: std::ops::Range<usize>,
    /// True if the reserved bits are zero (RFC 9000 s.17.2).
    pub sound: bool,
    /// Number of data bytes, if the packet has only one STREAM frame, whose data is already in
    /// place where its stream continues. `None` if the frames are in the packet.
    pub placed: Option<usize>,
}

/// Values that determine the keys of a 1-RTT packet.
#[derive(Clone, Copy)]
struct OneRtt {
    path: PathId,
    number: u64,
    /// The Key Phase bit.
    phase: bool,
    /// The largest packet number received on the path.
    largest: Option<u64>,
}

impl Connection {
    /// Removes header protection, restores the packet number and decrypts the payload. Returns
    /// `None` if the packet must be dropped.
    #[inline(always)]
    pub(super) fn open_packet(
        &mut self,
        hooks: impl Presence,
        now: Timestamp,
        rx: &RxHeader,
        packet: &mut [u8],
    ) -> Option<Opened> {
        // RFC 9001 s.6.6: at the limit, no further packet is processed.
        if self.forgeries.is_spent() {
            return None;
        }
        let sample = *rx.protected.sample(packet)?;
        let largest = self.spaces.get(rx.space).and_then(|space| space.received.largest());
        let largest = largest.map(|(number, _)| number);
        let other = match rx.version {
            Some(version) if rx.space == SpaceId::Initial => self.other_keys(version),
            _ => None,
        };
        let header_key = match &other {
            Some(keys) => &*keys.remote.header,
            None => self.keys.remote_header(rx.kind)?,
        };
        let mask = header_mask(header_key, &sample)?;
        let header = rx.protected.remove(packet, &mask)?;
        let truncated = header.packet_number();
        let usual = truncated.restore(largest.and_then(PacketNumber::new));
        let usual = usual.map(PacketNumber::get);
        let input = (rx.space, truncated.bits(), truncated.len().bytes(), largest);
        let number = hooks.decide(self, Operation::RestorePacketNumber, input, usual)?;
        let (head, payload) = packet.split_at_mut(header.header_len());
        let (opened, placed) = if let (PacketType::OneRtt, SpaceId::Data(path)) =
            (rx.kind, rx.space)
        {
            let of = OneRtt { path, number, phase: header.key_phase()?, largest };
            let to_stream = if rx.placed { self.open_to_stream(of, head, payload) } else { None };
            match to_stream {
                Some(Ok((length, placed))) => (Ok(length), placed),
                Some(Err(limit)) => (Err(limit), None),
                None => (self.open_one_rtt(now, of, head, payload)?, None),
            }
        } else {
            (self.open_long(rx.kind, other, number, head, payload)?, None)
        };
        match opened {
            Ok(length) => {
                let (start, sound) = (head.len(), header.check_reserved_bits().is_ok());
                Some(Opened { number, payload: start..start + length, sound, placed })
            }
            Err(limit) => {
                self.on_forgery(now, limit);
                None
            }
        }
    }

    /// Returns the keys of an Initial packet of another version than the current one. They are not
    /// stored (RFC 9369 s.4).
    #[cold]
    fn other_keys(&self, version: KnownVersion) -> Option<Keys> {
        if version == self.version {
            return None;
        }
        let dcid = self.start.retry().unwrap_or(self.ids.original_dcid());
        Some(self.start.initial_keys(self.side, version, dcid))
    }

    /// Decrypts a packet with a long header. Returns the length of its payload. If the packet is
    /// not authentic, returns the number of such packets that its keys permit as an error (RFC 9001
    /// s.6.6). Returns `None` if there are no keys.
    #[inline(never)]
    fn open_long(
        &self,
        kind: PacketType,
        other: Option<Keys>,
        number: u64,
        head: &[u8],
        payload: &mut [u8],
    ) -> Option<Result<usize, u64>> {
        let key: &dyn PacketKey = match &other {
            Some(keys) => &*keys.remote.packet,
            None => self.keys.remote_packet(kind)?,
        };
        let opened = key.decrypt_in_place(number, head, payload);
        Some(
            opened
                .map(|opened| opened.len())
                .map_err(|_| self.config.key_limits.integrity(key.integrity_limit())),
        )
    }

    /// Decrypts a 1-RTT packet. Returns the length of its payload. If the packet is not authentic,
    /// returns the number of such packets that its keys permit as an error. Returns `None` if the
    /// connection has failed.
    #[inline(always)]
    fn open_one_rtt(
        &mut self,
        now: Timestamp,
        of: OneRtt,
        head: &[u8],
        payload: &mut [u8],
    ) -> Option<Result<usize, u64>> {
        let keys = self.keys.one_rtt_mut()?;
        let packet = (of.path, of.number);
        Some(match keys.open(packet, of.phase, head, payload, of.largest) {
            Ok((opened, _)) => {
                let length = opened.len();
                if keys.previous_need_a_time(of.phase) {
                    // Only now, because a packet that is not authentic must not run hooks.
                    let until = now + self.longest_pto() * 3;
                    self.keys.one_rtt_mut()?.keep_previous_until(until);
                }
                Ok(length)
            }
            Err(OpenError::Forged) => Err(keys.integrity_limit()),
            Err(OpenError::KeyUpdate) => {
                self.fail(now, Violation::KeyUpdate);
                return None;
            }
        })
    }

    /// Decrypts a packet into the memory from which its stream is read, if the packet is likely to
    /// have only data of that stream. Returns the number of bytes of its frames. If the packet is
    /// what was expected, also returns the number of data bytes that are now in place. If the
    /// packet is forged, returns the number of forged packets that its keys permit as an error.
    /// Returns `None` without any effect if the packet must be decrypted in the usual way.
    #[inline(always)]
    fn open_to_stream(
        &mut self,
        of: OneRtt,
        head: &[u8],
        payload: &mut [u8],
    ) -> Option<Result<(usize, Option<usize>), u64>> {
        let length = payload.len().checked_sub(TAG_LEN)?;
        if !self.keys.one_rtt()?.may_open_to(of.phase) {
            return None;
        }
        let mut place = self.streams.place_for(length)?;
        let keys = self.keys.one_rtt_mut()?;
        match keys.open_to((of.path, of.number), of.phase, head, payload, place.memory()) {
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
}
