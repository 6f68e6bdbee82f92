//! The stored data of a run of `equic-lab bench run`: one [`Record`] per line of `samples.jsonl`.
//!
//! The runner writes records. Tables, pages and comparisons read them. A line describes one attempt
//! completely, so a truncated file is still usable.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::Effective;
use crate::answer::Latency;

/// Version of the schema of a record.
pub const RECORDS: &str = "equic.bench.samples/1";

/// Identity of a cell: everything that determines the meaning of its figure.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Key {
    /// Name of the workload: `download`, `upload`, `streams`, `connections`, `handshakes`, `resumed`,
    /// `requests`, `ttfb`, `loaded`, `transfer`, `idle`.
    pub workload: String,
    /// Protocol: `perf`, `perf-tcp`, `sendfile`, `h3`, `hq-interop`. Figures of different protocols
    /// never share a table.
    pub protocol: String,
    /// Path between client and server: `loopback`, `veth`, `veth-plain` (offloads off), `tbf-100mbit`,
    /// `relay-...`, `testbed`.
    pub path: String,
    /// Name of the client's implementation.
    pub client: String,
    /// The server's.
    pub server: String,
    /// Swept settings with their values in this cell, such as `rcvbuf` -> `106496`. Empty without a
    /// sweep.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub point: BTreeMap<String, String>,
}

/// Record of one attempt at one cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Version of the schema, [`RECORDS`]. Empty in files of older releases.
    #[serde(default)]
    pub schema: String,
    /// Cell that was measured.
    #[serde(flatten)]
    pub key: Key,
    /// Number of the round, counted from 0. The warm-up round, whose figures do not count, is `-1`.
    pub round: i64,
    /// Position in the order of the whole plan, counted from 0.
    pub sequence: u64,
    /// Number of the attempt in its round, counted from 1. The last attempt of a round counts.
    pub attempt: u32,
    /// True if the attempt's figure counts. `None` in files of older releases: the last attempt of
    /// a round counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counts: Option<bool>,
    /// Reason why the attempt does not count. `None` if it counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why_not: Option<WhyNot>,
    /// Time at which the attempt began: seconds since 1970-01-01 UTC.
    pub started: f64,
    /// Total duration of the attempt in seconds, including the start and the end of the processes.
    pub wall_seconds: f64,
    /// Outcome of the attempt.
    #[serde(flatten)]
    pub end: End,
    /// Activity of other programs and of the hypervisor during the attempt.
    pub noise: Noise,
    /// Folder of the attempt's logs, relative to the folder of the result. `None` if no logs were
    /// kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logs: Option<String>,
}

/// Reason why an attempt does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WhyNot {
    /// The attempt belongs to the warm-up round.
    WarmUp,
    /// The attempt was made for a profile or for logs.
    Extra,
    /// Other programs used too much of the machine. The attempt is discarded and repeated.
    Noisy,
    /// The attempt was interrupted. It is repeated when the run is resumed.
    Interrupted,
    /// The attempt failed, see `failure`. It counts among the failures.
    Failed,
    /// The server or the client does not support the cell.
    Unsupported,
}

impl Record {
    /// Returns true if a repetition would end the same way: the server or the client does not
    /// support the cell, or its program is missing.
    #[must_use]
    pub fn is_final(&self) -> bool {
        matches!(self.end, End::Unsupported { .. } | End::Failed { failure: Failure::Missing, .. })
    }

    /// Returns the figures if they were measured but do not count because the machine was too busy.
    #[must_use]
    pub fn disturbed(&self) -> Option<&Figures> {
        match &self.end {
            End::Measured { figures } if self.is_thrown_away() => Some(figures),
            _ => None,
        }
    }

    /// Returns true if the attempt was discarded and is repeated. It counts neither as a figure nor
    /// as a failure.
    #[must_use]
    pub fn is_thrown_away(&self) -> bool {
        self.why_not == Some(WhyNot::Noisy)
    }

    /// Records whether the attempt counts. `last` is true if the turn is not repeated. `extra` is
    /// true if the attempt was made for extra recordings.
    pub(crate) fn judge(&mut self, last: bool, extra: bool) {
        let why_not = match &self.end {
            _ if extra => Some(WhyNot::Extra),
            _ if self.round < 0 => Some(WhyNot::WarmUp),
            End::Failed { failure: Failure::Interrupted, .. } => Some(WhyNot::Interrupted),
            _ if !last => Some(WhyNot::Noisy),
            End::Unsupported { .. } => Some(WhyNot::Unsupported),
            End::Failed { .. } => Some(WhyNot::Failed),
            // This is the same rule as in reports.
            End::Measured { figures } => (!figures.is_sound()).then_some(WhyNot::Failed),
        };
        (self.counts, self.why_not) = (Some(why_not.is_none()), why_not);
    }
}

impl Figures {
    /// Returns the amount of work by which CPU time is divided: the number of 10^9 bytes, or the
    /// number of completions.
    #[must_use]
    pub fn units(&self) -> f64 {
        // In the workload with small exchanges, the bulk download uses most of the CPU time.
        if self.unit == "bit/s" || self.latency.is_some() {
            self.bytes as f64 / 1e9
        } else {
            self.count as f64
        }
    }

    /// Returns the CPU seconds of the server and of the client. The CPU time of their starts is
    /// subtracted if it was measured.
    #[must_use]
    pub fn work_cpu(&self) -> (f64, f64) {
        let work = |all: f64, start: Option<f64>| (all - start.unwrap_or(0.0)).max(0.0);
        (
            work(self.server_cpu_seconds, self.server_start_cpu_seconds),
            work(self.client_cpu_seconds, self.client_start_cpu_seconds),
        )
    }

    /// Returns true if the figures are plausible: they are finite and above zero, and some work was
    /// done.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.value.is_finite() && self.value > 0.0 && self.units() > 0.0
    }
}

/// Outcome of an attempt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum End {
    /// The attempt was measured.
    Measured {
        /// The figures.
        #[serde(flatten)]
        figures: Box<Figures>,
    },
    /// The server or the client does not support the cell (exit status 127).
    Unsupported {
        /// The program that does not support the cell, and its message.
        why: String,
    },
    /// The attempt failed, and there is no figure.
    Failed {
        /// Kind of failure.
        failure: Failure,
        /// Description of the failure, in words.
        why: String,
    },
}

/// Kind of failure of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Failure {
    /// A program could not be started, or the server was not ready in time.
    Start,
    /// A program does not exist or is not executable. The cell is not tried in further rounds.
    Missing,
    /// A program ended with a status other than 0, or by a signal.
    Crashed,
    /// The time limit was reached, or no bytes were transferred for too long.
    Stalled,
    /// Fewer bytes, streams or connections were completed than requested.
    Truncated,
    /// The received bytes differ from those that were sent (checksum).
    Corrupted,
    /// The client reports work that it did not do, or its answer is invalid.
    Lied,
    /// Other programs used too much of the machine in each of the permitted attempts.
    Noisy,
    /// Interrupted.
    Interrupted,
}

/// The figures of a measured attempt. The names of fields contain units. CPU time is user and
/// system time of a process from its start to its end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// The figure of the workload, in `unit`.
    pub value: f64,
    /// `bit/s`, `1/s`, `s` or `B` (bytes per connection). For `s` and `B`, less is better.
    pub unit: String,
    /// Number of payload bytes that arrived.
    pub bytes: u64,
    /// Number of streams, handshakes, requests or connections that were completed.
    pub count: u64,
    /// Time from the first request to the last byte, in seconds.
    pub seconds: f64,
    /// Lifetime of the client's process, in seconds.
    pub process_seconds: f64,
    /// Duration of the handshake in seconds, if there was only one connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handshake_seconds: Option<f64>,
    /// Durations of small exchanges without and during a bulk download.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<Latency>,
    /// Number of certificate chains that the client verified, if it caches valid chains. `None` if
    /// it verified each chain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chains_verified: Option<u64>,
    /// CPU seconds of the server's process, including its children.
    pub server_cpu_seconds: f64,
    /// CPU seconds of the client's process, including its children.
    pub client_cpu_seconds: f64,
    /// Part of `server_cpu_seconds` that the server had used before the measured client started.
    /// `None` if it was not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_start_cpu_seconds: Option<f64>,
    /// CPU seconds of the probe, a client that fetched one byte. `None` if they were not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_start_cpu_seconds: Option<f64>,
    /// Lifetime in seconds of the probe, a client that fetched one byte.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_process_seconds: Option<f64>,
    /// Reason why the client's `seconds` are doubted. `None` if they agree with the runner's
    /// observations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_doubt: Option<String>,
    /// True if the server used CPU time without any client.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub server_restless: bool,
    /// True if the server did not end after SIGTERM, and was killed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub server_killed: bool,
    /// Peak memory of the server, in bytes.
    pub server_peak_rss: u64,
    /// Peak memory of the client, in bytes.
    pub client_peak_rss: u64,
    /// Increase of UdpRcvbufErrors in the server's network namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_udp_drops: Option<u64>,
    /// Increase of UdpRcvbufErrors in the client's network namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_udp_drops: Option<u64>,
    /// Increase of dropped packets in /proc/net/softnet_stat, over all CPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub softnet_drops: Option<u64>,
    /// UDP datagrams per sending system call of the server, if they were counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_packets_per_send: Option<f64>,
    /// UDP datagrams per receiving system call of the client, if they were counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_packets_per_receive: Option<f64>,
    /// Settings in force at the client, as it reports them. `None` if it reported none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_effective: Option<Effective>,
    /// Settings in force at the server, as it reports them. `None` if it reported none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_effective: Option<Effective>,
}

/// Activity of other programs and of the hypervisor during an attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Noise {
    /// Share of all CPU time that the hypervisor took, from 0 to 1.
    pub steal: f64,
    /// Share of all CPU time that other programs used, from 0 to 1.
    pub foreign: f64,
    /// True if the activity exceeded the bounds of the run.
    pub too_much: bool,
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn record(end: End) -> Record {
        let key = Key {
            workload: "download".to_owned(),
            protocol: "perf".to_owned(),
            path: "veth".to_owned(),
            client: "a".to_owned(),
            server: "b".to_owned(),
            point: BTreeMap::new(),
        };
        Record {
            schema: RECORDS.to_owned(),
            key,
            round: 0,
            sequence: 7,
            attempt: 1,
            counts: None,
            why_not: None,
            started: 1.5,
            wall_seconds: 2.0,
            end,
            noise: Noise::default(),
            logs: None,
        }
    }

    fn measured(value: f64) -> End {
        let unit = "bit/s".to_owned();
        End::Measured { figures: Box::new(Figures { value, unit, bytes: 1, ..Figures::default() }) }
    }

    fn failed(failure: Failure) -> End {
        End::Failed { failure, why: "why".to_owned() }
    }

    #[test]
    fn record_states_whether_it_counts_and_why_not() {
        let unsupported = || End::Unsupported { why: "why".to_owned() };
        for (end, round, last, extra, why_not) in [
            (measured(5.0), 0, true, false, None),
            (measured(5.0), 0, false, false, Some(WhyNot::Noisy)),
            (measured(5.0), -1, true, false, Some(WhyNot::WarmUp)),
            (measured(5.0), -1, true, true, Some(WhyNot::Extra)),
            (measured(-5.0), 0, true, false, Some(WhyNot::Failed)),
            (failed(Failure::Noisy), 0, true, false, Some(WhyNot::Failed)),
            (failed(Failure::Stalled), 0, false, false, Some(WhyNot::Noisy)),
            (failed(Failure::Interrupted), 0, false, false, Some(WhyNot::Interrupted)),
            (unsupported(), 0, true, false, Some(WhyNot::Unsupported)),
        ] {
            let mut record = Record { round, ..record(end) };
            record.judge(last, extra);
            assert_eq!((record.counts, record.why_not), (Some(why_not.is_none()), why_not));
            assert_eq!(record.is_thrown_away(), why_not == Some(WhyNot::Noisy));
            let line = serde_json::to_string(&record).unwrap();
            assert!(line.starts_with(r#"{"schema":"equic.bench.samples/1","#), "{line}");
            assert!(line.contains(&format!(r#""counts":{}"#, why_not.is_none())), "{line}");
            assert_eq!(serde_json::from_str::<Record>(&line).unwrap(), record);
        }
    }

    #[test]
    fn record_of_an_earlier_release_is_read() {
        let mut line = serde_json::to_value(record(measured(5.0))).unwrap();
        line.as_object_mut().unwrap().remove("schema");
        let read: Record = serde_json::from_value(line).unwrap();
        assert_eq!((&*read.schema, read.counts, read.why_not), ("", None, None));
        assert!(!read.is_thrown_away());
    }

    /// The table in docs/notebook/bench-output.md must have exactly the fields of a line.
    #[test]
    fn record_fields_are_documented() {
        let figures = Figures {
            handshake_seconds: Some(1.0),
            latency: Some(Latency::default()),
            server_udp_drops: Some(1),
            client_udp_drops: Some(1),
            softnet_drops: Some(1),
            server_packets_per_send: Some(1.0),
            client_packets_per_receive: Some(1.0),
            client_effective: Some(Effective::default()),
            server_effective: Some(Effective::default()),
            server_start_cpu_seconds: Some(1.0),
            client_start_cpu_seconds: Some(1.0),
            start_process_seconds: Some(1.0),
            clock_doubt: Some("why".to_owned()),
            server_restless: true,
            server_killed: true,
            ..Figures::default()
        };
        let mut measured = Record {
            counts: Some(false),
            why_not: Some(WhyNot::Noisy),
            logs: Some("logs".to_owned()),
            ..record(End::Measured { figures: Box::new(figures) })
        };
        measured.key.point.insert("rcvbuf".to_owned(), "1".to_owned());
        let lines = [measured, record(failed(Failure::Stalled))];
        let fields = lines.iter().flat_map(|line| match serde_json::to_value(line).unwrap() {
            serde_json::Value::Object(line) => line.into_iter().map(|(name, _)| name),
            other => panic!("{other}"),
        });
        let fields: BTreeSet<String> = fields.collect();
        let docs = include_str!("../../../docs/notebook/bench-output.md");
        let (_, rest) = docs.split_once("| field | what it is |\n|---|---|\n").unwrap();
        let (table, _) = rest.split_once("\n\n").unwrap();
        let named: BTreeSet<String> = table
            .lines()
            .flat_map(|row| row.split('|').nth(1).unwrap().split(','))
            .map(|name| name.trim().trim_matches('`').to_owned())
            .collect();
        assert_eq!(named, fields);
    }
}
