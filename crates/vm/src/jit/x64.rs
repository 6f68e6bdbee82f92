//! Operations to x86-64.

use super::asm::*;
use super::division::{Division, atomic, shift};
use super::enter::State;
use crate::check::{Checked, MAX_CALL_DEPTH};
use crate::memory::STACK_FRAME;
use crate::op::{AluOp, Condition, Op, Operand, Place, Reg, Swap, jump_cost};

/// x86-64 register that holds each of BPF's registers, r0 to r10.
const REGISTERS: [Gpr; 11] = [RAX, RDI, RSI, RDX, RCX, R8, RBX, R13, R14, R15, RBP];

/// Code of a program. Where `glue` begins is a function of type `enter::Glue`.
pub(super) struct Output {
    pub(super) bytes: Vec<u8>,
    pub(super) glue: usize,
    /// Offset in `bytes` at which each instruction's code begins.
    pub(super) offsets: Vec<u32>,
}

/// Compiles a program that was checked, for a sandbox of `memory` bytes; `cost` is a helper's, by its place.
pub(super) fn compile(checked: &Checked, memory: usize, cost: impl Fn(u32) -> u32) -> Output {
    let mut compiler = Compiler {
        // A few instructions to each operation: growing the buffer costs more than asking for too much.
        asm: Asm::with_capacity(checked.ops.len() * 12 + 1024),
        mask: (memory - 1) as i32,
        offsets: Vec::with_capacity(checked.ops.len()),
        jumps: Vec::new(),
        overdrawn: Vec::new(),
        out_of_budget: 0,
        trampoline: 0,
    };
    let glue = compiler.glue(checked.registers);
    for (at, op) in checked.ops.iter().enumerate() {
        compiler.asm.make_room();
        compiler.offsets.push(compiler.asm.here() as u32);
        compiler.operation(at, *op, &cost);
    }
    compiler.finish();
    Output { bytes: compiler.asm.finish(), glue, offsets: compiler.offsets }
}

struct Compiler {
    asm: Asm,
    mask: i32,
    offsets: Vec<u32>,
    /// Jumps forwards: where their distance ends, and the instruction they go to.
    jumps: Vec<(usize, u32)>,
    /// Jumps for a budget that is used up: where their distance ends, and the instruction that did it.
    overdrawn: Vec<(usize, u32)>,
    /// Ends the call: the budget is used up by the instruction whose index is in `SCRATCH`.
    out_of_budget: usize,
    /// Calls a helper: its place and the instruction's index are in `SCRATCH`.
    trampoline: usize,
}

fn gpr(register: Reg) -> Gpr {
    REGISTERS[register.index()]
}

impl Compiler {
    /// Writes the code before the program: its entry, its exit, and the calls of helpers.
    fn glue(&mut self, registers: u16) -> usize {
        let asm = &mut self.asm;
        let glue = asm.here();
        // Registers written that the System V ABI wants kept: rbp and r12 here, the others where the program
        // names the register of BPF's that they are.
        let mut kept = vec![RBP, R12];
        kept.extend((6..10).filter(|r| registers >> r & 1 != 0).map(|r| REGISTERS[r]));
        for register in &kept {
            asm.push(*register);
        }
        // With these and the way back the stack is aligned to 16, or eight bytes more are needed.
        let padding = if kept.len() % 2 == 0 { 8 } else { 0 };
        asm.arith_imm(true, Arith::Sub, RSP, padding);
        // The arguments are where the program wants them; the state is the sixth.
        asm.mov(true, STATE, R9);
        asm.load(8, false, SCRATCH, Mem::State(State::FUNCTION));
        asm.store(8, Mem::State(State::STACK), RSP);
        asm.load(8, false, BASE, Mem::State(State::BASE));
        asm.load(8, false, BUDGET, Mem::State(State::BUDGET));
        asm.mov_imm(RBP, self.mask as u64 + 1);
        asm.mov_imm(RAX, 0);
        for register in &kept[2..] {
            asm.mov_imm(*register, 0);
        }
        asm.call_register(SCRATCH);

        let leave = asm.here();
        asm.store(8, Mem::State(State::BUDGET), BUDGET);
        asm.arith_imm(true, Arith::Add, RSP, padding);
        for register in kept.iter().rev() {
            asm.pop(*register);
        }
        asm.ret();

        self.out_of_budget = asm.here();
        asm.store(4, Mem::State(State::TRAP_AT), SCRATCH);
        asm.store_imm(4, Mem::State(State::TRAP), State::TRAP_BUDGET);
        asm.mov_imm(BUDGET, 0);
        let unwind = asm.here();
        asm.load(8, false, RSP, Mem::State(State::STACK));
        asm.jmp(leave);

        self.trampoline = asm.here();
        asm.store(8, Mem::State(State::BUDGET), BUDGET);
        asm.store(4, Mem::State(State::CALL), SCRATCH);
        asm.push(STATE);
        asm.arith_imm(true, Arith::Sub, RSP, 8);
        // The five arguments are where the ABI wants them; the state is the sixth.
        asm.mov(true, R9, STATE);
        asm.load(8, false, RAX, Mem::State(State::SHIMS));
        asm.movzx16(SCRATCH, SCRATCH);
        asm.call_table(RAX, SCRATCH);
        asm.arith_imm(true, Arith::Add, RSP, 8);
        asm.pop(STATE);
        asm.load(8, false, BUDGET, Mem::State(State::BUDGET));
        asm.test(false, RDX, RDX);
        asm.jcc(Cc::NotEqual, unwind);
        // Values that the host left in the registers, its addresses among them, are not the program's to see.
        for register in &REGISTERS[1..6] {
            asm.mov_imm(*register, 0);
        }
        asm.ret();
        glue
    }

    fn finish(&mut self) {
        for (end, target) in std::mem::take(&mut self.jumps) {
            self.asm.patch(end, self.offsets[target as usize] as usize);
        }
        for (end, at) in std::mem::take(&mut self.overdrawn) {
            self.asm.make_room();
            let here = self.asm.here();
            self.asm.patch(end, here);
            self.asm.mov_imm(SCRATCH, u64::from(at));
            self.asm.jmp(self.out_of_budget);
        }
    }

    fn operation(&mut self, at: usize, op: Op, cost: &impl Fn(u32) -> u32) {
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
            Op::WideTail => {}
            Op::Jump { target } => self.jump(at, target),
            Op::Branch { condition, wide, left, right, target } => {
                let cc = self.compare(condition, wide, gpr(left), right);
                self.branch(at, cc, target);
            }
            Op::Helper { helper } => {
                self.charge(at, cost(helper));
                self.asm.mov_imm(SCRATCH, u64::from(State::call(at, helper)));
                self.asm.call(self.trampoline);
            }
            Op::Call { target, cost } => self.call(at, target, cost),
            Op::Exit => asm.ret(),
        }
    }

    /// Takes `cost` from the budget.
    fn charge(&mut self, at: usize, cost: u32) {
        if cost > 0 {
            self.asm.arith_imm(true, Arith::Sub, BUDGET, cost as i32);
            self.asm.jcc(Cc::Below, 0);
            self.overdrawn.push((self.asm.here(), at as u32));
        }
    }

    fn jump(&mut self, at: usize, target: u32) {
        self.charge(at, jump_cost(at, target));
        match self.offsets.get(target as usize) {
            Some(offset) => self.asm.jmp(*offset as usize),
            None => {
                self.asm.jmp(0);
                self.jumps.push((self.asm.here(), target));
            }
        }
    }

    fn branch(&mut self, at: usize, cc: Cc, target: u32) {
        match self.offsets.get(target as usize).copied() {
            // Backwards: the jump is taken while the budget lasts.
            Some(offset) => {
                let past = self.asm.jcc_short(cc.inverted());
                self.asm.arith_imm(true, Arith::Sub, BUDGET, jump_cost(at, target) as i32);
                self.asm.jcc(Cc::AboveEqual, offset as usize);
                self.asm.mov_imm(SCRATCH, at as u64);
                self.asm.jmp(self.out_of_budget);
                self.asm.land(past);
            }
            None => {
                self.asm.jcc(cc, 0);
                self.jumps.push((self.asm.here(), target));
            }
        }
    }

    /// 48 bytes of the native stack, which keeps its alignment: five registers and the way back.
    fn call(&mut self, at: usize, target: u32, cost: u32) {
        self.charge(at, cost);
        let kept = [RBX, R13, R14, R15, RBP];
        for register in kept {
            self.asm.push(register);
        }
        self.asm.arith_imm(true, Arith::Sub, RBP, STACK_FRAME as i32);
        match self.offsets.get(target as usize) {
            Some(offset) => self.asm.call(*offset as usize),
            None => {
                self.asm.call(0);
                self.jumps.push((self.asm.here(), target));
            }
        }
        for register in kept.iter().rev() {
            self.asm.pop(*register);
        }
    }

    /// The place of an access of `bytes`: masked, but for the function's own frame and those below it. The
    /// frame pointer is the program's to read only, and at least STACK above the sandbox's beginning.
    fn place(&mut self, place: Place, bytes: usize) -> Mem {
        const BELOW: i32 = -((STACK_FRAME * MAX_CALL_DEPTH) as i32);
        let offset = i32::from(place.offset);
        if place.base == Reg::FRAME && (BELOW..=-(bytes as i32)).contains(&offset) {
            return Mem::Frame(offset);
        }
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

    fn compare(&mut self, condition: Condition, wide: bool, left: Gpr, right: Operand) -> Cc {
        let asm = &mut self.asm;
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
}
