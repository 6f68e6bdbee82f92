//! Tests of policy.md section 2, steps 10 to 12 and 18 to 21: quotas and rates, and changes of
//! these while the gateway runs.

use super::{S4, attempt, full, v4, v6};
use crate::packets::frame::udp;
use crate::packets::quic::{handshake, initial, short};
use crate::packets::script::{Expected, SECOND, Script, case};
use equic_gateway::reason::Reason::*;
use equic_gateway_model::{QuotaPolicy, Rate, Service};

fn limit(what: &str, max_connections: u32) -> Script {
    case(what).service(|service| service.max_connections = max_connections)
}

fn strict(what: &str, max_connections: u32) -> Script {
    limit(what, max_connections).service(|service| service.policy = QuotaPolicy::Strict)
}

pub(super) fn quota_rows() -> Vec<Script> {
    [policy_new(), policy_strict(), policy_underway(), counting()].concat()
}

fn underway(what: &str, max_connections: u32) -> Script {
    limit(what, max_connections).service(|service| {
        service.policy = QuotaPolicy::Underway;
        service.handshake_ns = 10 * SECOND;
    })
}

fn policy_underway() -> Vec<Script> {
    let client = "192.0.2.1";
    let two = |what: &str| {
        underway(what, 2)
            .packet(v4(attempt(1)), New)
            .packet(v4(attempt(2)), New)
            .packet(v4(attempt(3)), QuotaUnderway)
    };
    vec![
        two("underway: attempts in progress take the places of the quota")
            .packet(v4(attempt(1)), Underway)
            .packet(v4(short(30)), Established)
            .packet(v4(handshake().build()), Handshake)
            .packet(udp("192.0.2.2:1000", S4, attempt(3)), New),
        two("underway: a completed handshake becomes a connection")
            .connections(0, client, 1)
            .opened(0, client, 1)
            .packet(v4(attempt(3)), QuotaUnderway)
            .connections(0, client, 2)
            .opened(0, client, 1)
            .packet(v4(attempt(3)), Quota)
            .connections(0, client, 1)
            .packet(v4(attempt(3)), New),
        two("underway: a connection that is closed at once frees its place")
            .opened(0, client, 1)
            .packet(v4(attempt(3)), New)
            .packet(v4(attempt(4)), QuotaUnderway),
        two("underway: an attempt holds its place for the time of a handshake")
            .wait(10 * SECOND - 1)
            .packet(v4(attempt(3)), QuotaUnderway)
            .wait(1)
            .packet(v4(attempt(3)), QuotaUnderway)
            .wait(10 * SECOND)
            .packet(v4(attempt(3)), New),
        two("underway: an attempt holds its place for at most twice that time")
            .wait(20 * SECOND)
            .packet(v4(attempt(3)), New),
        two("underway: connections that another server opens count, too")
            .opened(1, client, 1)
            .packet(v4(attempt(3)), New),
        two("underway: a falling count of opened connections frees no place")
            .opened(0, client, 1)
            .packet(v4(attempt(3)), New)
            .opened(0, client, u32::MAX)
            .packet(v4(attempt(4)), QuotaUnderway),
        underway("underway: an attempt that a rate refuses holds no place", 1)
            .service(|service| service.new_per_source = Rate::per_second(1, 1))
            .packet(v4(attempt(1)), New)
            .opened(0, client, 1)
            .packet(v4(attempt(2)), RateNewSource)
            .wait(SECOND)
            .packet(v4(attempt(2)), New),
        underway("underway: attempts of an allowed source hold no place", 1)
            .allow("192.0.2.1/32")
            .packet(v4(attempt(1)), Allowed)
            .packet(v4(attempt(2)), Allowed)
            .unlist("192.0.2.1/32")
            .packet(v4(attempt(3)), New)
            .packet(v4(attempt(4)), QuotaUnderway),
        underway("underway, no limit", 0).packet(v4(attempt(1)), New).packet(v4(attempt(2)), New),
        underway("underway, dry run", 1)
            .service(|service| service.dry_run = true)
            .packet(v4(attempt(1)), New)
            .packet(v4(attempt(2)), Expected::Verdict(QuotaUnderway, false)),
        underway("underway: a /64 is one source", 1)
            .packet(v6(attempt(1)), New)
            .packet(udp("[2001:db8::ffff:1]:1000", super::S6, attempt(2)), QuotaUnderway),
    ]
}

fn policy_new() -> Vec<Script> {
    vec![
        limit("under the limit", 3).connections(0, "192.0.2.1", 2).packet(v4(full()), New),
        limit("at the limit", 3).connections(0, "192.0.2.1", 3).packet(v4(full()), Quota),
        limit("over the limit", 3).connections(0, "192.0.2.1", 4).packet(v4(full()), Quota),
        limit("no limit", 0).connections(0, "192.0.2.1", 1_000_000).packet(v4(full()), New),
        limit("at the limit: established connections pass", 3)
            .connections(0, "192.0.2.1", 3)
            .packet(v4(short(30)), Established)
            .packet(v4(handshake().build()), Handshake),
        limit("at the limit: an admitted handshake continues", 1)
            .packet(v4(full()), New)
            .connections(0, "192.0.2.1", 1)
            .packet(v4(full()), Underway)
            .packet(v4(initial().dcid(&[1; 4]).fill(1200).build()), Underway)
            .packet(v4(attempt(9)), Quota),
        limit("at the limit: unknown versions", 1)
            .connections(0, "192.0.2.1", 1)
            .packet(v4(crate::packets::quic::padded(&[initial().version(9)], 1200)), Quota),
        limit("an Initial that the quota refuses is not charged to the rates", 1)
            .service(|service| service.new_per_source = Rate::per_second(1, 1))
            .connections(0, "192.0.2.1", 1)
            .packet(v4(attempt(1)), Quota)
            .connections(0, "192.0.2.1", 0)
            .packet(v4(attempt(1)), New),
        limit("a short connection ID comes before the quota", 1)
            .connections(0, "192.0.2.1", 1)
            .packet(v4(initial().dcid(&[1; 7]).fill(1200).build()), ShortDcid),
    ]
}

fn policy_strict() -> Vec<Script> {
    vec![
        strict("strict, at the limit", 3).connections(0, "192.0.2.1", 3).packet(v4(full()), New),
        strict("strict, over the limit", 3)
            .connections(0, "192.0.2.1", 4)
            .packet(v4(full()), QuotaStrict)
            .packet(v4(short(30)), QuotaStrict)
            .packet(v4(Vec::new()), QuotaStrict),
        strict("strict, no limit", 0)
            .connections(0, "192.0.2.1", 1_000_000)
            .packet(v4(full()), New),
        strict("strict, dry run", 3)
            .service(|service| service.dry_run = true)
            .connections(0, "192.0.2.1", 4)
            .packet(v4(full()), Expected::Verdict(QuotaStrict, false)),
        strict("strict, other sources are not affected", 3)
            .connections(0, "192.0.2.2", 4)
            .packet(v4(full()), New),
        strict("strict comes before the packet rate", 3)
            .service(|service| service.packets_per_source = Rate::per_second(1, 1))
            .connections(0, "192.0.2.1", 4)
            .packets(2, &v4(short(30)), QuotaStrict)
            .connections(0, "192.0.2.1", 3)
            .packet(v4(short(30)), Established),
    ]
}

fn lease(row: Script) -> Script {
    row.config(|config| config.lease_ns = SECOND)
}

fn counting() -> Vec<Script> {
    vec![
        limit("the counts of all servers add up", 3)
            .connections(0, "192.0.2.1", 1)
            .connections(1, "192.0.2.1", 1)
            .packet(v4(attempt(1)), New)
            .connections(2, "192.0.2.1", 1)
            .packet(v4(attempt(2)), Quota),
        limit("a sum of counts is at most 2^32 - 1", 3)
            .connections(0, "192.0.2.1", u32::MAX)
            .connections(1, "192.0.2.1", 1)
            .packet(v4(attempt(1)), Quota)
            .connections(2, "192.0.2.1", u32::MAX)
            .packet(v4(attempt(2)), Quota),
        underway("underway: a sum of counts is at most 2^32 - 1", 3)
            .connections(0, "192.0.2.1", u32::MAX)
            .connections(1, "192.0.2.1", 1)
            .packet(v4(attempt(1)), Quota),
        lease(limit("a heartbeat less than a lease in the future counts", 1))
            .connections(0, "192.0.2.1", 1)
            .heartbeat_ahead(0, SECOND - 1)
            .packet(v4(full()), Quota),
        lease(limit("a heartbeat a lease in the future does not count", 1))
            .connections(0, "192.0.2.1", 1)
            .heartbeat_ahead(0, SECOND)
            .packet(v4(full()), New),
    ]
    .into_iter()
    .chain(prefixes_of_sources())
    .chain(counting_servers())
    .collect()
}

fn prefixes_of_sources() -> Vec<Script> {
    vec![
        limit("IPv6: a /64 is one source", 1)
            .connections(0, "2001:db8::ffff:1", 1)
            .packet(v6(full()), Quota),
        limit("IPv6: the next /64 is another source", 1)
            .connections(0, "2001:db8:0:1::1", 1)
            .packet(v6(full()), New),
        limit("NAT64: an IPv4 address is one source", 1)
            .connections(0, "64:ff9b::c000:201", 1)
            .packet(udp("[64:ff9b::c000:201]:1000", super::S6, full()), Quota)
            .packet(udp("[64:ff9b::c000:202]:1000", super::S6, full()), New)
            .packet(udp("[64:ff9b:0:0:1::1]:1000", super::S6, full()), New),
        limit("NAT64 with prefix 24 of IPv4", 1)
            .config(|config| config.v4_prefix_len = 24)
            .connections(0, "64:ff9b::c000:201", 1)
            .packet(udp("[64:ff9b::c000:2ff]:1000", super::S6, full()), Quota)
            .packet(udp("[64:ff9b::c000:301]:1000", super::S6, full()), New),
        limit("NAT64 for local use: an address is one source", 1)
            .connections(0, "64:ff9b:1:fffe::1", 1)
            .packet(udp("[64:ff9b:1:fffe::1]:1000", super::S6, full()), Quota)
            .packet(udp("[64:ff9b:1:fffe::2]:1000", super::S6, full()), New),
        limit("a /64 next to NAT64's is one source", 1)
            .connections(0, "64:ff9b:2::1", 1)
            .packet(udp("[64:ff9b:2::2]:1000", super::S6, full()), Quota),
        limit("link-local: an address is one source", 1)
            .connections(0, "fe80::1", 1)
            .packet(udp("[fe80::1]:1000", super::S6, full()), Quota)
            .packet(udp("[fe80::2]:1000", super::S6, full()), New),
        limit("a /64 beyond the link-local one is one source", 1)
            .connections(0, "fe80:0:0:1::1", 1)
            .packet(udp("[fe80:0:0:1::2]:1000", super::S6, full()), Quota),
        limit("IPv4: an address is one source", 1)
            .connections(0, "192.0.2.2", 1)
            .packet(v4(full()), New),
        limit("IPv4 with prefix 24", 1)
            .config(|config| config.v4_prefix_len = 24)
            .connections(0, "192.0.2.77", 1)
            .packet(v4(full()), Quota),
        limit("IPv6 with prefix 48", 1)
            .config(|config| config.v6_prefix_len = 48)
            .connections(0, "2001:db8::1", 1)
            .packet(udp("[2001:db8:0:99::1]:1000", super::S6, full()), Quota),
        limit("IPv6 with prefix 128", 1)
            .config(|config| config.v6_prefix_len = 128)
            .connections(0, "2001:db8::2", 1)
            .packet(v6(full()), New),
    ]
}

fn counting_servers() -> Vec<Script> {
    let group = |what: &str, group| {
        let service = Service { group, max_connections: 1, ..Service::default() };
        limit(what, 1).another_service(service, &["10.0.0.1:8443"])
    };
    vec![
        lease(limit("a server that is silent for less than the lease counts", 1))
            .connections(0, "192.0.2.1", 1)
            .wait(SECOND - 1)
            .packet(v4(full()), Quota),
        lease(limit("a server that is silent for the lease does not count", 1))
            .connections(0, "192.0.2.1", 1)
            .wait(SECOND)
            .packet(v4(full()), New),
        lease(limit("a heartbeat renews the lease", 1))
            .connections(0, "192.0.2.1", 1)
            .wait(SECOND / 2)
            .heartbeat(0)
            .wait(SECOND / 2)
            .packet(v4(full()), Quota),
        lease(limit("one dead server of two", 2))
            .connections(0, "192.0.2.1", 2)
            .wait(SECOND)
            .connections(1, "192.0.2.1", 1)
            .packet(v4(full()), New),
        group("services of a group count together", 0)
            .connections(0, "192.0.2.1", 1)
            .packet(udp(super::C4, "10.0.0.1:8443", full()), Expected::Of(1, Quota)),
        group("services of two groups count separately", 1)
            .connections(0, "192.0.2.1", 1)
            .packet(udp(super::C4, "10.0.0.1:8443", full()), Expected::Of(1, New))
            .packet(v4(full()), Quota),
    ]
}

pub(super) fn rate_rows() -> Vec<Script> {
    [rates_of_packets(), rates_of_new()].concat()
}

/// Returns a rate of `rate` units per hour.
fn an_hour(rate: u64, burst: u64) -> Rate {
    let Rate { cost_ns, burst_ns } = Rate::per_second(rate, burst);
    Rate { cost_ns: cost_ns * 3_600, burst_ns: burst_ns * 3_600 }
}

fn rates_of_packets() -> Vec<Script> {
    let packets = |what: &str, rate, burst| {
        case(what).service(|service| service.packets_per_source = Rate::per_second(rate, burst))
    };
    let bytes = |what: &str, rate, burst| {
        case(what).service(|service| service.bytes_per_source = Rate::per_second(rate, burst))
    };
    vec![
        packets("exactly the burst passes", 10, 3).packets(3, &v4(short(30)), Established).packets(
            2,
            &v4(short(30)),
            RatePackets,
        ),
        packets("a unit is available again after its time", 10, 3)
            .packets(3, &v4(short(30)), Established)
            .wait(SECOND / 10 - 1)
            .packet(v4(short(30)), RatePackets)
            .wait(1)
            .packet(v4(short(30)), Established)
            .packet(v4(short(30)), RatePackets),
        packets("refused packets are not charged", 10, 1)
            .packet(v4(short(30)), Established)
            .packets(50, &v4(short(30)), RatePackets)
            .wait(SECOND / 10)
            .packet(v4(short(30)), Established),
        packets("after a long silence, only the burst passes", 10, 2)
            .wait(100 * SECOND)
            .packets(2, &v4(short(30)), Established)
            .wait(100 * SECOND)
            .packets(2, &v4(short(30)), Established)
            .packet(v4(short(30)), RatePackets),
        packets("a burst of 0 refuses everything", 10, 0).packet(v4(short(30)), RatePackets),
        packets("malformed packets are charged too", 10, 2)
            .packets(2, &v4(Vec::new()), Empty)
            .packet(v4(Vec::new()), RatePackets),
        packets("a rate that does not divide a second", 3, 1)
            .packet(v6(short(30)), Established)
            .wait(333_333_332)
            .packet(v6(short(30)), RatePackets)
            .wait(1)
            .packet(v6(short(30)), Established),
        packets("other sources have their own bucket", 10, 1)
            .packet(v4(short(30)), Established)
            .packet(udp("192.0.2.2:1000", S4, short(30)), Established)
            .packet(udp("192.0.2.1:2000", S4, short(30)), RatePackets),
        packets("a denied packet is not charged", 10, 1)
            .deny("192.0.2.1/32")
            .packets(5, &v4(short(30)), Denied)
            .unlist("192.0.2.1/32")
            .packet(v4(short(30)), Established),
        bytes("bytes of the UDP payload", 1000, 100)
            .packets(2, &v4(short(50)), Established)
            .packet(v4(short(21)), RateBytes),
        bytes("a datagram over the burst never passes", 1000, 100)
            .wait(1000 * SECOND)
            .packet(v4(short(101)), RateBytes)
            .packet(v4(short(100)), Established),
        case("a byte rate so low that the product of cost and bytes has over 64 bits")
            .service(|service| service.bytes_per_source = an_hour(100, 1000))
            .packet(v4(short(1000)), Established)
            .wait(3_600 * SECOND)
            .packet(v4(short(101)), RateBytes)
            .packet(v4(short(1000)), RateBytes)
            .packet(v4(short(100)), Established),
        bytes("a first fragment is charged by its own length", 1000, 992)
            .packet(v4(vec![0x41; 1000]).udp_len(1408).fragment(1, 0, true), RateBytes)
            .packet(v4(vec![0x41; 992]).udp_len(65_000).fragment(1, 0, true), Established)
            .packet(v4(vec![0x41; 24]).udp_len(65_000).fragment(1, 0, true), RateBytes),
        bytes("an empty datagram is not charged to the byte rate", 1000, 100)
            .packet(v4(short(100)), Established)
            .packet(v4(Vec::new()), Empty),
        bytes("the packet bucket stays charged when the byte bucket refuses", 1000, 100)
            .service(|service| service.packets_per_source = Rate::per_second(1, 2))
            .packet(v4(short(101)), RateBytes)
            .packet(v4(short(30)), Established)
            .packet(v4(short(30)), RatePackets),
        bytes("a source has buckets of its own with each service, also in one group", 1000, 100)
            .another_service(
                Service { bytes_per_source: Rate::per_second(1000, 50), ..Service::default() },
                &["10.0.0.1:8443"],
            )
            .packet(v4(short(40)), Established)
            .packet(udp(super::C4, "10.0.0.1:8443", short(30)), Expected::Of(1, Established))
            .packet(udp(super::C4, "10.0.0.1:8443", short(30)), Expected::Of(1, RateBytes))
            .packet(v4(short(60)), Established)
            .packet(v4(short(30)), RateBytes),
    ]
}

fn rates_of_new() -> Vec<Script> {
    let source = |what: &str, burst| {
        case(what).service(|service| service.new_per_source = Rate::per_second(10, burst))
    };
    let service = |what: &str, burst| {
        case(what).service(|service| service.new_per_service = Rate::per_second(10, burst))
    };
    let from = |n: u8| udp(&format!("192.0.2.{n}:1000"), S4, attempt(n));
    vec![
        source("new connections of a source", 2)
            .packet(v4(attempt(1)), New)
            .packet(v4(attempt(2)), New)
            .packet(v4(attempt(3)), RateNewSource)
            .wait(SECOND / 10)
            .packet(v4(attempt(3)), New),
        source("a refused attempt does not affect established connections", 1)
            .packet(v4(attempt(1)), New)
            .packet(v4(attempt(2)), RateNewSource)
            .packet(v4(short(30)), Established),
        service("new connections of all sources", 2)
            .packet(from(1), New)
            .packet(from(2), New)
            .packet(from(3), RateNewService)
            .wait(SECOND / 10)
            .packet(from(3), New),
        service("the source's bucket stays charged when the service's refuses", 1)
            .service(|service| service.new_per_source = Rate::per_second(10, 1))
            .packet(from(1), New)
            .packet(from(2), RateNewService)
            .packet(from(2), RateNewSource),
        service("the service's bucket is not charged when the source's refuses", 2)
            .service(|service| service.new_per_source = Rate::per_second(10, 1))
            .packet(v4(attempt(1)), New)
            .packets(3, &v4(attempt(9)), RateNewSource)
            .packet(from(2), New)
            .packet(from(3), RateNewService),
        service("each service has its own bucket", 1)
            .another_service(
                Service { new_per_service: Rate::per_second(10, 1), ..Service::default() },
                &["10.0.0.1:8443"],
            )
            .packet(v4(attempt(1)), New)
            .packet(udp(super::C4, "10.0.0.1:8443", attempt(1)), Expected::Of(1, New))
            .packet(v4(attempt(2)), RateNewService),
        source("IPv6: a /64 has one bucket", 1)
            .packet(v6(attempt(1)), New)
            .packet(udp("[2001:db8::2]:1000", super::S6, attempt(2)), RateNewSource),
    ]
}

pub(super) fn live_rows() -> Vec<Script> {
    vec![
        case("a quota begins and ends while running")
            .connections(0, "192.0.2.1", 1)
            .packet(v4(attempt(1)), New)
            .live(|service| service.max_connections = 1)
            .packet(v4(attempt(2)), Quota)
            .live(|service| service.max_connections = 2)
            .packet(v4(attempt(2)), New),
        case("a rate begins while running")
            .packets(9, &v4(short(30)), Established)
            .live(|service| service.packets_per_source = Rate::per_second(10, 1))
            .packet(v4(short(30)), Established)
            .packet(v4(short(30)), RatePackets),
        case("a service is disabled and enabled while running")
            .packet(v4(short(20)), TinyShort)
            .live(|service| service.enabled = false)
            .packet(v4(short(20)), Expected::Untouched)
            .live(|_| {})
            .packet(v4(short(20)), TinyShort),
        case("a faster rate applies at once, even after a slower one has charged the bucket")
            .service(|service| {
                service.new_per_source =
                    Rate { cost_ns: (60 * SECOND) << 20, burst_ns: 60 * SECOND }
            })
            .packet(v4(attempt(1)), New)
            .packet(v4(attempt(2)), RateNewSource)
            .live(|service| service.new_per_source = Rate::per_second(1, 2))
            .packet(v4(attempt(2)), RateNewSource)
            .wait(SECOND - 1)
            .packet(v4(attempt(2)), RateNewSource)
            .wait(1)
            .packet(v4(attempt(2)), New)
            .packet(v4(attempt(3)), RateNewSource),
        case("the time of handshakes changes while running")
            .packet(v4(full()), New)
            .wait(SECOND)
            .live(|service| service.handshake_ns = SECOND - 1)
            .packet(v4(attempt(1)), New)
            .packet(v4(full()), New),
    ]
}
