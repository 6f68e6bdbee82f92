use std::ops::Range;

use proptest::prelude::*;

use super::*;

/// In these tests, the content is a range of stream offsets, with one byte for each packet.
impl Content for Range<u64> {
    fn merge(&mut self, count: u16, next: &Range<u64>) -> bool {
        assert_eq!(self.end - self.start, u64::from(count), "the content covers the whole run");
        let follows = self.end == next.start;
        if follows {
            self.end = next.end;
        }
        follows
    }

    fn part(&self, all: u16, from: u16, count: u16) -> Range<u64> {
        assert!(
            self.end - self.start == u64::from(all) && from + count <= all,
            "the content covers the whole run"
        );
        let start = self.start + u64::from(from);
        start..start + u64::from(count)
    }
}

/// Creates a packet that was sent while this many bytes were in flight. Its content is its number.
fn packet(number: u64, in_flight: u64) -> SentPacket<Range<u64>> {
    SentPacket {
        time_sent: Timestamp::START,
        size: 1200,
        count: 1,
        ack_eliciting: true,
        in_flight: true,
        mtu_probe: false,
        delivery: DeliveryMark { in_flight: in_flight + 1200, ..DeliveryMark::default() },
        content: number..number + 1,
    }
}

/// Returns a flight of packets with these numbers, all sent at the same time.
fn flight(numbers: impl IntoIterator<Item = u64>) -> SentPackets<Range<u64>> {
    let mut sent = SentPackets::default();
    for number in numbers {
        sent.insert(number, packet(number, 1200 * sent.len() as u64));
    }
    sent
}

/// Removes a range of packet numbers. Returns the first number and the count of each removed entry,
/// and how many packets and runs are left.
fn take(
    sent: &mut SentPackets<Range<u64>>,
    range: RangeInclusive<u64>,
) -> (Vec<(u64, u16)>, usize, usize) {
    let mut taken = Vec::new();
    sent.remove_range(range, |number, packet| {
        assert_eq!(packet.content, number..number + u64::from(packet.count));
        taken.push((number, packet.count));
    });
    (taken, sent.len(), sent.runs.len())
}

#[test]
fn sent_packets_run_is_one_record_until_packets_differ() {
    let mut sent = flight(0..40);
    assert_eq!((sent.len(), sent.runs.len(), sent.span()), (40, 1, 40));
    let next = packet(40, 40 * 1200);
    let other = DeliveryMark { delivered: 1, ..next.delivery };
    for different in [
        SentPacket { time_sent: Timestamp::from_nanos(1), ..next.clone() },
        SentPacket { size: 1199, ..next.clone() },
        SentPacket { ack_eliciting: false, ..next.clone() },
        SentPacket { in_flight: false, ..next.clone() },
        SentPacket { mtu_probe: true, ..next.clone() },
        SentPacket { delivery: other, ..next.clone() },
        SentPacket { content: 41..42, ..next.clone() },
    ] {
        let mut sent = sent.clone();
        sent.insert(40, different.clone());
        assert_eq!((sent.len(), sent.runs.len()), (41, 2), "{different:?}");
        assert_eq!(sent.get(40), Some(different));
    }
    let mut gap = sent.clone();
    gap.insert(41, packet(40, 40 * 1200));
    assert_eq!((gap.len(), gap.runs.len(), gap.span()), (41, 2, 42), "number 40 was skipped");
    sent.insert(40, next.clone());
    assert_eq!((sent.len(), sent.runs.len()), (41, 1));
    assert_eq!(sent.get(40), Some(next), "the packet is unchanged");
    let long = flight(0..200);
    assert_eq!((long.len(), long.runs.len()), (200, 4), "a run has at most 64 packets");
}

#[test]
fn sent_packets_range_takes_the_rest_of_a_run() {
    let mut sent = flight(0..100);
    assert_eq!(take(&mut sent, 0..=9), (vec![(0, 10)], 90, 2), "the beginning of a run");
    assert_eq!(take(&mut sent, 20..=29), (vec![(20, 10)], 80, 2), "the middle of a run");
    assert_eq!(
        take(&mut sent, 5..=24),
        (vec![(10, 10)], 70, 2),
        "removed packets are not returned again"
    );
    assert_eq!((sent.lowest(), sent.span()), (Some(30), 70));
    assert_eq!(
        take(&mut sent, 40..=69),
        (vec![(64, 6), (40, 24)], 40, 2),
        "a range can cover two runs"
    );
    assert_eq!(take(&mut sent, 0..=64), (vec![(30, 10)], 30, 1));
    assert_eq!(take(&mut sent, 70..=99), (vec![(70, 30)], 0, 0));
    assert_eq!((sent.lowest(), sent.span(), sent.next()), (None, 0, 100));
}

#[test]
fn sent_packets_piece_of_a_run_has_the_marks_of_its_packets() {
    let mut sent = flight(0..50);
    let mut taken = Vec::new();
    sent.remove_range(10..=19, |number, run| taken.push((number, run)));
    let [(10, run)] = &taken[..] else { panic!("the packets are not one run: {taken:?}") };
    assert_eq!((run.count, run.bytes(), run.eliciting()), (10, 12_000, 10));
    assert_eq!((run.delivery.in_flight, run.last_delivery().in_flight), (11 * 1200, 20 * 1200));
    assert_eq!(run.last(10), 19);
    let apart: Vec<_> = run.clone().apart(10).collect();
    let alone: Vec<_> = (10..20).map(|number| (number, packet(number, 1200 * number))).collect();
    assert_eq!(apart, alone);
}

#[test]
fn sent_packets_range_is_removed_from_its_highest_number_down() {
    let mut sent = flight([3, 4, 6, 7, 8, 9]);
    assert_eq!(take(&mut sent, 0..=2), (vec![], 6, 2));
    assert_eq!(take(&mut sent, 4..=7), (vec![(6, 2), (4, 1)], 3, 2));
    assert_eq!(take(&mut sent, 4..=7), (vec![], 3, 2), "removed packets are not returned again");
    assert_eq!(take(&mut sent, 0..=8), (vec![(8, 1), (3, 1)], 1, 1));
    assert_eq!(take(&mut sent, 10..=u64::MAX), (vec![], 1, 1));
    #[expect(clippy::reversed_empty_ranges, reason = "a range may be reversed")]
    let reversed = take(&mut sent, 9..=8);
    assert_eq!(reversed, (vec![], 1, 1));
    assert_eq!(take(&mut sent, 0..=u64::MAX), (vec![(9, 1)], 0, 0));
}

#[test]
fn sent_packets_has_what_is_in_flight_and_nothing_else() {
    let mut sent = flight([0, 1, 2, 5, 6]);
    assert_eq!((sent.len(), sent.next()), (5, 7));
    assert!(sent.get(3).is_none() && sent.get(7).is_none());
    assert_eq!(sent.remove(5).map(|p| p.content), Some(5..6));
    assert_eq!(sent.remove(5), None);
    let numbers: Vec<u64> = sent.iter().map(|(number, _)| number).collect();
    assert_eq!(numbers, [0, 1, 2, 6]);
    for number in [0, 1, 2] {
        sent.remove(number);
    }
    assert_eq!(sent.runs.len(), 1, "records of acknowledged packets are removed");
    assert_eq!(sent.below(6).count(), 0);
    assert_eq!(sent.drain().map(|(number, _)| number).collect::<Vec<_>>(), [6]);
    assert_eq!((sent.len(), sent.next()), (0, 7));
    sent.insert(9, packet(9, 0));
    assert_eq!(sent.get(9).map(|p| p.content), Some(9..10));
    sent.shrink();
    assert_eq!((sent.len(), sent.next(), sent.capacity()), (1, 10, 1));
    sent.remove(9);
    sent.shrink();
    assert_eq!((sent.next(), sent.span(), sent.capacity()), (10, 0, 0));
    assert_eq!(sent.remove(9), None);
    sent.insert(12, packet(12, 0));
    assert_eq!((sent.get(12).map(|p| p.content), sent.next()), (Some(12..13), 13));
}

#[derive(Debug, Clone)]
enum Step {
    /// Skips some packet numbers, and then sends packets. If `moment` is true, lets time pass
    /// before it sends them.
    Send {
        count: u64,
        skip: u64,
        moment: bool,
        size: u16,
    },
    /// Removes a range of packets, counted back from the last one sent.
    Take {
        back: u64,
        length: u64,
    },
    Drain,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1..100u64, prop_oneof![4 => Just(0), 1 => 1..3u64], any::<bool>(), 1200..1202u16)
            .prop_map(|(count, skip, moment, size)| Step::Send { count, skip, moment, size }),
        8 => (0..400u64, 0..150u64).prop_map(|(back, length)| Step::Take { back, length }),
        1 => Just(Step::Drain),
    ]
}

proptest! {
    /// Sends and removes random packets. Each packet must be removed exactly once and unchanged, as
    /// if each packet had its own record.
    #[test]
    fn sent_packets_runs_equal_single_packets(steps in prop::collection::vec(step(), 1..60)) {
        let mut sent = SentPackets::default();
        let mut model = std::collections::BTreeMap::new();
        let (mut next, mut now) = (0, Timestamp::START);
        for step in steps {
            match step {
                Step::Send { count, skip, moment, size } => {
                    now = Timestamp::from_nanos(now.as_nanos() + u64::from(moment));
                    next += skip;
                    for _ in 0..count {
                        let in_flight: u64 =
                            model.values().map(|p: &SentPacket<Range<u64>>| u64::from(p.size)).sum();
                        let mut one = packet(next, in_flight);
                        one.delivery.in_flight = in_flight + u64::from(size);
                        (one.time_sent, one.size) = (now, size);
                        sent.insert(next, one.clone());
                        model.insert(next, one);
                        next += 1;
                    }
                }
                Step::Take { back, length } => {
                    let start = next.saturating_sub(back);
                    let range = start..=start + length;
                    let mut taken = Vec::new();
                    sent.remove_range(range.clone(), |number, run| {
                        taken.extend(run.apart(number).rev());
                    });
                    let wanted: Vec<_> =
                        model.range(range.clone()).rev().map(|(n, p)| (*n, p.clone())).collect();
                    model.retain(|number, _| !range.contains(number));
                    prop_assert_eq!(taken, wanted);
                }
                Step::Drain => {
                    let all: Vec<_> = sent.drain().collect();
                    prop_assert_eq!(all, std::mem::take(&mut model).into_iter().collect::<Vec<_>>());
                }
            }
            let all: Vec<_> = model.iter().map(|(number, one)| (*number, one.clone())).collect();
            prop_assert_eq!(sent.iter().collect::<Vec<_>>(), all.clone());
            prop_assert_eq!((sent.len(), sent.next()), (model.len(), next));
            prop_assert_eq!(sent.lowest(), model.keys().next().copied());
            let end = next.saturating_sub(50);
            let below: Vec<_> = model.range(..end).map(|(n, p)| (*n, p.time_sent)).collect();
            prop_assert_eq!(sent.below(end).collect::<Vec<_>>(), below);
            prop_assert!(sent.runs.front().is_none_or(|run| run.left != 0));
        }
    }
}
