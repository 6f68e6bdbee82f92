//! The names of the verdicts, in the order of `EQUIC_REASONS` in `bpf/abi.h`.

use std::fmt;

macro_rules! reasons {
    ($($variant:ident, $name:literal, $drops:literal, $meaning:literal;)*) => {
        /// Why a packet to a service passed or was dropped.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Reason {
            $(#[doc = $meaning] $variant,)*
        }

        impl Reason {
            /// Every reason, in the order of counters and events.
            pub const ALL: &'static [Reason] = &[$(Reason::$variant,)*];

            /// The name counters, events and `equic gateway explain` print.
            pub fn name(self) -> &'static str {
                match self {
                    $(Reason::$variant => $name,)*
                }
            }

            /// Whether a packet with this reason is dropped, outside a dry run.
            pub fn drops(self) -> bool {
                match self {
                    $(Reason::$variant => $drops,)*
                }
            }
        }
    };
}

reasons! {
    Allowed, "allowed", false, "The source is on the allow list.";
    Established, "established", false, "Short header: a packet of an established connection.";
    Handshake, "handshake", false, "Handshake or 0-RTT packet, which cannot open a connection.";
    Underway, "underway", false, "Initial of a handshake that was already let in.";
    New, "new", false, "Initial that opens a connection, within every limit.";
    NewVersion, "new_version", false, "Long header of an unknown version, within every limit.";
    Fragment, "fragment", false, "Later IP fragment of a datagram to the service.";
    Denied, "denied", true, "The source is on the deny list.";
    QuotaStrict, "quota_strict", true, "Policy strict: the source holds more connections than its limit.";
    Quota, "quota", true, "Opens a connection, and the source holds as many as its limit.";
    RateNewSource, "rate_new_source", true, "Too many new connections a second from the source.";
    RateNewService, "rate_new_service", true, "Too many new connections a second to the service.";
    RatePackets, "rate_packets", true, "Too many packets a second from the source.";
    RateBytes, "rate_bytes", true, "Too many bytes a second from the source.";
    SmallInitial, "small_initial", true, "Initial in a datagram under 1200 bytes (RFC 9000 s.14.1).";
    SmallVersion, "small_version", true, "Unknown version in a datagram under 1200 bytes (RFC 9000 s.5.2.2).";
    ShortDcid, "short_dcid", true, "Opening Initial with a Destination Connection ID under 8 bytes (RFC 9000 s.7.2).";
    LongCid, "long_cid", true, "Connection ID over 20 bytes in version 1 or 2 (RFC 9000 s.17.2).";
    Truncated, "truncated", true, "The header runs past the end of the datagram.";
    BadLength, "bad_length", true, "A Token Length or Length field that does not fit the datagram.";
    TinyShort, "tiny_short", true, "Short header packet under 21 bytes (RFC 9000 s.10.3).";
    Empty, "empty", true, "UDP datagram without payload.";
    VersionNegotiation, "version_negotiation", true, "Version Negotiation packet (RFC 9000 s.17.2.1).";
    Retry, "retry", true, "Retry packet (RFC 9000 s.17.2.5).";
    FixedBit, "fixed_bit", true, "Fixed Bit is zero and the service requires it (RFC 9000 s.17.2).";
    UnknownVersion, "unknown_version", true, "The service refuses versions other than 1 and 2.";
    LaterFragment, "later_fragment", true, "Later IP fragment that the fragment policy refuses.";
    BadUdp, "bad_udp", true, "UDP length contradicts the IP length.";
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
