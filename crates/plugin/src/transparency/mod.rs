//! Transparency logs of plugins. A log is an append-only Merkle tree (RFC 9162 s.2.1) of the
//! manifests that authors have signed. If an endpoint requires a log, every plugin that it accepts
//! is public, so authors can find plugins that were signed with their keys.
//!
//! * `merkle.rs`: the tree, with roots and inclusion proofs.
//! * `entry.rs`: an entry of a log, which is a manifest with its author's key and signature.
//! * `head.rs`: the tree head, with which the log signs the tree's size, root and time.
//! * `staple.rs`: the proof in a bundle that a log contains the bundle's entry.
//! * `log.rs`: a log as a folder of files, for its operator.
//! * `monitor.rs`: checks that a log has only grown, and lists the new entries.
//!
//! `docs/plugins.md` describes the defence against each threat: a forged proof, a proof of another
//! bundle, and a log that shows two trees or removes entries.

mod entry;
mod head;
mod log;
mod merkle;
mod monitor;
mod staple;

pub use entry::{Entry, EntryError, MAX_ENTRY};
pub use head::{HeadError, MAX_HEAD, TreeHead};
pub use log::{Log, LogError};
pub use merkle::{Hash, Tree, root_by};
pub use monitor::{Alarm, News, check};
pub use staple::Staple;
pub(crate) use staple::{MAX_STAPLE, length as staple_length};

/// Maximum number of entries in a log. A monitor reads 32 bytes for each entry.
pub const MAX_ENTRIES: u64 = 1 << 24;
