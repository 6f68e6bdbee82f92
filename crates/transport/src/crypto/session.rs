//! The handshake of a connection as the transport sees it: rustls's, or in simulations one that
//! protects nothing (`null/`).

use rustls::quic::{DirectionalKeys, Keys, PacketKeySet};

#[cfg(feature = "null-crypto")]
use super::null;

/// Keys that a handshake gives.
pub(crate) enum KeyChange {
    /// Of Handshake packets.
    Handshake { keys: Keys },
    /// Of 1-RTT packets, and what makes those after them.
    OneRtt { keys: Keys, next: KeySource },
}

/// What makes the keys of 1-RTT packets when they are updated (RFC 9001 s.6).
pub enum KeySource {
    /// Those of TLS.
    Tls(rustls::quic::Secrets),
    /// Those that protect nothing.
    #[cfg(feature = "null-crypto")]
    Null(null::Generations),
}

impl KeySource {
    /// The next ones.
    pub fn next_packet_keys(&mut self) -> PacketKeySet {
        match self {
            KeySource::Tls(secrets) => secrets.next_packet_keys(),
            #[cfg(feature = "null-crypto")]
            KeySource::Null(generations) => generations.next_packet_keys(),
        }
    }
}

#[cfg(feature = "null-crypto")]
impl From<null::Generations> for KeySource {
    fn from(generations: null::Generations) -> KeySource {
        KeySource::Null(generations)
    }
}

impl From<rustls::quic::Secrets> for KeySource {
    fn from(secrets: rustls::quic::Secrets) -> KeySource {
        KeySource::Tls(secrets)
    }
}

/// See the module.
#[cfg_attr(
    feature = "null-crypto",
    expect(clippy::large_enum_variant, reason = "the large one is that of every real connection")
)]
pub(crate) enum Session {
    Tls(rustls::quic::Connection),
    #[cfg(feature = "null-crypto")]
    Null(null::Handshake),
}

/// What the peer said in the handshake does not do.
pub(crate) struct SessionError {
    pub reason: String,
    /// The TLS alert that says so (RFC 9001 s.4.8).
    pub alert: Option<u8>,
}

impl Session {
    /// Takes CRYPTO data, in order.
    pub fn read(&mut self, data: &[u8]) -> Result<(), SessionError> {
        match self {
            Session::Tls(tls) => tls.read_hs(data).map_err(|error| SessionError {
                reason: error.to_string(),
                alert: tls.alert().map(u8::from),
            }),
            #[cfg(feature = "null-crypto")]
            Session::Null(null) => null.read(data),
        }
    }

    /// Appends CRYPTO data to be sent; keys are for what comes after it.
    pub fn write(&mut self, data: &mut Vec<u8>) -> Option<KeyChange> {
        match self {
            Session::Tls(tls) => Some(match tls.write_hs(data)? {
                rustls::quic::KeyChange::Handshake { keys } => KeyChange::Handshake { keys },
                rustls::quic::KeyChange::OneRtt { keys, next } => {
                    KeyChange::OneRtt { keys, next: next.into() }
                }
            }),
            #[cfg(feature = "null-crypto")]
            Session::Null(null) => null.write(data),
        }
    }

    pub fn is_handshaking(&self) -> bool {
        match self {
            Session::Tls(tls) => tls.is_handshaking(),
            #[cfg(feature = "null-crypto")]
            Session::Null(null) => null.is_handshaking(),
        }
    }

    /// The peer's, or on a client before it has heard of them those of an earlier connection.
    pub fn transport_parameters(&self) -> Option<&[u8]> {
        match self {
            Session::Tls(tls) => tls.quic_transport_parameters(),
            #[cfg(feature = "null-crypto")]
            Session::Null(null) => null.transport_parameters(),
        }
    }

    /// A client's to seal early data, a server's to open what it takes.
    pub fn zero_rtt_keys(&self) -> Option<DirectionalKeys> {
        match self {
            Session::Tls(tls) => tls.zero_rtt_keys(),
            #[cfg(feature = "null-crypto")]
            Session::Null(null) => null.zero_rtt_keys(),
        }
    }

    /// A client's: whether the server takes early data.
    pub fn is_early_data_accepted(&self) -> bool {
        match self {
            Session::Tls(rustls::quic::Connection::Client(tls)) => tls.is_early_data_accepted(),
            Session::Tls(rustls::quic::Connection::Server(_)) => false,
            #[cfg(feature = "null-crypto")]
            Session::Null(null) => null.is_early_data_accepted(),
        }
    }

    pub fn alpn(&self) -> Option<&[u8]> {
        match self {
            Session::Tls(rustls::quic::Connection::Client(tls)) => tls.alpn_protocol(),
            Session::Tls(rustls::quic::Connection::Server(tls)) => tls.alpn_protocol(),
            #[cfg(feature = "null-crypto")]
            Session::Null(null) => null.alpn(),
        }
    }

    /// The cipher suite, as TLS has it; none: it is not agreed on, or there is none.
    pub fn cipher_suite(&self) -> Option<&'static str> {
        let suite = match self {
            Session::Tls(rustls::quic::Connection::Client(tls)) => tls.negotiated_cipher_suite(),
            Session::Tls(rustls::quic::Connection::Server(tls)) => tls.negotiated_cipher_suite(),
            #[cfg(feature = "null-crypto")]
            Session::Null(_) => None,
        };
        suite?.suite().as_str()
    }
}
