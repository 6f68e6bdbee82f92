//! Creates `report.html`, which shows a result as one self-contained page, without network access
//! and without scripts.
//!
//! `matrix.rs`: coloured tables. `boxes.rs`, `sweep.rs`, `cpu.rs`: plots, based on `chart.rs`.
//! `plots.rs`: the same plots as files. `facts.rs`: everything in words. `text.rs`: escapes text
//! from other programs, so that it never becomes markup. The page's Content Security Policy also
//! forbids scripts and external resources, as a second line of defence.

mod boxes;
mod chart;
mod cpu;
mod facts;
mod latency;
mod matrix;
mod plots;
mod sweep;
mod text;

use std::collections::BTreeMap;
use std::time::{Duration, UNIX_EPOCH};

use equic_report::number;
use equic_report::schema::Timestamp;
use serde_json::Value;

use super::show;
use super::summary::{Place, Row, Summary};
use boxes::{boxes, pair, ratios};
pub use plots::{PagePlot, plots};
pub(crate) use text::esc;

const STYLE: &str = include_str!("style.css");
/// Style sheet of the plots, which are also written as separate files.
const PLOT: &str = include_str!("plot.css");
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";
/// If there are more pairs than this, the first plot shows only pairs with the same implementation
/// at both ends.
const MANY: usize = 14;

/// Returns `report.html` for a summary.
#[must_use]
pub fn page(summary: &Summary) -> String {
    let mut sections: Vec<Section> = Vec::new();
    let mut sweeps: Vec<Sweep<'_>> = Vec::new();
    let mut number = 0;
    for rows in summary.tables() {
        let Some(first) = rows.first() else { continue };
        let place = first.place();
        if place.point.is_empty() {
            let title = show::place(&place);
            sections.push(Section::new(short(&place), title, self::place(rows, summary, number)));
        } else {
            match sweeps.iter_mut().find(|sweep| sweep.has(&place)) {
                Some(sweep) => sweep.tables.push((number, rows)),
                None => sweeps.push(Sweep { place, tables: vec![(number, rows)] }),
            }
        }
        number += rows.len();
    }
    sections.extend(sweeps.iter().map(|sweep| swept(sweep, summary)));
    sections.push(Section::new("Failures", "Failures", facts::failures(summary)));
    sections.push(Section::new(
        "Implementations",
        "Implementations",
        facts::implementations(summary),
    ));
    sections.push(Section::new("Machine", "Machine", machine(summary)));
    sections.push(Section::new("Repeat it", "Repeat it", facts::commands(summary)));
    sections.push(Section::new("How to read it", "How to read it", METHOD));
    document(summary, &sections)
}

/// A section of `report.html`.
struct Section {
    /// Short title of the section for the table of contents.
    short: String,
    title: String,
    content: String,
}

impl Section {
    fn new(
        short: impl Into<String>,
        title: impl Into<String>,
        content: impl Into<String>,
    ) -> Section {
        Section { short: short.into(), title: title.into(), content: content.into() }
    }
}

/// Returns a short name for a combination of workload, protocol, path and settings.
fn short(place: &Place<'_>) -> String {
    format!("{} {} {}", place.workload, place.protocol, place.path)
}

fn document(summary: &Summary, sections: &[Section]) -> String {
    let title = format!("{}: QUIC benchmark", summary.name);
    let mut html = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"referrer\" content=\"no-referrer\">\n<title>{0}</title>\n\
         <style>\n{STYLE}{PLOT}</style>\n</head>\n<body>\n<a class=\"skip\" href=\"#content\">To the content</a>\n\
         <header>\n<h1>{0}</h1>\n{1}</header>\n<nav aria-label=\"Sections\"><ul>",
        esc(&title),
        overview(summary)
    );
    for (index, section) in sections.iter().enumerate() {
        html += &format!("<li><a href=\"#section-{index}\">{}</a></li>", esc(&section.short));
    }
    html += "</ul></nav>\n<main id=\"content\">\n";
    for (index, Section { title, content, .. }) in sections.iter().enumerate() {
        html += &format!(
            "<section aria-labelledby=\"section-{index}\">\n<h2 id=\"section-{index}\">{}</h2>\n{content}</section>\n",
            esc(title)
        );
    }
    html += "</main>\n<footer>Written by equic-lab bench from samples.jsonl. Every figure is also in \
             result.json, summary.csv and samples.csv next to this page. The folder plots has the plots as \
             SVG and PNG files.</footer>\n</body>\n</html>\n";
    html
}

fn time(seconds: f64) -> String {
    let time =
        Duration::try_from_secs_f64(seconds).ok().and_then(|time| UNIX_EPOCH.checked_add(time));
    time.and_then(Timestamp::new).map(|time| time.to_string()).unwrap_or_default()
}

fn overview(summary: &Summary) -> String {
    let failed: usize = summary.rows.iter().map(Row::failed).sum();
    let rounds: usize = summary.rows.iter().map(|row| row.rounds).sum();
    let two = summary.rows.iter().filter(|row| row.modes.is_some()).count();
    let duration = number::seconds(summary.ended - summary.started);
    let mut facts = vec![
        ("cells", format!("{}<small>{} attempts</small>", summary.rows.len(), summary.attempts)),
        ("took", duration),
        ("failed", format!("{failed}<small>of {rounds} rounds</small>")),
        ("two modes", format!("{two}<small>cells</small>")),
    ];
    facts.extend(fastest(summary, &["perf", "h3"]).map(|best| ("fastest QUIC download", best)));
    facts.extend(fastest(summary, &["perf-tcp"]).map(|best| ("fastest TCP + TLS", best)));
    let facts: String = facts
        .iter()
        .map(|(name, fact)| format!("<div><dt>{name}</dt><dd>{fact}</dd></div>"))
        .collect();
    let mut html = format!(
        "<p class=\"soft\">{}</p>\n<dl class=\"facts\">{facts}</dl>\n",
        time(summary.started)
    );
    if summary.cut {
        html += "<p class=\"warning\">The last line of samples.jsonl is incomplete, because the run was killed while it wrote the line.</p>\n";
    }
    if !summary.unreadable.is_empty() {
        let lines: Vec<String> =
            summary.unreadable.iter().map(|one| one.line.to_string()).collect();
        html += &format!(
            "<p class=\"warning\">Invalid lines of samples.jsonl, which are not part of any figure: {}.</p>\n",
            lines.join(", ")
        );
    }
    html
}

/// Returns the fastest download by one of these protocols. A figure with a doubted clock is chosen
/// only if there is no other figure, and then carries its mark. If a doubted figure would have been
/// the fastest, the text names it as "not ranked".
fn fastest(summary: &Summary, protocols: &[&str]) -> Option<String> {
    let downloads = || {
        let is_download = |row: &&Row| {
            row.key.workload == "download"
                && protocols.contains(&row.key.protocol.as_str())
                && row.unit == "bit/s"
                && row.key.point.is_empty()
        };
        summary.rows.iter().filter(is_download).filter_map(|row| Some((row.value?.median, row)))
    };
    let by_median = |a: &(f64, &Row), b: &(f64, &Row)| a.0.total_cmp(&b.0);
    let first = downloads().max_by(by_median)?;
    let sure = downloads().filter(|(_, row)| !row.clock_is_doubted()).max_by(by_median);
    let text = |(median, row): (f64, &Row)| {
        let value = show::Scale::for_value("bit/s", median).with_unit(median);
        let value = show::marked(value, row.clock_is_doubted());
        (value, format!("{}, {}", esc(&pair(row)), esc(&row.key.path)))
    };
    let (value, place) = text(sure.unwrap_or(first));
    let mut html = format!("{value}<small>{place}</small>");
    if sure.is_some() && first.1.clock_is_doubted() {
        let (value, place) = text(first);
        html += &format!("<small>not ranked: {value}, {place}</small>");
    }
    Some(html)
}

fn place(rows: &[Row], summary: &Summary, number: usize) -> String {
    let Some(first) = rows.first() else { return String::new() };
    let title = show::place(&first.place());
    let all: Vec<&Row> = rows.iter().collect();
    let same: Vec<&Row> = rows.iter().filter(|row| row.key.client == row.key.server).collect();
    let few = if all.len() > MANY && !same.is_empty() { same } else { all.clone() };
    let mut html = String::new();
    if rows.iter().any(|row| row.key.client != row.key.server) {
        html += &matrix::matrix(rows, &title, number);
        html += "<h3>Distributions</h3>\n";
    }
    let label = format!("{title}: box plots");
    html += &boxes(&few, &label, pair);
    if few.len() < all.len() {
        html += &format!("<details><summary>All {} pairs</summary>\n", all.len());
        html += &boxes(&all, &format!("{label} of all pairs"), pair);
        html += "</details>\n";
    }
    let ratio = ratios(&few, &format!("{title}: ratio to TCP"));
    if !ratio.is_empty() {
        let tcp = rows.iter().find_map(|row| row.tcp.as_deref()).unwrap_or_default();
        html += &format!(
            "<h3>Ratio to TCP with TLS</h3>\n<p class=\"soft\">Within rounds, to {}.</p>\n",
            esc(tcp)
        );
        html += &ratio;
    }
    let cpu = cpu::cpu(&few, &summary.profiles, &format!("{title}: CPU time"));
    if !cpu.is_empty() {
        html += "<h3>CPU time</h3>\n";
        html += &cpu;
        html += &cpu::split(&all, &summary.profiles, "Division of CPU time");
    }
    html += &latency::latency(rows);
    html += "<h3>Pairs</h3>\n";
    html + &matrix::pairs(rows, &title, number)
}

/// Tables that differ only in the value of a swept setting, with the number of their first row.
struct Sweep<'a> {
    place: Place<'a>,
    tables: Vec<(usize, &'a [Row])>,
}

impl Sweep<'_> {
    fn has(&self, place: &Place<'_>) -> bool {
        let own = &self.place;
        (own.workload, own.protocol, own.path) == (place.workload, place.protocol, place.path)
            && own.point.keys().eq(place.point.keys())
    }
}

fn swept(sweep: &Sweep<'_>, summary: &Summary) -> Section {
    let rows: Vec<&Row> = sweep.tables.iter().flat_map(|(_, rows)| rows.iter()).collect();
    let knobs: Vec<&str> = sweep.place.point.keys().map(String::as_str).collect();
    let bare = BTreeMap::new();
    let place = Place { point: &bare, ..sweep.place };
    let title = format!("{}: {}", show::place(&place), knobs.join(", "));
    let same: Vec<&Row> =
        rows.iter().filter(|row| row.key.client == row.key.server).copied().collect();
    let shown = if same.is_empty() { &rows } else { &same };
    let mut html = sweep::sweep(shown, &knobs, &title);
    html += &format!("<details><summary>Tables of {} points</summary>\n", sweep.tables.len());
    for (number, rows) in &sweep.tables {
        let Some(row) = rows.first() else { continue };
        html += &format!("<h3>{}</h3>\n", esc(&show::point(&row.key.point)));
        html += &latency::latency(rows);
        html += &matrix::pairs(rows, &show::place(&row.place()), *number);
        let rows: Vec<&Row> = rows.iter().collect();
        html += &cpu::split(&rows, &summary.profiles, "Division of CPU time");
    }
    let short = format!("{} {}", short(&place), knobs.join(", "));
    Section::new(short, title, html + "</details>\n")
}

fn machine(summary: &Summary) -> String {
    let Value::Object(manifest) = &summary.manifest else {
        return "<p>The run has no manifest.</p>\n".to_owned();
    };
    let mut rest = manifest.clone();
    let mut html = facts::doctor(&rest.remove("findings").unwrap_or_default());
    rest.remove("command");
    // These lists are long and rarely needed, so the page shows them last and collapsed.
    let long = ["cpu_flags", "programs", "locks"].map(|name| (name, rest.remove(name)));
    html += "<h3>Manifest</h3>\n";
    html += &facts::value(&Value::Object(rest), 0);
    for (name, value) in long {
        let Some(value) = value else { continue };
        html +=
            &format!("<details><summary>{name}</summary>{}</details>\n", facts::value(&value, 0));
    }
    if !summary.plan.is_null() {
        html += "<details><summary>Plan</summary>\n";
        html += &facts::value(&summary.plan, 0);
        html += "</details>\n";
    }
    html
}

const METHOD: &str = "<p>In box plots, every point is a round. The box is the middle half, and the line in it the median. \
    The bar below the box is the median\u{2019}s 95 % interval. The whisker goes from minimum to maximum. \
    Click a figure in the matrix to see all figures of that pair of client and server.</p>\n\
    <p>Each round runs every cell once, in random order, so that changes of the machine affect all cells equally. \
    The warm-up does not count. Intervals are those of the median, by order statistics. They cover 95 % or more, and \
    fewer than 6 rounds have none. MAD is the median absolute deviation, not scaled. \u{201c}Two modes\u{201d}: \
    Hartigan\u{2019}s dip test gives p &lt; 0.05. A median between two modes says little. \u{201c}Clock doubted\u{201d}: \
    the time that the client reports does not agree with what the runner saw. The notes have the reason. \
    A failed round has no figure, and is counted separately.</p>\n\
    <p>Ratios are taken within rounds. Figures of different runs also differ by the machine\u{2019}s drift. \
    Compare only figures of interleaved runs, or use <code>equic-lab bench compare</code>, which reports what it \
    cannot decide.</p>\n";
