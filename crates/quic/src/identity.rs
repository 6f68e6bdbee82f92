//! The peer's identity and other results of the TLS handshake.

use equic_transport::{ExportError, HandshakeData};
use rustls::pki_types::CertificateDer;

use crate::connection::Connection;

impl Connection {
    /// Returns the peer's certificate chain, with the peer's own certificate first. Returns `None`
    /// if the peer has sent no certificate or the handshake is not complete. A server requests a
    /// certificate only if its TLS configuration has a client verifier.
    pub fn peer_identity(&self) -> Option<Vec<CertificateDer<'static>>> {
        self.shared().lock().connection.peer_identity().map(<[_]>::to_vec)
    }

    /// Returns the application protocol and the server name that the handshake has negotiated so
    /// far.
    pub fn handshake_data(&self) -> HandshakeData {
        self.shared().lock().connection.handshake_data()
    }

    /// Fills `output` with keying material that only the two ends of this connection can derive
    /// (RFC 5705, RFC 8446 s.7.5). The same `label` and `context` give the same output at both
    /// ends.
    ///
    /// # Errors
    /// Returns an [`ExportError`] if the handshake is not complete, or on a server if
    /// [`TransportConfig::keep_exporter`](crate::TransportConfig::keep_exporter) is off.
    pub fn export_keying_material(
        &self,
        output: &mut [u8],
        label: &[u8],
        context: &[u8],
    ) -> Result<(), ExportError> {
        self.shared().lock().connection.export_keying_material(output, label, context)
    }
}
