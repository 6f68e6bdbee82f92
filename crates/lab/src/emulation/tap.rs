//! End of a connection in the simulated network, where a host's packets enter and leave it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use equic_sim::{Address, Agent, Datagram, Ecn, FlowId, IpVersion, Protocol, Time, Transmit};

use super::packet;

/// A packet that has come out of the network.
pub(super) struct Delivered {
    /// Moment of its arrival.
    pub(super) at: Time,
    /// Number of the host that it is for.
    pub(super) host: usize,
    /// Number of the link that it came by, of those that the host's node has.
    pub(super) link: u16,
    pub(super) packet: Vec<u8>,
}

/// Packets that have come out of the network, of all taps.
pub(super) type Outbox = Arc<Mutex<Vec<Delivered>>>;

/// One end of a connection within the network; the connection itself is the host's.
pub(super) struct Tap {
    peer: Address,
    flow: FlowId,
    /// Bytes of IP and UDP header: that many of each packet are no payload to the simulator.
    headers: usize,
    host: usize,
    inbox: VecDeque<IncomingPacket>,
    outbox: Outbox,
}

/// A packet of the host's that enters the network.
struct IncomingPacket {
    packet: Vec<u8>,
    ecn: Ecn,
    /// Number of the link that it takes; none: as routes say.
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

    /// Takes a packet from the host, for this link of its node; none: as routes say.
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
        // The interface has the network's smallest MTU, and the buffer its largest.
        let size = packet.len().min(buffer.len());
        buffer[..size].copy_from_slice(&packet[..size]);
        let header_fields = self.headers;
        let usual = Transmit::udp(self.peer, self.flow, size);
        Some(Transmit { ecn, header_fields, interface, ..usual })
    }

    /// A moment that never comes, so that the run goes on to the present when nothing is under way.
    fn next_timer(&mut self) -> Option<Time> {
        Some(Time::END)
    }
}
