//! Transparency logs of plugins: an append-only Merkle tree (RFC 9162 s.2.1) of what authors have signed, so that a plugin
//! that is accepted somewhere can be seen by everybody, its author included.
//!
//! * `merkle.rs`: the tree: roots and inclusion proofs;
//! * `entry.rs`: an entry: a manifest with its author's key and signature;
//! * `head.rs`: what the log signs: size, time and root of the tree;
//! * `staple.rs`: the proof that a bundle carries that its entry is in a log;
//! * `log.rs`: a log as a folder of files, for who keeps one;
//! * `monitor.rs`: whether a log has only ever grown, and by what, for who watches one.
//!
//! What each of the threats meets (a forged proof, one of another bundle, a log that shows two trees or takes entries
//! back) is in `docs/plugins.md`.

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

/// The most entries that a log has: a monitor reads 32 bytes of each.
pub const MAX_ENTRIES: u64 = 1 << 24;
