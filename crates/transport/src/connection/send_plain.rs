//! The fast path for an outgoing datagram that is one 1-RTT packet with only stream data. Most
//! datagrams of a transfer are like this. The fast path looks up only what such a packet needs, and
//! only once.
//!
//! For the same packet, the fast path has the same effects as the usual way (`send.rs`,
//! `write.rs`), in the same order. A seed therefore gives the same bytes on both, and tests compare
//! them. If anything but stream data is due, the datagram is built the usual way.
//! `multipath/send.rs` chooses among several paths.

use equic_wire::frame::Stream;
use equic_wire::packet::{OpenPacket, ShortHeader};
use equic_wire::{PacketNumber, StreamId, Writer};

use super::packet_builder::TAG_LEN;
use super::packet_numbers::PacketNumbers;
use super::path::Path;
use super::presence::NoneAttached;
use super::send::{SentPacketKind, TxPlace};
use super::space::{Sent, SentFrame, SentFrames, SpaceId};
use super::write::{MIN_DATA, MIN_STREAM, varint};
use super::{Connection, Transmit};
use crate::Timestamp;
use crate::congestion::Rate;
use crate::crypto::header_mask;
use crate::operation::Operation;
use crate::path::BASE_SIZE;
use crate::received::EcnCodepoint;
use crate::stream::WrittenPiece;

/// Operations that the fast path skips. If a hook is attached to one of them, every packet is sent
/// the usual way.
pub(super) const PASSED_OVER: u128 = Operation::bits(&[
    Operation::ApplicationWrote,
    Operation::SelectPath,
    Operation::DatagramSize,
    Operation::CongestionWindow,
    Operation::PacingRate,
    Operation::PaceUntil,
    Operation::ProbeMtu,
    Operation::HasContent,
    Operation::AckIsDue,
    Operation::SelectACKPath,
    Operation::NextPacketNumber,
    Operation::SpinBit,
    Operation::GenerateHeader,
    Operation::GenerateFrames,
    Operation::KeepRoom,
    Operation::ScheduleStream,
    Operation::CopyStreamData,
    Operation::WriteFrame,
    Operation::PadPacket,
    Operation::ProtectPacket,
    Operation::MarkEcn,
    Operation::SendPacket,
    Operation::CongestionSent,
    Operation::AppLimited,
    Operation::SendDatagram,
]);

/// [`PASSED_OVER`] without [`Operation::SelectPath`]. With several paths, the fast path calls the
/// hooks on that operation.
pub(super) const PASSED_OVER_BUT_CHOICE: u128 =
    PASSED_OVER & !Operation::bits(&[Operation::SelectPath]);

/// Room that a path has for a datagram of stream data.
pub(super) enum Room {
    /// The path is settled ([`Path::is_settled`]), and window and pacer permit a datagram of this
    /// many bytes.
    For(u16),
    /// The congestion window or the pacer does not permit a datagram now.
    Full,
    /// The path is not settled, so the usual way must decide what to send.
    Unknown,
}

/// A run of consecutive packets with only stream data on the same path.
pub(super) struct Run {
    pub place: TxPlace,
    /// True if the datagrams have an ECN mark.
    pub marked: bool,
    header: ShortHeader,
    /// True if a stream is known to have more data after the last packet.
    pub more: bool,
}

/// Returns the room that a path has. If the window or the pacer leaves no room, the path records
/// this, as in the usual way.
#[inline(always)]
pub(super) fn plain_room(path: &mut Path, now: Timestamp) -> Room {
    if !path.is_settled(now) {
        return Room::Unknown;
    }
    path.set_hook_window(None);
    settled_room(path, now, whole_rate)
}

/// Returns the rate at which datagrams leave on a path, rounded down to whole bytes per second, the
/// precision that hooks see. The rate stays the same within one GSO message
/// ([`crate::congestion::Controller::pacing_rate`]).
#[inline(always)]
pub(super) fn whole_rate(path: &Path) -> Rate {
    let rate = path.pacing_rate().as_bytes_per_second() as u64;
    Rate::bytes_per_second(rate as f64)
}

/// Like [`plain_room`]. The last datagram on the path was sent at the same time.
#[inline(always)]
pub(super) fn settled_room(
    path: &mut Path,
    now: Timestamp,
    rate: impl FnOnce(&Path) -> Rate,
) -> Room {
    let mtu = path.mtu();
    if path.window().saturating_sub(path.in_flight()) < u64::from(mtu) {
        path.pace_until(None);
        path.on_window_full(now);
        return Room::Full;
    }
    let until = path.pace(now, rate(path), mtu);
    path.pace_until(until);
    if until.is_some() { Room::Full } else { Room::For(mtu) }
}

impl Connection {
    /// Returns the next datagram if the fast path can send it. Returns `None` if it cannot, or if
    /// there is no datagram. The usual way then finds the same state as without this call.
    pub(super) fn next_plain_datagram(
        &mut self,
        now: Timestamp,
        buffer: &mut [u8],
    ) -> Option<Transmit> {
        if buffer.len() < usize::from(BASE_SIZE) || !self.is_plain() {
            return None;
        }
        let several = self.multipath.is_some();
        let (place, mtu) =
            if several { self.plain_room_of_paths(now)? } else { self.plain_room_of_one(now)? };
        let size = usize::from(mtu).min(buffer.len());
        let transmit = self.write_plain_datagram(now, place, &mut buffer[..size])?;
        if several {
            self.on_data_sent(place.path);
        }
        Some(transmit)
    }

    /// Returns the space, the path and the datagram size if there is only one path. Returns `None`
    /// if acknowledgements or probes are due, or if the path has no room.
    #[inline(always)]
    fn plain_room_of_one(&mut self, now: Timestamp) -> Option<(TxPlace, u16)> {
        let place = TxPlace { space: SpaceId::DATA, path: self.path().key() };
        if !self.pending_on(place).is_empty() {
            return None;
        }
        match plain_room(self.paths.active_mut(), now) {
            Room::For(mtu) => Some((place, mtu)),
            Room::Full | Room::Unknown => None,
        }
    }

    /// Returns true if only stream data waits, and nothing remains to be negotiated with the peer.
    /// The caller must check what belongs to a path ([`Connection::pending_on`]).
    pub(super) fn is_plain(&mut self) -> bool {
        self.keys.are_one_rtt_alone()
            && self.handshake.is_confirmed()
            && self.start.unknown().is_none()
            && !self.is_logged()
            && self.pending().is_streams_only()
    }

    /// Returns true if events are logged. All packets are then sent the usual way.
    #[inline(always)]
    pub(super) fn is_logged(&self) -> bool {
        #[cfg(feature = "qlog")]
        {
            self.qlog.is_some()
        }
        #[cfg(not(feature = "qlog"))]
        {
            false
        }
    }

    /// Returns a datagram of stream data, or `None` if no stream has data.
    pub(super) fn write_plain_datagram(
        &mut self,
        now: Timestamp,
        place: TxPlace,
        buffer: &mut [u8],
    ) -> Option<Transmit> {
        let mut run = self.begin_run(place, self.paths[place.path].marks())?;
        let size = self.write_plain_packet(now, &mut run, buffer)?;
        let path = &self.paths[place.path];
        let ecn = if run.marked { EcnCodepoint::Ect0 } else { EcnCodepoint::NotEct };
        Some(Transmit { destination: path.remote(), source: path.local(), ecn, size })
    }

    /// Begins a run of packets. Returns `None` if there are no 1-RTT keys.
    #[inline(always)]
    pub(super) fn begin_run(&mut self, place: TxPlace, marked: bool) -> Option<Run> {
        let key_phase = self.keys.one_rtt()?.bit();
        let dcid = self.dcid(place.path);
        // `open_plain` sets the Fixed Bit of each packet.
        let header = ShortHeader { dcid, spin: false, key_phase, fixed_bit: true };
        Some(Run { place, marked, header, more: false })
    }

    /// Writes the next packet of a run and returns its size. Returns `None` if no packet was
    /// written.
    #[inline(always)]
    pub(super) fn write_plain_packet(
        &mut self,
        now: Timestamp,
        run: &mut Run,
        buffer: &mut [u8],
    ) -> Option<usize> {
        let (id, key, marked) = (run.place.space, run.place.path, run.marked);
        let space = self.spaces.get_mut(id)?;
        let unused = space.numbers;
        let number = space.numbers.choose(&mut self.rng);
        let number = space.numbers.take(number);
        let acked = space.loss.largest_acked();
        let mut writer = Writer::new(buffer);
        let Some(open) = self.open_plain(&mut writer, number, acked, &mut run.header) else {
            self.restore_numbers(id, unused);
            return None;
        };
        // `open_plain` has checked that there is room for the tag.
        let room = writer.remaining().saturating_sub(TAG_LEN);
        let mut payload = Writer::new(&mut writer.unwritten_mut()[..room]);
        let frames = self.write_plain_streams(&mut payload, &mut run.more);
        let written = payload.position();
        let Some(frames) = frames else {
            // No stream had data after all. The usual way sends whatever is due, with this number.
            self.restore_numbers(id, unused);
            return None;
        };
        self.stats.numbers_skipped += number - unused.next();
        let Some(size) = self.seal_plain(&mut writer, open, written, id, number) else {
            self.send_again(id, number, false, &frames);
            return None;
        };
        if marked {
            self.paths[key].on_marked_sent();
        }
        let content = Sent { frames, marked, path: key, nested: false };
        let kind = SentPacketKind { eliciting: true, in_flight: true, mtu_probe: false, content };
        self.on_packet_sent(NoneAttached, now, id, number, size, kind);
        self.on_datagram_sent(key, size);
        Some(size)
    }

    /// Restores the packet numbers if a packet was not written.
    fn restore_numbers(&mut self, id: SpaceId, unused: PacketNumbers) {
        if let Some(space) = self.space(id) {
            space.numbers = unused;
        }
    }

    /// Writes the header. Returns `None` if there is no room for a packet, or if the peer could not
    /// reconstruct the packet number.
    #[inline(always)]
    fn open_plain(
        &mut self,
        writer: &mut Writer<'_>,
        number: u64,
        acked: Option<u64>,
        header: &mut ShortHeader,
    ) -> Option<OpenPacket> {
        let acked = acked.and_then(PacketNumber::new);
        let truncated = PacketNumber::new(number)?.truncate(acked)?;
        header.fixed_bit = !self.greases_bit();
        let open = header.open(writer, truncated).ok()?;
        (writer.remaining() > TAG_LEN).then_some(open)
    }

    /// Protects a packet whose frames have `written` bytes, and returns its size. Returns `None` if
    /// the keys must not protect more packets.
    #[inline(always)]
    fn seal_plain(
        &mut self,
        writer: &mut Writer<'_>,
        open: OpenPacket,
        written: usize,
        id: SpaceId,
        number: u64,
    ) -> Option<usize> {
        writer.reserve(written).ok()?;
        writer.zeros(open.padding_needed(writer, TAG_LEN)).ok()?;
        let packet = open.finish(writer, TAG_LEN).ok()?;
        let bytes = writer.written_mut();
        let (head, body) = bytes.split_at_mut(packet.header_len);
        let (plain, tag) = body.split_at_mut(body.len() - TAG_LEN);
        let sealed = self.keys.seal(id, number, head, plain)?;
        tag.copy_from_slice(sealed.as_ref());
        let sample = packet.header().sample(bytes)?;
        let mask = header_mask(self.keys.local_header(id)?, sample)?;
        packet.protect(bytes, &mask)?;
        Some(bytes.len())
    }

    /// Fills a packet with STREAM frames and returns them. Returns `None` if no stream had data.
    /// Sets `more` to whether it is known that a stream has more data.
    #[inline(always)]
    fn write_plain_streams(
        &mut self,
        writer: &mut Writer<'_>,
        more: &mut bool,
    ) -> Option<SentFrames> {
        let (mut one, mut several) = (None, Vec::new());
        while writer.remaining() >= MIN_STREAM {
            let remaining = writer.remaining();
            let room = |id: StreamId, offset: u64| {
                let header = Stream::header_len(id, varint(offset), Some(remaining));
                remaining.checked_sub(header).filter(|room| *room >= MIN_DATA).unwrap_or(0)
            };
            *more = false;
            let Some(written) = self.streams.write_piece(writer, room) else { break };
            let WrittenPiece { id, piece, fits, more: left } = written;
            if !fits {
                // `room` has checked this. If it was wrong, the data is sent later.
                self.streams.on_piece_lost(id, piece.range, piece.fin);
                break;
            }
            *more = left;
            let frame = SentFrame::Stream { id, range: piece.range, fin: piece.fin };
            match one.take() {
                None if several.is_empty() => one = Some(frame),
                None => several.push(frame),
                Some(first) => {
                    several = self.spaces.lend_list();
                    several.extend([first, frame]);
                }
            }
        }
        if one.is_none() && !several.is_empty() {
            let frames = SentFrames::take(&mut several);
            self.spaces.take_back(several);
            return Some(frames);
        }
        one.map(SentFrames::One)
    }
}
