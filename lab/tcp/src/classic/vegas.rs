//! Vegas: estimates from the round-trip time how many datagrams wait in the queue, and keeps only a
//! few there.

use std::time::Duration;

use equic_transport::Timestamp;
use equic_transport::congestion::{AckSample, Controller, Signal, TcpController};

use super::{Core, from_core};

/// Number of datagrams in the queue below which the window grows (`ALPHA`) and above which it
/// shrinks (`BETA`).
const ALPHA: f64 = 2.0;
const BETA: f64 = 4.0;
/// Slow start ends when this number of datagrams waits in the queue.
const GAMMA: f64 = 1.0;
/// Smallest number of RTT samples in a round trip. With fewer samples, Vegas behaves like Reno in
/// that round trip.
const SAMPLES: u32 = 3;

/// The Vegas congestion controller of Brakmo and Peterson.
#[derive(Debug, Clone)]
pub(super) struct Vegas {
    core: Core,
    /// Smallest RTT of the path so far. `round_min` is the smallest RTT of the current round trip.
    base: Duration,
    round_min: Duration,
    samples: u32,
    round_start: Option<Timestamp>,
}

impl Vegas {
    pub(super) fn new(datagram: u16) -> Vegas {
        Vegas {
            core: Core::new(datagram),
            base: Duration::MAX,
            round_min: Duration::MAX,
            samples: 0,
            round_start: None,
        }
    }

    /// Ends a round trip: compares the throughput that the window permits without a queue with the
    /// actual throughput.
    fn end_round(&mut self) {
        // Never zero, because the base is a divisor.
        let seconds = |time: Duration| time.as_secs_f64().max(1e-6);
        let (base, rtt) = (seconds(self.base), seconds(self.round_min));
        let core = &mut self.core;
        // Number of datagrams in the queue: the part of the window that the path itself does not
        // hold.
        let queued = core.segments() * (rtt - base) / base;
        if core.in_slow_start() {
            if queued > GAMMA {
                let target = core.window * base / rtt + core.datagram;
                let window = core.window.min(target);
                core.reduce_to(window);
            }
            return;
        }
        if queued > BETA {
            core.window = (core.window - core.datagram).max(core.minimum());
            core.threshold = Some(core.window);
        } else if queued < ALPHA {
            core.window += core.datagram;
        }
    }
}

impl Controller for Vegas {
    from_core!("vegas");

    fn on_ack(&mut self, sample: &AckSample<'_>) {
        let rtt = sample.rtt.latest();
        (self.base, self.round_min) = (self.base.min(rtt), self.round_min.min(rtt));
        self.samples += 1;
        let may_grow = self.core.may_grow(sample);
        let ended = self.round_start.is_none_or(|start| sample.largest_sent >= start);
        // With too few RTT samples, a single delayed one would have too much weight.
        let compares = self.samples >= SAMPLES;
        if may_grow && self.core.in_slow_start() {
            self.core.window += sample.acked as f64;
        } else if may_grow && ended && !compares {
            self.core.window += self.core.datagram;
        }
        if ended {
            if may_grow && compares {
                self.end_round();
            }
            self.round_start = Some(sample.now);
            (self.round_min, self.samples) = (Duration::MAX, 0);
        }
    }

    fn on_congestion(&mut self, now: Timestamp, largest_sent: Timestamp, _signal: Signal) {
        if self.core.is_news(now, largest_sent) {
            let window = self.core.window / 2.0;
            self.core.reduce_to(window);
        }
    }
}

impl TcpController for Vegas {
    fn on_retransmission_timeout(&mut self, _now: Timestamp) {
        self.core.time_out(self.core.window / 2.0);
    }
}
