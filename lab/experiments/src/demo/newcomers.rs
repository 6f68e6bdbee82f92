//! Summarises the newcomers of an arm: how many connected successfully, and how long it took.

use equic_load::{Outcome, Sample};
use equic_report::stats;
use serde::Serialize;

/// Results of the newcomers, which are clients with one connection and one request each.
#[derive(Serialize, Default)]
pub(super) struct Newcomers {
    /// Number of newcomers, which is the sum of `got_in` and the three fields after it.
    pub tried: u64,
    /// Newcomers that connected and got their response in time.
    pub got_in: u64,
    pub refused: u64,
    pub timeouts: u64,
    pub errors: u64,
    /// Newcomers that started, per second.
    pub tried_per_s: f64,
    /// Newcomers that connected and got their response, per second.
    pub got_in_per_s: f64,
    /// Time from the first packet to the end of the handshake in milliseconds: the median of the
    /// successful newcomers.
    pub connect_median_ms: Option<f64>,
    pub connect_p99_ms: Option<f64>,
    pub connect_max_ms: Option<f64>,
    /// Start of each newcomer in seconds since the start of the arm, and whether the newcomer
    /// succeeded. For the plot.
    #[serde(skip)]
    pub tries: Vec<(f64, bool)>,
}

impl Newcomers {
    /// Summarises the newcomers' samples. `begun` is the start of the arm, in seconds of the
    /// samples' clock.
    pub(super) fn new(samples: &[Sample], begun: f64) -> Newcomers {
        let mut sum = Newcomers { tried: samples.len() as u64, ..Newcomers::default() };
        for sample in samples {
            match sample.outcome {
                Outcome::Ok => sum.got_in += 1,
                Outcome::Refused => sum.refused += 1,
                Outcome::Timeout => sum.timeouts += 1,
                Outcome::Error { .. } => sum.errors += 1,
            }
            sum.tries.push((sample.start_ms / 1000.0 - begun, sample.outcome == Outcome::Ok));
        }
        sum.tries.sort_by(|a, b| a.0.total_cmp(&b.0));
        if let (Some(first), Some(last)) = (sum.tries.first(), sum.tries.last())
            && last.0 > first.0
        {
            // There is one interval fewer than there are newcomers.
            sum.tried_per_s = (sum.tried - 1) as f64 / (last.0 - first.0);
            sum.got_in_per_s = sum.tried_per_s * sum.share();
        }
        let got_in = samples.iter().filter(|sample| sample.outcome == Outcome::Ok);
        let connect: stats::Sample = got_in.filter_map(|sample| sample.handshake_ms).collect();
        sum.connect_median_ms = connect.median();
        sum.connect_p99_ms = connect.nearest_rank(99.0);
        sum.connect_max_ms = connect.max();
        sum
    }

    /// Returns the share of successful newcomers, from 0 to 1.
    pub(super) fn share(&self) -> f64 {
        if self.tried == 0 { 0.0 } else { self.got_in as f64 / self.tried as f64 }
    }

    /// Returns the times of the first and the last newcomer, in seconds since the start of the arm.
    /// Returns `None` if there were no newcomers.
    pub(super) fn span(&self) -> Option<(f64, f64)> {
        let (first, _) = self.tries.first()?;
        (self.tried_per_s > 0.0).then(|| (*first, first + self.tried as f64 / self.tried_per_s))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(start_ms: f64, handshake_ms: Option<f64>, outcome: Outcome) -> Sample {
        Sample { start_ms, duration_ms: 9.0, client: 0, handshake_ms, outcome, bytes: 0 }
    }

    #[test]
    fn newcomers_with_a_response_count_as_served() {
        let error = Outcome::Error { kind: "reset".into() };
        // The samples are ordered by their end, not by their start.
        let samples = [
            sample(100_000.0, Some(2.0), Outcome::Ok),
            sample(100_300.0, Some(8.0), Outcome::Ok),
            sample(100_200.0, Some(500.0), Outcome::Timeout),
            sample(100_100.0, None, Outcome::Timeout),
            sample(100_400.0, None, Outcome::Refused),
            sample(100_500.0, None, error),
        ];
        let sum = Newcomers::new(&samples, 99.0);
        assert_eq!((sum.tried, sum.got_in), (6, 2));
        assert_eq!((sum.refused, sum.timeouts, sum.errors), (1, 2, 1));
        let close = |figure: f64, expected: f64| (figure - expected).abs() < 1e-6;
        assert!(close(sum.tried_per_s, 10.0) && close(sum.got_in_per_s, 10.0 / 3.0));
        // A failed handshake does not count as a connection.
        assert_eq!((sum.connect_median_ms, sum.connect_max_ms), (Some(5.0), Some(8.0)));
        let (from, to) = sum.span().unwrap();
        assert!(close(from, 1.0) && close(to, 1.6));
        assert_eq!(sum.tries.iter().filter(|(_, got_in)| *got_in).count(), 2);
        assert!(sum.tries.is_sorted_by(|a, b| a.0 <= b.0));
    }

    #[test]
    fn newcomers_of_none_or_one_have_no_rate() {
        let nobody = Newcomers::new(&[], 0.0);
        assert_eq!((nobody.tried, nobody.share(), nobody.span()), (0, 0.0, None));
        let one = Newcomers::new(&[sample(5.0, Some(1.0), Outcome::Ok)], 0.0);
        assert_eq!((one.share(), one.tried_per_s, one.span()), (1.0, 0.0, None));
    }
}
