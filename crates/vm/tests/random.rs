//! Runs random programs on both engines. They must have the same effect, end within their budgets,
//! and not access other memory. The environment variable `EQUIC_CASES` sets the number of programs,
//! and `EQUIC_SEED` the first seed. `make vm-random` runs 10^7 programs.

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};

use common::generator::{Arena, Generator, Outcome};

#[test]
fn engines_agree_on_random_programs_and_stay_in_their_memory() {
    let (first, cases) = (common::seed(), common::cases(4_000));
    let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get() as u64);
    let threads = if cases < 100_000 { 1 } else { threads };
    let each = cases / threads;
    let counts = std::thread::scope(|scope| {
        let started: Vec<_> = (0..threads)
            .map(|thread| scope.spawn(move || play(first + thread * each, each)))
            .collect();
        started.into_iter().map(|thread| thread.join().unwrap()).fold([0; 4], |sum, counts| {
            std::array::from_fn(|outcome| sum[outcome] + counts[outcome])
        })
    });
    let [refused, returned, budget, trapped] = counts;
    eprintln!(
        "{refused} refused, {returned} returned, {budget} ended by the budget, {trapped} trapped"
    );
    // The random programs must include some with each kind of result.
    let few = cases / 100;
    assert!(cases < 1_000 || counts.iter().all(|count| *count > few), "{counts:?}");
}

fn play(first: u64, cases: u64) -> [u64; 4] {
    let mut arena = Arena::default();
    let mut counts = [0; 4];
    for seed in first..first + cases {
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            let code = Generator::new(seed).program();
            let outcome = arena.play(&code, seed);
            if seed % 1024 == 0 {
                arena.intact();
            }
            outcome
        }))
        .unwrap_or_else(|_| panic!("EQUIC_SEED={seed} EQUIC_CASES=1 plays it again"));
        counts[match outcome {
            Outcome::Refused => 0,
            Outcome::Returned => 1,
            Outcome::Budget => 2,
            Outcome::Trapped => 3,
        }] += 1;
    }
    arena.intact();
    counts
}
