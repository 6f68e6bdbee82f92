//! Compares the paper's numbers with our measurements.

use equic_report::stats::{Interval, Sample};

use super::data::{Experiment, Run};
use super::metrics::{changes, median_with_never};
use super::plan::Arm;

/// A median over runs with its 95 % confidence interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Estimate {
    pub median: f64,
    /// 95 % interval of the median. `None` for fewer than 6 runs, because their interval would
    /// cover less than 95 %.
    pub interval: Option<Interval>,
    /// Number of values that the median is computed from.
    pub count: usize,
}

/// Returns the median of values with its interval, or `None` if there are no values.
pub(super) fn estimate(values: &[f64]) -> Option<Estimate> {
    let sample = Sample::from(values);
    Some(Estimate { median: sample.median()?, interval: sample.median_95(), count: sample.len() })
}

/// Returns a percentile of the values from one run.
fn percentile(values: &[f64], p: f64) -> Option<f64> {
    Sample::from(values).percentile(p)
}

/// Computes one figure of a run.
pub(super) type Metric = fn(&Run) -> Option<f64>;

/// A metric with its name and its unit, which is a row in the table of all arms.
pub(super) struct Measured {
    pub name: &'static str,
    pub unit: &'static str,
    pub of: Metric,
}

/// Returns the number of all system calls of the server.
fn syscalls(run: &Run) -> equic_netns::measure::Calls {
    equic_netns::measure::all_calls(&run.syscalls)
}

/// The metrics in the table of all arms, one per row.
pub(super) const MEASURED: [Measured; 19] = [
    Measured {
        name: "requests/s in the whole experiment, harmonic mean",
        unit: "/s",
        of: |r| r.legitimate.whole.harmonic_per_s,
    },
    Measured {
        name: "requests/s in the whole experiment, mean",
        unit: "/s",
        of: |r| r.legitimate.whole.mean_per_s,
    },
    Measured {
        name: "requests/s under attack, harmonic mean",
        unit: "/s",
        of: |r| r.legitimate.attacked.harmonic_per_s,
    },
    Measured {
        name: "requests/s before the attack, median",
        unit: "/s",
        of: |r| r.legitimate.before_per_s,
    },
    Measured {
        name: "throughput lost under attack",
        unit: "%",
        of: |r| {
            let before = r.legitimate.before_per_s.filter(|rate| *rate > 0.0)?;
            Some(100.0 * (1.0 - r.legitimate.attacked.mean_per_s? / before))
        },
    },
    Measured {
        name: "request duration in the whole experiment, harmonic mean",
        unit: "ms",
        of: |r| r.legitimate.whole.harmonic_ms,
    },
    Measured {
        name: "request duration under attack, harmonic mean",
        unit: "ms",
        of: |r| r.legitimate.attacked.harmonic_ms,
    },
    Measured {
        name: "request duration under attack, median",
        unit: "ms",
        of: |r| r.legitimate.attacked.median_ms,
    },
    Measured {
        name: "request duration under attack, p99",
        unit: "ms",
        of: |r| r.legitimate.attacked.p99_ms,
    },
    Measured {
        name: "failed requests",
        unit: "",
        of: |r| Some(r.legitimate.outcomes.failed() as f64),
    },
    Measured {
        name: "time until the sequential clients finished",
        unit: "s",
        of: |r| Some(r.sequential_done_s),
    },
    Measured {
        name: "answered requests of the attackers",
        unit: "",
        of: |r| Some(r.attackers.ok as f64),
    },
    Measured {
        name: "CPU time to reject a connection attempt",
        unit: "µs",
        of: |r| Some(r.block?.nanoseconds() / 1000.0),
    },
    Measured {
        name: "run time of the XDP program per packet, mean",
        unit: "ns",
        of: |r| r.gateway.as_ref()?.mean_ns,
    },
    Measured {
        name: "system calls of the server",
        unit: "",
        of: |r| Some(syscalls(r).calls as f64),
    },
    Measured {
        name: "failed system calls of the server",
        unit: "",
        of: |r| Some(syscalls(r).errors as f64),
    },
    Measured {
        name: "CPU time of the server in system calls",
        unit: "s",
        of: |r| Some(syscalls(r).cpu_seconds),
    },
    Measured {
        name: "server CPU, 90th percentile",
        unit: "%",
        of: |r| percentile(&r.server.cpu_percent, 90.0),
    },
    Measured {
        name: "server memory (PSS), 90th percentile",
        unit: "MB",
        of: |r| percentile(&r.server.pss_mb, 90.0),
    },
];

/// A claim of the paper: how a figure changes if the quota is checked in the kernel instead of in
/// user space.
pub(super) struct Claim {
    pub name: &'static str,
    /// The claim, as written in the paper.
    pub paper: &'static str,
    /// The relative change in the paper, such as -0.65 for 65 % less. `None` if the paper gives no
    /// number.
    pub change: Option<f64>,
    pub of: Of,
}

/// Where the figure of a claim comes from.
pub(super) enum Of {
    Runs(Metric),
    /// The time until a run recovers from the attack. Some runs never recover.
    Recovery,
    /// The duration of a decision, which is measured separately from the runs.
    Decisions,
}

/// The paper's claims, in its order. The paper counts its "18 % faster" from the start of the
/// experiment. Counted from the start of the attack, it is 17 units of the paper's figure 3 instead
/// of 22.
pub(super) const CLAIMS: [Claim; 14] = [
    Claim {
        name: "Throughput of sequential clients, harmonic mean (figure 4)",
        paper: "+30.9 %",
        change: Some(0.309),
        of: Of::Runs(|r| r.legitimate.whole.harmonic_per_s),
    },
    Claim {
        name: "Throughput of sequential clients, arithmetic mean",
        paper: "not given",
        change: None,
        of: Of::Runs(|r| r.legitimate.whole.mean_per_s),
    },
    Claim {
        name: "Throughput of sequential clients under attack, harmonic mean",
        paper: "not given",
        change: None,
        of: Of::Runs(|r| r.legitimate.attacked.harmonic_per_s),
    },
    Claim {
        name: "Time to recover from the attack (figure 3)",
        paper: "-23 % (22 to 17 units)",
        change: Some(-5.0 / 22.0),
        of: Of::Recovery,
    },
    Claim {
        name: "Total CPU time to reject a connection attempt (figure 4)",
        paper: "-26.4 %, to 8 µs",
        change: Some(-0.264),
        of: Of::Runs(|r| Some(r.block?.nanoseconds())),
    },
    Claim {
        name: "CPU time of only the decision to reject an attempt",
        paper: "not given",
        change: None,
        of: Of::Decisions,
    },
    Claim {
        name: "Request duration, harmonic mean (figure 5)",
        paper: "-65 %",
        change: Some(-0.65),
        of: Of::Runs(|r| r.legitimate.whole.harmonic_ms),
    },
    Claim {
        name: "Request duration under attack, harmonic mean",
        paper: "not given",
        change: None,
        of: Of::Runs(|r| r.legitimate.attacked.harmonic_ms),
    },
    Claim {
        name: "Request duration under attack, 99th percentile",
        paper: "not given",
        change: None,
        of: Of::Runs(|r| r.legitimate.attacked.p99_ms),
    },
    Claim {
        name: "System calls of the server (table I)",
        paper: "-89 % (77,551 to 8,178)",
        change: Some(8178.0 / 77551.0 - 1.0),
        of: Of::Runs(|r| Some(syscalls(r).calls as f64)),
    },
    Claim {
        name: "Failed system calls of the server (table I)",
        paper: "-95 % (562 to 26)",
        change: Some(26.0 / 562.0 - 1.0),
        of: Of::Runs(|r| Some(syscalls(r).errors as f64)),
    },
    Claim {
        name: "Time of the server in system calls (table I)",
        paper: "-89 % (2.94 s to 0.31 s)",
        change: Some(0.312_806 / 2.936_784 - 1.0),
        of: Of::Runs(|r| Some(syscalls(r).cpu_seconds)),
    },
    Claim {
        name: "Server CPU, 90th percentile (figure 6)",
        paper: "about 90 % to 40 %",
        change: Some(-50.0 / 90.0),
        of: Of::Runs(|r| percentile(&r.server.cpu_percent, 90.0)),
    },
    Claim {
        name: "Server memory, 90th percentile (figure 6)",
        paper: "90 % to 30 % (plots CPU again)",
        change: Some(-60.0 / 90.0),
        of: Of::Runs(|r| percentile(&r.server.pss_mb, 90.0)),
    },
];

/// Pairs of arms to compare. The first arm enforces the quota in user space, and the second in the
/// kernel.
pub(super) const PAIRS: [(&str, Arm, Arm); 2] = [
    ("as published", Arm::UserLate, Arm::KernelStrict),
    ("best variants", Arm::UserEarly, Arm::KernelNew),
];

impl Experiment {
    /// Returns the runs of an arm, ordered by round.
    pub(super) fn of(&self, arm: Arm) -> Vec<&Run> {
        let mut runs: Vec<&Run> = self.runs.iter().filter(|run| run.arm == arm).collect();
        runs.sort_by_key(|run| run.round);
        runs
    }

    /// Returns a figure as the median over the runs of an arm.
    pub(super) fn figure(&self, arm: Arm, metric: Metric) -> Option<Estimate> {
        let values: Vec<f64> = self.of(arm).into_iter().filter_map(metric).collect();
        estimate(&values)
    }

    /// Returns the median time until the runs of an arm recovered, or `None` if most of them did
    /// not.
    pub(super) fn recovery(&self, arm: Arm) -> Option<f64> {
        let times: Vec<_> = self.of(arm).iter().map(|run| run.legitimate.recovery_s).collect();
        median_with_never(&times)
    }

    /// Returns the duration of a decision in an arm, in nanoseconds.
    pub(super) fn decision(&self, arm: Arm) -> Option<Estimate> {
        let found = self.decisions.iter().find(|decision| decision.arm == arm)?;
        estimate(&found.nanoseconds)
    }

    /// Returns how the figure of a claim changes from one arm to another: the median of the changes
    /// within rounds.
    pub(super) fn change(&self, claim: &Claim, from: Arm, to: Arm) -> Option<Estimate> {
        let rounds = |metric: &dyn Fn(&Run) -> Option<f64>| {
            let (old, new) = (self.of(from), self.of(to));
            let pairs = old.into_iter().zip(new).map(|(old, new)| (metric(old), metric(new)));
            changes(pairs.collect::<Vec<_>>())
        };
        let values = match claim.of {
            Of::Runs(metric) => rounds(&metric),
            Of::Recovery => rounds(&|run: &Run| run.legitimate.recovery_s),
            Of::Decisions => {
                let of = |arm| self.decisions.iter().find(|decision| decision.arm == arm);
                let (old, new) = (of(from)?, of(to)?);
                let pairs = old.nanoseconds.iter().zip(&new.nanoseconds);
                changes(pairs.map(|(old, new)| (Some(*old), Some(*new))))
            }
        };
        estimate(&values)
    }
}

/// Minimum number of rounds for which a change has an interval.
pub(super) use equic_report::stats::median::FEWEST;

/// Verdict on a claim of the paper, by the change of its figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClaimVerdict {
    /// The change was measured in fewer than [`FEWEST`] rounds.
    TooFew,
    /// The change has the same direction as in the paper, and the paper's value is within its
    /// interval.
    Holds,
    /// The change has the same direction as in the paper, but is larger.
    More,
    /// The change has the same direction as in the paper, but is smaller.
    Less,
    /// The interval of the change includes zero, so its direction is unknown.
    Open,
    /// The change has the opposite direction of the change in the paper.
    Contradicted,
}

impl ClaimVerdict {
    /// Compares a change that the paper reports with the measured change.
    pub(super) fn of(paper: f64, ours: &Estimate) -> ClaimVerdict {
        let Some(Interval { low, high }) = ours.interval else { return ClaimVerdict::TooFew };
        // If the paper reports a decrease, negates all values, so that the rest only compares
        // increases.
        let (paper, low, high) =
            if paper < 0.0 { (-paper, -high, -low) } else { (paper, low, high) };
        if high < 0.0 {
            ClaimVerdict::Contradicted
        } else if low <= 0.0 {
            ClaimVerdict::Open
        } else if (low..=high).contains(&paper) {
            ClaimVerdict::Holds
        } else if low > paper {
            ClaimVerdict::More
        } else {
            ClaimVerdict::Less
        }
    }

    /// Returns a short form of the verdict, for a table.
    pub(super) fn short(self) -> &'static str {
        match self {
            ClaimVerdict::Holds | ClaimVerdict::More | ClaimVerdict::Less => "holds",
            ClaimVerdict::Contradicted => "does not hold",
            ClaimVerdict::Open | ClaimVerdict::TooFew => "not shown",
        }
    }

    /// Returns a long form of the verdict, for a sentence about a claim.
    pub(super) fn words(self) -> &'static str {
        match self {
            ClaimVerdict::TooFew => "is not shown, because there are too few rounds",
            ClaimVerdict::Holds => "holds, and the change is as large as in the paper",
            ClaimVerdict::More => "holds, and the change is larger than in the paper",
            ClaimVerdict::Less => "holds, but the change is smaller than in the paper",
            ClaimVerdict::Open => "is not shown, because the interval includes 0 %",
            ClaimVerdict::Contradicted => {
                "does not hold, because the change is in the other direction"
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdict_follows_the_interval() {
        let of = |low, high, count| Estimate {
            median: f64::midpoint(low, high),
            interval: (count >= FEWEST).then_some(Interval { low, high }),
            count,
        };
        let ours = |low, high| of(low, high, FEWEST);
        assert_eq!(ClaimVerdict::of(0.3, &of(0.2, 0.4, FEWEST - 1)), ClaimVerdict::TooFew);
        assert_eq!(ClaimVerdict::of(0.3, &ours(0.2, 0.4)), ClaimVerdict::Holds);
        assert_eq!(ClaimVerdict::of(0.3, &ours(0.5, 0.6)), ClaimVerdict::More);
        assert_eq!(ClaimVerdict::of(0.3, &ours(0.1, 0.2)), ClaimVerdict::Less);
        assert_eq!(ClaimVerdict::of(0.3, &ours(-0.1, 0.2)), ClaimVerdict::Open);
        assert_eq!(ClaimVerdict::of(0.3, &ours(-0.2, -0.1)), ClaimVerdict::Contradicted);
        assert_eq!(ClaimVerdict::of(-0.65, &ours(-0.9, -0.8)), ClaimVerdict::More);
        assert_eq!(ClaimVerdict::of(-0.65, &ours(-0.2, -0.1)), ClaimVerdict::Less);
        assert_eq!(ClaimVerdict::of(-0.65, &ours(0.1, 0.2)), ClaimVerdict::Contradicted);
        // These words are used in the report.
        assert_eq!(ClaimVerdict::of(0.3, &ours(0.1, 0.2)).short(), "holds");
        assert_eq!(ClaimVerdict::of(0.3, &ours(-0.1, 0.2)).short(), "not shown");
        assert_eq!(ClaimVerdict::of(0.3, &of(0.2, 0.4, FEWEST - 1)).short(), "not shown");
        assert_eq!(ClaimVerdict::of(-0.65, &ours(0.1, 0.2)).short(), "does not hold");
    }

    #[test]
    fn estimate_of_few_values_has_no_interval() {
        let values = [1.0, 5.0, 3.0, 2.0, 4.0, 6.0];
        let interval = Some(Interval { low: 1.0, high: 6.0 });
        assert_eq!(estimate(&values), Some(Estimate { median: 3.5, interval, count: 6 }));
        assert_eq!(estimate(&values[..5]).map(|one| (one.median, one.interval)), Some((3.0, None)));
        assert_eq!(estimate(&[]), None);
    }
}
