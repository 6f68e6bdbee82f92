//! Choice of the next packets, and their protection (RFC 9000 s.12, RFC 9001 s.5).

use equic_wire::Writer;
use equic_wire::packet::MIN_INITIAL_DATAGRAM;

use super::budget::{Budget, Fill, Target};
use super::packet_builder::{PacketBuilder, Padding};
use super::paths::PathKey;
use super::presence::{MayBeAttached, NoneAttached, Presence};
use super::send_packet::TxPacket;
use super::space::SpaceId;
use super::{Connection, Transmit};
use crate::Timestamp;
use crate::operation::Operation;
use crate::received::EcnCodepoint;

/// Maximum number of packets in a datagram: one each for Initial, Handshake and application data.
/// The application data belongs to one path ID.
const MAX_PACKETS: usize = 3;

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
        // Early exit, which most datagrams of a transfer take.
        if let Some(transmit) = self.next_stream_datagram(hooks, now, None, buffer) {
            return Some(transmit);
        }
        if hooks.is_hooked(self, Operation::ApplicationWrote) {
            self.tell_written();
        }
        if self.speaks_multipath() {
            return self.datagram_on_any_path(hooks, now, buffer);
        }
        self.datagram_on_active_path(hooks, now, buffer)
    }

    /// Returns the next datagram of a connection without multipath.
    fn datagram_on_active_path(
        &mut self,
        hooks: impl Presence,
        now: Timestamp,
        buffer: &mut [u8],
    ) -> Option<Transmit> {
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
        let budget = self.budget(hooks, now, target, buffer.len())?;
        let key = target.path;
        let mut wanted: [Option<SpaceId>; MAX_PACKETS] = [None; MAX_PACKETS];
        // Application data uses the packet number space of this path's ID.
        let data = SpaceId::Data(self.paths[key].id());
        let ids = self.spaces.ids().filter(|id| {
            (!id.is_data() || *id == data) && self.has_content(hooks, now, *id, budget)
        });
        for (place, id) in wanted.iter_mut().zip(ids) {
            *place = Some(id);
        }
        let last = wanted.iter().flatten().last().copied();
        let Some(last) = last else {
            self.note_app_limited(hooks, now, budget);
            self.note_kept(now, key);
            return None;
        };
        let size = budget.size.min(buffer.len());
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
            let pad = match (budget.fill == Fill::MtuProbe, initial && id == last || probes) {
                (true, _) => Padding::to(size),
                (false, true) => Padding::to(whole),
                (false, false) if initial => Padding::if_last(whole),
                (false, false) => Padding::NONE,
            };
            let before = writer.position();
            let packet = TxPacket::new(id, budget, pad);
            let Some(sent) = self.transmit_packet(hooks, now, packet, &mut writer) else {
                // Loss detection has recorded the packets before this one as sent.
                writer.truncate(before);
                break;
            };
            marked |= sent.marked;
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
        Some(self.transmit_on(key, ecn, size))
    }

    /// Returns the description of a datagram on a path.
    #[inline(always)]
    pub(super) fn transmit_on(&self, key: PathKey, ecn: EcnCodepoint, size: usize) -> Transmit {
        let path = &self.paths[key];
        Transmit { destination: path.remote(), source: path.local(), ecn, size }
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

    fn has_content(
        &mut self,
        hooks: impl Presence,
        now: Timestamp,
        id: SpaceId,
        budget: Budget,
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
        let input = (id, budget.path, budget.in_flight);
        let usual = |connection: &mut Connection| connection.is_content(hooks, now, id, budget);
        hooks.decide_limited(self, Operation::HasContent, input, usual, |connection, there, yes| {
            connection.bound_content(budget.path, there, yes)
        })
    }

    fn is_content(
        &mut self,
        hooks: impl Presence,
        now: Timestamp,
        id: SpaceId,
        budget: Budget,
    ) -> bool {
        if budget.fill == Fill::MtuProbe {
            return id.is_data();
        }
        let validates = id.is_data() && self.paths[budget.path].may_probe();
        if budget.passive || validates {
            return validates;
        }
        self.spaces.probes(id) > 0
            || budget.in_flight && budget.shared && self.is_pending(id, budget.path)
            || self.acks_are_due(hooks, now, id, budget.path)
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

    /// Returns true if acknowledgements of packet number space `id` are sent on this path. Without
    /// multipath, they are sent on the path of the datagram.
    pub(super) fn acks_go(&mut self, hooks: impl Presence, id: SpaceId, path: PathKey) -> bool {
        let usual = if self.speaks_multipath() { self.ack_path(id) } else { Some(path) };
        let Some(usual) = usual else { return false };
        let input = (id, usual);
        let chosen =
            hooks.decide_within(self, Operation::SelectACKPath, input, usual, |one, key| {
                one.bound_ack_path(usual, key)
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
    fn note_app_limited(&mut self, hooks: impl Presence, now: Timestamp, budget: Budget) {
        if !budget.in_flight {
            return;
        }
        let key = budget.path;
        let path = &mut self.paths[key];
        path.on_underused(now);
        let in_flight = path.in_flight();
        hooks.act(self, Operation::AppLimited, (key, in_flight), |connection| {
            connection.paths[key].on_app_limited();
        });
    }
}
