//! Agents: programs that live on a node, and send and receive datagrams.

use std::any::Any;

use crate::packet::{Address, Ecn, FlowId, Protocol};
use crate::time::Time;

/// One program on one node: an end of a connection, a source of other traffic, a sink.
///
/// It does no input or output and reads no clock. The simulation calls it so:
///
/// ```text
/// on_datagram(now, datagram)   something came for it
/// on_timer(now)                next_timer's moment has come
/// poll_transmit(now, buffer)   after either, and at the start of the run: until none
/// next_timer()                 after that
/// ```
///
/// What it is to be random about comes from the seeds that [`crate::Simulation::agent_seed`] gives.
pub trait Agent: Any + Send {
    /// A datagram came for it.
    fn on_datagram(&mut self, now: Time, datagram: Datagram<'_>);

    /// The moment that [`Agent::next_timer`] gave has come.
    fn on_timer(&mut self, now: Time);

    /// The next datagram that it wants to send, whose payload it has written to the beginning of the buffer.
    /// The buffer is as long as the largest MTU of the network; what is in it at first is of no meaning.
    fn poll_transmit(&mut self, now: Time, buffer: &mut [u8]) -> Option<Transmit>;

    /// Time at which [`Agent::on_timer`] is to be called; none: not until something else happens.
    fn next_timer(&mut self) -> Option<Time>;

    /// Says if the run waits for this agent. It is asked after each of its events.
    fn status(&self) -> Status {
        Status::Background
    }

    /// Bytes that it has handed to its application so far, each once and in order: for goodput.
    fn goodput(&self) -> u64 {
        0
    }
}

/// Says if a run waits for an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// The run does not wait for it.
    Background,
    /// The run waits: its task is not done.
    Working,
    /// Its task is done, or failed: the run waits no longer.
    Finished,
}

/// A datagram, or a segment, that came for an agent.
#[derive(Debug)]
pub struct Datagram<'a> {
    /// Address of the sender.
    pub source: Address,
    /// Flow that the sender counts it with.
    pub flow: FlowId,
    /// Its ECN field.
    pub ecn: Ecn,
    /// The number of the interface that it came in by, from 0 in the order of the node's links.
    pub interface: u16,
    /// Bytes that the sender wrote.
    pub payload: &'a mut [u8],
    /// Bytes that were on the wire behind the payload, and have no content.
    pub padding: u32,
}

/// A datagram, or a segment, that an agent sends.
#[derive(Clone, Copy, Debug)]
pub struct Transmit {
    /// Address that the datagram is sent to.
    pub destination: Address,
    /// Flow that the packet is counted with.
    pub flow: FlowId,
    /// Bytes of the buffer that are carried to the other end.
    pub size: usize,
    /// Bytes of these that are the fields of the transport header, such as a TCP segment's: the wire counts
    /// the header by [`Transmit::protocol`], and not these.
    pub header_fields: usize,
    /// Bytes of payload that take up room on the wire and are not carried, for they have no meaning.
    pub padding: u32,
    /// Transport header: what it adds on the wire.
    pub protocol: Protocol,
    /// ECN field of the packet.
    pub ecn: Ecn,
    /// The interface to leave by, from 0 in the order of the node's links; none: as routes say.
    pub interface: Option<u16>,
    /// Label by which queues tell flows between the same two agents apart, if they do; such as the flow label of
    /// IPv6.
    pub label: u32,
}

impl Transmit {
    /// A UDP datagram with so many bytes of the buffer.
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
