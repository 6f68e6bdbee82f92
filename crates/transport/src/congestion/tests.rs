use super::hystart::{HyStart, SlowStart};
use super::*;

const fn at(ms: u64) -> Timestamp {
    Timestamp::from_nanos(ms * 1_000_000)
}

const DATAGRAM: u16 = 1200;

fn rtt_of(ms: u64) -> RttEstimator {
    let mut rtt = RttEstimator::new(Duration::from_millis(ms));
    rtt.update(Timestamp::START, Duration::from_millis(ms), Duration::ZERO);
    rtt
}

/// Plays one round trip that begins at `start`. In it, a whole window is acknowledged, one datagram
/// at a time. Returns the time at which the round trip ends.
fn round(controller: &mut dyn Controller, start: u64, rtt: &RttEstimator) -> u64 {
    let window = controller.window();
    let end = start + rtt.latest().as_millis() as u64;
    for _ in 0..window / u64::from(DATAGRAM) {
        controller.on_sent(at(start), DATAGRAM.into(), window);
        controller.on_ack(&AckSample {
            now: at(end),
            acked: DATAGRAM.into(),
            largest_sent: at(start),
            in_flight: window,
            app_limited: false,
            rtt,
            rate: None,
        });
    }
    end
}

#[test]
fn cwnd_initial_is_that_of_the_rfc() {
    assert_eq!(initial_window(1200), 12_000);
    assert_eq!(initial_window(1472), 14_720);
    assert_eq!(initial_window(9000), 18_000);
}

#[test]
fn cwnd_slow_start_doubles_and_ends_with_loss() {
    for algorithm in [Algorithm::NewReno, Algorithm::Cubic] {
        let mut controller = algorithm.start(DATAGRAM, 0);
        let rtt = rtt_of(50);
        let end = round(&mut *controller, 0, &rtt);
        assert_eq!(controller.window(), 24_000, "{algorithm}");
        controller.on_congestion(at(end), at(end - 1), Signal::Loss { bytes: 1200 });
        let reduced = controller.window();
        let factor = if algorithm == Algorithm::Cubic { 0.7 } else { 0.5 };
        assert_eq!(reduced, (24_000.0 * factor) as u64, "{algorithm}");
        // The controller must react only once per round trip.
        controller.on_congestion(at(end + 1), at(end - 1), Signal::Ecn);
        assert_eq!(controller.window(), reduced, "{algorithm}");
        controller.on_spurious_loss(at(end + 2));
        assert_eq!(controller.window(), 24_000, "{algorithm}: the loss was spurious");
    }
}

#[test]
fn cwnd_that_is_not_used_does_not_grow() {
    for algorithm in [Algorithm::NewReno, Algorithm::Cubic] {
        let mut controller = algorithm.start(DATAGRAM, 0);
        let rtt = rtt_of(50);
        controller.on_ack(&AckSample {
            now: at(50),
            acked: 12_000,
            largest_sent: at(0),
            in_flight: 12_000,
            app_limited: true,
            rtt: &rtt,
            rate: None,
        });
        assert_eq!(controller.window(), 12_000, "{algorithm}");
    }
}

/// Google QUIC emulates two connections, and a loss affects one of them, so 1 - 0.3 / 2 of the
/// window must be left. CUBIC must keep 0.7.
#[test]
fn cwnd_google_quic_behaves_like_two_connections() {
    let (mut two, mut one) = (GoogleQuic.start(DATAGRAM, 0), Algorithm::Cubic.start(DATAGRAM, 0));
    assert_eq!((two.window(), one.window()), (32 * 1200, 12_000));
    assert_eq!((two.name(), one.name()), ("gquic-cubic", "cubic"));
    let share = |controller: &mut dyn Controller| {
        let end = round(controller, 0, &rtt_of(50));
        let before = controller.window();
        controller.on_congestion(at(end), at(end - 1), Signal::Loss { bytes: 1200 });
        controller.window() as f64 / before as f64
    };
    let (two, one) = (share(&mut *two), share(&mut *one));
    assert!((0.84..0.86).contains(&two) && (0.69..0.71).contains(&one), "{two} {one}");
}

#[test]
fn cwnd_reno_grows_a_datagram_a_window() {
    for tcp in [false, true] {
        let mut reno = reno_of_ten(tcp);
        let rtt = rtt_of(50);
        let mut end = 100;
        for _ in 0..5 {
            let before = reno.window();
            end = round(&mut reno, end, &rtt);
            let grown = reno.window() - before;
            let least = if tcp { 1050 } else { 1200 };
            assert!((least..=1200).contains(&grown), "at most a datagram: {grown}");
        }
    }
}

/// Returns a NewReno controller in congestion avoidance, with a window of ten datagrams.
fn reno_of_ten(tcp: bool) -> NewReno {
    let mut reno = if tcp { NewReno::for_tcp(DATAGRAM) } else { NewReno::new(DATAGRAM) };
    let end = round(&mut reno, 0, &rtt_of(50));
    reno.on_congestion(at(end), at(end), Signal::Ecn);
    assert_eq!(reno.window(), 12_000);
    reno
}

/// Acknowledges `bytes` bytes that were sent at the time `sent`.
fn acknowledge(reno: &mut NewReno, bytes: u64, sent: u64) {
    reno.on_ack(&AckSample {
        now: at(sent + 50),
        acked: bytes,
        largest_sent: at(sent),
        in_flight: 12_000,
        app_limited: false,
        rtt: &rtt_of(50),
        rate: None,
    });
}

/// RFC 9002 s.7.3.3, RFC 3465 s.2.1: bytes that were acknowledged before a loss must count toward
/// the next growth. Otherwise the window could never grow if every flight has a loss.
#[test]
fn cwnd_reno_counts_what_was_acknowledged_before_a_reduction() {
    let mut reno = reno_of_ten(false);
    acknowledge(&mut reno, 9_000, 100);
    assert_eq!(reno.window(), 12_000, "three quarters of a window");
    reno.on_congestion(at(160), at(110), Signal::Ecn);
    assert_eq!(reno.window(), 6_000);
    acknowledge(&mut reno, 2_400, 120);
    assert_eq!(reno.window(), 6_000, "the data was sent before the reduction");
    // So far, 9,001 bytes were acknowledged: one and a half windows of 6,000. The window grows by
    // one datagram.
    acknowledge(&mut reno, 1, 170);
    assert_eq!(reno.window(), 7_200);
    // 3,001 + 4,198 acknowledged bytes are less than the window of 7,200, so it does not grow.
    acknowledge(&mut reno, 4_198, 180);
    assert_eq!(reno.window(), 7_200);
    acknowledge(&mut reno, 1, 190);
    assert_eq!(reno.window(), 8_400);
    // The window grows by one datagram for each acknowledged window: 8,400 and 9,600 bytes.
    acknowledge(&mut reno, 18_000, 200);
    assert_eq!(reno.window(), 10_800);
}

/// The bytes acknowledged by the ACK frame that reveals a loss must count as acknowledged before
/// the loss. Bytes of later ACK frames belong to the recovery period.
#[test]
fn cwnd_reno_counts_what_is_acknowledged_with_the_loss() {
    let mut reno = reno_of_ten(false);
    reno.on_congestion(at(160), at(110), Signal::Loss { bytes: 1_200 });
    assert_eq!(reno.window(), 6_000);
    acknowledge(&mut reno, 2_400, 110);
    acknowledge(&mut reno, 2_400, 110);
    assert_eq!(reno.window(), 6_000);
    acknowledge(&mut reno, 3_599, 170);
    assert_eq!(reno.window(), 6_000);
    acknowledge(&mut reno, 1, 170);
    assert_eq!(reno.window(), 7_200);
    // A timer detects this loss, so no ACK frame belongs to it.
    reno.on_congestion(at(300), at(250), Signal::Loss { bytes: 1_200 });
    acknowledge(&mut reno, 2_400, 251);
    acknowledge(&mut reno, 3_599, 310);
    assert_eq!(reno.window(), 3_600);
}

/// After persistent congestion, bytes that were acknowledged before it must not count toward
/// growth.
#[test]
fn cwnd_reno_restarts_its_count_after_persistent_congestion() {
    let mut reno = reno_of_ten(false);
    acknowledge(&mut reno, 10_800, 100);
    reno.on_persistent_congestion(at(160));
    reno.adjustable().unwrap().set_slow_start_threshold(Some(0));
    acknowledge(&mut reno, 2_399, 170);
    assert_eq!(reno.window(), 2_400);
    acknowledge(&mut reno, 1, 180);
    assert_eq!(reno.window(), 3_600);
}

/// TCP's window must grow with each acknowledgment, and by at most one segment per round trip (RFC
/// 5681 s.3.1). A reduction must halve the whole window, including what it has grown since the last
/// full window was acknowledged.
#[test]
fn cwnd_tcp_reno_grows_by_parts_of_a_segment() {
    let mut reno = reno_of_ten(true);
    // Acknowledge nine tenths of a window.
    acknowledge(&mut reno, 10_800, 100);
    assert_eq!(reno.window(), 12_000 + 1_080);
    reno.on_congestion(at(160), at(110), Signal::Ecn);
    assert_eq!(reno.window(), (12_000 + 1_080) / 2);
}

/// RFC 9438 s.4.2: after the time K, the window must be back at W_max. Its curve must be concave
/// before that time and convex after it.
#[test]
fn cwnd_cubic_is_back_after_k_and_then_grows_faster() {
    let rtt = rtt_of(100);
    let mut cubic = Cubic::new(DATAGRAM);
    let mut end = 0;
    // The initial 10 datagrams are doubled six times, to 640.
    for _ in 0..6 {
        end = round(&mut cubic, end, &rtt);
    }
    let peak = cubic.window() / u64::from(DATAGRAM);
    assert_eq!(peak, 640);
    cubic.on_congestion(at(end), at(end), Signal::Loss { bytes: 1200 });
    end += 1;
    let k = (640.0f64 * 0.3 / 0.4).cbrt();
    let start = end;
    let mut grown = Vec::new();
    while end < start + (2.0 * k * 1000.0) as u64 {
        let before = cubic.window();
        end = round(&mut cubic, end, &rtt);
        grown.push((end - start, cubic.window() - before, cubic.window()));
    }
    let at_k = grown.iter().find(|(time, ..)| *time as f64 >= k * 1000.0).unwrap();
    let ratio = at_k.2 as f64 / (640.0 * 1200.0);
    assert!((0.97..1.03).contains(&ratio), "at K, the window is {ratio} of W_max");
    let middle = grown.len() / 2;
    assert!(grown[1].1 > 4 * grown[middle].1, "concave at first: {grown:?}");
    assert!(grown[grown.len() - 1].1 > 4 * grown[middle].1, "convex after K: {grown:?}");
}

/// With a short round-trip time and a small window, CUBIC's curve grows more slowly than Reno.
/// CUBIC must then follow Reno (RFC 9438 s.4.3).
#[test]
fn cwnd_cubic_is_not_slower_than_reno_on_short_paths() {
    let rtt = rtt_of(2);
    let (mut cubic, mut reno) = (Cubic::new(DATAGRAM), NewReno::new(DATAGRAM));
    for controller in [&mut cubic as &mut dyn Controller, &mut reno] {
        let end = round(controller, 0, &rtt);
        controller.on_congestion(at(end), at(end), Signal::Loss { bytes: 1200 });
        let mut time = end + 1;
        for _ in 0..200 {
            time = round(controller, time, &rtt);
        }
    }
    assert!(cubic.window() * 10 >= reno.window() * 9, "{} {}", cubic.window(), reno.window());
}

#[test]
fn cwnd_hystart_ends_slow_start_after_a_lasting_delay() {
    let mut steady = HyStart::new();
    let mut risen = HyStart::new();
    let (mut left, mut time) = (None, 0);
    for number in 0..12 {
        let extra = if number >= 3 { 20 } else { 0 };
        let spike = if number == 3 { 20 } else { 0 };
        let end = time + 50;
        for _ in 0..10 {
            let grown = steady.on_ack(at(end), 1200, at(time), Duration::from_millis(50 + spike));
            assert_ne!(grown, SlowStart::Leave, "a spike of one round does not end slow start");
            let grown = risen.on_ack(at(end), 1200, at(time), Duration::from_millis(50 + extra));
            if grown == SlowStart::Leave {
                left = left.or(Some(number));
            }
        }
        time = end;
    }
    // The higher delay shows in round 3, which is the first of five rounds of conservative slow
    // start (RFC 9406 s.4.2). So the acknowledgment that begins round 8 ends slow start.
    assert_eq!(left, Some(8));
}

#[test]
fn cwnd_persistent_congestion_starts_over() {
    for algorithm in [Algorithm::NewReno, Algorithm::Cubic] {
        let mut controller = algorithm.start(DATAGRAM, 0);
        controller.on_persistent_congestion(at(1000));
        assert_eq!(controller.window(), 2400, "{algorithm}: kMinimumWindow");
    }
}

#[test]
fn pacing_keeps_to_the_rate() {
    let rate = Rate::bytes_per_second(12_000_000.0);
    let mut pacer = Pacer::new(at(0), 12_000);
    let (mut now, mut sent) = (at(0), 0u64);
    while now < at(1000) {
        match pacer.next(now, rate, DATAGRAM) {
            None => {
                pacer.on_sent(DATAGRAM.into());
                sent += u64::from(DATAGRAM);
            }
            Some(later) => {
                assert!(later > now, "no busy waiting");
                now = later;
            }
        }
    }
    let share = sent as f64 / 12_000_000.0;
    assert!((0.99..1.01).contains(&share), "{share} of the rate");
}

#[test]
fn cwnd_algorithm_names_round_trip() {
    for algorithm in [Algorithm::NewReno, Algorithm::Cubic, Algorithm::Bbr] {
        assert_eq!(algorithm.to_string().parse(), Ok(algorithm));
    }
    let error = "vegas".parse::<Algorithm>().unwrap_err().to_string();
    assert!(error.contains("`cubic`"), "{error}");
}
