//! Formats the result as a table.

use equic_report::table::{Cell, Column, Table};

use super::super::arms::Arms as _;
use super::super::show::{figure, flood, ratio};
use super::plan::ForgedPlan;
use super::result::Row;

pub(in super::super) fn table(rows: &[Row]) -> Table {
    let mut table = Table::new([
        Column::text("flood"),
        Column::text("protected by"),
        Column::number("sent").unit("packets/s"),
        Column::number("newcomers served").unit("%"),
        Column::number("95 % interval").unit("%"),
        Column::number("median").unit("ms"),
        Column::number("p99").unit("ms"),
        Column::number("established").unit("MB/s"),
        Column::number("of baseline").unit("%"),
        Column::number("95 % interval").unit("%"),
        Column::number("server CPU").unit("%"),
    ])
    .title("Newcomers and established connections under Initials from forged sources");
    for row in rows {
        let served = ratio(row.figures.served, 100.0, 1);
        let established = ratio(row.figures.established, 100.0, 1);
        table.row([
            flood(row.arm, row.flood_pps).into(),
            Cell::new(row.arm.title()),
            figure(row.sent_pps, 0).into(),
            served.0.into(),
            served.1.into(),
            figure(row.figures.newcomer_median_ms, 1).into(),
            figure(row.figures.newcomer_p99_ms, 1).into(),
            figure(row.figures.established_bytes_per_s.map(|bytes| bytes / 1e6), 1).into(),
            established.0.into(),
            established.1.into(),
            figure(row.figures.server_cpu_percent, 0).into(),
        ]);
    }
    table
}

/// Returns the line below the table, which names loads, sources and limits.
pub(in super::super) fn note(plan: &ForgedPlan) -> String {
    format!(
        "load: {} newcomers per second, each from a separate address, and {} connections that were opened before the flood; forged sources from {}; limits in total: gateway {}, nftables {} Initials per second",
        plan.newcomers_per_s,
        plan.established,
        plan.forged,
        plan.new_per_service,
        plan.initials_in_all.0
    )
}
