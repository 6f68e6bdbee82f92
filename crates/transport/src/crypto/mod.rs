//! Packet protection (RFC 9001) over rustls's QUIC interface; the crypto provider is the caller's.
//!
//! * `session.rs`: the handshake, as the connection sees it;
//! * `phases.rs`: 1-RTT keys and their update (s.6); `limits.rs`: how much keys may protect (s.6.6);
//! * `open_to.rs`: keys that open packets to other memory;
//! * `retry.rs`: the integrity tag of Retry packets (s.5.8);
//! * `token.rs`: tokens for address validation (RFC 9000 s.8.1);
//! * `null/`: with a feature, no protection at all, for simulations.

mod limits;
#[cfg(feature = "null-crypto")]
pub(crate) mod null;
mod open_to;
mod phases;
mod retry;
pub(crate) mod session;
#[cfg(test)]
pub(crate) mod testing;
mod token;

use std::hint::black_box;

use equic_wire::packet::{HeaderMask, SAMPLE_LEN};
use equic_wire::{ConnectionId, KnownVersion, Side};
use rustls::quic::{HeaderProtectionKey, Keys, Suite};

use crate::connection::tls_version;

pub use limits::KeyLimits;
pub(crate) use limits::{Forgeries, last_words};
pub use open_to::OpenTo;
pub(crate) use phases::{OneRttKeys, OpenError, Wear};
pub(crate) use retry::{RETRY_TAG_LEN, retry_tag};
pub(crate) use token::{CLOCK_SKEW, MAX_TOKEN, TOKEN_KEY_LEN, Token, TokenSealer, Validity};

/// Keys of Initial packets to or from a client that sends to `dcid` (RFC 9001 s.5.2).
pub(crate) fn tls_initial_keys(
    suite: &Suite,
    side: Side,
    version: KnownVersion,
    dcid: ConnectionId,
) -> Keys {
    let side = match side {
        Side::Client => rustls::Side::Client,
        Side::Server => rustls::Side::Server,
    };
    suite.keys(dcid.as_bytes(), side, tls_version(version))
}

/// As there, or those that protect nothing if that is the version: for who has made sure that it may be.
pub(crate) fn initial_keys(
    suite: &Suite,
    side: Side,
    version: KnownVersion,
    dcid: ConnectionId,
) -> Keys {
    match version {
        #[cfg(feature = "null-crypto")]
        KnownVersion::NullCrypto => null::initial_keys(side, dcid),
        _ => tls_initial_keys(suite, side, version, dcid),
    }
}

/// The header protection mask of a sample (RFC 9001 s.5.4.1). rustls applies masks and does not show
/// them; applied to a short header of zeros with a packet number of four bytes it is the mask, but for
/// the three bits of the first byte that no header has protected.
#[inline(always)]
pub(crate) fn header_mask(
    key: &dyn HeaderProtectionKey,
    sample: &[u8; SAMPLE_LEN],
) -> Option<HeaderMask> {
    /// The length of the packet number, four bytes.
    const FIRST: u8 = 0x03;
    let (mut first, mut number) = (FIRST, [0; 4]);
    key.encrypt_in_place(sample, &mut first, &mut number).ok()?;
    // Keys store the mask byte by byte. If its four bytes were read in one piece, as a compiler would read them, the CPU could not
    // take them from those stores, and would wait until all that was stored before is in its cache: the data of the last packet.
    let byte = |index: usize| *black_box(&number[index]);
    Some([first ^ FIRST, byte(0), byte(1), byte(2), byte(3)])
}
