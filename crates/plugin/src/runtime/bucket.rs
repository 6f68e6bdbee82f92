//! An amount, for example of steps, that refills at a constant rate.

const SECOND: u64 = 1_000_000_000;

/// An amount that is spent, and that refills by `per_second` each second up to `most`. It becomes
/// negative if more is spent than is left.
#[derive(Clone, Debug)]
pub(crate) struct Bucket {
    per_second: u64,
    most: i64,
    left: i64,
    /// Time up to which the amount has been refilled, in nanoseconds on the connection's clock.
    counted_to: u64,
}

impl Bucket {
    /// Returns a full bucket, which holds the amount `most`.
    pub(crate) fn new(per_second: u64, most: u64) -> Bucket {
        let most = amount(most);
        Bucket { per_second, most, left: most, counted_to: 0 }
    }

    /// Refills the bucket up to the time `now`. The clocks of the process's sockets differ by
    /// constant offsets. Only the latest time counts, so no order of calls makes the bucket refill
    /// faster.
    pub(crate) fn refill(&mut self, now: u64) {
        let elapsed = now.saturating_sub(self.counted_to);
        let back = u128::from(elapsed) * u128::from(self.per_second) / u128::from(SECOND);
        // A fraction of a unit is not lost: it is added once the unit is complete.
        if back > 0 {
            self.add(u64::try_from(back).unwrap_or(u64::MAX));
            self.counted_to = now;
        }
    }

    /// Adds an amount to the bucket, up to the bucket's maximum.
    pub(super) fn add(&mut self, more: u64) {
        self.left = self.left.saturating_add(amount(more)).min(self.most);
    }

    /// Returns the amount that can be spent.
    pub(crate) fn left(&self) -> u64 {
        u64::try_from(self.left).unwrap_or(0)
    }

    /// Returns the maximum amount that the bucket can hold.
    pub(super) fn most(&self) -> u64 {
        u64::try_from(self.most).unwrap_or(0)
    }

    /// Spends an amount, even if less than this amount is left.
    pub(crate) fn spend(&mut self, spent: u64) {
        self.left = self.left.saturating_sub(amount(spent)).max(-self.most);
    }

    /// Returns true if the bucket is full at `now`.
    pub(super) fn is_full(&mut self, now: u64) -> bool {
        self.refill(now);
        self.left == self.most
    }
}

fn amount(unsigned: u64) -> i64 {
    i64::try_from(unsigned).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bucket_refills_at_its_rate_up_to_its_capacity() {
        let mut bucket = Bucket::new(1_000, 500);
        assert_eq!(bucket.left(), 500);
        bucket.spend(500);
        bucket.refill(SECOND / 10);
        assert_eq!(bucket.left(), 100);
        // Many short refills must not lose fractions of a unit.
        (1..=1_000).for_each(|at| bucket.refill(SECOND / 10 + at * 100_000));
        assert_eq!(bucket.left(), 200);
        bucket.refill(3_600 * SECOND);
        assert_eq!(bucket.left(), 500);
        assert!(bucket.is_full(3_600 * SECOND));
    }

    #[test]
    fn bucket_pays_debts_first() {
        let mut bucket = Bucket::new(1_000, 500);
        bucket.spend(700);
        assert_eq!(bucket.left(), 0);
        bucket.refill(SECOND / 10);
        assert_eq!(bucket.left(), 0);
        bucket.refill(SECOND * 3 / 10);
        assert_eq!(bucket.left(), 100);
    }

    #[test]
    fn bucket_does_not_refill_faster_from_differing_clocks() {
        let mut bucket = Bucket::new(1_000, 500);
        bucket.spend(500);
        for step in 1..=100 {
            bucket.refill(SECOND + step * 1_000_000);
            bucket.refill(step * 1_000_000);
        }
        bucket.spend(500);
        bucket.refill(SECOND + 100_000_000);
        assert_eq!(bucket.left(), 0);
    }

    #[test]
    fn bucket_without_limit_does_not_overflow() {
        let mut bucket = Bucket::new(u64::MAX, u64::MAX);
        bucket.spend(u64::MAX);
        bucket.refill(u64::MAX);
        assert!(bucket.left() > u64::MAX / 4);
    }
}
