//! The peer's identity and the connection's properties as TLS gives them.

use equic_transport::{ExportError, HandshakeData};
use rustls::pki_types::CertificateDer;

use crate::Connection;

impl Connection {
    /// The certificates that the peer has shown, its own first; none: it has shown none, or the handshake
    /// is not complete. A server asks for them only where its TLS configuration has a verifier of clients.
    pub fn peer_identity(&self) -> Option<Vec<CertificateDer<'static>>> {
        self.cell().lock().connection.peer_identity().map(<[_]>::to_vec)
    }

    /// Application protocol and server name, as far as the handshake has agreed on them.
    pub fn handshake_data(&self) -> HandshakeData {
        self.cell().lock().connection.handshake_data()
    }

    /// Fills `output` with a secret of this connection that both ends can make and nobody else
    /// (RFC 5705, RFC 8446 s.7.5), the same for the same `label` and `context`.
    ///
    /// # Errors
    /// [`ExportError`]: the handshake is not complete; or on a server, whose
    /// [`TransportConfig::keep_exporter`](crate::TransportConfig::keep_exporter) is off.
    pub fn export_keying_material(
        &self,
        output: &mut [u8],
        label: &[u8],
        context: &[u8],
    ) -> Result<(), ExportError> {
        self.cell().lock().connection.export_keying_material(output, label, context)
    }
}
