//! The command `equic gateway reasons`.

use equic_gateway::Reason;
use equic_report::table::{Column, Table};
use serde_json::json;

use crate::failure::Result;
use crate::output;

/// Lists the reasons for verdicts. Every verdict has one of them; counters, events and `explain`
/// use their names.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Print JSON (schema equic.gateway.reasons/1)
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Result {
    if args.json {
        let reasons: Vec<_> = Reason::all()
            .map(|r| json!({ "reason": r, "drops": r.drops(), "verdict": r.verdict(), "meaning": r.meaning() }))
            .collect();
        return output::json("equic.gateway.reasons/1", json!({ "reasons": reasons }));
    }
    let mut table =
        Table::new([Column::text("reason"), Column::text("verdict"), Column::text("meaning")]);
    for reason in Reason::all() {
        let verdict = reason.verdict();
        table.row([reason.name(), verdict, reason.meaning()]);
    }
    output::table(&table)
}
