//! From datagrams to packets (RFC 9000 s.12.2).

use equic_wire::packet::{
    Datagram, LongInvariant, LongKind, MIN_INITIAL_DATAGRAM, Packet, PacketType, ParseOptions,
    Protected, ShortPacket,
};
use equic_wire::{ConnectionId, KnownVersion, ResetToken, Side};

use super::close::CloseReason;
use super::migration::From;
use super::open::RxHeader;
use super::paths::PathKey;
use super::presence::{MayBeAttached, NoneAttached, Presence};
use super::space::{PathId, SpaceId};
use super::waiting::Readiness;
use super::{Connection, DatagramMeta};
use crate::Timestamp;
use crate::operation::{Operation, Word};
use crate::received::EcnCodepoint;

impl Word for EcnCodepoint {
    fn to_word(self) -> u64 {
        // The values are those of the IP header (RFC 3168 s.5).
        match self {
            EcnCodepoint::NotEct => 0,
            EcnCodepoint::Ect1 => 1,
            EcnCodepoint::Ect0 => 2,
            EcnCodepoint::Ce => 3,
        }
    }

    fn from_word(word: u64) -> Option<EcnCodepoint> {
        Some(match word {
            0 => EcnCodepoint::NotEct,
            1 => EcnCodepoint::Ect1,
            2 => EcnCodepoint::Ect0,
            3 => EcnCodepoint::Ce,
            _ => return None,
        })
    }
}

/// A packet whose place in the datagram is known.
#[derive(Debug, Clone, Copy)]
pub(super) struct ProtectedPacket {
    pub space: SpaceId,
    kind: PacketType,
    dcid: ConnectionId,
    /// Source Connection ID of a long header.
    scid: Option<ConnectionId>,
    protected: Protected,
    /// Version in a long header.
    version: Option<KnownVersion>,
    /// True if the Destination Connection ID has just been found among the IDs that we issued for
    /// path 0. False if it was not looked up.
    known: bool,
    /// Number of bytes before the packet that are not a packet of ours.
    skip: usize,
    len: usize,
}

impl ProtectedPacket {
    /// Returns a packet with a short header in the given space.
    #[cfg(test)]
    pub(super) fn in_space(space: SpaceId) -> ProtectedPacket {
        let options = ParseOptions { dcid_len: 0, greased_fixed_bit: false };
        let Some(Ok(Packet::Short(short))) = Datagram::new(&[0x40; 40], options).next() else {
            panic!("the first byte 0x40 must begin a short header");
        };
        ProtectedPacket {
            space,
            kind: PacketType::OneRtt,
            dcid: short.dcid(),
            scid: None,
            version: None,
            protected: short.protected(),
            known: false,
            skip: 0,
            len: 40,
        }
    }

    /// Prepares the packet for storage. Connection IDs may change before it is processed.
    pub(super) fn for_later(self) -> ProtectedPacket {
        ProtectedPacket { known: false, ..self }
    }

    /// True if the packet is a 0-RTT packet.
    pub(super) fn is_early(&self) -> bool {
        self.kind == PacketType::ZeroRtt
    }
}

/// A received packet without protection.
#[derive(Debug, Clone, Copy)]
pub(super) struct RxPacket<'a> {
    pub space: SpaceId,
    pub kind: PacketType,
    pub number: u64,
    pub path: PathKey,
    pub ecn: EcnCodepoint,
    /// Destination Connection ID.
    pub dcid: &'a [u8],
}

/// The datagram of a packet.
#[derive(Debug)]
pub(super) struct Origin {
    pub from: From,
    /// Length of the datagram.
    pub size: usize,
    pub ecn: EcnCodepoint,
}

impl Connection {
    /// Processes a received datagram. It is decrypted in place.
    pub fn handle_datagram(&mut self, now: Timestamp, arrival: DatagramMeta, datagram: &mut [u8]) {
        self.take_in(now, &arrival, datagram);
    }

    /// Processes datagrams that the system received as one message (GRO). Each datagram has
    /// `segment` bytes of `bytes`; the last one may be shorter. The result is the same as if
    /// [`Connection::handle_datagram`] were called for each of them in order.
    pub fn handle_datagrams(
        &mut self,
        now: Timestamp,
        arrival: &DatagramMeta,
        bytes: &mut [u8],
        segment: usize,
    ) {
        for datagram in bytes.chunks_mut(segment.max(1)) {
            self.take_in(now, arrival, datagram);
        }
    }

    /// Processes one datagram.
    ///
    /// `arrival` is passed by reference, because copying it would cause a store-forwarding stall: a
    /// CPU that reads just-stored bytes in pieces of other sizes waits until its earlier stores
    /// have reached the cache. Those include the data of the last packet.
    #[inline(always)]
    fn take_in(&mut self, now: Timestamp, arrival: &DatagramMeta, datagram: &mut [u8]) {
        self.now = now;
        #[cfg(feature = "qlog")]
        self.log_datagram_received(arrival.ecn, datagram);
        if self.hooks.is_empty() {
            self.take_datagram(NoneAttached, now, arrival, datagram);
        } else {
            self.take_datagram(MayBeAttached, now, arrival, datagram);
        }
        self.run_requests();
        #[cfg(feature = "qlog")]
        if self.is_logged() {
            self.log_changes();
        }
    }

    #[inline(always)]
    fn take_datagram(
        &mut self,
        hooks: impl Presence,
        now: Timestamp,
        arrival: &DatagramMeta,
        datagram: &mut [u8],
    ) {
        self.stats.datagrams_received += 1;
        self.stats.bytes_received += datagram.len() as u64;
        let last = datagram.last_chunk::<{ ResetToken::LEN }>().copied();
        let opened = self.take_one_rtt(hooks, now, arrival, datagram);
        let opened = opened.or_else(|| self.take_packets(hooks, now, arrival, datagram));
        // RFC 9000 s.10.3.1: only a datagram that could not be decrypted can be a stateless reset,
        // whatever its header is.
        if opened == Some(false)
            && let Some(token) = last
        {
            self.check_reset(now, datagram, ResetToken(token));
        }
    }

    /// Drains the connection if a datagram is a stateless reset.
    #[cold]
    fn check_reset(&mut self, now: Timestamp, datagram: &[u8], token: ResetToken) {
        if self.is_stateless_reset(datagram, token) {
            self.drain(now, CloseReason::StatelessReset);
        }
    }

    /// Processes the packets of a datagram. Returns true if one of them was authentic. Returns
    /// `None` if the datagram was not processed.
    #[inline(never)]
    fn take_packets(
        &mut self,
        hooks: impl Presence,
        now: Timestamp,
        arrival: &DatagramMeta,
        datagram: &mut [u8],
    ) -> Option<bool> {
        let ecn = arrival.ecn;
        let mut path = if self.multipath.is_some() { self.path_id_of(datagram) } else { None };
        let Some(from) = self.find_path(arrival, path.unwrap_or(PathId::ZERO)) else {
            self.drop_packet(None, datagram.len(), "rejected");
            return None;
        };
        let key = match from {
            From::Known(key) => {
                let path = &mut self.paths[key];
                path.on_datagram_received(datagram.len());
                path.learn_local(arrival.local);
                key
            }
            From::New(..) => self.path().key(),
        };
        if !hooks.decide_on(self, Operation::HandleDatagram, (key, ecn), datagram, true) {
            return None;
        }
        if self.closing.is_closed() {
            self.closing.on_datagram();
        }
        let mut origin = Origin { from, size: datagram.len(), ecn };
        let (mut at, mut opened) = (0, false);
        while let Some(found) = self.find(&datagram[at..], path.take()) {
            let (packet, rest) = datagram[at + found.skip..].split_at_mut(found.len);
            let more = !rest.is_empty();
            at += found.skip + found.len;
            opened |= self.handle_packet(hooks, now, found, &mut origin, packet);
            if !more || self.closing.is_drained() {
                break;
            }
        }
        self.replay_waiting(now);
        Some(opened)
    }

    /// Returns true if a datagram is a stateless reset. A hook may ignore a reset, but not invent
    /// one.
    pub(super) fn is_stateless_reset(&mut self, datagram: &[u8], token: ResetToken) -> bool {
        let reset = self.ids.is_reset(token);
        self.decide_on(Operation::IsStatelessReset, (), datagram, reset) && reset
    }

    /// Returns the path ID of a datagram's first packet, for which we issued its connection ID.
    /// Returns `None` if the ID is not ours. Also returns `None` for a long header, because packets
    /// of the handshake belong to path 0 (RFC 8999 s.5.1).
    fn path_id_of(&self, datagram: &[u8]) -> Option<PathId> {
        let id = datagram.get(1..).filter(|_| datagram[0] & 0x80 == 0)?;
        self.ids.path_of(ConnectionId::cut(id.get(..self.ids.scid().len())?))
    }

    /// Returns the packet number space of a 1-RTT packet with this Destination Connection ID.
    fn space_of(&self, dcid: ConnectionId) -> SpaceId {
        if self.multipath.is_none() {
            return SpaceId::DATA;
        }
        SpaceId::Data(self.ids.path_of(dcid).unwrap_or(PathId::ZERO))
    }

    /// Returns the description of a packet with a short header. `skip` is the number of bytes
    /// before it in its datagram that are not a packet of ours. `path` is the path ID of its
    /// Destination Connection ID, if that was looked up.
    #[inline]
    fn found_short(
        &self,
        short: &ShortPacket<'_>,
        skip: usize,
        path: Option<PathId>,
    ) -> ProtectedPacket {
        ProtectedPacket {
            space: path.map_or_else(|| self.space_of(short.dcid()), SpaceId::Data),
            known: path == Some(PathId::ZERO),
            kind: PacketType::OneRtt,
            dcid: short.dcid(),
            scid: None,
            version: None,
            protected: short.protected(),
            skip,
            len: short.bytes().len(),
        }
    }

    /// Returns the next packet of a datagram that may be ours. `path` is the path ID of the
    /// connection ID after the first byte, if that was looked up.
    fn find(&mut self, datagram: &[u8], path: Option<PathId>) -> Option<ProtectedPacket> {
        let options =
            ParseOptions { dcid_len: self.ids.scid().len(), greased_fixed_bit: self.config.grease };
        // Nearly all packets have short headers. The general code below also handles fields that
        // only long headers have.
        if datagram.first().is_some_and(|first| !LongInvariant::is_long(*first)) {
            let short = ShortPacket::parse(datagram, options);
            if short.is_err() {
                self.drop_packet(None, datagram.len(), "invalid");
            }
            return short.ok().map(|short| self.found_short(&short, 0, path));
        }
        let mut packets = Datagram::new(datagram, options).including(self.version);
        loop {
            let before = packets.rest().len();
            let found = match packets.next()? {
                Ok(Packet::Long(long))
                    if self.speaks(
                        long.version(),
                        matches!(long.kind(), LongKind::Initial { .. }),
                    ) && self.takes_token_of(long.kind()) =>
                {
                    ProtectedPacket {
                        space: match long.kind() {
                            LongKind::Initial { .. } => SpaceId::Initial,
                            LongKind::Handshake => SpaceId::Handshake,
                            LongKind::ZeroRtt => SpaceId::DATA,
                        },
                        version: Some(long.version()),
                        kind: long.kind().packet_type(),
                        dcid: long.dcid(),
                        scid: Some(long.scid()),
                        protected: long.protected(),
                        known: false,
                        skip: datagram.len() - before,
                        len: before - packets.rest().len(),
                    }
                }
                Ok(Packet::Short(short)) => self.found_short(&short, datagram.len() - before, None),
                other => {
                    let now = self.now;
                    let followed = match other {
                        Ok(Packet::Retry(retry)) => self.on_retry(now, &retry),
                        Ok(Packet::VersionNegotiation(packet)) => {
                            self.on_version_negotiation(now, &packet)
                        }
                        _ => false,
                    };
                    if !followed {
                        let trigger = if other.is_ok() { "unsupported" } else { "invalid" };
                        self.drop_packet(None, before - packets.rest().len(), trigger);
                    }
                    continue;
                }
            };
            return Some(found);
        }
    }

    /// Returns false for an Initial packet with a token at a client. Servers send no tokens in
    /// Initial packets, so the client discards the packet (RFC 9000 s.17.2.2).
    fn takes_token_of(&self, kind: LongKind<'_>) -> bool {
        self.side == Side::Server
            || !matches!(kind, LongKind::Initial { token } if !token.is_empty())
    }

    /// Returns why a packet with a long header is discarded unopened, as a trigger of the log.
    /// Returns `None` if it is not discarded. `size` is the size of its datagram.
    fn discards_long(
        &self,
        found: &ProtectedPacket,
        from: From,
        size: usize,
    ) -> Option<&'static str> {
        let scid = found.scid?;
        if !self.ids.is_of_peer(scid) {
            // RFC 9000 s.7.2.
            return Some("connection_unknown");
        }
        if self.side == Side::Client {
            return None;
        }
        // RFC 9000 s.14.1: this applies to every Initial packet, not only the first. Servers may
        // send small ones that only acknowledge.
        let small = found.space == SpaceId::Initial && size < MIN_INITIAL_DATAGRAM;
        // RFC 9000 s.9: the handshake stays on its path. A NAT may change the client's address in
        // the last round trip. Handshake packets then complete the handshake, but they neither
        // migrate it nor validate the new address.
        let moved = matches!(from, From::New(..))
            && found.space != SpaceId::Handshake
            && !self.handshake.is_confirmed();
        (small || moved).then_some("rejected")
    }

    /// Processes a packet. Returns true if the packet is authentic.
    pub(super) fn handle_packet(
        &mut self,
        hooks: impl Presence,
        now: Timestamp,
        found: ProtectedPacket,
        origin: &mut Origin,
        bytes: &mut [u8],
    ) -> bool {
        if let Some(trigger) = self.discards_long(&found, origin.from, origin.size) {
            self.drop_packet(Some(found.kind), found.len, trigger);
            return false;
        }
        let ours = self.is_ours(&found, origin.from);
        let readiness = self.readiness(&found);
        if ours && readiness == Readiness::TooEarly {
            let kept = self.keep_waiting(found, origin.from, origin.ecn, bytes);
            if !kept {
                self.drop_packet(Some(found.kind), found.len, "key_unavailable");
            }
            return false;
        }
        let ours = ours && readiness == Readiness::Ready;
        let header = RxHeader {
            protected: found.protected,
            kind: found.kind,
            space: found.space,
            version: found.version,
            placed: false,
        };
        let opened = ours.then(|| self.open_packet(hooks, now, &header, bytes)).flatten();
        let Some(opened) = opened else {
            let trigger = match (ours, self.keys.has(found.space)) {
                (false, _) => "connection_unknown",
                (true, false) => "key_unavailable",
                (true, true) => "decryption_failure",
            };
            self.drop_packet(Some(found.kind), found.len, trigger);
            return false;
        };
        if self.is_duplicate(hooks, found.space, opened.number) {
            self.drop_packet(Some(found.kind), found.len, "duplicate");
            return true;
        }
        self.stats.packets_received += 1;
        let path = self.settle(now, origin.from, origin.size, found.space, found.dcid);
        if found.space.is_data() {
            origin.from = From::Known(path);
        }
        self.ids.set_used(found.dcid);
        self.on_authentic(now, found.space, found.version.zip(found.scid));
        let packet = RxPacket {
            space: found.space,
            kind: found.kind,
            number: opened.number,
            path,
            ecn: origin.ecn,
            dcid: found.dcid.as_bytes(),
        };
        self.take_opened(hooks, now, &packet, &opened, bytes);
        true
    }

    /// Returns true if a packet has one of our connection IDs, and its datagram is on the path of
    /// this ID.
    fn is_ours(&self, found: &ProtectedPacket, from: From) -> bool {
        let ours = match found.space {
            SpaceId::Data(path) if path != PathId::ZERO => self.takes_packets(path),
            _ => found.known || self.ids.local.contains(found.dcid),
        };
        // All packets of a datagram belong to the path of the first one.
        let strange =
            |key| self.paths.get(key).is_some_and(|p| SpaceId::Data(p.id()) != found.space);
        ours && !(self.multipath.is_some()
            && found.space.is_data()
            && matches!(from, From::Known(key) if strange(key)))
            || self.side == Side::Server
                && (found.space == SpaceId::Initial || found.is_early())
                && found.dcid == self.ids.original_dcid()
    }

    /// Returns true if the packet was received before. RFC 9000 s.12.3: no packet is processed
    /// twice, whatever a hook answers.
    #[inline(always)]
    pub(super) fn is_duplicate(&mut self, hooks: impl Presence, id: SpaceId, number: u64) -> bool {
        let space = self.spaces.get(id);
        let duplicate = space.is_some_and(|space| space.received.is_duplicate(number));
        hooks.decide(self, Operation::IsDuplicate, (id, number), duplicate) || duplicate
    }

    /// Returns true if packets of a path ID other than 0 are accepted: the path ID is in use, or
    /// may be used from now on.
    fn takes_packets(&self, path: PathId) -> bool {
        self.spaces.get(SpaceId::Data(path)).is_some() || self.may_begin_path(path)
    }

    /// Counts and logs a dropped packet. `trigger` is the reason, as a trigger of the log.
    pub(super) fn drop_packet(
        &mut self,
        kind: Option<PacketType>,
        length: usize,
        trigger: &'static str,
    ) {
        self.stats.packets_dropped += 1;
        #[cfg(feature = "qlog")]
        self.log_dropped(kind, length, trigger);
        #[cfg(not(feature = "qlog"))]
        let _ = (kind, length, trigger);
    }
}
