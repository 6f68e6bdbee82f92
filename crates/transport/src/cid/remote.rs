//! Keeps the peer's connection IDs: those that may be used, those that are retired, and their
//! stateless reset tokens (RFC 9000 s.5.1.1, s.5.1.2, s.10.3).

use equic_wire::{ConnectionId, ResetToken};

use super::{Changes, EndpointEvent, NewId, note};
use crate::numbered::Numbered;
use crate::ranges::RangeSet;
use crate::violation::Violation;

/// Largest number of RETIRE_CONNECTION_ID frames that the peer has not acknowledged. If there are
/// more, the connection is closed (RFC 9000 s.5.1.2 #4 #5).
const MAX_RETIRED: usize = 32;

/// Number of ranges of retired sequence numbers that are remembered. They ensure that a repeated
/// NEW_CONNECTION_ID frame has no effect.
const RETIRED_RANGES: usize = 32;

/// A connection ID that the peer has issued.
#[derive(Debug, Clone, Copy)]
struct RemoteId {
    id: ConnectionId,
    token: Option<ResetToken>,
    /// True if a packet was sent to the connection ID. A stateless reset with the ID's token is
    /// accepted only after that (RFC 9000 s.10.3.1).
    used: bool,
}

impl RemoteId {
    /// Creates the entry for the connection ID of the handshake, which is in use from the start.
    fn of_handshake(id: ConnectionId) -> RemoteId {
        RemoteId { id, token: None, used: true }
    }

    fn given(id: ConnectionId, token: ResetToken) -> RemoteId {
        RemoteId { id, token: Some(token), used: false }
    }

    /// Returns the ID's reset token if this end accepts a stateless reset with it.
    fn token_in_use(&self) -> Option<ResetToken> {
        self.token.filter(|_| self.used)
    }
}

/// The connection IDs that this end may put into packets to the peer.
#[derive(Debug)]
pub(crate) struct RemoteIds {
    ids: Numbered<RemoteId>,
    /// Sequence number of the connection ID in use.
    current: u64,
    /// Value of Retire Prior To that the peer sent: this end must retire IDs with lower sequence
    /// numbers.
    retire_prior_to: u64,
    /// True if the peer uses zero-length connection IDs.
    zero_length: bool,
    /// Sequence numbers of the peer's connection IDs that this end has retired.
    retired: RangeSet,
    /// Largest number of the peer's connection IDs that are kept: this end's
    /// `active_connection_id_limit`.
    limit: u64,
    to_retire: Numbered<()>,
    /// Sequence numbers in RETIRE_CONNECTION_ID frames that the peer has not acknowledged yet. The
    /// frames are queued or in flight.
    owed: Numbered<()>,
    /// Reset tokens that wait to be reported to the endpoint; at most `MAX_CHANGES`.
    changes: Changes,
}

impl RemoteIds {
    /// Creates the state for the first path. `first` is the connection ID of the handshake, and
    /// `limit` is this end's `active_connection_id_limit`.
    pub(crate) fn new(first: ConnectionId, limit: u64) -> RemoteIds {
        RemoteIds {
            ids: Numbered::with(0, RemoteId::of_handshake(first)),
            current: 0,
            retire_prior_to: 0,
            zero_length: first.is_empty(),
            retired: RangeSet::new(),
            limit,
            to_retire: Numbered::default(),
            owed: Numbered::default(),
            changes: Changes::default(),
        }
    }

    /// Creates the state for an additional path. The peer has issued no connection ID for it yet.
    /// `limit` has the same meaning as for [`RemoteIds::new`].
    pub(crate) fn none(limit: u64) -> RemoteIds {
        RemoteIds {
            ids: Numbered::default(),
            zero_length: false,
            ..RemoteIds::new(ConnectionId::EMPTY, limit)
        }
    }

    /// Forgets all connection IDs without sending RETIRE_CONNECTION_ID frames, because their path
    /// is abandoned (RFC 10069 s.3.4).
    pub(crate) fn forget_all(&mut self) {
        for (_, gone) in self.ids.take_all() {
            self.forget_token(gone);
        }
        (self.to_retire, self.owed) = (Numbered::default(), Numbered::default());
    }

    /// Stops accepting stateless resets with the token of the removed connection ID `gone`.
    fn forget_token(&mut self, gone: RemoteId) {
        if let Some(token) = gone.token_in_use() {
            note(&mut self.changes, EndpointEvent::TokenForgotten(token));
        }
    }

    /// Returns true if the peer has issued this connection ID and the ID is not retired.
    pub(crate) fn has_id(&self, id: ConnectionId) -> bool {
        self.ids.values().any(|other| other.id == id)
    }

    /// Returns the sequence number that the peer's next connection ID is expected to have.
    pub(crate) fn next_sequence(&self) -> u64 {
        let retired = self.retired.max().map_or(0, |last| last + 1);
        let last = self.ids.numbers().next_back().map_or(0, |last| last + 1);
        last.max(retired).max(self.retire_prior_to)
    }

    /// Takes the oldest change of reset tokens that was not yet reported to the endpoint, or
    /// returns `None`.
    pub(crate) fn poll_change(&mut self) -> Option<EndpointEvent> {
        self.changes.get_mut_if_allocated()?.pop_front()
    }

    /// Returns the connection ID to put into packets to the peer.
    pub(crate) fn current(&self) -> ConnectionId {
        self.ids.get(self.current).map_or(ConnectionId::EMPTY, |remote| remote.id)
    }

    /// Returns the connection ID with this sequence number. Returns `None` if the ID is retired or
    /// was never issued.
    pub(crate) fn get(&self, sequence: u64) -> Option<ConnectionId> {
        self.ids.get(sequence).map(|remote| remote.id)
    }

    /// Like [`RemoteIds::get`], for an ID to which a packet will be sent. From now on, accepts
    /// stateless resets with the ID's token.
    #[inline]
    pub(crate) fn take_into_use(&mut self, sequence: u64) -> Option<ConnectionId> {
        let remote = self.ids.get_mut(sequence)?;
        if !std::mem::replace(&mut remote.used, true)
            && let Some(token) = remote.token
        {
            note(&mut self.changes, EndpointEvent::TokenLearned(token));
        }
        Some(remote.id)
    }

    /// Returns true if the peer uses zero-length connection IDs.
    pub(crate) fn are_empty_ids(&self) -> bool {
        self.zero_length
    }

    /// Returns true if the peer has issued a connection ID that may be used.
    pub(crate) fn has_any(&self) -> bool {
        !self.ids.is_empty()
    }

    /// Returns the sequence numbers of all connection IDs that may be used, in ascending order.
    pub(crate) fn sequences(&self) -> impl Iterator<Item = u64> + '_ {
        self.ids.numbers()
    }

    /// Retires a connection ID that this end no longer uses (RFC 9000 s.5.1.2). The last ID is
    /// kept.
    pub(crate) fn retire(&mut self, sequence: u64) {
        if self.ids.len() > 1
            && let Some(gone) = self.ids.remove(sequence)
        {
            self.forget_token(gone);
            self.retired.insert_one(sequence);
            if self.retired.len() > RETIRED_RANGES {
                self.retired.pop_min();
            }
            if self.current == sequence {
                self.current = self.ids.numbers().next().unwrap_or(sequence);
            }
            // The limit on retirements is never exceeded here, because this end decides when to
            // retire an ID.
            let _ = self.owe(sequence);
        }
    }

    /// Adds the connection ID for a server's preferred address. It has sequence number 1 (RFC 9000
    /// s.5.1.1).
    pub(crate) fn add_preferred(&mut self, id: ConnectionId, token: ResetToken) {
        if !self.ids.contains(1) {
            self.ids.insert(1, RemoteId::given(id, token));
        }
    }

    /// Replaces the connection ID of the handshake by the one that the peer chose (RFC 9000 s.7.2).
    pub(crate) fn set_handshake_id(&mut self, id: ConnectionId) {
        self.zero_length = id.is_empty();
        self.ids.insert(0, RemoteId::of_handshake(id));
    }

    /// Sets the reset token of the handshake's connection ID: the server's transport parameter
    /// `stateless_reset_token`.
    pub(crate) fn set_handshake_token(&mut self, token: ResetToken) {
        if let Some(first) = self.ids.get_mut(0) {
            first.token = Some(token);
            note(&mut self.changes, EndpointEvent::TokenLearned(token));
        }
    }

    /// Returns true if `token` is the stateless reset token of a connection ID in use. In that case
    /// the peer has lost the connection's state (RFC 9000 s.10.3.1). The comparison takes the same
    /// time for every token.
    // RFC 9000 s.10.3.1 #2
    pub(crate) fn is_reset(&self, token: ResetToken) -> bool {
        let is_it = |remote: &RemoteId| remote.used & (remote.token == Some(token));
        self.ids.values().fold(false, |found, remote| found | is_it(remote))
    }

    /// Processes a NEW_CONNECTION_ID frame.
    ///
    /// # Errors
    /// Fails if the frame contradicts an earlier NEW_CONNECTION_ID frame or exceeds a limit.
    pub(crate) fn on_new(&mut self, new: NewId, retire_prior_to: u64) -> Result<(), Violation> {
        if self.zero_length {
            return Err(Violation::NewConnectionIdWithoutIds);
        }
        let NewId { sequence, id, token } = new;
        let known = self.ids.get(sequence);
        if known.is_some_and(|known| known.id != id || known.token.is_some_and(|t| t != token))
            || self.ids.iter().any(|(number, other)| other.id == id && number != sequence)
        {
            return Err(Violation::ConnectionIdReused);
        }
        if sequence < self.retire_prior_to {
            // RFC 9000 s.19.15 #8: the connection ID was retired before the frame that announces it
            // arrived.
            return self.owe(sequence);
        }
        // RFC 9000 s.19.15 #4
        if self.retired.contains(sequence) {
            // The frame is a repetition: the peer did not receive the acknowledgment of the first
            // one.
            return Ok(());
        }
        match self.ids.get_mut(sequence) {
            Some(known) if known.token.is_none() => {
                known.token = Some(token);
                if known.used {
                    note(&mut self.changes, EndpointEvent::TokenLearned(token));
                }
            }
            Some(_) => {}
            None => {
                self.ids.insert(sequence, RemoteId::given(id, token));
            }
        }
        // RFC 9000 s.5.1.2 #3, s.19.15 #7
        if retire_prior_to > self.retire_prior_to {
            self.retire_prior_to = retire_prior_to;
            let retired = self.ids.take_below(retire_prior_to);
            // Switch to another connection ID before any check can fail, because a CONNECTION_CLOSE
            // frame is then sent, and its packet needs a Destination Connection ID.
            if let Some(first) = self.ids.numbers().next()
                && !self.ids.contains(self.current)
            {
                self.current = first;
            }
            for (sequence, gone) in retired {
                self.forget_token(gone);
                self.owe(sequence)?;
            }
        }
        // RFC 9000 s.5.1.1 #5
        if self.ids.len() as u64 > self.limit {
            return Err(Violation::ConnectionIdLimit);
        }
        Ok(())
    }

    // RFC 9000 s.5.1.2 #6
    fn owe(&mut self, sequence: u64) -> Result<(), Violation> {
        if self.owed.insert(sequence, ()).is_none() {
            self.to_retire.insert(sequence, ());
        }
        if self.owed.len() > MAX_RETIRED {
            Err(Violation::UnacknowledgedRetirements)
        } else {
            Ok(())
        }
    }

    /// Releases unused memory.
    pub(crate) fn shrink(&mut self) {
        self.ids.shrink();
        if self.changes.is_empty() {
            self.changes = Changes::default();
        }
    }

    /// Returns the memory that the peer's connection IDs take, in bytes.
    pub(crate) fn memory(&self) -> usize {
        (self.ids.len() + self.to_retire.len() + self.owed.len()) * size_of::<NewId>()
    }

    /// Returns true if a RETIRE_CONNECTION_ID frame waits to be sent.
    pub(crate) fn has_news(&self) -> bool {
        !self.to_retire.is_empty()
    }

    /// Takes the sequence number for the next RETIRE_CONNECTION_ID frame.
    pub(crate) fn next_to_retire(&mut self) -> Option<u64> {
        self.to_retire.pop_first().map(|(sequence, ())| sequence)
    }

    /// Queues the RETIRE_CONNECTION_ID frame for this sequence number again, because it was lost.
    pub(crate) fn on_lost(&mut self, sequence: u64) {
        if self.owed.contains(sequence) {
            self.to_retire.insert(sequence, ());
        }
    }

    /// Forgets the RETIRE_CONNECTION_ID frame for this sequence number, because it was
    /// acknowledged.
    pub(crate) fn on_acked(&mut self, sequence: u64) {
        self.owed.remove(sequence);
        self.to_retire.remove(sequence);
    }
}

#[cfg(test)]
mod tests;
