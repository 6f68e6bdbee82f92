//! Connections without any protection, for simulations. Packets and handshakes have the same sizes
//! and round trips as with TLS, but without its cost and its randomness. This needs the feature
//! `null-crypto` and a configuration with an [`InsecureNullCrypto`]. Any observer can read and
//! forge the packets.
//!
//! * `keys.rs`: a checksum in place of the AEAD tag;
//! * `suite.rs`: checksums in place of cryptography for tokens, so that no crypto provider is
//!   needed;
//! * `handshake.rs`: the order of the messages; `message.rs`: their encoding.
//!
//! Three things are required: a cargo feature, a separate QUIC version and a separate configuration
//! type. A flag in the usual configuration could disable protection by mistake. No released program
//! enables the feature.

mod handshake;
mod keys;
mod message;
mod suite;
#[cfg(test)]
mod tests;

use rustls::quic::Suite;

pub(crate) use handshake::Handshake;
pub(crate) use keys::Generations;
pub(crate) use keys::initial_keys;
pub use keys::{Level, NullKey};
pub use message::{Answer, Hello, Malformed, Message};

/// Configuration of a handshake that protects nothing, for simulations, measurements and fuzzers.
///
/// There are no secrets and no authentication: anyone can read and forge every datagram. The only
/// version is `equic_wire::Version::NULL_CRYPTO`, so that no QUIC endpoint accepts such a
/// connection by mistake. The only constructor is [`InsecureNullCrypto::for_simulation_only`], so
/// that its name is visible in the code that uses it.
#[derive(Clone)]
#[non_exhaustive]
pub struct InsecureNullCrypto {
    /// Application protocols (ALPN) in order of preference. A server selects its first protocol
    /// that the client also offers.
    pub alpn_protocols: Vec<Vec<u8>>,
    /// Sizes of the handshake messages in bytes.
    pub sizes: HandshakeSizes,
    /// On a server: true if it issues sessions to clients and accepts early data (0-RTT). Clients
    /// ignore this field.
    pub early_data: bool,
    /// On a client: the session from an earlier connection
    /// ([`crate::Connection::insecure_null_session`]), which permits early data. If `None`, the
    /// client sends no early data.
    pub session: Option<NullSession>,
}

impl InsecureNullCrypto {
    /// Creates a configuration without application protocols and with the usual message sizes. It
    /// needs no crypto provider, because stateless reset tokens and Retry tokens are checksums,
    /// too.
    pub fn for_simulation_only() -> InsecureNullCrypto {
        InsecureNullCrypto {
            alpn_protocols: Vec::new(),
            sizes: HandshakeSizes::default(),
            early_data: false,
            session: None,
        }
    }

    /// Returns the cipher suite for tokens, which replaces that of a crypto provider.
    pub(crate) fn suite(&self) -> Suite {
        suite::suite()
    }
}

/// Smallest sizes of the handshake messages, in bytes. A message is padded with zeros to this size.
/// It is larger only if its content needs more room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HandshakeSizes {
    /// Size of the ClientHello. If it is larger than about 1,100 bytes, it takes two datagrams.
    pub client_hello: u16,
    /// Size of the ServerHello.
    pub server_hello: u16,
    /// Total size of EncryptedExtensions, Certificate and CertificateVerify. This part of the
    /// handshake is subject to the anti-amplification limit: a server sends at most three times the
    /// bytes that it received from an address before it validates that address (RFC 9000 s.8.1).
    pub certificate: u16,
    /// Size of each Finished message.
    pub finished: u16,
    /// Total size of a server's NewSessionTicket messages. With zero, the server sends such
    /// messages only if it issues a session.
    pub tickets: u16,
}

impl Default for HandshakeSizes {
    /// Returns the sizes that rustls produces with X25519, including transport parameters, and a
    /// chain of two ECDSA certificates.
    fn default() -> HandshakeSizes {
        HandshakeSizes {
            client_hello: 330,
            server_hello: 122,
            certificate: 2_400,
            finished: 36,
            tickets: 210,
        }
    }
}

/// A client's record of a server that accepts early data. The client uses it in a later connection
/// to this server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NullSession {
    /// The server's encoded transport parameters, which the client uses for early data.
    pub parameters: Vec<u8>,
    /// Identifies the transport parameters that the server promised. The server uses it to check
    /// that they are unchanged.
    pub ticket: [u8; 16],
}
