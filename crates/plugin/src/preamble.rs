//! Reads the preamble of a bundle, which is the part before the object: the header with all
//! lengths, the author's key and signature, and the manifest. A receiver checks the preamble before
//! the object arrives.

use crate::bundle::{BundleError, MAX_CODE, MAX_MANIFEST};
use crate::key::{KEY, PublicKey, SIGNATURE};
use crate::manifest::Manifest;
use crate::transparency::staple_length;

/// The first eight bytes of a bundle. The last of these bytes is the version of the format.
pub(crate) const MAGIC: [u8; 8] = *b"\x89QPLUG\n\x01";
/// Size of a bundle's header, in bytes: the magic bytes (8), the length of the manifest (2), the
/// length of the object (4), a flag for the signature (1), and a byte for the staple. A staple is
/// the proof that a log contains the bundle. Its byte is 0 without a staple, otherwise 1 plus the
/// number of hashes in the staple.
pub(crate) const HEADER: usize = 16;

/// Maximum size of a preamble, in bytes.
pub(crate) const MAX_PREAMBLE: usize = HEADER + KEY + SIGNATURE + MAX_MANIFEST;

/// The header of a bundle, which has the lengths of the bundle's parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    manifest: usize,
    pub(crate) code: usize,
    signed: bool,
    /// Size of the staple (the proof that a log contains the bundle) in bytes, or 0 if the bundle
    /// has no staple.
    staple: usize,
}

impl Header {
    /// Reads the header at the beginning of a bundle.
    pub(crate) fn read(bundle: &[u8]) -> Result<Header, BundleError> {
        let bytes: &[u8; HEADER] = bundle.first_chunk().ok_or(BundleError::Magic)?;
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
            return Err(BundleError::Header(
                "the header has a flag that version 1 does not define",
            ));
        }
        let staple = match (hashes.checked_sub(1), signed) {
            (None, _) => 0,
            (Some(_), 0) => {
                return Err(BundleError::Header("the bundle has a log proof, but no signature"));
            }
            (Some(hashes), _) => {
                staple_length(hashes).ok_or(BundleError::Header("the log proof is too long"))?
            }
        };
        Ok(Header { manifest, code, signed: signed == 1, staple })
    }

    /// Returns the size of the preamble, which is everything before the object, in bytes.
    pub(crate) fn preamble(&self) -> usize {
        HEADER + if self.signed { KEY + SIGNATURE } else { 0 } + self.manifest
    }

    /// Returns the length of the whole bundle, in bytes.
    pub(crate) fn total(&self) -> usize {
        self.preamble() + self.code + self.staple
    }
}

/// A preamble whose lengths and manifest are valid, and whose signature is valid if it has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Preamble<'b> {
    pub(crate) header: Header,
    pub(crate) manifest: Manifest,
    /// The manifest's text as its author wrote it.
    pub(crate) text: &'b [u8],
    /// The author's public key and signature, or `None` if the bundle is not signed.
    pub(crate) signed: Option<(PublicKey, &'b [u8; SIGNATURE])>,
}

impl<'b> Preamble<'b> {
    /// Reads the complete preamble of a bundle that has `size` bytes.
    pub(crate) fn parse(bytes: &'b [u8], size: usize) -> Result<Preamble<'b>, BundleError> {
        let header = Header::read(bytes)?;
        if size != header.total() {
            return Err(BundleError::Length { expected: header.total(), found: size });
        }
        if bytes.len() != header.preamble() {
            return Err(BundleError::Preamble { expected: header.preamble(), found: bytes.len() });
        }
        let signature = if header.signed { KEY + SIGNATURE } else { 0 };
        let (signed, text) = bytes[HEADER..].split_at(signature);
        // The signature is checked first, so that a forged manifest is not parsed.
        let signed = match signed.split_first_chunk::<KEY>() {
            Some((key, signature)) => {
                let key = PublicKey::from_bytes(*key);
                let signature: Option<&[u8; SIGNATURE]> = signature.try_into().ok();
                let signature = signature.filter(|signature| key.signed(text, signature));
                Some((key, signature.ok_or(BundleError::Signature(key))?))
            }
            None => None,
        };
        Ok(Preamble { header, manifest: Manifest::parse(text)?, text, signed })
    }

    /// Returns the public key of the signature, or `None` if there is no signature.
    pub(crate) fn author(&self) -> Option<PublicKey> {
        self.signed.map(|(author, _)| author)
    }

    /// Returns `true` if a staple (a log proof) follows the object. The proof itself is checked
    /// when the staple has arrived.
    pub(crate) fn has_staple(&self) -> bool {
        self.header.staple > 0
    }
}
