//! One end of a TCP connection: its state, its events, and the order of its calls.
//!
//! * `receive.rs`: incoming segments;
//! * `transmit.rs`: outgoing segments;
//! * this file: the start of the handshake, and the end of the connection.

mod receive;
mod transmit;

use std::collections::VecDeque;
use std::time::Duration;

use equic_transport::Timestamp;

use crate::config::TcpConfig;
use crate::receiver::Receiver;
use crate::segment::{Flags, Options, Segment};
use crate::sender::{Counters, Expiry, Sender};

/// Largest number of retransmissions of a SYN (`net.ipv4.tcp_syn_retries`, `tcp_synack_retries`).
const MOST_SYNS: u32 = 6;

/// Time for which the end that closed first still answers segments (RFC 9293 s.3.6.1): one minute,
/// as on Linux.
const TIME_WAIT: Duration = Duration::from_secs(60);

/// State of a connection (RFC 9293 s.3.3.2). The states between ESTABLISHED and CLOSED are not
/// stored, because they follow from which bytes were sent and acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    SynSent,
    SynReceived,
    Established,
    TimeWait { until: Timestamp },
    Closed,
}

/// The reason why a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloseReason {
    /// Both ends have sent FIN, and both FINs were acknowledged.
    Finished,
    /// The peer has sent RST.
    Reset,
    /// The peer did not answer before the timeout.
    TimedOut,
}

/// An event for the application.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The handshake is complete.
    Connected,
    /// New data has arrived for [`Connection::read`].
    Readable,
    /// The peer has sent FIN, and all data before it has arrived.
    Finished,
    /// The peer has acknowledged all written data and the FIN.
    Acknowledged,
    /// The connection is closed.
    Closed(CloseReason),
}

/// A segment to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outgoing {
    /// The segment. The caller must set its ports.
    pub segment: Segment,
    /// True if the IP packet must be marked as ECN-capable with ECT(0) (RFC 3168 s.6.1).
    pub ecn_capable: bool,
}

/// State and counters of a connection. Numbers of bytes count only payload.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Stats {
    /// Congestion window in bytes. While the window is being reduced, it is the number of bytes in
    /// flight that Proportional Rate Reduction (PRR) permits.
    pub window: u64,
    /// Slow start threshold in bytes. `None` before the first loss, or if the controller has none.
    pub slow_start_threshold: Option<u64>,
    /// Bytes in flight.
    pub in_flight: u64,
    /// Number of outstanding segments: sent, but not cumulatively acknowledged.
    pub outstanding: usize,
    /// Number of ranges of bytes that arrived out of order and wait for the data before them.
    pub out_of_order: usize,
    /// Smoothed round-trip time (RFC 6298 s.2).
    pub smoothed_rtt: Duration,
    /// Smallest round-trip time. Zero before the first sample.
    pub min_rtt: Duration,
    /// Latest round-trip time. Zero before the first sample.
    pub latest_rtt: Duration,
    /// Retransmission timeout, including its backoff.
    pub retransmission_timeout: Duration,
    /// Pacing rate of the controller, in bytes per second.
    pub pacing_rate: f64,
    /// Number of segments sent, including those without payload.
    pub segments_sent: u64,
    /// Number of segments received.
    pub segments_received: u64,
    /// Number of segments that were retransmitted.
    pub retransmissions: u64,
    /// Number of segments that were declared lost.
    pub lost: u64,
    /// Number of expiries of the retransmission timer.
    pub timeouts: u64,
    /// Number of tail loss probes sent (RFC 8985 s.7).
    pub probes: u64,
    /// Number of reductions of the congestion window because of loss or ECN marks. Reductions after
    /// an expiry of the retransmission timer are not included.
    pub reductions: u64,
    /// Number of loss recoveries that were spurious and were undone.
    pub spurious: u64,
}

/// One end of a TCP connection, without I/O. The caller calls its methods in this order:
///
/// ```text
/// handle_segment(now, segment, ce) or handle_timeout(now)    a segment arrived, or the time of poll_timeout has come
/// poll_event(), read(), write(bytes), finish()               until there is nothing to read or write
/// poll_transmit(now)                                         until it returns None
/// poll_timeout()                                             after that
/// ```
///
/// Data must be written before `poll_transmit` is called. Otherwise the sender would have no data,
/// and would count as application-limited.
#[derive(Debug)]
pub struct Connection {
    config: TcpConfig,
    state: State,
    /// Initial sequence numbers of this end and of the peer: ISS and IRS (RFC 9293 s.3.3.1).
    own_start: u32,
    peer_start: u32,
    sender: Sender,
    receiver: Receiver,
    seed: u64,
    mss: u16,
    /// Number of bits by which the peer's window field must be shifted (window scale).
    peer_shift: u8,
    /// True if the peer's SYN had the window scale option.
    peer_scales: bool,
    /// True if both ends have agreed to use timestamps. The next fields are the same for SACK and
    /// ECN.
    timestamps: bool,
    sack: bool,
    ecn: bool,
    /// Value of this end's timestamp clock at time zero.
    clock_offset: u32,
    /// The peer's timestamp that the next segment echoes: TS.Recent (RFC 7323 s.4.3).
    recent: u32,
    syn_at: Option<Timestamp>,
    syn_sent_at: Option<Timestamp>,
    syns: u32,
    syn_due: bool,
    /// Fast Open: number of data bytes that the client sent with its first SYN.
    early: u64,
    /// Fast Open: true if the server has accepted data with the SYN, but does not know yet whether
    /// the client has received the server's SYN.
    opening: bool,
    ack_due: bool,
    probe_due: bool,
    /// True if segments must carry ECE, because CE was received and CWR has not followed yet (RFC
    /// 3168 s.6.1.3).
    echo_congestion: bool,
    reduced: bool,
    events: VecDeque<Event>,
    told_readable: bool,
    told_finished: bool,
    told_acknowledged: bool,
    segments_sent: u64,
    segments_received: u64,
    started: Timestamp,
}

impl Connection {
    /// Creates a client and begins its handshake. The seed determines the initial sequence number
    /// and the timestamp clock.
    pub fn connect(now: Timestamp, config: &TcpConfig, seed: [u8; 32]) -> Connection {
        let mut connection = Connection::new(now, config, seed, State::SynSent);
        connection.syn_due = true;
        connection
    }

    /// Creates a server from a client's SYN. Returns `None` if the segment is not a SYN.
    pub fn accept(
        now: Timestamp,
        config: &TcpConfig,
        syn: &Segment,
        seed: [u8; 32],
    ) -> Option<Connection> {
        let others = Flags::ACK.with(Flags::RST).with(Flags::FIN);
        if !syn.flags.has(Flags::SYN) || syn.flags.0 & others.0 != 0 {
            return None;
        }
        let mut connection = Connection::new(now, config, seed, State::SynReceived);
        connection.segments_received = 1;
        connection.learn(syn);
        connection.ecn = syn.flags.has(Flags::ECE.with(Flags::CWR));
        connection.syn_due = true;
        if config.fast_open && syn.options.fast_open.is_some() && syn.payload > 0 {
            connection.open_fast(now, syn);
        }
        Some(connection)
    }

    fn new(now: Timestamp, config: &TcpConfig, seed: [u8; 32], state: State) -> Connection {
        let word =
            |at: usize| u32::from_le_bytes([seed[at], seed[at + 1], seed[at + 2], seed[at + 3]]);
        let seed = u64::from(word(8)) << 32 | u64::from(word(12));
        let mss = payload_size(config.mss, config.timestamps);
        Connection {
            state,
            own_start: word(0),
            peer_start: 0,
            sender: Sender::new(now, config, mss, seed),
            receiver: Receiver::new(config, mss),
            seed,
            mss,
            peer_shift: 0,
            peer_scales: false,
            timestamps: config.timestamps,
            sack: config.sack,
            ecn: config.ecn,
            clock_offset: word(4),
            recent: 0,
            syn_at: None,
            syn_sent_at: None,
            syns: 0,
            syn_due: false,
            early: 0,
            opening: false,
            ack_due: false,
            probe_due: false,
            echo_congestion: false,
            reduced: false,
            events: VecDeque::new(),
            told_readable: false,
            told_finished: false,
            told_acknowledged: false,
            segments_sent: 0,
            segments_received: 0,
            started: now,
            config: config.clone(),
        }
    }

    /// Accepts the data of a client's SYN. The server then continues as if the handshake were
    /// complete (RFC 7413 s.4.2.2).
    fn open_fast(&mut self, now: Timestamp, syn: &Segment) {
        // Initialises the announced window, because the server has not sent a segment yet.
        self.receiver.window_field(true);
        self.receiver.on_data(now, 1, 1 + u64::from(syn.payload), false);
        self.state = State::Established;
        self.opening = true;
        self.sender.on_established(now, self.sack, syn.window.into(), None);
        self.events.push_back(Event::Connected);
        self.tell();
    }

    /// Processes the peer's SYN: stores its initial sequence number, and applies its options.
    fn learn(&mut self, syn: &Segment) {
        let (config, options) = (&self.config, &syn.options);
        self.peer_start = syn.sequence;
        self.timestamps = config.timestamps && options.timestamps.is_some();
        self.recent = options.timestamps.map_or(0, |timestamps| timestamps.value);
        self.sack = config.sack && options.sack_permitted;
        // RFC 9293 s.3.7.1: the default is 536 bytes. The lower bound prevents segments without
        // payload.
        let peer = options.mss.unwrap_or(536).max(64);
        self.peer_scales = options.window_scale.is_some();
        let scaled = config.window_scaling && self.peer_scales;
        // RFC 7323 s.2.3: the shift is at most 14.
        self.peer_shift = options.window_scale.filter(|_| scaled).unwrap_or(0).min(14);
        self.receiver.set_shift(if scaled { config.window_shift() } else { 0 });
        let mss = payload_size(config.mss.min(peer), self.timestamps);
        if mss != self.mss {
            self.mss = mss;
            self.sender = Sender::new(self.started, config, mss, self.seed);
        }
    }

    /// Queues this number of bytes for sending. There is no limit, because the bytes have no
    /// content and take no memory.
    pub fn write(&mut self, bytes: u64) {
        self.sender.write(bytes);
    }

    /// Ends the stream. A FIN follows the written data.
    pub fn finish(&mut self) {
        self.sender.finish();
    }

    /// Returns the number of bytes that have become readable, in order, since the last call.
    pub fn read(&mut self) -> u64 {
        self.told_readable = false;
        let small = |receiver: &Receiver, mss: u64| receiver.limit() - receiver.next() < mss;
        let was_small = small(&self.receiver, u64::from(self.mss));
        let count = self.receiver.take();
        if was_small && count > 0 && self.state == State::Established {
            // The receive window was almost closed and has opened again, so an acknowledgement
            // announces it.
            self.receiver.ask_for_ack();
        }
        count
    }

    /// Returns `true` if the peer has sent FIN and all data before it has arrived.
    pub fn has_finished(&self) -> bool {
        self.receiver.is_finished()
    }

    /// Returns the number of written bytes that the peer has not acknowledged.
    pub fn unacknowledged(&self) -> u64 {
        self.sender.unacknowledged()
    }

    /// Returns the next event for the application, or `None` if no event is pending.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Returns `true` if data waits although the congestion window permits more bytes in flight.
    /// The limit is then [`TcpConfig::send_buffer`], or a receive window of about that size.
    pub fn is_window_limited(&self) -> bool {
        self.state == State::Established && self.sender.is_window_limited()
    }

    /// Returns `true` if the handshake is complete and the connection is not closed.
    pub fn is_connected(&self) -> bool {
        self.state == State::Established
    }

    /// Returns `true` if the connection is closed, and no longer sends or waits.
    pub fn is_closed(&self) -> bool {
        self.state == State::Closed
    }

    /// Returns the name of the sender's state in Linux: open, disorder, cwr, recovery or loss.
    pub fn congestion_state(&self) -> &'static str {
        self.sender.state()
    }

    /// Returns the state and the counters of the connection.
    pub fn stats(&self) -> Stats {
        let (sender, rtt) = (&self.sender, &self.sender.rtt);
        let Counters { retransmissions, lost, timeouts, probes, reductions, spurious } =
            sender.counters;
        Stats {
            window: sender.window(),
            slow_start_threshold: sender.controller.slow_start_threshold(),
            in_flight: sender.in_flight(),
            outstanding: sender.outstanding(),
            out_of_order: self.receiver.ranges(),
            smoothed_rtt: rtt.smoothed(),
            min_rtt: rtt.min(),
            latest_rtt: rtt.latest(),
            retransmission_timeout: sender.rto(),
            pacing_rate: sender.controller.pacing_rate(rtt).as_bytes_per_second(),
            segments_sent: self.segments_sent,
            segments_received: self.segments_received,
            retransmissions,
            lost,
            timeouts,
            probes,
            reductions,
            spurious,
        }
    }

    /// Returns the time for the next call of [`Connection::handle_timeout`], or `None` if no timer
    /// is set.
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        match self.state {
            State::Closed => None,
            State::TimeWait { until } => Some(until),
            State::SynSent | State::SynReceived => self.syn_at,
            State::Established => {
                [self.sender.next_timer(), self.receiver.ack_timer()].into_iter().flatten().min()
            }
        }
    }

    /// Handles the timers that are due at `now`. Does nothing before the time of
    /// [`Connection::poll_timeout`].
    pub fn handle_timeout(&mut self, now: Timestamp) {
        match self.state {
            State::Closed => {}
            State::TimeWait { until } => {
                if now >= until {
                    self.state = State::Closed;
                }
            }
            State::SynSent | State::SynReceived => {
                if self.syn_at.take_if(|at| *at <= now).is_some() {
                    if self.syns > MOST_SYNS {
                        self.close(CloseReason::TimedOut);
                    } else {
                        self.syn_due = true;
                    }
                }
            }
            State::Established => {
                self.receiver.on_timer(now);
                match self.sender.on_timer(now) {
                    Expiry::None => {}
                    Expiry::ProbeWindow => self.probe_due = true,
                    Expiry::GiveUp => self.close(CloseReason::TimedOut),
                }
            }
        }
    }

    fn close(&mut self, reason: CloseReason) {
        if self.state != State::Closed {
            if !matches!(self.state, State::TimeWait { .. }) {
                self.events.push_back(Event::Closed(reason));
            }
            self.state = State::Closed;
        }
    }

    /// Returns the value of this end's timestamp clock at `now` (RFC 7323 s.5.4).
    fn clock(&self, now: Timestamp) -> u32 {
        let ticks = now.as_nanos() / self.tick();
        self.clock_offset.wrapping_add(ticks as u32)
    }

    /// Returns the length of a tick of the timestamp clock, in nanoseconds.
    fn tick(&self) -> u64 {
        u64::try_from(self.config.timestamp_granularity.as_nanos()).unwrap_or(u64::MAX).max(1)
    }
}

/// Returns the largest payload of a segment in bytes. It is the MSS minus the options that every
/// segment has (RFC 6691).
fn payload_size(mss: u16, timestamps: bool) -> u16 {
    let options = if timestamps { 12 } else { 0 };
    mss.saturating_sub(options).max(1)
}

/// Converts a sequence number on the wire into one that counts from the SYN. Returns `None` if the
/// result is before the SYN, or is older than `near` by more than half of the sequence number
/// space.
fn unwrap(wire: u32, start: u32, near: u64) -> Option<u64> {
    let distance = wire.wrapping_sub(start.wrapping_add(near as u32)) as i32;
    near.checked_add_signed(distance.into())
}

/// Converts a sequence number that counts from the SYN into one on the wire.
fn wrap(number: u64, start: u32) -> u32 {
    start.wrapping_add(number as u32)
}

/// Returns the options of a SYN.
fn syn_options(config: &TcpConfig, shift: Option<u8>) -> Options {
    Options {
        mss: Some(config.mss),
        window_scale: shift,
        sack_permitted: config.sack,
        ..Options::default()
    }
}
