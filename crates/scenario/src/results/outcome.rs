//! The result of one run.

use equic_sim::{Application, FlowId, PortId, Rate, Simulation};
use serde::Serialize;

use crate::model::Scenario;

/// A run with one seed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunOutcome {
    /// The seed.
    pub seed: u64,
    /// Virtual time at which the run ended, in seconds.
    pub ended: f64,
    /// Events that were simulated.
    pub events: u64,
    /// All connections, in the order of the description.
    pub flows: Vec<FlowOutcome>,
    /// Other traffic, in the order of the description.
    pub traffic: Vec<TrafficOutcome>,
    /// Ports of narrow links, both directions; of a graph, of all links.
    pub ports: Vec<PortOutcome>,
}

/// A connection in a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FlowOutcome {
    /// Name of the flow in the description.
    pub name: String,
    /// Number among the connections of that flow, from 1.
    pub copy: usize,
    /// Seconds from the start of the handshake to the last byte at the receiver's application; none: it did not get
    /// that far.
    pub completion: Option<f64>,
    /// Bytes that the receiver's application had.
    pub bytes: u64,
    /// Bits per second, from the start of the handshake to completion, or to the end of the run.
    pub goodput: f64,
    /// Packets, or segments, that the sender's transport sent.
    pub packets_sent: u64,
    /// Packets that it gave up as lost.
    pub packets_lost: u64,
    /// QUIC: of those, acknowledged after all. TCP: recoveries that turned out to be for nothing.
    pub spurious_losses: u64,
    /// Probe timeouts of QUIC, expiries of the retransmission timer of TCP.
    pub timeouts: u64,
    /// The least round-trip time that the sender measured, in seconds; none: it measured none.
    pub min_rtt: Option<f64>,
    /// Packets to the receiver that queues dropped.
    pub dropped: u64,
    /// Packets to the receiver that were lost on links.
    pub lost: u64,
    /// Packets to the receiver that a queue had marked.
    pub marked: u64,
    /// The most that its window may grow to, in bytes: what flow control allows in flight, and what waits to be
    /// acknowledged.
    pub window: u64,
    /// Share of its time in which flow control, or the most that waits to be acknowledged, held data back that congestion
    /// control allowed, from 0 to 1. `None` in real time.
    pub window_limited: Option<f64>,
    /// Reason for which it failed, if it did.
    pub failure: Option<String>,
    /// Requests, streams, objects, segments or messages that it carried; none, and not in JSON: it was one transfer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub application: Option<ApplicationOutcome>,
}

/// Figures of the application that a connection carried.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ApplicationOutcome {
    /// The application, as in the description.
    pub kind: &'static str,
    /// Requests, streams, objects, segments or messages that there were to be.
    pub wanted: u64,
    /// Those of which the last byte came.
    pub done: u64,
    /// Seconds that these took; none: there is none.
    pub latency: Option<Latency>,
    /// The playing of a video.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub playing: Option<PlayingOutcome>,
    /// Messages of a call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub messages: Option<MessageOutcome>,
}

/// Seconds from the moment that the application wanted something until it had the last byte. Percentiles are values
/// that occurred (nearest rank).
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Latency {
    /// Arithmetic mean.
    pub mean: f64,
    /// The median.
    pub p50: f64,
    /// 95 of 100 took no longer.
    pub p95: f64,
    /// 99 of 100 took no longer.
    pub p99: f64,
    /// The longest.
    pub max: f64,
}

/// Start-up delay and stalls of a video.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PlayingOutcome {
    /// Seconds from the start of the handshake until it began to play; none: it did not.
    pub startup: Option<f64>,
    /// Number of times that it stood still.
    pub stalls: u64,
    /// Seconds for which it did.
    pub stalled: f64,
}

/// Messages of a call that were worth nothing.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct MessageOutcome {
    /// Messages that came after their deadline.
    pub late: u64,
    /// Messages that did not come.
    pub lost: u64,
}

impl ApplicationOutcome {
    /// Makes the outcome of what an application reports.
    #[cfg(feature = "play")]
    pub(crate) fn new(application: &Application, report: &equic_sim::Report) -> ApplicationOutcome {
        use equic_report::stats::Sample;
        let (wanted, done) = (application.units(), report.units.len() as u64);
        let took: Sample = report.units.iter().map(|unit| unit.took().as_secs_f64()).collect();
        let latency = took.mean().map(|mean| {
            let rank = |p: f64| took.nearest_rank(p).unwrap_or(mean);
            let max = took.max().unwrap_or(mean);
            Latency { mean, p50: rank(50.0), p95: rank(95.0), p99: rank(99.0), max }
        });
        ApplicationOutcome {
            kind: kind(application),
            wanted,
            done,
            latency,
            playing: report.playing.map(|playing| PlayingOutcome {
                startup: playing.startup.map(|startup| startup.as_secs_f64()),
                stalls: playing.stalls,
                stalled: playing.stalled.as_secs_f64(),
            }),
            messages: matches!(application, Application::Call(_))
                .then(|| MessageOutcome { late: report.late, lost: wanted.saturating_sub(done) }),
        }
    }
}

/// An application's name, as in the description.
pub(super) fn kind(application: &Application) -> &'static str {
    match application {
        Application::Requests(_) => "requests",
        Application::Streams(_) => "streams",
        Application::Page(_) => "page",
        Application::Video(_) => "video",
        Application::Call(_) => "call",
    }
}

/// Other traffic in a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TrafficOutcome {
    /// Name in the description.
    pub name: String,
    /// Packets sent.
    pub sent: u64,
    /// Packets that arrived.
    pub delivered: u64,
    /// Packets that queues dropped.
    pub dropped: u64,
}

/// A port in a run: the sending end of one direction of a link.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PortOutcome {
    /// Name of the link, and `there` or `back`.
    pub name: String,
    /// Share that was used of what the port could have sent over the run, from 0 to 1.
    pub utilisation: Option<f64>,
    /// Packets that it sent.
    pub sent: u64,
    /// Packets that its queue dropped.
    pub dropped: u64,
    /// Packets that its queue marked.
    pub marked: u64,
    /// Packets that were lost behind it.
    pub lost: u64,
    /// The most packets that waited.
    pub most_packets: usize,
}

impl TrafficOutcome {
    /// Outcomes of all other traffic of a scenario in this run, whose flows are in the order of the description.
    pub fn of_all(run: &Simulation, scenario: &Scenario, flows: &[FlowId]) -> Vec<TrafficOutcome> {
        let of = |(name, flow): (&String, &FlowId)| {
            let stats = run.flow_stats(*flow);
            TrafficOutcome {
                name: name.clone(),
                sent: stats.sent,
                delivered: stats.delivered,
                dropped: stats.dropped,
            }
        };
        scenario.traffic.iter().map(|one| &one.name).zip(flows).map(of).collect()
    }
}

impl PortOutcome {
    /// Statistics of these ports, each with its name, in this run so far.
    pub fn of_all(run: &Simulation, ports: &[(String, PortId)]) -> Vec<PortOutcome> {
        ports.iter().map(|(name, port)| PortOutcome::of(run, name, *port)).collect()
    }

    fn of(run: &Simulation, name: &str, port: PortId) -> PortOutcome {
        let stats = run.port(port);
        let seconds = run.now().as_secs_f64();
        let possible = run.topology().direction(port).map(|direction| match &direction.rate {
            Rate::BitsPerSecond(rate) => *rate as f64 * seconds / 8.0,
            Rate::Trace(trace) => trace.offered(run.now().as_nanos()) as f64,
        });
        let used = |possible: f64| run.sent_by_now(port) as f64 / possible;
        PortOutcome {
            name: name.to_owned(),
            utilisation: possible.filter(|possible| *possible > 0.0).map(used),
            sent: stats.sent,
            dropped: stats.dropped_full + stats.dropped_early,
            marked: stats.marked,
            lost: stats.lost,
            most_packets: stats.most_packets,
        }
    }
}
