//! Loss detection (RFC 9002): what was acknowledged, what is lost, when to look again.
//!
//! * `rtt.rs`: the round-trip time of a path;
//! * `sent.rs`: packets in flight of a packet number space;
//! * `timer.rs`: the timer over all spaces;
//! * [`LossDetector`], here: one a packet number space, over both.
//!
//! Nothing here knows frames, paths or keys: `C` is whatever the connection wants back when a packet
//! is acknowledged or lost. The reaction to loss is the connection's.

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

/// Distance in packet numbers from which on an earlier packet counts as lost (RFC 9002 s.6.1.1, kPacketThreshold).
pub(crate) const PACKET_THRESHOLD: u64 = 3;

/// Round trips after which an earlier packet counts as lost (RFC 9002 s.6.1.2, kTimeThreshold).
pub(crate) const TIME_THRESHOLD: f32 = 9.0 / 8.0;

/// Most ranges of lost packets remembered, to notice a packet that was acknowledged after all.
const LOST_RANGES: usize = 64;

/// Most ranges of skipped packet numbers remembered.
const SKIPPED_RANGES: usize = 64;

/// Packets that elicit no acknowledgement, remembered at a time: those that only acknowledge need not
/// be acknowledged, and a peer that sends much and says little would have us keep them all.
const SILENT: usize = 64;

/// Limit on the span of packet numbers in flight, in addition to two for each packet in flight. Beyond it, the oldest
/// packet is declared lost. Only a peer that never acknowledges the oldest packet gets here.
const SPARE_NUMBERS: usize = 4096;

/// Thresholds beyond which a packet counts as lost (RFC 9002 s.6.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Thresholds {
    /// Packet threshold: a packet this far below the largest acknowledged one is lost.
    pub packets: u64,
    /// Time threshold: a packet sent this long ago is lost, if a later one was acknowledged.
    pub delay: Duration,
}

/// Packets that an ACK frame acknowledged.
#[derive(Debug, Clone)]
pub(crate) struct Acked<C> {
    /// Packets newly acknowledged, from the highest number down: as many together as are of one run, with the number
    /// of the first.
    pub packets: Vec<(u64, SentPacket<C>)>,
    /// Number of acknowledged packets that had been declared lost.
    pub spurious: u64,
}

impl<C: Content> Acked<C> {
    /// Has each packet by itself.
    pub(crate) fn take_apart(&mut self) {
        let packets = std::mem::take(&mut self.packets).into_iter();
        self.packets = packets.flat_map(|(number, run)| run.apart(number).rev()).collect();
    }
}

impl<C> Acked<C> {
    /// The one to take an RTT sample from: the largest acknowledged if it is new and something new
    /// in the frame is ack-eliciting (RFC 9002 s.5.1).
    pub(crate) fn rtt_sample(&self, largest: u64) -> Option<&SentPacket<C>> {
        let (number, packet) = self.packets.first()?;
        let elicited = self.packets.iter().any(|(_, packet)| packet.ack_eliciting);
        (packet.last(*number) == largest && elicited).then_some(packet)
    }
}

/// The peer acknowledged a packet that was never sent: a connection error of type
/// PROTOCOL_VIOLATION (RFC 9000 s.13.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NeverSent(pub u64);

/// Loss detection of one packet number space.
#[derive(Debug, Clone)]
pub(crate) struct LossDetector<C> {
    sent: SentPackets<C>,
    /// Numbers left out on purpose; an acknowledgement of one is a lie (RFC 9000 s.21.4).
    skipped: RangeSet,
    lost: RangeSet,
    largest_acked: Option<u64>,
    loss_time: Option<Timestamp>,
    last_ack_eliciting: Option<Timestamp>,
    ack_eliciting: usize,
    /// Numbers of packets that elicit no acknowledgement, as sent.
    silent: VecDeque<u64>,
    /// Number of packets that elicit no acknowledgement sent since the last one that does.
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
    /// Packets in flight.
    pub(crate) fn sent(&self) -> &SentPackets<C> {
        &self.sent
    }

    /// The largest number the peer has acknowledged.
    pub(crate) fn largest_acked(&self) -> Option<u64> {
        self.largest_acked
    }

    /// Returns the time at which the next packet will be declared lost, or `None`.
    pub(crate) fn loss_time(&self) -> Option<Timestamp> {
        self.loss_time
    }

    /// Number of packets in flight that the peer acknowledges.
    pub(crate) fn ack_eliciting(&self) -> usize {
        self.ack_eliciting
    }

    /// Time at which an ack-eliciting packet was last sent, while one is in flight: the PTO counts from
    /// there (RFC 9002 s.6.2.1).
    pub(crate) fn last_ack_eliciting(&self) -> Option<Timestamp> {
        self.last_ack_eliciting.filter(|_| self.ack_eliciting > 0)
    }

    /// The oldest packets in flight that the peer acknowledges, with their numbers, from the lowest up: what a probe
    /// repeats (RFC 9002 s.6.2.4).
    pub(crate) fn oldest_ack_eliciting(&self) -> impl Iterator<Item = (u64, SentPacket<C>)> {
        self.sent.iter().filter(|(_, packet)| packet.ack_eliciting)
    }

    /// A packet was sent. Numbers between this and the last were skipped on purpose.
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
        if self.silent.len() > SILENT
            && let Some(oldest) = self.silent.pop_front()
        {
            self.sent.remove(oldest);
        }
    }

    /// Releases unused memory. Packets that elicit no acknowledgment are forgotten. Later packets repeat their
    /// acknowledgments.
    pub(crate) fn shrink(&mut self) {
        for number in std::mem::take(&mut self.silent) {
            self.sent.remove(number);
        }
        self.sent.shrink();
        self.lost.shrink();
        self.skipped.shrink();
    }

    /// Number of packets that elicit no acknowledgement sent since the last one that does.
    pub(crate) fn silent_since(&self) -> usize {
        self.silent_since
    }

    /// Returns true if the span of packet numbers in flight exceeds its limit, so that [`LossDetector::detect_lost`]
    /// declares the oldest packet lost.
    pub(crate) fn is_overgrown(&self) -> bool {
        self.sent.span() > SPARE_NUMBERS + 2 * self.sent.len()
    }

    /// Takes the packets of an ACK frame out of flight. `ranges` come from the highest down, as in
    /// the frame (RFC 9000 s.19.3.1).
    ///
    /// The work is bounded by what is in flight, not by what the frame claims.
    ///
    /// # Errors
    /// If a range reaches a number that was never sent; nothing has changed then.
    pub(crate) fn on_ack(
        &mut self,
        ranges: impl Iterator<Item = RangeInclusive<u64>> + Clone,
    ) -> Result<Acked<C>, NeverSent> {
        for range in ranges.clone() {
            // RFC 9000 s.13.1: acknowledging what was not sent.
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

    /// Gives up what counts as lost by now, from the lowest number up, and sets when to look again
    /// (RFC 9002 A.10). Only packets before the largest acknowledged can be lost.
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

    /// Gives up every packet: after a Retry, or a path that is no more.
    pub(crate) fn give_up_all(&mut self) -> Vec<(u64, SentPacket<C>)> {
        (self.ack_eliciting, self.loss_time) = (0, None);
        self.sent.drain().collect()
    }
}

/// True if the lost packets make persistent congestion (RFC 9002 s.7.6): two ack-eliciting packets,
/// both lost, with nothing acknowledged between them, sent further apart than `duration` and after
/// the first RTT sample.
///
/// `lost` are the packets lost at once, from the lowest number up; a gap in their numbers means that
/// one between was acknowledged, still is in flight, or was never sent.
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

/// The duration for [`persistent_congestion`] (RFC 9002 s.7.6.1).
pub(crate) fn persistent_congestion_duration(
    rtt: &RttEstimator,
    max_ack_delay: Duration,
) -> Duration {
    /// kPersistentCongestionThreshold.
    const THRESHOLD: u32 = 3;
    (rtt.pto_base() + max_ack_delay) * THRESHOLD
}
