//! Port, limit and policy of an `equic_t`: set by functions, by the environment, or by default. The
//! default port and limit are those of the eQUIC paper. The default policy also works for servers
//! that never close connections (docs/decisions/0023-handshakes-under-way.md).

use std::ffi::OsString;
use std::fmt::Display;
use std::str::FromStr;

use ::equic_gateway::{Config, Policy};

use crate::error::{Failure, Result, equic_error};

/// Default port: the HTTPS port, as in the eQUIC paper.
const PORT: u16 = 443;
/// Default limit: QUOTA_LIMIT in the eQUIC paper.
const LIMIT: u32 = 5;

/// Settings that functions have set. `None` means that a setting was not set.
#[derive(Debug, Default)]
pub(super) struct Settings {
    pub(super) port: Option<u16>,
    pub(super) limit: Option<u32>,
    pub(super) policy: Option<Policy>,
}

impl Settings {
    /// Returns the configuration with which the gateway must be loaded. The environment provides
    /// only the settings that no function has set.
    pub(super) fn config(&self, environment: impl Fn(&str) -> Option<OsString>) -> Result<Config> {
        let port = choose(self.port, PORT, "EQUIC_PORT", "a port from 1 to 65535", &environment)?;
        if port == 0 {
            return Err(wrong("EQUIC_PORT", "0", "a port from 1 to 65535"));
        }
        let mut config = Config::for_port(port);
        for service in &mut config.services {
            service.max_connections = choose(
                self.limit,
                LIMIT,
                "EQUIC_LIMIT",
                "a number of connections (0 means no limit)",
                &environment,
            )?;
            service.policy = choose(
                self.policy,
                Policy::Underway,
                "EQUIC_POLICY",
                "a policy: `new`, `underway` or `strict`",
                &environment,
            )?;
        }
        config.validate()?;
        Ok(config)
    }
}

fn choose<T: FromStr>(
    set: Option<T>,
    otherwise: T,
    variable: &str,
    expected: &str,
    environment: &impl Fn(&str) -> Option<OsString>,
) -> Result<T> {
    if let Some(set) = set {
        return Ok(set);
    }
    match environment(variable) {
        Some(text) if !text.is_empty() => {
            let text = text.to_string_lossy();
            text.trim().parse().map_err(|_| wrong(variable, &text, expected))
        }
        _ => Ok(otherwise),
    }
}

fn wrong(variable: &str, text: impl Display, expected: &str) -> Failure {
    Failure::new(
        equic_error::EQUIC_ERROR_CONFIG,
        format!("{variable}={text} in the environment is not {expected}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(settings: &Settings, environment: &[(&str, &str)]) -> Result<(String, u32, Policy)> {
        let look_up = |name: &str| {
            environment.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into())
        };
        let config = settings.config(look_up)?;
        let service = &config.services[0];
        Ok((service.listen[0].to_string(), service.max_connections, service.policy))
    }

    #[test]
    fn settings_have_defaults() {
        assert_eq!(
            with(&Settings::default(), &[]).unwrap(),
            ("443".to_owned(), 5, Policy::Underway)
        );
        let empty = [("EQUIC_PORT", ""), ("EQUIC_LIMIT", ""), ("EQUIC_POLICY", "")];
        assert_eq!(
            with(&Settings::default(), &empty).unwrap(),
            ("443".to_owned(), 5, Policy::Underway)
        );
    }

    #[test]
    fn settings_by_functions_precede_the_environment() {
        let environment =
            [("EQUIC_PORT", "4433"), ("EQUIC_LIMIT", "9"), ("EQUIC_POLICY", "strict")];
        assert_eq!(
            with(&Settings::default(), &environment).unwrap(),
            ("4433".to_owned(), 9, Policy::Strict)
        );
        let set = Settings { port: Some(8443), limit: Some(0), policy: Some(Policy::New) };
        assert_eq!(with(&set, &environment).unwrap(), ("8443".to_owned(), 0, Policy::New));
    }

    #[test]
    fn settings_that_are_wrong_are_named() {
        let wrong = [
            ("EQUIC_PORT", "0"),
            ("EQUIC_PORT", "65536"),
            ("EQUIC_PORT", "https"),
            ("EQUIC_LIMIT", "-1"),
            ("EQUIC_LIMIT", "five"),
            ("EQUIC_POLICY", "loose"),
        ];
        for (variable, value) in wrong {
            let message = with(&Settings::default(), &[(variable, value)]).unwrap_err().message;
            assert!(message.contains(&format!("{variable}={value}")), "{message}");
        }
    }
}
