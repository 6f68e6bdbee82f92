//! Tests of policy.md section 9: services that answer unknown versions with Version Negotiation.

use super::ids::id;
use super::retry::{bytes, proved};
use super::{C4, C6, S4, attempt, full, v4, v6};
use crate::packets::frame::*;
use crate::packets::quic::*;
use crate::packets::script::{Expected, SECOND, Script, case};
use equic_gateway::reason::Reason::*;
use equic_gateway_model::{Override, QuotaPolicy, Rate, RetryPolicy, TakenVersions};

/// The expected answers to `unknown()`: over IPv4, and over IPv6 with two VLAN tags from a service
/// that accepts only version 1. They were computed with another implementation.
const BOTH: &str = "\
    02000000000202000000000108004500003c0000400040116eaf0a000001c000020101bb03e80028a8bdc00000000005\
    500102030408d001020304050607000000016b3343cfda0a0a0a";
const V1_ONLY: &str = "\
    02000000000202000000000188a800078100000786dd6000000000241140fd0000000000000000000000000000012001\
    0db800000000000000000000000101bb03e80024f90ec00000000005500102030408d00102030405060700000001da0a\
    0a0a";

/// The expected answer to a packet whose version is the reserved version in BOTH. It must contain
/// another reserved version.
const OTHER: &str = "\
    02000000000202000000000108004500003c0000400040116eaf0a000001c000020101bb03e8002866ddc00000000005\
    500102030408d001020304050607000000016b3343cf2afafafa";
/// The beginning of the expected answer over IPv6 to a packet with the longest connection IDs. It
/// ends with the first ID in the answer.
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

/// Returns a packet with the longest connection IDs, which has 529 bytes of UDP payload.
fn longest() -> Vec<u8> {
    let versions = bytes("000000016b3343cfcacacaca");
    [bytes(LONGEST), vec![0xcc; 255], vec![255], vec![0xcd; 255], versions].concat()
}

fn ids(dcid: usize, scid: usize) -> Vec<u8> {
    padded(&[initial().version(UNKNOWN).cid_lens(dcid, scid)], 1200)
}

pub(super) fn rows() -> Vec<Script> {
    [answers(), unanswered(), versions(), with_retry(), charges()].concat()
}

fn answers() -> Vec<Script> {
    let v1_only = |what| answering(what).service(|service| service.versions = TakenVersions::V1);
    vec![
        answering("an unknown version is answered")
            .packet(v4(unknown()), VersionNegotiationSent)
            .answered(bytes(BOTH)),
        v1_only("a service that accepts only version 1 answers, IPv6, two tags")
            .packet(v6(unknown()).vlan(TPID_8021AD).vlan(TPID_8021Q), VersionNegotiationSent)
            .answered(bytes(V1_ONLY)),
        answering("bytes after the datagram are not in the answer")
            .packet(v4(unknown()).padding(50), VersionNegotiationSent)
            .answered(bytes(BOTH)),
        answering("the answer has no IP options")
            .packet(v4(unknown()).ip_options(7), VersionNegotiationSent)
            .answered(bytes(BOTH)),
        answering("a frame in several buffers is answered")
            .packet(v4(padded(&[initial().version(UNKNOWN)], 8000)), VersionNegotiationSent)
            .answered(bytes(BOTH)),
        answering("a packet that looks like a Retry without Fixed Bit is answered")
            .service(|service| service.require_fixed_bit = true)
            .packet(v4(padded(&[retry().version(UNKNOWN).greased()], 1200)), VersionNegotiationSent)
            .answered(bytes(BOTH)),
        answering("a packet without IDs is answered").packet(v4(ids(0, 0)), VersionNegotiationSent),
        answering("IDs longer than 20 bytes are answered")
            .packet(v4(ids(21, 0)), VersionNegotiationSent)
            .packet(v6(ids(1, 100)), VersionNegotiationSent),
        answering("the longest IDs are answered")
            .packet(v4(ids(255, 255)), VersionNegotiationSent)
            .packet(v6(ids(255, 255)), VersionNegotiationSent)
            .answered(longest()),
        answering("a reserved version is answered")
            .packet(v4(of(0x1a2a_3a4a)), VersionNegotiationSent),
        answering("the reserved version in the answer differs from that of the packet")
            .packet(v4(of(0xda0a_0a0a)), VersionNegotiationSent)
            .answered(bytes(OTHER)),
        answering("an unknown version is answered even if it is refused")
            .service(|service| service.refuse_unknown_versions = true)
            .packet(v4(unknown()), VersionNegotiationSent),
        answering("dry run: the server gets the packet")
            .service(|service| service.dry_run = true)
            .packet(v4(unknown()), Expected::Verdict(VersionNegotiationSent, false)),
        answering("an allowed source is answered, too")
            .allow("192.0.2.1/32")
            .packet(v4(unknown()), VersionNegotiationSent),
        case("versions: the answers can be switched on and off")
            .packet(v4(unknown()), NewVersion)
            .live(|service| service.version_negotiation = true)
            .packet(v4(unknown()), VersionNegotiationSent)
            .live(|service| service.version_negotiation = false)
            .packet(v4(unknown()), NewVersion),
    ]
}

fn unanswered() -> Vec<Script> {
    vec![
        answering("a packet under 1200 bytes is not answered")
            .packet(v4(padded(&[initial().version(UNKNOWN)], 1199)), SmallVersion),
        answering("a Version Negotiation packet of any length is not answered")
            .packet(v4(version_negotiation()), VersionNegotiation)
            .packet(v4(of(0)), VersionNegotiation),
        answering("Version Negotiation to a port that is also a client passes")
            .service(|service| service.also_client = true)
            .packet(v4(of(0)), Handshake),
        answering("a short header is not answered").packet(v4(short(1200)), Established),
        answering("versions 1 and 2 are not answered")
            .packet(v4(full()), New)
            .packet(v6(initial().v2().fill(1200).build()), New),
        answering("an ID beyond the end is not answered").packet(
            {
                let mut packet = initial().version(UNKNOWN).cid_lens(255, 0).build();
                packet.truncate(200);
                v4(packet)
            },
            Truncated,
        ),
        answering("an IP fragment is not answered")
            .packet(v4(unknown()).udp_len(1308).fragment(1, 0, true), FirstFragment),
        answering("a packet to a multicast address is not answered")
            .packet(udp(C4, "239.0.0.1:443", unknown()), UnknownVersion)
            .packet(udp(C6, "[ff05::1]:443", unknown()), UnknownVersion),
        answering("a denied source is not answered")
            .deny("192.0.2.1/32")
            .packet(v4(unknown()), Denied),
        answering("an impossible source is not answered")
            .packet(udp("224.0.0.1:1000", S4, unknown()), BadSource),
        answering("the rate of answers is limited")
            .service(|service| service.answers_per_service = Rate::per_second(1, 2))
            .packet(v4(unknown()), VersionNegotiationSent)
            .packet(v6(unknown()), VersionNegotiationSent)
            .packet(v4(unknown()), RateAnswers)
            .wait(SECOND)
            .packet(v4(unknown()), VersionNegotiationSent),
    ]
}

/// Tests of packets of version 1 or 2 to services that do not accept this version.
fn versions() -> Vec<Script> {
    use TakenVersions::{V1, V2};
    let one = |packet: Long| v4(packet.fill(1200).build());
    vec![
        takes("version 2 at a service that accepts only version 1", V1)
            .packet(one(initial()), New)
            .packet(one(initial().v2().scid(&[2])), NewVersion)
            .packet(v4(handshake().v2().build()), SmallVersion),
        takes("version 1 at a service that accepts only version 2", V2)
            .packet(one(initial().v2()), New)
            .packet(one(initial().scid(&[2])), NewVersion),
        takes("a version that is not accepted is refused", V1)
            .service(|service| service.refuse_unknown_versions = true)
            .packet(one(initial()), New)
            .packet(one(initial().v2()), UnknownVersion),
        takes("a version that is not accepted is answered", V1)
            .service(|service| service.version_negotiation = true)
            .packet(one(initial()), New)
            .packet(one(initial().v2()), VersionNegotiationSent)
            .packet(one(retry().v2()), VersionNegotiationSent),
        takes("a long ID in a version that is not accepted", V1)
            .packet(one(initial().v2().cid_lens(21, 5)), NewVersion)
            .packet(one(initial().cid_lens(21, 5)), LongCid),
        takes("a short ID in a version that is not accepted", V2)
            .packet(one(initial().cid_lens(4, 5)), NewVersion),
    ]
}

fn with_retry() -> Vec<Script> {
    let both = |what| answering(what).service(|service| service.retry = RetryPolicy::Always);
    vec![
        both("each packet gets its kind of answer")
            .packet(v4(unknown()), VersionNegotiationSent)
            .answered(bytes(BOTH))
            .packet(v4(full()), RetrySent)
            .packet(v4(proved(1)), Proved),
        takes("with Retry, a version that is not accepted is answered", TakenVersions::V2)
            .service(|service| service.retry = RetryPolicy::Always)
            .packet(v4(full()), VersionNegotiationSent),
        takes("with adaptive Retry, a version that is not accepted is answered", TakenVersions::V1)
            .service(|service| service.retry = RetryPolicy::Adaptive)
            .packet(v4(initial().v2().fill(1200).build()), VersionNegotiationSent),
        case("versions: with Retry, refused versions are dropped")
            .service(|service| {
                (service.retry, service.refuse_unknown_versions) = (RetryPolicy::Always, true);
            })
            .packet(v4(unknown()), UnknownVersion),
        case("versions: with Retry, unknown versions of an allowed source pass")
            .service(|service| service.retry = RetryPolicy::Always)
            .allow("192.0.2.1/32")
            .packet(v4(unknown()), Allowed),
        both("a flood of unknown versions does not use up the answers of Retry")
            .service(|service| service.answers_per_service = Rate::per_second(1, 1))
            .packet(v4(unknown()), VersionNegotiationSent)
            .packets(20, &v4(unknown()), RateAnswers)
            .packet(v4(full()), RetrySent)
            .packet(v4(full()), RateAnswers)
            .wait(SECOND)
            .packet(v4(full()), RetrySent)
            .packet(v4(unknown()), VersionNegotiationSent),
        both("a flood of Initials does not use up the answers of Version Negotiation")
            .service(|service| service.answers_per_service = Rate::per_second(1, 1))
            .packet(v4(full()), RetrySent)
            .packets(20, &v4(full()), RateAnswers)
            .packet(v4(unknown()), VersionNegotiationSent),
        both("a short answer after a long one contains none of its bytes")
            .packet(v4(ids(255, 255)), VersionNegotiationSent)
            .packet(v4(full()), RetrySent)
            .answered(bytes(super::retry::RETRY_V1)),
    ]
}

fn charges() -> Vec<Script> {
    vec![
        answering("unknown versions that are answered are not charged to their source")
            .service(|service| {
                service.packets_per_source = Rate::per_second(1, 1);
                service.new_per_source = Rate::per_second(1, 1);
                service.new_per_service = Rate::per_second(1, 1);
            })
            .packets(20, &v4(unknown()), VersionNegotiationSent)
            .packet(v4(full()), New)
            .packet(v4(short(30)), RatePackets),
        case("versions: unknown versions that pass are charged to the service, and to no source")
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
        case("versions: sources have shared buckets for unknown versions")
            .service(|service| service.new_per_source = Rate::per_second(1, 2))
            .packets(2, &v4(unknown()), NewVersion)
            .packets(5, &v4(unknown()), RateNewSource)
            .packet(udp("198.51.100.7:1000", S4, unknown()), NewVersion)
            .packet(v4(attempt(1)), New)
            .packet(v4(attempt(2)), New)
            .packet(v4(attempt(3)), RateNewSource),
        case("versions: refused versions are charged to no source")
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
        case("versions: an unknown version does not begin an attempt")
            .service(|service| {
                service.unproven_per_service = Rate::per_second(1, 0);
                service.check_ids = true;
            })
            .packet(v4(unknown()), NewVersion)
            .packet(v4(zero_rtt().build()), ForgedId)
            .packet(v4(short_to(&id(1), 30)), RateUnproven),
        case("versions: the quota also applies to unknown versions")
            .service(|service| service.max_connections = 2)
            .connections(0, "192.0.2.1", 2)
            .packet(v4(unknown()), Quota)
            .live(|service| (service.max_connections, service.policy) = (2, QuotaPolicy::Underway))
            .packet(v4(unknown()), Quota)
            .live(|service| (service.max_connections, service.policy) = (2, QuotaPolicy::Strict))
            .packet(v4(unknown()), NewVersion)
            .connections(0, "192.0.2.1", 3)
            .packet(v4(unknown()), QuotaStrict),
        case("versions: limits by prefix also apply to unknown versions")
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
        case("versions: unknown versions that pass are charged to the packets of the service")
            .service(|service| service.packets_per_service = Rate::per_second(1, 1))
            .packet(v4(unknown()), NewVersion)
            .packet(v4(unknown()), RatePacketsService),
        answering("unknown versions of a source at its quota are answered")
            .service(|service| service.max_connections = 1)
            .connections(0, "192.0.2.1", 1)
            .packet(v4(unknown()), VersionNegotiationSent)
            .packet(v4(full()), Quota),
    ]
}
