//! Names of commands that now belong to `equic-lab`, and options that no longer exist. For one
//! release, `equic` rejects them and prints the replacement.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use equic_gateway::{Config, SERVICE_SETTINGS};

/// The program that has these commands now, and also the name of its Debian package.
const PROGRAM: &str = "equic-lab";

/// The words of each old command, and the words of the command that replaces it.
const MOVED: &[(&[&str], &str)] = &[
    (&["demo"], "demo"),
    (&["bench"], "bench"),
    (&["interop"], "interop"),
    (&["interop-endpoint"], "interop-endpoint"),
    (&["reproduce"], "reproduce"),
    (&["sim"], "sim"),
    (&["lab", "soak"], "soak"),
    (&["lab", "bench"], "gateway-bench"),
    (&["lab", "sweep"], "net clean"),
    (&["lab"], "net"),
    (&["plugin", "demo"], "plugin-demo"),
    (&["plugin", "bench"], "plugin-bench"),
];

/// Commands, an option that they no longer have, and what to use instead.
const REMOVED: &[(&[&str], &str, &str)] = &[
    (&["serve"], "--gateway-socket", "use `--gateway PATH`, with a `/` in the path"),
    (&["serve"], "--user-quota", "use `--user-limit max_connections=N`"),
    (&["serve"], "--user-rate", "use `--user-limit new_per_source=RATE`"),
    (&["serve"], "--user-at-limit", "use `--user-limit at_limit=RESPONSE`"),
    (&["serve"], "--retry-threshold", "use `--retry N`, or `--retry never`"),
    (&["serve"], "--max-handshakes", "the maximum is always 4096"),
    (&["serve"], "--attach", "use `--gateway-config FILE`, with `interfaces` in the file"),
    (&["serve"], "--push-rules", "use `--push FILE`, with a name that ends in `.toml`"),
    (&["get"], "--push-rules", "use `--push FILE`, with a name that ends in `.toml`"),
    (&["gateway", "run"], "--user-quota", "use `--max-connections N`"),
    (&["gateway", "run"], "--user-rate", "use `--new-per-source RATE`"),
    (&["gateway", "run"], "--deny", LISTS),
    (&["gateway", "run"], "--allow", LISTS),
    (&["gateway", "run"], "--deny-files", LISTS),
    (&["gateway", "run"], "--allow-files", LISTS),
    (&["gateway", "run"], "--no-seccomp", "use `-o gateway.seccomp=false`"),
    (&["gateway", "run"], "--look-every", "use `-o gateway.poll_every=DURATION`"),
];

/// Where deny and allow lists belong, because `-o` cannot set them.
const LISTS: &str = "set `deny`, `allow`, `deny_files` or `allow_files` in a configuration file, or use `equic gateway deny` and `equic gateway allow` while the gateway runs";

/// Commands with the option `-o`.
const WITH_SETTINGS: [&[&str]; 2] = [&["gateway", "run"], &["gateway", "check"]];

/// Returns an error message if the arguments start with a command that has moved, or if `error` is
/// about an option that no longer exists.
pub(crate) fn notice(
    error: &clap::Error,
    arguments: impl Iterator<Item = OsString>,
) -> Option<String> {
    let arguments: Vec<OsString> = arguments.take(2).collect();
    if let (ErrorKind::UnknownArgument, Some(ContextValue::String(option))) =
        (error.kind(), error.get(ContextKind::InvalidArg))
    {
        return removed(&arguments, option).map(|instead| format!("no option {option}: {instead}"));
    }
    moved(arguments.into_iter())
}

/// Returns what to use instead of an option that does not exist.
fn removed(arguments: &[OsString], option: &str) -> Option<String> {
    let is = |command: &[&str]| {
        arguments.len() >= command.len()
            && command.iter().zip(arguments).all(|(word, argument)| word == argument)
    };
    let listed = REMOVED.iter().find(|(command, old, _)| is(command) && *old == option);
    if let Some((_, _, instead)) = listed {
        return Some((*instead).to_owned());
    }
    if !WITH_SETTINGS.iter().any(|command| is(command)) {
        return None;
    }
    let name = option.strip_prefix("--")?.replace('-', "_");
    let services = SERVICE_SETTINGS.iter().map(|setting| setting.name.to_owned());
    // A key without a dot is a table or a list, which `-o` cannot set.
    let tables = Config::keys().into_iter();
    let tables = tables.filter(|key| key.contains('.') && !key.starts_with("service."));
    let keys = services.chain(tables).filter(|key| key.rsplit('.').next() == Some(&*name));
    let options: Vec<String> = keys.map(|key| format!("`-o {key}=VALUE`")).collect();
    (!options.is_empty()).then(|| format!("use {}", options.join(" or ")))
}

/// Returns an error message if the arguments start with a command that has moved. If the new
/// program is neither in this program's directory nor on `PATH`, the message names its package.
fn moved(arguments: impl Iterator<Item = OsString>) -> Option<String> {
    let new = new_name(arguments)?;
    let package = if equic_console::program::find(PROGRAM).is_some() {
        String::new()
    } else {
        format!(", in the Debian package {PROGRAM}")
    };
    Some(format!("this command is now `{PROGRAM} {new}`{package}"))
}

fn new_name(arguments: impl Iterator<Item = OsString>) -> Option<&'static str> {
    let words: Vec<OsString> = arguments.take(2).collect();
    let begins = |(old, _): &&(&[&str], &str)| {
        words.len() >= old.len() && old.iter().zip(&words).all(|(old, word)| word == old)
    };
    MOVED.iter().find(begins).map(|(_, new)| *new)
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser as _};

    use super::*;
    use crate::Equic;

    /// Replaces the placeholders in a replacement, such as `--retry N`, by values.
    fn with_values(text: &str) -> String {
        let values = [
            ("PATH", "/run/equic.sock"),
            ("FILE", "file.toml"),
            ("DURATION", "1s"),
            ("RATE", "20/s"),
            ("RESPONSE", "refuse"),
            ("VALUE", "1"),
            ("N", "5"),
        ];
        let name = |word: &str| values.iter().find(|(name, _)| *name == word).map(|found| found.1);
        let word = |word: &str| match word.rsplit_once('=') {
            Some((key, value)) => format!("{key}={}", name(value).unwrap_or(value)),
            None => name(word).unwrap_or(word).to_owned(),
        };
        text.split(' ').map(word).collect::<Vec<_>>().join(" ")
    }

    /// Returns the arguments without which the command is incomplete.
    fn required(command: &[&str]) -> &'static [&'static str] {
        match command {
            ["get"] => &["https://localhost/"],
            ["gateway", "run"] => &["-i", "lo", "-p", "443"],
            ["gateway", "deny" | "allow"] => &["192.0.2.1"],
            _ => &[],
        }
    }

    /// Checks that each part of a replacement that is in backquotes can be used: an option of the
    /// command, another command, or a key of the configuration file. Returns how many there are.
    fn check_replacement(command: &[&str], replacement: &str) -> usize {
        let quoted = replacement.split('`').skip(1).step_by(2);
        // A single `/` and the ending of a name are parts of values.
        let usable: Vec<&str> = quoted.filter(|part| !["/", ".toml"].contains(part)).collect();
        for part in &usable {
            let text = with_values(part);
            let words: Vec<&str> = text.split(' ').collect();
            let line = match words[..] {
                ["equic", ref other @ ..] => [other, required(other)].concat(),
                [option, ..] if option.starts_with('-') => {
                    [command, required(command), &words].concat()
                }
                _ => {
                    let is_key = |key: &String| key.rsplit('.').next() == Some(part);
                    assert!(Config::keys().iter().any(is_key), "no key {part}: {replacement}");
                    continue;
                }
            };
            let parsed = Equic::try_parse_from([&["equic"], &line[..]].concat());
            assert!(parsed.is_ok(), "{line:?}: {}", parsed.err().expect("an error"));
        }
        usable.len()
    }

    #[test]
    fn old_name_is_matched_by_its_longest_form() {
        let new = |words: &[&str]| new_name(words.iter().map(OsString::from));
        assert_eq!(new(&["lab", "bench", "--forged"]), Some("gateway-bench"));
        assert_eq!(new(&["lab", "up", "bench"]), Some("net"));
        assert_eq!(new(&["lab"]), Some("net"));
        assert_eq!(new(&["plugin", "bench"]), Some("plugin-bench"));
        for other in [&["plugin"][..], &["plugin", "run"], &["gateway", "bench"], &["benc"], &[]] {
            assert_eq!(new(other), None, "{other:?}");
        }
    }

    #[test]
    fn an_option_that_no_longer_exists_has_a_replacement() {
        let instead = |command: &[&str], option: &str| {
            let words: Vec<OsString> = command.iter().map(OsString::from).collect();
            removed(&words, option)
        };
        for (command, option, expected) in REMOVED {
            assert_eq!(instead(command, option).as_deref(), Some(*expected));
            assert_eq!(instead(&["plugin"], option), None, "{option}");
            let old = Equic::try_parse_from([&["equic"], *command, &[*option, "1"]].concat());
            let kind = old.err().map(|error| error.kind());
            assert_eq!(kind, Some(ErrorKind::UnknownArgument), "{command:?} still has {option}");
            let usable = check_replacement(command, expected);
            assert!(usable > 0 || *option == "--max-handshakes", "{expected}");
        }
        for command in WITH_SETTINGS {
            let mut definition = &Equic::command();
            for word in command {
                definition = definition.find_subcommand(word).expect("the command exists");
            }
            assert!(definition.get_arguments().any(|option| option.get_short() == Some('o')));
        }
        let run = &["gateway", "run"];
        assert_eq!(instead(run, "--policy").unwrap(), "use `-o policy=VALUE`");
        assert_eq!(instead(run, "--retry-keys").unwrap(), "use `-o gateway.retry_keys=VALUE`");
        assert_eq!(instead(run, "--new-per-v4-24").unwrap(), "use `-o new_per_v4_24=VALUE`");
        assert_eq!(instead(run, "--polizy"), None);
        assert_eq!(instead(run, "--ban"), None);
        assert_eq!(instead(&["gateway"], "--policy"), None);
    }
}
