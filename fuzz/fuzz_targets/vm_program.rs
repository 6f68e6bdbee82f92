//! Runs any bytes as a program on both engines of equic-vm, the interpreter and the compiler. Both
//! must have the same effect, within the budget and the sandbox.
#![no_main]

use std::sync::Mutex;

use libfuzzer_sys::fuzz_target;

#[allow(dead_code, reason = "the tests use more of it")]
#[path = "../../crates/vm/tests/common/mod.rs"]
mod common;

static ARENA: Mutex<Option<common::generator::Arena>> = Mutex::new(None);

fuzz_target!(|data: &[u8]| {
    let Some((seed, code)) = data.split_first_chunk::<8>() else { return };
    let code = &code[..code.len() / 8 * 8];
    let mut arena = ARENA.lock().expect("one thread");
    let arena = arena.get_or_insert_default();
    arena.play(code, u64::from_le_bytes(*seed));
    arena.intact();
});
