//! `equic-lab sim list`: lists the built-in scenarios.

use equic_report::table::{Column, Table};
use equic_scenario::command::List;
use equic_scenario::{BuiltIn, built_in};
use serde::Serialize;

use crate::failure::{Failure, Result};
use crate::output;

#[derive(Serialize)]
struct Entry {
    name: &'static str,
    description: String,
}

pub(crate) fn run(args: &List) -> Result {
    if let Some(name) = &args.name {
        return output::text(find(name)?.text);
    }
    let entries: Vec<Entry> = built_in()
        .iter()
        .map(|one| Entry { name: one.name, description: one.scenario().description })
        .collect();
    if args.json {
        #[derive(Serialize)]
        struct Scenarios {
            scenarios: Vec<Entry>,
        }
        return output::json("equic.sim.list/1", Scenarios { scenarios: entries });
    }
    let mut table = Table::new([Column::text("scenario"), Column::text("description")]);
    for entry in entries {
        table.row([entry.name.to_owned(), entry.description]);
    }
    output::table(&table)
}

/// Returns the built-in scenario of this name.
pub(crate) fn find(name: &str) -> Result<BuiltIn> {
    BuiltIn::find(name).ok_or_else(|| {
        let near = BuiltIn::near(name);
        let hint = match near.first() {
            Some(near) => format!("did you mean {near}?"),
            None => "`equic-lab sim list` prints all scenarios".to_owned(),
        };
        Failure::Usage(format!("there is no scenario called {name}, and no such file; {hint}"))
    })
}
