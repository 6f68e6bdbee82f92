//! Monitors check that a log has only grown, and list the new entries. A monitor has the leaves of the whole log, 32 bytes
//! for each entry, and computes the roots itself, so it needs no consistency proof (RFC 9162 s.2.1.4) from the log.

use thiserror::Error;

use super::{Entry, Log, LogError, Staple, TreeHead};
use crate::key::PublicKey;

/// Misbehaviour of a log, or an unreadable part of it.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Alarm {
    /// The log is signed with another key.
    #[error("this log is {found}, not {expected}")]
    AnotherLog {
        /// Public key of the watched log.
        expected: PublicKey,
        /// Public key that signed the head.
        found: PublicKey,
    },
    /// Entries are missing.
    #[error("the log was TRUNCATED: it had {known} entries, and has {present}")]
    Truncated {
        /// Former number of entries.
        known: u64,
        /// Present number of entries.
        present: u64,
    },
    /// The first entries have changed, or the log shows different trees to different readers.
    #[error("the log was FORKED: its first {size} entries are not those that it signed before")]
    Forked {
        /// Size of the tree that the log signed before.
        size: u64,
    },
    /// The log has more entries, but its head is older.
    #[error(
        "the log's head is of {present} seconds after 1970, before that of {known} which is known"
    )]
    TimeWentBack {
        /// Time of the known head.
        known: u64,
        /// Time of the present head.
        present: u64,
    },
    /// An old entry has other content, or is missing.
    #[error("entry {index} of the log, which was there before, was EXCHANGED or removed: {error}")]
    Exchanged {
        /// Place of the entry, from 0.
        index: u64,
        /// The fault of the entry's file.
        error: LogError,
    },
    /// The log cannot be read, or contradicts itself.
    #[error(transparent)]
    Log(#[from] LogError),
}

/// Difference between a log's known head and its present one.
#[derive(Debug)]
pub struct News {
    /// The log's present head, for the next comparison.
    pub head: TreeHead,
    /// Place and content of the new entries, in order.
    pub entries: Vec<(u64, Entry)>,
}

/// Compares a log with its `known` head, or with nothing the first time (`None`). Each entry, new or old, is compared with
/// its leaf, because a log could otherwise serve other content for a signed entry. `stapled` are proofs of bundles from
/// other sources, which show whether the log presents the same tree to the users of plugins.
///
/// # Errors
/// [`Alarm`]. The known head must be kept then.
pub fn check(
    log: &Log,
    key: PublicKey,
    known: Option<&TreeHead>,
    stapled: &[Staple],
) -> Result<News, Alarm> {
    let head = *log.head();
    if head.log() != key {
        return Err(Alarm::AnotherLog { expected: key, found: head.log() });
    }
    if let Some(known) = known {
        compare(log, key, known)?;
        if head.time() < known.time() {
            return Err(Alarm::TimeWentBack { known: known.time(), present: head.time() });
        }
    }
    for staple in stapled {
        compare(log, key, staple.head())?;
    }
    let first = known.map_or(0, TreeHead::size);
    for index in 0..first {
        log.bytes(index).map_err(|error| Alarm::Exchanged { index, error })?;
    }
    let entries = (first..head.size()).map(|index| Ok((index, log.entry(index)?)));
    let entries = entries.collect::<Result<Vec<_>, LogError>>()?;
    Ok(News { head, entries })
}

/// Checks that a head that the log once signed belongs to its present tree.
fn compare(log: &Log, key: PublicKey, known: &TreeHead) -> Result<(), Alarm> {
    if known.log() != key {
        return Err(Alarm::AnotherLog { expected: key, found: known.log() });
    }
    match log.tree().root_of_first(known.size()) {
        None => Err(Alarm::Truncated { known: known.size(), present: log.head().size() }),
        Some(root) if root != known.root() => Err(Alarm::Forked { size: known.size() }),
        Some(_) => Ok(()),
    }
}
