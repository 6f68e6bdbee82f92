//! The simulation of one run: the network, its connections and background traffic.

use std::time::Duration;

use equic_sim::{Application, FlowId, PortId, PortStats, Simulation, Time};

use super::series::{FlowPoint, PathPoint, PlayingPoint, PortPoint, Series, UnitPoint};
use super::transport::{self, BulkIds};
use super::{MakeLogs, Part, plugins};
use crate::build::Place;
use crate::model::{Flow, Scenario};
use crate::results::{ApplicationOutcome, FlowOutcome, PortOutcome, RunOutcome, TrafficOutcome};

/// Largest number of samples in a time series.
const MOST_POINTS: usize = 10_000_000;

/// A simulation that is ready to run, with its connections, traffic sources and ports.
pub(super) struct PlayStage<'a> {
    scenario: &'a Scenario,
    seed: u64,
    place: Place,
    run: Simulation,
    /// Connections, in the order of the scenario description.
    connections: Vec<Connection<'a>>,
    traffic: Vec<FlowId>,
    ports: Vec<(String, PortId)>,
}

struct Connection<'a> {
    flow: &'a Flow,
    copy: usize,
    start: Duration,
    ids: BulkIds,
}

impl<'a> PlayStage<'a> {
    pub(super) fn set(
        scenario: &'a Scenario,
        seed: u64,
        part: Part,
        logs: Option<&MakeLogs<'_>>,
    ) -> Result<PlayStage<'a>, String> {
        let place = Place::find(scenario).map_err(|error| error.message)?;
        let mut run =
            Simulation::new(place.topology.clone(), seed).map_err(|error| error.to_string())?;
        let mut connections = Vec::new();
        for (index, (flow, ends)) in scenario.flows.iter().zip(&place.flows).enumerate() {
            if matches!(part, Part::Flow(only) if only != index) {
                continue;
            }
            let hooks = plugins::hooks(&flow.quic)?;
            for (copy, ends) in ends.iter().enumerate() {
                let start = flow.start + flow.stagger * copy as u32;
                let logs = logs.map(|logs| logs(&flow.name, copy + 1));
                let additions = (logs, hooks.clone());
                let ids = transport::attach(&mut run, flow, &place, *ends, start, additions)?;
                connections.push(Connection { flow, copy: copy + 1, start, ids });
            }
        }
        let traffic = place.attach_traffic(&mut run, scenario)?;
        let ports = place.ports();
        Ok(PlayStage { scenario, seed, place, run, connections, traffic, ports })
    }

    pub(super) fn run(&mut self) -> Result<(), String> {
        let limit = Time::START + self.scenario.limit;
        self.run.run(limit).map(drop).map_err(|error| error.to_string())
    }

    /// Runs like [`PlayStage::run`], and also takes a sample at each interval. Sampling does not
    /// change the result.
    pub(super) fn record(&mut self) -> Result<Series, String> {
        let limit = Time::START + self.scenario.limit;
        let mut series = Series::default();
        let mut before = Before {
            at: Time::START,
            flows: vec![(0, 0); self.connections.len()],
            ports: vec![(PortStats::default(), 0); self.ports.len()],
        };
        let mut next = Time::START;
        loop {
            next = (next + self.scenario.interval).min(limit);
            let end = self.run.run(next).map_err(|error| error.to_string())?;
            self.look(&mut before, &mut series);
            if end != equic_sim::End::Limit || next == limit {
                series.units = self.units();
                return Ok(series);
            }
            let points = series.flows.len() + series.ports.len() + series.paths.len();
            if points > MOST_POINTS {
                return Err(format!(
                    "more than {MOST_POINTS} points of time series: make `interval` longer"
                ));
            }
        }
    }

    fn look(&self, before: &mut Before, series: &mut Series) {
        let now = self.run.now();
        let seconds = now.since(before.at).as_secs_f64();
        if seconds <= 0.0 {
            return;
        }
        let time = now.as_secs_f64();
        before.at = now;
        let rate = |bytes: u64| 8.0 * bytes as f64 / seconds;
        for (connection, (bytes_before, lost_before)) in
            self.connections.iter().zip(&mut before.flows)
        {
            let Connection { flow, copy, start, ids } = connection;
            if now < Time::START + *start {
                continue;
            }
            let sender = transport::sender(&self.run, flow, *ids);
            self.look_at_playing(time, connection, series);
            let bytes = self.run.goodput(ids.receiver);
            series.flows.push(FlowPoint {
                time,
                flow: flow.name.clone(),
                copy: *copy,
                protocol: flow.protocol.name(),
                window: sender.window,
                slow_start_threshold: sender.slow_start_threshold,
                in_flight: sender.in_flight,
                rtt: sender.rtt.as_secs_f64(),
                pacing_rate: 8.0 * sender.pacing_rate,
                goodput: rate(bytes - *bytes_before),
                lost: sender.packets_lost - *lost_before,
            });
            (*bytes_before, *lost_before) = (bytes, sender.packets_lost);
            for path in transport::paths(&self.run, flow, *ids) {
                series.paths.push(PathPoint {
                    time,
                    flow: flow.name.clone(),
                    copy: *copy,
                    path: path.id,
                    link: path.interface + 1,
                    validated: path.validated,
                    window: path.window,
                    in_flight: path.in_flight,
                    rtt: path.rtt.as_secs_f64(),
                    pacing_rate: 8.0 * path.pacing_rate as f64,
                });
            }
        }
        for ((name, port), (before, sent_before)) in self.ports.iter().zip(&mut before.ports) {
            let (stats, sent) = (self.run.port(*port), self.run.sent_by_now(*port));
            let dropped = |stats: &PortStats| stats.dropped_full + stats.dropped_early;
            let (packets, bytes) = self.run.waiting(*port);
            series.ports.push(PortPoint {
                time,
                port: name.clone(),
                packets,
                bytes,
                dropped: dropped(&stats) - dropped(before),
                marked: stats.marked - before.marked,
                rate: rate(sent - *sent_before),
            });
            (*before, *sent_before) = (stats, sent);
        }
    }

    pub(super) fn outcome(&self) -> RunOutcome {
        RunOutcome {
            seed: self.seed,
            ended: self.run.now().as_secs_f64(),
            events: self.run.events(),
            flows: self.connections.iter().map(|one| self.flow(one)).collect(),
            traffic: TrafficOutcome::of_all(&self.run, self.scenario, &self.traffic),
            ports: PortOutcome::of_all(&self.run, &self.ports),
        }
    }

    fn flow(&self, connection: &Connection<'_>) -> FlowOutcome {
        let Connection { flow, copy, start, ids } = connection;
        let begun = Time::START + *start;
        let outcome = transport::outcome(&self.run, flow, *ids);
        let sender = transport::sender(&self.run, flow, *ids);
        let ended = outcome.completed.unwrap_or(self.run.now());
        let seconds = ended.since(begun).as_secs_f64();
        let packets = self.run.flow_stats(ids.there);
        FlowOutcome {
            name: flow.name.clone(),
            copy: *copy,
            completion: outcome.completed.map(|at| at.since(begun).as_secs_f64()),
            bytes: outcome.bytes,
            goodput: if seconds > 0.0 { 8.0 * outcome.bytes as f64 / seconds } else { 0.0 },
            packets_sent: sender.packets_sent,
            packets_lost: sender.packets_lost,
            spurious_losses: sender.spurious,
            timeouts: sender.timeouts,
            min_rtt: Some(sender.min_rtt.as_secs_f64()).filter(|rtt| *rtt > 0.0),
            dropped: packets.dropped,
            lost: packets.lost,
            marked: packets.marked,
            window: self.place.window_of(flow),
            window_limited: (seconds > 0.0)
                .then(|| (sender.window_limited.as_secs_f64() / seconds).min(1.0)),
            failure: outcome.failure.or_else(|| transport::failed_hook(&self.run, flow, *ids)),
            application: self.application(connection),
        }
    }

    fn application(&self, connection: &Connection<'_>) -> Option<ApplicationOutcome> {
        let application = connection.flow.application.as_ref()?;
        let report = transport::report(&self.run, connection.flow, connection.ids)?;
        Some(ApplicationOutcome::new(application, &report))
    }

    /// Adds a sample of a video player's buffer to the series.
    fn look_at_playing(&self, time: f64, connection: &Connection<'_>, series: &mut Series) {
        let Connection { flow, copy, ids, .. } = connection;
        if !matches!(flow.application, Some(Application::Video(_))) {
            return;
        }
        let report = transport::report(&self.run, flow, *ids);
        let Some(playing) = report.and_then(|report| report.playing) else { return };
        series.playing.push(PlayingPoint {
            time,
            flow: flow.name.clone(),
            copy: *copy,
            protocol: flow.protocol.name(),
            buffered: playing.buffered.as_secs_f64(),
            stalls: playing.stalls,
            stalled: playing.stalled.as_secs_f64(),
        });
    }

    /// Returns the completed units of all connections: requests, streams, objects, segments and
    /// messages.
    fn units(&self) -> Vec<UnitPoint> {
        let mut points = Vec::new();
        for Connection { flow, copy, ids, .. } in &self.connections {
            let (Some(application), Some(report)) =
                (&flow.application, transport::report(&self.run, flow, *ids))
            else {
                continue;
            };
            points.extend(report.units.iter().map(|unit| UnitPoint {
                flow: flow.name.clone(),
                copy: *copy,
                protocol: flow.protocol.name(),
                unit: unit_name(application, unit.number),
                began: unit.began.as_secs_f64(),
                took: unit.took().as_secs_f64(),
            }));
        }
        points
    }
}

/// Returns the name of a unit in results: the name of an object, or the number of any other unit,
/// from 1.
fn unit_name(application: &Application, number: u64) -> String {
    let object = match application {
        Application::Page(page) => usize::try_from(number).ok().and_then(|at| page.objects.get(at)),
        _ => None,
    };
    object.map_or_else(|| (number + 1).to_string(), |object| object.name.clone())
}

/// The counters at the last sample, from which the next sample computes differences.
struct Before {
    at: Time,
    /// For each connection: the number of bytes received and of packets lost.
    flows: Vec<(u64, u64)>,
    /// For each port: its counters, and the number of bytes sent.
    ports: Vec<(PortStats, u64)>,
}
