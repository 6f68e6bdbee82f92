//! Checks that the trace of a cell shows the feature that the case tests. The conditions are those
//! of the QUIC Interop Runner, except for `multipath`, which the runner does not have.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use equic_netns::relay::{Observed, Way};
use equic_wire::Version;

use crate::trace::{Seen, Trace};
use crate::{Case, Size};

/// The cipher suite TLS_CHACHA20_POLY1305_SHA256 (RFC 8446 B.4).
const CHACHA20: u16 = 0x1303;
/// A server that sends the long certificate must send at least this number of bytes in Handshake
/// packets.
const LONG_HANDSHAKE: u64 = 7500;
/// Maximum number of streams that a server may permit initially in the case `multiplexing`.
const MAX_STREAMS: u64 = 1000;
/// Maximum number of request bytes that may be in 1-RTT packets in the case `zerortt`: half of 40
/// names.
const MAX_LATE_REQUESTS: usize = 40 * 250 / 2;

/// Minimum number of bytes of stream data that a server must send on each of two paths in the case
/// `multipath`. It is more than a probe has, and less than any scheduler sends on the second path
/// when the window of the first path is full.
const MIN_SHARE: usize = 20_000;

/// Maximum time for a client to answer a PATH_CHALLENGE on a busy machine.
const ANSWERING: Duration = Duration::from_millis(50);

/// The data on which the verdict on a cell is based.
pub(crate) struct Evidence<'a> {
    pub(crate) case: Case,
    pub(crate) size: Size,
    pub(crate) browser: bool,
    /// True if the server must follow the RFCs even where the QUIC Interop Runner is lenient.
    pub(crate) strict: bool,
    pub(crate) trace: &'a Trace,
}

type Checked = Result<(), String>;

fn ensure(holds: bool, otherwise: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { Err(otherwise()) }
}

/// Checks whether the trace shows the feature of the case. The error says what is missing.
pub(crate) fn check(evidence: &Evidence<'_>) -> Checked {
    let (case, trace) = (evidence.case, evidence.trace);
    if case == Case::VersionNegotiation {
        return version_negotiation(trace);
    }
    if case.needs_keys() {
        ensure(trace.has_keys, || "neither side wrote a key log".to_owned())?;
        let known = trace.connections.iter().any(|connection| connection.keys);
        ensure(known, || "the key logs decrypt no packet".to_owned())?;
    }
    if case == Case::V2 {
        return second_version(trace);
    }
    handshakes(evidence)?;
    let versions = trace.versions(Way::ToClient, Observed::Initial);
    ensure(versions == BTreeSet::from([Version::V1.0]), || {
        format!("the server's Initial packets have the versions {versions:x?}")
    })?;
    match case {
        Case::Handshake => no_retry(trace),
        Case::LongRtt => client_hello_again(trace),
        Case::ChaCha20 => only_chacha20(trace),
        Case::Multiplexing => stream_limit(trace),
        Case::Retry => retry(trace),
        Case::Resumption => resumption(trace),
        Case::ZeroRtt => early_data(trace),
        Case::KeyUpdate => key_phases(trace),
        Case::Ecn => ecn(trace),
        Case::AmplificationLimit => amplification(trace, if evidence.strict { 3 } else { 4 }),
        Case::RebindPort | Case::RebindAddr => rebound(trace, case == Case::RebindAddr),
        Case::ConnectionMigration => {
            rebound(trace, false)?;
            new_ids(trace)
        }
        Case::Multipath => several_paths(trace),
        _ => Ok(()),
    }
}

fn handshakes(evidence: &Evidence<'_>) -> Checked {
    let expected = evidence.case.handshakes(evidence.size);
    let found = evidence.trace.handshakes();
    // A browser may open a second connection in addition to the first one.
    ensure(found == expected || (evidence.browser && found > 0), || {
        format!("found {found} handshakes instead of {expected}")
    })
}

fn no_retry(trace: &Trace) -> Checked {
    let retries = trace.of(Way::ToClient, Observed::Retry).count();
    ensure(retries == 0, || "the server sent a Retry".to_owned())
}

/// Checks the Version Negotiation packet (RFC 8999 s.6): it must have the client's two connection
/// IDs, with source and destination swapped.
fn version_negotiation(trace: &Trace) -> Checked {
    let first = trace.going(Way::ToServer).find(|seen| seen.version.is_some());
    let first = first.ok_or("the client sent no packet that begins a connection")?;
    let answered = trace
        .of(Way::ToClient, Observed::VersionNegotiation)
        .any(|answer| answer.scid == first.dcid && answer.dcid == first.scid);
    ensure(answered, || {
        "the server sent no Version Negotiation packet with the IDs of the client's first packet"
            .to_owned()
    })
}

fn second_version(trace: &Trace) -> Checked {
    let (v1, v2) = (Version::V1.0, Version::V2.0);
    let first = trace.of(Way::ToServer, Observed::Initial).next().and_then(|seen| seen.version);
    ensure(first == Some(v1), || format!("the client's first Initial has the version {first:x?}"))?;
    let answered = trace.versions(Way::ToClient, Observed::Initial);
    ensure(answered.contains(&v2), || {
        format!("the server's Initial packets have the versions {answered:x?}")
    })?;
    for (who, way) in [("client", Way::ToServer), ("server", Way::ToClient)] {
        let versions = trace.versions(way, Observed::Handshake);
        ensure(versions == BTreeSet::from([v2]), || {
            format!("the {who}'s Handshake packets have the versions {versions:x?}")
        })?;
    }
    Ok(())
}

/// Checks that the client sent its ClientHello more than once. The round-trip time is so long that
/// the client must retransmit it before an answer arrives.
fn client_hello_again(trace: &Trace) -> Checked {
    let times = trace
        .of(Way::ToServer, Observed::Initial)
        .filter_map(|seen| seen.content.as_ref())
        .filter(|content| content.crypto.contains(&0))
        .count();
    ensure(times >= 2, || {
        format!("the client sent its ClientHello {times} times, but at least twice is expected")
    })
}

fn only_chacha20(trace: &Trace) -> Checked {
    let hellos: Vec<_> =
        trace.connections.iter().filter_map(|one| one.client_hello.as_ref()).collect();
    ensure(!hellos.is_empty(), || "no ClientHello can be decrypted".to_owned())?;
    for hello in hellos {
        let offered: Vec<u16> = hello.offered_suites().collect();
        ensure(offered == [CHACHA20], || {
            format!(
                "the client offers the cipher suites {offered:04x?} instead of only ChaCha20-Poly1305"
            )
        })?;
    }
    Ok(())
}

fn stream_limit(trace: &Trace) -> Checked {
    let limits: Vec<u64> =
        trace.connections.iter().filter_map(|one| one.max_streams_bidi).collect();
    match limits.iter().max() {
        None => Err("the server's transport parameters cannot be decrypted".to_owned()),
        Some(limit) if *limit > MAX_STREAMS => Err(format!(
            "the server initially permits {limit} streams, which is too many for this case"
        )),
        Some(_) => Ok(()),
    }
}

fn retry(trace: &Trace) -> Checked {
    let tokens: BTreeSet<&[u8]> =
        trace.of(Way::ToClient, Observed::Retry).map(|retry| &retry.token[..]).collect();
    ensure(!tokens.is_empty(), || "the server sent no Retry".to_owned())?;
    let mut highest = None;
    for initial in trace.of(Way::ToServer, Observed::Initial) {
        let number = initial.content.as_ref().map(|content| content.number);
        if initial.token.is_empty() {
            highest = highest.max(number);
        } else if tokens.contains(&initial.token[..]) {
            // After a Retry, packet numbers must not start again from zero (RFC 9000 s.17.2.5.3).
            return ensure(number.is_none() || number > highest, || {
                "the client restarted its packet numbers after the Retry".to_owned()
            });
        }
    }
    Err("the client sent no Initial with the token of the Retry".to_owned())
}

fn resumption(trace: &Trace) -> Checked {
    let certificates: Vec<bool> =
        trace.connections.iter().filter_map(|one| one.certificate).collect();
    match certificates[..] {
        [true, false] => Ok(()),
        [true, true] => Err("the server sent its certificate twice".to_owned()),
        _ => Err(format!(
            "only {} of the handshakes can be decrypted (server sent a certificate: {certificates:?})",
            certificates.len()
        )),
    }
}

fn early_data(trace: &Trace) -> Checked {
    let early: usize =
        trace.of(Way::ToServer, Observed::ZeroRtt).map(|seen| seen.payload_len).sum();
    // Probes of the path MTU are large, but contain no data. If packets can be decrypted, only the
    // stream data in them counts.
    let asked = |seen: &Seen| seen.content.as_ref().map_or(seen.payload_len, |c| c.stream_bytes);
    let late: usize = trace.of(Way::ToServer, Observed::OneRtt).map(asked).sum();
    ensure(early > 0, || "the client sent no 0-RTT packet".to_owned())?;
    ensure(late <= MAX_LATE_REQUESTS, || {
        format!(
            "the client sent too much of its requests late: {late} bytes in 1-RTT packets, {early} in 0-RTT packets"
        )
    })
}

fn key_phases(trace: &Trace) -> Checked {
    for (who, way) in [("client", Way::ToServer), ("server", Way::ToClient)] {
        let contents = || trace.of(way, Observed::OneRtt).filter_map(|seen| seen.content.as_ref());
        let updated = contents().filter(|content| content.key_phase).count();
        let all = contents().count();
        ensure(updated > 0, || {
            format!("none of the {all} decrypted packets of the {who} has Key Phase 1")
        })?;
    }
    Ok(())
}

fn ecn(trace: &Trace) -> Checked {
    for (who, way, other) in
        [("client", Way::ToServer, Way::ToClient), ("server", Way::ToClient, Way::ToServer)]
    {
        let marks: BTreeSet<u8> = trace.going(way).map(|seen| seen.ecn).collect();
        ensure(marks.contains(&1) || marks.contains(&2), || {
            format!("the {who} marked no packet as ECT(0) or ECT(1)")
        })?;
        ensure(!marks.contains(&3), || format!("the {who} sent a packet with the mark CE"))?;
        let counted = trace
            .going(other)
            .filter_map(|seen| seen.content.as_ref())
            .any(|content| content.ack_ecn);
        ensure(counted, || {
            format!(
                "the peer of the {who} does not count ECN marks: none of its ACK frames has ECN counts"
            )
        })?;
    }
    Ok(())
}

/// Checks that the server respects the limit before address validation (RFC 9000 s.8.1). Until a
/// Handshake packet arrives, compares the bytes that the server sent with the bytes that it
/// received. Many servers check the limit before they add a datagram, so the QUIC Interop Runner
/// permits a factor of 4.
fn amplification(trace: &Trace, times: usize) -> Checked {
    let sent: u64 =
        trace.connections.iter().map(|one| one.server_handshake_bytes).max().unwrap_or(0);
    ensure(sent >= LONG_HANDSHAKE, || {
        format!(
            "the server's Handshake packets have only {sent} bytes, so they cannot contain its long certificate"
        )
    })?;
    let mut events: Vec<(Duration, &Seen)> = Vec::new();
    for seen in &trace.packets {
        match (seen.way, seen.arrived) {
            (Way::ToServer, Some(arrived)) => events.push((arrived, seen)),
            (Way::ToServer, None) => {}
            (Way::ToClient, _) => events.push((seen.sent, seen)),
        }
    }
    events.sort_by_key(|(at, _)| *at);
    let (mut counted, mut received, mut answered) = (BTreeSet::new(), 0, 0);
    for (_, seen) in events {
        if seen.way == Way::ToServer && seen.kind == Observed::Handshake {
            return Ok(());
        }
        if !counted.insert(seen.datagram) {
            continue;
        }
        match seen.way {
            Way::ToServer => received += seen.datagram_len,
            Way::ToClient => answered += seen.datagram_len,
        }
        ensure(answered <= times * received, || {
            format!(
                "before address validation, the server sent {answered} bytes after it had received {received}"
            )
        })?;
    }
    Err("the client sent no Handshake packet".to_owned())
}

/// Checks that the server validates each new path that it uses (RFC 9000 s.9.3).
fn rebound(trace: &Trace, address: bool) -> Checked {
    let seen_at: BTreeSet<_> = trace.packets.iter().map(|seen| seen.seen_as).collect();
    let places = if address {
        seen_at.iter().map(|at| at.ip()).collect::<BTreeSet<_>>().len()
    } else {
        seen_at.len()
    };
    ensure(places > 1, || "the client's address did not change".to_owned())?;
    let first_path = trace.packets.first().map(|seen| seen.seen_as);
    let mut first_on: BTreeMap<_, (usize, bool)> = BTreeMap::new();
    let mut challenges: BTreeMap<[u8; 8], bool> = BTreeMap::new();
    // Packets need no answer if they arrive when the client closes the connection or is about to.
    let closes = |seen: &&Seen| seen.content.as_ref().is_some_and(|content| content.closes);
    let last = trace.going(Way::ToServer).filter(|seen| !closes(seen)).map(|seen| seen.sent).max();
    for seen in trace.going(Way::ToClient) {
        if Some(seen.seen_as) == first_path {
            continue;
        }
        let content = seen.content.as_ref();
        let challenged = content.is_some_and(|content| !content.challenges.is_empty());
        // An answer to the client's probe does not count as use of the path (RFC 9000 s.9.1).
        if !challenged && content.is_some_and(|content| content.probing) {
            continue;
        }
        let first = first_on.entry(seen.seen_as).or_insert((seen.datagram, false));
        if first.0 == seen.datagram {
            first.1 |= challenged;
            for challenge in content.iter().flat_map(|content| &content.challenges) {
                let in_time =
                    seen.arrived.is_some_and(|at| last.is_some_and(|last| at + ANSWERING < last));
                *challenges.entry(*challenge).or_default() |= in_time;
            }
        }
    }
    ensure(!first_on.is_empty(), || {
        "the server sent no packet to the client's new address".to_owned()
    })?;
    for (path, (_, challenged)) in &first_on {
        ensure(*challenged, || {
            format!("the server's first packet to {path} has no PATH_CHALLENGE")
        })?;
    }
    let answers: BTreeSet<[u8; 8]> = trace
        .going(Way::ToServer)
        .filter_map(|seen| seen.content.as_ref())
        .flat_map(|content| content.responses.iter().copied())
        .collect();
    let open = challenges.iter().filter(|(sent, came)| **came && !answers.contains(*sent)).count();
    ensure(open == 0, || format!("{open} PATH_CHALLENGE frames got no answer"))
}

/// Checks that a client that migrates deliberately uses a new connection ID on the new path (RFC
/// 9000 s.9.5).
fn new_ids(trace: &Trace) -> Checked {
    let mut paths = BTreeSet::new();
    let mut used: BTreeSet<&[u8]> = BTreeSet::new();
    for seen in trace.of(Way::ToServer, Observed::OneRtt).filter(|seen| seen.content.is_some()) {
        // Packets of the old path may arrive in between, so only the first packet of each path
        // counts.
        if paths.insert(seen.client) && used.contains(&seen.dcid[..]) {
            let (client, _) = seen.client;
            return Err(format!(
                "the client's first packet from {client} has a connection ID that was used before"
            ));
        }
        used.insert(&seen.dcid);
    }
    Ok(())
}

/// Checks multipath (RFC 10069). There must be two paths, each from a different address of the
/// client. Each path must have packets in both directions, acknowledgements, and a share of the
/// file.
fn several_paths(trace: &Trace) -> Checked {
    let contents = |way| trace.going(way).filter_map(|seen| Some((seen, seen.content.as_ref()?)));
    let mut bytes: BTreeMap<u32, usize> = BTreeMap::new();
    for (_, content) in contents(Way::ToClient) {
        *bytes.entry(content.path).or_default() += content.stream_bytes;
    }
    let shares: BTreeSet<u32> =
        bytes.iter().filter(|(_, bytes)| **bytes >= MIN_SHARE).map(|(path, _)| *path).collect();
    ensure(shares.len() >= 2, || {
        format!("fewer than two paths carried a share of the file; bytes by path: {bytes:?}")
    })?;
    let acknowledged: BTreeSet<u32> = contents(Way::ToServer)
        .flat_map(|(_, content)| content.path_acks.iter().copied())
        .collect();
    let mut places = BTreeSet::new();
    for path in shares {
        let of_client = contents(Way::ToServer).find(|(_, content)| content.path == path);
        let Some((first, _)) = of_client else {
            return Err(format!("the client sent no packet of path {path}"));
        };
        ensure(places.insert(first.seen_as), || {
            format!("path {path} begins at {}, which is the address of another path", first.seen_as)
        })?;
        // ACK frames may acknowledge path 0 until the peer is known to accept PATH_ACK.
        ensure(path == 0 || acknowledged.contains(&path), || {
            format!("the client acknowledged no packet of path {path}")
        })?;
    }
    Ok(())
}

#[cfg(test)]
#[path = "check_tests.rs"]
mod tests;
