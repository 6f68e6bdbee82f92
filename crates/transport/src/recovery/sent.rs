//! The packets in flight of one packet number space.
//!
//! Bulk data is sent in batches of packets that differ only in their packet number and in the
//! stream offset of their data. One record represents such a *run* of packets. If thousands of
//! packets are in flight, this takes much less memory than one record per packet. If one ACK frame
//! acknowledges a whole run, the run is processed only once.

use std::collections::VecDeque;
use std::ops::RangeInclusive;

use crate::Timestamp;

/// The record of a sent packet, or of a run of packets, until it is acknowledged or declared lost
/// (RFC 9002 A.1.1). The type parameter `C` is the content, which the caller needs to send the data
/// again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SentPacket<C> {
    /// Time at which the packet was sent.
    pub time_sent: Timestamp,
    /// Length of the packet in the UDP payload, in bytes. All packets of a run have this length.
    pub size: u16,
    /// Number of packets in the run. Their packet numbers are consecutive.
    pub count: u16,
    /// True if the peer must acknowledge the packet (RFC 9002 s.2).
    pub ack_eliciting: bool,
    /// True if the packet counts toward bytes in flight (RFC 9002 s.2).
    pub in_flight: bool,
    /// True if the packet probes the path's MTU. Its loss does not indicate congestion (RFC 9000
    /// s.14.4).
    pub mtu_probe: bool,
    /// The path's delivery state when the packet was sent, for samples of the delivery rate. For a
    /// run, the state when its first packet was sent.
    pub delivery: DeliveryMark,
    /// Content of the packet, which the caller needs to send it again. For a run, the content of
    /// all its packets.
    pub content: C,
}

/// The operations that a run of packets needs on the contents of its packets.
pub(crate) trait Content {
    /// Adds the content of the next packet to this content of a run of `count` packets. Returns
    /// false if the content of each packet could not be separated again afterwards.
    fn merge(&mut self, count: u16, next: &Self) -> bool;

    /// Returns the part of this content of a run that belongs to `count` packets, beginning with
    /// the packet at index `from`. The run has `all` packets.
    fn part(&self, all: u16, from: u16, count: u16) -> Self;
}

impl<C> SentPacket<C> {
    /// Returns the total length of all packets of the run, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        u64::from(self.size) * u64::from(self.count)
    }

    /// Returns the number of ack-eliciting packets in the run.
    pub(crate) fn eliciting(&self) -> usize {
        if self.ack_eliciting { self.count.into() } else { 0 }
    }

    /// Returns the delivery mark of the packet at the index `place` of the run. Its bytes in flight
    /// include those of the packets before it.
    fn delivery_at(&self, place: u16) -> DeliveryMark {
        let before = u64::from(self.size) * u64::from(place);
        DeliveryMark { in_flight: self.delivery.in_flight + before, ..self.delivery }
    }

    /// Returns the delivery mark of the last packet of the run.
    pub(crate) fn last_delivery(&self) -> DeliveryMark {
        self.delivery_at(self.count.saturating_sub(1))
    }

    /// Returns the packet number of the last packet of the run. `first` is the packet number of the
    /// first.
    pub(crate) fn last(&self, first: u64) -> u64 {
        first + u64::from(self.count.saturating_sub(1))
    }
}

impl<C: Content> SentPacket<C> {
    /// Adds a packet to the run. The packet must have been sent directly after the last packet of
    /// the run. Returns false if it differs too much to be part of the run.
    #[inline(always)]
    fn merge(&mut self, next: &SentPacket<C>) -> bool {
        let follows = self.time_sent == next.time_sent
            && self.size == next.size
            && (self.ack_eliciting, self.in_flight) == (next.ack_eliciting, next.in_flight)
            && !self.mtu_probe
            && !next.mtu_probe
            && self.delivery_at(self.count) == next.delivery
            && self.content.merge(self.count, &next.content);
        self.count += u16::from(follows);
        follows
    }

    /// Returns the record of `count` packets of the run, beginning with the packet at index `from`.
    fn part(&self, from: u16, count: u16) -> SentPacket<C> {
        let (delivery, content) =
            (self.delivery_at(from), self.content.part(self.count, from, count));
        SentPacket { count, delivery, content, ..*self }
    }

    /// Returns the packets of the run one by one, from the lowest number up. `first` is the packet
    /// number of the first packet.
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

/// The delivery state of a path at the time when a packet was sent. When the packet is
/// acknowledged, a rate sample compares it with the state at that time (draft-ietf-ccwg-bbr,
/// s.4.1.1.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DeliveryMark {
    /// Number of bytes delivered on the path so far.
    pub delivered: u64,
    /// Time at which the number `delivered` last grew.
    pub delivered_at: Timestamp,
    /// Time at which the first packet of the current flight was sent on the path.
    pub first_sent: Timestamp,
    /// Number of bytes in flight, including this packet.
    pub in_flight: u64,
    /// Number of bytes lost on the path so far.
    pub lost: u64,
    /// True if, when the packet was sent, the application did not supply enough data to fill the
    /// congestion window.
    pub app_limited: bool,
}

/// Largest number of packets in a run: one for each bit of the mask that records which packets are
/// in flight.
const MOST: u16 = u64::BITS as u16;

/// A run of packets, with a record of which of them are still in flight.
#[derive(Debug, Clone)]
struct Run<C> {
    /// Packet number of the first packet of the run.
    first: u64,
    /// One bit for each packet of the run, which is set while the packet is in flight. The lowest
    /// bit belongs to the first packet.
    left: u64,
    /// All packets of the run, including those that were removed. `None` if all were removed.
    packets: Option<SentPacket<C>>,
}

impl<C: Content> Run<C> {
    fn new(first: u64, packet: SentPacket<C>) -> Run<C> {
        Run { first, left: 1, packets: Some(packet) }
    }

    /// Adds the packet with this number if it continues the run. Otherwise returns false.
    #[inline(always)]
    fn add(&mut self, number: u64, next: &SentPacket<C>) -> bool {
        let Some(run) = &mut self.packets else { return false };
        let place = run.count;
        let here = place < MOST && number == self.first + u64::from(place);
        let added = here && run.merge(next);
        if added {
            self.left |= 1 << place;
        }
        added
    }

    /// Removes those packets of the run that are in a range of packet numbers, from the highest
    /// down, and passes them to `take`. Consecutive packets are passed together, with the number of
    /// the first. Returns the number of removed packets.
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

    /// Returns the packet numbers and indices of the run's packets that are still in flight, from
    /// the lowest up.
    fn places(&self) -> impl DoubleEndedIterator<Item = (u64, u16)> + use<C> {
        let (first, left) = (self.first, self.left);
        let places = (0..MOST - left.leading_zeros() as u16).filter(move |at| left >> at & 1 == 1);
        places.map(move |at| (first + u64::from(at), at))
    }
}

/// Packets in flight, ordered by packet number. Packets can only be added in ascending order.
#[derive(Debug, Clone)]
pub(crate) struct SentPackets<C> {
    /// The runs in ascending order of their packet numbers. The first run always has packets in
    /// flight.
    runs: VecDeque<Run<C>>,
    /// The packet number after the highest one ever sent.
    next: u64,
    count: usize,
}

impl<C> Default for SentPackets<C> {
    fn default() -> SentPackets<C> {
        SentPackets { runs: VecDeque::new(), next: 0, count: 0 }
    }
}

impl<C> SentPackets<C> {
    /// Returns the number of packets in flight.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// Returns the lowest packet number in flight.
    pub(crate) fn lowest(&self) -> Option<u64> {
        let front = self.runs.front()?;
        Some(front.first + u64::from(front.left.trailing_zeros()))
    }

    /// Returns how many packet numbers there are between the lowest in flight and the highest ever
    /// sent, including both.
    pub(crate) fn span(&self) -> usize {
        let span = self.lowest().map_or(0, |lowest| self.next - lowest);
        usize::try_from(span).unwrap_or(usize::MAX)
    }

    /// Returns the memory that the records of packets take, in bytes, without memory that their
    /// contents have allocated.
    pub(crate) fn memory(&self) -> usize {
        self.runs.len() * size_of::<Run<C>>()
    }

    /// Returns the contents of all records.
    pub(crate) fn contents(&self) -> impl Iterator<Item = &C> {
        self.runs.iter().filter_map(|run| run.packets.as_ref()).map(|packets| &packets.content)
    }

    /// Returns the number of records of packets for which memory is allocated.
    #[cfg(test)]
    pub(crate) fn capacity(&self) -> usize {
        self.runs.capacity()
    }

    /// Returns the packet number after the highest one ever sent.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Releases unused memory.
    pub(crate) fn shrink(&mut self) {
        self.runs.shrink_to_fit();
    }

    /// Returns the index of the run that could contain a packet number, or `None` if the number is
    /// below all runs.
    #[inline]
    fn place_of(&self, number: u64) -> Option<usize> {
        // Usually the oldest packets are acknowledged first, so check the first runs before a
        // search.
        let near = (0..2).find(|at| self.runs.get(at + 1).is_none_or(|run| number < run.first));
        let after =
            near.map_or_else(|| self.runs.partition_point(|run| run.first <= number), |at| at + 1);
        let at = after.min(self.runs.len()).checked_sub(1)?;
        (self.runs[at].first <= number).then_some(at)
    }

    /// Removes the runs at the front that have no packets in flight.
    fn close_up(&mut self) {
        while self.runs.front().is_some_and(|run| run.left == 0) {
            self.runs.pop_front();
        }
    }
}

impl<C: Content> SentPackets<C> {
    /// Adds a packet that was sent. A number below [`SentPackets::next`] is an error of the caller,
    /// and the packet is ignored.
    #[inline]
    pub(crate) fn insert(&mut self, number: u64, packet: SentPacket<C>) {
        debug_assert!(number >= self.next && packet.count == 1, "packet numbers increase");
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

    /// Returns a copy of the record of the packet with this number.
    #[cfg(test)]
    pub(crate) fn get(&self, number: u64) -> Option<SentPacket<C>> {
        self.iter().find(|(other, _)| *other == number).map(|(_, packet)| packet)
    }

    /// Removes the packet with this number and returns it.
    pub(crate) fn remove(&mut self, number: u64) -> Option<SentPacket<C>> {
        let mut found = None;
        self.remove_range(number..=number, |_, packet| found = Some(packet));
        found
    }

    /// Removes the packets in a range of packet numbers, from the highest down, and passes them to
    /// `take`. Consecutive packets of one run are passed together, with the number of the first.
    /// The cost depends on the number of runs in the range.
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

    /// Removes and returns all packets, from the lowest number up.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = (u64, SentPacket<C>)> {
        self.count = 0;
        std::mem::take(&mut self.runs).into_iter().flat_map(|run| {
            let (first, left) = (run.first, run.left);
            let all = run.packets.into_iter().flat_map(move |packets| packets.apart(first));
            all.filter(move |(number, _)| left >> (number - first) & 1 == 1)
        })
    }

    /// Returns all packets, from the lowest number up.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, SentPacket<C>)> {
        self.runs.iter().flat_map(|run| {
            let packets = run.packets.as_ref();
            run.places().filter_map(move |(number, at)| Some((number, packets?.part(at, 1))))
        })
    }

    /// Returns the numbers and send times of the packets in flight below `end`, from the lowest up.
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
