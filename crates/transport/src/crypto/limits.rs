//! Limits on the number of packets that keys may protect (RFC 9001 s.6.6).

use rustls::quic::PacketKey;

/// Limits on the use of keys, below those of the AEAD: whatever stands here, an AEAD is never used beyond
/// its own (RFC 9001 s.6.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyLimits {
    /// Packets that are protected with one set of keys at most. 1-RTT keys are updated from half of them on.
    /// Where that cannot be, because the peer acknowledges nothing or the handshake is not confirmed, the
    /// connection ends with AEAD_LIMIT_REACHED. A handshake alone takes some tens.
    pub packets_per_key: u64,
    /// Packets that fail authentication, in all the connection; with so many it ends with
    /// AEAD_LIMIT_REACHED.
    pub forged_packets: u64,
}

impl Default for KeyLimits {
    /// Those of the AEAD.
    fn default() -> KeyLimits {
        KeyLimits { packets_per_key: u64::MAX, forged_packets: u64::MAX }
    }
}

/// Packets kept back to say that the connection is over; it is said again after 1, 2, 4, ... packets.
const LAST_WORDS: u64 = 64;

impl KeyLimits {
    /// Most packets that this key may protect.
    pub(crate) fn confidentiality(self, key: &dyn PacketKey) -> u64 {
        self.packets_per_key.min(key.confidentiality_limit())
    }

    /// Most packets that may fail to open before this key is not safe any more.
    pub(crate) fn integrity(self, key: &dyn PacketKey) -> u64 {
        self.forged_packets.min(key.integrity_limit())
    }
}

/// Number of packets, of the `limit` that a key may protect, reserved for closing the connection.
pub(crate) fn last_words(limit: u64) -> u64 {
    LAST_WORDS.min(limit / 8)
}

/// Packets that failed authentication, of all keys of a connection (RFC 9001 s.6.6).
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Forgeries {
    count: u64,
    spent: bool,
}

impl Forgeries {
    /// True if so many packets failed to open that none may be opened any more.
    pub(crate) fn is_spent(self) -> bool {
        self.spent
    }

    /// One more, tried with a key of this limit; true if that was the last.
    pub(crate) fn count(&mut self, limit: u64) -> bool {
        self.count += 1;
        self.spent |= self.count >= limit;
        self.spent
    }
}
