//! draft-banks-quic-performance: a request is 8 bytes, how many are wanted back, and as much payload as
//! the client likes. The first 8 bytes that come back say how much payload arrived.

use bytes::Bytes;
use equic_endpoint::quic::{ReadError, RecvStream, SendStream};

use crate::failure::{Done, Failure};

/// What is sent, and how much at a time.
static ZEROS: [u8; CHUNK] = [0; CHUNK];
const CHUNK: usize = 64 << 10;
/// Length of the number at the beginning of requests and answers.
pub const HEAD: usize = 8;

/// What came on a stream.
#[derive(Default)]
pub struct Received {
    head: [u8; HEAD],
    /// All bytes.
    pub bytes: u64,
}

impl Received {
    fn take(&mut self, data: &[u8]) {
        let at = usize::try_from(self.bytes).unwrap_or(HEAD).min(HEAD);
        for (to, from) in self.head.iter_mut().skip(at).zip(data) {
            *to = *from;
        }
        self.bytes += data.len() as u64;
    }

    /// The number at the beginning.
    pub fn number(&self) -> Done<u64> {
        if self.bytes < HEAD as u64 {
            return Err(Failure::new("a stream of under 8 bytes"));
        }
        Ok(u64::from_be_bytes(self.head))
    }

    /// Bytes behind it.
    pub fn payload(&self) -> u64 {
        self.bytes.saturating_sub(HEAD as u64)
    }
}

/// Reads all that comes.
pub async fn receive(stream: &mut RecvStream) -> Result<Received, ReadError> {
    let mut received = Received::default();
    // The smallest of exchanges does not need the largest of buffers.
    let mut buffer = vec![0; 4 * HEAD];
    while let Some(count) = stream.read(&mut buffer).await? {
        received.take(&buffer[..count]);
        if count == buffer.len() {
            buffer.resize(CHUNK, 0);
        }
    }
    Ok(received)
}

/// Sends a number and so many bytes behind it; of the number only what there is room for in `all`.
pub async fn send(stream: &mut SendStream, number: u64, all: u64) -> Done {
    let head = number.to_be_bytes();
    let first = usize::try_from(all).unwrap_or(HEAD).min(HEAD);
    stream.write_all(&head[..first]).await?;
    let mut left = all - first as u64;
    while left > 0 {
        let count = usize::try_from(left).unwrap_or(CHUNK).min(CHUNK);
        stream.write_chunk(Bytes::from_static(&ZEROS[..count])).await?;
        left -= count as u64;
    }
    stream.finish()?;
    Ok(())
}

/// The body of a small response.
pub fn small_body() -> Bytes {
    Bytes::from_static(&ZEROS[..super::SMALL_BODY])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_may_come_in_pieces() {
        let mut received = Received::default();
        for piece in [&[0, 0, 0][..], &[0, 0, 0, 1], &[2, 9, 9], &[9]] {
            received.take(piece);
        }
        assert_eq!((received.number().unwrap(), received.payload(), received.bytes), (258, 3, 11));
        let mut short = Received::default();
        short.take(&[1; 7]);
        assert!(short.number().is_err());
    }
}
