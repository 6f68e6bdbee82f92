//! Tests of policy.md section 3: the first packet of a datagram.

use super::{full, v4, v6};
use crate::packets::quic::*;
use crate::packets::script::{Script, case};
use equic_gateway::reason::Reason::*;

pub(super) fn rows() -> Vec<Script> {
    [short_rows(), invariants(), versions(), lengths()].concat()
}

fn fixed_bit(what: &str) -> Script {
    case(what).service(|service| service.require_fixed_bit = true)
}

fn refusing(what: &str) -> Script {
    case(what).service(|service| service.refuse_unknown_versions = true)
}

fn client(what: &str) -> Script {
    case(what).service(|service| service.also_client = true)
}

fn short_rows() -> Vec<Script> {
    let greased = |len: usize| vec![0x01; len];
    vec![
        case("empty datagram").packet(v4(Vec::new()), Empty),
        case("empty datagram, IPv6").packet(v6(Vec::new()), Empty),
        case("short header of one byte").packet(v4(short(1)), TinyShort),
        case("short header of 20 bytes").packet(v4(short(20)), TinyShort),
        case("short header of 21 bytes").packet(v4(short(21)), Established),
        case("short header of 1200 bytes").packet(v6(short(1200)), Established),
        case("short header without Fixed Bit").packet(v4(greased(21)), Established),
        fixed_bit("short header without Fixed Bit, required").packet(v4(greased(21)), FixedBit),
        fixed_bit("tiny short header without Fixed Bit").packet(v4(greased(20)), FixedBit),
        fixed_bit("short header with Fixed Bit").packet(v4(short(21)), Established),
    ]
}

fn invariants() -> Vec<Script> {
    let cut = |packet: Long, len: usize| {
        let mut bytes = packet.build();
        bytes.truncate(len);
        v4(bytes)
    };
    // First byte, version and DCID length take 6 bytes. Then follow 8 bytes of DCID, the SCID
    // length, and 5 bytes of SCID.
    vec![
        case("long header of 1 byte").packet(cut(initial(), 1), Truncated),
        case("long header of 6 bytes").packet(cut(initial().cid_lens(0, 0), 6), Truncated),
        case("long header of 7 bytes").packet(cut(retry().cid_lens(0, 0), 7), Retry),
        case("DCID past the end").packet(cut(initial(), 13), Truncated),
        case("SCID length past the end").packet(cut(initial(), 14), Truncated),
        case("SCID past the end").packet(cut(initial(), 19), Truncated),
        case("Token Length past the end").packet(cut(handshake(), 20), Truncated),
        case("DCID of 255 bytes past the end, unknown version")
            .packet(cut(initial().version(UNKNOWN).cid_lens(255, 0), 200), Truncated),
        case("DCID past the end, version 0")
            .packet(cut(initial().version(0).cid_lens(20, 0), 26), Truncated),
        case("DCID of 20 bytes").packet(v4(initial().cid_lens(20, 5).fill(1200).build()), New),
        case("DCID of 21 bytes").packet(v4(initial().cid_lens(21, 5).fill(1200).build()), LongCid),
        case("SCID of 20 bytes").packet(v4(initial().cid_lens(8, 20).fill(1200).build()), New),
        case("SCID of 21 bytes").packet(v4(initial().cid_lens(8, 21).fill(1200).build()), LongCid),
        case("SCID of 21 bytes, version 2, Handshake")
            .packet(v6(handshake().v2().cid_lens(8, 21).build()), LongCid),
        case("no SCID").packet(v4(initial().cid_lens(8, 0).fill(1200).build()), New),
    ]
}

fn versions() -> Vec<Script> {
    let unknown = |size| v4(padded(&[initial().version(UNKNOWN)], size));
    let long_ids = || padded(&[initial().version(UNKNOWN).cid_lens(255, 255)], 1200);
    vec![
        case("Version Negotiation").packet(v4(version_negotiation()), VersionNegotiation),
        client("Version Negotiation to a client").packet(v4(version_negotiation()), Handshake),
        case("unknown version, 1200 bytes").packet(unknown(1200), NewVersion),
        case("unknown version, 1199 bytes").packet(unknown(1199), SmallVersion),
        refusing("unknown version, refused").packet(unknown(1200), UnknownVersion),
        refusing("small unknown version, refused").packet(unknown(100), UnknownVersion),
        refusing("version 2 is known").packet(v4(initial().v2().fill(1200).build()), New),
        case("unknown version with connection IDs of 255 bytes").packet(v4(long_ids()), NewVersion),
        case("unknown version again")
            .packet(unknown(1200), NewVersion)
            .packet(unknown(1200), NewVersion),
        case("unknown version with a short DCID")
            .packet(v4(padded(&[initial().version(UNKNOWN).dcid(&[1])], 1200)), NewVersion),
        case("unknown version looks like a Retry")
            .packet(v4(padded(&[retry().version(UNKNOWN)], 1200)), NewVersion),
        fixed_bit("unknown version without Fixed Bit")
            .packet(v4(padded(&[initial().version(UNKNOWN).greased()], 1200)), NewVersion),
        case("Initial without Fixed Bit").packet(v4(initial().greased().fill(1200).build()), New),
        fixed_bit("Initial without Fixed Bit, required")
            .packet(v4(initial().greased().fill(1200).build()), FixedBit),
        fixed_bit("Fixed Bit comes before the connection IDs' lengths")
            .packet(v4(initial().greased().cid_lens(21, 0).fill(1200).build()), FixedBit),
        case("Retry").packet(v4(retry().build()), Retry),
        case("Retry, version 2").packet(v6(retry().v2().build()), Retry),
        client("Retry to a client").packet(v4(retry().build()), Handshake),
        case("Handshake").packet(v4(handshake().build()), Handshake),
        case("Handshake, version 2").packet(v4(handshake().v2().build()), Handshake),
        case("0-RTT").packet(v4(zero_rtt().build()), Handshake),
        case("0-RTT, version 2").packet(v6(zero_rtt().v2().build()), Handshake),
        case("Initial, version 2").packet(v6(initial().v2().fill(1200).build()), New),
        case("type bits of version 1 in version 2")
            .packet(v4(padded(&[retry().v2().body(0)], 1200)), Retry),
    ]
}

fn lengths() -> Vec<Script> {
    let token_len = |len| v4(padded(&[initial().token_len(len)], 1200));
    let left = |packet: Long| {
        let bytes = packet.build();
        v4(bytes)
    };
    vec![
        case("Initial of 1200 bytes").packet(v4(full()), New),
        case("Initial of 1199 bytes").packet(v4(initial().fill(1199).build()), SmallInitial),
        case("Initial of 1199 bytes, version 2")
            .packet(v6(initial().v2().fill(1199).build()), SmallInitial),
        case("small Initial in a padded datagram").packet(v4(padded(&[initial()], 1200)), New),
        case("small comes before a bad token")
            .packet(left(initial().token_len(5000)), SmallInitial),
        case("Token Length beyond the datagram").packet(token_len(5000), BadLength),
        case("Token Length 2^62-1").packet(token_len((1 << 62) - 1), BadLength),
        // The invariant header takes 20 bytes and the Token Length takes 2, so 1178 of the 1200
        // bytes are left.
        case("token to the end: no Length").packet(token_len(1178), Truncated),
        case("token beyond the end by one").packet(token_len(1179), BadLength),
        case("Initial with a token").packet(v4(initial().token(300).fill(1200).build()), New),
        case("varints of 8 bytes").packet(v4(initial().wide_varints().fill(1200).build()), New),
        case("Length 19").packet(left(handshake().body(40).length(19)), BadLength),
        case("Length 20").packet(left(handshake().body(40).length(20)), Handshake),
        case("Length 0").packet(left(zero_rtt().length(0)), BadLength),
        case("Length to the end").packet(left(handshake().body(40).length(40)), Handshake),
        case("Length beyond the end by one")
            .packet(left(handshake().body(40).length(41)), BadLength),
        case("Length 2^62-1").packet(left(handshake().length((1 << 62) - 1)), BadLength),
        case("Initial with Length 19").packet(v4(padded(&[initial().length(19)], 1200)), BadLength),
        case("Initial with Length 20").packet(v4(padded(&[initial().length(20)], 1200)), New),
        case("varint of Length past the end").packet(
            {
                let mut bytes = handshake().body(0).wide_varints().build();
                bytes.truncate(bytes.len() - 1);
                v4(bytes)
            },
            Truncated,
        ),
        case("no Length at all").packet(
            {
                let mut bytes = handshake().body(0).length(20).build();
                bytes.pop();
                v4(bytes)
            },
            Truncated,
        ),
    ]
}
