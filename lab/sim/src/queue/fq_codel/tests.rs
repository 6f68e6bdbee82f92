//! Tests of FQ-CoDel against RFC 8290.

use super::*;
use crate::Queue;
use crate::packet::DropCause;
use crate::queue::testing::{At, packet};

fn queue(fq: FqCoDel) -> At {
    At::new(&Queue::FqCoDel(fq), 1e7)
}

/// RFC 8290 s.4: a flow without queued packets must go before flows with queued packets.
#[test]
fn fq_codel_sends_a_new_flow_first() {
    let mut queue = queue(FqCoDel::default());
    for _ in 0..50 {
        queue.enqueue(0, packet(1, 1_500));
    }
    // A new flow may send 1,514 bytes in its first turn, so it sends a second packet.
    for _ in 0..4 {
        assert_eq!(queue.dequeue(1).unwrap().label, 1);
    }
    queue.enqueue(2, packet(2, 100));
    assert_eq!(queue.dequeue(3).unwrap().label, 2);
    assert_eq!(queue.dequeue(4).unwrap().label, 1);
}

/// RFC 8290 s.4.2: a queue that becomes empty must first move to the end of the old queues.
/// Otherwise a flow that sends a packet each time its last one was sent would stay new, and always
/// have priority.
#[test]
fn fq_codel_flow_does_not_stay_new() {
    let mut queue = queue(FqCoDel::default());
    let (mut bytes, mut waits) = ([0, 0], false);
    for _ in 0..5_000 {
        queue.enqueue(0, packet(0, 300));
    }
    for _ in 0..2_000 {
        let sent = queue.dequeue(1).unwrap();
        bytes[sent.label as usize] += sent.ip_bytes;
        waits &= sent.label == 0;
        if sent.label == 0 && !waits {
            queue.enqueue(1, packet(1, 1_500));
            waits = true;
        }
    }
    let share = f64::from(bytes[1]) / f64::from(bytes[0] + bytes[1]);
    assert!((0.4..0.55).contains(&share), "{share}");
}

/// All flows must get the same number of bytes, whatever the sizes of their packets and the load
/// that they offer.
#[test]
fn fq_codel_shares_bytes_equally() {
    let mut queue = queue(FqCoDel { limit: Limit::Packets(100_000), ..FqCoDel::default() });
    let sizes = [1_500, 500, 1_000, 64];
    let mut bytes = [0u64; 4];
    for _ in 0..2_000 {
        for (flow, size) in sizes.iter().enumerate() {
            for _ in 0..1_500 / size * (1 + flow as u32 % 2) {
                queue.enqueue(0, packet(flow as u32, *size));
            }
        }
    }
    let mut sum = 0;
    while sum < 4_000_000 {
        let packet = queue.dequeue(1).unwrap();
        bytes[packet.label as usize] += u64::from(packet.ip_bytes);
        sum += u64::from(packet.ip_bytes);
    }
    for flow in bytes {
        assert!((980_000..1_020_000).contains(&flow), "{bytes:?}");
    }
}

/// RFC 8290 s.4.1: the longest queue must lose packets from its head: half of its bytes, or 64
/// packets.
#[test]
fn fq_codel_drops_from_the_longest_queue_when_full() {
    let mut queue = queue(FqCoDel { limit: Limit::Packets(200), ..FqCoDel::default() });
    for _ in 0..20 {
        queue.enqueue(0, packet(1, 100));
    }
    for _ in 0..180 {
        queue.enqueue(0, packet(2, 1_500));
    }
    assert!(queue.dropped.is_empty());
    queue.enqueue(0, packet(1, 100));
    assert_eq!(queue.dropped.len(), 64);
    assert!(
        queue
            .dropped
            .iter()
            .all(|(packet, cause)| { packet.label == 2 && *cause == DropCause::Full })
    );
    assert_eq!((queue.queue.packets(), queue.queue.bytes()), (137, 116 * 1_500 + 2_100));
}

/// CoDel must control each queue separately. A flow with one queued packet must lose none while
/// another flow is throttled.
#[test]
fn fq_codel_controls_each_queue_separately() {
    let fq = FqCoDel { codel: CoDel::default(), ..FqCoDel::default() };
    let mut queue = queue(fq);
    // The link sends a packet of 1,250 bytes per millisecond (10 Mb/s). 1.5 times as many packets
    // arrive.
    for millis in 0..3_000u64 {
        let now = 1_000 * millis;
        queue.enqueue(now, packet(1, 1_250));
        if millis % 2 == 0 {
            queue.enqueue(now, packet(1, 1_250));
        }
        if millis % 20 == 0 {
            queue.enqueue(now, packet(2, 100));
        }
        if let Some(packet) = queue.dequeue(now) {
            let waited = millis - packet.queued_at.as_nanos() / 1_000_000;
            assert!(packet.label == 1 || waited <= 2, "{waited} ms");
        }
    }
    assert!(queue.dropped.len() > 100);
    assert!(
        queue
            .dropped
            .iter()
            .all(|(packet, cause)| { packet.label == 1 && *cause == DropCause::Early })
    );
}

/// With many queues, only few flows may be assigned to the same queue.
#[test]
fn fq_codel_spreads_flows_over_queues() {
    assert!(rows_of_512_flows(1_024) > 350);
    assert_eq!(rows_of_512_flows(1), 1);
}

fn rows_of_512_flows(flows: u32) -> usize {
    let queue = FqCoDelQueue::new(FqCoDel { flows, ..FqCoDel::default() }, 1_500, 5);
    let mut rows: Vec<u32> = (0..512).map(|label| queue.classify(&packet(label, 100))).collect();
    rows.sort_unstable();
    rows.dedup();
    rows.len()
}

#[test]
fn fq_codel_rejects_invalid_settings() {
    let fq = FqCoDel::default();
    assert_eq!(fq.check(), Ok(()));
    for wrong in
        [FqCoDel { flows: 0, ..fq }, FqCoDel { flows: 65_537, ..fq }, FqCoDel { quantum: 0, ..fq }]
    {
        assert_eq!(wrong.check(), Err(QueueError::Flows));
    }
}
