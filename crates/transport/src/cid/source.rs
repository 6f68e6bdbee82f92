//! Generates connection IDs and their stateless reset tokens.

use std::sync::Arc;

use equic_wire::{ConnectionId, ResetToken};
use rand::RngCore;
use rustls::crypto::tls13::{Hkdf, OkmBlock};
use rustls::quic::Suite;
use zeroize::Zeroizing;

/// Default length of the connection IDs of [`RandomIds`], in bytes. Most peers send packet numbers
/// of two bytes. A short header with such an ID then has 16 bytes, which is one block of the hash
/// in AES-GCM.
pub(crate) const ID_LEN: usize = 13;
const _: () = assert!(1 + ID_LEN + 2 == 16);

/// Generates the connection IDs of an endpoint. A custom generator lets other devices route packets
/// by the content of the ID.
pub trait ConnectionIdGenerator: Send + Sync {
    /// Returns a new connection ID of [`ConnectionIdGenerator::id_len`] bytes. An observer must not
    /// be able to correlate the IDs of a connection (RFC 9000 s.5.1 #1 #2).
    // RFC 9000 s.10.3.2 #3 #4
    fn generate(&self, rng: &mut dyn RngCore) -> ConnectionId;

    /// Returns the length of every connection ID in bytes, 1 to 20. The length is constant, because
    /// a short header does not contain it.
    fn id_len(&self) -> usize;

    /// Returns the stateless reset token of a connection ID (RFC 9000 s.10.3.2).
    ///
    /// Implement this if another device may send the stateless reset, for example a gateway after
    /// this process has ended. If the result is `None`, the endpoint derives the token from its own
    /// key. The result must be `None` for an ID of another generator.
    fn reset_token(&self, _id: ConnectionId) -> Option<ResetToken> {
        None
    }

    /// Returns a number that changes when the connection IDs that were issued must be replaced, for
    /// example because their keys were rotated
    /// ([`Connection::replace_connection_ids`](crate::Connection::replace_connection_ids)). Returns
    /// `None` if IDs never need to be replaced.
    fn generation(&self) -> Option<u64> {
        None
    }
}

/// Generates connection IDs of random bytes. The default length is 13 bytes.
#[derive(Debug, Clone, Copy)]
pub struct RandomIds {
    len: usize,
}

impl RandomIds {
    /// Creates a generator of connection IDs of `len` bytes. A length outside 1 to 20 is replaced
    /// by the nearest limit.
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

/// Length of the key of a [`ResetKey`], in bytes.
pub(crate) const RESET_KEY_LEN: usize = 32;

/// Derives stateless reset tokens from connection IDs, so that the tokens need not be stored (RFC
/// 9000 s.10.3.2).
#[derive(Clone)]
pub(crate) struct ResetKey {
    hkdf: &'static dyn Hkdf,
    key: Zeroizing<[u8; RESET_KEY_LEN]>,
}

impl ResetKey {
    /// Creates a key from the bytes `key`, which must be secret and random. `suite` provides HMAC.
    pub(crate) fn new(suite: &Suite, key: impl Into<Zeroizing<[u8; RESET_KEY_LEN]>>) -> ResetKey {
        ResetKey { hkdf: suite.suite.hkdf_provider, key: key.into() }
    }

    // RFC 9000 s.10.3.2 #1 #5
    /// Returns the stateless reset token of a connection ID.
    pub(crate) fn token(&self, id: ConnectionId) -> ResetToken {
        let mut token = [0; ResetToken::LEN];
        let sum = self.sum(id.as_bytes());
        token.iter_mut().zip(sum).for_each(|(token, byte)| *token = byte);
        ResetToken(token)
    }

    /// Returns the form of a peer's reset token in which it is stored and looked up. The duration
    /// of a lookup then reveals nothing about the token itself (RFC 9000 s.10.3.1 #3).
    pub(crate) fn blind(&self, token: ResetToken) -> BlindToken {
        // The HMAC input is longer than any connection ID, so the result is never the reset token
        // of an ID.
        let mut message = [0; ResetToken::LEN + ConnectionId::MAX_LEN];
        message.iter_mut().zip(token.0).for_each(|(byte, token)| *byte = token);
        self.sum(&message)
    }

    /// Returns a number that is derived from this key and `label`. Use it for a purpose other than
    /// reset tokens. `label` must be longer than any connection ID.
    pub(crate) fn number(&self, label: &[u8]) -> u64 {
        debug_assert!(
            label.len() > ConnectionId::MAX_LEN,
            "the label must be longer than any connection ID"
        );
        self.sum(label).first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
    }

    fn sum(&self, message: &[u8]) -> BlindToken {
        let tag = self.hkdf.hmac_sign(&OkmBlock::new(&*self.key), message);
        let mut sum = BlindToken::default();
        sum.iter_mut().zip(tag.as_ref()).for_each(|(sum, byte)| *sum = *byte);
        sum
    }
}

/// A reset token in the form that is stored and looked up: see [`ResetKey::blind`].
pub(crate) type BlindToken = [u8; 32];

/// Generates connection IDs and their reset tokens. Clones share the generator and the key.
#[derive(Clone)]
pub(crate) struct IdSource(Arc<Parts>);

struct Parts {
    generator: Arc<dyn ConnectionIdGenerator>,
    reset: ResetKey,
}

impl IdSource {
    /// Creates a source from a generator and the key of stateless reset tokens.
    pub(crate) fn new(generator: Arc<dyn ConnectionIdGenerator>, reset: ResetKey) -> IdSource {
        IdSource(Arc::new(Parts { generator, reset }))
    }

    /// Creates a source of random IDs with a random reset key.
    pub(crate) fn random(suite: &Suite, rng: &mut dyn RngCore) -> IdSource {
        let mut key = Zeroizing::new([0; RESET_KEY_LEN]);
        rng.fill_bytes(&mut *key);
        IdSource::new(Arc::new(RandomIds::default()), ResetKey::new(suite, key))
    }

    /// Generates a connection ID.
    pub(crate) fn generate(&self, rng: &mut dyn RngCore) -> ConnectionId {
        self.0.generator.generate(rng)
    }

    /// Returns the length of every generated connection ID, in bytes.
    pub(crate) fn id_len(&self) -> usize {
        self.0.generator.id_len()
    }

    /// Returns the stateless reset token of a connection ID that this end has issued.
    pub(crate) fn token(&self, id: ConnectionId) -> ResetToken {
        self.0.generator.reset_token(id).unwrap_or_else(|| self.0.reset.token(id))
    }

    /// Returns the current generation of the connection IDs: see
    /// [`ConnectionIdGenerator::generation`].
    pub(crate) fn generation(&self) -> Option<u64> {
        self.0.generator.generation()
    }

    /// Returns the key that derives the reset tokens which the generator does not provide.
    pub(crate) fn reset_key(&self) -> &ResetKey {
        &self.0.reset
    }
}
