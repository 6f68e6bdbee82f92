//! Verifiable connection IDs (`docs/retry.md` s.4). An ID consists of QUIC-LB's first byte, a
//! server ID in clear or encrypted, a nonce, and a check value of four bytes. Only a holder of the
//! key ring can compute the check value.

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
/// Maximum length of the hash input for a reset token: a label, an ID with its length, and the name
/// of a service.
const RESET_MESSAGE: usize = 32 + SERVICE_NAME;
const SERVICE_NAME: usize = 32;
/// Prefix of the hash input for the mask that encrypts a server ID.
const MASK_LABEL: &[u8; 8] = b"server\0\0";
/// Length of the hash input for that mask. No other hash input under the same key has this length.
const MASK_MESSAGE: usize = 24;

/// Format of a service's connection IDs: their length, and the length of the server ID in them. All
/// servers of a service and its gateway must use the same format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct IdFormat {
    len: u8,
    server_id: u8,
    /// Number of encrypted bytes at the end of the server ID.
    hidden: u8,
}

/// Why a connection ID is invalid, or why none can be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum IdError {
    /// A format or a server ID has an invalid length.
    #[error(
        "connection IDs must have 8 to 20 bytes: a first byte, a server ID of at most 8 bytes, a nonce of at least 3, and a check of 4"
    )]
    Format,
    /// The connection ID has the wrong length or the wrong first byte for IDs of this service.
    #[error("the connection ID does not have the format of this service")]
    Malformed,
    /// The ring does not have the key of the connection ID. The ID was made before a restart, or
    /// its key was rotated out.
    #[error("unknown key for this connection ID: it was never loaded, or it was rotated out")]
    UnknownEpoch,
    /// The check value is wrong, so the connection ID was not made with this ring.
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
    /// Epoch of the key with which the ID was made.
    pub epoch: Epoch,
    /// ID of the server that made the connection ID. Only the first bytes count, as many as the
    /// format has. Encrypted bytes have been decrypted.
    pub server_id: [u8; MAX_SERVER],
}

impl IdFormat {
    /// Returns the format of connection IDs that have `len` bytes (8 to 20), of which `server_id`
    /// bytes (0 to 8) are the server ID. At least three bytes must remain for the nonce. With n
    /// nonce bytes, a server can make 256^n IDs before a nonce repeats.
    ///
    /// # Errors
    /// [`IdError::Format`] if a length is out of range.
    pub fn new(len: usize, server_id: usize) -> Result<IdFormat, IdError> {
        let holds = (MIN_ID..=ConnectionId::MAX_LEN).contains(&len)
            && server_id <= MAX_SERVER
            && 1 + server_id + MIN_NONCE + CHECK <= len;
        // Both lengths fit into a byte, because they were just checked.
        if holds {
            Ok(IdFormat { len: len as u8, server_id: server_id as u8, hidden: 0 })
        } else {
            Err(IdError::Format)
        }
    }

    /// Returns the same format, but with the last `bytes` bytes of the server ID encrypted. An
    /// observer then cannot use them to link IDs (RFC 9000 s.9.5). A load balancer that routes by
    /// these bytes needs the ring. Behind eQUIC's gateway, the first byte of the server ID must
    /// stay unencrypted: it is the server's slot, and the gateway sends stateless resets for IDs
    /// with the slot of a dead server.
    ///
    /// # Errors
    /// [`IdError::Format`] if the server ID has fewer bytes.
    pub fn hiding(self, bytes: usize) -> Result<IdFormat, IdError> {
        match u8::try_from(bytes) {
            Ok(hidden) if hidden <= self.server_id => Ok(IdFormat { hidden, ..self }),
            _ => Err(IdError::Format),
        }
    }

    /// Encrypts or decrypts the hidden bytes of a server ID. The nonce determines the mask, so the
    /// mask differs in each ID.
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

    /// Returns the length of the connection IDs, in bytes.
    pub fn len(self) -> usize {
        self.len.into()
    }

    /// Always returns `false`, because connection IDs are never empty.
    pub fn is_empty(self) -> bool {
        false
    }

    /// Returns the length of the server ID, in bytes.
    pub fn server_id_len(self) -> usize {
        self.server_id.into()
    }

    fn prefix(self) -> usize {
        self.len() - CHECK
    }

    fn nonce(self) -> usize {
        self.prefix() - 1 - self.server_id_len()
    }

    /// Returns the check value of an ID whose preceding bytes are `prefix`. The first byte need not
    /// be hashed, because it selects the key and the length.
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
        // The check value is compared as one 32-bit word, so the time does not reveal how many of
        // its bytes were right.
        if u32::from_le_bytes(Self::check(key, prefix)) != u32::from_le_bytes(given) {
            return Err(IdError::Forged);
        }
        let mut server_id = [0; MAX_SERVER];
        let length = self.server_id_len();
        server_id[..length].copy_from_slice(&prefix[1..=length]);
        self.mask(key, &mut server_id[..length], &prefix[1 + length..]);
        Ok(ProvenId { epoch, server_id })
    }

    /// Makes a connection ID from a server ID and the lowest bytes of a nonce, lowest byte first.
    /// The caller must not use a nonce twice; [`IdGenerator`] ensures that.
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
    /// Returns the stateless reset token (RFC 9000 s.10.3.2) of a connection ID that was made with
    /// the ring. A server sends the token to its client together with the ID, and the gateway can
    /// use it when the server is dead (`docs/retry.md` s.5).
    ///
    /// `service` is the name of the server's service at the gateway. Only its first 31 bytes count.
    /// The same ID has different tokens for different services.
    ///
    /// # Errors
    /// Those of [`IdFormat::open`], because an invalid ID has no token.
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

/// Makes the connection IDs of one server process. Clones share the ring and the sequence of
/// nonces.
///
/// Two processes with the same server ID may make the same connection ID, so give each process its
/// own server ID.
#[derive(Clone)]
pub struct IdGenerator(Arc<Generator>);

struct Generator {
    format: IdFormat,
    server_id: [u8; MAX_SERVER],
    ring: RwLock<KeyRing>,
    nonces: Nonces,
}

impl IdGenerator {
    /// Creates a generator of connection IDs for the server `server_id`. It uses the ring's current
    /// key.
    ///
    /// # Errors
    /// [`IdError::Format`] if the server ID does not have the format's length, [`IdError::Random`]
    /// if the system has no random numbers.
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

    /// Returns the format of the generator's connection IDs.
    pub fn format(&self) -> IdFormat {
        self.0.format
    }

    /// Replaces the generator's ring after a rotation. New connection IDs use the current key of
    /// the new ring.
    pub fn set_ring(&self, ring: KeyRing) {
        *self.0.ring.write().unwrap_or_else(PoisonError::into_inner) = ring;
    }

    /// Returns a connection ID that this process has not made before. Another process with the same
    /// ring and server ID, for example this one after a restart, may make the same ID.
    pub fn generate(&self) -> ConnectionId {
        let Generator { format, server_id, ring, nonces } = &*self.0;
        let ring = ring.read().unwrap_or_else(PoisonError::into_inner);
        let id = format.seal(&ring, &server_id[..format.server_id_len()], nonces.next());
        // This cannot fail, because `new` checked the length of the server ID, and a ring always
        // has its current key.
        id.unwrap_or_default()
    }

    /// Returns the stateless reset token of one of this server's connection IDs for a service, like
    /// [`IdFormat::reset_token`]. Refuses IDs of other servers, because such a server may be alive,
    /// and a process that knows the token can end the connection (RFC 9000 s.21.11).
    ///
    /// # Errors
    /// Those of [`IdFormat::open`], and [`IdError::Forged`] for an ID of another server.
    pub fn reset_token(&self, service: &str, id: &[u8]) -> Result<[u8; RESET_TOKEN], IdError> {
        let Generator { format, server_id, ring, .. } = &*self.0;
        let ring = ring.read().unwrap_or_else(PoisonError::into_inner);
        if format.open(&ring, id)?.server_id != *server_id {
            return Err(IdError::Forged);
        }
        format.reset_token(&ring, service, id)
    }

    /// Returns [`KeyRing::mark`] of the generator's ring. When it changes, connection IDs that were
    /// made earlier should be replaced.
    pub fn mark(&self) -> u64 {
        self.0.ring.read().unwrap_or_else(PoisonError::into_inner).mark()
    }

    /// Verifies that this server or another server of the service made the connection ID.
    ///
    /// # Errors
    /// Those of [`IdFormat::open`].
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
