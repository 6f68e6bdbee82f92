//! Creates the packets with which the XDP program is measured.

use equic_netns::flood::frame::udp_frame;
use equic_token::{IdFormat, KeyRing, RetryToken};
use equic_wire::ConnectionId;
use rand::rngs::SmallRng;
use rand::{RngCore, SeedableRng};

use crate::Result;

/// Source address of all packets.
pub(crate) const SOURCE: &str = "198.51.100.7:50000";
const SERVICE: &str = "192.0.2.1:443";
/// Number of packets per round for paths in which each packet is run only once.
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

/// Returns a packet with a short header and a connection ID that a server with this key ring has
/// issued.
pub(crate) fn to_proven_id(ring: &KeyRing) -> Result<Vec<u8>> {
    Ok(short_to(format()?.seal(ring, &[0; 2], 1)?.as_bytes()))
}

/// Returns a packet with a short header and a forged connection ID. The ID has a key number that
/// the ring may contain, so rejecting it costs as much as possible.
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

/// Returns an Initial packet. Its payload is not really encrypted, which the program cannot see.
fn long_header(version: u32, scid: u64, dcid: &[u8], token: &[u8]) -> Vec<u8> {
    let mut datagram = vec![0xc0];
    datagram.extend(version.to_be_bytes());
    datagram.push(dcid.len() as u8);
    datagram.extend(dcid);
    datagram.push(8);
    datagram.extend(scid.to_be_bytes());
    // Use two-byte lengths (RFC 9000 s.16).
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

/// Returns Initial packets that each open another connection.
pub(crate) fn openings(seed: u64) -> Vec<Vec<u8>> {
    many(seed, initial).collect()
}

/// Returns packets of an unknown version that each open another connection. The version is a
/// reserved one (RFC 9000 s.15).
pub(crate) fn of_unknown_version(seed: u64) -> Vec<Vec<u8>> {
    many(seed, |scid, dcid| long_header(0x1a2a_3a4a, scid, &dcid.to_be_bytes(), &[])).collect()
}

/// Returns Initial packets that each have a valid Retry token, made with this key ring.
pub(crate) fn with_tokens(ring: &KeyRing, seed: u64) -> Result<Vec<Vec<u8>>> {
    let one = |scid, dcid: u64| Ok(long_header(1, scid, &dcid.to_be_bytes(), &token(ring, dcid)?));
    many(seed, one).collect()
}

/// Returns an Initial packet whose token has a wrong bit.
pub(crate) fn with_forged_token(ring: &KeyRing) -> Result<Vec<u8>> {
    let mut token = token(ring, 2)?;
    token[RetryToken::LEN - 1] ^= 1;
    Ok(long_header(1, 1, &2_u64.to_be_bytes(), &token))
}

/// Returns the token of a Retry packet whose Source Connection ID is `dcid`. The client uses this
/// ID as its Destination Connection ID.
fn token(ring: &KeyRing, dcid: u64) -> Result<[u8; RetryToken::LEN]> {
    let id = ConnectionId::new(&dcid.to_be_bytes())?;
    let original = ConnectionId::new(&(!dcid).to_be_bytes())?;
    Ok(RetryToken::new(SOURCE.parse()?, original, id, ring.now()).seal(ring)?)
}
