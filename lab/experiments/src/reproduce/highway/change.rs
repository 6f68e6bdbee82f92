//! Computes the change of goodput between two settings from ratios within each round, so that a
//! drift of the machine cancels out.

use std::collections::BTreeMap;

use equic_bench::result::Row;
use equic_bench::result::show::marked;
use equic_report::stats::{Interval, Sample};

/// Ratio of two figures: the median over rounds, and its 95 % interval, as `equic-lab bench`
/// computes them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Change {
    pub median: f64,
    /// 95 % interval of the ratio. `None` for fewer than 6 rounds, because their interval would
    /// cover less than 95 %.
    pub interval: Option<Interval>,
    /// True if the change depends on a client's clock that does not agree with the runner's
    /// observations.
    pub clock_doubted: bool,
}

impl Change {
    /// Returns the change of goodput from one row to another, or `None` if no round has figures for
    /// both.
    pub(super) fn between(from: &Row, to: &Row) -> Option<Change> {
        let before: BTreeMap<i64, f64> =
            from.points.iter().map(|point| (point.round, point.value)).collect();
        let quotient = |round: &i64, after: f64| Some(after / before.get(round)?);
        let quotients: Sample =
            to.points.iter().filter_map(|point| quotient(&point.round, point.value)).collect();
        Some(Change {
            median: quotients.median()?,
            interval: quotients.median_95(),
            clock_doubted: from.clock_is_doubted() || to.clock_is_doubted(),
        })
    }

    /// Formats the change in percent, such as `-12 % (-15 to -9)`.
    pub(super) fn words(&self) -> String {
        let percent = |factor: f64| format!("{:+.0}", 100.0 * (factor - 1.0));
        let median = percent(self.median);
        let text = match self.interval {
            Some(Interval { low, high }) => {
                format!("{median} % ({} to {})", percent(low), percent(high))
            }
            None => format!("{median} % (no interval)"),
        };
        marked(text, self.clock_doubted)
    }

    /// Returns true if the change is a significant increase of at least one percent.
    pub(super) fn is_gain(&self) -> bool {
        self.interval.is_some_and(|ends| ends.low > 1.0) && self.median >= 1.01
    }

    /// Returns true if the change is a significant decrease of at least one percent.
    pub(super) fn is_loss(&self) -> bool {
        self.interval.is_some_and(|ends| ends.high < 1.0) && self.median <= 0.99
    }
}
