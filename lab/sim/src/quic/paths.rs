//! The paths of a multipath connection (RFC 10069) in the simulator. There is one path for each
//! interface index that both nodes have.

use std::time::Duration;

use equic_transport::{PathId, PathInfo};

/// The paths at one end of a connection.
#[derive(Default)]
pub(super) struct Paths {
    /// Interfaces on which a client must open a path, for the first time or again. Empty for a
    /// server.
    unopened: Vec<u16>,
    /// Paths that the client has opened, each with its interface.
    opened: Vec<(PathId, u16)>,
}

impl Paths {
    /// Returns the paths of a client. The client opens a path on each interface except the first,
    /// which the handshake uses.
    pub(super) fn of_client(interfaces: u16) -> Paths {
        Paths { unopened: (1..interfaces).collect(), opened: Vec::new() }
    }

    /// Opens the missing paths. `open` gets the interface, and returns `None` if the path cannot be
    /// opened now.
    pub(super) fn open(&mut self, mut open: impl FnMut(u16) -> Option<PathId>) {
        self.unopened.retain(|interface| match open(*interface) {
            Some(id) => {
                self.opened.push((id, *interface));
                false
            }
            None => true,
        });
    }

    /// Schedules the replacement of a closed path. A path that is not in `opened` is the one of the
    /// handshake, which uses the first interface.
    pub(super) fn on_closed(&mut self, id: PathId) {
        if let Some(at) = self.opened.iter().position(|(opened, _)| *opened == id) {
            self.unopened.push(self.opened.swap_remove(at).1);
        }
    }
}

/// The state of one path at one end of a connection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PathState {
    /// The path ID.
    pub id: u32,
    /// Index of the outgoing interface, from 0.
    pub interface: u16,
    /// True if the path is validated.
    pub validated: bool,
    /// Congestion window in bytes.
    pub window: u64,
    /// Bytes in flight.
    pub in_flight: u64,
    /// Smoothed round-trip time.
    pub rtt: Duration,
    /// Pacing rate in bytes per second.
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
