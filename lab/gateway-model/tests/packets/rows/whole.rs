//! Tests of policy.md section 11: limits of a whole service.

use super::ids::id;
use super::{C4, S4, S6, attempt, full, v4, v6};
use crate::packets::frame::udp;
use crate::packets::quic::*;
use crate::packets::script::{Expected, SECOND, Script, case};
use equic_gateway::reason::Reason::*;
use equic_gateway_model::{FragmentPolicy, Rate, RetryPolicy, Service};

/// The address of a client that is not the client of `v4`.
const OTHER: &str = "198.51.100.7:1000";

pub(super) fn rows() -> Vec<Script> {
    [packets(), unknown_senders(), strangers(), known_senders()].concat()
}

/// Returns a script with a service that passes `burst` packets at once, and then one per second.
fn passing(what: &str, burst: u64) -> Script {
    case(what).service(|service| service.packets_per_service = Rate::per_second(1, burst))
}

fn packets() -> Vec<Script> {
    vec![
        passing("all packets that pass share one bucket", 3)
            .packet(v4(full()), New)
            .packet(v6(short(30)), Established)
            .packet(udp(OTHER, S4, handshake().build()), Handshake)
            .packet(v4(full()), RatePacketsService)
            .packet(v4(short(30)), RatePacketsService)
            .wait(SECOND)
            .packet(udp(OTHER, S4, short(30)), Established)
            .packet(v4(short(30)), RatePacketsService),
        passing("an opening that the bucket refuses is charged only here the next time", 1)
            .service(|service| service.new_per_source = Rate::per_second(1, 2))
            .packet(v4(short(30)), Established)
            .packet(v4(attempt(1)), RatePacketsService)
            .packet(v4(attempt(1)), RatePacketsService)
            .wait(SECOND)
            .packet(v4(attempt(1)), Underway),
        passing("packets that another limit refuses are not charged", 1)
            .service(|service| service.new_per_source = Rate::per_second(1, 0))
            .packets(9, &v4(full()), RateNewSource)
            .packet(v4(short(30)), Established)
            .packet(v4(short(30)), RatePacketsService),
        passing("malformed packets are not charged", 1)
            .packets(9, &v4(Vec::new()), Empty)
            .packet(v4(short(30)), Established)
            .packet(v4(Vec::new()), Empty),
        passing("packets that are answered are not charged", 1)
            .service(|service| service.retry = RetryPolicy::Always)
            .packets(3, &v4(full()), RetrySent)
            .packet(v4(short(30)), Established)
            .packet(v4(full()), RetrySent),
        passing("later fragments are not charged", 1)
            .service(|service| service.fragments = FragmentPolicy::Follow)
            .packet(v4(short(992)).udp_len(1408).fragment(1, 0, true), Established)
            .packet(v4(vec![0; 400]).fragment(1, 125, false), Fragment),
        passing("an allowed source is not charged, and passes", 1)
            .allow("198.51.100.0/24")
            .packets(3, &udp(OTHER, S4, short(30)), Allowed)
            .packet(v4(short(30)), Established)
            .packet(v4(short(30)), RatePacketsService)
            .packet(udp(OTHER, S4, full()), Allowed),
        passing("dry run: packets over the rate pass", 1)
            .service(|service| service.dry_run = true)
            .packet(v4(short(30)), Established)
            .packet(v4(short(30)), Expected::Verdict(RatePacketsService, false)),
        passing("each service has its own bucket of packets", 1)
            .another_service(
                Service { packets_per_service: Rate::per_second(1, 1), ..Service::default() },
                &["10.0.0.1:8443"],
            )
            .packet(v4(short(30)), Established)
            .packet(v4(short(30)), RatePacketsService)
            .packet(udp(C4, "10.0.0.1:8443", short(30)), Expected::Of(1, Established))
            .packet(udp(C4, "10.0.0.1:8443", short(30)), Expected::Of(1, RatePacketsService)),
        passing("the rate of packets can be switched off", 1)
            .packet(v4(short(30)), Established)
            .packet(v4(short(30)), RatePacketsService)
            .live(|service| service.packets_per_service = Rate::OFF)
            .packet(v4(short(30)), Established),
    ]
}

/// Returns a script with a service in which all unknown sources together may send `burst` packets
/// at once, and then one per second.
fn sharing(what: &str, burst: u64) -> Script {
    case(what).service(|service| {
        service.unproven_per_service = Rate::per_second(1, burst);
        service.handshake_ns = 10 * SECOND;
    })
}

fn unknown_senders() -> Vec<Script> {
    let id = || id(1);
    vec![
        sharing("packets of unknown senders that open nothing share one bucket", 3)
            .packet(v4(short(30)), Established)
            .packet(v6(handshake().build()), Handshake)
            .packet(udp(OTHER, S4, zero_rtt().build()), Handshake)
            .packet(v4(short(30)), RateUnproven)
            .packet(v4(handshake().build()), RateUnproven)
            .packet(v4(zero_rtt().v2().build()), RateUnproven)
            .wait(SECOND)
            .packet(udp(OTHER, S4, short(30)), Established)
            .packet(v4(short(30)), RateUnproven),
        sharing("openings are not charged to the bucket of unknown senders", 1)
            .packet(v4(short(30)), Established)
            .packet(v6(full()), New)
            .packet(udp(OTHER, S4, padded(&[initial().version(9)], 1200)), NewVersion),
        sharing("malformed packets are not charged to the bucket of unknown senders", 1)
            .packets(3, &v4(short(20)), TinyShort)
            .packet(v4(short(30)), Established)
            .packet(v4(short(20)), TinyShort)
            .packet(v4(short(30)), RateUnproven),
        sharing("a flood from a forged source is not charged to this source", 1)
            .service(|service| service.packets_per_source = Rate::per_second(1, 2))
            .packet(v4(short(30)), Established)
            .packets(9, &v4(short(30)), RateUnproven)
            .packet(v4(full()), New)
            .packet(v4(full()), Underway)
            .packet(v4(full()), RatePackets),
        sharing("packets of unknown senders that pass are charged to buckets of their source", 3)
            .service(|service| service.packets_per_source = Rate::per_second(1, 1))
            .packet(v4(short(30)), Established)
            .packet(v4(short(30)), RatePackets)
            .packet(udp(OTHER, S4, short(30)), Established)
            .packet(udp(OTHER, S4, short(30)), RateUnproven),
        sharing("an allowed source does not use the shared bucket", 1)
            .allow("198.51.100.0/24")
            .packets(3, &udp(OTHER, S4, short(30)), Allowed)
            .packet(v4(short(30)), Established)
            .packet(v4(short(30)), RateUnproven),
        sharing("also with checked IDs, because an ID does not identify its sender", 1)
            .service(|service| service.check_ids = true)
            .packets(9, &v4(short(30)), ForgedId)
            .packet(v4(short_to(&id(), 30)), Established)
            .packet(v4(short_to(&id(), 30)), RateUnproven)
            .connections(0, "198.51.100.7", 1)
            .packet(udp("198.51.100.7:9", S4, short_to(&id(), 30)), Established),
        sharing("answers to a port that is also a client use the shared bucket", 1)
            .service(|service| service.also_client = true)
            .packet(v4(version_negotiation()), Handshake)
            .packet(v4(retry().build()), RateUnproven),
        sharing("dry run: unknown senders pass", 1)
            .service(|service| service.dry_run = true)
            .packet(v4(short(30)), Established)
            .packet(v4(short(30)), Expected::Verdict(RateUnproven, false)),
        sharing("with Retry, openings are answered while the bucket is empty", 1)
            .service(|service| service.retry = RetryPolicy::Always)
            .packet(v4(short(30)), Established)
            .packet(v4(full()), RetrySent)
            .packet(v4(short(30)), RateUnproven),
    ]
}

/// Tests of packets from unknown sources to services that treat these differently from known
/// sources. No such packet may create a table entry for its source.
pub(crate) fn strangers() -> Vec<Script> {
    let id = || id(1);
    let checking = |what: &str| case(what).service(|service| service.check_ids = true);
    let limited = |what: &str| {
        checking(what).service(|service| {
            service.packets_per_source = Rate::per_second(1, 2);
            service.bytes_per_source = Rate::per_second(1000, 2000);
        })
    };
    vec![
        checking("strangers: an ID that a server made, from anywhere")
            .packet(v4(short_to(&id(), 30)), Established)
            .packet(v6(short_to(&id(), 30)), Established)
            .packet(udp(OTHER, S4, handshake().dcid(&id()).build()), Handshake),
        checking("strangers: malformed packets")
            .packet(v4(Vec::new()), Empty)
            .packet(v6(short(20)), TinyShort)
            .packet(udp(OTHER, S4, initial().fill(1199).build()), SmallInitial),
        limited("strangers: the rates of a source apply to all that share its buckets")
            .packets(2, &udp(OTHER, S4, short_to(&id(), 30)), Established)
            .packet(udp(OTHER, S4, short_to(&id(), 30)), RatePackets)
            .packet(v4(short_to(&id(), 1500)), Established)
            .packet(v4(short_to(&id(), 1500)), RateBytes)
            .wait(SECOND)
            .packet(udp(OTHER, S4, short_to(&id(), 30)), Established),
        case("strangers: with Retry")
            .service(|service| service.retry = RetryPolicy::Always)
            .packet(v4(short(30)), Established)
            .packet(v6(full()), RetrySent)
            .packet(udp(OTHER, S4, Vec::new()), Empty),
        sharing("strangers: with a bucket of unknown senders", 2)
            .packet(v4(short(30)), Established)
            .packet(v6(zero_rtt().build()), Handshake)
            .packet(v4(short(30)), RateUnproven)
            .packet(v4(Vec::new()), Empty),
        checking("strangers: packets of an allowed prefix")
            .allow("0.0.0.0/0")
            .packet(v4(short(30)), Allowed)
            .packet(udp(OTHER, S4, padded(&[initial().version(UNKNOWN)], 1200)), Allowed),
        case("strangers: unknown versions in a service without these limits")
            .packet(v4(padded(&[initial().version(UNKNOWN)], 1200)), NewVersion)
            .packet(v6(padded(&[initial().version(UNKNOWN)], 1199)), SmallVersion),
        case("strangers: fragments of long headers")
            .packet(v4(full()).udp_len(1308).fragment(1, 0, true), FirstFragment),
    ]
}

fn known_senders() -> Vec<Script> {
    let empty = |what: &str| sharing(what, 0);
    let with_group = |what: &str, group| {
        let service =
            Service { group, unproven_per_service: Rate::per_second(1, 0), ..Service::default() };
        empty(what).another_service(service, &["10.0.0.1:8443"])
    };
    let elsewhere = || udp(C4, "10.0.0.1:8443", short(30));
    vec![
        empty("a sender with a connection is known")
            .packet(v4(short(30)), RateUnproven)
            .connections(0, "192.0.2.1", 1)
            .packet(v4(short(30)), Established)
            .packet(udp("192.0.2.1:9", S4, handshake().build()), Handshake)
            .packet(udp(OTHER, S4, short(30)), RateUnproven)
            .connections(0, "192.0.2.1", 0)
            .packet(v4(short(30)), RateUnproven),
        empty("its whole /64 is known")
            .connections(0, "2001:db8::ffff:1", 1)
            .packet(v6(short(30)), Established)
            .packet(udp("[2001:db8:0:1::1]:1000", S6, short(30)), RateUnproven),
        empty("a sender that opens a connection is known for the time of a handshake")
            .packet(v4(handshake().build()), RateUnproven)
            .packet(v4(full()), New)
            .packet(v4(handshake().build()), Handshake)
            .packet(v4(short(30)), Established)
            .packet(udp(OTHER, S4, short(30)), RateUnproven)
            .wait(10 * SECOND)
            .packet(v4(short(30)), Established)
            .wait(1)
            .packet(v4(short(30)), RateUnproven),
        empty("a sender whose opening was refused is unknown")
            .service(|service| service.new_per_service = Rate::per_second(1, 0))
            .packet(v4(full()), RateNewService)
            .packet(v4(handshake().build()), RateUnproven),
        empty("a sender whose server is silent is unknown")
            .config(|config| config.lease_ns = SECOND)
            .connections(0, "192.0.2.1", 1)
            .packet(v4(short(30)), Established)
            .wait(SECOND)
            .packet(v4(short(30)), RateUnproven)
            .heartbeat(0)
            .packet(v4(short(30)), Established),
        with_group("a sender that is known to a service of the group is known", 0)
            .connections(0, "192.0.2.1", 1)
            .packet(elsewhere(), Expected::Of(1, Established)),
        with_group("a sender that is known only to another group is unknown", 1)
            .connections(0, "192.0.2.1", 1)
            .packet(v4(full()), New)
            .packet(elsewhere(), Expected::Of(1, RateUnproven)),
    ]
}
