//! Runs a simulated network with its agents in virtual time. `step.rs` handles the events.
//! `outside.rs` supports runs in real time.

mod outside;
mod step;
#[cfg(test)]
mod tests;

use std::any::Any;

use crate::agenda::Agenda;
use crate::agent::{Agent, Status};
use crate::digest::Digest;
use crate::flow::{Flow, FlowStats};
use crate::packet::{Address, Dropped, FlowId, Pool};
use crate::port::{Port, PortStats};
use crate::random::{self, Domain};
use crate::record::{Record, RecordError, Recorder, Recording};
use crate::time::Time;
use crate::topology::{NodeId, PortId, Routes, Topology, TopologyError};

/// If more events per source than this happen at one instant of virtual time, the run counts as
/// stuck.
const EVENTS_PER_SOURCE: u64 = 1_000;
/// Number of events that are permitted at one instant in addition to [`EVENTS_PER_SOURCE`]. It is
/// also the largest number of datagrams that an agent may send at one instant.
const EVENTS_ALWAYS_ALLOWED: u64 = 200_000;

/// Identifies an agent of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AgentId(u32);

/// The reason why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// All agents that the run waited for have finished.
    Finished,
    /// The limit of virtual time was reached.
    Limit,
    /// No packet is in flight and no timer is set.
    Idle,
}

/// Error of a run in which virtual time does not advance. The cause is an agent that sends without
/// end, or that sets its timer to the present again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stuck {
    /// Time at which the run is stuck.
    pub at: Time,
}

impl std::fmt::Display for Stuck {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "virtual time does not advance at {}: an agent's next_timer is never later than the current \
             time, or its poll_transmit never returns None",
            self.at
        )
    }
}

impl std::error::Error for Stuck {}

/// An agent with its address.
struct Inhabitant {
    agent: Box<dyn Agent>,
    address: Address,
    /// Number of the event source of this agent in the event queue.
    source: u32,
    working: bool,
}

/// A network in virtual time. The same topology, seed and agents give the same run, to the byte.
///
/// See the documentation of the crate for an example.
pub struct Simulation {
    topology: Topology,
    routes: Routes,
    seed: u64,
    now: Time,
    agenda: Agenda,
    ports: Vec<Port>,
    /// For each port: the node and the interface at the other end of its link.
    arrivals: Vec<(NodeId, u16)>,
    agents: Vec<Inhabitant>,
    /// For each node, its agents in the order of their port numbers. The first port number is 1.
    residents: Vec<Vec<Option<AgentId>>>,
    /// For each event source after the ports: its agent, or `None` for the recorder.
    callers: Vec<Option<AgentId>>,
    flows: Vec<Flow>,
    pool: Pool,
    dropped: Dropped,
    /// A buffer that is lent to agents for their next datagram.
    spare: Vec<u8>,
    recorder: Option<(u32, Recorder)>,
    digest: Option<Digest>,
    events: u64,
    working: usize,
    started: bool,
    stuck: bool,
    unreachable: u64,
}

impl Simulation {
    /// Creates a run of a network with a seed.
    ///
    /// # Errors
    /// Fails if the topology is invalid; see [`Topology::check`].
    pub fn new(topology: Topology, seed: u64) -> Result<Simulation, TopologyError> {
        topology.check()?;
        let routes = Routes::new(&topology);
        let directions = topology.edges.iter().flat_map(|edge| &edge.directions);
        let ports: Vec<Port> = (directions.clone().enumerate())
            .map(|(index, direction)| {
                let seed = |domain| random::seed(seed, domain, index as u64);
                Port::new(direction, seed(Domain::Queue), seed(Domain::Wire))
            })
            .collect();
        let arrivals = (0..ports.len() as u32)
            .map(|port| {
                let end = topology.edges[port as usize / 2].ends[1 - port as usize % 2];
                (end, routes.arrives_at(PortId(port)))
            })
            .collect();
        let largest = directions.map(|direction| direction.mtu()).max().unwrap_or(1_500);
        let mut pool = Pool::new(largest as usize);
        Ok(Simulation {
            agenda: Agenda::new(ports.len()),
            residents: vec![Vec::new(); topology.nodes.len()],
            spare: pool.take(),
            topology,
            routes,
            seed,
            now: Time::START,
            ports,
            arrivals,
            agents: Vec::new(),
            callers: Vec::new(),
            flows: Vec::new(),
            pool,
            dropped: Vec::new(),
            recorder: None,
            digest: None,
            events: 0,
            working: 0,
            started: false,
            stuck: false,
            unreachable: 0,
        })
    }

    /// Returns a new address on a node, for [`Simulation::attach`].
    ///
    /// # Errors
    /// Fails with [`TopologyError::TooManyAgents`] if the node has no free port number.
    pub fn address(&mut self, node: NodeId) -> Result<Address, TopologyError> {
        let name = || TopologyError::TooManyAgents(self.topology.name(node).to_owned());
        let residents = self.residents.get(node.0 as usize).ok_or_else(name)?;
        let port = u16::try_from(residents.len() + 1).map_err(|_| name())?;
        self.residents[node.0 as usize].push(None);
        Ok(Address { node, port })
    }

    /// Creates a flow between two addresses, which must have a route in both directions. The
    /// packets of a flow are counted together.
    ///
    /// # Errors
    /// Fails with [`TopologyError::NoRoute`] if one direction has no route.
    pub fn flow(&mut self, from: Address, to: Address) -> Result<FlowId, TopologyError> {
        self.routes.path(&self.topology, from.node, to.node)?;
        self.routes.path(&self.topology, to.node, from.node)?;
        let id = FlowId(self.flows.len() as u32);
        self.flows.push(Flow::default());
        Ok(id)
    }

    /// Attaches an agent to an address from [`Simulation::address`]. If another agent is attached
    /// there, it is replaced: the run does not call it again and does not wait for it.
    pub fn attach(&mut self, address: Address, agent: Box<dyn Agent>) -> AgentId {
        let id = AgentId(self.agents.len() as u32);
        let place = &mut self.residents[address.node.0 as usize][usize::from(address.port) - 1];
        if let Some(before) = place.replace(id) {
            let before = &mut self.agents[before.0 as usize];
            self.agenda.set(before.source, None);
            self.working -= usize::from(std::mem::take(&mut before.working));
        }
        let source = self.agenda.add();
        self.callers.push(Some(id));
        let working = agent.status() == Status::Working;
        self.working += usize::from(working);
        self.agents.push(Inhabitant { agent, address, source, working });
        if self.started {
            self.serve(id);
        }
        id
    }

    /// Returns random bytes for an agent at this address, derived from the seed of the run.
    pub fn agent_seed(&self, address: Address) -> [u8; 32] {
        let place = u64::from(address.node.0) << 16 | u64::from(address.port);
        let first = random::seed(self.seed, Domain::Agent, place);
        let mut seed = [0; 32];
        for (index, bytes) in seed.chunks_exact_mut(8).enumerate() {
            bytes.copy_from_slice(&random::mix(first, index as u64).to_le_bytes());
        }
        seed
    }

    /// Records time series from now on.
    ///
    /// # Errors
    /// Fails if the interval is zero, or if a port or agent does not belong to this run.
    pub fn record(&mut self, recording: Recording) -> Result<(), RecordError> {
        let known = recording.ports.iter().all(|port| (port.0 as usize) < self.ports.len())
            && recording.agents.iter().all(|agent| (agent.0 as usize) < self.agents.len());
        let recorder = Recorder::new(recording, known)?;
        let source = self.agenda.add();
        self.callers.push(None);
        self.agenda.set(source, Some(self.now + recorder.interval()));
        self.recorder = Some((source, recorder));
        Ok(())
    }

    /// Computes a digest over every packet that arrives from now on, and over its arrival time. Two
    /// runs with the same digest are identical.
    pub fn sum_up(&mut self) {
        self.digest = Some(Digest::default());
    }

    /// Runs until all agents that the run waits for have finished, or until the time limit. A later
    /// call continues the run.
    ///
    /// # Errors
    /// Fails with [`Stuck`] if virtual time does not advance.
    pub fn run(&mut self, limit: Time) -> Result<End, Stuck> {
        if !self.started {
            self.started = true;
            for index in 0..self.agents.len() as u32 {
                let id = AgentId(index);
                if self.resident(self.agents[index as usize].address) == Some(id) {
                    self.serve(id);
                }
            }
        }
        let waits = self.working > 0;
        let mut at_once = 0;
        loop {
            if waits && self.working == 0 {
                return Ok(End::Finished);
            }
            let Some(next) = self.agenda.next() else { return Ok(End::Idle) };
            if next > limit {
                self.now = limit.max(self.now);
                return Ok(End::Limit);
            }
            at_once = if next > self.now { 0 } else { at_once + 1 };
            if self.stuck
                || at_once > EVENTS_ALWAYS_ALLOWED + EVENTS_PER_SOURCE * self.agenda.sources()
            {
                return Err(Stuck { at: self.now });
            }
            self.now = next.max(self.now);
            self.step();
        }
    }

    /// Returns the current virtual time.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Returns the number of events so far: arrivals, delayed transmissions and timers.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Returns the digest, or `None` if [`Simulation::sum_up`] was not called.
    pub fn digest(&self) -> Option<u64> {
        self.digest.as_ref().map(Digest::value)
    }

    /// Returns the counters of a port.
    pub fn port(&self, port: PortId) -> PortStats {
        self.ports[port.0 as usize].stats()
    }

    /// Returns the number of bytes that a port has sent until now, including the link's framing. In
    /// contrast, [`PortStats::sent_bytes`] counts a whole packet as soon as its first bit is sent.
    pub fn sent_by_now(&self, port: PortId) -> u64 {
        self.ports[port.0 as usize].sent_by(self.now())
    }

    /// Returns the number of packets in a port's queue, and the number of their bytes including the
    /// link's framing.
    pub fn waiting(&self, port: PortId) -> (usize, u64) {
        self.ports[port.0 as usize].waiting()
    }

    /// Returns the counters of a flow.
    pub fn flow_stats(&self, flow: FlowId) -> FlowStats {
        self.flows[flow.index()].stats()
    }

    /// Returns the number of packets that were dropped because their destination has no agent or no
    /// route.
    pub fn unreachable(&self) -> u64 {
        self.unreachable
    }

    /// Returns the records so far. The list is empty if [`Simulation::record`] was not called.
    pub fn recorded(&self) -> &[Record] {
        self.recorder.as_ref().map_or(&[], |(_, recorder)| recorder.records())
    }

    /// Returns the agent, or `None` if its type is not `A`.
    pub fn agent<A: Agent>(&self, id: AgentId) -> Option<&A> {
        let agent: &dyn Any = &*self.agents.get(id.0 as usize)?.agent;
        agent.downcast_ref()
    }

    /// Returns the number of bytes that an agent's application has received so far.
    pub fn goodput(&self, id: AgentId) -> u64 {
        self.agents[id.0 as usize].agent.goodput()
    }

    /// Returns the simulated network.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }
}
