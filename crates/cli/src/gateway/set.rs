//! `equic gateway set`.

use equic_gateway::{Control, LedgerStatus, Setting};
use equic_report::table::{Column, Table};
use serde_json::json;

use super::Target;
use super::save::{Saved, Saving};
use crate::failure::{Done, Failure};
use crate::output;

/// Changes settings of a running gateway; all are checked before the first one is changed.
#[derive(clap::Args)]
#[command(
    after_help = "A key of a service may have the service's name in front: web.max_connections=100.
Without it, it is set for every service. dry_run, lease and events alone are the gateway's."
)]
pub(crate) struct Args {
    /// For example max_connections=100, `new_per_source=20/s burst 40`, policy=strict, dry_run=off
    #[arg(value_name = "KEY=VALUE", required = true, value_parser = Setting::parse_pair)]
    settings: Vec<Setting>,
    /// Write them into the gateway's configuration file as well; comments and order stay
    #[arg(long)]
    save: bool,
    #[command(flatten)]
    target: Target,
    /// Have clients prove their addresses although there are servers that do not check the gateway's tokens, or
    /// connection IDs checked although there are servers that make others
    #[arg(long)]
    force: bool,
    /// JSON (schema equic.gateway.set/1)
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Done {
    let control = args.target.open()?;
    // Keys and values were checked when the arguments were read; what is left are the names.
    for setting in &args.settings {
        if let Some(name) = &setting.service {
            super::status::check_service(&control, name)?;
        }
    }
    if !args.force {
        check_keys(&control, &args.settings)?;
        check_ids(&control, &args.settings)?;
    }
    // All that can fail comes before the first change.
    let saving = match args.save {
        true => Some(Saving::prepare(&control, &args.settings)?),
        false => None,
    };
    let mut changes = Vec::new();
    for setting in &args.settings {
        changes.extend(control.apply(setting)?);
    }
    let saved = saving.map(|saving| saving.finish(&control)).transpose()?;
    if let Some(doubt) = saved.as_ref().and_then(Saved::doubt) {
        output::notice(doubt);
    }
    let saved = saved.map(|saved| saved.path);
    if args.json {
        return output::json("equic.gateway.set/1", json!({ "changes": changes, "saved": saved }));
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

/// Says so when clients would have to bring tokens that a server may not check: they would never get in.
fn check_keys(control: &Control, settings: &[Setting]) -> Done {
    for setting in settings.iter().filter(|setting| setting.asks_for_proof()) {
        let named = |name: &String| setting.service.as_ref().is_none_or(|wanted| wanted == name);
        for service in control.service_names().into_iter().filter(named) {
            // Where it cannot be told, they may all be lost.
            let servers = without_keys(control, &service).map_err(|error| {
                Failure::because("cannot tell whether servers check the gateway's tokens", error)
                    .mend("as root it can be told; --force is for those who know")
            })?;
            if let Some(servers) = servers {
                return Err(Failure::because(
                    format_args!("new clients of `{service}` may get no further than Retry"),
                    servers,
                )
                .mend(
                    "start them with the gateway's keys (`equic serve` takes them from --gateway and \
                     --gateway-socket), or say --force",
                ));
            }
        }
    }
    Ok(())
}

/// Says so when connection IDs would be checked that a server may not make so: its clients would be cut off.
fn check_ids(control: &Control, settings: &[Setting]) -> Done {
    for setting in settings.iter().filter(|setting| setting.checks_ids()) {
        let named = |name: &String| setting.service.as_ref().is_none_or(|wanted| wanted == name);
        for service in control.service_names().into_iter().filter(named) {
            // Where it cannot be told, they may all be cut off.
            let servers = without_ids(control, &service).map_err(|error| {
                Failure::because("cannot tell whether servers make IDs that can be checked", error)
                    .mend("as root it can be told; --force is for those who know")
            })?;
            if let Some(servers) = servers {
                return Err(Failure::because(
                    format_args!("clients of `{service}` may be cut off"),
                    servers,
                )
                .mend(
                    "`equic serve --gateway` and --gateway-socket make such IDs; or say --force",
                ));
            }
        }
    }
    Ok(())
}

/// The servers of a service that have not said that they check the gateway's tokens, in words; none: all have.
pub(super) fn without_keys(
    control: &Control,
    service: &str,
) -> Result<Option<String>, equic_gateway::Error> {
    let servers = control.servers_without_keys(service)?;
    let verbs = ["has not said that it checks", "have not said that they check"];
    Ok(in_words(&servers, verbs, "the gateway's tokens"))
}

/// The servers of a service that have not said that their connection IDs prove themselves, in words; none: all
/// have.
pub(super) fn without_ids(
    control: &Control,
    service: &str,
) -> Result<Option<String>, equic_gateway::Error> {
    let servers = control.servers_without_ids(service)?;
    let verbs = ["has not said that it makes", "have not said that they make"];
    Ok(in_words(&servers, verbs, "connection IDs with the gateway's keys"))
}

/// Names servers, with the verb for one or for several; none: there are no servers.
fn in_words(servers: &[LedgerStatus], [one, several]: [&str; 2], what: &str) -> Option<String> {
    let shown = |one: &LedgerStatus| format!("{} (process {})", one.name, one.pid);
    let names: Vec<String> = servers.iter().map(shown).collect();
    let not = if names.len() == 1 { one } else { several };
    (!names.is_empty()).then(|| format!("{} {not} {what}", names.join(", ")))
}
