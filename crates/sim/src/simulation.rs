//! A run: one network, its agents, and time. `step.rs` is what an event does, `outside.rs` for runs in real time.

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

/// Events at one moment, by source, and datagrams that an agent sends at once, beyond which neither is
/// thought to come to an end.
const MANY: u64 = 1_000;
/// As many are borne in any case.
const ANYWAY: u64 = 200_000;

/// Number of an agent in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AgentId(u32);

/// Reason for which a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// All agents that it waited for have finished.
    Finished,
    /// The limit was reached.
    Limit,
    /// Nothing is under way and no timer is set.
    Idle,
}

/// The run cannot go on in time: an agent wants to be called at once again and again, or sends without end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stuck {
    /// Time at which it stands still.
    pub at: Time,
}

impl std::fmt::Display for Stuck {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "time stands still at {}: an agent's next_timer is never later than the moment it is called \
             at, or its poll_transmit always gives one more",
            self.at
        )
    }
}

impl std::error::Error for Stuck {}

/// An agent, and where it is.
struct Inhabitant {
    agent: Box<dyn Agent>,
    address: Address,
    /// Its place in the agenda.
    source: u32,
    working: bool,
}

/// A network in virtual time. The same topology, seed and agents give the same run, to the byte.
///
/// See the crate's documentation for how one is made.
pub struct Simulation {
    topology: Topology,
    routes: Routes,
    seed: u64,
    now: Time,
    agenda: Agenda,
    ports: Vec<Port>,
    /// Of each port: the node and interface that it sends to.
    arrivals: Vec<(NodeId, u16)>,
    agents: Vec<Inhabitant>,
    /// By node, then by port number less one.
    residents: Vec<Vec<Option<AgentId>>>,
    /// Of each source of the agenda behind the ports: the agent, or none, which is the recorder.
    callers: Vec<Option<AgentId>>,
    flows: Vec<Flow>,
    pool: Pool,
    dropped: Dropped,
    /// A buffer that is not in use, for agents that turn out to have nothing to send.
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
    /// A run of this network with this seed.
    ///
    /// # Errors
    /// The topology contradicts itself: [`Topology::check`] says how.
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

    /// A new address on this node, for [`Simulation::attach`].
    ///
    /// # Errors
    /// [`TopologyError::TooManyAgents`].
    pub fn address(&mut self, node: NodeId) -> Result<Address, TopologyError> {
        let name = || TopologyError::TooManyAgents(self.topology.name(node).to_owned());
        let residents = self.residents.get(node.0 as usize).ok_or_else(name)?;
        let port = u16::try_from(residents.len() + 1).map_err(|_| name())?;
        self.residents[node.0 as usize].push(None);
        Ok(Address { node, port })
    }

    /// A flow from one address to another: packets that are counted together. That there is a way in both
    /// directions is checked.
    ///
    /// # Errors
    /// [`TopologyError::NoRoute`].
    pub fn flow(&mut self, from: Address, to: Address) -> Result<FlowId, TopologyError> {
        self.routes.path(&self.topology, from.node, to.node)?;
        self.routes.path(&self.topology, to.node, from.node)?;
        let id = FlowId(self.flows.len() as u32);
        self.flows.push(Flow::default());
        Ok(id)
    }

    /// Puts an agent at an address from [`Simulation::address`]. An agent that was there before is removed:
    /// it is not called again, and the run does not wait for it.
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

    /// Random bytes for an agent at this address, by the seed of the run.
    pub fn agent_seed(&self, address: Address) -> [u8; 32] {
        let place = u64::from(address.node.0) << 16 | u64::from(address.port);
        let first = random::seed(self.seed, Domain::Agent, place);
        let mut seed = [0; 32];
        for (index, bytes) in seed.chunks_exact_mut(8).enumerate() {
            bytes.copy_from_slice(&random::mix(first, index as u64).to_le_bytes());
        }
        seed
    }

    /// Has the run record time series, from now on.
    ///
    /// # Errors
    /// The interval is zero, or a port or agent is not of this run.
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

    /// From now on, computes a digest of every packet that arrives and of when it does: two runs with the
    /// same digest are the same run.
    pub fn sum_up(&mut self) {
        self.digest = Some(Digest::default());
    }

    /// Goes on until all agents that are to be waited for have finished, but not beyond the limit. It can be
    /// called again.
    ///
    /// # Errors
    /// [`Stuck`].
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
            if self.stuck || at_once > ANYWAY + MANY * self.agenda.sources() {
                return Err(Stuck { at: self.now });
            }
            self.now = next.max(self.now);
            self.step();
        }
    }

    /// Current virtual time.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Number of events so far: arrivals, starts of transmissions that had to wait, timers.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// The digest, if [`Simulation::sum_up`] was called.
    pub fn digest(&self) -> Option<u64> {
        self.digest.as_ref().map(Digest::value)
    }

    /// Counters of a port.
    pub fn port(&self, port: PortId) -> PortStats {
        self.ports[port.0 as usize].stats()
    }

    /// Returns the bytes that have left a port until now, with the link's framing. In [`PortStats::sent_bytes`] a packet
    /// counts as a whole from its first bit on.
    pub fn sent_by_now(&self, port: PortId) -> u64 {
        self.ports[port.0 as usize].sent_by(self.now())
    }

    /// Packets that wait at a port now, and their bytes with the link's framing.
    pub fn waiting(&self, port: PortId) -> (usize, u64) {
        self.ports[port.0 as usize].waiting()
    }

    /// Counters of a flow.
    pub fn flow_stats(&self, flow: FlowId) -> FlowStats {
        self.flows[flow.index()].stats()
    }

    /// Packets dropped since no agent was at their destination, or no route led there.
    pub fn unreachable(&self) -> u64 {
        self.unreachable
    }

    /// Records so far, if [`Simulation::record`] was called.
    pub fn recorded(&self) -> &[Record] {
        self.recorder.as_ref().map_or(&[], |(_, recorder)| recorder.records())
    }

    /// The agent of this number, if its type is `A`.
    pub fn agent<A: Agent>(&self, id: AgentId) -> Option<&A> {
        let agent: &dyn Any = &*self.agents.get(id.0 as usize)?.agent;
        agent.downcast_ref()
    }

    /// Bytes that an agent has handed to its application so far.
    pub fn goodput(&self, id: AgentId) -> u64 {
        self.agents[id.0 as usize].agent.goodput()
    }

    /// The network that is simulated.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }
}
