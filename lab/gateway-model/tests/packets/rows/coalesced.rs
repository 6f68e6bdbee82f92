//! Tests of policy.md section 3, rule 10: packets that follow a 0-RTT or Handshake packet in the
//! same datagram.

use super::{v4, v6};
use crate::packets::quic::*;
use crate::packets::script::{Script, case};
use equic_gateway::reason::Reason::*;

pub(super) fn rows() -> Vec<Script> {
    let row =
        |what: &str, packets: &[Long], reason| case(what).packet(v4(padded(packets, 1200)), reason);
    let behind_short = || {
        let mut bytes = handshake().build();
        bytes.extend(short(30));
        bytes.extend(initial().build());
        bytes.resize(1200, 0);
        bytes
    };
    let after = |bad: Long| [handshake(), bad, initial()];
    let long_first = handshake().cid_lens(20, 20);
    vec![
        row("Initial, Handshake", &[initial(), handshake()], New),
        row("Handshake, Initial", &[handshake(), initial()], New),
        row("0-RTT, Initial", &[zero_rtt(), initial()], New),
        row("Handshake, 0-RTT, Initial", &[handshake(), zero_rtt(), initial()], New),
        row("Initial in fourth place", &[zero_rtt(), zero_rtt(), handshake(), initial()], New),
        row(
            "Initial in fifth place",
            &[zero_rtt(), zero_rtt(), handshake(), handshake(), initial()],
            Coalesced,
        ),
        row("five packets without an Initial", &[(); 5].map(|()| handshake()), Coalesced),
        row("four packets without an Initial", &[(); 4].map(|()| handshake()), Handshake),
        row("Handshake, zeros", &[handshake()], Handshake),
        case("0-RTT, Initial, version 2, IPv6")
            .packet(v6(padded(&[zero_rtt().v2(), initial().v2()], 1200)), New),
        case("Handshake, Initial in 1199 bytes")
            .packet(v4(padded(&[handshake(), initial()], 1199)), Handshake),
        row("Handshake, Initial of another version", &[handshake(), initial().v2()], New),
        row("Handshake, unknown version", &[handshake(), initial().version(UNKNOWN)], Coalesced),
        row("Handshake, version 0", &[handshake(), initial().version(0)], Coalesced),
        case("Handshake, short header, Initial").packet(v4(behind_short()), Handshake),
        row("Handshake, Retry, Initial", &after(retry().body(0)), Handshake),
        row("Handshake, short Length, Initial", &after(handshake().body(3)), New),
        row(
            "Handshake, Length beyond the end, Initial",
            &after(handshake().length(5000)),
            Handshake,
        ),
        row("Handshake, long DCID, Initial", &after(zero_rtt().cid_lens(21, 0)), New),
        row("Handshake, Initial that is too short, Initial", &after(initial().body(3)), New),
        row("Handshake, Initial with a long SCID, Initial", &after(initial().cid_lens(8, 21)), New),
        row(
            "Handshake, Initial with a bad token",
            &[handshake(), initial().token_len(5000)],
            Handshake,
        ),
        row(
            "Handshake, Initial with a long SCID",
            &[handshake(), initial().cid_lens(8, 21)],
            Handshake,
        ),
        row(
            "Handshake, Initial with a short DCID",
            &[handshake(), initial().dcid(&[1; 7])],
            ShortDcid,
        ),
        case("the Fixed Bit is required only in the first packet")
            .service(|service| service.require_fixed_bit = true)
            .packet(v4(padded(&[handshake(), initial().greased()], 1200)), New),
        case("the coalesced Initial's IDs count")
            .packet(v4(padded(&[initial().dcid(&[9; 8])], 1200)), New)
            .packet(v4(padded(&[long_first.clone(), initial().dcid(&[9; 8])], 1200)), Underway)
            .packet(v4(padded(&[long_first, initial().scid(&[9; 3])], 1200)), New),
        case("the coalesced Initial's token counts")
            .packet(v4(padded(&[initial()], 1200)), New)
            .packet(v4(padded(&[initial().dcid(&SERVER_CID)], 1200)), Underway)
            .packet(v4(padded(&[zero_rtt(), initial().token(9).dcid(&[3; 8])], 1200)), Underway)
            .packet(v4(padded(&[zero_rtt(), initial().dcid(&[4; 8])], 1200)), New),
    ]
}
