//! The page's facts for judging and repeating a run: failures, settings in force, the machine,
//! commands.

use serde_json::Value;

use super::text::{esc, link, shell};
use crate::Effective;
use crate::result::show::{self, MEBIBYTES};
use crate::result::summary::Summary;

/// Maximum number of values that are shown of one setting of a server or client.
const MOST: usize = 3;

/// Returns a list of failures with their reasons, or a sentence if nothing failed.
pub(super) fn failures(summary: &Summary) -> String {
    if summary.failing().next().is_none() {
        return "<p>Nothing failed.</p>\n".to_owned();
    }
    let mut html = String::from(
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Failures\"><table>\
         <thead class=\"text\"><tr><th scope=\"col\">what</th><th scope=\"col\">client</th><th scope=\"col\">server</th>\
         <th scope=\"col\">rounds</th><th scope=\"col\">failure</th><th scope=\"col\">why</th>\
         <th scope=\"col\">logs</th></tr></thead>\n<tbody>",
    );
    for row in summary.failing() {
        for fault in &row.faults {
            html += &format!(
                "<tr><td class=\"text\">{}</td><td class=\"text\">{}</td><td class=\"text\">{}</td>\
                 <td>{} of {}</td><td class=\"text\"><span class=\"badge bad\">{}</span></td>\
                 <td class=\"text why\">{}</td><td class=\"text\">{}</td></tr>\n",
                esc(&show::place(&row.place())),
                esc(&row.key.client),
                esc(&row.key.server),
                fault.rounds.len(),
                row.rounds,
                show::failure(fault.failure),
                esc(&fault.why),
                fault.logs.as_deref().map(esc).unwrap_or_default(),
            );
        }
    }
    html + "</tbody></table></div>\n"
}

/// Returns a table of the implementations, and of the settings in force at server and client.
pub(super) fn implementations(summary: &Summary) -> String {
    let mut html = String::from(
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Implementations\"><table>\
         <thead class=\"text\"><tr><th scope=\"col\">name</th><th scope=\"col\">version</th><th scope=\"col\">end</th>\
         <th scope=\"col\">I/O</th><th scope=\"col\">buffers<small>receive/send, MiB</small></th>\
         <th scope=\"col\">windows<small>stream/connection, MiB</small></th>\
         <th scope=\"col\">congestion</th><th scope=\"col\">cipher</th>\
         <th scope=\"col\">payload<small>that it sends, bytes</small></th><th scope=\"col\">GSO</th>\
         <th scope=\"col\">GRO</th></tr></thead>\n<tbody>",
    );
    for (name, about) in &summary.implementations {
        let rows = || summary.rows.iter();
        let client: Vec<&Effective> = rows()
            .filter(|row| row.key.client == *name)
            .filter_map(|row| row.client_effective.as_ref())
            .collect();
        let server: Vec<&Effective> = rows()
            .filter(|row| row.key.server == *name)
            .filter_map(|row| row.server_effective.as_ref())
            .collect();
        let ends = [("client", in_force(&client)), ("server", in_force(&server))];
        let ends = match ends {
            [(_, Some(client)), (_, Some(server))] if client == server => vec![("both", client)],
            [(_, None), (_, None)] => vec![("", "<td>-</td>".repeat(8))],
            ends => ends.into_iter().filter_map(|(end, cells)| Some((end, cells?))).collect(),
        };
        for (end, cells) in ends {
            html += &format!(
                "<tr><th scope=\"row\">{}</th><td class=\"text\">{}</td><td class=\"text\">{end}</td>{cells}</tr>\n",
                link(&about.url, name),
                esc(&about.version),
            );
        }
    }
    html + "</tbody></table></div>\n"
}

/// Returns table cells with all values of the settings at an endpoint, or `None` if it reported
/// nothing.
fn in_force(all: &[&Effective]) -> Option<String> {
    let yes = |yes: bool| if yes { "yes" } else { "no" }.to_owned();
    let cell = |class: &str, of: &dyn Fn(&Effective) -> String| {
        let mut values: Vec<String> = Vec::new();
        for value in all.iter().map(|one| of(one)) {
            if !values.contains(&value) {
                values.push(value);
            }
        }
        // The values of a sweep are shown in the sweep's own tables.
        let text = if values.len() > MOST { "swept".to_owned() } else { values.join(", ") };
        format!("<td{class}>{}</td>", esc(&text))
    };
    let text = " class=\"text\"";
    let cells = [
        cell(text, &|one| one.io.clone()),
        cell("", &|one| {
            let (receive, send) = (one.receive_buffer as f64, one.send_buffer as f64);
            format!("{} / {}", MEBIBYTES.show(receive), MEBIBYTES.show(send))
        }),
        cell("", &|one| {
            let (stream, connection) = (one.stream_window as f64, one.connection_window as f64);
            format!("{} / {}", MEBIBYTES.show(stream), MEBIBYTES.show(connection))
        }),
        cell(text, &|one| one.congestion.clone()),
        cell(text, &|one| one.cipher.clone().unwrap_or_else(|| "not told".to_owned())),
        cell("", &|one| match one.max_payload {
            0 => "not told".to_owned(),
            bytes => bytes.to_string(),
        }),
        cell(text, &|one| yes(one.gso)),
        cell(text, &|one| yes(one.gro)),
    ];
    (!all.is_empty()).then(|| cells.concat())
}

/// Returns the findings of the doctor as a list. The keys of a finding are `what`, `found`, `help`
/// (the advice) and `serious`.
pub(super) fn doctor(findings: &Value) -> String {
    let Some(findings) = findings.as_array() else { return String::new() };
    let mut html = String::from("<h3>Findings of the doctor</h3>\n");
    if findings.is_empty() {
        return html + "<p>The doctor found nothing that distorts figures.</p>\n";
    }
    html += "<ul class=\"doctor\">";
    for finding in findings {
        let text = |name: &str| finding[name].as_str().map(esc);
        let (Some(what), Some(found)) = (text("what"), text("found")) else {
            html += &format!("<li>{}</li>\n", value(finding, 0));
            continue;
        };
        let badge = if finding["serious"].as_bool() == Some(true) {
            "<span class=\"badge bad\">serious</span> "
        } else {
            "<span class=\"badge plain\">note</span> "
        };
        let help = text("help").filter(|help| !help.is_empty());
        let help = help.map(|help| format!("<br><code>{help}</code>")).unwrap_or_default();
        html += &format!("<li>{badge}<b>{what}</b>: {found}{help}</li>\n");
    }
    html + "</ul>\n"
}

/// Formats any JSON value as nested lists of names and values.
pub(super) fn value(json: &Value, depth: usize) -> String {
    match json {
        Value::Null => "\u{2013}".to_owned(),
        Value::String(text) => esc(text),
        Value::Array(list) if list.iter().all(|item| !item.is_object() && !item.is_array()) => {
            let items: Vec<String> = list.iter().map(|item| value(item, depth)).collect();
            items.join(", ")
        }
        // Deeper values are printed as JSON, to limit the recursion.
        Value::Array(_) | Value::Object(_) if depth > 4 => esc(&json.to_string()),
        Value::Array(list) => {
            let items = list.iter().map(|item| format!("<li>{}</li>", value(item, depth + 1)));
            format!("<ul>{}</ul>", items.collect::<String>())
        }
        Value::Object(map) => {
            let items = map.iter().map(|(name, item)| {
                format!("<div><dt>{}</dt><dd>{}</dd></div>", esc(name), value(item, depth + 1))
            });
            format!("<dl>{}</dl>", items.collect::<String>())
        }
        other => esc(&other.to_string()),
    }
}

/// Returns the command of the run, and commands that show or compare its result.
pub(super) fn commands(summary: &Summary) -> String {
    let command = match &summary.manifest["command"] {
        Value::Array(words) => {
            words.iter().filter_map(Value::as_str).map(shell).collect::<Vec<_>>().join(" ")
        }
        Value::String(line) => line.clone(),
        _ => "equic-lab bench run".to_owned(),
    };
    let dir = shell(&summary.name);
    let lines = [
        ("# repeat this run", command),
        (
            "# create this page and all other files again from samples.jsonl",
            format!("equic-lab bench report {dir}"),
        ),
        ("# compare this run with another one", format!("equic-lab bench compare {dir} OTHER")),
    ];
    let lines: Vec<String> =
        lines.iter().map(|(what, line)| format!("{what}\n{}", esc(line))).collect();
    format!("<pre tabindex=\"0\"><code>{}</code></pre>\n", lines.join("\n\n"))
}
