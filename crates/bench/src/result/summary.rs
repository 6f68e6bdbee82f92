//! Summary of a run, cell by cell: the shape of it. `summarise.rs` makes it.

use std::collections::BTreeMap;

use equic_report::stats::Interval;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::profiles::Profiled;
use super::read::{About, Unreadable};
use crate::Effective;
use crate::record::{Failure, Key};

/// The version of this shape: the extension object of `result.json`.
pub const SUMMARY: &str = "equic.bench.summary/1";

/// All that a run says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// [`SUMMARY`].
    pub schema: String,
    /// Name of the run: that of its folder.
    pub name: String,
    /// Time at which the first attempt began, in seconds since 1970-01-01 UTC.
    pub started: f64,
    /// Time at which the last attempt ended, in seconds since 1970-01-01 UTC.
    pub ended: f64,
    /// Seed of resampling.
    pub seed: u64,
    /// Attempts in all: with warm-up and those that were made again.
    pub attempts: usize,
    /// True if the last line of the samples was cut off.
    pub cut: bool,
    /// Lines that are no records.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<Unreadable>,
    /// Implementations that took part, by name.
    pub implementations: BTreeMap<String, About>,
    /// One for each cell, in the order of tables.
    pub rows: Vec<Row>,
    /// Division of CPU time, by a run of its own that is in no figure.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub profiles: Vec<Profiled>,
    /// The run's plan, without its cells.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub plan: Value,
    /// The run's manifest.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub manifest: Value,
}

/// Identity of a table: its cells differ in client and server alone.
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

/// A cell over all rounds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Cell that the figures are of.
    #[serde(flatten)]
    pub key: Key,
    /// Unit of `value`: `bit/s`, `1/s`, `s` or `B`; empty when nothing was measured.
    pub unit: String,
    /// Rounds that were run.
    pub rounds: usize,
    /// Rounds that gave a figure.
    pub measured: usize,
    /// Attempts of all rounds: more than `rounds` when some were made again.
    pub attempts: usize,
    /// Measured although the machine was busier than the run's bounds.
    pub noisy: usize,
    /// Reason for which an end does not support the cell; none: both do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unsupported: Option<String>,
    /// Failures.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<Fault>,
    /// Figures of a busy machine, if there are no others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disturbed: Option<Disturbed>,
    /// What a reader has to know of the rounds that were measured.
    #[serde(default)]
    pub marks: Marks,
    /// The workload's own figure, in `unit`.
    pub value: Option<Estimate>,
    /// CPU seconds of the server for each 10^9 bytes of `bit/s`, else for each completion; without the start of the
    /// process, see [`Marks::cpu_with_start`].
    pub server_cpu: Option<Estimate>,
    /// The same of the client.
    pub client_cpu: Option<Estimate>,
    /// The handshake of a single connection, in seconds.
    pub handshake: Option<Estimate>,
    /// Small exchanges beside a bulk download and without it; none: that was not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<UnderLoad>,
    /// From the start of the client process to its end, in seconds.
    pub process: Option<Estimate>,
    /// `value` as a multiple of that of TCP with TLS in the same round.
    pub to_tcp: Option<Estimate>,
    /// Pair that `to_tcp` compares with, `client>server`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp: Option<String>,
    /// Comparison with ours; none: it was not measured with itself, or ours was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beside: Option<Beside>,
    /// That the figures are rather two.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modes: Option<Modes>,
    /// Medians of the rest.
    pub medians: Medians,
    /// Settings in force at the client in the last round, by its own account.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_effective: Option<Effective>,
    /// Settings in force at the server in the last round, by its own account.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_effective: Option<Effective>,
    /// Every figure.
    pub points: Vec<RoundFigure>,
}

/// An implementation with itself beside ours with itself, at the same place.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Beside {
    /// CPU time of both ends together, in the unit of [`Row::server_cpu`].
    pub cpu: Option<Estimate>,
    /// The figure as a multiple of ours in the same round; none for ours.
    pub value: Option<Estimate>,
    /// `cpu` as a multiple of ours in the same round; none for ours.
    pub cpu_ratio: Option<Estimate>,
}

/// Latency under load: times of small exchanges without a bulk download on the connection, and with one. `value` of
/// the row is the 99th percentile with it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct UnderLoad {
    /// Medians of exchanges without it, in seconds.
    pub unloaded_median: Estimate,
    /// 99th percentiles of exchanges without it, in seconds.
    pub unloaded_p99: Estimate,
    /// Medians of exchanges with it, in seconds.
    pub loaded_median: Estimate,
    /// The 99th percentile with it as a multiple of that without it in the same attempt.
    pub p99_ratio: Estimate,
    /// Goodput of the bulk download, in bit/s.
    pub bulk: Estimate,
}

/// A median and all that says how sure it is. Units are those of the figure.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// Number of figures.
    pub n: usize,
    /// The median.
    pub median: f64,
    /// Interval in which the median lies with 95 % confidence or more; none: fewer than 6 figures have none.
    #[serde(default)]
    pub interval: Option<Interval>,
    /// Median absolute deviation, not scaled.
    pub mad: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
    /// The mean, as the Interop Runner shows.
    pub mean: f64,
    /// The standard deviation, as the Interop Runner shows; 0 for one figure.
    pub deviation: f64,
}

/// Figures that do not count, because the machine was too busy with others: the first of each round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Disturbed {
    /// Number of rounds.
    pub n: usize,
    /// The median, in the row's unit.
    pub median: f64,
    /// The most that others used in any of these rounds, 0 to 1.
    pub foreign: f64,
    /// The most that the hypervisor took, 0 to 1.
    pub steal: f64,
    /// Options of a run that accepts such figures.
    pub accept: String,
}

/// Rounds of a cell that were measured, and have to be read with care.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Marks {
    /// CPU time includes the start of the client, because that was not measured.
    pub cpu_with_start: usize,
    /// The client's clock does not agree with what the runner saw.
    pub clock_doubted: usize,
    /// Why, the first time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock_doubt: Option<String>,
    /// The server used CPU time although no client was there.
    pub server_restless: usize,
    /// The server did not end when it was asked to, and was killed.
    pub server_killed: usize,
}

/// Something that went wrong: its kind, how often it happened and when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// Kind of failure.
    pub failure: Failure,
    /// Description of the first such failure.
    pub why: String,
    /// Rounds in which it happened.
    pub rounds: Vec<i64>,
    /// Logs of the first time, relative to the run's folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logs: Option<String>,
}

/// Two modes (Hartigan's dip test under 0.05).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Modes {
    /// The probability that one mode gives such a sample.
    pub p: f64,
    /// Median of the lower half, by 2-means.
    pub low: f64,
    /// Number of figures in the lower half.
    pub low_count: usize,
    /// Median of the upper.
    pub high: f64,
    /// Number of figures in the upper half.
    pub high_count: usize,
}

/// Medians of what has no interval; none where nothing was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Medians {
    /// Bytes.
    pub server_peak_rss: Option<f64>,
    /// Bytes.
    pub client_peak_rss: Option<f64>,
    /// Datagrams that found a full buffer at the server.
    pub server_udp_drops: Option<f64>,
    /// At the client.
    pub client_udp_drops: Option<f64>,
    /// Packets that the kernel dropped before any socket.
    pub softnet_drops: Option<f64>,
    /// Datagrams for each system call.
    pub server_packets_per_send: Option<f64>,
    /// Datagrams for each system call.
    pub client_packets_per_receive: Option<f64>,
    /// Certificate chains that the client verified, where it remembers the rest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chains_verified: Option<f64>,
    /// Part of all CPU time that the hypervisor took, 0 to 1.
    pub steal: Option<f64>,
    /// Part of all CPU time that went elsewhere, 0 to 1.
    pub foreign: Option<f64>,
}

/// A figure of one round.
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
    /// Table that the row is in.
    #[must_use]
    pub fn place(&self) -> Place<'_> {
        Place {
            workload: &self.key.workload,
            protocol: &self.key.protocol,
            path: &self.key.path,
            point: &self.key.point,
        }
    }

    /// True if both ends are of the same implementation.
    #[must_use]
    pub fn is_with_itself(&self) -> bool {
        self.key.client == self.key.server
    }

    /// The largest UDP payload that the end which sends the bytes was able to send, by its own account; none: it does
    /// not tell. The other end sends little else than acknowledgements, and need not find a larger one.
    #[must_use]
    pub fn sent_payload(&self) -> Option<u64> {
        let uploads = self.key.workload == "upload";
        let sender = if uploads { &self.client_effective } else { &self.server_effective };
        sender.as_ref().map(|one| one.max_payload).filter(|bytes| *bytes > 0)
    }

    /// Rounds whose every attempt was disturbed: they say nothing of the implementations.
    #[must_use]
    pub fn disturbed_rounds(&self) -> usize {
        let noisy = self.faults.iter().filter(|fault| fault.failure == Failure::Noisy);
        noisy.map(|fault| fault.rounds.len()).sum()
    }

    /// Rounds that went wrong.
    #[must_use]
    pub fn failed(&self) -> usize {
        self.faults.iter().map(|fault| fault.rounds.len()).sum()
    }

    /// Unit whose scale of CPU time is shown: beside a bulk download that time is for its bytes.
    #[must_use]
    pub fn cpu_unit(&self) -> &str {
        if self.latency.is_some() { "bit/s" } else { &self.unit }
    }

    /// True if smaller figures are better.
    #[must_use]
    pub fn less_is_better(&self) -> bool {
        matches!(&*self.unit, "s" | "B")
    }
}

impl Summary {
    /// The rows of each table.
    pub fn tables(&self) -> impl Iterator<Item = &[Row]> {
        self.rows.chunk_by(|a, b| a.place() == b.place())
    }

    /// Rows that have failures.
    pub fn failing(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|row| !row.faults.is_empty())
    }
}
