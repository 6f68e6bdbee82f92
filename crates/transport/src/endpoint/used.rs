//! Tokens of NEW_TOKEN frames that were used: each is valid once in a process (RFC 9000 s.8.1.3).

use std::collections::BTreeSet;
use std::time::Duration;

use crate::crypto::CLOCK_SKEW;

/// Remembers in two generations, so that it is bounded and yet nothing is good twice: when a whole
/// generation is forgotten, so are all tokens that were made before its end. Times are since the
/// Unix epoch.
#[derive(Debug, Default)]
pub(super) struct UsedTokens {
    recent: BTreeSet<u64>,
    earlier: BTreeSet<u64>,
    /// Time at which the `recent` generation began.
    began: Duration,
    /// Tokens made up to this time count as used, because their record may be gone. `None` if no
    /// record is gone.
    forgotten: Option<Duration>,
}

impl UsedTokens {
    /// Spends a token; returns whether it was unused before. `token`: its first bytes, which are
    /// pseudorandom; `made`: time at which it was given out, by the clock of the server that did;
    /// `capacity`: of a generation; `lifetime`: of any token.
    pub(super) fn spend(
        &mut self,
        now: Duration,
        token: u64,
        made: Duration,
        capacity: usize,
        lifetime: Duration,
    ) -> bool {
        let forgotten = self.forgotten.is_some_and(|until| made <= until);
        if forgotten || self.recent.contains(&token) || self.earlier.contains(&token) {
            return false;
        }
        if self.recent.len() >= capacity.max(1) || now.saturating_sub(self.began) >= lifetime {
            if !self.earlier.is_empty() {
                // They were spent before this generation began, but the clock that they were made
                // by may be ahead.
                self.forgotten = Some(self.began.saturating_add(CLOCK_SKEW));
            }
            self.earlier = std::mem::take(&mut self.recent);
            self.began = now;
        }
        self.recent.insert(token)
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    const START: Duration = Duration::from_secs(1_800_000_000);
    const LIFETIME: Duration = Duration::from_secs(100);
    const CAPACITY: usize = 50;

    fn spend(used: &mut UsedTokens, now: Duration, token: u64, made: Duration) -> bool {
        used.spend(now, token, made, CAPACITY, LIFETIME)
    }

    #[test]
    fn token_used_is_not_good_twice_and_memory_is_bounded() {
        let seed = match std::env::var("EQUIC_SEED") {
            Ok(seed) => seed.parse().expect("EQUIC_SEED is a number"),
            Err(_) => 1,
        };
        let mut rng = StdRng::seed_from_u64(seed);
        let (mut used, mut now) = (UsedTokens::default(), START);
        let (mut given, mut spent) = (Vec::new(), BTreeSet::new());
        for _ in 0..20_000 {
            now += Duration::from_millis(rng.random_range(0..1000));
            // By clocks that differ by as much as is tolerated.
            let made = now + CLOCK_SKEW * rng.random_range(0..2);
            given.push((rng.random::<u64>(), made));
            // Old ones and new ones, some for the second time.
            let back = given.len() - 1 - rng.random_range(0..given.len().min(200));
            let (token, made) = given[back];
            if spend(&mut used, now, token, made) {
                assert!(spent.insert(token), "EQUIC_SEED={seed}: used twice");
            }
            assert!(used.recent.len() + used.earlier.len() <= 2 * CAPACITY);
        }
        assert!(spent.len() > 1000, "EQUIC_SEED={seed}: {} were taken", spent.len());
    }

    #[test]
    fn token_used_at_a_quiet_server_is_forgotten_in_time() {
        let mut used = UsedTokens::default();
        let second = Duration::from_secs(1);
        assert!(spend(&mut used, START + LIFETIME / 2, 1, START));
        assert!(spend(&mut used, START + LIFETIME - second, 2, START + second));
        for later in [LIFETIME * 2, LIFETIME * 3, LIFETIME * 4] {
            let now = START + later;
            assert!(spend(&mut used, now, later.as_secs(), now));
            assert!(!spend(&mut used, now, later.as_secs(), now));
        }
        assert_eq!((used.recent.len(), used.earlier.len()), (1, 1));
    }
}
