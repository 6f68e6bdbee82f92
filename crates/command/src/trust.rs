//! Options that say which servers a client trusts.

use std::path::PathBuf;

use clap::Args;
use equic_http3::{Fingerprint, Trust};

/// The system's roots, unless one of these is given.
#[derive(Args)]
#[group(multiple = false)]
pub struct TrustArgs {
    /// Accept any certificate
    #[arg(long)]
    insecure: bool,
    /// Trust the certificates in this PEM file: that of a CA, or of the server itself if it is not
    /// a CA certificate
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Accept the certificate with this SHA-256 fingerprint, which `equic serve` prints
    #[arg(long, value_name = "FINGERPRINT")]
    pin: Option<Fingerprint>,
}

impl TrustArgs {
    /// Servers that the client trusts, by the options given.
    pub fn trust(&self) -> Trust {
        equic_http3::client::trust(self.insecure, self.ca.clone(), self.pin)
    }

    /// Authentication of a server of this name (host and port); none: there is none.
    pub fn authenticated(&self, server: &str) -> Option<String> {
        match self.pin {
            _ if self.insecure => None,
            // The certificate is the server's, whatever name it was reached by.
            Some(pin) => Some(format!("certificate {pin}")),
            None => Some(server.to_owned()),
        }
    }
}
