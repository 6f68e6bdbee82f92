//! Tokens that show a server that a client receives at its address (RFC 9000 s.8.1).
//!
//! A token is a salt of 16 bytes, random but for its first bit, and what an AEAD makes of its content. The key comes from the
//! server's secret and the salt, by the derivation of Initial keys (RFC 9001 s.5.2): one key a
//! token, so that the packet number in the nonce can always be zero.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use equic_wire::{ConnectionId, KnownVersion, Reader, Writer};
use rand::RngCore;
use rustls::Side;
use rustls::quic::{Keys, Suite, Version};

use crate::Timestamp;

/// Bytes of the secret that a server's tokens are sealed with.
pub(crate) const TOKEN_KEY_LEN: usize = 32;

const SALT_LEN: usize = 16;
const TAG_LEN: usize = 16;
/// Kind, expiry, address, port, and two connection IDs with their lengths.
const MAX_CONTENT: usize = 1 + 8 + 16 + 2 + 2 * (1 + ConnectionId::MAX_LEN);

/// The longest token that is made, in bytes; what is longer is not ours.
pub(crate) const MAX_TOKEN: usize = SALT_LEN + MAX_CONTENT + TAG_LEN;

/// First bit of the tokens of NEW_TOKEN frames; those of Retry packets have it zero.
const FUTURE_BIT: u8 = 0x80;

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

/// Seals and opens tokens.
#[derive(Clone)]
pub(crate) struct TokenKey {
    suite: Suite,
    secret: [u8; TOKEN_KEY_LEN],
}

impl TokenKey {
    /// `secret` is random; all servers behind one address need the same.
    pub(crate) fn new(suite: Suite, secret: [u8; TOKEN_KEY_LEN]) -> TokenKey {
        TokenKey { suite, secret }
    }

    fn keys(&self, salt: &[u8]) -> Keys {
        let mut secret = self.secret.to_vec();
        secret.extend_from_slice(salt);
        self.suite.keys(&secret, Side::Server, Version::V1)
    }

    /// A token for a client to bring back. None: the provider refused, which none is known to.
    pub(crate) fn seal(&self, token: &Token, rng: &mut dyn RngCore) -> Option<Vec<u8>> {
        let mut bytes = vec![0; SALT_LEN];
        rng.fill_bytes(&mut bytes);
        // Which kind it is, for who has no key (draft-ietf-quic-retry-offload s.3).
        if let Some(first) = bytes.first_mut() {
            let future = matches!(token, Token::Future { .. });
            *first = *first & !FUTURE_BIT | if future { FUTURE_BIT } else { 0 };
        }
        let mut content = [0; MAX_CONTENT];
        let mut writer = Writer::new(&mut content);
        write(token, &mut writer)?;
        let key = self.keys(&bytes).local.packet;
        let content = writer.written_mut();
        let tag = key.encrypt_in_place(0, &bytes, content).ok()?;
        bytes.extend_from_slice(content);
        bytes.extend_from_slice(tag.as_ref());
        Some(bytes)
    }

    /// Opens a token and returns its content; none: the token is not ours. Costs a key derivation if it is of a
    /// length that ours have.
    pub(crate) fn open(&self, token: &[u8]) -> Option<Token> {
        if token.len() > MAX_TOKEN {
            return None;
        }
        let (salt, sealed) = token.split_at_checked(SALT_LEN)?;
        let mut content = sealed.to_vec();
        let key = self.keys(salt).local.packet;
        // What this key sealed it opens, too: client and server have keys of their own in a pair.
        let content = key.decrypt_in_place(0, salt, &mut content).ok()?;
        read(&mut Reader::new(content))
    }
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
