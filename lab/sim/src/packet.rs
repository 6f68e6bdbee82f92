//! Packets, their size on the wire, and their buffers.

use crate::time::Time;
use crate::topology::NodeId;

/// The address of an agent: its node, and a port number on that node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    /// The node on which the agent runs.
    pub node: NodeId,
    /// Port number of the agent on its node, from 1.
    pub port: u16,
}

/// Identifies a flow: packets that are counted together ([`crate::Simulation::flow`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowId(pub(crate) u32);

impl FlowId {
    /// Returns the index of the flow, from 0, in the order of creation.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// The ECN field of the IP header (RFC 3168 s.5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ecn {
    /// The packet is not ECN-capable.
    #[default]
    NotEct,
    /// ECT(1): the packet is ECN-capable.
    Ect1,
    /// ECT(0): the packet is ECN-capable.
    Ect0,
    /// CE: a queue has marked the packet (congestion experienced).
    Ce,
}

impl Ecn {
    /// Returns `true` if a queue may mark the packet instead of dropping it.
    pub fn is_capable(self) -> bool {
        self != Ecn::NotEct
    }
}

/// The IP version of a network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IpVersion {
    /// IPv4, with headers of 20 bytes.
    #[default]
    V4,
    /// IPv6, with headers of 40 bytes.
    V6,
}

impl IpVersion {
    /// Returns the length of the header in bytes.
    pub const fn header(self) -> u32 {
        match self {
            IpVersion::V4 => 20,
            IpVersion::V6 => 40,
        }
    }
}

/// The transport protocol of a packet, which determines the length of its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// UDP, with a header of 8 bytes.
    Udp,
    /// TCP, with a header of 20 bytes and options.
    Tcp {
        /// Length of the options in bytes, with padding. At most 40 (RFC 9293 s.3.1).
        options: u8,
    },
}

impl Protocol {
    /// Returns the length of the header in bytes.
    pub const fn header(self) -> u32 {
        match self {
            Protocol::Udp => 8,
            Protocol::Tcp { options } => 20 + options as u32,
        }
    }
}

/// The framing that a link adds to IP packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Framing {
    /// No framing: rates count only the bytes of IP packets.
    #[default]
    None,
    /// PPP, which adds 2 bytes. The point-to-point links of ns-3 add the same.
    Ppp,
    /// The header and check sequence of Ethernet: 18 bytes. A frame has at least 64 bytes (IEEE
    /// 802.3).
    Ethernet,
    /// Ethernet frames with the preamble and the inter-packet gap, which take 20 more bytes of the
    /// line rate.
    EthernetLine,
}

impl Framing {
    /// Returns the number of bytes that an IP packet of `ip_bytes` takes on the link.
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
    /// Size of the packet in bytes, including the framing of the link that it is on or whose queue
    /// it is in.
    pub frame_bytes: u32,
    /// Number of bytes of `buffer` that the receiver gets. The rest of the payload is padding,
    /// which is not stored.
    pub payload: u32,
    /// Label by which queues can distinguish flows between the same two agents
    /// ([`crate::Transmit::label`]).
    pub label: u32,
    /// Length of the IP and transport headers in bytes.
    pub headers: u8,
    /// Number of bytes of `buffer` that are fields of the transport header. They do not count in
    /// the packet's size, because `headers` already includes that header.
    pub header_fields: u8,
    pub ecn: Ecn,
    /// Time at which the packet entered its current queue.
    pub queued_at: Time,
    /// The payload. It is empty for a packet without payload.
    pub buffer: Vec<u8>,
}

/// The reason why a packet did not arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DropCause {
    /// The queue was full.
    Full,
    /// The queue dropped the packet before it was full (RED, CoDel).
    Early,
    /// The packet was lost on the link.
    Lost,
    /// The packet was larger than the link's MTU.
    TooLarge,
    /// The packet's destination has no agent, or there is no route to it.
    Unreachable,
}

/// Packets that one step dropped, with the reasons. The caller adds them to the counters of their
/// flows.
pub(crate) type Dropped = Vec<(Packet, DropCause)>;

/// A pool of payload buffers, all of the same size.
pub(crate) struct Pool {
    size: usize,
    free: Vec<Vec<u8>>,
}

impl Pool {
    pub(crate) fn new(size: usize) -> Pool {
        Pool { size, free: Vec::new() }
    }

    /// Takes a buffer from the pool. It may contain data of an earlier packet.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        self.free.pop().unwrap_or_else(|| vec![0; self.size])
    }

    /// Gives a buffer back to the pool. The empty buffer of a packet without payload is ignored.
    pub(crate) fn give(&mut self, buffer: Vec<u8>) {
        if buffer.len() == self.size {
            self.free.push(buffer);
        }
    }

    /// Returns a copy of the packet, with a copy of its content.
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
    fn packet_size_includes_headers_and_framing() {
        assert_eq!(IpVersion::V4.header() + Protocol::Udp.header(), 28);
        assert_eq!(IpVersion::V6.header() + Protocol::Tcp { options: 12 }.header(), 72);
        assert_eq!(Framing::None.frame(1500), 1500);
        assert_eq!(Framing::Ppp.frame(1500), 1502);
        // A full packet takes 1,518 bytes as a frame, and 1,538 on the line. The smallest frame has
        // 64 bytes.
        assert_eq!(Framing::Ethernet.frame(1500), 1518);
        assert_eq!(Framing::EthernetLine.frame(1500), 1538);
        assert_eq!(Framing::Ethernet.frame(28), 64);
        assert_eq!(Framing::EthernetLine.frame(28), 84);
    }
}
