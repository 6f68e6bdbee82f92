//! Properties that hold for any bytes. Tests check them with random inputs, and the fuzzer checks
//! them, too.

use equic_net::{OPPORTUNITY_BYTES, Trace, TraceCursor};

/// Checks that the bytes are a valid trace or give an error. With a valid trace, packets must be
/// sent in order, and not faster than the trace allows.
pub(crate) fn trace(data: &[u8]) {
    let Ok(trace) = Trace::parse(data) else { return };
    let lines = data.strip_suffix(b"\n").unwrap_or(data).split(|byte| *byte == b'\n');
    let lines: Vec<u64> =
        lines.map(|line| std::str::from_utf8(line).unwrap().parse().unwrap()).collect();
    let period = lines.last().unwrap() * 1_000_000;
    assert!(trace.mean_rate() > 0.0 && lines.is_sorted());
    // Checks that every opportunity of one period is at the time of its line, to the nanosecond.
    let mut cursor = TraceCursor::default();
    let mut now = 0;
    for _ in 0..2 * lines.len().min(10_000) {
        let left = cursor.leaves(&trace, now, OPPORTUNITY_BYTES);
        assert!(left >= now && lines.contains(&(left % period / 1_000_000)) || left % period == 0);
        now = left;
    }
    for bytes in [1, OPPORTUNITY_BYTES - 1, 100_000, u64::MAX, 1] {
        let left = cursor.leaves(&trace, now, bytes);
        assert!(left >= now);
        now = left;
    }
}
