//! Makes connection IDs and their stateless reset tokens.

use std::sync::Arc;

use equic_wire::{ConnectionId, ResetToken};
use rand::RngCore;
use rustls::crypto::tls13::{Hkdf, OkmBlock};
use rustls::quic::Suite;
use zeroize::Zeroizing;

/// Bytes of the connection IDs of [`RandomIds`] unless told: with a packet number of two bytes, as most peers send it, a short header
/// has 16, a whole block of AES-GCM's hash.
pub(crate) const ID_LEN: usize = 13;
const _: () = assert!(1 + ID_LEN + 2 == 16);

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

/// IDs of random bytes: 13 unless told.
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
    key: Zeroizing<[u8; RESET_KEY_LEN]>,
}

impl ResetKey {
    /// `key` is secret and random; `suite` gives HMAC.
    pub(crate) fn new(suite: &Suite, key: impl Into<Zeroizing<[u8; RESET_KEY_LEN]>>) -> ResetKey {
        ResetKey { hkdf: suite.suite.hkdf_provider, key: key.into() }
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

    /// A number derived from the key, for another purpose than tokens. The label is longer than any ID.
    pub(crate) fn number(&self, label: &[u8]) -> u64 {
        debug_assert!(label.len() > ConnectionId::MAX_LEN, "no token of an ID comes out");
        self.sum(label).first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
    }

    fn sum(&self, message: &[u8]) -> BlindToken {
        let tag = self.hkdf.hmac_sign(&OkmBlock::new(&*self.key), message);
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
        let mut key = Zeroizing::new([0; RESET_KEY_LEN]);
        rng.fill_bytes(&mut *key);
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
