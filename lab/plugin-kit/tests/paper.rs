//! Runs the experiments of "The Case for Protocol Plugins" (De Coninck and Bonaventure, 2019). The
//! results must be those that follow from the timers and the queues.

use std::time::Duration;

use equic_plugin_kit::paper::{
    AckPath, Asymmetric, Capped, DownloadPath, Marking, RequestPath, Timer, asymmetric, capped,
    download, lost_request,
};
use equic_transport::congestion::Algorithm;

const MS: Duration = Duration::from_millis(1);

fn took(timer: Timer, jitter: Duration, seed: u64) -> Duration {
    let path = RequestPath { rtt: 10 * MS, jitter, ack_delay: 10 * MS };
    let push = timer.push().unwrap();
    lost_request(push.as_ref(), &path, seed).unwrap()
}

/// The answer to a lost request must arrive one timeout and one round trip after the request was
/// first sent. The expected timeouts are computed with their formulas.
#[test]
fn paper_timer_decides_when_a_lost_request_is_sent_again() {
    let near = |timer, most: u32| {
        let took = took(timer, Duration::ZERO, 3);
        let most = most * MS;
        assert!(took <= most && took + 2 * MS > most, "{timer:?}: {took:?}");
    };
    near(Timer::Picoquic, 50 + 10 + 1);
    // The probe timeout is 1.5 round trips and the acknowledgement delay.
    near(Timer::PicoquicProbe, 15 + 10 + 10 + 1);
    // Without jitter, the RTT variation becomes small, but each timeout still includes at least one
    // millisecond for it.
    let usual = took(Timer::ProbeTimeout, Duration::ZERO, 3);
    assert!(usual > 30 * MS && usual < 60 * MS, "{usual:?}");
    let (formula, probe) =
        (took(Timer::Formula, Duration::ZERO, 3), took(Timer::TailLossProbe, Duration::ZERO, 3));
    assert!(formula < 60 * MS && probe <= usual.max(36 * MS), "{formula:?}, {probe:?}");
}

#[test]
fn paper_result_depends_on_seed_and_jitter_only() {
    let first = took(Timer::Picoquic, 2 * MS, 1);
    assert_eq!(took(Timer::Picoquic, 2 * MS, 1), first);
    assert_ne!(took(Timer::Picoquic, 2 * MS, 2), first);
}

#[test]
fn paper_ecn_marks_reduce_losses_and_waiting() {
    let path = DownloadPath { rate: 4_000_000, rtt: 100 * MS, controller: Algorithm::NewReno };
    let run = |marking: Marking| {
        let push = marking.push().unwrap();
        download(marking, push.as_ref(), &path, 2_000_000, 1).unwrap()
    };
    let [dropped, plugin, native, averaged] = Marking::ALL.map(run);
    assert!(dropped.lost > 0, "{dropped:?}");
    for marked in [plugin, native] {
        assert!(
            marked.lost < dropped.lost && marked.waited < dropped.waited,
            "{marked:?}, {dropped:?}"
        );
        // At 4 Mb/s, 2 MB take four seconds.
        assert!((4_000 * MS..8_000 * MS).contains(&marked.took), "{marked:?}");
    }
    // The average waiting time rises later than the waiting time in the queue, so packets are
    // marked later.
    assert!(averaged.waited > plugin.waited, "{averaged:?}, {plugin:?}");
}

#[test]
fn paper_ack_path_avoids_the_narrow_return_path() {
    let path = Asymmetric {
        rtt: 40 * MS,
        down: [1_000_000, 10_000_000],
        up: [5_000_000, 100_000],
        ack_frequency: false,
    };
    let [(same, usual), (first, moved)] =
        AckPath::ALL.map(|acks| asymmetric(&path, acks, 1_000_000, 1).unwrap());
    assert!(moved[0] > 10 * moved[1] && usual[1] > moved[1], "{usual:?}, {moved:?}");
    assert!(first < same, "{first:?} with the plugin, {same:?} without");
}

/// The client makes the server limit the rate of a path, and changes the limit after half of the
/// time.
#[test]
fn paper_client_caps_one_path_of_the_server() {
    let caps = vec![(Duration::ZERO, 300_000), (1_500 * MS, 100_000)];
    let (rate, rtt, length, interval) = (8_000_000, 50 * MS, 3_000 * MS, 500 * MS);
    let path = Capped { rate, rtt, caps, length, interval };
    let rates = capped(&path, 1).unwrap();
    assert_eq!(rates.len(), 6);
    for (at, cap) in [(2, 300_000.0), (5, 100_000.0)] {
        let [free, held] = rates[at];
        assert!((0.6 * cap..1.1 * cap).contains(&held), "interval {at}: {rates:?}");
        assert!(free > 700_000.0, "interval {at}: {rates:?}");
    }
    let free = capped(&Capped { caps: Vec::new(), ..path }, 1).unwrap();
    assert!(free[5][1] > 700_000.0, "{free:?}");
}
