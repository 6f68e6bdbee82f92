//! Nonces for connection IDs. No nonce repeats before all possible nonces have been used. An
//! observer without the key cannot tell which two nonces were made one after the other (RFC 9000
//! s.5.1).
//!
//! A nonce is a counter that a Feistel network permutes, with SipHash as its round function. Random
//! nonces of this length would collide after a few thousand IDs.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::ring::{Key, RingError};

/// Number of rounds of the Feistel network. Luby and Rackoff's proof needs four, but its halves can
/// be as short as 12 bits here.
const ROUNDS: u8 = 8;

pub(crate) struct Nonces {
    key: Key,
    next: AtomicU64,
    /// Length of each half of the network, in bits: 12 to 60.
    half: u32,
}

impl Nonces {
    /// Creates a sequence of nonces that are `bytes` bytes long, from 3 to 15.
    pub(crate) fn new(bytes: usize) -> Result<Nonces, RingError> {
        let key = Key::random()?;
        Ok(Nonces { key, next: AtomicU64::new(0), half: 4 * bytes.clamp(3, 15) as u32 })
    }

    /// Returns the next nonce as a number. The lowest byte is the nonce's first byte.
    pub(crate) fn next(&self) -> u128 {
        self.permute(self.next.fetch_add(1, Ordering::Relaxed))
    }

    fn permute(&self, number: u64) -> u128 {
        let mask = (1 << self.half) - 1;
        let number = u128::from(number);
        let (mut left, mut right) = ((number >> self.half) as u64 & mask, number as u64 & mask);
        for round in 0..ROUNDS {
            let mut message = [round; 9];
            message[1..].copy_from_slice(&right.to_le_bytes());
            (left, right) = (right, left ^ self.key.hash(&message) & mask);
        }
        u128::from(left) << self.half | u128::from(right)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn nonce_never_repeats_and_uses_all_bits() {
        for bytes in [3, 4, 9, 15] {
            let nonces = Nonces::new(bytes).unwrap();
            let all: BTreeSet<u128> = (0..20_000).map(|_| nonces.next()).collect();
            assert_eq!(all.len(), 20_000, "{bytes} bytes");
            let bits = all.iter().fold(0, |bits, nonce| bits | nonce);
            assert_eq!(bits, (1 << (8 * bytes)) - 1, "{bytes} bytes");
        }
    }

    #[test]
    fn nonce_has_nothing_in_common_with_the_next() {
        let nonces = Nonces::new(8).unwrap();
        let pairs = 4096;
        let differing: u32 = (0..pairs).map(|_| (nonces.next() ^ nonces.next()).count_ones()).sum();
        // Random words differ in 32 of 64 bits on average. The standard error of this mean is 1/16.
        let mean = f64::from(differing) / f64::from(pairs);
        assert!((mean - 32.0).abs() < 0.7, "{mean} of 64 bits differ");
    }
}
