//! Tests of policy.md section 1: which frames are for a service.

use super::{S4, S6, full, v4, v6};
use crate::packets::frame::*;
use crate::packets::quic::short;
use crate::packets::script::{Expected, Script, case};
use Expected::{Deep, Untouched};
use equic_gateway::reason::Reason::*;

pub(super) fn rows() -> Vec<Script> {
    [ethernet(), ipv4(), ipv6(), sources(), udp_rows()].concat()
}

fn ethernet() -> Vec<Script> {
    vec![
        case("Initial over IPv4").packet(v4(full()), New),
        case("Initial over IPv6").packet(v6(full()), New),
        case("802.1Q tag").packet(v4(full()).vlan(TPID_8021Q), New),
        case("802.1ad tag").packet(v6(full()).vlan(TPID_8021AD), New),
        case("two tags").packet(v4(full()).vlan(TPID_8021AD).vlan(TPID_8021Q), New),
        case("two tags of one kind, IPv6")
            .packet(v6(full()).vlan(TPID_8021Q).vlan(TPID_8021Q), New),
        case("three tags, which the host may remove")
            .packet(v4(full()).vlan(TPID_8021AD).vlan(TPID_8021Q).vlan(TPID_8021Q), Deep),
        case("three tags, deep headers pass")
            .config(|config| config.drop_deep_headers = false)
            .packet(v4(full()).vlan(TPID_8021AD).vlan(TPID_8021Q).vlan(TPID_8021Q), Untouched),
        case("three tags, whatever follows")
            .packet(v4(full()).vlan(TPID_8021Q).vlan(TPID_8021Q).vlan(TPID_8021Q).cut(26), Deep),
        case("two tags and a tag of an unknown type")
            .packet(v4(full()).vlan(TPID_8021Q).vlan(TPID_8021Q).vlan(0x9100), Untouched),
        case("a tag of an unknown type").packet(v4(full()).vlan(0x9100), Untouched),
        case("ARP").packet(v4(full()).ethertype(0x0806), Untouched),
        case("IPv4 under the ethertype of IPv6").packet(v4(full()).ethertype(0x86dd), Untouched),
        case("IPv6 under the ethertype of IPv4").packet(v6(full()).ethertype(0x0800), Untouched),
        case("only an Ethernet header").packet(v4(full()).cut(14), Untouched),
        case("cut inside a tag").packet(v4(full()).vlan(TPID_8021Q).cut(16), Untouched),
        case("cut inside the IPv4 header").packet(v4(full()).cut(33), Untouched),
        case("cut inside the IPv6 header").packet(v6(full()).cut(53), Untouched),
        case("Ethernet padding after a small packet")
            .packet(v4(short(21)).padding(40), Established),
    ]
}

fn ipv4() -> Vec<Script> {
    vec![
        case("IPv4 with one word of options").packet(v4(full()).ip_options(1), New),
        case("IPv4 with ten words of options").packet(v4(full()).ip_options(10), New),
        case("IPv4 header of 16 bytes").packet(v4(full()).header_words(4), Untouched),
        case("IPv4 header longer than Total Length")
            .packet(v4(full()).header_words(15).ip_len(59), Untouched),
        case("IP version 5").packet(v4(full()).version(5), Untouched),
        case("Total Length under the header").packet(v4(full()).ip_len(19), Untouched),
        case("Total Length beyond the frame").packet(v4(full()).ip_len(1229), Untouched),
        case("TCP").packet(v4(full()).protocol(6), Untouched),
        case("ICMP").packet(v4(full()).protocol(1), Untouched),
        case("UDP-Lite").packet(v4(full()).protocol(136), Untouched),
        case("Total Length ends before the ports").packet(v4(full()).ip_len(23), Untouched),
        case("jumbo frame over several buffers").packet(v4(jumbo()), New),
    ]
}

/// Returns 8,000 bytes that begin with an Initial packet.
fn jumbo() -> Vec<u8> {
    crate::packets::quic::initial().fill(8000).build()
}

fn ipv6() -> Vec<Script> {
    let deep = |n| v6(full()).extension(DESTINATION_OPTIONS, 0, n);
    let pass_deep = |row: Script| row.config(|config| config.drop_deep_headers = false);
    vec![
        case("IP version 4 in an IPv6 header").packet(v6(full()).version(4), Untouched),
        case("Payload Length beyond the frame").packet(v6(full()).ip_len(1209), Untouched),
        case("Payload Length 0").packet(v6(full()).ip_len(0), Untouched),
        case("Payload Length 0 and Hop-by-Hop: the host takes the frame's length")
            .packet(v6(full()).extension(HOP_BY_HOP, 0, 1).ip_len(0), Deep),
        case("BIG TCP: Payload Length 0, Hop-by-Hop, TCP")
            .packet(v6(jumbo()).extension(HOP_BY_HOP, 0, 1).protocol(6).ip_len(0), Untouched),
        case("Payload Length 0, Hop-by-Hop, options, TCP").packet(
            v6(full())
                .extension(HOP_BY_HOP, 0, 1)
                .extension(DESTINATION_OPTIONS, 1, 1)
                .protocol(6)
                .ip_len(0),
            Untouched,
        ),
        case("Payload Length 0, Hop-by-Hop, options, UDP").packet(
            v6(full()).extension(HOP_BY_HOP, 0, 1).extension(DESTINATION_OPTIONS, 1, 1).ip_len(0),
            Deep,
        ),
        case("Payload Length 0, Hop-by-Hop past the end of the frame")
            .packet(v6(full()).extension(HOP_BY_HOP, 9, 1).ip_len(0).cut(100), Deep),
        case("Payload Length 0, Hop-by-Hop, only its IPv6 header")
            .packet(v6(full()).extension(HOP_BY_HOP, 0, 1).ip_len(0).cut(54), Deep),
        case("Payload Length 0, Hop-by-Hop, a later fragment")
            .packet(v6(full()).extension(HOP_BY_HOP, 0, 1).fragment(1, 9, false).ip_len(0), Deep),
        case("Payload Length 0, Hop-by-Hop, a first fragment that ends too early").packet(
            v6(full())
                .extension(HOP_BY_HOP, 0, 1)
                .fragment(1, 0, true)
                .extension(DESTINATION_OPTIONS, 0, 1)
                .ip_len(0)
                .cut(70),
            Deep,
        ),
        case("Payload Length 0 and another extension header")
            .packet(v6(full()).extension(DESTINATION_OPTIONS, 0, 1).ip_len(0), Untouched),
        pass_deep(case("Payload Length 0 and Hop-by-Hop, deep headers pass"))
            .packet(v6(full()).extension(HOP_BY_HOP, 0, 1).ip_len(0), Untouched),
        case("Payload Length ends before the ports").packet(v6(full()).ip_len(3), Untouched),
        case("Payload Length under the frame: padding")
            .packet(v6(full()).padding(9).udp_len(1208), New),
        case("Hop-by-Hop").packet(v6(full()).extension(HOP_BY_HOP, 0, 1), New),
        case("Routing of 24 bytes").packet(v6(full()).extension(ROUTING, 2, 1), New),
        case("Destination Options of 2,048 bytes")
            .packet(v6(full()).extension(DESTINATION_OPTIONS, 255, 1), New),
        case("UDP header outside the first buffer of the frame")
            .packet(v6(full()).extension(DESTINATION_OPTIONS, 255, 3), New),
        case("Mobility").packet(v6(full()).extension(MOBILITY, 1, 1), New),
        case("AH of 8 bytes").packet(v6(full()).extension(AUTHENTICATION, 0, 1), New),
        case("AH of 12 bytes").packet(v6(full()).extension(AUTHENTICATION, 1, 1), New),
        case("AH counts in words, Options in double words").packet(
            v6(full()).extension(HOP_BY_HOP, 1, 1).extension(AUTHENTICATION, 4, 1).extension(
                DESTINATION_OPTIONS,
                3,
                1,
            ),
            New,
        ),
        case("atomic fragment is a whole packet").packet(v6(full()).fragment(7, 0, false), New),
        case("ESP").packet(v6(full()).protocol(50), Untouched),
        case("No Next Header").packet(v6(full()).protocol(59), Untouched),
        case("ICMPv6 after options")
            .packet(v6(full()).extension(HOP_BY_HOP, 0, 1).protocol(58), Untouched),
        case("extension header past the payload")
            .packet(v6(full()).extension(ROUTING, 2, 1).ip_len(23), Untouched),
        case("16 extension headers").packet(deep(16), New),
        case("17 extension headers").packet(deep(17), Deep),
        case("16 and a fragment header").packet(deep(16).fragment(1, 0, true), Deep),
        case("17 extension headers, whatever follows").packet(deep(17).protocol(6), Deep),
        case("the 17th extension header is not read: a later fragment")
            .packet(deep(16).fragment(1, 9, false), Deep),
        case("17 extension headers, dry run of the gateway")
            .config(|config| config.dry_run = true)
            .packet(deep(17), Untouched),
        pass_deep(case("16 extension headers, deep headers pass")).packet(deep(16), New),
        pass_deep(case("17 extension headers, deep headers pass")).packet(deep(17), Untouched),
        case("16 extension headers, the last one past the end")
            .packet(deep(16).ip_len(125), Untouched),
    ]
}

/// Tests of source addresses that no host can have.
fn sources() -> Vec<Script> {
    let from4 = |source: &str| udp(&format!("{source}:1000"), S4, full());
    let from6 = |source: &str| udp(&format!("[{source}]:1000"), S6, full());
    let on_loopback = |row: Script| row.config(|config| config.on_loopback = true);
    let nobody = ["0.0.0.0", "0.255.0.1", "127.0.0.1", "127.255.255.255", "224.0.0.1"];
    let nobody = nobody.into_iter().chain(["239.255.255.255", "255.255.255.255"]);
    let nobody6 = ["::", "::1", "::ffff:192.0.2.1", "::ffff:0.0.0.0", "ff00::", "ff02::1"];
    let somebody = ["1.0.0.0", "126.0.0.1", "128.0.0.1", "223.255.255.255", "255.255.255.254"];
    let somebody6 = ["::192.0.2.1", "::2", "::1:0:0:1", "::1:ffff:c000:201", "fe80::1", "fe00::"];
    let mut rows: Vec<Script> = [
        nobody
            .map(|source| case(&format!("from {source}")).packet(from4(source), BadSource))
            .collect(),
        nobody6
            .map(|source| case(&format!("from {source}")).packet(from6(source), BadSource))
            .to_vec(),
        somebody.map(|source| case(&format!("from {source}")).packet(from4(source), New)).to_vec(),
        somebody6.map(|source| case(&format!("from {source}")).packet(from6(source), New)).to_vec(),
    ]
    .concat();
    rows.extend([
        on_loopback(case("from 127.0.0.1, on the loopback interface"))
            .packet(from4("127.0.0.1"), New),
        on_loopback(case("from ::1, on the loopback interface")).packet(from6("::1"), New),
        on_loopback(case("from a mapped loopback address, on the loopback interface"))
            .packet(from6("::ffff:127.0.0.1"), BadSource),
        on_loopback(case("from a multicast address, on the loopback interface"))
            .packet(from4("224.0.0.1"), BadSource),
        case("from an impossible source, with a bad UDP length")
            .packet(from4("0.0.0.0").udp_len(7), BadUdp),
        case("from an impossible source, to another port")
            .packet(udp("[::ffff:192.0.2.1]:1000", "[fd00::1]:444", full()), Untouched),
        case("from an impossible source, allowed")
            .allow("0.0.0.0/0")
            .packet(from4("127.0.0.1"), BadSource),
        case("from an impossible source, dry run")
            .service(|service| service.dry_run = true)
            .packet(from6("ff02::1"), Expected::Verdict(BadSource, false)),
        case("an IPv4-mapped address is dropped although the IPv4 deny list does not cover it")
            .deny("192.0.2.0/24")
            .packet(from6("::ffff:192.0.2.1"), BadSource),
    ]);
    rows
}

fn udp_rows() -> Vec<Script> {
    vec![
        case("UDP length 7").packet(v4(full()).udp_len(7), BadUdp),
        case("UDP length 0").packet(v6(full()).udp_len(0), BadUdp),
        case("UDP length 8: no payload").packet(v4(full()).udp_len(8), Empty),
        case("UDP length beyond the IP length").packet(v4(full()).udp_len(1209), BadUdp),
        case("UDP length beyond the IP length, with padding to fill it")
            .packet(v6(full()).udp_len(1209).padding(10), BadUdp),
        case("UDP length under the IP length").packet(v4(full()).udp_len(1207), SmallInitial),
        case("IP length ends after the ports").packet(v4(full()).ip_len(27), BadUdp),
        case("IP length ends right after the ports").packet(v6(full()).ip_len(4), BadUdp),
        case("bad UDP length to another port")
            .packet(udp(super::C4, "10.0.0.1:444", full()).udp_len(7), Untouched),
    ]
}
