//! The command `equic gateway sources`.

use clap::ValueEnum;
use equic_gateway::SortBy;
use equic_report::number;
use equic_report::table::{Cell, Column, Table, Tone};
use serde_json::json;

use super::Target;
use crate::failure::Result;
use crate::output;

/// Shows which sources send packets and hold connections. A source is an address, or a prefix of
/// the configured length.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Maximum number of sources to show
    #[arg(long, value_name = "N", default_value = "20", value_parser = clap::value_parser!(u32).range(1..))]
    top: u32,
    /// Quantity to sort by
    #[arg(long, value_enum, default_value = "packets")]
    by: By,
    #[command(flatten)]
    target: Target,
    /// Print JSON (schema equic.gateway.sources/1)
    #[arg(long)]
    json: bool,
}

/// An order.
#[derive(Clone, Copy, ValueEnum)]
pub(super) enum By {
    /// Packets that arrived
    Packets,
    /// Payload bytes that arrived
    Bytes,
    /// Packets that were refused
    Drops,
    /// Open connections
    Connections,
}

pub(super) fn run(args: &Args) -> Result {
    let by = match args.by {
        By::Packets => SortBy::Packets,
        By::Bytes => SortBy::Bytes,
        By::Drops => SortBy::Drops,
        By::Connections => SortBy::Connections,
    };
    let control = args.target.open()?;
    if matches!(by, SortBy::Connections) && !control.ledgers()?.iter().any(|one| one.counts) {
        output::notice(
            "no server reports its connections to this gateway, so every source has 0 connections, and sorting by connections is useless: start a server that reports its connections (`equic serve --gateway`, or one with libequic)",
        );
    }
    let sources = control.sources(args.top as usize, by)?;
    if args.json {
        return output::json("equic.gateway.sources/1", json!({ "sources": sources }));
    }
    if sources.is_empty() {
        return output::line("no source has sent packets yet");
    }
    let mut table = Table::new([
        Column::text("source"),
        Column::text("services"),
        Column::number("connections"),
        Column::number("packets"),
        Column::number("payload"),
        Column::number("refused"),
        Column::number("last packet"),
        Column::text("last reason"),
        Column::text("state"),
    ]);
    for row in sources {
        let (state, refused) = (row.state(), row.drops > 0);
        let tone = match state {
            "denied" | "at limit" => Tone::Bad,
            "allowed" => Tone::Good,
            _ => Tone::Normal,
        };
        let missing = || number::MISSING.to_owned();
        let ago = row
            .last_seen_ms
            .map_or_else(missing, |ms| format!("{} ago", number::seconds(ms as f64 / 1000.0)));
        let reason = row.last_reason.map_or_else(missing, |reason| reason.to_string());
        let connections = match row.limit {
            0 => row.connections.to_string(),
            limit => format!("{} of {limit}", row.connections),
        };
        table.row([
            Cell::new(row.source),
            Cell::new(row.services.join(", ")),
            Cell::new(connections),
            Cell::new(number::count(row.packets)),
            Cell::new(number::bytes(row.bytes)),
            Cell::new(number::count(row.drops)).tone(if refused {
                Tone::Bad
            } else {
                Tone::Normal
            }),
            Cell::new(ago),
            Cell::new(reason),
            Cell::new(state).tone(tone),
        ]);
    }
    output::table(&table)
}
