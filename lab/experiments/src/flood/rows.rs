//! Computes the rows of a table from measurements, for all kinds of floods: each arm at each rate.

use equic_report::stats::{Interval, Sample};
use serde::{Deserialize, Serialize};

use super::arms::Arms;
use super::steps::Cell;

/// Median of a ratio over the rounds, with its 95 % confidence interval. With fewer than 6 rounds,
/// there is no interval.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Ratio {
    pub median: f64,
    #[serde(default)]
    pub interval: Option<Interval>,
}

impl Ratio {
    /// Returns the median of the rounds' ratios, or `None` if there are no rounds.
    pub(super) fn of(ratios: &Sample) -> Option<Ratio> {
        Some(Ratio { median: ratios.median()?, interval: ratios.median_95() })
    }
}

/// Result of a comparison with plan `P` and arms `A`. `C` is the clients' result in one
/// measurement, and `F` has the figures over all rounds.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Bench<P, A, C, F> {
    pub plan: P,
    /// A row for each rate and arm.
    pub rows: Vec<Row<A, F>>,
    /// All measurements, in the order in which they ran.
    pub cells: Vec<Cell<A, C>>,
}

/// An arm under a flood of one rate, over all rounds.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Row<A, F> {
    pub arm: A,
    /// Requested rate of the flood in Initial packets per second. Null means as fast as the CPU can
    /// send.
    pub flood_pps: Option<u64>,
    /// Initial packets per second that were really sent: median of the rounds.
    pub sent_pps: Option<f64>,
    #[serde(flatten)]
    pub figures: F,
}

/// The measurements of a row: those of one arm under a flood of one rate, in all rounds.
pub(super) struct Group<'a, A, C> {
    cells: &'a [Cell<A, C>],
    pub arm: A,
    flood_pps: Option<u64>,
}

impl<'a, A: Arms, C> Group<'a, A, C> {
    /// Selects the measurements of an arm at a rate.
    pub(super) fn of(cells: &'a [Cell<A, C>], arm: A, flood_pps: Option<u64>) -> Group<'a, A, C> {
        Group { cells, arm, flood_pps }
    }

    /// The measurements.
    pub(super) fn cells(&self) -> impl Iterator<Item = &'a Cell<A, C>> {
        let (arm, pps) = (self.arm, self.flood_pps);
        self.cells.iter().filter(move |cell| cell.arm == arm && cell.flood_pps == pps)
    }

    /// Returns pairs of measurements: the baseline's, and the arm's of the same round. Rounds
    /// without a baseline are skipped.
    pub(super) fn pairs(&self) -> impl Iterator<Item = (&'a Cell<A, C>, &'a Cell<A, C>)> {
        let baseline = Group::of(self.cells, A::BASELINE, self.flood_pps);
        self.cells().filter_map(move |cell| {
            let base = baseline.cells().find(|base| base.round == cell.round)?;
            Some((base, cell))
        })
    }

    /// Returns the median of a figure over the rounds that have it.
    pub(super) fn median(&self, figure: fn(&Cell<A, C>) -> Option<f64>) -> Option<f64> {
        self.cells().filter_map(figure).collect::<Sample>().median()
    }
}

/// Computes a row for each rate and arm.
pub(super) fn rows<A: Arms, C, F>(
    cells: &[Cell<A, C>],
    rates: &[Option<u64>],
    figures: fn(&Group<'_, A, C>) -> F,
) -> Vec<Row<A, F>> {
    let places = rates.iter().flat_map(|pps| A::ALL.iter().map(|arm| (*arm, *pps)));
    let row = |(arm, flood_pps)| {
        let group = Group::of(cells, arm, flood_pps);
        let sent_pps = group.median(|cell| Some(cell.sent_pps));
        Row { arm, flood_pps, sent_pps, figures: figures(&group) }
    };
    places.map(row).collect()
}
