//! Checks as a monitor that a log has only grown since the last check, and lists the new entries.
//! The monitor reads the hashes of all leaves, 32 bytes for each entry. It computes the tree's
//! roots itself, so it needs no consistency proof (RFC 9162 s.2.1.4) from the log.

use thiserror::Error;

use super::{Entry, Log, LogError, Staple, TreeHead};
use crate::key::PublicKey;

/// A fault that a monitor finds in a log.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Alarm {
    /// Another key signed the log.
    #[error("this log's key is {found}, not {expected}")]
    AnotherLog {
        /// Public key of the log that the monitor watches.
        expected: PublicKey,
        /// Public key that signed the log's tree head.
        found: PublicKey,
    },
    /// The log has fewer entries than at an earlier check.
    #[error("the log was TRUNCATED: it had {known} entries, and now has {present}")]
    Truncated {
        /// Number of entries in the earlier tree head.
        known: u64,
        /// Number of entries in the present tree head.
        present: u64,
    },
    /// Entries that the log signed earlier have changed, or the log shows different trees to
    /// different readers.
    #[error("the log was FORKED: its first {size} entries differ from those that it signed before")]
    Forked {
        /// Number of entries in the tree head that the log signed earlier.
        size: u64,
    },
    /// The time of the log's present tree head is before that of an earlier one.
    #[error("the time of the log's head went back: from Unix time {known} to {present}")]
    TimeWentBack {
        /// Time of the earlier tree head, in seconds since the Unix epoch.
        known: u64,
        /// Time of the present tree head, in seconds since the Unix epoch.
        present: u64,
    },
    /// The content of an entry does not match the tree, or is missing.
    #[error("entry {index} of the log was EXCHANGED or removed: {error}")]
    Exchanged {
        /// Index of the entry, from 0.
        index: u64,
        /// The error from reading the entry.
        error: LogError,
    },
    /// The log cannot be read, or its files contradict each other.
    #[error(transparent)]
    Log(#[from] LogError),
}

/// The changes of a log since the last check.
#[derive(Debug)]
pub struct News {
    /// Present tree head of the log. The caller must store it for the next check.
    pub head: TreeHead,
    /// New entries with their indices, in order.
    pub entries: Vec<(u64, Entry)>,
}

/// Compares a log with `known`, the tree head of the last check, or `None` at the first check.
/// Every entry, new or old, is compared with its leaf, because a log could otherwise serve other
/// content for a signed entry. `stapled` are proofs from bundles that were obtained elsewhere. They
/// show whether users of plugins see the same tree.
///
/// # Errors
/// Any [`Alarm`]. In this case the caller must keep the old tree head.
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

/// Checks that a tree head that the log signed earlier matches the log's present tree.
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
