//! Tests of one property of a link at a time, and of properties that all links have.

use proptest::prelude::*;

use super::*;
use crate::{BlackHole, GilbertElliott, Loss, Stall};

const MS: Duration = Duration::from_millis(1);

/// Sends `count` packets of 1,200 bytes at the same time.
fn verdicts(link: &Link, seed: u64, count: usize) -> Vec<Delivery> {
    let mut port = Port::new(link.clone(), seed);
    (0..count).map(|_| port.send(Duration::ZERO, 1200)).collect()
}

fn count(verdicts: &[Delivery], fate: Fate) -> usize {
    verdicts.iter().filter(|verdict| verdict.fate == fate).count()
}

#[test]
fn port_seed_determines_the_verdicts() {
    let half = Chance::percent(50.0);
    let link = Link { drop: half, corrupt: half, jitter: 5 * MS, ..Link::default() };
    assert_eq!(verdicts(&link, 7, 1000), verdicts(&link, 7, 1000));
    assert_ne!(verdicts(&link, 7, 1000), verdicts(&link, 8, 1000));
}

/// Compares the exact random numbers, because a seed of an older release must replay the same run.
#[test]
fn port_random_numbers_of_a_seed_do_not_change() {
    let link = Link { drop: Chance::percent(50.0), ..Link::default() };
    let lost: String = verdicts(&link, 1, 32)
        .iter()
        .map(|verdict| if verdict.fate == Fate::Dropped { 'x' } else { '.' })
        .collect();
    assert_eq!(lost, "..x.x.xxx.xxx..x.xxx.x.xx..xxxxx");
}

#[test]
fn port_properties_use_independent_random_numbers() {
    let link = Link { drop: Chance::percent(20.0), ..Link::default() };
    let more = Link {
        corrupt: Chance::percent(30.0),
        duplicate: Chance::percent(30.0),
        reorder: Chance::percent(30.0),
        jitter: 9 * MS,
        ..link.clone()
    };
    let lost = |link| -> Vec<bool> {
        verdicts(link, 3, 1000).iter().map(|verdict| verdict.fate == Fate::Dropped).collect()
    };
    assert_eq!(lost(&link), lost(&more));
}

#[test]
fn port_applies_the_configured_shares() {
    let thirty = Chance::percent(30.0);
    for (link, fate) in [
        (Link { drop: thirty, ..Link::default() }, Fate::Dropped),
        (Link { corrupt: thirty, ..Link::default() }, Fate::Corrupted),
        (Link { duplicate: thirty, ..Link::default() }, Fate::Duplicated),
        (Link { reorder: thirty, reorder_by: MS, ..Link::default() }, Fate::Reordered),
    ] {
        let found = count(&verdicts(&link, 3, 10_000), fate);
        assert!((2800..3200).contains(&found), "{found} {fate:?}");
    }
}

#[test]
fn port_corruption_changes_one_byte() {
    let link = Link { corrupt: Chance::percent(100.0), ..Link::default() };
    for verdict in verdicts(&link, 3, 1000) {
        let corruption = verdict.corruption.expect("all are corrupted");
        let mut packet = [0; 1200];
        corruption.apply(&mut packet);
        assert_eq!(packet.iter().filter(|byte| **byte != 0).count(), 1);
    }
    // An empty packet has no byte that could be changed.
    let mut port = Port::new(link, 1);
    assert_eq!(port.send(Duration::ZERO, 0).fate, Fate::Delivered);
}

#[test]
fn port_burst_of_drops_ends() {
    let link = Link { drop: Chance { percent: 100.0, burst: 3 }, ..Link::default() };
    let lost: Vec<bool> =
        verdicts(&link, 1, 8).iter().map(|verdict| verdict.fate == Fate::Dropped).collect();
    assert_eq!(lost, [true, true, true, false, true, true, true, false]);
}

#[test]
fn port_drops_the_listed_packets() {
    let link = Link { drop_list: vec![2, 4], ..Link::default() };
    let lost: Vec<bool> =
        verdicts(&link, 1, 5).iter().map(|verdict| verdict.fate == Fate::Dropped).collect();
    assert_eq!(lost, [false, true, false, true, false]);
}

#[test]
fn port_loss_models_lose_packets_and_change_nothing_else() {
    let plain = Link { duplicate: Chance::percent(30.0), jitter: 9 * MS, ..Link::default() };
    let model = GilbertElliott { to_bad: 0.05, to_good: 0.2, loss_bad: 1.0, loss_good: 0.0 };
    for (loss, share) in [
        (Loss::GilbertElliott(model), model.mean_loss()),
        // A packet has 1,250 bytes with headers, which are 10,000 bits.
        (Loss::BitErrors(1e-5), 1.0 - f64::exp(-0.1)),
    ] {
        let lossy = Link { loss, overhead: 50, ..plain.clone() };
        let (without, with) = (verdicts(&plain, 3, 20_000), verdicts(&lossy, 3, 20_000));
        let lost = count(&with, Fate::Dropped) as f64 / 20_000.0;
        assert!((lost - share).abs() < 0.02, "{loss:?}: {lost}, not {share}");
        for (without, with) in without.iter().zip(&with) {
            assert!(with.fate == Fate::Dropped || with == without);
        }
    }
}

#[test]
fn port_rate_delays_packets_and_includes_headers() {
    // A packet has 1,250 bytes with headers, which take 1 ms at 10 Mb/s.
    let link = Link {
        rate: Some(10_000_000),
        delay: 5 * MS,
        overhead: 28,
        queue: Queue::Packets(2),
        ..Link::default()
    };
    let mut port = Port::new(link, 1);
    assert_eq!(port.send(Duration::ZERO, 1222).arrival, 6 * MS);
    assert_eq!(port.send(Duration::ZERO, 1222).arrival, 7 * MS);
    assert_eq!(port.send(Duration::ZERO, 1222).fate, Fate::QueueFull);
    // After one millisecond, the first packet has been sent, so the queue has room.
    assert_eq!(port.send(MS, 1222).arrival, 8 * MS);
    assert_eq!(port.send(100 * MS, 1222).arrival, 106 * MS);
}

#[test]
fn port_queue_is_limited_by_packets_bytes_or_time() {
    for (queue, fit) in [
        (Queue::Packets(7), 7),
        (Queue::Bytes(5 * 1250), 5),
        (Queue::Bytes(5 * 1250 - 1), 4),
        // The fourth packet waits 3 ms and is queued. The fifth would wait 4 ms and is dropped.
        (Queue::Time(3 * MS), 4),
        (Queue::Unlimited, 20),
    ] {
        let link = Link { rate: Some(10_000_000), overhead: 50, queue, ..Link::default() };
        let arrived = count(&verdicts(&link, 1, 20), Fate::Delivered);
        assert_eq!(arrived, fit, "{queue:?}");
    }
}

#[test]
fn port_jitter_reorders_and_is_bounded() {
    let link = Link { delay: 10 * MS, jitter: 4 * MS, ..Link::default() };
    let arrivals: Vec<Duration> =
        verdicts(&link, 5, 1000).iter().map(|verdict| verdict.arrival).collect();
    assert!(arrivals.iter().all(|at| (10 * MS..=14 * MS).contains(at)));
    assert!(arrivals.windows(2).any(|pair| pair[1] < pair[0]));
}

#[test]
fn port_black_hole_drops_large_packets() {
    let black_hole = Some(BlackHole { from: 10 * MS, mtu: 1300 });
    let mut port = Port::new(Link { mtu: Some(1500), black_hole, ..Link::default() }, 1);
    assert_eq!(port.send(Duration::ZERO, 1501).fate, Fate::TooLarge);
    assert_eq!(port.send(Duration::ZERO, 1500).fate, Fate::Delivered);
    assert_eq!(port.send(10 * MS, 1301).fate, Fate::TooLarge);
    assert_eq!(port.send(10 * MS, 1300).fate, Fate::Delivered);
}

#[test]
fn port_stall_delays_all_packets() {
    let stall = Stall { percent: 100.0, least: 30 * MS, most: 30 * MS };
    let mut port = Port::new(Link { stall, delay: MS, ..Link::default() }, 1);
    assert_eq!(port.send(Duration::ZERO, 100).arrival, 30 * MS);
    assert_eq!(port.send(20 * MS, 100).arrival, 30 * MS);
    // The next period must begin with the first packet after the previous period.
    assert_eq!(port.send(31 * MS, 100).arrival, 61 * MS);
}

fn chance() -> impl Strategy<Value = Chance> {
    (0.0..=100.0, 0..4u32).prop_map(|(percent, burst)| Chance { percent, burst })
}

fn queue() -> impl Strategy<Value = Queue> {
    prop_oneof![
        Just(Queue::Unlimited),
        (0..50usize).prop_map(Queue::Packets),
        (0..50_000usize).prop_map(Queue::Bytes),
        (0..50u32).prop_map(|time| Queue::Time(time * MS)),
    ]
}

prop_compose! {
    fn link()(
        (delay, jitter, late) in (0..50u32, 0..20u32, 0..20u32),
        rate in proptest::option::of(1_000..1_000_000_000u64),
        queue in queue(),
        overhead in 0..60usize,
        (drop, corrupt, duplicate, reorder) in (chance(), chance(), chance(), chance()),
        (percent, most) in (0.0..=100.0, 0..100u32),
    ) -> Link {
        Link {
            delay: delay * MS,
            jitter: jitter * MS,
            rate,
            overhead,
            queue,
            drop,
            corrupt,
            duplicate,
            reorder,
            reorder_by: late * MS,
            stall: Stall { percent, least: Duration::ZERO, most: most * MS },
            ..Link::default()
        }
    }
}

proptest! {
    /// No link may deliver a packet before the packet was sent and has crossed the link, nor
    /// deliver more than the rate allows.
    #[test]
    fn port_is_never_faster_than_its_link(
        link in link(),
        seed: u64,
        packets in proptest::collection::vec((0..3_000_000u64, 0..1500usize), 1..60),
    ) {
        prop_assert_eq!(link.check(), Ok(()));
        let mut port = Port::new(link.clone(), seed);
        let (mut now, mut busy) = (Duration::ZERO, Duration::ZERO);
        for (gap, len) in packets {
            now += Duration::from_nanos(gap);
            let verdict = port.send(now, len);
            if !verdict.fate.arrived() {
                prop_assert_eq!((verdict.arrival, verdict.copy), (now, None));
                continue;
            }
            let bytes = (len + link.overhead) as u64;
            let takes = link.rate.map_or(0, |rate| bytes * 8_000_000_000 / rate);
            busy = busy.max(now) + Duration::from_nanos(takes);
            prop_assert!(verdict.arrival >= busy + link.delay);
            prop_assert!(verdict.copy.is_none_or(|copy| copy >= busy + link.delay));
            prop_assert_eq!(verdict.copy.is_some(), verdict.fate == Fate::Duplicated);
            prop_assert_eq!(verdict.corruption.is_some(), verdict.fate == Fate::Corrupted);
        }
    }
}
