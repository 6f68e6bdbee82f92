//! The command `equic gateway set`.

use std::collections::HashSet;

use equic_gateway::{Config, ConfigError, Setting};
use equic_report::table::{Column, Table};
use serde_json::json;

use super::Target;
use super::keep::Lines;
use super::needs::{NEEDS, check_counted, warnings};
use crate::failure::{Failure, Result};
use crate::output;

/// Changes settings of a running gateway. All of them are checked before the first one is changed.
#[derive(clap::Args)]
#[command(after_help = "To change only one service, write its name before the key:
web.max_connections=100. A key without a name changes every service. dry_run,
lease and events are settings of the whole gateway.

The settings last until the gateway restarts or reloads its configuration file.
The command prints the lines that keep them in that file.")]
pub(crate) struct Args {
    /// Settings, for example max_connections=100, `new_per_source=20/s burst 40`, policy=strict,
    /// dry_run=off
    #[arg(value_name = "KEY=VALUE", required = true, value_parser = setting)]
    settings: Vec<Setting>,
    #[command(flatten)]
    target: Target,
    /// Apply the settings even if servers have not declared support for them (retry, check_ids), or
    /// do not report connections (unproven_per_service)
    #[arg(long)]
    force: bool,
    /// Print JSON (schema equic.gateway.set/1)
    #[arg(long)]
    json: bool,
}

/// Parses KEY=VALUE. For a key that only a file can change, the error says so.
fn setting(text: &str) -> Result<Setting, String> {
    let error = match Setting::parse_pair(text) {
        Ok(setting) => return Ok(setting),
        Err(error) => error,
    };
    let key = text.split_once('=').map_or(text, |(key, _)| key).trim();
    let full = [key.to_owned(), format!("gateway.{key}")];
    let keys = Config::keys();
    let in_file = keys.iter().find(|known| {
        full.contains(known) && ["gateway.", "ban."].iter().any(|table| known.starts_with(table))
    });
    Err(match in_file.map(String::as_str) {
        Some(known) if matches!(error, ConfigError::UnknownKey { .. }) => {
            // `reload` knows which keys need a restart, and names them.
            format!(
                "`set` cannot change `{known}`: change it in the configuration file and run `equic \
                 gateway reload`, which says if the gateway must restart"
            )
        }
        _ => error.to_string(),
    })
}

/// Fails if two settings have the same key.
fn check_twice(settings: &[Setting]) -> Result {
    let mut keys = HashSet::new();
    match settings.iter().find(|one| !keys.insert((one.key.name(), &one.service))) {
        None => Ok(()),
        Some(twice) => Err(Failure::usage(format!(
            "`{}`: the key is given twice: remove one of the values",
            twice.key.name()
        ))),
    }
}

pub(super) fn run(args: &Args) -> Result {
    check_twice(&args.settings)?;
    let control = args.target.open()?;
    // Keys and values were checked when the arguments were parsed. Only the names of services must
    // still be checked.
    for setting in &args.settings {
        if let Some(name) = &setting.service {
            super::status::service_named(&control, name)?;
        }
    }
    if !args.force {
        for need in &NEEDS {
            need.check(&control, &args.settings)?;
        }
        check_counted(&control, &args.settings)?;
    }
    let mut changes = Vec::new();
    for setting in &args.settings {
        changes.extend(control.apply(setting)?);
    }
    let keep = Lines::of(&control, &changes);
    let warnings = warnings(&control, &args.settings);
    warnings.iter().for_each(output::notice);
    if args.json {
        let set = json!({ "changes": changes, "keep": keep, "warnings": warnings });
        return output::json("equic.gateway.set/1", set);
    }
    let mut table = Table::new(["service", "setting", "was", "is"].map(Column::text));
    for change in changes {
        let service = change.service.unwrap_or_else(|| "(gateway)".to_owned());
        table.row([service, change.key.to_owned(), change.old, change.new]);
    }
    output::table(&table)?;
    output::line(keep.text())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_files_are_refused_with_the_way_to_change_them() {
        for (text, part) in [
            ("gateway.mode=native", "`gateway.mode`: change it in the configuration file"),
            ("poll_every=1s", "`gateway.poll_every`"),
            ("gateway.interfaces=eth1", "and run `equic gateway reload`"),
            ("ban.times=5", "and run `equic gateway reload`"),
            ("ban.reasons=[]", "which says if the gateway must restart"),
            ("polizy=new", "did you mean policy?"),
        ] {
            let error = setting(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn a_key_may_be_given_once_per_service() {
        let check = |texts: &[&str]| {
            let settings: Vec<Setting> = texts.iter().map(|text| setting(text).unwrap()).collect();
            check_twice(&settings).is_ok()
        };
        assert!(check(&["new_per_source=off", "web.new_per_source=5/s", "dns.new_per_source=5/s"]));
        assert!(!check(&["new_per_source=off", "new_per_source=5/s"]));
        assert!(!check(&["web.policy=new", "lease=1s", "web.policy=new"]));
    }
}
