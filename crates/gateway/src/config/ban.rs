//! `[ban]`: temporary bans of sources that repeatedly exceed limits.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Proof;
use crate::quantity::duration;
use crate::reason::Reason;

/// `[ban]`: if a source is refused `times` times within `within`, it is denied for a time that
/// grows with every ban. Without this table, the gateway bans no source.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct BanConfig {
    /// Reasons of the refusals that count. Cannot change while the gateway runs.
    #[cfg_attr(feature = "schema", schemars(with = "Vec<super::schema::text::Reason>"))]
    pub reasons: Vec<Reason>,
    /// Proof of its address that a source must have given before its refusals count towards a ban.
    #[cfg_attr(feature = "schema", schemars(with = "super::schema::text::Proof"))]
    pub proof: Proof,
    /// Number of refusals within `within` that leads to a ban; 1 to 1,000,000,000.
    pub times: u32,
    /// Length of the window in which refusals are counted; 1s to 1d.
    #[serde(with = "duration")]
    #[cfg_attr(feature = "schema", schemars(with = "super::schema::text::Duration"))]
    pub within: Duration,
    /// Duration of the first ban; 1s to 365d.
    #[serde(rename = "for", with = "duration")]
    #[cfg_attr(feature = "schema", schemars(with = "super::schema::text::Duration"))]
    pub first: Duration,
    /// Factor by which each ban is longer than the one before; 1 to 100.
    pub growth: f64,
    /// Maximum duration of a ban; at least `for`, at most 365d.
    #[serde(with = "duration")]
    #[cfg_attr(feature = "schema", schemars(with = "super::schema::text::Duration"))]
    pub max: Duration,
    /// Time without a refusal or ban after which a source counts as new; 1s to 3650d.
    #[serde(with = "duration")]
    #[cfg_attr(feature = "schema", schemars(with = "super::schema::text::Duration"))]
    pub forgive_after: Duration,
    /// Maximum number of watched sources. Beyond it, the source whose last refusal is oldest is
    /// dropped.
    pub sources: u32,
    /// Report the sources that would be banned, but do not ban them.
    pub dry_run: bool,
    /// File that keeps bans across a restart. If it is `None`, bans end with the gateway.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<PathBuf>,
}

impl Default for BanConfig {
    fn default() -> BanConfig {
        BanConfig {
            reasons: vec![Reason::Quota],
            proof: Proof::Connection,
            times: 1_000,
            within: Duration::from_secs(60),
            first: Duration::from_secs(60),
            growth: 2.0,
            max: Duration::from_secs(86_400),
            forgive_after: Duration::from_secs(86_400),
            sources: 65_536,
            dry_run: false,
            state: None,
        }
    }
}

impl BanConfig {
    /// Returns the counted reasons as a bit mask for the XDP program: bit `n` stands for reason
    /// `n`.
    pub(crate) fn mask(&self) -> u32 {
        // The mask has 32 bits. The check of the configuration rejects reasons with higher numbers,
        // which are never charged to a source.
        let bit = |reason: &Reason| 1_u32.checked_shl(reason.number()).unwrap_or(0);
        self.reasons.iter().fold(0, |mask, reason| mask | bit(reason))
    }

    /// Returns true if every counted reason implies that the source holds connections.
    pub(crate) fn proven_by_reason(&self) -> bool {
        self.reasons.iter().all(|reason| matches!(reason, Reason::Quota | Reason::QuotaStrict))
    }
}
