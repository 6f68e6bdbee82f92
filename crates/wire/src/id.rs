//! Connection IDs and stateless reset tokens (RFC 9000 s.5.1, s.10.3).

use core::fmt;

/// A connection ID of QUIC version 1 or 2, of at most 20 bytes (RFC 9000 s.17.2 #2 #5).
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId {
    // The unused bytes from `len` on are zero. The derived `Eq`, `Ord` and `Hash` rely on this.
    bytes: [u8; ConnectionId::MAX_LEN],
    len: u8,
}

/// Error: a connection ID is longer than 20 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionIdTooLong;

impl ConnectionId {
    /// Longest connection ID, in bytes.
    pub const MAX_LEN: usize = 20;
    /// The zero-length connection ID.
    pub const EMPTY: ConnectionId = ConnectionId { bytes: [0; Self::MAX_LEN], len: 0 };

    /// Creates a connection ID from its bytes.
    ///
    /// # Errors
    /// Fails if `id` is longer than 20 bytes.
    #[inline]
    pub fn new(id: &[u8]) -> Result<Self, ConnectionIdTooLong> {
        let len = u8::try_from(id.len()).map_err(|_| ConnectionIdTooLong)?;
        let mut bytes = [0; Self::MAX_LEN];
        bytes.get_mut(..id.len()).ok_or(ConnectionIdTooLong)?.copy_from_slice(id);
        Ok(ConnectionId { bytes, len })
    }

    /// Creates a connection ID from the first 20 bytes of `id`. Versions other than 1 and 2 allow
    /// IDs of up to 255 bytes (RFC 8999).
    #[inline]
    pub fn cut(id: &[u8]) -> Self {
        let id = id.get(..Self::MAX_LEN).unwrap_or(id);
        ConnectionId::new(id).unwrap_or(Self::EMPTY)
    }

    /// Bytes of the connection ID.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len()).unwrap_or_default()
    }

    /// Returns `true` if the connection ID consists of exactly the bytes `id`.
    #[inline]
    pub fn is(&self, id: &[u8]) -> bool {
        // Most IDs have eight bytes. This comparison of eight bytes avoids a call of `memcmp`.
        match (id.first_chunk::<8>(), self.bytes.first_chunk::<8>()) {
            (Some(id_first), Some(first)) if id.len() == 8 => self.len == 8 && id_first == first,
            _ => self.as_bytes() == id,
        }
    }

    /// Length of the connection ID, in bytes.
    pub fn len(&self) -> usize {
        usize::from(self.len)
    }

    /// True if the connection ID has zero length.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The length of the ID, as the byte that precedes the ID on the wire.
    pub(crate) fn len_byte(&self) -> u8 {
        self.len
    }
}

impl TryFrom<&[u8]> for ConnectionId {
    type Error = ConnectionIdTooLong;

    fn try_from(id: &[u8]) -> Result<Self, ConnectionIdTooLong> {
        ConnectionId::new(id)
    }
}

impl AsRef<[u8]> for ConnectionId {
    fn as_ref(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl fmt::Display for ConnectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ConnectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ConnectionId({self})")
    }
}

/// A stateless reset token: with it, an endpoint that has lost its state ends a connection (RFC
/// 9000 s.10.3). The token is secret until it is used. Therefore `Debug` does not print it, and
/// `==` takes constant time (RFC 9000 s.10.3.1 #3).
#[derive(Clone, Copy)]
pub struct ResetToken(pub [u8; ResetToken::LEN]);

impl ResetToken {
    /// Length of a stateless reset token, in bytes.
    pub const LEN: usize = 16;
}

impl PartialEq for ResetToken {
    fn eq(&self, other: &Self) -> bool {
        let differing = self.0.iter().zip(&other.0).fold(0, |all, (a, b)| all | (a ^ b));
        core::hint::black_box(differing) == 0
    }
}

impl Eq for ResetToken {}

impl fmt::Debug for ResetToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ResetToken(..)")
    }
}

impl fmt::Display for ConnectionIdTooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the connection ID is longer than 20 bytes")
    }
}

impl core::error::Error for ConnectionIdTooLong {}
