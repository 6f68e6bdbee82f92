//! Section 1, fragments.

use super::{full, v4, v6};
use crate::packets::frame::*;
use crate::packets::quic::{UNKNOWN, initial, short};
use crate::packets::script::{Expected, Script, case};
use Expected::{Untouched, Verdict};
use equic_gateway::reason::Reason::*;
use equic_gateway_model::FragmentPolicy::{Drop, Follow, Pass};

fn policy(what: &str, policy: equic_gateway_model::FragmentPolicy) -> Script {
    case(what).service(|service| service.fragments = policy)
}

pub(super) fn rows() -> Vec<Script> {
    [first(), later(), matching()].concat()
}

/// The first 1,000 bytes of a datagram with an Initial of 1,400 bytes.
fn half() -> Packet {
    let mut payload = initial().fill(1400).build();
    payload.truncate(992);
    v4(payload).udp_len(1408).fragment(1, 0, true)
}

/// A long header that ends 2 bytes into the Source Connection ID.
fn cut_id() -> Vec<u8> {
    let mut header = initial().version(UNKNOWN).build();
    header.truncate(17);
    header
}

fn first() -> Vec<Script> {
    let small = |len: u16| v4(initial().fill(1000).build()).udp_len(len).fragment(1, 0, true);
    let long_token = |token| v4(initial().token_len(token).body(600).build()).udp_len(1408);
    vec![
        case("first fragment is judged by the UDP length").packet(half(), New),
        case("first fragment, UDP length 1207").packet(small(1207), SmallInitial),
        case("first fragment, UDP length 7").packet(small(7), BadUdp),
        case("first fragment, UDP length under the fragment").packet(small(508), SmallInitial),
        case("first fragment, token ends beyond it")
            .packet(long_token(900).fragment(1, 0, true), Truncated),
        case("first fragment, token ends beyond the datagram")
            .packet(long_token(1500).fragment(1, 0, true), BadLength),
        case("first fragment of 8 bytes")
            .packet(v4(Vec::new()).udp_len(1208).fragment(1, 0, true), Truncated),
        case("first fragment of 8 bytes, padding behind it")
            .packet(v4(Vec::new()).udp_len(1208).fragment(1, 0, true).padding(30), Truncated),
        case("first fragment ends inside the SCID, padding behind it")
            .packet(v4(cut_id()).udp_len(1408).fragment(1, 0, true).padding(30), Truncated),
        case("first fragment, IPv6").packet(v6(full()).udp_len(1308).fragment(1, 0, true), New),
        case("the last fragment may not be short of the UDP length")
            .packet(v4(full()).udp_len(1308).fragment(1, 0, false), BadUdp),
    ]
}

fn later() -> Vec<Script> {
    let rest = || v4(vec![0; 400]).fragment(1, 125, false);
    let rest6 = || v6(vec![0; 400]).fragment(1, 125, false);
    let denied = |row: Script| row.deny("192.0.2.0/24");
    vec![
        policy("pass: nothing is remembered", Pass).packet(half(), New).packet(rest(), Untouched),
        policy("follow: the first one passed", Follow).packet(half(), New).packet(rest(), Fragment),
        denied(policy("follow: the first one was dropped", Follow))
            .packet(half(), Denied)
            .packet(rest(), LaterFragment),
        policy("follow: the first one had a bad UDP length", Follow)
            .packet(v4(full()).udp_len(7).fragment(1, 0, true), BadUdp)
            .packet(rest(), LaterFragment),
        denied(policy("follow: in a dry run the first one passed", Follow))
            .service(|service| service.dry_run = true)
            .packet(half(), Verdict(Denied, false))
            .packet(rest(), Fragment),
        policy("drop: later ones are dropped", Drop)
            .packet(half(), New)
            .packet(rest(), LaterFragment),
        policy("drop: not in a dry run", Drop)
            .service(|service| service.dry_run = true)
            .packet(half(), New)
            .packet(rest(), Verdict(LaterFragment, false)),
        policy("follow, IPv6", Follow)
            .packet(v6(full()).udp_len(1308).fragment(1, 0, true), New)
            .packet(rest6(), Fragment),
        policy("drop, IPv6", Drop)
            .packet(v6(full()).udp_len(1308).fragment(1, 0, true), New)
            .packet(rest6(), LaterFragment),
        policy("the policy was changed to pass meanwhile", Drop)
            .packet(half(), New)
            .live(|service| service.fragments = Pass)
            .packet(rest(), Untouched),
        policy("the service was disabled meanwhile", Drop)
            .packet(half(), New)
            .live(|service| service.enabled = false)
            .packet(rest(), Untouched),
        policy("a newer first fragment replaces the older decision", Follow)
            .packet(half(), New)
            .deny("192.0.2.1/32")
            .packet(half(), Denied)
            .packet(rest(), LaterFragment),
    ]
}

fn matching() -> Vec<Script> {
    let first6 = || v6(full()).udp_len(1308).fragment(1, 0, true);
    let mapped = |payload| udp("[::ffff:192.0.2.1]:1000", "[::ffff:10.0.0.1]:443", payload);
    vec![
        policy("later fragment without a first one", Drop)
            .packet(v4(vec![0; 400]).fragment(1, 125, false), Untouched),
        policy("later fragment before the first one", Drop)
            .packet(v4(vec![0; 400]).fragment(1, 125, false), Untouched)
            .packet(half(), New),
        policy("another identification", Drop)
            .packet(half(), New)
            .packet(v4(vec![0; 400]).fragment(2, 125, false), Untouched),
        policy("another source", Drop)
            .packet(half(), New)
            .packet(udp("192.0.2.2:1", super::S4, vec![0; 9]).fragment(1, 125, false), Untouched),
        policy("another destination", Drop)
            .packet(half(), New)
            .packet(udp(super::C4, "10.0.0.2:1", vec![0; 9]).fragment(1, 125, false), Untouched),
        policy("another protocol, IPv4", Drop)
            .packet(half(), New)
            .packet(v4(vec![0; 400]).protocol(6).fragment(1, 125, false), Untouched),
        policy("another protocol, IPv6", Drop)
            .packet(first6(), New)
            .packet(v6(vec![0; 400]).protocol(6).fragment(1, 125, false), Untouched),
        policy("IPv6 identifications have 32 bits", Drop)
            .packet(first6(), New)
            .packet(v6(vec![0; 400]).fragment(0x0001_0001, 125, false), Untouched),
        policy("the same addresses, mapped, in IPv6", Drop)
            .packet(half(), New)
            .packet(mapped(vec![0; 400]).fragment(1, 125, false), Untouched),
        policy("first fragment to somebody else", Drop)
            .packet(udp(super::C4, "10.0.0.1:53", full()).fragment(1, 0, true), Untouched)
            .packet(v4(vec![0; 400]).fragment(1, 125, false), Untouched),
        policy("a whole packet is not a first fragment", Drop)
            .packet(v4(short(30)).fragment(1, 0, false), Established)
            .packet(v4(vec![0; 400]).fragment(1, 125, false), Untouched),
        policy("an atomic fragment is not a first fragment", Drop)
            .packet(v6(short(30)).fragment(1, 0, false), Established)
            .packet(v6(vec![0; 400]).fragment(1, 125, false), Untouched),
        policy("a middle fragment", Drop)
            .packet(half(), New)
            .packet(v4(vec![0; 400]).fragment(1, 125, true), LaterFragment),
        policy("an atomic fragment header behind the first fragment's", Drop)
            .packet(v6(short(30)).fragment(1, 0, true).fragment(2, 0, false), Established)
            .packet(v6(vec![0; 400]).fragment(2, 125, false), Untouched),
    ]
}
