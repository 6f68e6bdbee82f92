//! Tokens that show a server that a client receives at its address (RFC 9000 s.8.1).
//!
//! A token is a salt of 16 bytes, and what an AEAD makes of its content. The salt is a number of
//! eight bytes, which is the packet number in the nonce, and the random name of a batch, in which each number is used
//! once. The key comes from the server's secret and that name, by the derivation of Initial keys (RFC 9001 s.5.2): one for each
//! batch, as deriving a key takes far longer than sealing a token. Whoever sees a token learns from the name which endpoint made it, and about when;
//! nothing of whom it was made for.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use equic_wire::{ConnectionId, KnownVersion, Reader, Writer};
use rand::RngCore;
use rustls::Side;
use rustls::quic::{PacketKey, Suite, Version};

use crate::Timestamp;

/// Bytes of the secret that a server's tokens are sealed with.
pub(crate) const TOKEN_KEY_LEN: usize = 32;

const SALT_LEN: usize = NUMBER_LEN + BATCH_LEN;
const NUMBER_LEN: usize = 8;
const BATCH_LEN: usize = 8;
const TAG_LEN: usize = 16;
/// Kind, expiry, address, port, and two connection IDs with their lengths.
const MAX_CONTENT: usize = 1 + 8 + 16 + 2 + 2 * (1 + ConnectionId::MAX_LEN);

/// The longest token that is made, in bytes; what is longer is not ours.
pub(crate) const MAX_TOKEN: usize = SALT_LEN + MAX_CONTENT + TAG_LEN;

/// First bit of the tokens of NEW_TOKEN frames; those of Retry packets have it zero.
const FUTURE_BIT: u8 = 0x80;

/// Bits of the number that go into the nonce: as many as a packet number has.
const NONCE_BITS: u64 = (1 << 62) - 1;

/// Tokens of a batch, at most.
const BATCH: u32 = 1 << 16;

/// Batches of other endpoints with the same secret, or of earlier ones of this, whose keys are remembered.
const KNOWN: usize = 16;

const RETRY: u8 = 0;
/// One kind for each version: tokens are of the version they were given in (RFC 9369 s.5).
const FUTURE: &[(u8, KnownVersion)] = &[
    (1, KnownVersion::V1),
    (2, KnownVersion::V2),
    #[cfg(feature = "null-crypto")]
    (3, KnownVersion::NullCrypto),
];

/// Content of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Token {
    /// Of a Retry packet (RFC 9000 s.8.1.2).
    Retry {
        /// The client's address and port.
        remote: SocketAddr,
        /// Destination Connection ID of the client's first packet.
        original: ConnectionId,
        /// Source Connection ID of the Retry packet.
        retry: ConnectionId,
        /// The first moment at which it is void.
        expires: Timestamp,
    },
    /// Of a NEW_TOKEN frame (RFC 9000 s.8.1.3).
    Future {
        /// The client's address; its port will be another.
        address: IpAddr,
        /// The version of the connection that it was given in.
        version: KnownVersion,
        /// The first moment at which it is void.
        expires: Timestamp,
    },
}

type BatchName = [u8; BATCH_LEN];

/// Seals and opens tokens.
pub(crate) struct TokenKey {
    suite: Suite,
    secret: [u8; TOKEN_KEY_LEN],
    own: Option<Batch>,
    /// Only of those of which a token was opened: nobody else's tokens get others out. The last used is the last.
    known: Mutex<Vec<(BatchName, Arc<dyn PacketKey>)>>,
}

/// Batch of the tokens that are being sealed.
struct Batch {
    name: BatchName,
    key: Arc<dyn PacketKey>,
    /// Number of the next token. The first is random, the others follow: no nonce is used twice with the key.
    next: u64,
    /// Tokens that may still be sealed in it.
    left: u32,
}

impl TokenKey {
    /// `secret` is random; all servers behind one address need the same.
    pub(crate) fn new(suite: Suite, secret: [u8; TOKEN_KEY_LEN]) -> TokenKey {
        TokenKey { suite, secret, own: None, known: Mutex::default() }
    }

    fn derive(&self, batch: &BatchName) -> Arc<dyn PacketKey> {
        let mut secret = self.secret.to_vec();
        secret.extend_from_slice(batch);
        // What this key seals it opens, too: client and server have keys of their own in a pair.
        self.suite.keys(&secret, Side::Server, Version::V1).local.packet.into()
    }

    /// The batch for one more token.
    fn batch(&mut self, rng: &mut dyn RngCore) -> &mut Batch {
        let own = self.own.take().filter(|batch| batch.left > 0).unwrap_or_else(|| {
            let mut name = [0; BATCH_LEN];
            rng.fill_bytes(&mut name);
            Batch { key: self.derive(&name), name, next: rng.next_u64(), left: BATCH }
        });
        self.own.insert(own)
    }

    /// A token for a client to bring back. None: the provider refused, which none is known to.
    pub(crate) fn seal(&mut self, token: &Token, rng: &mut dyn RngCore) -> Option<Vec<u8>> {
        let mut content = [0; MAX_CONTENT];
        let mut writer = Writer::new(&mut content);
        write(token, &mut writer)?;
        let batch = self.batch(rng);
        batch.left -= 1;
        let mut number = batch.next.to_be_bytes();
        batch.next = batch.next.wrapping_add(1);
        // Which kind it is, for who has no key (draft-ietf-quic-retry-offload s.3).
        if let Some(first) = number.first_mut() {
            let future = matches!(token, Token::Future { .. });
            *first = *first & !FUTURE_BIT | if future { FUTURE_BIT } else { 0 };
        }
        let mut bytes = [number, batch.name].concat();
        let content = writer.written_mut();
        let tag = batch.key.encrypt_in_place(nonce(number), &bytes, content).ok()?;
        bytes.extend_from_slice(content);
        bytes.extend_from_slice(tag.as_ref());
        Some(bytes)
    }

    /// Opens a token and returns its content; none: the token is not ours. Costs a key derivation if it is of a
    /// length that ours have and of a batch that is not known.
    pub(crate) fn open(&self, token: &[u8]) -> Option<Token> {
        if token.len() > MAX_TOKEN {
            return None;
        }
        let (salt, sealed) = token.split_at_checked(SALT_LEN)?;
        let number: [u8; NUMBER_LEN] = *salt.first_chunk()?;
        let name: BatchName = *salt.last_chunk()?;
        if sealed.len() < TAG_LEN {
            return None;
        }
        let mut content = sealed.to_vec();
        let mut opens = |key: &dyn PacketKey| {
            let content = key.decrypt_in_place(nonce(number), salt, &mut content).ok()?;
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

    /// The key of a batch of which a token was opened before.
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

fn nonce(number: [u8; NUMBER_LEN]) -> u64 {
    u64::from_be_bytes(number) & NONCE_BITS
}

fn mapped(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
}

fn write(token: &Token, writer: &mut Writer<'_>) -> Option<()> {
    let (kind, expires, address) = match token {
        Token::Retry { remote, expires, .. } => (RETRY, expires, remote.ip()),
        Token::Future { address, version, expires } => {
            let (kind, _) = FUTURE.iter().find(|(_, known)| known == version)?;
            (*kind, expires, *address)
        }
    };
    writer.u8(kind).ok()?;
    writer.bytes(&expires.as_nanos().to_be_bytes()).ok()?;
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
    let expires = Timestamp::from_nanos(u64::from_be_bytes(*reader.array().ok()?));
    let address = Ipv6Addr::from(*reader.array::<16>().ok()?).to_canonical();
    if let Some((_, version)) = FUTURE.iter().find(|(known, _)| *known == kind) {
        return Some(Token::Future { address, version: *version, expires });
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
    Some(Token::Retry { remote, original, retry, expires })
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    use super::*;

    fn key(secret: u8) -> TokenKey {
        let suite =
            rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256.tls13().unwrap();
        TokenKey::new(suite.quic_suite().unwrap(), [secret; TOKEN_KEY_LEN])
    }

    fn tokens() -> [Token; 4] {
        let id = |bytes: &[u8]| ConnectionId::new(bytes).unwrap();
        let expires = Timestamp::from_nanos(u64::MAX);
        [
            Token::Retry {
                remote: "192.0.2.1:443".parse().unwrap(),
                original: id(&[7; 20]),
                retry: id(&[8; 20]),
                expires,
            },
            Token::Retry {
                remote: "[2001:db8::1]:1".parse().unwrap(),
                original: id(&[1; 8]),
                retry: id(&[2]),
                expires,
            },
            Token::Future {
                address: "192.0.2.1".parse().unwrap(),
                version: KnownVersion::V1,
                expires,
            },
            Token::Future {
                address: "2001:db8::1".parse().unwrap(),
                version: KnownVersion::V2,
                expires,
            },
        ]
    }

    #[test]
    fn what_was_sealed_is_opened() {
        let mut rng = StdRng::seed_from_u64(1);
        for token in tokens() {
            let bytes = key(1).seal(&token, &mut rng).unwrap();
            assert!(bytes.len() <= MAX_TOKEN);
            assert_eq!(key(1).open(&bytes), Some(token));
            assert_eq!(bytes[0] >= FUTURE_BIT, matches!(token, Token::Future { .. }));
            assert_eq!(key(2).open(&bytes), None, "another server's");
            assert_ne!(key(1).seal(&token, &mut rng).unwrap(), bytes, "no two are alike");
        }
    }

    #[test]
    fn a_key_is_for_a_batch_and_is_remembered() {
        let mut rng = StdRng::seed_from_u64(3);
        let (mut here, there) = (key(1), key(1));
        let [token, ..] = tokens();
        let batch = |bytes: &[u8]| bytes[NUMBER_LEN..SALT_LEN].to_vec();
        let first = here.seal(&token, &mut rng).unwrap();
        let second = here.seal(&token, &mut rng).unwrap();
        assert_eq!(batch(&first), batch(&second));
        assert_ne!(first[..NUMBER_LEN], second[..NUMBER_LEN]);
        assert_ne!(first[SALT_LEN..], second[SALT_LEN..], "nonces are of their own");
        here.own.as_mut().unwrap().left = 0;
        let later = here.seal(&token, &mut rng).unwrap();
        assert_ne!(batch(&first), batch(&later));
        assert_eq!(here.own.as_ref().unwrap().left, BATCH - 1);
        // Of a batch of before, and of another endpoint.
        for end in [&here, &there] {
            for bytes in [&first, &later, &second, &first] {
                assert_eq!(end.open(bytes), Some(token));
            }
        }
        let count = |end: &TokenKey| end.known.lock().unwrap().len();
        assert_eq!((count(&here), count(&there)), (1, 2));
        // What is not ours gets none of them out, and what is ours as many as there is room for.
        for _ in 0..3 * KNOWN {
            let mut forged = first.clone();
            rng.fill_bytes(&mut forged[NUMBER_LEN..SALT_LEN]);
            assert_eq!(there.open(&forged), None);
        }
        assert_eq!(count(&there), 2);
        for _ in 0..3 * KNOWN {
            here.own.as_mut().unwrap().left = 0;
            assert_eq!(there.open(&here.seal(&token, &mut rng).unwrap()), Some(token));
        }
        assert_eq!(count(&there), KNOWN);
        assert_eq!(there.open(&first), Some(token), "derived once more");
    }

    #[test]
    fn every_bit_counts() {
        let mut rng = StdRng::seed_from_u64(2);
        let bytes = key(1).seal(&tokens()[0], &mut rng).unwrap();
        for bit in 0..bytes.len() * 8 {
            let mut other = bytes.clone();
            other[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(key(1).open(&other), None, "bit {bit}");
        }
        for len in 0..bytes.len() {
            assert_eq!(key(1).open(&bytes[..len]), None, "{len} bytes");
        }
        let mut longer = bytes.clone();
        longer.push(0);
        assert_eq!(key(1).open(&longer), None);
        assert_eq!(key(1).open(&[0; 1200]), None);
    }
}
