//! Remembers valid certificate chains for some time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};

/// Time for which a chain is remembered. Clients that resume sessions need no certificate for much
/// longer (RFC 8446 s.4.6.1: a week).
const KEPT: Duration = Duration::from_secs(300);

/// Maximum number of remembered chains.
const MAX_CHAINS: usize = 256;

/// Maximum size of a remembered chain in bytes, including the server's name. Longer chains are
/// verified each time.
const MAX_LENGTH: usize = 16 * 1024;

/// A verifier that calls another verifier, and remembers valid certificate chains for five minutes.
/// A client that connects repeatedly to the same server, without resuming a session, then need not
/// verify the chain's signatures each time. Each handshake still verifies that the server has the
/// certificate's private key.
///
/// A chain is remembered only for the same server name and for identical bytes of everything that
/// the server sent with it. The inner verifier must accept the chain both for the start and for the
/// end of the five minutes. A certificate that expires earlier is therefore verified each time.
///
/// The result is the same as without this cache if the inner verifier's verdict depends only on its
/// inputs and the time. Other inputs, such as a revocation list that changes, take effect after at
/// most five minutes. Rejected chains are not remembered.
///
/// The first connection to a server takes no additional time. Chains over 16 KiB are not
/// remembered. The cache keeps the 256 most recently used chains.
#[derive(Debug)]
pub struct CachingVerifier {
    inner: Arc<dyn ServerCertVerifier>,
    chains: Mutex<Chains>,
}

impl CachingVerifier {
    /// Creates a cache for this verifier.
    pub fn new(inner: Arc<dyn ServerCertVerifier>) -> CachingVerifier {
        CachingVerifier { inner, chains: Mutex::default() }
    }

    fn chains(&self) -> MutexGuard<'_, Chains> {
        // No code that holds the lock can panic during a change.
        self.chains.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ServerCertVerifier for CachingVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let ask = |time| {
            self.inner.verify_server_cert(
                end_entity,
                intermediates,
                server_name,
                ocsp_response,
                time,
            )
        };
        let Some(shown) = joined(end_entity, intermediates, server_name, ocsp_response) else {
            return ask(now);
        };
        // The lock is not held during verification, so that other handshakes continue.
        let seen = self.chains().look_up(&shown, now);
        match seen {
            Some(Seen { valid_to_end: true, .. }) => return Ok(ServerCertVerified::assertion()),
            // The chain was valid when it was first seen. If it is also valid at the end, it is
            // valid at all times in between, because each certificate has one validity period.
            // There is one exception: the verifier uses different certification paths to a root at
            // the two times, with a gap between their validity periods. The gap is at most five
            // minutes.
            Some(Seen { from, .. }) if ask(end(from)).is_ok() => {
                self.chains().remember(shown, from, true);
                return Ok(ServerCertVerified::assertion());
            }
            _ => {}
        }
        let verified = ask(now)?;
        self.chains().remember(shown, now, false);
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }

    fn requires_raw_public_keys(&self) -> bool {
        self.inner.requires_raw_public_keys()
    }

    fn root_hint_subjects(&self) -> Option<&[DistinguishedName]> {
        self.inner.root_hint_subjects()
    }
}

/// Joins everything that a verdict depends on, except for the time. Lengths make the encoding
/// unambiguous. Returns `None` if the chain is not remembered.
fn joined(
    end_entity: &CertificateDer<'_>,
    intermediates: &[CertificateDer<'_>],
    server_name: &ServerName<'_>,
    ocsp_response: &[u8],
) -> Option<Box<[u8]>> {
    let kind = match server_name {
        ServerName::DnsName(_) => b"dns",
        ServerName::IpAddress(_) => b"ip_",
        // For an unknown kind of name, the text may not contain everything.
        _ => return None,
    };
    let name = server_name.to_str();
    let certificates = || [end_entity].into_iter().chain(intermediates).map(AsRef::as_ref);
    let parts =
        || [kind.as_slice(), name.as_bytes(), ocsp_response].into_iter().chain(certificates());
    let length = parts().map(|part: &[u8]| size_of::<u64>() + part.len()).sum();
    if length > MAX_LENGTH {
        return None;
    }
    let mut joined = Vec::with_capacity(length);
    for part in parts() {
        joined.extend_from_slice(&(part.len() as u64).to_le_bytes());
        joined.extend_from_slice(part);
    }
    Some(joined.into())
}

/// Returns the end of the time for which a chain is remembered.
fn end(from: UnixTime) -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs(from.as_secs()).saturating_add(KEPT))
}

/// The valid chains, and the number of look-ups.
#[derive(Debug, Default)]
struct Chains {
    seen: HashMap<Box<[u8]>, Seen>,
    looked_up: u64,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    /// Time at which the chain was first found valid.
    from: UnixTime,
    /// True if the chain is known to be valid also at the end of the five minutes.
    valid_to_end: bool,
    /// Number of look-ups at the chain's last use.
    used: u64,
}

impl Chains {
    /// Returns what is known about this chain at this time. Returns `None` if the clock was set
    /// back to a time before the first use.
    fn look_up(&mut self, shown: &[u8], now: UnixTime) -> Option<Seen> {
        self.looked_up += 1;
        let seen = self.seen.get_mut(shown)?;
        seen.used = self.looked_up;
        (seen.from.as_secs()..=end(seen.from).as_secs()).contains(&now.as_secs()).then_some(*seen)
    }

    /// Remembers a chain. If there are too many, it replaces the least recently used one.
    fn remember(&mut self, shown: Box<[u8]>, from: UnixTime, valid_to_end: bool) {
        if self.seen.len() >= MAX_CHAINS && !self.seen.contains_key(&shown) {
            let oldest = self.seen.iter().min_by_key(|(_, seen)| seen.used);
            if let Some(oldest) = oldest.map(|(shown, _)| shown.clone()) {
                self.seen.remove(&oldest);
            }
        }
        self.seen.insert(shown, Seen { from, valid_to_end, used: self.looked_up });
    }
}

#[cfg(test)]
mod tests;
