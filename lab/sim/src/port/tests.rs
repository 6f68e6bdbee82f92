//! Tests of a port, which is one direction of a link.

use std::time::Duration;

use equic_net::{Chance, Loss};

use super::*;
use crate::packet::{Address, Ecn, FlowId};
use crate::queue::{Limit, Queue};
use crate::topology::NodeId;

const MS: u64 = 1_000_000;

struct Line {
    port: Port,
    pool: Pool,
    dropped: Dropped,
    arrived: Vec<(u64, u32)>,
}

impl Line {
    fn new(direction: &Direction) -> Line {
        assert_eq!(direction.check(), Ok(()));
        Line {
            port: Port::new(direction, 1, 2),
            pool: Pool::new(1_500),
            dropped: Vec::new(),
            arrived: Vec::new(),
        }
    }

    fn offer(&mut self, at: u64, label: u32, ip_bytes: u32) {
        self.offer_with(at, label, ip_bytes, 0);
    }

    fn offer_with(&mut self, at: u64, label: u32, ip_bytes: u32, header_fields: u8) {
        self.until(at);
        let address = |node| Address { node: NodeId(node), port: 1 };
        let mut buffer = self.pool.take();
        buffer[..100].fill(label as u8);
        let packet = Packet {
            source: address(0),
            destination: address(1),
            flow: FlowId(0),
            ip_bytes,
            frame_bytes: 0,
            payload: 100,
            label,
            headers: 28,
            header_fields,
            ecn: Ecn::NotEct,
            queued_at: Time::START,
            buffer,
        };
        self.port.offer(Time::from_nanos(at), packet, &mut self.pool, &mut self.dropped);
    }

    /// Runs the port until it is idle. Returns the arrival time and the label of each packet.
    fn arrivals(&mut self) -> Vec<(u64, u32)> {
        self.until(u64::MAX);
        std::mem::take(&mut self.arrived)
    }

    fn until(&mut self, end: u64) {
        while let Some(at) = self.port.next().filter(|at| at.as_nanos() < end) {
            if let Some(packet) = self.port.step(at, &mut self.pool, &mut self.dropped) {
                self.arrived.push((at.as_nanos(), packet.label));
                self.pool.give(packet.buffer);
            }
        }
    }
}

/// Returns a direction with 10 Mb/s, which is 1,250 bytes per millisecond.
fn direction() -> Direction {
    Direction::new(10_000_000, Duration::from_millis(50))
}

#[test]
fn port_sends_packets_one_after_the_other() {
    let mut line = Line::new(&direction());
    line.offer(0, 1, 1_250);
    line.offer(0, 2, 625);
    line.offer(10 * MS, 3, 1_250);
    assert_eq!(line.arrivals(), [(51 * MS, 1), (51 * MS + MS / 2, 2), (61 * MS, 3)]);
    assert_eq!((line.port.stats().sent, line.port.stats().sent_bytes), (3, 3_125));
}

#[test]
fn port_rate_includes_framing() {
    let mut line = Line::new(&Direction { framing: Framing::EthernetLine, ..direction() });
    line.offer(0, 1, 1_212);
    assert_eq!(line.arrivals(), [(51 * MS, 1)]);
}

#[test]
fn port_queue_excludes_the_packet_in_transmission() {
    let mut line = Line::new(&direction().queue(Queue::DropTail(Limit::Packets(2))));
    (1..=5).for_each(|label| line.offer(0, label, 1_250));
    assert_eq!(line.arrivals(), [(51 * MS, 1), (52 * MS, 2), (53 * MS, 3)]);
    let stats = line.port.stats();
    assert_eq!((stats.offered, stats.dropped_full, stats.most_packets), (5, 2, 2));
    assert_eq!(stats.most_bytes, 2_500);
}

#[test]
fn port_drops_packets_above_the_mtu() {
    let mut line = Line::new(&direction());
    line.offer(0, 1, 1_501);
    line.offer(0, 2, 1_500);
    assert_eq!(line.arrivals().len(), 1);
    assert_eq!(line.port.stats().too_large, 1);
    assert_eq!(line.dropped[0].1, DropCause::TooLarge);
}

#[test]
fn port_spends_transmission_time_on_a_lost_packet() {
    let mut lossy = direction();
    lossy.wire.drop_list = vec![1];
    let mut line = Line::new(&lossy);
    line.offer(0, 1, 1_250);
    line.offer(0, 2, 1_250);
    assert_eq!(line.arrivals(), [(52 * MS, 2)]);
    assert_eq!((line.port.stats().lost, line.dropped[0].1), (1, DropCause::Lost));
}

#[test]
fn port_bit_errors_apply_to_whole_frames() {
    let lost = |framing| {
        let mut lossy = Direction { framing, ..direction() };
        lossy.wire.loss = Loss::BitErrors(1e-4);
        let mut line = Line::new(&lossy);
        for packet in 0..5_000 {
            line.offer(packet * 10 * MS, 1, 128);
        }
        line.port.stats().lost as f64 / 5_000.0
    };
    // A packet has 1,024 bits, or 1,328 with Ethernet and its inter-packet gap. Each bit is
    // corrupted with the same probability.
    assert!((lost(Framing::None) - 0.0974).abs() < 0.015, "{}", lost(Framing::None));
    assert!((lost(Framing::EthernetLine) - 0.1244).abs() < 0.015);
}

#[test]
fn port_jitter_and_reordering_lose_no_packet() {
    let mut late = direction();
    late.wire.jitter = Duration::from_millis(20);
    late.wire.duplicate = Chance::percent(10.0);
    let mut line = Line::new(&late);
    (0..500).for_each(|label| line.offer(0, label, 1_250));
    let arrivals = line.arrivals();
    assert!(arrivals.is_sorted_by_key(|(at, _)| *at));
    assert!(!arrivals.is_sorted_by_key(|(_, label)| *label));
    let stats = line.port.stats();
    assert!((25..80).contains(&stats.duplicated));
    assert_eq!(arrivals.len() as u64, 500 + stats.duplicated);
    for (at, label) in arrivals {
        let earliest = (51 + u64::from(label)) * MS;
        assert!((earliest..=earliest + 20 * MS).contains(&at));
    }

    let mut behind = direction();
    behind.wire.reorder = Chance::percent(100.0);
    behind.wire.reorder_by = Duration::from_millis(7);
    let mut line = Line::new(&behind);
    line.offer(0, 1, 1_250);
    assert_eq!(line.arrivals(), [(58 * MS, 1)]);
    assert_eq!(line.port.stats().reordered, 1);
}

/// A packet that is corrupted outside of its stored payload must be lost, because the receiver's
/// checksum would detect the error.
#[test]
fn port_corruption_changes_the_payload_or_loses_the_packet() {
    let mut bad = direction();
    bad.wire.corrupt = Chance::percent(100.0);
    let mut line = Line::new(&bad);
    (0..1_000).for_each(|label| line.offer(0, label % 200, 228));
    let mut changed = 0;
    while let Some(at) = line.port.next() {
        let packet = line.port.step(at, &mut line.pool, &mut line.dropped);
        if let Some(packet) = packet {
            let wrong = packet.buffer[..100].iter().filter(|byte| **byte != packet.label as u8);
            assert_eq!(wrong.count(), 1);
            changed += 1;
        }
    }
    let stats = line.port.stats();
    assert_eq!((stats.corrupted, stats.lost), (changed, 1_000 - changed));
    // 100 of the 228 bytes of a packet are stored payload.
    assert!((380..500).contains(&changed), "{changed}");
}

/// The TCP checksum covers the whole segment, so every corrupted segment must be lost.
#[test]
fn port_corruption_loses_a_tcp_segment() {
    let mut bad = direction();
    bad.wire.corrupt = Chance::percent(100.0);
    let mut line = Line::new(&bad);
    (0..100).for_each(|label| line.offer_with(0, label, 128, 20));
    assert!(line.arrivals().is_empty());
    assert_eq!(line.port.stats().lost, 100);
}

#[test]
fn port_rate_may_be_a_trace() {
    let trace = Arc::new(Trace::parse(b"10\n20\n20\n").unwrap());
    let mut line = Line::new(&Direction { rate: Rate::Trace(trace), ..direction() });
    (1..=3).for_each(|label| line.offer(0, label, 1_500));
    line.offer(100 * MS, 4, 1_500);
    let arrivals = [(60 * MS, 1), (70 * MS, 2), (70 * MS, 3), (160 * MS, 4)];
    assert_eq!(line.arrivals(), arrivals);
}

#[test]
fn port_reuses_buffers() {
    let mut line = Line::new(&direction());
    for round in 0..100 {
        line.offer(round * 100 * MS, 1, 1_250);
        assert_eq!(line.arrivals().len(), 1);
    }
    // The packets needed only one buffer, so the pool is empty after one `take` and creates a new
    // buffer.
    assert_eq!(line.pool.take()[0], 1);
    assert_eq!(line.pool.take()[0], 0);
}

/// The fast path skips the queue and the link model if they have no effect. The result must be the
/// same as without it.
#[test]
fn port_fast_path_gives_the_same_result() {
    let plain = direction();
    // An empty list of packets to lose has no effect, but makes the port use the link model.
    let mut asked = plain.clone();
    asked.wire.drop_list = vec![u64::MAX];
    // This queue has no fast path. It never becomes full, and never delays a packet enough to drop
    // one.
    let idle = crate::CoDel { limit: Limit::Packets(1_000), ..crate::CoDel::default() };
    let queued = plain.clone().queue(Queue::CoDel(idle));
    let play = |direction: &Direction| {
        let mut line = Line::new(direction);
        let mut at = 0;
        for label in 0..1_000u32 {
            at += u64::from(label * 7_919 % 13) * MS / 4;
            line.offer(at, label, 100 + label % 1_400);
        }
        (line.arrivals(), line.port.stats())
    };
    let (arrivals, stats) = play(&plain);
    assert_eq!(arrivals.len(), 1_000);
    assert_eq!((arrivals.clone(), stats), play(&asked));
    assert_eq!(arrivals, play(&queued).0);
}
