//! Timers of a connection: loss detection, probes, idleness, closing (RFC 9002 s.6.2, RFC 9000
//! s.10).

use std::time::Duration;

use equic_wire::Side;

use super::Connection;
use super::backoff::Backoff;
use super::close::CloseReason;
use super::peer::Peer;
use super::space::SpaceId;
use crate::Timestamp;
use crate::operation::Operation;
use crate::recovery::{Due, LossTimer, ProbeState, ProbeTimer};

impl Connection {
    /// Returns the time at which to call [`Connection::handle_timeout`], or `None` if no timer is
    /// set.
    pub fn poll_timeout(&mut self) -> Option<Timestamp> {
        if self.closing.is_closed() {
            return self.closing.deadline();
        }
        let loss = self.set_timer();
        let acks = self.ack_deadline();
        let paced = self.paths.iter().filter_map(|path| path.paced_until()).min();
        let (challenge, keep_alive) = (self.challenge_timer(), self.keep_alive_timer());
        let idle = self.idle_timer();
        #[cfg(feature = "qlog")]
        self.log_timers([loss, acks, idle]);
        let (held, all) = (self.hold_timer(), [loss, acks, paced, challenge, keep_alive, idle]);
        all.into_iter()
            .chain([
                self.path_timer(),
                held,
                self.extensions.messages.timer(),
                self.extensions.hold_timer(),
            ])
            .flatten()
            .min()
            .map(|at| self.rested(at))
    }

    /// Returns the time of the loss detection timer, with hooks at [`Operation::SetTimer`].
    fn set_timer(&mut self) -> Option<Timestamp> {
        let usual = |connection: &mut Connection| connection.loss_timer().map(|timer| timer.at);
        self.decide_limited(Operation::SetTimer, (), usual, |connection, usual, at| {
            connection.bound_loss_timer(usual, at)
        })
    }

    fn ack_deadline(&mut self) -> Option<Timestamp> {
        let ids = self.spaces.ids();
        ids.filter_map(|id| {
            let usual = self.spaces.get(id)?.received.deadline();
            let at = self.decide_within(Operation::AckDeadline, id, usual, |_, answer| {
                // RFC 9000 s.13.2.1: not later than the delay declared to the peer.
                answer.zip(usual).map(|(at, usual)| at.min(usual)).or(usual)
            });
            // If nothing may be sent on the path, this end must wait for the peer.
            at.filter(|_| {
                if self.speaks_multipath() {
                    self.ack_path(id).is_some()
                } else {
                    self.path().may_send()
                }
            })
        })
        .min()
    }

    /// Processes the timers that are due. Call it at the time that [`Connection::poll_timeout`]
    /// returned.
    pub fn handle_timeout(&mut self, now: Timestamp) {
        self.now = now;
        #[cfg(feature = "qlog")]
        self.log_expired();
        // Without its timers, a connection would never end.
        self.act_always(Operation::OnTimer, (), |connection| connection.on_timer(now));
        self.run_requests();
        self.timers_ran = Some(now);
        self.activity.on_timer();
        #[cfg(feature = "qlog")]
        self.log_changes();
    }

    fn on_timer(&mut self, now: Timestamp) {
        if let Some(until) = self.closing.deadline() {
            if until <= now {
                self.on_close_timer(now);
            }
            return;
        }
        if self.idle_timer().is_some_and(|at| at <= now) {
            // RFC 9000 s.10.1: an idle connection is closed silently.
            return self.forget(CloseReason::IdleTimeout);
        }
        for path in self.paths.iter_mut() {
            path.on_pace_timer(now);
        }
        self.on_hold_timer(now);
        if let Some(extensions) = self.extensions.get_mut_if_allocated() {
            extensions.release_streams(now);
        }
        if let Some(keys) = self.keys.one_rtt_mut() {
            keys.expire(now);
        }
        self.expire_early(now);
        if self.keep_alive_timer().is_some_and(|at| at <= now) {
            self.stats.keep_alives += 1;
            self.activity.on_keep_alive(now);
        }
        self.on_challenge_timer(now);
        self.on_path_timer(now);
        self.on_hook_timers(now);
        if self.set_timer().is_some_and(|at| at <= now) {
            self.on_loss_timer(now);
        }
    }

    fn idle_timer(&mut self) -> Option<Timestamp> {
        let timeout = self.idle_timeout();
        let usual = timeout.map(|timeout| u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX));
        // RFC 9000 s.10.1: the timeout is at most the one that both ends declared.
        let timeout = self.decide_within(Operation::IdleTimeout, (), usual, |_, answer| {
            answer.map(|timeout| usual.map_or(timeout, |usual| usual.min(timeout))).or(usual)
        })?;
        // RFC 9000 s.10.1: at least three PTOs.
        let mut least = self.space_pto(self.active_space()) * 3;
        if self.multipath.is_some() {
            // RFC 10069 s.5.8: a packet on any path counts.
            least = least.max(self.longest_pto() * 3);
        }
        Some(self.activity.since() + Duration::from_nanos(timeout).max(least))
    }

    /// Returns the time at which a keep-alive PING is due (RFC 9000 s.10.1.2), or `None` if
    /// keep-alive is off.
    fn keep_alive_timer(&mut self) -> Option<Timestamp> {
        if !self.handshake.is_complete() {
            return None;
        }
        let usual = Some(self.config.keep_alive).filter(|interval| !interval.is_zero());
        let usual = usual.map(|interval| {
            let half = self.idle_timeout().map(|timeout| timeout / 2);
            let interval = half.map_or(interval, |half| interval.min(half));
            u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX)
        });
        let interval = self.decide(Operation::KeepAlive, (), usual)?;
        // The minimum prevents a hook's answer from causing endless timers.
        let interval = Duration::from_nanos(interval).max(Duration::from_millis(1));
        Some(self.activity.keep_alive(interval))
    }

    fn idle_timeout(&self) -> Option<Duration> {
        Peer::idle_timeout(self.peer.as_ref(), self.config.max_idle_timeout)
    }

    /// Returns the factor by which a path's next probe timeout is multiplied, after hooks.
    fn backoff(&mut self, backoff: Backoff) -> u32 {
        let count = backoff.count();
        let usual = backoff.factor();
        self.decide_within(Operation::PtoBackoff, count, usual, |_, factor| Backoff::bound(factor))
    }

    /// Returns the loss detection timer without hooks at [`Operation::SetTimer`], or `None` if it
    /// is not set (RFC 9002 A.8).
    fn loss_timer(&mut self) -> Option<LossTimer<SpaceId>> {
        let losses = self.spaces.iter().map(|(id, space)| (id, space.loss.loss_time()));
        let lost = LossTimer::of_losses(losses);
        if lost.is_some() {
            return lost;
        }
        // RFC 9002 s.6.2.2.1: without credit, no timer is needed. A datagram gives new credit.
        if !self.speaks_multipath() && !self.path().may_send() {
            return None;
        }
        let active = self.path().key();
        let backoff = self.backoff(self.path().backoff());
        let confirmed = self.handshake.is_confirmed();
        let mut probes = ProbeTimer::new(confirmed, self.activity.since(), backoff);
        for id in self.spaces.ids() {
            let Some(state) = self.probe_state(id) else { continue };
            if let Some(from) = probes.counts_from(state) {
                let path = self.path_of(id);
                let (key, own, may) = (path.key(), path.backoff(), path.may_send());
                if key == active {
                    probes.add(id, from, self.pto(id));
                } else if may {
                    let factor = self.backoff(own);
                    probes.add_with(id, from, self.pto(id), factor);
                }
            }
        }
        let unvalidated = self.side == Side::Client && !self.peer_completed_validation();
        if let Some(from) = probes.anti_deadlock(unvalidated) {
            let handshake = self.keys.has(SpaceId::Handshake);
            let id = if handshake { SpaceId::Handshake } else { SpaceId::Initial };
            probes.add(id, from, self.pto(id));
        }
        probes.timer()
    }

    /// Returns the time from which a probe timeout is measured, or `None` if no ack-eliciting
    /// packet is in flight.
    fn waits_since(&self, id: SpaceId) -> Option<Timestamp> {
        let loss = &self.spaces.get(id)?.loss;
        let last = loss.last_ack_eliciting()?;
        if !self.speaks_multipath() || !id.is_data() {
            return Some(last);
        }
        // Each sent packet postpones the probe timeout (RFC 9002 s.6.2.1). With a single path, that
        // ends when the window is full. While other paths work, an occasional packet could postpone
        // the timeout of a path that does not work forever. The timeout therefore counts from the
        // oldest packet in flight, unless an acknowledgement arrived or a probe was sent since
        // then.
        let oldest =
            loss.oldest_ack_eliciting().next().map_or(last, |(_, packet)| packet.time_sent);
        Some(oldest.max(self.path_of(id).progress()))
    }

    /// Returns the state of a space for the probe timer, or `None` if the space was removed.
    fn probe_state(&self, id: SpaceId) -> Option<ProbeState> {
        let space = self.spaces.get(id)?;
        // When path 0 is closed, its space has no path. Other paths then carry its content without
        // a probe.
        let there = !id.is_data() || SpaceId::Data(self.path_of(id).id()) == id;
        Some(ProbeState {
            application: id.is_data(),
            last_ack_eliciting: self.waits_since(id),
            held: there && self.keys.has(id) && space.has_crypto(),
        })
    }

    /// Called for a probe timeout of a space before the handshake is confirmed. Also sends the
    /// oldest packet of each other space again, in the same datagram if there is room (RFC 9002
    /// s.6.2.4). The peer may have discarded the keys of the space that timed out, and application
    /// data has no timer yet.
    fn probe_other_spaces(&mut self, timed_out: SpaceId) {
        for id in self.spaces.ids().filter(|id| *id != timed_out) {
            let Some(space) = self.spaces.get(id) else { continue };
            let oldest = space.loss.oldest_ack_eliciting().next();
            let oldest = oldest.map(|(number, packet)| (number, packet.content.frames.clone()));
            let Some((number, frames)) = oldest else { continue };
            self.send_again(id, number, true, &frames);
            if let Some(space) = self.space(id) {
                space.probe(space.probes().max(1));
            }
        }
    }

    /// Processes the loss detection timer (RFC 9002 A.9).
    fn on_loss_timer(&mut self, now: Timestamp) {
        let Some(timer) = self.loss_timer() else { return };
        let id = timer.space;
        if timer.due == Due::Loss {
            return self.detect_lost(now, id);
        }
        self.stats.probe_timeouts += 1;
        self.path_of_mut(id).on_probe_timeout(now);
        // The oldest content is sent again, in two packets (RFC 9002 s.6.2.4).
        let oldest = self.spaces.get(id).map(|space| space.loss.oldest_ack_eliciting().take(2));
        let oldest = oldest.into_iter().flatten();
        let oldest: Vec<_> =
            oldest.map(|(number, packet)| (number, packet.content.frames.clone())).collect();
        let probes: u8 = if oldest.is_empty() { 1 } else { 2 };
        for (number, frames) in oldest {
            self.send_again(id, number, true, &frames);
        }
        if !self.handshake.is_confirmed() {
            self.probe_other_spaces(id);
        }
        let count = self.path_of(id).backoff().count();
        if self.speaks_multipath() {
            self.move_data();
        }
        // RFC 9002 s.6.2.4: at least one probe, at most two.
        let bound = |_: &mut Connection, probes: u8| probes.clamp(1, 2);
        let probes = self.decide_within(Operation::ProbeCount, (id, count), probes, bound);
        if let Some(space) = self.space(id) {
            space.probe(probes);
        }
    }
}
