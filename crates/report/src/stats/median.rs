//! The 95 % confidence interval of a median.
//!
//! [`Sample::median_95`] extends from the k-th smallest value of the sample to the k-th largest. It
//! misses the median of the population only if fewer than k values are on one side of that median.
//! The binomial distribution gives the probability of this event, for any distribution of the
//! values. The interval uses the largest k for which the probability is at most 5 % (Thompson 1936;
//! the inverse of the sign test). Therefore, the coverage is 95 % or more. Simulations (`tests`)
//! confirm this, also for skewed values. If values are rounded, the coverage can only be larger.
//!
//! For 5 values, even the interval from the smallest to the largest covers only 93.75 %. So a
//! sample needs [`FEWEST`] values for an interval.

use super::{Interval, Sample};

/// The smallest number of values that gives an interval.
pub const FEWEST: usize = 6;

/// Size of the smallest sample for which the normal approximation of the binomial distribution is
/// used.
const EXACT: usize = 500;

/// The 0.975 quantile of the standard normal distribution.
const NORMAL: f64 = 1.959_963_984_540_054;

impl Sample {
    /// Returns an interval that contains the median of the population with a confidence of 95 % or
    /// more. The [module](self) describes it. Returns `None` if the sample has fewer than
    /// [`FEWEST`] values.
    #[must_use]
    pub fn median_95(&self) -> Option<Interval> {
        let rank = rank(self.len())?;
        let low = *self.sorted().get(rank.checked_sub(1)?)?;
        let high = *self.sorted().get(self.len().checked_sub(rank)?)?;
        Some(Interval { low, high })
    }
}

/// Returns the rank k, counted from 1, of the interval's ends. It is the largest k for which at
/// most 2.5 % of all samples have fewer than k values below the median. Returns `None` if there is
/// no such k.
fn rank(count: usize) -> Option<usize> {
    if count >= EXACT {
        // Half a rank is subtracted, so that the interval is too wide rather than too narrow.
        let n = count as f64;
        return Some(((n - NORMAL * n.sqrt()) / 2.0 - 0.5).floor() as usize);
    }
    let n = i32::try_from(count).ok()?;
    // The probability that exactly `below` values are below the median. Even 2^-500 is still a
    // normal floating-point number.
    let mut probability = 0.5_f64.powi(n);
    let mut tail = 0.0;
    for below in 0..count {
        tail += probability;
        if tail > 0.025 {
            return (below > 0).then_some(below);
        }
        probability *= (count - below) as f64 / (below + 1) as f64;
    }
    None
}

#[cfg(test)]
#[path = "median_tests.rs"]
mod tests;
