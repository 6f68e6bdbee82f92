//! The peer's identity and the connection's properties as TLS gives them, for the application.

use rustls::pki_types::CertificateDer;

use super::Connection;

/// Application protocol and server name, on which TLS agreed in the handshake.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct HandshakeData {
    /// The application protocol (ALPN); none: not yet, or none was asked for.
    pub protocol: Option<Vec<u8>>,
    /// The name of the server that the client asked for (SNI); none: not yet, it has not said, or this is
    /// the client.
    pub server_name: Option<String>,
}

/// Reason that no keying material was exported.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExportError {
    /// The handshake is not complete.
    NotConnected,
    /// A server has let go of what it would be made of:
    /// [`TransportConfig::keep_exporter`](super::TransportConfig::keep_exporter) is off.
    NotKept,
    /// TLS refuses: nothing was asked for, or too much.
    Refused(String),
}

impl std::fmt::Display for ExportError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ExportError::NotConnected => f.write_str("the handshake is not complete"),
            ExportError::NotKept => f.write_str(
                "this server does not keep the secret for exports: set TransportConfig::keep_exporter",
            ),
            ExportError::Refused(reason) => f.write_str(reason),
        }
    }
}

impl std::error::Error for ExportError {}

impl Connection {
    /// Application protocol and server name, as far as the handshake has agreed on them.
    pub fn handshake_data(&self) -> HandshakeData {
        HandshakeData {
            protocol: self.handshake.tls().alpn().map(<[u8]>::to_vec),
            server_name: self.handshake.tls().server_name().map(str::to_owned),
        }
    }

    /// The certificates that the peer has shown, its own first; none: it has shown none, or the handshake is
    /// not complete, so that they prove nothing yet.
    pub fn peer_identity(&self) -> Option<&[CertificateDer<'static>]> {
        self.handshake.tls().peer_certificates().filter(|_| self.is_connected())
    }

    /// Fills `output` with a secret of this connection that both ends can make and nobody else
    /// (RFC 5705, RFC 8446 s.7.5), the same for the same `label` and `context`.
    ///
    /// # Errors
    /// [`ExportError`].
    pub fn export_keying_material(
        &self,
        output: &mut [u8],
        label: &[u8],
        context: &[u8],
    ) -> Result<(), ExportError> {
        if !self.is_connected() {
            return Err(ExportError::NotConnected);
        }
        self.handshake.tls().export(output, label, context)
    }
}
