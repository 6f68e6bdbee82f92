//! The peer's identity and properties of the connection, as TLS reports them to the application.

use rustls::pki_types::CertificateDer;

use super::Connection;

/// Application protocol and server name, as negotiated by TLS.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct HandshakeData {
    /// Application protocol (ALPN). `None` if it is not negotiated yet, or if the client offered
    /// none.
    pub protocol: Option<Vec<u8>>,
    /// Server name that the client requested (SNI). `None` before the ClientHello was read, if the
    /// client sent none, and always on a client.
    pub server_name: Option<String>,
}

/// Reason for which keying material cannot be exported.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExportError {
    /// The handshake is not complete.
    NotConnected,
    /// The server has freed its TLS state, because
    /// [`TransportConfig::keep_exporter`](super::TransportConfig::keep_exporter) is `false`.
    NotKept,
    /// TLS refuses, because the output is empty or too long.
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
    /// Returns the application protocol and the server name, if TLS has negotiated them already.
    pub fn handshake_data(&self) -> HandshakeData {
        HandshakeData {
            protocol: self.handshake.tls().alpn().map(<[u8]>::to_vec),
            server_name: self.handshake.tls().server_name().map(str::to_owned),
        }
    }

    /// Returns the peer's certificate chain, end-entity certificate first. Returns `None` if the
    /// peer sent no certificate, or if the handshake is not complete and thus proves nothing.
    pub fn peer_identity(&self) -> Option<&[CertificateDer<'static>]> {
        self.handshake.tls().peer_certificates().filter(|_| self.is_connected())
    }

    /// Fills `output` with keying material that only the two ends of this connection can derive
    /// (RFC 5705, RFC 8446 s.7.5). The same `label` and `context` give the same bytes at both ends.
    ///
    /// # Errors
    /// Returns an [`ExportError`] if the handshake is not complete, TLS state was freed, or TLS
    /// refuses.
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
