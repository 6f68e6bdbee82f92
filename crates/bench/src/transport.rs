//! Cells of `equic bench transport`: each implementation with itself, in interleaved rounds.

use rand::SeedableRng as _;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom as _;
use serde::{Deserialize, Serialize};

use crate::cell::{CellError, Measurement};
use crate::{Answer, Effective, Workload};

/// Path between client and server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Route {
    /// The loopback interface.
    Loopback,
    /// Two network namespaces, veth interfaces and a bridge.
    Veth,
}

impl Route {
    /// Name of the route.
    pub const fn name(self) -> &'static str {
        match self {
            Route::Loopback => "loopback",
            Route::Veth => "veth",
        }
    }
}

/// Outcome of a cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Outcome {
    /// It was measured.
    Measured(Box<Sample>),
    /// The implementation says that it does not do that.
    Unsupported {
        /// The end that does not support it, and its message.
        why: String,
    },
    /// The attempt failed.
    Failed {
        /// Description of the failure.
        why: String,
    },
}

/// Figures of one measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// In the unit of the workload's figure.
    pub value: f64,
    /// CPU time of the server process for each unit (10^9 bytes, or a completion), in seconds, from its
    /// start to its end.
    pub server_cpu: f64,
    /// The same of the client.
    pub client_cpu: f64,
    /// The most memory that the server process had, in bytes.
    pub server_peak_rss: u64,
    /// The same of the client, as of the last look, at most 50 ms before its end.
    pub client_peak_rss: u64,
    /// Anonymous memory of the server before anybody came, in bytes.
    pub server_idle_memory: u64,
    /// The same with all connections open, where these are held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_held_memory: Option<u64>,
    /// Answer of the client.
    pub answer: Answer,
}

impl Outcome {
    /// Of an attempt at a workload.
    pub fn of(result: Result<Measurement, CellError>, what: Workload) -> Outcome {
        let measurement = match result {
            Ok(measurement) => measurement,
            Err(CellError::Unsupported(why)) => return Outcome::Unsupported { why },
            Err(CellError::Failed(_, why)) => return Outcome::Failed { why },
        };
        let Measurement { figures, answer, server_idle_memory, server_held_memory, .. } =
            measurement;
        let units = what.units(&answer);
        Outcome::Measured(Box::new(Sample {
            value: figures.value,
            server_cpu: figures.server_cpu_seconds / units,
            client_cpu: figures.client_cpu_seconds / units,
            server_peak_rss: figures.server_peak_rss,
            client_peak_rss: figures.client_peak_rss,
            server_idle_memory,
            server_held_memory,
            answer,
        }))
    }

    /// Settings in force, if the cell was measured.
    pub fn effective(&self) -> Option<&Effective> {
        match self {
            Outcome::Measured(sample) => Some(&sample.answer.effective),
            Outcome::Unsupported { .. } | Outcome::Failed { .. } => None,
        }
    }
}

/// A cell that is to be run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// Number of the round, counted from 0.
    pub round: usize,
    /// Path between client and server.
    pub route: Route,
    /// Workload that is measured.
    pub workload: Workload,
    /// Name of the implementation of both ends.
    pub implementation: String,
}

/// A cell that was run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Cell that was run.
    #[serde(flatten)]
    pub cell: Cell,
    /// Outcome of the cell.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// All cells of so many rounds: in each round every cell once, in random order, so that whatever
/// changes on the machine meanwhile meets all alike. Memory does not depend on the path: it is measured
/// on the first only. The same seed gives the same order.
pub fn cells(
    implementations: &[String],
    workloads: &[Workload],
    routes: &[Route],
    rounds: usize,
    seed: u64,
) -> Vec<Cell> {
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut all = Vec::new();
    for round in 0..rounds {
        let mut cells = Vec::new();
        for (index, route) in routes.iter().enumerate() {
            for workload in workloads {
                if *workload == Workload::Idle && index > 0 {
                    continue;
                }
                cells.extend(implementations.iter().map(|implementation| Cell {
                    round,
                    route: *route,
                    workload: *workload,
                    implementation: implementation.clone(),
                }));
            }
        }
        cells.shuffle(&mut rng);
        all.extend(cells);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_round_has_every_cell_in_an_order_of_its_own() {
        let names = ["a".to_owned(), "b".to_owned()];
        let routes = [Route::Loopback, Route::Veth];
        let plan = |seed| cells(&names, &Workload::TRANSPORT, &routes, 3, seed);
        let all = plan(1);
        // 2 implementations; 7 workloads on the first path and 6 on the second.
        assert_eq!(all.len(), 3 * 2 * 13);
        let order = |round| {
            let of = all.iter().filter(move |cell| cell.round == round);
            of.map(|cell| (cell.route, cell.workload, cell.implementation.clone()))
        };
        let sorted = |round| {
            let mut cells: Vec<_> = order(round).collect();
            cells.sort();
            cells
        };
        assert_eq!(sorted(0), sorted(1));
        assert_ne!(order(0).collect::<Vec<_>>(), order(1).collect::<Vec<_>>());
        assert_eq!(plan(1), all);
        assert_ne!(plan(2), all);
        assert!(all.iter().all(|c| c.workload != Workload::Idle || c.route == Route::Loopback));
    }
}
