//! Tests the effect of each instruction, with the numbers that RFC 9669 prescribes. Single
//! instructions are rows in the text files of this folder, and whole programs are in `programs.rs`.
//! Each row runs on both engines with many choices of registers, and the whole memory is compared
//! afterwards. Every instruction that the structural check accepts must have a row.

#[path = "../common/mod.rs"]
mod common;
mod memory;
mod programs;
mod registers;
mod sequence;

use std::collections::BTreeSet;
use std::sync::Arc;

use common::{ENGINES, asm};
use equic_vm::{Caller, Config, Engine, Helpers, Program, Region};

/// Sandbox sizes in bytes: the default size, whose mask is compiled specially, and another size.
const SIZES: [u64; 2] = [64 << 10, 16 << 10];

/// A test program with its expected result.
struct Vector {
    /// The row of the text file that the program tests.
    row: String,
    /// Size of the sandbox in bytes.
    size: u64,
    code: Vec<u8>,
    /// Memory before the program runs: these bytes at these offsets, and zeros elsewhere.
    before: Vec<(u64, Vec<u8>)>,
    /// Memory after the program ran: only these bytes at these offsets may have changed.
    after: Vec<(u64, Vec<u8>)>,
    result: u64,
}

/// Registers helper 7, which returns a number that depends on each of its arguments.
fn helpers() -> Helpers<()> {
    let mut helpers = Helpers::<()>::new();
    let digits = |_: &mut Caller<'_, ()>, a: u64, b: u64, c: u64, d: u64, e: u64| {
        Ok(a * 10_000 + b * 1_000 + c * 100 + d * 10 + e)
    };
    helpers.add(7, "digits", 1, digits).unwrap();
    helpers
}

fn config(engine: Engine, size: u64) -> Config {
    let mut config = common::config(engine);
    config.memory = size as usize;
    config
}

/// Returns the rows of a file, split into words, without empty lines and comments.
fn rows(text: &str) -> impl Iterator<Item = Vec<&str>> {
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| line.split(' ').collect())
}

fn number(word: &str) -> u64 {
    asm::number(word).unwrap_or_else(|| panic!("`{word}` is no number")) as u64
}

fn overlay(image: &mut [u8], pieces: &[(u64, Vec<u8>)]) {
    for (offset, bytes) in pieces {
        let offset = *offset as usize;
        image[offset..offset + bytes.len()].copy_from_slice(bytes);
    }
}

fn play(vectors: &[Vector]) {
    assert!(!vectors.is_empty());
    let helpers = Arc::new(helpers());
    for vector in vectors {
        let (row, size) = (&vector.row, vector.size);
        let mut expected = vec![0; size as usize];
        overlay(&mut expected, &vector.before);
        overlay(&mut expected, &vector.after);
        for engine in ENGINES {
            let program =
                Program::from_code(&vector.code, Arc::clone(&helpers), &config(engine, size));
            let program = program.unwrap_or_else(|error| panic!("{row}: {error}"));
            let mut instance = program.instantiate().unwrap();
            let all = Region::new(0, size);
            overlay(instance.memory().write(all).unwrap(), &vector.before);
            let main = program.entry("main").unwrap();
            let result = instance.call(main, [1, 2, 3, 4, 5], &mut 100_000, &mut ());
            assert_eq!(result, Ok(vector.result), "{row}: the result on {engine:?}");
            let memory = instance.memory();
            let found = memory.read(all).unwrap();
            let differs = |offset: &usize| found[*offset] != expected[*offset];
            if found != expected
                && let Some(offset) = (0..expected.len()).find(differs)
            {
                // Results are words of eight bytes, so the error message shows the whole word.
                let word = offset & !7..(offset & !7) + 8;
                let (found, expected) = (&found[word.clone()], &expected[word.clone()]);
                panic!("{row}: on {engine:?}, {found:x?} instead of {expected:x?} at {word:?}");
            }
        }
    }
}

#[test]
fn vectors_of_64_bit_arithmetic() {
    play(&registers::arithmetic64());
}

#[test]
fn vectors_of_32_bit_arithmetic() {
    play(&registers::arithmetic32());
}

#[test]
fn vectors_of_negation_and_byte_swaps() {
    play(&registers::unary());
}

#[test]
fn vectors_of_moves_with_sign_extension() {
    play(&registers::extend());
}

#[test]
fn vectors_of_64_bit_jumps() {
    play(&registers::jumps64());
}

#[test]
fn vectors_of_32_bit_jumps() {
    play(&registers::jumps32());
}

#[test]
fn vectors_of_loads() {
    play(&memory::loads());
}

#[test]
fn vectors_of_stores() {
    play(&memory::stores());
}

#[test]
fn vectors_of_atomic_operations() {
    play(&memory::atomic());
}

#[test]
fn vectors_of_compare_and_exchange() {
    play(&memory::compare_exchange());
}

#[test]
fn vectors_of_whole_programs() {
    play(&programs::programs());
}

/// Returns the opcode of an instruction, and the value of the field that distinguishes instructions
/// with the same opcode.
fn kind(slot: &[u8]) -> (u8, i32) {
    let offset = i32::from(i16::from_le_bytes([slot[2], slot[3]]));
    let imm = i32::from_le_bytes([slot[4], slot[5], slot[6], slot[7]]);
    let chosen = match slot[0] {
        // LDDW, CALL
        0x18 | 0x85 => i32::from(slot[1] >> 4),
        // For byte swaps and atomic instructions, the immediate distinguishes them.
        0xd4 | 0xd7 | 0xdc | 0xc3 | 0xdb => imm,
        // Other arithmetic
        opcode if matches!(opcode & 7, 4 | 7) => offset,
        _ => 0,
    };
    (slot[0], chosen)
}

/// Returns `true` if the check accepts this instruction. The instruction uses only the registers r0
/// and r1.
fn accepted(slot: [u8; 8], helpers: &Arc<Helpers<()>>) -> bool {
    let exit = asm::slot(0x95, 0, 0, 0, 0);
    // LDDW needs its second half here. All other instructions are followed by `exit`, so that jumps
    // and calls have a valid target.
    let next = if slot[0] == 0x18 { [0; 8] } else { exit };
    let code = [slot, next, exit, exit].concat();
    let config = config(Engine::Interpreter, SIZES[1]);
    Program::from_code(&code, Arc::clone(helpers), &config).is_ok()
}

#[test]
fn vectors_cover_every_accepted_instruction() {
    let all = [
        registers::arithmetic64(),
        registers::arithmetic32(),
        registers::unary(),
        registers::extend(),
        registers::jumps64(),
        registers::jumps32(),
        memory::loads(),
        memory::stores(),
        memory::atomic(),
        memory::compare_exchange(),
        programs::programs(),
    ];
    let mut played = BTreeSet::new();
    for vector in all.iter().flatten() {
        let mut slots = vector.code.chunks_exact(8);
        while let Some(slot) = slots.next() {
            played.insert(kind(slot));
            if slot[0] == 0x18 {
                slots.next();
            }
        }
    }

    let helpers = Arc::new(helpers());
    let mut known = BTreeSet::new();
    for opcode in 0..=255 {
        for src in [0, 1] {
            // The values that distinguish instructions are small: offsets are at most 32, and
            // operations at most 0xf1. So these loops try all of them.
            let offsets = (0..=64).map(|offset| (offset, 0));
            for (offset, imm) in offsets.chain((1..=0x100).map(|imm| (0, imm))) {
                let slot = asm::slot(opcode, 0, src, offset, imm);
                if accepted(slot, &helpers) {
                    known.insert(kind(&slot));
                }
            }
        }
    }
    let missing: Vec<_> = known.difference(&played).collect();
    assert!(missing.is_empty(), "instructions without a row (opcode, field): {missing:x?}");
    // The sets must also be equal: each instruction that has a row must be among those that the
    // loops tried.
    assert_eq!(known, played);
}
