//! State that a connection keeps of one path. `path/validation.rs`: whether the peer is there.

mod validation;

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use equic_wire::packet::MIN_INITIAL_DATAGRAM;

use super::backoff::Backoff;
use super::bounds::PATIENCE;
use super::config::TransportConfig;
use super::packet_builder::MIN_PACKET;
use super::paths::PathKey;
use super::space::{PathId, Sent};
use crate::Timestamp;
use crate::congestion::shared::Share;
use crate::congestion::{
    AckSample, Controller, DeliveryRate, Pacer, Rate, RateSample, Signal, WindowUsage,
};
#[cfg(feature = "qlog")]
use crate::path::EcnState;
use crate::path::{EcnValidation, MtuDiscovery};
use crate::received::EcnCounts;
use crate::recovery::{DeliveryMark, RttEstimator, SentPacket};

use validation::Validation;
pub(super) use validation::{AddressOrigin, Answer};

/// Number of round trips of the window for which the application's data may wait. BBR has two in
/// flight when it begins, and more data must be ready before that is acknowledged.
const ROUND_TRIPS_READY: f64 = 4.0;

/// Size of the smallest datagram that is sent. With less room, no packet is begun. Otherwise, a
/// path with credit for a datagram but not for its packet would always have something to send and
/// never send it. It would block all other paths.
const LEAST: u64 = MIN_PACKET as u64;

/// Number of bytes waiting in streams from which on larger datagram sizes are searched for. It is
/// ten packets of the minimum size; a larger size would save one or two of them.
const BULK_WAITING: u64 = 12_000;

/// Bytes sent on a path after which larger datagrams are looked for, however little waits at a time.
const BULK_SENT: u64 = 36_000;

/// A hook keeps datagrams of a path back.
#[derive(Debug, Clone, Copy)]
struct Hold {
    since: Timestamp,
    /// It has done so for long enough.
    over: bool,
}

/// Acknowledged packets as the congestion controller is told of them: an [`AckSample`] but for the round-trip time.
pub(super) struct Acknowledged {
    pub now: Timestamp,
    pub acked: u64,
    pub largest_sent: Timestamp,
    pub in_flight: u64,
    pub app_limited: bool,
    pub rate: Option<RateSample>,
}

/// A path: addresses, and what is kept for each path (RFC 9000 s.9.4). Which paths there are, and which one is active,
/// is not known here.
pub(super) struct Path {
    key: PathKey,
    /// Path ID whose packet numbers and connection IDs the path uses (RFC 10069).
    id: PathId,
    /// It is the one that its path ID uses, and not one that is left or not gone to yet.
    current: bool,
    /// The last path that its path ID used while its address was validated, before the current one: where the path ID
    /// returns if the validation of its current path fails (RFC 9000 s.9.3.2).
    fallback: bool,
    /// Nothing is sent on it any more (RFC 10069 s.3.4).
    abandoned: bool,
    /// Packets below this number: their content has been sent on other paths, too.
    moved: u64,
    remote: SocketAddr,
    /// Our address, as far as it is known.
    local: Option<IpAddr>,
    /// Bytes of UDP payload sent and received between these addresses.
    bytes: (u64, u64),
    rtt: RttEstimator,
    controller: Box<dyn Controller>,
    pacer: Pacer,
    rates: DeliveryRate,
    /// The latest sample, in bytes a second; 0: none yet.
    delivery_rate: u64,
    usage: WindowUsage,
    /// Bytes in flight, of all spaces.
    in_flight: u64,
    /// Of these, bytes of packets with nothing but frames of hooks that other hooks brought.
    of_brought: u64,
    mtu: MtuDiscovery,
    ecn: EcnValidation,
    backoff: Backoff,
    /// Time of the last acknowledgement or probe timeout.
    progress: Timestamp,
    paced_until: Option<Timestamp>,
    /// Rate at which all connections that share a window may send together, while it is this connection's turn;
    /// otherwise the least there is.
    turn: Rate,
    /// Its methods are in its file.
    validation: Validation,
    /// Sequence number of the peer's connection ID that is used on this path. `None`: the peer has given
    /// none that may be used, so that nothing is sent on the path unless it is the current one.
    remote_id: Option<u64>,
    /// The congestion window that a hook wants.
    hook_window: Option<u64>,
    hold: Option<Hold>,
    /// Packets that were sent on the path and given up as lost.
    lost: u64,
}

impl Path {
    pub(super) fn new(
        now: Timestamp,
        key: PathKey,
        addresses: (SocketAddr, Option<IpAddr>),
        config: &TransportConfig,
        seed: u64,
        origin: AddressOrigin,
    ) -> Path {
        let (remote, local) = addresses;
        Path {
            key,
            id: PathId::ZERO,
            current: false,
            fallback: false,
            abandoned: false,
            moved: 0,
            remote,
            local,
            bytes: (0, 0),
            rtt: RttEstimator::new(config.initial_rtt),
            controller: config.start_controller(seed),
            pacer: Pacer::new(now, config.first_window()),
            rates: DeliveryRate::default(),
            delivery_rate: 0,
            usage: WindowUsage::default(),
            in_flight: 0,
            of_brought: 0,
            mtu: config.start_discovery(),
            ecn: if config.ecn { EcnValidation::default() } else { EcnValidation::disabled() },
            backoff: Backoff::default(),
            progress: now,
            paced_until: None,
            turn: Rate::MIN,
            validation: Validation::new(origin),
            remote_id: Some(0),
            hook_window: None,
            hold: None,
            lost: 0,
        }
    }

    /// Validates ECN anew, with the counts of the path that was in use before; `marks`: packets may be marked at all.
    pub(super) fn restart_ecn(&mut self, before: &EcnValidation, marks: bool) {
        self.ecn = before.restart(marks);
    }

    /// Validation of ECN on the path.
    pub(super) fn ecn(&self) -> &EcnValidation {
        &self.ecn
    }

    pub(super) fn key(&self) -> PathKey {
        self.key
    }

    /// Path ID whose packet numbers and connection IDs the path uses.
    pub(super) fn id(&self) -> PathId {
        self.id
    }

    /// The path uses packet numbers and connection IDs of this path ID; to be said before it is added to the others.
    pub(super) fn set_id(&mut self, id: PathId) {
        self.id = id;
    }

    /// True if the path is the one that its path ID uses.
    pub(super) fn is_current(&self) -> bool {
        self.current
    }

    pub(super) fn set_current(&mut self, current: bool) {
        self.current = current;
    }

    /// True if its path ID returns to this path when the validation of the current one fails.
    pub(super) fn is_fallback(&self) -> bool {
        self.fallback
    }

    pub(super) fn set_fallback(&mut self, fallback: bool) {
        self.fallback = fallback;
    }

    /// True if nothing may be sent on the path any more.
    pub(super) fn is_abandoned(&self) -> bool {
        self.abandoned
    }

    /// Nothing is sent on the path from now on.
    pub(super) fn abandon(&mut self) {
        self.abandoned = true;
        self.validation.stop();
    }

    /// Marks all data in packets below this number to be sent on other paths, too. Returns the
    /// previous mark: data from that packet number on is newly marked.
    pub(super) fn move_below(&mut self, next: u64) -> u64 {
        std::mem::replace(&mut self.moved, next)
    }

    /// True if nothing was heard of what was sent last on the path: another one is better.
    pub(super) fn is_suspect(&self) -> bool {
        self.backoff.count() > 0
    }

    /// Address of the peer.
    pub(super) fn remote(&self) -> SocketAddr {
        self.remote
    }

    /// Our address, as far as it is known.
    pub(super) fn local(&self) -> Option<IpAddr> {
        self.local
    }

    /// A datagram came to this address of ours: the path has it, if it was not known before.
    pub(super) fn learn_local(&mut self, local: Option<IpAddr>) {
        self.local = self.local.or(local);
    }

    /// A datagram of so many bytes came from the path's address.
    pub(super) fn on_datagram_received(&mut self, bytes: usize) {
        self.on_credit(bytes);
        self.bytes.1 += bytes as u64;
    }

    /// Bytes of datagrams sent and received.
    pub(super) fn bytes(&self) -> (u64, u64) {
        self.bytes
    }

    /// Returns the sequence number of the peer's connection ID that is used on this path, or `None` if there
    /// is none for it.
    pub(super) fn remote_id(&self) -> Option<u64> {
        self.remote_id
    }

    pub(super) fn use_remote_id(&mut self, sequence: Option<u64>) {
        self.remote_id = sequence;
    }

    /// The peer's `max_udp_payload_size`: what is sent is no larger from now on.
    pub(super) fn on_peer_limit(&mut self, limit: u64) {
        let before = self.mtu.current();
        self.mtu.on_peer_limit(limit);
        if self.mtu.current() != before {
            self.controller.on_datagram_size(self.mtu.current());
        }
    }

    // Sending.

    pub(super) fn on_datagram_sent(&mut self, bytes: usize) {
        self.validation.on_sent(bytes);
        self.bytes.0 += bytes as u64;
        self.hold = None;
    }

    /// True if there is credit for a datagram: one as large as those of the handshake must be
    /// (RFC 9000 s.14.1); later, as large as the path allows (s.8.2.1).
    pub(super) fn may_send(&self) -> bool {
        let least = if self.key == PathKey(0) { MIN_INITIAL_DATAGRAM as u64 } else { LEAST };
        !self.abandoned && self.validation.credit().is_none_or(|credit| credit >= least)
    }

    /// True if a PATH_CHALLENGE or PATH_RESPONSE waits, and may be sent.
    pub(super) fn may_probe(&self) -> bool {
        self.validation.has_frames() && self.may_send()
    }

    /// Bytes in flight, of all spaces.
    pub(super) fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// A packet of so many bytes leaves that counts toward bytes in flight; `brought`: for hooks alone that other hooks
    /// brought. The mark is for when it is acknowledged.
    pub(super) fn on_packet_sent(
        &mut self,
        now: Timestamp,
        bytes: u64,
        nested: bool,
    ) -> DeliveryMark {
        let delivery = self.rates.on_sent(now, bytes, self.in_flight);
        self.in_flight += bytes;
        if nested {
            self.of_brought += bytes;
        }
        self.pacer.on_sent(bytes);
        delivery
    }

    /// Tells the congestion controller of a packet that has left.
    pub(super) fn on_congestion_sent(&mut self, now: Timestamp, bytes: u64) {
        self.controller.on_sent(now, bytes, self.in_flight);
    }

    /// A packet of so many bytes is in flight no more.
    pub(super) fn landed(&mut self, bytes: u64) {
        self.in_flight -= bytes.min(self.in_flight);
    }

    /// As [`Path::landed`], of a packet of application data.
    fn packet_landed(&mut self, packet: &SentPacket<Sent>) {
        if packet.in_flight {
            let bytes = packet.bytes();
            self.landed(bytes);
            if packet.content.nested {
                self.of_brought -= bytes.min(self.of_brought);
            }
        }
    }

    /// Earliest time at which a datagram of this size may leave at this rate; none: now.
    pub(super) fn pace(&mut self, now: Timestamp, rate: Rate, size: u16) -> Option<Timestamp> {
        let rate = if self.turn > rate { self.turn } else { rate };
        self.pacer.next(now, rate, size)
    }

    /// Sets a rate that datagrams may leave at if it is above the path's own; none: the path's own holds.
    pub(super) fn set_turn(&mut self, rate: Option<Rate>) {
        self.turn = rate.unwrap_or(Rate::MIN);
    }

    /// Adopts what other connections between the same addresses know about the path. The path takes
    /// datagrams of `datagram` bytes. If it is in its first slow start, its window becomes at least
    /// `window` bytes (RFC 9040 s.7).
    pub(super) fn learn_from_others(&mut self, datagram: u16, window: u64) {
        if self.mtu.adopt(datagram) {
            self.controller.on_datagram_size(self.mtu.current());
        }
        let is_new = self.lost == 0 && self.controller.slow_start_threshold().is_none();
        if is_new && self.controller.window() < window {
            self.set_controller_window(window);
        }
    }

    /// The largest datagram that the path is known to take and the largest that it may take, in bytes of UDP payload.
    pub(super) fn datagram_sizes(&self) -> (u16, u16) {
        (self.mtu.current(), self.mtu.upper())
    }

    /// Time until which the pace holds datagrams back; none: it does not.
    pub(super) fn paced_until(&self) -> Option<Timestamp> {
        self.paced_until
    }

    pub(super) fn pace_until(&mut self, until: Option<Timestamp>) {
        self.paced_until = until;
    }

    /// Called when the window has no room for a datagram. If frames of hooks that other hooks
    /// attached, such as a peer's plugins, are more than half of the bytes in flight, the window
    /// counts as underused. Such a hook must not be able to enlarge the window by sending (RFC 9002
    /// s.7.8).
    pub(super) fn on_window_full(&mut self, now: Timestamp) {
        if 2 * self.of_brought > self.in_flight {
            self.usage.on_underused(now);
        } else {
            self.usage.on_full(now);
        }
    }

    /// Something else than the window or the pace holds the sender back.
    pub(super) fn on_underused(&mut self, now: Timestamp) {
        self.usage.on_underused(now);
    }

    /// Bytes that an application should have ready or in flight for the path to be used up: some round trips' worth of
    /// the window, without what only waits in a queue.
    pub(super) fn in_flight_room(&self) -> u64 {
        let (min, smoothed) = (self.rtt.min().as_secs_f64(), self.rtt.smoothed().as_secs_f64());
        let share = if smoothed > min { min / smoothed } else { 1.0 };
        (self.window() as f64 * share * ROUND_TRIPS_READY) as u64
    }

    /// There is room and nothing to fill it with: samples of the delivery rate say nothing of the path.
    pub(super) fn on_app_limited(&mut self) {
        self.rates.on_app_limited(self.in_flight);
    }

    // Round-trip time, probe timeouts.

    pub(super) fn rtt(&self) -> &RttEstimator {
        &self.rtt
    }

    /// A sample of the round-trip time; see [`RttEstimator::update`].
    pub(super) fn update_rtt(&mut self, now: Timestamp, latest: Duration, ack_delay: Duration) {
        self.rtt.update(now, latest, ack_delay);
    }

    /// A hook estimates the round-trip time by other means.
    pub(super) fn set_smoothed_rtt(&mut self, smoothed: Duration) {
        self.rtt.set_smoothed(smoothed);
    }

    /// A hook estimates the variation of the round-trip time by other means.
    pub(super) fn set_rtt_variation(&mut self, variation: Duration) {
        self.rtt.set_variation(variation);
    }

    pub(super) fn backoff(&self) -> Backoff {
        self.backoff
    }

    /// A probe timeout: nothing was heard.
    pub(super) fn on_probe_timeout(&mut self, now: Timestamp) {
        self.backoff.on_timeout();
        self.progress = now;
    }

    /// The peer has acknowledged something.
    pub(super) fn on_progress(&mut self, now: Timestamp) {
        self.progress = now;
    }

    /// Time of the last acknowledgement or probe timeout, or at which the path began.
    pub(super) fn progress(&self) -> Timestamp {
        self.progress
    }

    /// Something was heard, or nothing that was sent before counts any more.
    pub(super) fn restart_backoff(&mut self) {
        self.backoff.restart();
    }

    // Congestion.

    /// The congestion controller, to look at.
    pub(super) fn controller(&self) -> &dyn Controller {
        &*self.controller
    }

    /// The congestion window in force.
    pub(super) fn window(&self) -> u64 {
        self.hook_window.unwrap_or_else(|| self.controller.window())
    }

    /// Bytes that the window has room for now; 0: not for a datagram, or the pace holds it back.
    pub(super) fn room(&self, now: Timestamp) -> u64 {
        let room = self.window().saturating_sub(self.in_flight);
        let paced = self.paced_until.is_some_and(|until| until > now);
        if paced || room < u64::from(self.mtu()) { 0 } else { room }
    }

    /// Returns the path's share of a window that connections share. If the peer no longer answers
    /// on the path, nothing counts as in flight, so that the other connections do not wait for it.
    pub(super) fn share(&self, packets: u64) -> Share {
        let in_flight = if self.is_suspect() { (0, 0) } else { (self.in_flight, packets) };
        Share::new(in_flight, self.rates.delivered(), self.rates.lost())
    }

    /// Bytes of UDP payload that were sent on the path.
    pub(super) fn sent(&self) -> u64 {
        self.bytes.0
    }

    /// Packets that were sent on the path and given up as lost.
    pub(super) fn lost(&self) -> u64 {
        self.lost
    }

    /// A hook wants this congestion window; none: it leaves that to the controller.
    pub(super) fn set_hook_window(&mut self, window: Option<u64>) {
        self.hook_window = window;
    }

    /// Sets the congestion controller's window. Returns true if it can be set.
    pub(super) fn set_controller_window(&mut self, window: u64) -> bool {
        let controller = self.controller.adjustable();
        controller.map(|controller| controller.set_window(window)).is_some()
    }

    /// Sets the congestion controller's slow start threshold. Returns true if it can be set.
    pub(super) fn set_slow_start_threshold(&mut self, threshold: Option<u64>) -> bool {
        let controller = self.controller.adjustable();
        controller.map(|controller| controller.set_slow_start_threshold(threshold)).is_some()
    }

    /// Rate at which the congestion controller lets packets leave.
    pub(super) fn pacing_rate(&self) -> Rate {
        self.controller.pacing_rate(&self.rtt)
    }

    /// The latest sample of the rate at which the path delivers, in bytes per second; 0: none yet.
    pub(super) fn delivery_rate(&self) -> u64 {
        self.delivery_rate
    }

    /// Packets are acknowledged: when each was sent, its size, and the mark it was sent with. Returns a sample of the
    /// rate at which the path delivers; none if it cannot be told from these packets.
    pub(super) fn sample_rate(
        &mut self,
        now: Timestamp,
        packets: impl Iterator<Item = (Timestamp, u64, DeliveryMark)>,
    ) -> Option<RateSample> {
        let sample = self.rates.on_acked(now, packets, self.rtt.min());
        if let Some(rate) = sample.and_then(|sample| sample.rate) {
            self.delivery_rate = rate.as_bytes_per_second() as u64;
        }
        sample
    }

    /// True if the window was not used up while a packet sent at this time was in flight (RFC 9002 s.7.8).
    pub(super) fn is_app_limited(&self, sent: Timestamp) -> bool {
        !self.usage.was_used_since(sent)
    }

    /// Tells the congestion controller of acknowledged packets; `sample` with the path's round-trip time.
    pub(super) fn on_congestion_acked(&mut self, sample: Acknowledged) {
        let Acknowledged { now, acked, largest_sent, in_flight, app_limited, rate } = sample;
        let rtt = &self.rtt;
        self.controller.on_ack(&AckSample {
            now,
            acked,
            largest_sent,
            in_flight,
            app_limited,
            rtt,
            rate,
        });
    }

    /// Tells the congestion controller that the path is congested.
    pub(super) fn on_congestion(
        &mut self,
        now: Timestamp,
        largest_sent: Timestamp,
        signal: Signal,
    ) {
        self.controller.on_congestion(now, largest_sent, signal);
    }

    /// Tells the congestion controller of a loss that was none.
    pub(super) fn on_spurious_loss(&mut self, now: Timestamp) {
        self.controller.on_spurious_loss(now);
    }

    /// Persistent congestion: the window is the least there is, and min_rtt may have been of another path
    /// (RFC 9002 s.5.2, s.7.6.2).
    pub(super) fn on_persistent_congestion(&mut self, now: Timestamp) {
        self.controller.on_persistent_congestion(now);
        self.rtt.restart_min();
    }

    // Fate of packets.

    /// A packet that was sent on this path is acknowledged, or a run of them.
    pub(super) fn on_packet_acked(&mut self, packet: &SentPacket<Sent>) {
        self.packet_landed(packet);
        if !packet.mtu_probe {
            self.mtu.on_acked(packet.size, packet.time_sent);
        }
    }

    /// A packet that was sent on this path is lost.
    pub(super) fn on_packet_lost(&mut self, now: Timestamp, packet: &SentPacket<Sent>) {
        let size = packet.size;
        self.lost += 1;
        self.packet_landed(packet);
        if packet.mtu_probe {
            return;
        }
        if self.mtu.on_lost(now, size, packet.time_sent) {
            self.controller.on_datagram_size(self.mtu.current());
        }
        if packet.content.marked {
            self.ecn.on_marked_lost();
        }
        if packet.in_flight {
            self.rates.on_lost(size.into());
            let total = self.rates.lost();
            self.controller.on_packet_lost(now, size.into(), &packet.delivery, total);
        }
    }

    // Datagram size, ECN.

    /// The largest datagram that the path is known to take, in bytes of UDP payload.
    pub(super) fn mtu(&self) -> u16 {
        self.mtu.current()
    }

    /// Returns true if the path is the current one of its path ID, its address is validated, and
    /// the connection has nothing to find out about it.
    #[inline]
    pub(super) fn is_settled(&self, now: Timestamp) -> bool {
        self.is_current()
            && self.is_validated()
            && self.may_send()
            && !self.validation.has_frames()
            && self.credit().is_none()
            && self.mtu.is_resting(now)
    }

    /// So many bytes wait in streams to be sent or acknowledged; `datagrams`: the application sends datagrams, which
    /// cannot be larger than the path takes. From some on, larger datagrams are worth a probe.
    #[inline]
    pub(super) fn weigh_mtu(&mut self, waiting: u64, datagrams: bool) {
        if !self.mtu.is_wanted()
            && (datagrams || waiting >= BULK_WAITING || self.bytes.0 >= BULK_SENT)
        {
            self.mtu.want();
        }
    }

    /// Size of the probe that is due, to find out whether the path takes larger datagrams; none: none is due.
    pub(super) fn next_mtu_probe(&mut self, now: Timestamp) -> Option<u16> {
        self.mtu.next_probe(now)
    }

    /// A probe of the datagram size is acknowledged or lost.
    pub(super) fn on_mtu_probe(&mut self, arrived: bool) {
        if !arrived {
            // RFC 9000 s.14.4: no sign of congestion.
            self.mtu.on_probe_lost();
        } else if self.mtu.on_probe_acked() {
            self.controller.on_datagram_size(self.mtu.current());
        }
    }

    /// True if packets are marked ECT(0).
    pub(super) fn marks(&self) -> bool {
        self.ecn.marks()
    }

    #[cfg(feature = "qlog")]
    pub(super) fn ecn_state(&self) -> EcnState {
        self.ecn.state()
    }

    /// A packet leaves that is marked.
    pub(super) fn on_marked_sent(&mut self) {
        self.ecn.on_marked_sent();
    }

    /// Processes the ECN counts of an acknowledgement. `marked` has the number of newly
    /// acknowledged packets that were sent with a mark, and the number of those that were sent on
    /// other paths. Returns true if there are new ECN-CE marks. Validation fails if the counts
    /// cannot be right, or if they show that no packet kept its mark.
    pub(super) fn validate_ecn(&mut self, marked: (u64, u64), counts: Option<EcnCounts>) -> bool {
        self.ecn.on_ack(marked, counts)
    }

    // Hooks.

    /// A hook keeps the next datagram back: until when it may.
    pub(super) fn hold_back(&mut self, now: Timestamp) -> Timestamp {
        let hold = self.hold.get_or_insert(Hold { since: now, over: false });
        if hold.over { now } else { hold.since + PATIENCE }
    }

    /// Time at which a hook must have released what it holds back; none: it holds nothing, or has held it for too
    /// long.
    pub(super) fn hold_timer(&self) -> Option<Timestamp> {
        self.hold.filter(|hold| !hold.over).map(|hold| hold.since + PATIENCE)
    }

    /// A hook holds nothing back for longer than it may.
    pub(super) fn on_hold_timer(&mut self, now: Timestamp) {
        if let Some(hold) = &mut self.hold {
            hold.over |= hold.since + PATIENCE <= now;
        }
    }

    /// The pace holds nothing back beyond its time.
    pub(super) fn on_pace_timer(&mut self, now: Timestamp) {
        self.paced_until = self.paced_until.filter(|at| *at > now);
    }

    /// A hook is off: what it answered is of no meaning any more.
    pub(super) fn forget_answers(&mut self) {
        (self.hook_window, self.hold) = (None, None);
    }

    /// Has so many bytes be in flight.
    #[cfg(test)]
    pub(super) fn pretend_in_flight(&mut self, bytes: u64) {
        self.in_flight = bytes;
    }

    /// Has so many packets be lost.
    #[cfg(test)]
    pub(super) fn pretend_lost(&mut self, packets: u64) {
        self.lost = packets;
    }

    /// Has the peer be at another address.
    #[cfg(test)]
    pub(super) fn pretend_remote(&mut self, remote: SocketAddr) {
        self.remote = remote;
    }
}

#[cfg(test)]
mod tests;
