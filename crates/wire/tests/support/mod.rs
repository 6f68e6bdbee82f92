//! Helpers that the tests share.
#![allow(dead_code, reason = "each test program takes what it needs")]

pub(crate) mod frames;
pub(crate) mod laws;
pub(crate) mod strategies;

use proptest::strategy::Strategy;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};
use rand::Rng;

/// Returns the seed from the environment variable EQUIC_SEED, or a new one. Prints the seed in both
/// cases, so that a failure can be repeated.
pub(crate) fn seed() -> u64 {
    let seed = match std::env::var("EQUIC_SEED") {
        Ok(seed) => seed.parse().expect("EQUIC_SEED is a number"),
        Err(_) => rand::rng().random_range(0..1 << 32),
    };
    eprintln!("EQUIC_SEED={seed}");
    seed
}

/// Returns the number of cases from the environment variable EQUIC_CASES, or `default`.
pub(crate) fn cases(default: u32) -> u32 {
    match std::env::var("EQUIC_CASES") {
        Ok(cases) => cases.parse().expect("EQUIC_CASES is a number"),
        Err(_) => default,
    }
}

/// Checks that `law` holds for values of `strategy`. If a value breaks it, searches for a simpler
/// value that also does.
pub(crate) fn check<S: Strategy>(strategy: S, law: impl Fn(S::Value)) {
    let mut key = [0; 32];
    key[..8].copy_from_slice(&seed().to_le_bytes());
    let config = Config { cases: cases(2_000), failure_persistence: None, ..Config::default() };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &key);
    let law = |value| {
        law(value);
        Ok::<(), TestCaseError>(())
    };
    if let Err(failed) = TestRunner::new_with_rng(config, rng).run(&strategy, law) {
        panic!("{failed}");
    }
}

/// Decodes hexadecimal.
pub(crate) fn hex(text: &str) -> Vec<u8> {
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
        .collect()
}
