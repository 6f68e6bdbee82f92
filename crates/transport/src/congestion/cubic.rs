//! The CUBIC congestion controller (RFC 9438) with HyStart++ (RFC 9406). In the variant of Google
//! QUIC, one connection behaves like several.

use super::hystart::{HyStart, SlowStart};
use super::{
    AckSample, AdjustableController, Controller, ControllerFactory, MINIMUM_WINDOW, Signal,
    TcpController, initial_window, seconds,
};
use crate::Timestamp;

/// RFC 9438 s.5: the constant C, in segments per cubic second.
const C: f64 = 0.4;
/// RFC 9438 s.4.6: fraction of the congestion window that is left after a loss.
const BETA: f64 = 0.7;
/// Initial window of Google QUIC in packets.
const GOOGLE_INITIAL_WINDOW: f64 = 32.0;

/// The CUBIC congestion controller of RFC 9438.
#[derive(Debug, Clone)]
pub(crate) struct Cubic {
    datagram: f64,
    /// Number of connections that this connection emulates: 1, or more for Google QUIC.
    connections: f64,
    /// Congestion window in bytes. Fractions matter, because one acknowledgment may increase the
    /// window by less than a byte.
    window: f64,
    threshold: Option<f64>,
    recovery_start: Option<Timestamp>,
    /// True until the peer acknowledges a packet that was sent after the last reduction of the
    /// window.
    recovering: bool,
    hystart: HyStart,
    /// W_max in bytes: the window before the last reduction, or a lower value after fast
    /// convergence (RFC 9438 s.4.7).
    w_max: f64,
    /// Congestion window just before the last reduction (cwnd_prior), in bytes.
    prior: f64,
    epoch: Option<Epoch>,
    undo: Option<Box<Cubic>>,
}

/// A stage of congestion avoidance, with its own cubic curve (RFC 9438 s.4.2).
#[derive(Debug, Clone)]
struct Epoch {
    /// Start of the stage. Periods without data to send move it forward (RFC 9438 s.5.8).
    start: Timestamp,
    /// The plateau of CUBIC's curve in bytes: `w_max`, or the current window if that is larger.
    origin: f64,
    /// Time in seconds, from the start of the stage, until the window reaches `origin` again.
    k: f64,
    /// Congestion window that Reno would have with the same losses, in bytes.
    w_est: f64,
    last_ack: Timestamp,
}

impl Cubic {
    /// Creates a controller in slow start, for datagrams of this size.
    pub(crate) fn new(datagram: u16) -> Cubic {
        Cubic {
            datagram: datagram.into(),
            connections: 1.0,
            window: initial_window(datagram) as f64,
            threshold: None,
            recovery_start: None,
            recovering: false,
            hystart: HyStart::new(),
            w_max: 0.0,
            prior: 0.0,
            epoch: None,
            undo: None,
        }
    }

    fn minimum(&self) -> f64 {
        MINIMUM_WINDOW as f64 * self.datagram
    }

    /// Returns the fraction of the window that is left after a loss (RFC 9438 s.4.6). If the
    /// controller emulates several connections, a loss affects only one of them.
    fn beta(&self) -> f64 {
        (self.connections - 1.0 + BETA) / self.connections
    }

    /// Returns the factor alpha for the growth per round trip. With it, throughput at the same loss
    /// rate equals that of Reno: 3 (1 - beta) / (1 + beta) (RFC 9438 s.4.3). The result is scaled
    /// if several connections are emulated, because each has only a share of the window.
    fn alpha(&self) -> f64 {
        3.0 * self.connections.powi(2) * (1.0 - self.beta()) / (1.0 + self.beta())
    }

    fn avoid(&mut self, sample: &AckSample<'_>) {
        let (datagram, window, w_max, prior) = (self.datagram, self.window, self.w_max, self.prior);
        let (alpha, connections) = (self.alpha(), self.connections);
        let epoch = self.epoch.get_or_insert_with(|| Epoch {
            start: sample.now,
            origin: w_max.max(window),
            // The equation in RFC 9438 s.4.2, in segments: K = cbrt((W_max - cwnd_epoch) / C).
            k: ((w_max - window).max(0.0) / datagram / C).cbrt(),
            w_est: window,
            last_ack: sample.now,
        });
        epoch.last_ack = sample.now;
        let origin = epoch.origin;
        let elapsed = sample.now.since(epoch.start).as_secs_f64();
        // RFC 9438 s.4.3: once the window has reached its size before the last reduction, use
        // Reno's own growth.
        let alpha = if epoch.w_est >= prior { alpha.max(connections) } else { alpha };
        epoch.w_est += alpha * sample.acked as f64 / window * datagram;
        let cubic = |t: f64| C * (t - epoch.k).powi(3) * datagram + origin;
        if cubic(elapsed) < epoch.w_est {
            self.window = window.max(epoch.w_est);
            return;
        }
        // RFC 9438 s.4.4: the target is the value of the cubic curve one round trip from now, at
        // most 1.5 times the window.
        let target = cubic(elapsed + seconds(sample.rtt.smoothed())).clamp(window, 1.5 * window);
        self.window += (target - window) / window * sample.acked as f64;
    }
}

/// CUBIC as in the first version of Google QUIC, for comparison: one connection behaves like two,
/// and begins with 32 packets (A. Kakhki et al.: Taking a Long Look at QUIC, IMC 2017, s.5.2:
/// N-connection emulation).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GoogleQuic;

impl GoogleQuic {
    /// Creates the congestion controller of one path.
    pub(super) fn start_path(self, datagram: u16) -> Cubic {
        let window = GOOGLE_INITIAL_WINDOW * f64::from(datagram);
        Cubic { connections: 2.0, window, ..Cubic::new(datagram) }
    }
}

impl ControllerFactory for GoogleQuic {
    fn start(&self, datagram: u16, _seed: u64) -> Box<dyn Controller> {
        Box::new(self.start_path(datagram))
    }
}

impl Controller for Cubic {
    fn set_initial_window(&mut self, window: u64) {
        self.window = window as f64;
    }

    fn on_sent(&mut self, now: Timestamp, bytes: u64, in_flight: u64) {
        // RFC 9438 s.5.8: after a pause in sending, CUBIC's curve continues from where it was.
        if in_flight == bytes
            && let Some(epoch) = &mut self.epoch
        {
            epoch.start += now.since(epoch.last_ack);
            epoch.last_ack = epoch.last_ack.max(now);
        }
    }

    fn on_ack(&mut self, sample: &AckSample<'_>) {
        let recovering = self.recovery_start.is_some_and(|start| sample.largest_sent <= start);
        self.recovering &= recovering;
        if recovering || sample.app_limited {
            return;
        }
        if self.threshold.is_some_and(|threshold| self.window >= threshold) {
            self.avoid(sample);
            return;
        }
        if self.threshold.is_some() {
            // This is slow start after persistent congestion. HyStart++ is only for the initial
            // slow start (RFC 9406 s.4.3).
            self.window += sample.acked as f64;
            return;
        }
        let rtt = sample.rtt.latest();
        match self.hystart.on_ack(sample.now, sample.acked, sample.largest_sent, rtt) {
            SlowStart::Grow(bytes) => self.window += bytes as f64,
            SlowStart::Leave => self.threshold = Some(self.window),
        }
    }

    fn on_congestion(&mut self, now: Timestamp, largest_sent: Timestamp, _signal: Signal) {
        if self.recovery_start.is_some_and(|start| largest_sent <= start) {
            return;
        }
        self.undo = None;
        self.undo = Some(Box::new(self.clone()));
        (self.recovery_start, self.recovering) = (Some(now), true);
        self.prior = self.window;
        // RFC 9438 s.4.7: the loss came below the previous maximum, so another flow needs
        // bandwidth.
        let beta = self.beta();
        self.w_max =
            if self.window < self.w_max { self.window * (1.0 + beta) / 2.0 } else { self.window };
        self.window = (self.window * beta).max(self.minimum());
        self.threshold = Some(self.window);
        self.epoch = None;
    }

    fn on_spurious_loss(&mut self, _now: Timestamp) {
        // RFC 9438 s.4.9: the loss was spurious, so restore the state before the reduction.
        if let Some(before) = self.undo.take()
            && before.window > self.window
        {
            *self = Cubic { datagram: self.datagram, undo: None, ..*before };
        }
    }

    fn on_persistent_congestion(&mut self, _now: Timestamp) {
        self.prior = self.window;
        self.w_max = self.window;
        self.threshold = Some((self.window * self.beta()).max(self.minimum()));
        self.window = self.minimum();
        (self.recovery_start, self.epoch, self.undo) = (None, None, None);
    }

    fn on_datagram_size(&mut self, size: u16) {
        self.datagram = size.into();
        self.window = self.window.max(self.minimum());
    }

    fn adjustable(&mut self) -> Option<&mut dyn AdjustableController> {
        Some(self)
    }

    fn window(&self) -> u64 {
        self.window as u64
    }

    fn slow_start_threshold(&self) -> Option<u64> {
        self.threshold.map(|threshold| threshold as u64)
    }

    fn state(&self) -> &'static str {
        match self.threshold {
            _ if self.recovering && self.recovery_start.is_some() => "recovery",
            Some(threshold) if self.window >= threshold => "congestion_avoidance",
            _ => "slow_start",
        }
    }

    fn name(&self) -> &'static str {
        if self.connections > 1.0 { "gquic-cubic" } else { "cubic" }
    }
}

impl TcpController for Cubic {
    fn on_retransmission_timeout(&mut self, now: Timestamp) {
        self.undo = None;
        let before = Box::new(self.clone());
        // RFC 9438 s.4.8: the congestion window becomes the loss window of RFC 5681 s.3.1.
        self.on_persistent_congestion(now);
        self.window = self.datagram;
        self.undo = Some(before);
    }
}

impl AdjustableController for Cubic {
    fn set_window(&mut self, window: u64) {
        // Start a new stage of congestion avoidance, because the old curve does not apply to the
        // window that was set.
        (self.window, self.epoch, self.undo) = ((window as f64).max(self.minimum()), None, None);
    }

    fn set_slow_start_threshold(&mut self, threshold: Option<u64>) {
        (self.threshold, self.undo) = (threshold.map(|threshold| threshold as f64), None);
    }
}
