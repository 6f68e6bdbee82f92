//! Ends that come to their timers late, as on a machine that has other things to do.

use super::*;

/// Bytes a second that BBR gets through a path of 100 Mb/s and 30 ms each way when both ends have the CPU so seldom.
fn rate(every: Duration) -> f64 {
    const BYTES: usize = 25_000_000;
    let faults = Faults { rate: Some(12_500_000), delay: 30 * MS, ..Faults::none() };
    let mut network = Network::with(1, faults, |config| {
        config.congestion = Arc::new(Algorithm::Bbr);
        let streams = &mut config.streams;
        // Nothing but the pace holds it back.
        (streams.stream_window, streams.connection_window) = (8 << 20, 8 << 20);
        streams.send_buffer = 8 << 20;
    });
    network.every = every;
    network.connect();
    let start = network.now();
    send_one_way(&mut network, BYTES);
    BYTES as f64 / network.now().since(start).as_secs_f64()
}

/// Timers that are up to 4 ms late cost nothing: what would have left in that time leaves when they come.
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
