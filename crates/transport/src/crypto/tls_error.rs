//! Describes errors of rustls for people. Some of rustls's own messages contain Rust structures.

use rustls::{CertificateError, Error, OtherError};

/// Returns the message for an error of rustls.
pub(super) fn described(error: &Error) -> String {
    let Error::InvalidCertificate(certificate) = error else { return error.to_string() };
    let why = match certificate {
        // The verifier of the application has reported its own error.
        CertificateError::Other(OtherError(own)) => own.to_string(),
        CertificateError::UnknownIssuer => {
            "no trusted authority has issued it (UnknownIssuer)".to_owned()
        }
        CertificateError::UnsupportedSignatureAlgorithmContext { .. }
        | CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => {
            "its signature does not fit the key of the authority that it names as its issuer"
                .to_owned()
        }
        other => other.to_string(),
    };
    format!("invalid peer certificate: {why}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn certificate_errors_are_described_without_structures() {
        let own = OtherError(Arc::new(std::io::Error::other("another fingerprint")));
        for (error, said) in [
            (
                CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext {
                    signature_algorithm_id: vec![6, 8],
                    public_key_algorithm_id: vec![6, 7],
                },
                "its signature does not fit the key of the authority that it names as its issuer",
            ),
            (CertificateError::UnknownIssuer, "no trusted authority has issued it (UnknownIssuer)"),
            (CertificateError::Expired, "Expired"),
            (CertificateError::Other(own), "another fingerprint"),
        ] {
            let text = described(&Error::InvalidCertificate(error));
            assert_eq!(text, format!("invalid peer certificate: {said}"));
        }
    }
}
