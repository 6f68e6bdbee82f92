//! `[ban]`: who is denied for a while, for exceeding limits again and again.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Proof;
use crate::quantity::duration;
use crate::reason::Reason;

/// `[ban]`: a source that is refused `times` times in `within` is denied for a growing time. Without
/// this table nobody is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BanConfig {
    /// Which refusals count. Fixed once the gateway runs.
    pub reasons: Vec<Reason>,
    /// What a source has to show before they do.
    pub proof: Proof,
    /// How many of them are too many; 1 to 1,000,000,000.
    pub times: u32,
    /// In how much time; 1s to 1d.
    #[serde(with = "duration")]
    pub within: Duration,
    /// How long the first ban lasts; 1s to 365d.
    #[serde(rename = "for", with = "duration")]
    pub first: Duration,
    /// How many times as long as the one before the next one lasts; 1 to 100.
    pub growth: f64,
    /// The longest; at least `for`, at most 365d.
    #[serde(with = "duration")]
    pub max: Duration,
    /// After how long without a refusal or ban a source begins anew; 1s to 3650d.
    #[serde(with = "duration")]
    pub forgive_after: Duration,
    /// How many sources are watched; the one that was refused longest ago goes first.
    pub sources: u32,
    /// Say who would be banned, ban nobody.
    pub dry_run: bool,
    /// Keeps bans over a restart; none: they end with the gateway.
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
    /// The counted reasons as the program takes them: bit `n` for reason `n`.
    pub(crate) fn mask(&self) -> u32 {
        self.reasons.iter().fold(0, |mask, reason| mask | 1 << reason.number())
    }

    /// Whether every counted reason is itself the proof that the source holds connections.
    pub(crate) fn proven_by_reason(&self) -> bool {
        self.reasons.iter().all(|reason| matches!(reason, Reason::Quota | Reason::QuotaStrict))
    }
}
