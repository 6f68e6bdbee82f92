//! Tests every condition with traces that fulfil it and traces that do not.

use std::net::SocketAddr;
use std::time::Duration;

use super::*;
use equic_net::Fate;

use crate::trace::{ClientHello, Content, Handshake};

const V1: u32 = 1;
const V2: u32 = 0x6b33_43cf;

fn client() -> SocketAddr {
    "127.0.0.1:1000".parse().expect("an address")
}

fn seen(way: Way, kind: Observed) -> Seen {
    Seen {
        way,
        sent: Duration::ZERO,
        arrived: Some(Duration::ZERO),
        client: (client(), 0),
        seen_as: client(),
        datagram: 0,
        datagram_len: 1200,
        fate: Fate::Delivered,
        ecn: 2,
        kind,
        version: (kind != Observed::OneRtt).then_some(V1),
        dcid: vec![1],
        scid: vec![2],
        token: Vec::new(),
        payload_len: 100,
        content: Some(Content::default()),
    }
}

/// Returns the trace of a handshake and of one further packet in each direction. Each packet has
/// its own datagram.
fn plain() -> Trace {
    let packets = [
        seen(Way::ToServer, Observed::Initial),
        seen(Way::ToClient, Observed::Initial),
        seen(Way::ToClient, Observed::Handshake),
        seen(Way::ToServer, Observed::Handshake),
        seen(Way::ToServer, Observed::OneRtt),
        seen(Way::ToClient, Observed::OneRtt),
    ];
    let packets = packets.into_iter().enumerate().map(|(number, seen)| {
        let at = Duration::from_millis(number as u64);
        Seen { datagram: number, sent: at, arrived: Some(at), ..seen }
    });
    let handshake = Handshake {
        client_hello: Some(ClientHello { random: vec![0; 32], suites: vec![0x1301, 0x1303] }),
        certificate: Some(true),
        server_handshake_bytes: 9000,
        max_streams_bidi: Some(100),
        keys: true,
    };
    Trace { packets: packets.collect(), connections: vec![handshake], has_keys: true }
}

fn judge(case: Case, trace: &Trace) -> Checked {
    check(&Evidence { case, size: Size::Small, browser: false, strict: true, trace })
}

fn passes(case: Case, trace: &Trace) {
    judge(case, trace).unwrap_or_else(|why| panic!("{case:?}: {why}"));
}

fn fails(case: Case, trace: &Trace, with: &str) {
    let why = judge(case, trace).expect_err("it does not hold");
    assert!(why.contains(with), "{case:?}: {why}");
}

/// Returns the trace of [`plain`] after a change.
fn changed(change: impl FnOnce(&mut Trace)) -> Trace {
    let mut trace = plain();
    change(&mut trace);
    trace
}

#[test]
fn check_counts_handshakes() {
    passes(Case::Handshake, &plain());
    passes(Case::Transfer, &plain());
    fails(Case::Handshake, &Trace::default(), "0 handshakes");
    let again = |trace: &mut Trace| {
        trace.packets.push(Seen { scid: vec![3], ..trace.packets[1].clone() });
    };
    fails(Case::Transfer, &changed(again), "2 handshakes instead of 1");
    fails(Case::HandshakeLoss, &plain(), "1 handshakes instead of 10");
    let browser = Evidence {
        case: Case::Http3,
        size: Size::Small,
        browser: true,
        strict: false,
        trace: &changed(again),
    };
    check(&browser).expect("a browser may open two");
    let retry = changed(|trace| trace.packets.push(seen(Way::ToClient, Observed::Retry)));
    fails(Case::Handshake, &retry, "the server sent a Retry");
    let other = changed(|trace| trace.packets[1].version = Some(V2));
    fails(Case::Transfer, &other, "have the versions");
}

#[test]
fn check_fails_without_needed_keys() {
    let without = changed(|trace| trace.has_keys = false);
    fails(Case::KeyUpdate, &without, "key log");
    let wrong = changed(|trace| trace.connections[0].keys = false);
    fails(Case::Ecn, &wrong, "decrypt no packet");
}

#[test]
fn check_of_cipher_suites_and_streams() {
    fails(Case::ChaCha20, &plain(), "1301");
    let only = |trace: &mut Trace| {
        trace.connections[0].client_hello =
            Some(ClientHello { random: Vec::new(), suites: vec![0x1303] });
    };
    passes(Case::ChaCha20, &changed(only));
    let hello = |suites: &[u16]| {
        changed(|trace| {
            let suites = suites.to_vec();
            trace.connections[0].client_hello = Some(ClientHello { random: Vec::new(), suites });
        })
    };
    // Reserved values (RFC 8701) and signalling values (RFC 5746, RFC 7507) are not cipher suites,
    // so the client offers only ChaCha20-Poly1305.
    passes(Case::ChaCha20, &hello(&[0x0a0a, 0x1303]));
    passes(Case::ChaCha20, &hello(&[0x1303, 0xfafa, 0x00ff, 0x5600]));
    fails(Case::ChaCha20, &hello(&[0x0a0a, 0x1303, 0x1301]), "1301");
    for no_grease in [0x0a1a, 0x1a0a, 0x0b0b, 0xffff] {
        fails(Case::ChaCha20, &hello(&[no_grease, 0x1303]), &format!("{no_grease:04x}"));
    }
    fails(Case::ChaCha20, &hello(&[0x2a2a]), "[]");
    fails(Case::ChaCha20, &hello(&[]), "[]");
    passes(Case::Multiplexing, &plain());
    let many = changed(|trace| trace.connections[0].max_streams_bidi = Some(1001));
    fails(Case::Multiplexing, &many, "1001 streams");
    let unknown = changed(|trace| trace.connections[0].max_streams_bidi = None);
    fails(Case::Multiplexing, &unknown, "cannot be decrypted");
}

#[test]
fn check_of_retry() {
    let token = vec![9, 9];
    let retried = |number: u64| {
        changed(|trace| {
            trace
                .packets
                .insert(1, Seen { token: token.clone(), ..seen(Way::ToClient, Observed::Retry) });
            let content = Some(Content { number, ..Content::default() });
            let again = seen(Way::ToServer, Observed::Initial);
            trace.packets.insert(2, Seen { token: token.clone(), content, ..again });
        })
    };
    passes(Case::Retry, &retried(1));
    fails(Case::Retry, &retried(0), "restarted its packet numbers");
    fails(Case::Retry, &plain(), "sent no Retry");
    let mut unused = retried(1);
    unused.packets[2].token = vec![8];
    fails(Case::Retry, &unused, "no Initial with the token");
}

#[test]
fn check_of_resumption_and_0_rtt() {
    let twice = |certificate| {
        changed(|trace| {
            trace.packets.push(Seen { scid: vec![3], ..trace.packets[1].clone() });
            let second = Handshake { certificate, ..trace.connections[0].clone() };
            trace.connections.push(second);
        })
    };
    passes(Case::Resumption, &twice(Some(false)));
    fails(Case::Resumption, &twice(Some(true)), "certificate twice");
    fails(Case::Resumption, &twice(None), "only 1 of the handshakes");
    let mut early = twice(Some(false));
    fails(Case::ZeroRtt, &early, "no 0-RTT");
    early.packets.push(seen(Way::ToServer, Observed::ZeroRtt));
    passes(Case::ZeroRtt, &early);
    let probe = Seen { payload_len: 9000, ..seen(Way::ToServer, Observed::OneRtt) };
    early.packets.push(probe);
    passes(Case::ZeroRtt, &early);
    let unread = seen(Way::ToServer, Observed::OneRtt);
    let late = Seen { payload_len: 5001, content: None, ..unread };
    early.packets.push(late);
    fails(Case::ZeroRtt, &early, "in 1-RTT packets");
}

#[test]
fn check_of_key_update_ecn_and_client_hellos() {
    fails(Case::KeyUpdate, &plain(), "client");
    let phase = |trace: &mut Trace, at: usize| {
        trace.packets[at].content = Some(Content { key_phase: true, ..Content::default() });
    };
    fails(Case::KeyUpdate, &changed(|trace| phase(trace, 4)), "server");
    let both = changed(|trace| {
        phase(trace, 4);
        phase(trace, 5);
    });
    passes(Case::KeyUpdate, &both);

    let counted = |trace: &mut Trace, at: usize| {
        trace.packets[at].content = Some(Content { ack_ecn: true, ..Content::default() });
    };
    fails(Case::Ecn, &changed(|trace| counted(trace, 4)), "the peer of the client");
    let mut marked = changed(|trace| {
        counted(trace, 4);
        counted(trace, 5);
    });
    passes(Case::Ecn, &marked);
    marked.packets[0].ecn = 3;
    fails(Case::Ecn, &marked, "CE");
    marked.packets.iter_mut().for_each(|seen| seen.ecn = 0);
    fails(Case::Ecn, &marked, "marked no packet");

    let hello = || Some(Content { crypto: vec![0], ..Content::default() });
    let once = changed(|trace| trace.packets[0].content = hello());
    fails(Case::LongRtt, &once, "1 times, but at least");
    let mut twice = once;
    twice.packets.push(Seen { content: hello(), ..seen(Way::ToServer, Observed::Initial) });
    passes(Case::LongRtt, &twice);
}

#[test]
fn check_of_the_amplification_limit() {
    passes(Case::AmplificationLimit, &plain());
    let short = changed(|trace| trace.connections[0].server_handshake_bytes = 900);
    fails(Case::AmplificationLimit, &short, "cannot contain its long certificate");
    let sent = |len| changed(|trace| trace.packets[2].datagram_len = len);
    passes(Case::AmplificationLimit, &sent(2400));
    fails(Case::AmplificationLimit, &sent(2401), "3601 bytes after it had received 1200");
    let lenient = |trace: &Trace| {
        let case = Case::AmplificationLimit;
        check(&Evidence { case, size: Size::Small, browser: false, strict: false, trace })
    };
    lenient(&sent(3600)).expect("the runner lets it pass");
    lenient(&sent(3601)).expect_err("not that");
    // Packets that were lost on the way to the server do not count. Of coalesced packets, the
    // datagram counts only once.
    let lost = changed(|trace| trace.packets[0].arrived = None);
    fails(Case::AmplificationLimit, &lost, "after it had received 0");
    let coalesced = changed(|trace| {
        trace.packets[2].datagram = 1;
        trace.packets[1].datagram_len = 3600;
        trace.packets[2].datagram_len = 3600;
    });
    passes(Case::AmplificationLimit, &coalesced);
}

/// Returns a trace in which the client appears at another address. The server's first packet to the
/// new address contains a PATH_CHALLENGE.
fn moved(answered: bool, same_id: bool) -> Trace {
    let mut moved = changed(|trace| {
        let elsewhere: SocketAddr = "127.0.1.1:2000".parse().expect("an address");
        let place = |seen: Seen, number: usize, content: Content| Seen {
            seen_as: elsewhere,
            client: ("127.0.0.1:1001".parse().expect("an address"), 0),
            datagram: number,
            content: Some(content),
            ..seen
        };
        let id = if same_id { vec![1] } else { vec![7] };
        let first = Seen { dcid: id, ..seen(Way::ToServer, Observed::OneRtt) };
        trace.packets.push(place(first, 10, Content::default()));
        let challenge = Content { challenges: vec![[5; 8]], ..Content::default() };
        trace.packets.push(place(seen(Way::ToClient, Observed::OneRtt), 11, challenge));
        if answered {
            let response = Content { responses: vec![[5; 8]], ..Content::default() };
            let answer = Seen { dcid: vec![7], ..seen(Way::ToServer, Observed::OneRtt) };
            trace.packets.push(place(answer, 12, response));
        }
    });
    let last = seen(Way::ToServer, Observed::Initial);
    let at = Duration::from_secs(1);
    moved.packets.push(Seen { datagram: 20, sent: at, arrived: None, ..last });
    moved
}

#[test]
fn check_of_rebinding_and_migration() {
    fails(Case::RebindPort, &plain(), "address did not change");
    passes(Case::RebindPort, &moved(true, true));
    passes(Case::RebindAddr, &moved(true, true));
    fails(Case::RebindPort, &moved(false, true), "got no answer");
    // If the client closes the connection, the server need not send a PATH_CHALLENGE.
    let mut goodbye = moved(false, true);
    let close = Content { closes: true, ..Content::default() };
    goodbye.packets.last_mut().expect("the last one").content = Some(close);
    passes(Case::RebindPort, &goodbye);
    let mut silent = moved(true, true);
    silent.packets[7].content = Some(Content::default());
    fails(Case::RebindPort, &silent, "no PATH_CHALLENGE");
    // The server's answer to a probe of the client does not count as use of the path.
    let mut probed = moved(true, false);
    let probe = Content { probing: true, responses: vec![[6; 8]], ..Content::default() };
    let answer = Seen { content: Some(probe), datagram: 9, ..probed.packets[7].clone() };
    probed.packets.insert(7, answer);
    passes(Case::ConnectionMigration, &probed);
    let same_address = |trace: &mut Trace| {
        let at: SocketAddr = "127.0.0.1:2000".parse().expect("an address");
        trace.packets.iter_mut().skip(6).for_each(|seen| seen.seen_as = at);
    };
    let mut port = moved(true, true);
    same_address(&mut port);
    passes(Case::RebindPort, &port);
    fails(Case::RebindAddr, &port, "address did not change");
    passes(Case::ConnectionMigration, &moved(true, false));
    fails(Case::ConnectionMigration, &moved(true, true), "was used before");
}

/// Returns a trace in which the server sends data on two paths, each with its own client address,
/// and in which PATH_ACK frames acknowledge both.
fn over_two_paths() -> Trace {
    changed(|trace| {
        for path in [0, 1] {
            let place: SocketAddr =
                format!("127.0.0.1:{}", 1000 + path).parse().expect("an address");
            let data = Content { path, stream_bytes: MIN_SHARE, ..Content::default() };
            let answer = Content { path, path_acks: vec![path], ..Content::default() };
            for (way, content) in [(Way::ToServer, answer), (Way::ToClient, data)] {
                let packet = seen(way, Observed::OneRtt);
                trace.packets.push(Seen { seen_as: place, content: Some(content), ..packet });
            }
        }
    })
}

#[test]
fn check_of_multipath() {
    let without = |at: usize, change: fn(&mut Seen)| {
        let mut trace = over_two_paths();
        change(&mut trace.packets[6 + at]);
        trace
    };
    passes(Case::Multipath, &over_two_paths());
    fails(Case::Multipath, &plain(), "fewer than two paths");
    let less = without(3, |seen| seen.content.as_mut().expect("some").stream_bytes -= 1);
    fails(Case::Multipath, &less, "fewer than two paths");
    let silent = without(2, |seen| seen.content.as_mut().expect("some").path = 2);
    fails(Case::Multipath, &silent, "no packet of path 1");
    let deaf = without(2, |seen| seen.content.as_mut().expect("some").path_acks.clear());
    fails(Case::Multipath, &deaf, "acknowledged no packet of path 1");
    let here = without(2, |seen| seen.seen_as = client());
    fails(Case::Multipath, &here, "the address of another path");
    // Path 0 may also be acknowledged by ACK frames.
    passes(
        Case::Multipath,
        &without(0, |seen| seen.content.as_mut().expect("some").path_acks.clear()),
    );
}

#[test]
fn check_of_versions() {
    let second = |from: usize| {
        changed(|trace| {
            for seen in trace.packets.iter_mut().skip(from) {
                seen.version = seen.version.map(|_| V2);
            }
        })
    };
    passes(Case::V2, &second(1));
    fails(Case::V2, &second(0), "first Initial");
    fails(Case::V2, &second(2), "server's Initial packets");
    let mut half = second(1);
    half.packets[3].version = Some(V1);
    fails(Case::V2, &half, "client's Handshake");

    fails(Case::VersionNegotiation, &plain(), "no Version Negotiation");
    let mut answer = seen(Way::ToClient, Observed::VersionNegotiation);
    let with = |answer: &Seen| changed(|trace| trace.packets.push(answer.clone()));
    fails(Case::VersionNegotiation, &with(&answer), "no Version Negotiation");
    (answer.dcid, answer.scid) = (vec![2], vec![1]);
    passes(Case::VersionNegotiation, &with(&answer));
}
