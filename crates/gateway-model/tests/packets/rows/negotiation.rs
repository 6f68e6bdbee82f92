//! Section 9: services that answer unknown versions.

use super::ids::id;
use super::retry::{bytes, proved};
use super::{C4, C6, S4, attempt, full, v4, v6};
use crate::packets::frame::*;
use crate::packets::quic::*;
use crate::packets::script::{Expected, SECOND, Script, case};
use equic_gateway::reason::Reason::*;
use equic_gateway_model::{Override, QuotaPolicy, Rate, RetryPolicy, TakenVersions};

/// The answers to `unknown()`: over IPv4, and over IPv6 with two VLAN tags from a service that
/// accepts only version 1. They were computed with another implementation.
const BOTH: &str = "\
    02000000000202000000000108004500003c0000400040116eaf0a000001c000020101bb03e80028a8bdc00000000005\
    500102030408d001020304050607000000016b3343cfda0a0a0a";
const V1_ONLY: &str = "\
    02000000000202000000000188a800078100000786dd6000000000241140fd0000000000000000000000000000012001\
    0db800000000000000000000000101bb03e80024f90ec00000000005500102030408d00102030405060700000001da0a\
    0a0a";

/// The answer to a packet whose version is the reserved version in BOTH. It contains another
/// reserved version.
const OTHER: &str = "\
    02000000000202000000000108004500003c0000400040116eaf0a000001c000020101bb03e8002866ddc00000000005\
    500102030408d001020304050607000000016b3343cf2afafafa";
/// The answer over IPv6 to a packet with the longest connection IDs, up to the first ID in the
/// answer.
const LONGEST: &str = "\
    02000000000202000000000186dd6000000002191140fd00000000000000000000000000000120010db8000000000000\
    00000000000101bb03e802192466c000000000ff";

fn answering(what: &str) -> Script {
    case(&format!("versions: {what}")).service(|service| service.version_negotiation = true)
}

fn takes(what: &str, versions: TakenVersions) -> Script {
    case(what).service(|service| service.versions = versions)
}

fn of(version: u32) -> Vec<u8> {
    padded(&[initial().version(version)], 1200)
}

fn unknown() -> Vec<u8> {
    of(UNKNOWN)
}

/// Returns a packet with 529 bytes of UDP payload.
fn longest() -> Vec<u8> {
    let versions = bytes("000000016b3343cfcacacaca");
    [bytes(LONGEST), vec![0xcc; 255], vec![255], vec![0xcd; 255], versions].concat()
}

fn ids(dcid: usize, scid: usize) -> Vec<u8> {
    padded(&[initial().version(UNKNOWN).cid_lens(dcid, scid)], 1200)
}

pub(super) fn rows() -> Vec<Script> {
    [answers(), what_is_not(), versions(), with_retry(), charges()].concat()
}

fn answers() -> Vec<Script> {
    let v1_only = |what| answering(what).service(|service| service.versions = TakenVersions::V1);
    vec![
        answering("an unknown version is answered")
            .packet(v4(unknown()), VersionNegotiationSent)
            .answered(bytes(BOTH)),
        v1_only("by a service that takes version 1 only, IPv6, two tags")
            .packet(v6(unknown()).vlan(TPID_8021AD).vlan(TPID_8021Q), VersionNegotiationSent)
            .answered(bytes(V1_ONLY)),
        answering("what is behind the datagram is not sent back")
            .packet(v4(unknown()).padding(50), VersionNegotiationSent)
            .answered(bytes(BOTH)),
        answering("the answer has no IP options")
            .packet(v4(unknown()).ip_options(7), VersionNegotiationSent)
            .answered(bytes(BOTH)),
        answering("a frame in several buffers")
            .packet(v4(padded(&[initial().version(UNKNOWN)], 8000)), VersionNegotiationSent)
            .answered(bytes(BOTH)),
        answering("what looks like a Retry, without Fixed Bit")
            .service(|service| service.require_fixed_bit = true)
            .packet(v4(padded(&[retry().version(UNKNOWN).greased()], 1200)), VersionNegotiationSent)
            .answered(bytes(BOTH)),
        answering("no IDs").packet(v4(ids(0, 0)), VersionNegotiationSent),
        answering("IDs longer than those of versions 1 and 2")
            .packet(v4(ids(21, 0)), VersionNegotiationSent)
            .packet(v6(ids(1, 100)), VersionNegotiationSent),
        answering("the longest IDs")
            .packet(v4(ids(255, 255)), VersionNegotiationSent)
            .packet(v6(ids(255, 255)), VersionNegotiationSent)
            .answered(longest()),
        answering("a reserved version").packet(v4(of(0x1a2a_3a4a)), VersionNegotiationSent),
        answering("the reserved version of the answer is not the packet's")
            .packet(v4(of(0xda0a_0a0a)), VersionNegotiationSent)
            .answered(bytes(OTHER)),
        answering("it is not dropped for being refused")
            .service(|service| service.refuse_unknown_versions = true)
            .packet(v4(unknown()), VersionNegotiationSent),
        answering("dry run: the server sees it")
            .service(|service| service.dry_run = true)
            .packet(v4(unknown()), Expected::Verdict(VersionNegotiationSent, false)),
        answering("who is allowed is told too")
            .allow("192.0.2.1/32")
            .packet(v4(unknown()), VersionNegotiationSent),
        case("versions: from the moment on that it is said, to the moment that it is not")
            .packet(v4(unknown()), NewVersion)
            .live(|service| service.version_negotiation = true)
            .packet(v4(unknown()), VersionNegotiationSent)
            .live(|service| service.version_negotiation = false)
            .packet(v4(unknown()), NewVersion),
    ]
}

fn what_is_not() -> Vec<Script> {
    vec![
        answering("what is under 1200 bytes")
            .packet(v4(padded(&[initial().version(UNKNOWN)], 1199)), SmallVersion),
        answering("Version Negotiation, however long")
            .packet(v4(version_negotiation()), VersionNegotiation)
            .packet(v4(of(0)), VersionNegotiation),
        answering("nor to one that is a client too")
            .service(|service| service.also_client = true)
            .packet(v4(of(0)), Handshake),
        answering("a short header").packet(v4(short(1200)), Established),
        answering("versions 1 and 2")
            .packet(v4(full()), New)
            .packet(v6(initial().v2().fill(1200).build()), New),
        answering("an ID past the end").packet(
            {
                let mut packet = initial().version(UNKNOWN).cid_lens(255, 0).build();
                packet.truncate(200);
                v4(packet)
            },
            Truncated,
        ),
        answering("an IP fragment")
            .packet(v4(unknown()).udp_len(1308).fragment(1, 0, true), FirstFragment),
        answering("who sent to a group")
            .packet(udp(C4, "239.0.0.1:443", unknown()), UnknownVersion)
            .packet(udp(C6, "[ff05::1]:443", unknown()), UnknownVersion),
        answering("who is denied").deny("192.0.2.1/32").packet(v4(unknown()), Denied),
        answering("nobody's address").packet(udp("224.0.0.1:1000", S4, unknown()), BadSource),
        answering("too many")
            .service(|service| service.answers_per_service = Rate::per_second(1, 2))
            .packet(v4(unknown()), VersionNegotiationSent)
            .packet(v6(unknown()), VersionNegotiationSent)
            .packet(v4(unknown()), RateAnswers)
            .wait(SECOND)
            .packet(v4(unknown()), VersionNegotiationSent),
    ]
}

/// Packets of versions 1 and 2 to services that do not accept these versions.
fn versions() -> Vec<Script> {
    use TakenVersions::{V1, V2};
    let one = |packet: Long| v4(packet.fill(1200).build());
    vec![
        takes("version 2 where 1 is taken", V1)
            .packet(one(initial()), New)
            .packet(one(initial().v2().scid(&[2])), NewVersion)
            .packet(v4(handshake().v2().build()), SmallVersion),
        takes("version 1 where 2 is taken", V2)
            .packet(one(initial().v2()), New)
            .packet(one(initial().scid(&[2])), NewVersion),
        takes("refused", V1)
            .service(|service| service.refuse_unknown_versions = true)
            .packet(one(initial()), New)
            .packet(one(initial().v2()), UnknownVersion),
        takes("answered", V1)
            .service(|service| service.version_negotiation = true)
            .packet(one(initial()), New)
            .packet(one(initial().v2()), VersionNegotiationSent)
            .packet(one(retry().v2()), VersionNegotiationSent),
        takes("a long ID of a version that is not taken", V1)
            .packet(one(initial().v2().cid_lens(21, 5)), NewVersion)
            .packet(one(initial().cid_lens(21, 5)), LongCid),
        takes("a short ID of a version that is not taken", V2)
            .packet(one(initial().cid_lens(4, 5)), NewVersion),
    ]
}

fn with_retry() -> Vec<Script> {
    let both = |what| answering(what).service(|service| service.retry = RetryPolicy::Always);
    vec![
        both("one answer is for one packet, the other for another")
            .packet(v4(unknown()), VersionNegotiationSent)
            .answered(bytes(BOTH))
            .packet(v4(full()), RetrySent)
            .packet(v4(proved(1)), Proved),
        takes(
            "a version that is not taken is answered where proof is asked for",
            TakenVersions::V2,
        )
        .service(|service| service.retry = RetryPolicy::Always)
        .packet(v4(full()), VersionNegotiationSent),
        takes("and where it may be", TakenVersions::V1)
            .service(|service| service.retry = RetryPolicy::Adaptive)
            .packet(v4(initial().v2().fill(1200).build()), VersionNegotiationSent),
        case("versions: with Retry, refused ones are dropped")
            .service(|service| {
                (service.retry, service.refuse_unknown_versions) = (RetryPolicy::Always, true);
            })
            .packet(v4(unknown()), UnknownVersion),
        case("versions: with Retry, an allowed source's pass")
            .service(|service| service.retry = RetryPolicy::Always)
            .allow("192.0.2.1/32")
            .packet(v4(unknown()), Allowed),
        both("a flood of unknown versions takes nothing from Retry")
            .service(|service| service.answers_per_service = Rate::per_second(1, 1))
            .packet(v4(unknown()), VersionNegotiationSent)
            .packets(20, &v4(unknown()), RateAnswers)
            .packet(v4(full()), RetrySent)
            .packet(v4(full()), RateAnswers)
            .wait(SECOND)
            .packet(v4(full()), RetrySent)
            .packet(v4(unknown()), VersionNegotiationSent),
        both("and a flood of Initials nothing from Version Negotiation")
            .service(|service| service.answers_per_service = Rate::per_second(1, 1))
            .packet(v4(full()), RetrySent)
            .packets(20, &v4(full()), RateAnswers)
            .packet(v4(unknown()), VersionNegotiationSent),
        both("a short answer after a long one has nothing of it")
            .packet(v4(ids(255, 255)), VersionNegotiationSent)
            .packet(v4(full()), RetrySent)
            .answered(bytes(super::retry::RETRY_V1)),
    ]
}

fn charges() -> Vec<Script> {
    vec![
        answering("forged ones use up nothing of their source's")
            .service(|service| {
                service.packets_per_source = Rate::per_second(1, 1);
                service.new_per_source = Rate::per_second(1, 1);
                service.new_per_service = Rate::per_second(1, 1);
            })
            .packets(20, &v4(unknown()), VersionNegotiationSent)
            .packet(v4(full()), New)
            .packet(v4(short(30)), RatePackets),
        case("versions: what passes is charged to the service, and to no source")
            .service(|service| {
                service.packets_per_source = Rate::per_second(1, 1);
                (service.max_connections, service.policy) = (1, QuotaPolicy::Underway);
                service.new_per_prefix.v4_24 = Rate::per_second(1, 1);
                service.new_per_service = Rate::per_second(1, 3);
            })
            .packets(3, &v4(unknown()), NewVersion)
            .packets(3, &v4(unknown()), RateNewService)
            .packet(v4(full()), New)
            .packet(v4(short(30)), RatePackets),
        case("versions: sources share buckets of their own for unknown ones")
            .service(|service| service.new_per_source = Rate::per_second(1, 2))
            .packets(2, &v4(unknown()), NewVersion)
            .packets(5, &v4(unknown()), RateNewSource)
            .packet(udp("198.51.100.7:1000", S4, unknown()), NewVersion)
            .packet(v4(attempt(1)), New)
            .packet(v4(attempt(2)), New)
            .packet(v4(attempt(3)), RateNewSource),
        case("versions: what is refused is charged to no source")
            .service(|service| {
                service.packets_per_source = Rate::per_second(1, 1);
                service.refuse_unknown_versions = true;
            })
            .packets(3, &v4(unknown()), UnknownVersion)
            .live(|service| {
                service.packets_per_source = Rate::per_second(1, 1);
                service.refuse_unknown_versions = false;
            })
            .packets(3, &v4(padded(&[initial().version(UNKNOWN)], 1199)), SmallVersion)
            .packet(v4(short(30)), Established)
            .packet(v4(short(30)), RatePackets),
        case("versions: an unknown one begins no attempt")
            .service(|service| {
                service.unproven_per_service = Rate::per_second(1, 0);
                service.check_ids = true;
            })
            .packet(v4(unknown()), NewVersion)
            .packet(v4(zero_rtt().build()), ForgedId)
            .packet(v4(short_to(&id(1), 30)), RateUnproven),
        case("versions: a source at its quota gets no further with an unknown one")
            .service(|service| service.max_connections = 2)
            .connections(0, "192.0.2.1", 2)
            .packet(v4(unknown()), Quota)
            .live(|service| (service.max_connections, service.policy) = (2, QuotaPolicy::Underway))
            .packet(v4(unknown()), Quota)
            .live(|service| (service.max_connections, service.policy) = (2, QuotaPolicy::Strict))
            .packet(v4(unknown()), NewVersion)
            .connections(0, "192.0.2.1", 3)
            .packet(v4(unknown()), QuotaStrict),
        case("versions: limits by prefix hold for unknown ones")
            .service(|service| {
                service.overrides = vec![Override {
                    addr: "192.0.2.1".parse().unwrap(),
                    prefix_len: 32,
                    max_connections: Some(1),
                    new_per_source: None,
                    packets_per_source: None,
                    bytes_per_source: None,
                }];
            })
            .connections(0, "192.0.2.1", 1)
            .packet(v4(unknown()), Quota),
        case("versions: what passes is a packet of the service")
            .service(|service| service.packets_per_service = Rate::per_second(1, 1))
            .packet(v4(unknown()), NewVersion)
            .packet(v4(unknown()), RatePacketsService),
        answering("and are answered at its quota")
            .service(|service| service.max_connections = 1)
            .connections(0, "192.0.2.1", 1)
            .packet(v4(unknown()), VersionNegotiationSent)
            .packet(v4(full()), Quota),
    ]
}
