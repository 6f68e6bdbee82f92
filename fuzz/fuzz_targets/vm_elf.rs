//! Loads any bytes as an object file. Nothing may panic, and a program that can be loaded must stay
//! inside its sandbox.
#![no_main]

use std::sync::Arc;

use equic_vm::{Caller, Config, Helpers, Program};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut helpers = Helpers::<()>::new();
    let add = |_: &mut Caller<'_, ()>, a: u64, b: u64| Ok(a.wrapping_add(b));
    helpers.add(3, "host_add", 1, add).expect("the first one");
    let Ok(program) = Program::load(data, Arc::new(helpers), &Config::default()) else { return };
    let mut instance = program.instantiate().expect("memory");
    for name in program.entries() {
        let entry = program.entry(name).expect("each name is an entry");
        let _ = instance.call(entry, [1; 5], &mut 10_000, &mut ());
    }
});
