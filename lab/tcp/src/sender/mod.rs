//! The sending half of a TCP connection.
//!
//! * `scoreboard.rs`: outstanding segments;
//! * `rack.rs`: loss detection;
//! * `prr.rs`: how much is sent while the congestion window is being reduced;
//! * `acks.rs`: incoming acknowledgements;
//! * `timers.rs`: timers, which fire when no acknowledgements arrive;
//! * this file: selects the next segment to send.

mod acks;
mod prr;
mod rack;
mod scoreboard;
mod timers;

use std::time::Duration;

use equic_transport::Timestamp;
use equic_transport::congestion::{
    DeliveryMark, DeliveryRate, Pacer, RttEstimator, TcpController, WindowUsage,
};

use crate::config::TcpConfig;
use prr::Prr;
use rack::Rack;
use scoreboard::{Scoreboard, Sent};

pub(crate) use acks::Ack;
pub(crate) use timers::Expiry;

/// The state of the sender. Linux has the same states: Open, CWR or Recovery, and Loss.
#[derive(Debug)]
enum Phase {
    Open,
    /// The congestion window is being reduced because of a loss or an ECN mark.
    Reducing(Reduction),
    /// The retransmission timer has expired. The state lasts until all data that was outstanding at
    /// that time is acknowledged.
    Loss {
        /// The value of SND.NXT when the timer expired.
        end: u64,
        /// The state of the check whether the timeout was spurious.
        check: Check,
    },
}

/// Detection of a spurious retransmission timeout (F-RTO, RFC 5682 s.3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Check {
    /// The first segment was retransmitted (step 1).
    Begun,
    /// The retransmission was acknowledged. The sender now sends this number of new segments
    /// instead of further retransmissions (step 2b).
    Probing(u8),
    /// The check has ended, because the timeout was genuine or the cause cannot be determined.
    Over,
}

#[derive(Debug)]
struct Reduction {
    /// The value of SND.NXT at the start of the reduction. The reduction ends when this number is
    /// acknowledged.
    end: u64,
    entered: Timestamp,
    /// The state of Proportional Rate Reduction (PRR). `None` for controllers that set the window
    /// themselves during a reduction.
    prr: Option<Prr>,
    /// Number of bytes in flight that PRR permits.
    window: u64,
    /// True if a loss caused the reduction, false if an ECN mark did.
    loss: bool,
    /// True after a partial acknowledgement, which advances SND.UNA but does not end the reduction
    /// (RFC 6582 s.3.2).
    partial: bool,
}

/// A tail loss probe that was not answered yet (RFC 8985 s.7.4).
#[derive(Debug)]
struct Probe {
    /// The value of SND.NXT when the probe was sent (TLP.end_seq in RFC 8985).
    end: u64,
    /// True if the probe was a retransmission (TLP.is_retrans in RFC 8985).
    retransmission: bool,
}

/// A transmission that is made even if the congestion window has no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Forced {
    /// A retransmission of the first lost segment: a fast retransmit, or the first one after a
    /// timeout.
    Lost,
    /// A tail loss probe.
    Tail,
}

/// The counters of a sender.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counters {
    pub retransmissions: u64,
    pub lost: u64,
    pub timeouts: u64,
    pub probes: u64,
    pub reductions: u64,
    pub spurious: u64,
}

/// The part of the stream that must be sent now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Departure {
    pub start: u64,
    /// Sequence number after the end of the part, including a FIN.
    pub end: u64,
    pub retransmission: bool,
}

#[derive(Debug)]
pub(crate) struct Sender {
    board: Scoreboard,
    rack: Rack,
    pub(crate) rtt: RttEstimator,
    pub(crate) controller: Box<dyn TcpController>,
    rates: DeliveryRate,
    usage: WindowUsage,
    pacer: Option<Pacer>,
    phase: Phase,
    /// The oldest unacknowledged sequence number, SND.UNA. `nxt` is the next one to send, SND.NXT
    /// (RFC 9293 s.3.3.1). Both count from the SYN.
    una: u64,
    nxt: u64,
    /// Sequence number after the last written byte.
    written: u64,
    fin: bool,
    /// Right edge of the receiver's window.
    limit: u64,
    mss: u64,
    sack: bool,
    /// Number of duplicate acknowledgements since SND.UNA last advanced. Used only without SACK.
    duplicates: u64,
    /// Time and first sequence number of the first retransmission in the current phase. `None` if
    /// there was no retransmission.
    retransmitted: Option<(Timestamp, u64)>,
    /// SND.UNA at the start of the last loss recovery, and the number of its retransmissions that
    /// no DSACK has reported as unnecessary. `None` if there is no reaction to undo.
    needed: Option<(u64, u32)>,
    forced: Option<Forced>,
    probe: Option<Probe>,
    backoff: u32,
    rto_at: Option<Timestamp>,
    probe_at: Option<Timestamp>,
    reorder_at: Option<Timestamp>,
    persist_at: Option<Timestamp>,
    pace_at: Option<Timestamp>,
    min_rto: Duration,
    max_rto: Duration,
    initial_rto: Duration,
    send_buffer: u64,
    initial_window: u64,
    last_sent: Option<Timestamp>,
    tail_loss_probe: bool,
    delivered: Vec<Sent>,
    lost: Vec<Sent>,
    pub(crate) counters: Counters,
}

impl Sender {
    /// Creates a sender whose first sequence number is the one after the SYN.
    pub(crate) fn new(now: Timestamp, config: &TcpConfig, mss: u16, seed: u64) -> Sender {
        let mut controller = config.congestion.start_tcp(mss, seed);
        let window = u64::from(config.initial_window.max(1)) * u64::from(mss);
        controller.set_initial_window(window);
        let paced = config.pacing || controller.needs_pacing();
        Sender {
            board: Scoreboard::default(),
            rack: Rack::default(),
            rtt: RttEstimator::new(config.initial_rto),
            controller,
            rates: DeliveryRate::default(),
            usage: WindowUsage::default(),
            pacer: paced.then(|| Pacer::new(now, window)),
            phase: Phase::Open,
            una: 1,
            nxt: 1,
            written: 1,
            fin: false,
            limit: 1,
            mss: mss.into(),
            sack: config.sack,
            duplicates: 0,
            retransmitted: None,
            needed: None,
            forced: None,
            probe: None,
            backoff: 0,
            rto_at: None,
            probe_at: None,
            reorder_at: None,
            persist_at: None,
            pace_at: None,
            min_rto: config.min_rto,
            max_rto: config.max_rto,
            initial_rto: config.initial_rto,
            send_buffer: config.send_buffer.max(u64::from(mss)),
            initial_window: window,
            last_sent: None,
            tail_loss_probe: config.tail_loss_probe,
            delivered: Vec::new(),
            lost: Vec::new(),
            counters: Counters::default(),
        }
    }

    /// Applies the results of the handshake: whether SACK is used, the receiver's window, and the
    /// round-trip time of the SYN as the first sample.
    pub(crate) fn on_established(
        &mut self,
        now: Timestamp,
        sack: bool,
        window: u64,
        rtt: Option<Duration>,
    ) {
        self.sack = sack;
        self.limit = self.una + window;
        if let Some(rtt) = rtt {
            self.rtt.update(now, rtt, Duration::ZERO);
        }
    }

    /// Sets the congestion window to one segment, because the SYN was lost more than once.
    pub(crate) fn start_small(&mut self) {
        self.controller.set_initial_window(self.mss);
    }

    pub(crate) fn write(&mut self, bytes: u64) {
        if !self.fin {
            self.written = self.written.saturating_add(bytes);
        }
    }

    /// Skips `bytes` of the written data, because they were sent with the SYN and are already
    /// acknowledged (RFC 7413). The first segment begins after them.
    pub(crate) fn skip(&mut self, bytes: u64) {
        (self.una, self.nxt) = (1 + bytes, 1 + bytes);
    }

    pub(crate) fn finish(&mut self) {
        self.fin = true;
    }

    /// Returns the number of outstanding segments.
    pub(crate) fn outstanding(&self) -> usize {
        self.board.len()
    }

    /// Returns the oldest unacknowledged sequence number, SND.UNA (RFC 9293 s.3.3.1).
    pub(crate) fn una(&self) -> u64 {
        self.una
    }

    /// Returns the next sequence number to send, SND.NXT (RFC 9293 s.3.3.1).
    pub(crate) fn nxt(&self) -> u64 {
        self.nxt
    }

    /// Returns `true` if all written data and the FIN are acknowledged.
    pub(crate) fn is_done(&self) -> bool {
        self.fin && self.una > self.written
    }

    /// Returns `true` if [`Sender::finish`] was called.
    pub(crate) fn is_finishing(&self) -> bool {
        self.fin
    }

    /// Returns the right edge of the receiver's window.
    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    /// Returns the number of written bytes that are not acknowledged.
    pub(crate) fn unacknowledged(&self) -> u64 {
        self.written.saturating_sub(self.una)
    }

    /// Returns the sequence number after the last written byte, which is that of the FIN.
    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    /// Returns the number of bytes in flight.
    pub(crate) fn in_flight(&self) -> u64 {
        if self.sack {
            return self.board.in_flight();
        }
        // Each duplicate acknowledgement means that a segment has arrived (RFC 5681 s.3.2).
        self.board.in_flight().saturating_sub(self.duplicates.saturating_mul(self.mss))
    }

    /// Returns the number of bytes that may be in flight now.
    pub(crate) fn window(&self) -> u64 {
        match &self.phase {
            Phase::Reducing(Reduction { prr: Some(_), window, .. }) => *window,
            _ => self.controller.window(),
        }
    }

    /// Returns the name that Linux uses for the sender's state.
    pub(crate) fn state(&self) -> &'static str {
        match &self.phase {
            Phase::Open if self.board.sacked() > 0 || self.duplicates > 0 => "disorder",
            Phase::Open => "open",
            Phase::Reducing(Reduction { loss: true, .. }) => "recovery",
            Phase::Reducing(_) => "cwr",
            Phase::Loss { .. } => "loss",
        }
    }

    /// Returns the next part of the stream to send, or `None` if nothing can be sent now.
    pub(crate) fn poll(&mut self, now: Timestamp) -> Option<Departure> {
        self.pace_at = None;
        if self.forced == Some(Forced::Tail)
            && let Some(departure) = self.send_probe(now)
        {
            return Some(departure);
        }
        if let Phase::Loss { check: Check::Probing(left), .. } = &mut self.phase
            && self.forced.is_none()
        {
            if *left == 0 {
                return None;
            }
            *left -= 1;
            if let Some(end) = self.next_end() {
                return Some(self.send_new(now, end));
            }
            self.give_up_check();
        }
        let (pipe, window) = (self.in_flight(), self.window());
        if let Some(segment) = self.board.next_lost() {
            let forced = self.forced == Some(Forced::Lost);
            if !forced && pipe > 0 && pipe + segment.len() > window {
                self.usage.on_full(now);
                return None;
            }
            if !forced && self.is_paced_out(now) {
                return None;
            }
            self.forced = None;
            return Some(self.retransmit(now, &segment));
        }
        self.forced = None;
        let Some(end) = self.next_end() else {
            self.note_idle(now, pipe, window);
            return None;
        };
        let length = end - self.nxt;
        if pipe > 0 && pipe + length > window {
            self.usage.on_full(now);
            return None;
        }
        if self.is_paced_out(now) {
            return None;
        }
        Some(self.send_new(now, end))
    }

    /// Returns the sequence number after the next new segment. Returns `None` if there is no new
    /// data, or if the receive window or the send buffer has no room for it.
    fn next_end(&self) -> Option<u64> {
        let data = self.written.saturating_sub(self.nxt).min(self.mss);
        let mut end = self.nxt + data;
        end += u64::from(self.fin && end == self.written);
        let waits = end > self.nxt;
        let fits = end <= self.limit && end - self.una <= self.send_buffer + 1;
        if waits && !fits && self.board.is_empty() && self.limit > self.nxt {
            // RFC 9293 s.3.8.6.2.1: a segment that is short because of the receive window is sent
            // only if no data is outstanding.
            return Some(end.min(self.limit));
        }
        (waits && fits).then_some(end)
    }

    /// Returns `true` if the congestion window has room for a waiting segment, but the limit on
    /// outstanding data does not. This limit is the send buffer, or a receive window of at least
    /// about the same size.
    pub(crate) fn is_window_limited(&self) -> bool {
        let waits = self.written.saturating_sub(self.nxt).min(self.mss);
        let end = self.nxt + waits;
        let outstanding = end - self.una;
        let fits = end <= self.limit && outstanding <= self.send_buffer + 1;
        waits > 0
            && !fits
            && outstanding > self.send_buffer - self.send_buffer / 16
            && self.in_flight() + waits <= self.window()
    }

    /// Records that the congestion window has room but there is no data to fill it.
    fn note_idle(&mut self, now: Timestamp, pipe: u64, window: u64) {
        if pipe < window {
            self.usage.on_underused(now);
            self.rates.on_app_limited(pipe);
        }
        let waits = self.nxt < self.written + u64::from(self.fin);
        if waits && self.board.is_empty() && self.persist_at.is_none() {
            self.persist_at = Some(now + self.rto());
        }
    }

    /// Returns `true` if an acknowledgement of data must not restart the retransmission timer.
    /// Without SACK, each round trip repairs one hole. If there are many holes, a timeout repairs
    /// them sooner (RFC 6582 s.3.2 step 3 and s.4: only the first partial acknowledgement resets
    /// the timer).
    fn is_impatient(&self) -> bool {
        !self.sack
            && matches!(self.phase, Phase::Reducing(Reduction { loss: true, partial: true, .. }))
    }

    /// Ends the check for a spurious timeout if it can no longer determine the cause.
    fn give_up_check(&mut self) {
        if let Phase::Loss { check, .. } = &mut self.phase {
            *check = Check::Over;
        }
    }

    fn is_paced_out(&mut self, now: Timestamp) -> bool {
        let Some(pacer) = &mut self.pacer else { return false };
        let rate = self.controller.pacing_rate(&self.rtt);
        self.pace_at = pacer.next(now, rate, u16::try_from(self.mss).unwrap_or(u16::MAX));
        self.pace_at.is_some()
    }

    fn send_new(&mut self, now: Timestamp, end: u64) -> Departure {
        let start = self.nxt;
        self.restart_after_idle(now);
        let mark = self.on_departure(now, end - start);
        self.board.push(start, end, now, mark);
        self.nxt = end;
        self.persist_at = None;
        self.start_timer(now);
        self.schedule_probe(now);
        Departure { start, end, retransmission: false }
    }

    /// Reduces the congestion window if the sender was idle for a retransmission timeout. At most
    /// the initial window may then be sent at once (RFC 5681 s.4.1).
    fn restart_after_idle(&mut self, now: Timestamp) {
        let idle = self.board.is_empty() && self.last_sent.is_some_and(|at| now > at + self.rto());
        if idle && !self.controller.needs_pacing() {
            let window = self.controller.window().min(self.initial_window);
            self.controller.set_initial_window(window);
        }
        self.last_sent = Some(now);
    }

    fn retransmit(&mut self, now: Timestamp, segment: &Sent) -> Departure {
        let mark = self.on_departure(now, segment.len());
        self.board.retransmit(segment.start, now, mark);
        self.counters.retransmissions += 1;
        self.needed = self.needed.map(|(since, needed)| (since, needed.saturating_add(1)));
        self.last_sent = Some(now);
        self.retransmitted.get_or_insert((now, segment.start));
        if segment.start == self.una && !self.is_impatient() {
            // As on Linux, the timer starts again with the first segment, which is sent now.
            self.rto_at = None;
        }
        self.start_timer(now);
        Departure { start: segment.start, end: segment.end, retransmission: true }
    }

    /// Counts sent bytes. Returns the delivery state to store with them, for rate measurement.
    fn on_departure(&mut self, now: Timestamp, bytes: u64) -> DeliveryMark {
        let in_flight = self.in_flight();
        if let Some(pacer) = &mut self.pacer {
            pacer.on_sent(bytes);
        }
        if let Phase::Reducing(Reduction { prr: Some(prr), .. }) = &mut self.phase {
            prr.on_sent(bytes);
        }
        self.controller.on_sent(now, bytes, in_flight + bytes);
        self.rates.on_sent(now, bytes, in_flight)
    }
}
