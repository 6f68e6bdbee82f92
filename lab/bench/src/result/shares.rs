//! Tables that divide CPU time by groups of functions, one for each pair that was profiled.

use equic_report::table::{Cell, Column, Table};

use super::profile::{Group, Groups};
use super::profiles::Profiled;
use super::show::{self, Scale};
use super::summary::{Row, Summary};

/// Returns the share of each group in the samples of a server or client, from 0 to 1, in the order
/// of [`Group::ALL`]. Returns `None` if there are no samples.
#[must_use]
pub fn shares(groups: &Groups) -> Option<[f64; Group::ALL.len()]> {
    let total: u64 = groups.values().sum();
    let share = |group| groups.get(&group).copied().unwrap_or(0) as f64 / total as f64;
    (total > 0).then(|| Group::ALL.map(share))
}

/// Returns a table for each pair that was sampled.
#[must_use]
pub fn tables(summary: &Summary) -> Vec<Table> {
    let of = |profile: &Profiled| {
        let row = summary.rows.iter().find(|row| row.key == profile.key)?;
        table(row, profile)
    };
    summary.profiles.iter().filter_map(of).collect()
}

fn table(row: &Row, profile: &Profiled) -> Option<Table> {
    let client = shares(&profile.client_groups)?;
    let server = shares(&profile.server_groups)?;
    let cpu = Scale { digits: 3, ..Scale::cpu(row.cpu_unit()) };
    let cpu = if cpu.unit == "s/GB" { cpu } else { Scale { digits: 2, ..cpu } };
    let mut columns = vec![Column::text("CPU time of")];
    for end in ["client", "server"] {
        columns.push(Column::number(end).unit("%"));
        columns.push(Column::number(end).unit(cpu.unit));
    }
    let (place, key) = (show::place(&row.place()), &row.key);
    let title = format!(
        "{place}: division of CPU time by groups of functions, {} to {}",
        key.client, key.server
    );
    let mut table = Table::new(columns).title(title);
    for ((group, client), server) in Group::ALL.into_iter().zip(client).zip(server) {
        if client == 0.0 && server == 0.0 {
            continue;
        }
        let mut cells = vec![Cell::new(group.name())];
        for (share, total) in [(client, row.client_cpu), (server, row.server_cpu)] {
            cells.push(Cell::new(format!("{:.1}", 100.0 * share)));
            // If the scored runs have no figure, there is no CPU time to divide.
            let time = total.map(|total| cpu.show(total.median * share));
            cells.push(Cell::new(time.unwrap_or_default()));
        }
        table.row(cells);
    }
    Some(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_fractions_of_all_samples() {
        assert_eq!(shares(&Groups::new()), None);
        let shares = shares(&[(Group::Aead, 3), (Group::Rest, 1)].into()).unwrap();
        assert_eq!(shares[0], 0.75);
        assert_eq!(shares[Group::ALL.len() - 1], 0.25);
        assert_eq!(shares.iter().sum::<f64>(), 1.0);
    }
}
