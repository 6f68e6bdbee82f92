//! Tests of policy.md section 8: services that make clients validate their addresses.

use super::{C4, C6, S4, attempt, full, v4, v6};
use crate::packets::frame::*;
use crate::packets::quic::*;
use crate::packets::script::{Expected, SECOND, START, Script, case, ring};
use equic_gateway::reason::Reason::*;
use equic_gateway_model::{QuotaPolicy, Rate, RetryPolicy};
use equic_token::{Clock, ConnectionId, Epoch, Key, KeyRing, RetryToken};

const MILLISECOND: u64 = 1_000_000;
pub(super) const START_MS: u64 = START / MILLISECOND;
/// The connection ID that a Retry packet gave to the client.
const RETRY_ID: [u8; 8] = [0x8e; 8];

/// The expected answers to `full()` over IPv4, and to a packet of version 2 over IPv6 with two VLAN
/// tags. They were computed with other implementations of AES-GCM and SipHash.
pub(super) const RETRY_V1: &str = "\
    0200000000020200000000010800450000900000400040116e5b0a000001c000020101bb03e8007cbd2ff00000000105\
    500102030408f292de48af1afe0a08d001020304050607000000000000000000000000120000000f4240040003e80000\
    0000000000000000ffffc0000201f292de48af1afe0a00000000000000000000000008000000cf62a313edae7c97ac0c\
    8df6ce65d8a997e7c38521f0c4b7";
const RETRY_V2: &str = "\
    02000000000202000000000188a800078100000786dd60000000007c1140fd0000000000000000000000000000012001\
    0db800000000000000000000000101bb03e8007c5688c06b3343cf05500102030408964a22b97d5b5adb08d001020304\
    050607000000000000000000000000120000000f4240060003e820010db8000000000000000000000001964a22b97d5b\
    5adb00000000000000000000000008000000eb25c44077d44b8c2b07eff0d1dbcfd3895d461d69e1392e";

pub(super) fn bytes(hex: &str) -> Vec<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16).expect("a digit") as u8;
    hex.as_bytes().chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}

/// Returns a script with a service that requires a token from every client.
fn asking(what: &str) -> Script {
    case(what).service(|service| service.retry = RetryPolicy::Always)
}

/// Returns a token that was made with a key ring at the time `issued`. The client got the
/// connection ID `id`.
fn token_of(ring: &KeyRing, client: &str, id: &[u8], issued: u64) -> Vec<u8> {
    let [original, id] = [&DCID[..], id].map(|id| ConnectionId::new(id).unwrap());
    RetryToken::new(client.parse().unwrap(), original, id, issued).seal(ring).unwrap().to_vec()
}

pub(super) fn token(client: &str, issued: u64) -> Vec<u8> {
    token_of(&ring(), client, &RETRY_ID, issued)
}

/// Returns an Initial packet with a token. Its Destination Connection ID is the one from the Retry
/// packet.
pub(super) fn bringing(token: &[u8]) -> Vec<u8> {
    initial().dcid(&RETRY_ID).with_token(token).fill(1200).build()
}

/// Returns an Initial packet with a valid token and the `n`th Source Connection ID.
pub(super) fn proved(n: u8) -> Vec<u8> {
    let token = token(C4, START_MS);
    initial().dcid(&RETRY_ID).scid(&[n; 5]).with_token(&token).fill(1200).build()
}

pub(super) fn rows() -> Vec<Script> {
    [answers(), tokens(), requirements(), attempts(), charges()].concat()
}

fn answers() -> Vec<Script> {
    let v2 = v6(initial().v2().fill(1200).build()).vlan(TPID_8021AD).vlan(TPID_8021Q);
    let ids = |dcid, scid| v6(initial().cid_lens(dcid, scid).fill(1200).build());
    let hidden = padded(&[zero_rtt(), initial()], 1200);
    vec![
        asking("an Initial is answered with a Retry packet")
            .packet(v4(full()), RetrySent)
            .answered(bytes(RETRY_V1)),
        asking("version 2, IPv6, two tags").packet(v2, RetrySent).answered(bytes(RETRY_V2)),
        asking("the same packet is given the same answer")
            .packet(v4(full()), RetrySent)
            .packet(v4(full()), RetrySent)
            .answered(bytes(RETRY_V1)),
        asking("bytes after the datagram are not in the answer")
            .packet(v4(full()).padding(50), RetrySent)
            .answered(bytes(RETRY_V1)),
        asking("the answer has no IP options")
            .packet(v4(full()).ip_options(7), RetrySent)
            .answered(bytes(RETRY_V1)),
        asking("the answer has no extension headers")
            .packet(v6(full()).extension(DESTINATION_OPTIONS, 3, 2), RetrySent),
        asking("an Initial with the longest IDs is answered").packet(ids(20, 20), RetrySent),
        asking("an Initial with the shortest IDs is answered").packet(ids(8, 0), RetrySent),
        asking("a frame in several buffers")
            .packet(v4(initial().fill(8000).build()), RetrySent)
            .answered(bytes(RETRY_V1)),
        asking("an Initial after 0-RTT is answered").packet(v4(hidden), RetrySent),
        asking("an IP fragment is not answered")
            .packet(v4(full()).udp_len(1308).fragment(1, 0, true), FirstFragment),
        asking("a packet to a multicast address is not answered")
            .packet(udp(C4, "239.0.0.1:443", full()), Unproved)
            .packet(udp(C6, "[ff05::1]:443", full()), Unproved),
        asking("dry run: the server gets the packet")
            .service(|service| service.dry_run = true)
            .packet(v4(full()), Expected::Verdict(RetrySent, false)),
        asking("the rate of answers is limited")
            .service(|service| service.answers_per_service = Rate::per_second(1, 2))
            .packet(v4(full()), RetrySent)
            .packet(v6(full()), RetrySent)
            .packet(v4(attempt(1)), RateAnswers)
            .wait(SECOND)
            .packet(v4(attempt(1)), RetrySent),
    ]
}

fn tokens() -> Vec<Script> {
    let good = token(C4, START_MS);
    let flipped = |at: usize| {
        let mut token = token(C4, START_MS);
        token[at] ^= 1;
        v4(bringing(&token))
    };
    let other_ring = |epoch| {
        let ring =
            KeyRing::new(Clock::Monotonic, Epoch::new(epoch).unwrap(), Key::from_bytes([8; 16]));
        v4(bringing(&token_of(&ring, C4, &RETRY_ID, START_MS)))
    };
    let issued = |ms| v4(bringing(&token(C4, ms)));
    let mut new_token = good.clone();
    new_token[0] |= 0x80;
    vec![
        asking("a valid token opens a connection")
            .packet(v4(bringing(&good)), Proved)
            .packet(v4(bringing(&good)), Underway),
        asking("a valid token over IPv6").packet(v6(bringing(&token(C6, START_MS))), Proved),
        asking("the second flight goes to the server's ID, with the token")
            .packet(v4(bringing(&good)), Proved)
            .packet(v4(initial().dcid(&SERVER_CID).with_token(&good).fill(1200).build()), Underway),
        asking("the second flight is refused if the table has lost the attempt")
            .packet(v4(bringing(&good)), Proved)
            .forget_handshakes()
            .packet(v4(initial().dcid(&[5; 8]).with_token(&good).fill(1200).build()), BadToken),
        asking("a token of another port")
            .packet(v4(bringing(&token("192.0.2.1:1001", START_MS))), BadToken),
        asking("a token of another address")
            .packet(v4(bringing(&token("192.0.2.2:1000", START_MS))), BadToken),
        asking("a token for another ID")
            .packet(v4(initial().dcid(&[9; 8]).with_token(&good).fill(1200).build()), BadToken),
        asking("a token of an address of the other family").packet(v6(bringing(&good)), BadToken),
        asking("a changed ID").packet(flipped(1), BadToken),
        asking("a changed time").packet(flipped(27), BadToken),
        asking("a changed tag").packet(flipped(79), BadToken),
        asking("a token of a key that the ring does not have").packet(other_ring(3), BadToken),
        asking("a token of another key with the same number").packet(other_ring(2), BadToken),
        asking("a token is valid for 15 seconds").packet(issued(START_MS - 15_000), Proved),
        asking("a token is invalid a millisecond later")
            .packet(issued(START_MS - 15_001), BadToken),
        asking("a token may be from up to two seconds in the future")
            .packet(issued(START_MS + 2_000), Proved),
        asking("a token from further in the future is invalid")
            .packet(issued(START_MS + 2_001), BadToken),
        asking("a token of a NEW_TOKEN frame is answered with a Retry")
            .packet(v4(bringing(&new_token)), RetrySent),
        asking("a token that is too short is answered with a Retry")
            .packet(v4(bringing(&good[..79])), RetrySent),
        asking("a token that is too long is answered with a Retry")
            .packet(v4(bringing(&[&good[..], &[0]].concat())), RetrySent),
        asking("a token of the right length with an unknown format is refused")
            .packet(flipped(21), BadToken),
        asking("random bytes as a token are answered with a Retry")
            .packet(v4(bringing(&[0x70; 80])), RetrySent),
        asking("a token of one byte").packet(v4(bringing(&[0])), RetrySent),
        asking("a token as long as a datagram has room for")
            .packet(v4(bringing(&[0x70; 1100])), RetrySent),
        asking("tokens in a frame of several buffers")
            .packet(v4(initial().token(7_000).fill(8_000).build()), RetrySent)
            .packet(v4(initial().dcid(&RETRY_ID).with_token(&good).fill(8_000).build()), Proved),
        asking("a fragment with a token").packet(
            v4(bringing(&good)[..64].to_vec()).udp_len(1208).fragment(1, 0, true),
            FirstFragment,
        ),
    ]
}

fn requirements() -> Vec<Script> {
    vec![
        case("by default, the service asks for no token").packet(v4(full()), New),
        case("by default, the server checks tokens").packet(v4(proved(1)), New),
        asking("an allowed source needs no token")
            .allow("192.0.2.1/32")
            .packet(v4(full()), Allowed),
        asking("a denied source gets no answer").deny("192.0.2.1/32").packet(v4(full()), Denied),
        asking("connections and handshakes need no token")
            .packet(v4(short(30)), Established)
            .packet(v4(handshake().build()), Handshake),
        asking("malformed packets get no answer")
            .packet(v4(initial().fill(1199).build()), SmallInitial)
            .packet(v4(initial().dcid(&[1; 7]).fill(1200).build()), ShortDcid),
        case("the policy can be switched on and off")
            .packet(v4(attempt(1)), New)
            .live(|service| service.retry = RetryPolicy::Always)
            .packet(v4(attempt(1)), RetrySent)
            .packet(v4(attempt(2)), RetrySent)
            .live(|service| service.retry = RetryPolicy::Never)
            .packet(v4(attempt(2)), New),
    ]
}

/// Tests of packets that belong to an attempt with a valid token, and of packets that do not.
fn attempts() -> Vec<Script> {
    let good = token(C4, START_MS);
    let to =
        |dcid: &[u8], token: &[u8]| v4(initial().dcid(dcid).with_token(token).fill(1200).build());
    let unknown = || v4(padded(&[initial().version(UNKNOWN)], 1200));
    vec![
        asking("attempts: an unknown version does not begin an attempt")
            .packet(unknown(), VersionNegotiationSent)
            .packets(63, &v4(full()), RetrySent),
        asking("attempts: 0-RTT does not begin an attempt")
            .packet(v4(zero_rtt().build()), Handshake)
            .packet(v4(full()), RetrySent),
        asking("attempts: an Initial of an allowed source does not begin an attempt")
            .allow("192.0.2.1/32")
            .packet(v4(full()), Allowed)
            .unlist("192.0.2.1/32")
            .packet(v4(full()), RetrySent),
        asking("attempts: an attempt with a token has 64 packets")
            .packet(v4(bringing(&good)), Proved)
            .packets(63, &v4(initial().dcid(&RETRY_ID).fill(1200).build()), Underway)
            .packet(v4(initial().dcid(&RETRY_ID).fill(1200).build()), RetrySent),
        asking("attempts: an attempt with a token has no third ID")
            .packet(v4(bringing(&good)), Proved)
            .packet(to(&SERVER_CID, &good), Underway)
            .packet(to(&[9; 8], &good), BadToken)
            .packet(to(&[9; 8], &[]), RetrySent)
            .packet(to(&[9; 8], &[0x70; 9]), RetrySent)
            .packet(to(&SERVER_CID, &good), Underway),
        asking("attempts: another port or address of the service is another attempt")
            .listen("0.0.0.0:8443")
            .packet(v4(bringing(&good)), Proved)
            .packet(
                udp(C4, "10.0.0.2:443", initial().dcid(&RETRY_ID).fill(1200).build()),
                RetrySent,
            )
            .packet(
                udp(C4, "10.0.0.1:8443", initial().dcid(&RETRY_ID).fill(1200).build()),
                RetrySent,
            ),
        asking("attempts: version 2 continues an attempt of version 1")
            .packet(v4(bringing(&good)), Proved)
            .packet(
                v4(initial().v2().dcid(&SERVER_CID).with_token(&good).fill(1200).build()),
                Underway,
            ),
        asking("attempts: an Initial of the other version after a Handshake packet is found")
            .packet(v4(padded(&[handshake(), initial().v2()], 1200)), RetrySent),
    ]
}

fn charges() -> Vec<Script> {
    let forged = |row: Script| row.packets(20, &v4(full()), RetrySent);
    vec![
        forged(
            asking("forged Initials are not charged to the packet rate of their source")
                .service(|service| service.packets_per_source = Rate::per_second(1, 1)),
        )
        .packet(v4(short(30)), Established)
        .packet(v4(short(30)), RatePackets),
        forged(asking("forged Initials are not charged to the rates of new connections").service(
            |service| {
                service.new_per_source = Rate::per_second(1, 1);
                service.new_per_service = Rate::per_second(1, 1);
            },
        ))
        .packet(v4(proved(1)), Proved)
        .packet(v4(proved(2)), RateNewSource),
        forged(asking("forged Initials take no place in the quota of their source").service(
            |service| {
                (service.max_connections, service.policy) = (1, QuotaPolicy::Underway);
            },
        ))
        .packet(v4(proved(1)), Proved)
        .packet(v4(proved(2)), QuotaUnderway),
        asking("a source with a valid token is subject to its quota")
            .service(|service| service.max_connections = 1)
            .connections(0, "192.0.2.1", 1)
            .packet(v4(proved(1)), Quota),
        asking("an Initial without a token is answered even at the quota")
            .service(|service| service.max_connections = 1)
            .connections(0, "192.0.2.1", 1)
            .packet(v4(full()), RetrySent),
        asking("Initials with invalid tokens are not charged to their source")
            .service(|service| {
                service.packets_per_source = Rate::per_second(1, 2);
                service.new_per_source = Rate::per_second(1, 1);
                service.new_per_service = Rate::per_second(1, 1);
                (service.max_connections, service.policy) = (1, QuotaPolicy::Underway);
            })
            .packets(20, &v4(bringing(&token("192.0.2.2:1000", START_MS))), BadToken)
            .packet(v4(short(30)), Established)
            .packet(v4(proved(1)), Proved),
        asking("a token can be used again by its own source, within the rates")
            .service(|service| service.new_per_source = Rate::per_second(1, 1))
            .packet(v4(proved(1)), Proved)
            .packet(udp("192.0.2.2:1000", S4, proved(2)), BadToken)
            .packet(v4(proved(2)), RateNewSource),
    ]
}
