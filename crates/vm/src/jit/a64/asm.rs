//! Encodings of AArch64 instructions. The functions have the names that the Arm Architecture
//! Reference Manual (DDI 0487) uses.

use crate::jit::compile::Patch;

/// A general-purpose register, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gpr(pub(super) u8);

/// Register that contains the remaining budget, in instructions.
pub(super) const BUDGET: Gpr = Gpr(26);
/// Register that points to `State`.
pub(super) const STATE: Gpr = Gpr(25);
/// Register that points to the start of the sandbox.
pub(super) const BASE: Gpr = Gpr(24);
/// Register for the masked offset of an access to the sandbox. It may be overwritten between two
/// instructions of the program.
pub(super) const OFFSET: Gpr = Gpr(9);
/// Scratch register. It may be overwritten between two instructions of the program.
pub(super) const SCRATCH: Gpr = Gpr(10);
/// Second scratch register. It may be overwritten between two instructions of the program.
pub(super) const SCRATCH2: Gpr = Gpr(11);
/// Link register, which contains the return address.
pub(super) const LINK: Gpr = Gpr(30);
/// Register number 31, which is the zero register or the stack pointer, depending on the
/// instruction.
pub(super) const ZERO: Gpr = Gpr(31);

/// Conditions of the conditional branch, B.cond.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(in crate::jit) enum Cond {
    Equal = 0,
    NotEqual = 1,
    /// HS, unsigned higher or same: the preceding subtraction had no borrow.
    AboveEqual = 2,
    /// LO
    Below = 3,
    /// HI
    Above = 8,
    /// LS
    BelowEqual = 9,
    GreaterEqual = 10,
    Less = 11,
    Greater = 12,
    LessEqual = 13,
}

impl Cond {
    /// Returns the encoding of the opposite condition, which differs in the lowest bit.
    fn inverted(self) -> u32 {
        self as u32 ^ 1
    }
}

/// Arithmetic instructions on two registers. The values are the encodings of the 32-bit forms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Op2 {
    Add = 0x0b00_0000,
    Sub = 0x4b00_0000,
    /// SUBS, which also sets the flags.
    Subs = 0x6b00_0000,
    And = 0x0a00_0000,
    /// ANDS, which also sets the flags.
    Ands = 0x6a00_0000,
    Orr = 0x2a00_0000,
    Eor = 0x4a00_0000,
    Udiv = 0x1ac0_0800,
    Sdiv = 0x1ac0_0c00,
    Lslv = 0x1ac0_2000,
    Lsrv = 0x1ac0_2400,
    Asrv = 0x1ac0_2800,
}

/// Additions and subtractions of an immediate. The values are the encodings of the 32-bit forms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum OpImm {
    Add = 0x1100_0000,
    /// ADDS, which also sets the flags.
    Adds = 0x3100_0000,
    Sub = 0x5100_0000,
    /// SUBS, which also sets the flags.
    Subs = 0x7100_0000,
}

/// A forward jump over a few instructions. Its target is set with `land`.
#[derive(Debug)]
#[must_use]
pub(super) struct Short(usize);

#[derive(Debug, Default)]
pub(super) struct Asm {
    words: Vec<u32>,
}

/// Returns the bit that selects the 64-bit form of an instruction.
const fn sf(wide: bool) -> u32 {
    (wide as u32) << 31
}

const fn rd(register: Gpr) -> u32 {
    register.0 as u32
}

const fn rn(register: Gpr) -> u32 {
    (register.0 as u32) << 5
}

/// Encodes the second register of a pair, or the addend of MADD and MSUB.
const fn ra(register: Gpr) -> u32 {
    (register.0 as u32) << 10
}

const fn rm(register: Gpr) -> u32 {
    (register.0 as u32) << 16
}

impl Asm {
    pub(super) fn with_capacity(words: usize) -> Asm {
        Asm { words: Vec::with_capacity(words) }
    }

    pub(super) fn finish(self) -> Vec<u8> {
        self.words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    pub(super) fn here(&self) -> usize {
        4 * self.words.len()
    }

    #[inline(always)]
    fn put(&mut self, word: u32) {
        self.words.push(word);
    }

    pub(super) fn op2(&mut self, wide: bool, op: Op2, dst: Gpr, left: Gpr, right: Gpr) {
        self.put(op as u32 | sf(wide) | rm(right) | rn(left) | rd(dst));
    }

    pub(super) fn mov(&mut self, wide: bool, dst: Gpr, src: Gpr) {
        self.op2(wide, Op2::Orr, dst, ZERO, src);
    }

    /// Moves a value to or from the stack pointer, which ORR cannot access.
    pub(super) fn mov_sp(&mut self, dst: Gpr, src: Gpr) {
        self.put(OpImm::Add as u32 | sf(true) | rn(src) | rd(dst));
    }

    /// Sets all 64 bits of `dst` to `value`. It takes a MOVZ or MOVN, and a MOVK for each further
    /// half word that differs.
    pub(super) fn mov_imm(&mut self, dst: Gpr, value: u64) {
        const MOVN: u32 = 0x9280_0000;
        const MOVZ: u32 = 0xd280_0000;
        const MOVK: u32 = 0xf280_0000;
        let halves: [u32; 4] = std::array::from_fn(|half| (value >> (16 * half)) as u32 & 0xffff);
        let count = |of: u32| halves.iter().filter(|half| **half == of).count();
        let (first, filler) = if count(0xffff) > count(0) { (MOVN, 0xffff) } else { (MOVZ, 0) };
        let mut opcode = first;
        for (place, half) in (0_u32..).zip(halves).filter(|(_, half)| *half != filler) {
            // MOVN writes the complement of its operand, and MOVK writes the operand itself.
            let half = if opcode == MOVN { half ^ 0xffff } else { half };
            self.put(opcode | place << 21 | half << 5 | rd(dst));
            opcode = MOVK;
        }
        if opcode == first {
            self.put(first | rd(dst));
        }
    }

    /// Encodes an instruction with an immediate. Returns `false` and writes nothing if the
    /// immediate has no encoding. An immediate has one if it fits into 12 bits, or if it fits into
    /// 24 bits and its lower 12 bits are zero.
    pub(super) fn op_imm(&mut self, wide: bool, op: OpImm, dst: Gpr, src: Gpr, imm: u32) -> bool {
        let field = match imm {
            0..=0xfff => imm << 10,
            0x1000..=0x00ff_f000 if imm & 0xfff == 0 => (1 << 22) | (imm >> 12) << 10,
            _ => return false,
        };
        self.put(op as u32 | sf(wide) | field | rn(src) | rd(dst));
        true
    }

    fn ubfm(&mut self, wide: bool, dst: Gpr, src: Gpr, immr: u8, imms: u8) {
        let form = if wide { 0xd340_0000 } else { 0x5300_0000 };
        self.put(form | u32::from(immr) << 16 | u32::from(imms) << 10 | rn(src) | rd(dst));
    }

    fn sbfm(&mut self, wide: bool, dst: Gpr, src: Gpr, immr: u8, imms: u8) {
        let form = if wide { 0x9340_0000 } else { 0x1300_0000 };
        self.put(form | u32::from(immr) << 16 | u32::from(imms) << 10 | rn(src) | rd(dst));
    }

    /// Moves the lowest `bits` of `src` to `dst`, and clears the upper bits of `dst`. `bits` is at
    /// most 32.
    pub(super) fn low_bits(&mut self, dst: Gpr, src: Gpr, bits: u8) {
        self.ubfm(false, dst, src, 0, bits - 1);
    }

    /// Shifts left by `count`. In this and the following functions, `count` must be less than the
    /// width of the register.
    pub(super) fn lsl_imm(&mut self, wide: bool, dst: Gpr, src: Gpr, count: u8) {
        let last = if wide { 63 } else { 31 };
        self.ubfm(wide, dst, src, count.wrapping_neg() & last, last - count);
    }

    pub(super) fn lsr_imm(&mut self, wide: bool, dst: Gpr, src: Gpr, count: u8) {
        self.ubfm(wide, dst, src, count, if wide { 63 } else { 31 });
    }

    pub(super) fn asr_imm(&mut self, wide: bool, dst: Gpr, src: Gpr, count: u8) {
        self.sbfm(wide, dst, src, count, if wide { 63 } else { 31 });
    }

    /// Sign-extends the lowest 8, 16 or 32 bits of `src` into `dst`: to 64 bits if `wide`,
    /// otherwise to 32 bits, with zeros above.
    pub(super) fn sign_extend(&mut self, wide: bool, bits: u8, dst: Gpr, src: Gpr) {
        self.sbfm(wide, dst, src, 0, bits - 1);
    }

    pub(super) fn mul(&mut self, wide: bool, dst: Gpr, left: Gpr, right: Gpr) {
        self.put(0x1b00_0000 | sf(wide) | rm(right) | ra(ZERO) | rn(left) | rd(dst));
    }

    /// Computes `dst = from - left * right`.
    pub(super) fn msub(&mut self, wide: bool, dst: Gpr, left: Gpr, right: Gpr, from: Gpr) {
        self.put(0x1b00_8000 | sf(wide) | rm(right) | ra(from) | rn(left) | rd(dst));
    }

    /// Swaps the two bytes in each half of the lower 32 bits.
    pub(super) fn rev16(&mut self, dst: Gpr) {
        self.put(0x5ac0_0400 | rn(dst) | rd(dst));
    }

    pub(super) fn rev(&mut self, wide: bool, dst: Gpr) {
        let form = if wide { 0xdac0_0c00 } else { 0x5ac0_0800 };
        self.put(form | rn(dst) | rd(dst));
    }

    /// Loads from the sandbox, at the offset in register `OFFSET`.
    pub(super) fn load(&mut self, bytes: usize, signed: bool, dst: Gpr) {
        let form = match (bytes, signed) {
            (1, false) => 0x3860_6800,
            (2, false) => 0x7860_6800,
            (4, false) => 0xb860_6800,
            (1, true) => 0x38a0_6800,
            (2, true) => 0x78a0_6800,
            (4, true) => 0xb8a0_6800,
            _ => 0xf860_6800,
        };
        self.put(form | rm(OFFSET) | rn(BASE) | rd(dst));
    }

    /// Stores to the sandbox, at the offset in register `OFFSET`.
    pub(super) fn store(&mut self, bytes: usize, src: Gpr) {
        let form = match bytes {
            1 => 0x3820_6800,
            2 => 0x7820_6800,
            4 => 0xb820_6800,
            _ => 0xf820_6800,
        };
        self.put(form | rm(OFFSET) | rn(BASE) | rd(src));
    }

    /// Loads a field of eight bytes from `State`.
    pub(super) fn load_state(&mut self, dst: Gpr, field: i8) {
        self.put(0xf940_0000 | (field as u32 / 8) << 10 | rn(STATE) | rd(dst));
    }

    /// Stores eight bytes to a field of `State`.
    pub(super) fn store_state(&mut self, field: i8, src: Gpr) {
        self.put(0xf900_0000 | (field as u32 / 8) << 10 | rn(STATE) | rd(src));
    }

    /// Stores four bytes to a field of `State`.
    pub(super) fn store_state32(&mut self, field: i8, src: Gpr) {
        self.put(0xb900_0000 | (field as u32 / 4) << 10 | rn(STATE) | rd(src));
    }

    /// Pushes two registers. The stack stays aligned to 16 bytes.
    pub(super) fn push_pair(&mut self, first: Gpr, second: Gpr) {
        // STP, which first subtracts 16 from the stack pointer.
        self.put(0xa9bf_0000 | ra(second) | rn(ZERO) | rd(first));
    }

    /// Pops two registers that `push_pair` pushed.
    pub(super) fn pop_pair(&mut self, first: Gpr, second: Gpr) {
        // LDP, which then adds 16 to the stack pointer.
        self.put(0xa8c1_0000 | ra(second) | rn(ZERO) | rd(first));
    }

    pub(super) fn ret(&mut self) {
        self.put(0xd65f_03c0);
    }

    /// Calls the function whose address is in a register.
    pub(super) fn blr(&mut self, register: Gpr) {
        self.put(0xd63f_0000 | rn(register));
    }

    pub(super) fn b(&mut self, target: usize) -> Patch {
        self.put(0x1400_0000 | distance(self.here(), target, 26));
        Patch(self.here())
    }

    pub(super) fn bl(&mut self, target: usize) -> Patch {
        self.put(0x9400_0000 | distance(self.here(), target, 26));
        Patch(self.here())
    }

    /// Sets the target of a B or BL that is already written.
    pub(super) fn patch(&mut self, Patch(end): Patch, target: usize) {
        let word = &mut self.words[end / 4 - 1];
        *word = *word & 0xfc00_0000 | distance(end - 4, target, 26);
    }

    /// Writes a jump that is taken if the condition is false.
    pub(super) fn unless(&mut self, condition: Cond) -> Short {
        self.put(0x5400_0000 | condition.inverted());
        Short(self.words.len() - 1)
    }

    /// Writes a jump that is taken if the register is zero.
    pub(super) fn cbz(&mut self, register: Gpr) -> Short {
        self.put(0xb400_0000 | rd(register));
        Short(self.words.len() - 1)
    }

    pub(super) fn land(&mut self, Short(at): Short) {
        let distance = distance(4 * at, self.here(), 19);
        self.words[at] |= distance << 5;
    }
}

/// Returns the distance from a branch to its target in instruction words, encoded in `bits` bits.
fn distance(from: usize, target: usize, bits: u32) -> u32 {
    let distance = (target as i64 - from as i64) / 4;
    let half = 1_i64 << (bits - 1);
    assert!((-half..half).contains(&distance), "the branch must reach its target");
    distance as u32 & ((1 << bits) - 1)
}
