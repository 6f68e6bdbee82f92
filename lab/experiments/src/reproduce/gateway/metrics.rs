//! Definitions of the gateway experiment's metrics, as pure functions of samples and times.
//!
//! Times are in seconds. A rate over time is given in windows of equal width, as pairs (middle of
//! the window, rate).

use equic_report::stats::Sample;
use equic_report::timeline;

/// The rate counts as recovered when it reaches this share of the rate before the attack.
pub(super) const RECOVERED: f64 = 0.9;
/// Number of consecutive windows in which the rate must stay above this share.
pub(super) const STEADY: usize = 3;

/// Returns the rates in whole windows from `start`. Events after the last whole window before `end`
/// are ignored.
pub(super) fn windows(events: &[f64], start: f64, end: f64, width: f64) -> Vec<(f64, f64)> {
    // The small addition ensures that rounding does not lose a whole window.
    let whole = start + ((end - start) / width + 1e-9).floor() * width;
    timeline::rate(events, start, whole, width).unwrap_or_default()
}

/// Returns the harmonic mean of the rates in windows, which the paper uses. If a window has no
/// events, the mean is 0. Returns `None` if there are no windows.
pub(super) fn harmonic_mean(rates: &[f64]) -> Option<f64> {
    if rates.contains(&0.0) {
        return Some(0.0);
    }
    Sample::from(rates).harmonic_mean()
}

/// The rate before an attack, and the time until the rate had recovered.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Recovery {
    /// Median of the rates in the windows before the attack.
    pub before: f64,
    /// Time from the start of the attack until the rate has recovered, in seconds. It has recovered
    /// at the start of the first [`STEADY`] consecutive windows with at least [`RECOVERED`] of the
    /// rate before. `None` if the rate did not recover.
    pub seconds: Option<f64>,
}

/// Computes the recovery from an attack that began at `attack`. Ignores the first window if there
/// are others before the attack, because the clients were starting then. Returns `None` if there is
/// no window before the attack.
pub(super) fn recovery(windows: &[(f64, f64)], width: f64, attack: f64) -> Option<Recovery> {
    let half = width / 2.0;
    let calm = windows.iter().filter(|(at, _)| at + half <= attack + 1e-9).count();
    let skipped = usize::from(calm > 1);
    let before: Sample = windows[skipped..calm].iter().map(|window| window.1).collect();
    let before = before.median()?;
    let attacked: Vec<_> = windows.iter().filter(|(at, _)| at - half >= attack - 1e-9).collect();
    let steady = attacked
        .windows(STEADY)
        .find(|run| run.iter().all(|(_, rate)| *rate >= RECOVERED * before))
        .map(|run| (run[0].0 - half - attack).max(0.0));
    Some(Recovery { before, seconds: steady })
}

/// Returns the median of values. `None` stands for an event that never occurred, and counts as
/// larger than all others. Returns `None` if the median is such a value, or if there are no values.
pub(super) fn median_with_never(values: &[Option<f64>]) -> Option<f64> {
    let mut sorted: Vec<f64> = values.iter().map(|value| value.unwrap_or(f64::INFINITY)).collect();
    sorted.sort_unstable_by(f64::total_cmp);
    let (low, high) = (sorted.len().checked_sub(1)? / 2, sorted.len() / 2);
    Some(f64::midpoint(sorted[low], sorted[high])).filter(|median| median.is_finite())
}

/// Returns `(new - old) / old` for pairs that were measured in the same round.
pub(super) fn changes(pairs: impl IntoIterator<Item = (Option<f64>, Option<f64>)>) -> Vec<f64> {
    let change = |(old, new): (Option<f64>, Option<f64>)| {
        let (old, new) = (old?, new?);
        let change = (new - old) / old;
        change.is_finite().then_some(change)
    };
    pairs.into_iter().filter_map(change).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_have_full_length() {
        let events = [0.1, 0.2, 0.6, 1.1, 1.4];
        assert_eq!(windows(&events, 0.0, 1.3, 0.5), [(0.25, 4.0), (0.75, 2.0)]);
        assert_eq!(windows(&events, 0.0, 0.3 / 0.1 * 0.1, 0.1).len(), 3);
        assert_eq!(windows(&events, 0.0, 0.4, 0.5), []);
        // The first window may begin at any time. An interval of length zero has no windows.
        assert_eq!(windows(&events, 0.5, 1.5, 0.5), [(0.75, 2.0), (1.25, 4.0)]);
        assert_eq!(windows(&events, 1.5, 1.0, 0.5), []);
    }

    #[test]
    fn harmonic_mean_of_known_rates() {
        // 60 km at 20 km/h and 60 km at 60 km/h have a mean speed of 30 km/h.
        assert_eq!(harmonic_mean(&[20.0, 60.0]), Some(30.0));
        assert_eq!(harmonic_mean(&[4.0, 4.0, 4.0]), Some(4.0));
        assert_eq!(harmonic_mean(&[5.0, 0.0]), Some(0.0));
        assert_eq!(harmonic_mean(&[]), None);
    }

    fn rates(values: &[f64]) -> Vec<(f64, f64)> {
        values.iter().enumerate().map(|(n, rate)| (n as f64 + 0.5, *rate)).collect()
    }

    #[test]
    fn recovery_is_the_first_of_three_good_windows() {
        // The attack begins at 4. The single good window at 6 is not a recovery.
        let dip = rates(&[9.0, 100.0, 102.0, 98.0, 10.0, 30.0, 95.0, 50.0, 92.0, 93.0, 99.0, 20.0]);
        let found = recovery(&dip, 1.0, 4.0).unwrap();
        assert_eq!((found.before, found.seconds), (100.0, Some(4.0)));
        // If the attack begins inside a window, the first whole window after it is the first one
        // that counts.
        assert_eq!(recovery(&dip, 1.0, 3.5).unwrap().seconds, Some(4.5));
        let calm = rates(&[9.0, 100.0, 99.0, 101.0, 97.0]);
        assert_eq!(recovery(&calm, 1.0, 2.0).unwrap().seconds, Some(0.0));
        let lost = rates(&[100.0, 100.0, 1.0, 95.0, 95.0]);
        assert_eq!(recovery(&lost, 1.0, 2.0).unwrap().seconds, None);
        assert_eq!(recovery(&lost, 1.0, 0.5), None);
        // If only one window lies before the attack, its rate is used.
        assert_eq!(recovery(&lost, 1.0, 1.0).unwrap().before, 100.0);
    }

    #[test]
    fn median_treats_a_missing_value_as_the_largest() {
        assert_eq!(median_with_never(&[Some(3.0), None, Some(1.0)]), Some(3.0));
        assert_eq!(median_with_never(&[None, None, Some(1.0)]), None);
        assert_eq!(median_with_never(&[Some(1.0), None]), None);
        assert_eq!(median_with_never(&[Some(1.0), Some(2.0)]), Some(1.5));
        assert_eq!(median_with_never(&[]), None);
    }

    #[test]
    fn changes_are_computed_for_each_pair() {
        let pairs = [(Some(10.0), Some(15.0)), (Some(4.0), Some(1.0)), (None, Some(1.0))];
        assert_eq!(changes(pairs), [0.5, -0.75]);
        assert_eq!(changes([(Some(0.0), Some(1.0))]), Vec::<f64>::new());
    }
}
