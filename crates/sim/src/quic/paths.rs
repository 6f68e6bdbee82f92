//! Several paths of a connection (RFC 10069): one for each interface of the two nodes, which have as many.

use std::time::Duration;

use equic_transport::{PathId, PathInfo};

/// Paths of one end.
#[derive(Default)]
pub(super) struct Paths {
    /// Interfaces over which a client has no path yet, or no longer; a server opens none.
    unopened: Vec<u16>,
    /// Interfaces of the paths that the client has opened.
    opened: Vec<(PathId, u16)>,
}

impl Paths {
    /// Those of a client, which opens one for each interface but the first, on which the handshake is.
    pub(super) fn of_client(interfaces: u16) -> Paths {
        Paths { unopened: (1..interfaces).collect(), opened: Vec::new() }
    }

    /// Opens those that are not open, by a function that is given the interface; none: it cannot be now.
    pub(super) fn open(&mut self, mut open: impl FnMut(u16) -> Option<PathId>) {
        self.unopened.retain(|interface| match open(*interface) {
            Some(id) => {
                self.opened.push((id, *interface));
                false
            }
            None => true,
        });
    }

    /// A path is gone: another is opened in its place. That of the handshake has the first interface.
    pub(super) fn on_closed(&mut self, id: PathId) {
        if let Some(at) = self.opened.iter().position(|(opened, _)| *opened == id) {
            self.unopened.push(self.opened.swap_remove(at).1);
        }
    }
}

/// State of one of several paths at one end of a connection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PathState {
    /// The path ID.
    pub id: u32,
    /// The number of the interface that it leaves by, from 0.
    pub interface: u16,
    /// True if the peer has answered on it.
    pub validated: bool,
    /// Congestion window in bytes.
    pub window: u64,
    /// Bytes in flight.
    pub in_flight: u64,
    /// Smoothed round-trip time.
    pub rtt: Duration,
    /// Rate at which packets may leave, in bytes per second.
    pub pacing_rate: u64,
}

impl PathState {
    pub(super) fn of(path: &PathInfo, interface: u16) -> PathState {
        PathState {
            id: path.id.get(),
            interface,
            validated: path.validated,
            window: path.stats.congestion_window,
            in_flight: path.stats.bytes_in_flight,
            rtt: path.stats.rtt,
            pacing_rate: path.stats.pacing_rate,
        }
    }
}
