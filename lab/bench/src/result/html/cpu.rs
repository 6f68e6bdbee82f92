//! Draws the division of CPU time as stacked bars of client and server.

use super::boxes::pair;
use super::chart::{Axis, figure, rect, text, x_axis};
use super::text::esc;
use crate::result::parts::{PARTS, parts, shares};
use crate::result::profile::Split;
use crate::result::profiles::Profiled;
use crate::result::show::{self, Scale};
use crate::result::summary::Row;

const WIDTH: f64 = 860.0;
const LEFT: f64 = 190.0;
const RIGHT: f64 = 80.0;
const TOP: f64 = 8.0;
/// Position of the top of the bars if there is a legend above them, in pixels.
const LEGEND: f64 = 34.0;
const ROW: f64 = 44.0;

/// CSS classes of the parts of a bar, in the order in which they are stacked.
const CLASSES: [&str; 4] = ["p0", "p1", "p2", "p3"];

/// Draws two bars for each pair, with the CPU time of the client and of the server. If there is a
/// profile, the bars are divided.
pub(super) fn cpu(rows: &[&Row], profiles: &[Profiled], label: &str) -> String {
    let shown: Vec<&&Row> =
        rows.iter().filter(|row| row.client_cpu.is_some() && row.server_cpu.is_some()).collect();
    let Some(first) = shown.first() else { return String::new() };
    let scale = Scale::cpu(first.cpu_unit());
    let largest = |row: &&&Row| {
        let ends = [row.client_cpu, row.server_cpu];
        ends.into_iter().flatten().map(|cpu| cpu.median).fold(0.0, f64::max)
    };
    let most = shown.iter().map(largest).fold(0.0, f64::max) * scale.factor;
    let axis = Axis::from_zero(most, LEFT, WIDTH - RIGHT);
    // Without a legend, the bars start at the top of the plot.
    let known = |row: &&&Row| profiles.iter().any(|profile| profile.key == row.key);
    let top = if shown.iter().any(known) { LEGEND } else { TOP };
    let bottom = top + ROW * shown.len() as f64;
    let title = format!("CPU time, {}", show::axis(scale.unit, true));
    let mut shapes = x_axis(&axis, top, bottom, &title);
    let mut split = false;
    for (index, row) in shown.iter().enumerate() {
        let y = top + ROW * index as f64;
        let profile = profiles.iter().find(|profile| profile.key == row.key);
        split |= profile.is_some();
        shapes += &text("name end", LEFT - 66.0, y + 26.0, &pair(row));
        let ends = [
            ("client", row.client_cpu, profile.map(|profile| profile.client_split)),
            ("server", row.server_cpu, profile.map(|profile| profile.server_split)),
        ];
        for (line, (end, cpu, profile)) in ends.into_iter().enumerate() {
            let Some(cpu) = cpu else { continue };
            let y = y + 6.0 + 17.0 * line as f64;
            shapes += &text("tick end", LEFT - 8.0, y + 11.0, end);
            shapes += &bar(cpu.median * scale.factor, profile, &axis, y, end);
            let end = axis.at(cpu.median * scale.factor);
            shapes += &text("note", end + 6.0, y + 11.0, &scale.show(cpu.median));
        }
    }
    if split {
        shapes += &legend();
    }
    let caption = if split {
        "Medians of the scored runs, divided in the proportions of samples from a separate, unscored run."
    } else {
        "Medians. Without a profile, the division of the time is unknown."
    };
    figure(WIDTH, bottom + 42.0, label, caption, &shapes)
}

fn bar(total: f64, profile: Option<Split>, axis: &Axis, y: f64, end: &str) -> String {
    let Some(split) = profile.filter(|split| split.total() > 0) else {
        let title = format!("{end}: {total:.2}");
        return rect("bar", axis.from, y, axis.at(total) - axis.from, 14.0, &title);
    };
    let mut from = 0.0;
    let mut shapes = String::new();
    for ((name, class), part) in PARTS.into_iter().zip(CLASSES).zip(shares(split)) {
        let to = from + total * part;
        let title = format!("{end}, {name}: {:.2} ({:.0} %)", total * part, 100.0 * part);
        shapes += &rect(class, axis.at(from), y, axis.at(to) - axis.at(from), 14.0, &title);
        from = to;
    }
    shapes
}

fn legend() -> String {
    let mut shapes = String::new();
    for (index, (name, class)) in PARTS.into_iter().zip(CLASSES).enumerate() {
        let x = LEFT + 120.0 * index as f64;
        shapes += &rect(class, x, 8.0, 14.0, 14.0, name);
        shapes += &text("name", x + 20.0, 19.5, name);
    }
    shapes
}

/// Returns the division of CPU time as a table, for the rows with a profile. Returns an empty text
/// if there is no profile.
pub(super) fn split(rows: &[&Row], profiles: &[Profiled], caption: &str) -> String {
    let parts = parts(rows, profiles);
    let Some(first) = parts.first() else { return String::new() };
    let cpu = Scale::cpu(first.row.cpu_unit());
    let mut html = format!(
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{0}\">\
         <table><caption>{0}</caption>\n<thead><tr>",
        esc(caption)
    );
    for name in ["client", "server", "CPU time of the"] {
        html += &format!("<th scope=\"col\" class=\"text\">{name}</th>");
    }
    for name in ["all"].into_iter().chain(PARTS) {
        html += &format!("<th scope=\"col\">{name}<small>{}</small></th>", cpu.unit);
    }
    html += "<th scope=\"col\">samples</th></tr></thead>\n<tbody>";
    for one in parts {
        let key = &one.row.key;
        html += "<tr>";
        for name in [&key.client, &key.server, one.end] {
            html += &format!("<td class=\"text\">{}</td>", esc(name));
        }
        html += &format!("<td>{}</td>", cpu.show(one.total));
        for part in one.parts {
            let share = if one.total > 0.0 { 100.0 * part / one.total } else { 0.0 };
            html += &format!("<td>{}<small>{share:.0} %</small></td>", cpu.show(part));
        }
        html += &format!("<td>{}</td></tr>\n", one.samples);
    }
    html + "</tbody></table></div>\n"
}
