//! The result for a person: two tables, what has to be known to read them, and the plot.

use std::path::Path;

use equic_report::number::{self, MISSING};
use equic_report::plot::{Axis, LinePlot, Phase, PlotError, Series, Shade, Svg};
use equic_report::table::{Cell, Column, Table, Tone};
use equic_report::timeline;

use super::plan::{Arm, Plan};
use super::result::{ArmResult, Demo, Dropped};

/// Windows of the plot: this many in all, but none shorter than [`SHORTEST`].
const WINDOWS: f64 = 120.0;
/// Seconds.
const SHORTEST: f64 = 0.2;
/// Other work on the server's CPU above this share (per cent) is worth a note.
const DISTURBED: f64 = 10.0;

/// One row for each arm.
pub fn arms(arms: &[ArmResult]) -> Table {
    let mut table = Table::new([
        Column::text("arm"),
        Column::number("legitimate").unit("requests/s"),
        Column::number("median"),
        Column::number("p99"),
        Column::number("failures"),
        Column::number("server CPU"),
        Column::number("attackers'\nconnections"),
        Column::number("flood").unit("Initials/s"),
        Column::number("dropped").unit("in the kernel"),
    ]);
    let best = arms.iter().find(|result| result.arm == Arm::Alone);
    let best = best.map_or(0.0, |result| result.legitimate.requests_per_s);
    let ms = |value: Option<f64>| {
        value.map_or_else(|| MISSING.to_owned(), |ms| number::seconds(ms / 1000.0))
    };
    for result in arms {
        let legitimate = &result.legitimate;
        let share = legitimate.requests_per_s / best;
        let tone = match result.arm {
            Arm::Alone => Tone::Strong,
            _ if share >= 0.9 => Tone::Good,
            _ if share >= 0.5 => Tone::Warning,
            _ => Tone::Bad,
        };
        let attack = |figure: &dyn Fn(&super::result::Attack) -> String| {
            result.attack.as_ref().map_or_else(|| MISSING.to_owned(), figure)
        };
        let kernel: u64 =
            result.drops.iter().filter(|row| row.place == "kernel").map(|row| row.count).sum();
        table.row([
            Cell::new(result.title),
            Cell::new(number::si(legitimate.requests_per_s, "")).tone(tone),
            Cell::new(ms(legitimate.median_ms)),
            Cell::new(ms(legitimate.p99_ms)),
            Cell::new(number::percent_of(legitimate.failures(), legitimate.requests)),
            Cell::new(number::percent(result.server.cpu_percent / 100.0)),
            Cell::new(attack(&|attack| number::count(attack.accepted))),
            Cell::new(attack(&|attack| number::si(attack.flood_pps, ""))),
            Cell::new(match result.gateway {
                Some(_) => number::count(kernel),
                None => MISSING.to_owned(),
            }),
        ]);
    }
    table
}

/// One row for each reason, one column for each arm with an attack.
pub fn drops(arms: &[ArmResult]) -> Table {
    let attacked: Vec<&ArmResult> = arms.iter().filter(|result| result.arm.attacked()).collect();
    let columns = [Column::text("dropped"), Column::text("reason")].into_iter().chain(
        attacked.iter().map(|result| Column::number(result.title.replacen(", ", ",\n", 1))),
    );
    let mut table = Table::new(columns);
    let mut rows: Vec<&Dropped> = Vec::new();
    for place in ["kernel", "socket", "server"] {
        for row in attacked.iter().flat_map(|result| &result.drops) {
            let known = rows.iter().any(|r| (r.place, &r.reason) == (row.place, &row.reason));
            if row.place == place && !known {
                rows.push(row);
            }
        }
    }
    for row in rows {
        let place = match row.place {
            "kernel" => "by the gateway",
            "socket" => "at the socket",
            _ => "by the server",
        };
        let figure = |result: &&ArmResult| {
            let mut found = result.drops.iter();
            let found = found.find(|r| (r.place, &r.reason) == (row.place, &row.reason));
            Cell::new(found.map_or_else(|| MISSING.to_owned(), |row| number::count(row.count)))
        };
        let head = [Cell::new(place), Cell::new(row.reason.clone())];
        table.row(head.into_iter().chain(attacked.iter().map(figure)));
    }
    table
}

/// What has to be known to read the figures.
pub fn notes(plan: &Plan, arms: &[ArmResult]) -> Vec<String> {
    let mut notes = vec![
        "Figures are of the time from the flood's first Initials to the end of an arm; each arm has \
         a fresh server. Failures: of the requests begun in that time, those refused or without an \
         answer. Durations are of those that went well."
            .to_owned(),
        format!(
            "Limits with quotas: {} connections at a time and {} new ones, per source address; \
             attempts beyond are ignored, which is the cheapest a server can do.",
            plan.max_connections, plan.new_per_source
        ),
    ];
    notes.push(if plan.server_cpu == plan.other_cpu {
        "There is only one CPU here, so everybody takes it from everybody: the arms show less than \
         on two."
            .to_owned()
    } else {
        format!(
            "The server has CPU {}, everything else CPU {}, with the attackers at nice 19: what \
             legitimate clients lose is the server's doing, not that of their own CPU.",
            plan.server_cpu, plan.other_cpu
        )
    });
    notes.push(
        "On veth the kernel's receive work, XDP included, runs on the sender's CPU; behind a network \
         card it runs on the receiver's."
            .to_owned(),
    );
    if arms.iter().any(|result| result.gateway_native == Some(false)) {
        notes.push(
            "The gateway was attached in generic mode: packets cost more than in a driver."
                .to_owned(),
        );
    }
    for result in arms {
        let server = &result.server;
        let others = server.cpu_busy_percent - server.cpu_percent - server.cpu_softirq_percent;
        if others > DISTURBED && plan.server_cpu != plan.other_cpu {
            notes.push(format!(
                "Other programs took {others:.0} % of the server's CPU during `{}`: its figures \
                 would be better on a quiet machine.",
                result.title
            ));
        }
    }
    notes
}

/// Legitimate requests over time, the arms one behind the other.
pub fn plot(demo: &Demo) -> Result<Svg, PlotError> {
    let end = demo.arms.last().map_or(0.0, |last| last.start_s + last.seconds);
    let width = (end / WINDOWS).max(SHORTEST);
    let plan = &demo.plan;
    let mut plot = LinePlot::new(
        "Requests answered to legitimate clients",
        Axis::new("time", "s"),
        Axis::new("requests per second", "/s"),
    )
    .subtitle(format!(
        "{} clients; {} attackers with {} connections each and {} Initials in all; windows of {}",
        plan.clients,
        plan.attackers,
        plan.connections_per_attacker,
        number::rate(plan.flood_pps as f64),
        number::seconds(width),
    ));
    let mut points: Vec<(f64, f64)> = Vec::new();
    for result in &demo.arms {
        let (start, stop) = (result.start_s, result.start_s + result.seconds);
        let shade = match result.arm {
            Arm::Alone => Shade::None,
            Arm::Unprotected => Shade::Alarm,
            Arm::UserSpace => Shade::Caution,
            Arm::Gateway => Shade::Safe,
        };
        let attack = result.attack_s.map_or(start, |attack| start + attack);
        if attack > start {
            plot = plot.phase(Phase::new("", start, attack));
        }
        plot = plot.phase(Phase::new(result.title, attack, stop).shade(shade));
        let rates = timeline::rate(&result.completions, 0.0, result.seconds, width);
        points.extend(rates.unwrap_or_default().into_iter().map(|(at, rate)| (start + at, rate)));
        // Servers change here: no line from one to the next.
        points.push((stop, f64::NAN));
    }
    let alone = demo.arms.iter().find(|result| result.arm == Arm::Alone);
    plot = plot.series(Series::new("requests answered", points));
    if let Some(alone) = alone {
        let level = alone.legitimate.requests_per_s;
        plot = plot.series(Series::new("without an attack", [(0.0, level), (end, level)]));
    }
    plot.draw()
}

/// Whether a PNG can be made here at all: better known before the experiment than after it.
pub fn check_fonts() -> Result<(), PlotError> {
    let axis = || Axis::new("x", "");
    let probe = LinePlot::new("probe", axis(), axis()).size(200, 200);
    probe.series(Series::new("probe", [(0.0, 0.0), (1.0, 1.0)])).draw()?.to_png(1.0).map(drop)
}

/// Writes the two plot files.
pub fn write_plot(demo: &Demo, out: &Path) -> Result<(), PlotError> {
    let plot = plot(demo)?;
    plot.write_svg(out.join("demo.svg"))?;
    plot.write_png(out.join("demo.png"), 1.5)
}
