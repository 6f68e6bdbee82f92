//! From datagrams that were received to whose they are.

use std::collections::VecDeque;
use std::sync::Arc;

use equic_transport::{DatagramMeta, Received, Timestamp};

use crate::cell::{Cell, State, Wait};
use crate::incoming::Incoming;
use crate::socket::{Inner, Passed, Socket};
use crate::udp::Udp;

/// Brings datagrams to where they belong.
pub(crate) struct Route<'a> {
    /// Socket that the datagrams came to.
    pub socket: &'a Arc<Socket>,
    /// All sockets of the endpoint, this one among them; alone: empty.
    pub siblings: &'a [Arc<Socket>],
    /// Number of the socket among them.
    pub index: usize,
    /// The system's socket, for answers.
    pub udp: &'a Udp,
    /// Time at which the datagrams are looked at.
    pub now: Timestamp,
}

impl Route<'_> {
    /// Takes the datagrams of a message, which are of one sender and mostly for one connection: that is locked once.
    /// True if an application has been told of data, and may answer it.
    pub(crate) fn take<'d>(
        &self,
        inner: &mut Inner,
        arrival: DatagramMeta,
        mut datagrams: impl Iterator<Item = &'d mut [u8]>,
        response: &mut Vec<u8>,
        work: &mut VecDeque<Arc<Cell>>,
    ) -> bool {
        let mut told = false;
        let next = |endpoint: &mut equic_transport::Endpoint,
                    datagrams: &mut dyn Iterator<Item = &'d mut [u8]>,
                    response: &mut Vec<u8>| {
            let datagram = datagrams.next()?;
            Some((self.find(endpoint, arrival, datagram, response), datagram))
        };
        let mut found = next(&mut inner.endpoint, &mut datagrams, response);
        while let Some((received, datagram)) = found {
            let Inner { endpoint, cells, .. } = &mut *inner;
            match received {
                Received::Connection(handle) => {
                    let Some(Some(cell)) = cells.get(handle.0) else {
                        found = next(endpoint, &mut datagrams, response);
                        continue;
                    };
                    let mut state = cell.lock();
                    self.hand_in(&mut state, arrival, datagram);
                    found = loop {
                        let Some(datagram) = datagrams.next() else { break None };
                        // As nearly all of a message are.
                        let same = endpoint.is_for_recent(handle, datagram)
                            && self.sibling(datagram).is_none();
                        if same {
                            self.hand_in(&mut state, arrival, datagram);
                            continue;
                        }
                        match self.find(endpoint, arrival, datagram, response) {
                            Received::Connection(other) if other == handle => {
                                self.hand_in(&mut state, arrival, datagram);
                            }
                            received => break Some((received, datagram)),
                        }
                    };
                    state.wakers.wake(Wait::Paths);
                    told |= state.tell();
                    if !std::mem::replace(&mut state.queued, true) {
                        work.push_back(Arc::clone(cell));
                    }
                }
                Received::Incoming(incoming) => {
                    self.offer(inner, incoming);
                    found = next(&mut inner.endpoint, &mut datagrams, response);
                }
                Received::Respond | Received::Nothing => {
                    found = next(endpoint, &mut datagrams, response)
                }
            }
        }
        told
    }

    /// Whose a datagram is; what is another socket's is passed on, and what is nobody's is answered here.
    fn find(
        &self,
        endpoint: &mut equic_transport::Endpoint,
        arrival: DatagramMeta,
        datagram: &[u8],
        response: &mut Vec<u8>,
    ) -> Received {
        if let Some(sibling) = self.sibling(datagram) {
            tracing::trace!("a datagram is handed to another socket");
            sibling.pass(Passed { arrival, bytes: datagram.to_vec() });
            return Received::Nothing;
        }
        let received = endpoint.handle_datagram(self.now, arrival, datagram, response);
        if matches!(received, Received::Respond) {
            Socket::respond(self.udp, arrival, response);
        }
        received
    }

    /// Hands a datagram to its connection.
    fn hand_in(&self, state: &mut State, arrival: DatagramMeta, datagram: &mut [u8]) {
        let early = state.connection.is_early();
        state.connection.handle_datagram(self.now, arrival, datagram);
        if early {
            // Lest a stream of before a rejection is taken for one of after it.
            state.take_events();
        }
    }

    /// A client wants a connection.
    fn offer(&self, inner: &mut Inner, incoming: equic_transport::Incoming) {
        let incoming = Incoming::new(Arc::clone(self.socket), incoming);
        let shared = &self.socket.shared;
        if let Some(unwanted) = shared.offer(incoming) {
            unwanted.ignore_in(inner);
        } else {
            shared.arrived.notify_one();
        }
    }

    /// The socket whose connection a 1-RTT packet is for, if it is another: the client has moved, or
    /// the system distributes anew.
    fn sibling(&self, datagram: &[u8]) -> Option<&Arc<Socket>> {
        let first = datagram.first()?;
        let index = usize::from(*datagram.get(1 + self.socket.shared.number_at)?);
        // A long header's ID may be the client's choice.
        let is_other = first & 0x80 == 0 && index != self.index;
        self.siblings.get(index).filter(|_| is_other)
    }
}
