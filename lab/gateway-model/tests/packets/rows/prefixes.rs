//! Tests of policy.md section 12: rates of new connections for the prefixes that contain a source.

use super::{S4, S6, attempt, full, v4, v6};
use crate::packets::frame::{Packet, udp};
use crate::packets::quic::{initial, padded, short};
use crate::packets::script::{Expected, SECOND, Script, case};
use equic_gateway::reason::Reason::*;
use equic_gateway_model::{PrefixRates, QuotaPolicy, Rate, RetryPolicy, Service};

fn rates(what: &str, change: impl FnOnce(&mut PrefixRates)) -> Script {
    case(what).service(|service| change(&mut service.new_per_prefix))
}

/// Returns a rate of one connection per second, with this burst.
fn burst(burst: u64) -> Rate {
    Rate::per_second(1, burst)
}

/// Returns a packet from an address that opens a connection.
fn from(address: &str, n: u8) -> Packet {
    match address.contains(':') {
        true => udp(&format!("[{address}]:1000"), S6, attempt(n)),
        false => udp(&format!("{address}:1000"), S4, attempt(n)),
    }
}

pub(super) fn rows() -> Vec<Script> {
    [lengths(), order(), spared(), services()].concat()
}

/// For each prefix length, tests two addresses in one prefix and one address in the next prefix.
fn lengths() -> Vec<Script> {
    type Level = fn(&mut PrefixRates) -> &mut Rate;
    let levels: [(&str, Level, [&str; 3]); 6] = [
        ("IPv4 /32", |rates| &mut rates.v4_32, ["192.0.2.1", "192.0.2.1", "192.0.2.0"]),
        ("IPv4 /24", |rates| &mut rates.v4_24, ["192.0.2.1", "192.0.2.255", "192.0.3.1"]),
        (
            "IPv6 /64",
            |rates| &mut rates.v6_64,
            ["2001:db8::1", "2001:db8::ffff:0:0:1", "2001:db8:0:1::1"],
        ),
        (
            "IPv6 /56",
            |rates| &mut rates.v6_56,
            ["2001:db8::1", "2001:db8:0:ff::1", "2001:db8:0:100::1"],
        ),
        (
            "IPv6 /48",
            |rates| &mut rates.v6_48,
            ["2001:db8::1", "2001:db8:0:ffff::1", "2001:db8:1::1"],
        ),
        ("IPv6 /32", |rates| &mut rates.v6_32, ["2001:db8::1", "2001:db8:ffff::1", "2001:db9::1"]),
    ];
    let row = |(name, level, [one, same, next]): (&str, Level, [&str; 3])| {
        rates(&format!("{name}: one bucket for all addresses in it"), |rates| {
            *level(rates) = burst(2);
        })
        .packet(from(one, 1), New)
        .packet(from(same, 2), New)
        .packet(from(one, 3), RateNewPrefix)
        .packet(from(same, 4), RateNewPrefix)
        .packet(from(next, 5), New)
        .wait(SECOND)
        .packet(from(same, 6), New)
        .packet(from(one, 7), RateNewPrefix)
    };
    let of_the_other = |name: &str, change: fn(&mut PrefixRates), packet: fn(u8) -> Packet| {
        rates(&format!("rates of {name} are not for the other family"), change)
            .packet(packet(1), New)
            .packet(packet(2), New)
    };
    let mut rows: Vec<Script> = levels.into_iter().map(row).collect();
    rows.push(of_the_other(
        "IPv4",
        |rates| (rates.v4_32, rates.v4_24) = (burst(0), burst(0)),
        |n| from("2001:db8::1", n),
    ));
    rows.push(of_the_other(
        "IPv6",
        |rates| {
            (rates.v6_64, rates.v6_56) = (burst(0), burst(0));
            (rates.v6_48, rates.v6_32) = (burst(0), burst(0));
        },
        |n| from("192.0.2.1", n),
    ));
    rows
}

fn order() -> Vec<Script> {
    let both = |what: &str, narrow, wide| {
        rates(what, |rates| (rates.v6_56, rates.v6_48) = (burst(narrow), burst(wide)))
    };
    vec![
        both("a wider prefix is not charged if a narrower one refuses", 1, 2)
            .packet(from("2001:db8::1", 1), New)
            .packets(9, &from("2001:db8::1", 2), RateNewPrefix)
            .packet(from("2001:db8:0:100::1", 3), New)
            .packet(from("2001:db8:0:200::1", 4), RateNewPrefix),
        both("a narrower prefix stays charged if a wider one refuses", 1, 1)
            .packet(from("2001:db8::1", 1), New)
            .packet(from("2001:db8:0:100::1", 2), RateNewPrefix)
            .live(|service| service.new_per_prefix.v6_48 = Rate::OFF)
            .packet(from("2001:db8:0:100::1", 3), RateNewPrefix)
            .packet(from("2001:db8:0:200::1", 4), New),
        rates("prefixes are not charged if the source's bucket refuses", |rates| {
            rates.v4_24 = burst(2);
        })
        .service(|service| service.new_per_source = burst(1))
        .packet(from("192.0.2.1", 1), New)
        .packets(9, &from("192.0.2.1", 2), RateNewSource)
        .packet(from("192.0.2.2", 3), New)
        .packet(from("192.0.2.3", 4), RateNewPrefix)
        .packet(from("192.0.2.3", 5), RateNewSource),
        rates("the service is not charged if a prefix refuses", |rates| rates.v4_24 = burst(1))
            .service(|service| service.new_per_service = burst(2))
            .packet(from("192.0.2.1", 1), New)
            .packets(9, &from("192.0.2.1", 2), RateNewPrefix)
            .packet(from("192.0.3.1", 3), New)
            .packet(from("192.0.4.1", 4), RateNewService)
            .packet(from("192.0.4.1", 5), RateNewPrefix),
        rates("a prefix that refuses takes no place of the quota", |rates| rates.v4_24 = burst(1))
            .service(|service| {
                (service.policy, service.max_connections) = (QuotaPolicy::Underway, 1);
            })
            .packet(from("192.0.2.1", 1), New)
            .packet(from("192.0.2.2", 2), RateNewPrefix)
            .packet(from("192.0.2.2", 3), RateNewPrefix)
            .wait(SECOND)
            .packet(from("192.0.2.2", 4), New),
        rates("an opening over the quota is not charged to prefixes", |rates| {
            rates.v4_24 = burst(1)
        })
        .service(|service| service.max_connections = 1)
        .connections(0, "192.0.2.1", 1)
        .packet(from("192.0.2.1", 1), Quota)
        .packet(from("192.0.2.2", 2), New),
        rates("NAT64: the prefixes of the IPv4 address", |rates| {
            (rates.v4_24, rates.v6_64, rates.v6_32) = (burst(1), burst(1), burst(1));
        })
        .packet(from("64:ff9b::c000:201", 1), New)
        .packet(from("64:ff9b::c000:202", 2), RateNewPrefix)
        .packet(from("64:ff9b::c000:301", 3), New)
        .packet(from("192.0.2.1", 4), New),
        rates("link-local: each address has the bucket of a /64", |rates| {
            (rates.v6_64, rates.v6_48) = (burst(1), burst(1));
        })
        .packet(from("fe80::1", 1), New)
        .packet(from("fe80::1", 2), RateNewPrefix)
        .packet(from("fe80::2", 3), New)
        .packet(from("64:ff9b:1::1", 4), New)
        .packet(from("64:ff9b:1::1", 5), RateNewPrefix)
        .packet(from("64:ff9b:1::2", 6), New),
        rates("prefixes are independent of the prefix length of sources", |rates| {
            (rates.v6_64, rates.v6_48) = (burst(1), burst(2));
        })
        .config(|config| config.v6_prefix_len = 48)
        .packet(from("2001:db8::1", 1), New)
        .packet(from("2001:db8::2", 2), RateNewPrefix)
        .packet(from("2001:db8:0:1::1", 3), New)
        .packet(from("2001:db8:0:2::1", 4), RateNewPrefix),
    ]
}

fn spared() -> Vec<Script> {
    let one = |what: &str| rates(what, |rates| rates.v4_24 = burst(1));
    vec![
        one("packets of attempts in progress are not charged to prefixes")
            .packet(v4(full()), New)
            .packets(3, &v4(full()), Underway),
        one("packets that open nothing are not charged to prefixes")
            .packet(v4(full()), New)
            .packet(v4(short(30)), Established)
            .packet(udp("192.0.2.2:1", S4, short(30)), Established),
        one("unknown versions are not charged to prefixes")
            .packet(v4(padded(&[initial().version(9)], 1200)), NewVersion)
            .packet(from("192.0.2.2", 2), New),
        one("allowed sources are not charged to their prefixes, and pass")
            .allow("192.0.2.1/32")
            .packet(from("192.0.2.1", 1), Allowed)
            .packet(from("192.0.2.1", 2), Allowed)
            .packet(from("192.0.2.2", 3), New)
            .packet(from("192.0.2.2", 4), RateNewPrefix)
            .packet(from("192.0.2.1", 5), Allowed),
        one("an opening without a validated address is not charged to prefixes")
            .service(|service| service.retry = RetryPolicy::Always)
            .packets(5, &from("192.0.2.1", 1), RetrySent)
            .live(|service| service.retry = RetryPolicy::Never)
            .packet(from("192.0.2.2", 2), New)
            .packet(from("192.0.2.3", 3), RateNewPrefix),
        one("dry run: an opening that a prefix refuses passes")
            .service(|service| service.dry_run = true)
            .packet(from("192.0.2.1", 1), New)
            .packet(from("192.0.2.2", 2), Expected::Verdict(RateNewPrefix, false)),
        one("a rate of prefixes ends and begins while running, and the bucket is the same")
            .packet(from("192.0.2.1", 1), New)
            .live(|service| service.new_per_prefix.v4_24 = Rate::OFF)
            .packet(from("192.0.2.1", 2), New)
            .live(|_| {})
            .packet(from("192.0.2.1", 3), RateNewPrefix),
    ]
}

fn services() -> Vec<Script> {
    let limited = Service {
        new_per_prefix: PrefixRates { v4_24: burst(1), v6_32: burst(1), ..PrefixRates::default() },
        ..Service::default()
    };
    let elsewhere = |n| udp("192.0.2.1:1000", "10.0.0.1:8443", attempt(n));
    vec![
        rates("each service has its own buckets of prefixes", |rates| rates.v4_24 = burst(1))
            .another_service(limited, &["10.0.0.1:8443"])
            .packet(from("192.0.2.1", 1), New)
            .packet(from("192.0.2.2", 2), RateNewPrefix)
            .packet(elsewhere(3), Expected::Of(1, New))
            .packet(elsewhere(4), Expected::Of(1, RateNewPrefix))
            .packet(v6(full()), New),
    ]
}
