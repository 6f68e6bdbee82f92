//! Tests a pair of connected ends against the RFCs, without a network. A simulated wire between
//! them can drop segments.

use std::time::Duration;

use equic_tcp::{Algorithm, Connection, Event, Flags, Options, Segment, TcpConfig, Timestamp};

const MS: u64 = 1_000_000;

const fn at(ms: u64) -> Timestamp {
    Timestamp::from_nanos(ms * MS)
}

/// Both ends of a connection, and a simulated wire between them. The wire holds the segments in
/// flight, each with its arrival time, direction and ECN mark.
struct Pair {
    now: Timestamp,
    client: Connection,
    server: Option<Connection>,
    config: TcpConfig,
    wire: Vec<(Timestamp, bool, Segment, bool)>,
    delay: Duration,
    last_arrival: Timestamp,
    read: u64,
    /// Number of bytes from the server that the client's application has read.
    back: u64,
    /// True while the server's application does not read.
    asleep: bool,
    /// Segments with payload that the client sent: time, first sequence number and length.
    sent: Vec<(Timestamp, u32, u32)>,
}

/// Decides whether a data segment of the client arrives, is lost, is marked or is delayed. The
/// arguments are the number of the segment and the segment.
type Judge<'a> = &'a mut dyn FnMut(usize, &Segment) -> Fate;

#[derive(Clone, Copy, PartialEq)]
enum Fate {
    Arrives,
    Lost,
    Marked,
    Late(Duration),
}

impl Pair {
    fn new(config: &TcpConfig, delay_ms: u64) -> Pair {
        Pair {
            now: at(0),
            client: Connection::connect(at(0), config, [1; 32]),
            server: None,
            config: config.clone(),
            wire: Vec::new(),
            delay: Duration::from_millis(delay_ms),
            last_arrival: at(0),
            read: 0,
            back: 0,
            asleep: false,
            sent: Vec::new(),
        }
    }

    /// Sends all pending segments.
    fn flush(&mut self, judge: Judge<'_>) {
        while let Some(outgoing) = self.client.poll_transmit(self.now) {
            let segment = outgoing.segment;
            assert_fits(&segment, &self.config);
            let mut fate = Fate::Arrives;
            if segment.payload > 0 {
                fate = judge(self.sent.len(), &segment);
                self.sent.push((self.now, segment.sequence, segment.payload));
            }
            let delay = if let Fate::Late(more) = fate { self.delay + more } else { self.delay };
            // If a segment is delayed, the segments after it are delayed, too. So segments are not
            // reordered.
            let arrival = (self.now + delay).max(self.last_arrival);
            if fate != Fate::Lost {
                self.last_arrival = arrival;
                self.wire.push((arrival, true, segment, fate == Fate::Marked));
            }
        }
        if let Some(server) = &mut self.server {
            while let Some(outgoing) = server.poll_transmit(self.now) {
                assert_fits(&outgoing.segment, &self.config);
                self.wire.push((self.now + self.delay, false, outgoing.segment, false));
            }
        }
    }

    /// Runs until the limit, or until no event is scheduled before it.
    fn run(&mut self, limit: Timestamp, judge: Judge<'_>) {
        loop {
            self.flush(judge);
            let timers = [
                self.client.poll_timeout(),
                self.server.as_ref().and_then(Connection::poll_timeout),
                self.wire.iter().map(|entry| entry.0).min(),
            ];
            let Some(next) = timers.into_iter().flatten().min().filter(|at| *at <= limit) else {
                self.now = limit;
                return;
            };
            self.now = next.max(self.now);
            self.client.handle_timeout(self.now);
            if let Some(server) = &mut self.server {
                server.handle_timeout(self.now);
            }
            let now = self.now;
            // Delivers segments one at a time, so that each is answered before the next one
            // arrives, as on a real wire.
            while let Some(place) = self.wire.iter().position(|entry| entry.0 <= now) {
                let (_, to_server, segment, ce) = self.wire.remove(place);
                match (&mut self.server, to_server) {
                    (_, false) => self.client.handle_segment(now, &segment, ce),
                    (Some(server), true) => server.handle_segment(now, &segment, ce),
                    (none, true) => {
                        *none = Connection::accept(now, &self.config, &segment, [2; 32]);
                    }
                }
                self.applications();
                self.flush(judge);
            }
        }
    }

    fn applications(&mut self) {
        while self.client.poll_event().is_some() {}
        self.back += self.client.read();
        let Some(server) = &mut self.server else { return };
        if !self.asleep {
            self.read += server.read();
        }
        while let Some(event) = server.poll_event() {
            if event == Event::Finished {
                server.finish();
            }
        }
    }

    /// Runs until the transfer is complete and the connection is closed.
    fn finish(&mut self, bytes: u64, judge: Judge<'_>) {
        self.run(at(10_000_000), judge);
        assert_eq!(self.read, bytes);
        assert!(self.client.is_closed() && self.server.as_ref().is_some_and(Connection::is_closed));
    }
}

/// Checks that options and payload together do not exceed the segment size (RFC 6691).
fn assert_fits(segment: &Segment, config: &TcpConfig) {
    let options = segment.write(&mut [0; 60]) - 20;
    let size = options as u32 + segment.payload;
    assert!(size <= config.mss.into() || segment.payload == 0, "{size} bytes: {segment:?}");
}

fn all_arrive(_: usize, _: &Segment) -> Fate {
    Fate::Arrives
}

fn lose(lost: &[usize]) -> impl FnMut(usize, &Segment) -> Fate {
    move |number, _| if lost.contains(&number) { Fate::Lost } else { Fate::Arrives }
}

fn reno() -> TcpConfig {
    TcpConfig::default().congestion(Algorithm::NewReno)
}

/// Creates a connection on which the client writes `bytes` at once.
fn transfer(config: &TcpConfig, bytes: u64) -> Pair {
    let mut pair = Pair::new(config, 50);
    pair.client.write(bytes);
    pair.client.finish();
    pair
}

#[test]
fn cwnd_begins_with_ten_segments() {
    let mut pair = transfer(&reno(), 100_000);
    pair.run(at(100), &mut all_arrive);
    assert_eq!(pair.sent.len(), 10, "RFC 6928");
    assert!(pair.sent.iter().all(|(_, _, payload)| *payload == 1_448));
    pair.finish(100_000, &mut all_arrive);
    let stats = pair.client.stats();
    assert_eq!((stats.retransmissions, stats.timeouts, stats.probes), (0, 0, 0));
    assert_eq!(stats.min_rtt, Duration::from_millis(100));
}

/// The first two duplicate acknowledgements must each permit a new segment. The third must declare
/// a loss (RFC 3042, RFC 5681 s.3.2).
#[test]
fn loss_limited_transmit_and_fast_retransmit() {
    let mut pair = transfer(&reno(), 100_000);
    pair.run(at(200), &mut lose(&[0]));
    let kinds: Vec<bool> =
        pair.sent[10..].iter().map(|(_, sequence, _)| *sequence == pair.sent[0].1).collect();
    assert_eq!(kinds[..3], [false, false, true]);
    pair.finish(100_000, &mut lose(&[]));
    let stats = pair.client.stats();
    assert_eq!((stats.retransmissions, stats.timeouts, stats.reductions), (1, 0, 1));
    assert!(stats.slow_start_threshold.is_some());
}

/// The last segment is lost. A tail loss probe after two round trips must repair this. The window
/// must be reduced when it turns out that the probe was needed (RFC 8985 s.7).
#[test]
fn loss_of_the_tail_is_probed() {
    let mut pair = Pair::new(&reno(), 50);
    pair.client.write(10 * 1_448);
    pair.run(at(1_000), &mut lose(&[9]));
    let stats = pair.client.stats();
    assert_eq!((stats.probes, stats.retransmissions, stats.timeouts), (1, 1, 0));
    // The last acknowledgement arrives at 200 ms. Two round trips plus the delayed acknowledgement
    // are 400 ms, but the retransmission timer would fire after 300 ms, so the probe is sent then.
    assert_eq!(pair.sent[10].0, at(200 + 300));
    pair.client.write(1_448);
    pair.run(at(2_000), &mut all_arrive);
    assert_eq!((pair.read, pair.client.stats().reductions), (11 * 1_448, 1));
    let without = TcpConfig { tail_loss_probe: false, ..reno() };
    let mut pair = transfer(&without, 10 * 1_448);
    pair.finish(10 * 1_448, &mut lose(&[9]));
    assert_eq!(pair.client.stats().timeouts, 1);
}

/// Checks the retransmission timeout after the first and the second round-trip sample, and its
/// doubling (RFC 6298 s.2 and s.5).
#[test]
fn rto_is_that_of_the_rfc() {
    let config = TcpConfig { tail_loss_probe: false, ..reno() };
    let mut pair = Pair::new(&config, 50);
    pair.run(at(150), &mut all_arrive);
    // R = 100 ms (RFC 6298): SRTT = R, RTTVAR = R/2, RTO = SRTT + 4 RTTVAR.
    assert_eq!(pair.client.stats().retransmission_timeout, Duration::from_millis(300));
    pair.delay = Duration::from_millis(100);
    pair.client.write(100);
    pair.run(at(400), &mut all_arrive);
    // R' = 200 ms: RTTVAR = 3/4 * 50 + 1/4 * 100, SRTT = 7/8 * 100 + 1/8 * 200.
    assert_eq!(pair.client.stats().smoothed_rtt, Duration::from_micros(112_500));
    let timeout = Duration::from_micros(112_500 + 250_000);
    assert_eq!(pair.client.stats().retransmission_timeout, timeout);
    // From now on, all segments are lost. Each timeout must be twice the last one, up to two
    // minutes.
    pair.client.write(100);
    let first = pair.sent.len();
    pair.run(at(10_000_000), &mut |_, _| Fate::Lost);
    let times: Vec<Timestamp> = pair.sent[first..].iter().map(|(time, ..)| *time).collect();
    let gaps: Vec<Duration> = times.windows(2).map(|pair| pair[1].since(pair[0])).collect();
    assert_eq!(gaps[..4], [timeout, timeout * 2, timeout * 4, timeout * 8]);
    assert_eq!(gaps.len(), 15, "tcp_retries2");
    assert_eq!(gaps.last(), Some(&Duration::from_secs(120)));
    assert!(pair.client.is_closed());
}

/// The path is slow for a second, so the retransmission timer expires. The segments that were sent
/// before arrive after all. The sender must then restore its window (RFC 5682, RFC 3522).
#[test]
fn rto_that_was_spurious_is_undone() {
    for timestamps in [true, false] {
        let config = TcpConfig { timestamps, tail_loss_probe: false, ..reno() };
        let mut pair = transfer(&config, 500_000);
        pair.run(at(450), &mut all_arrive);
        let window = pair.client.stats().window;
        let slow = pair.sent.len();
        let mut late = |number: usize, _: &Segment| {
            if number == slow { Fate::Late(Duration::from_millis(1_000)) } else { Fate::Arrives }
        };
        pair.run(at(2_000), &mut late);
        let stats = pair.client.stats();
        assert!(stats.spurious >= 1 && stats.window >= window, "{timestamps} {window}: {stats:?}");
        pair.finish(500_000, &mut all_arrive);
    }
}

/// Without SACK, three duplicate acknowledgements must start a recovery, and each partial
/// acknowledgement must repair one hole (RFC 6582). An acknowledgement of segments that waited
/// behind a hole must not count as a round-trip sample.
#[test]
fn loss_without_sack_is_repaired_one_by_one() {
    let config = TcpConfig { sack: false, ..reno() };
    let mut pair = transfer(&config, 200_000);
    pair.finish(200_000, &mut lose(&[20, 22, 24]));
    let stats = pair.client.stats();
    assert_eq!((stats.retransmissions, stats.timeouts, stats.reductions), (3, 0, 1));
    assert!(stats.smoothed_rtt < Duration::from_millis(105), "{stats:?}");
}

/// 30 segments are lost without SACK. Only the first partial acknowledgement may reset the
/// retransmission timer. The timer must therefore expire long before all holes are repaired at one
/// per round trip (RFC 6582 s.4, the impatient variant).
#[test]
fn loss_without_sack_is_repaired_after_a_timeout() {
    let config = TcpConfig { sack: false, ..reno() };
    let mut pair = transfer(&config, 400_000);
    let lost: Vec<usize> = (80..140).step_by(2).collect();
    pair.finish(400_000, &mut lose(&lost));
    let stats = pair.client.stats();
    assert_eq!((stats.timeouts, stats.spurious), (1, 0), "{stats:?}");
    let (first, _, _) = pair.sent[80];
    let (last, _, _) = pair.sent[pair.sent.len() - 1];
    let trips = last.since(first).as_nanos() / (2 * pair.delay.as_nanos());
    assert!(trips < 20, "{trips} round trips");
}

/// RFC 5681 s.3.2 step 6: at the end of a recovery, the window must equal the threshold. Data that
/// was already reported by SACK must not count again when it is cumulatively acknowledged.
#[test]
fn cwnd_after_a_recovery_is_the_threshold() {
    let mut pair = transfer(&reno(), 400_000);
    let mut lost = lose(&[60]);
    for ms in 0..2_000 {
        pair.run(at(ms), &mut lost);
        let stats = pair.client.stats();
        if stats.reductions == 1 && pair.client.congestion_state() == "open" {
            let threshold = stats.slow_start_threshold.unwrap();
            assert!((threshold..threshold + 1_000).contains(&stats.window), "{stats:?}");
            return;
        }
    }
    panic!("{:?}", pair.client.stats());
}

/// RFC 3168 s.6.1: all ECN marks of a round trip must cause only one reduction of the window. CWR
/// must end the echo, so that there is no second reduction.
#[test]
fn ecn_mark_reduces_the_window_once() {
    let mut config = reno();
    config.ecn = true;
    let mut pair = transfer(&config, 300_000);
    let mut marks = |number: usize, segment: &Segment| {
        assert!(number <= 40 || !segment.flags.has(Flags::ECE));
        if (30..34).contains(&number) { Fate::Marked } else { Fate::Arrives }
    };
    pair.finish(300_000, &mut marks);
    let stats = pair.client.stats();
    assert_eq!((stats.reductions, stats.retransmissions), (1, 0));
}

/// The receiver's application does not read for some time. When the receive window is full, the
/// sender may send only window probes. All data must arrive in the end (RFC 9293 s.3.8.6.1).
#[test]
fn flow_control_closed_window_opens_again() {
    let config = TcpConfig { receive_buffer: 20_000, ..reno() };
    let mut pair = transfer(&config, 100_000);
    pair.asleep = true;
    pair.run(at(30_000), &mut all_arrive);
    let sent: u64 = pair.sent.iter().map(|(_, _, payload)| u64::from(*payload)).sum();
    assert_eq!((pair.read, sent), (0, 20_000));
    pair.asleep = false;
    pair.finish(100_000, &mut all_arrive);
    assert_eq!(pair.client.stats().retransmissions, 0);
}

/// RFC 5681 s.4.1: after an idle time, at most the initial window may be sent at once.
#[test]
fn cwnd_after_a_pause_is_the_initial_one() {
    let mut pair = Pair::new(&reno(), 50);
    pair.client.write(200_000);
    pair.run(at(3_000), &mut all_arrive);
    assert!(pair.client.stats().window > 100_000);
    let before = pair.sent.len();
    pair.client.write(200_000);
    pair.run(at(3_099), &mut all_arrive);
    assert_eq!(pair.sent.len() - before, 10);
}

/// The receive window begins small. It must grow with the capacity of the path, before it limits
/// the sender.
#[test]
fn flow_control_window_grows_with_the_reader() {
    let time = |auto| {
        let config = TcpConfig { receive_auto_tuning: auto, ..reno() };
        let mut pair = transfer(&config, 5_000_000);
        pair.finish(5_000_000, &mut all_arrive);
        pair.sent.last().expect("it has sent").0
    };
    let (tuned, full) = (time(true), time(false));
    assert!(tuned <= full + Duration::from_millis(300), "{tuned:?} {full:?}");
}

/// The examples of RFC 2018 s.4: eight segments of 500 bytes, beginning with sequence number 5000.
#[test]
fn sack_blocks_are_those_of_the_rfcs_examples() {
    let config = TcpConfig { mss: 500, timestamps: false, ..reno() };
    let answers = |arriving: &[u32]| -> Vec<(u32, Vec<(u32, u32)>)> {
        let mut options = Options { mss: Some(500), sack_permitted: true, ..Options::default() };
        let syn = Segment { sequence: 4_999, flags: Flags::SYN, options, ..Segment::default() };
        let mut server = Connection::accept(at(0), &config, &syn, [3; 32]).expect("it is a SYN");
        let answer = server.poll_transmit(at(0)).expect("SYN and ACK").segment;
        options = Options::default();
        let base = Segment {
            acknowledgment: answer.sequence.wrapping_add(1),
            flags: Flags::ACK,
            window: 1_000,
            options,
            ..Segment::default()
        };
        let mut answers = Vec::new();
        for sequence in arriving {
            let segment = Segment { sequence: *sequence, payload: 500, ..base };
            server.handle_segment(at(1), &segment, false);
            server.read();
            while let Some(outgoing) = server.poll_transmit(at(1)) {
                let segment = outgoing.segment;
                answers.push((segment.acknowledgment, segment.options.sack.as_slice().to_vec()));
            }
        }
        answers
    };
    // Case 1: only the first four segments arrive.
    let case = answers(&[5000, 5500, 6000, 6500]);
    assert_eq!(case.last(), Some(&(7000, vec![])));
    // Case 2: the first segment is lost.
    let case = answers(&[5500, 6000, 6500, 7000, 7500, 8000, 8500]);
    for (index, answer) in case.iter().enumerate() {
        assert_eq!(*answer, (5000, vec![(5500, 6000 + 500 * index as u32)]));
    }
    // Case 3: the second, fourth, sixth and eighth segments are lost. Then the fourth arrives, and
    // then the second.
    let case = answers(&[5000, 6000, 7000, 8000, 6500, 5500]);
    let expected = [
        (5500, vec![]),
        (5500, vec![(6000, 6500)]),
        (5500, vec![(7000, 7500), (6000, 6500)]),
        (5500, vec![(8000, 8500), (7000, 7500), (6000, 6500)]),
        (5500, vec![(6000, 7500), (8000, 8500)]),
        (7500, vec![(8000, 8500)]),
    ];
    assert_eq!(case, expected);
    // RFC 2883 s.4.1: a duplicate must be reported first, and only once.
    let case = answers(&[5000, 5500, 5500, 6500]);
    assert_eq!(case[2..], [(6000, vec![(5500, 6000)]), (6000, vec![(6500, 7000)])]);
}

/// Both ends send full segments while both have gaps to report. They must send SACK blocks in
/// segments without payload, and all data must arrive.
#[test]
fn segment_data_goes_both_ways() {
    let mut pair = Pair::new(&TcpConfig::default(), 20);
    pair.run(at(200), &mut all_arrive);
    pair.client.write(300_000);
    pair.server.as_mut().expect("it is connected").write(300_000);
    // Every twentieth segment of the client is lost, so that the server has gaps to report while it
    // sends.
    pair.run(at(60_000), &mut |number, _| {
        if number % 20 == 5 && number < 200 { Fate::Lost } else { Fate::Arrives }
    });
    assert_eq!((pair.read, pair.back), (300_000, 300_000));
    let stats = pair.client.stats();
    assert!(stats.lost >= 10 && stats.timeouts == 0, "{stats:?}");
}

/// RFC 7413: the data in the client's SYN must reach the server after half a round trip.
#[test]
fn fast_open_saves_a_round_trip() {
    let fast = TcpConfig { fast_open: true, ..TcpConfig::default() };
    let read_at = |client: &TcpConfig, server: &TcpConfig, millis: u64, bytes: u64| {
        let mut pair = Pair::new(client, 20);
        pair.config = server.clone();
        pair.client.write(bytes);
        pair.client.finish();
        pair.run(at(millis), &mut all_arrive);
        let read = pair.read;
        pair.finish(bytes, &mut all_arrive);
        read
    };
    let usual = TcpConfig::default();
    assert_eq!(read_at(&fast, &fast, 21, 1_000), 1_000);
    // The data does not fit into the SYN. The rest must follow after the handshake.
    assert_eq!(read_at(&fast, &fast, 21, 5_000), 1_428);
    assert_eq!(read_at(&fast, &fast, 61, 5_000), 5_000);
    // Fast Open must have no effect if only one of the two ends supports it.
    assert_eq!(read_at(&fast, &usual, 59, 5_000), 0);
    assert_eq!(read_at(&fast, &usual, 61, 5_000), 5_000);
    assert_eq!(read_at(&usual, &fast, 59, 5_000), 0);
}

#[test]
fn fast_open_survives_the_loss_of_either_syn() {
    let fast = TcpConfig { fast_open: true, ..TcpConfig::default() };
    // The client's SYN is lost, together with its data.
    let mut pair = Pair::new(&fast, 20);
    pair.client.write(3_000);
    pair.client.finish();
    pair.finish(3_000, &mut lose(&[0]));
    // The server's SYN is lost. The client must retransmit its SYN without data, and no data may
    // arrive twice.
    let mut pair = Pair::new(&fast, 20);
    pair.client.write(3_000);
    pair.client.finish();
    pair.run(at(19), &mut all_arrive);
    pair.flush(&mut all_arrive);
    pair.now = at(20);
    pair.run(at(20), &mut all_arrive);
    pair.wire.retain(|(_, to_server, segment, _)| *to_server || !segment.flags.has(Flags::SYN));
    pair.finish(3_000, &mut all_arrive);
    // The server must send its answer before it knows that the client has received its SYN.
    let mut pair = Pair::new(&fast, 20);
    pair.client.write(100);
    pair.run(at(20), &mut all_arrive);
    pair.server.as_mut().expect("it has the SYN").write(9_000);
    pair.run(at(41), &mut all_arrive);
    assert_eq!((pair.read, pair.back), (100, 9_000));
}
