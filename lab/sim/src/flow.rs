//! Counters of the packets of a flow.

use crate::packet::{DropCause, Ecn, Packet};
use crate::time::Time;

/// Counters of a flow. Numbers of bytes include IP headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowStats {
    /// Packets that agents sent.
    pub sent: u64,
    /// Bytes of the packets in `sent`.
    pub sent_bytes: u64,
    /// Packets delivered to an agent, including duplicates.
    pub delivered: u64,
    /// Bytes of the packets in `delivered`.
    pub delivered_bytes: u64,
    /// Packets in `delivered` that a queue had marked (CE).
    pub marked: u64,
    /// Packets that a queue dropped.
    pub dropped: u64,
    /// Packets that were lost on a link.
    pub lost: u64,
    /// Packets dropped because they were larger than the MTU of a link.
    pub too_large: u64,
    /// Packets dropped because their destination has no agent or no route.
    pub unreachable: u64,
    /// Time at which the first packet was sent.
    pub first_sent: Option<Time>,
    /// Time at which the last packet was delivered to an agent.
    pub last_delivered: Option<Time>,
}

/// The state of a flow during a run.
#[derive(Default)]
pub(crate) struct Flow(FlowStats);

impl Flow {
    pub(crate) fn stats(&self) -> FlowStats {
        self.0
    }

    pub(crate) fn on_sent(&mut self, now: Time, packet: &Packet) {
        self.0.sent += 1;
        self.0.sent_bytes += u64::from(packet.ip_bytes);
        self.0.first_sent.get_or_insert(now);
    }

    pub(crate) fn on_delivered(&mut self, now: Time, packet: &Packet) {
        self.0.delivered += 1;
        self.0.delivered_bytes += u64::from(packet.ip_bytes);
        self.0.marked += u64::from(packet.ecn == Ecn::Ce);
        self.0.last_delivered = Some(now);
    }

    pub(crate) fn on_dropped(&mut self, cause: DropCause) {
        match cause {
            DropCause::Full | DropCause::Early => self.0.dropped += 1,
            DropCause::Lost => self.0.lost += 1,
            DropCause::TooLarge => self.0.too_large += 1,
            DropCause::Unreachable => self.0.unreachable += 1,
        }
    }
}
