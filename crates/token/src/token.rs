//! Retry tokens (`docs/retry.md` s.3): 36 bytes, of which the first 21 are those of
//! draft-ietf-quic-retry-offload s.3, so that a server can read them without a key.

use std::net::{IpAddr, SocketAddr};

use equic_wire::ConnectionId;

use crate::ring::KeyRing;

/// A client's first Destination Connection ID has at least so many bytes (RFC 9000 s.7.2).
pub(crate) const MIN_ID: usize = 8;

/// First bit of tokens of NEW_TOKEN frames (draft-ietf-quic-retry-offload s.3).
const NEW_TOKEN_BIT: u8 = 0x80;
/// Upper five bits of the byte that has the epoch in the others.
const FORMAT: u8 = 0x10;
const ID_AT: usize = 1;
const KIND_AT: usize = 21;
const TIME_AT: usize = 22;
const TAG_AT: usize = 28;
const MESSAGE: usize = 72;
/// Clocks of two machines may differ by so many milliseconds.
const SKEW: u64 = 2000;

/// What a Retry token says once it is opened, or is to say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct RetryToken {
    /// Destination Connection ID of the client's first Initial packet: the transport parameter
    /// original_destination_connection_id (RFC 9000 s.7.3).
    pub original: ConnectionId,
    /// Source Connection ID of the Retry packet: the transport parameter retry_source_connection_id.
    pub retry_source: ConnectionId,
    /// Time at which it was made, in milliseconds of the ring's clock.
    pub issued: u64,
}

/// Reason that no token can be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// A connection ID is shorter than 8 bytes, or both are the same.
    #[error(
        "the connection IDs need at least 8 bytes each (RFC 9000 s.7.2) and must differ (s.17.2.5.1)"
    )]
    ConnectionId,
}

/// Reason that a token is no proof of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum TokenError {
    /// Its first bit says that it is of a NEW_TOKEN frame: the server's to judge.
    #[error("the token is of a NEW_TOKEN frame, not of a Retry packet")]
    NewToken,
    /// Another length, or a field out of range.
    #[error("the token is not of this format")]
    Malformed,
    /// Its key was retired, or is another ring's.
    #[error("the token's key is not known here (any more)")]
    UnknownEpoch,
    /// Not made with this ring for this address, port and connection ID.
    #[error("the token was not made for this client and connection ID")]
    Forged,
    /// Made longer ago than tokens live.
    #[error("the token has expired")]
    Expired,
    /// Made later than now: a clock went back.
    #[error("the token was made in the future: the clocks of who made it and who checks it differ")]
    Early,
}

/// Address as tokens hold it: an IPv4 client of a dual-stack socket is an IPv4 client.
fn write_client(message: &mut [u8; MESSAGE], remote: SocketAddr) {
    let (family, address) = match remote.ip().to_canonical() {
        IpAddr::V4(v4) => (4, v4.to_ipv6_mapped()),
        IpAddr::V6(v6) => (6, v6),
    };
    message[TAG_AT] = family;
    message[30..32].copy_from_slice(&remote.port().to_be_bytes());
    message[32..48].copy_from_slice(&address.octets());
}

fn write_retry_source(message: &mut [u8; MESSAGE], id: &[u8]) {
    for (to, from) in message[48..68].iter_mut().zip(id) {
        *to = *from;
    }
    // Every caller has checked that it is at most 20.
    message[68] = id.len() as u8;
}

impl RetryToken {
    /// Bytes of every token.
    pub const LEN: usize = 36;

    /// A token to be sealed: the IDs of the packet that is answered and of the answer, and the time by
    /// [`KeyRing::now`], of which the lowest 48 bits are kept.
    pub fn new(original: ConnectionId, retry_source: ConnectionId, now: u64) -> RetryToken {
        RetryToken { original, retry_source, issued: now & (u64::MAX >> 16) }
    }

    /// The token for a client to bring back.
    ///
    /// # Errors
    /// [`SealError::ConnectionId`].
    pub fn seal(&self, ring: &KeyRing, remote: SocketAddr) -> Result<[u8; Self::LEN], SealError> {
        let (original, retry) = (self.original.as_bytes(), self.retry_source.as_bytes());
        if original.len() < MIN_ID || retry.len() < MIN_ID || original == retry {
            return Err(SealError::ConnectionId);
        }
        let mut message = [0; MESSAGE];
        message[0] = original.len() as u8;
        message[ID_AT..ID_AT + original.len()].copy_from_slice(original);
        message[KIND_AT] = FORMAT | ring.epoch().number();
        message[TIME_AT..TAG_AT].copy_from_slice(&self.issued.to_be_bytes()[2..]);
        write_client(&mut message, remote);
        write_retry_source(&mut message, retry);
        let mut token = [0; Self::LEN];
        token[..TAG_AT].copy_from_slice(&message[..TAG_AT]);
        // A ring always has its current key.
        let tag = ring.current_key().map(|key| key.hash(&message)).unwrap_or_default();
        token[TAG_AT..].copy_from_slice(&tag.to_le_bytes());
        Ok(token)
    }

    /// Opens a token that came from `remote` in an Initial packet to `dcid`, at the time `now` by
    /// [`KeyRing::now`].
    ///
    /// # Errors
    /// [`TokenError`]: the client has not shown that it receives at its address. With
    /// [`TokenError::NewToken`] the server judges by itself; else it may answer with a close of
    /// INVALID_TOKEN (RFC 9000 s.8.1.2), or nothing.
    pub fn open(
        ring: &KeyRing,
        now: u64,
        remote: SocketAddr,
        dcid: &[u8],
        token: &[u8],
    ) -> Result<RetryToken, TokenError> {
        let first = *token.first().ok_or(TokenError::Malformed)?;
        if first & NEW_TOKEN_BIT != 0 {
            return Err(TokenError::NewToken);
        }
        let token: &[u8; Self::LEN] = token.try_into().map_err(|_| TokenError::Malformed)?;
        let retry_source = ConnectionId::new(dcid).map_err(|_| TokenError::Malformed)?;
        let length = usize::from(first);
        if !(MIN_ID..=ConnectionId::MAX_LEN).contains(&length) || token[KIND_AT] & 0xf8 != FORMAT {
            return Err(TokenError::Malformed);
        }
        let key = ring.key(token[KIND_AT] & 7).ok_or(TokenError::UnknownEpoch)?;
        let mut message = [0; MESSAGE];
        message[..TAG_AT].copy_from_slice(&token[..TAG_AT]);
        write_client(&mut message, remote);
        write_retry_source(&mut message, dcid);
        let mut tag = [0; 8];
        tag.copy_from_slice(&token[TAG_AT..]);
        // One comparison of two words: its duration does not tell how much was right.
        if key.hash(&message) != u64::from_le_bytes(tag) {
            return Err(TokenError::Forged);
        }
        let mut time = [0; 8];
        time[2..].copy_from_slice(&token[TIME_AT..TAG_AT]);
        let issued = u64::from_be_bytes(time);
        if issued.saturating_sub(now) > SKEW {
            return Err(TokenError::Early);
        }
        if now.saturating_sub(issued) > ring.lifetime_ms() {
            return Err(TokenError::Expired);
        }
        let original =
            ConnectionId::new(&token[ID_AT..ID_AT + length]).map_err(|_| TokenError::Malformed)?;
        Ok(RetryToken { original, retry_source, issued })
    }
}
