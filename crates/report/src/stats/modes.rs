//! Hartigan's dip test, which tests whether a sample has more than one mode.
//!
//! The dip (Hartigan and Hartigan 1985) is the largest distance between the empirical distribution
//! and the closest unimodal distribution. It is from 1/(2n) to 1/4. The p-value is the fraction of
//! uniform samples of the same size whose dip is at least as large. The uniform distribution has
//! larger dips than all other unimodal distributions. So for the others, the test errs on the side
//! of reporting one mode.

use std::collections::BTreeMap;

use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};

use super::Sample;

/// Number of uniform samples from which a p-value is computed. With this number, p-values below
/// 0.05 are accurate to 0.005.
const DRAWS: usize = 2_000;
/// Minimum number of values that a sample must have for the test.
const FEWEST: usize = 4;

/// Result of the dip test on a sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dip {
    /// The dip.
    pub dip: f64,
    /// The probability that a uniform sample has this dip or a larger one.
    pub p: f64,
}

/// The dip test. It caches the dips of uniform samples, for each sample size.
#[derive(Clone, Debug)]
pub struct DipTest {
    seed: u64,
    uniform: BTreeMap<usize, Vec<f64>>,
}

impl DipTest {
    /// Creates a test. The same seed always gives the same p-values.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { seed, uniform: BTreeMap::new() }
    }

    /// Tests a sample. Returns `None` if it has fewer than four values. The first call for each
    /// sample size draws 2,000 uniform samples.
    pub fn test(&mut self, sample: &Sample) -> Option<Dip> {
        if sample.len() < FEWEST {
            return None;
        }
        let dip = dip(sample.sorted());
        let size = sample.len();
        // Each size has its own random sequence, so the order of calls does not change the results.
        let seed = self.seed ^ (size as u64).rotate_left(32);
        let uniform = self.uniform.entry(size).or_insert_with(|| uniform_dips(size, seed));
        let as_large = uniform.len() - uniform.partition_point(|one| *one < dip);
        Some(Dip { dip, p: (as_large + 1) as f64 / (uniform.len() + 1) as f64 })
    }
}

fn uniform_dips(size: usize, seed: u64) -> Vec<f64> {
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut dips: Vec<f64> = (0..DRAWS)
        .map(|_| {
            let sample: Sample = (0..size).map(|_| rng.random::<f64>()).collect();
            dip(sample.sorted())
        })
        .collect();
    dips.sort_unstable_by(f64::total_cmp);
    dips
}

/// A step of the empirical distribution: a distinct value, the number of values below it, and the
/// number of values up to and including it.
struct Step {
    x: f64,
    below: f64,
    to: f64,
}

/// Returns the dip of values in ascending order, or 0 if there are no values.
fn dip(sorted: &[f64]) -> f64 {
    let mut steps: Vec<Step> = Vec::with_capacity(sorted.len());
    let mut below = 0.0;
    for equal in sorted.chunk_by(|a, b| a == b) {
        let to = below + equal.len() as f64;
        steps.push(Step { x: equal[0], below, to });
        below = to;
    }
    // A sample in which all values are equal is unimodal.
    if steps.len() < 2 {
        return if below > 0.0 { 0.5 / below } else { 0.0 };
    }
    let (mut low, mut high) = (0, steps.len() - 1);
    // This variable is twice the dip, multiplied by the number of values.
    let mut dip: f64 = 1.0;
    loop {
        // The closest unimodal distribution is convex below its mode and concave above it.
        let minorant = hull(&steps, low, high, |step| -step.below);
        let majorant = hull(&steps, low, high, |step| step.to);
        let (distance, from, to) = widest(&steps, &minorant, &majorant);
        if distance <= dip {
            break;
        }
        let left = farthest(&steps, &minorant, low..=from, |step| step.below, |step| step.to);
        let right = farthest(&steps, &majorant, to..=high, |step| -step.to, |step| -step.below);
        dip = dip.max(left).max(right);
        if (from, to) == (low, high) {
            break;
        }
        (low, high) = (from, to);
    }
    dip / (2.0 * below)
}

/// Returns the corners of the smallest concave function above the points `(x, height)` from `low`
/// to `high`.
fn hull(steps: &[Step], low: usize, high: usize, height: impl Fn(&Step) -> f64) -> Vec<usize> {
    let mut corners: Vec<usize> = Vec::new();
    for next in low..=high {
        while let [.., a, b] = corners[..] {
            let (a, b, c) = (&steps[a], &steps[b], &steps[next]);
            let under =
                (height(b) - height(a)) * (c.x - a.x) <= (height(c) - height(a)) * (b.x - a.x);
            if !under {
                break;
            }
            corners.pop();
        }
        corners.push(next);
    }
    corners
}

/// Returns the height at position `at` of the line through `corners`.
fn on(steps: &[Step], corners: &[usize], at: usize, height: impl Fn(&Step) -> f64) -> f64 {
    let right = corners.partition_point(|corner| *corner < at);
    match (right.checked_sub(1).and_then(|left| corners.get(left)), corners.get(right)) {
        (_, Some(&right)) if right == at => height(&steps[at]),
        (Some(&left), Some(&right)) => {
            let (left, right) = (&steps[left], &steps[right]);
            let part = (steps[at].x - left.x) / (right.x - left.x);
            height(left) + part * (height(right) - height(left))
        }
        _ => height(&steps[at]),
    }
}

/// Returns the largest distance between the majorant and the minorant, and the corners on both
/// sides of it.
fn widest(steps: &[Step], minorant: &[usize], majorant: &[usize]) -> (f64, usize, usize) {
    let mut widest = (0.0, 0, 0);
    for &at in majorant {
        let distance = steps[at].to - on(steps, minorant, at, |step| step.below);
        if distance > widest.0 {
            let left = minorant.partition_point(|corner| *corner <= at) - 1;
            widest = (distance, minorant[left], at);
        }
    }
    for &at in minorant {
        let distance = on(steps, majorant, at, |step| step.to) - steps[at].below;
        if distance > widest.0 {
            let right = majorant.partition_point(|corner| *corner < at);
            widest = (distance, at, majorant[right]);
        }
    }
    widest
}

/// Returns the largest distance between the steps and the line through `corners`, within a range.
fn farthest(
    steps: &[Step],
    corners: &[usize],
    range: std::ops::RangeInclusive<usize>,
    line: impl Fn(&Step) -> f64 + Copy,
    step: impl Fn(&Step) -> f64,
) -> f64 {
    range.map(|at| step(&steps[at]) - on(steps, corners, at, line)).fold(0.0, f64::max)
}

/// The two parts into which a sample is split.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Halves {
    /// Median of the lower part.
    pub low: f64,
    /// Number of values in the lower part.
    pub low_count: usize,
    /// Median of the upper part.
    pub high: f64,
    /// Number of values in the upper part.
    pub high_count: usize,
}

/// Splits a sample into two parts, such that the values are as close as possible to the mean of
/// their part (2-means in one dimension). Returns `None` if the sample has fewer than two distinct
/// values. Any other sample can be split, even if it has only one mode, so use [`DipTest`] first.
#[must_use]
pub fn halves(sample: &Sample) -> Option<Halves> {
    let sorted = sample.sorted();
    let total: f64 = sorted.iter().sum();
    let (mut before, mut best) = (0.0, None);
    for (index, pair) in sorted.windows(2).enumerate() {
        before += pair[0];
        let (low, high) = ((index + 1) as f64, (sorted.len() - index - 1) as f64);
        // This is the variance between the two parts, without a constant factor.
        let between = low * high * (before / low - (total - before) / high).powi(2);
        if pair[0] < pair[1] && best.is_none_or(|(most, _)| between > most) {
            best = Some((between, index + 1));
        }
    }
    let (low, high) = sorted.split_at(best?.1);
    Some(Halves {
        low: Sample::from(low).median()?,
        low_count: low.len(),
        high: Sample::from(high).median()?,
        high_count: high.len(),
    })
}

#[cfg(test)]
#[path = "modes_tests.rs"]
mod tests;
