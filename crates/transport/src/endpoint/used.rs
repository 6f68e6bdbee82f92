//! Remembers used NEW_TOKEN tokens, so that each token is valid only once in a process (RFC 9000
//! s.8.1.3).

use std::collections::BTreeSet;
use std::time::Duration;

use crate::crypto::CLOCK_SKEW;

/// Used tokens, in two generations, which limits the memory. When the older generation is
/// discarded, all tokens that were issued before its end are rejected from then on, so no token is
/// accepted twice. Times are since the Unix epoch.
#[derive(Debug, Default)]
pub(super) struct UsedTokens {
    recent: BTreeSet<u64>,
    earlier: BTreeSet<u64>,
    /// Time at which the newer generation of used tokens, `recent`, began.
    began: Duration,
    /// Tokens issued up to this time are treated as used, because the record of their use may have
    /// been discarded. `None` if no record was discarded.
    forgotten: Option<Duration>,
}

impl UsedTokens {
    /// Marks a token as used. Returns true if it was unused before.
    ///
    /// * `token`: the token's first bytes, which are pseudorandom;
    /// * `made`: the time at which the token was issued, by the clock of the server that issued it;
    /// * `capacity`: the largest number of tokens in a generation;
    /// * `lifetime`: the lifetime of tokens.
    // RFC 9000 s.8.1.4 #6
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
                // The discarded tokens were used before this generation began. They may seem to be
                // issued later than that, because the clock of the server that issued them may be
                // ahead.
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

    // RFC 9000 s.8.1.4 #6 #8
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
            // The clock of the server that issues a token is correct, or ahead by the largest
            // tolerated difference.
            let made = now + CLOCK_SKEW * rng.random_range(0..2);
            given.push((rng.random::<u64>(), made));
            // Present old and new tokens, some of them for the second time.
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
