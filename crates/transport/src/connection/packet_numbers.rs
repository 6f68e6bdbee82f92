//! Numbers of the packets that are sent in a space (RFC 9000 s.12.3), some of which are left out.

use rand::Rng;

/// Most packet numbers that may be left out at once: those left out are remembered.
const MAX_SKIP: u64 = 64;

/// At most so many packets between two numbers left out.
const MAX_SKIP_DISTANCE: u64 = 8192;

/// Packet numbers of one space. Nothing else of it is known here.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PacketNumbers {
    next: u64,
    /// The next one to leave out (RFC 9000 s.21.4); none: not chosen yet.
    skip: Option<u64>,
}

impl PacketNumbers {
    /// The least number that was not used yet.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// The number of the next packet, if nobody wants another. From time to time one is left out, so that a peer
    /// that acknowledges what it has not received is found out (RFC 9000 s.21.4).
    pub(super) fn choose(&mut self, rng: &mut impl Rng) -> u64 {
        // Often in the beginning, when a window grows fastest, then ever more seldom.
        let mut later =
            |from: u64| from + rng.random_range(1..=(2 * from).clamp(16, MAX_SKIP_DISTANCE));
        let next = self.next;
        let skip = self.skip.unwrap_or_else(|| later(next));
        let number = next + u64::from(skip == next);
        self.skip = Some(if skip <= next { later(number) } else { skip });
        number
    }

    /// A packet takes this number, or, if it was used or leaves out too many, the one nearest to it that may be
    /// taken. Returns which.
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
