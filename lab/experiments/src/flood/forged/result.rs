//! Computes figures from measurements: the share of newcomers that were served, and the ratio of
//! each arm to the baseline of the same round and rate.

use equic_report::stats::Sample;
use serde::{Deserialize, Serialize};

use super::super::rows::{self, Group, Ratio};
use super::cell::{Cell, Clients};
use super::plan::{Arm, ForgedPlan};

/// The content of `data` in the result (schema equic.lab.bench.forged/1).
pub(in super::super) type Bench = rows::Bench<ForgedPlan, Arm, Clients, Figures>;
/// A row of the table: an arm under a flood of one rate.
pub(in super::super) type Row = rows::Row<Arm, Figures>;

/// Figures of an arm under a flood of one rate.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(in super::super) struct Figures {
    /// Median duration of the newcomers over the rounds, in milliseconds.
    pub newcomer_median_ms: Option<f64>,
    pub newcomer_p99_ms: Option<f64>,
    pub established_bytes_per_s: Option<f64>,
    pub server_cpu_percent: Option<f64>,
    /// Number of newcomers in all rounds.
    pub newcomers: u64,
    /// Share of newcomers that were served: median of the rounds.
    pub served: Option<Ratio>,
    /// Bytes per second on connections from before the flood, divided by those of the baseline in
    /// the same round.
    pub established: Option<Ratio>,
}

impl Bench {
    pub(super) fn new(plan: ForgedPlan, cells: Vec<Cell>) -> Bench {
        let rows = rows::rows(&cells, &plan.flood_pps, figures);
        Bench { plan, rows, cells }
    }
}

fn figures(group: &Group<'_, Arm, Clients>) -> Figures {
    // In a round without newcomers, the share is NaN. The sample ignores it.
    let share = |cell: &Cell| cell.clients.newcomers_served as f64 / cell.clients.newcomers as f64;
    let shares: Sample = group.cells().map(share).collect();
    let bytes = |cell: &Cell| cell.clients.established_bytes_per_s;
    let quotients: Sample = group.pairs().map(|(base, cell)| bytes(cell) / bytes(base)).collect();
    Figures {
        newcomer_median_ms: group.median(|cell| cell.clients.newcomer_median_ms),
        newcomer_p99_ms: group.median(|cell| cell.clients.newcomer_p99_ms),
        established_bytes_per_s: group.median(|cell| Some(cell.clients.established_bytes_per_s)),
        server_cpu_percent: group.median(|cell| Some(cell.server.cpu_percent)),
        newcomers: group.cells().map(|cell| cell.clients.newcomers).sum(),
        served: Ratio::of(&shares),
        established: Ratio::of(&quotients).filter(|_| group.arm != Arm::Elsewhere),
    }
}

#[cfg(test)]
mod tests {
    use equic_report::stats::Interval;

    use super::super::super::steps::Work;
    use super::*;

    fn cell(round: usize, arm: Arm, served: u64, established: f64) -> Cell {
        Cell {
            round,
            arm,
            flood_pps: None,
            sent_pps: 1e6,
            clients: Clients {
                newcomers: 100,
                newcomers_served: served,
                newcomer_median_ms: (served > 0).then_some(3.0),
                newcomer_p99_ms: None,
                established_bytes_per_s: established,
                established_failures: 0,
            },
            server: Work { cpu_percent: 50.0, datagrams: 0, socket_full: 0 },
            dropped: None,
        }
    }

    #[test]
    fn flood_result_has_newcomer_share_and_ratio_to_baseline() {
        let mut cells = Vec::new();
        for (round, speed) in [4e6, 2e6, 1e6, 5e5, 2.5e5, 1e5, 5e4].into_iter().enumerate() {
            cells.push(cell(round, Arm::Elsewhere, 100, speed));
            cells.push(cell(round, Arm::Gateway, 10 * round as u64, speed / 2.0));
        }
        let gateway = figures(&Group::of(&cells, Arm::Gateway, None));
        let (served, established) = (gateway.served.unwrap(), gateway.established.unwrap());
        assert_eq!((served.median, served.interval), (0.3, Some(Interval { low: 0.0, high: 0.6 })));
        let half = Some(Interval { low: 0.5, high: 0.5 });
        assert_eq!((established.median, established.interval), (0.5, half));
        assert_eq!((gateway.newcomers, gateway.newcomer_median_ms), (700, Some(3.0)));
        let base = figures(&Group::of(&cells, Arm::Elsewhere, None));
        assert!(base.established.is_none() && base.served.unwrap().median == 1.0);
        // There are no figures for an arm that was not measured, and for a round without newcomers.
        assert!(figures(&Group::of(&cells, Arm::Nothing, None)).served.is_none());
        let mut nobody = cell(0, Arm::Nothing, 0, 0.0);
        nobody.clients.newcomers = 0;
        assert!(figures(&Group::of(&[nobody], Arm::Nothing, None)).served.is_none());
    }
}
