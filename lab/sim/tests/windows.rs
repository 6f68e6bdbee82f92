//! Tests of flow control in virtual time: flow-control windows must grow before a sender needs the
//! space. Needs the feature `quic`.

use std::time::Duration;

use equic_sim::quic::{
    Bulk, BulkReceiver, BulkSender, Carrier, HooksOfEnds, Party, Protection, Resumption,
    TransportConfig, attach, bulk,
};
use equic_sim::{
    Application, Direction, Limit, Named, Queue, Simulation, Streams, Time, simple, two_path,
};

const RATES: [u64; 3] = [10_000_000, 100_000_000, 1_000_000_000];
const ROUND_TRIPS_MS: [u64; 3] = [20, 100, 300];
const SIZES: [u64; 3] = [1_000_000, 10_000_000, 100_000_000];

/// Returns a link whose queue is larger than any transfer of these tests.
fn link(rate: u64, round_trip_ms: u64) -> Direction {
    let delay = Duration::from_micros(round_trip_ms * 500);
    Direction::new(rate, delay).queue(Queue::DropTail(Limit::Packets(1_000_000)))
}

/// Returns a transport configuration whose windows and buffers never limit a transfer.
fn unlimited() -> TransportConfig {
    const MOST: u64 = 1 << 40;
    let mut config = TransportConfig::default();
    let streams = &mut config.streams;
    (streams.stream_window, streams.max_stream_window) = (MOST, MOST);
    (streams.connection_window, streams.max_connection_window) = (MOST, MOST);
    streams.send_buffer = MOST;
    (streams.max_send_buffer, streams.connection_send_buffer) = (MOST, MOST);
    config
}

/// Runs a transfer. Returns its duration in seconds, and the number of frames with which the sender
/// reported that flow control blocked it.
fn transfer(named: Named, bytes: u64, transport: TransportConfig) -> (f64, u64) {
    let mut run = Simulation::new(named.topology, 1).unwrap();
    let transfer = Bulk { transport, ..Bulk::new(bytes) };
    let ids = bulk(&mut run, named.clients[0], named.servers[0], &transfer).unwrap();
    run.run(Time::from_secs(10_000)).unwrap();
    let outcome = run.agent::<BulkReceiver>(ids.receiver).unwrap().outcome();
    assert_eq!(outcome.failure, None);
    let took = outcome.completed.expect("it is complete").as_secs_f64();
    (took, run.agent::<BulkSender>(ids.sender).unwrap().stats().flow_blocked)
}

#[test]
fn windows_do_not_limit_a_sender() {
    for rate in RATES {
        for round_trip in ROUND_TRIPS_MS {
            for bytes in SIZES {
                let named = || simple(link(rate, round_trip));
                let (took, blocked) = transfer(named(), bytes, TransportConfig::default());
                let (best, _) = transfer(named(), bytes, unlimited());
                let what = format!("{bytes} bytes at {rate} b/s and {round_trip} ms");
                assert!(took <= best * 1.01, "{what}: {took} s, {best} s without limits");
                assert_eq!(blocked, 0, "{what}");
            }
        }
    }
}

/// Returns the expected duration in seconds of a transfer with datagrams of `datagram` bytes that is
/// limited only by slow start and the link's rate.
///
/// The handshake takes one round trip. The initial window is ten datagrams (RFC 9002 s.7.2). One of
/// them acknowledges the server's first datagram: it is in flight because it has an Initial packet,
/// and so has padding (RFC 9000 s.14.1, RFC 9002 s.2). So the sender sends nine datagrams of data in
/// the first round trip, and twice as many in each next one (RFC 9002 s.7.3.1), until the link is
/// always busy. In the last of these round trips, the remaining data is paced at two windows per
/// round trip, as in Linux (`tcp_pacing_ss_ratio`). The headers of the packet and its frames take
/// about 32 bytes of a datagram.
fn arithmetic(rate: u64, round_trip_ms: u64, bytes: u64, datagram: u16) -> f64 {
    let (payload, on_the_link) = (f64::from(datagram) - 32.0, f64::from(datagram) + 28.0);
    let (round_trip, rate) = (round_trip_ms as f64 / 1e3, rate as f64 / 8.0);
    let (mut datagrams, mut window) = ((bytes as f64 / payload).ceil(), 9.0);
    let mut time = round_trip;
    while window < datagrams && window * on_the_link / rate < round_trip {
        datagrams -= window;
        window *= 2.0;
        time += round_trip;
    }
    let paced = datagrams / window * round_trip / 2.0;
    time + paced.max(datagrams * on_the_link / rate) + round_trip / 2.0
}

#[test]
fn windows_permit_the_computed_transfer_time() {
    for rate in RATES {
        for round_trip in ROUND_TRIPS_MS {
            for bytes in SIZES {
                for datagram in [1_200, 1_472] {
                    let (initial_mtu, max_mtu) = (datagram, datagram);
                    let config = TransportConfig::default()
                        .with_initial_mtu(initial_mtu)
                        .with_max_mtu(max_mtu);
                    let (took, _) = transfer(simple(link(rate, round_trip)), bytes, config);
                    let expected = arithmetic(rate, round_trip, bytes, datagram);
                    let what = format!("{bytes} bytes at {rate} b/s and {round_trip} ms");
                    let quotient = took / expected;
                    assert!(
                        (0.97..1.03).contains(&quotient),
                        "{what}, datagrams of {datagram} bytes: {took} s, not {expected} s"
                    );
                }
            }
        }
    }
}

#[test]
fn windows_do_not_limit_two_paths() {
    let named = || two_path(link(100_000_000, 40), link(50_000_000, 200));
    let both = |config: TransportConfig| config.with_max_paths(2);
    // Data from the faster path must wait for data from the slower one, so a flow-control window
    // may be exhausted for a short time.
    let (took, _) = transfer(named(), 20_000_000, both(TransportConfig::default()));
    let (best, _) = transfer(named(), 20_000_000, both(unlimited()));
    assert!(took <= best * 1.01, "{took} s, {best} s without limits");
}

/// Many streams share a connection. The flow-control window of the connection must grow, even if no
/// single stream needs a larger window.
#[test]
fn windows_grow_with_many_streams() {
    let took = |transport: TransportConfig| {
        let named = simple(link(1_000_000_000, 300));
        let mut run = Simulation::new(named.topology, 1).unwrap();
        let application = Application::Streams(Streams { count: 100, bytes: 200_000 });
        let carrier = Carrier {
            start: Time::START,
            transport,
            protection: Protection::None,
            resumption: Resumption::None,
            logs: None,
            hooks: HooksOfEnds::default(),
        };
        let (client, server) = (named.clients[0], named.servers[0]);
        let ids = attach(&mut run, client, server, &application, &carrier).unwrap();
        run.run(Time::from_secs(1_000)).unwrap();
        let party = run.agent::<Party>(ids.receiver).unwrap();
        assert_eq!(party.failure(), None);
        party.report(run.now()).completed.expect("it is complete").as_secs_f64()
    };
    let (usual, best) = (took(TransportConfig::default()), took(unlimited()));
    assert!(usual <= best * 1.01, "{usual} s, {best} s without limits");
}

/// If a flow-control window limits a transfer, the statistics must show it.
#[test]
fn windows_that_limit_are_reported() {
    let mut config = TransportConfig::default();
    config.streams.max_stream_window = 1 << 20;
    config.streams.max_connection_window = 1 << 20;
    let (_, blocked) = transfer(simple(link(100_000_000, 300)), 10_000_000, config);
    assert!(blocked > 1, "{blocked}");
}
