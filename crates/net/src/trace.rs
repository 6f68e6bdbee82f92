//! Rates that were recorded: traces in Mahimahi's format.
//!
//! R. Netravali et al., "Mahimahi: accurate record-and-replay for HTTP" (USENIX ATC 2015). Each line is a
//! moment in milliseconds since the start at which the link can carry 1,504 bytes; equal moments carry as
//! many times that. At the end, the moment in the last line, the trace begins anew.

/// Bytes that each line of a trace lets through.
pub const OPPORTUNITY_BYTES: u64 = 1_504;

/// The most bytes that a trace may have as text.
pub const MAX_TRACE_TEXT: usize = 64 << 20;

/// The latest moment in a trace, in milliseconds: some 49 days.
const MAX_MILLISECONDS: u64 = u32::MAX as u64;

const NANOS_PER_MS: u64 = 1_000_000;

/// Delivery opportunities of a link over time: a recorded cellular link, say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// In milliseconds since the start, in order; the last is the period, and not zero.
    moments: Vec<u32>,
}

/// Error of a trace, with its line, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TraceError {
    /// More than [`MAX_TRACE_TEXT`] bytes.
    TooLong,
    /// The line is not a number of milliseconds and nothing else.
    NotANumber {
        /// Line with the mistake, counted from 1.
        line: usize,
    },
    /// The moment is further than 49 days from the start.
    TooLate {
        /// Line with the mistake, counted from 1.
        line: usize,
    },
    /// The moment is before that of the line above.
    Backwards {
        /// Line with the mistake, counted from 1.
        line: usize,
    },
    /// There is no line.
    Empty,
    /// All moments are 0: it never ends, and never begins anew.
    NoTime,
}

impl std::fmt::Display for TraceError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            TraceError::TooLong => write!(f, "a trace has at most {MAX_TRACE_TEXT} bytes"),
            TraceError::NotANumber { line } => {
                write!(f, "line {line}: a line is a whole number of milliseconds and nothing else")
            }
            TraceError::TooLate { line } => {
                write!(f, "line {line}: at most {MAX_MILLISECONDS} milliseconds, which are 49 days")
            }
            TraceError::Backwards { line } => {
                write!(f, "line {line}: this moment is before that of the line above")
            }
            TraceError::Empty => f.write_str("a trace needs a line"),
            TraceError::NoTime => f.write_str("the last moment must be after 0 milliseconds"),
        }
    }
}

impl std::error::Error for TraceError {}

impl Trace {
    /// Reads one. The last line may end without a line feed; carriage returns, signs, blanks and empty
    /// lines are errors, as they are to Mahimahi.
    ///
    /// # Errors
    /// [`TraceError`]: the mistake, with its line where it has one.
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

    /// Bits per second over the whole period.
    pub fn mean_rate(&self) -> f64 {
        let bits = 8.0 * (OPPORTUNITY_BYTES as f64) * (self.moments.len() as f64);
        bits * 1e9 / (self.period() as f64)
    }

    /// Returns the bytes that the trace lets through up to a moment, in nanoseconds since the start.
    pub fn offered(&self, until: u64) -> u64 {
        self.first_after(until).saturating_mul(OPPORTUNITY_BYTES)
    }

    /// In nanoseconds.
    fn period(&self) -> u64 {
        u64::from(self.moments.last().copied().unwrap_or(1)) * NANOS_PER_MS
    }

    /// The moment of an opportunity, from 0, in nanoseconds since the start; saturates.
    fn at(&self, opportunity: u64) -> u64 {
        let lines = self.moments.len() as u64;
        let index = usize::try_from(opportunity % lines).unwrap_or(0);
        let within = u64::from(self.moments[index]) * NANOS_PER_MS;
        (opportunity / lines).saturating_mul(self.period()).saturating_add(within)
    }

    /// The first opportunity after `now`, in nanoseconds since the start.
    fn first_after(&self, now: u64) -> u64 {
        let (period, lines) = (self.period(), self.moments.len() as u64);
        let (round, within) = (now / period, now % period);
        let after = |moment: &u32| u64::from(*moment) * NANOS_PER_MS <= within;
        round.saturating_mul(lines).saturating_add(self.moments.partition_point(after) as u64)
    }
}

/// A [`Trace`] in use: when each packet has left.
#[derive(Clone, Debug, Default)]
pub struct TraceCursor {
    /// The next opportunity that nothing has used.
    next: u64,
    /// The moment of the last one that was used, in nanoseconds, and the bytes that are left of it.
    used: Option<(u64, u64)>,
}

impl TraceCursor {
    /// Time at which the last byte has left of a packet of so many, whose first may leave `now`: both in
    /// nanoseconds since the start. Packets are asked about in the order of leaving, none before
    /// the one in front of it has left.
    ///
    /// As in Mahimahi, a packet may need several opportunities and several packets may share one, but what
    /// is left of one when nothing waits is lost, and so is one that comes with the packet itself.
    pub fn leaves(&mut self, trace: &Trace, now: u64, bytes: u64) -> u64 {
        // Right behind the packet before: what is left at this moment is for this one.
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
