//! Connections without protection, for simulations, measurements and fuzzers: only with the cargo feature
//! `null-crypto`, and only for who asks for them by name. Nothing about them is secret, and anybody can forge
//! their packets.
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
//! With [`NullKey`] and [`Message`] whoever tests a connection makes its peer's packets and handshake.

pub use crate::connection::InsecureNullConfig;
pub use crate::crypto::null::{
    Answer, HandshakeSizes, Hello, InsecureNullCrypto, Level, Malformed, Message, NullKey,
    NullSession,
};
use crate::crypto::{self, RETRY_TAG_LEN};

/// The integrity tag of a Retry packet (RFC 9001 s.5.8), for a client whose first packet went to the connection
/// ID `original`; `packet` is all of it but the tag.
pub fn retry_tag(
    version: rustls::quic::Version,
    original: &[u8],
    packet: &[u8],
) -> [u8; RETRY_TAG_LEN] {
    crypto::retry_tag(version, original, packet)
}
