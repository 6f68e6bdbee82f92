//! Connection IDs that prove themselves (`docs/retry.md` s.4): QUIC-LB's first byte, a server ID,
//! in clear or encrypted, a nonce, and four bytes that only who has the ring can make.

use std::sync::{Arc, PoisonError, RwLock};

use equic_wire::ConnectionId;

use crate::nonce::Nonces;
use crate::ring::{Epoch, Key, KeyRing, RingError};
use crate::token::MIN_ID;

const CHECK: usize = 4;
const MIN_NONCE: usize = 3;
const MAX_SERVER: usize = 8;
/// RFC 9000 s.10.3.
const RESET_TOKEN: usize = 16;
/// In front of what is hashed for each half of a stateless reset token.
const RESET_LABELS: [&[u8; 8]; 2] = [b"reset 1\0", b"reset 2\0"];
/// A label, an ID with its length, and the name of a service.
const RESET_MESSAGE: usize = 32 + SERVICE_NAME;
const SERVICE_NAME: usize = 32;
/// In front of what is hashed for the mask of a hidden server ID.
const MASK_LABEL: &[u8; 8] = b"server\0\0";
/// No other use of a key hashes a message of this length.
const MASK_MESSAGE: usize = 24;

/// Length of a service's IDs, and the number of their bytes that name the server. All servers of a service and
/// its gateway need the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct IdFormat {
    len: u8,
    server_id: u8,
    /// Number of the last bytes of the server ID that are encrypted.
    hidden: u8,
}

/// Reason that a connection ID proves nothing, or that none can be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum IdError {
    /// There are no such IDs.
    #[error(
        "IDs have 8 to 20 bytes: one, a server ID of at most 8, a nonce of at least 3, and a check of 4"
    )]
    Format,
    /// Another length than the service's IDs have, or its first byte says another.
    #[error("the connection ID is not of this format")]
    Malformed,
    /// Of a key that the ring does not have: from before a restart, or rotated out.
    #[error("unknown key for this connection ID: it was never loaded, or it was rotated out")]
    UnknownEpoch,
    /// Not made with this ring.
    #[error("the connection ID was not made by a server of this service")]
    Forged,
    /// The system gave no random numbers.
    #[error("the system gave no random numbers")]
    Random,
}

/// Content of a connection ID that proved itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProvenId {
    /// Epoch of the key it was made with.
    pub epoch: Epoch,
    /// The server that made it: the first bytes, as many as the format says. Hidden bytes are
    /// decrypted.
    pub server_id: [u8; MAX_SERVER],
}

impl IdFormat {
    /// IDs of `len` bytes, 8 to 20, with a server ID of `server_id` bytes, 0 to 8. At least three are left for
    /// the nonce; a service gives out at most 256 to the power of them before a number comes twice.
    ///
    /// # Errors
    /// [`IdError::Format`].
    pub fn new(len: usize, server_id: usize) -> Result<IdFormat, IdError> {
        let holds = (MIN_ID..=ConnectionId::MAX_LEN).contains(&len)
            && server_id <= MAX_SERVER
            && 1 + server_id + MIN_NONCE + CHECK <= len;
        // Both fit into a byte by then.
        if holds {
            Ok(IdFormat { len: len as u8, server_id: server_id as u8, hidden: 0 })
        } else {
            Err(IdError::Format)
        }
    }

    /// The same format with the last `bytes` bytes of the server ID encrypted, so that an observer
    /// cannot tell by them which IDs belong together (RFC 9000 s.9.5). Whoever routes by these
    /// bytes needs the ring. Behind eQUIC's gateway the first byte of the server ID must stay in
    /// clear: the gateway sends stateless resets for IDs whose first byte is the place of a dead
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

    /// Encrypts the hidden bytes of a server ID, or decrypts them: by a mask of the nonce, which is
    /// another one in each ID.
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

    /// Bytes of every ID.
    pub fn len(self) -> usize {
        self.len.into()
    }

    /// False: no ID of any format is empty.
    pub fn is_empty(self) -> bool {
        false
    }

    /// Bytes of the server ID.
    pub fn server_id_len(self) -> usize {
        self.server_id.into()
    }

    fn prefix(self) -> usize {
        self.len() - CHECK
    }

    fn nonce(self) -> usize {
        self.prefix() - 1 - self.server_id_len()
    }

    /// Check of an ID, whose bytes in front of it are `prefix`. The first one says the key and the length: the hash
    /// has both already.
    fn check(ring_key: &Key, prefix: &[u8]) -> [u8; CHECK] {
        let [a, b, c, d, ..] = ring_key.hash(&prefix[1..]).to_le_bytes();
        [a, b, c, d]
    }

    /// True if the bytes are a connection ID that a server of this service made.
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
        // One comparison of two words: its duration does not tell how much was right.
        if u32::from_le_bytes(Self::check(key, prefix)) != u32::from_le_bytes(given) {
            return Err(IdError::Forged);
        }
        let mut server_id = [0; MAX_SERVER];
        let length = self.server_id_len();
        server_id[..length].copy_from_slice(&prefix[1..=length]);
        self.mask(key, &mut server_id[..length], &prefix[1 + length..]);
        Ok(ProvenId { epoch, server_id })
    }

    /// Makes an ID of a server ID and a nonce, of which the lowest bytes are taken, the lowest first.
    /// [`IdGenerator`] sees to it that no nonce comes twice.
    ///
    /// # Errors
    /// [`IdError::Format`]: the server ID has another length than the format says.
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
    /// Returns the stateless reset token (RFC 9000 s.10.3.2) of a connection ID that was made with the ring. A server
    /// gives it to its client with the ID, and the gateway can send it when the server is dead. `docs/retry.md` s.5.
    ///
    /// `service` is the name of the gateway's service that the server serves, up to its 31st byte: the same ID has
    /// another token for another service.
    ///
    /// # Errors
    /// As [`IdFormat::open`]: IDs that prove nothing have no token.
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

/// Makes the connection IDs of one server process. Clones share the ring and the numbers.
///
/// Two processes with one server ID may give out the same ID; give each its own.
#[derive(Clone)]
pub struct IdGenerator(Arc<Generator>);

struct Generator {
    format: IdFormat,
    server_id: [u8; MAX_SERVER],
    ring: RwLock<KeyRing>,
    nonces: Nonces,
}

impl IdGenerator {
    /// IDs of a format, of the server `server_id`, with the ring's current key.
    ///
    /// # Errors
    /// [`IdError::Format`]: the server ID has another length than the format says. [`IdError::Random`].
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

    /// The format of the IDs.
    pub fn format(&self) -> IdFormat {
        self.0.format
    }

    /// Takes a ring whose keys were rotated: IDs are made with its current key from now on.
    pub fn set_ring(&self, ring: KeyRing) {
        *self.0.ring.write().unwrap_or_else(PoisonError::into_inner) = ring;
    }

    /// An ID that this process has not given out before. Another process with the same ring and
    /// server ID, such as the one after a restart, may give out the same.
    pub fn generate(&self) -> ConnectionId {
        let Generator { format, server_id, ring, nonces } = &*self.0;
        let ring = ring.read().unwrap_or_else(PoisonError::into_inner);
        let id = format.seal(&ring, &server_id[..format.server_id_len()], nonces.next());
        // The server ID's length was looked at in the beginning, and a ring has its current key.
        id.unwrap_or_default()
    }

    /// Returns the stateless reset token of one of this server's IDs for a service, as [`IdFormat::reset_token`]. It
    /// returns none for IDs that name another server: that server may live, and whoever sees a token can end the
    /// connection (RFC 9000 s.21.11).
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

    /// [`KeyRing::mark`] of the ring that IDs are made with: when it changes, the IDs given out before should be replaced.
    pub fn mark(&self) -> u64 {
        self.0.ring.read().unwrap_or_else(PoisonError::into_inner).mark()
    }

    /// True if the ID was made with the ring, by this server or another of the service.
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
