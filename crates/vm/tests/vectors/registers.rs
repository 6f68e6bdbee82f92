//! Test programs for instructions whose operands are registers and constants: arithmetic and
//! conditional jumps.

use super::sequence::{Sequence, pairs, third};
use super::{SIZES, Vector, number, rows};

/// Value of each register that the instruction does not use. The instruction must not change it.
const OTHER: u64 = 0x5a5a_1234_a5a5_4321;

/// Value for the upper halves of registers, which 32-bit instructions must ignore.
const UPPER: u64 = 0xdead_beef << 32;

pub(crate) fn arithmetic64() -> Vec<Vector> {
    rows(include_str!("arithmetic64.txt")).map(|row| binary(&row, true)).collect()
}

pub(crate) fn arithmetic32() -> Vec<Vector> {
    rows(include_str!("arithmetic32.txt")).map(|row| binary(&row, false)).collect()
}

/// Returns the immediate that has the value of the operand, or `None` if no immediate has it. An
/// immediate is sign-extended to 64 bits (RFC 9669 s.4.1).
fn constant(operand: u64, wide: bool) -> Option<i32> {
    if wide { i32::try_from(operand as i64).ok() } else { Some(operand as i32) }
}

/// Returns values for the upper halves of two registers: zeros, or values that must have no effect.
fn uppers(dst: u8, src: u8, wide: bool) -> (u64, u64) {
    match (wide, (dst + src) % 4) {
        (true, _) | (_, 0) => (0, 0),
        (_, 1) => (UPPER, 0),
        (_, 2) => (0, UPPER),
        _ => (UPPER, !UPPER & !0xffff_ffff),
    }
}

/// Creates the program for a row whose columns are the instruction, dst before, the second operand,
/// and dst afterwards.
fn binary(row: &[&str], wide: bool) -> Vector {
    let [name, left, right, after] = *row else { panic!("{row:?}") };
    let (left, right, after) = (number(left), number(right), number(after));
    let mut sequence = Sequence::default();
    for (dst, src) in pairs() {
        let (upper_left, upper_right) = uppers(dst, src, wide);
        let (other, right) = (third(dst, src), right | upper_right);
        sequence.set(&[(dst, left | upper_left), (src, right), (other, OTHER)]);
        sequence.run(&format!("{name} r{dst}, r{src}"));
        sequence.keep(dst, after);
        sequence.keep(src, right);
        sequence.keep(other, OTHER);
    }
    for dst in 0..10 {
        let (upper, _) = uppers(dst, 0, wide);
        if let Some(imm) = constant(right, wide) {
            sequence.set(&[(dst, left | upper)]);
            sequence.run(&format!("{name} r{dst}, {imm}"));
            sequence.keep(dst, after);
        }
        if left == right {
            sequence.set(&[(dst, left | upper)]);
            sequence.run(&format!("{name} r{dst}, r{dst}"));
            sequence.keep(dst, after);
        }
    }
    sequence.end(row.join(" "), SIZES[1], Vec::new())
}

/// Creates the programs for instructions with one operand. The columns of a row are the
/// instruction, dst before, and dst afterwards.
pub(crate) fn unary() -> Vec<Vector> {
    let vector = |row: Vec<&str>| {
        let [name, before, after] = *row else { panic!("{row:?}") };
        let mut sequence = Sequence::default();
        for dst in 0..10 {
            let other = third(dst, dst);
            sequence.set(&[(dst, number(before)), (other, OTHER)]);
            sequence.run(&format!("{name} r{dst}"));
            sequence.keep(dst, number(after));
            sequence.keep(other, OTHER);
        }
        sequence.end(row.join(" "), SIZES[1], Vec::new())
    };
    rows(include_str!("unary.txt")).map(vector).collect()
}

/// Creates the programs for sign extensions. The columns of a row are the instruction, src, and dst
/// afterwards.
pub(crate) fn extend() -> Vec<Vector> {
    let vector = |row: Vec<&str>| {
        let [name, before, after] = *row else { panic!("{row:?}") };
        let mut sequence = Sequence::default();
        for (dst, src) in pairs() {
            sequence.set(&[(dst, OTHER), (src, number(before))]);
            sequence.run(&format!("{name} r{dst}, r{src}"));
            sequence.keep(dst, number(after));
            sequence.keep(src, number(before));
        }
        for dst in 0..10 {
            sequence.set(&[(dst, number(before))]);
            sequence.run(&format!("{name} r{dst}, r{dst}"));
            sequence.keep(dst, number(after));
        }
        sequence.end(row.join(" "), SIZES[1], Vec::new())
    };
    rows(include_str!("extend.txt")).map(vector).collect()
}

const CONDITIONS: [&str; 11] =
    ["jeq", "jne", "jset", "jgt", "jge", "jlt", "jle", "jsgt", "jsge", "jslt", "jsle"];

pub(crate) fn jumps64() -> Vec<Vector> {
    rows(include_str!("jumps64.txt")).flat_map(|row| jumps(&row, "")).collect()
}

pub(crate) fn jumps32() -> Vec<Vector> {
    rows(include_str!("jumps32.txt")).flat_map(|row| jumps(&row, "32")).collect()
}

/// Creates the programs for conditional jumps. The columns of a row are the left operand, the right
/// operand, and the jumps that are taken.
fn jumps(row: &[&str], suffix: &str) -> Vec<Vector> {
    let [left, right, taken @ ..] = row else { panic!("{row:?}") };
    let (left, right, wide) = (number(left), number(right), suffix.is_empty());
    let names = CONDITIONS.map(|condition| format!("{condition}{suffix}"));
    assert!(taken.iter().all(|name| names.iter().any(|known| known == name)), "{row:?}");
    let vector = |name: &String| {
        let taken = taken.contains(&name.as_str());
        let mut sequence = Sequence::default();
        for (dst, src) in pairs() {
            let (upper_left, upper_right) = uppers(dst, src, wide);
            let (left, right) = (left | upper_left, right | upper_right);
            sequence.set(&[(dst, left), (src, right)]);
            sequence.jump(&format!("{name} r{dst}, r{src}, +2"), taken);
            sequence.keep(dst, left);
            sequence.keep(src, right);
        }
        for dst in 0..10 {
            let (upper, _) = uppers(dst, 0, wide);
            if let Some(imm) = constant(right, wide) {
                sequence.set(&[(dst, left | upper)]);
                sequence.jump(&format!("{name} r{dst}, {imm}, +2"), taken);
            }
            if left == right {
                sequence.set(&[(dst, left | upper)]);
                sequence.jump(&format!("{name} r{dst}, r{dst}, +2"), taken);
            }
        }
        sequence.end(format!("{name} in {}", row.join(" ")), SIZES[1], Vec::new())
    };
    names.iter().map(vector).collect()
}
