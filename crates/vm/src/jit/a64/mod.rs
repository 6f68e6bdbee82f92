//! Compiles programs to AArch64. The left half of the table shows which machine register holds each
//! BPF register, and the right half shows what other machine registers are used for.
//!
//! | BPF | AArch64 | | |
//! |---|---|---|---|
//! | r0 | x7 | base of the sandbox | x24 |
//! | r1 to r5 | x0 to x4 | remaining budget | x26 |
//! | r6 to r9 | x19 to x22 | `State` | x25 |
//! | r10 | x23 | offset of an access; scratch | x9; x10, x11 |
//!
//! Every access to the program's memory is `[x24, x9]`. The offset in x9 is masked right before the
//! access. For an access relative to the frame pointer that certainly stays within the stack
//! frames, the offset is the frame pointer minus a constant, without a mask.

mod asm;

use asm::*;

use super::compile::{Backend, Patch, frame_offset};
use super::enter::State;
use crate::memory::STACK_FRAME;
use crate::op::{AluOp, AtomicOp, Condition, Op, Operand, Place, Reg, Swap};

/// Machine registers that hold BPF's r0 to r10.
const REGISTERS: [Gpr; 11] =
    [Gpr(7), Gpr(0), Gpr(1), Gpr(2), Gpr(3), Gpr(4), Gpr(19), Gpr(20), Gpr(21), Gpr(22), Gpr(23)];

/// The machine registers that compiled code writes and that the procedure call standard (AAPCS64)
/// requires it to save.
const KEPT: [(Gpr, Gpr); 5] = [
    (Gpr(29), LINK),
    (Gpr(19), Gpr(20)),
    (Gpr(21), Gpr(22)),
    (Gpr(23), Gpr(24)),
    (Gpr(25), Gpr(26)),
];

pub(super) struct A64 {
    asm: Asm,
    /// Base-2 logarithm of the sandbox size in bytes.
    bits: u8,
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

impl Backend for A64 {
    type Condition = Cond;

    fn new(memory: usize, operations: usize, _registers: u16) -> A64 {
        A64 {
            // Estimate of the code size: a few machine instructions for each instruction of the
            // program.
            asm: Asm::with_capacity(operations * 4 + 256),
            bits: memory.trailing_zeros() as u8,
            out_of_budget: 0,
            unwind: 0,
        }
    }

    fn glue(&mut self) {
        let asm = &mut self.asm;
        self.out_of_budget = asm.here();
        asm.store_state32(State::TRAP_AT, SCRATCH);
        asm.mov_imm(SCRATCH, State::TRAP_BUDGET as u64);
        asm.store_state32(State::TRAP, SCRATCH);
        asm.mov_imm(BUDGET, 0);
        self.unwind = asm.here();
        asm.load_state(SCRATCH, State::STACK);
        asm.mov_sp(ZERO, SCRATCH);
        self.leave();
    }

    fn entry(&mut self, target: usize, registers: u16) {
        self.begin_entry(registers);
        let _ = self.asm.bl(target);
        self.leave();
    }

    fn begin_entry(&mut self, _registers: u16) -> usize {
        let asm = &mut self.asm;
        let begins = asm.here();
        for (first, second) in KEPT {
            asm.push_pair(first, second);
        }
        // The arguments are already in the program's registers. The sixth argument is the state.
        asm.mov(true, STATE, Gpr(5));
        asm.mov_sp(SCRATCH, ZERO);
        asm.store_state(State::STACK, SCRATCH);
        asm.load_state(BASE, State::BASE);
        asm.load_state(BUDGET, State::BUDGET);
        asm.mov_imm(gpr(Reg::R0), 0);
        for register in &REGISTERS[6..10] {
            asm.mov_imm(*register, 0);
        }
        asm.mov_imm(gpr(Reg::FRAME), 1 << self.bits);
        begins
    }

    fn leave_entry(&mut self, _registers: u16) {
        self.leave();
    }

    fn align(&mut self) {}

    fn here(&self) -> usize {
        self.asm.here()
    }

    fn make_room(&mut self) {}

    fn finish(self) -> Vec<u8> {
        self.asm.finish()
    }

    fn patch(&mut self, patch: Patch, target: usize) {
        self.asm.patch(patch, target);
    }

    fn charge(&mut self, cost: u32) -> Patch {
        self.subtract(cost);
        let enough = self.asm.unless(Cond::Below);
        let patch = self.asm.b(0);
        self.asm.land(enough);
        patch
    }

    fn out_of_budget(&mut self, at: u32) {
        self.asm.mov_imm(SCRATCH, u64::from(at));
        let _ = self.asm.b(self.out_of_budget);
    }

    fn jump(&mut self, target: usize) -> Patch {
        self.asm.b(target)
    }

    fn compare(&mut self, condition: Condition, wide: bool, left: Reg, right: Operand) -> Cond {
        let (asm, left) = (&mut self.asm, gpr(left));
        let tests = condition == Condition::Set;
        let op = if tests { Op2::Ands } else { Op2::Subs };
        match right {
            Operand::Reg(right) => asm.op2(wide, op, ZERO, left, gpr(right)),
            Operand::Imm(imm) => {
                // To subtract a negative number, add its absolute value.
                let direct = if imm < 0 { OpImm::Adds } else { OpImm::Subs };
                if tests || !asm.op_imm(wide, direct, ZERO, left, imm.unsigned_abs()) {
                    asm.mov_imm(SCRATCH, i64::from(imm) as u64);
                    asm.op2(wide, op, ZERO, left, SCRATCH);
                }
            }
        }
        match condition {
            Condition::Equal => Cond::Equal,
            Condition::NotEqual | Condition::Set => Cond::NotEqual,
            Condition::Greater => Cond::Above,
            Condition::GreaterEqual => Cond::AboveEqual,
            Condition::Less => Cond::Below,
            Condition::LessEqual => Cond::BelowEqual,
            Condition::SignedGreater => Cond::Greater,
            Condition::SignedGreaterEqual => Cond::GreaterEqual,
            Condition::SignedLess => Cond::Less,
            Condition::SignedLessEqual => Cond::LessEqual,
        }
    }

    /// Writes a branch around an unconditional jump, because B.cond reaches only 1 MiB.
    fn branch(&mut self, condition: Cond) -> Patch {
        let past = self.asm.unless(condition);
        let patch = self.asm.b(0);
        self.asm.land(past);
        patch
    }

    fn branch_back(&mut self, condition: Cond, cost: u32, at: u32, target: usize) {
        let past = self.asm.unless(condition);
        self.subtract(cost);
        let overdrawn = self.asm.unless(Cond::AboveEqual);
        let _ = self.asm.b(target);
        self.asm.land(overdrawn);
        self.out_of_budget(at);
        self.asm.land(past);
    }

    /// Writes a call of a function of the program. Each call uses 48 bytes of the native stack.
    fn call(&mut self, target: usize) -> Patch {
        let asm = &mut self.asm;
        let kept = [(Gpr(19), Gpr(20)), (Gpr(21), Gpr(22)), (Gpr(23), LINK)];
        for (first, second) in kept {
            asm.push_pair(first, second);
        }
        let frame = gpr(Reg::FRAME);
        asm.op_imm(true, OpImm::Sub, frame, frame, STACK_FRAME as u32);
        let patch = asm.bl(target);
        for (first, second) in kept.into_iter().rev() {
            asm.pop_pair(first, second);
        }
        patch
    }

    fn helper(&mut self, call: u32, shim: usize) {
        let asm = &mut self.asm;
        asm.store_state(State::BUDGET, BUDGET);
        asm.mov_imm(SCRATCH, u64::from(call));
        asm.store_state32(State::CALL, SCRATCH);
        // The five arguments are already in the right registers. The sixth argument is the state.
        asm.mov(true, Gpr(5), STATE);
        asm.mov_imm(SCRATCH, shim as u64);
        asm.push_pair(LINK, ZERO);
        asm.blr(SCRATCH);
        asm.pop_pair(LINK, ZERO);
        asm.load_state(BUDGET, State::BUDGET);
        let goes_on = asm.cbz(Gpr(1));
        let _ = asm.b(self.unwind);
        asm.land(goes_on);
        asm.mov(true, gpr(Reg::R0), Gpr(0));
        // The helper has left values of the host in these registers, for example addresses. They
        // are cleared, so that the program cannot read them.
        for register in &REGISTERS[1..6] {
            asm.mov_imm(*register, 0);
        }
    }

    fn exit(&mut self) {
        self.asm.ret();
    }

    fn straight(&mut self, op: Op) {
        let asm = &mut self.asm;
        match op {
            Op::Alu { op, wide, dst, src } => self.alu(op, wide, gpr(dst), src),
            Op::SignExtend { wide, bits, dst, src } => {
                asm.sign_extend(wide, bits, gpr(dst), gpr(src));
            }
            Op::Negate { wide, dst } => asm.op2(wide, Op2::Sub, gpr(dst), ZERO, gpr(dst)),
            Op::Swap { swap, bits, dst } => self.swap(swap, bits, gpr(dst)),
            Op::Load { size, signed, dst, from } => {
                self.place(from, size.bytes());
                self.asm.load(size.bytes(), signed, gpr(dst));
            }
            Op::Store { size, to, src } => {
                let src = match src {
                    Operand::Reg(src) => gpr(src),
                    Operand::Imm(0) => ZERO,
                    Operand::Imm(imm) => {
                        asm.mov_imm(SCRATCH, i64::from(imm) as u64);
                        SCRATCH
                    }
                };
                self.place(to, size.bytes());
                self.asm.store(size.bytes(), src);
            }
            Op::Atomic { op, fetch, wide, at, src } => self.atomic(op, fetch, wide, at, gpr(src)),
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

impl A64 {
    /// Writes the return to the host, with `r0` and the remaining budget.
    fn leave(&mut self) {
        let asm = &mut self.asm;
        asm.mov(true, Gpr(0), gpr(Reg::R0));
        asm.mov(true, Gpr(1), BUDGET);
        for (first, second) in KEPT.into_iter().rev() {
            asm.pop_pair(first, second);
        }
        asm.ret();
    }

    /// Subtracts `cost` from the budget, and sets the flags of the CPU.
    fn subtract(&mut self, cost: u32) {
        if !self.asm.op_imm(true, OpImm::Subs, BUDGET, BUDGET, cost) {
            self.asm.mov_imm(SCRATCH, u64::from(cost));
            self.asm.op2(true, Op2::Subs, BUDGET, BUDGET, SCRATCH);
        }
    }

    /// Computes the offset of an access of `bytes` bytes into `OFFSET`. The offset is masked,
    /// unless the access certainly stays within the stack frames.
    fn place(&mut self, place: Place, bytes: usize) {
        let (asm, mut base) = (&mut self.asm, gpr(place.base));
        let op = if place.offset < 0 { OpImm::Sub } else { OpImm::Add };
        let distance = u32::from(place.offset.unsigned_abs());
        // Each of the two parts of the distance can be encoded as an immediate.
        for part in [distance & !0xfff, distance & 0xfff] {
            if part != 0 {
                asm.op_imm(false, op, OFFSET, base, part);
                base = OFFSET;
            }
        }
        if frame_offset(place, bytes).is_none() {
            asm.low_bits(OFFSET, base, self.bits);
        }
    }

    fn alu(&mut self, op: AluOp, wide: bool, dst: Gpr, src: Operand) {
        let asm = &mut self.asm;
        let right = match src {
            Operand::Reg(src) => gpr(src),
            Operand::Imm(imm) => {
                if alu_imm(asm, op, wide, dst, imm) {
                    return;
                }
                asm.mov_imm(SCRATCH, i64::from(imm) as u64);
                SCRATCH
            }
        };
        // The CPU's division behaves as RFC 9669 s.4.1 demands: dividing by zero gives 0, and
        // dividing the smallest number by -1 gives that number. The remainder is computed from the
        // quotient.
        let op = match op {
            AluOp::Add => Op2::Add,
            AluOp::Sub => Op2::Sub,
            AluOp::Or => Op2::Orr,
            AluOp::And => Op2::And,
            AluOp::Xor => Op2::Eor,
            AluOp::Lsh => Op2::Lslv,
            AluOp::Rsh => Op2::Lsrv,
            AluOp::Arsh => Op2::Asrv,
            AluOp::Div => Op2::Udiv,
            AluOp::SignedDiv => Op2::Sdiv,
            AluOp::Mul => return asm.mul(wide, dst, dst, right),
            AluOp::Mov => return asm.mov(wide, dst, right),
            AluOp::Mod | AluOp::SignedMod => {
                let division = if op == AluOp::Mod { Op2::Udiv } else { Op2::Sdiv };
                asm.op2(wide, division, SCRATCH2, dst, right);
                return asm.msub(wide, dst, SCRATCH2, right, dst);
            }
        };
        asm.op2(wide, op, dst, dst, right);
    }

    fn swap(&mut self, swap: Swap, bits: u8, dst: Gpr) {
        let asm = &mut self.asm;
        let swaps = swap != Swap::Little;
        match bits {
            16 => {
                if swaps {
                    asm.rev16(dst);
                }
                asm.low_bits(dst, dst, 16);
            }
            32 if swaps => asm.rev(false, dst),
            32 => asm.mov(false, dst, dst),
            _ if swaps => asm.rev(true, dst),
            _ => {}
        }
    }

    /// Compiles an atomic instruction. Only one thread at a time accesses the memory of an
    /// instance, so plain loads and stores are sufficient.
    fn atomic(&mut self, op: AtomicOp, fetch: bool, wide: bool, at: Place, src: Gpr) {
        self.place(at, 8);
        let (asm, bytes) = (&mut self.asm, if wide { 8 } else { 4 });
        let (old, new) = (SCRATCH, SCRATCH2);
        asm.load(bytes, false, old);
        let op = match op {
            AtomicOp::Add => Op2::Add,
            AtomicOp::Or => Op2::Orr,
            AtomicOp::And => Op2::And,
            AtomicOp::Xor => Op2::Eor,
            AtomicOp::Exchange => {
                asm.store(bytes, src);
                return asm.mov(true, src, old);
            }
            AtomicOp::CompareExchange => {
                asm.op2(wide, Op2::Subs, ZERO, gpr(Reg::R0), old);
                let other = asm.unless(Cond::Equal);
                asm.store(bytes, src);
                asm.land(other);
                return asm.mov(true, gpr(Reg::R0), old);
            }
        };
        asm.op2(wide, op, new, old, src);
        asm.store(bytes, new);
        if fetch {
            asm.mov(true, src, old);
        }
    }
}

/// Compiles an arithmetic instruction with an immediate. Returns `false` if the immediate has no
/// encoding, so that the caller must put it into a register.
fn alu_imm(asm: &mut Asm, op: AluOp, wide: bool, dst: Gpr, imm: i32) -> bool {
    // To add a negative number, subtract its absolute value.
    let (add, subtract) = if imm < 0 { (OpImm::Sub, OpImm::Add) } else { (OpImm::Add, OpImm::Sub) };
    match op {
        AluOp::Mov if wide => asm.mov_imm(dst, i64::from(imm) as u64),
        AluOp::Mov => asm.mov_imm(dst, u64::from(imm as u32)),
        // The decoder has already reduced the shift amount to the width of the register.
        AluOp::Lsh => asm.lsl_imm(wide, dst, dst, imm as u8),
        AluOp::Rsh => asm.lsr_imm(wide, dst, dst, imm as u8),
        AluOp::Arsh => asm.asr_imm(wide, dst, dst, imm as u8),
        AluOp::Add => return asm.op_imm(wide, add, dst, dst, imm.unsigned_abs()),
        AluOp::Sub => return asm.op_imm(wide, subtract, dst, dst, imm.unsigned_abs()),
        _ => return false,
    }
    true
}
