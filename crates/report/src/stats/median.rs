//! The 95 % interval of a median.
//!
//! [`Sample::median_95`] runs from the k-th smallest value of the sample to the k-th largest. It
//! misses the median of the population only if fewer than k values lie on one side of that median.
//! The binomial distribution gives the probability of this event, whatever the distribution of the
//! values is. The interval uses the largest k for which the probability is at most 5 % (Thompson
//! 1936; the inverse of the sign test). So the coverage is 95 % or more, by proof and by simulation
//! (`tests`), also for skewed values. Rounded values only make it larger.
//!
//! The smallest and the largest of 5 values cover 93.75 %, so fewer than [`FEWEST`] values have no
//! interval.

use super::{Interval, Sample};

/// The smallest number of values that gives an interval.
pub const FEWEST: usize = 6;

/// Sample size from which on the normal approximation of the binomial distribution is used.
const EXACT: usize = 500;

/// The 0.975 quantile of the standard normal distribution.
const NORMAL: f64 = 1.959_963_984_540_054;

impl Sample {
    /// Returns an interval that contains the median of the population with a confidence of 95 % or
    /// more. See the [module](self). Returns `None` if the sample has fewer than [`FEWEST`] values.
    #[must_use]
    pub fn median_95(&self) -> Option<Interval> {
        let rank = rank(self.len())?;
        let low = *self.sorted().get(rank.checked_sub(1)?)?;
        let high = *self.sorted().get(self.len().checked_sub(rank)?)?;
        Some(Interval { low, high })
    }
}

/// Returns the largest k, counted from 1, for which at most 2.5 % of samples have fewer than k
/// values below the median. Returns `None` if this holds for no k.
fn rank(count: usize) -> Option<usize> {
    if count >= EXACT {
        // Half a step is subtracted, so that the interval is rather too wide than too narrow.
        let n = count as f64;
        return Some(((n - NORMAL * n.sqrt()) / 2.0 - 0.5).floor() as usize);
    }
    let n = i32::try_from(count).ok()?;
    // The probability that exactly `below` values are below the median. 2^-500 is still a normal
    // floating-point number.
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
