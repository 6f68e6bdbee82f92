//! Size of the difference between two samples, and its certainty.

use rand::Rng;
use serde::{Deserialize, Serialize};

use super::ranks::critical_u;
use super::{Interval, RESAMPLES, Sample};

/// Pairs that all resamples of an interval may have together: about a second of work.
const PAIRS: usize = 100_000_000;
/// Minimum number of resamples for an interval.
const FEWEST: usize = 200;

/// A ratio of two samples, with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// The second sample relative to the first: 1.02 is 2 % more.
    pub value: f64,
    /// 95 % bootstrap interval of the ratio.
    pub interval: Interval,
}

/// Returns the shift from one sample to the other by Hodges and Lehmann (1963): the median of all
/// differences between a value of the second and one of the first. R:
/// `wilcox.test(second, first, conf.int = TRUE)`, for samples without ties. Returns `None` if one
/// is empty.
#[must_use]
pub fn shift(first: &Sample, second: &Sample) -> Option<f64> {
    median_of_pairs(first.sorted(), second.sorted(), |a, b| b - a)
}

/// Returns the median of all quotients of a value of the second sample and one of the first.
/// Returns `None` if one is empty or has values that are not above zero.
#[must_use]
pub fn ratio(first: &Sample, second: &Sample) -> Option<f64> {
    if first.min()? <= 0.0 || second.min()? <= 0.0 {
        return None;
    }
    median_of_pairs(first.sorted(), second.sorted(), |a, b| b / a)
}

/// Returns the 95 % interval of [`ratio`]: the ratios that a Mann-Whitney test of the samples would not reject.
/// It covers 95 % or more where the second sample is distributed as the first one times a constant, whatever
/// that distribution is. Returns `None` where no p-value can be below 5 % (3 values each), or a value is not
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

/// [`ratio`] with a percentile bootstrap interval: both samples are drawn anew each time.
#[must_use]
pub fn ratio_95<R: Rng + ?Sized>(first: &Sample, second: &Sample, rng: &mut R) -> Option<Ratio> {
    let value = ratio(first, second)?;
    let pairs = first.len().saturating_mul(second.len()).max(1);
    let resamples = (PAIRS / pairs).clamp(FEWEST, RESAMPLES);
    let (mut one, mut other) = (Vec::new(), Vec::new());
    let results: Sample = (0..resamples)
        .filter_map(|_| {
            draw(first.sorted(), &mut one, rng);
            draw(second.sorted(), &mut other, rng);
            median_of_pairs(&one, &other, |a, b| b / a)
        })
        .collect();
    let interval = Interval { low: results.percentile(2.5)?, high: results.percentile(97.5)? };
    Some(Ratio { value, interval })
}

/// Returns the ratio of figures that were measured in pairs, first and second in the same round:
/// the median of the rounds' quotients (second by first), with a percentile bootstrap interval over
/// rounds. A disturbance of a whole round affects both figures, so it cancels out. Rounds whose
/// quotient is not finite are ignored. Returns `None` if no round is left.
#[must_use]
pub fn paired_ratio_95<R: Rng + ?Sized>(
    pairs: impl IntoIterator<Item = (f64, f64)>,
    rng: &mut R,
) -> Option<Ratio> {
    let quotients: Sample = pairs.into_iter().map(|(first, second)| second / first).collect();
    let interval = quotients.bootstrap_95(rng, RESAMPLES, Sample::median)?;
    Some(Ratio { value: quotients.median()?, interval })
}

fn draw<R: Rng + ?Sized>(from: &[f64], to: &mut Vec<f64>, rng: &mut R) {
    // A `u64`, so that the draws are the same on machines of any word size.
    let size = from.len() as u64;
    to.clear();
    to.extend((0..size).map(|_| from[rng.random_range(0..size) as usize]));
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
    use rand::SeedableRng as _;
    use rand::rngs::SmallRng;

    use super::*;

    const TERM: [f64; 10] = [0.80, 0.83, 1.89, 1.04, 1.45, 1.38, 1.91, 1.64, 0.73, 1.46];
    const EARLY: [f64; 5] = [1.15, 0.88, 0.90, 0.74, 1.21];

    #[test]
    fn hodges_and_lehmann() {
        let (term, early) = (Sample::from(&TERM[..]), Sample::from(&EARLY[..]));
        // R: wilcox.test(TERM, EARLY, conf.int = TRUE): difference in location 0.305.
        assert!((shift(&early, &term).unwrap() - 0.305).abs() < 1e-12);
        // NumPy: median(divide.outer(EARLY, TERM)).
        assert!((ratio(&term, &early).unwrap() - 0.762_738_055_462_746_3).abs() < 1e-12);
        let odd = Sample::from(&[1.0, 2.0, 4.0][..]);
        assert_eq!(ratio(&odd, &odd), Some(1.0));
        assert_eq!(shift(&odd, &Sample::default()), None);
        assert_eq!(ratio(&Sample::from(&[0.0][..]), &odd), None);
        assert_eq!(ratio(&odd, &Sample::from(&[-1.0][..])), None);
    }

    #[test]
    fn the_interval_covers_what_is_true() {
        let mut rng = SmallRng::seed_from_u64(3);
        let rounds = 100;
        let mut covered = 0;
        for _ in 0..rounds {
            // Uniform around 100 and 110, so the ratio of the medians is 1.1.
            let mut draw = |middle: f64| -> Sample {
                (0..10).map(|_| middle * rng.random_range(0.9..1.1)).collect()
            };
            let (first, second) = (draw(100.0), draw(110.0));
            let ratio = ratio_95(&first, &second, &mut rng).unwrap();
            let Interval { low, high } = ratio.interval;
            assert!(low <= ratio.value && ratio.value <= high, "{ratio:?}");
            covered += u32::from(low <= 1.1 && 1.1 <= high);
        }
        // Expected are 95 of 100. Percentile intervals of small samples cover a little less.
        assert!((86..=99).contains(&covered), "{covered} of {rounds}");
    }

    #[test]
    fn ratio_interval_95_covers_the_ratio_of_skewed_values_or_is_not_shown() {
        const SAMPLES: usize = 1_000;
        let mut rng = SmallRng::seed_from_u64(5);
        for size in [1, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30] {
            let (mut shown, mut covered) = (0, 0);
            for _ in 0..SAMPLES {
                // Log-uniform over three decades, cubed: a long tail to the right. The second is 10 % less.
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
                // Three standard errors below 95 %, and not so wide that it says nothing.
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
    fn pairs_are_compared_within_their_round() {
        let mut rng = SmallRng::seed_from_u64(1);
        // A machine that gets slower by the round: the medians' quotient is 40 / 20, each round's is 3
        // but for one of 2.
        let pairs = [(10.0, 30.0), (20.0, 40.0), (200.0, 600.0), (15.0, 45.0), (30.0, 90.0)];
        let ratio = paired_ratio_95(pairs, &mut rng).unwrap();
        assert_eq!(ratio, Ratio { value: 3.0, interval: Interval { low: 2.0, high: 3.0 } });
        // Rounds that say nothing do not count.
        let ratio = paired_ratio_95([(0.0, 1.0), (0.0, 0.0), (2.0, 1.0)], &mut rng).unwrap();
        assert_eq!(ratio, Ratio { value: 0.5, interval: Interval { low: 0.5, high: 0.5 } });
        assert_eq!(paired_ratio_95([(0.0, 1.0)], &mut rng), None);
        assert_eq!(paired_ratio_95([], &mut rng), None);
    }

    #[test]
    fn the_same_seed_gives_the_same_interval() {
        let (term, early) = (Sample::from(&TERM[..]), Sample::from(&EARLY[..]));
        let of = |seed| ratio_95(&term, &early, &mut SmallRng::seed_from_u64(seed));
        assert_eq!(of(1), of(1));
        assert_ne!(of(1), of(2));
    }
}
