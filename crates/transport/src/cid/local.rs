//! Our connection IDs: given out, told of, replaced and retired (RFC 9000 s.5.1.1, s.5.1.2).

use std::collections::VecDeque;
use std::time::Duration;

use equic_wire::{ConnectionId, ResetToken};

use super::{Changes, EndpointEvent, IdError, NewId, note};
use crate::Timestamp;
use crate::numbered::Numbered;
use crate::rested::Seldom;

/// IDs that the peer has retired which still name the connection: more than it moves between within a round trip.
const PARTED: usize = 4;

/// So long after the last was retired packets to it may still be under way: some round trips.
pub(super) const PARTED_FOR: Duration = Duration::from_secs(3);

/// An ID that the peer may put on packets to us.
#[derive(Debug, Clone, Copy)]
struct LocalId {
    id: ConnectionId,
    /// The peer has used it.
    used: bool,
}

/// The IDs that the peer may put on packets to us.
#[derive(Debug)]
pub(crate) struct LocalIds {
    active: Numbered<LocalId>,
    /// Those that were retired last, from the oldest on; at most `PARTED`. What the peer has sent to one before it retired
    /// it may come later than that, by another path or socket: it is taken in, and no stateless reset answers it.
    parted: Seldom<VecDeque<ConnectionId>>,
    /// Time at which the last of them was retired.
    parted_at: Timestamp,
    /// Number of those in `active` that the peer is not asked to retire.
    lasting: u64,
    next: u64,
    /// Most connection IDs to give out: the peer's `active_connection_id_limit`, or our own maximum if lower.
    limit: u64,
    /// The peer is asked to retire those with lower sequence numbers.
    retire_prior_to: u64,
    /// To be told in NEW_CONNECTION_ID frames.
    to_tell: Numbered<()>,
    tokens: Numbered<ResetToken>,
    /// No more are given out: their path is abandoned.
    closed: bool,
    /// At most `MAX_CHANGES`.
    changes: Changes,
}

impl LocalIds {
    /// With the one of the handshake.
    pub(crate) fn new(first: ConnectionId) -> LocalIds {
        LocalIds {
            active: Numbered::with(0, LocalId { id: first, used: true }),
            parted: Seldom::default(),
            parted_at: Timestamp::START,
            lasting: 1,
            next: 1,
            limit: 1,
            retire_prior_to: 0,
            to_tell: Numbered::default(),
            tokens: Numbered::default(),
            closed: false,
            changes: Changes::default(),
        }
    }

    /// For another path than that of the handshake: there is none yet (RFC 10069 s.3.2).
    pub(crate) fn none() -> LocalIds {
        LocalIds {
            active: Numbered::default(),
            lasting: 0,
            next: 0,
            limit: 0,
            ..LocalIds::new(ConnectionId::EMPTY)
        }
    }

    /// Their path is abandoned: no more are given out. Those that there are still name the connection.
    pub(crate) fn close(&mut self) {
        self.closed = true;
        self.to_tell = Numbered::default();
    }

    /// Their path is gone: none of them names the connection any more.
    pub(crate) fn retire_for_good(&mut self) {
        self.close();
        for (_, gone) in self.active.take_all() {
            note(&mut self.changes, EndpointEvent::Retired(gone.id));
        }
        self.forget_parted(0);
        self.tokens = Numbered::default();
        self.lasting = 0;
    }

    /// The sequence number of the next to be given out.
    pub(crate) fn next_sequence(&self) -> u64 {
        self.next
    }

    /// True if the peer has, or will be told of, one that it may use.
    pub(crate) fn are_there(&self) -> bool {
        !self.active.is_empty()
    }

    /// Most that are given out.
    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    /// The oldest change since the last call; none when all were told. The ID of the handshake is not among them.
    pub(crate) fn poll_change(&mut self) -> Option<EndpointEvent> {
        self.changes.made()?.pop_front()
    }

    /// The peer's `active_connection_id_limit`; no more than `max` are given out.
    pub(crate) fn set_limit(&mut self, limit: u64, max: u64) {
        self.limit = limit.min(max);
    }

    /// True if the peer's limit allows another connection ID to be given out. Those that it is asked to retire do
    /// not count (RFC 9000 s.5.1.1).
    pub(crate) fn wants_more(&self) -> bool {
        !self.closed && self.lasting < self.limit
    }

    /// Asks the peer to retire all that it has, for those that are issued next. False, and nothing is changed: it has
    /// yet to retire more than one set of what it was asked before. One it may owe, for it may be that what it sends to the
    /// IDs of that set is lost; and it has to put up with twice its limit (RFC 9000 s.5.1.2).
    pub(crate) fn retire_all(&mut self) -> bool {
        let owed =
            self.active.numbers().filter(|number| *number < self.retire_prior_to).count() as u64;
        if owed <= self.limit {
            (self.retire_prior_to, self.lasting) = (self.next, 0);
        }
        owed <= self.limit
    }

    /// The field Retire Prior To of the frame that tells of an ID, which is never over its sequence number
    /// (RFC 9000 s.19.15).
    pub(crate) fn retire_prior_to(&self, sequence: u64) -> u64 {
        self.retire_prior_to.min(sequence)
    }

    /// Gives out another.
    pub(crate) fn issue(&mut self, id: ConnectionId, token: ResetToken) {
        self.active.insert(self.next, LocalId { id, used: false });
        self.lasting += 1;
        self.tokens.insert(self.next, token);
        self.to_tell.insert(self.next, ());
        note(&mut self.changes, EndpointEvent::Issued(id));
        self.next += 1;
    }

    /// One that the peer is told of in transport parameters, the second (RFC 9000 s.5.1.1).
    pub(crate) fn issue_told(&mut self, id: ConnectionId, token: ResetToken) {
        self.issue(id, token);
        self.to_tell.remove(self.next - 1);
    }

    /// True if there is a connection ID to tell the peer of in a NEW_CONNECTION_ID frame.
    pub(crate) fn has_news(&self) -> bool {
        !self.to_tell.is_empty()
    }

    /// The next ID to tell of; it counts as told.
    pub(crate) fn next_to_tell(&mut self) -> Option<NewId> {
        let (sequence, ()) = self.to_tell.pop_first()?;
        let (own, token) = (self.active.get(sequence)?, self.tokens.get(sequence)?);
        Some(NewId { sequence, id: own.id, token: *token })
    }

    /// The frame that told of it was lost.
    pub(crate) fn on_lost(&mut self, sequence: u64) {
        if self.active.contains(sequence) && !self.closed {
            self.to_tell.insert(sequence, ());
        }
    }

    /// RETIRE_CONNECTION_ID came on a packet that was sent to `used`: the ID that is gone.
    ///
    /// # Errors
    /// It was never given out, or is the one the frame came with (RFC 9000 s.19.16).
    pub(crate) fn on_retire(
        &mut self,
        now: Timestamp,
        sequence: u64,
        used: ConnectionId,
    ) -> Result<Option<ConnectionId>, IdError> {
        if sequence >= self.next || self.active.get(sequence).is_some_and(|own| own.id == used) {
            return Err(IdError::Violation);
        }
        self.to_tell.remove(sequence);
        self.tokens.remove(sequence);
        let gone = self.active.remove(sequence).map(|own| own.id);
        if let Some(id) = gone {
            self.lasting -= u64::from(sequence >= self.retire_prior_to);
            self.parted.push_back(id);
            self.parted_at = now;
            self.forget_parted(PARTED);
        }
        Ok(gone)
    }

    /// Of those that were retired only so many still name the connection, the last.
    fn forget_parted(&mut self, keep: usize) {
        let Some(parted) = self.parted.made() else { return };
        for id in parted.drain(..parted.len().saturating_sub(keep)) {
            note(&mut self.changes, EndpointEvent::Retired(id));
        }
    }

    /// The one with this sequence number, if the peer may use it and was told by a frame.
    #[cfg(feature = "qlog")]
    pub(crate) fn get(&self, sequence: u64) -> Option<NewId> {
        let (own, token) = (self.active.get(sequence)?, self.tokens.get(sequence)?);
        Some(NewId { sequence, id: own.id, token: *token })
    }

    /// True if packets with this connection ID are for this connection.
    pub(crate) fn contains(&self, id: ConnectionId) -> bool {
        self.active.values().any(|own| own.id == id) || self.parted.contains(&id)
    }

    /// As [`LocalIds::contains`], of an ID as it stands in a packet.
    #[inline]
    pub(crate) fn contains_bytes(&self, id: &[u8]) -> bool {
        self.active.values().any(|own| own.id.is(id))
            || self.parted.iter().any(|parted| parted.is(id))
    }

    /// As [`LocalIds::contains_bytes`], of a packet from an address that the peer has used before. The ID
    /// counts as used by the peer from now on, whether or not the packet is authentic.
    #[inline]
    pub(crate) fn take_bytes(&mut self, id: &[u8]) -> bool {
        match self.active.values_mut().find(|own| own.id.is(id)) {
            Some(own) => {
                own.used = true;
                true
            }
            None => self.parted.iter().any(|parted| parted.is(id)),
        }
    }

    /// The peer has used this ID.
    pub(crate) fn set_used(&mut self, id: ConnectionId) {
        if let Some(own) = self.active.values_mut().find(|own| own.id == id) {
            own.used = true;
        }
    }

    /// Returns true if the peer may use this ID, and has not done so yet.
    pub(crate) fn is_unused(&self, id: ConnectionId) -> bool {
        self.active.values().any(|own| own.id == id && !own.used)
    }

    /// Gives back memory that nothing is in, and forgets those that were retired a while ago.
    pub(crate) fn rest(&mut self, now: Timestamp) {
        self.active.rest();
        if self.parted_at + PARTED_FOR <= now {
            self.forget_parted(0);
            self.parted = Seldom::default();
        }
        if self.to_tell.is_empty() {
            // Nothing is in flight: no frame that told of one can be lost any more.
            self.tokens = Numbered::default();
        }
        if self.changes.is_empty() {
            self.changes = Changes::default();
        }
    }

    /// Bytes of memory it holds.
    pub(crate) fn memory(&self) -> usize {
        (self.active.len() + self.to_tell.len() + self.tokens.len()) * size_of::<NewId>()
            + self.parted.len() * size_of::<ConnectionId>()
    }

    /// All that name the connection.
    pub(crate) fn iter(&self) -> impl Iterator<Item = ConnectionId> + '_ {
        self.active.values().map(|own| own.id).chain(self.parted.iter().copied())
    }
}

#[cfg(test)]
mod tests;
