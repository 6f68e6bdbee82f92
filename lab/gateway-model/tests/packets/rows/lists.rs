//! Tests of policy.md section 2, step 4: deny and allow lists.

use super::{attempt, full, v4, v6};
use crate::packets::frame::udp;
use crate::packets::quic::short;
use crate::packets::script::{Expected, SECOND, Script, case};
use equic_gateway::reason::Reason::*;
use equic_gateway_model::AclAction::{Allow, Deny};
use equic_gateway_model::{QuotaPolicy, Rate};

pub(super) fn rows() -> Vec<Script> {
    [matching(), expiry(), exemption()].concat()
}

fn matching() -> Vec<Script> {
    vec![
        case("denied address").deny("192.0.2.1/32").packet(v4(full()), Denied),
        case("denied address, IPv6").deny("2001:db8::1/128").packet(v6(full()), Denied),
        case("denied prefix").deny("192.0.2.0/24").packet(v4(short(30)), Denied),
        case("everything denied")
            .deny("0.0.0.0/0")
            .packet(v4(full()), Denied)
            .packet(v6(full()), New),
        case("everything denied, IPv6")
            .deny("::/0")
            .packet(v6(full()), Denied)
            .packet(v4(full()), New),
        case("neighbour of a denied address").deny("192.0.2.0/32").packet(v4(full()), New),
        case("lists see the full address, not the source's prefix")
            .deny("2001:db8::2/128")
            .packet(v6(full()), New),
        case("the longer prefix wins: allow in deny")
            .deny("192.0.0.0/16")
            .allow("192.0.2.0/24")
            .packet(v4(full()), Allowed),
        case("the longer prefix wins: deny in allow")
            .allow("2001:db8::/32")
            .deny("2001:db8::/64")
            .packet(v6(full()), Denied),
        case("removed entry")
            .deny("192.0.2.1/32")
            .packet(v4(full()), Denied)
            .unlist("192.0.2.1/32")
            .packet(v4(full()), New),
        case("a malformed packet of a denied source is denied")
            .deny("192.0.2.1/32")
            .packet(v4(Vec::new()), Denied),
        case("a bad UDP length comes first")
            .deny("192.0.2.1/32")
            .packet(v4(full()).udp_len(7), BadUdp),
        case("other services' packets are not denied")
            .deny("0.0.0.0/0")
            .packet(udp("192.0.2.1:53", "10.0.0.1:53", full()), Expected::Untouched),
        case("denied, dry run")
            .service(|service| service.dry_run = true)
            .deny("192.0.2.1/32")
            .packet(v4(full()), Expected::Verdict(Denied, false)),
    ]
}

fn expiry() -> Vec<Script> {
    let expired = |row: Script, lens: &[u8]| {
        lens.iter().fold(row, |row, len| row.list(Allow, &format!("192.0.2.1/{len}"), 1)).wait(1)
    };
    vec![
        case("an entry ends at its time")
            .list(Deny, "192.0.2.1/32", SECOND)
            .wait(SECOND - 1)
            .packet(v4(full()), Denied)
            .wait(1)
            .packet(v4(full()), New),
        case("an expired entry gives way to a shorter one")
            .list(Allow, "192.0.2.1/32", SECOND)
            .deny("192.0.2.0/24")
            .packet(v4(full()), Allowed)
            .wait(SECOND)
            .packet(v4(full()), Denied),
        case("an expired entry gives way to a shorter one, IPv6")
            .list(Deny, "2001:db8::1/128", SECOND)
            .allow("2001:db8::/32")
            .packet(v6(full()), Denied)
            .wait(SECOND)
            .packet(v6(full()), Allowed),
        expired(case("four expired entries are skipped"), &[32, 31, 30, 29])
            .deny("192.0.2.0/24")
            .packet(v4(full()), Denied),
        expired(case("a fifth expired entry ends the search"), &[32, 31, 30, 29, 28])
            .deny("192.0.2.0/24")
            .packet(v4(full()), New),
        case("an expired entry for all addresses")
            .list(Deny, "0.0.0.0/0", 1)
            .wait(1)
            .packet(v4(full()), New),
        case("an expired entry that is added again")
            .list(Deny, "192.0.2.1/32", 1)
            .wait(5)
            .packet(v4(full()), New)
            .list(Deny, "192.0.2.1/32", 9)
            .packet(v4(full()), Denied),
    ]
}

fn exemption() -> Vec<Script> {
    let allowed = |what: &str| case(what).allow("192.0.2.0/24");
    vec![
        allowed("allowed: short header").packet(v4(short(30)), Allowed),
        allowed("allowed: an Initial, and more packets of the attempt")
            .packet(v4(full()), Allowed)
            .packet(v4(full()), Allowed),
        allowed("allowed, but malformed").packet(v4(short(20)), TinyShort),
        allowed("allowed, but a short connection ID")
            .packet(v4(super::initial().dcid(&[1; 7]).fill(1200).build()), ShortDcid),
        allowed("allowed: no strict quota")
            .service(|service| {
                service.policy = QuotaPolicy::Strict;
                service.max_connections = 1;
            })
            .connections(0, "192.0.2.1", 9)
            .packet(v4(full()), Allowed),
        allowed("allowed: no quota")
            .service(|service| service.max_connections = 1)
            .connections(0, "192.0.2.1", 9)
            .packet(v4(full()), Allowed),
        allowed("allowed: no packet and byte rates")
            .service(|service| {
                service.packets_per_source = Rate::per_second(4, 1);
                service.bytes_per_source = Rate::per_second(4, 30);
            })
            .packets(5, &v4(short(30)), Allowed),
        allowed("allowed: no rates of new connections, nothing charged")
            .service(|service| {
                service.new_per_source = Rate::per_second(1, 1);
                service.new_per_service = Rate::per_second(1, 1);
            })
            .packet(v4(attempt(1)), Allowed)
            .packet(v4(attempt(2)), Allowed)
            .unlist("192.0.2.0/24")
            .packet(v4(attempt(3)), New)
            .packet(v4(attempt(4)), RateNewSource),
        allowed("a handshake of an allowed source is recorded")
            .packet(v4(full()), Allowed)
            .unlist("192.0.2.0/24")
            .packet(v4(full()), Underway),
    ]
}
