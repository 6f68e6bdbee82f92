//! When to do something unasked: loss, probes, idleness, the end (RFC 9002 s.6.2, RFC 9000 s.10).

use std::time::Duration;

use equic_wire::Side;

use super::Connection;
use super::close::CloseReason;
use super::space::SpaceId;
use crate::Timestamp;

/// The backoff ends here: 2^10 round trips are long beyond any idle timeout.
const MAX_BACKOFF: u32 = 10;

impl Connection {
    /// When to call [`Connection::handle_timeout`]; none: nothing is waited for.
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        if self.closing.is_closed() {
            return self.closing.deadline();
        }
        let loss = self.loss_timer().map(|(at, _)| at);
        let acks = self.spaces.iter().filter_map(|space| space.received.deadline()).min();
        let acks = acks.filter(|_| self.path.may_send());
        [loss, acks, self.paced_until, self.idle_timer()].into_iter().flatten().min()
    }

    /// A moment of [`Connection::poll_timeout`] has come.
    pub fn handle_timeout(&mut self, now: Timestamp) {
        if let Some(until) = self.closing.deadline() {
            if until <= now {
                self.forget(CloseReason::IdleTimeout);
            }
            return;
        }
        if self.idle_timer().is_some_and(|at| at <= now) {
            // RFC 9000 s.10.1: without a word.
            return self.forget(CloseReason::IdleTimeout);
        }
        if self.paced_until.is_some_and(|at| at <= now) {
            self.paced_until = None;
        }
        if let Some(keys) = &mut self.one_rtt {
            keys.expire(now);
        }
        if let Some((at, _)) = self.loss_timer()
            && at <= now
        {
            self.on_loss_timer(now);
        }
    }

    fn idle_timer(&self) -> Option<Timestamp> {
        let peer = self.peer.map_or(Duration::ZERO, |peer| peer.max_idle_timeout);
        let timeout = match (self.config.max_idle_timeout, peer) {
            (Duration::ZERO, Duration::ZERO) => return None,
            (Duration::ZERO, other) | (other, Duration::ZERO) => other,
            (ours, theirs) => ours.min(theirs),
        };
        // RFC 9000 s.10.1: three PTOs at least.
        Some(self.idle_since + timeout.max(self.pto(SpaceId::Data) * 3))
    }

    /// The probe timeout of a space without backoff (RFC 9002 s.6.2.1).
    fn pto(&self, id: SpaceId) -> Duration {
        let delay = match (id, &self.peer) {
            (SpaceId::Data, Some(peer)) => peer.max_ack_delay,
            _ => Duration::ZERO,
        };
        self.path.rtt.pto_base() + delay
    }

    /// When something counts as lost, or a probe is due, and in which space (RFC 9002 A.8). The
    /// latter has no loss time.
    fn loss_timer(&self) -> Option<(Timestamp, SpaceId)> {
        let lost = SpaceId::ALL
            .into_iter()
            .filter_map(|id| Some((self.spaces[id as usize].loss.loss_time()?, id)))
            .min();
        if lost.is_some() {
            return lost;
        }
        // RFC 9002 s.6.2.2.1: who may not send at all needs no timer; the next datagram is credit.
        if !self.path.may_send() {
            return None;
        }
        let backoff = 1 << self.path.pto_count.min(MAX_BACKOFF);
        let probe = SpaceId::ALL
            .into_iter()
            .filter(|id| *id != SpaceId::Data || self.progress.complete)
            .filter_map(|id| {
                let sent = self.spaces[id as usize].loss.last_ack_eliciting()?;
                Some((sent + self.pto(id) * backoff, id))
            })
            .min();
        if probe.is_some() || self.peer_completed_validation() || self.side == Side::Server {
            return probe;
        }
        // RFC 9002 s.6.2.2.1: the client keeps a server alive that may not send.
        let handshake = self.spaces[SpaceId::Handshake as usize].keys.is_some();
        let id = if handshake { SpaceId::Handshake } else { SpaceId::Initial };
        Some((self.idle_since + self.pto(id) * backoff, id))
    }

    /// RFC 9002 A.9.
    fn on_loss_timer(&mut self, now: Timestamp) {
        let Some((_, id)) = self.loss_timer() else { return };
        if self.spaces[id as usize].loss.loss_time().is_some() {
            return self.detect_lost(now, id);
        }
        self.stats.probe_timeouts += 1;
        self.path.pto_count += 1;
        // What is oldest goes again, in two packets (RFC 9002 s.6.2.4).
        let frames: Vec<_> = self.spaces[id as usize]
            .loss
            .sent()
            .iter()
            .filter(|(_, packet)| packet.ack_eliciting)
            .take(2)
            .flat_map(|(_, packet)| packet.content.frames.clone())
            .collect();
        self.send_again(id, &frames);
        self.space(id).probes = if frames.is_empty() { 1 } else { 2 };
    }
}
