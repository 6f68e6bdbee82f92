//! Tests of the host's own addresses: policy.md section 8, "When it answers", and section 1,
//! "Packets that pass through".

use super::ids::KNOWN;
use super::{C4, S4, full, v4, v6};
use crate::packets::frame::*;
use crate::packets::quic::*;
use crate::packets::script::{Expected, Script, case};
use equic_gateway::reason::Reason::*;
use equic_gateway_model::{Own, RetryPolicy, Service};

const OTHER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 9];
const GROUP_MAC: [u8; 6] = [3, 0, 0, 0, 0, 1];
const BROADCAST_MAC: [u8; 6] = [0xff; 6];
/// An address that this host does not have.
const ELSEWHERE: &str = "198.51.100.9:443";
/// Another address that this host does not have. A listener of a service has this address.
const NAMED: &str = "198.51.100.80:443";

/// Returns the addresses of a host: two IP addresses, a broadcast address, and one link-layer
/// address.
fn own() -> Own {
    let addrs = ["10.0.0.1", "fd00::1"].map(|addr| addr.parse().unwrap()).into();
    let broadcasts = vec!["10.0.0.255".parse().unwrap()];
    Own { addrs, broadcasts, macs: vec![SERVER_MAC], transit: false }
}

/// Returns a script with a service that uses all three kinds of answers. A listener of a second
/// service has an address behind the host.
fn answering(what: &str) -> Script {
    let change = |service: &mut Service| {
        service.retry = RetryPolicy::Always;
        service.version_negotiation = true;
        service.stateless_reset = true;
    };
    let mut second = Service { name: "behind", group: 1, ..Service::default() };
    change(&mut second);
    case(&format!("own: {what}")).service(change).another_service(second, &[NAMED]).all_dead()
}

fn to(address: &str) -> Packet {
    udp(C4, address, full())
}

fn unknown(address: &str) -> Packet {
    udp(C4, address, padded(&[initial().version(UNKNOWN)], 1200))
}

fn established(address: &str) -> Packet {
    udp(C4, address, short_to(&KNOWN, 30))
}

/// Sends three packets that normally get three kinds of answers. After `change`, the gateway must
/// answer none of them.
fn unanswered(script: Script, change: impl Fn(Packet) -> Packet, address: &str) -> Script {
    script
        .packet(change(to(address)), Unproved)
        .packet(change(unknown(address)), UnknownVersion)
        .packet(change(established(address)), Established)
}

pub(super) fn rows() -> Vec<Script> {
    let is = |packet: Packet| packet;
    let known = |what| answering(what).own(own());
    let through = |what| answering(what).own(Own { transit: true, ..own() });
    vec![
        known("packets to the host's own addresses are answered")
            .packet(v4(full()), RetrySent)
            .packet(v6(full()), RetrySent)
            .packet(unknown(S4), VersionNegotiationSent)
            .packet(established(S4), ResetSent),
        unanswered(known("an address of another host"), is, ELSEWHERE),
        unanswered(known("a broadcast address"), is, "10.0.0.255:443"),
        known("an IPv6 header with an IPv4 address")
            .packet(udp("[2001:db8::1]:1000", "[::ffff:10.0.0.1]:443", full()), Unproved),
        unanswered(answering("a loopback address on a network"), is, "127.0.0.1:443"),
        unanswered(
            known("a frame to another host"),
            |packet| packet.with_destination_mac(OTHER_MAC),
            S4,
        ),
        unanswered(
            known("a frame to all"),
            |packet| packet.with_destination_mac(BROADCAST_MAC),
            S4,
        ),
        unanswered(
            known("a frame to a group"),
            |packet| packet.with_destination_mac(GROUP_MAC),
            S4,
        ),
        unanswered(known("a frame from a group"), |packet| packet.with_source_mac(GROUP_MAC), S4),
        known("from its own address, and from a broadcast address")
            .packet(udp("10.0.0.1:1000", S4, full()), Unproved)
            .packet(udp("10.0.0.255:1000", S4, full()), Unproved)
            .packet(udp("10.0.0.255:1000", NAMED, full()), Expected::Of(1, Unproved))
            .packet(udp("[fd00::1]:1000", "[fd00::1]:443", full()), Unproved),
        known("on the loopback interface, the host's own address is answered")
            .config(|config| config.on_loopback = true)
            .packet(udp("10.0.0.1:1000", S4, full()), RetrySent),
        known("an address behind the host that a service names is answered")
            .packet(to(NAMED), Expected::Of(1, RetrySent))
            .packet(to(NAMED).with_destination_mac(OTHER_MAC), Expected::Of(1, RetrySent))
            .packet(established(NAMED), Expected::Of(1, ResetSent))
            .packet(to(NAMED).with_destination_mac(BROADCAST_MAC), Expected::Of(1, Unproved)),
        answering("while the host's addresses are unknown, every address is answered")
            .packet(to(ELSEWHERE), RetrySent)
            .packet(to(ELSEWHERE).with_destination_mac(OTHER_MAC), RetrySent)
            .packet(to(ELSEWHERE).with_destination_mac(BROADCAST_MAC), Unproved)
            .packet(to(ELSEWHERE).with_source_mac(GROUP_MAC), Unproved),
        known("packets that are not answered are judged")
            .packet(to(ELSEWHERE).with_destination_mac(OTHER_MAC), Unproved)
            .deny("192.0.2.1/32")
            .packet(to(ELSEWHERE).with_destination_mac(OTHER_MAC), Denied),
        through("packets that pass through are not judged")
            .deny("192.0.2.1/32")
            .packet(to(ELSEWHERE).with_destination_mac(OTHER_MAC), Expected::Untouched)
            .packet(established(ELSEWHERE).with_destination_mac(OTHER_MAC), Expected::Untouched)
            .packet(to(S4), Denied)
            .packet(to(S4).with_destination_mac(OTHER_MAC), Denied)
            .packet(to("10.0.0.255:443").with_destination_mac(OTHER_MAC), Denied)
            .packet(to(NAMED).with_destination_mac(OTHER_MAC), Expected::Of(1, Denied)),
    ]
}
