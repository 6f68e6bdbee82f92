//! Tokens by which a server validates a client's address (RFC 9000 s.8.1).
//!
//! | bytes | content |
//! |---|---|
//! | 16 | salt, masked; the first bit is clear text: 1 in NEW_TOKEN frames, 0 in Retry packets |
//! | 33 to 77 | content, encrypted |
//! | 16 | authentication tag |
//!
//! The salt consists of 15 zero bits, a token number of 48 bits, and the random name of a batch of
//! tokens, which has 8 bytes. The AEAD key is derived from the server's secret and the name of the
//! batch, in the same way as Initial keys (RFC 9001 s.5.2). The token number takes the place of the
//! packet number in the AEAD's nonce, and is used only once in its batch. A batch has 65,536
//! tokens, because deriving a key takes much longer than sealing a token.
//!
//! The mask hides the token number and the batch. Without it, an observer who opens connections now
//! and then could tell when a token was issued, and so link the token to the connection on which it
//! was issued. RFC 9000 s.8.1.3 forbids that. The mask is computed as for header protection (RFC
//! 9001 s.5.4): with AES, a key derived from the secret, and a sample of the encrypted content. So
//! without the secret, every bit of a token after the first is pseudorandom.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use equic_wire::packet::SAMPLE_LEN;
use equic_wire::{ConnectionId, KnownVersion, Reader, Writer};
use rand::RngCore;
use rustls::Side;
use rustls::quic::{HeaderProtectionKey, Keys, PacketKey, Suite, Version};
use zeroize::Zeroizing;

use super::header_mask;

/// Length of the secret that seals a server's tokens, in bytes.
pub(crate) const TOKEN_KEY_LEN: usize = 32;

const SALT_LEN: usize = NUMBER_LEN + BATCH_LEN;
const NUMBER_LEN: usize = 8;
const BATCH_LEN: usize = 8;
const TAG_LEN: usize = 16;
/// Largest length of a token's content in bytes: kind, time and lifetime, address, port, and two
/// connection IDs with their lengths.
const MAX_CONTENT: usize = 1 + 16 + 16 + 2 + 2 * (1 + ConnectionId::MAX_LEN);

/// Length of the longest token that this module issues, in bytes. Longer tokens are rejected.
pub(crate) const MAX_TOKEN: usize = SALT_LEN + MAX_CONTENT + TAG_LEN;

/// First bit of a token's first byte: 1 in NEW_TOKEN frames, 0 in Retry packets.
const FUTURE_BIT: u8 = 0x80;

/// Bits of the salt's first 64-bit word that hold the token number.
const NUMBER_BITS: u64 = (1 << 48) - 1;

/// Bits of the salt's first 64-bit word that must be zero. A forged token fails this check with a
/// probability of 1 - 2^-15, before a key is derived for it.
const ZERO_BITS: u64 = !NUMBER_BITS & u64::MAX >> 1;

/// Largest number of tokens in a batch.
const BATCH: u32 = 1 << 16;

/// Number of batch keys that are kept in memory. They open tokens of this endpoint's earlier
/// batches, and of other endpoints with the same secret.
const KNOWN: usize = 16;

/// Largest tolerated difference between the clocks of two servers with the same secret.
pub(crate) const CLOCK_SKEW: Duration = Duration::from_secs(2);

const RETRY: u8 = 0;
/// The kinds of NEW_TOKEN tokens, one for each version. A token is valid only for the version of
/// the connection on which it was issued (RFC 9369 s.5 #2).
const FUTURE: &[(u8, KnownVersion)] = &[
    (1, KnownVersion::V1),
    (2, KnownVersion::V2),
    #[cfg(feature = "null-crypto")]
    (3, KnownVersion::NullCrypto),
];

/// The content of a token that validates an address.
// RFC 9000 s.8.1.1 #1
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Token {
    /// A token in a Retry packet (RFC 9000 s.8.1.2).
    Retry {
        /// Address and port of the client.
        remote: SocketAddr,
        /// Destination Connection ID of the client's first packet, which the Retry packet answered.
        original: ConnectionId,
        /// Source Connection ID of the Retry packet that carries the token.
        retry: ConnectionId,
        validity: Validity,
    },
    /// A token in a NEW_TOKEN frame (RFC 9000 s.8.1.3).
    Future {
        /// The client's address, without its port, because the client's next connection will have
        /// another port.
        address: IpAddr,
        /// The version of the connection on which the token was issued.
        version: KnownVersion,
        validity: Validity,
    },
}

/// The period in which a token is valid. It uses wall clock time, because several servers may share
/// a secret, and a server may keep it across restarts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Validity {
    /// Time at which the token was issued, since the Unix epoch, in whole milliseconds.
    pub(crate) made: Duration,
    /// Lifetime of the token, in whole milliseconds.
    lifetime: Duration,
}

impl Validity {
    /// Returns the validity of a token that is issued at `now`.
    pub(crate) fn new(now: Duration, lifetime: Duration) -> Validity {
        Validity { made: in_millis(now), lifetime: in_millis(lifetime) }
    }

    /// Returns true if the token is valid at `now`. `lifetime` is the lifetime of tokens that this
    /// server itself issues; if it is shorter than that of the token, it applies.
    ///
    /// A token from the future is not valid. Otherwise, a clock that was set back, or a server
    /// whose clock is behind, would extend its lifetime.
    pub(crate) fn holds(&self, now: Duration, lifetime: Duration) -> bool {
        let lifetime = self.lifetime.min(lifetime);
        self.made <= now.saturating_add(CLOCK_SKEW) && now < self.made.saturating_add(lifetime)
    }
}

fn in_millis(time: Duration) -> Duration {
    Duration::from_millis(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

type BatchName = [u8; BATCH_LEN];

/// Seals and opens the tokens of servers that share one secret.
pub(crate) struct TokenSealer {
    suite: Suite,
    secret: Zeroizing<[u8; TOKEN_KEY_LEN]>,
    /// Header protection key that masks the salts of tokens.
    mask: Box<dyn HeaderProtectionKey>,
    own: Option<Batch>,
    /// Batch keys of the tokens that were opened, the most recently used last. Invalid tokens evict
    /// no keys from this list.
    known: Mutex<Vec<(BatchName, Arc<dyn PacketKey>)>>,
}

/// The current batch, to which the next tokens belong.
struct Batch {
    name: BatchName,
    key: Arc<dyn PacketKey>,
    /// Number of the next token in the batch. The first number is random and the others are
    /// consecutive, so no nonce is used twice with the key.
    next: u64,
    /// Number of tokens that may still be sealed in the current batch.
    left: u32,
}

impl TokenSealer {
    /// Creates a sealer from a random secret. Servers that have the same secret accept each other's
    /// tokens.
    pub(crate) fn new(suite: Suite, secret: Zeroizing<[u8; TOKEN_KEY_LEN]>) -> TokenSealer {
        let mask = keys(&suite, &*secret).local.header;
        TokenSealer { suite, secret, mask, own: None, known: Mutex::default() }
    }

    fn derive(&self, batch: &BatchName) -> Arc<dyn PacketKey> {
        // The secret for a batch key is longer than the secret for the mask's key, so the two
        // derivations can never have the same input.
        let mut secret = Zeroizing::new([0; TOKEN_KEY_LEN + BATCH_LEN]);
        let (key, name) = secret.split_at_mut(TOKEN_KEY_LEN);
        key.copy_from_slice(&*self.secret);
        name.copy_from_slice(batch);
        keys(&self.suite, &*secret).local.packet.into()
    }

    /// Returns the batch for the next token. Starts a new batch if the current one is full.
    fn batch(&mut self, rng: &mut dyn RngCore) -> &mut Batch {
        let own = self.own.take().filter(|batch| batch.left > 0).unwrap_or_else(|| {
            let mut name = [0; BATCH_LEN];
            rng.fill_bytes(&mut name);
            Batch { key: self.derive(&name), name, next: rng.next_u64(), left: BATCH }
        });
        self.own.insert(own)
    }

    /// Seals a token for a client. Returns `None` if the crypto provider fails.
    // RFC 9000 s.8.1.3 #4 #5, s.8.1.4 #1
    pub(crate) fn seal(&mut self, token: &Token, rng: &mut dyn RngCore) -> Option<Vec<u8>> {
        let mut content = [0; MAX_CONTENT];
        let mut writer = Writer::new(&mut content);
        write(token, &mut writer)?;
        let batch = self.batch(rng);
        batch.left -= 1;
        let mut number = (batch.next & NUMBER_BITS).to_be_bytes();
        batch.next = batch.next.wrapping_add(1);
        // The clear-text bit tells devices without the key which kind of token it is
        // (draft-ietf-quic-retry-offload s.3).
        if matches!(token, Token::Future { .. }) {
            number[0] |= FUTURE_BIT;
        }
        let mut bytes = [number, batch.name].concat();
        let content = writer.written_mut();
        let tag = batch.key.encrypt_in_place(nonce(number), &bytes, content).ok()?;
        bytes.extend_from_slice(content);
        bytes.extend_from_slice(tag.as_ref());
        let (salt, sealed) = bytes.split_first_chunk_mut()?;
        self.mask_salt(salt, sealed)?;
        Some(bytes)
    }

    /// Opens a token and returns its content. Returns `None` if the token was not sealed with this
    /// server's secret. If the salt is valid but the key of its batch is unknown, the key is
    /// derived.
    // RFC 9000 s.8.1.4 #2
    pub(crate) fn open(&self, token: &[u8]) -> Option<Token> {
        if token.len() > MAX_TOKEN {
            return None;
        }
        let (salt, sealed) = token.split_first_chunk::<SALT_LEN>()?;
        if sealed.len() < TAG_LEN {
            return None;
        }
        let mut salt = *salt;
        self.mask_salt(&mut salt, sealed)?;
        let number: [u8; NUMBER_LEN] = *salt.first_chunk()?;
        let name: BatchName = *salt.last_chunk()?;
        if u64::from_be_bytes(number) & ZERO_BITS != 0 {
            return None;
        }
        let mut content = sealed.to_vec();
        let mut opens = |key: &dyn PacketKey| {
            let content = key.decrypt_in_place(nonce(number), &salt, &mut content).ok()?;
            read(&mut Reader::new(content))
        };
        if let Some(own) = self.own.as_ref().filter(|own| own.name == name) {
            return opens(&*own.key);
        }
        if let Some(key) = self.recall(&name) {
            return opens(&*key);
        }
        let key = self.derive(&name);
        let token = opens(&*key)?;
        self.remember(name, key);
        Some(token)
    }

    /// Applies the mask to a salt, or removes it. `sealed` is the encrypted content with its tag.
    /// The first bit of the salt does not change.
    fn mask_salt(&self, salt: &mut [u8; SALT_LEN], sealed: &[u8]) -> Option<()> {
        let mut sample: [u8; SAMPLE_LEN] = *sealed.first_chunk()?;
        let kind = salt[0] & FUTURE_BIT;
        for part in salt.chunks_exact_mut(4) {
            // Skip the first byte of the mask, because rustls returns only five of its bits.
            let [_, mask @ ..] = header_mask(&*self.mask, &sample)?;
            part.iter_mut().zip(mask).for_each(|(byte, mask)| *byte ^= mask);
            // Change the sample to get the next part of the mask, as in counter mode.
            sample[0] = sample[0].wrapping_add(1);
        }
        salt[0] = salt[0] & !FUTURE_BIT | kind;
        Some(())
    }

    /// Returns the key of the batch with this name, if a token of the batch was opened recently.
    fn recall(&self, name: &BatchName) -> Option<Arc<dyn PacketKey>> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let at = known.iter().position(|(other, _)| other == name)?;
        let last = known.remove(at);
        let key = Arc::clone(&last.1);
        known.push(last);
        Some(key)
    }

    fn remember(&self, name: BatchName, key: Arc<dyn PacketKey>) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() == KNOWN {
            known.remove(0);
        }
        known.push((name, key));
    }
}

/// Derives AEAD keys from a secret. The local keys of a server also open what they have sealed.
fn keys(suite: &Suite, secret: &[u8]) -> Keys {
    suite.keys(secret, Side::Server, Version::V1)
}

fn nonce(number: [u8; NUMBER_LEN]) -> u64 {
    u64::from_be_bytes(number) & NUMBER_BITS
}

fn mapped(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
}

fn write(token: &Token, writer: &mut Writer<'_>) -> Option<()> {
    let (kind, validity, address) = match token {
        Token::Retry { remote, validity, .. } => (RETRY, validity, remote.ip()),
        Token::Future { address, version, validity } => {
            let (kind, _) = FUTURE.iter().find(|(_, known)| known == version)?;
            (*kind, validity, *address)
        }
    };
    writer.u8(kind).ok()?;
    for time in [validity.made, validity.lifetime] {
        writer.bytes(&u64::try_from(time.as_millis()).ok()?.to_be_bytes()).ok()?;
    }
    writer.bytes(&mapped(address).octets()).ok()?;
    if let Token::Retry { remote, original, retry, .. } = token {
        writer.bytes(&remote.port().to_be_bytes()).ok()?;
        for id in [original, retry] {
            writer.u8(u8::try_from(id.len()).ok()?).ok()?;
            writer.bytes(id.as_bytes()).ok()?;
        }
    }
    Some(())
}

fn read(reader: &mut Reader<'_>) -> Option<Token> {
    let kind = reader.u8().ok()?;
    let mut time = || Some(Duration::from_millis(u64::from_be_bytes(*reader.array().ok()?)));
    let validity = Validity { made: time()?, lifetime: time()? };
    let address = Ipv6Addr::from(*reader.array::<16>().ok()?).to_canonical();
    if let Some((_, version)) = FUTURE.iter().find(|(known, _)| *known == kind) {
        return Some(Token::Future { address, version: *version, validity });
    }
    if kind != RETRY {
        return None;
    }
    let remote = SocketAddr::new(address, reader.u16().ok()?);
    let mut id = || {
        let len = reader.u8().ok()?;
        ConnectionId::new(reader.bytes(len.into()).ok()?).ok()
    };
    let (original, retry) = (id()?, id()?);
    Some(Token::Retry { remote, original, retry, validity })
}

#[cfg(test)]
mod tests;
