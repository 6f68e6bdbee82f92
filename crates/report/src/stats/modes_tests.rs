//! Compares the dip with that of the Python package diptest 0.12.0, which contains the code of R's
//! diptest. Also measures how often the test gives the wrong result.

use super::*;

fn of(values: &[f64]) -> f64 {
    dip(Sample::from(values).sorted())
}

fn check(values: &[f64], expected: f64) {
    assert!((of(values) - expected).abs() < 1e-12, "{} is not {expected}", of(values));
}

#[test]
fn dip_statistic_of_known_samples() {
    check(&[9.0, 4.0, 5.0, 2.0, 4.5, 7.0, 5.5, 4.2], 0.0625);
    let two = [1.0, 1.01, 1.02, 1.03, 1.05, 5.0, 5.01, 5.02, 5.04, 5.06];
    check(&two, 0.246_259_351_620_947_64);
    let squares: Vec<f64> = (0..20).map(|i| f64::from(i * i)).collect();
    check(&squares, 0.025);
    let modular: Vec<f64> = (0..40).map(|i| f64::from(i * 37 % 101).powf(1.5)).collect();
    check(&modular, 0.021_190_500_057_431_55);
    let other: Vec<f64> = (0..49).map(|i| f64::from(i * i % 101) + 0.001 * f64::from(i)).collect();
    check(&other, 0.044_838_022_690_851_01);
    // Equal steps are as close to the uniform distribution as a step function can be.
    let even: Vec<f64> = (1..=10).map(f64::from).collect();
    check(&even, 0.05);
    assert_eq!((of(&[]), of(&[3.0]), of(&[3.0; 4])), (0.0, 0.5, 0.125));
    // Two distinct values, each with half of the sample, have the largest possible dip.
    check(&[1.0, 1.0, 1.0, 2.0, 2.0, 2.0], 0.25);
}

/// Draws a normally distributed number by the method of Box and Muller (1958).
fn normal(rng: &mut SmallRng) -> f64 {
    let (a, b): (f64, f64) = (1.0 - rng.random::<f64>(), rng.random());
    (-2.0 * a.ln()).sqrt() * (2.0 * std::f64::consts::PI * b).cos()
}

/// Draws `rounds` samples of `size` values. Returns how many of them have a p-value below 0.05.
fn flagged(size: usize, rounds: u32, mut draw: impl FnMut(&mut SmallRng) -> f64) -> u32 {
    let mut rng = SmallRng::seed_from_u64(11);
    let mut test = DipTest::new(1);
    (0..rounds)
        .map(|_| {
            let sample: Sample = (0..size).map(|_| draw(&mut rng)).collect();
            u32::from(test.test(&sample).unwrap().p < 0.05)
        })
        .sum()
}

#[test]
fn dip_test_seldom_flags_one_mode() {
    for size in [5, 20, 50] {
        // About 5 % of 1,000 uniform samples must have a low p-value. Three standard errors are 2.1
        // %.
        let uniform = flagged(size, 1000, |rng| rng.random());
        assert!((20..=75).contains(&uniform), "{size}: {uniform}");
        // Two distributions that are typical of measurements: a bell curve, and a distribution with
        // a long tail.
        let bell = flagged(size, 1000, normal);
        assert!(bell <= 40, "{size}: {bell}");
        let tail = flagged(size, 1000, |rng| (0.5 * normal(rng)).exp());
        assert!(tail <= 40, "{size}: {tail}");
    }
}

#[test]
fn dip_test_finds_two_modes() {
    let mut upper = false;
    let two = |rng: &mut SmallRng| {
        upper = !upper;
        normal(rng) + if upper { 8.0 } else { 0.0 }
    };
    let found = flagged(20, 500, two);
    assert!(found >= 475, "{found}");
    let sample: Sample = [3.1, 3.2, 3.0, 5.9, 6.0, 6.1, 5.8, 3.1].into_iter().collect();
    assert!(DipTest::new(1).test(&sample).unwrap().p < 0.05);
    let halves = halves(&sample).unwrap();
    assert_eq!((halves.low_count, halves.high_count), (4, 4));
    assert!((halves.low - 3.1).abs() < 1e-12 && (halves.high - 5.95).abs() < 1e-12);
}

#[test]
fn dip_test_of_few_or_equal_values_flags_nothing() {
    let three: Sample = [1.0, 1.0, 5.0].into_iter().collect();
    assert_eq!(DipTest::new(1).test(&three), None);
    assert_eq!(halves(&Sample::default()), None);
    assert_eq!(halves(&[2.0, 2.0].into_iter().collect()), None);
    let same: Sample = [2.0; 20].into_iter().collect();
    assert_eq!(DipTest::new(1).test(&same).unwrap().p, 1.0);
}
