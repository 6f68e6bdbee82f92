//! Computes how fast the window of a path grows in congestion avoidance, given the windows of all
//! paths of the connection.

use super::group::Figures;

/// An algorithm for the growth of the coupled windows of a connection's paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Increase {
    /// LIA, linked increases (RFC 6356 s.3).
    Lia,
    /// OLIA, opportunistic linked increases (R. Khalili, N. Gast, M. Popovic, U. Upadhyay, J.-Y. Le
    /// Boudec: MPTCP is not Pareto-optimal, CoNEXT 2012, s.IV;
    /// draft-khalili-mptcp-congestion-control-05).
    Olia,
}

impl Increase {
    /// Returns the name of the algorithm.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Increase::Lia => "lia",
            Increase::Olia => "olia",
        }
    }

    /// Returns the number of datagrams by which the window of the path `own` grows for each
    /// acknowledged byte. `all` are the paths in use, including `own`. For comparison, the result
    /// for NewReno would be 1 / window.
    pub(super) fn per_byte(self, own: &Figures, all: impl Iterator<Item = Figures> + Clone) -> f64 {
        match self {
            Increase::Lia => lia(own, all),
            Increase::Olia => olia(own, all),
        }
    }
}

/// Returns the rate of all paths together in bytes per second, if their windows are fully used.
fn rate(all: impl Iterator<Item = Figures>) -> f64 {
    all.map(|path| path.bytes() / path.seconds()).sum::<f64>().max(f64::MIN_POSITIVE)
}

/// Returns the window of a path, divided by the square of its round-trip time.
fn eagerness(path: &Figures) -> f64 {
    path.bytes() / path.seconds().powi(2)
}

/// RFC 6356 s.3: returns alpha divided by the window of all paths, but at most the growth of a
/// single path. Alpha is cwnd_total * max(cwnd_i / rtt_i^2) / (sum of cwnd_i / rtt_i)^2.
fn lia(own: &Figures, all: impl Iterator<Item = Figures> + Clone) -> f64 {
    let most = all.clone().map(|path| eagerness(&path)).fold(0.0, f64::max);
    let coupled = most / rate(all).powi(2);
    coupled.min(1.0 / own.bytes())
}

/// Khalili et al. s.IV-A: returns the path's fair share of the growth, plus a correction. The
/// correction shifts growth from the paths with the largest windows to the best paths with smaller
/// windows.
fn olia(own: &Figures, all: impl Iterator<Item = Figures> + Clone) -> f64 {
    let share = eagerness(own) / rate(all.clone()).powi(2);
    share + correction(own, all) / own.bytes()
}

/// Returns the correction term alpha_r of OLIA, in datagrams per round trip.
fn correction(own: &Figures, all: impl Iterator<Item = Figures> + Clone) -> f64 {
    // The square of the rate that one TCP connection would get on a path, up to a constant factor.
    // That square is proportional to the bytes between losses.
    let quality = |path: &Figures| path.between_losses as f64 / path.seconds().powi(2);
    let best = all.clone().map(|path| quality(&path)).fold(0.0, f64::max);
    let largest = all.clone().map(|path| path.bytes()).fold(0.0, f64::max);
    let is_best = |path: &Figures| quality(path) >= best;
    let is_largest = |path: &Figures| path.bytes() >= largest;
    let (mut paths, mut collected, mut largest_paths) = (0u32, 0u32, 0u32);
    for path in all {
        paths += 1;
        // Count the best paths among those that do not have the largest window.
        collected += u32::from(is_best(&path) && !is_largest(&path));
        largest_paths += u32::from(is_largest(&path));
    }
    let over = |count: u32| 1.0 / (f64::from(paths.max(1)) * f64::from(count.max(1)));
    match (is_best(own), is_largest(own)) {
        _ if collected == 0 => 0.0,
        (true, false) => over(collected),
        (_, true) => -over(largest_paths),
        (false, false) => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::Timestamp;

    fn path(window: u64, ms: u64, between_losses: u64) -> Figures {
        let rtt = Duration::from_millis(ms);
        Figures { window, rtt, between_losses, last_sent: Timestamp::START }
    }

    #[track_caller]
    fn assert_near(value: f64, wanted: f64) {
        assert!((value - wanted).abs() <= wanted.abs() * 1e-9, "{value} instead of {wanted}");
    }

    #[test]
    fn coupled_single_path_grows_like_newreno() {
        let alone = path(50_000, 80, 10);
        for increase in [Increase::Lia, Increase::Olia] {
            assert_near(increase.per_byte(&alone, [alone].into_iter()), 1.0 / 50_000.0);
        }
    }

    /// The expected value is the formula of RFC 6356 s.4.1, computed by hand: windows 10,000 and
    /// 20,000, round-trip times 100 and 50 ms.
    #[test]
    fn coupled_lia_by_hand() {
        let all = [path(10_000, 100, 0), path(20_000, 50, 0)];
        // max(10,000 / 0.01, 20,000 / 0.0025) / (100,000 + 400,000)^2 = 8,000,000 / 2.5e11.
        assert_near(Increase::Lia.per_byte(&all[0], all.into_iter()), 3.2e-5);
        assert_near(Increase::Lia.per_byte(&all[1], all.into_iter()), 3.2e-5);
        // The growth must be at most that of a single path. Here, 1 / 1,000,000 is smaller than the
        // coupled growth.
        let all = [path(1_000_000, 1_000, 0), path(1_000, 10, 0)];
        assert_near(Increase::Lia.per_byte(&all[0], all.into_iter()), 1e-6);
    }

    #[test]
    fn coupled_olia_by_hand() {
        // The second path is the best (4,000 / 0.01 compared with 1,000 / 0.01) and has the smaller
        // window.
        let all = [path(30_000, 100, 1_000), path(10_000, 100, 4_000)];
        // The fair share is 30,000 / 0.01 / 400,000^2 = 1.875e-5. The correction is minus 1 / (2 *
        // 1) / 30,000.
        assert_near(Increase::Olia.per_byte(&all[0], all.into_iter()), 1.875e-5 - 0.5 / 30_000.0);
        // The fair share is 10,000 / 0.01 / 400,000^2 = 6.25e-6. The correction is plus 1 / (2 * 1)
        // / 10,000.
        assert_near(Increase::Olia.per_byte(&all[1], all.into_iter()), 6.25e-6 + 0.5 / 10_000.0);
        // The best path already has the largest window, so there is no correction.
        let all = [path(30_000, 100, 4_000), path(10_000, 100, 1_000)];
        assert_near(Increase::Olia.per_byte(&all[0], all.into_iter()), 1.875e-5);
        // The third path is neither the best nor the one with the largest window, so it gets only
        // the fair share.
        let all = [path(30_000, 100, 1_000), path(10_000, 100, 4_000), path(20_000, 100, 2_000)];
        assert_near(Increase::Olia.per_byte(&all[2], all.into_iter()), 2e6 / 3.6e11);
    }

    /// If paths are equally good, they must share the correction equally.
    #[test]
    fn coupled_olia_divides_among_equals() {
        let all =
            [path(30_000, 100, 0), path(30_000, 100, 0), path(9_000, 100, 5), path(9_000, 100, 5)];
        let moved = |at: usize| correction(&all[at], all.into_iter());
        assert_near(moved(0), -1.0 / 8.0);
        assert_near(moved(2), 1.0 / 8.0);
        assert_near((0..4).map(moved).sum::<f64>() + 1.0, 1.0);
    }
}
