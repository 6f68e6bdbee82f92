//! Packet numbers that are sent in a space (RFC 9000 s.12.3). Some are skipped.

use rand::Rng;

/// Maximum number of packet numbers that are skipped at once. The skipped numbers must be stored.
const MAX_SKIP: u64 = 64;

/// Maximum number of packets between two skipped numbers.
const MAX_SKIP_DISTANCE: u64 = 8192;

/// Packet numbers of one space.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PacketNumbers {
    next: u64,
    /// The next number to skip (RFC 9000 s.21.4). `None` if it is not chosen yet.
    skip: Option<u64>,
}

impl PacketNumbers {
    /// Returns the lowest number that was not used or skipped.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// Returns the number of the next packet by default. Numbers are skipped from time to time, to
    /// detect a peer that acknowledges packets it has not received (RFC 9000 s.21.4).
    pub(super) fn choose(&mut self, rng: &mut impl Rng) -> u64 {
        // Skips are frequent at first, when the window grows fastest, and then become rare.
        let mut later =
            |from: u64| from + rng.random_range(1..=(2 * from).clamp(16, MAX_SKIP_DISTANCE));
        let next = self.next;
        let skip = self.skip.unwrap_or_else(|| later(next));
        let number = next + u64::from(skip == next);
        self.skip = Some(if skip <= next { later(number) } else { skip });
        number
    }

    /// Uses the number `wanted` for a packet. If it was used or would skip too many, uses the
    /// nearest permitted number. Returns the number used.
    #[inline]
    pub(super) fn take(&mut self, wanted: u64) -> u64 {
        let number = wanted.clamp(self.next, self.next + MAX_SKIP);
        self.next = number + 1;
        number
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    use super::*;

    #[test]
    fn packet_number_gaps_grow_and_no_number_is_used_twice() {
        for seed in 0..50 {
            let mut rng = StdRng::seed_from_u64(seed);
            let mut numbers = PacketNumbers::default();
            let (mut skipped, mut last) = (Vec::new(), None);
            for _ in 0..50_000 {
                let chosen = numbers.choose(&mut rng);
                let number = numbers.take(chosen);
                assert_eq!(number, chosen, "seed {seed}");
                let expected = last.map_or(0, |last| last + 1);
                assert!(number == expected || number == expected + 1, "seed {seed}");
                skipped.extend((number > expected).then_some(expected));
                last = Some(number);
            }
            assert!(skipped[0] <= 16, "seed {seed}: {skipped:?}");
            let far = skipped.windows(2).all(|two| two[1] - two[0] <= MAX_SKIP_DISTANCE + 1);
            assert!(far && skipped.len() >= 6, "seed {seed}: {skipped:?}");
        }
    }

    #[test]
    fn packet_number_of_a_hook_is_bounded() {
        let mut numbers = PacketNumbers::default();
        assert_eq!((numbers.take(0), numbers.take(0), numbers.next()), (0, 1, 2));
        assert_eq!((numbers.take(u64::MAX), numbers.next()), (66, 67));
        assert_eq!((numbers.take(70), numbers.take(3)), (70, 71));
    }
}
