//! Which cells there are, and in which order they are run.

use rand::SeedableRng as _;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom as _;
use serde::{Deserialize, Serialize};

use crate::cell::Route;
use crate::{Outcome, Workload};

/// A cell that is to be run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// Counted from 0.
    pub round: usize,
    /// What lies between client and server.
    pub route: Route,
    /// What is measured.
    pub workload: Workload,
    /// Whose server and client.
    pub implementation: String,
}

/// A cell that was run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Which.
    #[serde(flatten)]
    pub cell: Cell,
    /// What became of it.
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
        let plan = |seed| cells(&names, &Workload::ALL, &routes, 3, seed);
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
