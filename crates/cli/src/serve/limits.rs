//! Limits that the server itself enforces: `--user-limit`, and the limit of handshakes above which
//! it sends Retry packets, `--retry`.

use std::str::FromStr;
use std::sync::Arc;

use equic_gateway::{ConfigError, Key, Rate, Setting, SettingValue};
use equic_http3::{AtLimit, QuotaConfig, UserSpaceQuota};

use crate::failure::{Failure, Result};

/// When the server sends Retry packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RetryWhen {
    /// To every client without a token.
    Always,
    /// Never.
    Never,
    /// While at least this number of handshakes is in progress.
    Handshakes(usize),
}

/// Largest number in `--retry N`: half of the handshakes that may be in progress. A larger number
/// would let packets from forged addresses occupy all places.
const MOST_HANDSHAKES: usize = 2048;

impl FromStr for RetryWhen {
    type Err = String;

    fn from_str(text: &str) -> Result<RetryWhen, String> {
        match text {
            "always" => Ok(RetryWhen::Always),
            "never" => Ok(RetryWhen::Never),
            number => match number.parse() {
                Ok(number) if number <= MOST_HANDSHAKES => Ok(RetryWhen::Handshakes(number)),
                Ok(_) => Err(format!("the number is out of range: 0 to {MOST_HANDSHAKES}")),
                Err(_) => Err(format!(
                    "write `always`, `never`, or a number of handshakes from 0 to {MOST_HANDSHAKES}"
                )),
            },
        }
    }
}

/// One value of `--user-limit`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum UserLimit {
    MaxConnections(u32),
    NewPerSource(Rate),
    AtLimit(AtLimit),
}

/// Settings of a gateway that the server can enforce itself, and the response above them.
const KEYS: &str = "max_connections, new_per_source, at_limit";

impl FromStr for UserLimit {
    type Err = String;

    fn from_str(text: &str) -> Result<UserLimit, String> {
        let (key, value) =
            text.split_once('=').ok_or_else(|| format!("write KEY=VALUE; the keys are {KEYS}"))?;
        if key.trim() == "at_limit" {
            return match value.trim() {
                "ignore" => Ok(UserLimit::AtLimit(AtLimit::Ignore)),
                "refuse" => Ok(UserLimit::AtLimit(AtLimit::Refuse)),
                "close" => Ok(UserLimit::AtLimit(AtLimit::Close)),
                _ => Err("at_limit is `ignore`, `refuse` or `close`".to_owned()),
            };
        }
        // The gateway's settings of the same names have the same values.
        match Setting::parse(key, value) {
            Ok(Setting { service: None, key, value }) => match (key, value) {
                (Key::MaxConnections, SettingValue::Number(most)) => {
                    Ok(UserLimit::MaxConnections(most))
                }
                (Key::NewPerSource, SettingValue::Rate(rate)) => Ok(UserLimit::NewPerSource(rate)),
                _ => Err(format!("only a gateway enforces `{}`: the keys are {KEYS}", key.name())),
            },
            Err(ConfigError::UnknownKey { similar, .. }) => {
                let near = similar.iter().find(|near| KEYS.split(", ").any(|key| key == *near));
                let near = near.map_or(String::new(), |near| format!(" (did you mean {near}?)"));
                Err(format!("unknown key{near}: the keys are {KEYS}"))
            }
            Ok(_) => Err(format!("unknown key: the keys are {KEYS}")),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// Returns the quota that the server enforces itself, or `None` if the limits contain none.
pub(super) fn user_quota(limits: &[UserLimit]) -> Result<Option<Arc<UserSpaceQuota>>> {
    let mut config = QuotaConfig::default();
    let mut seen = Vec::new();
    for limit in limits {
        let kind = std::mem::discriminant(limit);
        if seen.contains(&kind) {
            return Err(Failure::usage("--user-limit has the same key twice: remove one of them"));
        }
        seen.push(kind);
        match *limit {
            UserLimit::MaxConnections(most) => config.max_connections = most,
            UserLimit::NewPerSource(rate) => {
                config.new_per_source = (!rate.is_off()).then(|| equic_http3::Rate {
                    per_second: rate.units_per_second(),
                    burst: u32::try_from(rate.burst()).unwrap_or(u32::MAX),
                });
            }
            UserLimit::AtLimit(response) => config.at_limit = response,
        }
    }
    let only_response = matches!(limits, [UserLimit::AtLimit(_)]);
    if only_response {
        return Err(Failure::usage(
            "--user-limit at_limit has no effect without a limit: add --user-limit max_connections=N or new_per_source=RATE",
        ));
    }
    if limits.is_empty() {
        return Ok(None);
    }
    Ok(Some(Arc::new(UserSpaceQuota::new(config)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_is_a_word_or_a_number_in_range() {
        assert_eq!(equic_http3::Limits::default().max_handshakes, 2 * MOST_HANDSHAKES);
        assert_eq!("always".parse(), Ok(RetryWhen::Always));
        assert_eq!("never".parse(), Ok(RetryWhen::Never));
        assert_eq!("0".parse(), Ok(RetryWhen::Handshakes(0)));
        assert_eq!("2048".parse(), Ok(RetryWhen::Handshakes(2048)));
        for wrong in ["", "2049", "-1", "1.5", "ALWAYS", "99999999999999999999999"] {
            let error = wrong.parse::<RetryWhen>().unwrap_err();
            assert!(error.contains("0 to 2048"), "{wrong}: {error}");
        }
    }

    #[test]
    fn user_limits_are_those_of_the_table_of_settings() {
        let rate = "20/s burst 40".parse().unwrap();
        assert_eq!("max_connections=5".parse(), Ok(UserLimit::MaxConnections(5)));
        assert_eq!("new_per_source = 20/s burst 40".parse(), Ok(UserLimit::NewPerSource(rate)));
        assert_eq!("at_limit=close".parse(), Ok(UserLimit::AtLimit(AtLimit::Close)));
        for (wrong, part) in [
            ("5", "KEY=VALUE"),
            ("max_conections=5", "(did you mean max_connections?): the keys are max_connections"),
            ("polizy=5", "unknown key: the keys"),
            ("web.max_connections=5", "unknown key"),
            ("max_connections=-5", "max_connections"),
            ("policy=strict", "only a gateway enforces `policy`"),
            ("at_limit=drop", "`refuse`"),
        ] {
            let error = wrong.parse::<UserLimit>().unwrap_err();
            assert!(error.contains(part), "{wrong}: {error}");
        }
    }

    #[test]
    fn a_quota_needs_a_limit_and_each_key_once() {
        let quota = |limits: &[&str]| {
            let limits: Vec<UserLimit> = limits.iter().map(|text| text.parse().unwrap()).collect();
            user_quota(&limits).map(|quota| quota.is_some())
        };
        assert!(!quota(&[]).unwrap());
        assert!(quota(&["max_connections=2", "at_limit=refuse"]).unwrap());
        assert!(quota(&["at_limit=refuse"]).is_err());
        assert!(quota(&["max_connections=2", "max_connections=3"]).is_err());
    }
}
