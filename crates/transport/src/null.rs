//! Connections without protection, for simulations, measurements and fuzzers. They need the cargo
//! feature `null-crypto` and their own configuration type. Nothing in them is secret, and anyone
//! can forge their packets.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use equic_transport::null::{InsecureNullConfig, InsecureNullCrypto};
//! use equic_transport::{Connection, Timestamp};
//!
//! let crypto = InsecureNullCrypto::for_simulation_only();
//! let (now, server) = (Timestamp::START, "192.0.2.1:443".parse()?);
//! let config = InsecureNullConfig::new(crypto);
//! let client = Connection::connect_insecure_null(now, &config, server, [1; 32])?;
//! assert!(!client.is_connected());
//! # Ok(())
//! # }
//! ```
//!
//! With [`NullKey`] and [`Message`], a test can take the place of a connection's peer: create its
//! packets and its handshake.

pub use crate::connection::InsecureNullConfig;
pub use crate::crypto::null::{
    Answer, HandshakeSizes, Hello, InsecureNullCrypto, Level, Malformed, Message, NullKey,
    NullSession,
};
use crate::crypto::{self, RETRY_TAG_LEN};

/// Returns the integrity tag of a Retry packet (RFC 9001 s.5.8). `original` is the Destination
/// Connection ID of the client's first packet. `packet` is the Retry packet without its tag.
pub fn retry_tag(
    version: rustls::quic::Version,
    original: &[u8],
    packet: &[u8],
) -> [u8; RETRY_TAG_LEN] {
    crypto::retry_tag(version, original, packet)
}
