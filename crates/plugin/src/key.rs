//! Ed25519 keys of authors (RFC 8032). Their text form is `ed25519:` and 64 hexadecimal digits.

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use thiserror::Error;

/// Length of a public or private key, in bytes.
pub(crate) const KEY: usize = 32;
/// Length of a signature, in bytes.
pub(crate) const SIGNATURE: usize = 64;

/// Prefix of the signed bytes. Because of it, a signature that was made for another purpose is not
/// valid for a manifest.
const CONTEXT: &[u8] = b"equic plugin manifest 1\0";

/// Error of reading a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The text is not `ed25519:` and 64 hexadecimal digits.
    #[error("the key is malformed: write `ed25519:` and 64 hexadecimal digits")]
    Text,
    /// The private key does not have 32 bytes.
    #[error("a private key must have 32 bytes")]
    Seed,
}

/// An author's public key. Authors are identified by their keys.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PublicKey([u8; KEY]);

impl PublicKey {
    pub(crate) fn from_bytes(bytes: [u8; KEY]) -> PublicKey {
        PublicKey(bytes)
    }

    pub(crate) fn as_bytes(&self) -> &[u8; KEY] {
        &self.0
    }

    /// Returns true if this key signed the manifest.
    pub(crate) fn signed(&self, manifest: &[u8], signature: &[u8; SIGNATURE]) -> bool {
        self.signed_bytes(&[CONTEXT, manifest].concat(), signature)
    }

    /// Returns `true` if this key signed these bytes. The bytes must begin with a prefix that no
    /// other kind of signed data has.
    pub(crate) fn signed_bytes(&self, message: &[u8], signature: &[u8; SIGNATURE]) -> bool {
        UnparsedPublicKey::new(&ED25519, &self.0).verify(message, signature).is_ok()
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ed25519:{}", hex(&self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for PublicKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<PublicKey, KeyError> {
        let digits = text.strip_prefix("ed25519:").ok_or(KeyError::Text)?;
        unhex(digits).map(PublicKey).ok_or(KeyError::Text)
    }
}

/// An author's private key.
pub struct SigningKey(Ed25519KeyPair);

impl SigningKey {
    /// Creates the key from a seed, the 32 bytes that RFC 8032 calls the private key.
    ///
    /// # Errors
    /// [`KeyError`] if the seed does not have 32 bytes.
    pub fn from_seed(seed: &[u8]) -> Result<SigningKey, KeyError> {
        Ed25519KeyPair::from_seed_unchecked(seed).map(SigningKey).map_err(|_| KeyError::Seed)
    }

    /// Returns the public key that belongs to this private key.
    pub fn public(&self) -> PublicKey {
        let mut bytes = [0; KEY];
        bytes.copy_from_slice(self.0.public_key().as_ref());
        PublicKey(bytes)
    }

    pub(crate) fn sign(&self, manifest: &[u8]) -> [u8; SIGNATURE] {
        self.sign_bytes(&[CONTEXT, manifest].concat())
    }

    /// Signs bytes. They must begin with a prefix that no other kind of signed data has.
    pub(crate) fn sign_bytes(&self, message: &[u8]) -> [u8; SIGNATURE] {
        let mut bytes = [0; SIGNATURE];
        bytes.copy_from_slice(self.0.sign(message).as_ref());
        bytes
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the private key of {}", self.public())
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Parses 64 hexadecimal digits. Only lower case is accepted, so that each value has exactly one
/// text form.
pub(crate) fn unhex(digits: &str) -> Option<[u8; 32]> {
    let digits: &[u8; 64] = digits.as_bytes().try_into().ok()?;
    let mut bytes = [0; 32];
    for (byte, pair) in bytes.iter_mut().zip(digits.as_chunks::<2>().0) {
        for digit in pair {
            let value = match digit {
                b'0'..=b'9' => digit - b'0',
                b'a'..=b'f' => digit - b'a' + 10,
                _ => return None,
            };
            *byte = *byte << 4 | value;
        }
    }
    Some(bytes)
}
