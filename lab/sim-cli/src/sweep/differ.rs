//! Finds the differences between the scenarios of two sweeps, cell by cell.

use std::collections::{BTreeMap, BTreeSet};

use equic_report::table::{Column, Table};
use equic_scenario::{Grid, Scenario};
use serde::Serialize;

/// Scenario keys that do not influence any result.
const IGNORED: [&str; 2] = ["description", "interval"];
/// Largest number of values of a key that the table shows.
const VALUES: usize = 3;
/// The text that is shown for a key that the scenario does not contain, so that it has its default.
const DEFAULT: &str = "default";

/// A scenario key that has different values in cells with the same name.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Difference {
    /// The key, such as `network.link.rate` or `flow.1.size`.
    key: String,
    /// The values in the old sweep, without duplicates. `default` means that the scenario does not
    /// contain the key.
    old: BTreeSet<String>,
    /// The values in the new sweep, in the same form.
    new: BTreeSet<String>,
    /// Number of cells in which the values differ.
    cells: usize,
}

/// Returns the names of a grid's cells, in order. A cell is one combination of the grid's values.
pub(super) fn names(grid: &Grid) -> Vec<String> {
    let axes: Vec<&str> = grid.axes().iter().map(|axis| axis.name.as_str()).collect();
    let name = |cell| {
        let labels = axes.iter().zip(grid.labels(cell));
        labels.map(|(name, label)| format!("{name} {label}")).collect::<Vec<_>>().join(", ")
    };
    (0..grid.cells()).map(name).collect()
}

/// Returns the keys that differ in cells that both grids have. A cell is one combination of a
/// grid's values. Cells are identified by their names.
pub(super) fn differences(old: &Grid, new: &Grid) -> Vec<Difference> {
    let by_name: BTreeMap<String, usize> =
        names(new).into_iter().enumerate().map(|(cell, name)| (name, cell)).collect();
    let both: Vec<(usize, usize)> = names(old)
        .iter()
        .enumerate()
        .filter_map(|(cell, name)| Some((cell, *by_name.get(name)?)))
        .collect();
    let one = old.written(both.iter().map(|(cell, _)| *cell));
    let other = new.written(both.iter().map(|(_, cell)| *cell));
    let mut found: BTreeMap<&str, Difference> = BTreeMap::new();
    for (one, other) in one.iter().zip(&other) {
        let keys: BTreeSet<&String> = one.keys().chain(other.keys()).collect();
        for key in keys.into_iter().filter(|key| !IGNORED.contains(&key.as_str())) {
            let value = |cell: &BTreeMap<String, String>| {
                cell.get(key).cloned().unwrap_or_else(|| DEFAULT.to_owned())
            };
            let (from, to) = (value(one), value(other));
            if from != to {
                let difference = found.entry(key).or_insert_with(|| Difference {
                    key: key.clone(),
                    old: BTreeSet::new(),
                    new: BTreeSet::new(),
                    cells: 0,
                });
                difference.old.insert(from);
                difference.new.insert(to);
                difference.cells += 1;
            }
        }
    }
    found.into_values().collect()
}

/// Returns a table of the differences, or `None` if there is no difference.
pub(super) fn table(differences: &[Difference]) -> Option<Table> {
    let columns =
        [Column::text("key"), Column::text("old"), Column::text("new"), Column::number("cells")];
    let mut table = Table::new(columns).title("Keys in which the scenarios differ");
    let values = |values: &BTreeSet<String>| {
        let mut shown: Vec<&str> = values.iter().take(VALUES).map(String::as_str).collect();
        if values.len() > VALUES {
            shown.push("...");
        }
        shown.join("; ")
    };
    for one in differences {
        table.row([one.key.clone(), values(&one.old), values(&one.new), one.cells.to_string()]);
    }
    (!table.is_empty()).then_some(table)
}

/// Returns the reason why the results of a flow cannot be compared, or `None` if they can.
///
/// `complete` is true if all of the flow's connections completed in both sweeps. Their completion
/// times are then compared. Otherwise their goodput is compared, which is a mean until the end of
/// the run.
pub(super) fn obstacle(
    old: &Scenario,
    new: &Scenario,
    flow: &str,
    complete: bool,
) -> Option<String> {
    let find = |scenario: &'_ Scenario| {
        scenario
            .flows
            .iter()
            .find(|one| one.name == flow)
            .map(|one| (one.size, one.application.clone()))
    };
    let ((size, application), (other_size, other_application)) = (find(old)?, find(new)?);
    let bytes =
        |size: Option<u64>| size.map_or_else(|| "unlimited".to_owned(), |size| format!("{size} B"));
    if size != other_size {
        return Some(format!("`size` was {}, is {}", bytes(size), bytes(other_size)));
    }
    if application != other_application {
        return Some("the application differs".to_owned());
    }
    (!complete && old.limit != new.limit).then(|| {
        let [was, is] = [old, new].map(|one| equic_report::number::duration(one.limit));
        format!("goodput until `limit`, which was {was}, is {is}")
    })
}
