//! One end of a connection in the simulated network, where a host's packets enter and leave it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use equic_sim::{Address, Agent, Datagram, Ecn, FlowId, IpVersion, Protocol, Time, Transmit};

use super::packet;

/// A packet that has crossed the network.
pub(super) struct Delivered {
    /// Time at which the packet arrived at the end of the network.
    pub(super) at: Time,
    /// Index of the destination host.
    pub(super) host: usize,
    /// Index of the link on which the packet arrived, among the links of the host's node.
    pub(super) link: u16,
    pub(super) packet: Vec<u8>,
}

/// Packets that have crossed the network and wait to be written to their hosts. All taps share it.
pub(super) type Outbox = Arc<Mutex<Vec<Delivered>>>;

/// One end of a connection in the simulated network. The connection's protocol runs on the host,
/// not in the simulator.
pub(super) struct Tap {
    peer: Address,
    flow: FlowId,
    /// Length of the IP and UDP headers in bytes. For the simulator, they are not payload.
    headers: usize,
    host: usize,
    inbox: VecDeque<IncomingPacket>,
    outbox: Outbox,
}

/// A packet from the host that must enter the network.
struct IncomingPacket {
    packet: Vec<u8>,
    ecn: Ecn,
    /// Index of the link to send on, or `None` to let the network's routes choose.
    link: Option<u16>,
}

impl Tap {
    pub(super) fn new(
        peer: Address,
        flow: FlowId,
        ip: IpVersion,
        host: usize,
        outbox: Outbox,
    ) -> Tap {
        let headers = (ip.header() + Protocol::Udp.header()) as usize;
        Tap { peer, flow, headers, host, inbox: VecDeque::new(), outbox }
    }

    /// Puts a packet of the host into the network. `link` is the index of the node's link to use,
    /// or `None` to let the routes choose.
    pub(super) fn take(&mut self, packet: &[u8], ecn: Ecn, link: Option<u16>) {
        self.inbox.push_back(IncomingPacket { packet: packet.to_vec(), ecn, link });
    }
}

impl Agent for Tap {
    fn on_datagram(&mut self, now: Time, datagram: Datagram<'_>) {
        let mut packet = datagram.payload.to_vec();
        if datagram.ecn == Ecn::Ce {
            packet::mark(&mut packet);
        }
        let delivered = Delivered { at: now, host: self.host, link: datagram.interface, packet };
        self.outbox.lock().unwrap_or_else(PoisonError::into_inner).push(delivered);
    }

    fn on_timer(&mut self, _: Time) {}

    fn poll_transmit(&mut self, _: Time, buffer: &mut [u8]) -> Option<Transmit> {
        let IncomingPacket { packet, ecn, link: interface } = self.inbox.pop_front()?;
        // The MTU of the interface is the smallest of the network, and the buffer has room for the
        // largest, so nothing is cut off.
        let size = packet.len().min(buffer.len());
        buffer[..size].copy_from_slice(&packet[..size]);
        let header_fields = self.headers;
        let usual = Transmit::udp(self.peer, self.flow, size);
        Some(Transmit { ecn, header_fields, interface, ..usual })
    }

    /// Returns a time that is never reached, so that a timer is always pending. With it, the run
    /// advances to the present even if no packet is in flight.
    fn next_timer(&mut self) -> Option<Time> {
        Some(Time::END)
    }
}
