//! Test programs for instructions with a memory operand: loads, stores, and atomic instructions.

use super::sequence::{Sequence, pairs, third};
use super::{SIZES, Vector, number, rows};

/// The initial value of the first 16 bytes of memory.
const FIRST: u128 =
    u128::from_be_bytes(*b"\x01\x82\x03\x84\x05\x86\x07\x88\xf1\x72\xf3\x74\xf5\x76\xf7\x78");
/// The initial value of the last 16 bytes of memory.
const LAST: u128 =
    u128::from_be_bytes(*b"\x10\xa1\x32\xb3\x54\xc5\x76\xd7\x98\x29\xba\x4b\xdc\x6d\xfe\x8f");

fn ends(size: u64) -> Vec<(u64, Vec<u8>)> {
    vec![(0, FIRST.to_be_bytes().to_vec()), (size - 16, LAST.to_be_bytes().to_vec())]
}

/// Parses the address in a row. A negative address counts from the end of memory.
fn address(word: &str, size: u64) -> u64 {
    let address = number(word);
    if (address as i64) < 0 { address.wrapping_add(size) } else { address }
}

fn in_each_size(text: &str, vector: impl Fn(u64, Vec<&str>) -> Vector) -> Vec<Vector> {
    SIZES.iter().flat_map(|size| rows(text).map(|row| vector(*size, row))).collect()
}

/// Returns an offset for an instruction. Different registers have different offsets.
fn offset(dst: u8, src: u8) -> i16 {
    [0, 1, -1, 8, -16, 127, 128, -128, -129, i16::MAX, i16::MIN][usize::from(dst * 10 + src) % 11]
}

/// Returns the value of the base register with which `offset` results in `address`.
fn base(address: u64, offset: i16) -> u64 {
    address.wrapping_sub(i64::from(offset) as u64)
}

/// Creates the programs for loads. The columns of a row are the instruction, the address, and dst
/// afterwards.
pub(crate) fn loads() -> Vec<Vector> {
    let vector = |size: u64, row: Vec<&str>| {
        let [name, at, after] = *row else { panic!("{row:?}") };
        let (at, after) = (address(at, size), number(after));
        let mut sequence = Sequence::default();
        for (dst, src) in pairs() {
            let offset = offset(dst, src);
            sequence.set(&[(dst, !0), (src, base(at, offset))]);
            sequence.run(&format!("{name} r{dst}, [r{src}{offset:+}]"));
            sequence.keep(dst, after);
            sequence.keep(src, base(at, offset));
        }
        for dst in 0..10 {
            sequence.set(&[(dst, base(at, -3))]);
            sequence.run(&format!("{name} r{dst}, [r{dst}-3]"));
            sequence.keep(dst, after);
            if let Ok(below) = i16::try_from(at as i64 - size as i64) {
                sequence.run(&format!("{name} r{dst}, [r10{below:+}]"));
                sequence.keep(dst, after);
            }
        }
        sequence.end(row.join(" "), size, ends(size))
    };
    in_each_size(include_str!("loads.txt"), vector)
}

/// Creates the programs for stores. The columns of a row are the instruction, the address, the
/// value, and the bytes in memory afterwards.
pub(crate) fn stores() -> Vec<Vector> {
    let vector = |size: u64, row: Vec<&str>| {
        let [name, at, value, bytes] = *row else { panic!("{row:?}") };
        let (at, value) = (address(at, size), number(value));
        // The 16 bytes around the stored value, before the store and after it.
        let (window, before) = if at < 16 { (0, FIRST) } else { (size - 16, LAST) };
        let width = bytes.len() as u32 * 4;
        let shift = 128 - width - (at - window) as u32 * 8;
        let bytes = u128::from_str_radix(bytes, 16).unwrap();
        let after = before & !(((1 << width) - 1) << shift) | bytes << shift;
        let word =
            |image: u128, upper: u32| u64::from_le_bytes(((image >> upper) as u64).to_be_bytes());

        let mut sequence = Sequence::default();
        for (dst, src) in pairs() {
            let offset = offset(dst, src);
            let (other, base) = (third(dst, src), base(at, offset));
            sequence.set(&[(dst, base), (src, value), (other, window)]);
            let stored = if name.starts_with("stx") {
                format!("r{src}")
            } else {
                (value as i32).to_string()
            };
            sequence.run(&format!("{name} [r{dst}{offset:+}], {stored}"));
            sequence.keep(dst, base);
            sequence.keep(src, value);
            // Saves the current value as a result, and restores the original value.
            for (at, shift) in [(0, 64), (8, 0)] {
                sequence.run(&format!("ldxdw r{dst}, [r{other}+{at}]"));
                sequence.keep(dst, word(after, shift));
                sequence.set(&[(src, word(before, shift))]);
                sequence.run(&format!("stxdw [r{other}+{at}], r{src}"));
            }
        }
        sequence.end(row.join(" "), size, ends(size))
    };
    in_each_size(include_str!("stores.txt"), vector)
}

/// Returns the offsets of the memory words on which atomic instructions are tested.
fn words(size: u64) -> [u64; 3] {
    [0, 136, size - 8]
}

/// A tested position in memory: a 64-bit word, or one 32-bit half of a word.
struct Cell {
    address: u64,
    offset: i16,
    /// Number of lower bits of the word that are not part of the tested half.
    shift: u32,
    wide: bool,
}

impl Cell {
    fn new(dst: u8, src: u8, wide: bool, size: u64) -> Cell {
        let address = words(size)[usize::from(dst + src) % 3];
        let shift = if wide { 0 } else { 32 * u32::from(dst % 2) };
        Cell { address, offset: offset(dst, src), shift, wide }
    }

    /// The value of the base register with which the instruction accesses the position.
    fn base(&self) -> u64 {
        base(self.address + u64::from(self.shift / 8), self.offset)
    }

    /// The value of the whole word if the tested position has `value`.
    fn word(&self, value: u64) -> u64 {
        const BESIDE: u64 = 0xa5c3_96f0;
        if self.wide { value } else { value << self.shift | BESIDE << (32 - self.shift) }
    }

    fn write(&self, sequence: &mut Sequence, base: u8, scratch: u8, value: u64) {
        sequence.set(&[(base, self.address), (scratch, self.word(value))]);
        sequence.run(&format!("stxdw [r{base}], r{scratch}"));
    }

    /// Saves the word that contains the position as a result, and sets it to zero.
    fn keep(&self, sequence: &mut Sequence, base: u8, scratch: u8, value: u64) {
        sequence.set(&[(base, self.address)]);
        sequence.run(&format!("ldxdw r{scratch}, [r{base}]"));
        sequence.keep(scratch, self.word(value));
        sequence.run(&format!("stdw [r{base}], 0"));
    }
}

/// Returns a value for the upper halves of registers, which 32-bit instructions must ignore.
fn upper(wide: bool) -> u64 {
    if wide { 0 } else { 0xfeed_f00d << 32 }
}

/// Creates the programs for atomic instructions. The columns of a row are the instruction, memory
/// before, src before, and memory afterwards.
pub(crate) fn atomic() -> Vec<Vector> {
    let vector = |size: u64, row: Vec<&str>| {
        let [name, before, value, after] = *row else { panic!("{row:?}") };
        let (before, value, after) = (number(before), number(value), number(after));
        let (wide, exchange) = (!name.ends_with("32"), name.starts_with("xchg"));
        let value = value | upper(wide);
        let mut sequence = Sequence::default();
        for (dst, src) in pairs() {
            // For half of the register pairs, the instruction also fetches the old value (FETCH).
            let fetch = (dst + src / 2) % 2 == 0 || exchange;
            let cell = Cell::new(dst, src, wide, size);
            cell.write(&mut sequence, dst, src, before);
            sequence.set(&[(dst, cell.base()), (src, value)]);
            let prefix = if fetch && !exchange { "fetch " } else { "" };
            sequence.run(&format!("lock {prefix}{name} [r{dst}{:+}], r{src}", cell.offset));
            sequence.keep(dst, cell.base());
            sequence.keep(src, if fetch { before } else { value });
            cell.keep(&mut sequence, dst, src, after);
        }
        sequence.end(row.join(" "), size, Vec::new())
    };
    in_each_size(include_str!("atomic.txt"), vector)
}

/// Creates the programs for compare-and-exchange. The columns of a row are the instruction, memory
/// before, r0 before, src, and memory afterwards.
pub(crate) fn compare_exchange() -> Vec<Vector> {
    let vector = |size: u64, row: Vec<&str>| {
        let [name, before, expected, value, after] = *row else { panic!("{row:?}") };
        let (before, expected, after) = (number(before), number(expected), number(after));
        let wide = !name.ends_with("32");
        let value = number(value) | upper(wide);
        let mut sequence = Sequence::default();
        for (dst, src) in pairs().filter(|(dst, src)| *dst > 0 && *src > 0) {
            let cell = Cell::new(dst, src, wide, size);
            cell.write(&mut sequence, dst, src, before);
            sequence.set(&[(dst, cell.base()), (src, value), (0, expected | upper(wide))]);
            sequence.run(&format!("lock {name} [r{dst}{:+}], r{src}", cell.offset));
            sequence.keep(0, before);
            sequence.keep(dst, cell.base());
            sequence.keep(src, value);
            cell.keep(&mut sequence, dst, src, after);
        }
        sequence.end(row.join(" "), size, Vec::new())
    };
    in_each_size(include_str!("compare_exchange.txt"), vector)
}
