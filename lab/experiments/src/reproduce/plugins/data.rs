//! The stored data of the experiments: the figures of every run.

use equic_plugin_kit::paper::{Marking, Timer};
use equic_report::stats::Sample;
use equic_report::stats::effect::Ratio;
use serde::{Deserialize, Serialize};

/// Results of all parts of the experiment. The results of parts that did not run are empty.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Plugins {
    /// True if this is the small experiment (`--quick`).
    pub quick: bool,
    /// Requests in which a packet is lost, for each path.
    pub figure3: Vec<Requests>,
    /// Downloads through a router that marks or drops packets, for each congestion control
    /// algorithm.
    pub figure4: Vec<Downloads>,
    /// Downloads over two asymmetric paths, with the usual number of acknowledgements and with
    /// fewer.
    #[serde(default)]
    pub figure5: Vec<AckPaths>,
    /// A download over two paths. The rate of one path is limited by caps that the client pushes as
    /// plugins.
    #[serde(default)]
    pub figure6: Option<Caps>,
    /// Sizes of plugins.
    pub table2: Vec<Size>,
    /// Cost of plugins, measured as CPU time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub costs: Option<Costs>,
    /// Results in real time, for one point of each figure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub real_time: Option<RealTime>,
}

/// CPU time of in-memory transfers, and the time until plugins run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Costs {
    /// Size of each transfer in bytes.
    pub bytes: u64,
    /// Transfers with each path scheduler. The first one is the native scheduler.
    pub schedulers: Vec<CostArm>,
    /// Transfers with each extension. The first one is without an extension.
    pub extensions: Vec<CostArm>,
    pub loading: Vec<LoadTimes>,
}

/// Transfers with one path scheduler, or with one extension.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct CostArm {
    pub name: String,
    /// CPU time of client and server together in seconds, for each round.
    pub seconds: Vec<f64>,
}

impl CostArm {
    /// Returns the bytes per second of CPU time, divided by those of the arm `usual` in the same
    /// rounds. Returns `None` if there are no rounds.
    pub(super) fn throughput(&self, usual: &CostArm) -> Option<Ratio> {
        let rounds = self.seconds.iter().copied().zip(usual.seconds.iter().copied());
        Ratio::of_pairs(rounds)
    }
}

/// Time until a plugin runs on a connection.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct LoadTimes {
    pub plugin: String,
    /// Size of the plugin's signed bundle in bytes.
    pub bundle: usize,
    /// Time to get from the bytes of the bundle to a running plugin, in microseconds for each
    /// round.
    pub first_us: Vec<f64>,
    /// Time until the plugin runs on another connection, if it is already compiled. In microseconds
    /// for each round.
    pub again_us: Vec<f64>,
}

/// Results in real time in network namespaces, for one point of each figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct RealTime {
    pub figure3: Requests,
    pub figure4: Downloads,
    pub figure5: AckPaths,
    pub figure6: Caps,
    /// 99th percentile of the packets' lateness in milliseconds, for each figure.
    pub late_ms: [f64; 4],
}

/// Requests over one path, with each kind of timer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Requests {
    /// Mean round-trip time, in milliseconds.
    pub rtt_ms: u64,
    /// Maximum deviation of a packet's delay from the mean, in milliseconds.
    pub jitter_ms: u64,
    /// Maximum delay of acknowledgements in milliseconds, which the paper calls WDT.
    pub ack_delay_ms: u64,
    pub arms: Vec<RequestArm>,
}

/// Requests with one kind of timer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct RequestArm {
    pub timer: TimerName,
    /// Time from each request to its response, in milliseconds.
    pub completion_ms: Vec<f64>,
}

/// Name of a kind of timer in results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum TimerName {
    Picoquic,
    PicoquicProbe,
    Formula,
    ProbeTimeout,
    TailLossProbe,
}

/// Downloads with one congestion control algorithm.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Downloads {
    pub controller: String,
    pub bytes: u64,
    /// Rate of the bottleneck in bits per second.
    pub rate: u64,
    /// Round-trip time without queueing in milliseconds, for each run.
    pub rtt_ms: Vec<u64>,
    pub arms: Vec<DownloadArm>,
}

/// Downloads with one kind of router.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct DownloadArm {
    pub marking: MarkingName,
    pub completion_s: Vec<f64>,
    /// Packets that the server declared lost, for each run.
    pub lost: Vec<u64>,
    /// Mean queueing delay of the server's packets at the bottleneck in milliseconds, for each run.
    pub waited_ms: Vec<f64>,
}

/// Name of a kind of router in results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum MarkingName {
    TailDrop,
    Plugin,
    Native,
    Averaged,
}

/// Downloads over two asymmetric paths.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct AckPaths {
    pub bytes: u64,
    /// Rate of each path to the client, in bits per second. `up` has the rates to the server.
    pub down: [u64; 2],
    pub up: [u64; 2],
    /// True if the server asks for fewer acknowledgements (ACK_FREQUENCY).
    pub ack_frequency: bool,
    /// Round-trip time of both paths in milliseconds, for each run.
    pub rtt_ms: Vec<u64>,
    /// Results if each acknowledgement is sent on the path of the packets that it acknowledges.
    pub same: AckArm,
    /// Results if a plugin sends all acknowledgements on the first path.
    pub first: AckArm,
}

/// Downloads with one way to choose the path of acknowledgements.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct AckArm {
    pub completion_s: Vec<f64>,
    /// Bytes of UDP payload that the client sent on each path, for each run.
    pub sent: Vec<[u64; 2]>,
}

/// A download over two paths. The rate of one path is limited by caps that the client pushes as
/// plugins.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Caps {
    /// Rate of each of the two paths, in bits per second.
    pub rate: u64,
    pub rtt_ms: u64,
    /// The caps that the client pushes: the time of the push in milliseconds, and the limit in
    /// bytes per second.
    pub caps: Vec<(u64, u64)>,
    pub interval_ms: u64,
    /// Length of the download in milliseconds.
    #[serde(default)]
    pub length_ms: u64,
    /// Bytes of UDP payload per second in each interval, on the path without a cap and on the path
    /// with one.
    pub rates: Vec<[f64; 2]>,
}

impl Caps {
    /// Returns the experiment with the paper's caps on a path of 80 Mb/s, still without results. If
    /// `quick`, the rates are a twentieth and the time is a third.
    pub(super) fn planned(quick: bool) -> Caps {
        let (rate, unit, step) =
            if quick { (4_000_000, 50_000, 1_000) } else { (80_000_000, 1_000_000, 3_000) };
        let caps = vec![(0, 3 * unit), (step, 10 * unit), (2 * step, unit)];
        Caps { rate, rtt_ms: 50, caps, interval_ms: 100, length_ms: 3 * step, rates: Vec::new() }
    }

    /// Returns each cap with the mean rate that was measured, in bytes per second. The measurement
    /// begins one second after the push (in a short experiment, after half of the time) and ends
    /// with the next push.
    pub(super) fn held(&self) -> Vec<(u64, f64)> {
        let end = self.interval_ms * self.rates.len() as u64;
        let held = self.caps.iter().enumerate().map(|(at, (from, cap))| {
            let until = self.caps.get(at + 1).map_or(end, |(next, _)| *next);
            let settled = from + 1_000.min((until - from) / 2);
            let [first, last] = [settled, until].map(|time| (time / self.interval_ms) as usize);
            let rates = &self.rates[first.min(last)..last.min(self.rates.len())];
            let sum: f64 = rates.iter().map(|[_, capped]| capped).sum();
            (*cap, sum / rates.len().max(1) as f64)
        });
        held.collect()
    }
}

/// Size of a plugin, in bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Size {
    /// Name of the plugin in this project.
    pub plugin: String,
    /// Name of the plugin in the paper.
    pub paper: String,
    /// Size of the plugin in the paper, in kilobytes.
    pub paper_kb: f64,
    /// Lines of C code, including comments.
    pub lines: usize,
    /// Size of the object file that clang creates, in bytes.
    pub object: usize,
    /// Size in bytes of the data that is pushed to a client without the plugin: manifest and
    /// object, unsigned.
    pub bundle: usize,
    /// Size of the plugin's instructions, in bytes.
    pub code: usize,
}

/// Returns the median of values, or `None` if there are no values.
pub(super) fn median(values: &[f64]) -> Option<f64> {
    values.iter().copied().collect::<Sample>().median()
}

impl From<Timer> for TimerName {
    fn from(timer: Timer) -> TimerName {
        match timer {
            Timer::Picoquic => TimerName::Picoquic,
            Timer::PicoquicProbe => TimerName::PicoquicProbe,
            Timer::Formula => TimerName::Formula,
            Timer::ProbeTimeout => TimerName::ProbeTimeout,
            Timer::TailLossProbe => TimerName::TailLossProbe,
        }
    }
}

impl From<Marking> for MarkingName {
    fn from(marking: Marking) -> MarkingName {
        match marking {
            Marking::TailDrop => MarkingName::TailDrop,
            Marking::Plugin => MarkingName::Plugin,
            Marking::Native => MarkingName::Native,
            Marking::Averaged => MarkingName::Averaged,
        }
    }
}

impl DownloadArm {
    /// Creates an arm (downloads with one kind of router) without runs.
    pub(super) fn of(marking: MarkingName) -> DownloadArm {
        let (completion_s, lost, waited_ms) = Default::default();
        DownloadArm { marking, completion_s, lost, waited_ms }
    }
}

impl Requests {
    /// Returns the median completion time with a timer, in milliseconds.
    pub(super) fn median(&self, timer: TimerName) -> Option<f64> {
        let arm = self.arms.iter().find(|arm| arm.timer == timer)?;
        median(&arm.completion_ms)
    }
}

impl Downloads {
    pub(super) fn arm(&self, marking: MarkingName) -> Option<&DownloadArm> {
        self.arms.iter().find(|arm| arm.marking == marking)
    }

    /// Returns the median completion time with a kind of router, in seconds.
    pub(super) fn median(&self, marking: MarkingName) -> Option<f64> {
        median(&self.arm(marking)?.completion_s)
    }
}

impl TimerName {
    pub(super) const fn words(self) -> &'static str {
        match self {
            TimerName::Picoquic => "RTO of picoquic in 2018",
            TimerName::PicoquicProbe => "RTO of picoquic in 2018, with a tail loss probe",
            TimerName::Formula => "RTO with the paper's formula",
            TimerName::ProbeTimeout => "PTO of RFC 9002, no plugin",
            TimerName::TailLossProbe => "PTO with plugin tail-loss-probe",
        }
    }
}

impl MarkingName {
    pub(super) const fn words(self) -> &'static str {
        match self {
            MarkingName::TailDrop => "tail drop, no ECN",
            MarkingName::Plugin => "marks, plugin ecn",
            MarkingName::Native => "marks, ECN of RFC 9000, no plugin",
            MarkingName::Averaged => "marks by RED's average queue, plugin ecn",
        }
    }
}
