//! The claims of "The Case for Protocol Plugins", each with a verdict that is derived from the
//! data.

use equic_report::stats::effect::Ratio;

use super::costs::{ERROR_CORRECTION, MONITORING, ONE_PATH, TWO_PATHS};
use super::data::{
    AckPaths, Caps, Costs, Downloads, LoadTimes, MarkingName, Plugins, RealTime, Requests,
    TimerName, median,
};

/// A claim of the paper, with our result and the verdict.
pub(super) struct Finding {
    /// The claim, and where it is in the paper.
    pub claim: String,
    /// The figure that the paper gives.
    pub paper: &'static str,
    /// Our figure.
    pub ours: String,
    pub judgement: &'static str,
}

impl Finding {
    pub(super) fn sentence(&self) -> String {
        format!(
            "{}: {}. In the paper: {}. In our measurement: {}.",
            self.claim, self.judgement, self.paper, self.ours
        )
    }
}

/// Returns the findings for those parts that have results.
pub(super) fn findings(all: &Plugins) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(tail_loss_probe(&all.figure3));
    findings.extend(against_today(&all.figure3));
    findings.extend(downloads(&all.figure4));
    findings.extend(all.figure5.iter().map(ack_paths));
    findings.extend(all.figure6.as_ref().map(caps));
    findings.extend(sizes(all));
    findings.extend(all.costs.iter().flat_map(costs));
    findings.extend(all.real_time.iter().flat_map(real_time));
    findings
}

/// Returns the findings for the points that were measured in real time.
fn real_time(all: &RealTime) -> Vec<Finding> {
    let mut findings: Vec<Finding> = Vec::new();
    findings.extend(tail_loss_probe(std::slice::from_ref(&all.figure3)));
    findings.extend(against_today(std::slice::from_ref(&all.figure3)));
    findings.extend(downloads(std::slice::from_ref(&all.figure4)));
    findings.extend([ack_paths(&all.figure5), caps(&all.figure6)]);
    for finding in &mut findings {
        finding.claim.insert_str(0, "In real time, ");
    }
    findings
}

/// A figure of PQUIC, and our target for the cost of the same plugin.
struct Aim {
    /// Name of the arm (transfers with one plugin) that the figure is compared with.
    arm: &'static str,
    claim: &'static str,
    paper: &'static str,
    /// Maximum cost of the plugin, as a share of the throughput.
    most: f64,
}

/// PQUIC's goodput ("Pluginizing QUIC", SIGCOMM 2019): 1104 Mb/s without a plugin, 1037 with
/// monitoring, 757 with several paths, 517 with forward error correction by XOR. The target for
/// forward error correction is half of PQUIC's cost.
const AIMS: [Aim; 4] = [
    Aim {
        arm: MONITORING,
        claim: "PQUIC: monitoring as a plugin costs little goodput",
        paper: "-6 % of the goodput",
        most: 0.02,
    },
    Aim {
        arm: ONE_PATH,
        claim: "PQUIC: support for several paths costs a third of the goodput. Here, the transport supports them without a plugin, and one path is in use",
        paper: "-31 % of the goodput",
        most: 0.05,
    },
    Aim {
        arm: TWO_PATHS,
        claim: "PQUIC: support for several paths costs a third of the goodput. Here, the transport supports them without a plugin, and two paths are in use",
        paper: "-31 % of the goodput",
        most: 0.05,
    },
    Aim {
        arm: ERROR_CORRECTION,
        claim: "PQUIC: forward error correction as a plugin costs half of the goodput",
        paper: "-53 % of the goodput",
        most: 0.265,
    },
];

fn costs(all: &Costs) -> Vec<Finding> {
    let mut findings = Vec::new();
    let usual = all.extensions.first();
    for aim in &AIMS {
        let arm = all.extensions.iter().find(|one| one.name == aim.arm);
        let ratio = usual.zip(arm).and_then(|(usual, arm)| arm.throughput(usual));
        let Some(ratio) = ratio else { continue };
        findings.push(Finding {
            claim: aim.claim.to_owned(),
            paper: aim.paper,
            ours: format!("{} bytes carried per second of CPU time", change(&ratio)),
            judgement: if 1.0 - ratio.value <= aim.most { "target met" } else { "target missed" },
        });
    }
    let medians = |times: fn(&LoadTimes) -> &[f64]| -> Vec<f64> {
        all.loading.iter().filter_map(|one| median(times(one))).map(|us| us / 1e3).collect()
    };
    let (first, again) = (medians(|one| &one.first_us), medians(|one| &one.again_us));
    if !again.is_empty() {
        findings.push(Finding {
            claim: "PQUIC: loading a plugin takes milliseconds, and less time from a cache"
                .to_owned(),
            paper: "6 to 13 ms",
            ours: format!(
                "{} from the bundle, {} if the plugin is already compiled (medians)",
                range_to(&first, 2, "ms"),
                range_to(&again, 3, "ms")
            ),
            judgement: if ends(&again)[1] < 1.0 { "target met" } else { "target missed" },
        });
    }
    findings
}

/// Formats a ratio as a change in percent, with its 95 % interval if it has one.
pub(super) fn change(ratio: &Ratio) -> String {
    let percent = |ratio: f64| format!("{:+.1}", 100.0 * (ratio - 1.0));
    let value = percent(ratio.value);
    match ratio.interval {
        Some(ends) => format!("{value} % ({} to {})", percent(ends.low), percent(ends.high)),
        None => format!("{value} % (no interval)"),
    }
}

/// Formats a range, from the smallest to the largest value, with a unit.
fn range(values: &[f64], unit: &str) -> String {
    range_to(values, 1, unit)
}

/// Formats a range like [`range`], with this many decimals.
fn range_to(values: &[f64], places: usize, unit: &str) -> String {
    let [low, high] = ends(values).map(|end| format!("{end:.places$}"));
    if low == high { format!("{low} {unit}") } else { format!("{low} to {high} {unit}") }
}

fn ends(values: &[f64]) -> [f64; 2] {
    let fold = |of: fn(f64, f64) -> f64| values.iter().copied().reduce(of).unwrap_or(f64::NAN);
    [fold(f64::min), fold(f64::max)]
}

/// Returns the median completion times with two timers, for each path.
fn medians(all: &[Requests], one: TimerName, other: TimerName) -> [Vec<f64>; 2] {
    [one, other].map(|timer| all.iter().filter_map(|path| path.median(timer)).collect())
}

/// Returns the verdict on whether the second timer is faster than the first. The verdict depends on
/// the number of paths on which the second timer is faster by at least a millisecond.
fn judge(slower: &[f64], faster: &[f64]) -> &'static str {
    let count = slower.iter().zip(faster).filter(|(slow, fast)| **fast + 1.0 <= **slow).count();
    match count {
        0 => "did not hold",
        count if count == slower.len() => "held",
        _ => "held on some paths",
    }
}

fn tail_loss_probe(all: &[Requests]) -> Option<Finding> {
    let [rto, probe] = medians(all, TimerName::Picoquic, TimerName::PicoquicProbe);
    (!rto.is_empty()).then(|| Finding {
        claim: "Figure 3: with a tail loss probe, the answer to a lost request arrives sooner than with the RTO of that time".to_owned(),
        paper: "reaction after 30 ms with the probe, and after 50 ms without it",
        ours: format!(
            "answer after {} with the probe, and after {} without it (both include a round trip of 10 ms)",
            range(&probe, "ms"),
            range(&rto, "ms")
        ),
        judgement: judge(&rto, &probe),
    })
}

fn against_today(all: &[Requests]) -> Option<Finding> {
    let [today, probe] = medians(all, TimerName::ProbeTimeout, TimerName::TailLossProbe);
    (!today.is_empty()).then(|| Finding {
        claim: "Figure 3, with the probe timeout of today's QUIC instead of the RTO: the answer arrives sooner with the plugin".to_owned(),
        paper: "no figure, because today's probe timeout did not exist yet",
        ours: format!("{} with the plugin, {} without it", range(&probe, "ms"), range(&today, "ms")),
        judgement: judge(&today, &probe),
    })
}

fn downloads(all: &[Downloads]) -> Option<Finding> {
    let of = |marking| -> Vec<f64> { all.iter().filter_map(|one| one.median(marking)).collect() };
    let (dropped, marked) = (of(MarkingName::TailDrop), of(MarkingName::Plugin));
    if dropped.is_empty() {
        return None;
    }
    let sooner = dropped.iter().zip(&marked).filter(|(drop, mark)| **mark + 0.5 <= **drop).count();
    let judgement = match sooner {
        0 => "the time did not decrease",
        count if count == dropped.len() => "held",
        _ => "held with one congestion control algorithm",
    };
    let each = all.iter().filter_map(|one| {
        let (drop, mark) = (one.arm(MarkingName::TailDrop)?, one.arm(MarkingName::Plugin)?);
        let lost = |lost: &[u64]| {
            median(&lost.iter().map(|lost| *lost as f64).collect::<Vec<f64>>()).unwrap_or(0.0)
        };
        Some(format!(
            "{}: {:.2} s with the plugin, {:.2} s without it; {:.0} packets lost with the plugin, {:.0} without it{}",
            one.controller,
            one.median(MarkingName::Plugin)?,
            one.median(MarkingName::TailDrop)?,
            lost(&mark.lost),
            lost(&drop.lost),
            match (median(&mark.waited_ms), median(&drop.waited_ms)) {
                (Some(mark), Some(drop)) =>
                    format!("; mean time in the queue {mark:.0} ms with the plugin, {drop:.0} ms without it"),
                // In real time, the queueing delay is unknown.
                _ => String::new(),
            }
        ))
    });
    let ours: Vec<String> = each.collect();
    Some(Finding {
        claim: "Figure 4: the ECN plugin shortens a download of 5 MB by a second".to_owned(),
        paper: "11.5 s without the plugin, about one second less with it",
        ours: ours.join(". "),
        judgement,
    })
}

fn ack_paths(one: &AckPaths) -> Finding {
    let (same, first) = (&one.same.completion_s, &one.first.completion_s);
    let sooner = same.iter().zip(first).filter(|(same, first)| **first < 0.95 * **same).count();
    let bytes = |sent: &[[u64; 2]], path: usize| {
        let all: Vec<f64> = sent.iter().map(|both| both[path] as f64 / 1e3).collect();
        median(&all).unwrap_or(0.0)
    };
    Finding {
        claim: if one.ack_frequency {
            "Figure 5, if the server requests fewer acknowledgements, as in today's QUIC: the plugin shortens the download"
        } else {
            "Figure 5: acknowledgements on the other path shorten a download over asymmetric paths"
        }
        .to_owned(),
        paper: if one.ack_frequency {
            "no figure, because such requests did not exist yet"
        } else {
            "6 to 10 s without the plugin, significantly less with it"
        },
        ours: format!(
            "{} with the plugin, {} without it. On the narrow return path, the client sent {:.0} KB with the plugin, and {:.0} KB without it",
            range(first, "s"),
            range(same, "s"),
            bytes(&one.first.sent, 1),
            bytes(&one.same.sent, 1),
        ),
        judgement: match sooner {
            0 => "did not hold",
            count if count == same.len() => "held",
            _ => "held in some runs",
        },
    }
}

fn caps(one: &Caps) -> Finding {
    let held = one.held();
    let words: Vec<String> = (held.iter())
        .map(|(cap, rate)| {
            format!("{:.2} MB/s with a cap of {} MB/s", rate / 1e6, *cap as f64 / 1e6)
        })
        .collect();
    // A path never carries more than its rate, even if the cap is higher.
    let is_held = |(cap, rate): &(u64, f64)| {
        let most = (*cap as f64).min(one.rate as f64 / 8.0);
        *rate <= 1.05 * most && *rate >= 0.7 * most
    };
    let count = held.iter().filter(|one| is_held(one)).count();
    Finding {
        claim: "Figure 6: a client caps one of two paths of the server, and changes the cap while data flows".to_owned(),
        paper: "caps of 3, 10 and 1 MB/s at 0, 3 and 6 s take effect",
        ours: words.join(", "),
        judgement: match count {
            0 => "did not hold",
            count if count == held.len() => "held",
            _ => "held for some caps",
        },
    }
}

fn sizes(all: &Plugins) -> Option<Finding> {
    let factor: Vec<f64> =
        all.table2.iter().map(|one| one.object as f64 / 1e3 / one.paper_kb).collect();
    (!factor.is_empty()).then(|| Finding {
        claim: "Table 2: plugins are small, a few KB at most".to_owned(),
        paper: "object files of 0.5 to 5.6 KB",
        ours: {
            let objects: Vec<f64> = all.table2.iter().map(|one| one.object as f64 / 1e3).collect();
            format!(
                "object files of {}, which are {} times the sizes in the paper",
                range(&objects, "KB"),
                range(&factor, "").trim()
            )
        },
        judgement: if all.table2.iter().all(|one| one.object < 10_000) {
            "held"
        } else {
            "did not hold"
        },
    })
}

#[cfg(test)]
mod tests {
    use super::super::data::{CostArm, DownloadArm, RequestArm};
    use super::*;

    fn requests(times: [f64; 4]) -> Vec<Requests> {
        use TimerName::{Picoquic, PicoquicProbe, ProbeTimeout, TailLossProbe};
        let timers = [Picoquic, PicoquicProbe, ProbeTimeout, TailLossProbe];
        let arm = |(timer, time): (TimerName, f64)| RequestArm { timer, completion_ms: vec![time] };
        let arms = timers.into_iter().zip(times).map(arm).collect();
        vec![Requests { rtt_ms: 10, jitter_ms: 0, ack_delay_ms: 10, arms }]
    }

    #[test]
    fn plugin_verdict_needs_a_gain_of_a_millisecond() {
        let all = Plugins { figure3: requests([60.0, 35.0, 36.0, 35.5]), ..Plugins::default() };
        let judged: Vec<&str> = findings(&all).iter().map(|one| one.judgement).collect();
        assert_eq!(judged, ["held", "did not hold"]);
        let mut two = requests([60.0, 35.0, 45.0, 35.0]);
        two.extend(requests([35.0, 35.0, 35.0, 35.0]));
        let all = Plugins { figure3: two, ..Plugins::default() };
        let all = findings(&all);
        assert!(all.iter().all(|one| one.judgement == "held on some paths"));
        assert!(
            all[0]
                .sentence()
                .contains("35.0 ms with the probe, and after 35.0 to 60.0 ms without it"),
            "{}",
            all[0].ours
        );
    }

    #[test]
    fn plugin_verdict_on_a_cap_needs_a_rate_near_it() {
        let judge = |rates: [f64; 3]| {
            let rates = rates.into_iter().flat_map(|rate| vec![[1.0, rate]; 10]).collect();
            let caps = vec![(0, 3_000_000), (1_000, 20_000_000), (2_000, 1_000_000)];
            let (rtt_ms, interval_ms, length_ms) = (50, 100, 3_000);
            let one = Caps { rate: 80_000_000, rtt_ms, caps, interval_ms, length_ms, rates };
            super::caps(&one).judgement
        };
        assert_eq!(judge([2.9e6, 9.5e6, 0.95e6]), "held", "80 Mb/s are less than the second cap");
        assert_eq!(judge([3.5e6, 9.5e6, 0.95e6]), "held for some caps");
        assert_eq!(judge([0.1e6, 0.1e6, 0.1e6]), "did not hold");
    }

    #[test]
    fn plugin_verdict_on_extensions_limits_their_cost() {
        let arm =
            |name: &str, seconds: f64| CostArm { name: name.to_owned(), seconds: vec![seconds; 3] };
        let judge = |monitor: f64, again: f64| {
            let extensions = vec![arm("no extension", 1.0), arm(MONITORING, monitor)];
            let loading = LoadTimes {
                plugin: "monitor".to_owned(),
                bundle: 1,
                first_us: vec![3_000.0],
                again_us: vec![again],
            };
            let all =
                Costs { bytes: 1, schedulers: Vec::new(), extensions, loading: vec![loading] };
            costs(&all).iter().map(|one| one.judgement).collect::<Vec<&str>>()
        };
        assert_eq!(judge(1.01, 20.0), ["target met", "target met"]);
        assert_eq!(judge(1.05, 1_200.0), ["target missed", "target missed"]);
    }

    #[test]
    fn plugin_verdict_on_downloads_needs_half_a_second() {
        let arm = |marking, time| DownloadArm {
            marking,
            completion_s: vec![time],
            lost: vec![7],
            waited_ms: vec![100.0],
        };
        let judge = |dropped: f64, marked: f64| {
            let arms = vec![arm(MarkingName::TailDrop, dropped), arm(MarkingName::Plugin, marked)];
            let (controller, rtt_ms) = ("CUBIC".to_owned(), vec![100]);
            let one = Downloads { controller, bytes: 1, rate: 1, rtt_ms, arms };
            let all = Plugins { figure4: vec![one], ..Plugins::default() };
            findings(&all)[0].judgement
        };
        assert_eq!(judge(11.5, 10.5), "held");
        assert_eq!(judge(11.5, 11.2), "the time did not decrease");
        assert!(findings(&Plugins::default()).is_empty());
    }
}
