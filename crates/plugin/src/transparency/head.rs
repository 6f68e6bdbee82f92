//! Tree heads, with which a log signs the size and root of its tree at some time (RFC 9162 s.4.10,
//! in this project's own format).

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use super::MAX_ENTRIES;
use super::merkle::Hash;
use crate::key::{PublicKey, SIGNATURE, SigningKey, hex, unhex};

/// First line of a tree head's text.
const TITLE: &str = "equic plugin log 1";
/// Prefix of the signed bytes. Because of it, a signature that was made for another purpose is not
/// valid for a tree head.
const CONTEXT: &[u8] = b"equic plugin log head 1\0";

/// Maximum length of a tree head's text, in bytes.
pub const MAX_HEAD: usize = 512;

/// Error of reading a tree head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum HeadError {
    /// The text does not have the form of a tree head.
    #[error("the text is not a tree head of version 1")]
    Form,
    /// The signature is not one by the given key for this tree head.
    #[error("the signature by {0} does not match this tree head")]
    Signature(PublicKey),
}

/// The size and root of a log's tree at a given time, signed by the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeHead {
    log: PublicKey,
    size: u64,
    time: u64,
    root: Hash,
    signature: [u8; SIGNATURE],
}

fn message(size: u64, time: u64, root: &Hash) -> Vec<u8> {
    [CONTEXT, &size.to_be_bytes(), &time.to_be_bytes(), root].concat()
}

impl TreeHead {
    /// Creates and signs a tree head. `time` is in seconds since the Unix epoch.
    pub(super) fn sign(key: &SigningKey, size: u64, time: u64, root: Hash) -> TreeHead {
        let signature = key.sign_bytes(&message(size, time, &root));
        TreeHead { log: key.public(), size, time, root, signature }
    }

    /// Returns a tree head with these values, or an error if the signature is invalid.
    pub(super) fn verified(
        log: PublicKey,
        size: u64,
        time: u64,
        root: Hash,
        signature: [u8; SIGNATURE],
    ) -> Result<TreeHead, HeadError> {
        if !log.signed_bytes(&message(size, time, &root), &signature) {
            return Err(HeadError::Signature(log));
        }
        Ok(TreeHead { log, size, time, root, signature })
    }

    /// Returns the log's public key.
    pub fn log(&self) -> PublicKey {
        self.log
    }

    /// Returns the number of entries in the log.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Returns the time of the signature, in seconds since the Unix epoch.
    pub fn time(&self) -> u64 {
        self.time
    }

    /// Returns the root hash of the log's tree.
    pub fn root(&self) -> Hash {
        self.root
    }

    pub(super) fn signature(&self) -> &[u8; SIGNATURE] {
        &self.signature
    }
}

/// Writes the tree head's text, which has six lines.
impl fmt::Display for TreeHead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TreeHead { log, size, time, root, signature } = self;
        let (root, signature) = (hex(root), hex(signature));
        write!(
            f,
            "{TITLE}\nlog {log}\nsize {size}\ntime {time}\nroot {root}\nsignature {signature}\n"
        )
    }
}

/// Parses a number without a sign or leading zeros, so that each value has exactly one text form.
fn number(text: &str) -> Option<u64> {
    let value = text.parse().ok()?;
    (format!("{value}") == text).then_some(value)
}

impl FromStr for TreeHead {
    type Err = HeadError;

    fn from_str(text: &str) -> Result<TreeHead, HeadError> {
        if text.len() > MAX_HEAD {
            return Err(HeadError::Form);
        }
        let mut lines = text.strip_suffix('\n').ok_or(HeadError::Form)?.split('\n');
        let mut value = |name: &str| {
            let line = lines.next().and_then(|line| line.strip_prefix(name));
            line.ok_or(HeadError::Form)
        };
        if !value(TITLE)?.is_empty() {
            return Err(HeadError::Form);
        }
        let log = value("log ")?.parse().map_err(|_| HeadError::Form)?;
        let size = number(value("size ")?).filter(|size| *size <= MAX_ENTRIES);
        let time = number(value("time ")?);
        let root = unhex(value("root ")?);
        let signature = value("signature ")?;
        let halves = signature.split_at_checked(64).ok_or(HeadError::Form)?;
        let (Some(first), Some(second)) = (unhex(halves.0), unhex(halves.1)) else {
            return Err(HeadError::Form);
        };
        if lines.next().is_some() {
            return Err(HeadError::Form);
        }
        let (Some(size), Some(time), Some(root)) = (size, time, root) else {
            return Err(HeadError::Form);
        };
        let mut signature = [0; SIGNATURE];
        signature[..32].copy_from_slice(&first);
        signature[32..].copy_from_slice(&second);
        TreeHead::verified(log, size, time, root, signature)
    }
}
