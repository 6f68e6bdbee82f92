//! Builds test programs that run one instruction many times with different registers, and save each
//! result.

use super::Vector;
use crate::common::asm;

/// Position of the first saved result: this number of bytes below the end of the stack. Later
/// results follow at higher addresses.
const RESULTS: i16 = 4_000;

/// A test program under construction.
#[derive(Default)]
pub(crate) struct Sequence {
    code: Vec<u8>,
    results: Vec<u8>,
}

impl Sequence {
    /// Adds an instruction, given in assembler.
    pub(crate) fn run(&mut self, instruction: &str) {
        let code = asm::assemble(instruction).unwrap_or_else(|error| panic!("{error}"));
        self.code.extend_from_slice(&code);
    }

    /// Adds instructions that set registers to values.
    pub(crate) fn set(&mut self, values: &[(u8, u64)]) {
        for &(register, value) in values {
            self.code.extend_from_slice(&asm::slot(0x18, register, 0, 0, value as i32));
            self.code.extend_from_slice(&asm::slot(0, 0, 0, 0, (value >> 32) as i32));
        }
    }

    fn next(&self) -> i16 {
        let next = self.results.len() as i16 - RESULTS;
        assert!(next < -64, "more results than there is room for");
        next
    }

    /// Adds an instruction that saves the value of a register as a result. The value must be
    /// `expected`.
    pub(crate) fn keep(&mut self, register: u8, expected: u64) {
        self.code.extend_from_slice(&asm::slot(0x7b, 10, register, self.next(), 0));
        self.results.extend_from_slice(&expected.to_le_bytes());
    }

    /// Adds a jump, and saves as a result whether it is taken. The distance of the jump must be 2.
    pub(crate) fn jump(&mut self, jump: &str, taken: bool) {
        self.run(jump);
        self.code.extend_from_slice(&asm::slot(0x7a, 10, 0, self.next(), -1));
        self.code.extend_from_slice(&asm::slot(0x05, 0, 0, 1, 0));
        self.code.extend_from_slice(&asm::slot(0x7a, 10, 0, self.next(), 1));
        let expected = if taken { 1 } else { -1 };
        self.results.extend_from_slice(&i64::to_le_bytes(expected));
    }

    /// Completes the program. It returns 99.
    pub(crate) fn end(mut self, row: String, size: u64, before: Vec<(u64, Vec<u8>)>) -> Vector {
        self.run("mov r0, 99\nexit");
        let after = vec![(size - RESULTS as u64, self.results)];
        Vector { row, size, code: self.code, before, after, result: 99 }
    }
}

/// Returns all pairs of different registers that programs can write.
pub(crate) fn pairs() -> impl Iterator<Item = (u8, u8)> {
    (0..10).flat_map(|dst| (0..10).map(move |src| (dst, src))).filter(|(dst, src)| dst != src)
}

/// Returns a register that is neither `dst` nor `src`. It varies with the pair.
pub(crate) fn third(dst: u8, src: u8) -> u8 {
    let first = (3 * dst + 7 * src) % 10;
    (0..10).map(|step| (first + step) % 10).find(|third| ![dst, src].contains(third)).unwrap()
}
