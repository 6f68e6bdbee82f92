//! The command `equic gateway set`.

use equic_gateway::Setting;
use equic_report::table::{Column, Table};
use serde_json::json;

use super::Target;
use super::needs::{NEEDS, check_counted, warnings};
use super::save::{Saved, Saving};
use crate::failure::Result;
use crate::output;

/// Changes settings of a running gateway. All of them are checked before the first one is changed.
#[derive(clap::Args)]
#[command(after_help = "To change only one service, write its name before the key:
web.max_connections=100. A key without a name changes every service. dry_run,
lease and events are settings of the whole gateway.")]
pub(crate) struct Args {
    /// Settings, for example max_connections=100, `new_per_source=20/s burst 40`, policy=strict,
    /// dry_run=off
    #[arg(value_name = "KEY=VALUE", required = true, value_parser = Setting::parse_pair)]
    settings: Vec<Setting>,
    /// Also write the settings into the gateway's configuration file. Its comments and order stay
    /// unchanged
    #[arg(long)]
    save: bool,
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
    // Do everything that can fail before the first setting is changed.
    let saving = match args.save {
        true => Some(Saving::prepare(&control, &args.settings)?),
        false => None,
    };
    let mut changes = Vec::new();
    for setting in &args.settings {
        changes.extend(control.apply(setting)?);
    }
    let saved = saving.map(|saving| saving.finish(&control)).transpose()?;
    if let Some(doubt) = saved.as_ref().and_then(Saved::durability_warning) {
        output::notice(doubt);
    }
    let saved = saved.map(|saved| saved.path);
    let warnings = warnings(&control, &args.settings);
    warnings.iter().for_each(output::notice);
    if args.json {
        let set = json!({ "changes": changes, "saved": saved, "warnings": warnings });
        return output::json("equic.gateway.set/1", set);
    }
    let mut table = Table::new(["service", "setting", "was", "is"].map(Column::text));
    for change in changes {
        let service = change.service.unwrap_or_else(|| "(gateway)".to_owned());
        table.row([service, change.key.to_owned(), change.old, change.new]);
    }
    output::table(&table)?;
    match saved {
        Some(path) => output::line(format_args!("saved to {}", path.display())),
        None => Ok(()),
    }
}
