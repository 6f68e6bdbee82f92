//! From one setting to another: quotients of the same round, so that a drift of the machine is in neither.

use std::collections::BTreeMap;

use equic_bench::result::Row;
use equic_report::stats::{Interval, Sample};
use rand::SeedableRng as _;
use rand::rngs::SmallRng;

/// Resamples of an interval, as in the tables of `equic bench`.
const RESAMPLES: usize = 2000;

/// Factor between two figures: the median over rounds, and its 95 % interval by the bootstrap.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Change {
    pub median: f64,
    pub interval: Interval,
    /// Rounds in which both were measured.
    pub rounds: usize,
}

impl Change {
    /// Change from one row to another; none: there is no round in which both were measured.
    pub(super) fn between(from: &Row, to: &Row, seed: u64) -> Option<Change> {
        let before: BTreeMap<i64, f64> =
            from.points.iter().map(|point| (point.round, point.value)).collect();
        let quotient = |round: &i64, after: f64| Some(after / before.get(round)?);
        let quotients: Sample =
            to.points.iter().filter_map(|point| quotient(&point.round, point.value)).collect();
        let mut rng = SmallRng::seed_from_u64(seed);
        Some(Change {
            median: quotients.median()?,
            interval: quotients.bootstrap_95(&mut rng, RESAMPLES, Sample::median)?,
            rounds: quotients.len(),
        })
    }

    /// The change in words, such as `-12 % (-15 to -9)`.
    pub(super) fn words(&self) -> String {
        let percent = |factor: f64| format!("{:+.0}", 100.0 * (factor - 1.0));
        let Interval { low, high } = self.interval;
        format!("{} % ({} to {})", percent(self.median), percent(low), percent(high))
    }

    /// True if the figure rose by more than chance, and by a hundredth at least.
    pub(super) fn is_gain(&self) -> bool {
        self.interval.low > 1.0 && self.median >= 1.01
    }

    /// True if the figure fell by more than chance, and by a hundredth at least.
    pub(super) fn is_loss(&self) -> bool {
        self.interval.high < 1.0 && self.median <= 0.99
    }
}
