//! Handles events: packets arrive, are forwarded, or are delivered to agents, and the timers of
//! agents fire.

use super::{AgentId, EVENTS_ALWAYS_ALLOWED, Simulation};
use crate::agent::{Datagram, Status, Transmit};
use crate::packet::{Address, DropCause, Packet};
use crate::topology::{NodeId, PortId};

impl Simulation {
    pub(super) fn step(&mut self) {
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

    /// Handles a packet that has reached the end of a link.
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

    /// Returns the agent at an address, or `None` if there is no agent.
    pub(super) fn resident(&self, address: Address) -> Option<AgentId> {
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

    /// Sends the datagrams of an agent, and schedules its next timer.
    pub(super) fn serve(&mut self, id: AgentId) {
        let index = id.0 as usize;
        let mut sent = 0;
        loop {
            let agent = &mut self.agents[index].agent;
            let Some(transmit) = agent.poll_transmit(self.now, &mut self.spare) else { break };
            self.transmit(self.agents[index].address, &transmit);
            sent += 1;
            if sent == EVENTS_ALWAYS_ALLOWED {
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

    /// Counts the dropped packets by their causes, and returns their buffers to the pool.
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
        // If no other source is scheduled, nothing further will happen. Recording stops, so that
        // the run ends.
        let alone = self.agenda.len() == 1;
        let next = (!alone && !recorder.is_full()).then(|| self.now + recorder.interval());
        self.agenda.set(source, next);
    }
}
