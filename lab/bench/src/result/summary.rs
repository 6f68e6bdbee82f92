//! The types of the summary of a run, with a row for each cell. `summarise.rs` computes it.

use std::collections::BTreeMap;

use equic_report::stats::Interval;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::profiles::Profiled;
use super::read::{About, Unreadable};
use crate::Effective;
use crate::record::{Failure, Key};

/// Version of the summary's schema. The summary is the extension object of `result.json`.
pub const SUMMARY: &str = "equic.bench.summary/1";

/// Summary of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// [`SUMMARY`].
    pub schema: String,
    /// Name of the run, which is the name of its folder.
    pub name: String,
    /// Start of the first attempt, in seconds since 1970-01-01 UTC.
    pub started: f64,
    /// End of the last attempt, in seconds since 1970-01-01 UTC.
    pub ended: f64,
    /// Seed of the random resampling.
    pub seed: u64,
    /// Number of all attempts, including the warm-up and repeated ones.
    pub attempts: usize,
    /// True if the last line of `samples.jsonl` is incomplete.
    pub cut: bool,
    /// Lines of the samples that are not records.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<Unreadable>,
    /// The implementations, by name.
    pub implementations: BTreeMap<String, About>,
    /// The rows of all tables, in order. There is a row for each cell.
    pub rows: Vec<Row>,
    /// Divisions of CPU time by samples. They come from additional attempts, whose figures do not
    /// count.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub profiles: Vec<Profiled>,
    /// The run's plan, as in `plan.json` but without its cells.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub plan: Value,
    /// The run's manifest, as in `manifest.json`.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub manifest: Value,
}

/// Identity of a table: a combination of workload, protocol, path and settings. Its cells differ
/// only in client and server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place<'a> {
    /// See [`Key`].
    pub workload: &'a str,
    /// See [`Key`].
    pub protocol: &'a str,
    /// See [`Key`].
    pub path: &'a str,
    /// See [`Key`].
    pub point: &'a BTreeMap<String, String>,
}

/// Summary of a cell over all its rounds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The cell.
    #[serde(flatten)]
    pub key: Key,
    /// Unit of `value`: `bit/s`, `1/s`, `s` or `B`. Empty without a figure.
    pub unit: String,
    /// Number of rounds of the cell.
    pub rounds: usize,
    /// Number of rounds with a figure.
    pub measured: usize,
    /// Number of attempts of all rounds. It exceeds `rounds` if attempts were repeated.
    pub attempts: usize,
    /// Number of figures that were measured although the machine was busier than the run's bounds
    /// allow.
    pub noisy: usize,
    /// Reason why the server or client does not support the cell. `None` if both support it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unsupported: Option<String>,
    /// The failures.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<Fault>,
    /// Figures that were measured on a busy machine, if there are no others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disturbed: Option<Disturbed>,
    /// Notes on the measured rounds.
    #[serde(default)]
    pub marks: Marks,
    /// The figure of the workload as median over the rounds, in `unit`.
    pub value: Option<Estimate>,
    /// CPU seconds of the server, without the start of the process (but see
    /// [`Marks::cpu_with_start`]): per 10^9 bytes for `bit/s`, otherwise per completion.
    pub server_cpu: Option<Estimate>,
    /// CPU seconds of the client, in the unit of `server_cpu`.
    pub client_cpu: Option<Estimate>,
    /// Duration of the handshake in seconds, for workloads with one connection.
    pub handshake: Option<Estimate>,
    /// Latency of small exchanges without and during a bulk download. `None` if the workload has no
    /// such exchanges.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<UnderLoad>,
    /// Lifetime of the client's process, in seconds.
    pub process: Option<Estimate>,
    /// `value` divided by that of TCP with TLS in the same round.
    pub to_tcp: Option<Estimate>,
    /// The pair of TCP that `to_tcp` compares with, as `client>server`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp: Option<String>,
    /// Comparison with eQUIC. `None` unless this implementation was measured as client
    /// and server at once, and eQUIC too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beside: Option<Beside>,
    /// The two modes of the figures, if they have two.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modes: Option<Modes>,
    /// Medians of further figures, such as memory and dropped packets.
    pub medians: Medians,
    /// Settings in force at the client in the last round, as it reports them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_effective: Option<Effective>,
    /// Settings in force at the server in the last round, as it reports them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_effective: Option<Effective>,
    /// The figures of all rounds.
    pub points: Vec<RoundFigure>,
}

/// Comparison of an implementation with eQUIC for the same workload, protocol, path and settings.
/// Each was measured with itself.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Beside {
    /// CPU time of server and client together, in the unit of [`Row::server_cpu`].
    pub cpu: Option<Estimate>,
    /// The figure divided by that of eQUIC in the same round. `None` for eQUIC itself.
    pub value: Option<Estimate>,
    /// `cpu` divided by that of eQUIC in the same round. `None` for eQUIC itself.
    pub cpu_ratio: Option<Estimate>,
}

/// Latency under load: durations of small exchanges without and during a bulk download on the same
/// connection. `value` of the row is the 99th percentile during the download.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct UnderLoad {
    /// Median over the rounds of the median duration of exchanges without the download, in seconds.
    pub unloaded_median: Estimate,
    /// Median over the rounds of the 99th percentile of exchanges without the download, in seconds.
    pub unloaded_p99: Estimate,
    /// Median over the rounds of the median duration of exchanges during the download, in seconds.
    pub loaded_median: Estimate,
    /// The 99th percentile during the download, divided by that without it in the same attempt.
    pub p99_ratio: Estimate,
    /// Goodput of the bulk download, in bit/s.
    pub bulk: Estimate,
}

/// A median with its uncertainty, in the unit of the figure.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// Number of figures that the median is computed from.
    pub n: usize,
    /// The median.
    pub median: f64,
    /// Interval that contains the median with a confidence of 95 % or more. `None` for fewer than 6
    /// figures.
    #[serde(default)]
    pub interval: Option<Interval>,
    /// Median absolute deviation of the figures, not scaled.
    pub mad: f64,
    /// The smallest figure.
    pub min: f64,
    /// The largest figure.
    pub max: f64,
    /// The mean of the figures, which the Interop Runner shows.
    pub mean: f64,
    /// The standard deviation of the figures, which the Interop Runner shows. It is 0 for one
    /// figure.
    pub deviation: f64,
}

/// Figures that do not count because the machine was too busy. Those of the first attempt of each
/// round are used.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Disturbed {
    /// Number of rounds with such figures.
    pub n: usize,
    /// The median of these figures, in the row's unit.
    pub median: f64,
    /// The largest share of CPU time that other programs used in these rounds, from 0 to 1.
    pub foreign: f64,
    /// The largest share of CPU time that the hypervisor took in these rounds, from 0 to 1.
    pub steal: f64,
    /// Options of `equic-lab bench run` that accept such figures.
    pub accept: String,
}

/// Notes on a cell: the numbers of rounds whose figures need care, by reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Marks {
    /// Rounds in which CPU time includes the start of the client, because the start was not
    /// measured.
    pub cpu_with_start: usize,
    /// Rounds in which the client's clock does not agree with the runner's observations.
    pub clock_doubted: usize,
    /// Reason for the first doubt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock_doubt: Option<String>,
    /// True if the clock of the client that [`Row::to_tcp`] compares with is doubted.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub tcp_clock_doubted: bool,
    /// Rounds in which the server used CPU time without any client.
    pub server_restless: usize,
    /// Rounds in which the server did not end after SIGTERM, and was killed.
    pub server_killed: usize,
}

/// A failure: its kind, its reason and its rounds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// Kind of failure.
    pub failure: Failure,
    /// Reason for the first failure of this kind.
    pub why: String,
    /// Rounds in which this failure happened.
    pub rounds: Vec<i64>,
    /// Folder with the logs of the first failure of this kind, relative to the run's folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logs: Option<String>,
}

/// Two modes of a sample (Hartigan's dip test, p below 0.05).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Modes {
    /// Probability of a sample like this one if its distribution had only one mode.
    pub p: f64,
    /// Median of the lower of the two groups into which 2-means divides the figures.
    pub low: f64,
    /// Number of figures in the lower group.
    pub low_count: usize,
    /// Median of the upper of the two groups into which 2-means divides the figures.
    pub high: f64,
    /// Number of figures in the upper group.
    pub high_count: usize,
}

/// Medians of further figures, without intervals. `None` if a figure was not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Medians {
    /// Peak memory of the server, in bytes.
    pub server_peak_rss: Option<f64>,
    /// Peak memory of the client, in bytes.
    pub client_peak_rss: Option<f64>,
    /// Datagrams that the server dropped because a receive buffer was full.
    pub server_udp_drops: Option<f64>,
    /// Datagrams that the client dropped because a receive buffer was full.
    pub client_udp_drops: Option<f64>,
    /// Packets that the kernel dropped before they reached a socket.
    pub softnet_drops: Option<f64>,
    /// Datagrams per sending system call of the server.
    pub server_packets_per_send: Option<f64>,
    /// Datagrams per receiving system call of the client.
    pub client_packets_per_receive: Option<f64>,
    /// Number of certificate chains that the client verified, if it caches valid ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chains_verified: Option<f64>,
    /// Share of all CPU time that the hypervisor took, from 0 to 1.
    pub steal: Option<f64>,
    /// Share of all CPU time that other programs used, from 0 to 1.
    pub foreign: Option<f64>,
}

/// The figures of one round.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RoundFigure {
    /// The round.
    pub round: i64,
    /// Time at which the attempt began, in seconds since 1970-01-01 UTC.
    pub started: f64,
    /// The figure.
    pub value: f64,
    /// See [`Row::server_cpu`].
    pub server_cpu: f64,
    /// See [`Row::client_cpu`].
    pub client_cpu: f64,
}

impl Row {
    /// Returns the table that the row belongs to.
    #[must_use]
    pub fn place(&self) -> Place<'_> {
        Place {
            workload: &self.key.workload,
            protocol: &self.key.protocol,
            path: &self.key.path,
            point: &self.key.point,
        }
    }

    /// Returns true if client and server are the same implementation.
    #[must_use]
    pub fn is_with_itself(&self) -> bool {
        self.key.client == self.key.server
    }

    /// Returns the largest UDP payload that the sender of the data can send, or `None` if it does
    /// not report one. The other endpoint sends little more than acknowledgements, and need not
    /// discover a larger payload.
    #[must_use]
    pub fn sent_payload(&self) -> Option<u64> {
        let uploads = self.key.workload == "upload";
        let sender = if uploads { &self.client_effective } else { &self.server_effective };
        sender.as_ref().map(|one| one.max_payload).filter(|bytes| *bytes > 0)
    }

    /// Returns true if the figure depends on the client's clock, and this clock is doubted in at
    /// least half of the measured rounds: it does not agree with the runner's observations. If
    /// there are fewer such rounds, the process may have been slow for another reason, and the
    /// median does not depend on them.
    #[must_use]
    pub fn clock_is_doubted(&self) -> bool {
        self.marks.clock_doubted > 0 && 2 * self.marks.clock_doubted >= self.measured
    }

    /// Returns the number of rounds in which every attempt was disturbed. Such rounds say nothing
    /// about the implementations.
    #[must_use]
    pub fn disturbed_rounds(&self) -> usize {
        let noisy = self.faults.iter().filter(|fault| fault.failure == Failure::Noisy);
        noisy.map(|fault| fault.rounds.len()).sum()
    }

    /// Returns the number of failed rounds.
    #[must_use]
    pub fn failed(&self) -> usize {
        self.faults.iter().map(|fault| fault.rounds.len()).sum()
    }

    /// Returns the unit that determines the scale of CPU time. For a bulk download, CPU time is
    /// given per byte.
    #[must_use]
    pub fn cpu_unit(&self) -> &str {
        if self.latency.is_some() { "bit/s" } else { &self.unit }
    }

    /// Returns true if smaller figures are better.
    #[must_use]
    pub fn less_is_better(&self) -> bool {
        matches!(&*self.unit, "s" | "B")
    }
}

impl Summary {
    /// Returns the rows of each table.
    pub fn tables(&self) -> impl Iterator<Item = &[Row]> {
        self.rows.chunk_by(|a, b| a.place() == b.place())
    }

    /// Returns the rows with failures.
    pub fn failing(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|row| !row.faults.is_empty())
    }
}
