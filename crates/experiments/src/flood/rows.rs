//! From measurements to rows of a table, for every kind of flood: each arm under a flood of each rate.

use equic_report::stats::{Interval, Sample};
use rand::SeedableRng as _;
use rand::rngs::SmallRng;
use serde::{Deserialize, Serialize};

use super::arms::Arms;
use super::steps::Cell;

/// The median of a ratio over the rounds, and where it lies with 95 % confidence (bootstrap).
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Ratio {
    pub median: f64,
    pub interval: Interval,
}

/// Result of a comparison by a plan `P`, with arms `A`; `C` is what the clients got in a measurement, `F` what
/// that comes to over all rounds.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Bench<P, A, C, F> {
    pub plan: P,
    /// A row for each rate and arm.
    pub rows: Vec<Row<A, F>>,
    /// All measurements, in the order in which they were taken.
    pub cells: Vec<Cell<A, C>>,
}

/// An arm under a flood of one rate, over all rounds.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Row<A, F> {
    pub arm: A,
    /// Initials a second that were ordered; null is all that the CPU could send.
    pub flood_pps: Option<u64>,
    /// Initials a second that were sent, median over the rounds.
    pub sent_pps: Option<f64>,
    #[serde(flatten)]
    pub figures: F,
}

/// The measurements that a row is made of: those of an arm under a flood of one rate, in all rounds.
pub(super) struct Group<'a, A, C> {
    cells: &'a [Cell<A, C>],
    pub arm: A,
    flood_pps: Option<u64>,
}

impl<'a, A: Arms, C> Group<'a, A, C> {
    /// Out of all measurements, those of an arm at a rate.
    pub(super) fn of(cells: &'a [Cell<A, C>], arm: A, flood_pps: Option<u64>) -> Group<'a, A, C> {
        Group { cells, arm, flood_pps }
    }

    /// The measurements.
    pub(super) fn cells(&self) -> impl Iterator<Item = &'a Cell<A, C>> {
        let (arm, pps) = (self.arm, self.flood_pps);
        self.cells.iter().filter(move |cell| cell.arm == arm && cell.flood_pps == pps)
    }

    /// Each measurement behind the baseline's of the same round; rounds without a baseline are left out.
    pub(super) fn pairs(&self) -> impl Iterator<Item = (&'a Cell<A, C>, &'a Cell<A, C>)> {
        let baseline = Group::of(self.cells, A::BASELINE, self.flood_pps);
        self.cells().filter_map(move |cell| {
            let base = baseline.cells().find(|base| base.round == cell.round)?;
            Some((base, cell))
        })
    }

    /// Median of a figure over the rounds that have one.
    pub(super) fn median(&self, figure: fn(&Cell<A, C>) -> Option<f64>) -> Option<f64> {
        self.cells().filter_map(figure).collect::<Sample>().median()
    }
}

/// A row for each rate and arm. The seed is that of the intervals' bootstrap.
pub(super) fn rows<A: Arms, C, F>(
    cells: &[Cell<A, C>],
    rates: &[Option<u64>],
    seed: u64,
    figures: fn(&Group<'_, A, C>, &mut SmallRng) -> F,
) -> Vec<Row<A, F>> {
    let mut rng = SmallRng::seed_from_u64(seed);
    let places = rates.iter().flat_map(|pps| A::ALL.iter().map(|arm| (*arm, *pps)));
    let row = |(arm, flood_pps)| {
        let group = Group::of(cells, arm, flood_pps);
        let sent_pps = group.median(|cell| Some(cell.sent_pps));
        Row { arm, flood_pps, sent_pps, figures: figures(&group, &mut rng) }
    };
    places.map(row).collect()
}
