//! Computes figures from measurements: the ratio of each arm to the baseline of the same round and
//! rate.

use equic_report::stats::Sample;
use serde::{Deserialize, Serialize};

use super::cell::{Cell, Clients};
use super::plan::{Arm, FloodPlan};
use super::rows::{self, Group, Ratio};

/// Target for the gateway: minimum requests per second, as a share of the baseline's.
pub(super) const AIM_THROUGHPUT: f64 = 0.99;
/// Target for the gateway: maximum 99th percentile, as a multiple of the baseline's.
pub(super) const AIM_P99: f64 = 1.1;

/// The content of `data` in the result (schema equic.lab.bench/1).
pub(super) type Bench = rows::Bench<FloodPlan, Arm, Clients, Figures>;
/// A row of the table: an arm under a flood of one rate.
pub(super) type Row = rows::Row<Arm, Figures>;

/// Figures of an arm under a flood of one rate.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Figures {
    /// Successful requests per second: median of the rounds.
    pub requests_per_s: Option<f64>,
    pub p99_ms: Option<f64>,
    pub server_cpu_percent: Option<f64>,
    /// Number of failed requests in all rounds. `requests` is the number of all requests.
    pub failures: u64,
    pub requests: u64,
    /// Requests per second, divided by those of the baseline in the same round.
    pub throughput: Option<Ratio>,
    /// 99th percentile of the durations, divided by that of the baseline in the same round. Rounds
    /// without a successful request are left out.
    pub p99: Option<Ratio>,
}

impl Bench {
    pub(super) fn new(plan: FloodPlan, cells: Vec<Cell>) -> Bench {
        let rows = rows::rows(&cells, &plan.flood_pps, figures);
        Bench { plan, rows, cells }
    }
}

fn figures(group: &Group<'_, Arm, Clients>) -> Figures {
    let against = |read: fn(&Cell) -> Option<f64>| {
        let ratios = group.pairs().filter_map(|(base, cell)| Some(read(cell)? / read(base)?));
        Ratio::of(&ratios.collect::<Sample>())
    };
    let (throughput, p99) = match group.arm {
        Arm::Elsewhere => (None, None),
        _ => {
            (against(|cell| Some(cell.clients.requests_per_s)), against(|cell| cell.clients.p99_ms))
        }
    };
    Figures {
        requests_per_s: group.median(|cell| Some(cell.clients.requests_per_s)),
        p99_ms: group.median(|cell| cell.clients.p99_ms),
        server_cpu_percent: group.median(|cell| Some(cell.server.cpu_percent)),
        failures: group.cells().map(|cell| cell.clients.failures).sum(),
        requests: group.cells().map(|cell| cell.clients.requests).sum(),
        throughput,
        p99,
    }
}

#[cfg(test)]
mod tests {
    use equic_report::stats::Interval;

    use super::super::steps::Work;
    use super::*;

    fn cell(round: usize, arm: Arm, rps: f64, p99_ms: Option<f64>) -> Cell {
        Cell {
            round,
            arm,
            flood_pps: None,
            sent_pps: 1e6,
            clients: Clients {
                requests_per_s: rps,
                median_ms: p99_ms,
                p99_ms,
                requests: 10,
                failures: u64::from(p99_ms.is_none()),
            },
            server: Work { cpu_percent: 50.0, datagrams: 0, socket_full: 0 },
            dropped: None,
        }
    }

    #[test]
    fn flood_result_compares_each_round_with_its_own_baseline() {
        // These figures are of a machine that becomes slower: the ratio of the medians would be
        // 0.75, but in each round it is 0.5.
        let mut cells = Vec::new();
        let speeds = [4000.0, 2000.0, 1000.0, 500.0, 250.0, 125.0];
        for (round, speed) in speeds.into_iter().enumerate() {
            cells.push(cell(round, Arm::Elsewhere, speed, Some(1.0)));
            cells.push(cell(round, Arm::Gateway, speed / 2.0, Some(3.0)));
        }
        let row = figures(&Group::of(&cells, Arm::Gateway, None));
        let throughput = row.throughput.unwrap();
        assert_eq!((throughput.median, row.p99.unwrap().median), (0.5, 3.0));
        assert_eq!(throughput.interval, Some(Interval { low: 0.5, high: 0.5 }));
        assert_eq!((row.requests_per_s, row.requests, row.failures), (Some(375.0), 60, 0));
        // With 5 rounds, an interval would cover the median with less than 95 %.
        cells.truncate(10);
        let row = figures(&Group::of(&cells, Arm::Gateway, None));
        assert_eq!(row.throughput.map(|ratio| (ratio.median, ratio.interval)), Some((0.5, None)));
    }

    #[test]
    fn flood_result_without_success_has_no_percentile() {
        let cells = [cell(0, Arm::Elsewhere, 100.0, Some(1.0)), cell(0, Arm::Nothing, 0.0, None)];
        let row = figures(&Group::of(&cells, Arm::Nothing, None));
        assert_eq!((row.throughput.unwrap().median, row.failures), (0.0, 1));
        assert!(row.p99.is_none() && row.p99_ms.is_none());
    }
}
