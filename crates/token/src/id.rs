//! Verifiable connection IDs (`docs/retry.md` s.4): QUIC-LB's first byte, a server ID in clear or
//! encrypted, a nonce, and a check of four bytes that only a holder of the ring can make.

use std::sync::{Arc, PoisonError, RwLock};

use equic_wire::ConnectionId;

use crate::nonce::Nonces;
use crate::ring::{Epoch, Key, KeyRing, RingError};
use crate::token::MIN_ID;

const CHECK: usize = 4;
const MIN_NONCE: usize = 3;
const MAX_SERVER: usize = 8;
/// Length of a stateless reset token in bytes (RFC 9000 s.10.3).
const RESET_TOKEN: usize = 16;
/// Prefixes of the hash inputs for the halves of a stateless reset token.
const RESET_LABELS: [&[u8; 8]; 2] = [b"reset 1\0", b"reset 2\0"];
/// Maximum length of the hash input: a label, an ID with its length, and the name of a service.
const RESET_MESSAGE: usize = 32 + SERVICE_NAME;
const SERVICE_NAME: usize = 32;
/// Prefix of the hash input for the mask of a hidden server ID.
const MASK_LABEL: &[u8; 8] = b"server\0\0";
/// Length of the hash input for the mask. No other hash input under the same key has this length.
const MASK_MESSAGE: usize = 24;

/// Length of a service's IDs, and of the server ID in them. All servers of a service and its
/// gateway need the same format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct IdFormat {
    len: u8,
    server_id: u8,
    /// Number of bytes at the end of the server ID that are encrypted.
    hidden: u8,
}

/// Reason that a connection ID is invalid, or that none can be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum IdError {
    /// These lengths are not possible.
    #[error(
        "IDs have 8 to 20 bytes: one, a server ID of at most 8, a nonce of at least 3, and a check of 4"
    )]
    Format,
    /// The length or the first byte does not match the service's IDs.
    #[error("the connection ID does not have the format of this service")]
    Malformed,
    /// The ring does not have its key: it is from before a restart, or was rotated out.
    #[error("unknown key for this connection ID: it was never loaded, or it was rotated out")]
    UnknownEpoch,
    /// The ID was not made with this ring.
    #[error("the connection ID was not made by a server of this service")]
    Forged,
    /// The system provided no random numbers.
    #[error("the system provided no random numbers")]
    Random,
}

/// Content of a valid connection ID.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProvenId {
    /// Epoch of the key with which it was made.
    pub epoch: Epoch,
    /// The server that made it: the first bytes, as many as the format has. Hidden bytes are
    /// decrypted.
    pub server_id: [u8; MAX_SERVER],
}

impl IdFormat {
    /// Returns the format of IDs of `len` bytes, 8 to 20, with a server ID of `server_id` bytes, 0
    /// to 8. At least three bytes must remain for the nonce. With n nonce bytes, a server can make
    /// 256^n IDs before a nonce repeats.
    ///
    /// # Errors
    /// [`IdError::Format`].
    pub fn new(len: usize, server_id: usize) -> Result<IdFormat, IdError> {
        let holds = (MIN_ID..=ConnectionId::MAX_LEN).contains(&len)
            && server_id <= MAX_SERVER
            && 1 + server_id + MIN_NONCE + CHECK <= len;
        // Both fit into a byte, as just checked.
        if holds {
            Ok(IdFormat { len: len as u8, server_id: server_id as u8, hidden: 0 })
        } else {
            Err(IdError::Format)
        }
    }

    /// Returns the same format with the last `bytes` bytes of the server ID encrypted, so that an
    /// observer cannot use them to link IDs (RFC 9000 s.9.5). A load balancer that routes by these
    /// bytes needs the ring. Behind eQUIC's gateway, the first byte of the server ID must stay in
    /// clear: the gateway sends stateless resets for IDs whose first byte is the slot of a dead
    /// server.
    ///
    /// # Errors
    /// [`IdError::Format`] if the server ID has fewer bytes.
    pub fn hiding(self, bytes: usize) -> Result<IdFormat, IdError> {
        match u8::try_from(bytes) {
            Ok(hidden) if hidden <= self.server_id => Ok(IdFormat { hidden, ..self }),
            _ => Err(IdError::Format),
        }
    }

    /// Encrypts or decrypts the hidden bytes of a server ID. The mask is derived from the nonce, so
    /// that it differs in each ID.
    fn mask(self, key: &Key, server_id: &mut [u8], nonce: &[u8]) {
        if self.hidden == 0 {
            return;
        }
        let mut message = [0; MASK_MESSAGE];
        message[..8].copy_from_slice(MASK_LABEL);
        message[8..8 + nonce.len()].copy_from_slice(nonce);
        message[MASK_MESSAGE - 1] = self.len;
        let mask = key.hash(&message).to_le_bytes();
        let shown = self.server_id_len() - usize::from(self.hidden);
        server_id[shown..].iter_mut().zip(mask).for_each(|(byte, mask)| *byte ^= mask);
    }

    /// Returns the length of every ID in bytes.
    pub fn len(self) -> usize {
        self.len.into()
    }

    /// Returns `false`, because no format has empty IDs.
    pub fn is_empty(self) -> bool {
        false
    }

    /// Returns the length of the server ID in bytes.
    pub fn server_id_len(self) -> usize {
        self.server_id.into()
    }

    fn prefix(self) -> usize {
        self.len() - CHECK
    }

    fn nonce(self) -> usize {
        self.prefix() - 1 - self.server_id_len()
    }

    /// Returns the check of an ID whose other bytes are `prefix`. The first byte selects the key
    /// and the length, so the hash depends on it anyway.
    fn check(ring_key: &Key, prefix: &[u8]) -> [u8; CHECK] {
        let [a, b, c, d, ..] = ring_key.hash(&prefix[1..]).to_le_bytes();
        [a, b, c, d]
    }

    /// Verifies that a server of this service made the connection ID.
    ///
    /// # Errors
    /// [`IdError::Malformed`], [`IdError::UnknownEpoch`], [`IdError::Forged`].
    pub fn open(self, ring: &KeyRing, id: &[u8]) -> Result<ProvenId, IdError> {
        let first = *id.first().ok_or(IdError::Malformed)?;
        if id.len() != self.len() || usize::from(first & 0x1f) + 1 != self.len() {
            return Err(IdError::Malformed);
        }
        let epoch = Epoch::new(first >> 5).ok_or(IdError::UnknownEpoch)?;
        let key = ring.key(epoch.number()).ok_or(IdError::UnknownEpoch)?;
        let (prefix, check) = id.split_at(self.prefix());
        let mut given = [0; CHECK];
        given.copy_from_slice(check);
        // Both words are compared at once, so the time does not reveal how many bytes were right.
        if u32::from_le_bytes(Self::check(key, prefix)) != u32::from_le_bytes(given) {
            return Err(IdError::Forged);
        }
        let mut server_id = [0; MAX_SERVER];
        let length = self.server_id_len();
        server_id[..length].copy_from_slice(&prefix[1..=length]);
        self.mask(key, &mut server_id[..length], &prefix[1 + length..]);
        Ok(ProvenId { epoch, server_id })
    }

    /// Makes an ID from a server ID and the lowest bytes of a nonce, lowest byte first.
    /// [`IdGenerator`] makes sure that no nonce repeats.
    ///
    /// # Errors
    /// [`IdError::Format`] if the server ID does not have the format's length.
    pub fn seal(
        self,
        ring: &KeyRing,
        server_id: &[u8],
        nonce: u128,
    ) -> Result<ConnectionId, IdError> {
        if server_id.len() != self.server_id_len() {
            return Err(IdError::Format);
        }
        let key = ring.current_key().ok_or(IdError::UnknownEpoch)?;
        let mut bytes = [0; ConnectionId::MAX_LEN];
        let prefix = self.prefix();
        bytes[0] = ring.epoch().number() << 5 | (self.len - 1);
        bytes[1..=server_id.len()].copy_from_slice(server_id);
        bytes[1 + server_id.len()..prefix].copy_from_slice(&nonce.to_le_bytes()[..self.nonce()]);
        let (front, nonce) = bytes[..prefix].split_at_mut(1 + server_id.len());
        self.mask(key, &mut front[1..], nonce);
        let check = Self::check(key, &bytes[..prefix]);
        bytes[prefix..self.len()].copy_from_slice(&check);
        Ok(ConnectionId::cut(&bytes[..self.len()]))
    }
}

impl IdFormat {
    /// Returns the stateless reset token (RFC 9000 s.10.3.2) of a connection ID made with the ring.
    /// A server gives it to its client with the ID, and the gateway can send it when the server is
    /// dead (`docs/retry.md` s.5).
    ///
    /// `service` is the name of the server's service at the gateway. Only its first 31 bytes count.
    /// The same ID has different tokens for different services.
    ///
    /// # Errors
    /// As [`IdFormat::open`]: an invalid ID has no token.
    pub fn reset_token(
        self,
        ring: &KeyRing,
        service: &str,
        id: &[u8],
    ) -> Result<[u8; RESET_TOKEN], IdError> {
        let epoch = self.open(ring, id)?.epoch;
        let key = ring.key(epoch.number()).ok_or(IdError::UnknownEpoch)?;
        let mut token = [0; RESET_TOKEN];
        for (half, label) in token.chunks_exact_mut(8).zip(RESET_LABELS) {
            let mut message = [0; RESET_MESSAGE];
            message[..8].copy_from_slice(label);
            message[8..8 + id.len()].copy_from_slice(id);
            message[8 + ConnectionId::MAX_LEN] = self.len;
            let name = service.bytes().take(SERVICE_NAME - 1);
            message[RESET_MESSAGE - SERVICE_NAME..]
                .iter_mut()
                .zip(name)
                .for_each(|(to, byte)| *to = byte);
            half.copy_from_slice(&key.hash(&message).to_le_bytes());
        }
        Ok(token)
    }
}

/// Makes the connection IDs of one server process. Clones share the ring and the nonce sequence.
///
/// Two processes with the same server ID may make the same ID, so give each its own.
#[derive(Clone)]
pub struct IdGenerator(Arc<Generator>);

struct Generator {
    format: IdFormat,
    server_id: [u8; MAX_SERVER],
    ring: RwLock<KeyRing>,
    nonces: Nonces,
}

impl IdGenerator {
    /// Creates a generator of IDs of a format for the server `server_id`, with the ring's current
    /// key.
    ///
    /// # Errors
    /// [`IdError::Format`] if the server ID does not have the format's length. [`IdError::Random`].
    pub fn new(format: IdFormat, server_id: &[u8], ring: KeyRing) -> Result<IdGenerator, IdError> {
        if server_id.len() != format.server_id_len() {
            return Err(IdError::Format);
        }
        let mut padded = [0; MAX_SERVER];
        padded[..server_id.len()].copy_from_slice(server_id);
        let nonces = Nonces::new(format.nonce()).map_err(|_: RingError| IdError::Random)?;
        let ring = RwLock::new(ring);
        Ok(IdGenerator(Arc::new(Generator { format, server_id: padded, ring, nonces })))
    }

    /// Returns the format of the IDs.
    pub fn format(&self) -> IdFormat {
        self.0.format
    }

    /// Replaces the ring after a rotation. New IDs use its current key.
    pub fn set_ring(&self, ring: KeyRing) {
        *self.0.ring.write().unwrap_or_else(PoisonError::into_inner) = ring;
    }

    /// Returns an ID that this process has not made before. Another process with the same ring and
    /// server ID, for example after a restart, may make the same one.
    pub fn generate(&self) -> ConnectionId {
        let Generator { format, server_id, ring, nonces } = &*self.0;
        let ring = ring.read().unwrap_or_else(PoisonError::into_inner);
        let id = format.seal(&ring, &server_id[..format.server_id_len()], nonces.next());
        // Cannot fail: `new` checked the server ID's length, and a ring always has its current key.
        id.unwrap_or_default()
    }

    /// Returns the stateless reset token of one of this server's IDs for a service, like
    /// [`IdFormat::reset_token`]. Fails for IDs of another server, because that server may be
    /// alive, and a process that knows the token can end the connection (RFC 9000 s.21.11).
    ///
    /// # Errors
    /// As [`IdFormat::open`]; [`IdError::Forged`] for IDs of another server.
    pub fn reset_token(&self, service: &str, id: &[u8]) -> Result<[u8; RESET_TOKEN], IdError> {
        let Generator { format, server_id, ring, .. } = &*self.0;
        let ring = ring.read().unwrap_or_else(PoisonError::into_inner);
        if format.open(&ring, id)?.server_id != *server_id {
            return Err(IdError::Forged);
        }
        format.reset_token(&ring, service, id)
    }

    /// Returns [`KeyRing::mark`] of the ring. When it changes, older IDs should be replaced.
    pub fn mark(&self) -> u64 {
        self.0.ring.read().unwrap_or_else(PoisonError::into_inner).mark()
    }

    /// Verifies that this server or another one of the service made the ID with the ring.
    ///
    /// # Errors
    /// As [`IdFormat::open`].
    pub fn open(&self, id: &[u8]) -> Result<ProvenId, IdError> {
        let ring = self.0.ring.read().unwrap_or_else(PoisonError::into_inner);
        self.0.format.open(&ring, id)
    }
}

impl std::fmt::Debug for IdGenerator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IdGenerator").field("format", &self.0.format).finish_non_exhaustive()
    }
}
