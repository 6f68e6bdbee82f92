//! Computes statistics from samples: totals, percentiles, and one row per second.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use super::sample::{Clock, Outcome, Sample, Sink};

/// Number of most recent seconds that can still receive samples, because samples arrive almost in
/// order.
const OPEN_SECONDS: usize = 3;

/// Statistics of a whole load.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Start of the load in milliseconds of CLOCK_MONOTONIC.
    pub start_ms: f64,
    /// Duration of the load in seconds.
    pub elapsed_s: f64,
    /// Number of requests: the sum of `ok`, `refused`, `timeouts` and `errors`.
    pub requests: u64,
    /// Successful requests.
    pub ok: u64,
    /// Requests whose connection the server refused.
    pub refused: u64,
    /// Number of requests that were not answered before the timeout.
    pub timeouts: u64,
    /// Requests that failed for another reason.
    pub errors: u64,
    /// Number of the requests in `errors`, by kind of error.
    pub error_kinds: BTreeMap<String, u64>,
    /// Bytes of response bodies that were received.
    pub bytes: u64,
    /// Successful requests per second.
    pub rps: f64,
    /// Median duration of successful requests in milliseconds, or `None` if no request succeeded.
    pub median_ms: Option<f64>,
    /// 90th percentile of the duration of successful requests in milliseconds, or `None` if no
    /// request succeeded.
    pub p90_ms: Option<f64>,
    /// 99th percentile of the duration of successful requests in milliseconds, or `None` if no
    /// request succeeded.
    pub p99_ms: Option<f64>,
    /// Longest duration of a successful request in milliseconds, or `None` if no request succeeded.
    pub max_ms: Option<f64>,
    /// One row for each second of the load, in order.
    pub series: Vec<Second>,
}

impl Summary {
    /// Returns the number of requests that were not successful.
    pub fn failures(&self) -> u64 {
        self.requests - self.ok
    }
}

/// Statistics of the requests that ended in one second of a load.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Second {
    /// Number of the second, counted from 0.
    pub second: u64,
    /// Successful requests.
    pub ok: u64,
    /// Requests whose connection the server refused.
    pub refused: u64,
    /// Number of requests that were not answered before the timeout.
    pub timeouts: u64,
    /// Requests that failed for another reason.
    pub errors: u64,
    /// Bytes of response bodies that were received, counted when the request ended.
    pub bytes: u64,
    /// Median duration of successful requests in milliseconds, or `None` if no request succeeded.
    pub median_ms: Option<f64>,
}

/// A histogram of durations in microseconds, up to one hour.
struct Durations(Option<Histogram<u64>>);

impl Durations {
    fn new(digits: u8) -> Self {
        // This fails only if the bounds contradict each other, and these do not.
        Self(Histogram::new_with_bounds(1, 3_600_000_000, digits).ok())
    }

    fn record(&mut self, ms: f64) {
        if let Some(histogram) = &mut self.0 {
            histogram.saturating_record((ms * 1000.0) as u64);
        }
    }

    fn quantile(&self, quantile: f64) -> Option<f64> {
        let histogram = self.0.as_ref().filter(|histogram| !histogram.is_empty())?;
        Some(histogram.value_at_quantile(quantile) as f64 / 1000.0)
    }
}

/// Passes samples to the sink and computes the statistics.
pub(super) struct Collector<S> {
    sink: S,
    summary: Summary,
    durations: Durations,
    open: BTreeMap<u64, Durations>,
}

impl<S: Sink> Collector<S> {
    pub(super) fn new(clock: Clock, sink: S) -> Self {
        let summary = Summary { start_ms: clock.start_ms(), ..Summary::default() };
        Self { sink, summary, durations: Durations::new(3), open: BTreeMap::new() }
    }

    /// Receives samples until all senders are dropped. Blocks.
    pub(super) fn collect(mut self, mut samples: mpsc::Receiver<Sample>) -> io::Result<Totals> {
        while let Some(sample) = samples.blocking_recv() {
            self.add(&sample);
            self.sink.sample(&sample)?;
        }
        self.sink.finish()?;
        while self.open.keys().next().is_some() {
            self.close_oldest();
        }
        Ok(Totals { summary: self.summary, durations: self.durations })
    }

    fn add(&mut self, sample: &Sample) {
        let summary = &mut self.summary;
        let end_ms = sample.start_ms + sample.duration_ms - summary.start_ms;
        let number = (end_ms / 1000.0).max(0.0) as u64;
        while summary.series.len() as u64 <= number {
            let second = summary.series.len() as u64;
            summary.series.push(Second { second, ..Second::default() });
        }
        let second = &mut summary.series[number as usize];
        summary.requests += 1;
        summary.bytes += sample.bytes;
        second.bytes += sample.bytes;
        match &sample.outcome {
            Outcome::Ok => {
                summary.ok += 1;
                second.ok += 1;
                self.durations.record(sample.duration_ms);
                self.open
                    .entry(number)
                    .or_insert_with(|| Durations::new(2))
                    .record(sample.duration_ms);
                while self.open.len() > OPEN_SECONDS {
                    self.close_oldest();
                }
            }
            Outcome::Refused => {
                summary.refused += 1;
                second.refused += 1;
            }
            Outcome::Timeout => {
                summary.timeouts += 1;
                second.timeouts += 1;
            }
            Outcome::Error { kind } => {
                summary.errors += 1;
                second.errors += 1;
                *summary.error_kinds.entry(kind.clone().into_owned()).or_default() += 1;
            }
        }
    }

    fn close_oldest(&mut self) {
        if let Some((number, durations)) = self.open.pop_first() {
            let second = &mut self.summary.series[number as usize];
            // If a sample arrives after the median of its second was computed, the median does not
            // change.
            second.median_ms = second.median_ms.or(durations.quantile(0.5));
        }
    }
}

/// The statistics of all samples so far.
pub(super) struct Totals {
    summary: Summary,
    durations: Durations,
}

impl Totals {
    pub(super) fn finish(self, elapsed: Duration) -> Summary {
        let Self { mut summary, durations } = self;
        summary.elapsed_s = elapsed.as_secs_f64();
        summary.rps = if elapsed.is_zero() { 0.0 } else { summary.ok as f64 / summary.elapsed_s };
        summary.median_ms = durations.quantile(0.5);
        summary.p90_ms = durations.quantile(0.9);
        summary.p99_ms = durations.quantile(0.99);
        summary.max_ms = durations.quantile(1.0);
        summary
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_adds_up_samples() {
        let clock = Clock::start();
        let (sender, receiver) = mpsc::channel(2000);
        let sample = |start: f64, duration_ms, outcome, bytes| Sample {
            start_ms: clock.start_ms() + start,
            duration_ms,
            client: 0,
            handshake_ms: None,
            outcome,
            bytes,
        };
        for number in 1..=1000u32 {
            let sample = sample(0.0, f64::from(number), Outcome::Ok, 10);
            sender.try_send(sample).unwrap();
        }
        sender.try_send(sample(4500.0, 1.0, Outcome::Refused, 0)).unwrap();
        sender.try_send(sample(0.0, 5000.0, Outcome::Timeout, 3)).unwrap();
        sender.try_send(sample(10.0, 1.0, Outcome::Error { kind: "tls".into() }, 0)).unwrap();
        drop(sender);
        let mut seen = 0;
        let collector = Collector::new(clock, |_: &Sample| seen += 1);
        let summary = collector.collect(receiver).unwrap().finish(Duration::from_secs(10));
        assert_eq!(seen, 1003);
        assert_eq!((summary.requests, summary.ok, summary.failures()), (1003, 1000, 3));
        assert_eq!((summary.refused, summary.timeouts, summary.errors), (1, 1, 1));
        assert_eq!(summary.error_kinds["tls"], 1);
        assert_eq!(summary.bytes, 10_003);
        assert_eq!(summary.rps, 100.0);
        let near = |value: Option<f64>, want: f64| (value.unwrap() - want).abs() <= want / 500.0;
        assert!(near(summary.median_ms, 500.0), "{:?}", summary.median_ms);
        assert!(near(summary.p99_ms, 990.0), "{:?}", summary.p99_ms);
        assert!(near(summary.max_ms, 1000.0), "{:?}", summary.max_ms);
        let rows: Vec<_> = summary.series.iter().map(|s| (s.second, s.ok, s.refused)).collect();
        assert_eq!(rows, [(0, 999, 0), (1, 1, 0), (2, 0, 0), (3, 0, 0), (4, 0, 1), (5, 0, 0)]);
        assert_eq!((summary.series[5].timeouts, summary.series[5].bytes), (1, 3));
        assert!(summary.series[2].median_ms.is_none() && summary.series[1].median_ms.is_some());
    }

    #[test]
    fn summary_ends_if_the_sink_fails() {
        struct Full;
        impl Sink for Full {
            fn sample(&mut self, _: &Sample) -> io::Result<()> {
                Err(io::ErrorKind::StorageFull.into())
            }
        }
        let clock = Clock::start();
        let (sender, receiver) = mpsc::channel(1);
        let outcome = Outcome::Ok;
        let sample = Sample {
            start_ms: 0.0,
            duration_ms: 0.0,
            client: 0,
            handshake_ms: None,
            outcome,
            bytes: 0,
        };
        sender.try_send(sample).unwrap();
        assert!(Collector::new(clock, Full).collect(receiver).is_err());
        assert!(sender.is_closed());
    }
}
