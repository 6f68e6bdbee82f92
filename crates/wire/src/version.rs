//! QUIC versions (RFC 9000 s.15, RFC 9369 s.3.1).

use core::fmt;

/// The version field of a packet, which may have any 32-bit value.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(pub u32);

/// A version whose packets this crate parses completely, and not only their invariant fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum KnownVersion {
    /// RFC 9000.
    V1,
    /// Version 2 (RFC 9369). It numbers packet types differently, and derives keys with other salts
    /// and labels.
    V2,
    /// [`Version::NULL_CRYPTO`], for simulations: version 1 without any protection.
    /// [`Version::known`] never returns it. To parse such packets, call
    /// [`crate::packet::Datagram::including`].
    #[cfg(feature = "null-crypto")]
    NullCrypto,
}

impl KnownVersion {
    /// All versions that this build knows.
    pub const ALL: &[KnownVersion] = &[
        KnownVersion::V1,
        KnownVersion::V2,
        #[cfg(feature = "null-crypto")]
        KnownVersion::NullCrypto,
    ];
}

impl Version {
    /// The value 0, which marks a Version Negotiation packet (RFC 8999 s.6).
    pub const NEGOTIATION: Version = Version(0);
    /// Version 1.
    pub const V1: Version = Version(1);
    /// Version 2.
    pub const V2: Version = Version(0x6b33_43cf);
    /// The number spells "null" in ASCII. It is a private version for packets without protection,
    /// used in simulations. The IETF does not assign this number, because its versions begin with
    /// 0x0000 (RFC 9000 s.15) and its drafts with 0xff0000. The number is also not one of those
    /// reserved to force version negotiation.
    #[cfg(feature = "null-crypto")]
    pub const NULL_CRYPTO: Version = Version(0x6e75_6c6c);

    /// Returns a version that is reserved to force version negotiation: 0x?a?a?a?a, where the upper
    /// half of each byte comes from `bits` (RFC 9000 s.15).
    pub const fn reserved(bits: u32) -> Version {
        Version((bits & 0xf0f0_f0f0) | 0x0a0a_0a0a)
    }

    /// True if the version is reserved to force version negotiation.
    pub const fn is_reserved(self) -> bool {
        self.0 & 0x0f0f_0f0f == 0x0a0a_0a0a
    }

    /// Returns version 1 or 2, or `None` for every other version.
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
            #[cfg(feature = "null-crypto")]
            KnownVersion::NullCrypto => Version::NULL_CRYPTO,
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
            _ => fmt::Debug::fmt(self, f),
        }
    }
}

#[cfg(all(test, feature = "null-crypto"))]
mod tests {
    use super::*;

    #[test]
    fn version_null_is_unknown_unless_enabled() {
        let null = Version::NULL_CRYPTO;
        assert!(!null.is_reserved());
        assert!(null.0 >> 16 != 0 && null.0 >> 8 != 0x00ff_0000);
        assert!(![Version::V1, Version::V2, Version::NEGOTIATION].contains(&null));
        assert_eq!(null.known(), None);
        assert_eq!(Version::from(KnownVersion::NullCrypto), null);
    }
}
