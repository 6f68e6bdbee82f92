//! The system's sockets of one [`Socket`](crate::socket::Socket): the first one, and those of
//! further local addresses for other paths.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use crate::sendmsg::Outgoing;
use crate::udp::Udp;

/// A socket that is bound to a further local address.
pub(crate) struct LocalSocket {
    pub address: IpAddr,
    pub udp: Udp,
}

/// The sockets for sending. A datagram's source address selects its socket.
#[derive(Clone, Copy)]
pub(crate) struct SendSockets<'a> {
    pub first: &'a Udp,
    pub others: &'a [Arc<LocalSocket>],
}

/// Sends messages, and provides the time. Tests replace it.
pub(crate) trait MessageSender: Copy {
    /// Returns the maximum number of datagrams in one message.
    fn max_segments(self) -> usize;

    /// Sends a message: see [`Udp::send`].
    fn send(self, outgoing: &Outgoing<'_>) -> io::Result<usize>;

    /// Returns the current time, to measure how long the system takes for messages.
    fn clock(self) -> Instant;
}

impl<'a> SendSockets<'a> {
    /// Returns the socket that is bound to this source address. Otherwise returns the first socket,
    /// and the system chooses the source address.
    pub(crate) fn of(self, source: Option<IpAddr>) -> &'a Udp {
        let bound = |local: &&Arc<LocalSocket>| Some(local.address) == source;
        self.others.iter().find(bound).map_or(self.first, |local| &local.udp)
    }
}

impl MessageSender for SendSockets<'_> {
    /// Returns the number that all sockets support.
    fn max_segments(self) -> usize {
        let others = self.others.iter().map(|local| local.udp.max_segments());
        others.fold(self.first.max_segments(), usize::min)
    }

    fn send(self, outgoing: &Outgoing<'_>) -> io::Result<usize> {
        self.of(outgoing.source).send(outgoing)
    }

    fn clock(self) -> Instant {
        Instant::now()
    }
}
