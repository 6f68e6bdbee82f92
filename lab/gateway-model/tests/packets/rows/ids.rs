//! Tests of policy.md section 10: verification of connection IDs.

use super::{C4, S4, attempt, full, v4, v6};
use crate::packets::frame::*;
use crate::packets::quic::*;
use crate::packets::script::{Expected, SECOND, START, Script, case, ring};
use equic_gateway::reason::Reason::*;
use equic_gateway_model::{QuotaPolicy, Rate, RetryPolicy};
use equic_token::{Clock, Epoch, IdFormat, Key, KeyRing};

/// A connection ID that was made with the key ring of the scripts, for server 5 and worker 0. It
/// was computed with another implementation of SipHash.
pub(super) const KNOWN: [u8; 12] =
    [0x4b, 0x5, 0x0, 0xe, 0x1d, 0x2c, 0x3b, 0x4a, 0xea, 0x68, 0xf6, 0x50];

/// Returns a script with a service that checks connection IDs.
fn checking(what: &str) -> Script {
    case(what).service(|service| service.check_ids = true)
}

fn format() -> IdFormat {
    IdFormat::new(12, 2).unwrap()
}

/// Returns the `n`th connection ID that a server made with the key ring.
pub(super) fn id_of(ring: &KeyRing, n: u128) -> Vec<u8> {
    id_at(ring, 5, n)
}

/// Returns the `n`th connection ID that the server in slot `place` made with the key ring.
pub(super) fn id_at(ring: &KeyRing, place: u8, n: u128) -> Vec<u8> {
    format().seal(ring, &[place, 0], n).unwrap().as_bytes().to_vec()
}

pub(super) fn id(n: u128) -> Vec<u8> {
    id_of(&ring(), n)
}

pub(super) fn another_ring(epoch: u8) -> KeyRing {
    KeyRing::new(Clock::Monotonic, Epoch::new(epoch).unwrap(), Key::from_bytes([8; 16]))
}

/// Returns a connection ID with the first byte `first`, which does not match the ID's check value.
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
    // The length of the fragment does not matter, because the check reads only the header.
    let fragment = |len| v4(short_to(&id(1), len)).udp_len(1308).fragment(1, 0, true);
    vec![
        case("by default, IDs are not checked").packet(v4(short(30)), Established),
        checking("an ID that a server made").packet(v4(short_to(&KNOWN, 30)), Established),
        checking("an ID that a server made, over IPv6 with tags and extension headers").packet(
            v6(short_to(&id(2), 1200)).vlan(TPID_8021Q).extension(DESTINATION_OPTIONS, 3, 2),
            Established,
        ),
        checking("an ID in the shortest packet").packet(v4(short_to(&id(3), 21)), Established),
        checking("an ID in a frame of several buffers")
            .packet(v4(short_to(&id(4), 8000)), Established),
        checking("a random ID is forged").packet(v4(short(30)), ForgedId),
        checking("an ID of zeros is forged").packet(v4(short_to(&[0; 12], 30)), ForgedId),
        checking("an ID that encodes another length")
            .packet(v4(short_to(&beginning(2 << 5 | 7), 30)), ForgedId),
        checking("a changed server").packet(flipped(1), ForgedId),
        checking("a changed worker").packet(flipped(2), ForgedId),
        checking("a changed nonce").packet(flipped(7), ForgedId),
        checking("a changed check").packet(flipped(8), ForgedId).packet(flipped(11), ForgedId),
        checking("bytes after the ID are not checked")
            .packet(v4([short_to(&id(1), 13), vec![0xee; 20]].concat()), Established),
        checking("malformed packets are refused as malformed")
            .packet(v4(short_to(&id(1), 20)), TinyShort)
            .packet(v4(Vec::new()), Empty),
        checking("a zero Fixed Bit is refused if the bit is required")
            .service(|service| service.require_fixed_bit = true)
            .packet(v4([vec![0x01], id(1), vec![0; 20]].concat()), FixedBit),
        checking("a first fragment with the whole ID").packet(fragment(24), Established),
        checking("a first fragment that ends inside the ID").packet(fragment(8), ForgedId),
        checking("dry run: forged packets pass")
            .service(|service| service.dry_run = true)
            .packet(v4(short(30)), Expected::Verdict(ForgedId, false)),
        checking("the check of IDs can be switched on and off")
            .live(|service| service.check_ids = false)
            .packet(v4(short(30)), Established)
            .live(|service| service.check_ids = true)
            .packet(v4(short(30)), ForgedId),
        checking("IDs of an allowed source are not checked")
            .allow("192.0.2.1/32")
            .packet(v4(short(30)), Allowed)
            .packet(v4(handshake().build()), Allowed),
        checking("packets of a denied source are denied")
            .deny("192.0.2.1/32")
            .packet(v4(short(30)), Denied),
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
        checking("Handshake packets to an ID of another length are forged")
            .packet(other_lengths(0), ForgedId)
            .packet(other_lengths(11), ForgedId)
            .packet(other_lengths(13), ForgedId)
            .packet(other_lengths(20), ForgedId)
            .packet(v4(to(&[&id(1)[..], &[0]].concat()).build()), ForgedId),
        checking("0-RTT goes to any ID, and needs an attempt in progress")
            .packet(v4(zero_rtt().build()), ForgedId)
            .packet(v4(full()), New)
            .packet(v4(zero_rtt().build()), Handshake)
            .packet(v4(zero_rtt().dcid(&id(1)).build()), Handshake),
        checking("0-RTT needs an attempt of the same address, port and SCID")
            .packet(v4(full()), New)
            .packet(v4(zero_rtt().scid(&[7; 8]).build()), ForgedId)
            .packet(udp("192.0.2.1:1", S4, zero_rtt().build()), ForgedId)
            .packet(udp("192.0.2.2:1000", S4, zero_rtt().build()), ForgedId),
        checking("0-RTT passes for the time of a handshake")
            .service(|service| service.handshake_ns = SECOND)
            .packet(v4(full()), New)
            .wait(SECOND)
            .packet(v4(zero_rtt().build()), Handshake)
            .wait(SECOND)
            .packet(v4(zero_rtt().build()), ForgedId),
        checking("packets after 0-RTT are not checked")
            .packet(v4([zero_rtt().build(), short(30)].concat()), ForgedId)
            .packet(v4(full()), New)
            .packet(v4([zero_rtt().build(), short(30)].concat()), Handshake),
        checking("Initials may go to the client's ID, and later to the server's")
            .packet(v4(full()), New)
            .packet(v4(initial().dcid(&id(1)).fill(1200).build()), Underway),
        checking("a datagram with an Initial opens a connection, whatever else it contains")
            .packet(v4(padded(&[handshake(), initial()], 1200)), New)
            .packet(v4(padded(&[initial(), handshake()], 1200)), Underway),
        checking("an Initial in a small datagram does not count")
            .packet(v4(padded(&[handshake(), initial()], 1199)), ForgedId),
        checking("packets of unknown versions are not checked")
            .packet(v4(padded(&[initial().version(UNKNOWN)], 1200)), NewVersion),
        checking("Retry and Version Negotiation packets to a client are not checked")
            .service(|service| service.also_client = true)
            .packet(v4(retry().build()), Handshake)
            .packet(v4(version_negotiation()), Handshake),
        checking("malformed long headers are refused as malformed")
            .packet(v4(handshake().length(19).build()), BadLength)
            .packet(v4(initial().fill(1199).build()), SmallInitial),
        checking("Retry works together with the check of IDs")
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
        checking("another key of a known rotation is forged").packet(of(2), ForgedId),
        checking("another key of a known rotation is forged even if its source has connections")
            .connections(0, "192.0.2.1", 1)
            .packet(of(2), ForgedId),
        checking("an unknown rotation is forged if the source has no connection")
            .packet(of(1), ForgedId)
            .packet(of(3), ForgedId)
            .packet(v4(handshake().dcid(&id_of(&another_ring(0), 1)).build()), ForgedId),
        checking("an unknown rotation passes if the source has a connection")
            .connections(0, "192.0.2.1", 1)
            .packet(of(1), Established)
            .packet(of(6), Established)
            .packet(v4(handshake().dcid(&id_of(&another_ring(0), 1)).build()), Handshake)
            .packet(udp("192.0.2.2:1000", S4, short_to(&id_of(&another_ring(1), 1), 30)), ForgedId)
            .connections(0, "192.0.2.1", 0)
            .packet(of(1), ForgedId),
        checking("an unknown rotation passes only while connections can be older than the ring")
            .config(|config| config.older_ids_until_ns = START + 10 * SECOND)
            .connections(0, "192.0.2.1", 1)
            .wait(10 * SECOND - 1)
            .packet(of(1), Established)
            .wait(1)
            .packet(of(1), ForgedId)
            .packet(v4(handshake().dcid(&id_of(&another_ring(0), 1)).build()), ForgedId)
            .packet(v4(short_to(&id(1), 30)), Established),
        checking("connections of a silent server do not count")
            .config(|config| config.lease_ns = SECOND)
            .connections(0, "192.0.2.1", 1)
            .packet(of(1), Established)
            .wait(2 * SECOND)
            .packet(of(1), ForgedId),
        checking("an ID without a rotation is forged")
            .connections(0, "192.0.2.1", 1)
            .packet(v4(short_to(&beginning(7 << 5 | 11), 30)), ForgedId),
        checking("an ID that encodes another length is forged in every rotation")
            .connections(0, "192.0.2.1", 1)
            .packet(v4(short_to(&beginning(1 << 5 | 7), 30)), ForgedId),
    ]
}

fn charges() -> Vec<Script> {
    let forged = |row: Script| row.packets(20, &v4(short(30)), ForgedId);
    vec![
        forged(
            checking("forged packets are not charged to their source")
                .service(|service| service.packets_per_source = Rate::per_second(1, 1)),
        )
        .packet(v4(short_to(&id(1), 30)), Established)
        .packet(v4(short_to(&id(1), 30)), RatePackets),
        checking(
            "packets that pass because of their source's connections are charged to the source",
        )
        .service(|service| service.packets_per_source = Rate::per_second(1, 1))
        .connections(0, "192.0.2.1", 1)
        .packet(v4(short_to(&id_of(&another_ring(1), 1), 30)), Established)
        .packet(v4(short_to(&id(1), 30)), RatePackets),
        checking("a valid ID does not lift a limit, because it validates no address")
            .service(|service| {
                (service.max_connections, service.policy) = (1, QuotaPolicy::Strict);
            })
            .connections(0, "192.0.2.1", 2)
            .packet(v4(short_to(&id(1), 30)), QuotaStrict)
            .packet(v4(short(30)), ForgedId),
        checking("a valid ID passes from every address")
            .packet(udp(C4, S4, short_to(&id(1), 30)), Established)
            .packet(udp("198.51.100.7:9", S4, short_to(&id(1), 30)), Established),
        checking("new connections are subject to the quota")
            .service(|service| service.max_connections = 1)
            .packet(v4(attempt(1)), New)
            .connections(0, "192.0.2.1", 1)
            .packet(v4(attempt(2)), Quota),
    ]
}
