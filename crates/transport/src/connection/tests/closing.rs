//! Closes a connection in every state: before each call into either end, in turn.

use std::cell::Cell;
use std::rc::Rc;

use equic_wire::Version;
use equic_wire::frame::ConnectionClose;

use super::early::{early_configs, visit};
use super::handshake::{bad, with_retry};
use super::network::Act;
use super::versions::{V1, V2, no_version_2, speaking};
use super::*;
use crate::connection::space::SpaceId;
use crate::violation::Failure;

const LIMIT: Duration = Duration::from_secs(300);

/// The time at which the ends are about to reach their idle timeout.
const IDLE: Duration = Duration::from_secs(29);

/// Creates a new network for each call before which the connection ends.
type Make<'a> = &'a dyn Fn() -> Network;

/// Ends the connection at one end.
type End = fn(&mut Connection, Timestamp);

fn internal(reason: &str) -> Failure {
    Failure::internal(TransportErrorCode::INTERNAL_ERROR, reason)
}

fn close(end: &mut Connection, now: Timestamp) {
    end.close(now, VarInt::from_u32(7), "done");
}

/// Runs the exchange once for each call. Ends the connection before this call, and passes the
/// network to `check` afterwards. Returns the number of calls.
fn at_every_call(make: Make<'_>, side: Side, end: End, check: impl Fn(&Network, u64)) -> u64 {
    for call in 0.. {
        let mut network = make();
        // The connection may already have ended.
        let open = Rc::new(Cell::new(None));
        let found = open.clone();
        let act: Act = (
            call,
            side,
            Box::new(move |connection, now| {
                found.set(Some(now).filter(|_| !connection.closing.is_closed()));
                end(connection, now);
            }),
        );
        network.act = Some(act);
        run(&mut network, side);
        if open.get().is_none_or(|at| at >= Timestamp::START + IDLE) {
            return call;
        }
        check(&network, call);
        let now = network.now();
        touch(&mut network.client, now);
        if network.has_server() {
            touch(network.server_mut(), now);
        }
    }
    unreachable!("the number of calls is finite")
}

/// Runs a short exchange until both ends have discarded the connection.
fn run(network: &mut Network, side: Side) {
    let (mut opened, mut calm) = (None, 0);
    network.run_until(LIMIT, |client, server| {
        if opened.is_none() {
            opened = client.open(Direction::Bidirectional);
        }
        if let Some(id) = opened.filter(|_| calm == 0) {
            calm = client.streams().write(id, &[7; 3000]).unwrap_or(0);
        }
        if let Some(id) = server.accept(Direction::Bidirectional) {
            let _ = server.streams().write(id, &[8; 3000]);
        }
        let end = if side == Side::Client { client } else { server };
        end.is_drained()
    });
    // The other end may wait for its idle timeout, or may never have received a packet of the
    // connection.
    network.wait(Duration::from_secs(100));
}

/// Calls all functions of an ended connection: they have no effect and do not panic.
fn touch(end: &mut Connection, now: Timestamp) {
    let mut buffer = [0; 1500];
    assert!(end.is_drained());
    end.ping();
    end.update_keys();
    let _ = end.open(Direction::Unidirectional);
    close(end, now);
    for _ in 0..3 {
        end.handle_timeout(now + LIMIT);
        assert!(end.poll_transmit(now + LIMIT, &mut buffer).is_none());
        assert!(end.poll_timeout().is_none());
    }
    let (remote, mut datagram) = (end.remote_address(), [0x40; 100]);
    let arrival = DatagramMeta { remote, local: None, ecn: EcnCodepoint::NotEct };
    end.handle_datagram(now, arrival, &mut datagram);
    assert!(end.memory() < 1 << 20);
}

/// Creates a new network for each case.
type MakeNetwork = Box<dyn Fn() -> Network>;

fn networks() -> Vec<(&'static str, MakeNetwork)> {
    let retry = || {
        let mut network = Network::new(1, Faults::none());
        with_retry(&mut network, true);
        network
    };
    let negotiated = || {
        let mut network = speaking(1, Faults::none(), &[V2, V1], None, &[V1]);
        no_version_2(&mut network, &[Version::V1]);
        network
    };
    let (client, server) = early_configs();
    // A session ticket can be used for one connection.
    let early = move || {
        visit(&client, &server);
        let network = Network::between(1, Faults::none(), &client, server.clone());
        assert!(network.client.is_early());
        network
    };
    vec![
        ("plain", Box::new(|| Network::new(1, Faults::none()))),
        ("retry", Box::new(retry)),
        ("version negotiation", Box::new(negotiated)),
        ("another version", Box::new(|| speaking(1, Faults::none(), &[V2, V1], Some(V1), &[V2]))),
        ("early data", Box::new(early)),
    ]
}

/// On a network without loss, the peer is notified of the close. It gets the application's code as
/// soon as it can read 1-RTT packets, and APPLICATION_ERROR before that (RFC 9000 s.10.2.3).
#[test]
fn close_by_the_application_before_every_call() {
    for (what, make) in networks() {
        for side in [Side::Client, Side::Server] {
            let calls = at_every_call(&*make, side, close, |network, call| {
                let (here, there) = if side == Side::Client { (0, 1) } else { (1, 0) };
                let closed = network.closed();
                let context = || format!("{what}, {side:?}, call {call}: {}", network.describe());
                let own = ConnectionError {
                    application: true,
                    code: 7,
                    reason: "done".into(),
                    violation: None,
                };
                assert_eq!(closed[here], Some(CloseReason::Local(own.clone())), "{}", context());
                let code = TransportErrorCode::APPLICATION_ERROR.0.get();
                let early = ConnectionError {
                    application: false,
                    code,
                    reason: String::new(),
                    violation: None,
                };
                let confirmed =
                    network.events.iter().all(|events| events.contains(&Event::Confirmed));
                match &closed[there] {
                    Some(CloseReason::Peer(error)) if *error == own => {}
                    Some(CloseReason::Peer(error)) if *error == early && !confirmed => {}
                    // The first packet was answered with Retry or Version Negotiation.
                    None if !network.has_server() => {}
                    other => panic!("{other:?} {}", context()),
                }
            });
            assert!(calls > 30, "{what}, {side:?}: {calls} calls");
        }
    }
}

/// The connection ends by a transport error, a stateless reset, the idle timeout, or silence of the
/// other end.
#[test]
fn close_for_other_reasons_before_every_call() {
    let ends: [(&str, End); 4] = [
        ("an error", |end, now| end.fail(now, internal("test"))),
        ("a stateless reset", |end, now| end.drain(now, CloseReason::StatelessReset)),
        ("the idle timeout", |end, _| end.forget(CloseReason::IdleTimeout)),
        ("the peer", |end, now| {
            let error_code = VarInt::from_u32(7);
            let reason = b"done";
            end.on_close(now, ConnectionClose::Application { error_code, reason });
        }),
    ];
    for (what, make) in networks() {
        for (why, end) in ends {
            for side in [Side::Client, Side::Server] {
                let calls = at_every_call(&*make, side, end, |network, call| {
                    let end = usize::from(side == Side::Server);
                    let context = || format!("{what}, {why}, {side:?}, call {call}");
                    assert!(network.closed()[end].is_some(), "{}", context());
                    if network.has_server() {
                        assert!(network.server().is_drained(), "{}", context());
                    }
                    assert!(network.client.is_drained(), "{}", context());
                });
                assert!(calls > 30, "{what}, {why}, {side:?}: {calls} calls");
            }
        }
    }
}

/// The network loses, delays and duplicates datagrams.
#[test]
fn close_on_bad_networks_before_every_call() {
    for seed in 0..6 {
        let make = || Network::new(seed, bad(seed));
        for side in [Side::Client, Side::Server] {
            let calls = at_every_call(&make, side, close, |network, call| {
                let end = usize::from(side == Side::Server);
                assert!(
                    matches!(network.closed()[end], Some(CloseReason::Local(_))),
                    "{side:?}, call {call}: {}",
                    network.describe()
                );
            });
            assert!(calls > 30, "seed {seed}, {side:?}: {calls} calls");
        }
    }
}

/// The server sends HANDSHAKE_DONE together with its first flight. The client then discards the
/// keys of Initial and Handshake packets before it has sent its Finished.
#[test]
fn close_after_a_handshake_that_the_peer_confirms_too_early() {
    let mut early = 0;
    for call in 0.. {
        let mut network = Network::new(1, Faults::none());
        let confirm = |client: &mut Connection, now| {
            if client.is_connected() && client.spaces.has_crypto(SpaceId::Handshake) {
                let path = client.path().key();
                assert!(client.pretend_payload(now, 0, path, &[0x1e]));
            }
        };
        network.act = Some((call, Side::Client, Box::new(confirm)));
        network.run_until(LIMIT, |client, _| client.handshake.is_confirmed());
        if network.act.is_some() {
            break;
        }
        let (now, server) = (network.now(), network.server().is_connected());
        early += u64::from(!server);
        let client = &mut network.client;
        assert!([SpaceId::Initial, SpaceId::Handshake].iter().all(|id| !client.keys.has(*id)));
        assert_eq!(client.spaces.ids().collect::<Vec<_>>(), [SpaceId::DATA]);
        close(client, now);
        network.run_until(LIMIT, |client, _| client.is_drained());
    }
    assert!(early > 0, "no handshake was confirmed too early");
}

/// RFC 9000 s.10.2, RFC 9001 s.6.5: a probe timeout includes the time for which the peer may delay
/// acknowledgements. If a peer declares a long delay, this end must not keep its ended connections
/// for that long.
#[test]
fn close_counts_a_second_of_the_peers_delay_at_most() {
    let delay = Duration::from_millis(16_383);
    let mut network = Network::with(1, Faults::none(), |config| config.max_ack_delay = delay);
    network.connect();
    echo(&mut network, 20_000);
    let now = network.now();
    let (mut client, mut server, _) = network.into_ends();
    client.close(now, VarInt::from_u32(7), "done");
    server.drain(now, CloseReason::StatelessReset);
    for end in [&client, &server] {
        let longest = end.path().rtt().pto_base() + Duration::from_secs(1);
        assert_eq!(end.closing.deadline(), Some(now + longest * 3));
    }
}

#[test]
fn close_and_draining_last_for_three_ptos() {
    let delay = Duration::from_millis(400);
    let mut network = Network::with(1, Faults::none(), |config| config.max_ack_delay = delay);
    network.connect();
    echo(&mut network, 20_000);
    let now = network.now();
    let (mut client, mut server, _) = network.into_ends();
    let data = server.active_space();
    for end in [&mut client, &mut server] {
        let pto = end.path().rtt().pto_base() + delay;
        assert_eq!((end.longest_pto(), end.pto(data)), (pto, pto));
    }
    let expected = [&mut client, &mut server].map(|end| Some(now + end.longest_pto() * 3));
    client.close(now, VarInt::from_u32(7), "done");
    server.drain(now, CloseReason::StatelessReset);
    assert_eq!([client.closing.deadline(), server.closing.deadline()], expected);
}
