//! Content of transfers that both ends know, so that a receiver can check every byte, in virtual and in real
//! time.

/// Bytes that are written and read at a time.
pub const CHUNK: usize = 16 * 1024;

/// The content begins anew after so many bytes: a prime, so that no packet or page is like another.
const PERIOD: usize = 251;

/// Bytes of a transfer or stream from one offset up to another, but no more than a [`CHUNK`] of them. Empty where the
/// second offset is not behind the first.
///
/// ```
/// use equic_sim::payload;
///
/// assert_eq!(payload::between(250, 253), [250, 0, 1]);
/// assert_eq!(payload::between(0, u64::MAX).len(), payload::CHUNK);
/// ```
pub fn between(from: u64, to: u64) -> &'static [u8] {
    static BYTES: [u8; CHUNK + PERIOD] = {
        let mut bytes = [0; CHUNK + PERIOD];
        let mut index = 0;
        while index < bytes.len() {
            bytes[index] = (index % PERIOD) as u8;
            index += 1;
        }
        bytes
    };
    let begin = (from % PERIOD as u64) as usize;
    let count = to.saturating_sub(from).min(CHUNK as u64) as usize;
    &BYTES[begin..begin + count]
}
