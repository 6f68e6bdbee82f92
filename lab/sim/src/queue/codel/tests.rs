//! Tests of CoDel against RFC 8289.

use super::*;
use crate::Queue;
use crate::queue::testing::{At, capable, packet};

const MS: u64 = 1_000;

/// Simulates a queue that receives and sends a packet of 1,000 bytes per millisecond, with a delay
/// of 200 ms. Returns the times of drops or marks, in microseconds.
fn drops(codel: CoDel, make: fn(u32, u32) -> Packet, millis: u64) -> (At, Vec<u64>) {
    let mut queue = At::new(&Queue::CoDel(codel), 8e6);
    for label in 0..200 {
        queue.enqueue(0, make(label, 1_000));
    }
    let (mut moments, mut seen) = (Vec::new(), 0);
    for step in 1..=millis * 100 {
        let now = step * 10;
        // The queue is polled every 10 us, so that times are exact to 10 us. It is refilled, so
        // that its length stays the same.
        if queue.dequeue(now).is_some() {
            queue.enqueue(now.saturating_sub(200 * MS), make(0, 1_000));
        }
        while queue.queue.packets() < 200 {
            queue.enqueue(now.saturating_sub(200 * MS), make(0, 1_000));
        }
        let now_seen = queue.dropped.len() as u64 + queue.queue.marked();
        moments.extend((seen..now_seen).map(|_| now));
        seen = now_seen;
    }
    (queue, moments)
}

fn intervals(moments: &[u64]) -> Vec<u64> {
    moments.windows(2).map(|pair| pair[1] - pair[0]).collect()
}

/// RFC 8289 s.3.2, s.5.6: the first drop must come one interval after the delay exceeded the
/// target. The n-th drop must be followed by the next one after interval / sqrt(n).
#[test]
fn codel_drop_interval_falls_with_the_square_root() {
    let (queue, moments) = drops(CoDel::default(), packet, 2_000);
    // The delay is above the target from 5 ms on, and is tolerated for 100 ms.
    assert!((105 * MS..=105 * MS + 20).contains(&moments[0]), "{moments:?}");
    assert!(moments.len() > 30);
    for (index, gap) in intervals(&moments).into_iter().enumerate() {
        let expected = 100_000.0 / f64::from(index as u32 + 1).sqrt();
        assert!((gap as f64 - expected).abs() <= 10.0, "{index}: {gap}, not {expected}");
    }
    assert_eq!(queue.queue.marked(), 0);
}

/// RFC 8289 s.5.5: if dropping begins again soon after it has stopped, it must continue at the same
/// rate. If it begins later, it must start at the lowest rate.
#[test]
fn codel_resumes_its_drop_rate_for_a_while() {
    let second_gap = |pause: u64| {
        let mut queue = At::new(&Queue::CoDel(CoDel::default()), 8e6);
        // Each packet waits in the queue for `wait`. Returns the times of the drops in this range,
        // in units of 10 us.
        let mut phase = |range: std::ops::Range<u64>, wait: u64| {
            let mut moments = Vec::new();
            for now in range.map(|step| 10 * step) {
                while queue.queue.packets() < 10 {
                    queue.enqueue(now.saturating_sub(wait), packet(0, 1_000));
                }
                // Removes packets that have waited too long.
                queue.dequeue(now);
                moments.extend(queue.dropped.drain(..).map(|_| now));
            }
            moments
        };
        let first = phase(5_000..105_000, 50 * MS);
        phase(105_000..105_000 + pause, 0);
        let second = phase(105_000 + pause..155_000 + pause, 50 * MS);
        (first.len() as f64, (second[1] - second[0]) as f64)
    };
    // Dropping stops for half a second, then for three seconds. CoDel remembers its drop rate for
    // 16 intervals, which are 1.6 s.
    let (count, gap) = second_gap(50_000);
    let expected = 100_000.0 / (count - 1.0).sqrt();
    assert!((gap - expected).abs() <= 20.0, "{gap}, not {expected} after {count}");
    let (_, gap) = second_gap(300_000);
    assert!((gap - 100_000.0).abs() <= 20.0, "{gap}");
}

#[test]
fn codel_marks_when_it_would_drop() {
    let codel = CoDel { ecn: true, ..CoDel::default() };
    let (queue, marks) = drops(codel, capable, 2_000);
    assert!(queue.dropped.is_empty() && marks.len() > 30);
    assert_eq!(intervals(&marks)[..20], intervals(&drops(codel, packet, 2_000).1)[..20]);
}

/// RFC 8289 s.5.5: nothing may be dropped while the delay is below the target, or while the queue
/// has at most one packet.
#[test]
fn codel_leaves_a_good_queue_alone() {
    // The queue has a delay of 4 ms for two seconds.
    let mut queue = At::new(&Queue::CoDel(CoDel::default()), 8e6);
    for millis in 0..2_000u64 {
        queue.enqueue(millis * MS, packet(0, 1_000));
        if millis >= 4 {
            assert!(queue.dequeue(millis * MS).is_some());
        }
    }
    assert!(queue.dropped.is_empty());
    // A slow link with one packet in the queue at a time, each with a delay of 50 ms. No packet may
    // be dropped, because the queue cannot become shorter.
    let mut queue = At::new(&Queue::CoDel(CoDel::default()), 2.4e5);
    for step in 0..100u64 {
        queue.enqueue(step * 50 * MS, packet(0, 1_500));
        assert!(queue.dequeue((step + 1) * 50 * MS).is_some());
    }
    assert!(queue.dropped.is_empty());
}

/// A sender whose only control is a congestion window. It halves the window on a loss, at most once
/// per round trip. Otherwise it adds a packet to the window per round trip.
struct Sender {
    window: f64,
    flying: f64,
    halved: u64,
}

/// Simulates four senders, 50 ms away, that share a link of 8 Mb/s (one packet of 1,000 bytes per
/// millisecond) for 60 seconds. Returns the sorted queueing delays, and the number of milliseconds
/// after the first ten seconds in which the link was idle.
fn loaded(queue: &Queue) -> (Vec<u64>, u32) {
    let mut queue = At::new(queue, 8e6);
    let start = || Sender { window: 4.0, flying: 0.0, halved: 0 };
    let mut senders: Vec<Sender> = (0..4).map(|_| start()).collect();
    let mut acks = std::collections::VecDeque::new();
    let (mut waits, mut idle) = (Vec::new(), 0);
    for now in 0..60_000u64 {
        while let Some((_, label)) = acks.pop_front_if(|(at, _): &mut (u64, u32)| *at <= now) {
            let sender = &mut senders[label as usize];
            sender.flying -= 1.0;
            sender.window += 1.0 / sender.window;
        }
        for (lost, _) in queue.dropped.drain(..) {
            let sender = &mut senders[lost.label as usize];
            sender.flying -= 1.0;
            if now > sender.halved + 60 {
                *sender = Sender { window: (sender.window / 2.0).max(1.0), halved: now, ..*sender };
            }
        }
        for (label, sender) in senders.iter_mut().enumerate() {
            while sender.flying + 1.0 <= sender.window {
                queue.enqueue(now * MS, packet(label as u32, 1_000));
                sender.flying += 1.0;
            }
        }
        match queue.dequeue(now * MS) {
            Some(packet) => {
                acks.push_back((now + 50, packet.label));
                let waited = now - packet.queued_at.as_nanos() / 1_000_000;
                waits.extend((now > 10_000).then_some(waited));
            }
            None => idle += u32::from(now > 10_000),
        }
    }
    waits.sort_unstable();
    (waits, idle)
}

/// RFC 8289 s.3.2, s.4.4: the delay must approach the target of 5 ms and stay near it, and the link
/// must stay busy. A drop-tail queue fills up to its limit.
#[test]
fn codel_delay_stays_near_the_target_under_load() {
    let (waits, idle) = loaded(&Queue::CoDel(CoDel::default()));
    let (median, most) = (waits[waits.len() / 2], waits[waits.len() * 99 / 100]);
    assert!((2..=10).contains(&median) && most < 40, "{median} ms, {most} ms");
    assert!(idle < 2_500, "idle for {idle} of 50,000 ms");
    let (waits, _) = loaded(&Queue::DropTail(Limit::Packets(200)));
    assert!(waits[waits.len() / 2] > 120, "{} ms", waits[waits.len() / 2]);
}

#[test]
fn codel_rejects_invalid_settings() {
    let codel = CoDel::default();
    assert_eq!(codel.check(), Ok(()));
    assert_eq!(CoDel { target: Duration::ZERO, ..codel }.check(), Err(QueueError::Interval));
    assert_eq!(CoDel { interval: codel.target, ..codel }.check(), Err(QueueError::Interval));
}
