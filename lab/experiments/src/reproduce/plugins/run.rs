//! Runs the parts of the experiment in virtual time. `costs` and `live` run the other parts.

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
use super::part::{
    ASYMMETRIC, ASYMMETRIC_RTT, DOWNLOAD_RTT, Part, RATE, REQUEST_RTT, failed, rounded,
};
use super::{costs, live};
use crate::failure::{Failure, Result};
use crate::output;

/// Paths on which requests are measured: jitter and maximum delay of acknowledgements, in
/// milliseconds. The paper does not give this delay. picoquic of that time had 10 ms, and RFC 9000
/// s.18.2 has 25 ms.
const PATHS: [(u64, u64); 4] = [(0, 10), (0, 25), (4, 10), (4, 25)];

/// Plugins of table 2: name in this project, name in the paper, and size in the paper.
const SIZES: [(&str, &str, f64); 4] = [
    ("tail-loss-probe", "TLP", 2.6),
    ("ecn", "ECN", 5.6),
    ("ack-path", "ACK Path", 1.0),
    ("cap-path", "Pacing Rate", 0.5),
];

/// Runs the part, and adds its result to `data`.
pub(super) fn carry_out(part: Part, data: &mut Plugins) -> Result {
    let quick = data.quick;
    match part {
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
            for (name, controller) in [("NewReno", Algorithm::NewReno), ("CUBIC", Algorithm::Cubic)]
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

fn caps(quick: bool) -> Result<Caps> {
    let plan = Caps::planned(quick);
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
