//! Fast path for received datagrams (`receive.rs`). It finds the path and the packet of a datagram
//! that has one 1-RTT packet on a known path of a confirmed connection, as nearly all datagrams. It
//! then continues like the slow path: [`Connection::open_packet`] (`open.rs`) and
//! [`Connection::take_opened`] (`payload.rs`).

use equic_wire::Side;
use equic_wire::packet::{LongInvariant, MIN_PROTECTED_LEN, PacketType, Protected};

use super::open::RxHeader;
use super::path::Path;
use super::paths::PathKey;
use super::payload::OF_PAYLOAD;
use super::presence::Presence;
use super::receive::RxPacket;
use super::space::{PathId, SpaceId};
use super::{Connection, DatagramMeta};
use crate::Timestamp;
use crate::operation::Operation;

/// Operations that the fast path skips. If a hook is attached to one of them, all datagrams take
/// the slow path. Hooks on the operations of packets and frames see the packets of both paths.
const PASSED_OVER: u128 = Operation::bits(&[Operation::HandleDatagram]);

#[cfg(test)]
thread_local! {
    /// Number of datagrams that took the fast path in this thread.
    pub(super) static EARLY_EXITS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Returns true if a datagram is between the addresses of a path. At a server, the local address
/// counts if both are known.
#[inline(always)]
fn is_from(side: Side, path: &Path, arrival: &DatagramMeta) -> bool {
    let ours = side == Side::Client
        || path.local().is_none()
        || arrival.local.is_none()
        || path.local() == arrival.local;
    path.remote() == arrival.remote && ours
}

impl Connection {
    /// Processes a datagram. Returns true if its packet is authentic. Returns `None`, and changes
    /// nothing, if the datagram needs the slow path.
    #[inline(always)]
    pub(super) fn take_one_rtt(
        &mut self,
        hooks: impl Presence,
        now: Timestamp,
        arrival: &DatagramMeta,
        datagram: &mut [u8],
    ) -> Option<bool> {
        if !hooks.may_pass_over(self, PASSED_OVER) {
            return None;
        }
        if self.multipath.is_some() {
            return self.take_one_rtt_of_paths(hooks, now, arrival, datagram);
        }
        if !is_from(self.side, self.paths.active(), arrival) || !self.takes_plain() {
            return None;
        }
        let (protected, id) = self.plain_header_of(datagram)?;
        if !self.ids.local.take_bytes(id) {
            return None;
        }
        let path = self.paths.active_mut();
        path.on_datagram_received(datagram.len());
        path.learn_local(arrival.local);
        let path = path.key();
        let header = self.short_header(hooks, protected, PathId::ZERO);
        Some(self.take_protected(hooks, now, arrival, &header, path, datagram))
    }

    /// Like [`Connection::take_one_rtt`], if the connection may have several paths. This code is
    /// compiled separately, because a connection with one path needs no lookups.
    #[inline(never)]
    fn take_one_rtt_of_paths(
        &mut self,
        hooks: impl Presence,
        now: Timestamp,
        arrival: &DatagramMeta,
        datagram: &mut [u8],
    ) -> Option<bool> {
        if !self.takes_plain() {
            return None;
        }
        let (protected, id) = self.plain_header_of(datagram)?;
        // RFC 10069 s.3.2.
        let path_id = self.ids.path_of_bytes(id)?;
        let path = self.paths.current_mut(path_id)?;
        let key = path.key();
        // An abandoned path receives late packets like other paths (RFC 10069 s.3.4).
        if !is_from(self.side, path, arrival) || self.spaces.get(SpaceId::Data(path_id)).is_none() {
            return None;
        }
        path.on_datagram_received(datagram.len());
        path.learn_local(arrival.local);
        if let Some(ids) = self.ids.local_of_mut(path_id) {
            ids.take_bytes(id);
        }
        let header = self.short_header(hooks, protected, path_id);
        Some(self.take_protected(hooks, now, arrival, &header, key, datagram))
    }

    /// Returns true if only 1-RTT packets are expected from the peer, and no log shows them.
    #[inline(always)]
    fn takes_plain(&self) -> bool {
        self.keys.are_one_rtt_alone()
            && self.handshake.is_confirmed()
            && !self.closing.is_closed()
            && self.waiting.is_empty()
            && !self.is_logged()
    }

    /// Returns the header of a datagram with one packet, and its Destination Connection ID.
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

    /// Processes the packet of a datagram. Returns true if the packet is authentic.
    #[inline(always)]
    fn take_protected(
        &mut self,
        hooks: impl Presence,
        now: Timestamp,
        arrival: &DatagramMeta,
        header: &RxHeader,
        path: PathKey,
        datagram: &mut [u8],
    ) -> bool {
        #[cfg(test)]
        EARLY_EXITS.set(EARLY_EXITS.get() + 1);
        let kind = Some(PacketType::OneRtt);
        let Some(opened) = self.open_packet(hooks, now, header, datagram) else {
            self.drop_packet(kind, datagram.len(), "decryption_failure");
            return false;
        };
        if self.is_duplicate(hooks, header.space, opened.number) {
            self.drop_packet(kind, datagram.len(), "duplicate");
            return true;
        }
        self.stats.packets_received += 1;
        self.on_authentic(now, header.space, None);
        let packet = RxPacket {
            space: header.space,
            kind: PacketType::OneRtt,
            number: opened.number,
            path,
            ecn: arrival.ecn,
            dcid: datagram.get(1..=self.ids.id_len()).unwrap_or_default(),
        };
        self.take_opened(hooks, now, &packet, &opened, datagram);
        true
    }

    /// Returns the header of a 1-RTT packet of a path ID.
    #[inline(always)]
    fn short_header(&self, hooks: impl Presence, protected: Protected, path: PathId) -> RxHeader {
        let (kind, space) = (PacketType::OneRtt, SpaceId::Data(path));
        let placed = hooks.may_pass_over(self, OF_PAYLOAD);
        RxHeader { protected, kind, space, version: None, placed }
    }
}
