//! The commands `equic gateway deny`, `allow`, `forget` and `lists`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use equic_gateway::{Control, IpNet, ListAction, Origin, parse_duration, parse_prefix, read_list};
use equic_report::table::{Cell, Column, Table, Tone};
use serde_json::json;

use super::Target;
use crate::failure::{Failure, Result};
use crate::output;

/// The longest matching prefix wins; deny and allow share one list.
#[derive(Args)]
pub(crate) struct Add {
    /// An address (192.0.2.7, 2001:db8::1) or a prefix (192.0.2.0/24)
    #[arg(value_name = "PREFIX", required_unless_present = "file", conflicts_with = "file", value_parser = parse_prefix)]
    prefix: Vec<IpNet>,
    /// File with one prefix per line (# starts a comment). Replaces the prefixes of earlier files;
    /// may be given several times
    #[arg(long, value_name = "FILE")]
    file: Vec<PathBuf>,
    /// Time after which the entry expires, such as 90s, 10m, 2h or 7d [default: when the gateway
    /// ends]
    #[arg(long = "for", value_name = "DURATION", value_parser = lifetime, conflicts_with = "file")]
    lifetime: Option<Duration>,
    #[command(flatten)]
    target: Target,
    /// Print JSON (schema equic.gateway.deny/1, equic.gateway.allow/1)
    #[arg(long)]
    json: bool,
}

/// Removes entries from the deny and allow lists.
#[derive(Args)]
pub(crate) struct Forget {
    /// An address or a prefix, exactly as it was added to the list
    #[arg(value_name = "PREFIX", required = true, value_parser = parse_prefix)]
    prefix: Vec<IpNet>,
    #[command(flatten)]
    target: Target,
    /// Print JSON (schema equic.gateway.forget/1)
    #[arg(long)]
    json: bool,
}

/// Shows both lists.
#[derive(Args)]
pub(crate) struct Show {
    #[command(flatten)]
    target: Target,
    /// Print JSON (schema equic.gateway.lists/1)
    #[arg(long)]
    json: bool,
}

fn lifetime(text: &str) -> Result<Duration, String> {
    match parse_duration(text) {
        Ok(Duration::ZERO) => {
            Err("a duration of zero has no effect: use `forget` to remove an entry".to_owned())
        }
        Ok(lifetime) => Ok(lifetime),
        Err(error) => Err(error.to_string()),
    }
}

pub(super) fn deny(args: &Add) -> Result {
    add(args, ListAction::Deny)
}

pub(super) fn allow(args: &Add) -> Result {
    add(args, ListAction::Allow)
}

fn add(args: &Add, action: ListAction) -> Result {
    let control = args.target.open()?;
    let (schema, what) = match action {
        ListAction::Deny => ("equic.gateway.deny/1", "denied"),
        ListAction::Allow => ("equic.gateway.allow/1", "allowed"),
    };
    if !args.file.is_empty() {
        return load(&control, args, action, schema);
    }
    for prefix in &args.prefix {
        match action {
            ListAction::Deny => control.deny(*prefix, args.lifetime)?,
            ListAction::Allow => control.allow(*prefix, args.lifetime)?,
        }
        if !args.json {
            output::line(said(what, *prefix, args.lifetime))?;
        }
    }
    if args.json {
        let for_s = args.lifetime.map(|lifetime| lifetime.as_secs_f64());
        let entry = |prefix| json!({ "prefix": prefix, "for_s": for_s });
        let entries: Vec<_> = args.prefix.iter().map(entry).collect();
        return output::json(schema, json!({ "entries": entries }));
    }
    Ok(())
}

/// Loads all list files of `args`, or none of them if a line is invalid. The error lists every
/// invalid line.
fn load(control: &Control, args: &Add, action: ListAction, schema: &str) -> Result {
    let (mut wanted, mut wrong) = (Vec::new(), Vec::new());
    for file in &args.file {
        match read_list(file) {
            Ok(prefixes) => wanted.extend(prefixes.into_iter().map(|prefix| (prefix, action))),
            Err(error) => wrong.push(error.to_string()),
        }
    }
    if !wrong.is_empty() {
        return Err(Failure::new(format!("nothing was changed\n{}", wrong.join("\n"))));
    }
    let done = control.replace(Origin::File, &[action], &wanted)?;
    if args.json {
        return output::json(schema, json!({ "files": args.file, "list": done }));
    }
    let left = match done.left {
        0 => String::new(),
        left => format!("; {left} unchanged, because a command or the configuration added them"),
    };
    output::line(format_args!(
        "prefixes: {} added, {} removed, {} kept{left}",
        done.added, done.removed, done.kept
    ))
}

fn said(what: &str, prefix: IpNet, lifetime: Option<Duration>) -> String {
    match lifetime {
        Some(lifetime) => {
            format!("{what}: {prefix} for {}", equic_gateway::format_duration(lifetime))
        }
        None => format!("{what}: {prefix}"),
    }
}

pub(super) fn forget(args: &Forget) -> Result {
    let control = args.target.open()?;
    let (mut forgotten, mut missing) = (Vec::new(), Vec::new());
    for prefix in &args.prefix {
        if control.forget(*prefix)? {
            if !args.json {
                output::line(format_args!("forgotten: {prefix}"))?;
            }
            forgotten.push(prefix.to_string());
        } else {
            missing.push(prefix.to_string());
        }
    }
    if args.json {
        let data = json!({ "forgotten": forgotten, "missing": missing });
        output::json("equic.gateway.forget/1", data)?;
    }
    if missing.is_empty() {
        return Ok(());
    }
    Err(Failure::because(
        "not removed, because these prefixes are on neither list",
        missing.join(", "),
    )
    .help("`equic gateway lists` shows all prefixes in the form in which they were added"))
}

pub(super) fn show(args: &Show) -> Result {
    let entries = args.target.open()?.lists()?;
    if args.json {
        return output::json("equic.gateway.lists/1", json!({ "entries": entries }));
    }
    if entries.is_empty() {
        return output::line("the allow and deny lists are empty");
    }
    let mut table = Table::new([
        Column::text("prefix"),
        Column::text("list"),
        Column::text("by"),
        Column::number("expires in"),
    ]);
    for entry in entries {
        let list = match entry.action {
            ListAction::Deny => Cell::new("deny").tone(Tone::Bad),
            ListAction::Allow => Cell::new("allow").tone(Tone::Good),
        };
        let left = entry.expires_in.map_or_else(
            || "never".to_owned(),
            |left| equic_report::number::seconds(left.as_secs_f64().ceil()),
        );
        let by = match entry.origin {
            Origin::Command => "command".to_owned(),
            Origin::Config => "configuration".to_owned(),
            Origin::File => "file".to_owned(),
            Origin::Ban => format!("ban {}", entry.bans),
        };
        table.row([Cell::new(entry.prefix.to_string()), list, Cell::new(by), Cell::new(left)]);
    }
    output::table(&table)
}
