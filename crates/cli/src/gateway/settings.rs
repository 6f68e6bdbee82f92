//! The command `equic gateway settings`.

use equic_gateway::{SERVICE_SETTINGS, ServiceSetting, SettingKind};
use equic_report::table::{Column, Table};
use serde_json::json;

use crate::failure::Result;
use crate::output;

/// Lists the settings of a service that can change while the gateway runs, with their defaults. They
/// have the same names in configuration files, in `equic gateway set` and in `-o`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Print the table [[service]] of a configuration file, with every setting and its description
    #[arg(long, conflicts_with = "json")]
    toml: bool,
    /// Print JSON (schema equic.gateway.settings/1)
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Result {
    if args.toml {
        return output::text(equic_gateway::example_service());
    }
    if args.json {
        let settings: Vec<_> = SERVICE_SETTINGS.iter().map(row).collect();
        return output::json("equic.gateway.settings/1", json!({ "settings": settings }));
    }
    let shown =
        |setting: &ServiceSetting| [setting.name.to_owned(), setting.default_value().to_string()];
    let widths = [0, 1].map(|column| {
        let cells = SERVICE_SETTINGS.iter().map(|setting| shown(setting)[column].chars().count());
        cells.max().unwrap_or_default()
    });
    // Each cell has a space on both sides, and one separates the columns.
    let room = WIDTH.saturating_sub(widths.iter().map(|width| width + 3).sum::<usize>() + 2);
    let mut table =
        Table::new(["setting", "default", "effect and allowed values"].map(Column::text));
    for setting in SERVICE_SETTINGS {
        let mut cells = shown(setting);
        for line in wrapped(&description(setting), room) {
            let [name, default] = std::mem::take(&mut cells);
            table.row([name, default, line]);
        }
    }
    output::table(&table)
}

/// Width of the table in columns. It does not depend on the terminal, so that files have it, too.
const WIDTH: usize = 100;

/// Returns the first sentence of the effect, and the allowed values.
fn description(setting: &ServiceSetting) -> String {
    let effect = setting.effect.split_whitespace().collect::<Vec<_>>().join(" ");
    let first = effect.split(". ").next().unwrap_or_default().trim_end_matches(['.', ':']);
    let range = range(setting);
    match setting.kind.names() {
        names if !names.is_empty() && names.iter().all(|name| first.contains(name)) => {
            first.to_owned()
        }
        _ if range.is_empty() => format!("{first} ({})", setting.kind.name()),
        _ => format!("{first} ({range})"),
    }
}

/// Breaks a text into lines of at most `width` characters.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().filter(|line| {
            line.is_empty() || line.chars().count() + 1 + word.chars().count() <= width
        });
        match line {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) => line.extend([" ", word]),
            None => lines.push(word.to_owned()),
        }
    }
    lines
}

fn range(setting: &ServiceSetting) -> String {
    match (setting.kind.names(), setting.kind) {
        ([], SettingKind::Flag | SettingKind::Number) => String::new(),
        ([], _) => setting.range.to_string(),
        (names, _) => names.join(", "),
    }
}

fn row(setting: &ServiceSetting) -> serde_json::Value {
    json!({
        "name": setting.name, "type": setting.kind.name(), "default": setting.default_value(),
        "range": range(setting), "subject": setting.subject, "since": setting.since,
        "effect": setting.effect.split_whitespace().collect::<Vec<_>>().join(" "),
        "reload": true,
    })
}
