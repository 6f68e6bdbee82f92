//! Shows latency under load: small exchanges without and during a bulk download.

use super::text::esc;
use crate::result::latency::{columns, measured, title};
use crate::result::summary::Row;

/// Returns a table of the rows with latency under load, or an empty text without such rows.
pub(super) fn latency(rows: &[Row]) -> String {
    if measured(rows).next().is_none() {
        return String::new();
    }
    let caption = esc(&title(rows));
    let shown = columns(rows);
    let mut html = format!(
        "<h3>Latency under load</h3>\n<div class=\"scroll\" tabindex=\"0\" role=\"region\" \
         aria-label=\"{caption}\"><table class=\"pairs\"><caption>{caption}</caption>\n<thead><tr>\
         <th scope=\"col\" class=\"text\">client</th><th scope=\"col\" class=\"text\">server</th>"
    );
    for column in &shown {
        html += &format!(
            "<th scope=\"col\">{}<small>{}</small></th>",
            esc(column.head),
            esc(&column.unit())
        );
    }
    html += "</tr></thead>\n<tbody>";
    for (row, p99, one) in measured(rows) {
        let (client, server) = (esc(&row.key.client), esc(&row.key.server));
        html += &format!("<tr><th scope=\"row\">{client}</th><th scope=\"row\">{server}</th>");
        for column in &shown {
            html += &format!("<td>{}</td>", esc(&column.show(row, p99, one)));
        }
        html += "</tr>\n";
    }
    html + "</tbody></table></div>\n"
}
