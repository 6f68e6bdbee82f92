//! Packets for measuring the program.

use equic_lab::flood::frame::udp_frame;
use equic_token::{IdFormat, KeyRing, RetryToken};
use equic_wire::ConnectionId;
use rand::rngs::SmallRng;
use rand::{RngCore, SeedableRng};

use crate::Result;

/// Source address of all packets.
pub(crate) const SOURCE: &str = "198.51.100.7:50000";
const SERVICE: &str = "192.0.2.1:443";
/// Number of packets per round that are run once each.
const OPENINGS: usize = 2_000;

fn to(target: &str, datagram: &[u8]) -> Vec<u8> {
    let (source, target) = (SOURCE.parse().expect("constant"), target.parse().expect("constant"));
    udp_frame([2; 6], [4; 6], source, target, datagram).expect("one family, 1200 bytes")
}

pub(crate) fn elsewhere() -> Vec<u8> {
    to("192.0.2.1:53", &[0; 1200])
}

pub(crate) fn short_header() -> Vec<u8> {
    short_to(&[])
}

fn short_to(id: &[u8]) -> Vec<u8> {
    let mut datagram = vec![0x5a; 1200];
    datagram[0] = 0x40;
    datagram[1..=id.len()].copy_from_slice(id);
    to(SERVICE, &datagram)
}

/// Returns a short header with an ID that a server with this ring has issued.
pub(crate) fn to_proven_id(ring: &KeyRing) -> Result<Vec<u8>> {
    Ok(short_to(format()?.seal(ring, &[0; 2], 1)?.as_bytes()))
}

/// Returns a short header with a forged ID. It has a key number that the ring may have, so it costs
/// most to reject.
pub(crate) fn forged(ring: &KeyRing) -> Result<Vec<u8>> {
    let mut id = format()?.seal(ring, &[0; 2], 1)?.as_bytes().to_vec();
    if let Some(last) = id.last_mut() {
        *last ^= 1;
    }
    Ok(short_to(&id))
}

fn format() -> Result<IdFormat> {
    Ok(IdFormat::new(12, 2)?)
}

/// Returns an Initial packet. The program cannot see that its payload would not decrypt.
fn long_header(version: u32, scid: u64, dcid: &[u8], token: &[u8]) -> Vec<u8> {
    let mut datagram = vec![0xc0];
    datagram.extend(version.to_be_bytes());
    datagram.push(dcid.len() as u8);
    datagram.extend(dcid);
    datagram.push(8);
    datagram.extend(scid.to_be_bytes());
    // Two-byte lengths (RFC 9000 s.16).
    datagram.extend((0x4000 | token.len() as u16).to_be_bytes());
    datagram.extend(token);
    datagram.extend([0x44, 0x00]);
    datagram.resize(1200, 0x5a);
    to(SERVICE, &datagram)
}

/// Returns a version 1 Initial without a token.
pub(crate) fn initial(scid: u64, dcid: u64) -> Vec<u8> {
    long_header(1, scid, &dcid.to_be_bytes(), &[])
}

fn many<T>(seed: u64, one: impl Fn(u64, u64) -> T) -> impl Iterator<Item = T> {
    let mut rng = SmallRng::seed_from_u64(seed);
    std::iter::repeat_with(move || one(rng.next_u64(), rng.next_u64())).take(OPENINGS)
}

/// Returns attempts that each open a connection.
pub(crate) fn openings(seed: u64) -> Vec<Vec<u8>> {
    many(seed, initial).collect()
}

/// Returns attempts with an unknown version: a reserved one (RFC 9000 s.15).
pub(crate) fn of_unknown_version(seed: u64) -> Vec<Vec<u8>> {
    many(seed, |scid, dcid| long_header(0x1a2a_3a4a, scid, &dcid.to_be_bytes(), &[])).collect()
}

/// Returns attempts with the token of a Retry packet made with this ring.
pub(crate) fn with_tokens(ring: &KeyRing, seed: u64) -> Result<Vec<Vec<u8>>> {
    let one = |scid, dcid: u64| Ok(long_header(1, scid, &dcid.to_be_bytes(), &token(ring, dcid)?));
    many(seed, one).collect()
}

/// Returns an attempt with a token that has a wrong bit.
pub(crate) fn with_forged_token(ring: &KeyRing) -> Result<Vec<u8>> {
    let mut token = token(ring, 2)?;
    token[RetryToken::LEN - 1] ^= 1;
    Ok(long_header(1, 1, &2_u64.to_be_bytes(), &token))
}

/// Returns the token of a Retry packet with the Source Connection ID `dcid`.
fn token(ring: &KeyRing, dcid: u64) -> Result<[u8; RetryToken::LEN]> {
    let id = ConnectionId::new(&dcid.to_be_bytes())?;
    let original = ConnectionId::new(&(!dcid).to_be_bytes())?;
    Ok(RetryToken::new(SOURCE.parse()?, original, id, ring.now()).seal(ring)?)
}
