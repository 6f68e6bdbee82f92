//! The summary of all runs of a scenario: means over the seeds, with confidence intervals.

use equic_report::stats::{Interval, Sample};
use serde::Serialize;

use super::Settings;
use super::outcome::{ApplicationOutcome, FlowOutcome, RunOutcome, kind};
use crate::model::Scenario;

/// The mean of a value over the seeds of a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// Number of seeds with a value.
    pub count: usize,
    /// Arithmetic mean.
    pub mean: f64,
    /// Standard deviation of the sample. `None` with one value.
    pub deviation: Option<f64>,
    /// The 95 % confidence interval of the mean ([`Sample::mean_95`]). `None` with fewer than three
    /// values, or if all values are equal.
    pub interval: Option<Interval>,
}

impl Figure {
    /// Returns the mean of these values, or `None` if there are no values.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Figure> {
        let sample: Sample = values.into_iter().collect();
        let (mean, interval) = (sample.mean()?, sample.mean_95());
        Some(Figure { count: sample.len(), mean, deviation: sample.standard_deviation(), interval })
    }

    /// Returns the figure with its confidence interval limited to the possible range of the value.
    #[must_use]
    pub fn within(self, least: f64, most: f64) -> Figure {
        let cut = |ends: Interval| Interval {
            low: ends.low.clamp(least, most),
            high: ends.high.clamp(least, most),
        };
        Figure { interval: self.interval.map(cut), ..self }
    }
}

/// The summary of a flow over all seeds. Each seed has the same weight, because the values of the
/// flow's connections in a run are averaged first.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FlowSummary {
    /// Name of the flow.
    pub name: String,
    /// Transport protocol.
    pub protocol: &'static str,
    /// Congestion control.
    pub controller: &'static str,
    /// Settings that may differ between protocols.
    pub settings: Settings,
    /// Number of connections in each run.
    pub connections: usize,
    /// Number of completed connections in all runs.
    pub completed: usize,
    /// Number of failed connections in all runs.
    pub failed: usize,
    /// Completion time of the connections that completed, in seconds.
    pub completion: Option<Figure>,
    /// Goodput of one connection, in bits per second.
    pub goodput: Option<Figure>,
    /// Share of packets that the sender declared lost, from 0 to 1.
    pub loss: Option<Figure>,
    /// Largest window of a connection in bytes: the flow-control window, which is also the limit on
    /// unacknowledged data.
    pub window: u64,
    /// Share of a connection's time, from 0 to 1, in which flow control or the limit on
    /// unacknowledged data limited its goodput. Time limited by congestion control does not count.
    /// `None` in real time.
    pub window_limited: Option<Figure>,
    /// Harm that the other flows caused, or `None` if it was not measured.
    pub harm: Option<Harm>,
    /// Results of the application. `None`, and absent from JSON, for a single transfer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub application: Option<ApplicationSummary>,
}

/// The results of a flow's application over all seeds. A percentile here is the mean of the
/// connections' percentiles. Each seed has the same weight, as in [`FlowSummary`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ApplicationSummary {
    /// Name of the application, as in the scenario description.
    pub kind: &'static str,
    /// Number of units that the application should complete, over all connections and runs. A unit
    /// is a request, stream, object, segment or message.
    pub wanted: u64,
    /// Number of units that the application completed, over all connections and runs.
    pub done: u64,
    /// Median duration of a unit in seconds.
    pub p50: Option<Figure>,
    /// 95th percentile of the duration in seconds.
    pub p95: Option<Figure>,
    /// 99th percentile of the duration in seconds.
    pub p99: Option<Figure>,
    /// Startup delay of a video in seconds, if playback began.
    pub startup: Option<Figure>,
    /// Number of stalls.
    pub stalls: Option<Figure>,
    /// Total duration of the stalls in seconds.
    pub stalled: Option<Figure>,
    /// Share of a call's messages that arrived late, from 0 to 1.
    pub late: Option<Figure>,
    /// Share of a call's messages that did not arrive, from 0 to 1.
    pub lost: Option<Figure>,
}

/// Harm to a flow: the fraction of its performance that it loses because of the other flows. The
/// reference is a run of the flow by itself in the same network. 0 means no harm, 1 means that the
/// flow gets nothing, and a negative value means that the flow performs better with the others (R.
/// Ware et al., "Beyond Jain's Fairness Index", HotNets 2019).
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Harm {
    /// Harm to goodput for each seed: (s - t) / s, where s is the goodput without the other flows,
    /// and t the goodput with them.
    pub goodput: Option<Figure>,
    /// Harm to completion time for each seed: (t - s) / t, where s is the time without the other
    /// flows, and t the time with them. Only seeds in which both completed count.
    pub completion: Option<Figure>,
    /// The harm to goodput that would result if all connections shared one bottleneck equally all
    /// the time. It is 0.5 for two flows of one connection each.
    pub equal_share: f64,
}

/// The summary of all runs of a scenario.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// Flows, in the order of the description.
    pub flows: Vec<FlowSummary>,
    /// Jain's fairness index of the goodput of all connections of a run. `None` if there is only
    /// one connection.
    pub jain: Option<Figure>,
}

impl Summary {
    /// Summarises the runs of a scenario.
    pub fn new(scenario: &Scenario, runs: &[RunOutcome]) -> Summary {
        let mut first = 0;
        let flows = scenario.flows.iter().map(|flow| {
            let own = first..first + flow.count;
            first = own.end;
            let connections = |run: &'_ RunOutcome| run.flows[own.clone()].to_vec();
            let per_seed = |value: &dyn Fn(&FlowOutcome) -> Option<f64>| {
                let means = runs.iter().filter_map(|run| {
                    connections(run).iter().filter_map(value).collect::<Sample>().mean()
                });
                Figure::of(means).map(|figure| figure.within(0.0, f64::INFINITY))
            };
            let count = |is: &dyn Fn(&FlowOutcome) -> bool| {
                runs.iter().map(|run| connections(run).iter().filter(|one| is(one)).count()).sum()
            };
            let share = |one: &FlowOutcome| {
                (one.packets_sent > 0).then(|| one.packets_lost as f64 / one.packets_sent as f64)
            };
            FlowSummary {
                name: flow.name.clone(),
                protocol: flow.protocol.name(),
                controller: flow.controller.name(),
                settings: Settings::of(flow),
                connections: flow.count,
                completed: count(&|one| one.completion.is_some()),
                failed: count(&|one| one.failure.is_some()),
                completion: per_seed(&|one| one.completion),
                goodput: per_seed(&|one| Some(one.goodput)),
                loss: per_seed(&share).map(|figure| figure.within(0.0, 1.0)),
                window: runs.iter().flat_map(connections).map(|one| one.window).max().unwrap_or(0),
                window_limited: per_seed(&|one| one.window_limited)
                    .map(|figure| figure.within(0.0, 1.0)),
                harm: None,
                application: flow.application.as_ref().map(|application| {
                    let own = |run: &RunOutcome| connections(run);
                    ApplicationSummary::new(kind(application), runs, &own)
                }),
            }
        });
        let flows = flows.collect();
        let indices = runs.iter().filter(|run| run.flows.len() > 1).filter_map(|run| {
            let rates: Vec<f64> = run.flows.iter().map(|flow| flow.goodput).collect();
            jain(&rates)
        });
        Summary { flows, jain: Figure::of(indices).map(|figure| figure.within(0.0, 1.0)) }
    }

    /// Adds the harm to the flow with this index in the scenario. `runs` are the runs with all
    /// flows. `alone` are runs with the same seeds and only this flow
    /// (`equic_scenario::play::Part::Flow`).
    pub fn harm(&mut self, flow: usize, runs: &[RunOutcome], alone: &[RunOutcome]) {
        let all: usize = self.flows.iter().map(|flow| flow.connections).sum();
        let Some(summary) = self.flows.get_mut(flow) else { return };
        let own = |run: &RunOutcome, value: &dyn Fn(&FlowOutcome) -> Option<f64>| {
            let own = run.flows.iter().filter(|one| one.name == summary.name);
            own.filter_map(value).collect::<Sample>().mean()
        };
        let pairs = |value: &dyn Fn(&FlowOutcome) -> Option<f64>| -> Vec<(f64, f64)> {
            let both = runs.iter().zip(alone);
            both.filter_map(|(beside, alone)| Some((own(beside, value)?, own(alone, value)?)))
                .collect()
        };
        let goodput = pairs(&|one| Some(one.goodput));
        let goodput = goodput.into_iter().filter(|(_, alone)| *alone > 0.0);
        let completion = pairs(&|one| one.completion).into_iter();
        // Harm is at most 1 and has no lower limit.
        let harm = |values: &mut dyn Iterator<Item = f64>| {
            Figure::of(values).map(|figure| figure.within(f64::NEG_INFINITY, 1.0))
        };
        let harm = Harm {
            goodput: harm(&mut goodput.map(|(beside, alone)| (alone - beside) / alone)),
            completion: harm(&mut completion.map(|(beside, alone)| (beside - alone) / beside)),
            equal_share: 1.0 - summary.connections as f64 / all.max(1) as f64,
        };
        summary.harm = Some(harm);
    }
}

impl ApplicationSummary {
    fn new(
        kind: &'static str,
        runs: &[RunOutcome],
        connections: &dyn Fn(&RunOutcome) -> Vec<FlowOutcome>,
    ) -> ApplicationSummary {
        let all: Vec<Vec<ApplicationOutcome>> = runs
            .iter()
            .map(|run| connections(run).into_iter().filter_map(|one| one.application).collect())
            .collect();
        let sum = |value: fn(&ApplicationOutcome) -> u64| all.iter().flatten().map(value).sum();
        let figure = |value: &dyn Fn(&ApplicationOutcome) -> Option<f64>| {
            let means = all
                .iter()
                .filter_map(|run| run.iter().filter_map(value).collect::<Sample>().mean());
            Figure::of(means).map(|figure| figure.within(0.0, f64::INFINITY))
        };
        let share_of_all = |figure: Figure| figure.within(0.0, 1.0);
        let share = |part: u64, one: &ApplicationOutcome| part as f64 / one.wanted.max(1) as f64;
        ApplicationSummary {
            kind,
            wanted: sum(|one| one.wanted),
            done: sum(|one| one.done),
            p50: figure(&|one| Some(one.latency?.p50)),
            p95: figure(&|one| Some(one.latency?.p95)),
            p99: figure(&|one| Some(one.latency?.p99)),
            startup: figure(&|one| one.playing?.startup),
            stalls: figure(&|one| Some(one.playing?.stalls as f64)),
            stalled: figure(&|one| Some(one.playing?.stalled)),
            late: figure(&|one| Some(share(one.messages?.late, one))).map(share_of_all),
            lost: figure(&|one| Some(share(one.messages?.lost, one))).map(share_of_all),
        }
    }
}

/// Returns Jain's fairness index. It is 1 if all rates are equal, and 1/n if one of n flows has
/// everything (R. Jain, D. Chiu, W. Hawe, 1984). Returns `None` if all rates are zero.
pub fn jain(rates: &[f64]) -> Option<f64> {
    let sum: f64 = rates.iter().sum();
    let squares: f64 = rates.iter().map(|rate| rate * rate).sum();
    (squares > 0.0).then(|| sum * sum / (rates.len() as f64 * squares))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jain_index_of_known_rates() {
        assert_eq!(jain(&[5.0, 5.0, 5.0]), Some(1.0));
        assert_eq!(jain(&[7.0, 0.0, 0.0, 0.0]), Some(0.25));
        assert_eq!(jain(&[0.0, 0.0]), None);
        // (1 + 2)^2 / (2 * (1 + 4))
        assert_eq!(jain(&[1.0, 2.0]), Some(0.9));
    }

    #[test]
    fn figure_mean_has_an_interval_around_it() {
        let figure = Figure::of([1.0, 2.0, 3.0, 4.0]).unwrap();
        let interval = figure.interval.unwrap();
        assert_eq!((figure.count, figure.mean), (4, 2.5));
        assert!(interval.low < 2.5 && 2.5 < interval.high, "{interval:?}");
        assert_eq!(Figure::of([1.0, 2.0, 3.0, 4.0]), Some(figure));
        for without in [&[3.0][..], &[3.0, 4.0], &[3.0, 3.0, 3.0]] {
            assert_eq!(Figure::of(without.iter().copied()).unwrap().interval, None, "{without:?}");
        }
        assert_eq!(Figure::of([]), None);
        let cut = Figure::of([0.0, 0.0, 1.0]).unwrap().within(0.0, 1.0).interval.unwrap();
        assert_eq!((cut.low, cut.high), (0.0, 1.0));
    }
}
