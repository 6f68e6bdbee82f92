//! Selects the path of the next packet. Content that any path may carry is sent on the path that
//! the scheduler chooses. The other paths carry only content that belongs to them.

use std::time::Duration;

use super::super::budget::Target;
use super::super::path::Path;
use super::super::paths::PathKey;
use super::super::presence::Presence;
use super::super::space::{PathId, Space, SpaceId};
use super::super::{Connection, Transmit};
use super::scheduler::{Candidate, Order, Rank, Scheduler};
use crate::Timestamp;

impl Connection {
    /// Returns the next datagram of a connection with multipath.
    pub(in crate::connection) fn datagram_on_any_path(
        &mut self,
        hooks: impl Presence,
        now: Timestamp,
        buffer: &mut [u8],
    ) -> Option<Transmit> {
        if let Some(key) = self.probing_path()
            && let Some(transmit) =
                self.datagram_on(hooks, now, Target { path: key, shared: false }, buffer)
        {
            return Some(transmit);
        }
        let mut order = Order::default();
        if let Some(transmit) = self.datagram_with_data(hooks, now, buffer, &mut order) {
            return Some(transmit);
        }
        // Probes, acknowledgements and challenges that belong to other paths. They do not depend on
        // which path may carry data.
        let mut tried = None;
        loop {
            let untried = |key| tried.is_none_or(|tried| key > tried) && !order.contains(key);
            let others = self.paths.iter().filter(|path| self.may_carry(path));
            let key = others.map(Path::key).filter(|key| untried(*key)).min()?;
            tried = Some(key);
            if let Some(transmit) =
                self.datagram_on(hooks, now, Target { path: key, shared: false }, buffer)
            {
                return Some(transmit);
            }
        }
    }

    /// Returns the best path for data, with its rank. With `after`, returns the next path behind
    /// that rank. Without multipath, the active path is the only candidate.
    #[inline(always)]
    pub(in crate::connection) fn next_candidate(
        &self,
        after: Option<Rank>,
    ) -> Option<(Rank, PathKey)> {
        let Some(paths) = &self.multipath else {
            let only = (0, false, Duration::ZERO, PathId::ZERO);
            return after.is_none().then(|| (only, self.path().key()));
        };
        self.config.scheduler.next(self.candidates(), paths.last, after)
    }

    /// Returns true if consecutive datagrams must use different paths that have room.
    pub(in crate::connection) fn takes_turns(&self) -> bool {
        self.multipath.is_some()
            && self.config.scheduler == Scheduler::RoundRobin
            && self.paths.iter().nth(1).is_some()
    }

    /// Returns true if a packet on this path carries acknowledgements.
    pub(in crate::connection) fn owes_acks(&self, key: PathKey) -> bool {
        let goes = |id, space: &Space| space.received.has_news() && self.ack_path(id) == Some(key);
        self.spaces.any_data(goes)
    }

    /// Returns the paths that may carry data, in the order in which they are checked for room
    /// without hooks.
    pub(super) fn schedule(&self) -> Order {
        let last = self.multipath.as_ref().and_then(|paths| paths.last);
        self.config.scheduler.order(self.candidates(), last)
    }

    pub(super) fn candidates(&self) -> impl Iterator<Item = Candidate> + Clone {
        let paths = self.paths.iter().filter(|path| self.is_candidate(path));
        let backup =
            |path: &Path| self.multipath.as_ref().is_some_and(|paths| paths.is_backup(path.id()));
        paths.map(move |path| Candidate {
            key: path.key(),
            id: path.id(),
            rtt: path.rtt().smoothed(),
            suspect: path.is_suspect(),
            backup: backup(path),
        })
    }

    /// Returns true if a path may carry data.
    pub(super) fn is_candidate(&self, path: &Path) -> bool {
        path.is_validated() && self.may_carry(path)
    }

    /// Returns true if packets can be sent on a path. It must be current and not abandoned, and
    /// have anti-amplification credit and a connection ID of the peer.
    pub(super) fn may_carry(&self, path: &Path) -> bool {
        path.is_current() && path.may_send() && self.may_use(path)
    }

    /// Returns true if the peer has issued a connection ID for the path.
    fn may_use(&self, path: &Path) -> bool {
        self.ids.remote_of(path.id()).is_some_and(|ids| ids.has_any())
    }

    /// Returns the path for content that any path may carry: the best path. Returns `None` if no
    /// path can send.
    pub(in crate::connection) fn best_path(&self) -> Option<PathKey> {
        let any = || self.paths.iter().find(|path| self.may_carry(path)).map(Path::key);
        self.schedule().first().or_else(any)
    }

    /// Returns the path on which acknowledgements of packet number space `id` are sent, if no hook
    /// chooses another. It is the path of the packets, because round-trip times are steadiest then
    /// (RFC 10069 s.5.4). If that path seems not to work, it is another one.
    pub(in crate::connection) fn ack_path(&self, id: SpaceId) -> Option<PathKey> {
        let SpaceId::Data(path) = id else { return Some(self.path().key()) };
        let own = self.paths.current(path).filter(|path| self.may_carry(path));
        let better = || {
            let best = self.best_path()?;
            let works = own.is_none() || !self.paths.get(best)?.is_suspect();
            works.then_some(best)
        };
        match own {
            Some(path) if !path.is_suspect() => Some(path.key()),
            // If no path is known to work, acknowledgements use the path on which the packets
            // arrive.
            own => better().or(own.map(Path::key)),
        }
    }

    /// Called after a probe timeout on a path, or when another path works again. After the second
    /// consecutive timeout, a path is assumed not to work. All data in flight there is then sent on
    /// other paths as soon as one of them works (RFC 10069 s.5.6). If the data arrives on the first
    /// path after all, the peer gets it twice.
    pub(in crate::connection) fn move_data(&mut self) {
        if !self.candidates().any(|one| !one.suspect) {
            return;
        }
        let dead = |path: &Path| path.backoff().count() > 1 && path.is_current();
        let dead = self.paths.iter().filter(|path| dead(path) && !path.is_abandoned());
        let dead: Vec<_> = dead.map(|path| (path.key(), SpaceId::Data(path.id()))).collect();
        for (key, id) in dead {
            let Some(space) = self.spaces.get(id) else { continue };
            let from = self.paths[key].move_below(space.numbers.next());
            let sent = space.loss.oldest_ack_eliciting();
            let sent = sent.filter(|(number, _)| *number >= from);
            let sent: Vec<_> =
                sent.map(|(number, packet)| (number, packet.content.frames.clone())).collect();
            for (number, frames) in sent {
                self.send_again(id, number, true, &frames);
            }
        }
    }
}
