//! Programs that try one instruction many times, with other registers each time, and keep what comes of it.

use super::Vector;
use crate::common::asm;

/// Offset of the results in the stack: this far below its end, going upwards.
const RESULTS: i16 = 4_000;

/// A program in the making.
#[derive(Default)]
pub(crate) struct Sequence {
    code: Vec<u8>,
    results: Vec<u8>,
}

impl Sequence {
    /// An instruction in assembler.
    pub(crate) fn run(&mut self, instruction: &str) {
        let code = asm::assemble(instruction).unwrap_or_else(|error| panic!("{error}"));
        self.code.extend_from_slice(&code);
    }

    /// Gives registers values.
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

    /// Keeps what a register holds, which has to be `expected`.
    pub(crate) fn keep(&mut self, register: u8, expected: u64) {
        self.code.extend_from_slice(&asm::slot(0x7b, 10, register, self.next(), 0));
        self.results.extend_from_slice(&expected.to_le_bytes());
    }

    /// Keeps whether a jump, whose distance has to be 2, is taken.
    pub(crate) fn jump(&mut self, jump: &str, taken: bool) {
        self.run(jump);
        self.code.extend_from_slice(&asm::slot(0x7a, 10, 0, self.next(), -1));
        self.code.extend_from_slice(&asm::slot(0x05, 0, 0, 1, 0));
        self.code.extend_from_slice(&asm::slot(0x7a, 10, 0, self.next(), 1));
        let expected = if taken { 1 } else { -1 };
        self.results.extend_from_slice(&i64::to_le_bytes(expected));
    }

    /// The whole of it: it returns 99.
    pub(crate) fn end(mut self, row: String, size: u64, before: Vec<(u64, Vec<u8>)>) -> Vector {
        self.run("mov r0, 99\nexit");
        let after = vec![(size - RESULTS as u64, self.results)];
        Vector { row, size, code: self.code, before, after, result: 99 }
    }
}

/// All pairs of different registers that can be written.
pub(crate) fn pairs() -> impl Iterator<Item = (u8, u8)> {
    (0..10).flat_map(|dst| (0..10).map(move |src| (dst, src))).filter(|(dst, src)| dst != src)
}

/// A register that is neither of the two, another one for each pair.
pub(crate) fn third(dst: u8, src: u8) -> u8 {
    let first = (3 * dst + 7 * src) % 10;
    (0..10).map(|step| (first + step) % 10).find(|third| ![dst, src].contains(third)).unwrap()
}
