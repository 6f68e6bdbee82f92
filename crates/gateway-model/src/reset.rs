//! Stateless resets for servers that are dead (policy.md section 14).

use super::ids;
use super::quic::{ConnectionId, Payload};
use equic_token::KeyRing;
use siphasher::sip::SipHasher24;
use std::hash::Hasher;

/// RFC 9000 s.10.3: five unpredictable bytes and the token.
const SHORTEST: usize = 21;
const LONGEST: usize = 43;
const TOKEN: usize = 16;
/// In front of what is hashed for each eight of the unpredictable bytes.
const LABELS: [&[u8; 8]; 4] = [b"bytes 1\0", b"bytes 2\0", b"bytes 3\0", b"bytes 4\0"];

/// The packet that a short header packet can be answered with; none if it is too short, or its ID was not made with the
/// ring.
pub(super) fn packet(ring: &KeyRing, payload: Payload<'_>) -> Option<Vec<u8>> {
    if payload.length <= SHORTEST {
        return None;
    }
    let id = ids::of_short(payload.data)?;
    let token = ids::format()?.reset_token(ring, id.as_bytes()).ok()?;
    let length = (payload.length - 1).min(LONGEST);
    let behind = payload.data.get(1 + id.as_bytes().len()..)?.first_chunk::<8>()?;
    let key = key_of(ring, id.as_bytes()[0] >> 5)?;
    let mut packet: Vec<u8> =
        LABELS.iter().flat_map(|label| word(&key, label, &id, behind)).collect();
    packet.truncate(length - TOKEN);
    packet[0] = packet[0] & 0x3f | 0x40;
    packet.extend(token);
    Some(packet)
}

fn key_of(ring: &KeyRing, epoch: u8) -> Option<[u8; 16]> {
    let at = 16 + usize::from(epoch) * 16;
    ring.to_bytes().get(at..)?.first_chunk().copied()
}

fn word(key: &[u8; 16], label: &[u8; 8], id: &ConnectionId, behind: &[u8; 8]) -> [u8; 8] {
    let mut hasher = SipHasher24::new_with_key(key);
    hasher.write(label);
    let mut padded = [0; 24];
    padded[..id.as_bytes().len()].copy_from_slice(id.as_bytes());
    padded[20] = id.as_bytes().len() as u8;
    hasher.write(&padded);
    hasher.write(behind);
    hasher.finish().to_le_bytes()
}
