//! Creates the certificates of a run: `ca.pem`, and `cert.pem` with `priv.key` for the server.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose,
};

use crate::InteropError;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// Names in the server's certificate: those in the QUIC Interop Runner's network, and those used
/// here.
const NAMES: [&str; 7] =
    ["server", "server4", "server6", "server46", "localhost", "127.0.0.1", "::1"];
/// Number of names of 247 characters. They make a certificate longer than 7,500 bytes.
const LONG_NAMES: usize = 34;

/// Two folders of certificates that the same authority signed.
#[derive(Clone, Debug)]
pub struct Certificates {
    /// Folder with a certificate of ordinary size.
    pub usual: PathBuf,
    /// Folder with a long certificate. It needs more than the three datagrams that a server may
    /// send before it has validated the client's address.
    pub long: PathBuf,
}

impl Certificates {
    /// Writes the certificates into `folder`.
    ///
    /// # Errors
    /// Fails if the folder is not writable.
    pub fn write(folder: &Path, seed: u64) -> Result<Certificates, InteropError> {
        let wrong = |error: rcgen::Error| InteropError::Certificate(error.to_string());
        let mut params = CertificateParams::default();
        dated(&mut params);
        params.distinguished_name.push(DnType::OrganizationName, "eQUIC interop");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().map_err(wrong)?;
        let authority = CertifiedIssuer::self_signed(params, key).map_err(wrong)?;
        let ca = authority.pem();

        let mut rng = SmallRng::seed_from_u64(seed);
        let names: Vec<String> = NAMES.iter().map(|name| (*name).to_owned()).collect();
        let long = names.iter().cloned().chain((0..LONG_NAMES).map(|_| long_name(&mut rng)));
        for (folder, names) in
            [(folder.join("usual"), names.clone()), (folder.join("long"), long.collect())]
        {
            let mut params = CertificateParams::new(names).map_err(wrong)?;
            dated(&mut params);
            params.distinguished_name.push(DnType::CommonName, "server");
            params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
            params.use_authority_key_identifier_extension = true;
            let key = KeyPair::generate().map_err(wrong)?;
            let certificate = params.signed_by(&key, &authority).map_err(wrong)?;
            std::fs::create_dir_all(&folder).map_err(InteropError::file("create", &folder))?;
            for (file, text) in [
                ("ca.pem", ca.clone()),
                ("cert.pem", certificate.pem() + &ca),
                ("priv.key", key.serialize_pem()),
            ] {
                let path = folder.join(file);
                std::fs::write(&path, text).map_err(InteropError::file("write", &path))?;
            }
        }
        Ok(Certificates { usual: folder.join("usual"), long: folder.join("long") })
    }
}

fn dated(params: &mut CertificateParams) {
    let now = SystemTime::now();
    // The certificate is valid from yesterday on, because clocks differ.
    params.not_before = (now - DAY).into();
    params.not_after = (now + 10 * DAY).into();
}

/// Returns a name of random labels. It cannot be compressed, and verifiers accept it.
fn long_name(rng: &mut SmallRng) -> String {
    let mut label = || (0..61).map(|_| char::from(rng.random_range(b'a'..=b'z'))).collect();
    let labels: Vec<String> = (0..4).map(|_| label()).collect();
    labels.join(".")
}
