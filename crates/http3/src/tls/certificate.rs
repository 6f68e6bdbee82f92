//! Generates certificates, or reads them from PEM files.
//!
//! A self-signed certificate uses ECDSA P-256 with SHA-256, which every browser accepts, and is
//! valid for a year. Clients trust it by its file (`--ca`) or by its [`Fingerprint`].

use std::fmt;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{Duration, SystemTime};

use aws_lc_rs::digest;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// File name of the certificate in [`Identity::write`].
pub const CERTIFICATE_FILE: &str = "cert.pem";
/// File name of the private key in [`Identity::write`].
pub const KEY_FILE: &str = "key.pem";

/// SHA-256 of a certificate's DER encoding, written as 64 hex digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint(pub [u8; 32]);

impl Fingerprint {
    /// Returns the fingerprint of a certificate in DER encoding.
    pub fn of(certificate: &[u8]) -> Self {
        let digest = digest::digest(&digest::SHA256, certificate);
        let mut bytes = [0; 32];
        bytes.copy_from_slice(digest.as_ref());
        Self(bytes)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({self})")
    }
}

impl FromStr for Fingerprint {
    type Err = CertificateError;

    /// Parses 64 hex digits, in upper or lower case, with or without colons between the bytes.
    fn from_str(text: &str) -> Result<Self, CertificateError> {
        let wrong = || CertificateError::Fingerprint(text.to_owned());
        let digits: Vec<u32> = text
            .chars()
            .filter(|&c| c != ':')
            .map(|c| c.to_digit(16).ok_or_else(wrong))
            .collect::<Result<_, _>>()?;
        let mut bytes = [0; 32];
        if digits.len() != 2 * bytes.len() {
            return Err(wrong());
        }
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = (pair[0] << 4 | pair[1]) as u8;
        }
        Ok(Self(bytes))
    }
}

/// Error of generating, reading or writing a certificate.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// A file cannot be read, written or created.
    #[error("cannot {action} {}: {source}", path.display())]
    File {
        /// "read", "write" or "create".
        action: &'static str,
        /// The file that cannot be read, written or created.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A file can be read, but has no usable PEM.
    #[error("cannot read a {what} from {}: {reason}; the file must be in PEM format", path.display())]
    Pem {
        /// "certificate" or "private key".
        what: &'static str,
        /// The file without usable PEM.
        path: PathBuf,
        /// Explains to the user what is wrong with the file.
        reason: String,
    },
    /// A name or address cannot be put into a certificate.
    #[error(
        "cannot create a certificate for {names:?}: {reason}; names must be DNS names or IP addresses"
    )]
    Generate {
        /// The requested names.
        names: Vec<String>,
        /// Explains to the user what is wrong with the names.
        reason: String,
    },
    /// The key and the certificate do not match, or TLS cannot use them.
    #[error("cannot use the certificate with the key: {0}; check that they belong together")]
    Unusable(String),
    /// The text is not a fingerprint.
    #[error(
        "{0:?} is not a certificate fingerprint: write the 64 hexadecimal digits of a SHA-256 hash"
    )]
    Fingerprint(String),
}

/// A certificate chain and its private key.
pub struct Identity {
    pub(super) chain: Vec<CertificateDer<'static>>,
    pub(super) key: PrivateKeyDer<'static>,
    pem: Option<(String, String)>,
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").field("fingerprint", &self.fingerprint()).finish_non_exhaustive()
    }
}

impl Identity {
    /// Generates a self-signed ECDSA P-256 certificate for DNS names and IP addresses.
    ///
    /// # Errors
    /// Fails if a name is neither a DNS name nor an IP address, or if there are no names.
    pub fn self_signed(names: &[String]) -> Result<Self, CertificateError> {
        let wrong = |reason: String| CertificateError::Generate { names: names.to_vec(), reason };
        let Some(first) = names.first() else {
            return Err(wrong("the list of names is empty".into()));
        };
        let mut params =
            rcgen::CertificateParams::new(names.to_vec()).map_err(|e| wrong(e.to_string()))?;
        params.distinguished_name.push(rcgen::DnType::CommonName, first.as_str());
        let now = SystemTime::now();
        // The validity begins a day ago, because the clocks of clients may be slow.
        params.not_before = (now - DAY).into();
        params.not_after = (now + 365 * DAY).into();
        params.key_usages = vec![rcgen::KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ServerAuth];
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256)
            .map_err(|e| wrong(e.to_string()))?;
        let certificate = params.self_signed(&key).map_err(|e| wrong(e.to_string()))?;
        Ok(Self {
            chain: vec![certificate.der().clone()],
            key: PrivatePkcs8KeyDer::from(key.serialize_der()).into(),
            pem: Some((certificate.pem(), key.serialize_pem())),
        })
    }

    /// Reads a certificate chain (leaf first) and a private key (PKCS #8, PKCS #1 or SEC 1).
    ///
    /// # Errors
    /// Fails if a file is missing, or does not contain the expected kind of PEM.
    pub fn from_pem_files(certificate: &Path, key: &Path) -> Result<Self, CertificateError> {
        let chain = read_certificates(certificate)?;
        let pem = read(key)?;
        let key = PrivateKeyDer::from_pem_slice(&pem).map_err(|e| CertificateError::Pem {
            what: "private key",
            path: key.to_owned(),
            reason: e.to_string(),
        })?;
        Ok(Self { chain, key, pem: None })
    }

    /// Reads `cert.pem` and `key.pem` of a directory, or generates both if neither file exists.
    ///
    /// # Errors
    /// The errors of [`Identity::from_pem_files`], [`Identity::self_signed`] and
    /// [`Identity::write`].
    pub fn load_or_create(directory: &Path, names: &[String]) -> Result<Self, CertificateError> {
        let (certificate, key) = (directory.join(CERTIFICATE_FILE), directory.join(KEY_FILE));
        if certificate.exists() || key.exists() {
            return Self::from_pem_files(&certificate, &key);
        }
        let identity = Self::self_signed(names)?;
        identity.write(directory)?;
        Ok(identity)
    }

    /// Writes a self-signed identity to `cert.pem` and `key.pem` of a directory, which is created
    /// if it is missing. Only the owner can read the key. Does nothing for an identity that was
    /// read from files.
    ///
    /// # Errors
    /// Returns the system's error if the directory or a file cannot be written. Existing files are
    /// not overwritten.
    pub fn write(&self, directory: &Path) -> Result<(), CertificateError> {
        let Some((certificate, key)) = &self.pem else { return Ok(()) };
        let failed = |action, path: &Path| {
            let path = path.to_owned();
            move |source| CertificateError::File { action, path, source }
        };
        fs::create_dir_all(directory).map_err(failed("create", directory))?;
        for (name, text, mode) in [(KEY_FILE, key, 0o600), (CERTIFICATE_FILE, certificate, 0o644)] {
            let path = directory.join(name);
            fs::OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(mode)
                .open(&path)
                .and_then(|mut file| file.write_all(text.as_bytes()))
                .map_err(failed("write", &path))?;
        }
        Ok(())
    }

    /// Returns the SHA-256 fingerprint of the leaf certificate.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(self.chain.first().map_or(&[], |leaf| leaf.as_ref()))
    }
}

/// Reads all certificates of a PEM file. Fails if the file has no certificate.
pub(super) fn read_certificates(
    path: &Path,
) -> Result<Vec<CertificateDer<'static>>, CertificateError> {
    let wrong = |reason: String| CertificateError::Pem {
        what: "certificate",
        path: path.to_owned(),
        reason,
    };
    let certificates = CertificateDer::pem_slice_iter(&read(path)?)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|e| wrong(e.to_string()))?;
    if certificates.is_empty() {
        return Err(wrong("nothing found".into()));
    }
    Ok(certificates)
}

fn read(path: &Path) -> Result<Vec<u8>, CertificateError> {
    fs::read(path).map_err(|source| CertificateError::File {
        action: "read",
        path: path.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn names() -> Vec<String> {
        ["localhost", "127.0.0.1", "::1"].map(String::from).to_vec()
    }

    #[test]
    fn identity_is_written_once_and_read_again() {
        let directory = tempfile::tempdir().unwrap();
        let home = directory.path().join("tls");
        let made = Identity::load_or_create(&home, &names()).unwrap();
        let read = Identity::load_or_create(&home, &names()).unwrap();
        assert_eq!(made.fingerprint(), read.fingerprint());
        let mode = fs::metadata(home.join(KEY_FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(matches!(made.write(&home), Err(CertificateError::File { action: "write", .. })));
    }

    #[test]
    fn identity_with_one_file_missing_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        Identity::self_signed(&names()).unwrap().write(directory.path()).unwrap();
        fs::remove_file(directory.path().join(KEY_FILE)).unwrap();
        assert!(Identity::load_or_create(directory.path(), &names()).is_err());
    }

    #[test]
    fn identity_errors_name_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let garbage = directory.path().join("garbage.pem");
        fs::write(&garbage, "not PEM").unwrap();
        let error = Identity::from_pem_files(&garbage, &garbage).unwrap_err();
        assert!(error.to_string().contains("cannot read a certificate from"), "{error}");
        let missing = directory.path().join("missing.pem");
        let error = Identity::from_pem_files(&missing, &garbage).unwrap_err();
        assert!(error.to_string().contains("cannot read"), "{error}");
        assert!(Identity::self_signed(&[]).is_err());
        assert!(Identity::self_signed(&["n\u{e4}me".into()]).is_err());
    }

    #[test]
    fn fingerprint_round_trip() {
        let fingerprint = Identity::self_signed(&names()).unwrap().fingerprint();
        let text = fingerprint.to_string();
        assert_eq!(text.len(), 64);
        assert_eq!(text.parse::<Fingerprint>().unwrap(), fingerprint);
        let colons: Vec<String> = text
            .to_uppercase()
            .as_bytes()
            .chunks(2)
            .map(|c| String::from_utf8_lossy(c).into())
            .collect();
        assert_eq!(colons.join(":").parse::<Fingerprint>().unwrap(), fingerprint);
        for wrong in ["", "ab", &text[1..], &format!("{text}0"), &text.replace('0', "g"), "\u{e9}"]
        {
            if wrong != text {
                assert!(wrong.parse::<Fingerprint>().is_err(), "{wrong}");
            }
        }
    }
}
