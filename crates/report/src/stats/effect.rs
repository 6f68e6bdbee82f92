//! Computes how much two samples differ, with a confidence interval.

use serde::{Deserialize, Serialize};

use super::ranks::critical_u;
use super::{Interval, Sample};

/// The ratio of two samples: how large the second is relative to the first. It has a 95 % interval
/// if the samples are large enough.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// The ratio of the second sample to the first. For example, 1.02 means that the second is 2 %
    /// larger.
    pub value: f64,
    /// Interval that contains the ratio with a confidence of 95 % or more. `None` if the samples
    /// are too small for an interval.
    #[serde(default)]
    pub interval: Option<Interval>,
}

impl Ratio {
    /// Returns the [`ratio`] of two samples, with its [`ratio_interval_95`]. The interval needs 4
    /// values in each sample. Returns `None` if a sample is empty, or if a value is not above zero.
    #[must_use]
    pub fn between(first: &Sample, second: &Sample) -> Option<Ratio> {
        let value = ratio(first, second)?;
        Some(Ratio { value, interval: ratio_interval_95(first, second) })
    }

    /// Returns the ratio of two quantities that were measured in pairs, both in each round. For
    /// each round, the second value is divided by the first. The result is the median of these
    /// ratios, with its [`Sample::median_95`], which needs 6 rounds. If a disturbance lasts for a
    /// whole round, it affects both values and cancels out. Rounds whose ratio is not finite are
    /// ignored. Returns `None` if no round is left.
    #[must_use]
    pub fn of_pairs(pairs: impl IntoIterator<Item = (f64, f64)>) -> Option<Ratio> {
        let quotients: Sample = pairs.into_iter().map(|(first, second)| second / first).collect();
        Some(Ratio { value: quotients.median()?, interval: quotients.median_95() })
    }
}

/// Returns the shift from the first sample to the second by Hodges and Lehmann (1963). Subtracts
/// each value of the first sample from each value of the second, and returns the median of these
/// differences. In R, this is `wilcox.test(second, first, conf.int = TRUE)` for samples without
/// ties. Returns `None` if a sample is empty.
#[must_use]
pub fn shift(first: &Sample, second: &Sample) -> Option<f64> {
    median_of_pairs(first.sorted(), second.sorted(), |a, b| b - a)
}

/// Divides each value of the second sample by each value of the first, and returns the median of
/// these ratios. Returns `None` if a sample is empty, or if a value is not above zero.
#[must_use]
pub fn ratio(first: &Sample, second: &Sample) -> Option<f64> {
    if first.min()? <= 0.0 || second.min()? <= 0.0 {
        return None;
    }
    median_of_pairs(first.sorted(), second.sorted(), |a, b| b / a)
}

/// Returns the 95 % interval of [`ratio`]. It contains each ratio that a Mann-Whitney test of the
/// two samples would not reject. It covers 95 % or more if the second sample has the distribution
/// of the first, multiplied by a constant. That distribution may be any. Returns `None` if the
/// samples are too small for a p-value below 5 % (for example, 3 values each), or if a value is not
/// above zero.
#[must_use]
pub fn ratio_interval_95(first: &Sample, second: &Sample) -> Option<Interval> {
    if first.min()? <= 0.0 || second.min()? <= 0.0 {
        return None;
    }
    let rank = critical_u(first.len(), second.len())?;
    let quotients: Sample =
        second.sorted().iter().flat_map(|b| first.sorted().iter().map(move |a| b / a)).collect();
    let low = *quotients.sorted().get(rank.checked_sub(1)?)?;
    let high = *quotients.sorted().get(quotients.len().checked_sub(rank)?)?;
    Some(Interval { low, high })
}

fn median_of_pairs(
    first: &[f64],
    second: &[f64],
    combine: impl Fn(f64, f64) -> f64,
) -> Option<f64> {
    let combine = &combine;
    let mut pairs: Vec<f64> =
        second.iter().flat_map(|b| first.iter().map(move |a| combine(*a, *b))).collect();
    if pairs.is_empty() {
        return None;
    }
    let middle = pairs.len() / 2;
    let even = pairs.len().is_multiple_of(2);
    let (below, upper, _) = pairs.select_nth_unstable_by(middle, f64::total_cmp);
    let upper = *upper;
    let lower = if even { below.iter().copied().max_by(f64::total_cmp)? } else { upper };
    Some(lower / 2.0 + upper / 2.0)
}

#[cfg(test)]
mod tests {
    use rand::rngs::SmallRng;
    use rand::{Rng as _, SeedableRng as _};

    use super::*;

    const TERM: [f64; 10] = [0.80, 0.83, 1.89, 1.04, 1.45, 1.38, 1.91, 1.64, 0.73, 1.46];
    const EARLY: [f64; 5] = [1.15, 0.88, 0.90, 0.74, 1.21];

    #[test]
    fn shift_and_ratio_are_hodges_lehmann_estimates() {
        let (term, early) = (Sample::from(&TERM[..]), Sample::from(&EARLY[..]));
        // In R, wilcox.test(TERM, EARLY, conf.int = TRUE) reports a difference in location of
        // 0.305.
        assert!((shift(&early, &term).unwrap() - 0.305).abs() < 1e-12);
        // The expected value is median(divide.outer(EARLY, TERM)) of NumPy.
        assert!((ratio(&term, &early).unwrap() - 0.762_738_055_462_746_3).abs() < 1e-12);
        let odd = Sample::from(&[1.0, 2.0, 4.0][..]);
        assert_eq!(ratio(&odd, &odd), Some(1.0));
        assert_eq!(shift(&odd, &Sample::default()), None);
        assert_eq!(ratio(&Sample::from(&[0.0][..]), &odd), None);
        assert_eq!(ratio(&odd, &Sample::from(&[-1.0][..])), None);
    }

    #[test]
    fn ratio_interval_95_covers_the_ratio_of_skewed_values_or_is_absent() {
        const SAMPLES: usize = 1_000;
        let mut rng = SmallRng::seed_from_u64(5);
        for size in [1, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30] {
            let (mut shown, mut covered) = (0, 0);
            for _ in 0..SAMPLES {
                // The values are log-uniform over three decades and then cubed, so they have a long
                // tail. The second sample is 10 % smaller.
                let mut draw = |factor: f64| -> Sample {
                    let exponent = |rng: &mut SmallRng| rng.random::<f64>().powi(3);
                    (0..size).map(|_| factor * 1000_f64.powf(exponent(&mut rng))).collect()
                };
                let (first, second) = (draw(1.0), draw(0.9));
                let Some(Interval { low, high }) = ratio_interval_95(&first, &second) else {
                    continue;
                };
                shown += 1;
                covered += u32::from(low <= 0.9 && 0.9 <= high);
            }
            assert_eq!(shown, if size < 4 { 0 } else { SAMPLES }, "{size}");
            if shown > 0 {
                let coverage = f64::from(covered) / SAMPLES as f64;
                // The lower bound is three standard errors below 95 %. The upper bound rejects
                // intervals that are too wide to be useful.
                assert!((0.929..=0.99).contains(&coverage), "{size}: {coverage}");
            }
        }
        let (term, early) = (Sample::from(&TERM[..]), Sample::from(&EARLY[..]));
        let Interval { low, high } = ratio_interval_95(&term, &early).unwrap();
        let value = ratio(&term, &early).unwrap();
        assert!(low < value && value < high && low < 1.0 && high > 1.0, "{low} {high}");
        assert_eq!(ratio_interval_95(&Sample::from(&[0.0; 9][..]), &term), None);
    }

    #[test]
    fn ratio_of_pairs_interval_covers_skewed_values_or_is_absent() {
        const SAMPLES: usize = 1_000;
        let mut rng = SmallRng::seed_from_u64(6);
        for size in [1, 2, 3, 4, 5, 6, 7, 8, 10, 15, 20, 30] {
            let (mut shown, mut covered) = (0, 0);
            for _ in 0..SAMPLES {
                // The speed of the machine varies over three decades between rounds. The ratios
                // have a long tail, and their median is 1000^(1/8).
                let pairs: Vec<(f64, f64)> = (0..size)
                    .map(|_| {
                        let speed = 1000_f64.powf(rng.random());
                        (speed, speed * 1000_f64.powf(rng.random::<f64>().powi(3)))
                    })
                    .collect();
                let Some(Interval { low, high }) = Ratio::of_pairs(pairs).unwrap().interval else {
                    continue;
                };
                let median = 1000_f64.powf(0.125);
                shown += 1;
                covered += u32::from(low <= median && median <= high);
            }
            assert_eq!(shown, if size < 6 { 0 } else { SAMPLES }, "{size}");
            if shown > 0 {
                let coverage = f64::from(covered) / SAMPLES as f64;
                // The lower bound is three standard errors below 95 %. The upper bound is high,
                // because the interval of the smallest samples covers 96.9 % or more.
                assert!((0.929..=0.999).contains(&coverage), "{size}: {coverage}");
            }
        }
    }

    #[test]
    fn ratio_of_pairs_compares_within_a_round() {
        // The machine gets slower from round to round. The ratio of the two medians is not 3, but
        // the ratio of each round is 3, except for one round.
        let pairs =
            [(10.0, 30.0), (20.0, 40.0), (200.0, 600.0), (15.0, 45.0), (30.0, 90.0), (1.0, 3.0)];
        let interval = Some(Interval { low: 2.0, high: 3.0 });
        assert_eq!(Ratio::of_pairs(pairs), Some(Ratio { value: 3.0, interval }));
        let few = Ratio::of_pairs(pairs.into_iter().take(5)).unwrap();
        assert_eq!(few, Ratio { value: 3.0, interval: None });
        // Rounds without a finite ratio must be ignored.
        let ratio = Ratio::of_pairs([(0.0, 1.0), (0.0, 0.0), (2.0, 1.0)]).unwrap();
        assert_eq!(ratio, Ratio { value: 0.5, interval: None });
        assert_eq!(Ratio::of_pairs([(0.0, 1.0)]), None);
        assert_eq!(Ratio::of_pairs([]), None);
    }

    #[test]
    fn ratio_of_three_values_has_no_interval() {
        let [three, four] = [3, 4].map(|n| (1..=n).map(f64::from).collect::<Sample>());
        assert_eq!(Ratio::between(&three, &three), Some(Ratio { value: 1.0, interval: None }));
        let ratio = Ratio::between(&four, &four).unwrap();
        assert_eq!(ratio.interval, ratio_interval_95(&four, &four));
        assert_eq!(ratio.interval, Some(Interval { low: 0.25, high: 4.0 }));
        assert_eq!(Ratio::between(&four, &Sample::default()), None);
    }
}
