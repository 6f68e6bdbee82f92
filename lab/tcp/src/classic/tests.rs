use std::time::Duration;

use equic_transport::congestion::{Algorithm, RttEstimator, Signal};

use super::*;

const DATAGRAM: u16 = 1_000;

const fn at(ms: u64) -> Timestamp {
    Timestamp::from_nanos(ms * 1_000_000)
}

/// Simulates a path that carries `rate` bytes per millisecond. Bytes in flight beyond what the path
/// itself holds wait in its queue. Each of the rounds in `lossy` has a loss. Returns the window
/// after each round trip.
fn play(controller: &mut dyn Controller, rate: u64, base: u64, lossy: &[u64]) -> Vec<u64> {
    let mut rtt = RttEstimator::new(Duration::from_millis(base));
    let (mut now, mut windows) = (0, Vec::new());
    for round in 0..200 {
        let window = controller.window();
        let trip = base.max(window / rate);
        let end = now + trip;
        rtt.update(at(end), Duration::from_millis(trip), Duration::ZERO);
        if lossy.contains(&round) {
            controller.on_congestion(at(end), at(end), Signal::Loss { bytes: DATAGRAM.into() });
        }
        for _ in 0..window / u64::from(DATAGRAM) {
            controller.on_ack(&AckSample {
                now: at(end),
                acked: DATAGRAM.into(),
                largest_sent: at(now),
                in_flight: window,
                app_limited: false,
                rtt: &rtt,
                rate: None,
            });
        }
        now = end + 1;
        windows.push(controller.window() / u64::from(DATAGRAM));
    }
    windows
}

/// 100 datagrams fill the path, so Vegas must keep between alpha and beta datagrams in the queue.
#[test]
fn cwnd_vegas_keeps_a_few_datagrams_in_the_queue() {
    let windows = play(&mut *Classic::Vegas.start(DATAGRAM, 0), 1_000, 100, &[]);
    let steady = &windows[150..];
    assert!(steady.iter().all(|window| (101..=106).contains(window)), "{windows:?}");
}

/// The window does not fill the path when the loss occurs. Westwood+ must keep the window that fits
/// the measured rate, which follows the actual rate with some delay. Reno must halve its window.
#[test]
fn cwnd_westwood_keeps_the_rate_of_the_path() {
    let after = |controller: &mut dyn Controller| {
        let windows = play(controller, 1_000, 100, &[5, 95]);
        (windows[94], windows[95])
    };
    let (before, now) = after(&mut *Classic::Westwood.start(DATAGRAM, 0));
    assert!(now * 10 > before * 8, "{before} {now}");
    let (before, now) = after(&mut *Algorithm::NewReno.start(DATAGRAM, 0));
    assert!(now * 10 < before * 6, "{before} {now}");
}

/// After a loss, the window of BIC must return to its old size fast at first, slowly near it, and
/// faster again beyond it.
#[test]
fn cwnd_bic_searches_for_the_window_of_the_loss() {
    let windows = play(&mut *Classic::Bic.start(DATAGRAM, 0), 1_000_000, 100, &[6]);
    let (peak, low) = (windows[5], windows[6]);
    assert!((peak as f64 * 0.79..=peak as f64 * 0.81).contains(&(low as f64)), "{windows:?}");
    assert_eq!(windows[8] - windows[7], 16, "{windows:?}");
    let back = windows.iter().skip(7).position(|window| *window + 1 >= peak).unwrap() + 7;
    assert!(windows[back] - windows[back - 1] <= 1, "{windows:?}");
    assert_eq!(windows[199] - windows[198], 16, "{windows:?}");
}

#[test]
fn cwnd_after_losses_timeouts_and_spurious_losses() {
    for classic in [Classic::Bic, Classic::Vegas, Classic::Westwood] {
        let mut controller = classic.start_tcp(DATAGRAM, 0);
        play(&mut *controller, 1_000_000, 100, &[4]);
        let before = controller.window();
        controller.on_retransmission_timeout(at(1_000_000));
        assert_eq!(controller.window(), 1_000, "{classic}");
        controller.on_spurious_loss(at(1_000_001));
        assert_eq!(controller.window(), before, "{classic}");
        controller.on_persistent_congestion(at(1_000_002));
        assert_eq!(controller.window(), 2_000, "{classic}");
        assert_eq!(controller.name(), classic.to_string());
    }
}
