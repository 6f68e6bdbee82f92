//! The result for a person: two tables, what has to be known to read them, and the plot.

use std::path::Path;

use equic_report::number::{self, MISSING};
use equic_report::plot::{Axis, LinePlot, Phase, PlotError, Series, Shade, Svg};
use equic_report::table::{Cell, Column, Table, Tone};
use equic_report::timeline;

use super::conclusion::exact;
use super::plan::{Arm, Plan};
use super::result::{ArmResult, Demo};

/// Windows of the plot: this many in all, but none shorter than [`SHORTEST`].
const WINDOWS: f64 = 120.0;
/// Seconds.
const SHORTEST: f64 = 0.2;
/// Places where packets and attempts can be stopped, from the network to the application.
const PLACES: [(&str, &str); 3] = [
    ("kernel", "dropped by the gateway"),
    ("socket", "dropped at the socket"),
    ("server", "turned away by the server"),
];
/// Other work on the server's CPU above this share (per cent) is worth a note.
const DISTURBED: f64 = 10.0;

/// One column for each arm: what legitimate clients had, what it cost, and what was dropped why.
pub(super) fn table(arms: &[ArmResult]) -> Table {
    let columns = arms.iter().map(|result| Column::number(result.arm.heading()));
    let mut table = Table::new([Column::text("")].into_iter().chain(columns));
    let mut row = |name: &str, cell: &dyn Fn(&ArmResult) -> Cell| {
        table.row([Cell::new(name)].into_iter().chain(arms.iter().map(cell)));
    };
    let alone = arms.iter().find(|result| result.arm == Arm::Alone);
    let alone = alone.map_or(0.0, |result| result.legitimate.requests_per_s);
    row("legitimate requests/s", &|result| {
        let rate = result.legitimate.requests_per_s;
        let tone = match result.arm {
            Arm::Alone => Tone::Strong,
            _ if rate >= 0.9 * alone => Tone::Good,
            _ if rate >= 0.5 * alone => Tone::Warning,
            _ => Tone::Bad,
        };
        Cell::new(exact(rate)).tone(tone)
    });
    let ms = |ms: Option<f64>| ms.map_or_else(nothing, |ms| number::seconds(ms / 1000.0).into());
    row("  median duration", &|result| ms(result.legitimate.median_ms));
    row("  p99 duration", &|result| ms(result.legitimate.p99_ms));
    row("  failed requests", &|result| {
        let legitimate = &result.legitimate;
        number::percent_of(legitimate.failures(), legitimate.requests).into()
    });
    row("server CPU", &|result| number::percent(result.server.cpu_percent / 100.0).into());
    row("attackers' connections", &|result| {
        result.attack.as_ref().map_or_else(nothing, |a| number::count(a.accepted).into())
    });
    row("flood, Initials/s", &|result| {
        result.attack.as_ref().map_or_else(nothing, |a| number::si(a.flood_pps, "").into())
    });
    for (place, title) in PLACES {
        let sum = |result: &ArmResult| result.dropped(place);
        if arms.iter().all(|result| sum(result) == 0) {
            continue;
        }
        let count = |count: u64| if count > 0 { number::count(count).into() } else { nothing() };
        row(title, &|result| count(sum(result)));
        for reason in reasons(arms, place) {
            row(&format!("  {reason}"), &|result| {
                let found = result.drops.iter().find(|d| (d.place, &*d.reason) == (place, reason));
                count(found.map_or(0, |dropped| dropped.count)).tone(Tone::Faint)
            });
        }
    }
    table
}

fn nothing() -> Cell {
    Cell::new(MISSING)
}

/// The reasons that occur at a place, in order of their first occurrence.
fn reasons<'a>(arms: &'a [ArmResult], place: &str) -> Vec<&'a str> {
    let mut reasons: Vec<&str> = Vec::new();
    for dropped in arms.iter().flat_map(|result| &result.drops).filter(|d| d.place == place) {
        if !reasons.contains(&&*dropped.reason) {
            reasons.push(&dropped.reason);
        }
    }
    reasons
}

/// Notes that a reader of the figures needs.
pub(super) fn notes(plan: &Plan, arms: &[ArmResult]) -> Vec<String> {
    let mut notes = vec![
        format!(
            "The flood's Initials are valid and unspoofed: {} different ones from each attacker, over \
             and over. The parallel clients are real HTTP/3 and hold what they get.",
            number::count(plan.flood_pool as u64)
        ),
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
pub(super) fn plot(demo: &Demo) -> Result<Svg, PlotError> {
    let end = demo.arms.last().map_or(0.0, |last| last.start_s + last.seconds);
    // Round figures: tenths of a second.
    let width = ((end / WINDOWS * 10.0).ceil() / 10.0).max(SHORTEST);
    let plan = &demo.plan;
    let mut plot = LinePlot::new(
        "Requests answered to legitimate clients",
        Axis::new("time", "s"),
        Axis::new("requests", "/s"),
    )
    .subtitle(format!(
        "{} clients; {} attackers with {} parallel clients each and {} Initials/s in all; white: no attack; \
         windows of {}",
        plan.clients,
        plan.attackers,
        plan.connections_per_attacker,
        number::si(plan.flood_pps as f64, ""),
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
        // Whole windows only: a rate over the last few milliseconds would be anything.
        let whole = (result.seconds / width).floor() * width;
        let rates = timeline::rate(&result.completions, 0.0, whole, width);
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

/// Writes the two plot files.
pub(super) fn write_plot(demo: &Demo, out: &Path) -> Result<(), PlotError> {
    let plot = plot(demo)?;
    plot.write_svg(out.join("demo.svg"))?;
    plot.write_png(out.join("demo.png"), 1.5)
}
