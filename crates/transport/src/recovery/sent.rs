//! Packets in flight of one packet number space.

use std::collections::VecDeque;
use std::ops::RangeInclusive;

use crate::Timestamp;

/// Record of a packet until it is acknowledged or given up (RFC 9002 A.1.1). `C` is its
/// content, for the caller to send again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SentPacket<C> {
    /// Time at which the packet was sent.
    pub time_sent: Timestamp,
    /// Its length in the UDP payload, in bytes.
    pub size: u16,
    /// True if the peer must acknowledge the packet (RFC 9002 s.2).
    pub ack_eliciting: bool,
    /// True if the packet counts toward bytes in flight (RFC 9002 s.2).
    pub in_flight: bool,
    /// True if the packet probes the path's MTU: its loss says nothing about congestion
    /// (RFC 9000 s.14.4).
    pub mtu_probe: bool,
    /// The path's delivery count when it was sent, for rate samples.
    pub delivery: DeliveryMark,
    /// Content of the packet, for the caller to send again.
    pub content: C,
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

/// Packets in flight by number. Numbers only grow; those skipped on purpose cost one empty place.
#[derive(Debug, Clone)]
pub(crate) struct SentPackets<C> {
    /// The number of `packets[0]`.
    first: u64,
    packets: VecDeque<Option<SentPacket<C>>>,
    count: usize,
}

impl<C> Default for SentPackets<C> {
    fn default() -> SentPackets<C> {
        SentPackets { first: 0, packets: VecDeque::new(), count: 0 }
    }
}

impl<C> SentPackets<C> {
    /// Number of packets in flight.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// Places it holds, empty ones too: from the lowest in flight to the highest ever sent.
    pub(crate) fn places(&self) -> usize {
        self.packets.len()
    }

    /// Places that it has memory for.
    #[cfg(test)]
    pub(crate) fn capacity(&self) -> usize {
        self.packets.capacity()
    }

    /// The number after the highest ever sent.
    pub(crate) fn next(&self) -> u64 {
        self.first + self.packets.len() as u64
    }

    /// Adds a packet. A number below [`SentPackets::next`] is an error of the caller and ignored.
    pub(crate) fn insert(&mut self, number: u64, packet: SentPacket<C>) {
        debug_assert!(number >= self.next(), "packet numbers grow");
        if number < self.next() {
            return;
        }
        if self.packets.is_empty() {
            self.first = number;
        }
        // A place each for numbers skipped to catch acknowledgements of packets never sent; a
        // handful, so they are not worth another structure.
        while self.next() < number {
            self.packets.push_back(None);
        }
        self.packets.push_back(Some(packet));
        self.count += 1;
    }

    /// Gives back memory that no packet is in; `next` stays known.
    pub(crate) fn rest(&mut self) {
        if self.count == 0 {
            self.first = self.next();
            self.packets.clear();
        }
        self.packets.shrink_to_fit();
    }

    /// Looks at a packet.
    #[cfg(test)]
    pub(crate) fn get(&self, number: u64) -> Option<&SentPacket<C>> {
        self.packets.get(self.index(number)?)?.as_ref()
    }

    /// Takes a packet out.
    pub(crate) fn remove(&mut self, number: u64) -> Option<SentPacket<C>> {
        let index = self.index(number)?;
        let packet = self.packets.get_mut(index)?.take()?;
        self.count -= 1;
        self.close_up();
        Some(packet)
    }

    /// Takes out those of a range of numbers, from the highest down, and hands each to `take`. The work is bounded by
    /// the places in the range.
    pub(crate) fn remove_range(
        &mut self,
        range: RangeInclusive<u64>,
        mut take: impl FnMut(u64, SentPacket<C>),
    ) {
        let Some(last) = self.index(*range.end()) else { return };
        let start = usize::try_from(range.start().saturating_sub(self.first)).unwrap_or(usize::MAX);
        let end = self.packets.len().min(last.saturating_add(1));
        if start >= end {
            return;
        }
        let (lowest, count) = (self.first + start as u64, &mut self.count);
        for (at, place) in self.packets.range_mut(start..end).enumerate().rev() {
            if let Some(packet) = place.take() {
                *count -= 1;
                take(lowest + at as u64, packet);
            }
        }
        self.close_up();
    }

    /// Gives up the places before the lowest packet, but for one, so that `next` stays known.
    fn close_up(&mut self) {
        while self.packets.len() > 1 && self.packets.front().is_some_and(Option::is_none) {
            self.packets.pop_front();
            self.first += 1;
        }
    }

    /// Takes all out, from the lowest up.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = (u64, SentPacket<C>)> {
        let (first, next) = (self.first, self.next());
        self.count = 0;
        let packets = std::mem::take(&mut self.packets);
        self.first = next;
        (first..).zip(packets).filter_map(|(number, packet)| Some((number, packet?)))
    }

    /// All, from the lowest up.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = (u64, &SentPacket<C>)> {
        let first = self.first;
        self.packets
            .iter()
            .enumerate()
            .filter_map(move |(at, packet)| Some((first + at as u64, packet.as_ref()?)))
    }

    /// Those with numbers below `end`, from the lowest up.
    pub(crate) fn below(&self, end: u64) -> impl Iterator<Item = (u64, &SentPacket<C>)> {
        self.iter().take_while(move |(number, _)| *number < end)
    }

    fn index(&self, number: u64) -> Option<usize> {
        usize::try_from(number.checked_sub(self.first)?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(content: u64) -> SentPacket<u64> {
        SentPacket {
            time_sent: Timestamp::START,
            size: 1200,
            ack_eliciting: true,
            in_flight: true,
            mtu_probe: false,
            delivery: DeliveryMark::default(),
            content,
        }
    }

    #[test]
    fn a_range_is_taken_out_from_its_highest_number_down() {
        let mut sent = SentPackets::default();
        for number in [3, 4, 6, 7, 8, 9] {
            sent.insert(number, packet(number));
        }
        let mut take = |range: RangeInclusive<u64>| {
            let mut taken = Vec::new();
            sent.remove_range(range, |number, packet| {
                assert_eq!(number, packet.content);
                taken.push(number);
            });
            (taken, sent.len(), sent.places(), sent.next())
        };
        assert_eq!(take(0..=2), (vec![], 6, 7, 10));
        assert_eq!(take(4..=7), (vec![7, 6, 4], 3, 7, 10));
        assert_eq!(take(4..=7), (vec![], 3, 7, 10), "once");
        assert_eq!(take(0..=8), (vec![8, 3], 1, 1, 10), "and the places before the next go");
        assert_eq!(take(10..=u64::MAX), (vec![], 1, 1, 10));
        #[expect(clippy::reversed_empty_ranges, reason = "it may be one")]
        let reversed = take(9..=8);
        assert_eq!(reversed, (vec![], 1, 1, 10));
        assert_eq!(take(0..=u64::MAX), (vec![9], 0, 1, 10));
    }

    #[test]
    fn keeps_what_is_in_flight_and_nothing_else() {
        let mut sent = SentPackets::default();
        for number in [0, 1, 2, 5, 6] {
            sent.insert(number, packet(number));
        }
        assert_eq!((sent.len(), sent.next()), (5, 7));
        assert!(sent.get(3).is_none() && sent.get(7).is_none());
        assert_eq!(sent.remove(5).map(|p| p.content), Some(5));
        assert_eq!(sent.remove(5), None);
        let numbers: Vec<u64> = sent.iter().map(|(number, _)| number).collect();
        assert_eq!(numbers, [0, 1, 2, 6]);
        for number in [0, 1, 2] {
            sent.remove(number);
        }
        assert!(sent.packets.len() <= 2, "places of acknowledged packets go");
        assert_eq!(sent.below(6).count(), 0);
        assert_eq!(sent.drain().map(|(number, _)| number).collect::<Vec<_>>(), [6]);
        assert_eq!((sent.len(), sent.next()), (0, 7));
        sent.insert(9, packet(9));
        assert_eq!(sent.get(9).map(|p| p.content), Some(9));
        sent.rest();
        assert_eq!((sent.len(), sent.next(), sent.packets.capacity()), (1, 10, 1));
        sent.remove(9);
        sent.rest();
        assert_eq!((sent.next(), sent.places(), sent.packets.capacity()), (10, 0, 0));
        assert_eq!(sent.remove(9), None);
        sent.insert(12, packet(12));
        assert_eq!((sent.get(12).map(|p| p.content), sent.next()), (Some(12), 13));
    }
}
