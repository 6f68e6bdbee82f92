//! Tokens of NEW_TOKEN frames that were brought back: each is good once (RFC 9000 s.8.1.3).

use std::collections::BTreeSet;
use std::time::Duration;

use crate::Timestamp;

/// Remembers in two generations, so that it is bounded and yet nothing is good twice: when a whole
/// generation is forgotten, so are all tokens that were made before its end.
#[derive(Debug)]
pub(super) struct UsedTokens {
    recent: BTreeSet<u64>,
    earlier: BTreeSet<u64>,
    /// Time at which the `recent` generation began.
    began: Timestamp,
    /// Tokens made up to this time count as used, since their record is gone; none: no record is gone yet.
    forgotten: Option<Timestamp>,
    /// Of a generation.
    capacity: usize,
    lifetime: Duration,
}

impl UsedTokens {
    /// `capacity` of a generation; no token is good for longer than `lifetime`.
    pub(super) fn new(capacity: usize, lifetime: Duration) -> UsedTokens {
        UsedTokens {
            recent: BTreeSet::new(),
            earlier: BTreeSet::new(),
            began: Timestamp::START,
            forgotten: None,
            capacity: capacity.max(1),
            lifetime,
        }
    }

    /// Spends a token, named by the first bytes of its random salt; returns whether it was unused before.
    /// `made`: time at which the token was given out.
    pub(super) fn spend(&mut self, now: Timestamp, token: u64, made: Timestamp) -> bool {
        let forgotten = self.forgotten.is_some_and(|until| made <= until);
        if forgotten || self.recent.contains(&token) || self.earlier.contains(&token) {
            return false;
        }
        if self.recent.len() == self.capacity || now.since(self.began) >= self.lifetime {
            self.earlier = std::mem::take(&mut self.recent);
            self.forgotten = Some(self.began);
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

    const LIFETIME: Duration = Duration::from_secs(100);

    #[test]
    fn none_is_good_twice_and_memory_is_bounded() {
        let seed = match std::env::var("EQUIC_SEED") {
            Ok(seed) => seed.parse().expect("EQUIC_SEED is a number"),
            Err(_) => 1,
        };
        let mut rng = StdRng::seed_from_u64(seed);
        let (mut used, mut now) = (UsedTokens::new(50, LIFETIME), Timestamp::START);
        let (mut given, mut spent) = (Vec::new(), BTreeSet::new());
        for _ in 0..20_000 {
            now += Duration::from_millis(rng.random_range(0..50));
            given.push((rng.random::<u64>(), now));
            // Old ones and new ones, some for the second time.
            let back = given.len() - 1 - rng.random_range(0..given.len().min(200));
            let (token, made) = given[back];
            if used.spend(now, token, made) {
                assert!(spent.insert(token), "EQUIC_SEED={seed}: used twice");
            }
            assert!(used.recent.len() + used.earlier.len() <= 100);
        }
        assert!(spent.len() > 1000, "EQUIC_SEED={seed}: {} were taken", spent.len());
    }

    #[test]
    fn a_quiet_server_takes_old_ones_and_forgets_in_time() {
        let mut used = UsedTokens::new(50, LIFETIME);
        let (start, second) = (Timestamp::START, Duration::from_secs(1));
        assert!(used.spend(start + LIFETIME / 2, 1, start));
        assert!(used.spend(start + LIFETIME - second, 2, start + second));
        for later in [LIFETIME, LIFETIME * 2, LIFETIME * 3] {
            let now = start + later;
            assert!(used.spend(now, later.as_secs(), now));
            assert!(!used.spend(now, later.as_secs(), now));
        }
        assert_eq!((used.recent.len(), used.earlier.len()), (1, 1));
    }
}
