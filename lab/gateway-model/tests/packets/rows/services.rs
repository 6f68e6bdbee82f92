//! Tests of policy.md section 1: listeners and dry runs.

use super::{C4, C6, full, v4, v6};
use crate::packets::frame::udp;
use crate::packets::quic::short;
use crate::packets::script::{Expected, Script, case};
use Expected::{Of, Untouched, Verdict};
use equic_gateway::reason::Reason::*;
use equic_gateway_model::Service;

/// Returns a service that drops more than the default service. So the verdict shows which of the
/// two services was applied.
fn strict() -> Service {
    Service { refuse_unknown_versions: true, require_fixed_bit: true, ..Service::default() }
}

pub(super) fn rows() -> Vec<Script> {
    let to = |server: &str| udp(if server.starts_with('[') { C6 } else { C4 }, server, full());
    let two = |what: &str, listeners: &[&str]| case(what).another_service(strict(), listeners);
    vec![
        case("another port").packet(to("10.0.0.1:444"), Untouched),
        case("DNS").packet(to("10.0.0.1:53"), Untouched),
        case("a reply from the service's port")
            .packet(udp("10.0.0.1:443", "192.0.2.1:1000", full()), Untouched),
        case("any IPv4 address").packet(to("10.9.8.7:443"), New),
        case("any IPv6 address").packet(to("[fd00::99]:443"), New),
        two("an exact listener takes precedence over a wildcard", &["10.0.0.1:443"])
            .packet(to("10.0.0.1:443"), Of(1, New))
            .packet(to("10.0.0.2:443"), New),
        two("an exact listener takes precedence over a wildcard, IPv6", &["[fd00::1]:443"])
            .packet(to("[fd00::1]:443"), Of(1, New))
            .packet(to("[fd00::2]:443"), New),
        two("an exact listener has one port", &["10.0.0.1:8443"])
            .packet(to("10.0.0.1:8443"), Of(1, New))
            .packet(to("10.0.0.2:8443"), Untouched),
        two("the IPv4 wildcard does not cover IPv6", &["0.0.0.0:8443"])
            .packet(to("10.0.0.1:8443"), Of(1, New))
            .packet(to("[fd00::1]:8443"), Untouched),
        two("the IPv6 wildcard does not cover IPv4", &["[::]:8443"])
            .packet(to("10.0.0.1:8443"), Untouched)
            .packet(to("[fd00::1]:8443"), Of(1, New)),
        two("a mapped address in an IPv6 header is IPv6", &["10.0.0.1:8443"])
            .packet(to("[::ffff:10.0.0.1]:8443"), Untouched),
        case("disabled service")
            .service(|service| service.enabled = false)
            .packet(v4(full()), Untouched),
        two("the exact listener of a disabled service hides the wildcard", &["10.0.0.1:443"])
            .config(|config| config.services[1].enabled = false)
            .packet(to("10.0.0.1:443"), Untouched)
            .packet(to("10.0.0.2:443"), New),
        two("each service has its handshakes", &["10.0.0.2:443"])
            .packet(to("10.0.0.1:443"), New)
            .packet(to("10.0.0.2:443"), Of(1, New))
            .packet(to("10.0.0.2:443"), Of(1, Underway)),
        case("dry run of the service")
            .service(|service| service.dry_run = true)
            .packet(v4(short(20)), Verdict(TinyShort, false)),
        case("dry run of the gateway")
            .config(|config| config.dry_run = true)
            .packet(v6(short(20)), Verdict(TinyShort, false)),
        case("dry run begins and ends")
            .packet(v4(short(20)), TinyShort)
            .dry_run(true)
            .packet(v4(short(20)), Verdict(TinyShort, false))
            .dry_run(false)
            .packet(v4(short(20)), TinyShort),
        case("a dry run records attempts")
            .service(|service| service.dry_run = true)
            .packet(v4(full()), New)
            .packet(v4(full()), Underway),
        case("dry run of one service")
            .service(|service| service.dry_run = true)
            .another_service(strict(), &["[fd00::1]:443"])
            .packet(v4(short(20)), Verdict(TinyShort, false))
            .packet(v6(short(20)), Of(1, TinyShort)),
    ]
}
