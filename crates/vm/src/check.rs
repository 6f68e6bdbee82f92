//! The structural check of a program before it may run: one pass over the instructions, and one
//! over the calls between functions. It proves the properties on which the compilers and the
//! interpreter rely. It proves nothing about memory accesses and termination: address masks and the
//! budget enforce these at run time.

use std::collections::BTreeSet;

use thiserror::Error;

use crate::decode::decode;
use crate::op::{AluOp, Op, Operand, Reg};

/// Maximum number of functions on the call stack, including the entry.
pub const MAX_CALL_DEPTH: usize = 8;
/// Maximum number of instructions of a program. LDDW counts as two. An instruction's index fits
/// into 16 bits.
pub const MAX_INSTRUCTIONS: usize = 1 << 16;

/// Error of the structural check: which instruction is wrong, what is wrong with it, and how to fix
/// it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("instruction {at}: {wrong}")]
pub struct CheckError {
    /// Index of the instruction in the program. LDDW counts as two.
    pub at: usize,
    /// Reason for the rejection.
    pub wrong: Wrong,
}

/// Reason for rejecting an instruction.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Wrong {
    /// The program is empty.
    #[error("the program is empty: it needs at least the instruction `exit`")]
    Empty,
    /// The program has more instructions than [`MAX_INSTRUCTIONS`].
    #[error("{0} instructions exceed the limit of {MAX_INSTRUCTIONS}: split the program")]
    TooLong(usize),
    /// The length is not a multiple of eight bytes.
    #[error("{0} bytes are not a whole number of instructions of 8 bytes")]
    Ragged(usize),
    /// RFC 9669 does not define this opcode.
    #[error("opcode {0:#04x} is not in RFC 9669: compile with -mcpu=v3 or -mcpu=v4")]
    Opcode(u8),
    /// The program uses LD_ABS or LD_IND, the packet accesses of classic BPF.
    #[error("LD_ABS and LD_IND are not supported: read through a helper")]
    PacketAccess,
    /// The program uses a register above `r10`.
    #[error("register r{0} does not exist: use r0 to r10")]
    Register(u8),
    /// A reserved field is not zero.
    #[error("field `{0}` must be zero in this instruction")]
    Reserved(&'static str),
    /// The instruction writes to `r10`.
    #[error("r10, the frame pointer, is read-only: use another register")]
    WritesFrame,
    /// A byte swap has a width other than 16, 32 or 64 bits.
    #[error("a byte swap of {0} bits does not exist: use 16, 32 or 64")]
    SwapWidth(i32),
    /// RFC 9669 does not define this atomic operation.
    #[error("atomic operation {0:#x} is not in RFC 9669")]
    Atomic(i32),
    /// The program ends inside an LDDW.
    #[error("LDDW takes two instruction slots, but the program ends after the first")]
    HalfWide,
    /// An LDDW refers to a map or a variable by number.
    #[error("LDDW of kind {0} (maps, variables by number) is not supported: use global variables")]
    WideKind(u8),
    /// A call refers to a helper by its BTF ID.
    #[error(
        "a call of kind {0} is not supported: call helpers by number, and functions by relative offset"
    )]
    CallKind(u8),
    /// The program calls a function whose address is in a register.
    #[error("calls through a register are not supported: call functions by name")]
    IndirectCall,
    /// The host has registered no helper with this number.
    #[error("helper {0} does not exist: the host has not registered this number")]
    UnknownHelper(u32),
    /// The target of a jump or a call is outside of the program.
    #[error("the jump or call target {0} is outside of the program")]
    Target(i64),
    /// The target of a jump is in another function.
    #[error("the target {target} is outside of the function, which is {start} to {end}")]
    OutOfFunction {
        /// Index of the target instruction.
        target: u32,
        /// Index of the first instruction of the function that contains the jump.
        start: u32,
        /// Index of the instruction after the end of the function that contains the jump.
        end: u32,
    },
    /// The target of a jump or a call is the second half of an LDDW.
    #[error("the jump or call target {0} is the second half of an LDDW")]
    IntoWide(u32),
    /// Execution can run past the end of a function.
    #[error("execution can run past the end of the function: end it with `exit` or a jump")]
    RunsOff,
    /// A function can call itself, directly or through other functions.
    #[error("this call can lead back to its own function: recursion is not supported, use a loop")]
    Recursion,
    /// The call stack can have more functions than [`MAX_CALL_DEPTH`].
    #[error(
        "function calls nest {0} deep, and the limit is {MAX_CALL_DEPTH}: inline some functions"
    )]
    TooDeep(usize),
}

impl Wrong {
    pub(crate) fn at(self, at: usize) -> CheckError {
        CheckError { at, wrong: self }
    }
}

/// A function: the instructions from index `start` up to, but not including, index `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Function {
    pub(crate) start: u32,
    pub(crate) end: u32,
    /// Bit set of the registers that the function and all functions that it calls use.
    pub(crate) registers: u16,
}

/// A program that has passed the structural check.
#[derive(Debug)]
pub(crate) struct Checked {
    pub(crate) ops: Vec<Op>,
    /// Entry `i` is the sum of the charges for all instructions before index `i`. It has one entry
    /// more than `ops`.
    costs: Vec<u32>,
    /// Entry `i` is true if a function begins at instruction `i`. It has as many entries as `ops`.
    begins: Vec<bool>,
    /// All functions, ordered by `start`. The first one starts at 0, and each other one starts at
    /// the end of the previous one.
    pub(crate) functions: Vec<Function>,
    /// Bit set of the registers that the program uses.
    pub(crate) registers: u16,
}

impl Checked {
    /// Returns the function that begins at instruction `start`. The check must have found a
    /// function there.
    pub(crate) fn function_at(&self, start: u32) -> Function {
        let after = self.functions.partition_point(|function| function.start <= start);
        self.functions[after - 1]
    }

    /// Returns all calls of helpers in the function that begins at instruction `start`, and in all
    /// functions that it calls. For each call, returns the index of the helper in the table. Also
    /// returns the call's first argument, if the instructions right before the call show that it is
    /// a constant.
    pub(crate) fn helper_calls_from(&self, start: u32) -> Vec<(u32, Option<u64>)> {
        let (mut seen, mut calls, mut open) = (BTreeSet::new(), Vec::new(), vec![start]);
        while let Some(start) = open.pop() {
            if !seen.insert(start) {
                continue;
            }
            let Function { start, end, .. } = self.function_at(start);
            let ops = &self.ops[start as usize..end as usize];
            let targets: BTreeSet<u32> = ops.iter().filter_map(Op::jump).collect();
            let mut first = None;
            for (at, op) in (start..).zip(ops) {
                if targets.contains(&at) {
                    first = None;
                }
                match *op {
                    Op::Helper { helper } => {
                        calls.push((helper, first));
                        first = None;
                    }
                    Op::Call { target, .. } => {
                        open.push(target);
                        first = None;
                    }
                    _ if op.writes().is_some_and(|register| register.index() == 1) => {
                        first = constant(op);
                    }
                    _ => {}
                }
            }
        }
        calls
    }

    /// Returns the charge for entering a function: the sum over all its instructions.
    pub(crate) fn cost(&self, function: Function) -> u32 {
        cost(&self.costs, function.start, function.end)
    }

    /// Returns the charge for a jump from instruction `at` to `target`. A forward jump is free. A
    /// backward jump costs the sum over the instructions from `target` to `at`. Between two
    /// backward jumps, execution only moves forward, at most to the end of the function. Therefore
    /// the charges for backward jumps and for entered functions are an upper bound of the number of
    /// executed instructions.
    pub(crate) fn jump_cost(&self, at: usize, target: u32) -> u32 {
        if target as usize > at { 0 } else { cost(&self.costs, target, at as u32 + 1) }
    }

    /// Memory of the program in bytes.
    pub(crate) fn size(&self) -> usize {
        size_of_val(self.ops.as_slice())
            + size_of_val(self.costs.as_slice())
            + self.begins.len()
            + size_of_val(self.functions.as_slice())
    }

    /// Returns the table indices of the helpers that the function that begins at instruction
    /// `start` calls, directly or through other functions. Jumps stay within a function, so the
    /// program cannot reach any other helper call from there.
    pub(crate) fn helpers_from(&self, start: u32) -> BTreeSet<u32> {
        let mut seen = vec![false; self.ops.len()];
        let (mut places, mut open) = (BTreeSet::new(), vec![start]);
        seen[start as usize] = true;
        while let Some(start) = open.pop() {
            let rest = start as usize + 1..;
            let end = rest.into_iter().find(|at| self.begins.get(*at).is_none_or(|begins| *begins));
            for op in &self.ops[start as usize..end.unwrap_or(self.ops.len())] {
                match *op {
                    Op::Helper { helper } => _ = places.insert(helper),
                    Op::Call { target, .. } if !seen[target as usize] => {
                        seen[target as usize] = true;
                        open.push(target);
                    }
                    _ => {}
                }
            }
        }
        places
    }
}

/// Returns the constant that an instruction writes to its register, or `None` if the instruction
/// does not write a constant.
fn constant(op: &Op) -> Option<u64> {
    match *op {
        Op::LoadWide { value, .. } => Some(value),
        Op::Alu { op: AluOp::Mov, wide, src: Operand::Imm(value), .. } => {
            Some(if wide { i64::from(value) as u64 } else { u64::from(value as u32) })
        }
        _ => None,
    }
}

/// Returns the charge for the instructions from index `start` up to, but not including, `end`.
fn cost(costs: &[u32], start: u32, end: u32) -> u32 {
    costs[end as usize] - costs[start as usize]
}

/// Checks the program `code`. Functions begin at instruction 0, at each of `starts`, and at each
/// target of a call. `helper` converts a helper's number to its index in the table of helpers.
pub(crate) fn check(
    code: &[u8],
    starts: &[u32],
    helper: impl Fn(u32) -> Option<u32>,
) -> Result<Checked, CheckError> {
    let slots = code.len() / 8;
    if code.is_empty() {
        return Err(Wrong::Empty.at(0));
    }
    if slots > MAX_INSTRUCTIONS {
        return Err(Wrong::TooLong(slots).at(MAX_INSTRUCTIONS));
    }
    let mut ops = decode(code)?;
    let begins = split(&ops, starts)?;
    let mut functions = functions(&begins);
    let mut costs = Vec::with_capacity(ops.len() + 1);
    costs.push(0);
    costs.extend(ops.iter().scan(0, |sum: &mut u32, op| {
        *sum += op.weight();
        Some(*sum)
    }));
    for function in &functions {
        within(&mut ops, *function, &functions, &costs, &helper)?;
    }
    let (slots, _) = code.as_chunks::<8>();
    let named = |slot: &[u8; 8]| 1 << (slot[1] & 0xf) | 1 << (slot[1] >> 4);
    let all_of = |slots: &[[u8; 8]]| slots.iter().fold(0, |all, slot| all | named(slot));
    let mut registers = 0;
    for function in &mut functions {
        function.registers = all_of(&slots[function.start as usize..function.end as usize]);
        registers |= function.registers;
    }
    for function in &mut functions {
        let mut ops = ops[function.start as usize..function.end as usize].iter();
        // A called function may use any register that the program uses.
        if ops.any(|op| matches!(op, Op::Call { .. })) {
            function.registers = registers;
        }
    }
    let checked = Checked { ops, costs, begins, functions, registers };
    depth(&checked)?;
    Ok(checked)
}

/// Splits the program into functions. The result has an entry for each instruction, which is true
/// if a function begins there.
fn split(ops: &[Op], starts: &[u32]) -> Result<Vec<bool>, CheckError> {
    let mut begins = vec![false; ops.len()];
    begins[0] = true;
    let calls = ops.iter().enumerate().filter_map(|(at, op)| match *op {
        Op::Call { target, .. } => Some((at, target)),
        _ => None,
    });
    for (at, start) in starts.iter().map(|start| (*start as usize, *start)).chain(calls) {
        match ops.get(start as usize) {
            None => return Err(Wrong::Target(i64::from(start)).at(at)),
            Some(Op::WideTail) => return Err(Wrong::IntoWide(start).at(at)),
            Some(_) => begins[start as usize] = true,
        }
    }
    Ok(begins)
}

fn functions(begins: &[bool]) -> Vec<Function> {
    let mut functions: Vec<Function> = Vec::new();
    for (at, _) in begins.iter().enumerate().filter(|(_, begins)| **begins) {
        if let Some(last) = functions.last_mut() {
            last.end = at as u32;
        }
        functions.push(Function { start: at as u32, end: begins.len() as u32, registers: 0 });
    }
    functions
}

/// Checks each instruction of one function.
fn within(
    ops: &mut [Op],
    function: Function,
    functions: &[Function],
    costs: &[u32],
    helper: &impl Fn(u32) -> Option<u32>,
) -> Result<(), CheckError> {
    let Function { start, end, .. } = function;
    for at in start as usize..end as usize {
        let wrong = |wrong: Wrong| Err(wrong.at(at));
        if ops[at].writes() == Some(Reg::FRAME) {
            return wrong(Wrong::WritesFrame);
        }
        if let Some(target) = ops[at].jump() {
            if target as usize >= ops.len() {
                return wrong(Wrong::Target(i64::from(target)));
            }
            if !(start..end).contains(&target) {
                return wrong(Wrong::OutOfFunction { target, start, end });
            }
            if ops[target as usize] == Op::WideTail {
                return wrong(Wrong::IntoWide(target));
            }
        }
        match &mut ops[at] {
            Op::Helper { helper: number } => match helper(*number) {
                Some(place) => *number = place,
                None => return wrong(Wrong::UnknownHelper(*number)),
            },
            Op::Call { target, cost: charge } => {
                // `split` has already made the target of this call the start of a function.
                if let Ok(to) = functions.binary_search_by_key(target, |function| function.start) {
                    *charge = cost(costs, functions[to].start, functions[to].end);
                }
            }
            _ => {}
        }
    }
    let last = end as usize - 1;
    match ops[last] {
        Op::Exit | Op::Jump { .. } => Ok(()),
        _ => Err(Wrong::RunsOff.at(last)),
    }
}

/// Checks that no function can call itself, and that the call stack never exceeds
/// [`MAX_CALL_DEPTH`]. Repeatedly removes functions that call no remaining function. If some
/// functions cannot be removed, they include a cycle of calls.
fn depth(checked: &Checked) -> Result<(), CheckError> {
    let index = |at: u32| checked.functions.partition_point(|function| function.start <= at) - 1;
    let mut calls: Vec<(usize, usize, usize)> = Vec::new();
    let mut callees = vec![0_usize; checked.functions.len()];
    for (at, op) in checked.ops.iter().enumerate() {
        if let Op::Call { target, .. } = *op {
            let caller = index(at as u32);
            calls.push((index(target), caller, at));
            callees[caller] += 1;
        }
    }
    calls.sort_unstable();
    let mut height = vec![1_usize; checked.functions.len()];
    let mut ready: Vec<usize> = (0..callees.len()).filter(|f| callees[*f] == 0).collect();
    while let Some(callee) = ready.pop() {
        let from = calls.partition_point(|call| call.0 < callee);
        for &(_, caller, at) in calls[from..].iter().take_while(|call| call.0 == callee) {
            height[caller] = height[caller].max(height[callee] + 1);
            if height[caller] > MAX_CALL_DEPTH {
                return Err(Wrong::TooDeep(height[caller]).at(at));
            }
            callees[caller] -= 1;
            if callees[caller] == 0 {
                ready.push(caller);
            }
        }
    }
    let Some(mut function) = callees.iter().position(|left| *left > 0) else { return Ok(()) };
    // Each remaining function calls another remaining function. So following these calls leads into
    // the cycle.
    let mut next = vec![(0, 0); callees.len()];
    for &(callee, caller, at) in calls.iter().filter(|call| callees[call.0] > 0) {
        next[caller] = (callee, at);
    }
    let mut seen = vec![false; callees.len()];
    while !seen[function] {
        seen[function] = true;
        function = next[function].0;
    }
    Err(Wrong::Recursion.at(next[function].1))
}
