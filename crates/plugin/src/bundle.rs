//! Reads and writes bundles. A bundle is a plugin as a sequence of bytes (`docs/plugins.md`): a
//! header, the author's signature, the manifest, the object, and a proof that a log contains the
//! bundle.
//!
//! The header has four lengths, so a reader knows all sizes before it stores anything. The format
//! has no file names, and the same manifest and object always give the same bytes.

use aws_lc_rs::digest::{SHA256, digest};
use thiserror::Error;

use crate::key::{KEY, PublicKey, SIGNATURE, SigningKey, hex};
use crate::manifest::{Manifest, ManifestError};
use crate::preamble::{HEADER, Header, MAGIC, MAX_PREAMBLE, Preamble};
use crate::transparency::{HeadError, MAX_STAPLE, Staple};

/// Maximum size of a bundle's manifest, in bytes.
pub const MAX_MANIFEST: usize = 8 << 10;
/// Maximum size of a bundle's object file, in bytes. A policy may set a lower limit.
pub const MAX_CODE: usize = 1 << 20;
/// Maximum size of a whole bundle, in bytes.
pub const MAX_BUNDLE: usize = MAX_PREAMBLE + MAX_CODE + MAX_STAPLE;

/// Error of reading a bundle.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BundleError {
    /// The bytes are not a bundle, or their format version is unknown.
    #[error("this is not a plugin bundle of version 1")]
    Magic,
    /// A length or a flag of the header is invalid.
    #[error("the bundle's header is invalid: {0}")]
    Header(&'static str),
    /// The bundle is shorter or longer than its header declares.
    #[error("the bundle has {found} bytes, but its header says {expected}")]
    Length {
        /// Length of the bundle that its header declares, in bytes.
        expected: usize,
        /// Actual length of the bundle, in bytes.
        found: usize,
    },
    /// The preamble (header, signature and manifest) is not as long as declared.
    #[error("the object begins after {found} bytes, but the bundle's header says {expected}")]
    Preamble {
        /// Length of the preamble that the bundle's header declares, in bytes.
        expected: usize,
        /// Length of the preamble that the peer's offer declared, or that was found, in bytes.
        found: usize,
    },
    /// The signature is not one by the given key for this manifest.
    #[error("the signature by {0} does not match this manifest")]
    Signature(PublicKey),
    /// The proof at the end of the bundle does not show that the log named in it contains the
    /// bundle.
    #[error("the proof that the bundle is in a log is invalid: {0}")]
    Staple(HeadError),
    /// The manifest is invalid.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// The object does not have the hash that the manifest declares.
    #[error("the object has the hash {found}, but the manifest says {expected}")]
    Hash {
        /// Hash that the manifest declares.
        expected: String,
        /// Actual hash of the object.
        found: String,
    },
}

/// A bundle that was read and checked. Its manifest is valid, its object matches the manifest, and
/// its signature is valid if it has one. [`crate::decide`] decides whether the plugin may run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bundle<'b> {
    bytes: &'b [u8],
    preamble: Preamble<'b>,
    code: &'b [u8],
    staple: Option<Staple>,
}

impl<'b> Bundle<'b> {
    /// Returns the length of the whole bundle that begins with these bytes, so that a receiver of
    /// pieces knows it in advance. Returns `None` if there are fewer than 16 bytes.
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

    /// Reads a bundle of at most [`MAX_BUNDLE`] bytes. Time and memory are proportional to the
    /// length of `bytes`.
    pub fn parse(bytes: &'b [u8]) -> Result<Bundle<'b>, BundleError> {
        let header = Header::read(bytes)?;
        // The slice may end within the preamble. `Preamble::parse` then refuses the bundle.
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

    /// Returns the SHA-256 of the whole bundle. Adding a signature or a log proof changes this
    /// hash.
    pub fn hash(&self) -> [u8; 32] {
        sha256(self.bytes)
    }

    /// Returns the SHA-256 of the manifest, which contains the object's hash. The author signs the
    /// manifest.
    pub fn manifest_hash(&self) -> [u8; 32] {
        sha256(self.preamble.text)
    }

    /// Returns the manifest, in which the plugin declares what it needs.
    pub fn manifest(&self) -> &Manifest {
        &self.preamble.manifest
    }

    /// Returns the preamble, which is everything before the object: header, signature and manifest.
    pub(crate) fn preamble(&self) -> &Preamble<'b> {
        &self.preamble
    }

    /// Returns the manifest's text as its author wrote it.
    pub fn text(&self) -> &'b [u8] {
        self.preamble.text
    }

    /// Returns the object, an ELF file from clang. Its hash matches the manifest. Its content has
    /// not been checked.
    pub fn code(&self) -> &'b [u8] {
        self.code
    }

    /// Returns the public key of the signature, or `None` if the bundle is not signed.
    pub fn author(&self) -> Option<PublicKey> {
        self.preamble.author()
    }

    /// Returns the author's signature, or `None` if the bundle is not signed.
    pub(crate) fn signature(&self) -> Option<&'b [u8; SIGNATURE]> {
        self.preamble.signed.map(|(_, signature)| signature)
    }

    /// Returns the proof that a log contains the bundle, or `None` if the bundle has no proof. The
    /// proof has been checked.
    pub fn staple(&self) -> Option<&Staple> {
        self.staple.as_ref()
    }
}

pub(crate) fn sha256(bytes: &[u8]) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, bytes).as_ref());
    hash
}

/// Error of packing a bundle from a manifest and an object.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PackError {
    /// The object is empty or too long.
    #[error("an object must have 1 to {MAX_CODE} bytes, not {0}")]
    Code(usize),
    /// The manifest is invalid.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
}

/// Packs an object and a manifest into a bundle. The manifest must have no `code` key, because this
/// function adds the object's hash as the manifest's first line.
pub fn pack(manifest: &str, code: &[u8], key: Option<&SigningKey>) -> Result<Vec<u8>, PackError> {
    if !(1..=MAX_CODE).contains(&code.len()) {
        return Err(PackError::Code(code.len()));
    }
    let text = format!("code = \"sha256:{}\"\n{manifest}", hex(&sha256(code)));
    Manifest::parse_behind(text.as_bytes(), 1)?;
    Ok(assemble(text.as_bytes(), code, key))
}

/// Returns the bundle signed with this key. The new signature replaces an earlier one. A proof that
/// a log contains the bundle is removed, because it covers the earlier signature.
pub fn sign(bundle: &Bundle<'_>, key: &SigningKey) -> Vec<u8> {
    assemble(bundle.text(), bundle.code, Some(key))
}

/// Returns the bundle with `staple`, a proof that a log contains the bundle. It replaces an earlier
/// proof.
///
/// # Errors
/// [`BundleError::Staple`] if the proof does not belong to this bundle, [`BundleError::Header`] if
/// the bundle has no signature.
pub fn staple(bundle: &Bundle<'_>, staple: &Staple) -> Result<Vec<u8>, BundleError> {
    let Some((author, signature)) = bundle.preamble.signed else {
        return Err(BundleError::Header("the bundle has a log proof, but no signature"));
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
    // `parse` has checked that the text has at most MAX_MANIFEST bytes.
    bytes.extend_from_slice(&(text.len() as u16).to_be_bytes());
    bytes.extend_from_slice(&(code.len() as u32).to_be_bytes());
    bytes.extend_from_slice(&[u8::from(signed), staple]);
    bytes
}

/// Assembles a bundle from a manifest and an object that have been checked.
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
