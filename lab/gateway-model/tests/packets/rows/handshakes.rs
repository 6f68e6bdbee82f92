//! Tests of policy.md section 2, steps 16 and 17: handshakes in progress, and short connection IDs.

use super::{S4, attempt, full, v4, v6};
use crate::packets::frame::udp;
use crate::packets::quic::*;
use crate::packets::script::{SECOND, Script, case};
use equic_gateway::reason::Reason::*;
use equic_gateway_model::Rate;

/// Returns a script with a service that admits one connection attempt and refuses a second one.
fn one(what: &str) -> Script {
    case(what).service(|service| service.new_per_source = Rate::per_second(1, 1))
}

pub(super) fn rows() -> Vec<Script> {
    [adoption(), identity(), expiry(), forgotten(), replay(), short_dcid()].concat()
}

fn replay() -> Vec<Script> {
    let again =
        |what, times| one(what).packet(v4(full()), New).packets(times, &v4(full()), Underway);
    vec![
        again("an attempt has 64 packets, and the next packet is charged as a new attempt", 63)
            .packets(3, &v4(full()), RateNewSource),
        again("packets to the server's connection ID count towards the 64", 40)
            .packets(23, &v4(to_server_cid(1)), Underway)
            .packet(v4(to_server_cid(1)), RateNewSource)
            .packet(v4(full()), RateNewSource),
        again("the packet that brings a new connection ID counts towards the 64", 62)
            .packet(v4(to_server_cid(1)), Underway)
            .packet(v4(full()), RateNewSource),
        again("an attempt that is admitted again has 64 more packets", 63)
            .packet(v4(full()), RateNewSource)
            .wait(SECOND)
            .packet(v4(full()), New)
            .packets(63, &v4(full()), Underway)
            .packet(v4(full()), RateNewSource),
    ]
}

fn to_server_cid(n: u8) -> Vec<u8> {
    initial().dcid(&[n; 4]).fill(1200).build()
}

fn adoption() -> Vec<Script> {
    let token = |dcid: &[u8]| v4(initial().dcid(dcid).token(40).fill(1200).build());
    vec![
        one("the Initial again").packet(v4(full()), New).packet(v4(full()), Underway),
        one("the server's connection ID is learnt, even if it is short")
            .packet(v4(full()), New)
            .packet(v4(to_server_cid(1)), Underway)
            .packet(v4(to_server_cid(1)), Underway)
            .packet(v4(full()), Underway),
        one("a third connection ID is not learnt")
            .packet(v4(full()), New)
            .packet(v4(to_server_cid(1)), Underway)
            .packet(v4(to_server_cid(2)), RateNewSource)
            .packet(v4(initial().dcid(&[7; 8]).fill(1200).build()), RateNewSource),
        one("with a token, a third connection ID is learnt, because of a Retry")
            .packet(v4(full()), New)
            .packet(token(&[8; 8]), Underway)
            .packet(token(&[9; 8]), Underway)
            .packet(token(&[10; 8]), RateNewSource)
            .packet(token(&[9; 8]), Underway),
        one("only packets with a token can add a third connection ID")
            .packet(v4(full()), New)
            .packet(token(&[8; 8]), Underway)
            .packet(v4(initial().dcid(&[9; 8]).fill(1200).build()), RateNewSource)
            .packet(token(&[9; 8]), Underway),
        one("a refused connection ID is not learnt")
            .packet(v4(full()), New)
            .packet(v4(to_server_cid(1)), Underway)
            .packet(v4(to_server_cid(2)), RateNewSource)
            .packet(token(&[2; 4]), Underway),
        one("Initial coalesced with Handshake, to the server's connection ID")
            .packet(v4(full()), New)
            .packet(
                v4(padded(&[initial().dcid(&SERVER_CID), handshake().dcid(&SERVER_CID)], 1200)),
                Underway,
            ),
        one("connection IDs of different lengths are different")
            .packet(v4(initial().dcid(&[0; 8]).fill(1200).build()), New)
            .packet(v4(initial().dcid(&[0; 9]).fill(1200).build()), Underway)
            .packet(v4(initial().dcid(&[0; 10]).fill(1200).build()), RateNewSource),
    ]
}

fn identity() -> Vec<Script> {
    vec![
        one("another SCID is another connection")
            .packet(v4(attempt(1)), New)
            .packet(v4(attempt(2)), RateNewSource),
        one("another port is another connection")
            .packet(v4(full()), New)
            .packet(udp("192.0.2.1:1001", S4, full()), RateNewSource),
        one("another port of the service is another connection")
            .listen("0.0.0.0:8443")
            .packet(v4(full()), New)
            .packet(udp(super::C4, "10.0.0.1:8443", full()), RateNewSource),
        one("another address of the service is another connection")
            .packet(v4(full()), New)
            .packet(udp(super::C4, "10.0.0.2:443", full()), RateNewSource),
        one("another address of the service, IPv6")
            .packet(v6(full()), New)
            .packet(udp(super::C6, "[fd00::2]:443", full()), RateNewSource),
        case("another address is another connection")
            .packet(v4(full()), New)
            .packet(udp("192.0.2.2:1000", S4, full()), New),
        case("IPv6: the full address counts, not the prefix")
            .packet(v6(full()), New)
            .packet(udp("[2001:db8::2]:1000", super::S6, full()), New),
        one("empty SCID: all connections of a port share one attempt")
            .packet(v4(initial().scid(&[]).fill(1200).build()), New)
            .packet(v4(initial().scid(&[]).dcid(&[1; 8]).fill(1200).build()), Underway)
            .packet(v4(initial().scid(&[]).dcid(&[2; 8]).fill(1200).build()), RateNewSource),
        case("SCIDs of different lengths are different")
            .packet(v4(initial().scid(&[0; 4]).fill(1200).build()), New)
            .packet(v4(initial().scid(&[0; 5]).fill(1200).build()), New),
        one("a refused attempt is not in progress")
            .packet(v4(attempt(1)), New)
            .packet(v4(attempt(2)), RateNewSource)
            .packet(v4(attempt(2)), RateNewSource),
        one("version 2 continues an attempt of version 1")
            .packet(v4(full()), New)
            .packet(v4(initial().v2().fill(1200).build()), Underway),
    ]
}

fn expiry() -> Vec<Script> {
    let brief = |what: &str| case(what).service(|service| service.handshake_ns = SECOND);
    vec![
        brief("a handshake may take handshake_ns")
            .packet(v4(full()), New)
            .wait(SECOND)
            .packet(v4(full()), Underway),
        brief("a handshake expires a nanosecond later")
            .packet(v4(full()), New)
            .wait(SECOND + 1)
            .packet(v4(full()), New),
        brief("packets do not extend the time of a handshake")
            .packet(v4(full()), New)
            .wait(SECOND)
            .packet(v4(full()), Underway)
            .wait(1)
            .packet(v4(full()), New),
        brief("a renewed entry forgets the old connection IDs")
            .packet(v4(full()), New)
            .packet(v4(to_server_cid(1)), Underway)
            .wait(SECOND + 1)
            .packet(v4(full()), New)
            .packet(v4(to_server_cid(2)), Underway)
            .packet(v4(to_server_cid(1)), New),
        brief("after a handshake, the server's short connection ID does not open another")
            .packet(v4(full()), New)
            .packet(v4(to_server_cid(1)), Underway)
            .wait(SECOND + 1)
            .packet(v4(to_server_cid(1)), ShortDcid),
    ]
}

/// Tests of the later packets of an attempt that the table of handshakes has lost. They have a
/// short connection ID, which the server chose.
fn forgotten() -> Vec<Script> {
    let brief = |what: &str| case(what).service(|service| service.handshake_ns = SECOND);
    vec![
        case("a forgotten attempt's second flight counts as a new connection")
            .packet(v4(full()), New)
            .forget_handshakes()
            .packet(v4(to_server_cid(1)), New)
            .packet(v4(to_server_cid(1)), Underway),
        one("a forgotten attempt's second flight is charged as a new connection")
            .packet(v4(full()), New)
            .forget_handshakes()
            .packet(v4(to_server_cid(1)), RateNewSource),
        case("a forgotten attempt's second flight is refused at the quota")
            .service(|service| service.max_connections = 1)
            .packet(v4(full()), New)
            .forget_handshakes()
            .connections(0, "192.0.2.1", 1)
            .packet(v4(to_server_cid(1)), Quota),
        brief("a forgotten attempt's second flight passes while the attempt could be in progress")
            .packet(v4(full()), New)
            .forget_handshakes()
            .wait(SECOND)
            .packet(v4(to_server_cid(1)), New),
        brief("a forgotten attempt's second flight is refused a nanosecond later")
            .packet(v4(full()), New)
            .forget_handshakes()
            .wait(SECOND + 1)
            .packet(v4(to_server_cid(1)), ShortDcid),
        one("a source whose attempt was refused has no second flight")
            .service(|service| service.max_connections = 1)
            .connections(0, "192.0.2.1", 1)
            .packet(v4(full()), Quota)
            .packet(v4(to_server_cid(1)), ShortDcid),
        case("another source has no second flight")
            .packet(v4(full()), New)
            .packet(udp("192.0.2.2:1000", S4, to_server_cid(1)), ShortDcid),
    ]
}

fn short_dcid() -> Vec<Script> {
    let dcid = |len| initial().cid_lens(len, 5).fill(1200).build();
    vec![
        case("DCID of 7 bytes").packet(v4(dcid(7)), ShortDcid),
        case("DCID of 8 bytes").packet(v6(dcid(8)), New),
        case("no DCID").packet(v4(dcid(0)), ShortDcid),
        case("short DCID in version 2")
            .packet(v4(initial().v2().cid_lens(7, 5).fill(1200).build()), ShortDcid),
        case("a Handshake packet's DCID may be short")
            .packet(v4(handshake().cid_lens(0, 0).build()), Handshake),
    ]
}
