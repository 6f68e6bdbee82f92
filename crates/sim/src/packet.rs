//! Packets, their size on the wire, and their buffers.

use crate::time::Time;
use crate::topology::NodeId;

/// Address of an agent: its node, and a port number on that node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    /// Node that the agent is on.
    pub node: NodeId,
    /// Port number of the agent on its node, from 1.
    pub port: u16,
}

/// Identifies a flow: packets that are counted together ([`crate::Simulation::flow`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowId(pub(crate) u32);

impl FlowId {
    /// The index of the flow, from 0, in the order of creation.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// The ECN field of the IP header (RFC 3168 s.5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ecn {
    /// Not ECN-capable.
    #[default]
    NotEct,
    /// ECT(1).
    Ect1,
    /// ECT(0).
    Ect0,
    /// Congestion experienced.
    Ce,
}

impl Ecn {
    /// True if a queue may mark the packet rather than drop it.
    pub fn is_capable(self) -> bool {
        self != Ecn::NotEct
    }
}

/// The IP version of a network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IpVersion {
    /// Headers of 20 bytes.
    #[default]
    V4,
    /// Headers of 40 bytes.
    V6,
}

impl IpVersion {
    /// Length of the header in bytes.
    pub const fn header(self) -> u32 {
        match self {
            IpVersion::V4 => 20,
            IpVersion::V6 => 40,
        }
    }
}

/// Transport header of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// A header of 8 bytes.
    Udp,
    /// A header of 20 bytes and options.
    Tcp {
        /// Bytes of options, padding included: at most 40 (RFC 9293 s.3.1).
        options: u8,
    },
}

impl Protocol {
    /// Length of the header in bytes.
    pub const fn header(self) -> u32 {
        match self {
            Protocol::Udp => 8,
            Protocol::Tcp { options } => 20 + options as u32,
        }
    }
}

/// Framing that a link puts around IP packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Framing {
    /// No framing: rates count IP packets.
    #[default]
    None,
    /// 2 bytes, as with PPP and with ns-3's point-to-point links.
    Ppp,
    /// Header and check sequence of Ethernet: 18 bytes. A frame has at least 64 bytes (IEEE 802.3).
    Ethernet,
    /// Ethernet with preamble and inter-packet gap, which count towards its line rate: 20 bytes
    /// more.
    EthernetLine,
}

impl Framing {
    /// Returns the size on the link of an IP packet of `ip_bytes`.
    pub fn frame(self, ip_bytes: u32) -> u32 {
        match self {
            Framing::None => ip_bytes,
            Framing::Ppp => ip_bytes + 2,
            Framing::Ethernet => ip_bytes.max(46) + 18,
            Framing::EthernetLine => ip_bytes.max(46) + 38,
        }
    }
}

/// A packet in flight.
#[derive(Debug)]
pub(crate) struct Packet {
    pub source: Address,
    pub destination: Address,
    pub flow: FlowId,
    /// Size of the IP packet in bytes: headers, payload and padding.
    pub ip_bytes: u32,
    /// Size in bytes on the current link, or on the one whose queue it is in.
    pub frame_bytes: u32,
    /// Bytes of `buffer` that are delivered. The rest of the payload is padding, which is not
    /// stored.
    pub payload: u32,
    /// Label by which queues may distinguish flows between the same agents
    /// ([`crate::Transmit::label`]).
    pub label: u32,
    /// Length of the IP and transport headers in bytes.
    pub headers: u8,
    /// Bytes of `buffer` that hold fields of the transport header. `headers` counts the header's
    /// size.
    pub header_fields: u8,
    pub ecn: Ecn,
    /// Time at which it entered its current queue.
    pub queued_at: Time,
    /// The payload. Empty if there is none.
    pub buffer: Vec<u8>,
}

/// Reason why a packet did not arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DropCause {
    /// The queue was full.
    Full,
    /// The queue dropped it before it was full (RED, CoDel).
    Early,
    /// It was lost on the link.
    Lost,
    /// It was larger than the link's MTU.
    TooLarge,
    /// The destination has no agent or no route.
    Unreachable,
}

/// Packets dropped in a step, to be counted by the caller.
pub(crate) type Dropped = Vec<(Packet, DropCause)>;

/// Pool of payload buffers of one size.
pub(crate) struct Pool {
    size: usize,
    free: Vec<Vec<u8>>,
}

impl Pool {
    pub(crate) fn new(size: usize) -> Pool {
        Pool { size, free: Vec::new() }
    }

    /// Returns a buffer of the pool's size. It may have the content of an earlier packet.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        self.free.pop().unwrap_or_else(|| vec![0; self.size])
    }

    /// Returns a buffer to the pool. Ignores the empty buffer of a packet without payload.
    pub(crate) fn give(&mut self, buffer: Vec<u8>) {
        if buffer.len() == self.size {
            self.free.push(buffer);
        }
    }

    /// Returns a copy of the packet with the same content.
    pub(crate) fn copy(&mut self, packet: &Packet) -> Packet {
        let buffer = if packet.buffer.is_empty() {
            Vec::new()
        } else {
            let mut buffer = self.take();
            let payload = packet.payload as usize;
            buffer[..payload].copy_from_slice(&packet.buffer[..payload]);
            buffer
        };
        Packet { buffer, ..*packet }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_count_as_on_the_wire() {
        assert_eq!(IpVersion::V4.header() + Protocol::Udp.header(), 28);
        assert_eq!(IpVersion::V6.header() + Protocol::Tcp { options: 12 }.header(), 72);
        assert_eq!(Framing::None.frame(1500), 1500);
        assert_eq!(Framing::Ppp.frame(1500), 1502);
        // A full packet takes 1,518 bytes as a frame and 1,538 on the line. The smallest frame has
        // 64 bytes.
        assert_eq!(Framing::Ethernet.frame(1500), 1518);
        assert_eq!(Framing::EthernetLine.frame(1500), 1538);
        assert_eq!(Framing::Ethernet.frame(28), 64);
        assert_eq!(Framing::EthernetLine.frame(28), 84);
    }
}
