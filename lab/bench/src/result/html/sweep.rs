//! Plots the figures against a swept setting: as lines with intervals if the values of the setting
//! are numbers.

use std::collections::BTreeMap;

use equic_report::number;
use equic_report::stats::Interval;

use super::boxes::{boxes, pair};
use super::chart::{Axis, dot, figure, line, text, tick_text};
use crate::result::show::{self, Scale};
use crate::result::summary::{Estimate, Row};

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 60.0;
const RIGHT: f64 = 170.0;
const TOP: f64 = 28.0;
const BOTTOM: f64 = 56.0;
/// Number of line colours. Each colour has a separate marker, see style.css.
const SERIES: usize = 8;

/// Draws rows that differ in the settings `knobs` and in their implementations: as lines if there
/// is one setting whose values are numbers, otherwise as box plots.
pub(super) fn sweep(rows: &[&Row], knobs: &[&str], label: &str) -> String {
    let [knob] = knobs else { return by_name(rows, label) };
    let number = |row: &&Row| row.key.point.get(*knob).and_then(|value| value.parse::<f64>().ok());
    let numbers: Vec<f64> = rows.iter().filter_map(number).collect();
    let (low, high) = numbers
        .iter()
        .fold((f64::INFINITY, 0.0_f64), |(low, high), one| (low.min(*one), high.max(*one)));
    if numbers.len() < rows.len() || low <= 0.0 || low >= high || !high.is_finite() {
        return by_name(rows, label);
    }
    let mut series: BTreeMap<String, Vec<(f64, &Row)>> = BTreeMap::new();
    for (row, value) in rows.iter().zip(numbers) {
        series.entry(pair(row)).or_default().push((value, row));
    }
    lines(&series, (low, high), rows, knob, label)
}

fn by_name(rows: &[&Row], label: &str) -> String {
    // Sorts the rows so that points of the same pair are adjacent.
    let mut rows = rows.to_vec();
    rows.sort_by_key(|row| pair(row));
    boxes(&rows, label, |row| format!("{}, {}", pair(row), show::point(&row.key.point)))
}

fn lines(
    series: &BTreeMap<String, Vec<(f64, &Row)>>,
    (low, high): (f64, f64),
    rows: &[&Row],
    knob: &str,
    label: &str,
) -> String {
    let scale = Scale::of(rows.iter().copied());
    let highest = |one: Estimate| one.interval.map_or(one.median, |ends| ends.high);
    let most = rows.iter().filter_map(|row| row.value).map(highest);
    let y = Axis::from_zero(most.fold(0.0, f64::max) * scale.factor, HEIGHT - BOTTOM, TOP);
    let right = WIDTH - RIGHT;
    let x = Axis { low, high, from: LEFT + 20.0, to: right - 12.0, logarithmic: high / low > 4.0 };
    let mut shapes = String::new();
    for tick in y.ticks() {
        shapes += &line("grid", LEFT, y.at(tick), right, y.at(tick));
        shapes += &text("tick end", LEFT - 8.0, y.at(tick) + 4.0, &tick_text(&y, tick));
    }
    let less = rows.iter().any(|row| row.less_is_better());
    shapes += &text("label", LEFT - 50.0, 12.0, &show::axis(scale.unit, less));
    let mut places: Vec<f64> = series.values().flatten().map(|(value, _)| *value).collect();
    places.sort_by(f64::total_cmp);
    places.dedup();
    let mut free = f64::NEG_INFINITY;
    for place in places {
        let at = x.at(place);
        shapes += &line("grid", at, TOP, at, HEIGHT - BOTTOM);
        if at - free >= 52.0 {
            shapes += &text("tick mid", at, HEIGHT - BOTTOM + 18.0, &value(knob, place));
            free = at;
        }
    }
    shapes += &line("axis", LEFT, HEIGHT - BOTTOM, right, HEIGHT - BOTTOM);
    shapes += &text("label mid", f64::midpoint(LEFT, right), HEIGHT - 12.0, axis(knob));
    let mut ends = Vec::new();
    let mut any_doubted = false;
    for (index, (name, points)) in series.iter().enumerate() {
        let class = format!("s{}", index % SERIES);
        let known: Vec<(f64, &Row)> =
            points.iter().filter(|(_, row)| row.value.is_some()).copied().collect();
        let Some((_, last)) = known.last() else { continue };
        shapes += &curve(&known, &class, &x, &y, scale);
        // If the clock is doubted at one point, the whole line is marked.
        let doubted = known.iter().any(|(_, row)| row.clock_is_doubted());
        let name = if doubted { format!("\u{2020} {name}") } else { name.clone() };
        any_doubted |= doubted;
        let end = last.value.map_or(0.0, |value| y.at(value.median * scale.factor));
        ends.push((end, class, name));
    }
    shapes += &names(ends, right + 8.0);
    let caption = if any_doubted {
        "Medians with 95 % intervals. \u{2020}: clock doubted at some points. See the tables."
    } else {
        "Medians with 95 % intervals."
    };
    figure(WIDTH, HEIGHT, label, caption, &shapes)
}

/// Formats a value of the swept setting for the axis. An MTU is shown in bytes, without rounding.
fn value(knob: &str, value: f64) -> String {
    let text = match knob {
        "mtu" => format!("{value}"),
        "rcvbuf" | "sndbuf" => number::si(value, "B"),
        _ => number::si(value, ""),
    };
    text.trim().to_owned()
}

/// Returns the title of the axis for a swept setting.
fn axis(knob: &str) -> &str {
    match knob {
        "mtu" => "mtu: largest UDP payload, or TCP segment (bytes)",
        "rcvbuf" => "rcvbuf: receive buffer",
        "sndbuf" => "sndbuf: send buffer",
        other => other,
    }
}

fn curve(points: &[(f64, &Row)], class: &str, x: &Axis, y: &Axis, scale: Scale) -> String {
    let mut path = String::new();
    let mut marks = String::new();
    for (value, row) in points {
        let Some(estimate) = row.value else { continue };
        let (at, middle) = (x.at(*value), y.at(estimate.median * scale.factor));
        path += &format!("{}{at:.1} {middle:.1}", if path.is_empty() { "M" } else { " L" });
        if let Some(Interval { low, high }) = estimate.interval {
            let [low, high] = [low, high].map(|end| y.at(end * scale.factor));
            marks += &line("stroke", at, low, at, high);
        }
        let title = format!(
            "{}: {} ({}), n {}",
            pair(row),
            show::marked(scale.with_unit(estimate.median), row.clock_is_doubted()),
            scale.interval(&estimate),
            estimate.n
        );
        marks += &dot("fill", at, middle, 4.0, &title);
    }
    format!(r#"<g class="{class}"><path class="stroke" d="{path}"/>{marks}</g>"#)
}

/// Draws the names at the right ends of lines, moved apart if they would overlap.
fn names(mut ends: Vec<(f64, String, String)>, x: f64) -> String {
    const APART: f64 = 17.0;
    ends.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut free = TOP;
    for (y, ..) in &mut ends {
        *y = y.max(free);
        free = *y + APART;
    }
    // Moves up the names that are below the plot after the first pass.
    let mut limit = HEIGHT - BOTTOM;
    for (y, ..) in ends.iter_mut().rev() {
        *y = y.min(limit);
        limit = *y - APART;
    }
    let name = |(y, class, name): &(f64, String, String)| {
        let name: String = name.chars().take(22).collect();
        format!(
            r#"<g class="{class}">{}{}</g>"#,
            dot("fill", x + 4.0, *y, 4.0, ""),
            text("name", x + 14.0, *y + 4.0, &name)
        )
    };
    ends.iter().map(name).collect()
}
