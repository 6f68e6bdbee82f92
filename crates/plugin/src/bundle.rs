//! Bundles: a plugin as bytes. Not an archive: four lengths that are known before anything is kept, no names of files, and
//! one way to write each bundle (`docs/plugins.md`).

use aws_lc_rs::digest::{SHA256, digest};
use thiserror::Error;

use crate::key::{KEY, PublicKey, SIGNATURE, SigningKey, hex};
use crate::manifest::{Manifest, ManifestError};
use crate::preamble::{HEADER, Header, MAGIC, MAX_PREAMBLE, Preamble};
use crate::transparency::{HeadError, MAX_STAPLE, Staple};

/// Bytes of a manifest at most.
pub const MAX_MANIFEST: usize = 8 << 10;
/// Bytes of an object at most. A policy may want less.
pub const MAX_CODE: usize = 1 << 20;
/// Bytes of a bundle at most.
pub const MAX_BUNDLE: usize = MAX_PREAMBLE + MAX_CODE + MAX_STAPLE;

/// Reason for which bytes are refused as a bundle.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BundleError {
    /// The bytes are not a bundle, or a bundle of another version of the format.
    #[error("this is not a plugin bundle of version 1")]
    Magic,
    /// A length or a flag of the header is invalid.
    #[error("the bundle's header: {0}")]
    Header(&'static str),
    /// Bytes are missing, or there are too many.
    #[error("the bundle has {found} bytes where its header says {expected}")]
    Length {
        /// Length by the header, in bytes.
        expected: usize,
        /// Actual length, in bytes.
        found: usize,
    },
    /// The preamble does not have the declared length.
    #[error("{found} bytes stand before the object, and the bundle's header says {expected}")]
    Preamble {
        /// Length by the header, in bytes.
        expected: usize,
        /// Length that was offered or found, in bytes.
        found: usize,
    },
    /// The signature does not match the manifest and the key.
    #[error("the signature by {0} is not one of this manifest")]
    Signature(PublicKey),
    /// The staple does not prove that this bundle is in the log that it names.
    #[error("the proof that it is in a log: {0}")]
    Staple(HeadError),
    /// The manifest was refused.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// The object is not the one of the manifest.
    #[error("the object has the hash {found}, and the manifest says {expected}")]
    Hash {
        /// Hash in the manifest.
        expected: String,
        /// Hash of the object.
        found: String,
    },
}

/// A bundle that was read. Its manifest is valid, its object matches the manifest, and its signature is valid if it has
/// one. [`crate::decide`] decides whether the plugin may run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bundle<'b> {
    bytes: &'b [u8],
    preamble: Preamble<'b>,
    code: &'b [u8],
    staple: Option<Staple>,
}

impl<'b> Bundle<'b> {
    /// Returns the length of a bundle that begins with these bytes, for receivers of pieces. Returns `None` if there are
    /// fewer than 16 bytes.
    pub fn length(beginning: &[u8]) -> Result<Option<usize>, BundleError> {
        if beginning.len() < HEADER {
            let known = beginning.len().min(MAGIC.len());
            return if beginning[..known] == MAGIC[..known] {
                Ok(None)
            } else {
                Err(BundleError::Magic)
            };
        }
        Header::read(beginning).map(|header| Some(header.total()))
    }

    /// Reads a bundle of at most [`MAX_BUNDLE`] bytes. It takes time and memory in proportion to `bytes`.
    pub fn parse(bytes: &'b [u8]) -> Result<Bundle<'b>, BundleError> {
        let header = Header::read(bytes)?;
        // `Preamble::parse` refuses a bundle that is cut within its preamble.
        let (front, rest) = bytes.split_at(header.preamble().min(bytes.len()));
        let preamble = Preamble::parse(front, bytes.len())?;
        let (code, stapled) = rest.split_at(header.code);
        let staple = match preamble.signed {
            Some((author, signature)) if !stapled.is_empty() => {
                let staple = Staple::parse(stapled, author, signature, preamble.text);
                Some(staple.map_err(BundleError::Staple)?)
            }
            _ => None,
        };
        let (found, expected) = (sha256(code), preamble.manifest.code);
        if found != expected {
            return Err(BundleError::Hash { expected: hex(&expected), found: hex(&found) });
        }
        Ok(Bundle { bytes, preamble, code, staple })
    }

    /// SHA-256 of the whole bundle. It changes when the bundle gets another signature or another
    /// proof of a log.
    pub fn hash(&self) -> [u8; 32] {
        sha256(self.bytes)
    }

    /// SHA-256 of the manifest, which is what the author signed: it names the hash of the object.
    pub fn manifest_hash(&self) -> [u8; 32] {
        sha256(self.preamble.text)
    }

    /// The manifest: what the bundle's plugin declares.
    pub fn manifest(&self) -> &Manifest {
        &self.preamble.manifest
    }

    /// Header, signature and manifest: the bytes before the object.
    pub(crate) fn preamble(&self) -> &Preamble<'b> {
        &self.preamble
    }

    /// The manifest as its author wrote it.
    pub fn text(&self) -> &'b [u8] {
        self.preamble.text
    }

    /// The object: ELF, as clang made it. It has been compared with the manifest and not looked into.
    pub fn code(&self) -> &'b [u8] {
        self.code
    }

    /// Public key that the signature belongs to; none if the bundle is not signed.
    pub fn author(&self) -> Option<PublicKey> {
        self.preamble.author()
    }

    /// The signature, which is that of the author.
    pub(crate) fn signature(&self) -> Option<&'b [u8; SIGNATURE]> {
        self.preamble.signed.map(|(_, signature)| signature)
    }

    /// The proof that it is in a log, which was checked; none if the bundle has none.
    pub fn staple(&self) -> Option<&Staple> {
        self.staple.as_ref()
    }
}

pub(crate) fn sha256(bytes: &[u8]) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, bytes).as_ref());
    hash
}

/// Reason that there is no bundle of these parts.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PackError {
    /// Empty, or more than there may be.
    #[error("an object has 1 to {MAX_CODE} bytes, not {0}")]
    Code(usize),
    /// The manifest was refused.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
}

/// A bundle of an object and a manifest that has no `code` yet: the object's hash is put before it.
pub fn pack(manifest: &str, code: &[u8], key: Option<&SigningKey>) -> Result<Vec<u8>, PackError> {
    if !(1..=MAX_CODE).contains(&code.len()) {
        return Err(PackError::Code(code.len()));
    }
    let text = format!("code = \"sha256:{}\"\n{manifest}", hex(&sha256(code)));
    Manifest::parse_behind(text.as_bytes(), 1)?;
    Ok(assemble(text.as_bytes(), code, key))
}

/// Returns the bundle with a signature by this key, in place of an earlier one. A proof that the bundle is in a log is
/// removed, because it belongs to the earlier signature.
pub fn sign(bundle: &Bundle<'_>, key: &SigningKey) -> Vec<u8> {
    assemble(bundle.text(), bundle.code, Some(key))
}

/// Returns the bundle with this proof that it is in a log, in place of an earlier one.
///
/// # Errors
/// [`BundleError::Staple`] if the proof does not belong to this bundle, [`BundleError::Header`] if the bundle has no signature.
pub fn staple(bundle: &Bundle<'_>, staple: &Staple) -> Result<Vec<u8>, BundleError> {
    let Some((author, signature)) = bundle.preamble.signed else {
        return Err(BundleError::Header("a proof that it is in a log, without a signature"));
    };
    let (hashes, proof) = staple.write();
    Staple::parse(&proof, author, signature, bundle.text()).map_err(BundleError::Staple)?;
    let mut bytes = header(bundle.text(), bundle.code, true, hashes + 1);
    bytes.extend_from_slice(author.as_bytes());
    bytes.extend_from_slice(signature);
    bytes.extend_from_slice(bundle.text());
    bytes.extend_from_slice(bundle.code);
    bytes.extend_from_slice(&proof);
    Ok(bytes)
}

fn header(text: &[u8], code: &[u8], signed: bool, staple: u8) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER + KEY + SIGNATURE + text.len() + code.len());
    bytes.extend_from_slice(&MAGIC);
    // `parse` has checked that it is at most MAX_MANIFEST.
    bytes.extend_from_slice(&(text.len() as u16).to_be_bytes());
    bytes.extend_from_slice(&(code.len() as u32).to_be_bytes());
    bytes.extend_from_slice(&[u8::from(signed), staple]);
    bytes
}

/// Assembles a bundle from a manifest and an object that were checked.
fn assemble(text: &[u8], code: &[u8], key: Option<&SigningKey>) -> Vec<u8> {
    let mut bytes = header(text, code, key.is_some(), 0);
    if let Some(key) = key {
        bytes.extend_from_slice(key.public().as_bytes());
        bytes.extend_from_slice(&key.sign(text));
    }
    bytes.extend_from_slice(text);
    bytes.extend_from_slice(code);
    bytes
}
