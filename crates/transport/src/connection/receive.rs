//! From datagrams to frames (RFC 9000 s.12.2, RFC 9001 s.5).

use equic_wire::frame::{Frame, FrameError, FrameErrorKind, FrameType, Frames, Stream};
use equic_wire::packet::{
    Datagram, LongInvariant, LongKind, MIN_INITIAL_DATAGRAM, Packet, PacketType, ParseOptions,
    Protected, ShortPacket,
};
use equic_wire::{ConnectionId, KnownVersion, PacketNumber, Reader, ResetToken, Side};

use rustls::quic::PacketKey;

use super::acknowledgements::EARLY_PACKETS;
use super::close::CloseReason;
use super::migration::From;
use super::paths::PathKey;
use super::presence::{MayBeAttached, NoneAttached, Presence};
use super::space::{PathId, SpaceId};
use super::waiting::Readiness;
use super::{Connection, DatagramMeta};
use crate::Timestamp;
use crate::crypto::{OpenError, header_mask};
use crate::operation::{Bytes, Operation, Word};
use crate::received::{AckPolicy, EcnCodepoint};
use crate::violation::Violation;

impl Word for EcnCodepoint {
    fn to_word(self) -> u64 {
        // As in the IP header (RFC 3168 s.5).
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
    /// Of a long header.
    scid: Option<ConnectionId>,
    protected: Protected,
    /// Of a long header.
    version: Option<KnownVersion>,
    /// True if the Destination Connection ID has just been found among the IDs that we issued for
    /// path 0. False if it was not looked up.
    known: bool,
    /// Bytes before it that are no packet of ours.
    skip: usize,
    len: usize,
}

impl ProtectedPacket {
    /// A packet with a short header, as if it were of this space.
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

    /// Creates a packet with a short header that fills a datagram of this length. Its connection ID
    /// is one of ours, for the path ID of the space.
    pub(super) fn of_short(
        (space, dcid): (SpaceId, ConnectionId),
        protected: Protected,
        len: usize,
    ) -> ProtectedPacket {
        ProtectedPacket {
            space,
            kind: PacketType::OneRtt,
            dcid,
            scid: None,
            version: None,
            protected,
            known: space == SpaceId::DATA,
            skip: 0,
            len,
        }
    }

    /// It is kept for later: IDs may come and go until then.
    pub(super) fn for_later(self) -> ProtectedPacket {
        ProtectedPacket { known: false, ..self }
    }

    /// True if the packet is a 0-RTT packet.
    pub(super) fn is_early(&self) -> bool {
        self.kind == PacketType::ZeroRtt
    }
}

/// An opened packet.
struct DecryptedPacket {
    number: u64,
    /// Range of the packet's bytes that its frames take.
    payload: std::ops::Range<usize>,
    /// Its reserved bits are as they must be.
    sound: bool,
}

/// Operations that are passed over where a STREAM frame goes to its stream at once: who is attached to one of these is
/// shown every frame.
const PASSED_OVER: u128 =
    Operation::bits(&[Operation::ParseFrame, Operation::CheckFrame, Operation::ProcessFrame]);

impl Connection {
    /// A datagram came. It is decrypted in place.
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

    /// `arrival` is passed by reference, so that it is not copied for each datagram. If a CPU reads
    /// bytes that it has just stored in different pieces, it waits until all its earlier stores are
    /// in its cache. Those stores are the data of the last packet.
    #[inline(always)]
    fn take_in(&mut self, now: Timestamp, arrival: &DatagramMeta, datagram: &mut [u8]) {
        self.now = now;
        #[cfg(feature = "qlog")]
        self.log_datagram_received(arrival.ecn, datagram);
        if self.hooks.is_empty() {
            if self.take_plain_datagram(NoneAttached, now, arrival, datagram) {
                return;
            }
            self.take_datagram(NoneAttached, now, *arrival, datagram);
        } else {
            if self.take_plain_datagram(MayBeAttached, now, arrival, datagram) {
                return;
            }
            self.take_datagram(MayBeAttached, now, *arrival, datagram);
        }
        self.run_requests();
        #[cfg(feature = "qlog")]
        self.log_changes();
    }

    fn take_datagram(
        &mut self,
        hooks: impl Presence,
        now: Timestamp,
        arrival: DatagramMeta,
        datagram: &mut [u8],
    ) {
        let ecn = arrival.ecn;
        self.stats.datagrams_received += 1;
        self.stats.bytes_received += datagram.len() as u64;
        let mut path = if self.multipath.is_some() { self.path_id_of(datagram) } else { None };
        let Some(mut from) = self.find_path(&arrival, path.unwrap_or(PathId::ZERO)) else {
            self.drop_packet(None, datagram.len(), "rejected");
            return;
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
            return;
        }
        if self.closing.is_closed() {
            self.closing.on_datagram();
        }
        let size = datagram.len();
        let last = datagram.last_chunk::<{ ResetToken::LEN }>().copied();
        let (mut at, mut opened) = (0, false);
        while let Some(found) = self.find(&datagram[at..], path.take()) {
            let (packet, rest) = datagram[at + found.skip..].split_at_mut(found.len);
            let more = !rest.is_empty();
            at += found.skip + found.len;
            let whole = (&mut from, size);
            opened |= self.handle_packet(hooks, now, ecn, found, whole, packet);
            if !more || self.closing.is_drained() {
                break;
            }
        }
        self.replay_waiting(now);
        // RFC 9000 s.10.3.1: only what could not be opened can be a reset, whatever its header looks like.
        if !opened
            && let Some(token) = last
            && self.is_stateless_reset(datagram, ResetToken(token))
        {
            self.drain(now, CloseReason::StatelessReset);
        }
    }

    /// A hook may overlook a stateless reset, and makes none of what is none.
    pub(super) fn is_stateless_reset(&mut self, datagram: &[u8], token: ResetToken) -> bool {
        let reset = self.ids.is_reset(token);
        self.decide_on(Operation::IsStatelessReset, (), datagram, reset) && reset
    }

    /// Path ID of a datagram's first packet: that for which we gave out its connection ID. None: it has a long header,
    /// so that it is of the handshake, and of path 0 (RFC 8999 s.5.1), or the ID is none of ours.
    fn path_id_of(&self, datagram: &[u8]) -> Option<PathId> {
        let id = datagram.get(1..).filter(|_| datagram[0] & 0x80 == 0)?;
        self.ids.path_of(ConnectionId::cut(id.get(..self.ids.scid().len())?))
    }

    /// The space of a 1-RTT packet to this ID of ours.
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

    /// The next packet of a datagram that may be ours; `path`: the path ID of the ID behind the first byte, if that was
    /// looked up.
    fn find(&mut self, datagram: &[u8], path: Option<PathId>) -> Option<ProtectedPacket> {
        let options =
            ParseOptions { dcid_len: self.ids.scid().len(), greased_fixed_bit: self.config.grease };
        // Nearly all are: the way for all kinds carries about what only long headers have.
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

    /// False for an Initial packet with a token that came to a client: servers send none, so the client discards it
    /// (RFC 9000 s.17.2.2).
    fn takes_token_of(&self, kind: LongKind<'_>) -> bool {
        self.side == Side::Server
            || !matches!(kind, LongKind::Initial { token } if !token.is_empty())
    }

    /// Returns why a packet with a long header is discarded unopened, in the words of the log, or `None` if it is not.
    /// `size` is that of its datagram.
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
        // RFC 9000 s.14.1: each of them, not only the first. Servers may send small ones that only acknowledge.
        let small = found.space == SpaceId::Initial && size < MIN_INITIAL_DATAGRAM;
        // RFC 9000 s.9: the handshake stays on its path. A NAT may give the client another address in its last round
        // trip: Handshake packets complete it, but do not move it and prove nothing of where they came from.
        let moved = matches!(from, From::New(..))
            && found.space != SpaceId::Handshake
            && !self.handshake.is_confirmed();
        (small || moved).then_some("rejected")
    }

    /// Processes a packet; returns whether it proved to be the peer's.
    pub(super) fn handle_packet(
        &mut self,
        hooks: impl Presence,
        now: Timestamp,
        ecn: EcnCodepoint,
        found: ProtectedPacket,
        whole: (&mut From, usize),
        packet: &mut [u8],
    ) -> bool {
        if let Some(trigger) = self.discards_long(&found, *whole.0, whole.1) {
            self.drop_packet(Some(found.kind), found.len, trigger);
            return false;
        }
        let ours = match found.space {
            SpaceId::Data(path) if path != PathId::ZERO => self.takes_packets(path),
            _ => found.known || self.ids.local.contains(found.dcid),
        };
        // A datagram is of one path: that of its first packet.
        let strange =
            |key| self.paths.get(key).is_some_and(|p| SpaceId::Data(p.id()) != found.space);
        let ours = ours
            && !(self.multipath.is_some()
                && found.space.is_data()
                && matches!(*whole.0, From::Known(key) if strange(key)))
            || self.side == Side::Server
                && (found.space == SpaceId::Initial || found.is_early())
                && found.dcid == self.ids.original_dcid();
        let readiness = self.readiness(&found);
        if ours && readiness == Readiness::TooEarly {
            let kept = self.keep_waiting(found, *whole.0, ecn, packet);
            if !kept {
                self.drop_packet(Some(found.kind), found.len, "key_unavailable");
            }
            return false;
        }
        let ours = ours && readiness == Readiness::Ready;
        let found = &found;
        let Some(opened) = ours.then(|| self.open_packet(hooks, now, found, packet)).flatten()
        else {
            let trigger = match (ours, self.keys.has(found.space)) {
                (false, _) => "connection_unknown",
                (true, false) => "key_unavailable",
                (true, true) => "decryption_failure",
            };
            self.drop_packet(Some(found.kind), found.len, trigger);
            return false;
        };
        let input = (found.space, opened.number);
        // RFC 9000 s.12.3: whatever a hook says, none is taken twice.
        let space = self.spaces.get(found.space);
        let duplicate = space.is_some_and(|space| space.received.is_duplicate(opened.number));
        if hooks.decide(self, Operation::IsDuplicate, input, duplicate) || duplicate {
            self.drop_packet(Some(found.kind), found.len, "duplicate");
            return true;
        }
        self.stats.packets_received += 1;
        let path = self.settle(now, *whole.0, whole.1, (found.space, found.dcid));
        if found.space.is_data() {
            *whole.0 = From::Known(path);
        }
        self.on_authentic(now, found);
        if !opened.sound {
            // RFC 9000 s.17.2.
            self.fail(now, Violation::ReservedBits);
            return true;
        }
        let payload = &packet[opened.payload.clone()];
        let number = opened.number;
        #[cfg(feature = "qlog")]
        self.log_received(path, number, packet, payload);
        let input = (found.space, number, path, ecn);
        hooks.notify_on(self, Operation::AfterPacketRead, input, payload);
        let input = (found.space, number, path);
        let operation = Operation::ParseFrames;
        let accepted =
            hooks.decide_on_frame(self, operation, 0, input, Some(payload), |connection| {
                connection.handle_payload(hooks, now, ecn, found, (number, path), payload)
            });
        if !accepted {
            // As if it had been lost: the peer will send it again.
            self.drop_packet(Some(found.kind), found.len, "rejected");
        }
        true
    }

    /// True if packets of a path ID other than 0 are taken in: it is in use, or may be from now on.
    fn takes_packets(&self, path: PathId) -> bool {
        self.spaces.get(SpaceId::Data(path)).is_some() || self.may_begin_path(path)
    }

    /// A packet is not taken in; `trigger` says why, in the words of the log.
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

    /// Removes header and packet protection; none: it is to be dropped.
    fn open_packet(
        &mut self,
        hooks: impl Presence,
        now: Timestamp,
        found: &ProtectedPacket,
        packet: &mut [u8],
    ) -> Option<DecryptedPacket> {
        // RFC 9001 s.6.6: no packet more.
        if self.forgeries.is_spent() {
            return None;
        }
        let sample = *found.protected.sample(packet)?;
        let largest = self.spaces.get(found.space).and_then(|space| space.received.largest());
        let largest = largest.map(|(number, _)| number);
        // Of another version than that spoken now: the keys are not kept (RFC 9369 s.4).
        let other = found.version.filter(|version| *version != self.version).map(|version| {
            let dcid = self.start.retry().unwrap_or(self.ids.original_dcid());
            self.start.initial_keys(self.side, version, dcid)
        });
        let other = other.filter(|_| found.space == SpaceId::Initial);
        let header_key = match &other {
            Some(keys) => &*keys.remote.header,
            None => self.keys.remote_header(found.kind)?,
        };
        let mask = header_mask(header_key, &sample)?;
        let header = found.protected.remove(packet, &mask)?;
        let truncated = header.packet_number();
        let length = truncated.len().bytes();
        let input = (found.space, truncated.bits(), length, largest);
        let usual = truncated.restore(largest.and_then(PacketNumber::new));
        let usual = usual.map(PacketNumber::get);
        let number = hooks.decide(self, Operation::RestorePacketNumber, input, usual)?;
        let (head, payload) = packet.split_at_mut(header.header_len());
        let limits = self.config.key_limits;
        // Or what the key stands (RFC 9001 s.6.6).
        let open = |key: &dyn PacketKey, payload: &mut [u8]| {
            let opened = key.decrypt_in_place(number, head, payload);
            opened.map(|opened| opened.len()).map_err(|_| limits.integrity(key.integrity_limit()))
        };
        let opened = match (found.kind, &other) {
            (PacketType::OneRtt, _) => {
                let SpaceId::Data(path) = found.space else { return None };
                let bit = header.key_phase()?;
                self.open_one_rtt(now, (path, number), bit, head, payload, largest)?
            }
            (_, Some(keys)) => open(&*keys.remote.packet, payload),
            (kind, None) => open(self.keys.remote_packet(kind)?, payload),
        };
        let len = match opened {
            Ok(len) => len,
            Err(limit) => {
                self.on_forgery(now, limit);
                return None;
            }
        };
        let start = header.header_len();
        let sound = header.check_reserved_bits().is_ok();
        Some(DecryptedPacket { number, payload: start..start + len, sound })
    }

    /// Decrypts a 1-RTT packet with this Key Phase bit. Returns the length of its payload. If the
    /// packet is not authentic, returns the number of such packets that its keys permit as an
    /// error. Returns `None` if the connection has failed.
    #[inline(always)]
    pub(super) fn open_one_rtt(
        &mut self,
        now: Timestamp,
        (path, number): (PathId, u64),
        bit: bool,
        head: &[u8],
        payload: &mut [u8],
        largest: Option<u64>,
    ) -> Option<Result<usize, u64>> {
        let asked = self.keys.one_rtt().is_some_and(|keys| keys.asks_how_long(bit));
        let retain = if asked { now + self.longest_pto() * 3 } else { now };
        let keys = self.keys.one_rtt_mut()?;
        Some(match keys.open((path, number), bit, head, payload, largest, retain) {
            Ok((opened, _)) => Ok(opened.len()),
            Err(OpenError::Forged) => Err(keys.integrity_limit()),
            Err(OpenError::KeyUpdate) => {
                self.fail(now, Violation::KeyUpdate);
                return None;
            }
        })
    }

    /// Takes note of all that follows from a packet's being authentic, whatever its frames say.
    fn on_authentic(&mut self, now: Timestamp, found: &ProtectedPacket) {
        self.activity.on_received(now);
        self.ids.set_used(found.dcid);
        if let Some(version) = found.version {
            self.adopt_version(version);
        } else {
            self.on_one_rtt_packet(now);
        }
        if let Some(scid) = found.scid {
            // RFC 9000 s.7.2: what could not be opened names nobody.
            self.ids.on_peer_packet(scid);
        }
        if found.space == SpaceId::Handshake {
            // RFC 9000 s.8.1: whoever has Handshake keys has our Initial.
            self.path_mut().on_proof();
            if self.side == Side::Server {
                self.discard(now, SpaceId::Initial);
            }
        }
    }

    /// False: the packet is to be treated as lost.
    pub(super) fn handle_payload(
        &mut self,
        hooks: impl Presence,
        now: Timestamp,
        ecn: EcnCodepoint,
        found: &ProtectedPacket,
        (number, path): (u64, PathKey),
        payload: &[u8],
    ) -> bool {
        if let Err(error) = Frames::new(payload) {
            self.fail(now, error);
            return true;
        }
        self.handle_frames(hooks, now, ecn, found, (number, path), (payload, false, true))
    }

    /// Handles the rest of a payload. The flags say whether the part before it elicits
    /// acknowledgements, and whether all of that part probes the path. Returns false if the packet
    /// must be treated as lost.
    pub(super) fn handle_frames(
        &mut self,
        hooks: impl Presence,
        now: Timestamp,
        ecn: EcnCodepoint,
        found: &ProtectedPacket,
        (number, path): (u64, PathKey),
        (mut rest, mut eliciting, mut probing): (&[u8], bool, bool),
    ) -> bool {
        let id = found.space;
        let plain =
            hooks.may_pass_over(self, PASSED_OVER) && id.is_data() && !self.closing.is_closed();
        while !rest.is_empty() {
            // What most frames are, taken in without asking what else they might be. What is wrong with one is found
            // out below.
            if plain
                && let Some((stream, behind)) = Stream::first_of(rest)
                && self.take_stream(&stream).is_ok()
            {
                (rest, eliciting, probing) = (behind, true, false);
                continue;
            }
            let mut reader = Reader::new(rest);
            let kind = match FrameType::read(&mut reader) {
                Ok(kind) => kind,
                Err(error) => {
                    self.fail(now, error);
                    return true;
                }
            };
            let Some(accepted) =
                self.handle_one(hooks, now, found, (number, path), kind, &mut rest)
            else {
                return true;
            };
            eliciting |= kind.is_ack_eliciting() && !self.is_silent(kind);
            probing &= kind.is_probing();
            if !accepted {
                return false;
            }
            if self.closing.is_closed() {
                return true;
            }
        }
        self.handled(hooks, now, (id, number, path), (eliciting, probing), ecn);
        true
    }

    /// All frames of a packet were handled.
    #[inline(always)]
    pub(super) fn handled(
        &mut self,
        hooks: impl Presence,
        now: Timestamp,
        (id, number, path): (SpaceId, u64, PathKey),
        (eliciting, probing): (bool, bool),
        ecn: EcnCodepoint,
    ) {
        let input = (id, number, eliciting);
        hooks.notify(self, Operation::AfterParseFrames, input);
        let largest = self.spaces.get(id).and_then(|space| space.received.largest());
        if !probing && largest.is_none_or(|(largest, _)| number > largest) {
            self.on_peer_packet(now, path);
        }
        let input = (id, number, eliciting, ecn);
        // A packet that is not recorded would be processed twice.
        hooks.act_always(self, Operation::RecordPacket, input, |connection| {
            connection.record_packet(hooks, now, id, number, eliciting, ecn);
        });
    }

    /// As [`Connection::handle_payload`], of a 1-RTT packet of path 0.
    #[cfg(test)]
    pub(super) fn take_payload(
        &mut self,
        now: Timestamp,
        number: u64,
        path: PathKey,
        payload: &[u8],
    ) -> bool {
        let (found, ecn) = (ProtectedPacket::in_space(SpaceId::DATA), EcnCodepoint::NotEct);
        if self.hooks.is_empty() {
            self.handle_payload(NoneAttached, now, ecn, &found, (number, path), payload)
        } else {
            self.handle_payload(MayBeAttached, now, ecn, &found, (number, path), payload)
        }
    }

    /// True if `kind` is a hook's own frame type that does not elicit acknowledgements.
    fn is_silent(&self, kind: FrameType) -> bool {
        !kind.is_known()
            && self.hooks.owner(kind.0.get()).is_some_and(|(_, own)| !own.ack_eliciting)
    }

    /// The frame at the start of `rest`, which is moved on; none: the connection has failed.
    fn handle_one(
        &mut self,
        hooks: impl Presence,
        now: Timestamp,
        found: &ProtectedPacket,
        (number, path): (u64, PathKey),
        kind: FrameType,
        rest: &mut &[u8],
    ) -> Option<bool> {
        let (id, frame_type, all) = (found.space, kind.0.get(), *rest);
        let foreign = !kind.is_known();
        let owned = foreign && self.hooks.owner(frame_type).is_some();
        let skipped = foreign && !owned && self.extensions.skips(frame_type);
        if (owned || skipped) && found.kind != PacketType::OneRtt {
            self.fail(now, Violation::ExtensionFrameOutsideOneRtt);
            return None;
        }
        if skipped {
            return self.skip_frame(now, rest);
        }
        let answer = hooks.begin_with(self, Operation::ParseFrame, frame_type, id, Bytes::In(all));
        let failed = owned && answer.is_none() && self.hooks.owner(frame_type).is_none();
        if failed && self.extensions.skips(frame_type) {
            let outcome = self.skip_frame(now, rest);
            let length = all.len() - rest.len();
            hooks.end_with(self, Operation::ParseFrame, frame_type, id, Bytes::In(all), length);
            return outcome;
        }
        let mut reader = Reader::new(all);
        // A frame that the transport knows is not cut elsewhere; a hook may find fault with it.
        let parsed = match answer {
            Some(0) => None,
            Some(_) if owned => None,
            Some(_) | None => Some(Frame::read(&mut reader)),
        };
        let own_length = match &parsed {
            Some(Ok(_)) => all.len() - reader.rest().len(),
            Some(Err(_)) | None => 0,
        };
        let told = answer.unwrap_or(own_length);
        hooks.end_with(self, Operation::ParseFrame, frame_type, id, Bytes::In(all), told);
        let length = if parsed.is_some() { own_length } else { told };
        // By reference, as a frame is long and would be copied each time.
        let frame = match &parsed {
            None if length > 0 && length <= all.len() => None,
            None => {
                self.fail(now, Violation::ExtensionFrame);
                return None;
            }
            Some(Ok(frame)) => Some(frame),
            Some(Err(error)) => {
                self.fail(now, *error);
                return None;
            }
        };
        let (bytes, others) = all.split_at(length);
        *rest = others;
        // A hook may forbid what the RFC allows, and allows nothing else.
        let wrong = if kind.allowed_in(found.kind) == Some(false) {
            Some(FrameErrorKind::WrongPacketType)
        } else {
            (!kind.may_be_sent_by(!self.side)).then_some(FrameErrorKind::WrongSender)
        };
        let lawful = wrong.is_none();
        let operation = Operation::CheckFrame;
        let allowed = hooks.decide_on_frame(self, operation, frame_type, id, None, |_| lawful);
        if !(allowed && lawful) {
            match wrong {
                Some(wrong) => self.fail(now, FrameError { frame_type: kind, kind: wrong }),
                None => self.fail(now, Violation::FrameRejected),
            }
            return None;
        }
        let process = |connection: &mut Connection| match frame {
            // A hook has reconstructed the packet before it arrived, so the application has the data.
            Some(Frame::Datagram(_)) if connection.extensions.was_recovered(number) => true,
            Some(frame) => connection.handle_frame(now, id, path, found.dcid, frame),
            // A hook knows where the frame ends. It does not process it, or it failed and was
            // detached. The frame is skipped, so that a failing extension does not end the connection.
            None => true,
        };
        let (operation, input) = (Operation::ProcessFrame, (id, number, path));
        let accepted =
            hooks.decide_on_frame(self, operation, frame_type, input, Some(bytes), process);
        Some(accepted)
    }

    /// Skips a frame of an extension that is not there, or no longer: type, length, and what follows.
    fn skip_frame(&mut self, now: Timestamp, rest: &mut &[u8]) -> Option<bool> {
        let mut reader = Reader::new(rest);
        if reader.varint().and_then(|_| reader.varint_bytes()).is_err() {
            self.fail(now, Violation::ExtensionFrameTruncated);
            return None;
        }
        *rest = reader.rest();
        Some(true)
    }

    #[inline(always)]
    fn record_packet(
        &mut self,
        hooks: impl Presence,
        now: Timestamp,
        id: SpaceId,
        number: u64,
        eliciting: bool,
        ecn: EcnCodepoint,
    ) {
        let policy = self.ack_policy(hooks, id, number);
        // A frame of the packet may have discarded its space.
        if let Some(space) = self.space(id) {
            space.received.on_received(now, number, eliciting, ecn, &policy);
        }
    }

    fn ack_policy(&mut self, hooks: impl Presence, id: SpaceId, number: u64) -> AckPolicy {
        // The longest delay that the peer expects, also for the first packets.
        let longest = if id.is_data() { self.acks.policy() } else { AckPolicy::IMMEDIATE };
        let usual =
            if id.is_data() && number < EARLY_PACKETS { self.acks.early_policy() } else { longest };
        let words = |policy: AckPolicy| {
            (policy.ack_eliciting_threshold, policy.max_ack_delay, policy.reordering_threshold)
        };
        let policy = |(ack_eliciting_threshold, max_ack_delay, reordering_threshold)| AckPolicy {
            ack_eliciting_threshold,
            max_ack_delay,
            reordering_threshold,
        };
        let bound = |_: &mut Connection, answer| {
            words(Connection::bound_ack_policy(&longest, policy(answer)))
        };
        policy(hooks.decide_within(self, Operation::AckPolicy, id, words(usual), bound))
    }
}
