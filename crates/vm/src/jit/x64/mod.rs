//! Compiles programs to x86-64. The left half of the table shows which machine register holds each
//! BPF register, and the right half shows what other machine registers are used for.
//!
//! | BPF | x86-64 | | |
//! |---|---|---|---|
//! | r0 | rax | base of the sandbox | r9 |
//! | r1 to r5 | rdi rsi rdx rcx r8 | remaining budget | r10 |
//! | r6 to r9 | rbx r13 r14 r15 | scratch | r11 |
//! | r10 | rbp | `State` | r12 |
//!
//! Every access to the program's memory is `[r9 + r11]`, with r11 masked right before the access,
//! or `[r9 + rbp + constant]`, with a constant for which the access certainly stays within the
//! stack frames.

mod asm;
mod division;

use asm::*;
use division::{Division, atomic, shift};

use super::compile::{Backend, Patch, frame_offset};
use super::enter::State;
use crate::memory::STACK_FRAME;
use crate::op::{AluOp, Condition, Op, Operand, Place, Reg, Swap};

/// Machine registers that hold BPF's r0 to r10.
const REGISTERS: [Gpr; 11] = [RAX, RDI, RSI, RDX, RCX, R8, RBX, R13, R14, R15, RBP];

pub(super) struct X64 {
    asm: Asm,
    mask: i32,
    /// Registers that are saved around a call between functions of the program: those of r6 to r10
    /// that the program uses.
    kept: Vec<Gpr>,
    /// Offset of the code that ends a call because the budget is used up. It expects the index of
    /// the instruction in `SCRATCH`.
    out_of_budget: usize,
    /// Offset of the code that ends a call early, after a failed helper or because the budget is
    /// used up.
    unwind: usize,
}

fn gpr(register: Reg) -> Gpr {
    REGISTERS[register.index()]
}

impl Backend for X64 {
    type Condition = Cc;

    fn new(memory: usize, operations: usize, registers: u16) -> X64 {
        X64 {
            // Estimate of the code size: a few machine instructions for each instruction of the
            // program. Growing the buffer later would cost more than a large initial capacity.
            asm: Asm::with_capacity(operations * 12 + 1024),
            mask: (memory - 1) as i32,
            kept: kept(registers).collect(),
            out_of_budget: 0,
            unwind: 0,
        }
    }

    fn glue(&mut self) {
        let asm = &mut self.asm;
        self.out_of_budget = asm.here();
        asm.store(4, Mem::State(State::TRAP_AT), SCRATCH);
        asm.store_imm(4, Mem::State(State::TRAP), State::TRAP_BUDGET);
        asm.mov_imm(BUDGET, 0);
        self.unwind = asm.here();
        // Ends the call: restores the stack pointer of the entry and returns. The entry has stored
        // the address of the code that leaves the program right below that position, where RET
        // finds it.
        asm.load(8, false, RSP, Mem::State(State::STACK));
        asm.arith_imm(true, Arith::Sub, RSP, 8);
        asm.ret();
    }

    fn entry(&mut self, target: usize, registers: u16) {
        self.enter(registers);
        self.asm.mov_imm(RAX, 0);
        let _ = self.asm.call(target);
        // A call that ends early also returns to this address.
        self.leave(registers);
    }

    fn begin_entry(&mut self, registers: u16) -> usize {
        let leave = self.asm.here();
        self.leave(registers);
        self.asm.align();
        let begins = self.asm.here();
        self.enter(registers);
        // Pushes the address to which a call that ends early returns. It is in the position of a
        // return address.
        self.asm.lea_code(RAX, leave);
        self.asm.push(RAX);
        self.asm.mov_imm(RAX, 0);
        begins
    }

    fn leave_entry(&mut self, registers: u16) {
        self.asm.pop(SCRATCH);
        self.leave(registers);
    }

    fn align(&mut self) {
        self.asm.align();
    }

    fn here(&self) -> usize {
        self.asm.here()
    }

    #[inline]
    fn make_room(&mut self) {
        self.asm.make_room();
    }

    fn finish(self) -> Vec<u8> {
        self.asm.finish()
    }

    fn patch(&mut self, patch: Patch, target: usize) {
        self.asm.patch(patch, target);
    }

    #[inline]
    fn charge(&mut self, cost: u32) -> Patch {
        self.asm.arith_imm(true, Arith::Sub, BUDGET, cost as i32);
        self.asm.jcc(Cc::Below, 0)
    }

    fn out_of_budget(&mut self, at: u32) {
        self.asm.mov_imm(SCRATCH, u64::from(at));
        let _ = self.asm.jmp(self.out_of_budget);
    }

    #[inline]
    fn jump(&mut self, target: usize) -> Patch {
        self.asm.jmp(target)
    }

    #[inline]
    fn compare(&mut self, condition: Condition, wide: bool, left: Reg, right: Operand) -> Cc {
        let (asm, left) = (&mut self.asm, gpr(left));
        match (condition, right) {
            (Condition::Set, Operand::Reg(right)) => asm.test(wide, left, gpr(right)),
            (Condition::Set, Operand::Imm(imm)) => asm.test_imm(wide, left, imm),
            (_, Operand::Reg(right)) => asm.arith(wide, Arith::Cmp, left, gpr(right)),
            (_, Operand::Imm(0)) => asm.test(wide, left, left),
            (_, Operand::Imm(imm)) => asm.arith_imm(wide, Arith::Cmp, left, imm),
        }
        match condition {
            Condition::Equal => Cc::Equal,
            Condition::NotEqual | Condition::Set => Cc::NotEqual,
            Condition::Greater => Cc::Above,
            Condition::GreaterEqual => Cc::AboveEqual,
            Condition::Less => Cc::Below,
            Condition::LessEqual => Cc::BelowEqual,
            Condition::SignedGreater => Cc::Greater,
            Condition::SignedGreaterEqual => Cc::GreaterEqual,
            Condition::SignedLess => Cc::Less,
            Condition::SignedLessEqual => Cc::LessEqual,
        }
    }

    #[inline]
    fn branch(&mut self, condition: Cc) -> Patch {
        self.asm.jcc(condition, 0)
    }

    #[inline]
    fn branch_back(&mut self, condition: Cc, cost: u32, at: u32, target: usize) {
        let past = self.asm.jcc_short(condition.inverted());
        self.asm.arith_imm(true, Arith::Sub, BUDGET, cost as i32);
        let _ = self.asm.jcc(Cc::AboveEqual, target);
        self.out_of_budget(at);
        self.asm.land(past);
    }

    /// Writes a call of a function of the program, and saves the registers that the program uses.
    /// With the return address, they take at most 48 bytes of the native stack, which stays aligned
    /// to 16 bytes.
    fn call(&mut self, target: usize) -> Patch {
        let (asm, kept) = (&mut self.asm, &self.kept);
        for register in kept {
            asm.push(*register);
        }
        let padded = kept.len().is_multiple_of(2);
        if padded {
            asm.push(RAX);
        }
        // If no instruction reads the frame pointer, it is neither saved nor changed.
        if kept.contains(&gpr(Reg::FRAME)) {
            asm.arith_imm(true, Arith::Sub, gpr(Reg::FRAME), STACK_FRAME as i32);
        }
        let patch = asm.call(target);
        if padded {
            asm.pop(SCRATCH);
        }
        for register in kept.iter().rev() {
            asm.pop(*register);
        }
        patch
    }

    fn helper(&mut self, call: u32, shim: usize) {
        let asm = &mut self.asm;
        asm.store(8, Mem::State(State::BUDGET), BUDGET);
        asm.store_imm(4, Mem::State(State::CALL), call as i32);
        // The five arguments are already in the registers of the calling convention. The sixth
        // argument is the state.
        asm.mov(true, R9, STATE);
        asm.mov_imm(RAX, shim as u64);
        // This additional push aligns the stack to 16 bytes.
        asm.push(RAX);
        asm.call_register(RAX);
        asm.pop(SCRATCH);
        asm.load(8, false, BUDGET, Mem::State(State::BUDGET));
        asm.load(8, false, BASE, Mem::State(State::BASE));
        asm.test(false, RDX, RDX);
        let _ = asm.jcc(Cc::NotEqual, self.unwind);
        // The helper has left values of the host in these registers, for example addresses. They
        // are cleared, so that the program cannot read them.
        for register in &REGISTERS[1..6] {
            asm.mov_imm(*register, 0);
        }
    }

    #[inline]
    fn exit(&mut self) {
        self.asm.ret();
    }

    #[inline(always)]
    fn straight(&mut self, op: Op) {
        let asm = &mut self.asm;
        match op {
            Op::Alu { op, wide, dst, src } => self.alu(op, wide, gpr(dst), src),
            Op::SignExtend { wide, bits, dst, src } => asm.movsx(wide, bits, gpr(dst), gpr(src)),
            Op::Negate { wide, dst } => asm.neg(wide, gpr(dst)),
            Op::Swap { swap, bits, dst } => self.swap(swap, bits, gpr(dst)),
            Op::Load { size, signed, dst, from } => {
                let mem = self.place(from, size.bytes());
                self.asm.load(size.bytes(), signed, gpr(dst), mem);
            }
            Op::Store { size, to, src } => {
                let mem = self.place(to, size.bytes());
                match src {
                    Operand::Reg(src) => self.asm.store(size.bytes(), mem, gpr(src)),
                    Operand::Imm(imm) => self.asm.store_imm(size.bytes(), mem, imm),
                }
            }
            Op::Atomic { op, fetch, wide, at, src } => {
                let mem = self.place(at, 8);
                atomic(&mut self.asm, op, fetch, wide, mem, gpr(src));
            }
            Op::LoadWide { dst, value } => asm.mov_imm(gpr(dst), value),
            Op::WideTail
            | Op::Jump { .. }
            | Op::Branch { .. }
            | Op::Helper { .. }
            | Op::Call { .. }
            | Op::Exit => unreachable!("`compile` handles these operations"),
        }
    }
}

/// Returns the machine registers that hold r6 to r10, limited to the BPF registers in the bit set.
fn kept(registers: u16) -> impl Iterator<Item = Gpr> {
    (6..11)
        .filter(move |register| registers >> register & 1 != 0)
        .map(|register| REGISTERS[register])
}

/// Returns the registers that an entry must save, because the program writes them and the System V
/// ABI requires them to be preserved. The second value is true if eight bytes of padding are needed
/// to align the stack to 16 bytes.
fn kept_at_entry(registers: u16) -> (Vec<Gpr>, bool) {
    let kept: Vec<Gpr> = std::iter::once(STATE).chain(kept(registers)).collect();
    let padded = kept.len().is_multiple_of(2);
    (kept, padded)
}

impl X64 {
    /// Writes the entry from the host: saves registers, and sets all registers of the program
    /// except r0.
    fn enter(&mut self, registers: u16) {
        let (kept, padded) = kept_at_entry(registers);
        let asm = &mut self.asm;
        for register in &kept {
            asm.push(*register);
        }
        if padded {
            asm.push(RAX);
        }
        // The arguments are already in the program's registers. The sixth argument is the state.
        asm.mov(true, STATE, R9);
        asm.load(8, false, BUDGET, Mem::State(State::BUDGET));
        asm.store(8, Mem::State(State::STACK), RSP);
        asm.load(8, false, BASE, Mem::State(State::BASE));
        for register in &kept[1..] {
            let frame = *register == gpr(Reg::FRAME);
            asm.mov_imm(*register, if frame { self.mask as u64 + 1 } else { 0 });
        }
    }

    /// Writes the return to the host, with r0 and the remaining budget.
    fn leave(&mut self, registers: u16) {
        let (kept, padded) = kept_at_entry(registers);
        let asm = &mut self.asm;
        asm.mov(true, RDX, BUDGET);
        if padded {
            asm.pop(SCRATCH);
        }
        for register in kept.iter().rev() {
            asm.pop(*register);
        }
        asm.ret();
    }

    /// Returns the memory operand for an access of `bytes` bytes. Writes code that masks the
    /// address, unless the access certainly stays within the stack frames.
    #[inline(always)]
    fn place(&mut self, place: Place, bytes: usize) -> Mem {
        if let Some(offset) = frame_offset(place, bytes) {
            return Mem::Frame(offset);
        }
        let offset = i32::from(place.offset);
        let base = gpr(place.base);
        if offset == 0 && self.mask == 0xffff {
            self.asm.movzx16(SCRATCH, base);
            return Mem::Masked;
        }
        if offset == 0 {
            self.asm.mov(false, SCRATCH, base);
        } else {
            self.asm.lea32(SCRATCH, base, offset);
        }
        if self.mask == 0xffff {
            self.asm.movzx16(SCRATCH, SCRATCH);
        } else {
            self.asm.arith_imm(false, Arith::And, SCRATCH, self.mask);
        }
        Mem::Masked
    }

    fn alu(&mut self, op: AluOp, wide: bool, dst: Gpr, src: Operand) {
        let asm = &mut self.asm;
        let arith = match op {
            AluOp::Add => Some(Arith::Add),
            AluOp::Sub => Some(Arith::Sub),
            AluOp::Or => Some(Arith::Or),
            AluOp::And => Some(Arith::And),
            AluOp::Xor => Some(Arith::Xor),
            _ => None,
        };
        let shifts = match op {
            AluOp::Lsh => Some(Shift::Left),
            AluOp::Rsh => Some(Shift::Right),
            AluOp::Arsh => Some(Shift::Arithmetic),
            _ => None,
        };
        let division = Division {
            wide,
            signed: matches!(op, AluOp::SignedDiv | AluOp::SignedMod),
            remainder: matches!(op, AluOp::Mod | AluOp::SignedMod),
        };
        match (arith, shifts, src) {
            (Some(op), _, Operand::Reg(src)) => asm.arith(wide, op, dst, gpr(src)),
            (Some(op), _, Operand::Imm(imm)) => asm.arith_imm(wide, op, dst, imm),
            (_, Some(kind), Operand::Reg(src)) => shift(asm, wide, kind, dst, gpr(src)),
            (_, Some(kind), Operand::Imm(imm)) => asm.shift_imm(wide, kind, dst, imm as u8),
            (_, _, Operand::Reg(src)) => match op {
                AluOp::Mov => asm.mov(wide, dst, gpr(src)),
                AluOp::Mul => asm.imul(wide, dst, gpr(src)),
                _ => division.by_register(asm, dst, gpr(src)),
            },
            (_, _, Operand::Imm(imm)) => match op {
                AluOp::Mov if wide => asm.mov_imm(dst, i64::from(imm) as u64),
                AluOp::Mov => asm.mov_imm(dst, u64::from(imm as u32)),
                AluOp::Mul => asm.imul_imm(wide, dst, imm),
                _ => division.by_imm(asm, dst, imm),
            },
        }
    }

    fn swap(&mut self, swap: Swap, bits: u8, dst: Gpr) {
        let asm = &mut self.asm;
        let swaps = swap != Swap::Little;
        match bits {
            16 => {
                if swaps {
                    asm.rol16_8(dst);
                }
                asm.movzx16(dst, dst);
            }
            32 if swaps => asm.bswap(false, dst),
            32 => asm.mov(false, dst, dst),
            _ if swaps => asm.bswap(true, dst),
            _ => {}
        }
    }
}
