//! Coupled congestion control: the windows of a connection's paths grow together. All paths
//! together take no more of a shared bottleneck than one path would, and they avoid congested paths
//! (RFC 10069 s.5.3).
//!
//! * `mod.rs`: [`Coupled`], the controller of a path: NewReno (`../new_reno.rs`) with another
//!   growth in congestion avoidance;
//! * `group.rs`: the state that the controllers of a connection share;
//! * `increase.rs`: the growth of LIA and of OLIA.

mod group;
mod increase;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use super::{
    AckSample, AdjustableController, Controller, ControllerFactory, DeliveryMark, NewReno, Signal,
    TcpController,
};
use crate::Timestamp;

use group::{Figures, Group, Member};
pub(crate) use increase::Increase;

/// Creates the congestion controllers for the paths of one connection, which share a group.
#[derive(Debug)]
pub(crate) struct Siblings {
    increase: Increase,
    group: Arc<Group>,
}

impl Siblings {
    /// Creates the factory for one connection. The windows of its paths grow by the algorithm
    /// `increase`.
    pub(crate) fn new(increase: Increase) -> Siblings {
        Siblings { increase, group: Arc::default() }
    }

    /// Creates the congestion controller of one path of the connection.
    pub(super) fn start_path(&self, datagram: u16) -> Coupled {
        Coupled::new(datagram, self.increase, &self.group)
    }
}

impl ControllerFactory for Siblings {
    fn start(&self, datagram: u16, _seed: u64) -> Box<dyn Controller> {
        Box::new(self.start_path(datagram))
    }
}

/// The congestion controller of one path, coupled to the other paths of its connection.
///
/// Slow start, the reaction to loss and the smallest window are those of NewReno, as the documents
/// that define LIA and OLIA require. With several paths, OLIA permits a slow start threshold of one
/// datagram. This controller does not, because RFC 9002 s.7.2 requires two.
#[derive(Debug)]
pub(crate) struct Coupled {
    reno: NewReno,
    increase: Increase,
    member: Member,
    /// Growth of the window that is not yet applied because it is less than a byte, 0 to 1.
    rest: f64,
    last_sent: Timestamp,
    losses: Losses,
}

/// Bytes that were acknowledged between the last losses of a path. OLIA estimates from them how
/// often the path loses packets.
#[derive(Debug, Clone, Copy, Default)]
struct Losses {
    /// Bytes acknowledged between the two losses before the last one.
    before: u64,
    /// Bytes acknowledged between the last two losses.
    between: u64,
    /// Bytes acknowledged since the last loss.
    since: u64,
}

impl Coupled {
    fn new(datagram: u16, increase: Increase, group: &Arc<Group>) -> Coupled {
        Coupled {
            reno: NewReno::new(datagram),
            increase,
            member: Member::of(group),
            rest: 0.0,
            last_sent: Timestamp::START,
            losses: Losses::default(),
        }
    }

    /// Publishes the state of this path to the controllers of the connection's other paths.
    fn publish(&self, rtt: std::time::Duration) {
        self.member.publish(&Figures {
            window: self.reno.window(),
            rtt,
            between_losses: self.losses.between.max(self.losses.since),
            last_sent: self.last_sent,
        });
    }

    fn avoid(&mut self, sample: &AckSample<'_>) {
        let siblings = self.member.siblings(sample.now);
        let own = self.member.own();
        let per_byte = self.increase.per_byte(&own, siblings);
        let grown = per_byte * sample.acked as f64 * self.reno.datagram() as f64 + self.rest;
        // The growth can be negative, because OLIA shifts growth from the path with the largest
        // window to the best paths.
        let whole = grown.floor();
        self.rest = grown - whole;
        self.reno.change_by(whole as i64);
    }
}

impl Controller for Coupled {
    fn set_initial_window(&mut self, window: u64) {
        self.reno.set_initial_window(window);
    }

    fn on_sent(&mut self, now: Timestamp, bytes: u64, in_flight: u64) {
        self.last_sent = now;
        self.member.on_sent(now);
        self.reno.on_sent(now, bytes, in_flight);
    }

    fn on_packet_lost(&mut self, now: Timestamp, size: u64, sent: &DeliveryMark, lost: u64) {
        self.reno.on_packet_lost(now, size, sent, lost);
    }

    fn on_ack(&mut self, sample: &AckSample<'_>) {
        self.losses.since = self.losses.since.saturating_add(sample.acked);
        self.member.join();
        self.publish(sample.rtt.smoothed());
        if self.reno.may_grow(sample) {
            match self.reno.in_slow_start() {
                true => self.reno.change_by(i64::try_from(sample.acked).unwrap_or(i64::MAX)),
                false => self.avoid(sample),
            }
            self.member.on_window(self.reno.window());
        }
    }

    fn on_congestion(&mut self, now: Timestamp, largest_sent: Timestamp, signal: Signal) {
        if self.reno.is_news(largest_sent) {
            self.losses =
                Losses { before: self.losses.between, between: self.losses.since, since: 0 };
        }
        self.reno.on_congestion(now, largest_sent, signal);
        self.member.on_window(self.reno.window());
    }

    fn on_spurious_loss(&mut self, now: Timestamp) {
        let window = self.reno.window();
        self.reno.on_spurious_loss(now);
        if self.reno.window() > window {
            let Losses { before, between, since } = self.losses;
            self.losses =
                Losses { before: 0, between: before, since: since.saturating_add(between) };
        }
        self.member.on_window(self.reno.window());
    }

    fn on_persistent_congestion(&mut self, now: Timestamp) {
        self.reno.on_persistent_congestion(now);
        self.member.on_window(self.reno.window());
    }

    fn on_datagram_size(&mut self, size: u16) {
        self.reno.on_datagram_size(size);
        self.member.on_window(self.reno.window());
    }

    fn adjustable(&mut self) -> Option<&mut dyn AdjustableController> {
        Some(self)
    }

    fn window(&self) -> u64 {
        self.reno.window()
    }

    fn slow_start_threshold(&self) -> Option<u64> {
        self.reno.slow_start_threshold()
    }

    fn state(&self) -> &'static str {
        self.reno.state()
    }

    fn name(&self) -> &'static str {
        self.increase.name()
    }
}

impl TcpController for Coupled {
    fn on_retransmission_timeout(&mut self, now: Timestamp) {
        self.reno.on_retransmission_timeout(now);
        self.member.on_window(self.reno.window());
    }
}

impl AdjustableController for Coupled {
    fn set_window(&mut self, window: u64) {
        self.rest = 0.0;
        self.reno.set_window(window);
        self.member.on_window(self.reno.window());
    }

    fn set_slow_start_threshold(&mut self, threshold: Option<u64>) {
        self.reno.set_slow_start_threshold(threshold);
    }
}
