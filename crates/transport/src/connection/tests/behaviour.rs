//! Behaviour of a connection on different paths: windows, losses, datagram sizes. The tests print
//! their figures: `cargo test -p equic-transport --lib behaviour -- --nocapture`.

use super::*;

/// Returns a path on which only a full queue causes losses. The arguments are the rate in Mb/s, the
/// one-way delay, and the size of the queue in bandwidth-delay products.
fn path(megabits: u64, one_way: Duration, queue: f64) -> Faults {
    let rate = Some(megabits * 125_000);
    Faults { rate, delay: one_way, queue: (one_way * 2).mul_f64(queue), ..Faults::none() }
}

/// Creates a network in which flow control does not limit the sender.
fn unhindered(seed: u64, faults: Faults, algorithm: Algorithm) -> Network {
    Network::with(seed, faults, |config| {
        config.congestion = Arc::new(algorithm);
        let (streams, window) = (&mut config.streams, 64 << 20);
        (streams.stream_window, streams.max_stream_window) = (window, window);
        (streams.connection_window, streams.max_connection_window) = (window, window);
        streams.send_buffer = window;
    })
}

/// The path holds half a megabyte, and the send buffer begins with an eighth of that. The buffer
/// must grow until the path is used fully. Otherwise BBR would never leave its startup, because its
/// model sees an application-limited sender.
#[test]
fn stream_small_buffer_does_not_stall() {
    for algorithm in [Algorithm::NewReno, Algorithm::Cubic, Algorithm::Bbr] {
        let mut network = Network::with(1, path(80, 25 * MS, 1.0), |config| {
            config.congestion = Arc::new(algorithm);
            let (streams, window) = (&mut config.streams, 64 << 20);
            (streams.stream_window, streams.max_stream_window) = (window, window);
            (streams.connection_window, streams.max_connection_window) = (window, window);
            streams.send_buffer = 64 << 10;
        });
        network.connect();
        let start = network.now();
        send_one_way(&mut network, 10_000_000);
        let took = network.now().since(start);
        // With a buffer of a fixed size it would take eight seconds.
        assert!(took < Duration::from_secs(4), "{algorithm}: {took:?}, {}", network.describe());
        assert_ne!(network.client.path().controller().state(), "startup");
    }
}

fn window(network: &Network) -> u64 {
    network.client.path().controller().window()
}

/// RFC 9002 s.7.8: the first flight of data fills the window, whatever was sent before. With the
/// handshake, 100 KB take three round trips of growth, plus the time to send the rest.
#[test]
fn cwnd_grows_with_the_first_full_flight() {
    for algorithm in [Algorithm::NewReno, Algorithm::Cubic] {
        let mut network = unhindered(1, path(10, 50 * MS, 1.0), algorithm);
        network.run_until(Duration::from_secs(5), |client, _| client.handshake.is_complete());
        send_one_way(&mut network, 100_000);
        let took = network.now().since(Timestamp::START);
        eprintln!("{algorithm}: 100 KB at 10 Mb/s and 100 ms with the handshake: {took:?}");
        assert!(took < 490 * MS, "{algorithm}: {took:?}");
    }
}

/// The same holds after a pause.
#[test]
fn cwnd_grows_with_a_full_flight_after_a_pause() {
    for algorithm in [Algorithm::NewReno, Algorithm::Cubic] {
        let mut network = unhindered(1, path(10, 50 * MS, 1.0), algorithm);
        network.connect();
        let first = window(&network);
        network.wait(Duration::from_secs(5));
        assert_eq!(window(&network), first, "{algorithm}");
        let start = network.now();
        send_one_way(&mut network, 100_000);
        let took = network.now().since(start);
        eprintln!("{algorithm}: 100 KB after a pause: {took:?}");
        assert!(took < 390 * MS, "{algorithm}: {took:?}");
    }
}

/// Bursts that never fill the window must not increase it, although the pacer delays a part of
/// them.
#[test]
fn cwnd_does_not_grow_with_small_bursts() {
    for algorithm in [Algorithm::NewReno, Algorithm::Cubic] {
        let faults = Faults { delay: 50 * MS, ..Faults::none() };
        let mut network = unhindered(1, faults, algorithm);
        network.connect();
        send_one_way(&mut network, 400_000);
        network.wait(Duration::from_secs(1));
        let grown = window(&network);
        let burst = grown as usize / 2;
        assert!(burst > 20 * 1472, "the burst is not larger than what is sent at once: {burst}");
        for _ in 0..10 {
            send_one_way(&mut network, burst);
            network.wait(Duration::from_secs(1));
        }
        assert_eq!(window(&network), grown, "{algorithm}");
    }
}

/// A queue that overflows drops six or more datagrams at once. This is not a black hole (RFC 8899
/// s.4.3).
#[test]
fn mtu_full_queue_is_no_black_hole() {
    let fast = if OPTIMIZED { 1000 } else { 200 };
    let cells = [(10, MS), (100, 5 * MS), (fast, 5 * MS)];
    for algorithm in [Algorithm::NewReno, Algorithm::Cubic, Algorithm::Bbr] {
        for (megabits, one_way) in cells {
            for queue in [0.5, 1.0, 2.0] {
                let mut network = unhindered(1, path(megabits, one_way, queue), algorithm);
                network.connect();
                let product = megabits * 125 * 2 * one_way.as_millis() as u64;
                send_one_way(&mut network, (8 * product).max(500_000) as usize);
                let (lost, mtu) =
                    (network.client.stats().packets_lost, network.client.path().mtu());
                let cell = format!("{algorithm}, {megabits} Mb/s, {one_way:?}, {queue} BDP");
                eprintln!("{cell}: {lost} lost, datagrams of {mtu}");
                assert_eq!(mtu, 1472, "{cell}: {lost} lost");
            }
        }
    }
}

/// A real black hole is detected within a few PTOs.
#[test]
fn mtu_black_hole_is_left_in_bounded_time() {
    let begins = Duration::from_millis(500);
    for algorithm in [Algorithm::NewReno, Algorithm::Cubic, Algorithm::Bbr] {
        for one_way in [5 * MS, 50 * MS] {
            let hole = Some((begins, 1300));
            let faults = Faults { black_hole: hole, ..path(10, one_way, 1.0) };
            let mut network = unhindered(1, faults, algorithm);
            network.connect();
            let id = network.client.open(Direction::Unidirectional).unwrap();
            let (mut from, mut buffer) = (None, [0; 4096]);
            network.run_until(Duration::from_secs(60), |client, server| {
                let _ = client.streams().write(id, &[7; 4096]);
                from = from.or_else(|| server.accept(Direction::Unidirectional));
                while from.is_some_and(|id| {
                    matches!(server.streams().read(id, &mut buffer), Ok(ReadOutcome::Bytes(1..)))
                }) {}
                client.now.since(Timestamp::START) > begins && client.path().mtu() < 1472
            });
            let took = network.now().since(Timestamp::START) - begins;
            let timeouts = network.client.stats().probe_timeouts;
            eprintln!("{algorithm}, {one_way:?}: left after {took:?}, {timeouts} probe timeouts");
            assert!(took < 40 * one_way + 500 * MS, "{algorithm}, {one_way:?}: {took:?}");
        }
    }
}

/// On a path that loses 1 % of packets, NewReno's throughput is near the known estimate: one
/// datagram per round trip, times the square root of 3 / 2p (Mathis et al., 1997). This test prints
/// the figure. `reno_keeps_what_it_has_grown_at_a_reduction` checks that growth outlasts a
/// reduction.
#[test]
fn cwnd_reno_on_a_path_with_loss() {
    let megabytes = if OPTIMIZED { 10 } else { 4 };
    let (seeds, loss, round_trip) = (8, 0.01, 0.1);
    let mut total = Duration::ZERO;
    for seed in 1..=seeds {
        let faults = Faults { delay: 50 * MS, loss, ..Faults::none() };
        let mut network = unhindered(seed, faults, Algorithm::NewReno);
        network.connect();
        send_one_way(&mut network, megabytes * 1_000_000);
        total += network.now().since(Timestamp::START);
    }
    let mean = (total / seeds as u32).as_secs_f64();
    let rate = 1472.0 / round_trip * (1.5 / loss).sqrt();
    let known = megabytes as f64 * 1e6 / rate;
    eprintln!(
        "newreno: {megabytes} MB with 1 % lost: {mean:.1} s, the mean of {seeds}; {known:.1} s"
    );
    assert!((0.75 * known..1.25 * known).contains(&mean), "{mean:.1} s, not about {known:.1}");
}

/// HyStart++ leaves slow start before a deep queue overflows (RFC 9406 s.4.2). Another round would
/// grow the window by a quarter and cause hundreds of losses.
#[test]
fn cwnd_hystart_ends_slow_start_before_a_deep_queue_overflows() {
    for (megabits, one_way) in [(20, 25 * MS), (50, 10 * MS), (100, 10 * MS)] {
        let mut network = unhindered(1, path(megabits, one_way, 8.0), Algorithm::Cubic);
        network.connect();
        send_one_way(&mut network, 15_000_000);
        let lost = network.client.stats().packets_lost;
        eprintln!("cubic, {megabits} Mb/s, {one_way:?}, 8 BDP: {lost} packets lost");
        assert!(lost < 100, "{megabits} Mb/s, {one_way:?}: {lost}");
    }
}

/// An application keeps writing to a peer that reads nothing. Once flow control blocks it, the
/// connection must send no packets without frames.
#[test]
fn cwnd_full_sends_no_packets() {
    let mut network = Network::with(1, Faults::none(), |config| {
        (config.streams.stream_window, config.streams.max_stream_window) = (64 << 10, 64 << 10);
    });
    network.connect();
    let id = network.client.open(Direction::Unidirectional).unwrap();
    assert_eq!(network.client.streams().write(id, &[7; 100_000]), Ok(100_000));
    network.wait(Duration::from_secs(1));
    let sent = network.client.stats().packets_sent;
    for _ in 0..100 {
        assert_eq!(network.client.streams().write(id, &[7; 100]), Ok(100));
        network.wait(MS);
    }
    assert_eq!(network.client.stats().packets_sent, sent);
}
