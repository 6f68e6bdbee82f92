//! Generates the content of transfers. Both ends can compute it, so that a receiver can check every
//! byte. Runs in virtual time and in real time use it.

/// Largest number of bytes that one call of [`between`] returns.
pub const CHUNK: usize = 16 * 1024;

/// Period of the content, in bytes. It is a prime, so that successive packets and pages differ.
const PERIOD: usize = 251;

/// Returns the content between two offsets, but at most [`CHUNK`] bytes. Returns an empty slice if
/// `to` is not larger than `from`.
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
