//! Draws box plots with all points, one row for each pair of client and server, and ratios with
//! their intervals.

use equic_report::stats::Sample;

use super::chart::{Axis, dot, figure, line, rect, text, x_axis};
use crate::result::show::{self, Scale};
use crate::result::summary::Row;

const WIDTH: f64 = 860.0;
const LEFT: f64 = 190.0;
const RIGHT: f64 = 170.0;
const ROW: f64 = 26.0;
const TOP: f64 = 8.0;
/// Ratios.
const TIMES: Scale = Scale { unit: "times", factor: 1.0, digits: 2 };

/// Returns the name of a pair of client and server, or one name if both are the same
/// implementation.
pub(super) fn pair(row: &Row) -> String {
    if row.key.client == row.key.server {
        row.key.client.clone()
    } else {
        format!("{} \u{2192} {}", row.key.client, row.key.server)
    }
}

/// Draws one line for each pair that has figures or failures. `name` returns the text to the left
/// of the line.
pub(super) fn boxes(rows: &[&Row], label: &str, name: impl Fn(&Row) -> String) -> String {
    let shown: Vec<&&Row> =
        rows.iter().filter(|row| row.value.is_some() || !row.faults.is_empty()).collect();
    if shown.iter().all(|row| row.value.is_none()) {
        return String::new();
    }
    let scale = Scale::of(rows.iter().copied());
    let most = shown.iter().filter_map(|row| row.value).map(|value| value.max).fold(0.0, f64::max);
    let axis = Axis::from_zero(most * scale.factor, LEFT, WIDTH - RIGHT);
    let bottom = TOP + ROW * shown.len() as f64;
    let less = rows.iter().any(|row| row.less_is_better());
    let mut shapes = x_axis(&axis, TOP, bottom, &show::axis(scale.unit, less));
    for (index, row) in shown.iter().enumerate() {
        let y = TOP + ROW * (index as f64 + 0.5);
        shapes += &text("name end", LEFT - 10.0, y + 4.0, &name(row));
        shapes += &one(row, &axis, scale, y);
        let (class, note) = match (show::trouble(row), row.modes) {
            _ if row.clock_is_doubted() => ("note warn", show::CLOCK_DOUBTED.to_owned()),
            (Some(trouble), _) => ("note bad", trouble),
            (None, Some(_)) => ("note warn", "two modes".to_owned()),
            (None, None) => continue,
        };
        // A long note is cut off here. The table shows the whole text.
        let note: String = note.chars().take(26).collect();
        shapes += &text(class, WIDTH - RIGHT + 10.0, y + 4.0, &note);
    }
    figure(WIDTH, bottom + 42.0, label, "", &shapes)
}

fn one(row: &Row, axis: &Axis, scale: Scale, y: f64) -> String {
    let Some(value) = row.value else { return String::new() };
    let values: Sample = row.points.iter().map(|point| point.value).collect();
    let at = |value: f64| axis.at(value * scale.factor);
    let quartile = |p: f64| at(values.percentile(p).unwrap_or(value.median));
    let (lower, upper) = (quartile(25.0), quartile(75.0));
    let title = format!(
        "median {}, 95 % interval {}, n {}",
        scale.with_unit(value.median),
        scale.interval(&value),
        value.n
    );
    let mut shapes = line("whisker", at(value.min), y, at(value.max), y);
    shapes += &rect("box", lower, y - 7.0, upper - lower, 14.0, &title);
    for point in &row.points {
        // Points of different rounds are moved apart vertically, so that they do not hide each
        // other.
        let shift = (point.round.rem_euclid(5) - 2) as f64 * 2.4;
        let title = format!("round {}: {}", point.round, scale.with_unit(point.value));
        shapes += &dot("point", at(point.value), y + shift, 2.0, &title);
    }
    if let Some(interval) = value.interval {
        let (low, high) = (at(interval.low), at(interval.high));
        shapes += &rect("interval", low, y + 8.0, (high - low).max(1.5), 3.0, &title);
    }
    shapes += &line("median", at(value.median), y - 8.0, at(value.median), y + 8.0);
    shapes
}

/// Draws the ratios to TCP with TLS and their intervals. Returns an empty text if there are no
/// ratios.
pub(super) fn ratios(rows: &[&Row], label: &str) -> String {
    let shown: Vec<&&Row> = rows.iter().filter(|row| row.to_tcp.is_some()).collect();
    if shown.is_empty() {
        return String::new();
    }
    let highest = |row: &&&Row| {
        let ratio = row.to_tcp;
        ratio.map_or(0.0, |one| one.interval.map_or(one.median, |ends| ends.high))
    };
    let most = shown.iter().map(highest).fold(0.0, f64::max);
    let axis = Axis::from_zero(most.max(1.0), LEFT, WIDTH - RIGHT);
    let bottom = TOP + ROW * shown.len() as f64;
    let less = rows.iter().any(|row| row.less_is_better());
    let times = show::axis("times the figure of TCP with TLS in the same round", less);
    let mut shapes = x_axis(&axis, TOP, bottom, &times);
    shapes += &line("one", axis.at(1.0), TOP, axis.at(1.0), bottom);
    for (index, row) in shown.iter().enumerate() {
        let Some(ratio) = row.to_tcp else { continue };
        let y = TOP + ROW * (index as f64 + 0.5);
        let interval = TIMES.interval(&ratio);
        let title = format!("{:.3}, 95 % interval {interval}, n {}", ratio.median, ratio.n);
        shapes += &text("name end", LEFT - 10.0, y + 4.0, &pair(row));
        shapes += &rect("bar", LEFT, y - 6.0, axis.at(ratio.median) - LEFT, 12.0, &title);
        if let Some(ends) = ratio.interval {
            let (low, high) = (axis.at(ends.low), axis.at(ends.high));
            shapes += &line("whisker", low, y, high, y);
            for x in [low, high] {
                shapes += &line("whisker", x, y - 4.0, x, y + 4.0);
            }
        }
        let said = format!("{:.2} ({interval})", ratio.median);
        let doubted = row.clock_is_doubted() || row.marks.tcp_clock_doubted;
        let (class, said) = match doubted {
            true => ("note warn", format!("{:.2}, {}", ratio.median, show::CLOCK_DOUBTED)),
            false => ("note", said),
        };
        shapes += &text(class, WIDTH - RIGHT + 10.0, y + 4.0, &said);
    }
    figure(WIDTH, bottom + 42.0, label, "", &shapes)
}
