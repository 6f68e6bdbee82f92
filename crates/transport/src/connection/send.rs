//! Choice of the next packets, and their protection (RFC 9000 s.12, RFC 9001 s.5).

use equic_wire::packet::{LongHeader, LongKind, MIN_INITIAL_DATAGRAM, ShortHeader};
use equic_wire::{Side, Writer};

use super::close::{Closing, ConnectionError};
use super::packet_builder::{BuiltPacket, Header, PacketBuilder, Padding, TxNumber};
use super::paths::PathKey;
use super::presence::{MayBeAttached, NoneAttached, Presence};
use super::send_plain::PASSED_OVER;
use super::space::{Sent, SpaceId};
use super::{Connection, Transmit};
use crate::Timestamp;
use crate::congestion::Rate;
use crate::operation::Operation;
use crate::path::BASE_SIZE;
use crate::received::EcnCodepoint;
use crate::recovery::{DeliveryMark, SentPacket};

/// Maximum number of packets in a datagram: one each for Initial, Handshake and application data.
/// The application data belongs to one path ID.
const MAX_PACKETS: usize = 3;

/// Limits on the content of the next datagram.
#[derive(Clone, Copy)]
pub(super) struct Allowance {
    /// Path on which the datagram is sent.
    pub path: PathKey,
    /// Maximum UDP payload in bytes.
    pub size: usize,
    /// True if the congestion window and the pacer permit packets that count toward bytes in
    /// flight.
    pub in_flight: bool,
    /// True if this is not the current path of its path ID. The datagram then carries only frames
    /// that probe the path (RFC 9000 s.9.1).
    pub passive: bool,
    /// True if the datagram also carries content that any path can carry. With several paths, the
    /// scheduler has chosen this path for it.
    pub shared: bool,
    /// True for an MTU probe, which carries only PING, IMMEDIATE_ACK and PADDING frames.
    pub mtu_probe: bool,
}

/// The path that a datagram is built for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Target {
    pub path: PathKey,
    /// True if the datagram also carries content that any path can carry.
    pub shared: bool,
}

/// Packet number space and path of the packets that are sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct TxPlace {
    pub space: SpaceId,
    pub path: PathKey,
}

/// A packet that is being sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct TxPacket {
    pub place: TxPlace,
    pub number: u64,
}

impl Connection {
    /// Writes the next datagram to send into `buffer`. Returns `None` if there is nothing to send
    /// now.
    ///
    /// `buffer` should have room for 65,527 bytes, or for as many as
    /// [`TransportConfig::max_mtu`](super::TransportConfig::max_mtu) permits. A smaller buffer
    /// limits the size of datagrams.
    pub fn poll_transmit(&mut self, now: Timestamp, buffer: &mut [u8]) -> Option<Transmit> {
        self.now = now;
        self.run_requests();
        let transmit = if self.hooks.is_empty() {
            self.next_datagram(NoneAttached, now, buffer)
        } else {
            self.next_datagram(MayBeAttached, now, buffer)
        };
        #[cfg(feature = "qlog")]
        self.log_changes();
        if transmit.is_none() {
            self.may_rest(now);
        }
        transmit
    }

    fn next_datagram(
        &mut self,
        hooks: impl Presence,
        now: Timestamp,
        buffer: &mut [u8],
    ) -> Option<Transmit> {
        if self.closing.is_closed() {
            let flight = self.transmit_last_flight(hooks, now, buffer);
            return flight.or_else(|| self.transmit_close(now, buffer));
        }
        if !self.mind_keys(now) {
            return self.transmit_close(now, buffer);
        }
        self.issue_ids();
        if !self.held.is_held()
            && hooks.may_pass_over(self, PASSED_OVER)
            && let Some(transmit) = self.next_plain_datagram(now, buffer)
        {
            return Some(transmit);
        }
        if hooks.is_hooked(self, Operation::ApplicationWrote) {
            self.tell_written();
        }
        if self.speaks_multipath() {
            return self.next_of_paths(hooks, now, buffer);
        }
        let usual = self.probing_path().unwrap_or(self.path().key());
        let key =
            hooks.decide_within(self, Operation::SelectPath, (), usual, |connection, chosen| {
                connection.bound_path(usual, chosen)
            });
        let datagram = self.datagram_on(hooks, now, Target { path: key, shared: true }, buffer);
        let active = self.path().key();
        // A path that is being validated has priority. If it cannot send, the active path still
        // can.
        if datagram.is_none() && key != active {
            return self.datagram_on(hooks, now, Target { path: active, shared: true }, buffer);
        }
        datagram
    }

    /// Returns the next datagram of a path.
    pub(super) fn datagram_on(
        &mut self,
        hooks: impl Presence,
        now: Timestamp,
        target: Target,
        buffer: &mut [u8],
    ) -> Option<Transmit> {
        let allowance = self.allowance(hooks, now, target, buffer.len())?;
        let key = target.path;
        let mut wanted: [Option<SpaceId>; MAX_PACKETS] = [None; MAX_PACKETS];
        // Application data uses the packet number space of this path's ID.
        let data = SpaceId::Data(self.paths[key].id());
        let ids = self.spaces.ids().filter(|id| {
            (!id.is_data() || *id == data) && self.has_content(hooks, now, *id, allowance)
        });
        for (place, id) in wanted.iter_mut().zip(ids) {
            *place = Some(id);
        }
        let last = wanted.iter().flatten().last().copied();
        let Some(last) = last else {
            self.note_app_limited(hooks, now, allowance);
            self.note_kept(now, key);
            return None;
        };
        let size = allowance.size.min(buffer.len());
        let mut writer = Writer::new(&mut buffer[..size]);
        let (mut initial, mut marked) = (false, false);
        for id in wanted.into_iter().flatten() {
            if !PacketBuilder::has_room(&writer) {
                break;
            }
            initial |= id == SpaceId::Initial;
            // RFC 9000 s.14.1, s.8.2.1: a datagram with an Initial packet, or one that validates a
            // path, has 1,200 bytes.
            let probes = id.is_data() && self.paths[key].may_probe();
            let whole = MIN_INITIAL_DATAGRAM.min(size);
            let pad = match (allowance.mtu_probe, initial && id == last || probes) {
                (true, _) => Padding::to(size),
                (false, true) => Padding::to(whole),
                (false, false) if initial => Padding::if_last(whole),
                (false, false) => Padding::NONE,
            };
            let before = writer.position();
            let Some(sent) = self.transmit_packet(hooks, now, id, allowance, &mut writer, pad)
            else {
                // Loss detection has recorded the packets before this one as sent.
                writer.truncate(before);
                break;
            };
            marked |= sent;
        }
        let written = writer.position();
        if initial && written > 0 {
            // The packet that failed would have padded the datagram. Bytes that are not a packet
            // pad it, too (RFC 9000 s.14.1).
            let missing = MIN_INITIAL_DATAGRAM.min(size).saturating_sub(written);
            writer.zeros(missing).ok()?;
        }
        let size = writer.position();
        if size == 0 {
            // No room for the smallest packet.
            return None;
        }
        let ecn = if marked { EcnCodepoint::Ect0 } else { EcnCodepoint::NotEct };
        let bytes = writer.written_mut();
        // RFC 8999 s.5.1: the version follows the first byte. Hooks and the log see the new
        // version.
        if let (Some(unknown), Some(version)) = (self.start.unknown(), bytes.get_mut(1..5)) {
            version.copy_from_slice(&unknown.0.to_be_bytes());
        }
        let bytes = &*bytes;
        hooks.notify_on(self, Operation::SendDatagram, (key, ecn), bytes);
        #[cfg(feature = "qlog")]
        self.log_datagram_sent(key, ecn, bytes);
        self.on_datagram_sent(key, size);
        let path = &self.paths[key];
        Some(Transmit { destination: path.remote(), source: path.local(), ecn, size })
    }

    /// Notifies hooks of the number of bytes that the application has written since the last
    /// notification.
    #[cold]
    fn tell_written(&mut self) {
        let bytes = self.streams.take_written();
        if bytes > 0 {
            self.notify(Operation::ApplicationWrote, bytes);
        }
    }

    #[inline(always)]
    pub(super) fn on_datagram_sent(&mut self, key: PathKey, size: usize) {
        self.paths[key].on_datagram_sent(size);
        self.stats.datagrams_sent += 1;
        self.stats.bytes_sent += size as u64;
    }

    /// Returns the limits on the next datagram of a path, or `None` if nothing may be sent on it.
    fn allowance(
        &mut self,
        hooks: impl Presence,
        now: Timestamp,
        Target { path: key, shared }: Target,
        buffer: usize,
    ) -> Option<Allowance> {
        let quiet = self.is_quiet(key);
        let path = &self.paths[key];
        // RFC 8899 s.4.3: after a probe timeout, the path may be dropping large datagrams. The
        // probes must be small, because otherwise they would be lost, too, and losses could not be
        // detected.
        let largest = if quiet { u16::MAX } else { BASE_SIZE };
        let (mtu, credit) = (path.mtu().min(largest), path.credit());
        let validated = path.is_validated();
        if !path.may_send() {
            // The anti-amplification limit blocks the path, not the congestion window.
            self.paths[key].on_underused(now);
            return None;
        }
        let mut size = self.datagram_size(hooks, key, mtu).min(buffer);
        if let Some(credit) = credit {
            // RFC 9000 s.8.1.
            size = size.min(usize::try_from(credit).unwrap_or(usize::MAX));
        }
        let window = self.window(hooks, key);
        let in_flight = self.paths[key].in_flight();
        let room = window.saturating_sub(in_flight) >= u64::from(mtu);
        let held = self.held.is_held();
        let until = if room && !held { self.pace(hooks, now, key, mtu) } else { None };
        let path = &mut self.paths[key];
        path.pace_until(until);
        if !room {
            path.on_window_full(now);
        }
        let in_flight = room && until.is_none() && !held;
        let passive = !self.paths[key].is_current();
        let mut allowance =
            Allowance { path: key, size, in_flight, mtu_probe: false, passive, shared };
        if passive {
            allowance.size = size.min(MIN_INITIAL_DATAGRAM);
        } else if in_flight && validated && self.handshake.is_confirmed() && quiet {
            // No MTU probe is sent until the path is validated. It would use up anti-amplification
            // credit, and the PATH_CHALLENGE would have to wait for more (RFC 9000 s.8.1, s.8.2.1).
            let (waiting, datagrams) = (self.streams.buffered(), self.datagrams.are_used());
            self.paths[key].weigh_mtu(waiting, datagrams);
            allowance = self.probe_mtu(hooks, now, buffer, allowance);
        }
        Some(allowance)
    }

    /// Returns the earliest time at which a datagram of `size` bytes may leave, or `None` if it may
    /// leave now.
    fn pace(
        &mut self,
        hooks: impl Presence,
        now: Timestamp,
        key: PathKey,
        size: u16,
    ) -> Option<Timestamp> {
        let rate = self.pacing_rate(hooks, key);
        let input = (key, rate, size);
        let usual = |connection: &mut Connection| {
            connection.paths[key].pace(now, Rate::bytes_per_second(rate as f64), size)
        };
        hooks.decide_from(self, Operation::PaceUntil, input, usual, |connection, until| {
            connection.bound_pace(now, key, until)
        })
    }

    /// Returns true if no PTO probe is due on a path.
    fn is_quiet(&self, key: PathKey) -> bool {
        self.spaces.probes(SpaceId::Data(self.paths[key].id())) == 0
    }

    fn probe_mtu(
        &mut self,
        hooks: impl Presence,
        now: Timestamp,
        buffer: usize,
        allowance: Allowance,
    ) -> Allowance {
        let key = allowance.path;
        let usual =
            |connection: &mut Connection| connection.paths[key].next_mtu_probe(now).unwrap_or(0);
        // A hook can only prevent a probe. The state of the path determines its time and size.
        let bound = |connection: &mut Connection, size: u16| {
            if size == 0 { 0 } else { usual(connection) }
        };
        let size = hooks.decide_from(self, Operation::ProbeMtu, key, usual, bound);
        match usize::from(size) {
            0 => allowance,
            size if size <= buffer => Allowance { size, mtu_probe: true, ..allowance },
            _ => {
                self.mtu_probe_done(allowance.path, false);
                allowance
            }
        }
    }

    fn has_content(
        &mut self,
        hooks: impl Presence,
        now: Timestamp,
        id: SpaceId,
        allowance: Allowance,
    ) -> bool {
        let keys = match id {
            SpaceId::Data(_) => {
                self.keys.has(id) && self.handshake.may_carry_data(self.side)
                    || self.may_send_early()
            }
            _ => self.keys.has(id),
        };
        if !keys {
            return false;
        }
        let input = (id, allowance.path, allowance.in_flight);
        let usual = |connection: &mut Connection| connection.is_content(hooks, now, id, allowance);
        hooks.decide_from(self, Operation::HasContent, input, usual, |connection, yes| {
            let there = usual(connection);
            connection.bound_content(allowance.path, there, yes)
        })
    }

    fn is_content(
        &mut self,
        hooks: impl Presence,
        now: Timestamp,
        id: SpaceId,
        allowance: Allowance,
    ) -> bool {
        if allowance.mtu_probe {
            return id.is_data();
        }
        let validates = id.is_data() && self.paths[allowance.path].may_probe();
        if allowance.passive || validates {
            return validates;
        }
        self.spaces.probes(id) > 0
            || allowance.in_flight && allowance.shared && self.is_pending(id, allowance.path)
            || self.acks_are_due(hooks, now, id, allowance.path)
    }

    /// Returns true if content waits that a packet of this space can carry on this path, apart from
    /// probes and acknowledgements.
    fn is_pending(&mut self, id: SpaceId, path: PathKey) -> bool {
        match id {
            SpaceId::Data(_) => self.pending().is_for_any_path() || self.has_copies(path),
            SpaceId::Initial | SpaceId::Handshake => self.spaces.has_crypto(id),
        }
    }

    /// Returns true if acknowledgements of a space are due on a path. With multipath, application
    /// data includes the spaces of all path IDs.
    fn acks_are_due(
        &mut self,
        hooks: impl Presence,
        now: Timestamp,
        id: SpaceId,
        path: PathKey,
    ) -> bool {
        if !self.speaks_multipath() || !id.is_data() {
            return self.ack_is_due(hooks, now, id, path);
        }
        let ids = self.spaces.ids();
        ids.filter(|id| id.is_data()).any(|id| self.ack_is_due(hooks, now, id, path))
    }

    fn ack_is_due(
        &mut self,
        hooks: impl Presence,
        now: Timestamp,
        id: SpaceId,
        path: PathKey,
    ) -> bool {
        let Some(space) = self.spaces.get(id) else { return false };
        let usual = space.received.is_due(now);
        let due = hooks.decide_within(self, Operation::AckIsDue, id, usual, |connection, due| {
            connection.bound_ack(now, id, due)
        });
        due && self.acks_go(hooks, id, path)
    }

    /// Returns true if acknowledgements of packet number space `id` may be sent on this path.
    pub(super) fn acks_go(&mut self, hooks: impl Presence, id: SpaceId, path: PathKey) -> bool {
        if self.speaks_multipath() {
            return self.acks_go_of_paths(hooks, id, path);
        }
        let input = (id, path);
        let chosen = hooks.decide_within(self, Operation::SelectACKPath, input, path, |one, _| {
            // Other paths than the active one carry only frames that probe them (RFC 9000 s.9.1).
            one.path().key()
        });
        chosen == path
    }

    /// Returns true if the application has data to send, even if congestion control or pacing
    /// delays it. Stream data counts only if the peer's flow control limits permit it and no hook
    /// holds it back.
    pub fn application_waits(&self) -> bool {
        self.streams_go() || self.datagrams.wants_to_send()
    }

    /// Returns true if stream data waits and no hook holds it back.
    pub(super) fn streams_go(&self) -> bool {
        self.streams.wants_to_send() && !self.extensions.holds_streams(self.now)
    }

    /// Records that the window has room, but that there is nothing to send. The bytes in flight
    /// then say nothing about the capacity of the path.
    fn note_app_limited(&mut self, hooks: impl Presence, now: Timestamp, allowance: Allowance) {
        if !allowance.in_flight {
            return;
        }
        let key = allowance.path;
        let path = &mut self.paths[key];
        path.on_underused(now);
        let in_flight = path.in_flight();
        hooks.act(self, Operation::AppLimited, (key, in_flight), |connection| {
            connection.paths[key].on_app_limited();
        });
    }

    /// Writes a packet. Returns whether it has an ECN mark, or `None` if it could not be built or
    /// protected.
    fn transmit_packet(
        &mut self,
        hooks: impl Presence,
        now: Timestamp,
        id: SpaceId,
        allowance: Allowance,
        writer: &mut Writer<'_>,
        pad: Padding,
    ) -> Option<bool> {
        let key = allowance.path;
        let mut packet = self.build_packet(hooks, now, id, allowance, writer, pad)?;
        let number = packet.number();
        #[cfg(feature = "qlog")]
        self.log_sending(&packet, allowance.mtu_probe);
        hooks.notify_on(self, Operation::ProtectPacket, (id, number, key), packet.payload());
        if packet.protect(&mut self.keys).is_none() {
            #[cfg(feature = "qlog")]
            self.log_unsent();
            self.send_again(id, number, false, &packet.into_frames());
            return None;
        }
        let (size, eliciting, in_flight) =
            (packet.size(), packet.is_eliciting(), packet.is_in_flight());
        let mut frames = packet.into_frames();
        // The peer's counts cover all paths of a path ID. Packets on a path other than the one
        // being validated would distort them.
        let path = &self.paths[key];
        let usual = id.is_data() && in_flight && path.marks() && path.is_current();
        let marked = hooks.decide(self, Operation::MarkEcn, (key, id), usual);
        if marked {
            self.paths[key].on_marked_sent();
        }
        let content = Sent::new(&mut frames, marked, key);
        self.spaces.take_back(frames);
        let mtu_probe = allowance.mtu_probe;
        let kind = SentPacketKind { eliciting, in_flight, mtu_probe, content };
        let input = (id, number, size, eliciting, key);
        // The packet is sent in any case, so a hook cannot replace this action.
        hooks.act_always(self, Operation::SendPacket, input, |connection| {
            connection.on_packet_sent(hooks, now, id, number, size, kind);
        });
        if id == SpaceId::Handshake && self.side == Side::Client {
            // RFC 9001 s.4.9.1.
            self.discard(now, SpaceId::Initial);
        }
        Some(marked)
    }

    fn build_packet<'d>(
        &mut self,
        hooks: impl Presence,
        now: Timestamp,
        id: SpaceId,
        allowance: Allowance,
        writer: &'d mut Writer<'_>,
        pad: Padding,
    ) -> Option<BuiltPacket<'d>> {
        let number = self.next_packet_number(hooks, id)?;
        let place = TxPlace { space: id, path: allowance.path };
        let mut packet = self.begin_packet(hooks, TxPacket { place, number }, writer, pad)?;
        packet.list_in(self.spaces.lend_list());
        hooks.notify(self, Operation::GenerateHeader, (id, number, allowance.path));
        let input = (id, number, packet.room()?);
        let (mut room, frames) = packet.payload()?;
        // A hook cannot replace this action.
        let write = |connection: &mut Connection| {
            if allowance.mtu_probe {
                connection.write_mtu_probe(id, &mut room, frames);
                return true;
            }
            connection.write_frames(hooks, now, id, allowance, &mut room, frames)
        };
        let eliciting = hooks.act_always(self, Operation::GenerateFrames, input, write);
        let written = room.position();
        packet.wrote(written, eliciting)?;
        let wanted = packet.padding_wanted();
        // With padding, a packet that has only acknowledgements would count as in flight (RFC 9002
        // s.2), but the peer would not have to acknowledge it. Its part of the window would be
        // lost.
        let bound = |_: &mut Connection, padding: usize| {
            if eliciting { padding.max(wanted) } else { wanted }
        };
        let padding = hooks.decide_within(self, Operation::PadPacket, (id, wanted), wanted, bound);
        packet.pad(padding)?;
        self.spaces.get_mut(id)?.on_written(eliciting);
        packet.finish()
    }

    /// Takes the number of the next packet of a space. Returns `None` if the space is gone.
    fn next_packet_number(&mut self, hooks: impl Presence, id: SpaceId) -> Option<u64> {
        let next = self.spaces.get(id)?.numbers.next();
        let usual = |connection: &mut Connection| match connection.spaces.get_mut(id) {
            Some(space) if id.is_data() => space.numbers.choose(&mut connection.rng),
            _ => next,
        };
        let bound = |_: &mut Connection, number| number;
        let number = hooks.decide_from(self, Operation::NextPacketNumber, (id, next), usual, bound);
        let number = self.spaces.get_mut(id)?.numbers.take(number);
        self.stats.numbers_skipped += number - next;
        Some(number)
    }

    /// Returns true if the next packet is sent with the Fixed Bit cleared (RFC 9287 s.3.1). The
    /// choice is random.
    #[inline(always)]
    pub(super) fn greases_bit(&mut self) -> bool {
        self.config.grease
            && self.peer.is_some_and(|peer| peer.takes_greased_bit())
            && self.coins.toss(&mut self.rng)
    }

    /// Begins a packet by writing its header. Returns `None` if that is impossible, for example
    /// because there is no room.
    pub(super) fn begin_packet<'d, 'b>(
        &mut self,
        hooks: impl Presence,
        TxPacket { place: TxPlace { space, path }, number }: TxPacket,
        writer: &'d mut Writer<'b>,
        pad: Padding,
    ) -> Option<PacketBuilder<'d, 'b>> {
        let acked = self.spaces.get(space)?.loss.largest_acked();
        let header = self.next_header(hooks, space, path)?;
        PacketBuilder::open(writer, &header, TxNumber { space, number, acked }, pad)
    }

    /// Returns the header of the next packet of a space. Returns `None` if a 1-RTT packet has no
    /// keys.
    fn next_header(
        &mut self,
        hooks: impl Presence,
        id: SpaceId,
        key: PathKey,
    ) -> Option<Header<'_>> {
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

    pub(super) fn on_packet_sent(
        &mut self,
        hooks: impl Presence,
        now: Timestamp,
        id: SpaceId,
        number: u64,
        size: usize,
        kind: SentPacketKind,
    ) {
        let bytes = size as u64;
        self.stats.packets_sent += 1;
        if self.spaces.get(id).is_none() {
            // The space is gone, so no acknowledgement could remove the packet from bytes in
            // flight.
            return;
        }
        let key = kind.content.path;
        let mut delivery = DeliveryMark::default();
        if kind.in_flight {
            let idle = kind.content.nested && !self.application_waits();
            let path = &mut self.paths[key];
            if idle {
                // RFC 9002 s.7.8: window and rate do not show what the application would send.
                path.on_underused(now);
                path.on_app_limited();
            }
            delivery = path.on_packet_sent(now, bytes, kind.content.nested);
            let input = (key, bytes, path.in_flight());
            hooks.act(self, Operation::CongestionSent, input, |connection| {
                connection.paths[key].on_congestion_sent(now, bytes);
            });
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

    /// Sends what the peer needs to complete the handshake, if the application closed the
    /// connection before that was sent.
    fn transmit_last_flight(
        &mut self,
        hooks: impl Presence,
        now: Timestamp,
        buffer: &mut [u8],
    ) -> Option<Transmit> {
        if !self.closing.ends_by_application() || !self.handshake.is_complete() {
            return None;
        }
        // The server's later flights contain only session tickets.
        let owed = match self.side {
            // After the handshake is confirmed, the space is gone, and the peer has the client's
            // Finished.
            Side::Client => self.spaces.has_crypto(SpaceId::Handshake),
            Side::Server => self.handshake.owes_done(),
        };
        let key = self.path().key();
        let target = Target { path: key, shared: true };
        owed.then(|| self.datagram_on(hooks, now, target, buffer)).flatten()
    }

    /// RFC 9000 s.10.2: sends CONNECTION_CLOSE in each packet number space that the peer may be able
    /// to read. Returns `None` if CONNECTION_CLOSE is not due.
    fn transmit_close(&mut self, _now: Timestamp, buffer: &mut [u8]) -> Option<Transmit> {
        let Closing::Telling { error, tell, .. } = &mut self.closing else { return None };
        if !std::mem::take(tell) {
            return None;
        }
        let error = error.clone();
        // RFC 10069 s.2.6: any path can carry CONNECTION_CLOSE.
        let best = if self.speaks_multipath() { self.best_path() } else { None };
        let key = best.unwrap_or(self.path().key());
        let path = &self.paths[key];
        let credit = path.credit().map_or(usize::MAX, |credit| credit as usize);
        let data = SpaceId::Data(path.id());
        let size = buffer.len().min(MIN_INITIAL_DATAGRAM).min(credit);
        let mut writer = Writer::new(&mut buffer[..size]);
        let there = |id: &SpaceId| {
            let keys = self.keys.has(*id) && (!id.is_data() || self.handshake.is_complete());
            keys && self.spaces.get(*id).is_some()
        };
        let spaces: Vec<SpaceId> =
            [SpaceId::Initial, SpaceId::Handshake, data].into_iter().filter(there).collect();
        for id in &spaces {
            let initial = spaces.first() == Some(&SpaceId::Initial) && spaces.last() == Some(id);
            let pad = if initial { Padding::to(size) } else { Padding::NONE };
            let before = writer.position();
            let place = TxPlace { space: *id, path: key };
            if self.write_close(place, &error, &mut writer, pad).is_none() {
                // The packets before this one report the same error.
                writer.truncate(before);
                break;
            }
        }
        if writer.position() == 0 {
            return None;
        }
        if spaces.first() == Some(&SpaceId::Initial) {
            // RFC 9000 s.14.1.
            writer.zeros(writer.remaining()).ok()?;
        }
        let size = writer.position();
        self.on_datagram_sent(key, size);
        let ecn = EcnCodepoint::NotEct;
        #[cfg(feature = "qlog")]
        self.log_datagram_sent(key, ecn, writer.written());
        let path = &self.paths[key];
        let (destination, source) = (path.remote(), path.local());
        Some(Transmit { destination, source, ecn, size })
    }

    /// Writes a packet that has only CONNECTION_CLOSE. Returns `None` if it could not be written.
    fn write_close(
        &mut self,
        place: TxPlace,
        error: &ConnectionError,
        writer: &mut Writer<'_>,
        pad: Padding,
    ) -> Option<()> {
        let id = place.space;
        let number = self.spaces.get(id)?.numbers.next();
        let packet = TxPacket { place, number };
        let mut packet = self.begin_packet(MayBeAttached, packet, writer, pad)?;
        let (mut room, _) = packet.payload()?;
        Connection::close_frame(error, id.is_data()).write(&mut room).ok()?;
        let written = room.position();
        packet.wrote(written, false)?;
        packet.pad(packet.padding_wanted())?;
        let mut packet = packet.finish()?;
        self.spaces.get_mut(id)?.numbers.take(number);
        self.stats.packets_sent += 1;
        #[cfg(feature = "qlog")]
        self.log_sending(&packet, false);
        packet.protect(&mut self.keys)
    }
}

/// Properties of a sent packet that loss detection needs, apart from its number and size.
pub(super) struct SentPacketKind {
    pub eliciting: bool,
    pub in_flight: bool,
    pub mtu_probe: bool,
    pub content: Sent,
}
