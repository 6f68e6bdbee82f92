//! Tests of policy.md section 1: batches, and packets without an Ethernet header.

use super::ids::KNOWN;
use super::{C4, S4, attempt, full, v4, v6};
use crate::packets::frame::*;
use crate::packets::quic::{UNKNOWN, handshake, initial, short, short_to, zero_rtt};
use crate::packets::script::{Expected, Script, case};
use Expected::{Deep, Untouched, Verdict};
use equic_gateway::reason::Reason::*;
use equic_gateway_model::{Arrival, FragmentPolicy, QuotaPolicy, Rate, RetryPolicy};

pub(super) fn rows() -> Vec<Script> {
    [classes(), charges(), ids(), shapes(), without_ethernet()].concat()
}

/// Returns `count` packets with a short header, each 1,200 bytes long.
fn shorts(count: usize) -> Vec<Vec<u8>> {
    vec![short(1200); count]
}

fn classes() -> Vec<Script> {
    let one = initial().fill(1200);
    let same = vec![one.build(); 2];
    let early = || zero_rtt().body(1150).build();
    let padded = |mut packet: Vec<u8>| {
        packet.resize(1200, 0x41);
        packet
    };
    let coalesced = |len: usize| {
        let first = handshake().body(40).build();
        let rest = len - first.len();
        [first, initial().fill(rest).build()].concat()
    };
    let after = |last: Vec<u8>| vec![full(), last];
    vec![
        case("batch of short headers").batch(v4, &shorts(3), Established),
        case("batch over IPv6").batch(v6, &shorts(3), Established),
        case("batch with a shorter last datagram").batch(
            v4,
            &[short(1200), short(1200), short(40)],
            Established,
        ),
        case("batch whose last datagram is too short for QUIC").batch(
            v4,
            &[short(1200), short(20)],
            Batch,
        ),
        case("batch of 128 datagrams").batch(v4, &vec![short(40); 128], Established),
        case("batch of 129 datagrams").batch(v4, &vec![short(40); 129], Batch),
        case("batch of one datagram").batch(v4, &shorts(1), Established),
        case("an Initial behind a short header").batch(v4, &[short(1200), full()], Batch),
        case("an Initial behind a Handshake packet").batch(
            v4,
            &[padded(handshake().body(1000).build()), full()],
            Batch,
        ),
        case("two Initials of an attempt, and then others")
            .batch(v4, &same, New)
            .batch(v4, &same, Underway),
        case("Initials of two attempts").batch(v4, &[attempt(1), attempt(2)], Batch),
        case("another connection ID of the client").batch(
            v4,
            &[full(), initial().scid(&[9; 5]).fill(1200).build()],
            Batch,
        ),
        case("two versions").batch(
            v4,
            &[full(), initial().version(UNKNOWN).fill(1200).build()],
            Batch,
        ),
        case("batch of an unknown version").batch(
            v4,
            &vec![initial().version(UNKNOWN).fill(1200).build(); 2],
            Batch,
        ),
        case("a small Initial behind a large one").batch(
            v4,
            &after(initial().fill(600).build()),
            Batch,
        ),
        case("Initials that are too small each, and not together").batch(
            v4,
            &vec![initial().fill(700).build(); 2],
            SmallInitial,
        ),
        case("a short header behind an Initial").batch(v4, &after(short(300)), New),
        case("a Handshake packet behind an Initial").batch(
            v4,
            &after(handshake().body(300).build()),
            New,
        ),
        case("an Initial coalesced behind the Handshake packet of another datagram").batch(
            v4,
            &[padded(handshake().body(1100).build()), coalesced(1200)],
            Batch,
        ),
        case("an Initial coalesced in another datagram, which is too small for it").batch(
            v4,
            &[padded(handshake().body(1100).build()), coalesced(1190)],
            Handshake,
        ),
        case("0-RTT of the same attempt behind its Initial").batch(
            v4,
            &[initial().fill(1200).build(), early()],
            New,
        ),
        case("0-RTT of another attempt behind an Initial").batch(
            v4,
            &[initial().scid(&[9; 5]).fill(1200).build(), early()],
            Batch,
        ),
        case("a malformed datagram behind a good one").batch(v4, &after(vec![0xc0; 300]), Batch),
        case("a malformed first datagram").batch(v4, &[vec![0xc0; 5], vec![0xc0; 5]], Truncated),
        case("a Fixed Bit of zero behind a good one")
            .service(|service| service.require_fixed_bit = true)
            .batch(v4, &[short(40), vec![0x01; 40]], Batch),
    ]
}

fn charges() -> Vec<Script> {
    let packets = |burst| {
        move |s: &mut equic_gateway_model::Service| {
            s.packets_per_source = Rate::per_second(1, burst);
        }
    };
    vec![
        case("batch: each datagram is charged")
            .service(packets(4))
            .batch(v4, &shorts(3), Established)
            .batch(v4, &shorts(2), RatePackets)
            .packet(v4(short(40)), Established),
        case("batch: the bytes of all are charged")
            .service(|s| s.bytes_per_source = Rate::per_second(1, 3000))
            .batch(v4, &shorts(2), Established)
            .batch(v4, &shorts(2), RateBytes),
        case("batch: each datagram is charged to the service")
            .service(|s| s.packets_per_service = Rate::per_second(1, 4))
            .batch(v4, &shorts(3), Established)
            .batch(v4, &shorts(2), RatePacketsService),
        case("batch: each datagram of an unknown sender is charged")
            .service(|s| s.unproven_per_service = Rate::per_second(1, 4))
            .batch(v4, &shorts(3), Established)
            .batch(v4, &shorts(2), RateUnproven),
        case("batch: an attempt has 64 datagrams")
            .batch(v4, &vec![full(); 40], New)
            .batch(v4, &vec![full(); 24], Underway)
            .service(|s| s.new_per_source = Rate::per_second(1, 1))
            .packet(v4(full()), RateNewSource),
        case("batch: the quota applies to the first datagram")
            .service(|s| (s.max_connections, s.policy) = (1, QuotaPolicy::New))
            .connections(0, "192.0.2.1", 1)
            .batch(v4, &vec![full(); 2], Quota),
        case("batch: a denied source").deny("192.0.2.0/24").batch(v4, &shorts(3), Denied),
        case("batch: an allowed source").allow("192.0.2.0/24").batch(v4, &shorts(3), Allowed),
        case("batch: no answer can be sent").service(|s| s.retry = RetryPolicy::Always).batch(
            v4,
            &vec![full(); 2],
            Unproved,
        ),
        case("batch: a dry run").service(|s| s.dry_run = true).batch(
            v4,
            &[short(1200), full()],
            Verdict(Batch, false),
        ),
    ]
}

fn ids() -> Vec<Script> {
    let checking = |what: &str| case(what).service(|service| service.check_ids = true);
    let known = || short_to(&KNOWN, 600);
    let opening = |dcid: &[u8]| initial().dcid(dcid).fill(1200).build();
    vec![
        checking("batch to one ID that a server made").batch(v4, &[known(), known()], Established),
        checking("batch whose second ID is another").batch(
            v4,
            &[known(), short_to(&[7; 12], 600)],
            Batch,
        ),
        checking("batch whose second datagram has no room for an ID")
            .service(|service| service.require_fixed_bit = false)
            .batch(v4, &[known(), known()[..21].to_vec()], Established),
        checking("batch to forged IDs").batch(v4, &vec![short(600); 2], ForgedId),
        checking("a short header to the ID that the client chose").batch(
            v4,
            &[opening(&[7; 12]), short_to(&[7; 12], 300)],
            Batch,
        ),
        checking("a short header to a server's ID behind an Initial").batch(
            v4,
            &[opening(&KNOWN), short_to(&KNOWN, 300)],
            New,
        ),
        checking("0-RTT behind a short header").batch(
            v4,
            &[short_to(&KNOWN, 1200), zero_rtt().body(600).build()],
            Batch,
        ),
        checking("a Handshake packet to the same ID").batch(
            v4,
            &[known(), handshake().dcid(&KNOWN).body(100).build()],
            Established,
        ),
        checking("a Handshake packet to another ID").batch(
            v4,
            &[known(), handshake().dcid(&[7; 12]).body(100).build()],
            Batch,
        ),
    ]
}

/// Tests of packets that are not batches, although the kernel reports a segment length for them.
fn shapes() -> Vec<Script> {
    let arrival = Arrival { no_ethernet: false, segment: 600 };
    let as_batch =
        |row: Script, packet: Packet, expected| row.arrival(packet.build(), arrival, expected);
    vec![
        as_batch(case("batch: a bad UDP length"), v4(short(1200)).udp_len(7), BadUdp.into()),
        as_batch(
            case("batch: UDP length under the IP length"),
            v4(short(1200)).udp_len(8 + 600),
            Established.into(),
        ),
        as_batch(
            case("batch: a first fragment"),
            v4(short(1200)).udp_len(1408).fragment(1, 0, true),
            Batch.into(),
        ),
        as_batch(
            case("batch: a first fragment is dropped as a fragment")
                .service(|s| s.fragments = FragmentPolicy::Drop),
            v4(short(500)).udp_len(508 + 8).fragment(1, 0, true),
            FirstFragment.into(),
        ),
        as_batch(case("batch to another port"), udp(C4, "10.0.0.1:444", short(1200)), Untouched),
        as_batch(case("batch of TCP"), v4(short(1200)).protocol(6), Untouched),
        case("batch at the end of the longest packet").batch(
            v4,
            &vec![short(1000); 65],
            Established,
        ),
    ]
}

fn without_ethernet() -> Vec<Script> {
    vec![
        case("no Ethernet header: IPv4").without_ethernet(v4(full()), New),
        case("no Ethernet header: IPv6").without_ethernet(v6(full()), New),
        case("no Ethernet header: a denied source")
            .deny("192.0.2.0/24")
            .without_ethernet(v4(full()), Denied),
        case("no Ethernet header: options and headers")
            .without_ethernet(v4(full()).ip_options(3), New)
            .without_ethernet(v6(attempt(2)).extension(DESTINATION_OPTIONS, 1, 2), New),
        case("no Ethernet header: a hidden UDP header")
            .without_ethernet(v6(full()).extension(DESTINATION_OPTIONS, 0, 17), Deep),
        case("no Ethernet header: another version of IP")
            .without_ethernet(v4(full()).version(5), Untouched),
        case("no Ethernet header: an Ethernet header in place of the IP header").arrival(
            v4(full()).build(),
            Arrival { no_ethernet: true, segment: 0 },
            Untouched,
        ),
        case("no Ethernet header: the answer has none either")
            .service(|service| service.retry = RetryPolicy::Always)
            .without_ethernet(v4(full()), RetrySent)
            .without_ethernet(v6(full()), RetrySent),
        case("no Ethernet header: to another port")
            .without_ethernet(udp(C4, "10.0.0.1:444", full()), Untouched),
        case("no Ethernet header: fragments")
            .service(|service| service.fragments = FragmentPolicy::Drop)
            .without_ethernet(udp(C4, S4, full()).fragment(1, 0, true), FirstFragment)
            .without_ethernet(udp(C4, S4, full()).fragment(1, 9, false), LaterFragment),
    ]
}
