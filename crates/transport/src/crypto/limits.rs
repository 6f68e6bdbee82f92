//! Limits on the number of packets that keys may protect (RFC 9001 s.6.6).

use rustls::quic::PacketKey;

/// Limits on the use of keys, below those of the AEAD: whatever stands here, an AEAD is never used beyond
/// its own (RFC 9001 s.6.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyLimits {
    /// Largest number of packets that one set of keys protects. 1-RTT keys are updated after half of them. If that is
    /// not possible, because the peer acknowledges nothing or the handshake is not confirmed, the connection ends
    /// with AEAD_LIMIT_REACHED. A handshake needs some tens of packets.
    pub packets_per_key: u64,
    /// Number of packets of the connection that fail authentication, after which it ends with AEAD_LIMIT_REACHED.
    pub forged_packets: u64,
}

impl Default for KeyLimits {
    /// Those of the AEAD.
    fn default() -> KeyLimits {
        KeyLimits { packets_per_key: u64::MAX, forged_packets: u64::MAX }
    }
}

/// Packets that are reserved for CONNECTION_CLOSE frames, which are repeated after 1, 2, 4, ... received packets.
const LAST_WORDS: u64 = 64;

impl KeyLimits {
    /// Most packets that this key may protect.
    pub(crate) fn confidentiality(self, key: &dyn PacketKey) -> u64 {
        self.packets_per_key.min(key.confidentiality_limit())
    }

    /// Returns the number of packets that may fail authentication with this key.
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
    /// Returns true if the integrity limit is reached, so that no more packets may be decrypted.
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
