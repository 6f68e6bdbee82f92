//! Change from one setting to another: ratios within each round, so that a drift of the machine
//! cancels out.

use std::collections::BTreeMap;

use equic_bench::result::Row;
use equic_report::stats::{Interval, Sample};
use rand::SeedableRng as _;
use rand::rngs::SmallRng;

/// Number of resamples for an interval, as in the tables of `equic bench`.
const RESAMPLES: usize = 2000;

/// Ratio of two figures: the median over rounds, and its 95 % bootstrap interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Change {
    pub median: f64,
    pub interval: Interval,
    /// Number of rounds in which both were measured.
    pub rounds: usize,
}

impl Change {
    /// Returns the change from one row to another, or `None` if no round has both.
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

    /// Formats the change, such as `-12 % (-15 to -9)`.
    pub(super) fn words(&self) -> String {
        let percent = |factor: f64| format!("{:+.0}", 100.0 * (factor - 1.0));
        let Interval { low, high } = self.interval;
        format!("{} % ({} to {})", percent(self.median), percent(low), percent(high))
    }

    /// True if the increase is significant and at least one per cent.
    pub(super) fn is_gain(&self) -> bool {
        self.interval.low > 1.0 && self.median >= 1.01
    }

    /// True if the decrease is significant and at least one per cent.
    pub(super) fn is_loss(&self) -> bool {
        self.interval.high < 1.0 && self.median <= 0.99
    }
}
