//! The receiving half of a connection: received data and its acknowledgements.

use std::collections::BTreeMap;
use std::time::Duration;

use equic_transport::Timestamp;

use crate::config::TcpConfig;

/// Largest number of out-of-order ranges. A segment that would add another range is dropped, as RFC
/// 9293 s.3.10.7.4 permits.
const MOST_RANGES: usize = 16_384;

/// Number of recently reported SACK blocks that are remembered, so that they are repeated (RFC 2018
/// s.4).
const RECENT: usize = 4;

/// Initial receive window in bytes.
const FIRST_WINDOW: u64 = 65_535;

/// Measures how many bytes the application reads per round trip, to size the receive buffer.
#[derive(Debug)]
struct Tuning {
    /// Round-trip time that the receiver measures from echoed timestamps.
    rtt: Option<Duration>,
    /// Start time of the current measurement. `read_then` is the number of bytes that were read
    /// until this time.
    since: Option<Timestamp>,
    read_then: u64,
    /// Largest number of bytes that were read in one round trip so far.
    space: u64,
}

/// Where the data of a segment belongs in the received stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Placement {
    /// The data begins with the next expected byte.
    InOrder,
    /// There is a gap before the data.
    Ahead,
    /// The data is a complete duplicate, or is beyond the window.
    Useless,
}

#[derive(Debug)]
pub(crate) struct Receiver {
    /// The next expected sequence number, RCV.NXT (RFC 9293 s.3.3.1). It counts from the SYN.
    next: u64,
    /// Ranges of out-of-order data: the key is the first sequence number, and the value is the
    /// sequence number after the range.
    ahead: BTreeMap<u64, u64>,
    /// The ranges that SACK blocks reported most recently, newest first. Each is identified by one
    /// sequence number in it.
    recent: [Option<u64>; RECENT],
    /// A range that was received twice. It is reported once (RFC 2883).
    twice: Option<(u64, u64)>,
    /// Sequence number of the FIN.
    fin: Option<u64>,
    /// Sequence number up to which the application has read.
    read: u64,
    /// Current size of the receive buffer in bytes. The next field is its largest size.
    buffer: u64,
    most: u64,
    /// Right edge of the window that was announced to the peer.
    announced: u64,
    tuning: Tuning,
    shift: u8,
    mss: u64,
    delayed_ack: Duration,
    /// Number of further acknowledgements that must be sent without delay.
    quick: u32,
    most_quick: u32,
    /// Value of RCV.NXT in the last acknowledgement.
    acknowledged: u64,
    ack_at: Option<Timestamp>,
    ack_now: bool,
    last_came: Option<Timestamp>,
}

impl Receiver {
    /// Creates a receiver whose next expected sequence number is the one after the SYN.
    pub(crate) fn new(config: &TcpConfig, mss: u16) -> Receiver {
        Receiver {
            next: 1,
            ahead: BTreeMap::new(),
            recent: [None; RECENT],
            twice: None,
            fin: None,
            read: 1,
            buffer: if config.receive_auto_tuning {
                config.receive_buffer.min(FIRST_WINDOW)
            } else {
                config.receive_buffer
            },
            most: config.receive_buffer,
            announced: 1,
            tuning: Tuning { rtt: None, since: None, read_then: 1, space: 10 * u64::from(mss) },
            shift: 0,
            mss: u64::from(mss),
            delayed_ack: config.delayed_ack,
            quick: config.quick_acks,
            most_quick: config.quick_acks,
            acknowledged: 1,
            ack_at: None,
            ack_now: false,
            last_came: None,
        }
    }

    /// Returns the number of out-of-order ranges.
    pub(crate) fn ranges(&self) -> usize {
        self.ahead.len()
    }

    /// Returns the next expected sequence number, RCV.NXT (RFC 9293 s.3.3.1).
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Returns the right edge of the receive window.
    pub(crate) fn limit(&self) -> u64 {
        self.announced.max(self.next)
    }

    /// Sets the negotiated shift of the window field (RFC 7323 s.2.2).
    pub(crate) fn set_shift(&mut self, shift: u8) {
        self.shift = shift;
    }

    /// Returns `true` if FIN and all data before it have arrived.
    pub(crate) fn is_finished(&self) -> bool {
        self.fin.is_some_and(|fin| self.next > fin)
    }

    /// Processes a round-trip sample: the time between sending a timestamp and receiving data that
    /// echoes it.
    pub(crate) fn on_rtt(&mut self, now: Timestamp, sample: Duration) {
        let rtt = self.tuning.rtt.map_or(sample, |rtt| (rtt * 7 + sample) / 8);
        self.tuning.rtt = Some(rtt);
        self.tune(now, rtt);
    }

    /// Adjusts the receive buffer once per round trip. The new size is twice the bytes that the
    /// application has read in that round trip, plus the growth that is expected in the next one
    /// (dynamic right-sizing, as on Linux).
    fn tune(&mut self, now: Timestamp, rtt: Duration) {
        let tuning = &mut self.tuning;
        if tuning.since.is_some_and(|since| now.since(since) < rtt) {
            return;
        }
        let (read, first) = (self.read - tuning.read_then, tuning.since.is_none());
        (tuning.since, tuning.read_then) = (Some(now), self.read);
        if first || read <= tuning.space {
            return;
        }
        let window = 2 * read + 16 * self.mss;
        let growth = u128::from(window) * u128::from(read - tuning.space);
        let growth = (growth / u128::from(tuning.space.max(1))).min(u128::from(self.most)) as u64;
        tuning.space = read;
        self.buffer = self.buffer.max(window.saturating_add(2 * growth)).min(self.most);
    }

    /// Returns the number of bytes that the application can read, and counts them as read.
    pub(crate) fn take(&mut self) -> u64 {
        let end = if self.is_finished() { self.next - 1 } else { self.next };
        let count = end - self.read;
        self.read = end;
        count
    }

    /// Returns the number of bytes that the application can read.
    pub(crate) fn readable(&self) -> u64 {
        self.next - u64::from(self.is_finished()) - self.read
    }

    /// Returns the window field for the next segment. The right edge of the window never moves back
    /// (RFC 9293 s.3.8.6.2.2).
    pub(crate) fn window_field(&mut self, syn: bool) -> u16 {
        let shift = if syn { 0 } else { self.shift };
        let free = self.buffer.saturating_sub(self.next - self.read.min(self.next));
        let window = free.max(self.announced.saturating_sub(self.next));
        let field = (window >> shift).min(65_535) as u16;
        self.announced = self.announced.max(self.next + (u64::from(field) << shift));
        field
    }

    /// Processes data from `start` to `end`, and the FIN after it if `fin` is set.
    pub(crate) fn on_data(&mut self, now: Timestamp, start: u64, end: u64, fin: bool) -> Placement {
        let limit = self.limit();
        let end_with_fin = end + u64::from(fin);
        if end_with_fin <= self.next || start >= limit.max(self.next + 1) {
            if start < end {
                self.twice = Some((start, end_with_fin)).filter(|_| end <= self.next);
            }
            self.on_odd();
            return Placement::Useless;
        }
        if let (true, None) = (fin, self.fin) {
            self.fin = Some(end);
        }
        // RFC 9293 s.3.10.7.4: ignore data after the FIN, and beyond the window.
        let fin_end = self.fin.map_or(u64::MAX, |fin| fin + 1);
        let (start, end) = (start, end_with_fin.min(fin_end).min(limit.max(self.next + 1)));
        self.on_pace(now);
        if start > self.next {
            let taken = start < end && self.keep(start, end);
            self.on_odd();
            return if taken { Placement::Ahead } else { Placement::Useless };
        }
        if start < self.next {
            self.twice = Some((start, self.next));
        }
        let gap = !self.ahead.is_empty();
        self.next = self.next.max(end);
        self.join();
        if gap || self.is_finished() {
            self.ack_now = true;
        }
        self.schedule_ack(now);
        Placement::InOrder
    }

    /// Processes a segment whose data is too old to be accepted.
    pub(crate) fn on_late(&mut self, start: u64, end: u64) {
        if start < end && end <= self.next {
            self.twice = Some((start, end));
        }
        self.on_odd();
    }

    /// Makes the next acknowledgements immediate, because a segment was not in order (quick ACKs of
    /// Linux).
    fn on_odd(&mut self) {
        self.ack_now = true;
        self.quick = self.quick.max(self.most_quick);
    }

    /// Makes the next acknowledgements immediate after a pause, because the sender is then in slow
    /// start.
    fn on_pace(&mut self, now: Timestamp) {
        /// About the length of a retransmission timeout.
        const PAUSE: Duration = Duration::from_millis(300);
        if self.last_came.is_some_and(|before| now.since(before) > PAUSE) {
            self.quick = self.most_quick;
        }
        self.last_came = Some(now);
    }

    /// Stores an out-of-order range. Returns `false` if there was no room for it.
    fn keep(&mut self, start: u64, end: u64) -> bool {
        let before = self.ahead.range(..=start).next_back().map(|(left, right)| (*left, *right));
        let (mut left, mut right) = (start, end);
        if let Some((first, last)) = before.filter(|(_, last)| *last >= start) {
            if last >= end {
                self.twice = Some((start, end));
                self.remember(start);
                return true;
            }
            (left, right) = (first, right.max(last));
        }
        let first_behind = |ahead: &BTreeMap<u64, u64>| {
            ahead.range(left + 1..=end).next().map(|(from, to)| (*from, *to))
        };
        let touches = left < start || first_behind(&self.ahead).is_some();
        if !touches && self.ahead.len() >= MOST_RANGES {
            return false;
        }
        while let Some((from, to)) = first_behind(&self.ahead) {
            self.ahead.remove(&from);
            right = right.max(to);
        }
        self.ahead.insert(left, right);
        self.remember(start);
        true
    }

    fn remember(&mut self, sequence: u64) {
        let range = |at: u64| self.ahead.range(..=at).next_back().map(|(left, _)| *left);
        let own = range(sequence);
        let others = self.recent.iter().flatten().copied().filter(|at| range(*at) != own);
        let mut recent = [None; RECENT];
        recent[0] = Some(sequence);
        for (place, at) in recent[1..].iter_mut().zip(others) {
            *place = Some(at);
        }
        self.recent = recent;
    }

    /// Appends the ranges that are now in order to the received stream.
    fn join(&mut self) {
        while let Some(entry) = self.ahead.first_entry() {
            if *entry.key() > self.next {
                break;
            }
            self.next = self.next.max(entry.remove());
        }
    }

    fn schedule_ack(&mut self, now: Timestamp) {
        // RFC 5681 s.4.2: acknowledge at least every second full segment. As on Linux, the
        // condition is that more than one segment is unacknowledged.
        if self.next - self.acknowledged > self.mss || !self.ahead.is_empty() {
            self.ack_now = true;
        } else if self.quick > 0 {
            self.quick -= 1;
            self.ack_now = true;
        }
        if !self.ack_now {
            self.ack_at.get_or_insert(now + self.delayed_ack);
        }
    }

    /// Requests an immediate acknowledgement.
    pub(crate) fn ask_for_ack(&mut self) {
        self.ack_now = true;
    }

    /// Returns `true` if an acknowledgement must be sent now.
    pub(crate) fn wants_ack(&self) -> bool {
        self.ack_now
    }

    /// Returns the time at which the delayed acknowledgement is due, or `None` if no
    /// acknowledgement is delayed.
    pub(crate) fn ack_timer(&self) -> Option<Timestamp> {
        self.ack_at
    }

    pub(crate) fn on_timer(&mut self, now: Timestamp) {
        if self.ack_at.take_if(|at| *at <= now).is_some() {
            self.ack_now = true;
        }
    }

    /// Records that a segment with an acknowledgement was sent.
    pub(crate) fn on_ack_sent(&mut self) {
        (self.ack_now, self.ack_at) = (false, None);
        self.acknowledged = self.next;
        self.twice = None;
    }

    /// Returns the value of RCV.NXT in the last acknowledgement (Last.ACK.sent of RFC 7323 s.4.3).
    pub(crate) fn last_acknowledged(&self) -> u64 {
        self.acknowledged
    }

    /// Returns up to `most` SACK blocks: first the range that was received twice, then the ranges
    /// that changed most recently (RFC 2018 s.4, RFC 2883 s.4).
    pub(crate) fn blocks(&self, most: usize) -> impl Iterator<Item = (u64, u64)> {
        let range = |at: &u64| {
            let (left, right) = self.ahead.range(..=*at).next_back()?;
            (*right > *at).then_some((*left, *right))
        };
        // If the duplicate is part of an out-of-order range, the second block must be that range.
        let first = self.twice;
        let ranges = self.recent.iter().flatten().filter_map(range);
        let mut told: [Option<(u64, u64)>; RECENT] = [None; RECENT];
        let mut count = 0;
        for block in ranges {
            if !told.contains(&Some(block)) {
                told[count] = Some(block);
                count += 1;
            }
        }
        first.into_iter().chain(told.into_iter().flatten()).take(most)
    }
}
