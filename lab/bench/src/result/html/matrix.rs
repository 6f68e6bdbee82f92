//! The matrix of clients and servers, a table that is coloured by its figures, and the list of
//! pairs.

use equic_report::number::MISSING;

use super::text::{anchor, esc};
use crate::result::show::{self, MEGABYTES, Scale};
use crate::result::summary::{Estimate, Row};
use crate::result::tables::ends;

/// Returns a table with a row for each client and a column for each server. `first` is the number
/// of the first row's anchor.
pub(super) fn matrix(rows: &[Row], caption: &str, first: usize) -> String {
    let scale = Scale::of(rows);
    let (clients, servers) = ends(rows);
    let medians = rows.iter().filter_map(|row| row.value).map(|value| value.median);
    let (low, high) =
        medians.fold((f64::INFINITY, 0.0_f64), |(low, high), one| (low.min(one), high.max(one)));
    let mut html = format!(
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{0}\">\
         <table class=\"heat\"><caption>{0}, medians with 95 % intervals, {1}</caption>\n<thead>\
         <tr><th scope=\"col\">client \\ server</th>",
        esc(caption),
        esc(&show::axis(scale.unit, show::less_is_better(rows)))
    );
    for server in &servers {
        html += &format!("<th scope=\"col\">{}</th>", esc(server));
    }
    html += "</tr></thead>\n<tbody>";
    for client in clients {
        html += &format!("<tr><th scope=\"row\">{}</th>", esc(client));
        for server in &servers {
            let found = rows
                .iter()
                .enumerate()
                .find(|(_, row)| row.key.client == client && row.key.server == *server);
            html += &match found {
                Some((index, row)) => cell(row, scale, (low, high), first + index),
                None => "<td class=\"none\">\u{2013}</td>".to_owned(),
            };
        }
        html += "</tr>\n";
    }
    html + "</tbody></table></div>\n"
}

fn cell(row: &Row, scale: Scale, (low, high): (f64, f64), number: usize) -> String {
    let trouble = show::trouble(row);
    let href = anchor("pair", number);
    let Some(value) = row.value else {
        let first = row.disturbed.as_ref().map(|one| scale.show(one.median));
        let first = first.map(|value| format!("{value} (disturbed)"));
        let (class, text) = match (&first, &trouble) {
            (Some(first), _) => ("bad", first.as_str()),
            (None, Some(trouble)) => ("bad", trouble.as_str()),
            (None, None) => ("none", "unsupported"),
        };
        return format!("<td class=\"{class}\"><a href=\"#{href}\">{}</a></td>", esc(text));
    };
    // The colour is relative to the range of values in the table. The smallest value also has a
    // slight colour.
    let part = if high > low { (value.median - low) / (high - low) } else { 1.0 };
    let part = if row.less_is_better() { 1.0 - part } else { part };
    let heat = 8.0 + 92.0 * part;
    let mut badges = String::new();
    if let Some(trouble) = &trouble {
        badges += &format!("<span class=\"badge bad\">{}</span>", esc(trouble));
    }
    if row.clock_is_doubted() {
        badges += &format!("<span class=\"badge warn\">{}</span>", show::CLOCK_DOUBTED);
    }
    if row.modes.is_some() {
        badges += "<span class=\"badge warn\">two modes</span>";
    }
    format!(
        "<td class=\"value\" style=\"--heat:{heat:.0}%\"><a href=\"#{href}\">{}</a>\
         <small>{}</small>{badges}</td>",
        scale.show(value.median),
        esc(&scale.interval(&value)),
    )
}

/// Number of columns of the table of pairs.
const COLUMNS: usize = 14;

/// Returns a table of pairs. Each pair has a line with all its figures, followed by a line of
/// notes.
pub(super) fn pairs(rows: &[Row], caption: &str, first: usize) -> String {
    let scale = Scale::of(rows);
    let cpu = Scale::cpu_of(rows);
    let less = show::less_is_better(rows);
    let to_tcp = show::reference(rows);
    let milliseconds = Scale { unit: "ms", factor: 1e3, digits: 2 };
    let times = Scale { unit: "", factor: 1.0, digits: 2 };
    let doubted = format!(" <span class=\"badge warn\">{}</span>", show::CLOCK_DOUBTED);
    let mut html = format!(
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{0}: pairs\">\
         <table class=\"pairs\"><caption>{0} ({1})</caption>\n<thead><tr>",
        esc(caption),
        show::ARROWS
    );
    let to = to_tcp.as_ref().map_or_else(|| "to TCP".to_owned(), |tcp| format!("to {tcp}"));
    let rss = format!("client/server, {}", MEGABYTES.unit);
    let plain = str::to_owned;
    let heads: [(&str, String); COLUMNS] = [
        ("client", String::new()),
        ("server", String::new()),
        ("median", show::better(scale.unit, less)),
        ("95 % interval", plain(scale.unit)),
        ("MAD", plain(scale.unit)),
        ("min to max", plain(scale.unit)),
        ("n", plain("of rounds")),
        ("CPU client", show::better(cpu.unit, true)),
        ("CPU server", show::better(cpu.unit, true)),
        (&to, show::better("times", less)),
        ("handshake", show::better(milliseconds.unit, true)),
        ("RSS", show::better(&rss, true)),
        ("drops", show::better("client/server", true)),
        ("datagrams a call", plain("received/sent")),
    ];
    for (name, unit) in heads {
        let class = if matches!(name, "client" | "server") { " class=\"text\"" } else { "" };
        let unit = if unit.is_empty() { unit } else { format!("<small>{}</small>", esc(&unit)) };
        html += &format!("<th scope=\"col\"{class}>{}{unit}</th>", esc(name));
    }
    html += "</tr></thead>\n<tbody>";
    for (index, row) in rows.iter().enumerate() {
        let of = |estimate: Option<Estimate>, scale: Scale| match estimate {
            Some(estimate) => scale.show(estimate.median),
            None => MISSING.to_owned(),
        };
        let value = |read: &dyn Fn(&Estimate) -> String| {
            row.value.as_ref().map_or_else(|| MISSING.to_owned(), read)
        };
        let ratio_is_doubted =
            row.to_tcp.is_some() && (row.clock_is_doubted() || row.marks.tcp_clock_doubted);
        let medians = &row.medians;
        let both = |one: Option<f64>, other: Option<f64>, show: &dyn Fn(f64) -> String| {
            if one.is_none() && other.is_none() {
                return MISSING.to_owned();
            }
            let [one, other] = [one, other].map(|one| one.map_or_else(|| MISSING.to_owned(), show));
            format!("{one} / {other}")
        };
        let megabytes = |bytes: f64| MEGABYTES.show(bytes);
        let cells = [
            value(&|value| {
                let mark = if row.clock_is_doubted() { doubted.as_str() } else { "" };
                format!("<b>{}</b>{mark}", scale.show(value.median))
            }),
            value(&|value| scale.interval(value)),
            value(&|value| scale.show(value.mad)),
            value(&|value| scale.range(value.min, value.max)),
            format!("{} of {}", row.measured, row.rounds),
            of(row.client_cpu, cpu),
            of(row.server_cpu, cpu),
            of(row.to_tcp, times) + if ratio_is_doubted { &doubted } else { "" },
            of(row.handshake, milliseconds),
            both(medians.client_peak_rss, medians.server_peak_rss, &megabytes),
            both(medians.client_udp_drops, medians.server_udp_drops, &show::count),
            both(medians.client_packets_per_receive, medians.server_packets_per_send, &|count| {
                format!("{count:.1}")
            }),
        ];
        html += &format!(
            "<tr id=\"{}\"><th scope=\"row\">{}</th><th scope=\"row\">{}</th>",
            anchor("pair", first + index),
            esc(&row.key.client),
            esc(&row.key.server)
        );
        for cell in cells {
            html += &format!("<td>{cell}</td>");
        }
        html += "</tr>\n";
        // Notes have a separate line, because the last column of a wide table is cut off.
        let notes = notes(row, scale);
        if !notes.is_empty() {
            html += &format!(
                "<tr class=\"notes\"><td class=\"text notes\" colspan=\"{COLUMNS}\">\
                 <div>{notes}</div></td></tr>\n"
            );
        }
    }
    html + "</tbody></table></div>\n"
}

fn notes(row: &Row, scale: Scale) -> String {
    let mut notes: Vec<String> =
        show::disturbed(row).map(|why| esc(&why).to_string()).into_iter().collect();
    if let Some(trouble) = show::trouble(row) {
        notes.push(format!("<span class=\"badge bad\">{}</span>", esc(&trouble)));
    }
    if let Some(why) = &row.unsupported {
        notes.push(format!("unsupported: {}", esc(why)));
    }
    if let Some(modes) = row.modes {
        notes.push(format!(
            "<span class=\"badge warn\">two modes</span> {} ({}\u{d7}) and {} ({}\u{d7}), p {:.3}",
            scale.show(modes.low),
            modes.low_count,
            scale.show(modes.high),
            modes.high_count,
            modes.p
        ));
    }
    if row.noisy > 0 {
        notes.push(format!("{} figures measured while other programs used the CPU", row.noisy));
    }
    notes.extend(show::marks(row).iter().map(|mark| esc(mark).to_string()));
    notes.extend(show::remembered(row));
    if row.attempts > row.rounds {
        notes.push(format!("{} attempts repeated", row.attempts - row.rounds));
    }
    notes.join("; ")
}
