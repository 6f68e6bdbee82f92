//! The handshake as a connection uses it: the handshake of rustls, or in simulations one that
//! protects nothing (`null/`).

use equic_wire::TransportErrorCode;
use rustls::pki_types::CertificateDer;
use rustls::quic::{DirectionalKeys, Keys};

#[cfg(feature = "null-crypto")]
use super::null;
use super::packet_key::KeyPair;
use super::tls_error::described;
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
// RFC 9001 s.4.4 #3
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
        // RFC 9001 s.8.1 #6: this error must be reported with the alert `no_application_protocol`.
        rustls::Error::PeerMisbehaved(PeerMisbehaved::SelectedUnofferedApplicationProtocol) => {
            Some(Violation::Tls(NO_APPLICATION_PROTOCOL))
        }
        _ => tls.alert().map(|alert| Violation::Tls(u8::from(alert))),
    };
    let reason = described(error);
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
            // RFC 9001 s.6 #2: the peer must not send TLS KeyUpdate messages, and a client has no
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

#[cfg(test)]
mod tests {
    use rustls::pki_types::ServerName;
    use rustls::quic::{ClientConnection, Connection, ServerConnection, Version};
    use rustls::{Error, HandshakeType, PeerMisbehaved};

    use super::*;
    use crate::crypto::testing::{configs, connected_client};

    // RFC 9001 s.4.4 #3
    #[test]
    fn violation_by_post_handshake_authentication() {
        let error = Error::InappropriateHandshakeMessage {
            expect_types: vec![HandshakeType::NewSessionTicket],
            got_type: HandshakeType::CertificateRequest,
        };
        let failure = failure(&connected_client(), &error);
        assert_eq!(failure.violation, Some(Violation::PostHandshakeAuthentication));
        assert_eq!(failure.code, TransportErrorCode::PROTOCOL_VIOLATION);
    }

    // RFC 9001 s.8.1 #6
    #[test]
    fn violation_by_an_application_protocol_that_was_not_offered() {
        let error = PeerMisbehaved::SelectedUnofferedApplicationProtocol;
        let failure = failure(&connected_client(), &Error::PeerMisbehaved(error));
        assert_eq!(failure.code.0.get(), 0x178);
    }

    /// After the handshake, a TLS KeyUpdate message is a violation.
    // RFC 9001 s.6 #2
    #[test]
    fn crypto_key_update_message_is_a_violation() {
        let message = [24, 0, 0, 1, 0];
        let open = Session::Tls(Box::new(connected_client())).read(&message).unwrap_err();
        assert_eq!(open.code.0.get(), 0x10a, "{open:?}");
    }

    /// Runs a handshake between ends with different application protocols. Returns the error of the
    /// end that detects this.
    fn failure_of_protocols(client: &[&[u8]], server: &[&[u8]]) -> Failure {
        let owned = |protocols: &[&[u8]]| protocols.iter().map(|p| p.to_vec()).collect();
        let (client_tls, server_tls) = configs();
        let (mut client_tls, mut server_tls) = ((*client_tls).clone(), (*server_tls).clone());
        (client_tls.alpn_protocols, server_tls.alpn_protocols) = (owned(client), owned(server));
        let name = ServerName::try_from("equic.test").unwrap();
        let client = ClientConnection::new(client_tls.into(), Version::V1, name, vec![]).unwrap();
        let server = ServerConnection::new(server_tls.into(), Version::V1, vec![]).unwrap();
        let mut ends: [Session; 2] =
            [client.into(), server.into()].map(|end: Connection| Session::Tls(Box::new(end)));
        for turn in 0..8 {
            let mut data = Vec::new();
            ends[turn % 2].write(&mut data);
            if let Err(failure) = ends[1 - turn % 2].read(&data) {
                return failure;
            }
            ends[turn % 2].write(&mut data);
        }
        panic!("the handshake continued");
    }

    // RFC 9001 s.8.1 #2 #5
    #[test]
    fn handshake_without_a_common_application_protocol_fails() {
        let other = failure_of_protocols(&[b"one"], &[b"two"]);
        assert_eq!(other.code.0.get(), 0x178, "{other:?}");
    }

    /// rustls permits early data in QUIC only without a limit, or not at all.
    // RFC 9001 s.4.6.1 #1
    #[test]
    fn early_data_size_is_all_or_nothing() {
        for (size, permitted) in [(0, true), (u32::MAX, true), (16_384, false)] {
            let mut server = (*configs().1).clone();
            server.max_early_data_size = size;
            let begun = ServerConnection::new(server.into(), Version::V1, vec![]);
            assert_eq!(begun.is_ok(), permitted, "{size}");
        }
    }

    // RFC 9001 s.5.3 #1
    #[test]
    fn aead_suites_all_have_header_protection() {
        let suites = configs().0.crypto_provider().cipher_suites.clone();
        assert!(suites.iter().filter_map(|suite| suite.tls13()).all(|suite| suite.quic.is_some()));
    }

    /// Returns the ClientHello of a client with six bytes of transport parameters.
    fn client_hello() -> Vec<u8> {
        let name = ServerName::try_from("equic.test").unwrap();
        let parameters = b"params".to_vec();
        let client = ClientConnection::new(configs().0, Version::V1, name, parameters).unwrap();
        let mut hello = Vec::new();
        Session::Tls(Box::new(client.into())).write(&mut hello);
        hello
    }

    /// Returns the position of these bytes, which must occur once.
    fn position(bytes: &[u8], part: &[u8]) -> usize {
        let mut found = (0..bytes.len()).filter(|at| bytes[*at..].starts_with(part));
        let at = found.next().expect("the message has the extension");
        assert_eq!(found.next(), None);
        at
    }

    /// Returns the code with which a server refuses a ClientHello.
    fn refused(hello: &[u8]) -> u64 {
        let server = ServerConnection::new(configs().1, Version::V1, vec![]).unwrap();
        Session::Tls(Box::new(server.into())).read(hello).unwrap_err().code.0.get()
    }

    /// The extension supported_versions with TLS 1.3 only.
    const TLS_1_3: [u8; 7] = [0x00, 0x2b, 0x00, 0x03, 0x02, 0x03, 0x04];

    // RFC 9001 s.4.2 #1 #2, s.8.4 #1
    #[test]
    fn handshake_has_tls_1_3_only_and_no_compatibility_mode() {
        let mut hello = client_hello();
        let at = position(&hello, &TLS_1_3);
        // The length of legacy_session_id follows type and length, version and random.
        assert_eq!(hello[4 + 2 + 32], 0);
        // Without the extension, the client offers TLS 1.2.
        hello[at..at + 2].copy_from_slice(&[0x7a, 0x7a]);
        // The alert is protocol_version.
        assert_eq!(refused(&hello), 0x100 + 70);
    }

    // RFC 9001 s.8.2 #1
    #[test]
    fn handshake_without_transport_parameters_fails() {
        let mut hello = client_hello();
        let at = position(&hello, b"\0\x39\0\x06params");
        hello[at..at + 2].copy_from_slice(&[0x7a, 0x7a]);
        assert_eq!(refused(&hello), 0x16d);
    }
}
