//! Bundles: a plugin as bytes. Not an archive: four lengths that are known before anything is kept, no names of files, and
//! one way to write each bundle (`docs/plugins.md`).

use aws_lc_rs::digest::{SHA256, digest};
use thiserror::Error;

use crate::key::{KEY, PublicKey, SIGNATURE, SigningKey, hex};
use crate::manifest::{Manifest, ManifestError};
use crate::transparency::{HeadError, MAX_STAPLE, Staple, staple_length};

/// The first eight bytes; the last of them is the format's version.
const MAGIC: [u8; 8] = *b"\x89QPLUG\n\x01";
/// Magic, lengths of manifest (2) and object (4), whether it is signed (1), and 1 more than the hashes of its staple, or 0
/// if it has none (1).
const HEADER: usize = 16;

/// Bytes of a manifest at most.
pub const MAX_MANIFEST: usize = 8 << 10;
/// Bytes of an object at most. A policy may want less.
pub const MAX_CODE: usize = 1 << 20;
/// Bytes of a bundle at most.
pub const MAX_BUNDLE: usize = HEADER + KEY + SIGNATURE + MAX_MANIFEST + MAX_CODE + MAX_STAPLE;

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
    /// The staple does not prove that this bundle is in the log that it names.
    #[error("the proof that it is in a log: {0}")]
    Staple(HeadError),
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
    /// Author and signature.
    signed: Option<(PublicKey, &'b [u8; SIGNATURE])>,
    staple: Option<Staple>,
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
        let (text, rest) = rest.split_at(header.manifest);
        let (code, stapled) = rest.split_at(header.code);
        // The cheapest first: nothing is parsed that somebody else signed.
        let signed = match signed.split_first_chunk::<KEY>() {
            Some((key, signature)) => {
                let key = PublicKey::from_bytes(*key);
                let signature: Option<&[u8; SIGNATURE]> = signature.try_into().ok();
                let signature = signature.filter(|signature| key.signed(text, signature));
                Some((key, signature.ok_or(BundleError::Signature(key))?))
            }
            None => None,
        };
        let staple = match signed {
            Some((author, signature)) if !stapled.is_empty() => {
                let staple = Staple::parse(stapled, author, signature, text);
                Some(staple.map_err(BundleError::Staple)?)
            }
            _ => None,
        };
        let manifest = Manifest::parse(text)?;
        let found = sha256(code);
        if found != manifest.code {
            return Err(BundleError::Hash { expected: hex(&manifest.code), found: hex(&found) });
        }
        Ok(Bundle { manifest, text, code, signed, staple })
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
        self.signed.map(|(author, _)| author)
    }

    /// The signature, which is that of the author.
    pub(crate) fn signature(&self) -> Option<&'b [u8; SIGNATURE]> {
        self.signed.map(|(_, signature)| signature)
    }

    /// The proof that it is in a log, which was checked; none if the bundle has none.
    pub fn staple(&self) -> Option<&Staple> {
        self.staple.as_ref()
    }
}

struct Header {
    manifest: usize,
    code: usize,
    signed: bool,
    /// Bytes of the staple; 0: there is none.
    staple: usize,
}

impl Header {
    fn read(bytes: &[u8; HEADER]) -> Result<Header, BundleError> {
        let [m0, m1, m2, m3, m4, m5, m6, m7, t0, t1, c0, c1, c2, c3, signed, hashes] = *bytes;
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
        if signed > 1 {
            return Err(BundleError::Header("a flag that version 1 does not have"));
        }
        let staple = match (hashes.checked_sub(1), signed) {
            (None, _) => 0,
            (Some(_), 0) => {
                return Err(BundleError::Header(
                    "a proof that it is in a log, without a signature",
                ));
            }
            (Some(hashes), _) => {
                staple_length(hashes).ok_or(BundleError::Header("a proof that is too long"))?
            }
        };
        Ok(Header { manifest, code, signed: signed == 1, staple })
    }

    fn signature(&self) -> usize {
        if self.signed { KEY + SIGNATURE } else { 0 }
    }

    fn total(&self) -> usize {
        HEADER + self.signature() + self.manifest + self.code + self.staple
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

/// The same bundle, signed by this key, whoever signed it before. A proof that it is in a log, which was of the former
/// signature, is gone.
pub fn sign(bundle: &Bundle<'_>, key: &SigningKey) -> Vec<u8> {
    assemble(bundle.text, bundle.code, Some(key))
}

/// The same bundle with the proof that it is in a log, in place of another one.
///
/// # Errors
/// [`BundleError::Staple`] if the proof is not of this bundle, [`BundleError::Header`] if nobody signed it.
pub fn staple(bundle: &Bundle<'_>, staple: &Staple) -> Result<Vec<u8>, BundleError> {
    let Some((author, signature)) = bundle.signed else {
        return Err(BundleError::Header("a proof that it is in a log, without a signature"));
    };
    let (hashes, proof) = staple.write();
    Staple::parse(&proof, author, signature, bundle.text).map_err(BundleError::Staple)?;
    let mut bytes = header(bundle.text, bundle.code, true, hashes + 1);
    bytes.extend_from_slice(author.as_bytes());
    bytes.extend_from_slice(signature);
    bytes.extend_from_slice(bundle.text);
    bytes.extend_from_slice(bundle.code);
    bytes.extend_from_slice(&proof);
    Ok(bytes)
}

fn header(text: &[u8], code: &[u8], signed: bool, staple: u8) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER + KEY + SIGNATURE + text.len() + code.len());
    bytes.extend_from_slice(&MAGIC);
    // `parse` has seen that it is no more than MAX_MANIFEST.
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
