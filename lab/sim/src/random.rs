//! Derives seeds for random numbers. All of them come from the seed of the run, and each user of
//! random numbers has its own sequence.

/// A kind of user of random numbers. The sequence of a user does not change if other users draw
/// more or fewer numbers.
#[derive(Clone, Copy)]
pub(crate) enum Domain {
    Wire = 1,
    Queue = 2,
    Agent = 3,
}

/// Returns the seed of one user of random numbers in a run.
pub(crate) fn seed(run: u64, domain: Domain, index: u64) -> u64 {
    mix(mix(run, domain as u64), index)
}

/// Combines two numbers. Every bit of the result depends on every bit of both (the finaliser of
/// SplitMix64: G. Steele et al., 2014).
pub(crate) fn mix(one: u64, other: u64) -> u64 {
    let mut sum = one.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(other);
    sum = sum.wrapping_add(0x9e37_79b9_7f4a_7c15);
    sum = (sum ^ (sum >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    sum = (sum ^ (sum >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    sum ^ (sum >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_differ_by_run_domain_and_index() {
        let mut seeds: Vec<u64> = Vec::new();
        for run in 0..20 {
            for domain in [Domain::Wire, Domain::Queue, Domain::Agent] {
                seeds.extend((0..100).map(|index| seed(run, domain, index)));
            }
        }
        seeds.sort_unstable();
        seeds.dedup();
        assert_eq!(seeds.len(), 20 * 3 * 100);
        // The result must stay the same in future versions, so that old runs can be replayed.
        assert_eq!(mix(1, 2), mix(1, 2));
        assert_ne!(mix(1, 2), mix(2, 1));
    }
}
