//! The lines of a configuration file that keep changed settings after a restart or reload. The
//! command `set` prints them, and the operator puts them into the file.

use std::path::PathBuf;

use equic_gateway::{Change, Control, Report};
use serde::Serialize;

/// Lines for the tables of a configuration file.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Lines {
    /// The gateway's configuration file, or `None` if it has none, or if its process has ended.
    file: Option<PathBuf>,
    tables: Vec<TableLines>,
}

/// Lines for one table of a configuration file.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct TableLines {
    /// The `name` in the table `[[service]]`, or `None` for the table `[gateway]`.
    service: Option<String>,
    lines: Vec<String>,
}

impl Lines {
    /// Returns the lines that keep these changes.
    pub(super) fn of(control: &Control, changes: &[Change]) -> Lines {
        Lines { file: file_of(control), tables: tables(changes) }
    }

    /// Returns the lines with an explanation where they belong.
    pub(super) fn text(&self) -> String {
        let file = match &self.file {
            Some(file) => file.display().to_string(),
            None => "a configuration file".to_owned(),
        };
        let mut text = format!("\nthese lines in {file} keep the settings after a restart:");
        for table in &self.tables {
            let name = |name: &String| {
                format!("the [[service]] with {}", line("name", toml::Value::from(name.as_str())))
            };
            let place = table.service.as_ref().map_or("[gateway]".to_owned(), name);
            text += &format!("\n  in {place}:");
            for line in &table.lines {
                text += &format!("\n    {line}");
            }
        }
        if self.file.is_some() {
            text += "\noptions `-o` with which the gateway was started replace values in the file";
        }
        text
    }
}

/// Returns the lines by table. If a setting was changed several times, the last value counts.
fn tables(changes: &[Change]) -> Vec<TableLines> {
    let mut tables: Vec<TableLines> = Vec::new();
    for (index, change) in changes.iter().enumerate() {
        let same = |later: &Change| (&later.service, later.key) == (&change.service, change.key);
        if changes[index + 1..].iter().any(same) {
            continue;
        }
        let line = line(change.key, change.new_value.toml());
        match tables.iter_mut().find(|table| table.service == change.service) {
            Some(table) => table.lines.push(line),
            None => {
                tables.push(TableLines { service: change.service.clone(), lines: vec![line] });
            }
        }
    }
    tables
}

fn line(key: &str, value: impl std::fmt::Display) -> String {
    format!("{key} = {value}")
}

/// Returns the path of a gateway's configuration file.
fn file_of(control: &Control) -> Option<PathBuf> {
    let report = control.report().filter(Report::is_alive)?;
    // The path may be relative to the working directory of the process that runs the gateway.
    let from = std::fs::read_link(format!("/proc/{}/cwd", report.pid)).unwrap_or_default();
    Some(from.join(report.config?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use equic_gateway::SettingValue;

    fn change(service: Option<&str>, key: &'static str, new: &str, value: SettingValue) -> Change {
        Change {
            service: service.map(str::to_owned),
            key,
            old: String::new(),
            new: new.to_owned(),
            old_value: SettingValue::Flag(false),
            new_value: value,
        }
    }

    #[test]
    fn kept_lines_are_grouped_by_table_with_the_last_value() {
        let rate = SettingValue::Rate("20/s burst 40".parse().unwrap());
        let changes = [
            change(Some("web"), "max_connections", "5", SettingValue::Number(5)),
            change(None, "dry_run", "true", SettingValue::Flag(true)),
            change(Some("dns"), "max_connections", "5", SettingValue::Number(5)),
            change(Some("web"), "new_per_source", "20/s burst 40", rate),
            change(Some("web"), "max_connections", "7", SettingValue::Number(7)),
        ];
        let lines = Lines { file: Some("/etc/equic.toml".into()), tables: tables(&changes) };
        let wanted = "\nthese lines in /etc/equic.toml keep the settings after a restart:
  in [gateway]:
    dry_run = true
  in the [[service]] with name = \"dns\":
    max_connections = 5
  in the [[service]] with name = \"web\":
    new_per_source = \"20/s burst 40\"
    max_connections = 7
options `-o` with which the gateway was started replace values in the file";
        assert_eq!(lines.text(), wanted);
        let json = serde_json::to_value(&lines).unwrap();
        assert_eq!(json["file"], "/etc/equic.toml");
        assert_eq!(
            json["tables"][0],
            serde_json::json!({ "service": null, "lines": ["dry_run = true"] })
        );
        let unknown = Lines { file: None, ..lines };
        assert!(unknown.text().starts_with("\nthese lines in a configuration file keep"));
    }
}
