//! Retry tokens of 80 bytes (`docs/retry.md` s.3). The first 21 bytes have the format of
//! draft-ietf-quic-retry-offload s.3, so that a server can read the original connection ID without
//! a key.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use equic_wire::ConnectionId;

use crate::ring::KeyRing;

/// Minimum length of a client's first Destination Connection ID (RFC 9000 s.7.2).
pub(crate) const MIN_ID: usize = 8;

/// First bit of the token. It marks a token from a NEW_TOKEN frame (draft-ietf-quic-retry-offload
/// s.3).
const NEW_TOKEN_BIT: u8 = 0x80;
/// Format number in the upper five bits of a byte. The lower three bits are the epoch.
const FORMAT: u8 = 0x10;
const ID_AT: usize = 1;
const KIND_AT: usize = 21;
const TIME_AT: usize = 22;
const FAMILY_AT: usize = 28;
const PORT_AT: usize = 30;
const ADDRESS_AT: usize = 32;
const RETRY_AT: usize = 48;
const RETRY_LEN_AT: usize = 68;
/// Offset of the authentication tag, which covers all bytes before it.
const TAG_AT: usize = 72;
/// Accepted difference between the clocks of two machines, in milliseconds.
const SKEW: u64 = 2000;

/// Content of a Retry token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct RetryToken {
    /// Address and port of the client that the token validates. An IPv4-mapped address is stored as
    /// IPv4.
    pub client: SocketAddr,
    /// Destination Connection ID of the client's first Initial packet. The server sends it in the
    /// transport parameter original_destination_connection_id (RFC 9000 s.7.3).
    pub original: ConnectionId,
    /// Source Connection ID of the Retry packet. The server sends it in the transport parameter
    /// retry_source_connection_id.
    pub retry_source: ConnectionId,
    /// Time at which the token was made, in milliseconds on the ring's clock.
    pub issued: u64,
}

/// Why a token cannot be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// A connection ID is shorter than 8 bytes, or both are the same.
    #[error(
        "each of the two connection IDs needs at least 8 bytes (RFC 9000 s.7.2), and they must differ (s.17.2.5.1)"
    )]
    ConnectionId,
}

/// Why a token does not validate the client's address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum TokenError {
    /// The token's first bit says that it came from a NEW_TOKEN frame. Only the server can check
    /// such a token.
    #[error("the token is from a NEW_TOKEN frame, not from a Retry packet")]
    NewToken,
    /// The token has the wrong length, or a field is out of range.
    #[error("the token does not have the format of Retry tokens")]
    Malformed,
    /// The ring does not have the token's key. The key was removed, or it belongs to another ring.
    #[error("unknown key for this token: it was never loaded, or it was rotated out")]
    UnknownEpoch,
    /// The token's tag is wrong, or the token is for another address, port or connection ID.
    #[error("the token was not made for this client and connection ID")]
    Forged,
    /// The token is older than the lifetime of tokens.
    #[error("the token has expired")]
    Expired,
    /// The token's time is in the future, because a clock was set back or the clocks of two
    /// machines differ.
    #[error(
        "the token's time is in the future: the clock of its issuer differs from the clock of this process"
    )]
    Early,
}

/// Returns the address as tokens contain it: a dual-stack socket reports an IPv4 client as an IPv6
/// address, which this function converts to IPv4.
fn canonical(remote: SocketAddr) -> SocketAddr {
    SocketAddr::new(remote.ip().to_canonical(), remote.port())
}

fn array<const N: usize>(token: &[u8; RetryToken::LEN], at: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&token[at..at + N]);
    bytes
}

impl RetryToken {
    /// Length of every Retry token, in bytes.
    pub const LEN: usize = 80;

    /// Creates the content of a token for the client at `client`. `original` is the Destination
    /// Connection ID of the packet that the Retry packet answers, and `retry_source` is the Source
    /// Connection ID of the Retry packet. `now` is the time by [`KeyRing::now`], of which the
    /// lowest 48 bits are kept.
    pub fn new(
        client: SocketAddr,
        original: ConnectionId,
        retry_source: ConnectionId,
        now: u64,
    ) -> RetryToken {
        let issued = now & (u64::MAX >> 16);
        RetryToken { client: canonical(client), original, retry_source, issued }
    }

    /// Returns the encoded token, which the client must send back.
    ///
    /// # Errors
    /// [`SealError::ConnectionId`].
    pub fn seal(&self, ring: &KeyRing) -> Result<[u8; Self::LEN], SealError> {
        let (original, retry) = (self.original.as_bytes(), self.retry_source.as_bytes());
        if original.len() < MIN_ID || retry.len() < MIN_ID || original == retry {
            return Err(SealError::ConnectionId);
        }
        let (family, address) = match self.client.ip() {
            IpAddr::V4(v4) => (4, v4.to_ipv6_mapped()),
            IpAddr::V6(v6) => (6, v6),
        };
        let mut token = [0; Self::LEN];
        token[0] = original.len() as u8;
        token[ID_AT..ID_AT + original.len()].copy_from_slice(original);
        token[KIND_AT] = FORMAT | ring.epoch().number();
        token[TIME_AT..FAMILY_AT].copy_from_slice(&self.issued.to_be_bytes()[2..]);
        token[FAMILY_AT] = family;
        token[PORT_AT..ADDRESS_AT].copy_from_slice(&self.client.port().to_be_bytes());
        token[ADDRESS_AT..RETRY_AT].copy_from_slice(&address.octets());
        token[RETRY_AT..RETRY_AT + retry.len()].copy_from_slice(retry);
        token[RETRY_LEN_AT] = retry.len() as u8;
        // A ring always has its current key.
        let tag = ring.current_key().map(|key| key.hash(&token[..TAG_AT])).unwrap_or_default();
        token[TAG_AT..].copy_from_slice(&tag.to_le_bytes());
        Ok(token)
    }

    /// Opens a token that came in an Initial packet from `remote` with the Destination Connection
    /// ID `dcid`. `now` is the time by [`KeyRing::now`].
    ///
    /// # Errors
    /// A [`TokenError`] if the token does not validate the client's address. After
    /// [`TokenError::NewToken`], the server must check the token itself. After any other error, it
    /// may close the connection with INVALID_TOKEN (RFC 9000 s.8.1.2) or ignore the packet.
    pub fn open(
        ring: &KeyRing,
        now: u64,
        remote: SocketAddr,
        dcid: &[u8],
        token: &[u8],
    ) -> Result<RetryToken, TokenError> {
        let token = RetryToken::with_tag(ring, token)?;
        if token.client != canonical(remote) || token.retry_source.as_bytes() != dcid {
            return Err(TokenError::Forged);
        }
        token.in_time(ring, now)
    }

    /// Opens a token without comparing the packet's source, for QUIC stacks that do not report it.
    /// The caller or its stack must compare [`RetryToken::client`] with the source of the packet,
    /// and should compare [`RetryToken::retry_source`] with the packet's Destination Connection ID.
    ///
    /// # Errors
    /// Those of [`RetryToken::open`].
    pub fn authenticate(ring: &KeyRing, now: u64, token: &[u8]) -> Result<RetryToken, TokenError> {
        RetryToken::with_tag(ring, token)?.in_time(ring, now)
    }

    fn in_time(self, ring: &KeyRing, now: u64) -> Result<RetryToken, TokenError> {
        if self.issued.saturating_sub(now) > SKEW {
            return Err(TokenError::Early);
        }
        if now.saturating_sub(self.issued) > ring.lifetime_ms() {
            return Err(TokenError::Expired);
        }
        Ok(self)
    }

    /// Opens a token that was made with the ring, without checking its time or its client.
    fn with_tag(ring: &KeyRing, token: &[u8]) -> Result<RetryToken, TokenError> {
        let first = *token.first().ok_or(TokenError::Malformed)?;
        if first & NEW_TOKEN_BIT != 0 {
            return Err(TokenError::NewToken);
        }
        let token: &[u8; Self::LEN] = token.try_into().map_err(|_| TokenError::Malformed)?;
        let lengths = MIN_ID..=ConnectionId::MAX_LEN;
        let length = usize::from(first);
        if !lengths.contains(&length) || token[KIND_AT] & 0xf8 != FORMAT {
            return Err(TokenError::Malformed);
        }
        let key = ring.key(token[KIND_AT] & 7).ok_or(TokenError::UnknownEpoch)?;
        // The tag is compared as one 64-bit word, so the time does not reveal how many of its bytes
        // were right.
        if key.hash(&token[..TAG_AT]) != u64::from_le_bytes(array(token, TAG_AT)) {
            return Err(TokenError::Forged);
        }
        // The time has 48 bits. The highest two of the bytes that were read belong to the fields
        // before it.
        let issued = u64::from_be_bytes(array(token, TIME_AT - 2)) & (u64::MAX >> 16);
        let id = |at: usize, length: usize| ConnectionId::new(token.get(at..at + length)?).ok();
        let retry_length = usize::from(token[RETRY_LEN_AT]);
        let ids = id(ID_AT, length).zip(id(RETRY_AT, retry_length));
        let (original, retry_source) = ids.ok_or(TokenError::Malformed)?;
        let ip = Ipv6Addr::from(array::<16>(token, ADDRESS_AT)).to_canonical();
        let client = SocketAddr::new(ip, u16::from_be_bytes(array(token, PORT_AT)));
        Ok(RetryToken { client, original, retry_source, issued })
    }
}
