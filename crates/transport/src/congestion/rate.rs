//! Estimates the delivery rate of a path: how fast data arrives at the receiver
//! (draft-ietf-ccwg-bbr s.4.1).

use std::time::Duration;

use super::Rate;
use crate::Timestamp;
use crate::recovery::DeliveryMark;

/// Estimates the delivery rate of one path.
#[derive(Debug, Clone, Default)]
pub struct DeliveryRate {
    delivered: u64,
    delivered_at: Timestamp,
    first_sent: Timestamp,
    lost: u64,
    /// Number of delivered bytes up to which rate samples count as application-limited. Zero if
    /// they do not.
    app_limited_until: u64,
}

/// A sample of the path's delivery rate, from the packets that one ACK frame acknowledges.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RateSample {
    /// Delivery rate in bytes per second in the measured interval. `None` if the interval was too
    /// short.
    pub rate: Option<Rate>,
    /// Bytes delivered on the path since the newest acknowledged packet was sent.
    pub delivered: u64,
    /// Bytes that the path had delivered when the newest acknowledged packet was sent.
    pub prior_delivered: u64,
    /// Total number of bytes that the path has delivered.
    pub total_delivered: u64,
    /// True if a lack of data to send, not the path, limited the rate.
    pub app_limited: bool,
    /// RTT of the newest acknowledged packet.
    pub rtt: Duration,
    /// Bytes lost on the path since the newest acknowledged packet was sent.
    pub lost: u64,
    /// Bytes in flight directly after the newest acknowledged packet was sent.
    pub sent_in_flight: u64,
}

impl DeliveryRate {
    /// Returns the number of bytes lost on the path so far.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Returns the number of bytes that the path has delivered so far.
    pub fn delivered(&self) -> u64 {
        self.delivered
    }

    /// Records a sent packet. `in_flight` does not include the packet. Returns a mark that the
    /// caller must store with the packet.
    pub fn on_sent(&mut self, now: Timestamp, bytes: u64, in_flight: u64) -> DeliveryMark {
        if in_flight == 0 {
            (self.first_sent, self.delivered_at) = (now, now);
        }
        DeliveryMark {
            delivered: self.delivered,
            delivered_at: self.delivered_at,
            first_sent: self.first_sent,
            in_flight: in_flight + bytes,
            lost: self.lost,
            app_limited: self.app_limited_until > 0,
        }
    }

    /// Records that the application had too little data to fill the congestion window.
    pub fn on_app_limited(&mut self, in_flight: u64) {
        self.app_limited_until = (self.delivered + in_flight).max(1);
    }

    /// Records that this number of bytes was lost on the path.
    pub fn on_lost(&mut self, bytes: u64) {
        self.lost += bytes;
    }

    /// Processes packets that an ACK frame acknowledges, and returns a rate sample. For each
    /// packet, the iterator returns the time at which it was sent, its size and its mark. The
    /// sample has no rate if its interval is shorter than `min_rtt`, the smallest known RTT.
    pub fn on_acked(
        &mut self,
        now: Timestamp,
        packets: impl Iterator<Item = (Timestamp, u64, DeliveryMark)>,
        min_rtt: Duration,
    ) -> Option<RateSample> {
        let mut newest: Option<(Timestamp, DeliveryMark)> = None;
        for (sent, bytes, mark) in packets {
            self.delivered += bytes;
            self.delivered_at = now;
            let newer =
                newest.is_none_or(|(time, other)| (mark.delivered, sent) > (other.delivered, time));
            if newer {
                newest = Some((sent, mark));
            }
        }
        let (sent, mark) = newest?;
        if self.app_limited_until > 0 && self.delivered > self.app_limited_until {
            self.app_limited_until = 0;
        }
        // The sender's rate and the rate at which the peer acknowledges are both measured. The
        // slower one is the rate of the path (s.4.1.1.3).
        let interval = sent.since(mark.first_sent).max(now.since(mark.delivered_at));
        self.first_sent = sent;
        let delivered = self.delivered - mark.delivered;
        let rate = (interval >= min_rtt && !interval.is_zero())
            .then(|| Rate::bytes_per_second(delivered as f64 / interval.as_secs_f64()));
        Some(RateSample {
            rate,
            delivered,
            prior_delivered: mark.delivered,
            total_delivered: self.delivered,
            app_limited: mark.app_limited,
            rtt: now.since(sent),
            lost: self.lost - mark.lost,
            sent_in_flight: mark.in_flight,
        })
    }
}
