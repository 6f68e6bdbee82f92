//! Answers to datagrams that belong to no connection. Each answer is smaller than the datagram that
//! causes it. So an attacker with a forged source address gains no amplification, and two endpoints
//! cannot answer each other endlessly (RFC 9000 s.8.1, s.10.3.3).

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;
use std::time::Duration;

use equic_wire::frame::{ConnectionClose, Frame, FrameType};
use equic_wire::packet::{FIXED_BIT, LongHeader, LongInvariant, LongKind, VersionNegotiation};
use equic_wire::{
    ConnectionId, KnownVersion, PacketNumber, ResetToken, Side, VarIntLen, Version, Writer,
};
use rand::{Rng, RngCore};

use super::{Endpoint, Received};
use crate::Timestamp;
use crate::connection::FirstPacket;
use crate::crypto::{header_mask, initial_keys};
use crate::violation::Condition;

/// Length of every AEAD tag in QUIC, in bytes (RFC 9001 s.5.3).
const TAG_LEN: usize = 16;

/// Smallest length of a stateless reset in bytes: five bytes that look like a header, and the reset
/// token (RFC 9000 s.10.3).
const MIN_RESET: usize = 5 + ResetToken::LEN;
/// Largest length of a stateless reset in bytes. With more bytes, a reset would not look more like
/// a packet.
const MAX_RESET: usize = 64;

/// Number of shares of the budget for stateless resets. Each share is the whole budget divided by
/// `SHARE_PART`.
const SHARES: u64 = 64;
const SHARE_PART: u32 = 8;

/// The budget for stateless resets. The receivers in one address prefix get only a share of it, so
/// that one source cannot use up the whole budget.
#[derive(Debug)]
pub(super) struct Resets {
    all: Budget,
    /// The budgets of the shares. A hash of the receiver's prefix selects one of them. They are
    /// created before the first reset.
    shares: Vec<Budget>,
    a_second: u32,
    /// Key of the hash by which a receiver's prefix selects a share.
    key: u64,
}

impl Resets {
    pub(super) fn new(a_second: u32, key: u64) -> Resets {
        Resets { all: Budget::new(a_second), shares: Vec::new(), a_second, key }
    }

    /// Takes one reset for this receiver from the budget. Returns false if the receiver's share or
    /// the whole budget is used up.
    fn take(&mut self, now: Timestamp, receiver: IpAddr) -> bool {
        if self.shares.is_empty() {
            let share = self.a_second.div_ceil(SHARE_PART);
            self.shares.extend((0..SHARES).map(|_| Budget::new(share)));
        }
        let mut hasher = DefaultHasher::new();
        (self.key, prefix_of(receiver)).hash(&mut hasher);
        let share = usize::try_from(hasher.finish() % SHARES).unwrap_or_default();
        self.shares.get_mut(share).is_some_and(|share| share.take(now)) && self.all.take(now)
    }
}

/// Returns the /24 prefix of an IPv4 address or the /48 prefix of an IPv6 address, as a number.
fn prefix_of(address: IpAddr) -> u64 {
    match address.to_canonical() {
        IpAddr::V4(v4) => u64::from(v4.to_bits() >> 8),
        IpAddr::V6(v6) => 1 << 63 | (v6.to_bits() >> 80) as u64,
    }
}

/// A rate limit in resets per second. The permitted burst is a tenth of the rate.
#[derive(Debug)]
struct Budget {
    interval: Duration,
    burst: u32,
    left: u32,
    renewed: Timestamp,
}

impl Budget {
    fn new(a_second: u32) -> Budget {
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
    /// Writes a stateless reset in answer to a packet with an unknown connection ID (RFC 9000
    /// s.10.3). `size` is the length of the received datagram in bytes.
    // RFC 9000 s.10.3 #2 #5 #7, s.10.3.3 #1
    pub(super) fn write_reset(
        &mut self,
        now: Timestamp,
        receiver: IpAddr,
        id: ConnectionId,
        size: usize,
        response: &mut Vec<u8>,
    ) -> Received {
        if size <= MIN_RESET || !self.resets.take(now, receiver) {
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

    /// Writes a Version Negotiation packet (RFC 9000 s.6.1). The packet has at most 533 bytes and
    /// answers a datagram of at least 1,200 bytes.
    // RFC 9368 s.2.1 #1
    // RFC 9000 s.17.2.1 #4 #5
    pub(super) fn write_version_negotiation(
        &mut self,
        header: &LongInvariant<'_>,
        response: &mut Vec<u8>,
    ) -> Received {
        let mut buffer = [0; 7 + 2 * 255 + 3 * 4];
        let mut writer = Writer::new(&mut buffer);
        // RFC 9000 s.6.3: the list contains a reserved version, so that clients are seen to ignore
        // versions that they do not know.
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

    /// Writes an Initial packet with CONNECTION_CLOSE, which rejects a connection attempt (RFC 9000
    /// s.5.2.2, s.10.2.3).
    pub(super) fn write_close(
        &mut self,
        first: &FirstPacket,
        why: Condition,
        response: &mut Vec<u8>,
    ) -> Received {
        match self.try_write_close(first, why, response) {
            Some(()) => Received::Respond,
            None => Received::Nothing,
        }
    }

    fn try_write_close(
        &mut self,
        first: &FirstPacket,
        why: Condition,
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
            error_code: why.code(),
            frame_type: FrameType::PADDING,
            reason: why.phrase().as_bytes(),
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
