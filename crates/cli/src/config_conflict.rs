//! The error message about a limit of `equic gateway run` next to `--config`.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use equic_gateway::SERVICE_SETTINGS;

/// Returns an error message if `error` is about a limit of `gateway run` next to `--config`. The
/// limits are in the file, and `-o` replaces them.
pub(crate) fn notice(
    error: &clap::Error,
    arguments: impl Iterator<Item = OsString>,
) -> Option<String> {
    let arguments: Vec<OsString> = arguments.collect();
    let is_run = arguments.iter().take(2).eq(&["gateway", "run"]);
    if error.kind() != ErrorKind::ArgumentConflict || !is_run {
        return None;
    }
    let mut named: Vec<&str> = Vec::new();
    for kind in [ContextKind::InvalidArg, ContextKind::PriorArg] {
        match error.get(kind) {
            Some(ContextValue::String(one)) => named.push(one),
            Some(ContextValue::Strings(several)) => {
                named.extend(several.iter().map(String::as_str));
            }
            _ => {}
        }
    }
    if !named.iter().any(|one| one.starts_with("--config")) {
        return None;
    }
    // The limits are a group of options, and clap may name all of them.
    let is_given = |flag: &str| {
        let words = arguments.iter().filter_map(|argument| argument.to_str());
        words.filter_map(|word| word.split('=').next()).any(|word| word == flag)
    };
    let flags = named.iter().filter_map(|one| one.split(' ').next());
    flags.filter(|flag| is_given(flag)).find_map(|flag| {
        let key = flag.strip_prefix("--")?.replace('-', "_");
        let is_limit = SERVICE_SETTINGS.iter().any(|setting| setting.name == key);
        is_limit.then(|| {
            format!(
                "{flag} cannot be used with --config: use `-o {key}=VALUE`, which replaces the value in the file"
            )
        })
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::Equic;

    fn answer(words: &[&str]) -> Option<String> {
        let error = Equic::try_parse_from([&["equic"], words].concat()).err()?;
        notice(&error, words.iter().map(OsString::from))
    }

    #[test]
    fn limit_next_to_a_configuration_file_has_a_replacement() {
        let with_file = ["gateway", "run", "--config", "gateway.toml"];
        for (flag, value, key) in [
            ("--max-connections", "9", "max_connections"),
            ("--new-per-source", "20/s", "new_per_source"),
            ("--new-per-service", "20/s", "new_per_service"),
            ("--packets-per-source", "20/s", "packets_per_source"),
        ] {
            let said = answer(&[&with_file[..], &[flag, value]].concat()).expect("a message");
            let joined = format!("{flag}={value}");
            let other = ["gateway", "run", &joined, "--config=gateway.toml"];
            assert_eq!(answer(&other).as_ref(), Some(&said));
            assert!(said.starts_with(&format!("{flag} cannot be used with --config")), "{said}");
            assert!(said.contains(&format!("`-o {key}=VALUE`")), "{said}");
            let setting = format!("{key}={value}");
            let replaced = [&["equic"], &with_file[..], &["-o", &setting]].concat();
            assert!(Equic::try_parse_from(replaced).is_ok(), "{said}");
        }
        assert_eq!(answer(&[&with_file[..], &["--port", "443"]].concat()), None);
        assert_eq!(answer(&["serve", "--gateway", "--gateway-config", "gateway.toml"]), None);
    }
}
