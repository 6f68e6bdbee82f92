//! Refuses plugins that the policy has withdrawn, and plugins that are valid for too long.
//!
//! These checks are needed because the signature of an old version stays valid, and the peer
//! chooses which version it offers.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::bundle::sha256;
use crate::key::{hex, unhex};
use crate::policy::{PolicyError, Refusal};
use crate::preamble::Preamble;

/// Prefix of a hash in a policy and in a manifest.
const PREFIX: &str = "sha256:";

/// Parses the hashes of withdrawn plugins in a policy.
pub(crate) fn hashes(texts: &[String]) -> Result<BTreeSet<[u8; 32]>, PolicyError> {
    let read = |text: &String| {
        let hash = text.strip_prefix(PREFIX).and_then(unhex);
        hash.ok_or_else(|| PolicyError::Hash(text.clone()))
    };
    texts.iter().map(read).collect()
}

/// Parses a policy's `max_age`, the longest time for which a plugin may be valid.
pub(crate) fn max_age(text: &str) -> Result<Duration, PolicyError> {
    let age = humantime::parse_duration(text).ok().filter(|age| age.as_secs() > 0);
    age.ok_or_else(|| PolicyError::MaxAge(text.to_owned()))
}

/// Parses a time. Returns seconds since the Unix epoch.
pub(crate) fn time(text: &str) -> Option<u64> {
    let time: SystemTime = humantime::parse_rfc3339(text).ok()?;
    Some(time.duration_since(UNIX_EPOCH).ok()?.as_secs())
}

/// Returns an error if the policy has withdrawn the plugin. `file` computes the hash of the whole
/// bundle.
pub(crate) fn not_withdrawn(
    preamble: &Preamble<'_>,
    file: impl FnOnce() -> [u8; 32],
    withdrawn: &BTreeSet<[u8; 32]>,
) -> Result<(), Refusal> {
    if withdrawn.is_empty() {
        return Ok(());
    }
    let names = [
        ("object", preamble.manifest.code),
        ("manifest", sha256(preamble.text)),
        ("bundle", file()),
    ];
    match names.into_iter().find(|(_, hash)| withdrawn.contains(hash)) {
        Some((what, hash)) => {
            Err(Refusal::Withdrawn { what, hash: PREFIX.to_owned() + &hex(&hash) })
        }
        None => Ok(()),
    }
}

/// Returns an error if the plugin never expires, or expires later than the policy's `max_age`
/// allows.
pub(crate) fn not_too_long(
    expires: Option<u64>,
    max_age: Option<Duration>,
    now: u64,
) -> Result<(), Refusal> {
    let Some(max_age) = max_age else { return Ok(()) };
    let latest = now.saturating_add(max_age.as_secs());
    if expires.is_some_and(|expires| expires <= latest) {
        return Ok(());
    }
    Err(Refusal::ValidTooLong { expires, latest })
}
