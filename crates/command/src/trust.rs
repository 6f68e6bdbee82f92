//! Options that say which servers a client trusts.

use std::path::PathBuf;

use clap::Args;
use equic_http3::{Fingerprint, Trust};

/// Without one of these options, the client trusts the system's root certificates.
#[derive(Args)]
#[group(multiple = false)]
pub struct TrustArgs {
    /// Accept any certificate of the server
    #[arg(long)]
    insecure: bool,
    /// PEM file with trusted certificates: that of a CA, or the server's own certificate if it is
    /// not a CA certificate
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Accept only the certificate with this SHA-256 fingerprint, which `equic serve` prints
    #[arg(long, value_name = "FINGERPRINT")]
    pin: Option<Fingerprint>,
}

impl TrustArgs {
    /// Returns the certificates that the client trusts according to the options.
    pub fn trust(&self) -> Trust {
        equic_http3::client::trust(self.insecure, self.ca.clone(), self.pin)
    }

    /// Returns the authenticated identity of the server with this name (host and port), or `None`
    /// if the client does not authenticate servers.
    pub fn authenticated(&self, server: &str) -> Option<String> {
        match self.pin {
            _ if self.insecure => None,
            // The certificate identifies the server, regardless of the name in the URL.
            Some(pin) => Some(format!("certificate {pin}")),
            None => Some(server.to_owned()),
        }
    }
}
