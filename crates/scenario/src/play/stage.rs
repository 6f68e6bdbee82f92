//! The simulation of one run, with everybody in it.

use std::sync::Arc;
use std::time::Duration;

use equic_sim::quic::{
    Algorithm, Bulk, BulkIds, BulkReceiver, BulkSender, ControllerFactory, TransportConfig, bulk,
};
use equic_sim::{FlowId, NodeId, OnOff, PortId, Rate, ShortFlows, Simulation, Sink, Time};

use super::outcome::{FlowOutcome, PortOutcome, RunOutcome, TrafficOutcome};
use crate::build::Place;
use crate::model::{Controller, Flow, Scenario, Traffic, TrafficKind};

/// Bytes of flows that have no size: more than any run can carry.
const WITHOUT_END: u64 = 1 << 60;

/// Bounds of the window that the network asks for, in bytes.
const WINDOWS: (u64, u64) = (1 << 20, 128 << 20);

/// A run before, while and after it goes.
pub(super) struct Stage<'a> {
    scenario: &'a Scenario,
    seed: u64,
    run: Simulation,
    /// Connections, in the order of the description.
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

impl<'a> Stage<'a> {
    pub(super) fn set(scenario: &'a Scenario, seed: u64) -> Result<Stage<'a>, String> {
        let place = Place::find(scenario).map_err(|error| error.message)?;
        let mut run =
            Simulation::new(place.topology.clone(), seed).map_err(|error| error.to_string())?;
        let mut connections = Vec::new();
        for (flow, ends) in scenario.flows.iter().zip(&place.flows) {
            let transport = transport(flow, &place);
            for (copy, (from, to)) in ends.iter().enumerate() {
                let start = flow.start + flow.stagger * copy as u32;
                let bulk_of = Bulk {
                    bytes: flow.size.unwrap_or(WITHOUT_END),
                    start: Time::START + start,
                    transport: transport.clone(),
                };
                let ids =
                    bulk(&mut run, *from, *to, &bulk_of).map_err(|error| error.to_string())?;
                connections.push(Connection { flow, copy: copy + 1, start, ids });
            }
        }
        let mut traffic = Vec::new();
        for (one, ends) in scenario.traffic.iter().zip(&place.traffic) {
            traffic.push(attach(&mut run, one, *ends)?);
        }
        let both = |(name, link): &(String, equic_sim::LinkId)| {
            [(format!("{name}, there"), link.there()), (format!("{name}, back"), link.back())]
        };
        let ports = place.watched.iter().flat_map(both).collect();
        Ok(Stage { scenario, seed, run, connections, traffic, ports })
    }

    pub(super) fn run(&mut self) -> Result<(), String> {
        let limit = Time::START + self.scenario.limit;
        self.run.run(limit).map(drop).map_err(|error| error.to_string())
    }

    pub(super) fn outcome(&self) -> RunOutcome {
        RunOutcome {
            seed: self.seed,
            ended: self.run.now().as_secs_f64(),
            events: self.run.events(),
            flows: self.connections.iter().map(|one| self.flow(one)).collect(),
            traffic: self.traffic(),
            ports: self.ports.iter().map(|(name, port)| self.port(name, *port)).collect(),
        }
    }

    fn flow(&self, connection: &Connection<'_>) -> FlowOutcome {
        let Connection { flow, copy, start, ids } = connection;
        let begun = Time::START + *start;
        let receiver = self.run.agent::<BulkReceiver>(ids.receiver);
        let outcome = receiver.map(|receiver| receiver.outcome().clone()).unwrap_or_default();
        let sender = self.run.agent::<BulkSender>(ids.sender);
        let stats = sender.map(BulkSender::stats).unwrap_or_default();
        let ended = outcome.completed.unwrap_or(self.run.now());
        let seconds = ended.since(begun).as_secs_f64();
        let packets = self.run.flow_stats(ids.there);
        FlowOutcome {
            name: flow.name.clone(),
            copy: *copy,
            completion: outcome.completed.map(|at| at.since(begun).as_secs_f64()),
            bytes: outcome.bytes,
            goodput: if seconds > 0.0 { 8.0 * outcome.bytes as f64 / seconds } else { 0.0 },
            packets_sent: stats.packets_sent,
            packets_lost: stats.packets_lost,
            spurious_losses: stats.spurious_losses,
            probe_timeouts: stats.probe_timeouts,
            min_rtt: Some(stats.path.min_rtt.as_secs_f64()).filter(|rtt| *rtt > 0.0),
            dropped: packets.dropped,
            lost: packets.lost,
            marked: packets.marked,
            failure: outcome.failure.or_else(|| {
                let failed = sender.and_then(BulkSender::failure).map(str::to_owned);
                failed.filter(|_| outcome.completed.is_none())
            }),
        }
    }

    fn traffic(&self) -> Vec<TrafficOutcome> {
        let each = self.scenario.traffic.iter().zip(&self.traffic);
        each.map(|(one, flow)| {
            let stats = self.run.flow_stats(*flow);
            TrafficOutcome {
                name: one.name.clone(),
                sent: stats.sent,
                delivered: stats.delivered,
                dropped: stats.dropped,
            }
        })
        .collect()
    }

    fn port(&self, name: &str, port: PortId) -> PortOutcome {
        let stats = self.run.port(port);
        let seconds = self.run.now().as_secs_f64();
        let rate = self.run.topology().direction(port).map(|direction| match &direction.rate {
            Rate::BitsPerSecond(rate) => *rate as f64,
            Rate::Trace(trace) => trace.mean_rate(),
        });
        let used = |rate: f64| 8.0 * stats.sent_bytes as f64 / (rate * seconds);
        PortOutcome {
            name: name.to_owned(),
            utilisation: rate.filter(|_| seconds > 0.0).map(used),
            sent: stats.sent,
            dropped: stats.dropped_full + stats.dropped_early,
            marked: stats.marked,
            lost: stats.lost,
            most_packets: stats.most_packets,
        }
    }
}

/// The transport of both ends of a flow.
fn transport(flow: &Flow, place: &Place) -> TransportConfig {
    let options = &flow.quic;
    let congestion: Arc<dyn ControllerFactory> = Arc::new(match flow.controller {
        Controller::NewReno => Algorithm::NewReno,
        Controller::Cubic => Algorithm::Cubic,
        Controller::Bbr => Algorithm::Bbr,
    });
    let mtu = options.mtu.unwrap_or(place.datagram);
    let window = place.holds.saturating_mul(2).clamp(WINDOWS.0, WINDOWS.1);
    let window = options.window.unwrap_or(window);
    let mut config = TransportConfig {
        congestion,
        initial_window: options.initial_window,
        max_mtu: mtu,
        mtu_discovery: options.mtu_discovery,
        ecn: options.ecn,
        ack_frequency: options.ack_frequency,
        max_idle_timeout: options.idle_timeout,
        ..TransportConfig::default()
    };
    if !options.mtu_discovery {
        config.initial_mtu = mtu;
    }
    let streams = &mut config.streams;
    streams.max_stream_window = window;
    streams.max_connection_window = window;
    streams.stream_window = streams.stream_window.min(window);
    streams.connection_window = streams.connection_window.min(window);
    streams.send_buffer = window;
    streams.connection_send_buffer = window;
    config
}

fn attach(
    run: &mut Simulation,
    traffic: &Traffic,
    (from, to): (NodeId, NodeId),
) -> Result<FlowId, String> {
    let told = |error: equic_sim::TopologyError| error.to_string();
    let (source, sink) = (run.address(from).map_err(told)?, run.address(to).map_err(told)?);
    let flow = run.flow(source, sink).map_err(told)?;
    let seed = run.agent_seed(source);
    let refused = |error: equic_sim::TrafficError| format!("{}: {error}", traffic.name);
    match &traffic.kind {
        TrafficKind::OnOff(config) => {
            let agent = OnOff::new(*config, sink, flow, seed).map_err(refused)?;
            run.attach(source, Box::new(agent));
        }
        TrafficKind::ShortFlows(config) => {
            let agent = ShortFlows::new(config.clone(), sink, flow, seed).map_err(refused)?;
            run.attach(source, Box::new(agent));
        }
    }
    run.attach(sink, Box::new(Sink::default()));
    Ok(flow)
}
