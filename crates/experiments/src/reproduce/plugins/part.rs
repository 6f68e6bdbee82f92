//! The parts of the experiment: figures and tables of the paper.

use std::time::Duration;

use equic_plugin_kit::compile_text;
use equic_plugin_kit::paper::{
    AckPath, Asymmetric, Capped, DownloadPath, Marking, RequestPath, Timer, asymmetric, capped,
    download, lost_request,
};
use equic_plugin_kit::tree::Source;
use equic_transport::congestion::Algorithm;

use super::data::{
    AckArm, AckPaths, Caps, DownloadArm, Downloads, Plugins, RequestArm, Requests, Size,
};
use super::{costs, live};
use crate::failure::{Failure, Result};
use crate::output;

/// A part of the experiment: a figure or table of the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Part {
    Figure3,
    Figure4,
    Figure5,
    Figure6,
    Table2,
    /// Table 1, and figures of the PQUIC paper: the cost of plugins. The machine must be otherwise
    /// idle
    Costs,
    /// One point of each of the figures 3 to 6 in real time, over network namespaces. Runs only on
    /// request. Needs root
    RealTime,
}

/// Mean round-trip time of requests in milliseconds, as in the paper.
pub(super) const REQUEST_RTT: u64 = 10;

/// Paths on which requests are measured: jitter and maximum delay of acknowledgements, in
/// milliseconds. The paper does not give this delay. picoquic of that time had 10 ms, and RFC 9000
/// s.18.2 has 25 ms.
const PATHS: [(u64, u64); 4] = [(0, 10), (0, 25), (4, 10), (4, 25)];

/// Rate of the bottleneck of downloads in bits per second. The paper's text does not give it. At 4
/// Mb/s, a download of 5 MB takes at least 10 s.
pub(super) const RATE: u64 = 4_000_000;

/// Round-trip time of the first download in milliseconds. Each further download has one millisecond
/// more, because the downloads would be identical otherwise.
pub(super) const DOWNLOAD_RTT: u64 = 100;

/// Plugins of table 2: name in this project, name in the paper, and size in the paper.
const SIZES: [(&str, &str, f64); 4] = [
    ("tail-loss-probe", "TLP", 2.6),
    ("ecn", "ECN", 5.6),
    ("ack-path", "ACK Path", 1.0),
    ("cap-path", "Pacing Rate", 0.5),
];

/// Rates of the two asymmetric paths to the client and to the server, in bits per second. The
/// paper's text does not give them. With these rates, 20 MB take about as long as in the paper, and
/// acknowledgements for all packets on the second path would exceed its rate to the server.
pub(super) const ASYMMETRIC: [[u64; 2]; 2] = [[2_000_000, 30_000_000], [10_000_000, 300_000]];

/// Round-trip time of the first download over the asymmetric paths, in milliseconds. Each further
/// download has one millisecond more.
pub(super) const ASYMMETRIC_RTT: u64 = 40;

impl Part {
    pub(super) const ALL: [Part; 7] = [
        Part::Figure3,
        Part::Figure4,
        Part::Figure5,
        Part::Figure6,
        Part::Table2,
        Part::Costs,
        Part::RealTime,
    ];

    /// Runs the part, and adds its result to `data`.
    pub(super) fn carry_out(self, data: &mut Plugins) -> Result {
        let quick = data.quick;
        match self {
            Part::Figure3 => {
                output::notice("Figure 3: requests whose packet is lost");
                data.figure3.clear();
                for (jitter, ack_delay) in PATHS {
                    data.figure3.push(requests(jitter, ack_delay, if quick { 2 } else { 100 })?);
                }
            }
            Part::Figure4 => {
                output::notice("Figure 4: downloads over a router that marks packets");
                let (bytes, runs) = if quick { (300_000, 2) } else { (5_000_000, 10) };
                data.figure4.clear();
                for (name, controller) in
                    [("NewReno", Algorithm::NewReno), ("CUBIC", Algorithm::Cubic)]
                {
                    data.figure4.push(downloads(name, controller, bytes, runs)?);
                }
            }
            Part::Figure5 => {
                output::notice("Figure 5: downloads over asymmetric paths");
                let (bytes, runs) = if quick { (300_000, 1) } else { (20_000_000, 5) };
                data.figure5.clear();
                for ack_frequency in [false, true] {
                    data.figure5.push(ack_paths(ack_frequency, bytes, runs)?);
                }
            }
            Part::Figure6 => {
                output::notice("Figure 6: a rate limit on one of two paths");
                data.figure6 = Some(caps(quick)?);
            }
            Part::Table2 => {
                data.table2.clear();
                for (plugin, paper, kilobytes) in SIZES {
                    data.table2.push(size(plugin, paper, kilobytes)?);
                }
            }
            Part::Costs => {
                output::notice("Table 1, and figures of the PQUIC paper: the cost of plugins");
                data.costs = Some(costs::measure(quick)?);
            }
            Part::RealTime => {
                output::notice("Figures 3 to 6 in real time: one point of each");
                data.real_time = Some(live::play(quick)?);
            }
        }
        Ok(())
    }
}

pub(super) fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::because("the experiment failed", error)
}

fn requests(jitter: u64, ack_delay: u64, runs: u64) -> Result<Requests> {
    let [rtt, jitter_time, delay] = [REQUEST_RTT, jitter, ack_delay].map(Duration::from_millis);
    let path = RequestPath { rtt, jitter: jitter_time, ack_delay: delay };
    let mut arms = Vec::new();
    for timer in Timer::ALL {
        let push = timer.push().map_err(failed)?;
        let mut completion_ms = Vec::new();
        for seed in 1..=runs {
            let took = lost_request(push.as_ref(), &path, seed).map_err(failed)?;
            completion_ms.push(rounded(took.as_secs_f64() * 1e3));
        }
        arms.push(RequestArm { timer: timer.into(), completion_ms });
    }
    Ok(Requests { rtt_ms: REQUEST_RTT, jitter_ms: jitter, ack_delay_ms: ack_delay, arms })
}

fn downloads(name: &str, controller: Algorithm, bytes: u64, runs: u64) -> Result<Downloads> {
    let rtt_ms: Vec<u64> = (0..runs).map(|run| DOWNLOAD_RTT + run).collect();
    let mut arms = Vec::new();
    for marking in Marking::ALL {
        let push = marking.push().map_err(failed)?;
        let mut arm = DownloadArm::of(marking.into());
        for (seed, rtt) in (1..).zip(&rtt_ms) {
            let path = DownloadPath { rate: RATE, rtt: Duration::from_millis(*rtt), controller };
            let run = download(marking, push.as_ref(), &path, bytes, seed).map_err(failed)?;
            arm.completion_s.push(rounded(run.took.as_secs_f64()));
            arm.lost.push(run.lost);
            arm.waited_ms.push(rounded(run.waited.as_secs_f64() * 1e3));
        }
        arms.push(arm);
    }
    Ok(Downloads { controller: name.to_owned(), bytes, rate: RATE, rtt_ms, arms })
}

fn ack_paths(ack_frequency: bool, bytes: u64, runs: u64) -> Result<AckPaths> {
    let [down, up] = ASYMMETRIC;
    let rtt_ms: Vec<u64> = (0..runs).map(|run| ASYMMETRIC_RTT + run).collect();
    let arm = |acks| -> Result<AckArm> {
        let mut arm = AckArm::default();
        for (seed, rtt) in (1..).zip(&rtt_ms) {
            let path = Asymmetric { rtt: Duration::from_millis(*rtt), down, up, ack_frequency };
            let (took, sent) = asymmetric(&path, acks, bytes, seed).map_err(failed)?;
            arm.completion_s.push(rounded(took.as_secs_f64()));
            arm.sent.push(sent);
        }
        Ok(arm)
    };
    let (same, first) = (arm(AckPath::Same)?, arm(AckPath::First)?);
    Ok(AckPaths { bytes, down, up, ack_frequency, rtt_ms, same, first })
}

/// Returns the experiment with the paper's caps on a path of 80 Mb/s, still without results. If
/// `quick`, the rates are a twentieth and the time is a third.
pub(super) fn planned_caps(quick: bool) -> Caps {
    let (rate, unit, step) =
        if quick { (4_000_000, 50_000, 1_000) } else { (80_000_000, 1_000_000, 3_000) };
    let caps = vec![(0, 3 * unit), (step, 10 * unit), (2 * step, unit)];
    Caps { rate, rtt_ms: 50, caps, interval_ms: 100, length_ms: 3 * step, rates: Vec::new() }
}

fn caps(quick: bool) -> Result<Caps> {
    let plan = planned_caps(quick);
    let path = Capped {
        rate: plan.rate,
        rtt: Duration::from_millis(plan.rtt_ms),
        caps: plan.caps.iter().map(|(at, cap)| (Duration::from_millis(*at), *cap)).collect(),
        length: Duration::from_millis(plan.length_ms),
        interval: Duration::from_millis(plan.interval_ms),
    };
    let rates = capped(&path, 1).map_err(failed)?;
    let rates = rates.into_iter().map(|both| both.map(f64::round)).collect();
    Ok(Caps { rates, ..plan })
}

/// Rounds to three decimals, to keep the stored file small.
pub(super) fn rounded(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

fn size(plugin: &str, paper: &str, paper_kb: f64) -> Result<Size> {
    let source = Source::find(plugin);
    let source = source.ok_or_else(|| Failure::new(format!("there is no plugin {plugin}")))?;
    let object = compile_text(source.name, source.code).map_err(failed)?;
    Ok(Size {
        plugin: plugin.to_owned(),
        paper: paper.to_owned(),
        paper_kb,
        lines: source.lines(),
        object: object.len(),
        bundle: source.bundle(None).map_err(failed)?.len(),
        // An eBPF instruction has eight bytes (RFC 9669 s.3).
        code: 8 * source.load().map_err(failed)?.instructions(),
    })
}
