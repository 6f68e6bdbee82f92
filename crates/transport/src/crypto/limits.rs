//! Limits on the number of packets that a key may protect, or reject as forged (RFC 9001 s.6.6).

/// Limits on the use of keys, in addition to the limits of the AEAD, which apply in any case (RFC
/// 9001 s.6.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeyLimits {
    /// Largest number of packets that one set of keys protects. 1-RTT keys are updated after half
    /// of these packets. If an update is not possible, the connection is closed with
    /// AEAD_LIMIT_REACHED at the limit. That happens if the peer acknowledges nothing or the
    /// handshake is not confirmed. A handshake needs a few tens of packets.
    pub packets_per_key: u64,
    /// Number of packets that may fail authentication before the connection is closed with
    /// AEAD_LIMIT_REACHED.
    pub forged_packets: u64,
}

crate::setters! {
    KeyLimits {
        with_packets_per_key => packets_per_key: u64,
        with_forged_packets => forged_packets: u64,
    }
}

impl Default for KeyLimits {
    /// Returns the limits of the AEAD, without lower ones.
    fn default() -> KeyLimits {
        KeyLimits { packets_per_key: u64::MAX, forged_packets: u64::MAX }
    }
}

/// Number of packets that are reserved for CONNECTION_CLOSE frames, of those that a key may
/// protect. A closed connection repeats its CONNECTION_CLOSE frame after 1, 2, 4, ... received
/// packets.
const LAST_WORDS: u64 = 64;

impl KeyLimits {
    /// Returns the largest number of packets that a key may protect whose AEAD has this limit.
    pub(crate) fn confidentiality(self, of_aead: u64) -> u64 {
        self.packets_per_key.min(of_aead)
    }

    /// Returns the number of packets that may fail authentication with a key whose AEAD has this
    /// limit.
    pub(crate) fn integrity(self, of_aead: u64) -> u64 {
        self.forged_packets.min(of_aead)
    }
}

/// Returns how many of the `limit` packets that a key may protect are reserved for CONNECTION_CLOSE
/// frames.
pub(crate) fn last_words(limit: u64) -> u64 {
    LAST_WORDS.min(limit / 8)
}

/// Counts packets that failed authentication. The count covers all keys of a connection (RFC 9001
/// s.6.6).
// RFC 9001 s.6.6 #6
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

    /// Counts another packet that failed authentication with a key that has this integrity limit.
    /// Returns true if the limit is reached.
    pub(crate) fn count(&mut self, limit: u64) -> bool {
        self.count += 1;
        self.spent |= self.count >= limit;
        self.spent
    }
}
