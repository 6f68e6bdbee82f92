//! QUIC versions (RFC 9000 s.15, RFC 9369 s.3.1).

use core::fmt;

/// A version field: any 32 bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(pub u32);

/// A version whose packets this crate parses beyond the invariants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KnownVersion {
    /// RFC 9000.
    V1,
    /// RFC 9369: packet types are numbered differently, keys and salts are others.
    V2,
}

impl Version {
    /// Not a version: marks a Version Negotiation packet (RFC 8999 s.6).
    pub const NEGOTIATION: Version = Version(0);
    /// Version 1.
    pub const V1: Version = Version(1);
    /// Version 2.
    pub const V2: Version = Version(0x6b33_43cf);

    /// A version reserved to force version negotiation: 0x?a?a?a?a with the given bits in the upper
    /// halves of the bytes (RFC 9000 s.15).
    pub const fn reserved(bits: u32) -> Version {
        Version((bits & 0xf0f0_f0f0) | 0x0a0a_0a0a)
    }

    /// Whether it is reserved to force version negotiation.
    pub const fn is_reserved(self) -> bool {
        self.0 & 0x0f0f_0f0f == 0x0a0a_0a0a
    }

    /// Version 1 or 2.
    pub const fn known(self) -> Option<KnownVersion> {
        match self {
            Version::V1 => Some(KnownVersion::V1),
            Version::V2 => Some(KnownVersion::V2),
            _ => None,
        }
    }
}

impl From<KnownVersion> for Version {
    fn from(known: KnownVersion) -> Version {
        match known {
            KnownVersion::V1 => Version::V1,
            KnownVersion::V2 => Version::V2,
        }
    }
}

impl fmt::Debug for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#010x}", self.0)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.known() {
            Some(KnownVersion::V1) => f.write_str("1"),
            Some(KnownVersion::V2) => f.write_str("2"),
            None => fmt::Debug::fmt(self, f),
        }
    }
}
