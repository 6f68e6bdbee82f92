//! Decides when BBR probes for bandwidth and for the round-trip time: the phases of ProbeBW, and
//! ProbeRTT (draft-ietf-ccwg-bbr s.5.3.3, s.5.3.4).

use std::time::Duration;

use super::model::{LOSS_THRESHOLD, is_lossy};
use super::{Bbr, DEFAULT_CWND_GAIN, MIN_PIPE_PACKETS, Phase, State};
use crate::Timestamp;
use crate::congestion::AckSample;
use crate::recovery::DeliveryMark;

/// Fraction of the long-term bound on the bytes in flight that is left free for other flows while
/// cruising, 0 to 1 (s.2.3).
const HEADROOM: f64 = 0.15;
const BETA: f64 = 0.7;
const MIN_RTT_FILTER: Duration = Duration::from_secs(10);
const PROBE_RTT_INTERVAL: Duration = Duration::from_secs(5);
const PROBE_RTT_DURATION: Duration = Duration::from_millis(200);
const PROBE_RTT_CWND_GAIN: f64 = 0.5;
/// s.5.3.3.9: largest number of round trips between two bandwidth probes, so that flows of Reno and
/// CUBIC can coexist.
const MAX_RENO_ROUNDS: u64 = 63;

#[derive(Debug, Clone)]
pub(super) struct Cycle {
    random: u64,
    /// Time at which the current phase of ProbeBW began.
    stamp: Timestamp,
    /// Time to cruise before the next bandwidth probe.
    wait: Duration,
    rounds_since_probe: u64,
    /// Bytes acknowledged since the last increase of the long-term bound on the bytes in flight.
    probe_up_acked: u64,
    /// Number of acknowledged bytes after which the long-term bound on the bytes in flight grows by
    /// one datagram.
    probe_up_step: u64,
    probe_up_rounds: u32,
    /// True if current losses may be caused by this controller's own probing.
    probe_samples: bool,
    /// True if the last bandwidth probe ended because of too much loss.
    prev_too_high: bool,
    /// True if the last probe was ended as a precaution, at the bytes in flight at which the probe
    /// before it had too much loss.
    prev_precautionary: bool,
    ack_phase: AckPhase,
    min_rtt_stamp: Timestamp,
    probe_rtt_min: Option<Duration>,
    probe_rtt_stamp: Timestamp,
    probe_rtt_expired: bool,
    probe_rtt_done: Option<Timestamp>,
    probe_rtt_round_done: bool,
}

/// The phase of the probing cycle in which the connection sent the packets of the current
/// acknowledgement (s.5.3.3.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AckPhase {
    Init,
    Refilling,
    ProbeStarting,
    ProbeFeedback,
    ProbeStopping,
}

impl Cycle {
    pub(super) fn new(seed: u64) -> Cycle {
        Cycle {
            // A xorshift generator with the state zero would return only zeros.
            random: seed | 1,
            stamp: Timestamp::START,
            wait: Duration::from_secs(2),
            rounds_since_probe: 0,
            probe_up_acked: 0,
            probe_up_step: u64::MAX,
            probe_up_rounds: 0,
            probe_samples: false,
            prev_too_high: false,
            prev_precautionary: false,
            ack_phase: AckPhase::Init,
            min_rtt_stamp: Timestamp::START,
            probe_rtt_min: None,
            probe_rtt_stamp: Timestamp::START,
            probe_rtt_expired: false,
            probe_rtt_done: None,
            probe_rtt_round_done: false,
        }
    }

    /// Returns a random number (xorshift64). It is random enough to keep flows from synchronizing.
    fn chance(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    /// s.5.3.3.5: chooses the time until the next bandwidth probe, two to three seconds. The count
    /// of round trips starts at a random 0 or 1.
    fn pick_wait(&mut self) {
        self.rounds_since_probe = self.chance() % 2;
        self.wait = Duration::from_millis(2000 + self.chance() % 1000);
    }
}

impl Bbr {
    fn set_phase(&mut self, phase: Phase) {
        self.state = State::ProbeBw(phase);
        (self.pacing_gain, self.cwnd_gain) = match phase {
            Phase::Down => (0.90, DEFAULT_CWND_GAIN),
            Phase::Cruise | Phase::Refill => (1.0, DEFAULT_CWND_GAIN),
            Phase::Up => (1.25, 2.25),
        };
    }

    pub(super) fn start_probe_bw_down(&mut self, now: Timestamp) {
        // s.5.3.3.5: the steps of BBRStartProbeBW_DOWN.
        self.model.reset_congestion_signals();
        (self.cycle.probe_up_step, self.cycle.ack_phase) = (u64::MAX, AckPhase::ProbeStopping);
        self.cycle.pick_wait();
        self.cycle.stamp = now;
        self.model.start_round();
        self.set_phase(Phase::Down);
    }

    fn start_refill(&mut self) {
        self.model.reset_shortterm();
        (self.cycle.probe_up_rounds, self.cycle.probe_up_acked) = (0, 0);
        self.cycle.prev_precautionary = false;
        self.cycle.ack_phase = AckPhase::Refilling;
        self.model.start_round();
        self.set_phase(Phase::Refill);
    }

    fn start_up(&mut self, sample: &AckSample<'_>) {
        self.cycle.ack_phase = AckPhase::ProbeStarting;
        self.cycle.stamp = sample.now;
        self.reset_full_bw();
        self.full_bw = bandwidth(sample);
        self.model.start_round();
        self.set_phase(Phase::Up);
        self.raise_slope();
    }

    /// s.5.3.3.6: enters the next phase of ProbeBW if its time has come.
    pub(super) fn update_probe_bw_cycle_phase(&mut self, sample: &AckSample<'_>) {
        if !self.full_bw_reached {
            return;
        }
        if self.adapt_longterm_model(sample) {
            return;
        }
        let State::ProbeBw(phase) = self.state else { return };
        if self.model.round_start {
            self.cycle.rounds_since_probe += 1;
        }
        match phase {
            Phase::Down => {
                if self.time_to_probe(sample.now) {
                    self.start_refill();
                } else if self.time_to_cruise() {
                    self.set_phase(Phase::Cruise);
                }
            }
            Phase::Cruise => {
                if self.time_to_probe(sample.now) {
                    self.start_refill();
                }
            }
            Phase::Refill => {
                // A round trip at the full rate has passed, so losses are caused by the probe.
                if self.model.round_start {
                    self.cycle.probe_samples = true;
                    self.start_up(sample);
                }
            }
            Phase::Up => {
                if self.time_to_go_down(sample) {
                    // The bandwidth probe has caused no excessive loss.
                    self.cycle.prev_too_high = false;
                    self.start_probe_bw_down(sample.now);
                }
            }
        }
    }

    fn time_to_probe(&self, now: Timestamp) -> bool {
        let reno = self.inflight(1.0).min(self.window) / self.datagram;
        now.since(self.cycle.stamp) > self.cycle.wait
            || self.cycle.rounds_since_probe >= reno.clamp(1, MAX_RENO_ROUNDS)
    }

    fn time_to_cruise(&self) -> bool {
        let headroom = self.inflight_with_headroom();
        headroom.is_none_or(|bound| self.in_flight <= bound)
            && self.in_flight <= self.inflight_of(self.model.max_bw(), 1.0)
    }

    fn time_to_go_down(&mut self, sample: &AckSample<'_>) -> bool {
        let bound = self.model.inflight_longterm;
        // End the probe as a precaution, because the last probe had too much loss with these bytes
        // in flight.
        if self.cycle.prev_too_high && bound.is_some_and(|bound| self.in_flight >= bound) {
            self.cycle.prev_precautionary = true;
            return true;
        }
        if self.is_window_limited() && bound.is_some_and(|bound| self.window >= bound) {
            // The long-term bound, not the path, limits the sender. So a bandwidth that does not
            // grow is no reason to end the probe.
            self.reset_full_bw();
            self.full_bw = bandwidth(sample);
            return false;
        }
        self.full_bw_now
    }

    pub(super) fn inflight_with_headroom(&self) -> Option<u64> {
        let bound = self.model.inflight_longterm?;
        let headroom = ((HEADROOM * bound as f64) as u64).max(self.datagram);
        Some(bound.saturating_sub(headroom).max(MIN_PIPE_PACKETS * self.datagram))
    }

    /// s.5.3.3.7: adapts the long-term bound on the bytes in flight. Returns true if a new phase
    /// has begun.
    fn adapt_longterm_model(&mut self, sample: &AckSample<'_>) -> bool {
        let Some(rate) = sample.rate else { return false };
        if self.cycle.ack_phase == AckPhase::ProbeStarting && self.model.round_start {
            self.cycle.ack_phase = AckPhase::ProbeFeedback;
        }
        if self.cycle.ack_phase == AckPhase::ProbeStopping && self.model.round_start {
            self.cycle.probe_samples = false;
            self.cycle.ack_phase = AckPhase::Init;
            if matches!(self.state, State::ProbeBw(_)) {
                if !rate.app_limited {
                    self.model.advance_max_bw();
                }
                if self.cycle.prev_precautionary && !self.cycle.prev_too_high {
                    // The last bandwidth probe stopped early as a precaution, and had no excessive
                    // loss, so probe again.
                    self.start_refill();
                    return true;
                }
            }
        }
        if is_lossy(rate.lost, rate.sent_in_flight, self.datagram) {
            return false;
        }
        let Some(bound) = self.model.inflight_longterm else { return false };
        if rate.sent_in_flight > bound {
            self.model.inflight_longterm = Some(rate.sent_in_flight);
        }
        if self.state == State::ProbeBw(Phase::Up) {
            self.raise_longterm(sample);
        }
        false
    }

    fn handle_too_high(&mut self, now: Timestamp, sent_in_flight: u64, app_limited: bool) {
        self.cycle.probe_samples = false;
        self.cycle.prev_too_high = true;
        if !app_limited {
            let target = (BETA * self.inflight(1.0).min(self.window) as f64) as u64;
            self.model.save();
            self.model.inflight_longterm = Some(sent_in_flight.max(target));
        }
        if self.state == State::ProbeBw(Phase::Up) {
            self.start_probe_bw_down(now);
        }
    }

    /// s.5.3.3.8: processes a lost packet. If the losses have now become excessive, the bytes in
    /// flight at this time are the new long-term bound.
    pub(super) fn handle_lost_packet(
        &mut self,
        now: Timestamp,
        size: u64,
        sent: &DeliveryMark,
        lost: u64,
    ) {
        if !self.cycle.probe_samples {
            return;
        }
        let lost = lost.saturating_sub(sent.lost);
        if !is_lossy(lost, sent.in_flight, self.datagram) {
            return;
        }
        let before = (sent.in_flight.saturating_sub(size)) as f64;
        let lost_before = lost.saturating_sub(size) as f64;
        let prefix = (LOSS_THRESHOLD * before - lost_before) / (1.0 - LOSS_THRESHOLD);
        let inflight = (before + prefix.max(0.0)) as u64;
        self.handle_too_high(now, inflight, sent.app_limited);
    }

    /// s.5.3.3.7: during a bandwidth probe, the long-term bound on the bytes in flight grows by 1,
    /// 2, 4, ... datagrams in successive round trips.
    fn raise_slope(&mut self) {
        let growth = 1u64 << self.cycle.probe_up_rounds;
        self.cycle.probe_up_rounds = (self.cycle.probe_up_rounds + 1).min(30);
        self.cycle.probe_up_step = (self.window / growth).max(self.datagram);
    }

    fn raise_longterm(&mut self, sample: &AckSample<'_>) {
        let Some(bound) = self.model.inflight_longterm else { return };
        if !self.is_window_limited() || self.window < bound {
            return;
        }
        self.cycle.probe_up_acked += sample.acked;
        if self.cycle.probe_up_acked >= self.cycle.probe_up_step {
            let steps = self.cycle.probe_up_acked / self.cycle.probe_up_step;
            self.cycle.probe_up_acked -= steps * self.cycle.probe_up_step;
            self.model.inflight_longterm = Some(bound + steps * self.datagram);
        }
        if self.model.round_start {
            self.raise_slope();
        }
    }

    /// s.5.3.4.3: updates the two filters for the smallest RTT with an RTT sample.
    pub(super) fn update_min_rtt(&mut self, now: Timestamp, rtt: Duration) {
        let cycle = &mut self.cycle;
        cycle.probe_rtt_expired = now.since(cycle.probe_rtt_stamp) > PROBE_RTT_INTERVAL;
        if cycle.probe_rtt_expired || cycle.probe_rtt_min.is_none_or(|min| rtt < min) {
            (cycle.probe_rtt_min, cycle.probe_rtt_stamp) = (Some(rtt), now);
        }
        let expired = now.since(cycle.min_rtt_stamp) > MIN_RTT_FILTER;
        let Some(probed) = cycle.probe_rtt_min else { return };
        if expired || self.model.min_rtt.is_none_or(|min| probed < min) {
            self.model.min_rtt = Some(probed);
            cycle.min_rtt_stamp = cycle.probe_rtt_stamp;
        }
    }

    pub(super) fn check_probe_rtt(&mut self, sample: &AckSample<'_>) {
        if self.state != State::ProbeRtt && self.cycle.probe_rtt_expired && !self.idle_restart {
            self.save_window();
            self.state = State::ProbeRtt;
            (self.pacing_gain, self.cwnd_gain) = (1.0, PROBE_RTT_CWND_GAIN);
            (self.cycle.probe_rtt_done, self.cycle.ack_phase) = (None, AckPhase::ProbeStopping);
            self.model.start_round();
        }
        if self.state == State::ProbeRtt {
            self.handle_probe_rtt(sample);
        }
        if sample.rate.is_some_and(|rate| rate.delivered > 0) {
            self.idle_restart = false;
        }
    }

    fn handle_probe_rtt(&mut self, sample: &AckSample<'_>) {
        match self.cycle.probe_rtt_done {
            None if self.in_flight <= self.probe_rtt_window() => {
                // The queue has drained. Keep the small window for 200 ms and one round trip.
                self.cycle.probe_rtt_done = Some(sample.now + PROBE_RTT_DURATION);
                self.cycle.probe_rtt_round_done = false;
                self.model.start_round();
            }
            None => {}
            Some(_) => {
                self.cycle.probe_rtt_round_done |= self.model.round_start;
                if self.cycle.probe_rtt_round_done {
                    self.check_probe_rtt_done(sample.now);
                }
            }
        }
    }

    pub(super) fn check_probe_rtt_done(&mut self, now: Timestamp) {
        if self.cycle.probe_rtt_done.is_none_or(|done| now <= done) {
            return;
        }
        self.cycle.probe_rtt_stamp = now;
        self.window = self.window.max(self.prior_window);
        self.model.reset_shortterm();
        if self.full_bw_reached {
            self.start_probe_bw_down(now);
            self.set_phase(Phase::Cruise);
        } else {
            self.enter_startup();
        }
    }

    pub(super) fn probe_rtt_window(&self) -> u64 {
        let bdp = self.model.bdp(PROBE_RTT_CWND_GAIN);
        bdp.unwrap_or(0).max(MIN_PIPE_PACKETS * self.datagram)
    }

    pub(super) fn save_window(&mut self) {
        let restored = self.state != State::ProbeRtt;
        self.prior_window = if restored { self.window } else { self.prior_window.max(self.window) };
    }
}

/// Returns the bandwidth in bytes per second that an acknowledgement shows, or 0 if it provides no
/// sample.
fn bandwidth(sample: &AckSample<'_>) -> f64 {
    sample.rate.and_then(|rate| rate.rate).map_or(0.0, super::Rate::as_bytes_per_second)
}
