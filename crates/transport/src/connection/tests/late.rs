//! Ends whose timers are handled late, as on a busy machine.

use super::*;

/// Returns BBR's throughput in bytes per second on a path of 100 Mb/s and 30 ms each way, if both
/// ends can run only at multiples of `every`.
fn rate(every: Duration) -> f64 {
    const BYTES: usize = 25_000_000;
    let faults = Faults { rate: Some(12_500_000), delay: 30 * MS, ..Faults::none() };
    let mut network = Network::with(1, faults, |config| {
        config.congestion = Arc::new(Algorithm::Bbr);
        let streams = &mut config.streams;
        // Only pacing limits the sender.
        (streams.stream_window, streams.connection_window) = (8 << 20, 8 << 20);
        streams.send_buffer = 8 << 20;
    });
    network.every = every;
    network.connect();
    let start = network.now();
    send_one_way(&mut network, BYTES);
    BYTES as f64 / network.now().since(start).as_secs_f64()
}

/// Timers that are up to 4 ms late do not reduce the throughput. When they run, the datagrams of
/// the lost time are sent at once.
#[test]
fn bbr_keeps_its_rate_when_timers_are_late() {
    let punctual = rate(Duration::ZERO);
    assert!(punctual > 10e6, "{punctual}");
    for ms in 1..=4 {
        let late = rate(ms * MS);
        eprintln!("{ms} ms: {late} of {punctual}");
        assert!(late > 0.95 * punctual, "{ms} ms: {late} of {punctual}");
    }
}

/// On a busy machine, more than three PTOs can pass between the application's close and the next
/// time the connection runs.
#[test]
fn close_with_a_late_timer_still_informs_the_peer() {
    let mut network = Network::new(1, Faults::none());
    network.connect();
    let mut now = network.now();
    network.server_mut().close(now, VarInt::from_u32(7), "done");
    now += Duration::from_secs(5);
    let server = network.server_mut();
    server.handle_timeout(now);
    assert!(!server.is_drained());
    let mut buffer = vec![0; 1500];
    let sent = server.poll_transmit(now, &mut buffer).expect("the peer is notified");
    let until = server.poll_timeout().expect("the connection is discarded later");
    server.handle_timeout(until);
    assert!(server.is_drained());
    let remote = network.client.remote_address();
    let arrival = DatagramMeta { remote, local: None, ecn: EcnCodepoint::NotEct };
    network.client.handle_datagram(now, arrival, &mut buffer[..sent.size]);
    let expected =
        ConnectionError { application: true, code: 7, reason: "done".into(), violation: None };
    let events: Vec<Event> = std::iter::from_fn(|| network.client.poll_event()).collect();
    assert!(events.contains(&Event::Closed(CloseReason::Peer(expected))), "{events:?}");
}

/// An end whose timer was late may not have read what the peer sent in the meantime. The peer had
/// no CPU time either and may not have read the close. A packet of the peer must be answered with
/// the close, not with a stateless reset.
#[test]
fn close_with_a_late_timer_lasts_longer() {
    let mut network = Network::new(1, Faults::none());
    network.connect();
    let mut now = network.now();
    let id = network.client.open(Direction::Unidirectional).unwrap();
    network.client.streams().write(id, b"more").unwrap();
    let mut buffer = vec![0; 1500];
    let late = network.client.poll_transmit(now, &mut buffer).unwrap();
    let server = network.server_mut();
    server.close(now, VarInt::from_u32(7), "done");
    server.poll_transmit(now, &mut [0; 1500]).expect("the peer is notified");
    now += Duration::from_secs(5);
    server.handle_timeout(now);
    assert!(!server.is_drained());
    let remote = server.remote_address();
    let arrival = DatagramMeta { remote, local: None, ecn: EcnCodepoint::NotEct };
    server.handle_datagram(now, arrival, &mut buffer[..late.size]);
    server.poll_transmit(now, &mut buffer).expect("the peer is notified again");
    // Later timers are handled on time.
    let until = server.poll_timeout().unwrap();
    server.handle_timeout(until);
    assert!(server.is_drained());
}

/// A closed connection is discarded even if nothing can be sent.
#[test]
fn close_that_cannot_be_sent_is_forgotten() {
    let mut network = Network::new(1, Faults::none());
    network.connect();
    let now = network.now();
    let server = network.server_mut();
    server.close(now, VarInt::from_u32(7), "done");
    for _ in 0..4 {
        assert!(!server.is_drained());
        let until = server.poll_timeout().unwrap();
        server.handle_timeout(until);
    }
    assert!(server.is_drained());
}
