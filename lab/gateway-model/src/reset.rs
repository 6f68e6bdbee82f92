//! Stateless resets that the gateway sends in the name of dead servers (policy.md section 14).

use super::ids;
use super::quic::{ConnectionId, Payload};
use equic_token::KeyRing;
use siphasher::sip::SipHasher24;
use std::hash::Hasher;

/// Length in bytes of the shortest stateless reset: five unpredictable bytes and the token (RFC
/// 9000 s.10.3).
const SHORTEST: usize = 21;
const LONGEST: usize = 64;
const TOKEN: usize = 16;
/// Number of 64-bit words of unpredictable bytes that are computed for a stateless reset.
const WORDS: u8 = 6;
/// The receivers of stateless resets are divided into shares. The rate of each share is the rate of
/// the service divided by this number.
pub(super) const SHARE_PART: u64 = 8;
const SHARES: u64 = 64;

/// A packet with a short header that a stateless reset can answer.
pub(super) struct Question<'a> {
    ring: &'a KeyRing,
    id: ConnectionId,
    behind: [u8; 8],
    length: usize,
    /// Slot of the server that made the connection ID.
    pub place: u8,
}

impl<'a> Question<'a> {
    /// Reads a packet. Returns `None` if the packet is too short, or if its connection ID was not
    /// made with a key of the ring.
    pub(super) fn read(ring: &'a KeyRing, payload: Payload<'_>) -> Option<Question<'a>> {
        if payload.length <= SHORTEST {
            return None;
        }
        let id = ids::of_short(payload.data)?;
        let place = ids::format()?.open(ring, id.as_bytes()).ok()?.server_id[0];
        let behind = *payload.data.get(1 + id.as_bytes().len()..)?.first_chunk::<8>()?;
        Some(Question { ring, id, behind, length: payload.length, place })
    }

    /// Returns the stateless reset that answers the packet if it was sent to `service` at the time
    /// `now`.
    pub(super) fn answer(&self, service: &str, now: u64) -> Option<Vec<u8>> {
        let token = ids::format()?.reset_token(self.ring, service, self.id.as_bytes()).ok()?;
        let key = key_of(self.ring, self.id.as_bytes()[0] >> 5)?;
        let lengths = (self.length - 1).min(LONGEST) - SHORTEST + 1;
        let upper = u64::from_le_bytes(self.word(&key, 0, now)) >> 32;
        let length = SHORTEST + usize::try_from((upper * lengths as u64) >> 32).ok()?;
        let mut packet: Vec<u8> = (1..=WORDS).flat_map(|n| self.word(&key, n, now)).collect();
        packet.truncate(length - TOKEN);
        packet[0] = packet[0] & 0x3f | 0x40;
        packet.extend(token);
        Some(packet)
    }

    fn word(&self, key: &[u8; 16], number: u8, now: u64) -> [u8; 8] {
        let mut hasher = SipHasher24::new_with_key(key);
        let mut label = *b"bytes 0\0";
        label[6] += number;
        hasher.write(&label);
        let id = self.id.as_bytes();
        let mut padded = [0; 24];
        padded[..id.len()].copy_from_slice(id);
        padded[20] = id.len() as u8;
        hasher.write(&padded);
        hasher.write(&self.behind);
        hasher.write(&now.to_le_bytes());
        hasher.finish().to_le_bytes()
    }
}

fn key_of(ring: &KeyRing, epoch: u8) -> Option<[u8; 16]> {
    let at = 16 + usize::from(epoch) * 16;
    ring.to_bytes().get(at..)?.first_chunk().copied()
}

/// Returns the share of receivers to which a source address belongs.
pub(super) fn share(seed: u64, source: &[u8; 16]) -> u64 {
    fn mix(mut x: u64) -> u64 {
        x ^= x >> 33;
        x = x.wrapping_mul(0xff51_afd7_ed55_8ccd);
        x ^= x >> 33;
        x = x.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        x ^ x >> 33
    }
    let (low, high) = source.split_at(8);
    let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap_or_default());
    mix(mix(seed ^ word(low)) ^ word(high)) % SHARES
}
