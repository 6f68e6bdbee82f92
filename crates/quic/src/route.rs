//! From datagrams that were received to whose they are.

use std::collections::VecDeque;
use std::sync::Arc;

use equic_transport::{DatagramMeta, Received, Timestamp};

use crate::cell::{Cell, State, Wait};
use crate::contain::contain;
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
    /// Takes the datagrams of a message, `segment` bytes each, which are of one sender and mostly for one connection: that is
    /// locked once. True if an application has been told of data, and may answer it.
    pub(crate) fn take(
        &self,
        inner: &mut Inner,
        arrival: &DatagramMeta,
        (mut bytes, segment): (&mut [u8], usize),
        response: &mut Vec<u8>,
        work: &mut VecDeque<Arc<Cell>>,
    ) -> bool {
        let mut told = false;
        while !bytes.is_empty() {
            let (datagram, behind) = bytes.split_at(segment.min(bytes.len()));
            let mut length = datagram.len();
            let mut found = None;
            match self.find(&mut inner.endpoint, *arrival, datagram, response) {
                Received::Connection(handle) => {
                    // An ID of a connection of this socket names no other.
                    let is_same = |datagram: &&[u8]| inner.endpoint.is_for_recent(handle, datagram);
                    // As nearly all of a message are.
                    let same = behind.chunks(segment).take_while(is_same).map(<[u8]>::len);
                    length += same.sum::<usize>();
                    found = inner.cells.get(handle.0).and_then(Option::as_ref);
                }
                Received::Incoming(incoming) => self.offer(inner, incoming),
                Received::Respond | Received::Nothing => {}
            }
            let (run, behind) = bytes.split_at_mut(length);
            if let Some(cell) = found {
                match contain(|| self.hand_to(cell, arrival, (run, segment), work)) {
                    Some(heard) => told |= heard,
                    // The task ends the connection when it next looks at it.
                    None => work.push_back(Arc::clone(cell)),
                }
            }
            bytes = behind;
        }
        told
    }

    /// Hands datagrams to their connection, and has it looked at. True if its application has been told of data.
    fn hand_to(
        &self,
        cell: &Arc<Cell>,
        arrival: &DatagramMeta,
        datagrams: (&mut [u8], usize),
        work: &mut VecDeque<Arc<Cell>>,
    ) -> bool {
        let mut state = cell.lock();
        self.hand_in(&mut state, arrival, datagrams);
        state.wakers.wake(Wait::Paths);
        let told = state.tell();
        if !std::mem::replace(&mut state.queued, true) {
            work.push_back(Arc::clone(cell));
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
        if let Some(sibling) = self.sibling(endpoint, datagram) {
            tracing::trace!("passed a datagram to the socket of its connection");
            sibling.pass(Passed { arrival, bytes: datagram.to_vec() });
            return Received::Nothing;
        }
        let received = contain(|| endpoint.handle_datagram(self.now, arrival, datagram, response));
        let Some(received) = received else {
            tracing::error!(from = %arrival.remote, "a datagram was dropped, because its processing panicked");
            return Received::Nothing;
        };
        if matches!(received, Received::Respond) {
            Socket::respond(self.udp, arrival, response);
        }
        received
    }

    /// Gives datagrams to a connection.
    fn hand_in(
        &self,
        state: &mut State,
        arrival: &DatagramMeta,
        (mut bytes, segment): (&mut [u8], usize),
    ) {
        while state.connection.is_early() && !bytes.is_empty() {
            let (datagram, behind) = bytes.split_at_mut(segment.min(bytes.len()));
            state.connection.handle_datagram(self.now, *arrival, datagram);
            // Lest a stream of before a rejection is taken for one of after it.
            state.take_events();
            bytes = behind;
        }
        state.connection.handle_datagrams(self.now, arrival, bytes, segment);
    }

    /// A client wants a connection.
    fn offer(&self, inner: &mut Inner, incoming: equic_transport::Incoming) {
        let incoming = Incoming::new(Arc::clone(self.socket), incoming);
        let shared = &self.socket.shared;
        if !inner.serving {
            incoming.refuse_in(inner, self.udp);
        } else if let Some(unwanted) = shared.offer(incoming) {
            unwanted.refuse_in(inner, self.udp);
        } else {
            shared.arrived.notify_one();
        }
    }

    /// Returns the socket whose connection a datagram is for, if it is another: the client has moved, a NAT
    /// has given it another port within the handshake, or the system distributes anew.
    fn sibling(
        &self,
        endpoint: &equic_transport::Endpoint,
        datagram: &[u8],
    ) -> Option<&Arc<Socket>> {
        if self.siblings.is_empty() {
            return None;
        }
        let id = endpoint.own_id(datagram)?;
        let ids = self.socket.shared.ids.as_deref()?;
        let number = if !ids.is_hidden() {
            id.get(ids.number_at()).copied()
        } else if endpoint.is_known(id) {
            None
        } else {
            ids.number_of(id)
        };
        let index = usize::from(number?);
        self.siblings.get(index).filter(|_| index != self.index)
    }
}
