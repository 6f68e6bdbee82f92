//! Monitors check that a log has only grown, and list the new entries. A monitor has the leaves of
//! the whole log, 32 bytes for each entry. It computes the roots itself, so it needs no consistency
//! proof (RFC 9162 s.2.1.4) from the log.

use thiserror::Error;

use super::{Entry, Log, LogError, Staple, TreeHead};
use crate::key::PublicKey;

/// A fault that a monitor finds in a log.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Alarm {
    /// The log is signed with another key.
    #[error("this log's key is {found}, not {expected}")]
    AnotherLog {
        /// Public key of the watched log.
        expected: PublicKey,
        /// Public key that signed the head.
        found: PublicKey,
    },
    /// Entries are missing.
    #[error("the log was TRUNCATED: it had {known} entries, and now has {present}")]
    Truncated {
        /// Former number of entries.
        known: u64,
        /// Present number of entries.
        present: u64,
    },
    /// The entries that the log signed before have changed, or the log shows different trees to
    /// different readers.
    #[error("the log was FORKED: its first {size} entries differ from those that it signed before")]
    Forked {
        /// Size of the tree that the log signed before.
        size: u64,
    },
    /// The log's present head is older than the known one.
    #[error(
        "the log's head has Unix time {present}, which is earlier than that of the known head, {known}"
    )]
    TimeWentBack {
        /// Time of the known head, in seconds since the Unix epoch.
        known: u64,
        /// Time of the present head, in seconds since the Unix epoch.
        present: u64,
    },
    /// An entry that the monitor has seen has other content, or is missing.
    #[error("entry {index} of the log was EXCHANGED or removed: {error}")]
    Exchanged {
        /// Place of the entry, from 0.
        index: u64,
        /// The error from reading the entry.
        error: LogError,
    },
    /// The log cannot be read, or contradicts itself.
    #[error(transparent)]
    Log(#[from] LogError),
}

/// Difference between the known head of a log and its present one.
#[derive(Debug)]
pub struct News {
    /// Present head of the log, to compare with the next time.
    pub head: TreeHead,
    /// New entries with their places, in order.
    pub entries: Vec<(u64, Entry)>,
}

/// Compares a log with its `known` head. `known` is `None` the first time. Each entry, new or old,
/// is compared with its leaf, because a log could otherwise serve other content for a signed entry.
/// `stapled` are proofs from bundles of other sources. They show whether users of plugins see the
/// same tree.
///
/// # Errors
/// [`Alarm`]. The caller must keep the known head in that case.
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

/// Checks that a head that the log signed earlier matches its present tree.
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
