//! A run: one network, its agents, and time.

use std::any::Any;
use std::time::Duration;

use crate::agenda::Agenda;
use crate::agent::{Agent, Datagram, Status, Transmit};
use crate::digest::Digest;
use crate::flow::{Flow, FlowStats};
use crate::packet::{Address, DropCause, Dropped, FlowId, Packet, Pool};
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

/// An agent in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AgentId(u32);

/// Why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// All agents that it waited for have finished.
    Finished,
    /// The limit was reached.
    Limit,
    /// Nothing is under way, and nobody waits for a moment.
    Idle,
}

/// Time stood still: an agent wants to be called at once again and again, or sends without end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stuck {
    /// When.
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
    /// A run of this network.
    ///
    /// # Errors
    /// There cannot be such a network.
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

    /// A place for an agent on this node.
    ///
    /// # Errors
    /// All of them are taken.
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

    /// Sets an agent in its place, which [`Simulation::address`] gave. One that was there is called no more,
    /// and waited for no more.
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

    /// Has the run write down what is asked for, at every interval.
    ///
    /// # Errors
    /// It would never end, or be too much.
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

    /// Sums up what arrives, and when, from now on: equal sums are equal runs.
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

    /// The moment that the run has come to.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Events so far: arrivals, turns of packets, timers.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// The sum that [`Simulation::sum_up`] asked for.
    pub fn digest(&self) -> Option<u64> {
        self.digest.as_ref().map(Digest::value)
    }

    /// What a port has done.
    pub fn port(&self, port: PortId) -> PortStats {
        self.ports[port.0 as usize].stats()
    }

    /// What became of a flow's packets.
    pub fn flow_stats(&self, flow: FlowId) -> FlowStats {
        self.flows[flow.index()].stats()
    }

    /// Packets that came to where nobody is.
    pub fn unreachable(&self) -> u64 {
        self.unreachable
    }

    /// What was written down so far.
    pub fn recorded(&self) -> &[Record] {
        self.recorder.as_ref().map_or(&[], |(_, recorder)| recorder.records())
    }

    /// An agent, if it is of this type.
    pub fn agent<A: Agent>(&self, id: AgentId) -> Option<&A> {
        let agent: &dyn Any = &*self.agents.get(id.0 as usize)?.agent;
        agent.downcast_ref()
    }

    /// Bytes that an agent has handed to its application.
    pub fn goodput(&self, id: AgentId) -> u64 {
        self.agents[id.0 as usize].agent.goodput()
    }

    /// The network.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    fn step(&mut self) {
        let Some((_, source)) = self.agenda.fire() else { return };
        self.events += 1;
        let index = source as usize;
        let Some(port) = self.ports.get_mut(index) else {
            match self.callers[index - self.ports.len()] {
                Some(agent) => {
                    self.agents[agent.0 as usize].agent.on_timer(self.now);
                    self.serve(agent);
                }
                None => self.write_down(source),
            }
            return;
        };
        let arrived = port.step(self.now, &mut self.pool, &mut self.dropped);
        self.agenda.set(source, port.next());
        if let Some(packet) = arrived {
            self.arrive(index, packet);
        }
        self.bury();
    }

    /// A packet has come to the end of a link.
    fn arrive(&mut self, port: usize, packet: Packet) {
        let (node, interface) = self.arrivals[port];
        if packet.destination.node == node {
            self.deliver(interface, packet);
        } else if let Some(port) = self.onward(node, packet.destination.node) {
            self.offer(port, packet);
        } else {
            self.dropped.push((packet, DropCause::Unreachable));
        }
    }

    fn onward(&self, node: NodeId, to: NodeId) -> Option<PortId> {
        if self.routes.forwards(node) { self.routes.next(node, to) } else { None }
    }

    /// Who is at an address.
    fn resident(&self, address: Address) -> Option<AgentId> {
        let port = usize::from(address.port).wrapping_sub(1);
        *self.residents[address.node.0 as usize].get(port)?
    }

    fn deliver(&mut self, interface: u16, mut packet: Packet) {
        let Some(id) = self.resident(packet.destination) else {
            self.dropped.push((packet, DropCause::Unreachable));
            return;
        };
        self.flows[packet.flow.index()].on_delivered(self.now, &packet);
        if let Some(digest) = &mut self.digest {
            digest.add(self.now, &packet);
        }
        let counted = packet.payload + u32::from(packet.headers) - u32::from(packet.header_fields);
        let datagram = Datagram {
            source: packet.source,
            flow: packet.flow,
            ecn: packet.ecn,
            interface,
            padding: packet.ip_bytes - counted,
            payload: &mut packet.buffer[..packet.payload as usize],
        };
        self.agents[id.0 as usize].agent.on_datagram(self.now, datagram);
        self.pool.give(packet.buffer);
        self.serve(id);
    }

    /// Sends what an agent has to send, and asks when to call it next.
    fn serve(&mut self, id: AgentId) {
        let index = id.0 as usize;
        let mut sent = 0;
        loop {
            let agent = &mut self.agents[index].agent;
            let Some(transmit) = agent.poll_transmit(self.now, &mut self.spare) else { break };
            self.transmit(self.agents[index].address, &transmit);
            sent += 1;
            if sent == ANYWAY {
                self.stuck = true;
                break;
            }
        }
        let inhabitant = &mut self.agents[index];
        let next = inhabitant.agent.next_timer().map(|at| at.max(self.now));
        self.agenda.set(inhabitant.source, next);
        let working = inhabitant.agent.status() == Status::Working;
        self.working = self.working + usize::from(working) - usize::from(inhabitant.working);
        inhabitant.working = working;
        self.bury();
    }

    fn transmit(&mut self, source: Address, transmit: &Transmit) {
        let size = transmit.size.min(self.spare.len());
        let buffer = if size == 0 {
            Vec::new()
        } else {
            std::mem::replace(&mut self.spare, self.pool.take())
        };
        let header_fields = transmit.header_fields.min(size).min(60) as u8;
        let headers = self.topology.ip.header() + transmit.protocol.header();
        let payload = (size - usize::from(header_fields)) as u32;
        let packet = Packet {
            source,
            destination: transmit.destination,
            flow: transmit.flow,
            ip_bytes: headers.saturating_add(payload).saturating_add(transmit.padding),
            frame_bytes: 0,
            payload: size as u32,
            label: transmit.label,
            headers: headers as u8,
            header_fields,
            ecn: transmit.ecn,
            queued_at: self.now,
            buffer,
        };
        self.flows[packet.flow.index()].on_sent(self.now, &packet);
        let port = match transmit.interface {
            Some(interface) => self.routes.interface(source.node, interface),
            None => self.routes.next(source.node, packet.destination.node),
        };
        match port {
            Some(port) => self.offer(port, packet),
            None => self.dropped.push((packet, DropCause::Unreachable)),
        }
    }

    fn offer(&mut self, id: PortId, packet: Packet) {
        let port = &mut self.ports[id.0 as usize];
        port.offer(self.now, packet, &mut self.pool, &mut self.dropped);
        self.agenda.set(id.0, port.next());
    }

    /// Counts what was dropped, and takes its buffers back.
    fn bury(&mut self) {
        for (packet, cause) in self.dropped.drain(..) {
            self.unreachable += u64::from(cause == DropCause::Unreachable);
            self.flows[packet.flow.index()].on_dropped(cause);
            self.pool.give(packet.buffer);
        }
    }

    fn write_down(&mut self, source: u32) {
        let Some((_, recorder)) = &mut self.recorder else { return };
        let (ports, agents) = (&self.ports, &self.agents);
        recorder.write(
            self.now,
            |port| (ports[port.0 as usize].stats(), ports[port.0 as usize].waiting()),
            |agent| agents[agent.0 as usize].agent.goodput(),
        );
        // Without anybody else there is nothing left to write down.
        let alone = self.agenda.len() == 1;
        let next = (!alone && !recorder.is_full()).then(|| self.now + recorder.interval());
        self.agenda.set(source, next);
    }

    /// How long the run took so far, in virtual time.
    pub fn elapsed(&self) -> Duration {
        self.now.elapsed()
    }
}

#[cfg(test)]
mod tests;
