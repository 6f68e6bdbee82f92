//! Decides the order of the measurements, for all kinds of floods.

use rand::SeedableRng as _;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom as _;

use super::arms::Arms;
use super::progress::Progress;
use crate::failure::Result;

/// Measures every arm at every rate in each round. A rate is in Initial packets per second, and
/// `None` means as fast as the attacker's CPU can send. Each round has another random order, so
/// that a machine that gets warmer or busier does not bias the arms that come last. The same `seed`
/// gives the same orders.
pub(super) fn measure_all<A: Arms, C>(
    rates: &[Option<u64>],
    rounds: usize,
    seed: u64,
    mut measure: impl FnMut(usize, A, Option<u64>) -> Result<C>,
) -> Result<Vec<C>> {
    let mut order: Vec<(Option<u64>, A)> =
        rates.iter().flat_map(|pps| A::ALL.iter().map(|arm| (*pps, *arm))).collect();
    let progress = Progress::new(rounds * order.len());
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut cells = Vec::with_capacity(rounds * order.len());
    for round in 0..rounds {
        order.shuffle(&mut rng);
        for &(pps, arm) in &order {
            progress.begin(arm.title(), pps);
            let about = format!("round {}, {}", round + 1, arm.title());
            cells.push(measure(round, arm, pps).map_err(|error| error.about(&about))?);
            progress.done();
        }
    }
    Ok(cells)
}

#[cfg(test)]
mod tests {
    use super::super::plan::Arm;
    use super::*;

    fn orders(seed: u64) -> Vec<Vec<(Arm, Option<u64>)>> {
        let rates = [Some(1_000), None];
        let cells = measure_all(&rates, 3, seed, |round, arm, pps| Ok((round, (arm, pps))));
        let cells = cells.unwrap();
        let of = |round| cells.iter().filter(move |cell| cell.0 == round).map(|cell| cell.1);
        (0..3).map(|round| of(round).collect()).collect()
    }

    #[test]
    fn flood_rounds_have_each_arm_once_in_seeded_order() {
        let rounds = orders(1);
        assert_ne!(rounds[0], rounds[1]);
        assert_eq!(rounds, orders(1));
        assert_ne!(rounds, orders(2));
        for mut round in rounds {
            round.sort_unstable();
            round.dedup();
            assert_eq!(round.len(), 2 * Arm::ALL.len());
        }
    }
}
