//! An offer of the peer, as far as it has come.

use super::frame::{Offer, Status};
use super::pieces::Pieces;
use crate::bundle::BundleError;
use crate::manifest::{Manifest, Version};
use crate::policy::Refusal;
use crate::runtime::Bytes;

/// An offer that is not over.
#[derive(Debug)]
pub(super) struct Offered {
    /// As it came, but for the bytes that it carried.
    pub(super) offer: Offer,
    /// Bytes that it carried.
    pub(super) carried: usize,
    /// Bytes of the bundle, and of its preamble.
    pub(super) size: usize,
    pub(super) preamble: usize,
    pub(super) state: State,
    pub(super) name: Option<(String, Version)>,
    /// Seconds after 1970 at which the plugin expires; none: never, or its manifest was not read yet.
    pub(super) expires: Option<u64>,
    /// Bytes of the address's account: those of the bundle while it is fetched, and those of the
    /// sandbox and the program once the plugin is loaded. `None`: the offer is refused.
    pub(super) held: Option<Bytes>,
}

#[derive(Debug)]
pub(super) enum State {
    Fetching(Fetching),
    /// It was handed over to be attached.
    Attaching,
    Active,
}

/// A bundle on its way: first its preamble, and once that may run here, all of it.
#[derive(Debug, Default)]
pub(super) struct Fetching {
    /// Bytes that were asked for.
    pub(super) limit: usize,
    /// Bytes that came: of the preamble until it is accepted, then of the bundle. None: not one.
    pub(super) pieces: Option<Pieces>,
    /// The preamble is here, and the policy lets such a plugin run.
    pub(super) accepted: bool,
}

/// Status of an offer that is over, and the reason in words.
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
    /// Bytes that the plugin takes, or that fetching it takes.
    pub(super) fn memory(&self) -> usize {
        self.held.as_ref().map_or(0, Bytes::count)
    }

    /// The manifest is there.
    pub(super) fn read(&mut self, manifest: &Manifest) {
        self.name = Some((manifest.name.clone(), manifest.version));
        self.expires = manifest.expires;
    }

    /// As many frame types are allotted as the manifest names.
    pub(super) fn has_types_for(&self, manifest: &Manifest) -> Result<(), Refused> {
        let (has, allotted) = (manifest.frames.len(), self.offer.frame_types.len());
        if has == allotted {
            return Ok(());
        }
        let why = format!("{allotted} frame types are allotted, and it has {has}");
        Err((Status::FrameTypes, why))
    }
}
