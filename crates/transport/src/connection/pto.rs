//! The probe timeout (PTO) without backoff (RFC 9002 s.6.2.1). All code that waits for a PTO, or
//! for several, uses these functions.
//!
//! * [`Connection::pto`]: the PTO timer;
//! * [`Connection::space_pto`]: the idle timeout (RFC 9000 s.10.1), and data in flight on an
//!   abandoned path (RFC 10069 s.3.4);
//! * [`Connection::path_pto`]: the pause between two PATH_CHALLENGE frames;
//! * [`Connection::longest_pto`]: periods that the peer can start or prolong. These are closing and
//!   draining (RFC 9000 s.10.2), discarded keys and key updates (RFC 9001 s.6.5), 0-RTT keys (RFC
//!   9001 s.4.9.3), path validation (RFC 9000 s.8.2.4), and the state of an abandoned path;
//! * [`Connection::new_path_pto`]: path validation, in addition.

use std::time::Duration;

use super::Connection;
use super::paths::PathKey;
use super::space::SpaceId;
use crate::operation::Operation;
use crate::recovery::{INITIAL_RTT, RttEstimator};

/// Maximum part of the peer's max_ack_delay that counts in periods that the peer can start. Without
/// this limit, a peer that declares 16 s could make this end keep each connection that the peer
/// closes for 49 s.
const MAX_DELAY_IN_PERIODS: Duration = Duration::from_secs(1);

impl Connection {
    /// Returns the PTO of a packet number space, on the path that the space uses.
    pub(super) fn pto(&mut self, id: SpaceId) -> Duration {
        let (key, usual) = self.usual_pto(id);
        self.hooked_pto(id, key, usual)
    }

    /// Like [`Connection::pto`], for periods. As for [`Connection::path_pto`], a hook cannot shorten
    /// it.
    pub(super) fn space_pto(&mut self, id: SpaceId) -> Duration {
        let (key, usual) = self.usual_pto(id);
        self.hooked_pto(id, key, usual).max(usual)
    }

    /// Returns the PTO of a packet number space without hooks, and the path that the space uses.
    fn usual_pto(&self, id: SpaceId) -> (PathKey, Duration) {
        let delay = if id.is_data() { self.peer_max_ack_delay() } else { Duration::ZERO };
        let path = self.path_of(id);
        (path.key(), path.rtt().pto_base() + delay)
    }

    /// Returns the PTO of application data on a path. At most [`MAX_DELAY_IN_PERIODS`] of the
    /// peer's max_ack_delay counts.
    pub(super) fn path_pto(&mut self, key: PathKey) -> Duration {
        let base = self.paths[key].rtt().pto_base();
        self.limited_pto(key, base)
    }

    /// Returns the longest [`Connection::path_pto`] of all paths in use (RFC 10069 s.2.6).
    pub(super) fn longest_pto(&mut self) -> Duration {
        let active = self.path().key();
        let mut longest = self.path_pto(active);
        if self.multipath.is_some() {
            // A loop over positions, because a hook may be called for each path.
            for at in 0.. {
                let Some(path) = self.paths.iter().nth(at) else { break };
                let (key, used) = (path.key(), path.is_current() && !path.is_abandoned());
                if used && key != active {
                    longest = longest.max(self.path_pto(key));
                }
            }
        }
        longest
    }

    /// Returns the PTO of a path on which no round trip was measured (RFC 9000 s.8.2.4).
    pub(super) fn new_path_pto(&mut self, key: PathKey) -> Duration {
        self.limited_pto(key, RttEstimator::new(INITIAL_RTT).pto_base())
    }

    /// Returns the PTO for a period. A hook can lengthen the period, but not shorten it. Otherwise, a
    /// plugin of the peer could discard keys early, or end a path validation before its packets can
    /// arrive.
    fn limited_pto(&mut self, key: PathKey, base: Duration) -> Duration {
        let id = SpaceId::Data(self.paths[key].id());
        let usual = base + self.peer_max_ack_delay().min(MAX_DELAY_IN_PERIODS);
        self.hooked_pto(id, key, usual).max(usual)
    }

    /// Returns the PTO that hooks make of `usual`.
    fn hooked_pto(&mut self, id: SpaceId, key: PathKey, usual: Duration) -> Duration {
        self.decide_within(Operation::ProbeTimeout, (id, key), usual, |connection, pto| {
            connection.bound_pto(key, usual, pto)
        })
    }
}
