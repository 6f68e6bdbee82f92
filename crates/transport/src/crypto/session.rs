//! The handshake as a connection uses it: the handshake of rustls, or in simulations one that
//! protects nothing (`null/`).

use equic_wire::TransportErrorCode;
use rustls::pki_types::CertificateDer;
use rustls::quic::{DirectionalKeys, Keys};

#[cfg(feature = "null-crypto")]
use super::null;
use super::packet_key::KeyPair;
use crate::connection::ExportError;
use crate::violation::{Failure, Violation};

/// The TLS alert `unexpected_message` (RFC 8446 s.6).
const UNEXPECTED_MESSAGE: u8 = 10;

/// The TLS alert `no_application_protocol`: the ends have no protocol in common (RFC 7301 s.3.2).
const NO_APPLICATION_PROTOCOL: u8 = 120;

/// New keys that the handshake provides.
pub(crate) enum KeyChange {
    /// The keys of Handshake packets.
    Handshake { keys: Keys },
    /// The keys of 1-RTT packets, and the source of the keys for later key updates.
    OneRtt { keys: Keys, next: KeySource },
}

/// Derives the 1-RTT keys for key updates (RFC 9001 s.6).
pub(crate) enum KeySource {
    /// The secrets of TLS, from which rustls derives the keys.
    Tls(rustls::quic::Secrets),
    /// Keys that protect nothing, for simulations.
    #[cfg(feature = "null-crypto")]
    Null(null::Generations),
}

impl KeySource {
    /// Returns the keys for the next key update.
    pub(crate) fn next_packet_keys(&mut self) -> KeyPair {
        match self {
            KeySource::Tls(secrets) => secrets.next_packet_keys().into(),
            #[cfg(feature = "null-crypto")]
            KeySource::Null(generations) => generations.next_packet_keys().into(),
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

/// The handshake of a connection or, after it is complete, its results.
pub(crate) enum Session {
    Tls(Box<rustls::quic::Connection>),
    /// A server's session after the handshake. The state of TLS, which takes kilobytes, is no
    /// longer needed and was released.
    Over(Agreed),
    #[cfg(feature = "null-crypto")]
    Null(null::Handshake),
}

/// The results of a completed handshake that are still needed.
pub(crate) struct Agreed {
    alpn: Option<Box<[u8]>>,
    cipher_suite: Option<&'static str>,
    server_name: Option<Box<str>>,
    /// The client's certificates. `None` if the client sent no certificates.
    certificates: Option<Box<[CertificateDer<'static>]>>,
}

/// Converts an error that `tls` has reported into the error that must close the connection.
fn failure(tls: &rustls::quic::Connection, error: &rustls::Error) -> Failure {
    use rustls::{HandshakeType, PeerMisbehaved};
    let violation = match error {
        rustls::Error::PeerMisbehaved(PeerMisbehaved::KeyEpochWithPendingFragment) => {
            Some(Violation::CryptoNotConsumed)
        }
        rustls::Error::InappropriateHandshakeMessage {
            got_type: HandshakeType::CertificateRequest,
            ..
        } if !tls.is_handshaking() => Some(Violation::PostHandshakeAuthentication),
        // RFC 9001 s.8.1: this error must be reported with the alert `no_application_protocol`.
        rustls::Error::PeerMisbehaved(PeerMisbehaved::SelectedUnofferedApplicationProtocol) => {
            Some(Violation::Tls(NO_APPLICATION_PROTOCOL))
        }
        _ => tls.alert().map(|alert| Violation::Tls(u8::from(alert))),
    };
    let reason = error.to_string();
    match violation {
        Some(violation) => Failure::with_reason(violation, reason),
        // TLS has no alert for this error, so it is reported as a PROTOCOL_VIOLATION.
        None => Failure::internal(TransportErrorCode::PROTOCOL_VIOLATION, &reason),
    }
}

impl Session {
    /// Processes CRYPTO data of the handshake, which must be in order.
    pub(crate) fn read(&mut self, data: &[u8]) -> Result<(), Failure> {
        match self {
            Session::Tls(tls) => tls.read_hs(data).map_err(|error| failure(tls, &error)),
            // RFC 9001 s.6: the peer must not send TLS KeyUpdate messages, and a client has no
            // other message to send after the handshake.
            Session::Over(_) => Err(Violation::Tls(UNEXPECTED_MESSAGE).into()),
            #[cfg(feature = "null-crypto")]
            Session::Null(null) => null.read(data),
        }
    }

    /// Appends the next CRYPTO data to send to `data`. If keys are returned, all later data must be
    /// sent with them.
    pub(crate) fn write(&mut self, data: &mut Vec<u8>) -> Option<KeyChange> {
        match self {
            Session::Tls(tls) => Some(match tls.write_hs(data)? {
                rustls::quic::KeyChange::Handshake { keys } => KeyChange::Handshake { keys },
                rustls::quic::KeyChange::OneRtt { keys, next } => {
                    KeyChange::OneRtt { keys, next: next.into() }
                }
            }),
            Session::Over(_) => None,
            #[cfg(feature = "null-crypto")]
            Session::Null(null) => null.write(data),
        }
    }

    pub(crate) fn is_handshaking(&self) -> bool {
        match self {
            Session::Tls(tls) => tls.is_handshaking(),
            Session::Over(_) => false,
            #[cfg(feature = "null-crypto")]
            Session::Null(null) => null.is_handshaking(),
        }
    }

    /// Returns the peer's transport parameters. On a client that has not received them yet, returns
    /// the server's parameters from an earlier connection.
    pub(crate) fn transport_parameters(&self) -> Option<&[u8]> {
        match self {
            Session::Tls(tls) => tls.quic_transport_parameters(),
            Session::Over(_) => None,
            #[cfg(feature = "null-crypto")]
            Session::Null(null) => null.transport_parameters(),
        }
    }

    /// Returns the 0-RTT keys. A client encrypts early data with them, and a server decrypts it.
    pub(crate) fn zero_rtt_keys(&self) -> Option<DirectionalKeys> {
        match self {
            Session::Tls(tls) => tls.zero_rtt_keys(),
            Session::Over(_) => None,
            #[cfg(feature = "null-crypto")]
            Session::Null(null) => null.zero_rtt_keys(),
        }
    }

    /// Returns true if this end is a client and the server accepts its early data.
    pub(crate) fn is_early_data_accepted(&self) -> bool {
        match self {
            Session::Tls(tls) => match &**tls {
                rustls::quic::Connection::Client(tls) => tls.is_early_data_accepted(),
                rustls::quic::Connection::Server(_) => false,
            },
            Session::Over(_) => false,
            #[cfg(feature = "null-crypto")]
            Session::Null(null) => null.is_early_data_accepted(),
        }
    }

    pub(crate) fn alpn(&self) -> Option<&[u8]> {
        match self {
            Session::Tls(tls) => tls.alpn_protocol(),
            Session::Over(agreed) => agreed.alpn.as_deref(),
            #[cfg(feature = "null-crypto")]
            Session::Null(null) => null.alpn(),
        }
    }

    /// Returns the name of the cipher suite in TLS. Returns `None` before the suite is negotiated,
    /// and on connections without TLS.
    pub(crate) fn cipher_suite(&self) -> Option<&'static str> {
        match self {
            Session::Tls(tls) => tls.negotiated_cipher_suite()?.suite().as_str(),
            Session::Over(agreed) => agreed.cipher_suite,
            #[cfg(feature = "null-crypto")]
            Session::Null(_) => None,
        }
    }

    /// Returns the server name that the client asked for. Always `None` on a client.
    pub(crate) fn server_name(&self) -> Option<&str> {
        match self {
            Session::Tls(tls) => match &**tls {
                rustls::quic::Connection::Client(_) => None,
                rustls::quic::Connection::Server(tls) => tls.server_name(),
            },
            Session::Over(agreed) => agreed.server_name.as_deref(),
            #[cfg(feature = "null-crypto")]
            Session::Null(_) => None,
        }
    }

    /// Returns the certificates that the peer sent. They are not verified until the handshake is
    /// complete.
    pub(crate) fn peer_certificates(&self) -> Option<&[CertificateDer<'static>]> {
        match self {
            Session::Tls(tls) => tls.peer_certificates(),
            Session::Over(agreed) => agreed.certificates.as_deref(),
            #[cfg(feature = "null-crypto")]
            Session::Null(_) => None,
        }
    }

    /// Exports keying material (RFC 5705). The handshake must be complete.
    pub(crate) fn export(
        &self,
        output: &mut [u8],
        label: &[u8],
        context: &[u8],
    ) -> Result<(), ExportError> {
        match self {
            Session::Tls(tls) => tls
                .export_keying_material(output, label, Some(context))
                .map(drop)
                .map_err(|error| ExportError::Refused(error.to_string())),
            Session::Over(_) => Err(ExportError::NotKept),
            #[cfg(feature = "null-crypto")]
            Session::Null(_) => Err(ExportError::Refused(
                "a connection without protection has no secrets".to_owned(),
            )),
        }
    }

    /// Releases the state of TLS. The handshake must be complete, and [`Session::write`] must have
    /// returned all its data.
    pub(crate) fn end(&mut self) {
        if matches!(self, Session::Tls(_)) {
            *self = Session::Over(Agreed {
                alpn: self.alpn().map(Box::from),
                cipher_suite: self.cipher_suite(),
                server_name: self.server_name().map(Box::from),
                certificates: self.peer_certificates().map(Box::from),
            });
        }
    }
}
