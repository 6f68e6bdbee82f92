//! Packets in flight of one packet number space.
//!
//! Bulk data leaves in batches of packets that differ in nothing but their number and where in the stream their data
//! lies. One record stands for such a *run* of packets, so that a sender with thousands in flight writes, and waits
//! for, a small part of the memory that one record for each would take, and what acknowledges them all is done once.

use std::collections::VecDeque;
use std::ops::RangeInclusive;

use crate::Timestamp;

/// Record of a packet until it is acknowledged or given up (RFC 9002 A.1.1), or of a run of them. `C` is its
/// content, for the caller to send again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SentPacket<C> {
    /// Time at which the packet was sent.
    pub time_sent: Timestamp,
    /// Its length in the UDP payload, in bytes: of a run, that of each.
    pub size: u16,
    /// Number of packets that it stands for, whose numbers follow each other.
    pub count: u16,
    /// True if the peer must acknowledge the packet (RFC 9002 s.2).
    pub ack_eliciting: bool,
    /// True if the packet counts toward bytes in flight (RFC 9002 s.2).
    pub in_flight: bool,
    /// True if the packet probes the path's MTU: its loss says nothing about congestion
    /// (RFC 9000 s.14.4).
    pub mtu_probe: bool,
    /// The path's delivery count when it was sent, for rate samples; of a run, that of its first packet.
    pub delivery: DeliveryMark,
    /// Content of the packet, for the caller to send again; of a run, of all its packets.
    pub content: C,
}

/// Content of packets, as far as runs are concerned.
pub(crate) trait Content {
    /// Merges the content of the next packet into the content of a run of `count` packets. Returns false if the
    /// contents of the single packets could not be separated afterwards.
    fn take_in(&mut self, count: u16, next: &Self) -> bool;

    /// Content of `count` packets, from the one at place `from`, of a run of `all`.
    fn part(&self, all: u16, from: u16, count: u16) -> Self;
}

impl<C> SentPacket<C> {
    /// Bytes of all packets that it stands for.
    pub(crate) fn bytes(&self) -> u64 {
        u64::from(self.size) * u64::from(self.count)
    }

    /// How many of them the peer must acknowledge.
    pub(crate) fn eliciting(&self) -> usize {
        if self.ack_eliciting { self.count.into() } else { 0 }
    }

    /// The mark of the packet at a place in the run. Each has those before it in flight, too.
    fn delivery_at(&self, place: u16) -> DeliveryMark {
        let before = u64::from(self.size) * u64::from(place);
        DeliveryMark { in_flight: self.delivery.in_flight + before, ..self.delivery }
    }

    /// The mark of the last packet.
    pub(crate) fn last_delivery(&self) -> DeliveryMark {
        self.delivery_at(self.count.saturating_sub(1))
    }

    /// The number of the last packet, if this is the first one's.
    pub(crate) fn last(&self, first: u64) -> u64 {
        first + u64::from(self.count.saturating_sub(1))
    }
}

impl<C: Content> SentPacket<C> {
    /// Adds a packet that was sent directly after the run, if it fits. Returns false if not.
    #[inline(always)]
    fn take_in(&mut self, next: &SentPacket<C>) -> bool {
        let follows = self.time_sent == next.time_sent
            && self.size == next.size
            && (self.ack_eliciting, self.in_flight) == (next.ack_eliciting, next.in_flight)
            && !self.mtu_probe
            && !next.mtu_probe
            && self.delivery_at(self.count) == next.delivery
            && self.content.take_in(self.count, &next.content);
        self.count += u16::from(follows);
        follows
    }

    /// Returns `count` packets of the run, beginning with the packet at index `from`.
    fn part(&self, from: u16, count: u16) -> SentPacket<C> {
        let (delivery, content) =
            (self.delivery_at(from), self.content.part(self.count, from, count));
        SentPacket { count, delivery, content, ..*self }
    }

    /// Its packets one by one, from the lowest number up; `first` is that of the first.
    pub(crate) fn apart(self, first: u64) -> impl DoubleEndedIterator<Item = (u64, SentPacket<C>)> {
        let alone = self.count == 1;
        let count = self.count;
        let mut whole = Some(self);
        (0..count).filter_map(move |at| {
            let one = if alone { whole.take() } else { whole.as_ref().map(|run| run.part(at, 1)) };
            Some((first + u64::from(at), one?))
        })
    }
}

/// The state of delivery at the moment a packet left: what a rate sample compares with when the
/// packet is acknowledged (draft-ietf-ccwg-bbr, s.4.1.1.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DeliveryMark {
    /// Bytes delivered so far.
    pub delivered: u64,
    /// Time at which `delivered` last grew.
    pub delivered_at: Timestamp,
    /// Time at which the first packet of the current flight was sent.
    pub first_sent: Timestamp,
    /// Bytes in flight, with this packet.
    pub in_flight: u64,
    /// Bytes lost so far.
    pub lost: u64,
    /// True if the application gave the sender too little to send.
    pub app_limited: bool,
}

/// Most packets in a run: as many as bits tell which of them are left.
const MOST: u16 = u64::BITS as u16;

/// A run in its place among those in flight.
#[derive(Debug, Clone)]
struct Run<C> {
    /// Number of its first packet.
    first: u64,
    /// A bit for each packet that is still in flight, of the first one the lowest.
    left: u64,
    /// All packets of the run, including those that were removed. `None` if all were removed.
    packets: Option<SentPacket<C>>,
}

impl<C: Content> Run<C> {
    fn new(first: u64, packet: SentPacket<C>) -> Run<C> {
        Run { first, left: 1, packets: Some(packet) }
    }

    /// Adds the packet with this number, if it continues the run. Returns false if not.
    #[inline(always)]
    fn add(&mut self, number: u64, next: &SentPacket<C>) -> bool {
        let Some(run) = &mut self.packets else { return false };
        let place = run.count;
        let here = place < MOST && number == self.first + u64::from(place);
        let added = here && run.take_in(next);
        if added {
            self.left |= 1 << place;
        }
        added
    }

    /// Takes out those of its packets that are in a range of numbers, from the highest down, and hands them to
    /// `take`, as many at once as follow each other, with the number of their first. Returns how many.
    #[inline]
    fn remove(
        &mut self,
        range: &RangeInclusive<u64>,
        take: &mut impl FnMut(u64, SentPacket<C>),
    ) -> usize {
        let lowest = range.start().saturating_sub(self.first).min(u64::from(MOST)) as u32;
        let Some(highest) = range.end().checked_sub(self.first) else { return 0 };
        let highest = highest.min(u64::from(MOST) - 1) as u32;
        let above = u64::MAX.checked_shl(lowest).unwrap_or(0);
        let mut those = self.left & above & (u64::MAX >> (u64::BITS - 1 - highest));
        let removed = those.count_ones() as usize;
        self.left &= !those;
        while those != 0 {
            let top = u64::BITS - 1 - those.leading_zeros();
            let count = (those << (u64::BITS - 1 - top)).leading_ones();
            let from = top + 1 - count;
            those &= !(u64::MAX << from);
            let all = self.packets.as_ref().is_none_or(|run| u32::from(run.count) == count);
            let part = if all {
                self.packets.take()
            } else {
                self.packets.as_ref().map(|run| run.part(from as u16, count as u16))
            };
            if let Some(part) = part {
                take(self.first + u64::from(from), part);
            }
        }
        if self.left == 0 {
            self.packets = None;
        }
        removed
    }

    /// Places of the packets that are left, with their numbers, from the lowest up.
    fn places(&self) -> impl DoubleEndedIterator<Item = (u64, u16)> + use<C> {
        let (first, left) = (self.first, self.left);
        let places = (0..MOST - left.leading_zeros() as u16).filter(move |at| left >> at & 1 == 1);
        places.map(move |at| (first + u64::from(at), at))
    }
}

/// Packets in flight by number. Numbers only grow.
#[derive(Debug, Clone)]
pub(crate) struct SentPackets<C> {
    /// By their numbers. The first has packets left.
    runs: VecDeque<Run<C>>,
    /// The number after the highest ever sent.
    next: u64,
    count: usize,
}

impl<C> Default for SentPackets<C> {
    fn default() -> SentPackets<C> {
        SentPackets { runs: VecDeque::new(), next: 0, count: 0 }
    }
}

impl<C> SentPackets<C> {
    /// Number of packets in flight.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// The lowest number in flight.
    pub(crate) fn lowest(&self) -> Option<u64> {
        let front = self.runs.front()?;
        Some(front.first + u64::from(front.left.trailing_zeros()))
    }

    /// Numbers from the lowest in flight to the highest ever sent.
    pub(crate) fn span(&self) -> usize {
        let span = self.lowest().map_or(0, |lowest| self.next - lowest);
        usize::try_from(span).unwrap_or(usize::MAX)
    }

    /// Bytes that its records take, without what is allocated for their contents.
    pub(crate) fn memory(&self) -> usize {
        self.runs.len() * size_of::<Run<C>>()
    }

    /// Contents of the records.
    pub(crate) fn contents(&self) -> impl Iterator<Item = &C> {
        self.runs.iter().filter_map(|run| run.packets.as_ref()).map(|packets| &packets.content)
    }

    /// Records that it has memory for.
    #[cfg(test)]
    pub(crate) fn capacity(&self) -> usize {
        self.runs.capacity()
    }

    /// The number after the highest ever sent.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Gives back memory that no packet is in.
    pub(crate) fn shrink(&mut self) {
        self.runs.shrink_to_fit();
    }

    /// Returns the index of the run that could contain a number, or `None` if the number is below all runs.
    #[inline]
    fn place_of(&self, number: u64) -> Option<usize> {
        // Mostly the oldest are acknowledged.
        let near = (0..2).find(|at| self.runs.get(at + 1).is_none_or(|run| number < run.first));
        let after =
            near.map_or_else(|| self.runs.partition_point(|run| run.first <= number), |at| at + 1);
        let at = after.min(self.runs.len()).checked_sub(1)?;
        (self.runs[at].first <= number).then_some(at)
    }

    /// Gives up the records before the lowest packet.
    fn close_up(&mut self) {
        while self.runs.front().is_some_and(|run| run.left == 0) {
            self.runs.pop_front();
        }
    }
}

impl<C: Content> SentPackets<C> {
    /// Adds a packet. A number below [`SentPackets::next`] is an error of the caller and ignored.
    #[inline]
    pub(crate) fn insert(&mut self, number: u64, packet: SentPacket<C>) {
        debug_assert!(number >= self.next && packet.count == 1, "packet numbers grow");
        if number < self.next {
            return;
        }
        self.next = number + 1;
        self.count += 1;
        let added = self.runs.back_mut().is_some_and(|run| run.add(number, &packet));
        if !added {
            self.runs.push_back(Run::new(number, packet));
        }
    }

    /// Looks at a packet.
    #[cfg(test)]
    pub(crate) fn get(&self, number: u64) -> Option<SentPacket<C>> {
        self.iter().find(|(other, _)| *other == number).map(|(_, packet)| packet)
    }

    /// Takes a packet out.
    pub(crate) fn remove(&mut self, number: u64) -> Option<SentPacket<C>> {
        let mut found = None;
        self.remove_range(number..=number, |_, packet| found = Some(packet));
        found
    }

    /// Takes out those of a range of numbers, from the highest down, and hands them to `take`, as many at once as are
    /// of one run, with the number of their first. The work is bounded by the records in the range.
    pub(crate) fn remove_range(
        &mut self,
        range: RangeInclusive<u64>,
        mut take: impl FnMut(u64, SentPacket<C>),
    ) {
        let Some(last) = self.place_of(*range.end()) else { return };
        let first = self.place_of(*range.start()).unwrap_or(0);
        if range.is_empty() {
            return;
        }
        for run in self.runs.range_mut(first..=last).rev() {
            self.count -= run.remove(&range, &mut take);
        }
        self.close_up();
    }

    /// Takes all out, from the lowest up.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = (u64, SentPacket<C>)> {
        self.count = 0;
        std::mem::take(&mut self.runs).into_iter().flat_map(|run| {
            let (first, left) = (run.first, run.left);
            let all = run.packets.into_iter().flat_map(move |packets| packets.apart(first));
            all.filter(move |(number, _)| left >> (number - first) & 1 == 1)
        })
    }

    /// All, from the lowest up.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, SentPacket<C>)> {
        self.runs.iter().flat_map(|run| {
            let packets = run.packets.as_ref();
            run.places().filter_map(move |(number, at)| Some((number, packets?.part(at, 1))))
        })
    }

    /// Numbers of packets in flight below `end`, from the lowest up, with the time at which they were sent.
    pub(crate) fn below(&self, end: u64) -> impl Iterator<Item = (u64, Timestamp)> {
        let runs = self.runs.iter().take_while(move |run| run.first < end);
        let packets = runs.filter_map(|run| Some((run, run.packets.as_ref()?.time_sent)));
        let all =
            packets.flat_map(|(run, sent)| run.places().map(move |(number, _)| (number, sent)));
        all.take_while(move |(number, _)| *number < end)
    }
}

#[cfg(test)]
mod tests;
