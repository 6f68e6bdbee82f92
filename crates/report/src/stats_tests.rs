//! Tests with known samples. The expected values were computed by hand. The comments have the R
//! expressions that give the same values.

use super::*;

/// In R: x <- c(2, 4, 4, 4, 5, 5, 7, 9)
const X: [f64; 8] = [9.0, 4.0, 5.0, 2.0, 4.0, 7.0, 5.0, 4.0];

fn sample(values: &[f64]) -> Sample {
    values.into()
}

fn close(a: Option<f64>, b: f64) {
    let a = a.expect("a value");
    assert!((a - b).abs() <= 1e-12 * b.abs().max(1.0), "{a} is not {b}");
}

#[test]
fn sample_location_and_spread_of_known_values() {
    let x = sample(&X);
    close(x.mean(), 5.0); // 40 / 8
    close(x.median(), 4.5); // mean of the 4th and 5th: 4 and 5
    close(x.min(), 2.0);
    close(x.max(), 9.0);
    // sd(x): the squared deviations from 5 are 9 1 1 1 0 0 4 16. Their sum is 32, and it is divided
    // by 7.
    close(x.standard_deviation(), (32.0_f64 / 7.0).sqrt());
    // mad(x, constant = 1): |x - 4.5|, sorted, is .5 .5 .5 .5 .5 2.5 2.5 4.5. The two middle values
    // are .5 and .5.
    close(x.mad(), 0.5);
    // 8 / (1/2 + 3/4 + 2/5 + 1/7 + 1/9) = 8 / (2399/1260)
    close(x.harmonic_mean(), 8.0 * 1260.0 / 2399.0);
}

#[test]
fn percentile_is_of_type_7() {
    let x = sample(&X);
    // quantile(x, c(0, .1, .25, .75, .9, 1), type = 7): h = 7p is 0, 0.7, 1.75, 5.25, 6.3 and 7.
    close(x.percentile(0.0), 2.0);
    close(x.percentile(10.0), 3.4);
    close(x.percentile(25.0), 4.0);
    close(x.percentile(75.0), 5.5);
    close(x.percentile(90.0), 7.6);
    close(x.percentile(100.0), 9.0);
}

#[test]
fn percentile_by_nearest_rank() {
    // The textbook example for 15 20 35 40 50: the ranks at 5, 30, 40, 50 and 100 % are 1, 2, 2, 3
    // and 5.
    let x = sample(&[15.0, 20.0, 35.0, 40.0, 50.0]);
    for (p, expected) in
        [(0.0, 15.0), (5.0, 15.0), (30.0, 20.0), (40.0, 20.0), (50.0, 35.0), (100.0, 50.0)]
    {
        close(x.nearest_rank(p), expected);
    }
    // Whole ranks must stay whole, although p * n / 100 is not exact in binary.
    let hundred: Sample = (1..=100).map(f64::from).collect();
    for p in 1..=100 {
        close(hundred.nearest_rank(f64::from(p)), f64::from(p));
    }
    let thousand: Sample = (1..=1000).map(f64::from).collect();
    close(thousand.nearest_rank(99.9), 999.0);
}

#[test]
fn sample_without_values_has_no_statistics() {
    let empty = Sample::default();
    for value in [
        empty.min(),
        empty.max(),
        empty.mean(),
        empty.harmonic_mean(),
        empty.standard_deviation(),
        empty.median(),
        empty.percentile(50.0),
        empty.nearest_rank(50.0),
        empty.mad(),
    ] {
        assert_eq!(value, None);
    }
    assert!(empty.ecdf().is_empty());
    assert_eq!(empty.summary(), None);
    let x = sample(&X);
    for p in [-0.1, 100.1, f64::NAN, f64::INFINITY] {
        assert_eq!(x.percentile(p), None);
        assert_eq!(x.nearest_rank(p), None);
    }
    assert_eq!(sample(&[1.0]).standard_deviation(), None);
    assert_eq!(sample(&[0.0, 1.0]).harmonic_mean(), None);
}

#[test]
fn sample_of_one_value_has_no_spread() {
    let one = sample(&[3.5]);
    let summary = one.summary().unwrap();
    assert_eq!(
        (summary.min, summary.median, summary.p99, summary.max, summary.mad),
        (3.5, 3.5, 3.5, 3.5, 0.0)
    );
    assert_eq!(one.ecdf(), [(3.5, 1.0)]);
}

#[test]
fn sample_leaves_out_and_counts_values_that_are_not_finite() {
    let x = sample(&[f64::NAN, 1.0, f64::INFINITY, 3.0, f64::NEG_INFINITY]);
    assert_eq!((x.len(), x.left_out()), (2, 3));
    close(x.mean(), 2.0);
}

#[test]
fn sample_of_the_largest_values_does_not_overflow() {
    let x = sample(&[f64::MAX, f64::MAX, -f64::MAX]);
    assert!(x.mean().unwrap().is_finite());
    assert_eq!(sample(&[f64::MAX, f64::MAX]).mean(), Some(f64::MAX));
    assert!(sample(&[-f64::MAX, f64::MAX]).percentile(25.0).unwrap().is_finite());
}

#[test]
fn ecdf_has_one_step_per_distinct_value() {
    // R: ecdf(x)(unique(sort(x)))
    assert_eq!(
        sample(&X).ecdf(),
        [(2.0, 0.125), (4.0, 0.5), (5.0, 0.75), (7.0, 0.875), (9.0, 1.0)]
    );
}

#[test]
fn sample_of_durations_is_in_seconds() {
    let x = Sample::from([std::time::Duration::from_millis(1500)].as_slice());
    assert_eq!(x.sorted(), [1.5]);
}
