//! The protocol of draft-banks-quic-performance.
//!
//! A request starts with 8 bytes: the number of bytes that it requests. Any amount of payload may
//! follow. A response starts with 8 bytes: the number of payload bytes that the server received.
//! All other bytes follow a fixed pattern.

use std::sync::LazyLock;

use anyhow::{Context as _, Result};
use bytes::Bytes;

/// Maximum size of a write, in bytes.
pub const CHUNK: usize = 64 << 10;
/// Size of the number at the start of a request or response, in bytes.
pub const HEAD: usize = 8;
/// Period of the pattern. It is the largest prime below 2^16. If a block of any usual size is
/// missing, duplicated or misplaced, the pattern is therefore shifted.
pub const PERIOD: usize = 65_521;
/// One block of this size in each 64 KiB is compared, at a rotating position. Comparisons then take
/// only a small part of the time of a transfer.
const BLOCK: u64 = 4096;

/// The pattern. Its length is one period and one chunk, so that it contains a complete chunk for
/// every start in the first period.
static PATTERN: LazyLock<Bytes> = LazyLock::new(|| {
    let mut state = 1u32;
    let mut period = [0; PERIOD];
    for byte in &mut period {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        [*byte, ..] = state.to_be_bytes();
    }
    period.iter().copied().cycle().take(PERIOD + CHUNK).collect()
});

/// Returns at most `left` bytes of the pattern from an offset on.
pub fn pattern(at: u64, left: u64) -> Bytes {
    let (from, count) = span(at, left);
    PATTERN.slice(from..from + count)
}

/// Returns the same bytes as [`pattern`], without a copy.
pub fn pattern_bytes(at: u64, left: u64) -> &'static [u8] {
    let (from, count) = span(at, left);
    PATTERN.get(from..from + count).unwrap_or_default()
}

fn span(at: u64, left: u64) -> (usize, usize) {
    let from = usize::try_from(at % PERIOD as u64).unwrap_or(0);
    (from, usize::try_from(left).unwrap_or(CHUNK).min(CHUNK))
}

/// Divides a number of bytes among streams. Each stream gets an equal share, and the first one also
/// gets the remainder.
pub fn shares(bytes: u64, streams: u64) -> impl Iterator<Item = u64> {
    (0..streams).map(move |stream| bytes / streams + if stream == 0 { bytes % streams } else { 0 })
}

/// Compares received bytes with the pattern, block by block.
#[derive(Clone, Debug, Default)]
pub struct Check {
    at: u64,
    wrong: Option<u64>,
}

impl Check {
    /// Counts the next received bytes, and compares some of them with the pattern.
    pub fn take(&mut self, mut data: &[u8]) {
        while !data.is_empty() {
            let block = self.at / BLOCK;
            let rest = usize::try_from(BLOCK - self.at % BLOCK).unwrap_or(data.len());
            let (piece, behind) = data.split_at(rest.min(data.len()));
            if (block / 16) % 16 == block % 16
                && piece != pattern_bytes(self.at, piece.len() as u64)
            {
                self.wrong.get_or_insert(self.at);
            }
            self.at += piece.len() as u64;
            data = behind;
        }
    }

    /// Returns the number of bytes checked so far.
    pub fn bytes(&self) -> u64 {
        self.at
    }

    /// Returns the offset of the first compared piece that differs from the pattern, or `None` if
    /// no piece differs.
    pub fn wrong(&self) -> Option<u64> {
        self.wrong
    }

    /// Exits the process if any compared byte differed from the pattern.
    pub fn finish(&self) {
        if let Some(at) = self.wrong {
            eprintln!("corrupted: received other bytes than were sent, in the block at byte {at}");
            std::process::exit(crate::CORRUPTED);
        }
    }
}

/// A request on a stream, as the server receives it.
#[derive(Default)]
pub struct Request {
    head: [u8; HEAD],
    read: u64,
    answer: Option<Response>,
}

/// The response that a server sends on a stream.
#[derive(Clone, Copy)]
struct Response {
    wanted: u64,
    sent: u64,
    counted: [u8; HEAD],
}

impl Request {
    /// Processes the next bytes of the request.
    pub fn received(&mut self, data: &[u8]) {
        fill(&mut self.head, self.read, data);
        self.read += data.len() as u64;
    }

    /// Records the end of the request.
    pub fn finished(&mut self) -> Result<()> {
        let payload =
            self.read.checked_sub(HEAD as u64).context("the request has fewer than 8 bytes")?;
        let wanted = u64::from_be_bytes(self.head);
        self.answer = Some(Response { wanted, sent: 0, counted: payload.to_be_bytes() });
        Ok(())
    }

    /// Returns true if the request was received completely.
    pub fn is_finished(&self) -> bool {
        self.answer.is_some()
    }

    /// Returns the number of bytes of the response that are still to be sent.
    pub fn left(&self) -> u64 {
        self.answer.map_or(0, |answer| answer.wanted - answer.sent)
    }

    /// Returns the next bytes to send.
    pub fn next(&self) -> Bytes {
        match &self.answer {
            None => Bytes::new(),
            Some(answer) => match self.head_left(answer) {
                [] => pattern(answer.sent - HEAD as u64, self.left()),
                head => Bytes::copy_from_slice(head),
            },
        }
    }

    /// Returns the same bytes as [`Request::next`], without a copy.
    pub fn next_bytes(&self) -> &[u8] {
        match &self.answer {
            None => &[],
            Some(answer) => match self.head_left(answer) {
                [] => pattern_bytes(answer.sent - HEAD as u64, self.left()),
                head => head,
            },
        }
    }

    /// Returns the offset in the pattern of the next byte to send. Returns `None` before the number
    /// at the start of the response was sent.
    pub fn at(&self) -> Option<u64> {
        self.answer.and_then(|answer| answer.sent.checked_sub(HEAD as u64))
    }

    fn head_left<'a>(&self, answer: &'a Response) -> &'a [u8] {
        let sent = usize::try_from(answer.sent).unwrap_or(HEAD).min(HEAD);
        let most = usize::try_from(self.left()).unwrap_or(HEAD);
        let rest = &answer.counted[sent..];
        &rest[..rest.len().min(most)]
    }

    /// Records that this number of bytes was sent.
    pub fn sent(&mut self, count: usize) {
        if let Some(answer) = &mut self.answer {
            answer.sent += count as u64;
        }
    }
}

/// Returns the first bytes of a request, which the client writes before the payload.
pub fn request(wanted: u64) -> [u8; HEAD] {
    wanted.to_be_bytes()
}

/// A response on a stream, as the client receives it. Counts the bytes, keeps the number at the
/// start, and compares the other bytes with the pattern.
#[derive(Clone, Debug, Default)]
pub struct Received {
    head: [u8; HEAD],
    /// Number of all received bytes.
    pub bytes: u64,
    check: Check,
}

impl Received {
    /// Processes the next bytes of the response.
    pub fn take(&mut self, data: &[u8]) {
        let behind = fill(&mut self.head, self.bytes, data);
        self.bytes += data.len() as u64;
        self.check.take(behind);
    }

    /// Records the end of the response. Exits the process if the received bytes differ from those
    /// that the server sent.
    pub fn finish(&self) {
        self.check.finish();
    }

    /// Returns the number of payload bytes that the server reports to have received.
    pub fn at_server(&self) -> u64 {
        if self.bytes >= HEAD as u64 { u64::from_be_bytes(self.head) } else { 0 }
    }
}

/// Copies those bytes of `data` into `head` that belong to the number at the start of the stream,
/// and returns the bytes after the number. `at` is the position of `data` in the stream.
fn fill<'a>(head: &mut [u8; HEAD], at: u64, data: &'a [u8]) -> &'a [u8] {
    let at = usize::try_from(at).unwrap_or(HEAD).min(HEAD);
    let (front, behind) = data.split_at(data.len().min(HEAD - at));
    head[at..at + front.len()].copy_from_slice(front);
    behind
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the response to a request for `wanted` bytes, in the pieces in which the server
    /// sends it.
    fn answer(payload: usize, wanted: u64) -> Vec<u8> {
        let mut asked = Request::default();
        for piece in request(wanted).chunks(3) {
            asked.received(piece);
        }
        asked.received(&vec![7; payload]);
        asked.finished().unwrap();
        let mut all = Vec::new();
        while asked.left() > 0 {
            let next = asked.next();
            assert_eq!(&next[..], asked.next_bytes());
            all.extend_from_slice(&next);
            asked.sent(next.len());
        }
        all
    }

    fn received(data: &[u8]) -> Received {
        let mut received = Received::default();
        for piece in data.chunks(1201) {
            received.take(piece);
        }
        received
    }

    #[test]
    fn perf_answer_has_the_expected_bytes() {
        for wanted in [0, 1, 8, 9, 1024, 65_536 + 8, 3_000_001] {
            let data = answer(10, wanted);
            let got = received(&data);
            assert_eq!((data.len() as u64, got.bytes, got.check.wrong()), (wanted, wanted, None));
            assert_eq!(got.at_server(), if wanted < 8 { 0 } else { 10 });
        }
        assert!(Request::default().finished().is_err());
    }

    /// Implementations in other languages create the same pattern, so its first bytes must not
    /// change.
    #[test]
    fn perf_pattern_is_the_documented_one() {
        assert_eq!(pattern_bytes(0, 8), [0x3c, 0x5e, 0x81, 0xb4, 0x0c, 0x5e, 0xc6, 0x8e]);
        assert_eq!(pattern_bytes(0, CHUNK as u64), pattern_bytes(PERIOD as u64, CHUNK as u64));
        assert_eq!(pattern_bytes(PERIOD as u64 - 1, u64::MAX).len(), CHUNK);
    }

    #[test]
    fn perf_check_finds_missing_doubled_and_changed_bytes() {
        let data = answer(0, 4 << 20);
        for size in [1, 1200, 4096, 16 << 10, 64 << 10, 1 << 20] {
            let (front, back) = data.split_at(100_000);
            let missing = [front, &back[size..]].concat();
            assert!(received(&missing).check.wrong().is_some(), "{size} are missing");
            let doubled = [front, &back[..size], back].concat();
            assert!(received(&doubled).check.wrong().is_some(), "{size} are doubled");
            let zeros = [front, &vec![0; (64 << 10) + size], &back[(64 << 10) + size..]].concat();
            assert!(received(&zeros).check.wrong().is_some(), "{size} are zero");
        }
        let mut small = answer(0, 100);
        small[99] ^= 1;
        assert!(received(&small).check.wrong().is_some());
    }
}
