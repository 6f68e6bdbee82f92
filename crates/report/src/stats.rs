//! Statistics of one sample of numbers.
//!
//! [`Sample`] holds the finite values of a sample in ascending order. Each statistic is a method.
//! It returns `None` if the statistic is undefined, for example for an empty sample or for a
//! percentile outside 0 to 100. Definitions:
//!
//! * [`Sample::percentile`] interpolates linearly (type 7 of Hyndman and Fan 1996; the default of
//!   R's `quantile` and NumPy's `percentile`). It computes `h = (n - 1) p / 100`, and interpolates
//!   between the values at the indices `floor(h)` and `floor(h) + 1`, counted from 0.
//! * [`Sample::nearest_rank`] is always an observed value: the one at rank `ceil(n p / 100)`,
//!   counted from 1. Use it for latencies, because an interpolated value in the tail was never
//!   observed.
//! * [`Sample::mad`] is the median absolute deviation from the median, not scaled (R: `mad(x,
//!   constant = 1)`). Multiply it with [`MAD_TO_SIGMA`] to compare it with a standard deviation.
//! * [`Sample::mean_95`] is the confidence interval of a mean. [`mean`](mod@mean) describes its
//!   coverage.
//! * [`Sample::median_95`] is the confidence interval of a median. It covers 95 % or more, see
//!   [`median`](mod@median).
//!
//! For two samples, [`ranks`] tests whether they differ, and [`effect`] computes by how much.
//! [`modes`] tests whether one sample is more like a mixture of two.

pub mod effect;
pub mod mean;
pub mod median;
pub mod modes;
pub mod ranks;

use serde::{Deserialize, Serialize};

/// Factor that converts a median absolute deviation to an estimate of the standard deviation, for
/// normally distributed values. It is 1 divided by the 0.75 quantile of the standard normal
/// distribution.
pub const MAD_TO_SIGMA: f64 = 1.482_602_218_505_602;

/// A sample: its finite values in ascending order, and the number of values that were left out
/// because they were not finite.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    sorted: Vec<f64>,
    left_out: usize,
}

impl FromIterator<f64> for Sample {
    fn from_iter<I: IntoIterator<Item = f64>>(values: I) -> Self {
        let mut left_out = 0;
        let mut sorted: Vec<f64> = values
            .into_iter()
            .filter(|value| {
                left_out += usize::from(!value.is_finite());
                value.is_finite()
            })
            .collect();
        sorted.sort_unstable_by(f64::total_cmp);
        Self { sorted, left_out }
    }
}

impl From<&[f64]> for Sample {
    fn from(values: &[f64]) -> Self {
        values.iter().copied().collect()
    }
}

impl From<&[std::time::Duration]> for Sample {
    /// Creates a sample of durations in seconds.
    fn from(values: &[std::time::Duration]) -> Self {
        values.iter().map(std::time::Duration::as_secs_f64).collect()
    }
}

impl Sample {
    /// The values in ascending order.
    #[must_use]
    pub fn sorted(&self) -> &[f64] {
        &self.sorted
    }

    /// Number of values.
    #[must_use]
    pub fn len(&self) -> usize {
        self.sorted.len()
    }

    /// True if there are no values.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sorted.is_empty()
    }

    /// Number of values that were left out because they were NaN or infinite.
    #[must_use]
    pub fn left_out(&self) -> usize {
        self.left_out
    }

    /// The smallest value.
    #[must_use]
    pub fn min(&self) -> Option<f64> {
        self.sorted.first().copied()
    }

    /// The largest value.
    #[must_use]
    pub fn max(&self) -> Option<f64> {
        self.sorted.last().copied()
    }

    /// The arithmetic mean.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        mean(&self.sorted)
    }

    /// The harmonic mean, which is the right mean for rates if each was measured over the same
    /// amount of work. `None` if the sample is empty or a value is not above zero.
    #[must_use]
    pub fn harmonic_mean(&self) -> Option<f64> {
        if self.min()? <= 0.0 {
            return None;
        }
        let inverse: f64 = self.sorted.iter().map(|value| value.recip()).sum();
        Some(self.len() as f64 / inverse)
    }

    /// The standard deviation of the sample (divisor n - 1). `None` with fewer than two values.
    #[must_use]
    pub fn standard_deviation(&self) -> Option<f64> {
        let mean = self.mean()?;
        if self.len() < 2 {
            return None;
        }
        let squares: f64 = self.sorted.iter().map(|value| (value - mean).powi(2)).sum();
        Some((squares / (self.len() - 1) as f64).sqrt())
    }

    /// The median: the middle value, or the mean of the two middle values.
    #[must_use]
    pub fn median(&self) -> Option<f64> {
        quantile(&self.sorted, 0.5)
    }

    /// The `p`-th percentile with linear interpolation (type 7). `p` is from 0 to 100.
    #[must_use]
    pub fn percentile(&self, p: f64) -> Option<f64> {
        quantile(&self.sorted, p / 100.0)
    }

    /// The `p`-th percentile as nearest rank. `p` is from 0 to 100, and 0 gives the smallest value.
    #[must_use]
    pub fn nearest_rank(&self, p: f64) -> Option<f64> {
        if !(0.0..=100.0).contains(&p) {
            return None;
        }
        // The subtraction corrects rounding errors: the computed product 0.07 * 100 is
        // 7.000000000000001, but the rank must be 7.
        let rank = (p * self.len() as f64 / 100.0 - 1e-9).ceil().max(1.0) as usize;
        self.sorted.get(rank - 1).copied()
    }

    /// The median absolute deviation from the median, not scaled.
    #[must_use]
    pub fn mad(&self) -> Option<f64> {
        let median = self.median()?;
        let deviations: Sample = self.sorted.iter().map(|value| (value - median).abs()).collect();
        deviations.median()
    }

    /// The empirical distribution. For each distinct value, in ascending order, it has the fraction
    /// of the sample that does not exceed this value. The last fraction is 1.
    #[must_use]
    pub fn ecdf(&self) -> Vec<(f64, f64)> {
        let total = self.len() as f64;
        let mut below = 0;
        self.sorted
            .chunk_by(|a, b| a == b)
            .map(|equal| {
                below += equal.len();
                (equal[0], below as f64 / total)
            })
            .collect()
    }

    /// Returns the most common statistics in one structure, for a result file. Returns `None` if
    /// the sample is empty.
    #[must_use]
    pub fn summary(&self) -> Option<Summary> {
        Some(Summary {
            count: self.len() as u64,
            min: self.min()?,
            mean: self.mean()?,
            median: self.median()?,
            p90: self.nearest_rank(90.0)?,
            p95: self.nearest_rank(95.0)?,
            p99: self.nearest_rank(99.0)?,
            max: self.max()?,
            mad: self.mad()?,
        })
    }
}

/// An interval. It includes both of its ends.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Lower end, in the unit of the sample.
    pub low: f64,
    /// Upper end, in the unit of the sample.
    pub high: f64,
}

/// The most common statistics of a sample, in its unit. The median is interpolated. p90, p95 and
/// p99 are nearest ranks, that is, observed values.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Number of values.
    pub count: u64,
    /// The smallest.
    pub min: f64,
    /// The arithmetic mean.
    pub mean: f64,
    /// The median.
    pub median: f64,
    /// The 90th percentile.
    pub p90: f64,
    /// The 95th percentile.
    pub p95: f64,
    /// The 99th percentile.
    pub p99: f64,
    /// The largest.
    pub max: f64,
    /// The median absolute deviation, not scaled.
    pub mad: f64,
}

fn mean(values: &[f64]) -> Option<f64> {
    if values.is_empty() {
        return None;
    }
    let n = values.len() as f64;
    let sum: f64 = values.iter().sum();
    // The sum of finite values can overflow, but their mean cannot.
    Some(if sum.is_finite() { sum / n } else { values.iter().map(|value| value / n).sum() })
}

fn quantile(sorted: &[f64], fraction: f64) -> Option<f64> {
    if sorted.is_empty() || !(0.0..=1.0).contains(&fraction) {
        return None;
    }
    let h = (sorted.len() - 1) as f64 * fraction;
    let below = sorted[h.floor() as usize];
    let above = sorted[h.ceil() as usize];
    let between = h - h.floor();
    // The equivalent formula `below + (above - below) * between` is not used, because its
    // difference may overflow. The clamp corrects rounding errors.
    Some(((1.0 - between) * below + between * above).clamp(below, above))
}

#[cfg(test)]
#[path = "stats_tests.rs"]
mod tests;
