//! Entries of a log: signed manifests with their author's key, which prove who the author is.

use thiserror::Error;

use super::merkle::{self, Hash};
use crate::bundle::{Bundle, MAX_MANIFEST};
use crate::key::{KEY, PublicKey, SIGNATURE};
use crate::manifest::{Manifest, ManifestError};

/// Format version of an entry, which is its first byte.
const VERSION: u8 = 1;
/// Size of the version, the key and the signature, in bytes.
const FIXED: usize = 1 + KEY + SIGNATURE;

/// Maximum size of an entry, in bytes.
pub const MAX_ENTRY: usize = FIXED + MAX_MANIFEST;

/// Reason for refusing bytes as an entry.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum EntryError {
    /// The bytes are too short, too long, or of another version.
    #[error("this is not an entry of version 1")]
    Form,
    /// The signature does not match the manifest and the key.
    #[error("the signature by {0} does not match this manifest")]
    Signature(PublicKey),
    /// The manifest was refused.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// The bundle has no signature, and so no author.
    #[error("this bundle has no signature: a log accepts only signed bundles")]
    Unsigned,
}

/// An entry: a manifest, which contains its object's hash, with the author's key and signature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    bytes: Vec<u8>,
    author: PublicKey,
    manifest: Manifest,
}

impl Entry {
    /// Returns the entry of a signed bundle.
    ///
    /// # Errors
    /// [`EntryError::Unsigned`].
    pub fn of(bundle: &Bundle<'_>) -> Result<Entry, EntryError> {
        let (Some(author), Some(signature)) = (bundle.author(), bundle.signature()) else {
            return Err(EntryError::Unsigned);
        };
        let bytes = assemble(author, signature, bundle.text());
        Ok(Entry { bytes, author, manifest: bundle.manifest().clone() })
    }

    /// Reads an entry of at most [`MAX_ENTRY`] bytes, and checks its signature.
    ///
    /// # Errors
    /// [`EntryError`], except [`EntryError::Unsigned`].
    pub fn parse(bytes: &[u8]) -> Result<Entry, EntryError> {
        if !(FIXED + 1..=MAX_ENTRY).contains(&bytes.len()) || bytes[0] != VERSION {
            return Err(EntryError::Form);
        }
        let (key, rest) = bytes[1..].split_first_chunk::<KEY>().ok_or(EntryError::Form)?;
        let (signature, text) = rest.split_first_chunk::<SIGNATURE>().ok_or(EntryError::Form)?;
        let author = PublicKey::from_bytes(*key);
        if !author.signed(text, signature) {
            return Err(EntryError::Signature(author));
        }
        Ok(Entry { bytes: bytes.to_vec(), author, manifest: Manifest::parse(text)? })
    }

    /// Returns the entry's bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the leaf hash of the entry in a Merkle tree.
    pub fn leaf(&self) -> Hash {
        merkle::leaf(&self.bytes)
    }

    /// Returns the public key that signed the manifest.
    pub fn author(&self) -> PublicKey {
        self.author
    }

    /// The manifest.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }
}

fn assemble(author: PublicKey, signature: &[u8; SIGNATURE], text: &[u8]) -> Vec<u8> {
    [&[VERSION], author.as_bytes().as_slice(), signature, text].concat()
}

/// Returns the leaf hash of a signed manifest.
pub(super) fn leaf_of(author: PublicKey, signature: &[u8; SIGNATURE], text: &[u8]) -> Hash {
    merkle::leaf(&assemble(author, signature, text))
}
