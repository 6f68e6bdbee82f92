//! Tests with known samples. The expected values are those of SciPy 1.17.1 (`mannwhitneyu`,
//! `wilcoxon`, two-sided). The examples of R's `wilcox.test` also have the values that Hollander
//! and Wolfe state.

use super::*;

fn sample(values: &[f64]) -> Sample {
    values.into()
}

fn check(test: Option<Test>, statistic: f64, p: f64, exact: bool) {
    let test = test.expect("a test");
    assert_eq!((test.statistic, test.exact), (statistic, exact), "{test:?}");
    assert!((test.p - p).abs() < 1e-12, "{} is not {p}", test.p);
}

/// Hollander and Wolfe 1973, p. 69: permeability of the human chorioamnion at term and at 12 to 26
/// weeks.
const TERM: [f64; 10] = [0.80, 0.83, 1.89, 1.04, 1.45, 1.38, 1.91, 1.64, 0.73, 1.46];
const EARLY: [f64; 5] = [1.15, 0.88, 0.90, 0.74, 1.21];
/// The same book, p. 29: a depression scale before and after therapy, in thousandths.
const BEFORE: [f64; 9] = [1830.0, 500.0, 1620.0, 2480.0, 1680.0, 1880.0, 1550.0, 3060.0, 1300.0];
const AFTER: [f64; 9] = [878.0, 647.0, 598.0, 2050.0, 1060.0, 1290.0, 1060.0, 3140.0, 1290.0];

#[test]
fn mann_whitney_is_exact_for_small_samples_without_ties() {
    // The expected value is mannwhitneyu(TERM, EARLY, method="exact") of SciPy. R gives W = 35 and
    // p = 0.1272 for one side.
    let (term, early) = (sample(&TERM), sample(&EARLY));
    check(mann_whitney(&term, &early), 35.0, 0.254_412_254_412_254_4, true);
    check(mann_whitney(&early, &term), 15.0, 0.254_412_254_412_254_4, true);
    // There are 20 ways to choose 3 of 6 values, and 2 of them are as extreme as this one.
    check(mann_whitney(&sample(&[1.0, 2.0, 3.0]), &sample(&[4.0, 5.0, 6.0])), 0.0, 0.1, true);
    let fast = (0..49).map(|i| f64::from(i * i % 101) + 0.001 * f64::from(i)).collect();
    let slow =
        (0..49).map(|i| f64::from(i * 7 % 97) + 20.0 + 0.001 * f64::from(i) + 0.0005).collect();
    check(mann_whitney(&fast, &slow), 868.0, 0.017_858_427_894_344_248, true);
}

/// Computes the p-value by brute force, from all ways to choose the values of the first sample.
fn permuted(first: &[f64], second: &[f64]) -> f64 {
    let all: Vec<f64> = first.iter().chain(second).copied().collect();
    let rank = |value: f64| {
        let less = all.iter().filter(|other| **other < value).count() as f64;
        let equal = all.iter().filter(|other| **other == value).count() as f64;
        less + (equal + 1.0) / 2.0
    };
    let seen: f64 = first.iter().map(|value| rank(*value)).sum();
    let (mut ways, mut lower, mut upper) = (0.0, 0.0, 0.0);
    for chosen in 0_u32..1 << all.len() {
        if chosen.count_ones() as usize != first.len() {
            continue;
        }
        let taken = all.iter().enumerate().filter(|(index, _)| chosen >> index & 1 == 1);
        let sum: f64 = taken.map(|(_, value)| rank(*value)).sum();
        ways += 1.0;
        lower += f64::from(u8::from(sum <= seen));
        upper += f64::from(u8::from(sum >= seen));
    }
    (2.0 * f64::min(lower, upper) / ways).min(1.0)
}

#[test]
fn mann_whitney_is_exact_for_small_samples_with_ties() {
    let first = [1.0, 2.0, 2.0, 3.0, 3.0, 3.0, 4.0, 5.0];
    let second = [2.0, 3.0, 4.0, 4.0, 5.0, 6.0, 6.0, 7.0, 8.0];
    let p = permuted(&first, &second);
    check(mann_whitney(&sample(&first), &sample(&second)), 13.0, p, true);
    let same = sample(&[5.0; 4]);
    check(mann_whitney(&same, &same), 8.0, 1.0, true);
    // The normal approximation would give 0.047.
    check(mann_whitney(&sample(&[1.0; 3]), &sample(&[2.0; 3])), 0.0, 0.1, true);
    check(mann_whitney(&sample(&[2.0; 3]), &sample(&[1.0, 1.0, 2.0])), 7.5, 0.4, true);
}

#[test]
fn rank_tests_of_few_values_have_a_least_p_value() {
    for (m, n) in [(1_u32, 1_u32), (3, 3), (4, 4), (2, 8), (5, 3), (20, 20)] {
        let low: Sample = (0..m).map(f64::from).collect();
        let high: Sample = (0..n).map(|i| 100.0 + f64::from(i)).collect();
        let p = mann_whitney(&low, &high).unwrap().p;
        let least = least_mann_whitney(m as usize, n as usize);
        assert!((least - p).abs() < 1e-12 * p.max(1e-3), "{m} {n}: {least} {p}");
    }
    assert_eq!((least_mann_whitney(0, 5), least_mann_whitney(3, 3)), (1.0, 0.1));
    for pairs in 1..=20 {
        let p = signed_rank(&vec![1.0; pairs]).unwrap().p;
        assert!((least_signed_rank(pairs) - p).abs() < 1e-15, "{pairs}");
    }
    assert_eq!(least_signed_rank(0), 1.0);
    assert!(least_signed_rank(5) > 0.05 && least_signed_rank(6) < 0.05);
}

#[test]
fn mann_whitney_critical_values_match_published_tables() {
    // The expected values are qwilcox(.025, m, n) of R.
    for (m, n, expected) in [
        (3, 3, None),
        (3, 4, None),
        (3, 5, Some(1)),
        (4, 4, Some(1)),
        (8, 8, Some(14)),
        (20, 20, Some(128)),
    ] {
        assert_eq!(critical_u(m, n), expected, "{m} {n}");
    }
    let (exact, approximate) = (critical_u(49, 49).unwrap(), critical_u(49, 50).unwrap());
    assert!(approximate.abs_diff(exact) < 40, "{exact} {approximate}");
}

#[test]
fn mann_whitney_of_large_samples_uses_the_normal_distribution() {
    // From 50 values on, the p-value is an approximation, which must hardly differ from the exact
    // value.
    let fast: Sample = (0..50).map(f64::from).collect();
    let slow: Sample = (0..49).map(|i| f64::from(i) + 9.5).collect();
    let normal = mann_whitney(&fast, &slow).unwrap();
    let mut fewer = fast.sorted().to_vec();
    fewer.pop();
    let exact = mann_whitney(&sample(&fewer), &slow).unwrap();
    assert!(!normal.exact && exact.exact);
    assert!(normal.p > exact.p && normal.p < 2.0 * exact.p, "{normal:?} {exact:?}");
}

#[test]
fn signed_rank_of_pairs_has_known_p_values() {
    let differences: Vec<f64> = BEFORE.iter().zip(AFTER).map(|(a, b)| a - b).collect();
    // In R, wilcox.test(x, y, paired = TRUE) gives V = 40 and p = 0.03906.
    check(signed_rank(&differences), 40.0, 0.039_062_5, true);
    // The nine values can have signs in 512 ways, and 17 of these give a sum of 38.5 or more. R
    // uses an approximation here, and gives 0.0651.
    let tied = [1.0, 1.0, -2.0, 3.0, 0.0, 4.0, -1.0, 5.0, 6.0, 2.0];
    check(signed_rank(&tied), 38.5, 0.066_406_25, true);
    // If all differences are equal, 2 of the 2^n combinations of signs are as extreme.
    for n in [1, 2, 5, 6, 10] {
        let statistic = f64::from(n * (n + 1) / 2);
        check(signed_rank(&vec![3.0; n as usize]), statistic, 2.0_f64.powi(1 - n).min(1.0), true);
    }
}

#[test]
fn rank_tests_of_empty_samples_have_no_result() {
    let (none, some) = (sample(&[]), sample(&[1.0]));
    assert_eq!(mann_whitney(&none, &some), None);
    assert_eq!(mann_whitney(&some, &none), None);
    assert_eq!(signed_rank(&[]), None);
    assert_eq!(signed_rank(&[0.0, f64::NAN]), None);
    check(mann_whitney(&some, &sample(&[2.0])), 0.0, 1.0, true);
    check(signed_rank(&[3.0]), 1.0, 1.0, true);
}

#[test]
fn holm_correction_has_known_values() {
    // The expected values are p.adjust(c(0.01, 0.04, 0.03, 0.5), "holm") of R.
    let adjusted = holm(&[0.01, 0.04, 0.03, 0.5]);
    for (one, expected) in adjusted.iter().zip([0.04, 0.09, 0.09, 0.5]) {
        assert!((one - expected).abs() < 1e-15, "{adjusted:?}");
    }
    assert_eq!(holm(&[0.9, 0.8]), [1.0, 1.0]);
    assert!(holm(&[]).is_empty());
}
