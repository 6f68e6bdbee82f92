//! draft-banks-quic-performance: a request is 8 bytes, how many are wanted back, and as much payload as
//! the client likes. The first 8 bytes that come back say how much payload arrived.

use anyhow::{Context as _, Result};

/// What is sent, and how much at a time.
pub static ZEROS: [u8; CHUNK] = [0; CHUNK];
pub const CHUNK: usize = 64 << 10;
/// Length of the number at the beginning of requests and answers.
pub const HEAD: usize = 8;

/// How many bytes each of several streams fetches: alike, and the first the rest.
pub fn shares(bytes: u64, streams: u64) -> impl Iterator<Item = u64> {
    (0..streams).map(move |stream| bytes / streams + if stream == 0 { bytes % streams } else { 0 })
}

/// A server's side of a stream.
#[derive(Default)]
pub struct Request {
    head: [u8; HEAD],
    read: u64,
    answer: Option<Answer>,
}

/// What goes back.
#[derive(Clone, Copy)]
struct Answer {
    wanted: u64,
    sent: u64,
    counted: [u8; HEAD],
}

impl Request {
    /// Bytes that came.
    pub fn received(&mut self, data: &[u8]) {
        let head = usize::try_from(self.read).unwrap_or(HEAD).min(HEAD);
        let count = data.len().min(HEAD - head);
        self.head[head..head + count].copy_from_slice(&data[..count]);
        self.read += data.len() as u64;
    }

    /// No more come.
    pub fn finished(&mut self) -> Result<()> {
        let payload = self.read.checked_sub(HEAD as u64).context("a request of under 8 bytes")?;
        let wanted = u64::from_be_bytes(self.head);
        self.answer = Some(Answer { wanted, sent: 0, counted: payload.to_be_bytes() });
        Ok(())
    }

    /// Whether all has come.
    pub fn is_finished(&self) -> bool {
        self.answer.is_some()
    }

    /// Bytes that are still to be sent.
    pub fn left(&self) -> u64 {
        self.answer.map_or(0, |answer| answer.wanted - answer.sent)
    }

    /// The next of them; the zeros can be had without copying them.
    pub fn next(&self) -> Piece<'_> {
        let left = usize::try_from(self.left()).unwrap_or(CHUNK);
        match &self.answer {
            Some(answer) if answer.sent < HEAD as u64 => {
                let rest = answer.counted.get(answer.sent as usize..).unwrap_or_default();
                Piece::Counted(rest.get(..left).unwrap_or(rest))
            }
            _ => Piece::Zeros(ZEROS.get(..left).unwrap_or(&ZEROS)),
        }
    }

    /// So many of them were sent.
    pub fn sent(&mut self, count: usize) {
        if let Some(answer) = &mut self.answer {
            answer.sent += count as u64;
        }
    }
}

/// A part of an answer.
pub enum Piece<'a> {
    /// Of the number.
    Counted(&'a [u8]),
    /// Behind it.
    Zeros(&'static [u8]),
}

impl Piece<'_> {
    pub fn bytes(&self) -> &[u8] {
        match self {
            Piece::Counted(bytes) => bytes,
            Piece::Zeros(bytes) => bytes,
        }
    }
}

/// What a client writes before the payload.
pub fn request(wanted: u64) -> [u8; HEAD] {
    wanted.to_be_bytes()
}

/// A client's side: counts what came, and keeps its beginning.
#[derive(Default)]
pub struct Received {
    head: [u8; HEAD],
    pub bytes: u64,
}

impl Received {
    pub fn take(&mut self, data: &[u8]) {
        let head = usize::try_from(self.bytes).unwrap_or(HEAD).min(HEAD);
        let count = data.len().min(HEAD - head);
        self.head[head..head + count].copy_from_slice(&data[..count]);
        self.bytes += data.len() as u64;
    }

    /// The payload that arrived at the server, by its account.
    pub fn at_server(&self) -> u64 {
        if self.bytes >= HEAD as u64 { u64::from_be_bytes(self.head) } else { 0 }
    }
}
