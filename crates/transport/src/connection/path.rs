//! State of a path of a connection. `path/validation.rs`: validation of its address.

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

/// Number of bytes sent on a path from which on larger datagram sizes are searched for, however
/// little waits at a time.
const BULK_SENT: u64 = 36_000;

/// Period in which a hook holds back datagrams of a path.
#[derive(Debug, Clone, Copy)]
struct Hold {
    since: Timestamp,
    /// True if the hook has used up the permitted time.
    over: bool,
}

/// Addresses of a path.
#[derive(Debug, Clone, Copy)]
pub(super) struct Addresses {
    /// The peer's address.
    pub remote: SocketAddr,
    /// Our address, or `None` if it is unknown.
    pub local: Option<IpAddr>,
}

/// Acknowledged packets for the congestion controller: an [`AckSample`] without the round-trip
/// time.
pub(super) struct Acknowledged {
    pub now: Timestamp,
    pub acked: u64,
    pub largest_sent: Timestamp,
    pub in_flight: u64,
    pub app_limited: bool,
    pub rate: Option<RateSample>,
}

/// A path: its addresses, and the state that each path has (RFC 9000 s.9.4). `Paths` manages which
/// paths exist and which is active.
pub(super) struct Path {
    key: PathKey,
    /// Path ID whose packet numbers and connection IDs the path uses (RFC 10069).
    id: PathId,
    /// True if this is the current path of its path ID. Others are paths before or after a
    /// migration.
    current: bool,
    /// True if this is the last path that its path ID used with a validated address, before the
    /// current one. The path ID returns to it if the validation of its current path fails (RFC 9000
    /// s.9.3.2).
    fallback: bool,
    /// True if the path is abandoned, so that nothing is sent on it (RFC 10069 s.3.4).
    abandoned: bool,
    /// The content of packets below this number was also sent on other paths.
    moved: u64,
    remote: SocketAddr,
    /// Our address, or `None` if it is unknown.
    local: Option<IpAddr>,
    /// Bytes of UDP payload sent and received between these addresses.
    bytes: (u64, u64),
    rtt: RttEstimator,
    controller: Box<dyn Controller>,
    pacer: Pacer,
    rates: DeliveryRate,
    /// Latest sample of the delivery rate in bytes per second. 0 before the first sample.
    delivery_rate: u64,
    usage: WindowUsage,
    /// Bytes in flight, in all packet number spaces.
    in_flight: u64,
    /// Part of `in_flight`: bytes of packets that contain only frames of hooks that other hooks
    /// attached.
    of_brought: u64,
    mtu: MtuDiscovery,
    ecn: EcnValidation,
    backoff: Backoff,
    /// Time of the last acknowledgement or probe timeout.
    progress: Timestamp,
    paced_until: Option<Timestamp>,
    /// Rate at which all connections that share a window may send together, during this
    /// connection's turn. Otherwise the minimum.
    turn: Rate,
    /// Its methods are in `path/validation.rs`.
    validation: Validation,
    /// Sequence number of the peer's connection ID that is used on this path. `None` if the peer
    /// has issued none that may be used. Nothing is then sent on the path unless it is the current
    /// one.
    remote_id: Option<u64>,
    /// Congestion window in bytes that a hook has set.
    hook_window: Option<u64>,
    hold: Option<Hold>,
    /// Number of packets sent on the path and declared lost.
    lost: u64,
}

impl Path {
    pub(super) fn new(
        now: Timestamp,
        key: PathKey,
        Addresses { remote, local }: Addresses,
        config: &TransportConfig,
        seed: u64,
        origin: AddressOrigin,
    ) -> Path {
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

    /// Restarts ECN validation with the counts of the path that was in use before. `marks` is true
    /// if packets may be marked.
    pub(super) fn restart_ecn(&mut self, before: &EcnValidation, marks: bool) {
        self.ecn = before.restart(marks);
    }

    /// Returns the ECN validation of the path.
    pub(super) fn ecn(&self) -> &EcnValidation {
        &self.ecn
    }

    pub(super) fn key(&self) -> PathKey {
        self.key
    }

    /// Returns the path ID whose packet numbers and connection IDs the path uses.
    pub(super) fn id(&self) -> PathId {
        self.id
    }

    /// Sets the path ID whose packet numbers and connection IDs the path uses. Call it before the
    /// path is added to `Paths`.
    pub(super) fn set_id(&mut self, id: PathId) {
        self.id = id;
    }

    /// Returns true if this is the current path of its path ID.
    pub(super) fn is_current(&self) -> bool {
        self.current
    }

    pub(super) fn set_current(&mut self, current: bool) {
        self.current = current;
    }

    /// Returns true if the path ID returns to this path when the validation of the current one
    /// fails.
    pub(super) fn is_fallback(&self) -> bool {
        self.fallback
    }

    pub(super) fn set_fallback(&mut self, fallback: bool) {
        self.fallback = fallback;
    }

    /// Returns true if the path is abandoned.
    pub(super) fn is_abandoned(&self) -> bool {
        self.abandoned
    }

    /// Abandons the path: nothing is sent on it from now on.
    pub(super) fn abandon(&mut self) {
        self.abandoned = true;
        self.validation.stop();
    }

    /// Marks all data in packets below this number to be sent on other paths, too. Returns the
    /// previous mark: data from that packet number on is newly marked.
    pub(super) fn move_below(&mut self, next: u64) -> u64 {
        std::mem::replace(&mut self.moved, next)
    }

    /// Returns true if a probe timeout occurred since the last acknowledgement. Other paths are
    /// then preferred.
    pub(super) fn is_suspect(&self) -> bool {
        self.backoff.count() > 0
    }

    /// Returns the peer's address.
    pub(super) fn remote(&self) -> SocketAddr {
        self.remote
    }

    /// Returns our address, or `None` if it is unknown.
    pub(super) fn local(&self) -> Option<IpAddr> {
        self.local
    }

    /// Records our address from a received datagram, if it was unknown.
    pub(super) fn learn_local(&mut self, local: Option<IpAddr>) {
        self.local = self.local.or(local);
    }

    /// Records a datagram of `bytes` bytes from the path's address.
    pub(super) fn on_datagram_received(&mut self, bytes: usize) {
        self.on_credit(bytes);
        self.bytes.1 += bytes as u64;
    }

    /// Returns the bytes of UDP payload sent and received.
    pub(super) fn bytes(&self) -> (u64, u64) {
        self.bytes
    }

    /// Returns the sequence number of the peer's connection ID that is used on this path. Returns
    /// `None` if the peer has issued none that may be used.
    pub(super) fn remote_id(&self) -> Option<u64> {
        self.remote_id
    }

    pub(super) fn use_remote_id(&mut self, sequence: Option<u64>) {
        self.remote_id = sequence;
    }

    /// Applies the peer's `max_udp_payload_size`. Datagrams are no larger from now on.
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

    /// Returns true if there is anti-amplification credit for a datagram. On the first path, that
    /// is a datagram of the size that the handshake requires (RFC 9000 s.14.1). On other paths, it
    /// can be smaller (s.8.2.1).
    pub(super) fn may_send(&self) -> bool {
        let least = if self.key == PathKey(0) { MIN_INITIAL_DATAGRAM as u64 } else { LEAST };
        !self.abandoned && self.validation.credit().is_none_or(|credit| credit >= least)
    }

    /// Returns true if a PATH_CHALLENGE or PATH_RESPONSE waits and may be sent.
    pub(super) fn may_probe(&self) -> bool {
        self.validation.has_frames() && self.may_send()
    }

    /// Returns the bytes in flight, in all packet number spaces.
    pub(super) fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// Records that a packet of `bytes` bytes is sent and counts as in flight. `nested` is true if
    /// it contains only frames of hooks that other hooks attached. Returns the mark that is needed
    /// when it is acknowledged.
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

    /// Reports a sent packet to the congestion controller.
    pub(super) fn on_congestion_sent(&mut self, now: Timestamp, bytes: u64) {
        self.controller.on_sent(now, bytes, self.in_flight);
    }

    /// Subtracts a packet from the bytes in flight.
    pub(super) fn landed(&mut self, bytes: u64) {
        self.in_flight -= bytes.min(self.in_flight);
    }

    /// Subtracts a packet of application data from the bytes in flight.
    fn packet_landed(&mut self, packet: &SentPacket<Sent>) {
        if packet.in_flight {
            let bytes = packet.bytes();
            self.landed(bytes);
            if packet.content.nested {
                self.of_brought -= bytes.min(self.of_brought);
            }
        }
    }

    /// Returns the earliest time at which a datagram of this size may be sent at this rate, or
    /// `None` if it may be sent now.
    pub(super) fn pace(&mut self, now: Timestamp, rate: Rate, size: u16) -> Option<Timestamp> {
        let rate = if self.turn > rate { self.turn } else { rate };
        self.pacer.next(now, rate, size)
    }

    /// Returns true if a datagram of `size` bytes fits into a window of `window` bytes.
    #[inline(always)]
    pub(super) fn fits(&self, window: u64, size: u16) -> bool {
        window.saturating_sub(self.in_flight) >= u64::from(size)
    }

    /// Records whether the window and the pacer permit a datagram: `fits` is true if it fits into
    /// the window, and `until` is the time until which pacing holds it back. Returns true if both
    /// permit it.
    #[inline(always)]
    pub(super) fn admit(&mut self, now: Timestamp, fits: bool, until: Option<Timestamp>) -> bool {
        self.paced_until = until;
        if !fits {
            self.on_window_full(now);
        }
        fits && until.is_none()
    }

    /// Returns true if the window and the pacer permit a datagram of `size` bytes, without hooks on
    /// them. `rate` returns the pacing rate.
    #[inline(always)]
    pub(super) fn admits(
        &mut self,
        now: Timestamp,
        size: u16,
        rate: impl FnOnce(&Path) -> Rate,
    ) -> bool {
        let fits = self.fits(self.window(), size);
        let until = if fits { self.pace(now, rate(self), size) } else { None };
        self.admit(now, fits, until)
    }

    /// Sets a pacing rate that applies if it exceeds the path's own. With `None`, the path's own
    /// rate applies.
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

    /// Returns the largest UDP payload that the path is known to support, and the largest that it
    /// may support, in bytes.
    pub(super) fn datagram_sizes(&self) -> (u16, u16) {
        (self.mtu.current(), self.mtu.upper())
    }

    /// Returns the time until which pacing holds datagrams back, or `None`.
    pub(super) fn paced_until(&self) -> Option<Timestamp> {
        self.paced_until
    }

    /// Called when the window has no room for a datagram. If frames of hooks that other hooks
    /// attached, such as a peer's plugins, are more than half of the bytes in flight, the window
    /// counts as underused. Such a hook must not be able to enlarge the window by sending (RFC 9002
    /// s.7.8).
    fn on_window_full(&mut self, now: Timestamp) {
        if 2 * self.of_brought > self.in_flight {
            self.usage.on_underused(now);
        } else {
            self.usage.on_full(now);
        }
    }

    /// Records that the window is not fully used, because something other than the window or the
    /// pace limits the sender.
    pub(super) fn on_underused(&mut self, now: Timestamp) {
        self.usage.on_underused(now);
    }

    /// Returns how many bytes the application should have ready or in flight to use the path fully.
    /// These are some round trips' worth of the window, without the part that only fills queues.
    pub(super) fn in_flight_room(&self) -> u64 {
        let (min, smoothed) = (self.rtt.min().as_secs_f64(), self.rtt.smoothed().as_secs_f64());
        let share = if smoothed > min { min / smoothed } else { 1.0 };
        (self.window() as f64 * share * ROUND_TRIPS_READY) as u64
    }

    /// Records that the window has room but no data waits. Samples of the delivery rate do not
    /// describe the path then.
    pub(super) fn on_app_limited(&mut self) {
        self.rates.on_app_limited(self.in_flight);
    }

    // Round-trip time, probe timeouts.

    pub(super) fn rtt(&self) -> &RttEstimator {
        &self.rtt
    }

    /// Processes an RTT sample; see [`RttEstimator::update`].
    pub(super) fn update_rtt(&mut self, now: Timestamp, latest: Duration, ack_delay: Duration) {
        self.rtt.update(now, latest, ack_delay);
    }

    /// Sets the smoothed round-trip time, for hooks with their own estimator.
    pub(super) fn set_smoothed_rtt(&mut self, smoothed: Duration) {
        self.rtt.set_smoothed(smoothed);
    }

    /// Sets the variation of the round-trip time, for hooks with their own estimator.
    pub(super) fn set_rtt_variation(&mut self, variation: Duration) {
        self.rtt.set_variation(variation);
    }

    pub(super) fn backoff(&self) -> Backoff {
        self.backoff
    }

    /// Records a probe timeout.
    pub(super) fn on_probe_timeout(&mut self, now: Timestamp) {
        self.backoff.on_timeout();
        self.progress = now;
    }

    /// Records an acknowledgement from the peer.
    pub(super) fn on_progress(&mut self, now: Timestamp) {
        self.progress = now;
    }

    /// Returns the time of the last acknowledgement or probe timeout, or the time at which the path
    /// was created.
    pub(super) fn progress(&self) -> Timestamp {
        self.progress
    }

    /// Resets the backoff, because an acknowledgement arrived or everything sent before is
    /// obsolete.
    pub(super) fn restart_backoff(&mut self) {
        self.backoff.restart();
    }

    // Congestion.

    /// Returns the congestion controller for reading.
    pub(super) fn controller(&self) -> &dyn Controller {
        &*self.controller
    }

    /// Returns the congestion window in bytes: a hook's, or the controller's.
    pub(super) fn window(&self) -> u64 {
        self.hook_window.unwrap_or_else(|| self.controller.window())
    }

    /// Returns the room in the window in bytes. Returns 0 if a datagram does not fit, or if pacing
    /// holds it back.
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

    /// Returns the bytes of UDP payload sent on the path.
    pub(super) fn sent(&self) -> u64 {
        self.bytes.0
    }

    /// Returns the number of packets sent on the path and declared lost.
    pub(super) fn lost(&self) -> u64 {
        self.lost
    }

    /// Sets the congestion window that a hook wants. With `None`, the controller's window applies.
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

    /// Returns the pacing rate of the congestion controller, rounded down to whole bytes per
    /// second. This is the precision that hooks see. The rate stays the same within one GSO message
    /// ([`Controller::pacing_rate`]).
    #[inline(always)]
    pub(super) fn whole_rate(&self) -> Rate {
        let rate = self.pacing_rate().as_bytes_per_second() as u64;
        Rate::bytes_per_second(rate as f64)
    }

    /// Returns the pacing rate of the congestion controller.
    pub(super) fn pacing_rate(&self) -> Rate {
        self.controller.pacing_rate(&self.rtt)
    }

    /// Returns the latest sample of the delivery rate in bytes per second, or 0 before the first
    /// sample.
    pub(super) fn delivery_rate(&self) -> u64 {
        self.delivery_rate
    }

    /// Processes acknowledged packets: the time at which each was sent, its size, and its mark.
    /// Returns a sample of the delivery rate, or `None` if these packets permit none.
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

    /// Returns true if the window was not fully used while a packet sent at this time was in flight
    /// (RFC 9002 s.7.8).
    pub(super) fn is_app_limited(&self, sent: Timestamp) -> bool {
        !self.usage.was_used_since(sent)
    }

    /// Reports acknowledged packets to the congestion controller, with the path's round-trip time.
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

    /// Reports congestion to the congestion controller.
    pub(super) fn on_congestion(
        &mut self,
        now: Timestamp,
        largest_sent: Timestamp,
        signal: Signal,
    ) {
        self.controller.on_congestion(now, largest_sent, signal);
    }

    /// Reports a spurious loss to the congestion controller.
    pub(super) fn on_spurious_loss(&mut self, now: Timestamp) {
        self.controller.on_spurious_loss(now);
    }

    /// Processes persistent congestion. The window falls to its minimum. min_rtt is measured again,
    /// because the route may have changed (RFC 9002 s.5.2, s.7.6.2).
    pub(super) fn on_persistent_congestion(&mut self, now: Timestamp) {
        self.controller.on_persistent_congestion(now);
        self.rtt.restart_min();
    }

    // Fate of packets.

    /// Processes the acknowledgement of a packet, or of a run of packets, that was sent on this
    /// path.
    pub(super) fn on_packet_acked(&mut self, packet: &SentPacket<Sent>) {
        self.packet_landed(packet);
        if !packet.mtu_probe {
            self.mtu.on_acked(packet.size, packet.time_sent);
        }
    }

    /// Processes the loss of a packet that was sent on this path.
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

    /// Returns the largest UDP payload that the path is known to support, in bytes.
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

    /// Starts the search for larger datagrams if it is worthwhile. `waiting` is the number of bytes
    /// in streams that wait to be sent or acknowledged. `datagrams` is true if the application
    /// sends datagrams, whose size the MTU limits.
    #[inline]
    pub(super) fn weigh_mtu(&mut self, waiting: u64, datagrams: bool) {
        if !self.mtu.is_wanted()
            && (datagrams || waiting >= BULK_WAITING || self.bytes.0 >= BULK_SENT)
        {
            self.mtu.want();
        }
    }

    /// Returns the size of the MTU probe that is due, or `None`.
    pub(super) fn next_mtu_probe(&mut self, now: Timestamp) -> Option<u16> {
        self.mtu.next_probe(now)
    }

    /// Processes the acknowledgement or loss of an MTU probe.
    pub(super) fn on_mtu_probe(&mut self, arrived: bool) {
        if !arrived {
            // RFC 9000 s.14.4: this is no sign of congestion.
            self.mtu.on_probe_lost();
        } else if self.mtu.on_probe_acked() {
            self.controller.on_datagram_size(self.mtu.current());
        }
    }

    /// Returns true if packets are marked ECT(0).
    pub(super) fn marks(&self) -> bool {
        self.ecn.marks()
    }

    #[cfg(feature = "qlog")]
    pub(super) fn ecn_state(&self) -> EcnState {
        self.ecn.state()
    }

    /// Records that a marked packet is sent.
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

    /// Records that a hook holds back the next datagram. Returns the time until which it may.
    pub(super) fn hold_back(&mut self, now: Timestamp) -> Timestamp {
        let hold = self.hold.get_or_insert(Hold { since: now, over: false });
        if hold.over { now } else { hold.since + PATIENCE }
    }

    /// Returns the time by which a hook must release what it holds back. Returns `None` if it holds
    /// nothing back, or has used up its time.
    pub(super) fn hold_timer(&self) -> Option<Timestamp> {
        self.hold.filter(|hold| !hold.over).map(|hold| hold.since + PATIENCE)
    }

    /// Ends a hook's hold if its time is used up.
    pub(super) fn on_hold_timer(&mut self, now: Timestamp) {
        if let Some(hold) = &mut self.hold {
            hold.over |= hold.since + PATIENCE <= now;
        }
    }

    /// Ends the wait for the pace if its time is over.
    pub(super) fn on_pace_timer(&mut self, now: Timestamp) {
        self.paced_until = self.paced_until.filter(|at| *at > now);
    }

    /// Discards answers of a hook that was detached.
    pub(super) fn forget_answers(&mut self) {
        (self.hook_window, self.hold) = (None, None);
    }

    /// Sets the bytes in flight.
    #[cfg(test)]
    pub(super) fn pretend_in_flight(&mut self, bytes: u64) {
        self.in_flight = bytes;
    }

    /// Sets the number of lost packets.
    #[cfg(test)]
    pub(super) fn pretend_lost(&mut self, packets: u64) {
        self.lost = packets;
    }

    /// Sets the peer's address.
    #[cfg(test)]
    pub(super) fn pretend_remote(&mut self, remote: SocketAddr) {
        self.remote = remote;
    }
}

#[cfg(test)]
mod tests;
