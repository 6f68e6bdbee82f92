//! The state of one plugin that the peer offered.

use super::frame::{Offer, Status};
use super::pieces::Pieces;
use crate::bundle::BundleError;
use crate::manifest::{Manifest, Version};
use crate::policy::Refusal;
use crate::runtime::Bytes;

/// An offer of the peer that has not ended.
#[derive(Debug)]
pub(super) struct Offered {
    /// The OFFER frame, without the bundle bytes that it carried.
    pub(super) offer: Offer,
    /// Number of bundle bytes that the OFFER frame carried.
    pub(super) carried: usize,
    /// Sizes of the bundle and of its preamble, in bytes.
    pub(super) size: usize,
    pub(super) preamble: usize,
    pub(super) state: State,
    pub(super) name: Option<(String, Version)>,
    /// Expiry of the plugin, in seconds since the Unix epoch. `None` if it never expires, or if its
    /// manifest has not been read yet.
    pub(super) expires: Option<u64>,
    /// Memory charged to the account of the peer's address: that of the bundle while it is fetched,
    /// and that of the sandbox and the program after the plugin is loaded. `None` if the offer is
    /// refused.
    pub(super) held: Option<Bytes>,
}

#[derive(Debug)]
pub(super) enum State {
    Fetching(Fetching),
    /// The transport is attaching the plugin's hook.
    Attaching,
    Active,
}

/// A bundle that is being fetched. The preamble comes first, and the rest follows if the policy
/// permits the plugin.
#[derive(Debug, Default)]
pub(super) struct Fetching {
    /// Number of bytes, counted from the bundle's beginning, that the peer may send.
    pub(super) limit: usize,
    /// The bytes that have arrived: of the preamble until it is accepted, of the whole bundle
    /// afterwards. `None` before the first byte.
    pub(super) pieces: Option<Pieces>,
    /// True if the preamble is complete and the policy permits the plugin.
    pub(super) accepted: bool,
}

/// Status with which an offer ends, and the reason in words.
pub(super) type Refused = (Status, String);

pub(super) fn corrupt(error: BundleError) -> Refused {
    (Status::Corrupt, error.to_string())
}

pub(super) fn refused(refusal: Refusal) -> Refused {
    let status = match refusal {
        Refusal::Abi(_) => Status::Unsupported,
        Refusal::TooLarge { .. } => Status::TooLarge,
        Refusal::Expired(_) => Status::Expired,
        _ => Status::Refused,
    };
    (status, refusal.to_string())
}

impl Offered {
    /// Returns the memory that the plugin or its unfinished bundle holds, in bytes.
    pub(super) fn memory(&self) -> usize {
        self.held.as_ref().map_or(0, Bytes::count)
    }

    /// Takes the plugin's name, version and expiry from its manifest.
    pub(super) fn read(&mut self, manifest: &Manifest) {
        self.name = Some((manifest.name.clone(), manifest.version));
        self.expires = manifest.expires;
    }

    /// Checks that the offer has one frame type for each frame type of the manifest.
    pub(super) fn has_types_for(&self, manifest: &Manifest) -> Result<(), Refused> {
        let (has, allotted) = (manifest.frames.len(), self.offer.frame_types.len());
        if has == allotted {
            return Ok(());
        }
        let why = format!("the offer allots {allotted} frame types, but the plugin has {has}");
        Err((Status::FrameTypes, why))
    }
}
