//! Tests of policy.md section 13: limits for particular prefixes.

use super::{C4, S4, S6, attempt, full, v4, v6};
use crate::packets::frame::udp;
use crate::packets::quic::short;
use crate::packets::script::{Expected, SECOND, Script, case};
use equic_gateway::reason::Reason::*;
use equic_gateway_model::{Override, QuotaPolicy, Rate, RetryPolicy, Service};

/// Returns an override for a prefix that does not set any limit yet.
fn own(prefix: &str) -> Override {
    let (addr, len) = prefix.split_once('/').unwrap();
    Override {
        addr: addr.parse().unwrap(),
        prefix_len: len.parse().unwrap(),
        max_connections: None,
        new_per_source: None,
        packets_per_source: None,
        bytes_per_source: None,
    }
}

fn connections(prefix: &str, max: u32) -> Override {
    Override { max_connections: Some(max), ..own(prefix) }
}

/// Returns a script with a service whose quota is 1, and with overrides for some prefixes.
fn quota(what: &str, overrides: &[Override]) -> Script {
    case(what).service(|service| {
        service.max_connections = 1;
        service.overrides = overrides.to_vec();
    })
}

fn packets(burst: u64) -> Option<Rate> {
    Some(Rate::per_second(1, burst))
}

pub(super) fn rows() -> Vec<Script> {
    [found(), limits(), order(), services()].concat()
}

fn found() -> Vec<Script> {
    let many = |what: &str, prefixes: &[(&str, u32)]| {
        let overrides: Vec<_> =
            prefixes.iter().map(|(prefix, max)| connections(prefix, *max)).collect();
        quota(what, &overrides).connections(0, "192.0.2.1", 1).connections(0, "2001:db8::1", 1)
    };
    vec![
        many("a source outside of all prefixes has the service's quota", &[("198.51.100.0/24", 3)])
            .packet(v4(full()), Quota)
            .packet(v6(full()), Quota),
        many("a source in a prefix has the prefix's quota", &[("192.0.2.0/24", 2)])
            .packet(v4(attempt(1)), New)
            .connections(0, "192.0.2.1", 2)
            .packet(v4(attempt(2)), Quota)
            .packet(v6(full()), Quota),
        many("an IPv6 prefix", &[("2001:db8::/48", 2)])
            .packet(v6(attempt(1)), New)
            .connections(0, "2001:db8::1", 2)
            .packet(v6(attempt(2)), Quota)
            .packet(v4(full()), Quota),
        many("a prefix for all of IPv4", &[("0.0.0.0/0", 2)])
            .packet(v4(full()), New)
            .packet(v6(full()), Quota),
        many("a prefix for all of IPv6", &[("::/0", 2)])
            .packet(v6(full()), New)
            .packet(v4(full()), Quota),
        many(
            "the longest prefix decides if it is stricter",
            &[("192.0.0.0/16", 9), ("192.0.2.0/24", 1)],
        )
        .packet(v4(full()), Quota)
        .packet(udp("192.0.3.1:1000", S4, full()), New),
        many(
            "the longest prefix decides if it is less strict",
            &[("192.0.2.1/32", 2), ("192.0.2.0/24", 1)],
        )
        .packet(v4(full()), New),
        quota(
            "a limit that the longest prefix does not set is the service's, not a shorter prefix's",
            &[
                connections("192.0.0.0/16", 9),
                Override { packets_per_source: packets(5), ..own("192.0.2.0/24") },
            ],
        )
        .connections(0, "192.0.2.1", 1)
        .packet(v4(full()), Quota),
        many("a quota of 0 means no limit", &[("192.0.2.0/24", 0)])
            .connections(0, "192.0.2.1", 1_000_000)
            .packet(v4(full()), New),
    ]
}

fn limits() -> Vec<Script> {
    let limited = |what: &str, change: fn(&mut Override)| {
        let mut one = own("192.0.2.0/24");
        change(&mut one);
        case(what).service(|service| service.overrides = vec![one])
    };
    let elsewhere = |payload| udp("198.51.100.7:1000", S4, payload);
    vec![
        limited("new connections of a source in a prefix", |own| own.new_per_source = packets(1))
            .packet(v4(attempt(1)), New)
            .packet(v4(attempt(2)), RateNewSource)
            .packet(udp("192.0.2.2:1000", S4, attempt(3)), New)
            .packet(elsewhere(attempt(4)), New)
            .packet(elsewhere(attempt(5)), New),
        limited("packets of a source in a prefix", |own| own.packets_per_source = packets(1))
            .packet(v4(short(30)), Established)
            .packet(v4(short(30)), RatePackets)
            .packets(3, &elsewhere(short(30)), Established),
        limited("bytes of a source in a prefix", |own| {
            own.bytes_per_source = Some(Rate::per_second(100, 100));
        })
        .packet(v4(short(100)), Established)
        .packet(v4(short(30)), RateBytes)
        .packets(3, &elsewhere(short(100)), Established),
        limited("a rate that is off replaces the service's rate", |own| {
            own.packets_per_source = Some(Rate::OFF)
        })
        .service(|service| service.packets_per_source = Rate::per_second(1, 1))
        .packets(3, &v4(short(30)), Established)
        .packet(elsewhere(short(30)), Established)
        .packet(elsewhere(short(30)), RatePackets),
        limited("policy strict", |own| own.max_connections = Some(3))
            .service(|service| {
                (service.policy, service.max_connections) = (QuotaPolicy::Strict, 1);
            })
            .connections(0, "192.0.2.1", 3)
            .connections(0, "198.51.100.7", 2)
            .packet(v4(short(30)), Established)
            .packet(elsewhere(short(30)), QuotaStrict)
            .connections(0, "192.0.2.1", 4)
            .packet(v4(short(30)), QuotaStrict),
        limited("policy underway", |own| own.max_connections = Some(2))
            .service(|service| {
                (service.policy, service.max_connections) = (QuotaPolicy::Underway, 1);
            })
            .packet(v4(attempt(1)), New)
            .packet(v4(attempt(2)), New)
            .packet(v4(attempt(3)), QuotaUnderway)
            .packet(elsewhere(attempt(4)), New)
            .packet(elsewhere(attempt(5)), QuotaUnderway),
        limited(
            "policy underway: an attempt that the prefix's rate refuses holds no place",
            |own| {
                (own.max_connections, own.new_per_source) = (Some(2), packets(1));
            },
        )
        .service(|service| {
            (service.policy, service.max_connections) = (QuotaPolicy::Underway, 1);
        })
        .packet(v4(attempt(1)), New)
        .packets(3, &v4(attempt(2)), RateNewSource)
        .wait(SECOND)
        .packet(v4(attempt(2)), New),
    ]
}

fn order() -> Vec<Script> {
    let one =
        |what: &str| quota(what, &[connections("192.0.2.0/24", 2)]).connections(0, "192.0.2.1", 1);
    vec![
        one("a denied address in a prefix is denied")
            .deny("192.0.2.1/32")
            .packet(v4(full()), Denied),
        one("an allowed address in a prefix is allowed")
            .connections(0, "192.0.2.1", 9)
            .allow("192.0.2.1/32")
            .packet(v4(full()), Allowed),
        one("address validation comes before limits by prefix")
            .service(|service| service.retry = RetryPolicy::Always)
            .packet(v4(full()), RetrySent),
        one("limits by prefix begin and end while running, and the source's bucket stays")
            .live(|service| service.overrides.clear())
            .packet(v4(attempt(1)), Quota)
            .live(|_| {})
            .packet(v4(attempt(1)), New)
            .live(|service| {
                service.overrides[0].new_per_source = packets(2);
            })
            .packet(v4(attempt(2)), New)
            .packet(v4(attempt(3)), New)
            .packet(v4(attempt(4)), RateNewSource)
            .live(|service| {
                service.overrides.clear();
                (service.max_connections, service.new_per_source) = (0, Rate::per_second(1, 2));
            })
            .packet(v4(attempt(5)), RateNewSource),
    ]
}

fn services() -> Vec<Script> {
    let elsewhere = |n| udp(C4, "10.0.0.1:8443", attempt(n));
    let second = |overrides: &[Override]| Service {
        max_connections: 1,
        overrides: overrides.to_vec(),
        ..Service::default()
    };
    vec![
        quota("each service has its own limits by prefix", &[connections("192.0.2.0/24", 2)])
            .another_service(second(&[connections("192.0.2.0/25", 3)]), &["10.0.0.1:8443"])
            .connections(0, "192.0.2.1", 2)
            .packet(v4(attempt(1)), Quota)
            .packet(elsewhere(2), Expected::Of(1, New))
            .connections(0, "192.0.2.1", 3)
            .packet(elsewhere(3), Expected::Of(1, Quota)),
        quota("a service can have no limits by prefix", &[connections("192.0.2.0/24", 2)])
            .another_service(second(&[]), &["10.0.0.1:8443"])
            .connections(0, "192.0.2.1", 1)
            .packet(v4(attempt(1)), New)
            .packet(elsewhere(2), Expected::Of(1, Quota)),
        quota("a prefix of the other family does not apply", &[connections("::/0", 9)])
            .connections(0, "192.0.2.1", 1)
            .packet(v4(full()), Quota)
            .packet(udp("[2001:db8::2]:1", S6, full()), New),
    ]
}
