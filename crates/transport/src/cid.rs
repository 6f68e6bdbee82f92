//! Connection IDs: those we gave out and those the peer gave us (RFC 9000 s.5.1).
//!
//! [`IdSource`] makes ours: a [`ConnectionIdGenerator`] the IDs, a [`ResetKey`] their stateless
//! reset tokens. [`EndpointEvent`] is what an endpoint has to know of a connection's IDs.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use equic_wire::{ConnectionId, ResetToken};
use rand::RngCore;
use rustls::crypto::tls13::{Hkdf, OkmBlock};
use rustls::quic::Suite;

use crate::Timestamp;
use crate::numbered::Numbered;
use crate::ranges::RangeSet;
use crate::rested::Seldom;

/// Bytes of the connection IDs of [`RandomIds`] unless told.
pub(crate) const ID_LEN: usize = 8;

/// Makes the connection IDs of an endpoint, for routing by what is in them.
pub trait ConnectionIdGenerator: Send + Sync {
    /// An ID that was never given out before, of [`ConnectionIdGenerator::id_len`] bytes. Whoever
    /// watches the path must not be able to tell which of them belong together (RFC 9000 s.5.1).
    fn generate(&self, rng: &mut dyn RngCore) -> ConnectionId;

    /// Bytes of every ID: 1 to 20, always the same, for a short header carries no length.
    fn id_len(&self) -> usize;

    /// Stateless reset token of an ID (RFC 9000 s.10.3.2), where somebody else may have to send the reset, such as
    /// a gateway when this process is dead. None, for IDs that this generator does not make too: the endpoint makes
    /// the token with a key of its own.
    fn reset_token(&self, _id: ConnectionId) -> Option<ResetToken> {
        None
    }

    /// A number that changes when the IDs given out so far are to be replaced, as when keys are rotated that they
    /// were made with ([`Connection::replace_connection_ids`](crate::Connection::replace_connection_ids)). None:
    /// that never happens.
    fn generation(&self) -> Option<u64> {
        None
    }
}

/// IDs of random bytes.
#[derive(Debug, Clone, Copy)]
pub struct RandomIds {
    len: usize,
}

impl RandomIds {
    /// IDs of so many bytes; taken to lie between 1 and 20.
    pub fn new(len: usize) -> RandomIds {
        RandomIds { len: len.clamp(1, ConnectionId::MAX_LEN) }
    }
}

impl Default for RandomIds {
    fn default() -> RandomIds {
        RandomIds::new(ID_LEN)
    }
}

impl ConnectionIdGenerator for RandomIds {
    fn generate(&self, rng: &mut dyn RngCore) -> ConnectionId {
        let mut bytes = [0; ConnectionId::MAX_LEN];
        let bytes = bytes.get_mut(..self.len).unwrap_or_default();
        rng.fill_bytes(bytes);
        ConnectionId::cut(bytes)
    }

    fn id_len(&self) -> usize {
        self.len
    }
}

/// Bytes of a [`ResetKey`].
pub(crate) const RESET_KEY_LEN: usize = 32;

/// Makes stateless reset tokens of IDs, so that they are known without being kept
/// (RFC 9000 s.10.3.2).
#[derive(Clone)]
pub(crate) struct ResetKey {
    hkdf: &'static dyn Hkdf,
    key: [u8; RESET_KEY_LEN],
}

impl ResetKey {
    /// `key` is secret and random; `suite` gives HMAC.
    pub(crate) fn new(suite: &Suite, key: [u8; RESET_KEY_LEN]) -> ResetKey {
        ResetKey { hkdf: suite.suite.hkdf_provider, key }
    }

    /// The token of an ID.
    pub(crate) fn token(&self, id: ConnectionId) -> ResetToken {
        let mut token = [0; ResetToken::LEN];
        let sum = self.sum(id.as_bytes());
        token.iter_mut().zip(sum).for_each(|(token, byte)| *token = byte);
        ResetToken(token)
    }

    /// A token of the peer in a form that can be looked up: how long that takes tells nothing of it
    /// (RFC 9000 s.10.3.1).
    pub(crate) fn blind(&self, token: ResetToken) -> BlindToken {
        // Longer than any ID, so that no ID's token comes out.
        let mut message = [0; ResetToken::LEN + ConnectionId::MAX_LEN];
        message.iter_mut().zip(token.0).for_each(|(byte, token)| *byte = token);
        self.sum(&message)
    }

    fn sum(&self, message: &[u8]) -> BlindToken {
        let tag = self.hkdf.hmac_sign(&OkmBlock::new(&self.key), message);
        let mut sum = BlindToken::default();
        sum.iter_mut().zip(tag.as_ref()).for_each(|(sum, byte)| *sum = *byte);
        sum
    }
}

/// See [`ResetKey::blind`].
pub(crate) type BlindToken = [u8; 32];

/// Makes connection IDs and their tokens; clones are the same source.
#[derive(Clone)]
pub(crate) struct IdSource(Arc<Parts>);

struct Parts {
    generator: Arc<dyn ConnectionIdGenerator>,
    reset: ResetKey,
}

impl IdSource {
    /// Makes a source of connection IDs from a generator and the key of stateless reset tokens.
    pub(crate) fn new(generator: Arc<dyn ConnectionIdGenerator>, reset: ResetKey) -> IdSource {
        IdSource(Arc::new(Parts { generator, reset }))
    }

    /// Random IDs, and tokens of a random key.
    pub(crate) fn random(suite: &Suite, rng: &mut dyn RngCore) -> IdSource {
        let mut key = [0; RESET_KEY_LEN];
        rng.fill_bytes(&mut key);
        IdSource::new(Arc::new(RandomIds::default()), ResetKey::new(suite, key))
    }

    /// A new ID.
    pub(crate) fn generate(&self, rng: &mut dyn RngCore) -> ConnectionId {
        self.0.generator.generate(rng)
    }

    /// Bytes of every ID.
    pub(crate) fn id_len(&self) -> usize {
        self.0.generator.id_len()
    }

    /// The stateless reset token of one of our IDs.
    pub(crate) fn token(&self, id: ConnectionId) -> ResetToken {
        self.0.generator.reset_token(id).unwrap_or_else(|| self.0.reset.token(id))
    }

    /// See [`ConnectionIdGenerator::generation`].
    pub(crate) fn generation(&self) -> Option<u64> {
        self.0.generator.generation()
    }

    /// Key that stateless reset tokens are derived from, unless the generator makes them.
    pub(crate) fn reset_key(&self) -> &ResetKey {
        &self.0.reset
    }
}

/// Change of connection IDs or reset tokens, by which an endpoint routes datagrams to a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndpointEvent {
    /// Packets may carry this ID.
    Issued(ConnectionId),
    /// Packets may not carry this ID any more.
    Retired(ConnectionId),
    /// A datagram that belongs to nobody and ends with this resets the connection.
    TokenLearned(ResetToken),
    /// A datagram that ends with this token does not reset the connection any more.
    TokenForgotten(ResetToken),
}

/// RETIRE_CONNECTION_ID frames that may wait for the network; a peer that makes us owe more closes the
/// connection (RFC 9000 s.5.1.2).
const MAX_RETIRED: usize = 32;

/// Ranges of retired IDs that are remembered, so that one told of again is not taken up again.
const RETIRED_RANGES: usize = 32;

/// IDs that the peer has retired which still name the connection: more than it moves between within a round trip.
const PARTED: usize = 4;

/// So long after the last was retired packets to it may still be under way: some round trips.
const PARTED_FOR: Duration = Duration::from_secs(3);

/// Changes that wait for an endpoint: seldom any.
pub(crate) type Changes = Seldom<VecDeque<EndpointEvent>>;

/// Changes that wait for an endpoint; each turn of it leaves a few. Where there is none to ask for
/// them the oldest go.
const MAX_CHANGES: usize = 256;

pub(crate) fn note(changes: &mut Changes, change: EndpointEvent) {
    if changes.len() == MAX_CHANGES {
        changes.pop_front();
    }
    changes.push_back(change);
}

/// Error of the peer in its use of connection IDs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IdError {
    /// More than we keep: CONNECTION_ID_LIMIT_ERROR.
    Limit,
    /// The peer's frame contradicts an earlier one or the connection's state: PROTOCOL_VIOLATION.
    Violation,
}

/// The IDs that the peer may put on packets to us.
#[derive(Debug)]
pub(crate) struct LocalIds {
    active: Numbered<ConnectionId>,
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

/// An ID to tell the peer of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NewId {
    /// Its sequence number.
    pub sequence: u64,
    /// The ID.
    pub id: ConnectionId,
    /// For a stateless reset.
    pub token: ResetToken,
}

impl LocalIds {
    /// With the one of the handshake.
    pub(crate) fn new(first: ConnectionId) -> LocalIds {
        LocalIds {
            active: Numbered::with(0, first),
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
        for (_, id) in self.active.take_all() {
            note(&mut self.changes, EndpointEvent::Retired(id));
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
        self.active.insert(self.next, id);
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
        let (id, token) = (self.active.get(sequence)?, self.tokens.get(sequence)?);
        Some(NewId { sequence, id: *id, token: *token })
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
        if sequence >= self.next || self.active.get(sequence) == Some(&used) {
            return Err(IdError::Violation);
        }
        self.to_tell.remove(sequence);
        self.tokens.remove(sequence);
        let gone = self.active.remove(sequence);
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
        let (id, token) = (self.active.get(sequence)?, self.tokens.get(sequence)?);
        Some(NewId { sequence, id: *id, token: *token })
    }

    /// True if packets with this connection ID are for this connection.
    pub(crate) fn contains(&self, id: ConnectionId) -> bool {
        self.active.values().any(|active| *active == id) || self.parted.contains(&id)
    }

    /// As [`LocalIds::contains`], of an ID as it stands in a packet.
    #[inline]
    pub(crate) fn contains_bytes(&self, id: &[u8]) -> bool {
        self.active.values().any(|active| active.is(id))
            || self.parted.iter().any(|parted| parted.is(id))
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
        self.active.values().chain(self.parted.iter()).copied()
    }
}

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
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::START;

    fn id(number: u64) -> ConnectionId {
        ConnectionId::new(&number.to_be_bytes()).unwrap()
    }

    fn new(sequence: u64) -> NewId {
        NewId { sequence, id: id(sequence), token: ResetToken([sequence as u8; 16]) }
    }

    #[test]
    fn the_peer_asks_for_another() {
        let mut remote = RemoteIds::new(id(0), 3);
        remote.on_new(new(1), 0).unwrap();
        assert_eq!(remote.current(), id(0));
        remote.on_new(new(2), 1).unwrap();
        assert_eq!((remote.current(), remote.next_to_retire()), (id(1), Some(0)));
        remote.on_lost(0);
        assert_eq!(remote.next_to_retire(), Some(0));
        remote.on_acked(0);
        remote.on_lost(0);
        assert!(!remote.has_news());
        // The same again does no harm; late ones are retired at once.
        remote.on_new(new(2), 1).unwrap();
        assert!(!remote.is_reset(ResetToken([2; 16])), "nothing was sent to it");
        assert_eq!(remote.take_into_use(2), Some(id(2)));
        assert!(remote.is_reset(ResetToken([2; 16])) && !remote.is_reset(ResetToken([9; 16])));
    }

    #[test]
    fn what_an_endpoint_has_to_know() {
        let mut remote = RemoteIds::new(id(0), 3);
        remote.set_handshake_token(new(0).token);
        remote.on_new(new(1), 0).unwrap();
        remote.on_new(new(1), 0).unwrap();
        remote.on_new(new(2), 1).unwrap();
        assert_eq!((remote.take_into_use(1), remote.take_into_use(1)), (Some(id(1)), Some(id(1))));
        remote.retire(2);
        let changes: Vec<EndpointEvent> = std::iter::from_fn(|| remote.poll_change()).collect();
        let token = |sequence| new(sequence).token;
        // Of an ID that nothing was sent to nobody has to know.
        assert_eq!(
            changes,
            [
                EndpointEvent::TokenLearned(token(0)),
                EndpointEvent::TokenForgotten(token(0)),
                EndpointEvent::TokenLearned(token(1)),
            ]
        );
        let mut local = LocalIds::new(id(0));
        local.issue(id(1), token(1));
        local.on_retire(NOW, 0, id(1)).unwrap();
        local.on_retire(NOW, 0, id(1)).unwrap();
        let changes: Vec<EndpointEvent> = std::iter::from_fn(|| local.poll_change()).collect();
        assert_eq!(
            changes,
            [EndpointEvent::Issued(id(1))],
            "packets may be under way to the other"
        );
        local.rest(NOW + PARTED_FOR / 2);
        assert_eq!(local.poll_change(), None);
        local.rest(NOW + PARTED_FOR);
        assert_eq!(
            (local.poll_change(), local.contains(id(0))),
            (Some(EndpointEvent::Retired(id(0))), false)
        );
    }

    #[test]
    fn tokens_belong_to_ids_and_keys() {
        let suite =
            rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256.tls13().unwrap();
        let suite = suite.quic_suite().unwrap();
        let (key, other) = (ResetKey::new(&suite, [1; 32]), ResetKey::new(&suite, [2; 32]));
        assert_eq!(key.token(id(1)), key.token(id(1)));
        assert_ne!(key.token(id(1)), key.token(id(2)));
        assert_ne!(key.token(id(1)), other.token(id(1)));
        assert_ne!(key.blind(new(1).token), key.blind(new(2).token));
        let mut rng: rand::rngs::StdRng = rand::SeedableRng::seed_from_u64(1);
        assert_eq!(RandomIds::new(0).generate(&mut rng).len(), 1);
        assert_eq!(RandomIds::new(99).generate(&mut rng).len(), 20);
    }

    #[test]
    fn limits_and_lies() {
        let mut remote = RemoteIds::new(id(0), 2);
        remote.on_new(new(1), 0).unwrap();
        assert_eq!(remote.on_new(new(2), 0), Err(IdError::Limit));
        let mut remote = RemoteIds::new(id(0), 2);
        remote.on_new(new(1), 0).unwrap();
        let other = NewId { id: id(7), ..new(1) };
        assert_eq!(remote.on_new(other, 0), Err(IdError::Violation), "another ID");
        let token = NewId { token: ResetToken([7; 16]), ..new(1) };
        assert_eq!(remote.on_new(token, 0), Err(IdError::Violation), "another token");
        let twice = NewId { id: id(1), ..new(2) };
        assert_eq!(remote.on_new(twice, 0), Err(IdError::Violation), "the same ID twice");
        let mut none = RemoteIds::new(ConnectionId::EMPTY, 2);
        assert_eq!(none.on_new(new(1), 0), Err(IdError::Violation), "we use none");
    }

    #[test]
    fn churn_is_bounded() {
        let mut remote = RemoteIds::new(id(0), 2);
        let refused = (1..1000).find(|sequence| remote.on_new(new(*sequence), *sequence).is_err());
        assert!(refused.is_some_and(|sequence| sequence <= MAX_RETIRED as u64 + 2), "{refused:?}");
        assert!(remote.ids.len() <= 3 && remote.owed.len() <= MAX_RETIRED + 1);
        assert!(!remote.current().is_empty(), "there is one to send CONNECTION_CLOSE to");
    }

    #[test]
    fn ours_are_told_and_retired() {
        let mut local = LocalIds::new(id(0));
        assert!(!local.wants_more());
        local.set_limit(8, 2);
        assert!(local.wants_more());
        local.issue(id(1), ResetToken([1; 16]));
        assert!(!local.wants_more());
        assert_eq!((local.next_to_tell(), local.next_to_tell()), (Some(new(1)), None));
        local.on_lost(1);
        assert_eq!(local.next_to_tell(), Some(new(1)));
        assert_eq!(local.on_retire(NOW, 0, id(0)), Err(IdError::Violation));
        assert_eq!(local.on_retire(NOW, 9, id(0)), Err(IdError::Violation));
        assert_eq!(local.on_retire(NOW, 0, id(1)), Ok(Some(id(0))));
        assert_eq!(local.on_retire(NOW, 0, id(1)), Ok(None), "again");
        assert!(local.wants_more() && local.contains(id(1)));
    }

    #[test]
    fn the_last_that_were_retired_still_name_the_connection() {
        let mut local = LocalIds::new(id(0));
        local.set_limit(2, 2);
        for next in 1..20 {
            local.issue(id(next), new(next).token);
            assert_eq!(local.on_retire(NOW, next - 1, id(next)), Ok(Some(id(next - 1))));
            let parted = next.saturating_sub(PARTED as u64);
            assert!((0..=next).all(|old| local.contains(id(old)) == (old >= parted)), "{next}");
            assert!(
                local.contains_bytes(id(parted).as_bytes()) && local.iter().count() <= PARTED + 1
            );
            assert_eq!(local.poll_change(), Some(EndpointEvent::Issued(id(next))));
            let gone = parted.checked_sub(1).map(|gone| EndpointEvent::Retired(id(gone)));
            assert_eq!(local.poll_change(), gone);
        }
        local.retire_for_good();
        assert_eq!(std::iter::from_fn(|| local.poll_change()).count(), PARTED + 1);
        assert_eq!(local.iter().count(), 0);
    }

    #[test]
    fn ours_are_replaced_one_set_at_a_time() {
        let mut local = LocalIds::new(id(0));
        local.set_limit(2, 8);
        local.issue(id(1), new(1).token);
        assert!(!local.wants_more());
        assert!(local.retire_all());
        for sequence in [2, 3] {
            assert!(local.wants_more());
            local.issue(id(sequence), new(sequence).token);
        }
        assert!(!local.wants_more(), "as many as the peer keeps, beside those that it retires");
        let told = std::iter::from_fn(|| local.next_to_tell().map(|new| new.sequence));
        assert_eq!(told.collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!([1, 2, 3].map(|sequence| local.retire_prior_to(sequence)), [1, 2, 2]);
        assert!(local.contains(id(0)), "packets may be under way to it");
        assert!(local.retire_all(), "the peer may owe one set");
        for sequence in [4, 5] {
            local.issue(id(sequence), new(sequence).token);
        }
        assert!(!local.wants_more());
        assert!(!local.retire_all(), "and not two");
        assert_eq!(local.active.len(), 6);
        for sequence in [0, 1] {
            assert_eq!(local.on_retire(NOW, sequence, id(4)), Ok(Some(id(sequence))));
        }
        assert!(local.retire_all() && local.wants_more());
    }

    /// Both ends: the peer goes on with an ID of the new set, and never has more than it keeps.
    #[test]
    fn a_peer_takes_up_what_replaces_its_ids() {
        let (mut local, mut remote) = (LocalIds::new(id(0)), RemoteIds::new(id(0), 3));
        local.set_limit(3, 8);
        for _ in 0..20 {
            while local.wants_more() {
                let next = local.next;
                local.issue(id(next), new(next).token);
            }
            while let Some(told) = local.next_to_tell() {
                let prior = local.retire_prior_to(told.sequence);
                remote.on_new(told, prior).unwrap();
            }
            assert!(
                local
                    .active
                    .iter()
                    .any(|(number, id)| number >= local.retire_prior_to && *id == remote.current())
            );
            while let Some(sequence) = remote.next_to_retire() {
                local.on_retire(NOW, sequence, remote.current()).unwrap();
                remote.on_acked(sequence);
            }
            assert_eq!(local.active.len(), 3);
            assert!(local.retire_all());
        }
    }
}
