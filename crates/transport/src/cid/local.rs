//! Keeps the connection IDs that this end has issued: announces, replaces and retires them (RFC
//! 9000 s.5.1.1, s.5.1.2).

use std::collections::VecDeque;
use std::time::Duration;

use equic_wire::{ConnectionId, ResetToken};

use super::{Changes, EndpointEvent, NewId, note};
use crate::Timestamp;
use crate::lazy::LazyBox;
use crate::numbered::Numbered;
use crate::violation::Violation;

/// Number of retired connection IDs whose packets are still accepted. A peer retires fewer IDs than
/// that within a round trip.
const KEPT_RETIRED: usize = 4;

/// Time for which packets to a connection ID may still arrive after its retirement: a few round
/// trips.
pub(super) const KEPT_RETIRED_FOR: Duration = Duration::from_secs(3);

/// A connection ID that the peer may put into packets to this end.
#[derive(Debug, Clone, Copy)]
struct LocalId {
    id: ConnectionId,
    /// True if the peer has used this connection ID in a packet.
    used: bool,
}

/// All connection IDs that the peer may put into packets to this end.
#[derive(Debug)]
pub(crate) struct LocalIds {
    active: Numbered<LocalId>,
    /// The connection IDs that the peer retired last, oldest first; at most `KEPT_RETIRED`. Packets
    /// that the peer sent before it retired an ID may arrive late, by another path or socket. Such
    /// packets are accepted, and not answered with a stateless reset.
    retired: LazyBox<VecDeque<ConnectionId>>,
    /// Time at which the peer last retired a connection ID.
    retired_at: Timestamp,
    /// Number of active connection IDs that this end has not asked the peer to retire.
    not_retiring: u64,
    next: u64,
    /// Largest number of connection IDs that the peer may have at a time: its
    /// `active_connection_id_limit`, or this end's maximum if that is lower.
    limit: u64,
    /// The value of Retire Prior To that this end sends: the peer should retire IDs with lower
    /// sequence numbers.
    retire_prior_to: u64,
    /// Sequence numbers of the IDs that must still be announced in a NEW_CONNECTION_ID frame.
    to_announce: Numbered<()>,
    tokens: Numbered<ResetToken>,
    /// True if no more connection IDs are issued, because their path is abandoned.
    closed: bool,
    /// Issued and retired connection IDs that wait to be reported to the endpoint; at most
    /// `MAX_CHANGES`.
    changes: Changes,
}

impl LocalIds {
    /// Creates the state for the first path. `first` is the connection ID of the handshake.
    pub(crate) fn new(first: ConnectionId) -> LocalIds {
        LocalIds {
            active: Numbered::with(0, LocalId { id: first, used: true }),
            retired: LazyBox::default(),
            retired_at: Timestamp::START,
            not_retiring: 1,
            next: 1,
            limit: 1,
            retire_prior_to: 0,
            to_announce: Numbered::default(),
            tokens: Numbered::default(),
            closed: false,
            changes: Changes::default(),
        }
    }

    /// Creates the state for an additional path, which has no connection ID yet (RFC 10069 s.3.2).
    pub(crate) fn none() -> LocalIds {
        LocalIds {
            active: Numbered::default(),
            not_retiring: 0,
            next: 0,
            limit: 0,
            ..LocalIds::new(ConnectionId::EMPTY)
        }
    }

    /// Stops issuing connection IDs, because their path is abandoned. Packets to existing IDs still
    /// belong to the connection.
    pub(crate) fn close(&mut self) {
        self.closed = true;
        self.to_announce = Numbered::default();
    }

    /// Retires all connection IDs, because their path has ended. Packets to them no longer belong
    /// to the connection.
    pub(crate) fn retire_for_good(&mut self) {
        self.close();
        for (_, gone) in self.active.take_all() {
            note(&mut self.changes, EndpointEvent::Retired(gone.id));
        }
        self.forget_retired(0);
        self.tokens = Numbered::default();
        self.not_retiring = 0;
    }

    /// Returns the sequence number of the next connection ID to be issued.
    pub(crate) fn next_sequence(&self) -> u64 {
        self.next
    }

    /// Returns true if the peer has a connection ID that it may use, or if one will be announced to
    /// it.
    pub(crate) fn has_any(&self) -> bool {
        !self.active.is_empty()
    }

    /// Returns the largest number of connection IDs that the peer may have at a time.
    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    /// Takes the oldest change that was not yet reported to the endpoint, or returns `None`. The ID
    /// of the handshake is never reported.
    pub(crate) fn poll_change(&mut self) -> Option<EndpointEvent> {
        self.changes.get_mut_if_allocated()?.pop_front()
    }

    /// Sets the peer's `active_connection_id_limit`. However high that limit is, the peer gets at
    /// most `max` connection IDs at a time.
    pub(crate) fn set_limit(&mut self, limit: u64, max: u64) {
        self.limit = limit.min(max);
    }

    /// Returns true if another connection ID can be issued. IDs that this end wants the peer to
    /// retire do not count against the peer's limit (RFC 9000 s.5.1.1 #4).
    pub(crate) fn wants_more(&self) -> bool {
        !self.closed && self.not_retiring < self.limit
    }

    /// Asks the peer to retire all current connection IDs, so that new ones can replace them.
    /// Returns false, and changes nothing, if the peer still has to retire more IDs than its limit
    /// because of earlier requests. One outstanding request is permitted, because packets may be
    /// lost. The peer must accept twice its limit (RFC 9000 s.5.1.2).
    pub(crate) fn retire_all(&mut self) -> bool {
        let owed =
            self.active.numbers().filter(|number| *number < self.retire_prior_to).count() as u64;
        if owed <= self.limit {
            (self.retire_prior_to, self.not_retiring) = (self.next, 0);
        }
        owed <= self.limit
    }

    /// Returns the field Retire Prior To for the NEW_CONNECTION_ID frame that announces the ID with
    /// this sequence number. The field never exceeds the sequence number (RFC 9000 s.19.15).
    pub(crate) fn retire_prior_to(&self, sequence: u64) -> u64 {
        self.retire_prior_to.min(sequence)
    }

    /// Issues another connection ID with its reset token. It waits to be announced to the peer.
    // RFC 9000 s.5.1.1 #1
    pub(crate) fn issue(&mut self, id: ConnectionId, token: ResetToken) {
        self.active.insert(self.next, LocalId { id, used: false });
        self.not_retiring += 1;
        self.tokens.insert(self.next, token);
        self.to_announce.insert(self.next, ());
        note(&mut self.changes, EndpointEvent::Issued(id));
        self.next += 1;
    }

    /// Issues the second connection ID, which the transport parameter `preferred_address` announces
    /// (RFC 9000 s.5.1.1).
    pub(crate) fn issue_announced(&mut self, id: ConnectionId, token: ResetToken) {
        self.issue(id, token);
        self.to_announce.remove(self.next - 1);
    }

    /// Returns true if a connection ID must still be announced in a NEW_CONNECTION_ID frame.
    pub(crate) fn has_news(&self) -> bool {
        !self.to_announce.is_empty()
    }

    /// Takes the next connection ID to announce in a NEW_CONNECTION_ID frame.
    pub(crate) fn next_to_announce(&mut self) -> Option<NewId> {
        let (sequence, ()) = self.to_announce.pop_first()?;
        let (own, token) = (self.active.get(sequence)?, self.tokens.get(sequence)?);
        Some(NewId { sequence, id: own.id, token: *token })
    }

    /// Queues a connection ID for announcement again, because the frame that announced it was lost.
    pub(crate) fn on_lost(&mut self, sequence: u64) {
        if self.active.contains(sequence) && !self.closed {
            self.to_announce.insert(sequence, ());
        }
    }

    /// Processes a RETIRE_CONNECTION_ID frame that arrived in a packet to the connection ID `used`.
    /// Returns the ID that the peer retired.
    ///
    /// # Errors
    /// Fails if the retired ID was never issued, or if it is `used` (RFC 9000 s.19.16).
    pub(crate) fn on_retire(
        &mut self,
        now: Timestamp,
        sequence: u64,
        used: ConnectionId,
    ) -> Result<Option<ConnectionId>, Violation> {
        if sequence >= self.next {
            return Err(Violation::RetiredUnissuedId);
        }
        if self.active.get(sequence).is_some_and(|own| own.id == used) {
            return Err(Violation::RetiredIdInUse);
        }
        self.to_announce.remove(sequence);
        self.tokens.remove(sequence);
        let gone = self.active.remove(sequence).map(|own| own.id);
        if let Some(id) = gone {
            self.not_retiring -= u64::from(sequence >= self.retire_prior_to);
            self.retired.push_back(id);
            self.retired_at = now;
            self.forget_retired(KEPT_RETIRED);
        }
        Ok(gone)
    }

    /// Forgets the retired connection IDs, except for the last `keep`.
    fn forget_retired(&mut self, keep: usize) {
        let Some(retired) = self.retired.get_mut_if_allocated() else { return };
        for id in retired.drain(..retired.len().saturating_sub(keep)) {
            note(&mut self.changes, EndpointEvent::Retired(id));
        }
    }

    /// Returns the connection ID with this sequence number, if the peer may use it and a frame
    /// announced it.
    #[cfg(feature = "qlog")]
    pub(crate) fn get(&self, sequence: u64) -> Option<NewId> {
        let (own, token) = (self.active.get(sequence)?, self.tokens.get(sequence)?);
        Some(NewId { sequence, id: own.id, token: *token })
    }

    /// Returns true if packets with this connection ID belong to this connection.
    // RFC 9000 s.5.1.1 #2
    pub(crate) fn contains(&self, id: ConnectionId) -> bool {
        self.active.values().any(|own| own.id == id) || self.retired.contains(&id)
    }

    /// Like [`LocalIds::contains`], for the bytes of a connection ID in a packet.
    #[inline]
    pub(crate) fn contains_bytes(&self, id: &[u8]) -> bool {
        self.active.values().any(|own| own.id.is(id))
            || self.retired.iter().any(|retired| retired.is(id))
    }

    /// Like [`LocalIds::contains_bytes`], for a packet from an address that the peer has used
    /// before. Marks the connection ID as used, even if the packet later turns out not to be
    /// authentic.
    #[inline]
    pub(crate) fn take_bytes(&mut self, id: &[u8]) -> bool {
        match self.active.values_mut().find(|own| own.id.is(id)) {
            Some(own) => {
                own.used = true;
                true
            }
            None => self.retired.iter().any(|retired| retired.is(id)),
        }
    }

    /// Records that the peer has used this connection ID.
    pub(crate) fn set_used(&mut self, id: ConnectionId) {
        if let Some(own) = self.active.values_mut().find(|own| own.id == id) {
            own.used = true;
        }
    }

    /// Returns true if the peer may use this connection ID and has not used it yet.
    pub(crate) fn is_unused(&self, id: ConnectionId) -> bool {
        self.active.values().any(|own| own.id == id && !own.used)
    }

    /// Releases unused memory, and forgets connection IDs that the peer retired long enough ago.
    pub(crate) fn shrink(&mut self, now: Timestamp) {
        self.active.shrink();
        if self.retired_at + KEPT_RETIRED_FOR <= now {
            self.forget_retired(0);
            self.retired = LazyBox::default();
        }
        if self.to_announce.is_empty() {
            // No packet is in flight, so no NEW_CONNECTION_ID frame can be lost and repeated. The
            // tokens are no longer needed.
            self.tokens = Numbered::default();
        }
        if self.changes.is_empty() {
            self.changes = Changes::default();
        }
    }

    /// Returns the memory that this end's connection IDs take, in bytes.
    pub(crate) fn memory(&self) -> usize {
        (self.active.len() + self.to_announce.len() + self.tokens.len()) * size_of::<NewId>()
            + self.retired.len() * size_of::<ConnectionId>()
    }

    /// Returns all connection IDs whose packets belong to the connection.
    pub(crate) fn iter(&self) -> impl Iterator<Item = ConnectionId> + '_ {
        self.active.values().map(|own| own.id).chain(self.retired.iter().copied())
    }
}

#[cfg(test)]
mod tests;
