//! Simulations that determine how often the interval contains the mean. The seeds are fixed, so the
//! results are the same in every run.

use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};

use super::*;

/// Number of samples for each size and distribution. The standard error of a coverage of 95 % is
/// 0.28 %.
const SAMPLES: usize = 6_000;

fn exponential(rng: &mut SmallRng) -> f64 {
    -(1.0 - rng.random::<f64>()).ln()
}

fn normal(rng: &mut SmallRng) -> f64 {
    let angle = std::f64::consts::TAU * rng.random::<f64>();
    (2.0 * exponential(rng)).sqrt() * angle.cos()
}

/// Name, mean, generator, and minimum coverage of a population.
type Population = (&'static str, f64, fn(&mut SmallRng) -> f64, f64);

const POPULATIONS: [Population; 8] = [
    ("normal", 10.0, |rng| 10.0 + normal(rng), 0.945),
    ("uniform", 0.5, |rng| rng.random(), 0.945),
    // The next four populations have a skewness of 1, 1.41, -1.41 and 2.
    ("gamma 4", 4.0, |rng| (0..4).map(|_| exponential(rng)).sum(), 0.945),
    ("gamma 2", 2.0, |rng| exponential(rng) + exponential(rng), 0.945),
    ("gamma 2, to the left", -2.0, |rng| -exponential(rng) - exponential(rng), 0.945),
    ("exponential", 1.0, exponential, 0.94),
    // The next two populations have a skewness of 1.75 and 6.18.
    ("log-normal 0.5", 1.133_148_453_066_826_3, |rng| (0.5 * normal(rng)).exp(), 0.94),
    ("log-normal 1", 1.648_721_270_700_128_2, |rng| normal(rng).exp(), 0.905),
];

#[test]
fn mean_95_covers_the_mean_of_skewed_values() {
    let mut rng = SmallRng::seed_from_u64(43);
    let mut wrong = Vec::new();
    for (name, mean, draw, least) in POPULATIONS {
        for size in [3, 4, 5, 6, 7, 8, 10, 12, 15, 20, 25, 30] {
            let covered = (0..SAMPLES).filter(|_| {
                let sample: Sample = (0..size).map(|_| draw(&mut rng)).collect();
                let Interval { low, high } = sample.mean_95().expect("values differ");
                low <= mean && mean <= high
            });
            let coverage = covered.count() as f64 / SAMPLES as f64;
            println!("{name}, {size}: {coverage:.3}");
            // The upper bound rejects intervals whose coverage is high because they are too wide.
            if !(least..=0.99).contains(&coverage) {
                wrong.push(format!("{name}, {size} values: {coverage:.3}, and {least} is wanted"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn mean_95_covers_shares_of_rare_events_if_present() {
    let mut rng = SmallRng::seed_from_u64(44);
    for share in [0.05, 0.1, 0.3, 0.5] {
        for size in 3..=30 {
            let (mut shown, mut covered) = (0, 0);
            for _ in 0..1_000 {
                let sample: Sample =
                    (0..size).map(|_| f64::from(u8::from(rng.random::<f64>() < share))).collect();
                let Some(Interval { low, high }) = sample.mean_95() else { continue };
                shown += 1;
                covered += u32::from(low <= share && share <= high);
            }
            let coverage = f64::from(covered) / f64::from(shown);
            assert!(coverage > 0.94, "{share}, {size} values: {coverage}");
        }
    }
}

#[test]
fn mean_95_of_many_values_is_the_t_interval() {
    let values: Sample = (0..1_000).map(f64::from).collect();
    let Interval { low, high } = values.mean_95().unwrap();
    // The mean is 499.5. The standard error is 288.82 / sqrt(1000) = 9.133, qt(.975, 999) is
    // 1.9623, and the interval is widened by the factor 1.0012.
    assert!((low - 481.556).abs() < 0.01 && (high - 517.444).abs() < 0.01, "{low} to {high}");
}

#[test]
fn mean_95_is_wider_towards_the_long_tail() {
    let right: Sample = [1.0, 1.1, 1.2, 1.1, 1.0, 4.0].into_iter().collect();
    let mean = right.mean().unwrap();
    let Interval { low, high } = right.mean_95().unwrap();
    assert!(high - mean > 1.3 * (mean - low), "{low} {mean} {high}");
    let left: Sample = right.sorted().iter().map(|value| -value).collect();
    let mirrored = left.mean_95().unwrap();
    assert!((mirrored.low + high).abs() < 1e-9 && (mirrored.high + low).abs() < 1e-9);
}

#[test]
fn mean_95_is_absent_if_the_spread_is_unknown() {
    let none: [&[f64]; 5] = [&[], &[1.0], &[1.0, 2.0], &[0.1, 0.1, 0.1], &[0.0; 30]];
    for values in none {
        assert_eq!(Sample::from(values).mean_95(), None, "{values:?}");
    }
    assert_eq!(Sample::from(&[f64::MAX, -f64::MAX, 0.0][..]).mean_95(), None);
}

#[test]
fn quantile_of_t_has_no_step_after_the_table() {
    // The expected values are qt(.975, c(31, 60, 1000)) of R.
    for (freedom, expected) in [(31, 2.039_513), (60, 2.000_298), (1_000, 1.962_339)] {
        assert!((quantile_of_t(freedom) - expected).abs() < 2e-6, "{freedom}");
    }
    assert!((2..100).all(|freedom| quantile_of_t(freedom) < quantile_of_t(freedom - 1)));
}
