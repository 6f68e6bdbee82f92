//! The 95 % confidence interval of a mean.
//!
//! [`Sample::mean_95`] is the union of two intervals. One is Student's t interval. The other comes
//! from the cubic transformation of t, which corrects for the skewness of the sample (Hall 1992,
//! "On the Removal of Skewness by Transformation"). Without this correction, Student's t covers
//! only 88 to 92 % for the mean of 3 to 30 exponential values, and a percentile bootstrap covers
//! less. The interval is then widened by the factor `1 + 1.2 / n`, because the skewness of a small
//! sample underestimates that of the population.
//!
//! The coverage was determined by simulation (`tests`), for 3 to 30 values. It is 94.5 % or more if
//! the skewness is at most 2, as for the exponential distribution. It is 91 % or more for
//! log-normal values with a skewness of 6. If a population has rare, extreme values, and the sample
//! contains none of them, no method gives an interval that contains the mean.

use super::{Interval, Sample};

/// The smallest number of values that gives an interval. With fewer values, the skewness cannot be
/// estimated.
pub const FEWEST: usize = 3;

/// Determines how much the interval is widened: this number, divided by the size of the sample, is
/// added to the factor 1.
const WIDENED: f64 = 1.2;

/// The 0.975 quantile of the standard normal distribution.
const NORMAL: f64 = 1.959_963_984_540_054;

/// The 0.975 quantiles of Student's t distribution with 1 to 30 degrees of freedom. R: `qt(.975,
/// 1:30)`.
const STUDENT: [f64; 30] = [
    12.706_205, 4.302_653, 3.182_446, 2.776_445, 2.570_582, 2.446_912, 2.364_624, 2.306_004,
    2.262_157, 2.228_139, 2.200_985, 2.178_813, 2.160_369, 2.144_787, 2.131_450, 2.119_905,
    2.109_816, 2.100_922, 2.093_024, 2.085_963, 2.079_614, 2.073_873, 2.068_658, 2.063_899,
    2.059_539, 2.055_529, 2.051_831, 2.048_407, 2.045_230, 2.042_272,
];

impl Sample {
    /// Returns an interval that contains the mean of the population with a confidence of 95 %. The
    /// [module](self) describes its real coverage. Returns `None` if the sample has fewer than
    /// [`FEWEST`] values, or if all values are equal, because their spread is then unknown.
    #[must_use]
    pub fn mean_95(&self) -> Option<Interval> {
        let count = self.len();
        if count < FEWEST || self.min() == self.max() {
            return None;
        }
        let (mean, deviation) = (self.mean()?, self.standard_deviation()?);
        let n = count as f64;
        let error = deviation / n.sqrt();
        let skewness = self.skewness(mean, deviation) / n.sqrt();
        let t = quantile_of_t(count - 1) * (1.0 + WIDENED / n);
        let (low, high) =
            (mean - error * corrected(t, skewness), mean - error * corrected(-t, skewness));
        let interval =
            Interval { low: low.min(mean - error * t), high: high.max(mean + error * t) };
        (interval.low.is_finite() && interval.high.is_finite()).then_some(interval)
    }

    /// Returns the skewness of the sample by Joanes and Gill, with the divisor `(n - 1)(n - 2)`. It
    /// is unbiased for normally distributed values.
    fn skewness(&self, mean: f64, deviation: f64) -> f64 {
        let n = self.len() as f64;
        let cubes: f64 =
            self.sorted().iter().map(|value| ((value - mean) / deviation).powi(3)).sum();
        cubes * n / ((n - 1.0) * (n - 2.0))
    }
}

/// Returns the value that Hall's transformation maps to `t`. `skewness` must already be divided by
/// the square root of the sample's size.
fn corrected(t: f64, skewness: f64) -> f64 {
    if skewness.abs() < 1e-6 {
        return t;
    }
    3.0 / skewness * ((1.0 + skewness * (t - skewness / 6.0)).cbrt() - 1.0)
}

/// Returns the 0.975 quantile of Student's t distribution with `freedom` degrees of freedom.
/// `freedom` must be 1 or more.
fn quantile_of_t(freedom: usize) -> f64 {
    if let Some(known) = freedom.checked_sub(1).and_then(|index| STUDENT.get(index)) {
        return *known;
    }
    // This is Fisher's expansion. With more than 30 degrees of freedom, it is exact to six digits.
    let (z, v) = (NORMAL, freedom as f64);
    z + (z.powi(3) + z) / (4.0 * v)
        + (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / (96.0 * v.powi(2))
        + (3.0 * z.powi(7) + 19.0 * z.powi(5) + 17.0 * z.powi(3) - 15.0 * z) / (384.0 * v.powi(3))
}

#[cfg(test)]
#[path = "mean_tests.rs"]
mod tests;
