//! The peer's connection IDs: in use, given back, and the tokens by which they reset (RFC 9000 s.5.1.1, s.5.1.2, s.10.3).

use equic_wire::{ConnectionId, ResetToken};

use super::{Changes, EndpointEvent, IdError, NewId, note};
use crate::numbered::Numbered;
use crate::ranges::RangeSet;

/// RETIRE_CONNECTION_ID frames that may wait for the network; a peer that makes us owe more closes the
/// connection (RFC 9000 s.5.1.2).
const MAX_RETIRED: usize = 32;

/// Ranges of retired IDs that are remembered, so that one told of again is not taken up again.
const RETIRED_RANGES: usize = 32;

/// An ID of the peer's.
#[derive(Debug, Clone, Copy)]
struct RemoteId {
    id: ConnectionId,
    token: Option<ResetToken>,
    /// A packet was sent to it. The token of another is not looked for (RFC 9000 s.10.3.1).
    used: bool,
}

impl RemoteId {
    /// That of the handshake, which is in use from the start.
    fn of_handshake(id: ConnectionId) -> RemoteId {
        RemoteId { id, token: None, used: true }
    }

    fn given(id: ConnectionId, token: ResetToken) -> RemoteId {
        RemoteId { id, token: Some(token), used: false }
    }

    /// The token that is looked for.
    fn token_in_use(&self) -> Option<ResetToken> {
        self.token.filter(|_| self.used)
    }
}

/// The IDs that we may put on packets to the peer.
#[derive(Debug)]
pub(crate) struct RemoteIds {
    ids: Numbered<RemoteId>,
    /// The one in use.
    current: u64,
    /// Those below were asked to be retired.
    retire_prior_to: u64,
    /// The peer uses IDs of no length.
    none: bool,
    /// Those we have used and given back.
    retired: RangeSet,
    /// Most of the peer's connection IDs that are kept at a time: our `active_connection_id_limit`.
    limit: u64,
    to_retire: Numbered<()>,
    /// RETIRE_CONNECTION_ID frames that are not acknowledged, waiting or in flight.
    owed: Numbered<()>,
    /// At most `MAX_CHANGES`.
    changes: Changes,
}

impl RemoteIds {
    /// With the one of the handshake; `limit` is our `active_connection_id_limit`.
    pub(crate) fn new(first: ConnectionId, limit: u64) -> RemoteIds {
        RemoteIds {
            ids: Numbered::with(0, RemoteId::of_handshake(first)),
            current: 0,
            retire_prior_to: 0,
            none: first.is_empty(),
            retired: RangeSet::new(),
            limit,
            to_retire: Numbered::default(),
            owed: Numbered::default(),
            changes: Changes::default(),
        }
    }

    /// For another path than that of the handshake: there is none yet; `limit` as for [`RemoteIds::new`].
    pub(crate) fn none(limit: u64) -> RemoteIds {
        RemoteIds {
            ids: Numbered::default(),
            none: false,
            ..RemoteIds::new(ConnectionId::EMPTY, limit)
        }
    }

    /// Their path is abandoned: none of them is used any more, and none is given back by a frame (RFC 10069 s.3.4).
    pub(crate) fn forget_all(&mut self) {
        for (_, gone) in self.ids.take_all() {
            self.forget_token(gone);
        }
        (self.to_retire, self.owed) = (Numbered::default(), Numbered::default());
    }

    /// The token of one that is gone is not looked for any more.
    fn forget_token(&mut self, gone: RemoteId) {
        if let Some(token) = gone.token_in_use() {
            note(&mut self.changes, EndpointEvent::TokenForgotten(token));
        }
    }

    /// True if one of them is this ID.
    pub(crate) fn has_id(&self, id: ConnectionId) -> bool {
        self.ids.values().any(|other| other.id == id)
    }

    /// The sequence number expected of the next that the peer gives out.
    pub(crate) fn next_sequence(&self) -> u64 {
        let retired = self.retired.max().map_or(0, |last| last + 1);
        let last = self.ids.numbers().next_back().map_or(0, |last| last + 1);
        last.max(retired).max(self.retire_prior_to)
    }

    /// The oldest change of reset tokens since the last call; none when all were told.
    pub(crate) fn poll_change(&mut self) -> Option<EndpointEvent> {
        self.changes.made()?.pop_front()
    }

    /// The ID to send to.
    pub(crate) fn current(&self) -> ConnectionId {
        self.ids.get(self.current).map_or(ConnectionId::EMPTY, |remote| remote.id)
    }

    /// The ID with this sequence number; none: it is retired, or was never given.
    pub(crate) fn get(&self, sequence: u64) -> Option<ConnectionId> {
        self.ids.get(sequence).map(|remote| remote.id)
    }

    /// As [`RemoteIds::get`], to send a packet to it: from now on its token is looked for.
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

    /// Returns true if the peer uses connection IDs of no length.
    pub(crate) fn are_empty_ids(&self) -> bool {
        self.none
    }

    /// True if there is one that may be used.
    pub(crate) fn are_there(&self) -> bool {
        !self.ids.is_empty()
    }

    /// The sequence numbers of all that may be used, from the lowest up.
    pub(crate) fn sequences(&self) -> impl Iterator<Item = u64> + '_ {
        self.ids.numbers()
    }

    /// We do not use this one any more (RFC 9000 s.5.1.2). The last is kept.
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
            // Ours to choose, so never too many.
            let _ = self.owe(sequence);
        }
    }

    /// The ID of a server's preferred address, whose sequence number is 1 (RFC 9000 s.5.1.1).
    pub(crate) fn add_preferred(&mut self, id: ConnectionId, token: ResetToken) {
        if !self.ids.contains(1) {
            self.ids.insert(1, RemoteId::given(id, token));
        }
    }

    /// The peer chose another for the handshake (RFC 9000 s.7.2).
    pub(crate) fn set_handshake_id(&mut self, id: ConnectionId) {
        self.none = id.is_empty();
        self.ids.insert(0, RemoteId::of_handshake(id));
    }

    /// The server's transport parameter `stateless_reset_token`.
    pub(crate) fn set_handshake_token(&mut self, token: ResetToken) {
        if let Some(first) = self.ids.get_mut(0) {
            first.token = Some(token);
            note(&mut self.changes, EndpointEvent::TokenLearned(token));
        }
    }

    /// True if `token` is the stateless reset token of an ID in use: the peer has lost the connection
    /// (RFC 9000 s.10.3.1). Takes the same time for every token.
    pub(crate) fn is_reset(&self, token: ResetToken) -> bool {
        let is_it = |remote: &RemoteId| remote.used & (remote.token == Some(token));
        self.ids.values().fold(false, |found, remote| found | is_it(remote))
    }

    /// NEW_CONNECTION_ID came.
    ///
    /// # Errors
    /// [`IdError`].
    pub(crate) fn on_new(&mut self, new: NewId, retire_prior_to: u64) -> Result<(), IdError> {
        if self.none {
            // RFC 9000 s.19.15.
            return Err(IdError::Violation);
        }
        let NewId { sequence, id, token } = new;
        let known = self.ids.get(sequence);
        if known.is_some_and(|known| known.id != id || known.token.is_some_and(|t| t != token))
            || self.ids.iter().any(|(number, other)| other.id == id && number != sequence)
        {
            return Err(IdError::Violation);
        }
        if sequence < self.retire_prior_to {
            // RFC 9000 s.19.15: retired before it came.
            return self.owe(sequence);
        }
        if self.retired.contains(sequence) {
            // Told again because the network has lost our acknowledgement.
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
        if retire_prior_to > self.retire_prior_to {
            self.retire_prior_to = retire_prior_to;
            let retired = self.ids.take_below(retire_prior_to);
            // Before anything fails: there must be an ID to tell the peer of the failure.
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
        if self.ids.len() as u64 > self.limit {
            return Err(IdError::Limit);
        }
        Ok(())
    }

    fn owe(&mut self, sequence: u64) -> Result<(), IdError> {
        if self.owed.insert(sequence, ()).is_none() {
            self.to_retire.insert(sequence, ());
        }
        if self.owed.len() > MAX_RETIRED { Err(IdError::Limit) } else { Ok(()) }
    }

    /// Gives back memory that nothing is in.
    pub(crate) fn rest(&mut self) {
        self.ids.rest();
        if self.changes.is_empty() {
            self.changes = Changes::default();
        }
    }

    /// Bytes of memory it holds.
    pub(crate) fn memory(&self) -> usize {
        (self.ids.len() + self.to_retire.len() + self.owed.len()) * size_of::<NewId>()
    }

    /// True if there is a RETIRE_CONNECTION_ID frame to send.
    pub(crate) fn has_news(&self) -> bool {
        !self.to_retire.is_empty()
    }

    /// The next sequence number for a RETIRE_CONNECTION_ID frame; it counts as sent.
    pub(crate) fn next_to_retire(&mut self) -> Option<u64> {
        self.to_retire.pop_first().map(|(sequence, ())| sequence)
    }

    /// The frame was lost.
    pub(crate) fn on_lost(&mut self, sequence: u64) {
        if self.owed.contains(sequence) {
            self.to_retire.insert(sequence, ());
        }
    }

    /// The peer has the frame.
    pub(crate) fn on_acked(&mut self, sequence: u64) {
        self.owed.remove(sequence);
        self.to_retire.remove(sequence);
    }
}

#[cfg(test)]
mod tests;
