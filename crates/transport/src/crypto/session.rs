//! The handshake of a connection as the transport sees it: rustls's, or in simulations one that
//! protects nothing (`null/`).

use equic_wire::TransportErrorCode;
use rustls::pki_types::CertificateDer;
use rustls::quic::{DirectionalKeys, Keys, PacketKeySet};

#[cfg(feature = "null-crypto")]
use super::null;
use crate::connection::ExportError;
use crate::violation::{Failure, Violation};

/// The alert (RFC 8446 s.6).
const UNEXPECTED_MESSAGE: u8 = 10;

/// The TLS alert that both ends have no protocol in common (RFC 8446 s.6).
const NO_APPLICATION_PROTOCOL: u8 = 120;

/// Keys that a handshake gives.
pub(crate) enum KeyChange {
    /// Of Handshake packets.
    Handshake { keys: Keys },
    /// Of 1-RTT packets, and what makes those after them.
    OneRtt { keys: Keys, next: KeySource },
}

/// Source of the keys of 1-RTT packets when they are updated (RFC 9001 s.6).
pub(crate) enum KeySource {
    /// Those of TLS.
    Tls(rustls::quic::Secrets),
    /// Those that protect nothing.
    #[cfg(feature = "null-crypto")]
    Null(null::Generations),
}

impl KeySource {
    /// The next ones.
    pub(crate) fn next_packet_keys(&mut self) -> PacketKeySet {
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
pub(crate) enum Session {
    Tls(Box<rustls::quic::Connection>),
    /// A server's session after the handshake, without the state of TLS, which is no longer needed and takes kilobytes.
    Over(Agreed),
    #[cfg(feature = "null-crypto")]
    Null(null::Handshake),
}

/// Results of a finished handshake that are still needed.
pub(crate) struct Agreed {
    alpn: Option<Box<[u8]>>,
    cipher_suite: Option<&'static str>,
    server_name: Option<Box<str>>,
    /// The client's certificates, if it sent any.
    certificates: Option<Box<[CertificateDer<'static>]>>,
}

/// Returns the error to close the connection with for an error that `tls` has reported.
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
        // RFC 9001 s.8.1.
        rustls::Error::PeerMisbehaved(PeerMisbehaved::SelectedUnofferedApplicationProtocol) => {
            Some(Violation::Tls(NO_APPLICATION_PROTOCOL))
        }
        _ => tls.alert().map(|alert| Violation::Tls(u8::from(alert))),
    };
    let reason = error.to_string();
    match violation {
        Some(violation) => Failure::with_reason(violation, reason),
        // TLS has no alert for it.
        None => Failure::internal(TransportErrorCode::PROTOCOL_VIOLATION, &reason),
    }
}

impl Session {
    /// Takes CRYPTO data, in order.
    pub(crate) fn read(&mut self, data: &[u8]) -> Result<(), Failure> {
        match self {
            Session::Tls(tls) => tls.read_hs(data).map_err(|error| failure(tls, &error)),
            // RFC 9001 s.6: there are no KeyUpdate messages, and a client has no others to send.
            Session::Over(_) => Err(Violation::Tls(UNEXPECTED_MESSAGE).into()),
            #[cfg(feature = "null-crypto")]
            Session::Null(null) => null.read(data),
        }
    }

    /// Appends CRYPTO data to be sent; keys are for what comes after it.
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

    /// The peer's, or on a client before it has heard of them those of an earlier connection.
    pub(crate) fn transport_parameters(&self) -> Option<&[u8]> {
        match self {
            Session::Tls(tls) => tls.quic_transport_parameters(),
            Session::Over(_) => None,
            #[cfg(feature = "null-crypto")]
            Session::Null(null) => null.transport_parameters(),
        }
    }

    /// A client's to seal early data, a server's to open what it takes.
    pub(crate) fn zero_rtt_keys(&self) -> Option<DirectionalKeys> {
        match self {
            Session::Tls(tls) => tls.zero_rtt_keys(),
            Session::Over(_) => None,
            #[cfg(feature = "null-crypto")]
            Session::Null(null) => null.zero_rtt_keys(),
        }
    }

    /// A client's: whether the server takes early data.
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

    /// Returns TLS's name of the cipher suite, or `None` before it is negotiated, and without TLS.
    pub(crate) fn cipher_suite(&self) -> Option<&'static str> {
        match self {
            Session::Tls(tls) => tls.negotiated_cipher_suite()?.suite().as_str(),
            Session::Over(agreed) => agreed.cipher_suite,
            #[cfg(feature = "null-crypto")]
            Session::Null(_) => None,
        }
    }

    /// A server's: the name that the client asked for.
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

    /// The certificates that the peer has shown; before the handshake is complete they prove nothing.
    pub(crate) fn peer_certificates(&self) -> Option<&[CertificateDer<'static>]> {
        match self {
            Session::Tls(tls) => tls.peer_certificates(),
            Session::Over(agreed) => agreed.certificates.as_deref(),
            #[cfg(feature = "null-crypto")]
            Session::Null(_) => None,
        }
    }

    /// Exports keying material (RFC 5705), once the handshake is complete.
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
            Session::Null(_) => Err(ExportError::Refused("there are no secrets".to_owned())),
        }
    }

    /// The handshake is complete, and all that it gave has been written: lets go of TLS.
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
