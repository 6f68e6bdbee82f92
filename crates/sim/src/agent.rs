//! Agents: programs on a node that send and receive datagrams.

use std::any::Any;

use crate::packet::{Address, Ecn, FlowId, Protocol};
use crate::time::Time;

/// A program on a node: one end of a connection, a source of other traffic, or a sink.
///
/// An agent does no I/O and reads no clock. The simulation calls it in this order:
///
/// ```text
/// on_datagram(now, datagram)   something came for it
/// on_timer(now)                next_timer's moment has come
/// poll_transmit(now, buffer)   after either, and at the start of the run: until none
/// next_timer()                 after that
/// ```
///
/// An agent that needs random numbers must seed them with [`crate::Simulation::agent_seed`].
pub trait Agent: Any + Send {
    /// Handles a datagram that arrived for this agent.
    fn on_datagram(&mut self, now: Time, datagram: Datagram<'_>);

    /// Handles the timer: the time that [`Agent::next_timer`] returned has come.
    fn on_timer(&mut self, now: Time);

    /// Writes the payload of the next datagram to the beginning of the buffer and returns its
    /// description. Returns `None` if the agent has nothing to send. The buffer is as long as the
    /// largest MTU of the network, and its initial content is undefined.
    fn poll_transmit(&mut self, now: Time, buffer: &mut [u8]) -> Option<Transmit>;

    /// Returns the time of the next call of [`Agent::on_timer`], or `None` if no timer is set.
    fn next_timer(&mut self) -> Option<Time>;

    /// Returns whether the run waits for this agent. The simulation asks after each of the agent's
    /// events.
    fn status(&self) -> Status {
        Status::Background
    }

    /// Returns the bytes delivered to the agent's application so far, each counted once and in
    /// order. Goodput is measured from this.
    fn goodput(&self) -> u64 {
        0
    }
}

/// Whether a run waits for an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// The run does not wait for it.
    Background,
    /// The run waits: the agent has not finished its task.
    Working,
    /// The task is done or has failed: the run no longer waits.
    Finished,
}

/// A datagram or segment that arrived for an agent.
#[derive(Debug)]
pub struct Datagram<'a> {
    /// Address of the sender.
    pub source: Address,
    /// Flow that the packet is counted in.
    pub flow: FlowId,
    /// Its ECN field.
    pub ecn: Ecn,
    /// Index of the receiving interface, in the order of the node's links, from 0.
    pub interface: u16,
    /// Bytes that the sender wrote.
    pub payload: &'a mut [u8],
    /// Bytes that were on the wire after the payload, without content.
    pub padding: u32,
}

/// A datagram or segment that an agent sends.
#[derive(Clone, Copy, Debug)]
pub struct Transmit {
    /// Address that the datagram is sent to.
    pub destination: Address,
    /// Flow that the packet is counted in.
    pub flow: FlowId,
    /// Bytes of the buffer that are delivered to the other end.
    pub size: usize,
    /// How many of these bytes are fields of the transport header, such as a TCP segment's. The
    /// size on the wire counts the header by [`Transmit::protocol`] instead of these bytes.
    pub header_fields: usize,
    /// Additional payload bytes that take up room on the wire and have no content. They are not
    /// delivered.
    pub padding: u32,
    /// Transport header: what it adds on the wire.
    pub protocol: Protocol,
    /// ECN field of the packet.
    pub ecn: Ecn,
    /// Index of the outgoing interface, in the order of the node's links, from 0. `None`: by the
    /// route.
    pub interface: Option<u16>,
    /// Label by which queues may distinguish flows between the same two agents, like the flow label
    /// of IPv6.
    pub label: u32,
}

impl Transmit {
    /// Creates a UDP datagram whose payload is the first `size` bytes of the buffer.
    pub fn udp(destination: Address, flow: FlowId, size: usize) -> Transmit {
        Transmit {
            destination,
            flow,
            size,
            header_fields: 0,
            padding: 0,
            protocol: Protocol::Udp,
            ecn: Ecn::NotEct,
            interface: None,
            label: 0,
        }
    }
}
