//! Recorded rates of links: traces in Mahimahi's format.
//!
//! R. Netravali et al., "Mahimahi: accurate record-and-replay for HTTP" (USENIX ATC 2015). Each
//! line is a time in milliseconds since the start, at which the link can carry 1,504 bytes. If
//! several lines have the same time, the bytes add up. The time in the last line is the period,
//! after which the trace repeats.

/// Number of bytes that the link can carry for each line of a trace.
pub const OPPORTUNITY_BYTES: u64 = 1_504;

/// Maximum size of a trace as text, in bytes.
pub const MAX_TRACE_TEXT: usize = 64 << 20;

/// Latest time that a trace can have, in milliseconds: about 49 days.
const MAX_MILLISECONDS: u64 = u32::MAX as u64;

const NANOS_PER_MS: u64 = 1_000_000;

/// The times at which a link can carry data, for example recorded on a cellular link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// Times of the opportunities in milliseconds since the start, in order. The last one is the
    /// period, which is not zero.
    moments: Vec<u32>,
}

/// The reason that a trace is invalid. Lines are counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TraceError {
    /// The trace has more than [`MAX_TRACE_TEXT`] bytes.
    TooLong,
    /// The line is not a plain number of milliseconds.
    NotANumber {
        /// Number of the line with the mistake, counted from 1.
        line: usize,
    },
    /// The time is later than 49 days after the start.
    TooLate {
        /// Number of the line with the mistake, counted from 1.
        line: usize,
    },
    /// The time is before that of the previous line.
    Backwards {
        /// Number of the line with the mistake, counted from 1.
        line: usize,
    },
    /// The trace has no lines.
    Empty,
    /// All times are 0, so the period would be 0.
    NoTime,
}

impl std::fmt::Display for TraceError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            TraceError::TooLong => {
                write!(f, "a trace must not have more than {MAX_TRACE_TEXT} bytes")
            }
            TraceError::NotANumber { line } => {
                write!(f, "line {line}: each line must contain only a whole number of milliseconds")
            }
            TraceError::TooLate { line } => {
                write!(
                    f,
                    "line {line}: the time is above {MAX_MILLISECONDS} milliseconds (49 days), which is the maximum"
                )
            }
            TraceError::Backwards { line } => {
                write!(f, "line {line}: the time is earlier than that of the previous line")
            }
            TraceError::Empty => f.write_str("a trace needs at least one line"),
            TraceError::NoTime => {
                f.write_str("the last line must have a time above 0 milliseconds")
            }
        }
    }
}

impl std::error::Error for TraceError {}

impl Trace {
    /// Parses a trace. The last line need not end with a line feed. As in Mahimahi, carriage
    /// returns, signs, blanks and empty lines are errors.
    ///
    /// # Errors
    /// Returns a [`TraceError`]. If it concerns one line, the error has the line's number.
    pub fn parse(text: &[u8]) -> Result<Trace, TraceError> {
        if text.len() > MAX_TRACE_TEXT {
            return Err(TraceError::TooLong);
        }
        let text = text.strip_suffix(b"\n").unwrap_or(text);
        if text.is_empty() {
            return Err(TraceError::Empty);
        }
        let mut moments: Vec<u32> = Vec::new();
        for (index, digits) in text.split(|byte| *byte == b'\n').enumerate() {
            let moment = number(digits, index + 1)?;
            if moments.last().is_some_and(|last| moment < *last) {
                return Err(TraceError::Backwards { line: index + 1 });
            }
            moments.push(moment);
        }
        if moments.last() == Some(&0) {
            return Err(TraceError::NoTime);
        }
        Ok(Trace { moments })
    }

    /// Returns the average rate over the period, in bits per second.
    pub fn mean_rate(&self) -> f64 {
        let bits = 8.0 * (OPPORTUNITY_BYTES as f64) * (self.moments.len() as f64);
        bits * 1e9 / (self.period() as f64)
    }

    /// Returns the number of bytes that the link can carry until a time, in nanoseconds since the
    /// start.
    pub fn offered(&self, until: u64) -> u64 {
        self.first_after(until).saturating_mul(OPPORTUNITY_BYTES)
    }

    /// Returns the period in nanoseconds.
    fn period(&self) -> u64 {
        u64::from(self.moments.last().copied().unwrap_or(1)) * NANOS_PER_MS
    }

    /// Returns the time of opportunity number `opportunity`, counted from 0. The unit is
    /// nanoseconds since the start. Saturates.
    fn at(&self, opportunity: u64) -> u64 {
        let lines = self.moments.len() as u64;
        let index = usize::try_from(opportunity % lines).unwrap_or(0);
        let within = u64::from(self.moments[index]) * NANOS_PER_MS;
        (opportunity / lines).saturating_mul(self.period()).saturating_add(within)
    }

    /// Returns the number of the first opportunity after the time `now`, which is in nanoseconds
    /// since the start.
    fn first_after(&self, now: u64) -> u64 {
        let (period, lines) = (self.period(), self.moments.len() as u64);
        let (round, within) = (now / period, now % period);
        let after = |moment: &u32| u64::from(*moment) * NANOS_PER_MS <= within;
        round.saturating_mul(lines).saturating_add(self.moments.partition_point(after) as u64)
    }
}

/// A [`Trace`] in use. Computes the time at which each packet has been sent.
#[derive(Clone, Debug, Default)]
pub struct TraceCursor {
    /// Number of the next opportunity that no packet has used.
    next: u64,
    /// The time of the last used opportunity in nanoseconds, and the number of bytes that it can
    /// still carry.
    used: Option<(u64, u64)>,
}

impl TraceCursor {
    /// Returns the time at which the last byte of a packet of `bytes` bytes has been sent. `now` is
    /// the time at which its first byte can be sent. Both are nanoseconds since the start. Calls
    /// must be in the order of sending, and `now` must not be before the result of the previous
    /// call.
    ///
    /// As in Mahimahi, a packet may need several opportunities, and several packets may share one.
    /// If no packet waits, the rest of an opportunity is lost. A packet that arrives at exactly the
    /// time of an opportunity cannot use it.
    pub fn leaves(&mut self, trace: &Trace, now: u64, bytes: u64) -> u64 {
        // The packet directly follows the previous one, so it can use the bytes that the previous
        // packet left of the opportunity at this time.
        let rest = self.used.and_then(|(moment, rest)| (moment == now).then_some(rest));
        let left = rest.unwrap_or(0);
        if bytes <= left {
            self.used = Some((now, left - bytes));
            return now;
        }
        let first = match rest {
            Some(_) => self.next,
            None => self.next.max(trace.first_after(now)),
        };
        let needed = bytes - left;
        let count = needed.div_ceil(OPPORTUNITY_BYTES);
        let last = first.saturating_add(count - 1);
        let (leaves, rest) = (trace.at(last), count.saturating_mul(OPPORTUNITY_BYTES) - needed);
        self.next = last.saturating_add(1);
        self.used = Some((leaves, rest));
        leaves
    }
}

fn number(digits: &[u8], line: usize) -> Result<u32, TraceError> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(TraceError::NotANumber { line });
    }
    let digit = |sum: u32, byte: &u8| sum.checked_mul(10)?.checked_add(u32::from(byte - b'0'));
    digits.iter().try_fold(0, digit).ok_or(TraceError::TooLate { line })
}

#[cfg(test)]
mod tests;
