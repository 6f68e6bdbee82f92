//! Tests of the trace format, and of a link whose rate follows a trace. The results are compared
//! with a slow model.

use proptest::prelude::*;

use super::*;

const MS: u64 = NANOS_PER_MS;

fn trace(text: &str) -> Trace {
    Trace::parse(text.as_bytes()).expect("it is one")
}

#[test]
fn trace_errors_name_the_line() {
    for (text, error) in [
        ("", TraceError::Empty),
        ("\n", TraceError::Empty),
        ("0\n0\n", TraceError::NoTime),
        ("1\n\n2\n", TraceError::NotANumber { line: 2 }),
        ("1\n2\n\n", TraceError::NotANumber { line: 3 }),
        ("1\r\n2\r\n", TraceError::NotANumber { line: 1 }),
        ("+1\n", TraceError::NotANumber { line: 1 }),
        ("1\n-2\n", TraceError::NotANumber { line: 2 }),
        ("1\n 2\n", TraceError::NotANumber { line: 2 }),
        ("1.5\n", TraceError::NotANumber { line: 1 }),
        ("5\n4\n", TraceError::Backwards { line: 2 }),
        ("1\n4294967296\n", TraceError::TooLate { line: 2 }),
        ("99999999999999999999999999\n", TraceError::TooLate { line: 1 }),
    ] {
        assert_eq!(Trace::parse(text.as_bytes()), Err(error), "{text:?}");
    }
    assert_eq!(Trace::parse(b"\xff\n"), Err(TraceError::NotANumber { line: 1 }));
    assert_eq!(Trace::parse(&vec![b'1'; MAX_TRACE_TEXT + 1]), Err(TraceError::TooLong));
    assert_eq!(trace("0\n3\n3\n7"), trace("0\n3\n3\n7\n"));
    assert!(Trace::parse(b"4294967295\n").is_ok());
}

/// A line per millisecond makes 12.032 Mb/s, which Mahimahi's documentation rounds to 12.
#[test]
fn trace_of_one_line_per_millisecond_is_12_mbit_per_s() {
    let trace = trace("1\n");
    assert!((trace.mean_rate() - 12_032_000.0).abs() < 1e-3);
    let mut cursor = TraceCursor::default();
    let (mut now, mut packets) = (0, 0);
    while now < 1_000 * MS {
        now = cursor.leaves(&trace, now, 1_504);
        packets += 1;
    }
    assert_eq!(packets, 1_000);
}

#[test]
fn trace_opportunities_are_shared_and_combined() {
    let trace = trace("10\n20\n20\n50\n");
    let mut cursor = TraceCursor::default();
    assert_eq!(cursor.leaves(&trace, 0, 1_000), 10 * MS);
    // The first opportunity has 504 bytes left. The rest of the packet uses the first opportunity
    // at 20 ms.
    assert_eq!(cursor.leaves(&trace, 10 * MS, 1_000), 20 * MS);
    // The opportunities at 20 ms have 1,008 and 1,504 bytes left.
    assert_eq!(cursor.leaves(&trace, 20 * MS, 1_008), 20 * MS);
    assert_eq!(cursor.leaves(&trace, 20 * MS, 1_600), 50 * MS);
    // The next round has opportunities at 60, 70, 70 and 100 ms.
    assert_eq!(cursor.leaves(&trace, 50 * MS, 1_408), 50 * MS);
    assert_eq!(cursor.leaves(&trace, 50 * MS, 1), 60 * MS);
}

#[test]
fn trace_opportunities_without_a_packet_are_lost() {
    let trace = trace("10\n20\n30\n");
    let mut cursor = TraceCursor::default();
    assert_eq!(cursor.leaves(&trace, 0, 100), 10 * MS);
    // The rest of the opportunity at 10 ms is lost, and so is the opportunity at exactly the
    // packet's arrival.
    assert_eq!(cursor.leaves(&trace, 11 * MS, 100), 20 * MS);
    assert_eq!(cursor.leaves(&trace, 30 * MS, 100), 40 * MS);
    assert_eq!(cursor.leaves(&trace, 1_000 * MS, 100), 1_000 * MS + 10 * MS);
}

/// A slow model that works like Mahimahi: it visits every opportunity in order, and counts bytes.
struct Slow<'a> {
    trace: &'a Trace,
    next: u64,
}

impl Slow<'_> {
    /// Returns the time at which each packet has been sent. Each packet is an arrival time and a
    /// size.
    fn run(&mut self, packets: &[(u64, u64)]) -> Vec<u64> {
        let (mut done, mut queue) = (Vec::new(), std::collections::VecDeque::new());
        let mut coming = packets.iter().peekable();
        while done.len() < packets.len() {
            let moment = self.trace.at(self.next);
            // A packet that arrives at exactly the time of an opportunity is too late for it.
            while let Some((at, size)) = coming.next_if(|(at, _)| *at < moment) {
                queue.push_back((*at, *size));
            }
            self.next += 1;
            let mut left = OPPORTUNITY_BYTES;
            while let Some((_, size)) = queue.front_mut() {
                let sent = left.min(*size);
                *size -= sent;
                left -= sent;
                if *size > 0 {
                    break;
                }
                queue.pop_front();
                done.push(moment);
            }
        }
        done
    }
}

proptest! {
    #[test]
    fn trace_cursor_matches_mahimahi(
        mut moments in proptest::collection::vec(0..60u32, 1..20),
        gaps in proptest::collection::vec((0..40u64, 1..4_000u64), 1..60),
    ) {
        moments.sort_unstable();
        moments.push(61);
        let trace = Trace { moments };
        // All arrivals are between the times of the trace, so that the order at equal times does
        // not matter.
        let mut now = 1;
        let packets: Vec<(u64, u64)> =
            gaps.into_iter().map(|(gap, size)| { now += gap * MS; (now, size) }).collect();
        let slow = Slow { trace: &trace, next: 0 }.run(&packets);
        let (mut cursor, mut free) = (TraceCursor::default(), 0);
        for ((at, size), expected) in packets.iter().zip(slow) {
            free = cursor.leaves(&trace, free.max(*at), *size);
            prop_assert_eq!(free, expected);
        }
    }
}
