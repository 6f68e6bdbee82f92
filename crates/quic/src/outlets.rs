//! The system's sockets behind one [`Socket`](crate::socket::Socket): the first one, and those of further local addresses,
//! from which other paths of its connections go.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use crate::udp::{Outgoing, Udp};

/// A socket that is bound to a further address of ours.
pub(crate) struct Local {
    pub address: IpAddr,
    pub udp: Udp,
}

/// Sockets that datagrams go out of, each out of that of its source address.
#[derive(Clone, Copy)]
pub(crate) struct Outlets<'a> {
    pub first: &'a Udp,
    pub others: &'a [Arc<Local>],
}

/// Where messages go, and what time it is there.
pub(crate) trait Out: Copy {
    /// Datagrams of one size that may be sent at once.
    fn max_segments(self) -> usize;

    /// As [`Udp::send`].
    fn send(self, outgoing: &Outgoing<'_>) -> io::Result<usize>;

    /// The present time, to measure how long the system takes for messages.
    fn clock(self) -> Instant;
}

impl<'a> Outlets<'a> {
    /// The socket for datagrams from this address; where none is bound to it, the first, from which the system chooses.
    pub(crate) fn of(self, source: Option<IpAddr>) -> &'a Udp {
        let bound = |local: &&Arc<Local>| Some(local.address) == source;
        self.others.iter().find(bound).map_or(self.first, |local| &local.udp)
    }
}

impl Out for Outlets<'_> {
    /// What all of them take.
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
