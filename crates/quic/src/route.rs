//! Finds the connections of received datagrams.

use std::collections::VecDeque;
use std::sync::Arc;

use equic_transport::{DatagramMeta, Received, Timestamp};

use crate::attempts::AttemptQueue;
use crate::contain::contain;
use crate::driver_handle::ForwardedDatagram;
use crate::incoming::Incoming;
use crate::shared::{SharedConnection, State};
use crate::socket::{Inner, Socket};
use crate::udp::{Message, Udp};
use crate::wakers::Wait;

/// Passes received datagrams to their connections.
pub(crate) struct Route<'a> {
    /// The socket that received the datagrams.
    pub socket: &'a Arc<Socket>,
    /// All sockets of the endpoint, including this one, or empty if there is only one.
    pub siblings: &'a [Arc<Socket>],
    /// Index of this socket in `siblings`.
    pub index: usize,
    /// Takes clients' connection attempts.
    pub attempts: &'a AttemptQueue<Incoming>,
    /// The system's socket, for answers.
    pub udp: &'a Udp,
    /// The time of receipt.
    pub now: Timestamp,
}

impl Route<'_> {
    /// Handles the datagrams of a message, which come from one sender. Most messages are for one
    /// connection, which is then locked only once. Returns `true` if an application was notified of
    /// data, so that it may send an answer.
    pub(crate) fn take(
        &self,
        inner: &mut Inner,
        message: Message<'_>,
        response: &mut Vec<u8>,
        work: &mut VecDeque<Arc<SharedConnection>>,
    ) -> bool {
        let Message { arrival, mut bytes, segment } = message;
        let mut notified = false;
        while !bytes.is_empty() {
            let (datagram, behind) = bytes.split_at(segment.min(bytes.len()));
            let mut length = datagram.len();
            let mut found = None;
            match self.find(&mut inner.endpoint, arrival, datagram, response) {
                Received::Connection(handle) => {
                    // The socket need not be checked again: these datagrams have an ID of a
                    // connection of this socket.
                    let is_same = |datagram: &&[u8]| inner.endpoint.is_for_recent(handle, datagram);
                    // Nearly all datagrams of a message are for the same connection.
                    let same = behind.chunks(segment).take_while(is_same).map(<[u8]>::len);
                    length += same.sum::<usize>();
                    found = inner.connections.get(handle.0).and_then(Option::as_ref);
                }
                Received::Incoming(incoming) => self.offer(inner, incoming),
                Received::Respond | Received::Nothing => {}
            }
            let (run, behind) = bytes.split_at_mut(length);
            if let Some(conn) = found {
                let run = Message { arrival, bytes: run, segment };
                match contain(|| self.hand_to(conn, run, work)) {
                    Some(was_notified) => notified |= was_notified,
                    // The task ends the connection when it next handles it.
                    None => work.push_back(Arc::clone(conn)),
                }
            }
            bytes = behind;
        }
        notified
    }

    /// Passes datagrams to their connection, and schedules the connection. Returns `true` if its
    /// application was notified of data.
    fn hand_to(
        &self,
        conn: &Arc<SharedConnection>,
        message: Message<'_>,
        work: &mut VecDeque<Arc<SharedConnection>>,
    ) -> bool {
        let mut state = conn.lock();
        self.hand_in(&mut state, message);
        state.wakers.wake(Wait::Paths);
        let notified = state.notify_application();
        if !std::mem::replace(&mut state.queued, true) {
            work.push_back(Arc::clone(conn));
        }
        notified
    }

    /// Finds the connection of a datagram. If the connection belongs to another socket, forwards
    /// the datagram to that socket. If there is no connection, sends an answer if one is needed.
    fn find(
        &self,
        endpoint: &mut equic_transport::Endpoint,
        arrival: DatagramMeta,
        datagram: &[u8],
        response: &mut Vec<u8>,
    ) -> Received {
        if let Some(sibling) = self.sibling(endpoint, datagram) {
            tracing::trace!("forwarded a datagram to the socket of its connection");
            sibling.driver.forward(ForwardedDatagram { arrival, bytes: datagram.to_vec() });
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

    /// Passes datagrams to a connection.
    fn hand_in(&self, state: &mut State, message: Message<'_>) {
        let Message { arrival, mut bytes, segment } = message;
        while state.connection.is_early() && !bytes.is_empty() {
            let (datagram, behind) = bytes.split_at_mut(segment.min(bytes.len()));
            state.connection.handle_datagram(self.now, arrival, datagram);
            // Streams that were opened before a rejection of early data must not be confused with
            // streams that are opened after it.
            state.take_events();
            bytes = behind;
        }
        state.connection.handle_datagrams(self.now, &arrival, bytes, segment);
    }

    /// Offers a client's connection attempt to the application, or refuses it.
    fn offer(&self, inner: &mut Inner, incoming: equic_transport::Incoming) {
        let incoming = Incoming::new(Arc::clone(self.socket), incoming);
        if !inner.serving {
            incoming.refuse_in(inner, self.udp);
        } else if let Some(unwanted) = self.attempts.offer(incoming) {
            unwanted.refuse_in(inner, self.udp);
        }
    }

    /// Returns the socket of a datagram's connection if it is not this socket. Reasons for a
    /// difference: the client has migrated, a NAT has changed the client's port during the
    /// handshake, or the kernel now distributes datagrams in another way.
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
