//! Configurations of both ends for the examples, with a new certificate.

use std::error::Error;

use equic_quic::rustls::RootCertStore;
use equic_quic::rustls::pki_types::PrivateKeyDer;
use equic_quic::{ClientConfig, ServerConfig};

/// The name in the certificate.
pub(crate) const NAME: &str = "localhost";

/// Returns the configuration of a server, and that of a client that trusts only this server.
pub(crate) fn configs(alpn: &[u8]) -> Result<(ServerConfig, ClientConfig), Box<dyn Error>> {
    let made = rcgen::generate_simple_self_signed(vec![NAME.into()])?;
    let certificate = made.cert.der().clone();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der())?;
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone())?;
    let server = ServerConfig::with_single_cert(vec![certificate], key)?.with_alpn(&[alpn]);
    let client = ClientConfig::with_root_certificates(roots)?.with_alpn(&[alpn]);
    Ok((server, client))
}
