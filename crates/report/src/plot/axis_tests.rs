use super::*;

fn linear(low: f64, high: f64, unit: &str) -> Scale {
    let fit = Fit {
        extent: (low, high),
        zeros: false,
        from_zero: true,
        whole_ticks: true,
        spacing: 58.0,
    };
    Scale::new(&Axis::new("t", unit), fit, 400.0, 0.0).unwrap()
}

fn log(low: f64, high: f64, unit: &str, zeros: bool) -> Scale {
    let fit =
        Fit { extent: (low, high), zeros, from_zero: false, whole_ticks: true, spacing: 58.0 };
    Scale::new(&Axis::new("t", unit).log(), fit, 400.0, 0.0).unwrap()
}

fn labels(scale: &Scale) -> Vec<&str> {
    scale.ticks.iter().map(|tick| tick.label.as_str()).filter(|label| !label.is_empty()).collect()
}

#[test]
fn axis_linear_ticks_are_round_and_share_a_prefix() {
    let rate = linear(30.0, 11_700.0, "/s");
    assert_eq!(labels(&rate), ["0", "2", "4", "6", "8", "10", "12"]);
    assert_eq!(rate.title, "t (k/s)");
    let time = linear(0.001, 0.0042, "s");
    assert_eq!(labels(&time), ["0", "1", "2", "3", "4", "5"]);
    assert_eq!(time.title, "t (ms)");
    assert_eq!(labels(&linear(0.0, 1.0, "")), ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
    assert_eq!(labels(&linear(-3.0, 3.0, "%")), ["-3", "-2", "-1", "0", "1", "2", "3"]);
    assert_eq!(labels(&linear(0.0, 40_000.0, "")), ["0", "10,000", "20,000", "30,000", "40,000"]);
    assert_eq!(linear(0.0, 900.0, "/s").title, "t (1/s)");
}

#[test]
fn axis_logarithmic_ticks_are_decades() {
    let rate = log(30.0, 11_700.0, "/s", false);
    assert_eq!(labels(&rate), ["100", "1 k", "10 k"]);
    assert_eq!(rate.title, "t (1/s, log scale)");
    assert_eq!(
        labels(&log(0.002, 0.09, "s", false)),
        ["2 ms", "5 ms", "10 ms", "20 ms", "50 ms", "100 ms"]
    );
    assert_eq!(labels(&log(0.01, 5e4, "s", false))[4..], ["100 s", "1,000 s", "10,000 s"]);
    assert_eq!(labels(&log(0.2, 50.0, "%", false))[..3], ["0.2 %", "0.5 %", "1 %"]);
    // The pixel position of a decade and that of its tick may differ by at most half a pixel.
    assert!(
        (rate.at(1000.0) - rate.ticks.iter().find(|tick| tick.label == "1 k").unwrap().at).abs()
            < 0.5
    );
}

#[test]
fn axis_with_log_scale_has_zeros_on_its_edge() {
    let scale = log(12.0, 5000.0, "/s", true);
    assert_eq!(labels(&scale), ["0", "10", "100", "1 k"]);
    assert_eq!(scale.at(0.0), 400.0);
    assert_eq!(scale.at(-5.0), 400.0);
    assert!(scale.at(12.0) < 340.0);
}

#[test]
fn axis_of_any_extent_has_a_few_ticks_inside_the_pixels() {
    let sizes = [0.0, 1e-100, 1e-12, 0.1, 0.3, 1.0, 7.0, 999.999, 1e6, 1e15, 1e99, 1e100];
    for low in sizes {
        for high in sizes.into_iter().filter(|high| *high >= low) {
            for (low, high) in [(low, high), (-high, -low), (-low, high)] {
                check(&linear(low, high, "/s"), &format!("linear {low} {high}"));
                if low > 0.0 {
                    check(&log(low, high, "s", false), &format!("log {low} {high}"));
                    check(&log(low, high, "B", true), &format!("log with zeros {low} {high}"));
                }
            }
        }
    }
}

fn check(scale: &Scale, what: &str) {
    let labels = labels(scale);
    assert!((2..=14).contains(&labels.len()), "{what}: {labels:?}");
    let mut distinct = labels.clone();
    distinct.dedup();
    assert_eq!(distinct, labels, "{what}");
    for tick in &scale.ticks {
        assert!((-0.01..=400.01).contains(&tick.at), "{what}: {tick:?}");
    }
}

#[test]
fn axis_rejects_impossible_ranges() {
    let fit = Fit {
        extent: (1.0, 2.0),
        zeros: false,
        from_zero: false,
        whole_ticks: false,
        spacing: 58.0,
    };
    for axis in [
        Axis::new("t", "s").range(1.0, 1.0),
        Axis::new("t", "s").range(2.0, 1.0),
        Axis::new("t", "s").range(f64::NAN, 1.0),
        Axis::new("t", "s").range(0.0, f64::INFINITY),
        Axis::new("t", "s").log().range(0.0, 1.0),
    ] {
        assert!(
            matches!(Scale::new(&axis, fit, 0.0, 1.0), Err(PlotError::Range { .. })),
            "{axis:?}"
        );
    }
}
