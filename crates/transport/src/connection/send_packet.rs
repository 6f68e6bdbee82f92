//! The way of one packet out: its number, header, frames, protection and record (RFC 9000 s.12, RFC
//! 9001 s.5). The datagram around it is chosen before (`send.rs`, `budget.rs`).

use equic_wire::packet::{LongHeader, LongKind, ShortHeader};
use equic_wire::{Side, Writer};

use super::Connection;
use super::budget::{Budget, Fill};
use super::packet_builder::{BuiltPacket, Header, PacketBuilder, Padding, TxNumber};
use super::packet_numbers::PacketNumbers;
use super::paths::PathKey;
use super::presence::Presence;
use super::space::{FrameList, Sent, SentFrames, SpaceId};
use crate::Timestamp;
use crate::operation::Operation;
use crate::recovery::{DeliveryMark, SentPacket};

/// Packet number space and path of the packets that are sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct TxPlace {
    pub space: SpaceId,
    pub path: PathKey,
}

/// A packet to send.
#[derive(Clone, Copy)]
pub(super) struct TxPacket {
    pub place: TxPlace,
    pub budget: Budget,
    pub pad: Padding,
    /// Header and ECN mark of the batch to which the packet belongs. `None` for a packet outside of
    /// a batch.
    pub common: Option<Common>,
}

/// Header and ECN mark that all packets of a batch share. A batch consists of consecutive 1-RTT
/// packets on one path.
#[derive(Clone, Copy)]
pub(super) struct Common {
    /// The header. Its Fixed Bit is chosen for each packet.
    pub header: ShortHeader,
    /// True if the packets have an ECN mark.
    pub marked: bool,
}

/// A packet that was sent.
#[derive(Clone, Copy)]
pub(super) struct TxSent {
    /// Size in bytes, including the tag.
    pub size: usize,
    /// True if the packet has an ECN mark.
    pub marked: bool,
    /// True if a stream is known to have more data after this packet.
    pub more: bool,
}

/// A protected packet that is not recorded yet.
#[derive(Clone, Copy)]
struct SealedPacket {
    number: u64,
    /// Size in bytes, including the tag.
    size: usize,
    eliciting: bool,
    in_flight: bool,
}

/// Properties of a sent packet that loss detection needs, apart from its number and size.
struct SentPacketKind {
    eliciting: bool,
    in_flight: bool,
    mtu_probe: bool,
    content: Sent,
}

impl TxPacket {
    #[inline(always)]
    pub(super) fn new(space: SpaceId, budget: Budget, pad: Padding) -> TxPacket {
        let place = TxPlace { space, path: budget.path };
        TxPacket { place, budget, pad, common: None }
    }
}

impl Connection {
    /// Writes a packet. Returns `None` if it could not be built or protected.
    #[inline(always)]
    pub(super) fn transmit_packet(
        &mut self,
        hooks: impl Presence,
        now: Timestamp,
        packet: TxPacket,
        writer: &mut Writer<'_>,
    ) -> Option<TxSent> {
        let TxPacket { place, common, pad, .. } = packet;
        let header = common.map(|common| common.header);
        let id = place.space;
        let streams_only = packet.budget.fill == Fill::Streams;
        let (number, numbers) = self.next_packet_number(hooks, id)?;
        // Hooks and fields show the number as used while the frames are written.
        if !streams_only {
            self.use_number(id, number, numbers)?;
        }
        let mut open = self.begin_packet(hooks, place.path, number, header, writer, pad)?;
        hooks.notify(self, Operation::GenerateHeader, (id, number.number, place.path));
        let mut frames = if streams_only { FrameList::default() } else { self.spaces.lend_list() };
        let mut more = false;
        let mut room = open.payload()?;
        let input = (id, number.number, room.remaining());
        // A hook cannot replace this action.
        hooks.begin_always::<_, bool>(self, Operation::GenerateFrames, input);
        let eliciting = self.fill(hooks, now, packet, &mut room, &mut frames, &mut more);
        hooks.end_always(self, Operation::GenerateFrames, input, eliciting);
        let written = room.position();
        if streams_only && !eliciting {
            // No stream had data after all. Whatever is due is sent with this number.
            return None;
        }
        open.wrote(written, eliciting)?;
        let built = self.complete(hooks, id, open, eliciting)?;
        if streams_only {
            self.use_number(id, number, numbers)?;
        } else {
            self.spaces.get_mut(id)?.on_written(eliciting);
        }
        let number = number.number;
        let sent = frames.take();
        self.spaces.take_back(&mut frames);
        let Some(sealed) = self.seal(hooks, packet, built) else {
            self.send_again(id, number, false, &sent);
            return None;
        };
        let marked = self.remember(hooks, now, packet, sealed, sent);
        Some(TxSent { size: sealed.size, marked, more })
    }

    /// Chooses the number of the next packet of a space. Also returns the packet numbers of the
    /// space for the time after this packet. Returns `None` if the space is gone.
    #[inline(always)]
    fn next_packet_number(
        &mut self,
        hooks: impl Presence,
        id: SpaceId,
    ) -> Option<(TxNumber, PacketNumbers)> {
        let space = self.spaces.get(id)?;
        let (mut numbers, acked) = (space.numbers, space.loss.largest_acked());
        let next = numbers.next();
        let usual = |connection: &mut Connection| {
            if id.is_data() { numbers.choose(&mut connection.rng) } else { next }
        };
        let bound = |_: &mut Connection, number| number;
        let number = hooks.decide_from(self, Operation::NextPacketNumber, (id, next), usual, bound);
        let number = numbers.take(number);
        Some((TxNumber { space: id, number, acked }, numbers))
    }

    /// Records that a packet uses a number. `numbers` are the packet numbers for the time after it.
    #[inline(always)]
    fn use_number(&mut self, id: SpaceId, used: TxNumber, numbers: PacketNumbers) -> Option<()> {
        let space = self.spaces.get_mut(id)?;
        self.stats.numbers_skipped += used.number - space.numbers.next();
        space.numbers = numbers;
        Some(())
    }

    /// Completes a packet after its frames: padding, Length field, and room for the tag.
    #[inline(always)]
    fn complete<'d>(
        &mut self,
        hooks: impl Presence,
        id: SpaceId,
        mut open: PacketBuilder<'d, '_>,
        eliciting: bool,
    ) -> Option<BuiltPacket<'d>> {
        let wanted = open.padding_wanted();
        // With padding, a packet that has only acknowledgements would count as in flight (RFC 9002
        // s.2), but the peer would not have to acknowledge it. Its part of the window would be
        // lost.
        let bound = |_: &mut Connection, padding: usize| {
            if eliciting { padding.max(wanted) } else { wanted }
        };
        let padding = hooks.decide_within(self, Operation::PadPacket, (id, wanted), wanted, bound);
        open.pad(padding)?;
        open.finish()
    }

    /// Writes the frames of a packet. Returns true if any of them is ack-eliciting. Sets `more` if
    /// a stream is known to have more data.
    #[inline(always)]
    fn fill(
        &mut self,
        hooks: impl Presence,
        now: Timestamp,
        packet: TxPacket,
        room: &mut Writer<'_>,
        frames: &mut FrameList,
        more: &mut bool,
    ) -> bool {
        let TxPacket { place, budget, .. } = packet;
        match budget.fill {
            Fill::Streams => {
                *more = self.write_streams(hooks, place, Fill::Streams, room, frames);
                !frames.is_empty()
            }
            Fill::Due => self.write_frames(hooks, now, place.space, budget, room, frames),
            Fill::MtuProbe => {
                self.write_mtu_probe(place.space, room, frames);
                true
            }
        }
    }

    /// Returns true if the next packet is sent with the Fixed Bit cleared (RFC 9287 s.3.1). The
    /// choice is random.
    #[inline(always)]
    fn greases_bit(&mut self) -> bool {
        self.config.grease
            && self.peer.is_some_and(|peer| peer.takes_greased_bit())
            && self.coins.toss(&mut self.rng)
    }

    /// Begins a packet by writing its header: `header`, or the one that is composed if `header` is
    /// `None`. Returns `None` if that is impossible, for example because there is no room.
    #[inline(always)]
    pub(super) fn begin_packet<'d, 'b>(
        &mut self,
        hooks: impl Presence,
        path: PathKey,
        number: TxNumber,
        header: Option<ShortHeader>,
        writer: &'d mut Writer<'b>,
        pad: Padding,
    ) -> Option<PacketBuilder<'d, 'b>> {
        let header = match header {
            Some(known) => {
                let fixed_bit = !self.greases_bit();
                Header::Short(ShortHeader { fixed_bit, ..known })
            }
            None => self.next_header(hooks, TxPlace { space: number.space, path })?,
        };
        PacketBuilder::open(writer, &header, number, pad)
    }

    /// Returns the header of the next packet of a space. Returns `None` if a 1-RTT packet has no
    /// keys.
    fn next_header(&mut self, hooks: impl Presence, place: TxPlace) -> Option<Header<'_>> {
        let TxPlace { space: id, path: key } = place;
        let dcid = self.dcid(key);
        let fixed_bit = !self.greases_bit();
        let kind = match id {
            SpaceId::Data(_) if self.may_send_early() => LongKind::ZeroRtt,
            SpaceId::Data(_) => {
                // RFC 9000 s.17.4: the spin bit may have any value if it is disabled.
                let spin = hooks.decide(self, Operation::SpinBit, key, false);
                let key_phase = self.keys.one_rtt()?.bit();
                return Some(Header::Short(ShortHeader { dcid, spin, key_phase, fixed_bit }));
            }
            SpaceId::Initial => LongKind::Initial { token: self.start.token() },
            SpaceId::Handshake => LongKind::Handshake,
        };
        let (version, scid) = (self.version, self.ids.scid());
        Some(Header::Long(LongHeader { version, kind, dcid, scid, fixed_bit }))
    }

    /// Protects a packet. Returns `None` if there are no keys, or if they must not protect more
    /// packets.
    #[inline(always)]
    fn seal(
        &mut self,
        hooks: impl Presence,
        packet: TxPacket,
        mut built: BuiltPacket<'_>,
    ) -> Option<SealedPacket> {
        let TxPlace { space: id, path: key } = packet.place;
        let number = built.number();
        #[cfg(feature = "qlog")]
        if self.is_logged() {
            self.log_sending(&built, packet.budget.fill == Fill::MtuProbe);
        }
        hooks.notify_on(self, Operation::ProtectPacket, (id, number, key), built.payload());
        let protected = built.protect(&mut self.keys);
        #[cfg(feature = "qlog")]
        if protected.is_none() {
            self.log_unsent();
        }
        protected?;
        let (eliciting, in_flight) = (built.is_eliciting(), built.is_in_flight());
        Some(SealedPacket { number, size: built.size(), eliciting, in_flight })
    }

    /// Records a protected packet as sent. Returns whether it has an ECN mark.
    #[inline(always)]
    fn remember(
        &mut self,
        hooks: impl Presence,
        now: Timestamp,
        packet: TxPacket,
        sealed: SealedPacket,
        frames: SentFrames,
    ) -> bool {
        let TxPlace { space: id, path: key } = packet.place;
        let SealedPacket { number, size, eliciting, in_flight } = sealed;
        // The peer's counts cover all paths of a path ID. Packets on a path other than the one
        // being validated would distort them.
        let usual = match packet.common {
            Some(common) => common.marked,
            None => {
                let path = &self.paths[key];
                id.is_data() && in_flight && path.marks() && path.is_current()
            }
        };
        let marked = hooks.decide(self, Operation::MarkEcn, (key, id), usual);
        let content = Sent::new(frames, marked, key);
        let mtu_probe = packet.budget.fill == Fill::MtuProbe;
        let kind = SentPacketKind { eliciting, in_flight, mtu_probe, content };
        // The packet is sent in any case, so a hook cannot replace this action.
        let input = (id, number, size, eliciting, key);
        hooks.begin_always::<_, ()>(self, Operation::SendPacket, input);
        self.on_packet_sent(hooks, now, id, number, size, kind);
        hooks.end_always(self, Operation::SendPacket, input, ());
        if id == SpaceId::Handshake && self.side == Side::Client {
            // RFC 9001 s.4.9.1.
            self.discard(now, SpaceId::Initial);
        }
        marked
    }

    #[inline(always)]
    fn on_packet_sent(
        &mut self,
        hooks: impl Presence,
        now: Timestamp,
        id: SpaceId,
        number: u64,
        size: usize,
        kind: SentPacketKind,
    ) {
        let key = kind.content.path;
        let bytes = size as u64;
        self.stats.packets_sent += 1;
        let idle = kind.content.nested && !self.application_waits();
        let hooked = hooks.is_hooked(self, Operation::CongestionSent);
        let path = &mut self.paths[key];
        if kind.content.marked {
            path.on_marked_sent();
        }
        if self.spaces.get(id).is_none() {
            // The space is gone, so no acknowledgement could remove the packet from bytes in
            // flight.
            return;
        }
        let mut delivery = DeliveryMark::default();
        if kind.in_flight {
            if idle {
                // RFC 9002 s.7.8: window and rate do not show what the application would send.
                path.on_underused(now);
                path.on_app_limited();
            }
            delivery = path.on_packet_sent(now, bytes, kind.content.nested);
            if hooked {
                let input = (key, bytes, path.in_flight());
                self.act(Operation::CongestionSent, input, |connection| {
                    connection.paths[key].on_congestion_sent(now, bytes);
                });
            } else {
                path.on_congestion_sent(now, bytes);
            }
        }
        if kind.eliciting {
            self.activity.on_eliciting_sent(now);
        }
        let Some(space) = self.spaces.get_mut(id) else { return };
        space.loss.on_packet_sent(
            number,
            SentPacket {
                time_sent: now,
                size: u16::try_from(size).unwrap_or(u16::MAX),
                count: 1,
                ack_eliciting: kind.eliciting,
                in_flight: kind.in_flight,
                mtu_probe: kind.mtu_probe,
                delivery,
                content: kind.content,
            },
        );
        if space.loss.is_overgrown() {
            self.detect_lost(now, id);
        }
    }
}
