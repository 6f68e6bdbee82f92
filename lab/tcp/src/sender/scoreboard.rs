//! The outstanding segments, by sequence number and by transmission (RFC 6675 s.4, RFC 8985 s.5).

use std::collections::{BTreeMap, VecDeque};

use equic_transport::Timestamp;
use equic_transport::congestion::DeliveryMark;

/// The state of a segment, as the sender knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The segment is in flight.
    InFlight,
    /// The receiver has reported the segment by SACK, and waits for the data before it.
    Sacked,
    /// The segment was declared lost and was not retransmitted yet.
    Lost,
}

/// A segment that was sent. Its sequence numbers count from the SYN and do not wrap.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sent {
    /// First sequence number of the segment.
    pub start: u64,
    /// Sequence number after the end of the segment.
    pub end: u64,
    /// Number of the segment's last transmission. One counter numbers the transmissions of all
    /// segments.
    pub number: u64,
    /// Time of the segment's last transmission.
    pub time_sent: Timestamp,
    /// State of the connection's delivery counters at the last transmission, for rate measurement.
    pub mark: DeliveryMark,
    pub fate: Fate,
    /// True if the segment was retransmitted.
    pub retransmitted: bool,
}

impl Sent {
    pub(crate) fn len(&self) -> u64 {
        self.end - self.start
    }
}

/// The segments between SND.UNA and SND.NXT.
#[derive(Debug, Default)]
pub(crate) struct Scoreboard {
    /// The outstanding segments, by sequence number and without gaps.
    segments: VecDeque<Sent>,
    /// Transmissions in the order in which they were made: the number of each, and the first
    /// sequence number of its segment. Entries whose segment was acknowledged or sent again are
    /// obsolete, and are skipped.
    order: VecDeque<(u64, u64)>,
    next_number: u64,
    /// Number of bytes in flight. The next fields count the bytes in the other states.
    in_flight: u64,
    sacked: u64,
    lost: u64,
    sacked_segments: usize,
    /// No segment before this sequence number is lost.
    lost_hint: u64,
    /// Runs of adjacent segments that the receiver has reported by SACK: the key is the first
    /// sequence number, and the value is the sequence number after the run. With them, processing a
    /// block that is reported again is cheap.
    runs: BTreeMap<u64, u64>,
}

/// Number of obsolete entries that `order` may have before it is compacted.
const STALE: usize = 64;

impl Scoreboard {
    /// Returns the number of bytes in flight.
    pub(crate) fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// Returns the number of bytes that the receiver has reported by SACK.
    pub(crate) fn sacked(&self) -> u64 {
        self.sacked
    }

    /// Returns the number of segments that the receiver has reported by SACK.
    pub(crate) fn sacked_segments(&self) -> usize {
        self.sacked_segments
    }

    /// Returns the number of bytes that are lost and were not retransmitted yet.
    pub(crate) fn lost(&self) -> u64 {
        self.lost
    }

    /// Returns `true` if every segment that was sent has been acknowledged (RFC 9293 s.3.4).
    pub(crate) fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// Returns the number of outstanding segments.
    pub(crate) fn len(&self) -> usize {
        self.segments.len()
    }

    pub(crate) fn first(&self) -> Option<&Sent> {
        self.segments.front()
    }

    pub(crate) fn last(&self) -> Option<&Sent> {
        self.segments.back()
    }

    /// Returns the number of the next transmission.
    pub(crate) fn next_number(&self) -> u64 {
        self.next_number
    }

    /// Adds a new segment. It must begin where the last segment ends.
    pub(crate) fn push(&mut self, start: u64, end: u64, now: Timestamp, mark: DeliveryMark) {
        debug_assert!(end > start && self.last().is_none_or(|last| last.end == start));
        let number = self.number(start);
        let (fate, retransmitted) = (Fate::InFlight, false);
        self.in_flight += end - start;
        self.segments.push_back(Sent {
            start,
            end,
            number,
            time_sent: now,
            mark,
            fate,
            retransmitted,
        });
    }

    fn number(&mut self, start: u64) -> u64 {
        let number = self.next_number;
        self.next_number += 1;
        self.order.push_back((number, start));
        // The list is compacted only when most entries are obsolete. The cost is thus spread over
        // the transmissions that made them obsolete.
        if self.order.len() > 2 * self.segments.len() + STALE {
            let segments = &self.segments;
            self.order.retain(|(number, start)| {
                *number == self.next_number - 1
                    || find(segments, *start).is_some_and(|at| segments[at].number == *number)
            });
        }
        number
    }

    /// Records a retransmission of the segment that begins with this sequence number.
    pub(crate) fn retransmit(&mut self, start: u64, now: Timestamp, mark: DeliveryMark) {
        let Some(at) = find(&self.segments, start) else { return };
        let number = self.number(start);
        let segment = &mut self.segments[at];
        (segment.number, segment.time_sent, segment.mark) = (number, now, mark);
        segment.retransmitted = true;
        self.change(at, Fate::InFlight);
    }

    fn change(&mut self, at: usize, fate: Fate) {
        let segment = &mut self.segments[at];
        let before = std::mem::replace(&mut segment.fate, fate);
        let (length, start) = (segment.len(), segment.start);
        self.count_out(before, length);
        match fate {
            Fate::InFlight => self.in_flight += length,
            Fate::Sacked => {
                self.sacked += length;
                self.sacked_segments += 1;
            }
            Fate::Lost => {
                self.lost += length;
                self.lost_hint = self.lost_hint.min(start);
            }
        }
    }

    fn count_out(&mut self, fate: Fate, length: u64) {
        match fate {
            Fate::InFlight => self.in_flight -= length,
            Fate::Sacked => {
                self.sacked -= length;
                self.sacked_segments -= 1;
            }
            Fate::Lost => self.lost -= length,
        }
    }

    /// Processes an acknowledgement of everything before `una`, and of the SACK blocks after it.
    /// Adds each newly delivered segment to `delivered`, with the state that it had before. If a
    /// block covers a segment only in part, the segment does not change. If `una` covers a segment
    /// in part, the segment becomes shorter.
    pub(crate) fn acknowledge(
        &mut self,
        una: u64,
        blocks: &[(u64, u64)],
        delivered: &mut Vec<Sent>,
    ) {
        while let Some(segment) = self.segments.front_mut() {
            if segment.start >= una {
                break;
            }
            let (fate, covered) = (segment.fate, segment.end.min(una));
            let part = Sent { end: covered, ..*segment };
            if segment.end <= una {
                self.segments.pop_front();
            } else {
                segment.start = una;
                let number = segment.number;
                if let Some(entry) = self.order.iter_mut().find(|entry| entry.0 == number) {
                    entry.1 = una;
                }
            }
            self.count_out(fate, part.len());
            if fate == Fate::Sacked && self.segments.front().is_some_and(|s| s.start == una) {
                // This part is the rest of a segment. The first part of that segment was already
                // counted as delivered.
                let rest = self.segments.front().is_some_and(|s| s.number == part.number);
                self.sacked_segments += usize::from(rest);
            }
            if fate != Fate::Sacked {
                delivered.push(part);
            }
        }
        self.lost_hint = self.lost_hint.max(una);
        while let Some(run) = self.runs.first_entry() {
            if *run.key() >= una {
                break;
            }
            let end = run.remove();
            if end > una {
                self.runs.insert(una, end);
            }
        }
        for block in blocks {
            self.sack(*block, delivered);
        }
    }

    /// Marks the segments that a SACK block covers, except those that are already marked.
    fn sack(&mut self, block: (u64, u64), delivered: &mut Vec<Sent>) {
        let (mut from, end) = block;
        while from < end {
            let before = self.runs.range(..=from).next_back().map(|(_, right)| *right);
            if let Some(right) = before.filter(|right| *right > from) {
                from = right;
                continue;
            }
            let until = self.runs.range(from..end).next().map_or(end, |(left, _)| *left);
            self.mark_sacked(from, until, delivered);
            from = until;
        }
    }

    /// Marks the segments between `left` and `right` as reported by SACK. None of them may be
    /// marked already.
    fn mark_sacked(&mut self, left: u64, right: u64, delivered: &mut Vec<Sent>) {
        let first = self.segments.partition_point(|segment| segment.start < left);
        let mut at = first;
        while let Some(segment) = self.segments.get(at).filter(|segment| segment.end <= right) {
            delivered.push(*segment);
            self.change(at, Fate::Sacked);
            at += 1;
        }
        if at == first {
            return;
        }
        let (mut start, mut end) = (self.segments[first].start, self.segments[at - 1].end);
        if let Some(behind) = self.runs.remove(&end) {
            end = behind;
        }
        if let Some((before, _)) =
            self.runs.range(..start).next_back().filter(|(_, e)| **e == start)
        {
            start = *before;
        }
        self.runs.insert(start, end);
    }

    /// Declares the segment lost whose last transmission has this number, and returns the segment.
    pub(crate) fn lose(&mut self, number: u64, start: u64) -> Option<Sent> {
        let at = find(&self.segments, start)?;
        let segment = self.segments[at];
        if segment.number != number || segment.fate != Fate::InFlight {
            return None;
        }
        self.change(at, Fate::Lost);
        Some(segment)
    }

    /// Declares transmissions lost in the order in which they were made, as long as their number is
    /// below `limit` and `wanted` returns `true`. Adds them to `lost`. Returns the first
    /// transmission below the limit that is still in flight.
    pub(crate) fn lose_while(
        &mut self,
        limit: u64,
        wanted: impl Fn(&Sent) -> bool,
        lost: &mut Vec<Sent>,
    ) -> Option<Sent> {
        while let Some((number, start)) =
            self.order.front().copied().filter(|entry| entry.0 < limit)
        {
            let segment = find(&self.segments, start).map(|at| self.segments[at]);
            let live = |s: &Sent| s.number == number && s.fate == Fate::InFlight;
            if let Some(segment) = segment.filter(live) {
                if !wanted(&segment) {
                    return Some(segment);
                }
                lost.extend(self.lose(number, start));
            }
            self.order.pop_front();
        }
        None
    }

    /// Returns the first lost segment.
    pub(crate) fn next_lost(&mut self) -> Option<Sent> {
        if self.lost == 0 {
            return None;
        }
        let hint = self.lost_hint;
        let from = self.segments.partition_point(|segment| segment.start < hint);
        let found = self.segments.range(from..).find(|segment| segment.fate == Fate::Lost).copied();
        self.lost_hint = found.map_or(hint, |segment| segment.start);
        found
    }

    /// Counts lost segments as in flight again, because the loss was spurious.
    pub(crate) fn forgive(&mut self) {
        for at in 0..self.segments.len() {
            if self.segments[at].fate == Fate::Lost {
                self.change(at, Fate::InFlight);
                let (number, start) = (self.segments[at].number, self.segments[at].start);
                let place = self.order.partition_point(|entry| entry.0 < number);
                if self.order.get(place).is_none_or(|entry| entry.0 != number) {
                    self.order.insert(place, (number, start));
                }
            }
        }
    }

    /// Handles a receiver that has discarded its out-of-order data (RFC 2018 s.8). Afterwards, no
    /// outstanding segment counts as received.
    pub(crate) fn forget_sacks(&mut self) {
        for at in 0..self.segments.len() {
            if self.segments[at].fate == Fate::Sacked {
                self.change(at, Fate::Lost);
            }
        }
        self.runs.clear();
    }
}

/// Returns the index of the segment that begins with this sequence number.
fn find(segments: &VecDeque<Sent>, start: u64) -> Option<usize> {
    segments.binary_search_by_key(&start, |segment| segment.start).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flight(count: u64) -> Scoreboard {
        let mut board = Scoreboard::default();
        for index in 0..count {
            let now = Timestamp::from_nanos(index);
            board.push(index * 100, index * 100 + 100, now, DeliveryMark::default());
        }
        board
    }

    fn starts(delivered: &[Sent]) -> Vec<u64> {
        delivered.iter().map(|segment| segment.start / 100).collect()
    }

    #[test]
    fn scoreboard_has_each_byte_in_one_state() {
        let mut board = flight(10);
        let mut delivered = Vec::new();
        board.acknowledge(100, &[(300, 500), (700, 800)], &mut delivered);
        assert_eq!(starts(&delivered), [0, 3, 4, 7]);
        assert_eq!((board.in_flight(), board.sacked(), board.lost()), (600, 300, 0));
        delivered.clear();
        // The block has grown on both sides. Only the additional segments may count as delivered.
        board.acknowledge(100, &[(200, 900)], &mut delivered);
        assert_eq!(starts(&delivered), [2, 5, 6, 8]);
        let mut lost = Vec::new();
        assert!(board.lose_while(9, |_| true, &mut lost).is_none());
        assert_eq!((starts(&lost), board.lost()), (vec![1], 100));
        assert_eq!(board.next_lost().map(|segment| segment.start), Some(100));
        board.retransmit(100, Timestamp::from_nanos(99), DeliveryMark::default());
        assert_eq!((board.in_flight(), board.lost(), board.next_lost().is_none()), (200, 0, true));
        delivered.clear();
        board.acknowledge(950, &[], &mut delivered);
        assert_eq!(starts(&delivered), [1, 9]);
        assert_eq!((board.in_flight(), board.sacked(), board.len()), (50, 0, 1));
        delivered.clear();
        board.acknowledge(1000, &[], &mut delivered);
        assert_eq!((board.in_flight(), board.sacked_segments(), board.is_empty()), (0, 0, true));
    }

    #[test]
    fn scoreboard_does_not_accumulate_outdated_transmissions() {
        let mut board = flight(10);
        for round in 0..10_000 {
            board.retransmit(0, Timestamp::from_nanos(round), DeliveryMark::default());
        }
        assert!(board.order.len() <= 2 * 10 + STALE + 1, "{}", board.order.len());
        assert_eq!(board.in_flight(), 1_000);
        let mut lost = Vec::new();
        board.lose_while(u64::MAX, |_| true, &mut lost);
        assert_eq!(starts(&lost), [1, 2, 3, 4, 5, 6, 7, 8, 9, 0]);
        board.forgive();
        assert_eq!((board.in_flight(), board.lost(), board.order.len()), (1_000, 0, 10));
    }
}
