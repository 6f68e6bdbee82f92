//! BBR version 3 (draft-ietf-ccwg-bbr): controls congestion by a model of the path, not by
//! reactions to loss.
//!
//! * `model.rs`: the model of the path: its bandwidth, its round-trip time, and the bytes in flight
//!   that it can carry;
//! * `cycle.rs`: when to probe for bandwidth (ProbeBW) and for the round-trip time (ProbeRTT);
//! * `mod.rs`: the states Startup and Drain, and the window and rate that follow from the model.
//!
//! Names, and the order of the steps, are those of the draft.

mod cycle;
mod model;
#[cfg(test)]
mod tests;

use std::time::Duration;

use super::{AckSample, Controller, Rate, Signal, initial_window};
use crate::Timestamp;
use crate::recovery::{DeliveryMark, RttEstimator};

use cycle::Cycle;
use model::{Model, is_lossy};

/// Fraction by which the pacing rate stays below the estimated bandwidth, because estimates can be
/// too high (s.2.5).
const PACING_MARGIN: f64 = 0.01;
/// s.5.3.1: the pacing gain of Startup is 4 ln 2.
const STARTUP_PACING_GAIN: f64 = 2.77;
const STARTUP_CWND_GAIN: f64 = 2.0;
const DRAIN_PACING_GAIN: f64 = 0.5;
/// s.5.3.2: Drain ends after this number of round trips at the latest.
const DRAIN_ROUNDS: u64 = 3;
const DEFAULT_CWND_GAIN: f64 = 2.0;
/// s.2.7: the smallest congestion window is four packets.
const MIN_PIPE_PACKETS: u64 = 4;
/// s.5.3.1.2: Startup ends after this number of round trips in which the bandwidth grew by less
/// than a fourth.
const FULL_BW_ROUNDS: u32 = 3;
const FULL_BW_GROWTH: f64 = 1.25;
/// s.5.3.1.3: Startup ends if the loss is excessive and the lost packets form at least this number
/// of separate ranges.
const FULL_LOSS_COUNT: u32 = 6;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Startup,
    Drain,
    ProbeBw(Phase),
    ProbeRtt,
}

/// The phases of ProbeBW (s.5.3.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Down,
    Cruise,
    Refill,
    Up,
}

/// The BBR congestion controller of draft-ietf-ccwg-bbr.
#[derive(Debug, Clone)]
pub(crate) struct Bbr {
    datagram: u64,
    state: State,
    model: Model,
    cycle: Cycle,
    window: u64,
    /// Congestion window before ProbeRTT reduced it, in bytes.
    prior_window: u64,
    pacing_gain: f64,
    cwnd_gain: f64,
    /// Bytes in flight after the last call that reported them.
    in_flight: u64,
    full_bw_reached: bool,
    full_bw_now: bool,
    full_bw: f64,
    full_bw_count: u32,
    /// Number of losses in the current round trip. Many losses can end Startup.
    losses_in_round: u32,
    /// First estimate of the pacing rate, which is used until there is a bandwidth sample.
    nominal: Option<Rate>,
    idle_restart: bool,
    /// Two flags, for the current round trip and the previous one. A flag is true if the congestion
    /// window was full.
    window_used: [bool; 2],
    /// Number of the round trip in which Drain began.
    drain_round: u64,
}

impl Bbr {
    /// Creates a controller in the state Startup, for datagrams of this size in bytes. `seed`
    /// randomizes the times of the probes.
    pub(crate) fn new(datagram: u16, seed: u64) -> Bbr {
        let window = initial_window(datagram);
        Bbr {
            datagram: datagram.into(),
            state: State::Startup,
            model: Model::new(),
            cycle: Cycle::new(seed),
            window,
            prior_window: 0,
            pacing_gain: STARTUP_PACING_GAIN,
            cwnd_gain: STARTUP_CWND_GAIN,
            in_flight: 0,
            full_bw_reached: false,
            full_bw_now: false,
            full_bw: 0.0,
            full_bw_count: 0,
            losses_in_round: 0,
            nominal: None,
            idle_restart: false,
            window_used: [false; 2],
            drain_round: 0,
        }
    }

    fn enter_startup(&mut self) {
        self.state = State::Startup;
        (self.pacing_gain, self.cwnd_gain) = (STARTUP_PACING_GAIN, STARTUP_CWND_GAIN);
    }

    fn enter_drain(&mut self) {
        self.state = State::Drain;
        (self.pacing_gain, self.cwnd_gain) = (DRAIN_PACING_GAIN, DEFAULT_CWND_GAIN);
        self.drain_round = self.model.round_count;
    }

    /// s.5.3.1.2: checks whether the bandwidth has stopped growing, so that the path is full.
    fn check_full_bw_reached(&mut self, sample: &AckSample<'_>) {
        let Some(rate) = sample.rate else { return };
        if self.full_bw_now || !self.model.round_start || rate.app_limited {
            return;
        }
        let bw = rate.rate.map_or(0.0, Rate::as_bytes_per_second);
        if bw >= self.full_bw * FULL_BW_GROWTH {
            self.reset_full_bw();
            self.full_bw = bw;
            return;
        }
        self.full_bw_count += 1;
        self.full_bw_now = self.full_bw_count >= FULL_BW_ROUNDS;
        self.full_bw_reached |= self.full_bw_now;
    }

    fn reset_full_bw(&mut self) {
        (self.full_bw, self.full_bw_count, self.full_bw_now) = (0.0, 0, false);
    }

    fn check_startup(&mut self, sample: &AckSample<'_>) {
        if self.state == State::Startup {
            // s.5.3.1.3: excessive loss ends Startup, too.
            if let Some(rate) = sample.rate
                && self.model.loss_round_start
            {
                // This also applies if the application limits the rate, because excessive loss
                // means that the queue is full in any case.
                let lossy = is_lossy(rate.lost, rate.sent_in_flight, self.datagram);
                if lossy && self.losses_in_round >= FULL_LOSS_COUNT {
                    self.full_bw_reached = true;
                    self.model.inflight_longterm =
                        Some((self.model.bdp(1.0).unwrap_or(0)).max(self.model.inflight_latest));
                }
                self.losses_in_round = 0;
            }
            if self.full_bw_reached {
                self.enter_drain();
            }
        }
        let drained = self.in_flight <= self.inflight(1.0)
            || self.model.round_count > self.drain_round + DRAIN_ROUNDS;
        if self.state == State::Drain && drained {
            self.start_probe_bw_down(sample.now);
        }
    }

    /// Returns true if the congestion window, not the pacing rate, limited the sender in this round
    /// trip or in the previous one.
    fn is_window_limited(&self) -> bool {
        self.window_used[0] || self.window_used[1]
    }

    /// Returns how many bytes in flight keep the path full at this `gain`, including the allowance
    /// for sending in bursts (s.5.6.4.2).
    fn inflight(&self, gain: f64) -> u64 {
        self.inflight_of(self.model.bw(), gain)
    }

    fn inflight_of(&self, bw: f64, gain: f64) -> u64 {
        match self.model.bdp_of(bw, gain) {
            Some(bdp) => self.quantize(bdp),
            None => initial_window(self.datagram as u16),
        }
    }

    fn quantize(&self, inflight: u64) -> u64 {
        let quantum = 3 * self.send_quantum();
        let more = if self.state == State::ProbeBw(Phase::Up) { 2 * self.datagram } else { 0 };
        inflight.max(quantum).max(MIN_PIPE_PACKETS * self.datagram) + more
    }

    /// s.5.6.3: returns how many bytes the pacing rate yields in a millisecond, but at least two
    /// datagrams and at most 64 KiB.
    fn send_quantum(&self) -> u64 {
        let rate = self.model.bw() * self.pacing_gain * (1.0 - PACING_MARGIN);
        ((rate * 0.001) as u64).min(65_536).max(2 * self.datagram)
    }

    /// s.5.6.4.6: sets the congestion window after an acknowledgement.
    fn set_window(&mut self, sample: &AckSample<'_>) {
        let minimum = MIN_PIPE_PACKETS * self.datagram;
        let target = self.quantize(self.inflight(self.cwnd_gain) + self.model.extra_acked());
        if self.full_bw_reached {
            self.window = (self.window + sample.acked).min(target);
        } else if self.window < target
            || sample.rate.is_none_or(|r| r.total_delivered < initial_window(self.datagram as u16))
        {
            self.window = self.window.saturating_add(sample.acked);
        }
        self.window = self.window.max(minimum);
        // s.5.6.4.5, s.5.6.4.7: ProbeRTT and the bounds of the model limit the congestion window.
        if self.state == State::ProbeRtt {
            self.window = self.window.min(self.probe_rtt_window());
        }
        if let Some(bound) = self.window_bound() {
            self.window = self.window.min(bound.max(minimum));
        }
    }

    fn window_bound(&self) -> Option<u64> {
        let long = match self.state {
            State::ProbeBw(Phase::Cruise) | State::ProbeRtt => self.inflight_with_headroom(),
            State::ProbeBw(_) => self.model.inflight_longterm,
            State::Startup | State::Drain => None,
        };
        [long, self.model.inflight_shortterm].into_iter().flatten().min()
    }
}

impl Controller for Bbr {
    fn set_initial_window(&mut self, window: u64) {
        self.window = window;
    }

    fn on_sent(&mut self, now: Timestamp, bytes: u64, in_flight: u64) {
        // s.5.4.1: after idleness, send at the estimated rate and not faster.
        if in_flight == bytes && self.model.app_limited {
            self.idle_restart = true;
            self.model.restart_ack_epoch(now);
            if self.state == State::ProbeRtt {
                self.check_probe_rtt_done(now);
            }
        }
        self.in_flight = in_flight;
        self.window_used[0] |= in_flight + self.datagram > self.window;
    }

    fn on_packet_lost(&mut self, now: Timestamp, size: u64, sent: &DeliveryMark, lost: u64) {
        self.losses_in_round += 1;
        self.model.note_loss();
        self.handle_lost_packet(now, size, sent, lost);
    }

    fn on_ack(&mut self, sample: &AckSample<'_>) {
        self.in_flight = sample.in_flight.saturating_sub(sample.acked);
        let Some(rate) = sample.rate else { return };
        self.nominal.get_or_insert_with(|| {
            Rate::of_window(self.window, sample.rtt.smoothed(), STARTUP_PACING_GAIN)
        });
        self.model.update_latest_delivery_signals(&rate);
        let probing =
            matches!(self.state, State::Startup | State::ProbeBw(Phase::Refill | Phase::Up));
        self.model.update_congestion_signals(&rate, self.window, self.datagram, probing);
        if self.model.round_start {
            self.window_used = [false, self.window_used[0]];
        }
        let full = self.full_bw_reached;
        self.model.update_ack_aggregation(sample.now, sample.acked, self.window, full);
        self.check_full_bw_reached(sample);
        self.check_startup(sample);
        self.update_probe_bw_cycle_phase(sample);
        self.update_min_rtt(sample.now, rate.rtt);
        self.check_probe_rtt(sample);
        self.model.advance_latest_delivery_signals(&rate);
        self.set_window(sample);
    }

    fn on_congestion(&mut self, _now: Timestamp, _largest_sent: Timestamp, signal: Signal) {
        // Only record the signal: the model reacts to all signals of a round trip together. The
        // window is not reduced to the bytes in flight.
        match signal {
            Signal::Loss { .. } => self.model.note_loss(),
            Signal::Ecn => self.model.note_marked(),
        }
    }

    fn on_spurious_loss(&mut self, _now: Timestamp) {
        // s.5.5.11: the loss was spurious, so restore the bounds from before it.
        self.model.loss_in_round = false;
        self.reset_full_bw();
        self.model.undo();
    }

    fn on_persistent_congestion(&mut self, _now: Timestamp) {
        self.save_window();
        self.window = MIN_PIPE_PACKETS * self.datagram;
    }

    fn on_datagram_size(&mut self, size: u16) {
        self.datagram = size.into();
        self.window = self.window.max(MIN_PIPE_PACKETS * self.datagram);
    }

    fn window(&self) -> u64 {
        self.window
    }

    fn slow_start_threshold(&self) -> Option<u64> {
        None
    }

    fn pacing_rate(&self, rtt: &RttEstimator) -> Rate {
        let bw = self.model.bw();
        if bw <= 0.0 {
            let nominal = Rate::of_window(self.window, rtt.smoothed(), self.pacing_gain);
            return self.nominal.unwrap_or(nominal);
        }
        let rate = bw * self.pacing_gain * (1.0 - PACING_MARGIN);
        match self.nominal {
            // s.5.6.2: until the path is full, the pacing rate only grows.
            Some(nominal) if !self.full_bw_reached => {
                Rate::bytes_per_second(rate.max(nominal.as_bytes_per_second()))
            }
            _ => Rate::bytes_per_second(rate),
        }
    }

    fn needs_pacing(&self) -> bool {
        true
    }

    fn state(&self) -> &'static str {
        match self.state {
            State::Startup => "startup",
            State::Drain => "drain",
            State::ProbeBw(Phase::Down) => "probe_bw_down",
            State::ProbeBw(Phase::Cruise) => "probe_bw_cruise",
            State::ProbeBw(Phase::Refill) => "probe_bw_refill",
            State::ProbeBw(Phase::Up) => "probe_bw_up",
            State::ProbeRtt => "probe_rtt",
        }
    }

    fn name(&self) -> &'static str {
        "bbr"
    }
}

/// Converts a duration to seconds.
fn secs(duration: Duration) -> f64 {
    duration.as_secs_f64()
}
