//! The entries of a transparency log. An entry is a signed manifest with its author's public key.

use thiserror::Error;

use super::merkle::{self, Hash};
use crate::bundle::{Bundle, MAX_MANIFEST};
use crate::key::{KEY, PublicKey, SIGNATURE};
use crate::manifest::{Manifest, ManifestError};

/// Format version of an entry. It is the entry's first byte.
const VERSION: u8 = 1;
/// Length of the fields before the manifest (version, key and signature), in bytes.
const FIXED: usize = 1 + KEY + SIGNATURE;

/// Maximum size of an entry, in bytes.
pub const MAX_ENTRY: usize = FIXED + MAX_MANIFEST;

/// Error of reading or creating an entry.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum EntryError {
    /// The bytes are too short or too long, or have an unknown format version.
    #[error("the text is not a log entry of version 1")]
    Form,
    /// The signature is not one by the given key for this manifest.
    #[error("the signature by {0} does not match this manifest")]
    Signature(PublicKey),
    /// The manifest is invalid.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// The bundle is not signed, so its author is unknown.
    #[error("this bundle has no signature: a log accepts only signed bundles")]
    Unsigned,
}

/// An entry of a log: a manifest, with the public key and the signature of its author. The manifest
/// contains the hash of the plugin's object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    bytes: Vec<u8>,
    author: PublicKey,
    manifest: Manifest,
}

impl Entry {
    /// Creates the log entry of a signed bundle.
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

    /// Parses an entry of at most [`MAX_ENTRY`] bytes, and checks its signature.
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

    /// Returns the hash of the entry as a leaf of the log's Merkle tree.
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

/// Returns the hash of a signed manifest as a leaf of the log's Merkle tree.
pub(super) fn leaf_of(author: PublicKey, signature: &[u8; SIGNATURE], text: &[u8]) -> Hash {
    merkle::leaf(&assemble(author, signature, text))
}
