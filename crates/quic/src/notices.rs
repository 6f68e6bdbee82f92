//! Limits on the log lines that hooks of connections cause. A peer's plugin can cause one with each
//! packet, so each line takes one token of its connection and one token of the process. Lines
//! without a token are counted.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Lines that one connection may cause at once.
const OF_CONNECTION: u32 = 10;
/// Time after which a connection may cause another line.
const CONNECTION_INTERVAL: Duration = Duration::from_secs(1);
/// Lines that all connections of the process may cause at once.
const OF_PROCESS: u32 = 100;
/// Time after which the connections of the process may cause another line.
const PROCESS_INTERVAL: Duration = Duration::from_millis(100);
/// Maximum number of bytes of a hook's message in a line. Escaping can turn each byte into four
/// characters.
const MAX_MESSAGE: usize = 256;

/// Lines that all connections of the process may still cause.
static PROCESS: Mutex<Option<Bucket>> = Mutex::new(None);

/// A token bucket. It counts the lines that it has refused.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    tokens: u32,
    most: u32,
    interval: Duration,
    /// Time from which on the next token accrues.
    since: Instant,
    left_out: u64,
}

impl Bucket {
    fn new(most: u32, interval: Duration, now: Instant) -> Bucket {
        Bucket { tokens: most, most, interval, since: now, left_out: 0 }
    }

    /// Takes a token. Returns the number of lines refused since the last successful call, or `None`
    /// if there is no token.
    fn take(&mut self, now: Instant) -> Option<u64> {
        let passed = now.saturating_duration_since(self.since).as_nanos();
        let earned = passed / self.interval.as_nanos();
        let missing = self.most - self.tokens;
        if earned >= u128::from(missing) {
            (self.tokens, self.since) = (self.most, now);
        } else {
            // The value is less than `missing`, so it fits.
            let earned = earned as u32;
            self.tokens += earned;
            self.since += self.interval * earned;
        }
        match self.tokens.checked_sub(1) {
            Some(left) => {
                self.tokens = left;
                Some(std::mem::take(&mut self.left_out))
            }
            None => {
                self.left_out = self.left_out.saturating_add(1);
                None
            }
        }
    }
}

/// Log lines that the hooks of one connection may still cause. The bucket is `None` until the first
/// line.
#[derive(Debug, Default)]
pub(crate) struct Notices(Option<Bucket>);

impl Notices {
    /// Returns whether a line may be written. If it returns `true`, it first writes the number of
    /// lines that were left out, if there are any.
    pub(crate) fn admit(&mut self) -> bool {
        let Some((own, all)) = self.take(&PROCESS, Instant::now()) else { return false };
        if own > 0 {
            tracing::warn!(
                lines = own,
                "log lines of this connection's hooks were not written, because there were too many"
            );
        }
        if all > 0 {
            tracing::warn!(
                lines = all,
                "log lines of hooks were not written, over all connections, because there were too many"
            );
        }
        true
    }

    /// Takes a token of the connection and a token of the process. Returns how many lines were left
    /// out since the last line: of this connection, and of all connections because of the limit of
    /// the process.
    fn take(&mut self, process: &Mutex<Option<Bucket>>, now: Instant) -> Option<(u64, u64)> {
        let new = || Bucket::new(OF_CONNECTION, CONNECTION_INTERVAL, now);
        let bucket = self.0.get_or_insert_with(new);
        let own = bucket.take(now)?;
        let all = {
            let mut process = process.lock().unwrap_or_else(PoisonError::into_inner);
            let new = || Bucket::new(OF_PROCESS, PROCESS_INTERVAL, now);
            process.get_or_insert_with(new).take(now)
        };
        if all.is_none() {
            // The connection's number is reported with its next line.
            bucket.left_out = own.saturating_add(1);
        }
        Some((own, all?))
    }

    /// Writes the number of lines that were left out, if there are any. Called at the end of the
    /// connection.
    pub(crate) fn finish(&mut self) {
        if let Some(bucket) = &mut self.0
            && bucket.left_out > 0
        {
            // The connection causes no further lines, so this line needs no token of the
            // connection.
            bucket.tokens = bucket.tokens.max(1);
            self.admit();
        }
    }
}

/// Returns a hook's message as it appears in a line: escaped and truncated.
pub(crate) fn shown(message: &[u8]) -> String {
    let cut = &message[..message.len().min(MAX_MESSAGE)];
    match message.len() - cut.len() {
        0 => cut.escape_ascii().to_string(),
        more => format!("{} (and {more} bytes)", cut.escape_ascii()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(notices: &mut Notices, process: &Mutex<Option<Bucket>>, now: Instant) -> usize {
        (0..1000).filter(|_| notices.take(process, now).is_some()).count()
    }

    #[test]
    fn notices_of_one_connection_are_limited_and_counted() {
        let (process, start) = (Mutex::new(None), Instant::now());
        let mut notices = Notices::default();
        assert_eq!(lines(&mut notices, &process, start), 10);
        assert_eq!(lines(&mut notices, &process, start + CONNECTION_INTERVAL / 2), 0);
        let later = start + CONNECTION_INTERVAL;
        assert_eq!(notices.take(&process, later), Some((1990, 0)));
        assert_eq!(notices.take(&process, later), None);
        // However long the connection was silent, it gets at most one burst.
        assert_eq!(lines(&mut notices, &process, later + CONNECTION_INTERVAL * 100_000), 10);
    }

    #[test]
    fn notices_of_all_connections_are_limited_and_counted() {
        let (process, start) = (Mutex::new(None), Instant::now());
        let mut many: Vec<Notices> = (0..1000).map(|_| Notices::default()).collect();
        let written: usize = many.iter_mut().map(|one| lines(one, &process, start)).sum();
        assert_eq!(written, 100);
        let later = start + PROCESS_INTERVAL;
        // 990 connections took all ten of their own tokens, but none of the process.
        let next = Notices::default().take(&process, later);
        assert_eq!(next, Some((0, 9900)));
        assert_eq!(many[999].0.map(|bucket| bucket.left_out), Some(1000));
    }

    #[test]
    fn notices_show_the_beginning_of_a_message_escaped() {
        assert_eq!(shown(b"\x1b[2J\n"), "\\x1b[2J\\n");
        let long = shown(&[0; 1024]);
        assert!(long.ends_with(" (and 768 bytes)") && long.len() < 1100, "{long}");
    }
}
