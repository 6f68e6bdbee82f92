//! Monitors: whether a log has only ever grown, and by what. A monitor has the leaves of the whole log, 32 bytes an entry,
//! and computes the roots itself, so that it needs no consistency proof (RFC 9162 s.2.1.4) of the log's making.

use thiserror::Error;

use super::{Entry, Log, LogError, Staple, TreeHead};
use crate::key::PublicKey;

/// Misbehaviour of a log, or a part of it that cannot be read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Alarm {
    /// It is signed by somebody else.
    #[error("this log is {found}, not {expected}")]
    AnotherLog {
        /// Public key of the log that is watched.
        expected: PublicKey,
        /// Public key that the head is signed by.
        found: PublicKey,
    },
    /// Entries are gone.
    #[error("the log was TRUNCATED: it had {known} entries, and has {present}")]
    Truncated {
        /// Entries that it had.
        known: u64,
        /// Entries that it has.
        present: u64,
    },
    /// Its first entries are others than they were, or it shows different trees to different people.
    #[error("the log was FORKED: its first {size} entries are not those that it signed before")]
    Forked {
        /// Size of the tree that it signed before.
        size: u64,
    },
    /// It is longer, and its head is older.
    #[error(
        "the log's head is of {present} seconds after 1970, before that of {known} which is known"
    )]
    TimeWentBack {
        /// Time of the head that was known.
        known: u64,
        /// Time of the head that it has.
        present: u64,
    },
    /// An entry that was there before has another content, or none.
    #[error("entry {index} of the log, which was there before, was EXCHANGED or removed: {error}")]
    Exchanged {
        /// Place of the entry, from 0.
        index: u64,
        /// What is wrong with the entry's file.
        error: LogError,
    },
    /// It cannot be read, or contradicts itself.
    #[error(transparent)]
    Log(#[from] LogError),
}

/// Difference between the head that was known of a log and its present one.
#[derive(Debug)]
pub struct News {
    /// The log's head, to be known next time.
    pub head: TreeHead,
    /// Place and content of the entries that were not there before, in their order.
    pub entries: Vec<(u64, Entry)>,
}

/// Compares a log with `known`, the head that was known of it; `None` if the log is looked at for the first time. Each entry
/// is compared with its leaf, whether it is new or not: a log could otherwise hand out other content for an entry that it
/// has signed. `stapled` are proofs that bundles from elsewhere carry. They show whether the log shows the same tree to
/// those who run plugins.
///
/// # Errors
/// [`Alarm`]: with it what was known stays known.
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

/// A head that the log signed once is one of the tree that it has now.
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
