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
    let columns = ["setting", "type", "default", "range", "effect"].map(Column::text);
    let mut table = Table::new(columns);
    for setting in SERVICE_SETTINGS {
        let effect = setting.effect.split(". ").next().unwrap_or_default();
        table.row([
            setting.name.to_owned(),
            setting.kind.name().to_owned(),
            setting.default_value().to_string(),
            range(setting),
            effect
                .split_whitespace()
                .collect::<Vec<_>>()
                .join(" ")
                .trim_end_matches('.')
                .to_owned(),
        ]);
    }
    output::table(&table)
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
