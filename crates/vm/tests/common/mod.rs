//! Helpers that the tests share.
#![allow(dead_code, reason = "each test program takes what it needs")]

pub(crate) mod asm;
pub(crate) mod generator;

use std::sync::Arc;

use equic_vm::{Config, Engine, HelperHost, Helpers, Instance, Program};

/// Both engines.
pub(crate) const ENGINES: [Engine; 2] = [Engine::Interpreter, Engine::Auto];

/// Returns the seed from the environment variable EQUIC_SEED, or a new one. Prints the seed in both
/// cases, so that a failure can be repeated.
pub(crate) fn seed() -> u64 {
    let seed = match std::env::var("EQUIC_SEED") {
        Ok(seed) => seed.parse().expect("EQUIC_SEED is a number"),
        Err(_) => rand::random_range(0..1 << 32),
    };
    eprintln!("EQUIC_SEED={seed}");
    seed
}

/// Returns the number of cases from the environment variable EQUIC_CASES, or `default`.
pub(crate) fn cases(default: u64) -> u64 {
    match std::env::var("EQUIC_CASES") {
        Ok(cases) => cases.parse().expect("EQUIC_CASES is a number"),
        Err(_) => default,
    }
}

/// Returns the default configuration with this engine.
pub(crate) fn config(engine: Engine) -> Config {
    let mut config = Config::default();
    config.engine = engine;
    config
}

/// Creates an instance of a program in assembler that calls no helpers.
pub(crate) fn instance(text: &str, engine: Engine) -> Instance<()> {
    instance_with(text, engine, Helpers::new())
}

/// Creates an instance of a program in assembler that may call `helpers`.
pub(crate) fn instance_with<H: HelperHost>(
    text: &str,
    engine: Engine,
    helpers: Helpers<H>,
) -> Instance<H> {
    let code = asm::assemble(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let program = Program::from_code(&code, Arc::new(helpers), &config(engine));
    program.unwrap_or_else(|error| panic!("{error}\n{text}")).instantiate().unwrap()
}
