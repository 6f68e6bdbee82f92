//! Requests of the application about paths, and the start of a path.

use std::net::{IpAddr, SocketAddr};

use equic_wire::params::TransportParameters;
use equic_wire::{Side, TransportErrorCode};

use super::super::path::{Addresses, Path};
use super::super::paths::PathKey;
use super::super::space::PathId;
use super::super::{Connection, Event, PathStats};
use super::{Multipath, PathState, most};
use crate::Timestamp;
use crate::violation::Violation;

/// Maximum number of events about paths that wait for the application. Newer events replace the
/// oldest.
const MAX_EVENTS: usize = 32;

/// Preference for the use of a path (RFC 10069 s.3.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PathStatus {
    /// The path may carry data.
    #[default]
    Available,
    /// The path carries data only if no available path works.
    Backup,
}

/// State and statistics of one of several paths ([`Connection::paths`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct PathInfo {
    /// ID of the path, the same at both ends.
    pub id: PathId,
    /// Address of the peer.
    pub remote: SocketAddr,
    /// Our address, or `None` if it is unknown.
    pub local: Option<IpAddr>,
    /// True if the path is validated. It carries no data before.
    pub validated: bool,
    /// Status that this end has set with [`Connection::set_path_status`].
    pub status: PathStatus,
    /// Status that the peer has set.
    pub peer_status: PathStatus,
    /// Bytes of UDP payload sent between these addresses.
    pub bytes_sent: u64,
    /// Bytes of UDP payload received between these addresses.
    pub bytes_received: u64,
    /// Statistics of the path, such as round-trip time, window and datagram size.
    pub stats: PathStats,
}

/// Reason for which no path can be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpenPathError {
    /// A server cannot open paths (RFC 10069 s.3).
    Server,
    /// The handshake is not confirmed yet.
    NotConfirmed,
    /// Multipath (RFC 10069) was not negotiated: see
    /// [`TransportConfig::max_paths`](crate::TransportConfig::max_paths).
    NotAgreed,
    /// The server forbids further paths to this address (`disable_active_migration`).
    Forbidden,
    /// The limit on paths of either end is reached. Closed paths count for some more round trips.
    TooMany,
    /// The server has not issued a connection ID for another path yet.
    NoConnectionId,
}

impl std::fmt::Display for OpenPathError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            OpenPathError::Server => "a server cannot open paths",
            OpenPathError::NotConfirmed => "the handshake is not confirmed yet",
            OpenPathError::NotAgreed => "the endpoints have not negotiated several paths",
            OpenPathError::Forbidden => "the server does not permit another path to this address",
            OpenPathError::TooMany => {
                "the connection already has as many paths as both endpoints permit"
            }
            OpenPathError::NoConnectionId => {
                "the server has issued no connection ID for another path"
            }
        })
    }
}

impl std::error::Error for OpenPathError {}

/// Reason for which a path cannot be closed, or its status cannot be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClosePathError {
    /// The path does not exist, or no longer exists.
    NoSuchPath,
    /// There is no other validated path. To close the connection, use [`Connection::close`].
    LastPath,
}

impl std::fmt::Display for ClosePathError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            ClosePathError::NoSuchPath => "the connection has no such path",
            ClosePathError::LastPath => "this is the only path of the connection",
        })
    }
}

impl std::error::Error for ClosePathError {}

impl Connection {
    /// Opens another path from a client to the server's address `remote` (RFC 10069 s.3.1). `local`
    /// is the client's address to send from, if the client has several. [`Event::PathOpened`]
    /// reports that the server has answered on the path and that data can be sent there.
    /// [`Event::PathClosed`] reports that it did not answer. Call [`Connection::poll_transmit`]
    /// next. Its datagrams name the address to send them from
    /// ([`Transmit::source`](super::super::Transmit)).
    ///
    /// # Errors
    /// Returns an [`OpenPathError`] if no path can be opened. Nothing has changed in that case.
    pub fn open_path(
        &mut self,
        now: Timestamp,
        local: Option<IpAddr>,
        remote: SocketAddr,
    ) -> Result<PathId, OpenPathError> {
        if self.side == Side::Server {
            return Err(OpenPathError::Server);
        }
        if !self.handshake.is_confirmed() || self.closing.is_closed() {
            return Err(OpenPathError::NotConfirmed);
        }
        let paths = self.multipath.as_ref().ok_or(OpenPathError::NotAgreed)?;
        // RFC 10069 s.2.2: this does not apply to other addresses of the server.
        if self.peer.is_some_and(|peer| peer.forbids_migration())
            && remote == paths.handshake_remote
        {
            return Err(OpenPathError::Forbidden);
        }
        // RFC 10069 s.3.2.1: path IDs are used in ascending order.
        let Some(id) = paths.issuable().find(|id| paths.state(*id) == PathState::Unused) else {
            let limited = paths.peer_max < paths.local_max;
            let max = paths.peer_max;
            if let Some(paths) = self.multipath.as_mut().filter(|_| limited) {
                paths.on_blocked(max, None);
            }
            return Err(OpenPathError::TooMany);
        };
        let ours = self.ids.local_of(id).is_some_and(|local| local.has_any());
        let next = self.ids.remote_of(id).map_or(0, |remote| remote.next_sequence());
        let theirs = self.ids.remote_of(id).is_some_and(|ids| ids.sequences().next().is_some());
        if !theirs && let Some(paths) = &mut self.multipath {
            paths.on_blocked(id, Some(next));
        }
        if !(ours && theirs) {
            return Err(OpenPathError::NoConnectionId);
        }
        self.now = now;
        self.begin_path(now, id, Addresses { remote, local });
        Ok(id)
    }

    /// Closes one of several paths (RFC 10069 s.3.4). `code` gives the peer the reason, such as
    /// [`TransportErrorCode::APPLICATION_ABANDON_PATH`]. Nothing is sent on the path from now on.
    /// Data in flight there that does not arrive is sent on another path. Call
    /// [`Connection::poll_transmit`] next.
    ///
    /// # Errors
    /// Returns a [`ClosePathError`] if the path cannot be closed. Nothing has changed in that case.
    pub fn close_path(
        &mut self,
        now: Timestamp,
        id: PathId,
        code: TransportErrorCode,
    ) -> Result<(), ClosePathError> {
        let paths = self.multipath.as_ref().ok_or(ClosePathError::NoSuchPath)?;
        if paths.state(id) != PathState::Used || self.closing.is_closed() {
            return Err(ClosePathError::NoSuchPath);
        }
        let other = self.paths.iter().any(|path| {
            path.id() != id && path.is_current() && path.is_validated() && !path.is_abandoned()
        });
        if !other {
            return Err(ClosePathError::LastPath);
        }
        self.now = now;
        self.abandon_path(now, id, code, code);
        Ok(())
    }

    /// Sets the status of a path at this end, and sends it to the peer as a recommendation (RFC
    /// 10069 s.3.3). Call [`Connection::poll_transmit`] next.
    ///
    /// # Errors
    /// Returns [`ClosePathError::NoSuchPath`] if the path does not exist or is closed.
    pub fn set_path_status(
        &mut self,
        id: PathId,
        status: PathStatus,
    ) -> Result<(), ClosePathError> {
        let paths = self.multipath.as_mut().filter(|paths| paths.state(id) == PathState::Used);
        let paths = paths.ok_or(ClosePathError::NoSuchPath)?;
        paths.wish(id, status);
        Ok(())
    }

    /// Sets the cost of using a path, in a unit that the application chooses. Hooks can read the
    /// cost ([`Field::PathCost`](crate::operation::Field::PathCost)); native schedulers ignore it.
    /// The default is 0, which means that the path costs nothing. The cost is not sent to the peer.
    /// To make the peer avoid a path, give the path the status [`PathStatus::Backup`].
    ///
    /// # Errors
    /// Returns [`ClosePathError::NoSuchPath`] if the path does not exist or is closed.
    pub fn set_path_cost(&mut self, id: PathId, cost: u32) -> Result<(), ClosePathError> {
        let paths = self.multipath.as_mut().filter(|paths| paths.state(id) == PathState::Used);
        let record = paths.and_then(|paths| paths.record_mut(id));
        record.ok_or(ClosePathError::NoSuchPath)?.cost = cost;
        Ok(())
    }

    /// Returns the state of a path as hooks read it, as a sum of bits:
    ///
    /// * 1: data can be sent on the path;
    /// * 2: an end wants the path as a backup;
    /// * 4: the peer has not answered the last packets on the path.
    pub(in crate::connection) fn path_bits(&self, path: &Path) -> u64 {
        let usable = self.speaks_multipath() && path.is_validated() && self.may_carry(path)
            || self.multipath.is_none() && path.key() == self.path().key();
        let backup = self.multipath.as_ref().is_some_and(|paths| paths.is_backup(path.id()));
        u64::from(usable) | u64::from(backup) << 1 | u64::from(path.is_suspect()) << 2
    }

    /// Returns the cost of using a path, which the application has set.
    pub(in crate::connection) fn path_cost(&self, path: &Path) -> u64 {
        self.multipath.as_ref().map_or(0, |paths| paths.cost(path.id()).into())
    }

    /// Returns the open paths in ascending order of their IDs. Without multipath, returns the only
    /// path.
    pub fn paths(&self) -> impl Iterator<Item = PathInfo> + '_ {
        let mut ids: Vec<PathId> = match &self.multipath {
            Some(paths) => paths.open_ids().collect(),
            None => vec![PathId::ZERO],
        };
        ids.sort_unstable();
        ids.into_iter().filter_map(|id| {
            let path = self.paths.current(id)?;
            let record = self.multipath.as_ref().and_then(|paths| paths.record(id));
            let wish =
                |wish: Option<(PathStatus, u64)>| wish.map_or_else(PathStatus::default, |w| w.0);
            Some(PathInfo {
                id,
                remote: path.remote(),
                local: path.local(),
                validated: path.is_validated(),
                status: wish(record.and_then(|record| record.wish)),
                peer_status: wish(record.and_then(|record| record.peer_wish)),
                bytes_sent: path.bytes().0,
                bytes_received: path.bytes().1,
                stats: PathStats::of(path),
            })
        })
    }

    /// Enables multipath if both ends support it. Returns false if the peer must not offer
    /// multipath, because it uses empty connection IDs or a nonce without room for a path ID. The
    /// connection is then closed.
    pub(in crate::connection) fn agree_on_paths(
        &mut self,
        now: Timestamp,
        parameters: &TransportParameters<'_>,
    ) -> bool {
        let most = most(self.config.max_paths);
        let Some(peer_max) = parameters.initial_max_path_id.filter(|_| most > 1) else {
            return true;
        };
        // RFC 10069 s.2.1: multipath needs non-empty connection IDs.
        if self.ids.remote.current().is_empty() {
            self.fail(now, Violation::MultipathWithoutIds);
            return false;
        }
        if self.keys.one_rtt().is_some_and(|keys| !keys.take_path_ids()) {
            self.fail(now, Violation::MultipathNonce);
            return false;
        }
        let paths = Multipath::new(most, peer_max, self.path().remote());
        self.multipath = Some(Box::new(paths));
        self.allow_path_ids();
        true
    }

    /// Permits connection IDs for more path IDs, after a limit has risen.
    pub(in crate::connection) fn allow_path_ids(&mut self) {
        let Some(paths) = &self.multipath else { return };
        for record in &paths.list {
            self.ids.add_path(record.id);
        }
        let limit = self.ids.local.limit();
        for id in paths.issuable().filter(|id| *id != PathId::ZERO) {
            if let Some(local) = self.ids.local_of_mut(id) {
                local.set_limit(limit, limit);
            }
        }
    }

    /// Returns true if a packet of the peer may be the first of this path ID. Only clients open
    /// paths (RFC 10069 s.3).
    pub(in crate::connection) fn may_begin_path(&self, id: PathId) -> bool {
        let unused =
            self.multipath.as_ref().is_some_and(|paths| paths.state(id) == PathState::Unused);
        unused && self.side == Side::Server && self.handshake.is_confirmed()
    }

    /// Creates the state of a path ID, for its first packet.
    pub(in crate::connection) fn begin_path(
        &mut self,
        now: Timestamp,
        id: PathId,
        addresses: Addresses,
    ) -> PathKey {
        self.spaces.add(id);
        let key = self.add_path(now, id, addresses);
        let sequence = self.ids.remote_of(id).and_then(|ids| ids.sequences().next());
        self.paths[key].use_remote_id(sequence);
        self.paths.set_current(key);
        if let Some(paths) = &mut self.multipath {
            paths.on_used(id);
        }
        self.challenge(now, key);
        key
    }

    /// Records that the peer has answered on a path.
    pub(in crate::connection) fn on_path_proved(&mut self, id: PathId) {
        if self.multipath.as_mut().is_some_and(|paths| paths.tells_opened(id)) {
            self.tell_of_path(Event::PathOpened(id));
        }
    }

    /// Reports an event about a path to the application. If too many are waiting, drops the oldest.
    pub(super) fn tell_of_path(&mut self, event: Event) {
        let of_path = |event: &Event| matches!(event, Event::PathOpened(_) | Event::PathClosed(..));
        if self.events.iter().filter(|event| of_path(event)).count() >= MAX_EVENTS {
            let oldest = self.events.iter().position(of_path);
            oldest.and_then(|at| self.events.remove(at));
        }
        self.events.push_back(event);
    }
}
