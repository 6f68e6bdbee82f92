//! Tests of policy.md section 1: IP fragments.

use super::{full, v4, v6};
use crate::packets::frame::*;
use crate::packets::quic::{UNKNOWN, handshake, initial, padded, short, zero_rtt};
use crate::packets::script::{Expected, Script, case};
use Expected::{Deep, Untouched, Verdict};
use equic_gateway::reason::Reason::*;
use equic_gateway_model::FragmentPolicy::{Drop, Follow, Pass};
use equic_gateway_model::{Rate, RetryPolicy};

fn policy(what: &str, policy: equic_gateway_model::FragmentPolicy) -> Script {
    case(what).service(|service| service.fragments = policy)
}

pub(super) fn rows() -> Vec<Script> {
    [first(), hidden(), later(), matching()].concat()
}

/// Returns a first fragment: 1,000 bytes of a datagram that contains a short-header packet of 1,400
/// bytes.
fn half() -> Packet {
    v4(short(992)).udp_len(1408).fragment(1, 0, true)
}

/// Returns a long header that is cut off after 2 bytes of the Source Connection ID.
fn cut_id() -> Vec<u8> {
    let mut header = initial().version(UNKNOWN).build();
    header.truncate(17);
    header
}

fn first() -> Vec<Script> {
    // This identification differs from that of `half`, because `half` must be the last packet in
    // the seeds that are made from these rows.
    let fragment = |payload: Vec<u8>| v4(payload).udp_len(1408).fragment(9, 0, true);
    let small = |len: u16| v4(short(1000)).udp_len(len).fragment(9, 0, true);
    vec![
        case("first fragment is judged by the UDP length").packet(half(), Established),
        case("first fragment, UDP length 28").packet(small(28), TinyShort),
        case("first fragment, UDP length 7").packet(small(7), BadUdp),
        case("first fragment, UDP length 8").packet(small(8), Empty),
        case("first fragment of 8 bytes").packet(fragment(Vec::new()), Truncated),
        case("first fragment of 8 bytes, followed by padding")
            .packet(fragment(Vec::new()).padding(30), Truncated),
        case("first fragment, IPv6")
            .packet(v6(short(1000)).udp_len(1308).fragment(9, 0, true), Established),
        case("the last fragment must not be shorter than the UDP length")
            .packet(v4(full()).udp_len(1308).fragment(1, 0, false), BadUdp),
        case("a long header in a first fragment: an Initial")
            .packet(fragment(full()), FirstFragment)
            .packet(v6(full()).udp_len(1308).fragment(9, 0, true), FirstFragment),
        case("a long header in a first fragment: an Initial of 74 bytes")
            .packet(fragment(full()[..32].to_vec()), FirstFragment),
        case("a long header in a first fragment: an Initial may follow it")
            .packet(fragment(handshake().build()), FirstFragment)
            .packet(fragment(zero_rtt().build()), FirstFragment),
        case("a long header in a first fragment: one byte")
            .packet(fragment(vec![0xc0]), FirstFragment),
        case("a long header in a first fragment: also a malformed one")
            .packet(fragment(cut_id()).padding(30), FirstFragment)
            .packet(fragment(initial().token_len(1500).body(600).build()), FirstFragment),
        case("a long header in a first fragment: an unknown version, answered or not")
            .packet(fragment(padded(&[initial().version(UNKNOWN)], 1200)), FirstFragment)
            .live(|service| service.version_negotiation = true)
            .packet(fragment(padded(&[initial().version(UNKNOWN)], 1200)), FirstFragment),
        case("a long header in a first fragment: also of an allowed source")
            .allow("192.0.2.1/32")
            .packet(fragment(full()), FirstFragment)
            .packet(half(), Allowed),
        case("a long header in a first fragment is charged to no bucket")
            .service(|service| {
                service.new_per_source = Rate::per_second(1, 1);
                service.new_per_service = Rate::per_second(1, 1);
                service.packets_per_source = Rate::per_second(1, 1);
                service.retry_above = Rate::per_second(1, 2);
                service.retry = RetryPolicy::Adaptive;
            })
            .packets(20, &fragment(full()), FirstFragment)
            .packet(v4(full()), New),
        case("a long header in a first fragment: dry run")
            .service(|service| service.dry_run = true)
            .packet(fragment(full()), Verdict(FirstFragment, false)),
    ]
}

/// Tests of first fragments that end before the destination port.
fn hidden() -> Vec<Script> {
    // Truncates a packet to its IPv6 header and the next `n` bytes. Without the cut, the packet
    // would be an Initial.
    let cut = |packet: Packet, n: usize| packet.ip_len(n as u16).cut(14 + 40 + n);
    let first = || v6(full()).udp_len(1308).fragment(1, 0, true);
    let options = |length_field, count| first().extension(DESTINATION_OPTIONS, length_field, count);
    let pass_deep = |row: Script| row.config(|config| config.drop_deep_headers = false);
    let short = |len: u16| v4(full()).fragment(1, 0, true).ip_len(20 + len);
    vec![
        case("IPv6, ends between two options headers").packet(cut(options(0, 2), 16), Deep),
        case("IPv6, ends between options and UDP").packet(cut(options(0, 1), 16), Deep),
        case("IPv6, ends inside an options header").packet(cut(options(2, 1), 24), Deep),
        case("IPv6, ends behind the Fragment header").packet(cut(options(0, 1), 8), Deep),
        case("IPv6, ends behind the Fragment header, UDP").packet(cut(first(), 8), Deep),
        case("IPv6, ends behind a routing header")
            .packet(cut(first().extension(ROUTING, 0, 1).extension(ROUTING, 0, 1), 16), Deep),
        case("IPv6, ends behind AH")
            .packet(cut(first().extension(AUTHENTICATION, 4, 1).protocol(60), 32), Deep),
        case("IPv6, ends inside a second Fragment header")
            .packet(cut(first().fragment(2, 0, true), 12), Deep),
        case("IPv6, a fragment of a first fragment ends before UDP")
            .packet(cut(first().fragment(2, 0, true), 16), Deep),
        case("IPv6, an atomic fragment header in a first fragment, cut")
            .packet(cut(first().fragment(2, 0, false).extension(60, 0, 1), 16), Deep),
        case("IPv6, ends inside options in front of the Fragment header")
            .packet(cut(v6(full()).extension(60, 2, 1).fragment(1, 0, true), 16), Untouched),
        case("IPv6, ends inside the Fragment header").packet(cut(first(), 7), Untouched),
        case("IPv6, an atomic fragment that ends between two headers")
            .packet(cut(v6(full()).fragment(1, 0, false).extension(60, 0, 2), 16), Untouched),
        case("IPv6, also to another port, because the port is not visible").packet(
            cut(udp("[2001:db8::1]:1", "[fd00::9]:9", full()).fragment(1, 0, true), 8),
            Deep,
        ),
        case("IPv6, a header other than UDP is visible")
            .packet(cut(options(0, 1).protocol(58), 16), Untouched),
        case("IPv6, UDP cut behind the ports")
            .packet(cut(first().extension(AUTHENTICATION, 0, 1), 20), BadUdp),
        pass_deep(case("IPv6, ends between two headers, deep headers pass"))
            .packet(cut(options(0, 2), 16), Untouched),
        case("IPv6, ends between two headers, dry run")
            .config(|config| config.dry_run = true)
            .packet(cut(options(0, 2), 16), Untouched),
        case("IPv4, ends before the ports").packet(short(3), Deep),
        case("IPv4, ends behind the ports").packet(short(4), BadUdp),
        case("IPv4, ends behind the UDP length").packet(short(7), BadUdp),
        case("IPv4, TCP, ends before the ports").packet(short(3).protocol(6), Untouched),
        case("IPv4, not a fragment, ends before the ports")
            .packet(v4(full()).ip_len(23), Untouched),
    ]
}

fn later() -> Vec<Script> {
    let rest = || v4(vec![0; 400]).fragment(1, 125, false);
    let rest6 = || v6(vec![0; 400]).fragment(1, 125, false);
    let denied = |row: Script| row.deny("192.0.2.0/24");
    vec![
        policy("pass: nothing is remembered", Pass)
            .packet(half(), Established)
            .packet(rest(), Untouched),
        policy("follow: the first fragment passed", Follow)
            .packet(half(), Established)
            .packet(rest(), Fragment),
        denied(policy("follow: the first fragment was dropped", Follow))
            .packet(half(), Denied)
            .packet(rest(), LaterFragment),
        policy("follow: the first fragment had a bad UDP length", Follow)
            .packet(v4(full()).udp_len(7).fragment(1, 0, true), BadUdp)
            .packet(rest(), LaterFragment),
        denied(policy("follow: in a dry run, the first fragment passed", Follow))
            .service(|service| service.dry_run = true)
            .packet(half(), Verdict(Denied, false))
            .packet(rest(), Fragment),
        policy("drop: all fragments are dropped", Drop)
            .packet(half(), FirstFragment)
            .packet(rest(), LaterFragment),
        policy("drop: the first fragment is dropped even if later ones came before it", Drop)
            .packet(rest(), Untouched)
            .packet(half(), FirstFragment),
        policy("drop: also fragments of an allowed source", Drop)
            .allow("192.0.2.1/32")
            .packet(half(), FirstFragment),
        denied(policy("drop: the lists come first", Drop)).packet(half(), Denied),
        policy("drop: the UDP length comes first", Drop).packet(half().udp_len(7), BadUdp),
        policy("drop: the QUIC packet does not matter", Drop)
            .packet(v4(short(30)).fragment(1, 0, true), FirstFragment),
        policy("drop: not in a dry run", Drop)
            .service(|service| service.dry_run = true)
            .packet(half(), Verdict(FirstFragment, false))
            .packet(rest(), Verdict(LaterFragment, false)),
        policy("follow, IPv6", Follow)
            .packet(v6(short(1000)).udp_len(1308).fragment(1, 0, true), Established)
            .packet(rest6(), Fragment),
        policy("drop, IPv6", Drop)
            .packet(v6(full()).udp_len(1308).fragment(1, 0, true), FirstFragment)
            .packet(rest6(), LaterFragment),
        policy("the policy was changed to pass meanwhile", Drop)
            .packet(half(), FirstFragment)
            .live(|service| service.fragments = Pass)
            .packet(rest(), Untouched),
        policy("the service was disabled meanwhile", Drop)
            .packet(half(), FirstFragment)
            .live(|service| service.enabled = false)
            .packet(rest(), Untouched),
        policy("a newer first fragment replaces the older decision", Follow)
            .packet(half(), Established)
            .deny("192.0.2.1/32")
            .packet(half(), Denied)
            .packet(rest(), LaterFragment),
    ]
}

fn matching() -> Vec<Script> {
    let first6 = || v6(short(1000)).udp_len(1308).fragment(1, 0, true);
    let mapped = |payload| udp("[::ffff:192.0.2.1]:1000", "[::ffff:10.0.0.1]:443", payload);
    vec![
        policy("later fragment without a first one", Drop)
            .packet(v4(vec![0; 400]).fragment(1, 125, false), Untouched),
        policy("later fragment before the first one", Follow)
            .packet(v4(vec![0; 400]).fragment(1, 125, false), Untouched)
            .packet(half(), Established),
        policy("another identification", Drop)
            .packet(half(), FirstFragment)
            .packet(v4(vec![0; 400]).fragment(2, 125, false), Untouched),
        policy("another source", Drop)
            .packet(half(), FirstFragment)
            .packet(udp("192.0.2.2:1", super::S4, vec![0; 9]).fragment(1, 125, false), Untouched),
        policy("another destination", Drop)
            .packet(half(), FirstFragment)
            .packet(udp(super::C4, "10.0.0.2:1", vec![0; 9]).fragment(1, 125, false), Untouched),
        policy("another protocol, IPv4", Drop)
            .packet(half(), FirstFragment)
            .packet(v4(vec![0; 400]).protocol(6).fragment(1, 125, false), Untouched),
        policy("another Next Header, IPv6: receivers ignore it", Drop)
            .packet(first6(), FirstFragment)
            .packet(v6(vec![0; 400]).protocol(6).fragment(1, 125, false), LaterFragment),
        policy("options behind the Fragment header of the first one", Follow)
            .deny("2001:db8::/32")
            .packet(first6().extension(DESTINATION_OPTIONS, 0, 1), Denied)
            .packet(v6(vec![0; 400]).fragment(1, 125, false), LaterFragment),
        policy("options in front of the Fragment header of the later one", Follow)
            .deny("2001:db8::/32")
            .packet(first6(), Denied)
            .packet(
                v6(vec![0; 400]).extension(DESTINATION_OPTIONS, 0, 1).fragment(1, 125, false),
                LaterFragment,
            ),
        policy("IPv6 identifications have 32 bits", Drop)
            .packet(first6(), FirstFragment)
            .packet(v6(vec![0; 400]).fragment(0x0001_0001, 125, false), Untouched),
        policy("the same addresses, mapped, in IPv6", Drop)
            .packet(half(), FirstFragment)
            .packet(mapped(vec![0; 400]).fragment(1, 125, false), Untouched),
        policy("first fragment to another port", Drop)
            .packet(udp(super::C4, "10.0.0.1:53", full()).fragment(1, 0, true), Untouched)
            .packet(v4(vec![0; 400]).fragment(1, 125, false), Untouched),
        policy("a whole packet is not a first fragment", Drop)
            .packet(v4(short(30)).fragment(1, 0, false), Established)
            .packet(v4(vec![0; 400]).fragment(1, 125, false), Untouched),
        policy("an atomic fragment is not a first fragment", Drop)
            .packet(v6(short(30)).fragment(1, 0, false), Established)
            .packet(v6(vec![0; 400]).fragment(1, 125, false), Untouched),
        policy("a middle fragment", Drop)
            .packet(half(), FirstFragment)
            .packet(v4(vec![0; 400]).fragment(1, 125, true), LaterFragment),
        policy("an atomic fragment header behind the first fragment's", Drop)
            .packet(v6(short(30)).fragment(1, 0, true).fragment(2, 0, false), FirstFragment)
            .packet(v6(vec![0; 400]).fragment(2, 125, false), Untouched),
    ]
}
