//! Plots of the results of legitimate clients and of newcomers over time.

use std::path::Path;

use equic_report::number;
use equic_report::plot::{Axis, LinePlot, Phase, PlotError, Series, Shade, Svg};
use equic_report::timeline;

use super::arms::Arm;
use super::plan::DemoPlan;
use super::result::{ArmResult, Demo};

/// Number of time windows in a plot, unless they would be shorter than [`SHORTEST`].
const WINDOWS: f64 = 120.0;
/// Length of the shortest time window of a plot, in seconds.
const SHORTEST: f64 = 0.2;
/// Minimum number of newcomers per time window. With fewer, the plot would mainly show random
/// variation.
const NEWCOMERS: f64 = 15.0;

/// Writes both plots as SVG files into a folder.
pub(super) fn write(demo: &Demo, out: &Path) -> Result<(), PlotError> {
    let plots = [
        (requests(&demo.plan, &demo.arms)?, "demo"),
        (newcomers(&demo.plan, &demo.forged.arms)?, "newcomers"),
    ];
    for (plot, name) in plots {
        plot.write_svg(out.join(format!("{name}.svg")))?;
    }
    Ok(())
}

/// Marks the phases of a plot: each arm, and the time before the attack within the arm.
fn phases(mut plot: LinePlot, arms: &[ArmResult]) -> LinePlot {
    for result in arms {
        let (start, stop) = (result.start_s, result.start_s + result.seconds);
        let shade = match result.arm {
            Arm::Alone | Arm::Calm => Shade::None,
            Arm::Unprotected | Arm::ForgedUnprotected => Shade::Alarm,
            Arm::UserSpace | Arm::ForgedServerRetry => Shade::Caution,
            Arm::Gateway | Arm::ForgedGateway => Shade::Safe,
        };
        let attack = result.attack_s.map_or(start, |attack| start + attack);
        if attack > start {
            plot = plot.phase(Phase::new("", start, attack));
        }
        plot = plot.phase(Phase::new(result.title, attack, stop).shade(shade));
    }
    plot
}

/// Plots the successful requests of legitimate clients over time, with the arms one after the
/// other.
fn requests(plan: &DemoPlan, arms: &[ArmResult]) -> Result<Svg, PlotError> {
    let end = arms.last().map_or(0.0, |last| last.start_s + last.seconds);
    // Rounds the window's length up to tenths of a second.
    let width = ((end / WINDOWS * 10.0).ceil() / 10.0).max(SHORTEST);
    let plot = LinePlot::new(
        "Requests answered to legitimate clients",
        Axis::new("time", "s"),
        Axis::new("requests", "/s"),
    )
    .subtitle(format!(
        "{} clients; {} attackers with {} parallel clients each and {} Initials/s in total; white: no attack; \
         windows of {}",
        plan.clients,
        plan.attackers,
        plan.connections_per_attacker,
        number::si(plan.flood_pps as f64, ""),
        number::seconds(width),
    ));
    let mut points: Vec<(f64, f64)> = Vec::new();
    for result in arms {
        let (start, stop) = (result.start_s, result.start_s + result.seconds);
        // Only whole windows are plotted, because the rate of the last few milliseconds would be
        // arbitrary.
        let whole = (result.seconds / width).floor() * width;
        let rates = timeline::rate(&result.completions, 0.0, whole, width);
        points.extend(rates.unwrap_or_default().into_iter().map(|(at, rate)| (start + at, rate)));
        // The next arm has another server, so the line is interrupted.
        points.push((stop, f64::NAN));
    }
    let alone = arms.iter().find(|result| result.arm == Arm::Alone);
    let mut plot = phases(plot, arms).series(Series::new("requests answered", points));
    if let Some(alone) = alone {
        let level = alone.legitimate.requests_per_s;
        plot = plot.series(Series::new("without an attack", [(0.0, level), (end, level)]));
    }
    plot.draw()
}

/// Plots the numbers of newcomers and of successful newcomers over the time of their start, with
/// the arms one after the other.
fn newcomers(plan: &DemoPlan, arms: &[ArmResult]) -> Result<Svg, PlotError> {
    let width = (NEWCOMERS / plan.newcomers_per_s).max(SHORTEST);
    let plot = LinePlot::new(
        "Newcomers that got in, under Initials from forged sources",
        Axis::new("time", "s"),
        Axis::new("newcomers", "/s"),
    )
    .subtitle(format!(
        "{} newcomers/s, by start time; {} Initials/s planned, each from a random source of {}; white: no attack; \
         windows of about {}",
        plan.newcomers_per_s,
        number::si(plan.flood_pps as f64, ""),
        plan.forged,
        number::seconds(width),
    ));
    let (mut tried, mut got_in) = (Vec::new(), Vec::new());
    for result in arms {
        let Some(newcomers) = &result.newcomers else { continue };
        let Some((from, to)) = newcomers.span() else { continue };
        for (points, all) in [(&mut tried, true), (&mut got_in, false)] {
            let counted = newcomers.tries.iter().filter(|(_, went_well)| all || *went_well);
            let times: Vec<f64> = counted.map(|(at, _)| *at).collect();
            // The windows have equal lengths, because a shorter last window would mainly show
            // random variation.
            let exact = (to - from) / ((to - from) / width).round().max(1.0);
            for (at, rate) in timeline::rate(&times, from, to, exact).unwrap_or_default() {
                let middle = result.start_s + at;
                points.extend([(middle - exact / 2.0, rate), (middle + exact / 2.0, rate)]);
            }
            // The next arm has another server, so the line is interrupted.
            points.push((result.start_s + result.seconds, f64::NAN));
        }
    }
    let plot = phases(plot, arms).series(Series::new("got in", got_in));
    plot.series(Series::new("tried", tried)).draw()
}
