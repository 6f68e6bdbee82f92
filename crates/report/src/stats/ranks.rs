//! Rank tests, which determine whether two samples, or the two values of pairs, differ. They do not
//! assume a normal distribution.
//!
//! * [`mann_whitney`]: two independent samples (Mann and Whitney 1947).
//! * [`signed_rank`]: pairs, by their differences (Wilcoxon 1945).
//!
//! Both tests are two-sided. For fewer than [`EXACT`] values, they are exact. For larger samples,
//! they use the normal approximation with corrections for ties and continuity. R's `wilcox.test`
//! also approximates for small samples with ties, where the error matters. For five equal
//! differences, the approximation gives p = 0.037, but the exact probability is 1 in 16. For three
//! equal values compared with three larger ones, it gives 0.047, but the exact probability is 1 in
//! 10.
//!
//! Small samples cannot give a small p-value, however much they differ. [`least_mann_whitney`] and
//! [`least_signed_rank`] return the smallest possible p-value.

use super::Sample;

/// Size of the smallest sample for which the normal approximation is used.
pub const EXACT: usize = 50;

/// Result of a test.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Test {
    /// The test statistic: U of the first sample, or the sum of the ranks of the positive
    /// differences.
    pub statistic: f64,
    /// The p-value: the probability of a difference that is at least this large, if there is no
    /// real difference. It is from 0 to 1.
    pub p: f64,
    /// True if `p` is exact, and false if it is an approximation.
    pub exact: bool,
}

/// Tests whether one of two independent samples tends to have larger values than the other. Returns
/// `None` if a sample is empty.
#[must_use]
pub fn mann_whitney(first: &Sample, second: &Sample) -> Option<Test> {
    let (m, n) = (first.len(), second.len());
    if m == 0 || n == 0 {
        return None;
    }
    let mut all: Vec<(f64, bool)> = Vec::with_capacity(m + n);
    all.extend(first.sorted().iter().map(|value| (*value, true)));
    all.extend(second.sorted().iter().map(|value| (*value, false)));
    let Ranked { sum, ties, tied } = ranked(&mut all);
    let (m_f, n_f) = (m as f64, n as f64);
    let u = sum - m_f * (m_f + 1.0) / 2.0;
    if m < EXACT && n < EXACT {
        // The ranks of equal values are multiples of one half, so twice a rank is a whole number.
        let p = if tied {
            tails(&subset_sums(&doubled_ranks(&all), m), (2.0 * sum).round() as usize)
        } else {
            tails(&rank_sums(m + n, m), sum.round() as usize)
        };
        return Some(Test { statistic: u, p, exact: true });
    }
    let total = m_f + n_f;
    let variance = m_f * n_f / 12.0 * (total + 1.0 - ties / (total * (total - 1.0)));
    Some(Test { statistic: u, p: normal_p(u - m_f * n_f / 2.0, variance), exact: false })
}

/// Tests whether the differences of pairs tend to one side of zero. Differences of zero are
/// ignored. Returns `None` if no other differences are left.
#[must_use]
pub fn signed_rank(differences: &[f64]) -> Option<Test> {
    let mut all: Vec<(f64, bool)> = differences
        .iter()
        .filter(|value| value.is_finite() && **value != 0.0)
        .map(|value| (value.abs(), *value > 0.0))
        .collect();
    let n = all.len();
    if n == 0 {
        return None;
    }
    let Ranked { sum, ties, .. } = ranked(&mut all);
    if n < EXACT {
        // The ranks of equal values are multiples of one half, so twice a rank is a whole number.
        let p = tails(&signed_sums(&doubled_ranks(&all)), (2.0 * sum).round() as usize);
        return Some(Test { statistic: sum, p, exact: true });
    }
    let n = n as f64;
    let variance = n * (n + 1.0) * (2.0 * n + 1.0) / 24.0 - ties / 48.0;
    Some(Test { statistic: sum, p: normal_p(sum - n * (n + 1.0) / 4.0, variance), exact: false })
}

/// Returns the smallest p-value that [`mann_whitney`] can give for samples of these sizes.
#[must_use]
pub fn least_mann_whitney(first: usize, second: usize) -> f64 {
    let fewer = first.min(second);
    let all = first + second;
    // The p-value is smallest if the smaller sample contains all the smallest or all the largest
    // values. These are two of all the ways to choose the sample.
    let ways: f64 = (0..fewer).map(|taken| (all - taken) as f64 / (taken + 1) as f64).product();
    (2.0 / ways).min(1.0)
}

/// Returns the smallest p-value that [`signed_rank`] can give for this number of pairs.
#[must_use]
pub fn least_signed_rank(pairs: usize) -> f64 {
    (2.0 * 0.5_f64.powf(pairs as f64)).min(1.0)
}

/// Returns the largest k, counted from 1, for which U is below k with a probability of at most 2.5
/// %. The two samples have these sizes and the same distribution. Returns `None` if there is no
/// such k.
pub(super) fn critical_u(first: usize, second: usize) -> Option<usize> {
    let (m, n) = (first as f64, second as f64);
    if first >= EXACT || second >= EXACT {
        let deviation = (m * n * (m + n + 1.0) / 12.0).sqrt();
        // Half a step is subtracted, so that the interval is too wide rather than too narrow.
        let k = m * n / 2.0 - 1.959_963_984_540_054 * deviation - 0.5;
        return (k >= 1.0).then_some(k.floor() as usize);
    }
    let ways = rank_sums(first + second, first);
    let all: f64 = ways.iter().sum();
    let mut below = 0.0;
    let mut k = 0;
    for one in ways.iter().skip(first * (first + 1) / 2) {
        below += one / all;
        if below > 0.025 {
            break;
        }
        k += 1;
    }
    (k > 0).then_some(k)
}

/// Applies Holm's correction (1979) to the p-values of several tests, and returns them in the same
/// order. If all null hypotheses are true, the probability that any corrected p-value is below a
/// bound is at most that bound.
#[must_use]
pub fn holm(p: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|a, b| p[*a].total_cmp(&p[*b]));
    let mut adjusted = vec![0.0; p.len()];
    let mut least: f64 = 0.0;
    for (rank, index) in order.into_iter().enumerate() {
        least = least.max(((p.len() - rank) as f64 * p[index]).min(1.0));
        adjusted[index] = least;
    }
    adjusted
}

struct Ranked {
    /// Sum of the ranks of the marked values.
    sum: f64,
    /// Sum of t^3 - t over all groups of equal values, where t is the size of the group.
    ties: f64,
    tied: bool,
}

/// Assigns ranks, counted from 1. Equal values share the mean of their ranks.
fn ranked(all: &mut [(f64, bool)]) -> Ranked {
    all.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    let mut ranked = Ranked { sum: 0.0, ties: 0.0, tied: false };
    let mut before = 0.0;
    for equal in all.chunk_by(|a, b| a.0 == b.0) {
        let t = equal.len() as f64;
        let marked = equal.iter().filter(|(_, marked)| *marked).count() as f64;
        ranked.sum += marked * (before + (t + 1.0) / 2.0);
        ranked.ties += t * (t * t - 1.0);
        ranked.tied |= equal.len() > 1;
        before += t;
    }
    ranked
}

/// Returns, for each possible sum, the number of ways to choose `taken` different ranks from 1 to
/// `total` with this sum.
fn rank_sums(total: usize, taken: usize) -> Vec<f64> {
    let largest = taken * (2 * total - taken + 1) / 2;
    let mut ways = vec![vec![0.0; largest + 1]; taken + 1];
    ways[0][0] = 1.0;
    for rank in 1..=total {
        for count in (1..=taken.min(rank)).rev() {
            let (fewer, more) = ways.split_at_mut(count);
            let (Some(from), Some(to)) = (fewer.last(), more.first_mut()) else { continue };
            for (to, from) in to.iter_mut().skip(rank).zip(from) {
                *to += from;
            }
        }
    }
    ways.pop().unwrap_or_default()
}

/// Returns twice the rank of each value. The values must be sorted.
fn doubled_ranks(sorted: &[(f64, bool)]) -> Vec<usize> {
    let mut ranks = Vec::with_capacity(sorted.len());
    for equal in sorted.chunk_by(|a, b| a.0 == b.0) {
        let rank = 2 * ranks.len() + equal.len() + 1;
        ranks.extend(std::iter::repeat_n(rank, equal.len()));
    }
    ranks
}

/// Returns, for each possible sum, the number of ways to choose `taken` of `ranks` with this sum.
fn subset_sums(ranks: &[usize], taken: usize) -> Vec<f64> {
    let largest: usize = ranks.iter().rev().take(taken).sum();
    let mut ways = vec![vec![0.0; largest + 1]; taken + 1];
    ways[0][0] = 1.0;
    for (before, rank) in ranks.iter().enumerate() {
        for count in (1..=taken.min(before + 1)).rev() {
            let (fewer, more) = ways.split_at_mut(count);
            let (Some(from), Some(to)) = (fewer.last(), more.first_mut()) else { continue };
            for (to, from) in to.iter_mut().skip(*rank).zip(from) {
                *to += from;
            }
        }
    }
    ways.pop().unwrap_or_default()
}

/// Returns, for each possible sum, the number of ways to choose any of `ranks` with this sum.
fn signed_sums(ranks: &[usize]) -> Vec<f64> {
    let mut ways = vec![0.0; ranks.iter().sum::<usize>() + 1];
    ways[0] = 1.0;
    for rank in ranks {
        for sum in (*rank..ways.len()).rev() {
            ways[sum] += ways[sum - rank];
        }
    }
    ways
}

/// Returns the two-sided number of ways: twice the smaller of the two tails, which both include
/// `at`.
fn tails(ways: &[f64], at: usize) -> f64 {
    let all: f64 = ways.iter().sum();
    let lower: f64 = ways.iter().take(at + 1).sum();
    let upper: f64 = ways.iter().skip(at).sum();
    (2.0 * lower.min(upper) / all).min(1.0)
}

/// Returns the two-sided p-value of the normal approximation. The continuity correction moves the
/// value half a step towards the middle.
fn normal_p(deviation: f64, variance: f64) -> f64 {
    // The variance is 0 if all values are equal.
    if variance <= 0.0 {
        return 1.0;
    }
    let z = (deviation.abs() - 0.5).max(0.0) / variance.sqrt();
    libm::erfc(z / std::f64::consts::SQRT_2).min(1.0)
}

#[cfg(test)]
#[path = "ranks_tests.rs"]
mod tests;
