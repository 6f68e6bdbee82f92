//! A generated certificate, and matching configurations for QUIC clients and servers in this
//! process.

use std::sync::Arc;

use equic_quic::rustls::RootCertStore;
use equic_quic::rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use equic_quic::{ClientConfig, ServerConfig, TransportConfig};

use crate::failure::{Failure, Result};

/// Server name in the certificate, which clients expect.
pub const NAME: &str = "server";
const ALPN: &[u8] = b"equic-lab";

/// Certificate of a server, which its clients trust.
pub struct Identity {
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
}

impl Identity {
    /// Generates the certificate.
    pub fn new() -> Result<Identity> {
        let made = rcgen::generate_simple_self_signed([NAME.to_owned()])
            .map_err(|error| Failure::because("cannot create a certificate", error))?;
        Ok(Identity {
            certificate: made.cert.der().clone(),
            key: PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()).into(),
        })
    }

    /// Returns a configuration of a server with the certificate.
    pub fn server(&self, transport: Arc<TransportConfig>) -> Result<ServerConfig> {
        let chain = vec![self.certificate.clone()];
        let config = ServerConfig::with_single_cert(chain, self.key.clone_key())?;
        Ok(config.with_alpn(&[ALPN]).with_transport(transport))
    }

    /// Returns a configuration of a client that trusts the certificate.
    pub fn client(&self, transport: Arc<TransportConfig>) -> Result<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone())?;
        let config = ClientConfig::with_root_certificates(roots)?;
        Ok(config.with_alpn(&[ALPN]).with_transport(transport))
    }
}
