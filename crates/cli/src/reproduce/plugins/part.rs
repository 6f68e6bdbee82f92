//! The parts: figures and tables of the paper.

use std::time::Duration;

use equic_plugin_kit::compile_text;
use equic_plugin_kit::paper::{DownloadPath, Marking, RequestPath, Timer, download, lost_request};
use equic_plugin_kit::tree::Source;
use equic_transport::congestion::Algorithm;

use super::data::{
    DownloadArm, Downloads, MarkingName, Plugins, RequestArm, Requests, Size, TimerName,
};
use crate::failure::{Done, Failure};
use crate::output;

/// A figure or table of the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Part {
    Figure3,
    Figure4,
    Table2,
}

/// Mean round-trip time of requests, in milliseconds: the paper's.
const REQUEST_RTT: u64 = 10;

/// Paths of requests: jitter and longest delay of acknowledgements, in milliseconds. The paper does not name its delay:
/// picoquic of that time had 10 ms, RFC 9000 s.18.2 has 25 ms.
const PATHS: [(u64, u64); 4] = [(0, 10), (0, 25), (4, 10), (4, 25)];

/// Rate of the bottleneck of downloads. The paper's text does not say it: with 4 Mb/s 5 MB take 10 s at least.
const RATE: u64 = 4_000_000;

/// Round-trip time of the first download, in milliseconds; each further one has a millisecond more, or they would be alike.
const DOWNLOAD_RTT: u64 = 100;

/// Plugins of table 2: name here, name and size in the paper.
const SIZES: [(&str, &str, f64); 3] =
    [("tail-loss-probe", "TLP", 2.6), ("ecn", "ECN", 5.6), ("cap", "Pacing Rate", 0.5)];

impl Part {
    pub(super) const ALL: [Part; 3] = [Part::Figure3, Part::Figure4, Part::Table2];

    /// Plays it, and adds what came of it.
    pub(super) fn carry_out(self, data: &mut Plugins) -> Done {
        let quick = data.quick;
        match self {
            Part::Figure3 => {
                output::notice("Figure 3: requests whose packet is lost");
                for (jitter, ack_delay) in PATHS {
                    data.figure3.push(requests(jitter, ack_delay, if quick { 3 } else { 100 })?);
                }
            }
            Part::Figure4 => {
                output::notice("Figure 4: downloads over a router that marks");
                let (bytes, runs) = if quick { (500_000, 2) } else { (5_000_000, 10) };
                for (name, controller) in
                    [("NewReno", Algorithm::NewReno), ("CUBIC", Algorithm::Cubic)]
                {
                    data.figure4.push(downloads(name, controller, bytes, runs)?);
                }
            }
            Part::Table2 => {
                for (plugin, paper, kilobytes) in SIZES {
                    data.table2.push(size(plugin, paper, kilobytes)?);
                }
            }
        }
        Ok(())
    }
}

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::because("the experiment cannot be played", error)
}

fn requests(jitter: u64, ack_delay: u64, runs: u64) -> Done<Requests> {
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
        let timer = match timer {
            Timer::Picoquic => TimerName::Picoquic,
            Timer::PicoquicProbe => TimerName::PicoquicProbe,
            Timer::Formula => TimerName::Formula,
            Timer::ProbeTimeout => TimerName::ProbeTimeout,
            Timer::TailLossProbe => TimerName::TailLossProbe,
        };
        arms.push(RequestArm { timer, completion_ms });
    }
    Ok(Requests { rtt_ms: REQUEST_RTT, jitter_ms: jitter, ack_delay_ms: ack_delay, arms })
}

fn downloads(name: &str, controller: Algorithm, bytes: u64, runs: u64) -> Done<Downloads> {
    let rtt_ms: Vec<u64> = (0..runs).map(|run| DOWNLOAD_RTT + run).collect();
    let mut arms = Vec::new();
    for marking in Marking::ALL {
        let push = marking.push().map_err(failed)?;
        let marked = match marking {
            Marking::TailDrop => MarkingName::TailDrop,
            Marking::Plugin => MarkingName::Plugin,
            Marking::Native => MarkingName::Native,
        };
        let (completion_s, lost, waited_ms) = Default::default();
        let mut arm = DownloadArm { marking: marked, completion_s, lost, waited_ms };
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

/// A value with three places: what is stored is to be small.
fn rounded(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

fn size(plugin: &str, paper: &str, paper_kb: f64) -> Done<Size> {
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
        // An instruction of eBPF has eight bytes (RFC 9669 s.3).
        code: 8 * source.load().map_err(failed)?.instructions(),
    })
}
