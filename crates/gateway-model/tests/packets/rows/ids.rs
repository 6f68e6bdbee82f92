//! Section 10: verification of connection IDs.

use super::{C4, S4, attempt, full, v4, v6};
use crate::packets::frame::*;
use crate::packets::quic::*;
use crate::packets::script::{Expected, SECOND, START, Script, case, ring};
use equic_gateway::reason::Reason::*;
use equic_gateway_model::{QuotaPolicy, Rate, RetryPolicy};
use equic_token::{Clock, Epoch, IdFormat, Key, KeyRing};

/// A connection ID that was made with the ring of the scripts, for server 5 and worker 0. It was
/// computed with another implementation of SipHash.
pub(super) const KNOWN: [u8; 12] =
    [0x4b, 0x5, 0x0, 0xe, 0x1d, 0x2c, 0x3b, 0x4a, 0xea, 0x68, 0xf6, 0x50];

/// Returns a script with a service that checks connection IDs.
fn checking(what: &str) -> Script {
    case(what).service(|service| service.check_ids = true)
}

fn format() -> IdFormat {
    IdFormat::new(12, 2).unwrap()
}

/// Returns the `n`th connection ID that a server made with a ring.
pub(super) fn id_of(ring: &KeyRing, n: u128) -> Vec<u8> {
    id_at(ring, 5, n)
}

/// Returns the `n`th connection ID that the server in a slot made with a ring.
pub(super) fn id_at(ring: &KeyRing, place: u8, n: u128) -> Vec<u8> {
    format().seal(ring, &[place, 0], n).unwrap().as_bytes().to_vec()
}

pub(super) fn id(n: u128) -> Vec<u8> {
    id_of(&ring(), n)
}

pub(super) fn another_ring(epoch: u8) -> KeyRing {
    KeyRing::new(Clock::Monotonic, Epoch::new(epoch).unwrap(), Key::from_bytes([8; 16]))
}

/// Returns a connection ID whose first byte was changed after its check value was computed.
fn beginning(first: u8) -> Vec<u8> {
    let mut id = id(1);
    id[0] = first;
    id
}

pub(super) fn rows() -> Vec<Script> {
    [short_headers(), long_headers(), rotations(), charges()].concat()
}

fn short_headers() -> Vec<Script> {
    let flipped = |at: usize| {
        let mut id = id(1);
        id[at] ^= 1;
        v4(short_to(&id, 30))
    };
    // The length does not matter, because the check needs only the header.
    let fragment = |len| v4(short_to(&id(1), len)).udp_len(1308).fragment(1, 0, true);
    vec![
        case("nobody looks at IDs, unless it is said").packet(v4(short(30)), Established),
        checking("an ID that a server made").packet(v4(short_to(&KNOWN, 30)), Established),
        checking("over IPv6, with tags and headers before it").packet(
            v6(short_to(&id(2), 1200)).vlan(TPID_8021Q).extension(DESTINATION_OPTIONS, 3, 2),
            Established,
        ),
        checking("in the shortest packet there is").packet(v4(short_to(&id(3), 21)), Established),
        checking("in a frame of several buffers").packet(v4(short_to(&id(4), 8000)), Established),
        checking("any other ID").packet(v4(short(30)), ForgedId),
        checking("zeros").packet(v4(short_to(&[0; 12], 30)), ForgedId),
        checking("another length is said")
            .packet(v4(short_to(&beginning(2 << 5 | 7), 30)), ForgedId),
        checking("a changed server").packet(flipped(1), ForgedId),
        checking("a changed worker").packet(flipped(2), ForgedId),
        checking("a changed nonce").packet(flipped(7), ForgedId),
        checking("a changed check").packet(flipped(8), ForgedId).packet(flipped(11), ForgedId),
        checking("behind the ID is what nobody can judge")
            .packet(v4([short_to(&id(1), 13), vec![0xee; 20]].concat()), Established),
        checking("malformed packets are refused for that")
            .packet(v4(short_to(&id(1), 20)), TinyShort)
            .packet(v4(Vec::new()), Empty),
        checking("and so is a Fixed Bit of zero, where it is required")
            .service(|service| service.require_fixed_bit = true)
            .packet(v4([vec![0x01], id(1), vec![0; 20]].concat()), FixedBit),
        checking("a first fragment with the whole ID").packet(fragment(24), Established),
        checking("and one that ends within it").packet(fragment(8), ForgedId),
        checking("dry run: the server sees forged ones")
            .service(|service| service.dry_run = true)
            .packet(v4(short(30)), Expected::Verdict(ForgedId, false)),
        checking("IDs are looked at while it is said, and not before and after")
            .live(|service| service.check_ids = false)
            .packet(v4(short(30)), Established)
            .live(|service| service.check_ids = true)
            .packet(v4(short(30)), ForgedId),
        checking("not for who is allowed")
            .allow("192.0.2.1/32")
            .packet(v4(short(30)), Allowed)
            .packet(v4(handshake().build()), Allowed),
        checking("who is denied is that").deny("192.0.2.1/32").packet(v4(short(30)), Denied),
    ]
}

fn long_headers() -> Vec<Script> {
    let to = |id: &[u8]| handshake().dcid(id);
    let other_lengths = |len| v4(handshake().cid_lens(len, 5).build());
    vec![
        checking("Handshake packets go to a server's ID")
            .packet(v4(to(&id(1)).build()), Handshake)
            .packet(v4(to(&id(1)).v2().build()), Handshake)
            .packet(v4(handshake().build()), ForgedId)
            .packet(v4(to(&[0x4b; 12]).v2().build()), ForgedId),
        checking("and not to one of another length")
            .packet(other_lengths(0), ForgedId)
            .packet(other_lengths(11), ForgedId)
            .packet(other_lengths(13), ForgedId)
            .packet(other_lengths(20), ForgedId)
            .packet(v4(to(&[&id(1)[..], &[0]].concat()).build()), ForgedId),
        checking("0-RTT goes to the client's choice, and belongs to an opening")
            .packet(v4(zero_rtt().build()), ForgedId)
            .packet(v4(full()), New)
            .packet(v4(zero_rtt().build()), Handshake)
            .packet(v4(zero_rtt().dcid(&id(1)).build()), Handshake),
        checking("of the same client: its address, port and ID")
            .packet(v4(full()), New)
            .packet(v4(zero_rtt().scid(&[7; 8]).build()), ForgedId)
            .packet(udp("192.0.2.1:1", S4, zero_rtt().build()), ForgedId)
            .packet(udp("192.0.2.2:1000", S4, zero_rtt().build()), ForgedId),
        checking("while a handshake takes")
            .service(|service| service.handshake_ns = SECOND)
            .packet(v4(full()), New)
            .wait(SECOND)
            .packet(v4(zero_rtt().build()), Handshake)
            .wait(SECOND)
            .packet(v4(zero_rtt().build()), ForgedId),
        checking("what is behind it is not looked at")
            .packet(v4([zero_rtt().build(), short(30)].concat()), ForgedId)
            .packet(v4(full()), New)
            .packet(v4([zero_rtt().build(), short(30)].concat()), Handshake),
        checking("an Initial too, at first, and to the server's ID later")
            .packet(v4(full()), New)
            .packet(v4(initial().dcid(&id(1)).fill(1200).build()), Underway),
        checking("a datagram with an Initial is a new connection's, whatever else is in it")
            .packet(v4(padded(&[handshake(), initial()], 1200)), New)
            .packet(v4(padded(&[initial(), handshake()], 1200)), Underway),
        checking("an Initial too small for a server is none")
            .packet(v4(padded(&[handshake(), initial()], 1199)), ForgedId),
        checking("versions that nobody knows")
            .packet(v4(padded(&[initial().version(UNKNOWN)], 1200)), NewVersion),
        checking("a client's own packets")
            .service(|service| service.also_client = true)
            .packet(v4(retry().build()), Handshake)
            .packet(v4(version_negotiation()), Handshake),
        checking("malformed long headers are refused for that")
            .packet(v4(handshake().length(19).build()), BadLength)
            .packet(v4(initial().fill(1199).build()), SmallInitial),
        checking("Retry goes on as ever")
            .service(|service| service.retry = RetryPolicy::Always)
            .packet(v4(full()), RetrySent)
            .packet(v4(short_to(&id(1), 30)), Established)
            .packet(v4(short(30)), ForgedId)
            .packet(v4(handshake().build()), ForgedId),
    ]
}

fn rotations() -> Vec<Script> {
    let of = |epoch| v4(short_to(&id_of(&another_ring(epoch), 1), 30));
    vec![
        checking("another key of a rotation that is known").packet(of(2), ForgedId),
        checking("and its source's connections change nothing")
            .connections(0, "192.0.2.1", 1)
            .packet(of(2), ForgedId),
        checking("a rotation that is not known, from who has no connection")
            .packet(of(1), ForgedId)
            .packet(of(3), ForgedId)
            .packet(v4(handshake().dcid(&id_of(&another_ring(0), 1)).build()), ForgedId),
        checking("and from who has one")
            .connections(0, "192.0.2.1", 1)
            .packet(of(1), Established)
            .packet(of(6), Established)
            .packet(v4(handshake().dcid(&id_of(&another_ring(0), 1)).build()), Handshake)
            .packet(udp("192.0.2.2:1000", S4, short_to(&id_of(&another_ring(1), 1), 30)), ForgedId)
            .connections(0, "192.0.2.1", 0)
            .packet(of(1), ForgedId),
        checking("for as long as connections can be older than the ring, and no longer")
            .config(|config| config.older_ids_until_ns = START + 10 * SECOND)
            .connections(0, "192.0.2.1", 1)
            .wait(10 * SECOND - 1)
            .packet(of(1), Established)
            .wait(1)
            .packet(of(1), ForgedId)
            .packet(v4(handshake().dcid(&id_of(&another_ring(0), 1)).build()), ForgedId)
            .packet(v4(short_to(&id(1), 30)), Established),
        checking("a server that is silent does not say that somebody has one")
            .config(|config| config.lease_ns = SECOND)
            .connections(0, "192.0.2.1", 1)
            .packet(of(1), Established)
            .wait(2 * SECOND)
            .packet(of(1), ForgedId),
        checking("no server has made an ID without a rotation")
            .connections(0, "192.0.2.1", 1)
            .packet(v4(short_to(&beginning(7 << 5 | 11), 30)), ForgedId),
        checking("nor one of another length, whatever its rotation is")
            .connections(0, "192.0.2.1", 1)
            .packet(v4(short_to(&beginning(1 << 5 | 7), 30)), ForgedId),
    ]
}

fn charges() -> Vec<Script> {
    let forged = |row: Script| row.packets(20, &v4(short(30)), ForgedId);
    vec![
        forged(
            checking("forged packets use up nothing of their source's")
                .service(|service| service.packets_per_source = Rate::per_second(1, 1)),
        )
        .packet(v4(short_to(&id(1), 30)), Established)
        .packet(v4(short_to(&id(1), 30)), RatePackets),
        checking("what goes on for its source's connections is charged to it, whoever sent it")
            .service(|service| service.packets_per_source = Rate::per_second(1, 1))
            .connections(0, "192.0.2.1", 1)
            .packet(v4(short_to(&id_of(&another_ring(1), 1), 30)), Established)
            .packet(v4(short_to(&id(1), 30)), RatePackets),
        checking("an ID of a server's does not lift a limit: it proves no address")
            .service(|service| {
                (service.max_connections, service.policy) = (1, QuotaPolicy::Strict);
            })
            .connections(0, "192.0.2.1", 2)
            .packet(v4(short_to(&id(1), 30)), QuotaStrict)
            .packet(v4(short(30)), ForgedId),
        checking("anybody may send to it, from anywhere")
            .packet(udp(C4, S4, short_to(&id(1), 30)), Established)
            .packet(udp("198.51.100.7:9", S4, short_to(&id(1), 30)), Established),
        checking("new connections are judged as ever")
            .service(|service| service.max_connections = 1)
            .packet(v4(attempt(1)), New)
            .connections(0, "192.0.2.1", 1)
            .packet(v4(attempt(2)), Quota),
    ]
}
