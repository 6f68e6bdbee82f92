//! Rates over time from events, for throughput plots.

/// Counts events in windows of `width` seconds from `start` to `end`. Returns, for each window, its
/// middle in seconds and its rate in events per second. The last window may be shorter; its rate is
/// computed with its real length. Events outside of this time and values that are not finite are
/// ignored.
///
/// Returns `None` if the total time or the width is not a positive number, or if there would be
/// more than [`MAX_WINDOWS`] windows.
#[must_use]
pub fn rate(events: &[f64], start: f64, end: f64, width: f64) -> Option<Vec<(f64, f64)>> {
    sum(events.iter().map(|&at| (at, 1.0)), start, end, width)
}

/// Like [`rate`], for events with a weight, such as (time in seconds, bytes). The rate of a window
/// is the sum of the weights per second. Weights that are not finite are ignored.
#[must_use]
pub fn sum(
    events: impl IntoIterator<Item = (f64, f64)>,
    start: f64,
    end: f64,
    width: f64,
) -> Option<Vec<(f64, f64)>> {
    let span = end - start;
    let positive = |value: f64| value.is_finite() && value > 0.0;
    if !positive(span) || !positive(width) || !start.is_finite() {
        return None;
    }
    // The subtraction corrects rounding errors. For example, the computed quotient 0.7 / 0.1 is
    // 6.999999999999999. Other quotients are slightly too large, which would add an empty window.
    let windows = (span / width - 1e-9).ceil().max(1.0);
    if windows > MAX_WINDOWS as f64 {
        return None;
    }
    let windows = windows as usize;
    let mut sums = vec![0.0; windows];
    for (at, weight) in events {
        if at >= start && at < end && weight.is_finite() {
            let window = ((at - start) / width) as usize;
            sums[window.min(windows - 1)] += weight;
        }
    }
    let points = sums.into_iter().enumerate().map(|(window, sum)| {
        let from = start + window as f64 * width;
        let length = width.min(end - from);
        (from + length / 2.0, sum / length)
    });
    Some(points.collect())
}

/// Maximum number of windows. A larger number indicates a mistake in the arguments.
pub const MAX_WINDOWS: usize = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeline_rate_is_the_count_divided_by_the_width() {
        let points =
            rate(&[0.0, 0.1, 0.49, 0.5, 0.99, 1.0, -1.0, f64::NAN], 0.0, 1.0, 0.5).unwrap();
        assert_eq!(points, [(0.25, 6.0), (0.75, 4.0)]);
    }

    #[test]
    fn timeline_last_window_may_be_shorter() {
        let points = rate(&[0.2, 1.1, 1.2], 0.0, 1.25, 1.0).unwrap();
        assert_eq!(points, [(0.5, 1.0), (1.125, 8.0)]);
    }

    #[test]
    fn timeline_has_no_window_of_length_zero_by_rounding() {
        for tenths in 1..100 {
            let end = f64::from(tenths) / 10.0;
            let points = rate(&[], 0.0, end, 0.1).unwrap();
            assert_eq!(points.len(), tenths as usize, "{end}");
            assert!(points.iter().all(|point| point.1 == 0.0));
        }
    }

    #[test]
    fn timeline_sums_weights() {
        let points = sum([(0.1, 100.0), (0.2, 50.0), (0.3, f64::NAN)], 0.0, 2.0, 1.0).unwrap();
        assert_eq!(points, [(0.5, 150.0), (1.5, 0.0)]);
    }

    #[test]
    fn timeline_of_an_impossible_span_is_none() {
        for (start, end, width) in [
            (0.0, 0.0, 1.0),
            (1.0, 0.0, 1.0),
            (0.0, 1.0, 0.0),
            (0.0, 1.0, -1.0),
            (0.0, 1.0, f64::NAN),
            (0.0, f64::INFINITY, 1.0),
            (f64::NEG_INFINITY, 0.0, 1.0),
            (0.0, 1e12, 1e-3),
        ] {
            assert_eq!(rate(&[0.5], start, end, width), None, "{start} {end} {width}");
        }
    }
}
