//! What is known of a run of `equic bench run`: one [`Record`] a line in `samples.jsonl`.
//!
//! The runner writes them, everything else reads them: tables, pages, comparisons. A line says all that
//! belongs to one attempt, so that a file cut off anywhere still says what its lines say.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::Effective;

/// The version of the shape of a line.
pub const RECORDS: &str = "equic.bench.samples/1";

/// What is measured in one cell: everything that makes it another figure.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Key {
    /// Name of the workload: `download`, `upload`, `streams`, `connections`, `handshakes`, `resumed`,
    /// `requests`, `ttfb`, `transfer`, `idle`.
    pub workload: String,
    /// What is spoken: `perf`, `perf-tcp`, `sendfile`, `h3`, `hq-interop`. Figures of different protocols
    /// never share a table.
    pub protocol: String,
    /// What lies between client and server: `loopback`, `veth`, `veth-plain` (offloads off), `tbf-100mbit`,
    /// `relay-...`, `testbed`.
    pub path: String,
    /// The client's implementation.
    pub client: String,
    /// The server's.
    pub server: String,
    /// What is swept, with its value here: `rcvbuf` -> `106496`. Empty without a sweep.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub point: BTreeMap<String, String>,
}

/// One attempt at one cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// What was measured.
    #[serde(flatten)]
    pub key: Key,
    /// Round, counted from 0. Round `-1` is warm-up: in no figure.
    pub round: i64,
    /// Place in the order of the whole plan, counted from 0.
    pub sequence: u64,
    /// Attempt, counted from 1. A round's last attempt is the one that counts.
    pub attempt: u32,
    /// When it began: seconds since 1970-01-01 UTC.
    pub started: f64,
    /// How long it took in all, with the start and end of the processes, in seconds.
    pub wall_seconds: f64,
    /// What became of it.
    #[serde(flatten)]
    pub end: End,
    /// What else the machine did meanwhile.
    pub noise: Noise,
    /// Folder of its logs, relative to the result's; none: none were kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logs: Option<String>,
}

/// What became of an attempt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum End {
    /// It was measured.
    Measured {
        /// The figures.
        #[serde(flatten)]
        figures: Box<Figures>,
    },
    /// An end says that it does not do that (exit status 127).
    Unsupported {
        /// Which end, and what it said.
        why: String,
    },
    /// It went wrong: no number.
    Failed {
        /// In which way.
        failure: Failure,
        /// What happened, in words.
        why: String,
    },
}

/// In which way an attempt went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Failure {
    /// A program could not be started, or the server was not ready in time.
    Start,
    /// A program ended with a status other than 0, or by a signal.
    Crashed,
    /// Time was over, or nothing moved any more.
    Stalled,
    /// Fewer bytes, streams or connections than asked for.
    Truncated,
    /// The bytes are not those that were sent (checksum).
    Corrupted,
    /// It says that it did what it did not, or its answer is none.
    Lied,
    /// The machine was too busy with others, as often as was tried.
    Noisy,
    /// Stopped from outside.
    Interrupted,
}

/// The figures of a measured attempt. Units are in the names; CPU time is user and system time of a
/// process from its start to its end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// The workload's own figure, in `unit`.
    pub value: f64,
    /// `bit/s`, `1/s`, `s` or `B` (bytes for each connection); for `s` and `B` less is better.
    pub unit: String,
    /// Payload bytes that arrived, counted.
    pub bytes: u64,
    /// Streams, handshakes, requests or connections completed.
    pub count: u64,
    /// From the first request to the last byte.
    pub seconds: f64,
    /// From the start of the client process to its end.
    pub process_seconds: f64,
    /// Of the only connection's handshake.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handshake_seconds: Option<f64>,
    /// CPU seconds of the server's and the client's process (with their children).
    pub server_cpu_seconds: f64,
    /// See `server_cpu_seconds`.
    pub client_cpu_seconds: f64,
    /// The most memory each had, in bytes.
    pub server_peak_rss: u64,
    /// See `server_peak_rss`.
    pub client_peak_rss: u64,
    /// The rise of UdpRcvbufErrors in the network namespace of each end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_udp_drops: Option<u64>,
    /// See `server_udp_drops`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_udp_drops: Option<u64>,
    /// The rise of dropped packets in /proc/net/softnet_stat, all CPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub softnet_drops: Option<u64>,
    /// UDP datagrams sent for each sending system call of the server, where they were counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_packets_per_send: Option<f64>,
    /// UDP datagrams received for each receiving system call of the client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_packets_per_receive: Option<f64>,
    /// What was in force at the client, by its own account.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_effective: Option<Effective>,
    /// At the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_effective: Option<Effective>,
}

/// What else the machine did during an attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Noise {
    /// Part of all CPU time that the hypervisor took, 0 to 1.
    pub steal: f64,
    /// Part of all CPU time that went to neither end nor to us, 0 to 1.
    pub foreign: f64,
    /// Whether it was above the bounds of the run.
    pub too_much: bool,
}
