//! Limits on the answers of hooks: none brings a connection to a halt, has it send without end, or breaks
//! what the peer relies on. The catalogue lists them for authors of hooks.

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

/// Longest time for which a hook may put anything off.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);

/// The least window keeps a connection going (RFC 9002 s.7.2).
const LEAST_DATAGRAMS: u64 = 2;

/// Most bytes of a packet that STREAM frames leave free: what a frame of a hook's takes beside the bytes of another
/// packet.
const MAX_KEPT: usize = 128;

/// A timer that has run and is still due runs again so much later.
const REST: Duration = Duration::from_millis(1);

impl Connection {
    /// A hook is off: what it answered is of no meaning any more.
    pub(super) fn forget_answers(&mut self) {
        self.paths.iter_mut().for_each(Path::forget_answers);
    }

    /// The congestion window of a path, as whoever is attached to it wants it.
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

    /// Size in bytes of datagrams that need not be as large as `mtu`.
    pub(super) fn datagram_size(&mut self, hooks: impl Presence, key: PathKey, mtu: u16) -> usize {
        // Each path carries the smallest size (RFC 9000 s.14). No datagram is larger than the size
        // that the path is known to carry (s.14.2).
        let bound = |_: &mut Connection, size: u16| size.clamp(BASE_SIZE, mtu.max(BASE_SIZE));
        usize::from(hooks.decide_within(self, Operation::DatagramSize, key, mtu, bound))
    }

    /// Bytes of a packet that STREAM frames leave free, of those that are left.
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

    /// Limits the time until which a hook may put a datagram off.
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

    /// Limits a hook's answer `yes` on whether to send a packet, where `there` says whether there is anything to send.
    pub(super) fn bound_content(&mut self, key: PathKey, there: bool, yes: bool) -> bool {
        let now = self.now;
        there && (yes || self.paths[key].hold_back(now) <= now)
    }

    /// Time at which a hook must have released whatever it holds back; none: it holds nothing.
    pub(super) fn hold_timer(&self) -> Option<Timestamp> {
        self.paths.iter().filter_map(Path::hold_timer).min()
    }

    pub(super) fn on_hold_timer(&mut self, now: Timestamp) {
        self.paths.iter_mut().for_each(|path| path.on_hold_timer(now));
    }

    /// A timer of loss detection, which by itself is at `usual`: not so soon that probes go without end,
    /// and late by no more than may be.
    pub(super) fn bound_loss_timer(
        &mut self,
        usual: Option<Timestamp>,
        at: Option<Timestamp>,
    ) -> Option<Timestamp> {
        let usual = usual?;
        let spaces = self.spaces.iter();
        let sent = spaces.filter_map(|(_, space)| space.loss.last_ack_eliciting()).max();
        // What was sent cannot be known to be lost within a round trip.
        let soonest =
            sent.unwrap_or(self.activity.since()) + self.path().rtt().smoothed().max(GRANULARITY);
        let latest = usual + PATIENCE;
        Some(at.unwrap_or(latest).clamp(usual.min(soonest), latest))
    }

    /// A timer that is due although timers have just run waits for a moment: a hook may want it so.
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

    /// RFC 9000 s.13.2.1: nothing waits for longer than the peer was told.
    pub(super) fn bound_ack_policy(usual: &AckPolicy, policy: AckPolicy) -> AckPolicy {
        AckPolicy { max_ack_delay: policy.max_ack_delay.min(usual.max_ack_delay), ..policy }
    }

    /// Limits a hook's answer on whether an ACK frame is due: only if there is something to tell, and at the latest
    /// when the peer was told it would be (RFC 9000 s.13.2.1).
    pub(super) fn bound_ack(&self, now: Timestamp, id: SpaceId, due: bool) -> bool {
        let Some(Space { received, .. }) = self.spaces.get(id) else { return false };
        received.has_news() && (due || received.deadline().is_some_and(|at| at <= now))
    }

    /// The path of the next datagram, where a hook has chosen one: the active one, or one that has something
    /// to send which probes it. No other sends anything; and such a probe goes before anything else.
    pub(super) fn bound_path(&self, usual: PathKey, chosen: PathKey) -> PathKey {
        let probes =
            self.paths.get(chosen).is_some_and(|path| path.may_probe() && self.has_id(path));
        if probes { chosen } else { usual }
    }
}
