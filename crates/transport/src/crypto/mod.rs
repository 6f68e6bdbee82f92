//! Packet protection (RFC 9001) with rustls's QUIC interface. The caller chooses the crypto
//! provider.
//!
//! * `session.rs`: the handshake, as the connection uses it; `tls_error.rs`: its errors as text;
//! * `phases.rs`: 1-RTT keys and their update (s.6); `limits.rs`: how many packets keys may protect
//!   (s.6.6);
//! * `packet_key.rs`: keys that can also decrypt packets into another buffer;
//! * `retry.rs`: the integrity tag of Retry packets (s.5.8);
//! * `token.rs`: tokens for address validation (RFC 9000 s.8.1);
//! * `null/`: with the feature `null-crypto`, packets without any protection. Simulations use it.

mod limits;
#[cfg(feature = "null-crypto")]
pub(crate) mod null;
mod packet_key;
mod phases;
mod retry;
pub(crate) mod session;
#[cfg(test)]
pub(crate) mod testing;
mod tls_error;
mod token;

use std::hint::black_box;

use equic_wire::packet::{HeaderMask, SAMPLE_LEN};
use equic_wire::{ConnectionId, KnownVersion, Side};
use rustls::quic::{HeaderProtectionKey, Keys, Suite};

use crate::connection::tls_version;

pub use limits::KeyLimits;
pub(crate) use limits::{Forgeries, last_words};
pub use packet_key::PacketKey;
pub(crate) use phases::{OneRttKeys, OpenError, Wear};
pub(crate) use retry::{RETRY_TAG_LEN, retry_tag};
pub(crate) use token::{CLOCK_SKEW, MAX_TOKEN, TOKEN_KEY_LEN, Token, TokenSealer, Validity};

/// Returns the keys of Initial packets for both directions. `dcid` is the Destination Connection ID
/// of the client's first packet (RFC 9001 s.5.2).
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

/// Like [`tls_initial_keys`], but returns keys without protection for the version
/// `KnownVersion::NullCrypto`. The caller must ensure that this version is permitted.
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

/// Returns the header protection mask for a sample (RFC 9001 s.5.4.1). rustls applies masks but
/// does not return them. So this function applies the mask to a short header of zeros with a packet
/// number of four bytes. The result is the mask, except for three bits of the first byte that
/// header protection never changes.
#[inline(always)]
pub(crate) fn header_mask(
    key: &dyn HeaderProtectionKey,
    sample: &[u8; SAMPLE_LEN],
) -> Option<HeaderMask> {
    /// First byte of the short header: zeros, except for the encoded length of the packet number,
    /// which is four bytes.
    const FIRST: u8 = 0x03;
    let (mut first, mut number) = (FIRST, [0; 4]);
    key.encrypt_in_place(sample, &mut first, &mut number).ok()?;
    // Keys store the mask byte by byte, so this code reads it byte by byte. Otherwise the compiler
    // would read the four bytes with one load. The CPU cannot forward four single stores to one
    // load. It would wait until all earlier stores, including the data of the last packet, are in
    // its cache.
    let byte = |index: usize| *black_box(&number[index]);
    Some([first ^ FIRST, byte(0), byte(1), byte(2), byte(3)])
}
