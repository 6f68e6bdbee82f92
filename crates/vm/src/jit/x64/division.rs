//! Compiles the instructions that take several x86-64 instructions: division, shifts by a register,
//! and atomic instructions.

use super::asm::{Arith, Asm, Cc, Gpr, Mem, RAX, RCX, RDX, SCRATCH, Shift};
use crate::op::AtomicOp;

/// Kind of a division: its width, whether it is signed, and whether it returns the quotient or the
/// remainder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Division {
    pub(super) wide: bool,
    pub(super) signed: bool,
    pub(super) remainder: bool,
}

impl Division {
    /// Writes code for the result of a division by zero (RFC 9669 s.4.1): 0 for a quotient, and the
    /// dividend for a remainder.
    fn by_zero(self, asm: &mut Asm, dst: Gpr) {
        if !self.remainder {
            asm.arith(false, Arith::Xor, dst, dst);
        } else if !self.wide {
            asm.mov(false, dst, dst);
        }
    }

    /// Writes code for the result of a division by -1. The CPU's division would trap if the
    /// dividend is the smallest number.
    fn by_minus_one(self, asm: &mut Asm, dst: Gpr) {
        if self.remainder {
            asm.arith(false, Arith::Xor, dst, dst);
        } else {
            asm.neg(self.wide, dst);
        }
    }

    pub(super) fn by_imm(self, asm: &mut Asm, dst: Gpr, imm: i32) {
        match imm {
            0 => self.by_zero(asm, dst),
            -1 if self.signed => self.by_minus_one(asm, dst),
            imm => {
                let value = i64::from(imm) as u64;
                asm.mov_imm(SCRATCH, if self.wide { value } else { u64::from(value as u32) });
                self.by_scratch(asm, dst);
            }
        }
    }

    pub(super) fn by_register(self, asm: &mut Asm, dst: Gpr, src: Gpr) {
        asm.mov(self.wide, SCRATCH, src);
        asm.test(self.wide, SCRATCH, SCRATCH);
        let not_zero = asm.jcc_short(Cc::NotEqual);
        self.by_zero(asm, dst);
        let zero_done = asm.jmp_short();
        asm.land(not_zero);
        let minus_done = self.signed.then(|| {
            asm.arith_imm(self.wide, Arith::Cmp, SCRATCH, -1);
            let other = asm.jcc_short(Cc::NotEqual);
            self.by_minus_one(asm, dst);
            let done = asm.jmp_short();
            asm.land(other);
            done
        });
        self.by_scratch(asm, dst);
        if let Some(done) = minus_done {
            asm.land(done);
        }
        asm.land(zero_done);
    }

    /// Writes a division by `SCRATCH`. Its value is not 0 and, in a signed division, not -1, so the
    /// CPU's division cannot trap.
    fn by_scratch(self, asm: &mut Asm, dst: Gpr) {
        let (keep_rax, keep_rdx) = (dst != RAX, dst != RDX);
        if keep_rax {
            asm.push(RAX);
            asm.mov(self.wide, RAX, dst);
        }
        if keep_rdx {
            asm.push(RDX);
        }
        asm.divide(self.wide, self.signed, SCRATCH);
        let result = if self.remainder { RDX } else { RAX };
        asm.mov(self.wide, SCRATCH, result);
        if keep_rdx {
            asm.pop(RDX);
        }
        if keep_rax {
            asm.pop(RAX);
        }
        asm.mov(self.wide, dst, SCRATCH);
    }
}

/// Shifts `dst` by the number of bits in `src`. The CPU uses only the lowest bits of that number,
/// as RFC 9669 demands.
pub(super) fn shift(asm: &mut Asm, wide: bool, shift: Shift, dst: Gpr, src: Gpr) {
    if src == RCX {
        asm.shift_cl(wide, shift, dst);
    } else if dst == RCX {
        asm.mov(true, SCRATCH, RCX);
        asm.mov(true, RCX, src);
        asm.shift_cl(wide, shift, SCRATCH);
        asm.mov(true, RCX, SCRATCH);
    } else {
        asm.mov(true, SCRATCH, RCX);
        asm.mov(true, RCX, src);
        asm.shift_cl(wide, shift, dst);
        asm.mov(true, RCX, SCRATCH);
    }
}

/// Compiles an atomic instruction. Only one thread at a time accesses the memory of an instance, so
/// plain loads and stores are sufficient. This also means that no program can lock the memory bus.
pub(super) fn atomic(asm: &mut Asm, op: AtomicOp, fetch: bool, wide: bool, mem: Mem, src: Gpr) {
    let plain = match op {
        AtomicOp::Add => Some(Arith::Add),
        AtomicOp::Or => Some(Arith::Or),
        AtomicOp::And => Some(Arith::And),
        AtomicOp::Xor => Some(Arith::Xor),
        AtomicOp::Exchange => None,
        AtomicOp::CompareExchange => {
            asm.cmpxchg(wide, mem, src);
            if !wide {
                asm.mov(false, RAX, RAX);
            }
            return;
        }
    };
    let bytes = if wide { 8 } else { 4 };
    if fetch {
        // A register that is not an operand holds the old value until the end of the instruction.
        asm.push(super::asm::BUDGET);
        asm.load(bytes, false, super::asm::BUDGET, mem);
    }
    match plain {
        Some(op) => asm.arith_mem(wide, op, mem, src),
        None => asm.store(bytes, mem, src),
    }
    if fetch {
        asm.mov(true, src, super::asm::BUDGET);
        asm.pop(super::asm::BUDGET);
    }
}
