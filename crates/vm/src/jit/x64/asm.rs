//! Encodings of x86-64 instructions.

use crate::jit::compile::Patch;

/// A general-purpose register, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gpr(pub(super) u8);

pub(super) const RAX: Gpr = Gpr(0);
pub(super) const RCX: Gpr = Gpr(1);
pub(super) const RDX: Gpr = Gpr(2);
pub(super) const RBX: Gpr = Gpr(3);
pub(super) const RSP: Gpr = Gpr(4);
pub(super) const RBP: Gpr = Gpr(5);
pub(super) const RSI: Gpr = Gpr(6);
pub(super) const RDI: Gpr = Gpr(7);
pub(super) const R8: Gpr = Gpr(8);
pub(super) const R9: Gpr = Gpr(9);
pub(super) const R10: Gpr = Gpr(10);
pub(super) const R11: Gpr = Gpr(11);
pub(super) const R12: Gpr = Gpr(12);
pub(super) const R13: Gpr = Gpr(13);
pub(super) const R14: Gpr = Gpr(14);
pub(super) const R15: Gpr = Gpr(15);

/// Register that points to the start of the sandbox.
pub(super) const BASE: Gpr = R9;
/// Register that contains the remaining budget, in instructions.
pub(super) const BUDGET: Gpr = R10;
/// Scratch register. It may be overwritten between two instructions of the program.
pub(super) const SCRATCH: Gpr = R11;
/// Register that points to `State`.
pub(super) const STATE: Gpr = R12;

/// Condition codes of the conditional jump, Jcc.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(in crate::jit) enum Cc {
    Below = 2,
    AboveEqual = 3,
    Equal = 4,
    NotEqual = 5,
    BelowEqual = 6,
    Above = 7,
    Less = 12,
    GreaterEqual = 13,
    LessEqual = 14,
    Greater = 15,
}

impl Cc {
    pub(super) fn inverted(self) -> Cc {
        match self {
            Cc::Below => Cc::AboveEqual,
            Cc::AboveEqual => Cc::Below,
            Cc::Equal => Cc::NotEqual,
            Cc::NotEqual => Cc::Equal,
            Cc::BelowEqual => Cc::Above,
            Cc::Above => Cc::BelowEqual,
            Cc::Less => Cc::GreaterEqual,
            Cc::GreaterEqual => Cc::Less,
            Cc::LessEqual => Cc::Greater,
            Cc::Greater => Cc::LessEqual,
        }
    }
}

/// A memory operand of a machine instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mem {
    /// An address in the sandbox, at the masked offset in `SCRATCH`.
    Masked,
    /// An address in the sandbox, relative to the frame pointer.
    Frame(i32),
    /// A field of `State`.
    State(i8),
}

/// Arithmetic instructions on two registers, or on a register and an immediate. The values are
/// Intel's opcode extensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Arith {
    Add = 0,
    Or = 1,
    And = 4,
    Sub = 5,
    Xor = 6,
    Cmp = 7,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Shift {
    Rol = 0,
    Left = 4,
    Right = 5,
    Arithmetic = 7,
}

/// A forward jump whose target is set later.
#[derive(Debug)]
#[must_use]
pub(super) struct Short(usize);

/// Upper limit of the code size for one instruction of the program, in bytes.
const ROOM: usize = 256;

#[derive(Debug, Default)]
pub(super) struct Asm {
    /// The code written so far, followed by the free part of the buffer.
    bytes: Vec<u8>,
    end: usize,
}

impl Asm {
    pub(super) fn with_capacity(bytes: usize) -> Asm {
        Asm { bytes: vec![0; bytes.max(4 * ROOM)], end: 0 }
    }

    /// Ensures that the buffer has room for the code of one more instruction.
    #[inline]
    pub(super) fn make_room(&mut self) {
        if self.bytes.len() - self.end < ROOM {
            self.bytes.resize(2 * self.bytes.len(), 0);
        }
    }

    pub(super) fn finish(mut self) -> Vec<u8> {
        self.bytes.truncate(self.end);
        self.bytes
    }

    /// Pads the code to a multiple of 16 bytes with INT3 instructions.
    pub(super) fn align(&mut self) {
        while !self.end.is_multiple_of(16) {
            self.put(&[0xcc]);
        }
    }

    pub(super) fn here(&self) -> usize {
        self.end
    }

    #[inline(always)]
    fn put(&mut self, bytes: &[u8]) {
        self.bytes[self.end..self.end + bytes.len()].copy_from_slice(bytes);
        self.end += bytes.len();
    }

    #[inline(always)]
    fn imm32(&mut self, value: i32) {
        self.put(&value.to_le_bytes());
    }

    /// Writes an opcode of one byte, or of 0x0f and one more byte.
    #[inline(always)]
    fn opcode(&mut self, opcode: u16) {
        if opcode > 0xff {
            self.put(&[0x0f, opcode as u8]);
        } else {
            self.put(&[opcode as u8]);
        }
    }

    /// Encodes an instruction with two register operands, `opcode reg, rm`.
    #[inline]
    fn rr(&mut self, wide: bool, opcode: u16, reg: u8, rm: Gpr) {
        let rex = 0x40 | u8::from(wide) << 3 | (reg >> 3) << 2 | rm.0 >> 3;
        if rex != 0x40 {
            self.put(&[rex]);
        }
        self.opcode(opcode);
        self.put(&[0xc0 | (reg & 7) << 3 | rm.0 & 7]);
    }

    /// Encodes an instruction with a register and a memory operand, `opcode reg, mem`. If `byte` is
    /// true, the register is an 8-bit register, and a REX prefix is always written. Without that
    /// prefix, numbers 4 to 7 would select ah, ch, dh and bh.
    #[inline]
    fn rm(&mut self, wide: bool, byte: bool, opcode: u16, reg: u8, mem: Mem) {
        let (index, base) = match mem {
            Mem::Masked => (SCRATCH.0, BASE.0),
            Mem::Frame(_) => (RBP.0, BASE.0),
            Mem::State(_) => (0, STATE.0),
        };
        let rex = 0x40 | u8::from(wide) << 3 | (reg >> 3) << 2 | (index >> 3) << 1 | base >> 3;
        if rex != 0x40 || byte {
            self.put(&[rex]);
        }
        self.opcode(opcode);
        let reg = (reg & 7) << 3;
        let sib = (index & 7) << 3 | base & 7;
        match mem {
            Mem::Masked => self.put(&[0x04 | reg, sib]),
            Mem::Frame(offset) => match i8::try_from(offset) {
                Ok(offset) => self.put(&[0x44 | reg, sib, offset as u8]),
                Err(_) => {
                    self.put(&[0x84 | reg, sib]);
                    self.imm32(offset);
                }
            },
            // An address relative to r12 is always encoded with an additional byte (SIB).
            Mem::State(offset) => self.put(&[0x44 | reg, 0x24, offset as u8]),
        }
    }

    pub(super) fn mov(&mut self, wide: bool, dst: Gpr, src: Gpr) {
        self.rr(wide, 0x89, src.0, dst);
    }

    /// Sets all 64 bits of `dst` to `value`, with the shortest encoding.
    pub(super) fn mov_imm(&mut self, dst: Gpr, value: u64) {
        if value == 0 {
            self.arith(false, Arith::Xor, dst, dst);
        } else if let Ok(value) = u32::try_from(value) {
            if dst.0 >= 8 {
                self.put(&[0x41]);
            }
            self.put(&[0xb8 | dst.0 & 7]);
            self.put(&value.to_le_bytes());
        } else if let Ok(value) = i32::try_from(value as i64) {
            self.rr(true, 0xc7, 0, dst);
            self.imm32(value);
        } else {
            self.put(&[0x48 | dst.0 >> 3, 0xb8 | dst.0 & 7]);
            self.put(&value.to_le_bytes());
        }
    }

    pub(super) fn arith(&mut self, wide: bool, op: Arith, dst: Gpr, src: Gpr) {
        self.rr(wide, u16::from((op as u8) << 3 | 1), src.0, dst);
    }

    pub(super) fn arith_imm(&mut self, wide: bool, op: Arith, dst: Gpr, imm: i32) {
        match i8::try_from(imm) {
            Ok(imm) => {
                self.rr(wide, 0x83, op as u8, dst);
                self.put(&[imm as u8]);
            }
            Err(_) => {
                self.rr(wide, 0x81, op as u8, dst);
                self.imm32(imm);
            }
        }
    }

    pub(super) fn arith_mem(&mut self, wide: bool, op: Arith, mem: Mem, src: Gpr) {
        self.rm(wide, false, u16::from((op as u8) << 3 | 1), src.0, mem);
    }

    pub(super) fn test(&mut self, wide: bool, left: Gpr, right: Gpr) {
        self.rr(wide, 0x85, right.0, left);
    }

    pub(super) fn test_imm(&mut self, wide: bool, left: Gpr, imm: i32) {
        self.rr(wide, 0xf7, 0, left);
        self.imm32(imm);
    }

    pub(super) fn imul(&mut self, wide: bool, dst: Gpr, src: Gpr) {
        self.rr(wide, 0x0faf, dst.0, src);
    }

    pub(super) fn imul_imm(&mut self, wide: bool, dst: Gpr, imm: i32) {
        self.rr(wide, 0x69, dst.0, dst);
        self.imm32(imm);
    }

    pub(super) fn neg(&mut self, wide: bool, dst: Gpr) {
        self.rr(wide, 0xf7, 3, dst);
    }

    /// Divides the value of rax by `divisor`. The quotient goes to rax, and the remainder to rdx.
    /// First sets rdx to the upper half of the dividend.
    pub(super) fn divide(&mut self, wide: bool, signed: bool, divisor: Gpr) {
        if signed {
            self.put(if wide { &[0x48, 0x99] } else { &[0x99] });
        } else {
            self.arith(false, Arith::Xor, RDX, RDX);
        }
        self.rr(wide, 0xf7, if signed { 7 } else { 6 }, divisor);
    }

    pub(super) fn shift_imm(&mut self, wide: bool, shift: Shift, dst: Gpr, count: u8) {
        self.rr(wide, 0xc1, shift as u8, dst);
        self.put(&[count]);
    }

    /// Shifts `dst` by the number of bits in cl.
    pub(super) fn shift_cl(&mut self, wide: bool, shift: Shift, dst: Gpr) {
        self.rr(wide, 0xd3, shift as u8, dst);
    }

    /// Rotates the lowest 16 bits of `dst` by 8.
    pub(super) fn rol16_8(&mut self, dst: Gpr) {
        self.put(&[0x66]);
        self.rr(false, 0xc1, Shift::Rol as u8, dst);
        self.put(&[8]);
    }

    pub(super) fn bswap(&mut self, wide: bool, dst: Gpr) {
        let rex = 0x40 | u8::from(wide) << 3 | dst.0 >> 3;
        self.put(&[rex, 0x0f, 0xc8 | dst.0 & 7]);
    }

    /// Moves the lowest 16 bits of `src` to `dst`, and clears the upper bits of `dst`.
    pub(super) fn movzx16(&mut self, dst: Gpr, src: Gpr) {
        self.rr(false, 0x0fb7, dst.0, src);
    }

    /// Sign-extends the lowest 8, 16 or 32 bits of `src` into `dst`: to 64 bits if `wide`,
    /// otherwise to 32 bits, with zeros above.
    pub(super) fn movsx(&mut self, wide: bool, bits: u8, dst: Gpr, src: Gpr) {
        match bits {
            8 => {
                // A REX prefix is always written. Without it, numbers 4 to 7 would select ah, ch,
                // dh and bh.
                let rex = 0x40 | u8::from(wide) << 3 | (dst.0 >> 3) << 2 | src.0 >> 3;
                self.put(&[rex, 0x0f, 0xbe, 0xc0 | (dst.0 & 7) << 3 | src.0 & 7]);
            }
            16 => self.rr(wide, 0x0fbf, dst.0, src),
            _ => self.rr(wide, 0x63, dst.0, src),
        }
    }

    pub(super) fn load(&mut self, bytes: usize, signed: bool, dst: Gpr, mem: Mem) {
        match (bytes, signed) {
            (1, false) => self.rm(false, false, 0x0fb6, dst.0, mem),
            (2, false) => self.rm(false, false, 0x0fb7, dst.0, mem),
            (4, false) => self.rm(false, false, 0x8b, dst.0, mem),
            (1, true) => self.rm(true, false, 0x0fbe, dst.0, mem),
            (2, true) => self.rm(true, false, 0x0fbf, dst.0, mem),
            (4, true) => self.rm(true, false, 0x63, dst.0, mem),
            _ => self.rm(true, false, 0x8b, dst.0, mem),
        }
    }

    pub(super) fn store(&mut self, bytes: usize, mem: Mem, src: Gpr) {
        match bytes {
            1 => self.rm(false, true, 0x88, src.0, mem),
            2 => {
                self.put(&[0x66]);
                self.rm(false, false, 0x89, src.0, mem);
            }
            bytes => self.rm(bytes == 8, false, 0x89, src.0, mem),
        }
    }

    pub(super) fn store_imm(&mut self, bytes: usize, mem: Mem, imm: i32) {
        match bytes {
            1 => {
                self.rm(false, true, 0xc6, 0, mem);
                self.put(&[imm as u8]);
            }
            2 => {
                self.put(&[0x66]);
                self.rm(false, false, 0xc7, 0, mem);
                self.put(&(imm as u16).to_le_bytes());
            }
            bytes => {
                self.rm(bytes == 8, false, 0xc7, 0, mem);
                self.imm32(imm);
            }
        }
    }

    pub(super) fn cmpxchg(&mut self, wide: bool, mem: Mem, src: Gpr) {
        self.rm(wide, false, 0x0fb1, src.0, mem);
    }

    /// Sets `dst` to the lowest 32 bits of `base + offset`.
    pub(super) fn lea32(&mut self, dst: Gpr, base: Gpr, offset: i32) {
        // With rsp or r12 as the base, the encoding would differ. No BPF register is in one of
        // these.
        debug_assert!(base.0 & 7 != 4);
        let rex = 0x40 | (dst.0 >> 3) << 2 | base.0 >> 3;
        let registers = (dst.0 & 7) << 3 | base.0 & 7;
        match i8::try_from(offset) {
            Ok(offset) => self.put(&[rex, 0x8d, 0x40 | registers, offset as u8]),
            Err(_) => {
                self.put(&[rex, 0x8d, 0x80 | registers]);
                self.imm32(offset);
            }
        }
    }

    pub(super) fn push(&mut self, register: Gpr) {
        if register.0 >= 8 {
            self.put(&[0x41]);
        }
        self.put(&[0x50 | register.0 & 7]);
    }

    pub(super) fn pop(&mut self, register: Gpr) {
        if register.0 >= 8 {
            self.put(&[0x41]);
        }
        self.put(&[0x58 | register.0 & 7]);
    }

    pub(super) fn ret(&mut self) {
        self.put(&[0xc3]);
    }

    /// Loads the address of the code at offset `target` into `dst`.
    pub(super) fn lea_code(&mut self, dst: Gpr, target: usize) {
        debug_assert!(dst.0 < 8);
        self.put(&[0x48, 0x8d, 0x05 | dst.0 << 3]);
        let _ = self.distance(target);
    }

    /// Calls the function whose address is in a register.
    pub(super) fn call_register(&mut self, register: Gpr) {
        self.rr(false, 0xff, 2, register);
    }

    /// Writes the distance field of a jump or call to `target`.
    fn distance(&mut self, target: usize) -> Patch {
        let distance = target as i64 - (self.here() as i64 + 4);
        self.imm32(distance as i32);
        Patch(self.here())
    }

    pub(super) fn jmp(&mut self, target: usize) -> Patch {
        self.put(&[0xe9]);
        self.distance(target)
    }

    pub(super) fn jcc(&mut self, cc: Cc, target: usize) -> Patch {
        self.put(&[0x0f, 0x80 | cc as u8]);
        self.distance(target)
    }

    pub(super) fn call(&mut self, target: usize) -> Patch {
        self.put(&[0xe8]);
        self.distance(target)
    }

    /// Writes a forward jump of at most 127 bytes. Its target is set with `land`.
    pub(super) fn jcc_short(&mut self, cc: Cc) -> Short {
        self.put(&[0x70 | cc as u8, 0]);
        Short(self.here())
    }

    pub(super) fn jmp_short(&mut self) -> Short {
        self.put(&[0xeb, 0]);
        Short(self.here())
    }

    pub(super) fn land(&mut self, short: Short) {
        let distance = self.here() - short.0;
        assert!(distance < 128, "a short jump must be shorter than 128 bytes");
        self.bytes[short.0 - 1] = distance as u8;
    }

    /// Sets the target of a jump or call that is already written.
    pub(super) fn patch(&mut self, Patch(end): Patch, target: usize) {
        let distance = (target as i64 - end as i64) as i32;
        self.bytes[end - 4..end].copy_from_slice(&distance.to_le_bytes());
    }
}
