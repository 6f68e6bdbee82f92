//! Builds the simulator's network from a scenario description, and finds the two end nodes of each
//! flow.

use equic_sim::{
    Application, Direction, FlowId, LinkId, MAX_MTU, Named, NodeId, OnOff, PortId, Rate,
    ShortFlows, Simulation, Sink, dumbbell, parking_lot, simple, two_path,
};

use crate::model::{Flow, Link, Protocol, Route, Scenario, Topology, Traffic, TrafficKind};

/// Smallest UDP payload, in bytes, that a path must carry so that QUIC works (RFC 9000 s.14).
const LEAST_DATAGRAM: u32 = 1_200;

/// Overhead of a packet with one DATAGRAM frame, in bytes: short header, longest connection ID,
/// packet number, tag, frame type and frame length (RFC 9000 s.17.3, RFC 9221 s.4).
const AROUND_MESSAGE: u32 = 1 + 20 + 4 + 16 + 3;

/// Smallest segment size for TCP, in bytes. It has room for all options and some payload.
const LEAST_SEGMENT: u32 = 128;

/// The part of a scenario description that contains a mistake.
pub(crate) enum Whose {
    Network,
    Flow(usize),
    Traffic(usize),
}

/// The reason why a scenario description cannot be simulated.
pub(crate) struct Impossible {
    pub(crate) whose: Whose,
    pub(crate) message: String,
}

impl Impossible {
    fn network(error: impl std::fmt::Display) -> Impossible {
        Impossible { whose: Whose::Network, message: error.to_string() }
    }
}

/// A scenario's network for the simulator, and the end nodes of all connections.
#[derive(Debug)]
#[non_exhaustive]
pub struct Place {
    /// The simulated network, with its nodes and links.
    pub topology: equic_sim::Topology,
    /// Links whose ports are measured, with their names: the bottlenecks, or all links of a graph.
    pub watched: Vec<(String, LinkId)>,
    /// For each flow: the client and server nodes of each of its connections.
    pub flows: Vec<Vec<(NodeId, NodeId)>>,
    /// For each traffic source: its source and destination node.
    pub traffic: Vec<(NodeId, NodeId)>,
    /// Largest UDP payload that fits every link, in bytes.
    pub datagram: u16,
    /// Largest TCP segment that fits every link, in bytes. It includes TCP options but not the TCP
    /// header.
    pub mss: u16,
    /// Estimate of the number of bytes that can be in flight in the network between two ends.
    pub holds: u64,
}

/// Lower and upper limit of the default flow-control window, in bytes.
const WINDOWS: (u64, u64) = (1 << 20, 128 << 20);

impl Place {
    /// Builds the network of a scenario.
    ///
    /// # Errors
    /// Returns the reason why the network cannot be built. This does not happen for a scenario that
    /// the parser has accepted.
    pub fn of(scenario: &Scenario) -> Result<Place, String> {
        Place::find(scenario).map_err(|error| error.message)
    }

    /// Returns the default flow-control window for this network, in bytes: twice the estimate of
    /// bytes in flight ([`Place::holds`]), but at least 1 MiB and at most 128 MiB.
    pub fn window(&self) -> u64 {
        self.holds.saturating_mul(2).clamp(WINDOWS.0, WINDOWS.1)
    }

    /// Returns the largest window of a flow, in bytes: the flow's own option, or the network's
    /// default.
    pub fn window_of(&self, flow: &Flow) -> u64 {
        let own = match flow.protocol {
            Protocol::Quic => flow.quic.window,
            Protocol::Tcp => flow.tcp.window,
        };
        own.unwrap_or_else(|| self.window())
    }

    /// Returns the measured ports with their names: both directions of each watched link.
    pub fn ports(&self) -> Vec<(String, PortId)> {
        let both = |(name, link): &(String, LinkId)| {
            [(format!("{name}, there"), link.there()), (format!("{name}, back"), link.back())]
        };
        self.watched.iter().flat_map(both).collect()
    }

    /// Attaches the scenario's background traffic to a run of this network. Returns the flow of
    /// each traffic source, in the order of the scenario description.
    ///
    /// # Errors
    /// Returns the reason why the simulator rejects the traffic. This does not happen for a
    /// scenario that the parser has accepted.
    pub fn attach_traffic(
        &self,
        run: &mut Simulation,
        scenario: &Scenario,
    ) -> Result<Vec<FlowId>, String> {
        let each = scenario.traffic.iter().zip(&self.traffic);
        each.map(|(one, ends)| attach(run, one, *ends)).collect()
    }
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

impl Place {
    /// Builds the network, and finds the ends and routes of all flows.
    pub(crate) fn find(scenario: &Scenario) -> Result<Place, Impossible> {
        let (named, watched) = make(&scenario.network.topology);
        let mut topology = named.topology;
        topology.ip = scenario.network.ip;
        let directions = directions(&scenario.network.topology);
        let mtu = directions.iter().map(|link| link.mtu()).min().unwrap_or(MAX_MTU);
        let datagram = mtu.saturating_sub(topology.ip.header() + 8);
        let mss = mtu.saturating_sub(topology.ip.header() + 20);
        // QUIC is checked before TCP, because it needs the larger MTU.
        let has = |protocol| scenario.flows.iter().any(|flow| flow.protocol == protocol);
        let needs = |name: &str, least: u32| {
            let message = format!("{name} needs an MTU of {least} bytes, and a link has {mtu}");
            Err(Impossible::network(message))
        };
        if has(Protocol::Quic) && datagram < LEAST_DATAGRAM {
            return needs("QUIC (RFC 9000 s.14)", LEAST_DATAGRAM + topology.ip.header() + 8);
        }
        if has(Protocol::Tcp) && mss < LEAST_SEGMENT {
            return needs("TCP", LEAST_SEGMENT + topology.ip.header() + 20);
        }
        // The simulator checks routes when it creates flows. So this code creates all flows in a
        // trial run.
        let mut run = Simulation::new(topology.clone(), 0).map_err(Impossible::network)?;
        let pairs: Vec<(NodeId, NodeId)> =
            named.clients.iter().copied().zip(named.servers.iter().copied()).collect();
        let mut next = 0;
        let mut ends = |route: &Route, run: &mut Simulation| {
            let (from, to) = between(route, &topology, &pairs, &mut next)?;
            let told = |error: equic_sim::TopologyError| error.to_string();
            let (one, other) = (run.address(from).map_err(told)?, run.address(to).map_err(told)?);
            run.flow(one, other).map_err(told)?;
            Ok((from, to))
        };
        let mut flows = Vec::new();
        for (index, flow) in scenario.flows.iter().enumerate() {
            let own: Result<Vec<_>, String> =
                (0..flow.count).map(|_| ends(&flow.route, &mut run)).collect();
            let whose = Whose::Flow(index);
            flows.push(own.map_err(|message| Impossible { whose, message })?);
            if flow.quic.mtu.is_some_and(|mtu| u32::from(mtu) > datagram) {
                let message =
                    format!("some links cannot carry packets with an mtu above {datagram} bytes");
                return Err(Impossible { whose: Whose::Flow(index), message });
            }
            let two = matches!(scenario.network.topology, Topology::TwoPath(_));
            if flow.quic.paths > 1 && !two {
                let message = "a flow with two paths needs the topology `two-path`".to_owned();
                return Err(Impossible { whose: Whose::Flow(index), message });
            }
            if let Some(message) = too_large(flow, datagram) {
                return Err(Impossible { whose: Whose::Flow(index), message });
            }
            if flow.tcp.mss.is_some_and(|own| u32::from(own) > mss) {
                let message =
                    format!("some links cannot carry segments with an mss above {mss} bytes");
                return Err(Impossible { whose: Whose::Flow(index), message });
            }
        }
        let mut traffic = Vec::new();
        for (index, one) in scenario.traffic.iter().enumerate() {
            let whose = Whose::Traffic(index);
            traffic
                .push(ends(&one.route, &mut run).map_err(|message| Impossible { whose, message })?);
        }
        let datagram = u16::try_from(datagram).unwrap_or(u16::MAX).min(65_527);
        Ok(Place {
            topology,
            watched,
            flows,
            traffic,
            datagram,
            mss: u16::try_from(mss).unwrap_or(u16::MAX),
            holds: holds(&scenario.network.topology, &directions),
        })
    }
}

/// Returns an error message if the messages of a QUIC flow's application `call` do not each fit
/// into one packet.
fn too_large(flow: &Flow, datagram: u32) -> Option<String> {
    let Some(Application::Call(call)) =
        flow.application.as_ref().filter(|_| flow.protocol == Protocol::Quic)
    else {
        return None;
    };
    let usual = if flow.quic.mtu_discovery { LEAST_DATAGRAM } else { datagram };
    let mtu = flow.quic.mtu.map_or(usual, |mtu| u32::from(mtu).min(usual));
    let most = mtu.saturating_sub(AROUND_MESSAGE);
    let told = format!(
        "a message of this call can have at most {most} bytes, because it must fit into one packet"
    );
    (call.message > most).then_some(told)
}

/// Returns the client and server nodes of one connection.
fn between(
    route: &Route,
    topology: &equic_sim::Topology,
    pairs: &[(NodeId, NodeId)],
    next: &mut usize,
) -> Result<(NodeId, NodeId), String> {
    let find =
        |name: &str| topology.find(name).ok_or_else(|| format!("there is no node called {name}"));
    match route {
        Route::Nodes { from, to } if from == to => {
            Err(format!("both ends of the connection are the node {from}: use two different nodes"))
        }
        Route::Nodes { from, to } => Ok((find(from)?, find(to)?)),
        Route::Pair(pair) => pairs.get(*pair).copied().ok_or_else(|| {
            format!("there is no pair {}: the network has {} pairs", pair + 1, pairs.len())
        }),
        Route::NextPair if pairs.is_empty() => {
            Err("the topology `graph` has no pairs: write `from` and `to`".to_owned())
        }
        Route::NextPair => {
            let pair = pairs[*next % pairs.len()];
            *next += 1;
            Ok(pair)
        }
    }
}

/// Returns every link direction in the scenario description. The access links are all alike and
/// count as one link.
fn directions(topology: &Topology) -> Vec<&Direction> {
    let links: Vec<&Link> = match topology {
        Topology::Simple(link) => vec![&**link],
        Topology::Dumbbell { bottleneck, access, .. } => vec![bottleneck, access, access],
        Topology::ParkingLot { links, access } => {
            links.iter().chain([&**access, &**access]).collect()
        }
        Topology::TwoPath(links) => links.iter().collect(),
        Topology::Graph { links, .. } => links.iter().map(|(_, _, link)| link).collect(),
    };
    links.into_iter().flat_map(|link| [&link.there, &link.back]).collect()
}

/// Returns an upper bound of the bytes in flight on the longest path. It is the highest bottleneck
/// rate times the sum of all delays, plus the longest queue. Bottleneck rates are sufficient,
/// because every path crosses a bottleneck.
fn holds(topology: &Topology, directions: &[&Direction]) -> u64 {
    let narrow = match topology {
        Topology::Dumbbell { .. } => 2,
        Topology::ParkingLot { links, .. } => 2 * links.len(),
        Topology::Simple(_) | Topology::TwoPath(_) | Topology::Graph { .. } => directions.len(),
    };
    let rate = |link: &&Direction| match &link.rate {
        Rate::BitsPerSecond(rate) => *rate as f64,
        Rate::Trace(trace) => trace.mean_rate(),
    };
    let narrow = &directions[..narrow.min(directions.len())];
    let fastest = narrow.iter().map(rate).fold(0.0, f64::max);
    let delay: f64 = directions.iter().map(|link| link.wire.delay.as_secs_f64()).sum();
    let queue = narrow.iter().map(|link| match link.queue.limit() {
        equic_sim::Limit::Packets(most) => u64::from(most) * u64::from(link.mtu()),
        equic_sim::Limit::Bytes(most) => most,
    });
    ((fastest * delay / 8.0) as u64).saturating_add(queue.max().unwrap_or(0))
}

/// Builds the network. Returns it together with the links whose ports are measured.
fn make(topology: &Topology) -> (Named, Vec<(String, LinkId)>) {
    let mut backs: Vec<&Direction> = Vec::new();
    let (mut named, access) = match topology {
        Topology::Simple(link) => {
            backs.push(&link.back);
            (simple(link.there.clone()), None)
        }
        Topology::Dumbbell { pairs, bottleneck, access } => {
            backs.push(&bottleneck.back);
            (dumbbell(*pairs, bottleneck.there.clone()), Some(access))
        }
        Topology::ParkingLot { links, access } => {
            backs.extend(links.iter().map(|link| &link.back));
            let there: Vec<Direction> = links.iter().map(|link| link.there.clone()).collect();
            (parking_lot(&there), Some(access))
        }
        Topology::TwoPath(links) => {
            backs.extend(links.iter().map(|link| &link.back));
            let [first, second] = &**links;
            (two_path(first.there.clone(), second.there.clone()), None)
        }
        Topology::Graph { nodes, links } => return graph(nodes, links),
    };
    for (link, back) in named.bottlenecks.iter().zip(backs) {
        *named.topology.direction_mut(link.back()) = back.clone();
    }
    if let Some(access) = access {
        for [up, down] in named.access.iter().copied() {
            *named.topology.direction_mut(up) = access.there.clone();
            *named.topology.direction_mut(down) = access.back.clone();
        }
    }
    let count = named.bottlenecks.len();
    let name = |index: usize| match count {
        1 => "bottleneck".to_owned(),
        _ => format!("bottleneck {}", index + 1),
    };
    let watched = named.bottlenecks.iter().enumerate().map(|(index, link)| (name(index), *link));
    let watched = watched.collect();
    (named, watched)
}

fn graph(
    nodes: &[(String, bool)],
    links: &[(usize, usize, Link)],
) -> (Named, Vec<(String, LinkId)>) {
    let mut topology = equic_sim::Topology::new();
    let ids: Vec<NodeId> = nodes
        .iter()
        .map(
            |(name, router)| {
                if *router { topology.router(name.clone()) } else { topology.host(name.clone()) }
            },
        )
        .collect();
    let mut watched = Vec::new();
    for (from, to, link) in links {
        let id = topology.link_with(ids[*from], ids[*to], link.there.clone(), link.back.clone());
        watched.push((format!("{} - {}", nodes[*from].0, nodes[*to].0), id));
    }
    let named = Named {
        topology,
        clients: Vec::new(),
        servers: Vec::new(),
        bottlenecks: Vec::new(),
        access: Vec::new(),
    };
    (named, watched)
}
