//! Stored data of the experiments: the figures of every run.

use equic_plugin_kit::paper::{Marking, Timer};
use equic_report::stats::Sample;
use equic_report::stats::effect::Ratio;
use serde::{Deserialize, Serialize};

/// Results of the parts. Those of parts that did not run are empty.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Plugins {
    /// True for the small experiment (`--quick`).
    pub quick: bool,
    /// Requests whose packet is lost, by path.
    pub figure3: Vec<Requests>,
    /// Downloads through a router that marks or drops, by congestion control.
    pub figure4: Vec<Downloads>,
    /// Downloads over two asymmetric paths, without and with fewer acknowledgements.
    #[serde(default)]
    pub figure5: Vec<AckPaths>,
    /// A download over two paths, one of which is capped.
    #[serde(default)]
    pub figure6: Option<Caps>,
    /// Sizes of plugins.
    pub table2: Vec<Size>,
    /// Cost of plugins, as CPU time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub costs: Option<Costs>,
    /// Real-time results for one point of each figure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub real_time: Option<RealTime>,
}

/// CPU time of in-memory transfers, and time until plugins run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Costs {
    /// Size of each transfer in bytes.
    pub bytes: u64,
    /// Path schedulers. The first is the native scheduler.
    pub schedulers: Vec<CostArm>,
    /// Extensions. The first is the arm without an extension.
    pub extensions: Vec<CostArm>,
    pub loading: Vec<LoadTimes>,
}

/// Transfers with one scheduler, or one extension.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct CostArm {
    pub name: String,
    /// CPU time of both ends, for each round.
    pub seconds: Vec<f64>,
}

impl CostArm {
    /// Returns the ratio of the bytes per second of CPU time to those of another arm in the same
    /// rounds. `None` without rounds.
    pub(super) fn throughput(&self, usual: &CostArm) -> Option<Ratio> {
        let rounds = self.seconds.iter().copied().zip(usual.seconds.iter().copied());
        Ratio::of_pairs(rounds)
    }
}

/// Time in which a plugin starts to run on a connection.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct LoadTimes {
    pub plugin: String,
    /// Size of its signed bundle in bytes.
    pub bundle: usize,
    /// Time from the bundle's bytes to a running plugin, in microseconds for each round.
    pub first_us: Vec<f64>,
    /// Time until the plugin runs on another connection, when it is already compiled, in
    /// microseconds for each round.
    pub again_us: Vec<f64>,
}

/// Real-time results in namespaces, for one point of each figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct RealTime {
    pub figure3: Requests,
    pub figure4: Downloads,
    pub figure5: AckPaths,
    pub figure6: Caps,
    /// Lateness in milliseconds that 99 % of the packets of each figure did not exceed.
    pub late_ms: [f64; 4],
}

/// Requests over one path.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Requests {
    /// Mean round-trip time.
    pub rtt_ms: u64,
    /// Maximum deviation of a packet's delay from the mean.
    pub jitter_ms: u64,
    /// Longest delay of acknowledgements: the paper's WDT.
    pub ack_delay_ms: u64,
    pub arms: Vec<RequestArm>,
}

/// Requests with one timer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct RequestArm {
    pub timer: TimerName,
    /// Time from each request to its response.
    pub completion_ms: Vec<f64>,
}

/// Name of a timer in results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum TimerName {
    Picoquic,
    PicoquicProbe,
    Formula,
    ProbeTimeout,
    TailLossProbe,
}

/// Downloads with one congestion control.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Downloads {
    pub controller: String,
    pub bytes: u64,
    /// Rate of the bottleneck in bits per second.
    pub rate: u64,
    /// Round-trip time without queueing, for each run.
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
    /// Mean queueing delay of the server's packets at the bottleneck, for each run.
    pub waited_ms: Vec<f64>,
}

/// Name of a router's kind in results.
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
    /// Rates to the client by path, in bits per second. The next field has the rates to the server.
    pub down: [u64; 2],
    pub up: [u64; 2],
    /// True if the server asks for fewer acknowledgements (ACK_FREQUENCY).
    pub ack_frequency: bool,
    /// Round-trip time of both paths, for each run.
    pub rtt_ms: Vec<u64>,
    /// Acknowledgements on the path of their packets.
    pub same: AckArm,
    /// All acknowledgements on the first path, by a plugin.
    pub first: AckArm,
}

/// Downloads with one choice of path for acknowledgements.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct AckArm {
    pub completion_s: Vec<f64>,
    /// Bytes of UDP payload that the client sent on each path.
    pub sent: Vec<[u64; 2]>,
}

/// A download over two paths, one of which is capped.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Caps {
    /// Rate of each path in bits per second.
    pub rate: u64,
    pub rtt_ms: u64,
    /// Time at which the client pushes each cap in milliseconds, and the cap in bytes per second.
    pub caps: Vec<(u64, u64)>,
    pub interval_ms: u64,
    /// Length of the download in milliseconds.
    #[serde(default)]
    pub length_ms: u64,
    /// Bytes of UDP payload per second in each interval, on the path without a cap and on the
    /// capped one.
    pub rates: Vec<[f64; 2]>,
}

impl Caps {
    /// Returns each cap with the mean rate, in bytes per second. The rate is measured from one
    /// second after the push (in a short experiment, half of the time) until the next push.
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
    /// Name in the paper.
    pub paper: String,
    /// Size in the paper in kilobytes.
    pub paper_kb: f64,
    /// Lines of C, including comments.
    pub lines: usize,
    /// Size of the object file of clang.
    pub object: usize,
    /// Size of the pushed data if the client does not have the plugin: manifest and object,
    /// unsigned, in bytes.
    pub bundle: usize,
    /// Size of its instructions.
    pub code: usize,
}

/// Returns the median of some values, or `None` without values.
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
    /// Creates an arm without runs.
    pub(super) fn of(marking: MarkingName) -> DownloadArm {
        let (completion_s, lost, waited_ms) = Default::default();
        DownloadArm { marking, completion_s, lost, waited_ms }
    }
}

impl Requests {
    /// Returns the median completion with a timer, in milliseconds.
    pub(super) fn median(&self, timer: TimerName) -> Option<f64> {
        let arm = self.arms.iter().find(|arm| arm.timer == timer)?;
        median(&arm.completion_ms)
    }
}

impl Downloads {
    pub(super) fn arm(&self, marking: MarkingName) -> Option<&DownloadArm> {
        self.arms.iter().find(|arm| arm.marking == marking)
    }

    /// Returns the median completion with a router, in seconds.
    pub(super) fn median(&self, marking: MarkingName) -> Option<f64> {
        median(&self.arm(marking)?.completion_s)
    }
}

impl TimerName {
    pub(super) const fn words(self) -> &'static str {
        match self {
            TimerName::Picoquic => "RTO of picoquic in 2018",
            TimerName::PicoquicProbe => "that RTO with a tail loss probe",
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
            MarkingName::Averaged => "marks by RED's average, plugin ecn",
        }
    }
}
