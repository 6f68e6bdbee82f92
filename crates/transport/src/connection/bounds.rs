//! Limits on the answers of hooks. Within them, a hook cannot stall a connection, make it send
//! without end, or break a promise to the peer. The operation catalogue lists them for authors of
//! hooks.

use std::time::Duration;

use super::Connection;
use super::path::Path;
use super::paths::PathKey;
use super::presence::Presence;
use super::space::{Space, SpaceId};
use super::view::MAX_WINDOW;
use crate::Timestamp;
use crate::operation::Operation;
use crate::path::BASE_SIZE;
use crate::received::AckPolicy;
use crate::recovery::{GRANULARITY, PACKET_THRESHOLD, Thresholds};

/// Longest time for which a hook may delay anything.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);

/// Minimum congestion window in datagrams. It keeps a connection going (RFC 9002 s.7.2).
const LEAST_DATAGRAMS: u64 = 2;

/// Maximum number of bytes of a packet that STREAM frames leave free: the overhead of a hook's
/// frame that contains another packet.
const MAX_KEPT: usize = 128;

/// Delay of a timer that is still due after it has just run.
const REST: Duration = Duration::from_millis(1);

impl Connection {
    /// Discards answers of a hook that was detached.
    pub(super) fn forget_answers(&mut self) {
        self.paths.iter_mut().for_each(Path::forget_answers);
    }

    /// Returns the congestion window of a path in bytes, after hooks.
    pub(super) fn window(&mut self, hooks: impl Presence, key: PathKey) -> u64 {
        let usual = |connection: &mut Connection| {
            let path = &mut connection.paths[key];
            path.set_hook_window(None);
            path.window()
        };
        hooks.decide_from(self, Operation::CongestionWindow, key, usual, |connection, window| {
            let path = &mut connection.paths[key];
            let least = LEAST_DATAGRAMS * u64::from(path.mtu());
            path.set_hook_window(Some(window.clamp(least, MAX_WINDOW)));
            path.window()
        })
    }

    /// Returns the size of datagrams in bytes, for datagrams that may be smaller than `mtu`.
    pub(super) fn datagram_size(&mut self, hooks: impl Presence, key: PathKey, mtu: u16) -> usize {
        // Each path carries the smallest size (RFC 9000 s.14). No datagram is larger than the size
        // that the path is known to carry (s.14.2).
        let bound = |_: &mut Connection, size: u16| size.clamp(BASE_SIZE, mtu.max(BASE_SIZE));
        usize::from(hooks.decide_within(self, Operation::DatagramSize, key, mtu, bound))
    }

    /// Returns how many of the `room` bytes left in a packet STREAM frames must leave free.
    pub(super) fn kept_room(&mut self, hooks: impl Presence, id: SpaceId, room: usize) -> usize {
        let kept = hooks.decide(self, Operation::KeepRoom, (id, room), 0);
        kept.min(MAX_KEPT).min(room / 4)
    }

    pub(super) fn pacing_rate(&mut self, hooks: impl Presence, key: PathKey) -> u64 {
        let usual = self.paths[key].pacing_rate().as_bytes_per_second() as u64;
        hooks.decide_within(self, Operation::PacingRate, key, usual, |connection, rate| {
            rate.max(LEAST_DATAGRAMS * u64::from(connection.paths[key].mtu()))
        })
    }

    /// Limits the time until which a hook may delay a datagram.
    pub(super) fn bound_pace(
        &mut self,
        now: Timestamp,
        key: PathKey,
        until: Option<Timestamp>,
    ) -> Option<Timestamp> {
        let until = until.filter(|until| *until > now)?;
        let latest = self.paths[key].hold_back(now);
        Some(until.min(latest)).filter(|until| *until > now)
    }

    /// Limits a hook's answer `yes` on whether to send a packet. `there` is true if there is
    /// something to send.
    pub(super) fn bound_content(&mut self, key: PathKey, there: bool, yes: bool) -> bool {
        let now = self.now;
        there && (yes || self.paths[key].hold_back(now) <= now)
    }

    /// Returns the time by which a hook must release everything that it holds back, or `None` if it
    /// holds nothing back.
    pub(super) fn hold_timer(&self) -> Option<Timestamp> {
        self.paths.iter().filter_map(Path::hold_timer).min()
    }

    pub(super) fn on_hold_timer(&mut self, now: Timestamp) {
        self.paths.iter_mut().for_each(|path| path.on_hold_timer(now));
    }

    /// Limits the time `at` of a loss detection timer that a hook has set; `usual` is the time
    /// without hooks. The timer must not be so early that probes are sent without end, nor too
    /// late.
    pub(super) fn bound_loss_timer(
        &mut self,
        usual: Option<Timestamp>,
        at: Option<Timestamp>,
    ) -> Option<Timestamp> {
        let usual = usual?;
        let spaces = self.spaces.iter();
        let sent = spaces.filter_map(|(_, space)| space.loss.last_ack_eliciting()).max();
        // A packet cannot be known to be lost within a round trip.
        let soonest =
            sent.unwrap_or(self.activity.since()) + self.path().rtt().smoothed().max(GRANULARITY);
        let latest = usual + PATIENCE;
        Some(at.unwrap_or(latest).clamp(usual.min(soonest), latest))
    }

    /// Delays a timer by [`REST`] if it is still due although timers have just run. A hook can
    /// cause this.
    pub(super) fn rested(&self, at: Timestamp) -> Timestamp {
        match self.timers_ran {
            Some(ran) if at <= ran && !self.hooks.is_empty() => ran + REST,
            _ => at,
        }
    }

    pub(super) fn bound_thresholds(
        &self,
        key: PathKey,
        packets: u64,
        delay: Duration,
    ) -> Thresholds {
        let usual = self.config.thresholds(self.paths[key].rtt());
        // RFC 9002 s.6.1.1, s.6.1.2.
        let delay = delay.clamp(GRANULARITY, usual.delay + PATIENCE);
        Thresholds { packets: packets.max(PACKET_THRESHOLD), delay }
    }

    pub(super) fn bound_pto(&self, key: PathKey, usual: Duration, pto: Duration) -> Duration {
        let least = self.paths[key].rtt().smoothed().max(GRANULARITY).min(usual);
        pto.clamp(least, usual + PATIENCE)
    }

    /// Limits a hook's acknowledgement policy: no acknowledgement waits longer than the delay
    /// declared to the peer (RFC 9000 s.13.2.1).
    pub(super) fn bound_ack_policy(usual: &AckPolicy, policy: AckPolicy) -> AckPolicy {
        AckPolicy { max_ack_delay: policy.max_ack_delay.min(usual.max_ack_delay), ..policy }
    }

    /// Limits a hook's answer on whether an ACK frame is due. An ACK frame needs something new to
    /// report. It is due at the latest when the declared delay is over (RFC 9000 s.13.2.1).
    pub(super) fn bound_ack(&self, now: Timestamp, id: SpaceId, due: bool) -> bool {
        let Some(Space { received, .. }) = self.spaces.get(id) else { return false };
        received.has_news() && (due || received.deadline().is_some_and(|at| at <= now))
    }

    /// Limits a hook's choice of the path for the next datagram. It may choose the active path, or
    /// a path that has a probe to send. No other path sends anything, and a probe precedes all
    /// other datagrams.
    pub(super) fn bound_path(&self, usual: PathKey, chosen: PathKey) -> PathKey {
        let probes =
            self.paths.get(chosen).is_some_and(|path| path.may_probe() && self.has_id(path));
        if probes { chosen } else { usual }
    }
}
