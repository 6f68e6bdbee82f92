//! Agents: simulated programs on a node that send and receive datagrams.

use std::any::Any;

use crate::packet::{Address, Ecn, FlowId, Protocol};
use crate::time::Time;

/// A program on a node: one end of a connection, a source of other traffic, or a sink.
///
/// An agent does no I/O and reads no clock. The simulation calls its methods in this order:
///
/// ```text
/// on_datagram(now, datagram)   a datagram arrived for the agent
/// on_timer(now)                the time that next_timer returned has come
/// poll_transmit(now, buffer)   after either of them and at the start of the run, until it returns None
/// next_timer()                 after poll_transmit
/// ```
///
/// An agent that needs random numbers must seed them with [`crate::Simulation::agent_seed`].
pub trait Agent: Any + Send {
    /// Handles a datagram that arrived for this agent.
    fn on_datagram(&mut self, now: Time, datagram: Datagram<'_>);

    /// Handles the timer. It is called at the time that [`Agent::next_timer`] returned.
    fn on_timer(&mut self, now: Time);

    /// Writes the payload of the next datagram to the beginning of the buffer, and returns the
    /// datagram's description. Returns `None` if the agent has nothing to send. The buffer is as
    /// long as the largest MTU of the network. Its initial content is undefined.
    fn poll_transmit(&mut self, now: Time, buffer: &mut [u8]) -> Option<Transmit>;

    /// Returns the time of the next call of [`Agent::on_timer`], or `None` if no timer is set.
    fn next_timer(&mut self) -> Option<Time>;

    /// Returns whether the run waits for this agent. The simulation calls this method after each
    /// event of the agent.
    fn status(&self) -> Status {
        Status::Background
    }

    /// Returns the number of bytes that the agent's application has received so far. Bytes count
    /// when they are in order, and only once. The simulation computes goodput from this number.
    fn goodput(&self) -> u64 {
        0
    }
}

/// The state of an agent. It determines how long a run lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// The run does not wait for the agent.
    Background,
    /// The run waits for the agent, because it has not finished its task.
    Working,
    /// The agent has finished its task or has failed. The run no longer waits for it.
    Finished,
}

/// A datagram or segment that arrived for an agent.
#[derive(Debug)]
pub struct Datagram<'a> {
    /// Address of the sender.
    pub source: Address,
    /// The flow whose counters include the packet.
    pub flow: FlowId,
    /// ECN field of the packet.
    pub ecn: Ecn,
    /// Index of the interface that received the packet, from 0. Interfaces have the order of the
    /// node's links.
    pub interface: u16,
    /// The bytes that the sender wrote into its buffer.
    pub payload: &'a mut [u8],
    /// Number of additional payload bytes on the wire that have no content.
    pub padding: u32,
}

/// A datagram or segment that an agent sends.
#[derive(Clone, Copy, Debug)]
pub struct Transmit {
    /// Address of the receiving agent.
    pub destination: Address,
    /// The flow whose counters include the packet.
    pub flow: FlowId,
    /// Number of bytes of the buffer that are delivered to the receiver.
    pub size: usize,
    /// Number of these bytes that are fields of the transport header, such as those of a TCP
    /// segment. The size on the wire does not count these bytes, because [`Transmit::protocol`]
    /// already adds the length of the header.
    pub header_fields: usize,
    /// Number of additional payload bytes that take up room on the wire and have no content. They
    /// are not delivered.
    pub padding: u32,
    /// The transport header, which adds to the size on the wire.
    pub protocol: Protocol,
    /// ECN field of the packet.
    pub ecn: Ecn,
    /// Index of the outgoing interface, from 0, in the order of the node's links. `None`: the route
    /// chooses it.
    pub interface: Option<u16>,
    /// Label by which queues distinguish flows between the same two agents, like the IPv6 flow
    /// label.
    pub label: u32,
}

impl Transmit {
    /// Describes a UDP datagram whose payload is the first `size` bytes of the buffer.
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
