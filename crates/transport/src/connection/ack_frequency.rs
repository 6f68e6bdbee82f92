//! Acknowledgement frequency: the peer's requests to us, and our requests to the peer
//! (draft-ietf-quic-ack-frequency).

use std::time::Duration;

use equic_wire::frame::{AckFrequency, Frame};
use equic_wire::{VarInt, Writer};

use super::Connection;
use super::bounds::PATIENCE;
use super::config::TransportConfig;
use super::presence::MayBeAttached;
use super::space::{FrameList, SentFrame, SpaceId};
use crate::Timestamp;
use crate::operation::Operation;
use crate::received::AckPolicy;
use crate::recovery::PACKET_THRESHOLD;
use crate::violation::Violation;

/// Our `min_ack_delay` transport parameter: the shortest delay that a peer may request. Timers are
/// not reliable below it.
const MIN_ACK_DELAY: Duration = Duration::from_millis(1);

/// Smallest invalid value of `max_ack_delay` (RFC 9000 s.18.2).
const MAX_ACK_DELAY: Duration = Duration::from_millis(1 << 14);

/// Acknowledgements per round trip that congestion control needs. HyStart++ needs eight samples
/// (RFC 9406 s.4.2), and the window must grow smoothly.
const ACKS_PER_WINDOW: u64 = 10;

/// Maximum number of packets that may wait for one acknowledgement, however large the window is.
const MAX_THRESHOLD: u64 = 32;

/// Returns the `min_ack_delay` that we declare. It never exceeds `max_ack_delay`: if the configured
/// `max_ack_delay` is less than [`MIN_ACK_DELAY`], it is zero.
pub(super) fn min_ack_delay(config: &TransportConfig) -> Duration {
    if config.max_ack_delay < MIN_ACK_DELAY { Duration::ZERO } else { MIN_ACK_DELAY }
}

impl Connection {
    /// Processes an ACK_FREQUENCY frame, in which the peer requests more or fewer acknowledgements.
    pub(super) fn on_ack_frequency(&mut self, now: Timestamp, frame: &AckFrequency) {
        let delay = frame.requested_max_ack_delay();
        if delay < min_ack_delay(&self.config) || delay >= MAX_ACK_DELAY {
            return self.fail(now, Violation::AckFrequencyDelay);
        }
        if !self.acks.is_news(frame.sequence_number.get()) {
            return;
        }
        let policy = AckPolicy {
            ack_eliciting_threshold: frame.ack_eliciting_threshold.get(),
            max_ack_delay: delay,
            reordering_threshold: frame.reordering_threshold.get(),
        };
        let input = (policy.ack_eliciting_threshold, delay, policy.reordering_threshold);
        if self.decide(Operation::ObeyAckFrequency, input, true) {
            self.acks.obey(policy);
        }
    }

    /// Processes an IMMEDIATE_ACK frame.
    pub(super) fn on_immediate_ack(&mut self, id: SpaceId) {
        if let Some(space) = self.space(id) {
            space.received.ask();
        }
    }

    /// Returns true if the peer supports IMMEDIATE_ACK frames.
    pub(super) fn may_ask_for_acks(&self) -> bool {
        self.peer.is_some_and(|peer| peer.min_ack_delay().is_some())
    }

    /// Requests another acknowledgement frequency from the peer if the present one no longer fits.
    /// Called after each ACK frame.
    pub(super) fn review_ack_frequency(&mut self, now: Timestamp) {
        let Some(least) = self.peer.and_then(|peer| peer.min_ack_delay()) else { return };
        let rtt = self.path().rtt().smoothed();
        // A request every few round trips is sufficient (s.7.1).
        let soon = self.acks.asked_at().is_some_and(|at| now.since(at) < rtt * 4);
        if !self.config.ack_frequency || !self.handshake.is_confirmed() || soon {
            return;
        }
        let path = self.path();
        let (key, datagram) = (path.key(), u64::from(path.mtu()).max(1));
        let packets = self.window(MayBeAttached, key) / datagram;
        let declared = self.peer.map_or(least, |peer| peer.declared_max_ack_delay());
        let threshold = (packets / ACKS_PER_WINDOW).clamp(1, MAX_THRESHOLD);
        // The peer must acknowledge at least once per round trip (s.7.1), and never later than
        // without a request.
        let usual = (threshold, (rtt / 2).min(declared).max(least), PACKET_THRESHOLD);
        let (threshold, delay, reordering) =
            self.decide(Operation::RequestAckFrequency, key, usual);
        // Probe timeouts include this delay. With a delay of seconds, one or two lost packets would
        // cause an idle timeout.
        let most = (usual.1 + PATIENCE).min(MAX_ACK_DELAY - Duration::from_millis(1));
        let delay = delay.max(least).min(most);
        // The frame has a resolution of one microsecond.
        let delay = Duration::from_micros(u64::try_from(delay.as_micros()).unwrap_or(0));
        let wanted = AckPolicy {
            ack_eliciting_threshold: threshold,
            max_ack_delay: delay,
            reordering_threshold: reordering,
        };
        self.acks.ask(now, wanted);
    }

    /// Writes the ACK_FREQUENCY frame if one is due.
    pub(super) fn write_ack_frequency(
        &mut self,
        id: SpaceId,
        writer: &mut Writer<'_>,
        frames: &mut FrameList,
    ) {
        let Some((number, policy)) = self.acks.due() else { return };
        let AckPolicy { ack_eliciting_threshold, max_ack_delay, reordering_threshold } = policy;
        let varint = |value: u64| VarInt::new(value).unwrap_or(VarInt::MAX);
        let micros = u64::try_from(max_ack_delay.as_micros()).unwrap_or(0);
        let frame = Frame::AckFrequency(AckFrequency {
            sequence_number: varint(number),
            ack_eliciting_threshold: varint(ack_eliciting_threshold),
            requested_max_ack_delay_us: varint(micros),
            reordering_threshold: varint(reordering_threshold),
        });
        if self.write_frame(id, &frame, writer).is_ok() {
            self.acks.on_sent();
            frames.push(SentFrame::AckFrequency(number));
        }
    }

    /// Processes the acknowledgement of ACK_FREQUENCY frame `number`: the requested delay now
    /// applies to the peer.
    pub(super) fn on_ack_frequency_acked(&mut self, number: u64) {
        if let Some(delay) = self.acks.on_acked(number)
            && let Some(peer) = &mut self.peer
        {
            peer.on_ack_delay_requested(delay);
        }
    }

    /// Returns the longest time for which the peer may delay an acknowledgement, under its current
    /// policy or an unacknowledged request (s.6).
    pub(super) fn peer_max_ack_delay(&self) -> Duration {
        let current = self.peer.map_or(Duration::ZERO, |peer| peer.max_ack_delay());
        current.max(self.acks.pending_delay())
    }
}
