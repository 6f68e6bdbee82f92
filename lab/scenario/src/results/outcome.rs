//! The result of one run.

use equic_sim::{Application, FlowId, PortId, Rate, Simulation};
use serde::Serialize;

use crate::model::Scenario;

/// The outcome of a run with one seed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunOutcome {
    /// Seed of the run.
    pub seed: u64,
    /// Virtual time at which the run ended, in seconds.
    pub ended: f64,
    /// Number of simulated events.
    pub events: u64,
    /// Results of all connections, in the order of the scenario description.
    pub flows: Vec<FlowOutcome>,
    /// Results of the background traffic, in the order of the scenario description.
    pub traffic: Vec<TrafficOutcome>,
    /// Results of the ports of the bottleneck links, in both directions. For a graph, results of
    /// the ports of all links.
    pub ports: Vec<PortOutcome>,
}

/// The outcome of a connection.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FlowOutcome {
    /// Name of the flow in the scenario description.
    pub name: String,
    /// Number of the connection within its flow, from 1.
    pub copy: usize,
    /// Time from the start of the handshake to the last byte at the receiver's application, in
    /// seconds. `None` if the connection did not complete.
    pub completion: Option<f64>,
    /// Bytes that the receiver's application has read.
    pub bytes: u64,
    /// Goodput in bits per second, from the start of the handshake to completion, or to the end of
    /// the run.
    pub goodput: f64,
    /// Number of QUIC packets or TCP segments that the sender sent.
    pub packets_sent: u64,
    /// Number of packets that the sender declared lost.
    pub packets_lost: u64,
    /// QUIC: packets declared lost and acknowledged later. TCP: spurious loss recoveries.
    pub spurious_losses: u64,
    /// QUIC: probe timeouts. TCP: expiries of the retransmission timer.
    pub timeouts: u64,
    /// Smallest round-trip time that the sender measured, in seconds. `None` if it measured none.
    pub min_rtt: Option<f64>,
    /// Number of packets to the receiver that queues dropped.
    pub dropped: u64,
    /// Number of packets to the receiver that were lost on links.
    pub lost: u64,
    /// Number of packets that a queue marked (ECN) and that reached the receiver.
    pub marked: u64,
    /// Largest window of the connection in bytes: the flow-control window, which is also the limit
    /// on unacknowledged data.
    pub window: u64,
    /// Share of the connection's time, from 0 to 1, in which data was held back although congestion
    /// control permitted it. Flow control or the limit on unacknowledged data held it back. `None`
    /// in real time.
    pub window_limited: Option<f64>,
    /// Reason why the connection failed, or `None` if it did not.
    pub failure: Option<String>,
    /// Results of the application. `None`, and absent from JSON, for a single transfer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub application: Option<ApplicationOutcome>,
}

/// Results of the application of a connection.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ApplicationOutcome {
    /// Name of the application, as in the scenario description.
    pub kind: &'static str,
    /// Number of units that the application should complete. A unit is a request, stream, object,
    /// segment or message.
    pub wanted: u64,
    /// Number of units that the application completed.
    pub done: u64,
    /// Durations of the completed units in seconds, or `None` if no unit completed.
    pub latency: Option<Latency>,
    /// Playback of a video. `None` for other applications.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub playing: Option<PlayingOutcome>,
    /// Messages of a call. `None` for other applications.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub messages: Option<MessageOutcome>,
}

/// Durations from the time at which the application requested a unit to its last byte, in seconds.
/// Percentiles are observed values (nearest rank).
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Latency {
    /// Arithmetic mean.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 95th percentile.
    pub p95: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Maximum.
    pub max: f64,
}

/// Startup delay and stalls of a video.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PlayingOutcome {
    /// Time from the start of the handshake to the start of playback, in seconds. `None` if
    /// playback did not start.
    pub startup: Option<f64>,
    /// Number of stalls.
    pub stalls: u64,
    /// Total duration of the stalls, in seconds.
    pub stalled: f64,
}

/// The messages of a call that were useless, because they arrived late or not at all.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct MessageOutcome {
    /// Messages that arrived after their deadline.
    pub late: u64,
    /// Messages that did not arrive.
    pub lost: u64,
}

impl ApplicationOutcome {
    /// Converts an application's report into its outcome.
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

/// Returns the name of an application, as in scenario descriptions.
pub(super) fn kind(application: &Application) -> &'static str {
    match application {
        Application::Requests(_) => "requests",
        Application::Streams(_) => "streams",
        Application::Page(_) => "page",
        Application::Video(_) => "video",
        Application::Call(_) => "call",
    }
}

/// The outcome of background traffic.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TrafficOutcome {
    /// Name of the background traffic in the scenario description.
    pub name: String,
    /// Number of packets sent.
    pub sent: u64,
    /// Packets that arrived.
    pub delivered: u64,
    /// Packets that queues dropped.
    pub dropped: u64,
}

/// The outcome of a port: the sending end of one direction of a link.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PortOutcome {
    /// Name of the link, followed by `there` or `back` for its direction.
    pub name: String,
    /// Share of the port's capacity that was used over the run, from 0 to 1.
    pub utilisation: Option<f64>,
    /// Packets that the port sent.
    pub sent: u64,
    /// Packets that the port's queue dropped.
    pub dropped: u64,
    /// Packets that the port's queue marked.
    pub marked: u64,
    /// Packets that were lost on the link after the port had sent them.
    pub lost: u64,
    /// Largest number of packets in the port's queue.
    pub most_packets: usize,
}

impl TrafficOutcome {
    /// Returns the outcomes of a scenario's background traffic in this run. `flows` has the flows
    /// in the order of the description.
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
    /// Returns the outcomes of these ports in this run so far.
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
