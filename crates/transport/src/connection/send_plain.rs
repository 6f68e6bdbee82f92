//! Early exit of the way out (`send.rs`) for a datagram that is one 1-RTT packet with only stream
//! data. Most datagrams of a transfer are like this. The early exit only decides that nothing else
//! is due, and that a path has room. The packet is then filled, protected and recorded as all
//! others (`send_packet.rs`).
//!
//! A seed gives the same bytes with and without the early exit, and tests compare them.

use equic_wire::Writer;
use equic_wire::packet::ShortHeader;

use super::budget::Budget;
use super::packet_builder::Padding;
use super::paths::PathKey;
use super::presence::{NoneAttached, Presence};
use super::send_packet::{Common, TxPacket, TxSent};
use super::space::SpaceId;
use super::{Connection, Transmit};
use crate::Timestamp;
use crate::operation::Operation;
use crate::path::BASE_SIZE;
use crate::received::EcnCodepoint;

/// Operations that the early exit skips. If a hook is attached to one of them, no datagram uses the
/// early exit.
const PASSED_OVER: u128 = Operation::bits(&[
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

/// [`PASSED_OVER`] without [`Operation::SelectPath`]. It applies if a hook has
/// chosen the path.
pub(super) const PASSED_OVER_BUT_CHOICE: u128 =
    PASSED_OVER & !Operation::bits(&[Operation::SelectPath]);

impl Connection {
    /// Returns the next datagram if only stream data is due, on the path `chosen` by a hook, or
    /// else on the best path that has room. Returns `None` if the datagram may have other content,
    /// or if no path has room. The rest of the way out then finds the same state as without this
    /// call.
    pub(super) fn next_stream_datagram(
        &mut self,
        hooks: impl Presence,
        now: Timestamp,
        chosen: Option<PathKey>,
        buffer: &mut [u8],
    ) -> Option<Transmit> {
        let skipped = if chosen.is_some() { PASSED_OVER_BUT_CHOICE } else { PASSED_OVER };
        if buffer.len() < usize::from(BASE_SIZE)
            || self.held.is_held()
            || !hooks.may_pass_over(self, skipped)
            || !self.is_streams_only()
        {
            return None;
        }
        let budget = self.budget_of_streams(now, chosen)?;
        let size = budget.size.min(buffer.len());
        let packet = self.stream_packet(budget.path, budget.size)?;
        let sent = self.transmit_streams(now, packet, &mut buffer[..size])?;
        self.on_data_sent(budget.path);
        let ecn = if sent.marked { EcnCodepoint::Ect0 } else { EcnCodepoint::NotEct };
        Some(self.transmit_on(budget.path, ecn, sent.size))
    }

    /// Returns true if only stream data waits, and nothing remains to be negotiated with the peer.
    /// The caller must check what belongs to a path ([`Connection::pending_on`]).
    pub(super) fn is_streams_only(&mut self) -> bool {
        self.keys.are_one_rtt_alone()
            && self.handshake.is_confirmed()
            && self.start.unknown().is_none()
            && !self.is_logged()
            && self.pending().is_streams_only()
    }

    /// Returns true if events are logged. All packets are then sent
    /// without the early exit.
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

    /// Returns the packet of a datagram of `size` bytes with only stream data. Further datagrams on
    /// the path can use it, too. Returns `None` if there are no 1-RTT keys.
    #[inline(always)]
    pub(super) fn stream_packet(&mut self, key: PathKey, size: usize) -> Option<TxPacket> {
        let path = &self.paths[key];
        let (space, marked) = (SpaceId::Data(path.id()), path.marks());
        let key_phase = self.keys.one_rtt()?.bit();
        let dcid = self.dcid(key);
        let header = ShortHeader { dcid, spin: false, key_phase, fixed_bit: true };
        let packet = TxPacket::new(space, Budget::of_streams(key, size, true), Padding::NONE);
        Some(TxPacket { common: Some(Common { header, marked }), ..packet })
    }

    /// Writes a datagram with only stream data. Returns `None` if nothing was written.
    #[inline(always)]
    pub(super) fn transmit_streams(
        &mut self,
        now: Timestamp,
        packet: TxPacket,
        buffer: &mut [u8],
    ) -> Option<TxSent> {
        let mut writer = Writer::new(buffer);
        let sent = self.transmit_packet(NoneAttached, now, packet, &mut writer)?;
        self.on_datagram_sent(packet.place.path, sent.size);
        Some(sent)
    }
}
