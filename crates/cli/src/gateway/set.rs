//! The command `equic gateway set`.

use equic_gateway::Setting;
use equic_report::table::{Column, Table};
use serde_json::json;

use super::Target;
use super::keep::Lines;
use super::needs::{NEEDS, check_counted, warnings};
use crate::failure::Result;
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
    #[arg(value_name = "KEY=VALUE", required = true, value_parser = Setting::parse_pair)]
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

pub(super) fn run(args: &Args) -> Result {
    let control = args.target.open()?;
    // Keys and values were checked when the arguments were parsed. Only the names of services must
    // still be checked.
    for setting in &args.settings {
        if let Some(name) = &setting.service {
            super::status::check_service(&control, name)?;
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
