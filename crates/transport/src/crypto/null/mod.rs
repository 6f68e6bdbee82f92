//! No protection at all, for simulations: packets and round trips of the sizes and numbers that TLS
//! has, without its cost and without its randomness. Only with the feature `null-crypto`, and only for
//! a configuration with an [`InsecureNullCrypto`]. Any observer can read and forge the packets.
//!
//! * `keys.rs`: a checksum instead of the AEAD tag;
//! * `suite.rs`: the same for tokens, so that no crypto provider is needed;
//! * `handshake.rs`: the order of the messages; `message.rs`: their encoding.
//!
//! A version, a cargo feature and a configuration type have to come together: a flag in the usual
//! configuration could turn protection off by mistake. No shipped program enables the feature.

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

/// A handshake that protects nothing: for simulations, measurements and fuzzers.
///
/// There are no secrets and no authentication: every datagram can be read and forged. The only version is
/// `equic_wire::Version::NULL_CRYPTO`, so that no QUIC endpoint accepts it by mistake. The only constructor is
/// [`InsecureNullCrypto::for_simulation_only`], so that its name is visible in the code that uses it.
#[derive(Clone)]
#[non_exhaustive]
pub struct InsecureNullCrypto {
    /// Application protocols (ALPN), best first; a server takes the first that the client has, too.
    pub alpn_protocols: Vec<Vec<u8>>,
    /// Bytes of the messages.
    pub sizes: HandshakeSizes,
    /// A server's: whether it gives clients sessions and takes early data (0-RTT).
    pub early_data: bool,
    /// A client's: what an earlier connection left behind
    /// ([`crate::Connection::insecure_null_session`]); with it early data can be sent.
    pub session: Option<NullSession>,
}

impl InsecureNullCrypto {
    /// One without protocols, and sizes as usual. It needs no crypto provider: stateless reset tokens and those of
    /// Retry packets are checksums, too.
    pub fn for_simulation_only() -> InsecureNullCrypto {
        InsecureNullCrypto {
            alpn_protocols: Vec::new(),
            sizes: HandshakeSizes::default(),
            early_data: false,
            session: None,
        }
    }

    /// The suite that tokens are made with.
    pub(crate) fn suite(&self) -> Suite {
        suite::suite()
    }
}

/// Bytes that messages of the handshake have at least; each is filled up with zeros. Those that must be
/// longer for what they say are longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HandshakeSizes {
    /// The ClientHello; above some 1,100 it takes two datagrams.
    pub client_hello: u16,
    /// The ServerHello.
    pub server_hello: u16,
    /// EncryptedExtensions, Certificate and CertificateVerify together: what an address that is not
    /// validated gets no more of than three times what came from it (RFC 9000 s.8.1).
    pub certificate: u16,
    /// Each Finished.
    pub finished: u16,
    /// A server's NewSessionTicket messages together; zero: none, unless there is a session to give.
    pub tickets: u16,
}

impl Default for HandshakeSizes {
    /// As rustls has it with X25519, transport parameters included, and a chain of two ECDSA
    /// certificates.
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

/// Session that a client remembers of a server that accepts early data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NullSession {
    /// The server's transport parameters, encoded.
    pub parameters: Vec<u8>,
    /// The server knows by it that its promises are the same.
    pub ticket: [u8; 16],
}
