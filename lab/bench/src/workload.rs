//! Defines workloads: the client's arguments, the check of its answer, and the figure that is
//! computed from the answer.

use equic_report::number;
use serde::{Deserialize, Serialize};

use crate::answer::{FirstByte, Latency};
use crate::{Answer, Failure};

/// Bytes of the response to `GET /1k`, and of a small exchange during a bulk download.
const SMALL_BODY: u64 = 1024;
/// Number of bytes that each connection fetches in the workloads with handshakes.
const EXCHANGE: u64 = 8;
/// Minimum number of handshakes per 1,000 that must be resumed in the workload of resumed
/// handshakes. Not all are, because a ticket may arrive too late.
const RESUMED_PER_MILLE: u64 = 990;

/// A workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Workload {
    /// Downloads bytes on one stream.
    Download,
    /// Downloads bytes on many streams.
    Streams,
    /// Downloads bytes on many connections of one client.
    Connections,
    /// Uploads bytes on one stream.
    Upload,
    /// Opens connections with full handshakes. Each fetches a few bytes.
    Handshakes,
    /// Opens connections with resumed handshakes.
    Resumed,
    /// Sends HTTP/3 requests with small responses.
    Requests,
    /// Opens connections one after the other, and waits for the first byte on each.
    Ttfb,
    /// Runs small exchanges, first without and then during a bulk download on the same connection.
    Loaded,
    /// Idle connections.
    Idle,
    /// Downloads a file from a stock endpoint that follows the conventions of the QUIC Interop
    /// Runner. The time includes the start and the end of the client's process.
    Transfer,
}

/// Protocols in which the workloads can be measured, by kind of workload. A pair uses the first one
/// that both speak.
const BYTES: &[&str] = &["perf", "perf-tcp", "sendfile", "h3"];
const STREAMS: &[&str] = &["perf", "h3"];
const EXCHANGES: &[&str] = &["perf", "perf-tcp"];

/// Size of each workload.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Size {
    /// Number of bytes of a transfer.
    pub bytes: u64,
    /// Number of streams of [`Workload::Streams`].
    pub streams: u64,
    /// Duration in seconds of workloads that count completions.
    pub seconds: f64,
    /// Concurrent handshakes.
    pub handshakes: u64,
    /// Concurrent requests.
    pub requests: u64,
    /// Number of connections of [`Workload::Idle`].
    pub connections: u64,
    /// Number of connections of [`Workload::Connections`].
    pub parallel: u64,
    /// Extra time in seconds that a client gets before it counts as stalled, in addition to the
    /// time that a very slow client needs.
    pub grace: f64,
}

impl Size {
    /// Returns the default size of `equic-lab bench run`.
    pub const fn usual() -> Size {
        Size {
            bytes: 1_000_000_000,
            streams: 100,
            seconds: 3.0,
            handshakes: 8,
            requests: 32,
            connections: 10_000,
            parallel: 10,
            grace: 30.0,
        }
    }

    /// Returns the size of `--quick`.
    pub const fn quick() -> Size {
        Size { bytes: 100_000_000, seconds: 1.0, connections: 500, ..Size::usual() }
    }
}

/// Kind of figure that a workload has, which determines the unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Figure {
    /// Payload bits per second. More is better. CPU time is per 10^9 bytes.
    BitsPerSecond,
    /// Completions per second. More is better. CPU time is per completion.
    PerSecond,
    /// Bytes of the server's memory per connection. Less is better. CPU time is per connection.
    BytesPerConnection,
    /// Seconds. Less is better. CPU time is per completion.
    Seconds,
}

impl Figure {
    /// Returns the unit of the figure, as in records.
    pub const fn unit(self) -> &'static str {
        match self {
            Figure::BitsPerSecond => "bit/s",
            Figure::PerSecond => "1/s",
            Figure::BytesPerConnection => "B",
            Figure::Seconds => "s",
        }
    }
}

impl Workload {
    /// All workloads, in the order of tables.
    pub const ALL: [Workload; 11] = [
        Workload::Download,
        Workload::Streams,
        Workload::Connections,
        Workload::Upload,
        Workload::Handshakes,
        Workload::Resumed,
        Workload::Requests,
        Workload::Ttfb,
        Workload::Loaded,
        Workload::Idle,
        Workload::Transfer,
    ];

    /// Workloads of `equic-lab bench run --transport` (docs/notebook/bench-transport.md).
    pub const TRANSPORT: [Workload; 7] = [
        Workload::Download,
        Workload::Streams,
        Workload::Upload,
        Workload::Handshakes,
        Workload::Resumed,
        Workload::Requests,
        Workload::Idle,
    ];

    /// Returns the name of the workload.
    pub const fn name(self) -> &'static str {
        match self {
            Workload::Download => "download",
            Workload::Streams => "streams",
            Workload::Connections => "connections",
            Workload::Upload => "upload",
            Workload::Handshakes => "handshakes",
            Workload::Resumed => "resumed",
            Workload::Requests => "requests",
            Workload::Ttfb => "ttfb",
            Workload::Loaded => "loaded",
            Workload::Idle => "idle",
            Workload::Transfer => "transfer",
        }
    }

    /// Returns the workload with this name.
    pub fn named(name: &str) -> Option<Workload> {
        Workload::ALL.into_iter().find(|one| one.name() == name)
    }

    /// Returns the kind of the workload's figure.
    pub const fn figure(self) -> Figure {
        match self {
            Workload::Download
            | Workload::Streams
            | Workload::Connections
            | Workload::Upload
            | Workload::Transfer => Figure::BitsPerSecond,
            Workload::Handshakes | Workload::Resumed | Workload::Requests => Figure::PerSecond,
            Workload::Ttfb | Workload::Loaded => Figure::Seconds,
            Workload::Idle => Figure::BytesPerConnection,
        }
    }

    /// Returns the protocols in which the workload can be measured, preferred first.
    pub const fn protocols(self) -> &'static [&'static str] {
        match self {
            Workload::Download => BYTES,
            Workload::Streams => STREAMS,
            Workload::Connections => &["perf", "perf-tcp", "h3"],
            Workload::Requests => &["h3"],
            Workload::Loaded => &["perf"],
            Workload::Transfer => &["hq-interop"],
            Workload::Upload
            | Workload::Handshakes
            | Workload::Resumed
            | Workload::Ttfb
            | Workload::Idle => EXCHANGES,
        }
    }

    /// Returns the arguments of the client's command for this workload.
    pub fn arguments(self, size: &Size) -> Vec<String> {
        let seconds = format!("{}", size.seconds);
        let words: Vec<(&str, String)> = match self {
            Workload::Download => {
                vec![("--download", size.bytes.to_string()), ("--streams", "1".to_owned())]
            }
            Workload::Streams => vec![
                ("--download", size.bytes.to_string()),
                ("--streams", size.streams.to_string()),
            ],
            Workload::Connections => vec![
                ("--download", size.bytes.to_string()),
                ("--connections", size.parallel.to_string()),
            ],
            Workload::Upload => vec![("--upload", size.bytes.to_string())],
            Workload::Handshakes | Workload::Resumed => {
                vec![("--handshakes", seconds), ("--parallel", size.handshakes.to_string())]
            }
            Workload::Requests => {
                vec![("--requests", seconds), ("--parallel", size.requests.to_string())]
            }
            Workload::Ttfb => vec![("--ttfb", seconds)],
            Workload::Loaded => vec![("--loaded", seconds)],
            Workload::Idle => vec![("--hold", size.connections.to_string())],
            // Stock endpoints have no arguments, because they read everything from their
            // environment.
            Workload::Transfer => Vec::new(),
        };
        let mut arguments: Vec<String> =
            words.into_iter().flat_map(|(name, value)| [name.to_owned(), value]).collect();
        if self == Workload::Resumed {
            arguments.push("--resume".to_owned());
        }
        arguments
    }

    /// Returns the time in seconds after which a client counts as stalled. It allows for a transfer
    /// at `least_rate` (bytes per second), or for 100 connections per second.
    pub fn patience(self, size: &Size, least_rate: f64) -> f64 {
        size.grace
            + match self.figure() {
                Figure::BitsPerSecond => size.bytes as f64 / least_rate,
                // The exchanges run twice: without the bulk download, and during it.
                Figure::Seconds if self == Workload::Loaded => 4.0 * size.seconds,
                Figure::PerSecond | Figure::Seconds => 2.0 * size.seconds,
                Figure::BytesPerConnection => size.connections as f64 / 100.0,
            }
    }

    /// Checks that the client's answer reports the requested work.
    ///
    /// # Errors
    /// The defect of the answer: it reports less work than requested, or impossible values.
    pub fn check(self, size: &Size, answer: &Answer) -> Result<(), (Failure, String)> {
        let Answer { bytes, count, seconds, .. } = *answer;
        let lied = |why: String| Err((Failure::Lied, why));
        if !(seconds.is_finite() && seconds > 0.0) {
            return lied(format!(
                "the client reports an impossible duration of {}",
                number::measured(seconds, "s")
            ));
        }
        // The required number is `None` if the number of bytes is impossibly large.
        let (wanted_bytes, wanted) = match self {
            Workload::Download | Workload::Upload | Workload::Transfer => (Some(size.bytes), 1),
            Workload::Streams => (Some(size.bytes), size.streams),
            Workload::Connections => (Some(size.bytes), size.parallel),
            Workload::Handshakes | Workload::Resumed => (count.checked_mul(EXCHANGE), count),
            Workload::Requests => (count.checked_mul(SMALL_BODY), count),
            Workload::Ttfb => (Some(count), count),
            // An answer without latency counts as 0 bytes here. The check of the latency below then
            // reports it.
            Workload::Loaded => {
                let exchanges = count.checked_mul(SMALL_BODY);
                let bulk = answer.latency.map_or(0, |latency| latency.bulk_bytes);
                (exchanges.and_then(|bytes| bytes.checked_add(bulk)), count)
            }
            Workload::Idle => (Some(0), size.connections),
        };
        if (Some(bytes), count) != (wanted_bytes, wanted) {
            let fewer = wanted_bytes.is_some_and(|wanted| bytes < wanted) || count < wanted;
            let wanted_bytes = wanted_bytes.unwrap_or(u64::MAX);
            return Err((
                if fewer { Failure::Truncated } else { Failure::Lied },
                format!(
                    "the client transferred {bytes} bytes in {count} units of work, instead of {wanted_bytes} bytes in {wanted}"
                ),
            ));
        }
        if count == 0 {
            return Err((
                Failure::Truncated,
                "no connection, stream or request was completed".to_owned(),
            ));
        }
        let resumed = answer.resumed.unwrap_or(0);
        match self {
            Workload::Handshakes if resumed > 0 => {
                lied(format!("{resumed} of {count} handshakes were resumed"))
            }
            Workload::Resumed if resumed < count.saturating_mul(RESUMED_PER_MILLE) / 1000 => {
                lied(format!("only {resumed} of {count} handshakes were resumed"))
            }
            _ if matches!(self.figure(), Figure::PerSecond | Figure::Seconds)
                && seconds < 0.9 * size.seconds =>
            {
                lied(format!(
                    "the client ran for {} instead of {}",
                    number::measured(seconds, "s"),
                    number::measured(size.seconds, "s")
                ))
            }
            Workload::Ttfb => match answer.first_byte_seconds {
                Some(FirstByte { median, p95 })
                    if median > 0.0 && (median..=seconds).contains(&p95) =>
                {
                    Ok(())
                }
                Some(FirstByte { median, p95 }) => lied(format!(
                    "the client reports impossible times to the first byte: median {}, 95th percentile {}",
                    number::measured(median, "s"),
                    number::measured(p95, "s")
                )),
                None => lied("the client does not report times to the first byte".to_owned()),
            },
            Workload::Loaded => latency(answer),
            _ => Ok(()),
        }
    }

    /// Returns the figure from the client's answer. Returns `None` for idle connections, because
    /// the runner measures their figure.
    pub fn value(self, answer: &Answer) -> Option<f64> {
        match self.figure() {
            Figure::BitsPerSecond => Some(8.0 * answer.bytes as f64 / answer.seconds),
            Figure::PerSecond => Some(answer.count as f64 / answer.seconds),
            Figure::Seconds if self == Workload::Loaded => {
                answer.latency.map(|latency| latency.loaded.p99)
            }
            Figure::Seconds => answer.first_byte_seconds.map(|first| first.median),
            Figure::BytesPerConnection => None,
        }
    }

    /// Returns the amount of work by which CPU time is divided: the number of 10^9 bytes, or of
    /// completions.
    pub fn units(self, answer: &Answer) -> f64 {
        match self.figure() {
            Figure::BitsPerSecond => answer.bytes as f64 / 1e9,
            Figure::Seconds if self == Workload::Loaded => answer.bytes as f64 / 1e9,
            Figure::PerSecond | Figure::BytesPerConnection | Figure::Seconds => answer.count as f64,
        }
    }
}

/// Checks the durations of exchanges. The exchanges ran one after the other, and half of them took
/// the median or longer. This gives a lower bound of the total time.
fn latency(answer: &Answer) -> Result<(), (Failure, String)> {
    let Some(Latency { unloaded, loaded, bulk_bytes }) = answer.latency else {
        let why = "the client does not report the durations of exchanges".to_owned();
        return Err((Failure::Lied, why));
    };
    if bulk_bytes == 0 {
        let why = "no byte of the bulk download arrived".to_owned();
        return Err((Failure::Truncated, why));
    }
    let seconds = answer.seconds;
    let half = (answer.count / 2) as f64 * loaded.median;
    if unloaded.is_sound(seconds) && loaded.is_sound(seconds) && half <= seconds {
        return Ok(());
    }
    let show = |seconds| number::measured(seconds, "s");
    let why = format!(
        "the client reports impossible times: {} exchanges one after the other, median {} (99 %: {}), in {}; before the download, median {} (99 %: {})",
        answer.count,
        show(loaded.median),
        show(loaded.p99),
        show(seconds),
        show(unloaded.median),
        show(unloaded.p99)
    );
    Err((Failure::Lied, why))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::Exchanges;

    const SIZE: Size = Size {
        bytes: 1000,
        streams: 10,
        seconds: 2.0,
        handshakes: 8,
        requests: 32,
        connections: 5,
        parallel: 4,
        grace: 30.0,
    };

    fn answer(bytes: u64, count: u64, resumed: Option<u64>, seconds: f64) -> Answer {
        Answer { bytes, count, resumed, seconds, ..Answer::default() }
    }

    fn first_byte(median: f64, p95: f64) -> Answer {
        let first_byte_seconds = Some(FirstByte { median, p95 });
        Answer { first_byte_seconds, ..answer(7, 7, None, 2.0) }
    }

    /// Returns an answer with seven exchanges during a download of 1,000 bytes.
    fn loaded(unloaded: (f64, f64), loaded: (f64, f64), bulk_bytes: u64) -> Answer {
        let [unloaded, loaded] = [unloaded, loaded].map(|(median, p99)| Exchanges { median, p99 });
        let latency = Some(Latency { unloaded, loaded, bulk_bytes });
        Answer { latency, ..answer(7 * 1024 + 1000, 7, None, 2.0) }
    }

    #[test]
    fn workload_check_accepts_only_the_requested_work() {
        let good = [
            (Workload::Download, answer(1000, 1, None, 0.1)),
            (Workload::Streams, answer(1000, 10, None, 0.1)),
            (Workload::Upload, answer(1000, 1, None, 0.1)),
            (Workload::Handshakes, answer(80, 10, Some(0), 2.0)),
            (Workload::Resumed, answer(80, 10, Some(10), 2.0)),
            (Workload::Requests, answer(2048, 2, None, 2.1)),
            (Workload::Idle, answer(0, 5, None, 0.1)),
            (Workload::Connections, answer(1000, 4, None, 0.1)),
            (Workload::Ttfb, first_byte(0.001, 0.002)),
            (Workload::Loaded, loaded((0.001, 0.002), (0.1, 0.2), 1000)),
        ];
        for (workload, answer) in good {
            assert_eq!(workload.check(&SIZE, &answer), Ok(()), "{workload:?}");
        }
        let bad = [
            (Workload::Download, answer(999, 1, None, 0.1)),
            (Workload::Download, answer(1001, 1, None, 0.1)),
            (Workload::Download, answer(1000, 1, None, 0.0)),
            (Workload::Download, answer(1000, 1, None, f64::NAN)),
            (Workload::Streams, answer(1000, 9, None, 0.1)),
            (Workload::Handshakes, answer(80, 10, Some(1), 2.0)),
            (Workload::Handshakes, answer(0, 0, Some(0), 2.0)),
            (Workload::Handshakes, answer(80, 10, Some(0), 0.5)),
            (Workload::Resumed, answer(80, 10, Some(8), 2.0)),
            (Workload::Resumed, answer(80, 10, None, 2.0)),
            (Workload::Requests, answer(2047, 2, None, 2.0)),
            (Workload::Requests, answer(u64::MAX, u64::MAX, None, 2.0)),
            (Workload::Idle, answer(0, 4, None, 0.1)),
            (Workload::Connections, answer(1000, 3, None, 0.1)),
            (Workload::Ttfb, answer(7, 7, None, 2.0)),
            (Workload::Ttfb, first_byte(0.002, 0.001)),
            (Workload::Ttfb, first_byte(0.0, 0.001)),
            (Workload::Ttfb, first_byte(0.001, f64::NAN)),
            (Workload::Loaded, answer(7 * 1024, 7, None, 2.0)),
            (Workload::Loaded, loaded((0.001, 0.002), (0.1, 0.2), 999)),
            (Workload::Loaded, loaded((0.001, 0.002), (0.1, 0.2), u64::MAX)),
            (Workload::Loaded, loaded((0.001, 0.002), (0.2, 0.1), 1000)),
            (Workload::Loaded, loaded((0.0, 0.002), (0.1, 0.2), 1000)),
            (Workload::Loaded, loaded((0.001, f64::NAN), (0.1, 0.2), 1000)),
            (Workload::Loaded, loaded((0.001, 0.002), (0.1, 2.1), 1000)),
            // In this answer, half of the exchanges would take longer than the whole measurement.
            (Workload::Loaded, loaded((0.001, 0.002), (0.7, 0.8), 1000)),
            (Workload::Loaded, Answer { bytes: 7 * 1024, ..loaded((0.001, 0.002), (0.1, 0.2), 0) }),
        ];
        for (workload, answer) in bad {
            assert!(workload.check(&SIZE, &answer).is_err(), "{workload:?} {answer:?}");
        }
    }

    #[test]
    fn workload_patience_grows_with_a_slow_path() {
        assert_eq!(Workload::Download.patience(&SIZE, 5e6), 30.0002);
        assert_eq!(Workload::Download.patience(&SIZE, 10.0), 130.0);
        assert_eq!(Workload::Ttfb.patience(&SIZE, 10.0), 34.0);
        assert_eq!(Workload::Loaded.patience(&SIZE, 10.0), 38.0);
    }

    #[test]
    fn workload_names_are_unique_and_arguments_follow_the_contract() {
        for workload in Workload::ALL {
            assert!(!workload.protocols().is_empty());
            assert_eq!(Workload::named(workload.name()), Some(workload));
            let json = serde_json::to_string(&workload).unwrap();
            assert_eq!(json, format!("{:?}", workload.name()));
        }
        let resumed = Workload::Resumed.arguments(&SIZE).join(" ");
        assert_eq!(resumed, "--handshakes 2 --parallel 8 --resume");
        let connections = Workload::Connections.arguments(&SIZE).join(" ");
        assert_eq!(connections, "--download 1000 --connections 4");
        assert_eq!(Workload::Ttfb.arguments(&SIZE).join(" "), "--ttfb 2");
        assert_eq!(Workload::Loaded.arguments(&SIZE).join(" "), "--loaded 2");
        let streams = Workload::Streams.arguments(&SIZE).join(" ");
        assert_eq!(streams, "--download 1000 --streams 10");
    }
}
