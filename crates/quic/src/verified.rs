//! Certificate chains that were found valid, remembered for a while.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};

/// Time for which a chain is remembered. Clients that resume sessions do without a certificate for much longer (RFC 8446 s.4.6.1: a week).
const KEPT: Duration = Duration::from_secs(300);

/// Chains that are remembered at a time.
const MAX_CHAINS: usize = 256;

/// The longest chain that is remembered, in bytes, with the server's name. Longer ones are verified each time.
const MAX_LENGTH: usize = 16 * 1024;

/// Asks another verifier about a chain of certificates, and remembers for five minutes that it was valid: a client that connects to the same
/// server again and again, without resuming a session, saves the chain's signatures. That the server holds the certificate's key is
/// verified in each handshake, whatever is remembered.
///
/// A chain is remembered for the server's name it was shown for, with all that came with it, byte by byte, and only if the verifier takes it
/// at the beginning of the five minutes and for their end: a certificate that expires before is asked about each time. So nothing is taken
/// that the verifier would have refused, as long as its verdict follows from what it is shown and the time. What else it looks at, such as a
/// list of revoked certificates that can change, counts when the five minutes are over at the latest. A chain that is refused is not
/// remembered. The first connection to a server costs nothing more, and a chain that is longer than 16 KiB is not remembered; of
/// others the 256 that were used last are.
#[derive(Debug)]
pub struct CachingVerifier {
    inner: Arc<dyn ServerCertVerifier>,
    chains: Mutex<Chains>,
}

impl CachingVerifier {
    /// In front of this verifier.
    pub fn new(inner: Arc<dyn ServerCertVerifier>) -> CachingVerifier {
        CachingVerifier { inner, chains: Mutex::default() }
    }

    fn chains(&self) -> MutexGuard<'_, Chains> {
        // Nothing panics in the middle of a change.
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
        // Not while it is verified: other handshakes go on.
        let seen = self.chains().look_up(&shown, now);
        match seen {
            Some(Seen { valid_to_end: true, .. }) => return Ok(ServerCertVerified::assertion()),
            // Valid when it was first seen. If it is at the end, too, it is at all times between, now among them: each certificate has one time
            // in which it is valid. (Not if the verifier took one way to a root then and takes another at the end, with a gap between the two: five
            // minutes at most.)
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

/// All that a verdict depends on but the time, with lengths, so that no two are written alike. None: it is not remembered.
fn joined(
    end_entity: &CertificateDer<'_>,
    intermediates: &[CertificateDer<'_>],
    server_name: &ServerName<'_>,
    ocsp_response: &[u8],
) -> Option<Box<[u8]>> {
    let kind = match server_name {
        ServerName::DnsName(_) => b"dns",
        ServerName::IpAddress(_) => b"ip_",
        // A kind of name that is not known here might not be all in its text.
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

/// The end of the time for which a chain is remembered.
fn end(from: UnixTime) -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs(from.as_secs()).saturating_add(KEPT))
}

/// Chains that were valid, and how many were looked up.
#[derive(Debug, Default)]
struct Chains {
    seen: HashMap<Box<[u8]>, Seen>,
    looked_up: u64,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    /// Time at which it was valid first.
    from: UnixTime,
    /// It is valid at the end of its time, too.
    valid_to_end: bool,
    /// The count of look-ups when it was used last.
    used: u64,
}

impl Chains {
    /// What is known of this chain now. A clock that was put back knows nothing.
    fn look_up(&mut self, shown: &[u8], now: UnixTime) -> Option<Seen> {
        self.looked_up += 1;
        let seen = self.seen.get_mut(shown)?;
        seen.used = self.looked_up;
        (seen.from.as_secs()..=end(seen.from).as_secs()).contains(&now.as_secs()).then_some(*seen)
    }

    /// Instead of the one that was not used for longest, if there are too many.
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
