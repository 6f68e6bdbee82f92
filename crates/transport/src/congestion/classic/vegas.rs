//! Vegas: keeps a few datagrams in the queue, and tells their number from the round trip.

use std::time::Duration;

use super::super::{AckSample, Controller, Signal, seconds};
use super::{Core, from_core};
use crate::Timestamp;

/// Datagrams in the queue below which the window grows, and above which it shrinks.
const ALPHA: f64 = 2.0;
const BETA: f64 = 4.0;
/// Datagrams in the queue that end slow start.
const GAMMA: f64 = 1.0;
/// Samples of the round trip that make a round: with fewer it does as Reno.
const SAMPLES: u32 = 3;

/// The controller of Brakmo and Peterson.
#[derive(Debug, Clone)]
pub(super) struct Vegas {
    core: Core,
    /// Least round trip ever, and of this round.
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

    /// Once a round trip: compares what the window should give with what it does.
    fn end_round(&mut self) {
        let (base, rtt) = (seconds(self.base), seconds(self.round_min));
        let core = &mut self.core;
        // Datagrams that wait in queues: those beyond what the path itself holds.
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
        // In a round of too few samples, one that waited says too much.
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

    fn on_retransmission_timeout(&mut self, _now: Timestamp) {
        self.core.time_out(self.core.window / 2.0);
    }
}
