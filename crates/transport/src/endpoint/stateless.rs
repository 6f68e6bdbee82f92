//! Answers that need no connection. Each is shorter than the datagram it answers, so that a
//! forged source address gets no more than its forger spends, and two endpoints cannot answer each
//! other for ever (RFC 9000 s.8.1, s.10.3.3).

use std::time::Duration;

use equic_wire::frame::{ConnectionClose, Frame, FrameType};
use equic_wire::packet::{FIXED_BIT, LongHeader, LongInvariant, LongKind, VersionNegotiation};
use equic_wire::{
    ConnectionId, KnownVersion, PacketNumber, ResetToken, Side, TransportErrorCode, VarIntLen,
    Version, Writer,
};
use rand::{Rng, RngCore};

use super::{Endpoint, Received};
use crate::Timestamp;
use crate::connection::FirstPacket;
use crate::crypto::{header_mask, initial_keys};

/// Bytes of every AEAD tag in QUIC (RFC 9001 s.5.3).
const TAG_LEN: usize = 16;

/// RFC 9000 s.10.3: five bytes that look like a header, and the token.
const MIN_RESET: usize = 5 + ResetToken::LEN;
/// More do not make it look more like a packet.
const MAX_RESET: usize = 64;

/// Budget of stateless resets: so many a second, a tenth of them at once.
#[derive(Debug)]
pub(super) struct Budget {
    interval: Duration,
    burst: u32,
    left: u32,
    renewed: Timestamp,
}

impl Budget {
    pub(super) fn new(a_second: u32) -> Budget {
        let interval = Duration::from_secs(1).checked_div(a_second).unwrap_or(Duration::MAX);
        let burst = if a_second == 0 { 0 } else { (a_second / 10).max(1) };
        Budget { interval, burst, left: burst, renewed: Timestamp::START }
    }

    fn take(&mut self, now: Timestamp) -> bool {
        let passed = now.since(self.renewed).as_nanos() / self.interval.as_nanos().max(1);
        if passed > 0 {
            let gained = u32::try_from(passed).unwrap_or(u32::MAX);
            self.left = self.left.saturating_add(gained).min(self.burst);
            self.renewed = now;
        }
        let any = self.left > 0;
        self.left -= u32::from(any);
        any
    }
}

impl Endpoint {
    /// A packet to an ID that is not known, in a datagram of `size` bytes (RFC 9000 s.10.3).
    pub(super) fn write_reset(
        &mut self,
        now: Timestamp,
        id: ConnectionId,
        size: usize,
        response: &mut Vec<u8>,
    ) -> Received {
        if size <= MIN_RESET || !self.resets.take(now) {
            return Received::Nothing;
        }
        let most = (size - 1).min(MAX_RESET);
        let length = self.rng.random_range(MIN_RESET..=most);
        response.resize(length - ResetToken::LEN, 0);
        self.rng.fill_bytes(response);
        response[0] = response[0] & !0xc0 | FIXED_BIT;
        response.extend_from_slice(&self.source.token(id).0);
        Received::Respond
    }

    /// RFC 9000 s.6.1. The longest there is has 533 bytes, and answers 1,200.
    pub(super) fn write_version_negotiation(
        &mut self,
        header: &LongInvariant<'_>,
        response: &mut Vec<u8>,
    ) -> Received {
        let mut buffer = [0; 7 + 2 * 255 + 3 * 4];
        let mut writer = Writer::new(&mut buffer);
        // RFC 9000 s.6.3: one that nobody knows keeps clients used to ignoring it.
        let mut reserved = Version::reserved(self.rng.next_u32());
        if reserved == header.version {
            reserved = Version(reserved.0 ^ 0x1000_0000);
        }
        let speaks = |known| self.server.as_ref().is_some_and(|server| server.speaks(known));
        let known = KnownVersion::ALL.iter().copied();
        let known = known.filter(|version| speaks(*version)).map(Version::from);
        let versions: Vec<Version> = std::iter::once(reserved).chain(known).collect();
        let unused = self.random_byte() & 0x7f | FIXED_BIT;
        let (dcid, scid) = (header.scid, header.dcid);
        match VersionNegotiation::write(&mut writer, dcid, scid, versions, unused) {
            Ok(()) => {
                response.extend_from_slice(writer.written());
                Received::Respond
            }
            Err(_) => Received::Nothing,
        }
    }

    /// An Initial packet that closes what has not begun (RFC 9000 s.5.2.2, s.10.2.3).
    pub(super) fn write_close(
        &mut self,
        first: &FirstPacket,
        code: TransportErrorCode,
        reason: &str,
        response: &mut Vec<u8>,
    ) -> Received {
        match self.try_write_close(first, code, reason, response) {
            Some(()) => Received::Respond,
            None => Received::Nothing,
        }
    }

    fn try_write_close(
        &mut self,
        first: &FirstPacket,
        code: TransportErrorCode,
        reason: &str,
        response: &mut Vec<u8>,
    ) -> Option<()> {
        let (suite, version) = (&self.config.suite, first.version);
        let keys = initial_keys(suite, Side::Server, version, first.sent_to).local;
        let mut buffer = [0; 256];
        let mut writer = Writer::new(&mut buffer);
        let header = LongHeader {
            version: first.version,
            kind: LongKind::Initial { token: &[] },
            dcid: first.client,
            scid: self.source.generate(&mut self.rng),
            fixed_bit: true,
        };
        let number = PacketNumber::new(0)?.truncate(None)?;
        let open = header.open(&mut writer, number, VarIntLen::Two).ok()?;
        let close = ConnectionClose::Transport {
            error_code: code,
            frame_type: FrameType::PADDING,
            reason: reason.as_bytes(),
        };
        Frame::ConnectionClose(close).write(&mut writer).ok()?;
        writer.zeros(open.padding_needed(&writer, TAG_LEN)).ok()?;
        let finished = open.finish(&mut writer, TAG_LEN).ok()?;
        let packet = writer.written_mut();
        let (head, body) = packet.split_at_mut_checked(finished.header_len)?;
        let (payload, tag) = body.split_at_mut_checked(body.len().checked_sub(TAG_LEN)?)?;
        let sealed = keys.packet.encrypt_in_place(0, head, payload).ok()?;
        tag.copy_from_slice(sealed.as_ref());
        let mask = header_mask(&*keys.header, finished.header().sample(packet)?)?;
        finished.protect(packet, &mask)?;
        response.extend_from_slice(packet);
        Some(())
    }
}
