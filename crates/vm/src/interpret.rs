//! The interpreter, which defines the semantics of each instruction in safe Rust. Tests compare
//! compiled code with it. It also runs programs on machines for which there is no compiler.

use crate::check::{Checked, MAX_CALL_DEPTH};
use crate::helper::{Caller, HelperHost, Helpers};
use crate::memory::{Memory, STACK_FRAME};
use crate::op::{AluOp, AtomicOp, Condition, Op, Operand, Place, Reg, Size, Swap};
use crate::trap::TrapKind;

/// State of a running program: registers `r0` to `r10`, and the remaining budget.
struct Machine {
    registers: [u64; 11],
    budget: u64,
}

/// State of a calling function, which is restored when the called function exits.
#[derive(Clone, Copy, Default)]
struct Frame {
    back: usize,
    /// The caller's values of `r6` to `r10`.
    kept: [u64; 5],
}

/// Result of a call, for both engines: either the value of `r0`, or the index of the instruction
/// that trapped and the reason.
pub(crate) type End = Result<u64, Box<(usize, TrapKind)>>;

impl Machine {
    fn get(&self, register: Reg) -> u64 {
        self.registers[register.index()]
    }

    fn set(&mut self, register: Reg, value: u64) {
        self.registers[register.index()] = value;
    }

    fn operand(&self, operand: Operand) -> u64 {
        match operand {
            Operand::Reg(register) => self.get(register),
            Operand::Imm(imm) => i64::from(imm) as u64,
        }
    }

    fn address(&self, place: Place) -> u64 {
        self.get(place.base).wrapping_add(i64::from(place.offset) as u64)
    }

    fn charge(&mut self, cost: u32, at: usize) -> Result<(), Box<(usize, TrapKind)>> {
        match self.budget.checked_sub(u64::from(cost)) {
            Some(left) => {
                self.budget = left;
                Ok(())
            }
            None => {
                self.budget = 0;
                Err(Box::new((at, TrapKind::Budget)))
            }
        }
    }
}

/// Runs the program from function `entry` on. The caller must already have taken the charge for
/// entering this function from the budget. On return, `budget` is the remaining budget.
pub(crate) fn run<H: HelperHost>(
    checked: &Checked,
    helpers: &Helpers<H>,
    entry: u32,
    arguments: [u64; 5],
    memory: &mut [u8],
    budget: &mut u64,
    data: &mut H::Data<'_>,
) -> End {
    let mut registers = [0; 11];
    registers[1..6].copy_from_slice(&arguments);
    registers[10] = Memory::new(memory).size() as u64;
    let mut machine = Machine { registers, budget: *budget };
    let end = steps(checked, helpers, entry as usize, &mut machine, memory, data);
    *budget = machine.budget;
    end
}

fn steps<H: HelperHost>(
    checked: &Checked,
    helpers: &Helpers<H>,
    mut at: usize,
    machine: &mut Machine,
    bytes: &mut [u8],
    data: &mut H::Data<'_>,
) -> End {
    let mut frames = [Frame::default(); MAX_CALL_DEPTH];
    let mut depth = 0;
    loop {
        match checked.ops[at] {
            Op::Jump { target } => {
                machine.charge(checked.jump_cost(at, target), at)?;
                at = target as usize;
                continue;
            }
            Op::Branch { condition, wide, left, right, target } => {
                if holds(condition, wide, machine.get(left), machine.operand(right)) {
                    machine.charge(checked.jump_cost(at, target), at)?;
                    at = target as usize;
                    continue;
                }
            }
            Op::Helper { helper } => {
                let helper = helpers.get(helper);
                machine.charge(helper.cost, at)?;
                let mut arguments = [0; 5];
                arguments.copy_from_slice(&machine.registers[1..6]);
                let memory = Memory::new(bytes);
                let mut caller = Caller { data: &mut *data, memory, budget: &mut machine.budget };
                match helper.run.run(&mut caller, &arguments) {
                    Ok(value) => machine.set(Reg::R0, value),
                    Err(error) => return Err(Box::new((at, helper.trap(*error)))),
                }
                machine.registers[1..6].fill(0);
            }
            Op::Call { target, cost } => {
                machine.charge(cost, at)?;
                let mut kept = [0; 5];
                kept.copy_from_slice(&machine.registers[6..]);
                frames[depth] = Frame { back: at + 1, kept };
                depth += 1;
                machine.registers[10] -= STACK_FRAME as u64;
                at = target as usize;
                continue;
            }
            Op::Exit => {
                if depth == 0 {
                    return Ok(machine.get(Reg::R0));
                }
                depth -= 1;
                machine.registers[6..].copy_from_slice(&frames[depth].kept);
                at = frames[depth].back;
                continue;
            }
            Op::LoadWide { dst, value } => {
                machine.set(dst, value);
                at += 1;
            }
            op => step(op, machine, &mut Memory::new(bytes)),
        }
        at += 1;
    }
}

/// Executes an instruction after which execution continues with the next one.
fn step(op: Op, machine: &mut Machine, memory: &mut Memory<'_>) {
    match op {
        Op::Alu { op, wide, dst, src } => {
            let (left, right) = (machine.get(dst), machine.operand(src));
            machine.set(dst, if wide { alu64(op, left, right) } else { alu32(op, left, right) });
        }
        Op::SignExtend { wide, bits, dst, src } => {
            let value = extend(machine.get(src), bits);
            machine.set(dst, if wide { value } else { u64::from(value as u32) });
        }
        Op::Negate { wide, dst } => {
            let value = machine.get(dst).wrapping_neg();
            machine.set(dst, if wide { value } else { u64::from(value as u32) });
        }
        Op::Swap { swap, bits, dst } => machine.set(dst, swapped(swap, bits, machine.get(dst))),
        Op::Load { size, signed, dst, from } => {
            let value = memory.load(machine.address(from), size);
            machine.set(dst, if signed { extend(value, size.bytes() as u8 * 8) } else { value });
        }
        Op::Store { size, to, src } => {
            memory.store(machine.address(to), size, machine.operand(src))
        }
        Op::Atomic { op, fetch, wide, at, src } => {
            let (address, size) = (machine.address(at), if wide { Size::B8 } else { Size::B4 });
            let (old, value) = (memory.load(address, size), machine.get(src));
            let new = match op {
                AtomicOp::Add => old.wrapping_add(value),
                AtomicOp::Or => old | value,
                AtomicOp::And => old & value,
                AtomicOp::Xor => old ^ value,
                AtomicOp::Exchange => value,
                AtomicOp::CompareExchange => {
                    let expected = machine.get(Reg::R0);
                    let equal = if wide { expected == old } else { expected as u32 == old as u32 };
                    machine.set(Reg::R0, old);
                    if equal { value } else { old }
                }
            };
            memory.store(address, size, new);
            if fetch && op != AtomicOp::CompareExchange {
                machine.set(src, old);
            }
        }
        Op::LoadWide { .. }
        | Op::WideTail
        | Op::Jump { .. }
        | Op::Branch { .. }
        | Op::Helper { .. }
        | Op::Call { .. }
        | Op::Exit => {
            unreachable!("`steps` handles these operations, and execution never reaches a tail")
        }
    }
}

/// Executes an arithmetic instruction on two numbers of type `$unsigned`. For signed instructions,
/// the numbers are converted to `$signed`.
macro_rules! alu {
    ($op:expr, $left:expr, $right:expr, $unsigned:ty, $signed:ty) => {{
        let (left, right): ($unsigned, $unsigned) = ($left, $right);
        // RFC 9669 s.4.1: a division by zero gives 0, and a modulo by zero gives the dividend. A
        // shift uses only the lowest bits of its amount.
        match $op {
            AluOp::Add => left.wrapping_add(right),
            AluOp::Sub => left.wrapping_sub(right),
            AluOp::Mul => left.wrapping_mul(right),
            AluOp::Div => left.checked_div(right).unwrap_or(0),
            AluOp::Mod => left.checked_rem(right).unwrap_or(left),
            AluOp::SignedDiv if right == 0 => 0,
            AluOp::SignedDiv => (left as $signed).wrapping_div(right as $signed) as $unsigned,
            AluOp::SignedMod if right == 0 => left,
            AluOp::SignedMod => (left as $signed).wrapping_rem(right as $signed) as $unsigned,
            AluOp::Or => left | right,
            AluOp::And => left & right,
            AluOp::Xor => left ^ right,
            AluOp::Mov => right,
            AluOp::Lsh => left.wrapping_shl(right as u32),
            AluOp::Rsh => left.wrapping_shr(right as u32),
            AluOp::Arsh => (left as $signed).wrapping_shr(right as u32) as $unsigned,
        }
    }};
}

pub(crate) fn alu64(op: AluOp, left: u64, right: u64) -> u64 {
    alu!(op, left, right, u64, i64)
}

/// Executes an arithmetic instruction on the lower halves of two registers. The upper half of the
/// result is zero.
pub(crate) fn alu32(op: AluOp, left: u64, right: u64) -> u64 {
    u64::from(alu!(op, left as u32, right as u32, u32, i32))
}

/// Sign-extends the lowest `bits` of `value` to 64 bits.
fn extend(value: u64, bits: u8) -> u64 {
    let unused = 64 - u32::from(bits);
    ((value << unused) as i64 >> unused) as u64
}

/// Swaps bytes as RFC 9669 s.4.2 requires. The program's loads and stores are little endian on
/// every host.
fn swapped(swap: Swap, bits: u8, value: u64) -> u64 {
    let swaps = swap != Swap::Little;
    match bits {
        16 if swaps => u64::from((value as u16).swap_bytes()),
        16 => u64::from(value as u16),
        32 if swaps => u64::from((value as u32).swap_bytes()),
        32 => u64::from(value as u32),
        _ if swaps => value.swap_bytes(),
        _ => value,
    }
}

fn holds(condition: Condition, wide: bool, left: u64, right: u64) -> bool {
    let (left, right, signed_left, signed_right) = if wide {
        (left, right, left as i64, right as i64)
    } else {
        let (left, right) = (left as u32, right as u32);
        (u64::from(left), u64::from(right), i64::from(left as i32), i64::from(right as i32))
    };
    match condition {
        Condition::Equal => left == right,
        Condition::NotEqual => left != right,
        Condition::Greater => left > right,
        Condition::GreaterEqual => left >= right,
        Condition::Less => left < right,
        Condition::LessEqual => left <= right,
        Condition::Set => left & right != 0,
        Condition::SignedGreater => signed_left > signed_right,
        Condition::SignedGreaterEqual => signed_left >= signed_right,
        Condition::SignedLess => signed_left < signed_right,
        Condition::SignedLessEqual => signed_left <= signed_right,
    }
}
