//! Loss detection (RFC 9002): which packets are acknowledged, which are lost, and when to check
//! again.
//!
//! * `rtt.rs`: the round-trip time of a path;
//! * `sent.rs`: the packets in flight of a packet number space;
//! * `timer.rs`: the timer for all packet number spaces;
//! * [`LossDetector`], in this file: the loss detection of one packet number space.
//!
//! This module does not know frames, paths or keys. The type parameter `C` is the content of a
//! packet. The connection gets it back when the packet is acknowledged or lost, and decides how to
//! react.

mod rtt;
mod sent;
#[cfg(test)]
mod tests;
mod timer;

use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::time::Duration;

use crate::Timestamp;
use crate::ranges::RangeSet;

pub use rtt::RttEstimator;
pub(crate) use rtt::{GRANULARITY, INITIAL_RTT};
pub use sent::DeliveryMark;
pub(crate) use sent::{Content, SentPacket, SentPackets};
pub(crate) use timer::{Due, LossTimer, ProbeState, ProbeTimer};

/// A packet counts as lost if the peer has acknowledged a packet whose number is higher by at least
/// this much (RFC 9002 s.6.1.1 #1, kPacketThreshold).
pub(crate) const PACKET_THRESHOLD: u64 = 3;

/// If the peer has acknowledged a later packet, a packet counts as lost this many round trips after
/// it was sent (RFC 9002 s.6.1.2 #4, kTimeThreshold).
pub(crate) const TIME_THRESHOLD: f32 = 9.0 / 8.0;

/// Largest number of ranges of lost packets that are remembered. They are needed to detect that a
/// packet is acknowledged after it was declared lost.
const LOST_RANGES: usize = 64;

/// Largest number of remembered ranges of packet numbers that were skipped deliberately.
const SKIPPED_RANGES: usize = 64;

/// Largest number of remembered packets that elicit no acknowledgment. A peer need not acknowledge
/// such packets. Without this limit, a peer that sends much and acknowledges little would make this
/// end remember them all.
const MAX_NON_ELICITING: usize = 64;

/// Limits the span of packet numbers in flight: to this number, plus two for each packet in flight.
/// Above the limit, the oldest packet is declared lost. Only a peer that never acknowledges the
/// oldest packet causes that.
const SPARE_NUMBERS: usize = 4096;

/// The thresholds for declaring a packet lost (RFC 9002 s.6.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Thresholds {
    /// Packet threshold: a packet is lost if its number is lower by this much than the largest
    /// acknowledged number.
    pub packets: u64,
    /// Time threshold: if a later packet was acknowledged, a packet is lost this long after it was
    /// sent.
    pub delay: Duration,
}

/// The packets that an ACK frame newly acknowledged, and the number of spurious losses that it
/// revealed.
#[derive(Debug, Clone)]
pub(crate) struct Acked<C> {
    /// The newly acknowledged packets, from the highest number down. Consecutive packets of one run
    /// (see `sent.rs`) form one entry, which has the number of the first.
    pub packets: Vec<(u64, SentPacket<C>)>,
    /// Number of newly acknowledged packets that had been declared lost.
    pub spurious: u64,
}

impl<C: Content> Acked<C> {
    /// Splits the entries of several packets, so that each packet has its own entry.
    pub(crate) fn take_apart(&mut self) {
        let packets = std::mem::take(&mut self.packets).into_iter();
        self.packets = packets.flat_map(|(number, run)| run.apart(number).rev()).collect();
    }
}

impl<C> Acked<C> {
    /// Returns the packet that provides an RTT sample, or `None`. It is the largest acknowledged
    /// packet, if it is newly acknowledged and the ACK frame newly acknowledges an ack-eliciting
    /// packet (RFC 9002 s.5.1 #1 #2).
    pub(crate) fn rtt_sample(&self, largest: u64) -> Option<&SentPacket<C>> {
        let (number, packet) = self.packets.first()?;
        let elicited = self.packets.iter().any(|(_, packet)| packet.ack_eliciting);
        (packet.last(*number) == largest && elicited).then_some(packet)
    }
}

/// Error: the peer acknowledged a packet that was never sent. This is a connection error of type
/// PROTOCOL_VIOLATION (RFC 9000 s.13.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NeverSent(pub u64);

/// The loss detection of one packet number space.
#[derive(Debug, Clone)]
pub(crate) struct LossDetector<C> {
    sent: SentPackets<C>,
    /// Packet numbers that were skipped deliberately. If the peer acknowledges one of them, it
    /// acknowledges packets that it has not received (RFC 9000 s.21.4).
    skipped: RangeSet,
    lost: RangeSet,
    largest_acked: Option<u64>,
    loss_time: Option<Timestamp>,
    last_ack_eliciting: Option<Timestamp>,
    ack_eliciting: usize,
    /// Numbers of sent packets that elicit no acknowledgment, in the order in which they were sent.
    silent: VecDeque<u64>,
    /// Number of packets sent since the last ack-eliciting packet.
    silent_since: usize,
}

impl<C> Default for LossDetector<C> {
    fn default() -> LossDetector<C> {
        LossDetector {
            sent: SentPackets::default(),
            skipped: RangeSet::new(),
            lost: RangeSet::new(),
            largest_acked: None,
            loss_time: None,
            last_ack_eliciting: None,
            ack_eliciting: 0,
            silent: VecDeque::new(),
            silent_since: 0,
        }
    }
}

impl<C: Content> LossDetector<C> {
    /// Returns the packets in flight of this packet number space.
    pub(crate) fn sent(&self) -> &SentPackets<C> {
        &self.sent
    }

    /// Returns the largest packet number that the peer has acknowledged.
    pub(crate) fn largest_acked(&self) -> Option<u64> {
        self.largest_acked
    }

    /// Returns the time at which the next packet will be declared lost. Returns `None` if only
    /// further acknowledgments can show a loss.
    pub(crate) fn loss_time(&self) -> Option<Timestamp> {
        self.loss_time
    }

    /// Returns the number of ack-eliciting packets in flight.
    pub(crate) fn ack_eliciting(&self) -> usize {
        self.ack_eliciting
    }

    /// Returns the time at which the last ack-eliciting packet was sent, from which the PTO counts
    /// (RFC 9002 s.6.2.1). Returns `None` if no ack-eliciting packet is in flight.
    pub(crate) fn last_ack_eliciting(&self) -> Option<Timestamp> {
        self.last_ack_eliciting.filter(|_| self.ack_eliciting > 0)
    }

    /// Returns the ack-eliciting packets in flight with their numbers, from the lowest up. A probe
    /// repeats the content of the oldest of them (RFC 9002 s.6.2.4).
    pub(crate) fn oldest_ack_eliciting(&self) -> impl Iterator<Item = (u64, SentPacket<C>)> {
        self.sent.iter().filter(|(_, packet)| packet.ack_eliciting)
    }

    /// Records that the packet `number` was sent. All numbers between this packet and the previous
    /// one were skipped deliberately.
    pub(crate) fn on_packet_sent(&mut self, number: u64, packet: SentPacket<C>) {
        let next = self.sent.next();
        if number > next {
            self.skipped.insert(next..number);
            if self.skipped.len() > SKIPPED_RANGES {
                self.skipped.pop_min();
            }
        }
        if packet.ack_eliciting {
            self.ack_eliciting += 1;
            self.last_ack_eliciting = Some(packet.time_sent);
            self.silent_since = 0;
        } else if !packet.in_flight {
            self.silent.push_back(number);
            self.silent_since += 1;
        }
        self.sent.insert(number, packet);
        if self.silent.len() > MAX_NON_ELICITING
            && let Some(oldest) = self.silent.pop_front()
        {
            self.sent.remove(oldest);
        }
    }

    /// Releases unused memory, and forgets packets that elicit no acknowledgment. The ACK frames in
    /// these packets are repeated in later packets, so their loss does not matter.
    pub(crate) fn shrink(&mut self) {
        for number in std::mem::take(&mut self.silent) {
            self.sent.remove(number);
        }
        self.sent.shrink();
        self.lost.shrink();
        self.skipped.shrink();
    }

    /// Returns the number of packets sent since the last ack-eliciting packet.
    pub(crate) fn silent_since(&self) -> usize {
        self.silent_since
    }

    /// Returns true if the span of packet numbers in flight exceeds its limit, so that
    /// [`LossDetector::detect_lost`] declares the oldest packet lost.
    pub(crate) fn is_overgrown(&self) -> bool {
        self.sent.span() > SPARE_NUMBERS + 2 * self.sent.len()
    }

    /// Processes the packet number ranges of an ACK frame, from the highest down as in the frame
    /// (RFC 9000 s.19.3.1). Returns the newly acknowledged packets, which are no longer in flight.
    ///
    /// The cost depends on the number of packets in flight, not on the size of the acknowledged
    /// ranges.
    ///
    /// # Errors
    /// Fails, and changes nothing, if a range contains a number that was never sent.
    pub(crate) fn on_ack(
        &mut self,
        ranges: impl Iterator<Item = RangeInclusive<u64>> + Clone,
    ) -> Result<Acked<C>, NeverSent> {
        for range in ranges.clone() {
            // RFC 9000 s.13.1: if the peer acknowledges a packet that was not sent, this is a
            // connection error.
            if *range.end() >= self.sent.next() {
                return Err(NeverSent(*range.end()));
            }
            if self.skipped.intersects(*range.start()..*range.end() + 1) {
                return Err(NeverSent(*range.start()));
            }
        }
        let mut acked = Acked { packets: Vec::new(), spurious: 0 };
        for range in ranges {
            self.largest_acked = self.largest_acked.max(Some(*range.end()));
            if !self.lost.is_empty() {
                let before = self.lost.covered();
                self.lost.remove(*range.start()..*range.end() + 1);
                acked.spurious += before - self.lost.covered();
            }
            self.sent.remove_range(range, |number, packet| {
                self.ack_eliciting -= packet.eliciting();
                acked.packets.push((number, packet));
            });
        }
        Ok(acked)
    }

    /// Declares packets lost and returns them, from the lowest number up. Sets the time of the next
    /// check (RFC 9002 A.10). Only packets that were sent before the largest acknowledged packet
    /// can be lost.
    pub(crate) fn detect_lost(
        &mut self,
        now: Timestamp,
        thresholds: Thresholds,
    ) -> Vec<(u64, SentPacket<C>)> {
        self.loss_time = None;
        let mut lost = Vec::new();
        if self.is_overgrown() {
            lost.extend(self.sent.lowest());
        }
        let largest = self.largest_acked.unwrap_or(0);
        for (number, time_sent) in self.sent.below(largest) {
            let late = time_sent + thresholds.delay;
            if lost.first() == Some(&number) {
                continue;
            }
            if late <= now || largest >= number.saturating_add(thresholds.packets) {
                lost.push(number);
            } else {
                self.loss_time = Some(self.loss_time.map_or(late, |time| time.min(late)));
            }
        }
        lost.into_iter().filter_map(|number| Some((number, self.give_up(number)?))).collect()
    }

    fn give_up(&mut self, number: u64) -> Option<SentPacket<C>> {
        let packet = self.sent.remove(number)?;
        self.ack_eliciting -= packet.eliciting();
        self.lost.insert_one(number);
        if self.lost.len() > LOST_RANGES {
            self.lost.pop_min();
        }
        Some(packet)
    }

    /// Declares all packets in flight lost, after a Retry packet or when the path has ended.
    pub(crate) fn give_up_all(&mut self) -> Vec<(u64, SentPacket<C>)> {
        (self.ack_eliciting, self.loss_time) = (0, None);
        self.sent.drain().collect()
    }
}

/// Returns true if the lost packets establish persistent congestion (RFC 9002 s.7.6). That requires
/// two lost ack-eliciting packets, sent more than `duration` apart and after the first RTT sample.
/// No packet that was sent between them may be acknowledged.
///
/// `lost` are packets that were declared lost at the same time, from the lowest number up. A gap in
/// their numbers means that a packet between them was acknowledged, is still in flight, or was
/// never sent.
// RFC 9002 s.7.6.2 #1 #2
pub(crate) fn persistent_congestion<C>(
    lost: &[(u64, SentPacket<C>)],
    first_sample: Option<Timestamp>,
    duration: Duration,
) -> bool {
    let Some(first_sample) = first_sample else { return false };
    let mut since: Option<(Timestamp, u64)> = None;
    for (number, packet) in lost {
        if since.is_some_and(|(_, before)| before + 1 != *number) {
            since = None;
        }
        if let Some((_, before)) = &mut since {
            *before = *number;
        }
        if !packet.ack_eliciting || packet.time_sent <= first_sample {
            continue;
        }
        match since {
            Some((start, _)) if packet.time_sent.since(start) > duration => return true,
            Some(_) => {}
            None => since = Some((packet.time_sent, *number)),
        }
    }
    false
}

/// Returns the value of `duration` for [`persistent_congestion`] (RFC 9002 s.7.6.1).
pub(crate) fn persistent_congestion_duration(
    rtt: &RttEstimator,
    max_ack_delay: Duration,
) -> Duration {
    /// kPersistentCongestionThreshold in RFC 9002 s.7.6.1.
    const THRESHOLD: u32 = 3;
    (rtt.pto_base() + max_ack_delay) * THRESHOLD
}
