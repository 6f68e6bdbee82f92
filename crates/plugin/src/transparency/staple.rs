//! Staples. A staple is the proof in a bundle that a log contains the bundle's entry. The author's
//! signature does not cover the staple, because the staple is made later. A staple does not contain
//! the tree's root: the reader computes the root from the entry and the proof, and then checks the
//! log's signature of that root.

use super::entry::leaf_of;
use super::head::{HeadError, TreeHead};
use super::merkle::{Hash, MAX_PATH, root_by};
use crate::key::{KEY, PublicKey, SIGNATURE};

/// Length of the fields before the hashes (key, size, time, signature and index), in bytes.
const FIXED: usize = KEY + 8 + 8 + SIGNATURE + 8;

/// Maximum size of a staple, in bytes.
pub(crate) const MAX_STAPLE: usize = FIXED + MAX_PATH * 32;

/// Returns the size of a staple whose proof has this many hashes, in bytes, or `None` if it has too
/// many.
pub(crate) fn length(hashes: u8) -> Option<usize> {
    let hashes = usize::from(hashes);
    (hashes <= MAX_PATH).then_some(FIXED + hashes * 32)
}

/// A proof that a log contains an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Staple {
    head: TreeHead,
    index: u64,
    path: Vec<Hash>,
}

impl Staple {
    pub(super) fn new(head: TreeHead, index: u64, path: Vec<Hash>) -> Staple {
        Staple { head, index, path }
    }

    /// Parses a staple, and checks that it proves a manifest with this signature of `author`.
    pub(crate) fn parse(
        bytes: &[u8],
        author: PublicKey,
        signature: &[u8; SIGNATURE],
        text: &[u8],
    ) -> Result<Staple, HeadError> {
        let mut rest = bytes;
        let log = PublicKey::from_bytes(take(&mut rest)?);
        let size = u64::from_be_bytes(take(&mut rest)?);
        let time = u64::from_be_bytes(take(&mut rest)?);
        let logs = take::<SIGNATURE>(&mut rest)?;
        let index = u64::from_be_bytes(take(&mut rest)?);
        let (path, []) = rest.as_chunks::<32>() else { return Err(HeadError::Form) };
        let leaf = leaf_of(author, signature, text);
        let root = root_by(leaf, index, size, path).ok_or(HeadError::Form)?;
        let head = TreeHead::verified(log, size, time, root, logs)?;
        Ok(Staple { head, index, path: path.to_vec() })
    }

    /// Returns the number of hashes in the staple, and the staple's bytes.
    pub(crate) fn write(&self) -> (u8, Vec<u8>) {
        let mut bytes = Vec::with_capacity(FIXED + self.path.len() * 32);
        bytes.extend_from_slice(self.head.log().as_bytes());
        bytes.extend_from_slice(&self.head.size().to_be_bytes());
        bytes.extend_from_slice(&self.head.time().to_be_bytes());
        bytes.extend_from_slice(self.head.signature());
        bytes.extend_from_slice(&self.index.to_be_bytes());
        bytes.extend_from_slice(self.path.as_flattened());
        // A proof has at most MAX_PATH hashes.
        (self.path.len() as u8, bytes)
    }

    /// Returns the log's signed tree head to which the proof belongs.
    pub fn head(&self) -> &TreeHead {
        &self.head
    }

    /// Returns the index of the entry in the log, from 0.
    pub fn index(&self) -> u64 {
        self.index
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], HeadError> {
    let (first, others) = rest.split_first_chunk::<N>().ok_or(HeadError::Form)?;
    *rest = others;
    Ok(*first)
}
