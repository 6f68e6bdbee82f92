//! Bundles: a plugin as bytes. Not an archive: four lengths that are known before anything is kept, no names of files, and
//! one way to write each bundle (`docs/plugins.md`).

use aws_lc_rs::digest::{SHA256, digest};
use thiserror::Error;

use crate::key::{KEY, PublicKey, SIGNATURE, SigningKey, hex};
use crate::manifest::{Manifest, ManifestError};

/// The first eight bytes; the last of them is the format's version.
const MAGIC: [u8; 8] = *b"\x89QPLUG\n\x01";
/// Magic, lengths of manifest (2) and object (4), whether it is signed (1), a byte of zero.
const HEADER: usize = 16;

/// Bytes of a manifest at most.
pub const MAX_MANIFEST: usize = 8 << 10;
/// Bytes of an object at most. A policy may want less.
pub const MAX_CODE: usize = 1 << 20;
/// Bytes of a bundle at most.
pub const MAX_BUNDLE: usize = HEADER + KEY + SIGNATURE + MAX_MANIFEST + MAX_CODE;

/// Reason for which bytes are refused as a bundle.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BundleError {
    /// Not a bundle, or of another version of the format.
    #[error("this is not a plugin bundle of version 1")]
    Magic,
    /// A length or a flag that cannot be.
    #[error("the bundle's header: {0}")]
    Header(&'static str),
    /// Bytes are missing, or there are more.
    #[error("the bundle has {found} bytes where its header says {expected}")]
    Length {
        /// Bytes that the header speaks of.
        expected: usize,
        /// Bytes that there are.
        found: usize,
    },
    /// The signature is not that of this manifest by this key.
    #[error("the signature by {0} is not one of this manifest")]
    Signature(PublicKey),
    /// The manifest was refused.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// The object is not the one that the manifest speaks of.
    #[error("the object has the hash {found}, and the manifest says {expected}")]
    Hash {
        /// By the manifest.
        expected: String,
        /// Of the object.
        found: String,
    },
}

/// A plugin that was read: its manifest is sound, its object the manifest's, and its signature, if it has one, right. Whether
/// it may run is [`crate::decide`]'s to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bundle<'b> {
    manifest: Manifest,
    text: &'b [u8],
    code: &'b [u8],
    author: Option<PublicKey>,
}

impl<'b> Bundle<'b> {
    /// Bytes that a bundle has which begins like this, for who receives one piece by piece: nothing while fewer
    /// than 16 bytes are there.
    pub fn length(beginning: &[u8]) -> Result<Option<usize>, BundleError> {
        let Some(header) = beginning.first_chunk::<HEADER>() else {
            let known = beginning.len().min(MAGIC.len());
            return if beginning[..known] == MAGIC[..known] {
                Ok(None)
            } else {
                Err(BundleError::Magic)
            };
        };
        Header::read(header).map(|header| Some(header.total()))
    }

    /// Reads a bundle. It takes time and memory in proportion to `bytes`, of which [`MAX_BUNDLE`] are the most.
    pub fn parse(bytes: &'b [u8]) -> Result<Bundle<'b>, BundleError> {
        let (header, rest) = bytes.split_first_chunk::<HEADER>().ok_or(BundleError::Magic)?;
        let header = Header::read(header)?;
        if bytes.len() != header.total() {
            return Err(BundleError::Length { expected: header.total(), found: bytes.len() });
        }
        let (signed, rest) = rest.split_at(header.signature());
        let (text, code) = rest.split_at(header.manifest);
        // The cheapest first: nothing is parsed that somebody else signed.
        let author = match signed.split_first_chunk::<KEY>() {
            Some((key, signature)) => {
                let key = PublicKey::from_bytes(*key);
                let right = signature.try_into().is_ok_and(|signature| key.signed(text, signature));
                if !right {
                    return Err(BundleError::Signature(key));
                }
                Some(key)
            }
            None => None,
        };
        let manifest = Manifest::parse(text)?;
        let found = sha256(code);
        if found != manifest.code {
            return Err(BundleError::Hash { expected: hex(&manifest.code), found: hex(&found) });
        }
        Ok(Bundle { manifest, text, code, author })
    }

    /// The manifest: what the bundle's plugin declares.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The manifest as its author wrote it.
    pub fn text(&self) -> &'b [u8] {
        self.text
    }

    /// The object: ELF, as clang made it. It has been compared with the manifest and not looked into.
    pub fn code(&self) -> &'b [u8] {
        self.code
    }

    /// Public key that the signature belongs to; none if the bundle is not signed.
    pub fn author(&self) -> Option<PublicKey> {
        self.author
    }
}

struct Header {
    manifest: usize,
    code: usize,
    signed: bool,
}

impl Header {
    fn read(bytes: &[u8; HEADER]) -> Result<Header, BundleError> {
        let [m0, m1, m2, m3, m4, m5, m6, m7, t0, t1, c0, c1, c2, c3, signed, zero] = *bytes;
        if [m0, m1, m2, m3, m4, m5, m6, m7] != MAGIC {
            return Err(BundleError::Magic);
        }
        let manifest = usize::from(u16::from_be_bytes([t0, t1]));
        let code = u32::from_be_bytes([c0, c1, c2, c3]);
        let code =
            usize::try_from(code).map_err(|_| BundleError::Header("the object is too long"))?;
        if !(1..=MAX_MANIFEST).contains(&manifest) {
            return Err(BundleError::Header("the manifest is empty or too long"));
        }
        if !(1..=MAX_CODE).contains(&code) {
            return Err(BundleError::Header("the object is empty or too long"));
        }
        if signed > 1 || zero != 0 {
            return Err(BundleError::Header("a flag that version 1 does not have"));
        }
        Ok(Header { manifest, code, signed: signed == 1 })
    }

    fn signature(&self) -> usize {
        if self.signed { KEY + SIGNATURE } else { 0 }
    }

    fn total(&self) -> usize {
        HEADER + self.signature() + self.manifest + self.code
    }
}

pub(crate) fn sha256(bytes: &[u8]) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, bytes).as_ref());
    hash
}

/// Why there is no bundle of these parts.
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
    Manifest::parse(text.as_bytes())?;
    Ok(assemble(text.as_bytes(), code, key))
}

/// The same bundle, signed by this key, whoever signed it before.
pub fn sign(bundle: &Bundle<'_>, key: &SigningKey) -> Vec<u8> {
    assemble(bundle.text, bundle.code, Some(key))
}

/// Assembles a bundle from a manifest and an object that were checked.
fn assemble(text: &[u8], code: &[u8], key: Option<&SigningKey>) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER + KEY + SIGNATURE + text.len() + code.len());
    bytes.extend_from_slice(&MAGIC);
    // `parse` has seen that it is no more than MAX_MANIFEST.
    bytes.extend_from_slice(&(text.len() as u16).to_be_bytes());
    bytes.extend_from_slice(&(code.len() as u32).to_be_bytes());
    bytes.extend_from_slice(&[u8::from(key.is_some()), 0]);
    if let Some(key) = key {
        bytes.extend_from_slice(key.public().as_bytes());
        bytes.extend_from_slice(&key.sign(text));
    }
    bytes.extend_from_slice(text);
    bytes.extend_from_slice(code);
    bytes
}
