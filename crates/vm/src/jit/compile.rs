//! The machine-independent part of the compiler. It decides on the order of the code, resolves
//! jumps and calls, and adds the code that charges the budget.

use std::collections::BTreeSet;

use super::enter::State;
use crate::check::{Checked, Function};
use crate::op::{Condition, Op, Operand, Place, Reg};

/// Compiled code of a program.
pub(super) struct Output {
    pub(super) bytes: Vec<u8>,
    /// Offset of the entry code of each requested function, in the order of the request. The entry
    /// code is a function of type `enter::Glue`.
    pub(super) entries: Vec<usize>,
}

/// Position right after a jump or call instruction whose target can still be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Patch(pub(super) usize);

/// Writes code for one kind of machine. Targets and positions are offsets in the code.
pub(super) trait Backend {
    /// Result of a comparison, which the branch right after the comparison tests.
    type Condition: Copy;

    /// Creates a code generator for a sandbox of `memory` bytes. The program has this number of
    /// instructions, and uses the registers in the bit set `registers`.
    fn new(memory: usize, operations: usize, registers: u16) -> Self;

    /// Writes the code that ends a call early, because the budget is used up or because a helper
    /// failed. The compiler calls this function first.
    fn glue(&mut self);

    /// Writes code with which the host enters the function at `target`. That function and the
    /// functions that it calls use only `registers`. The code is a function of type `enter::Glue`.
    fn entry(&mut self, target: usize, registers: u16);

    /// Pads the code to an alignment that makes instruction fetches fast. The padding is never
    /// executed.
    fn align(&mut self);

    /// Writes code with which the host enters the function whose code is written next. Returns the
    /// offset of the entry code. No other function of the program may call that function. For
    /// `registers`, see `entry`.
    fn begin_entry(&mut self, registers: u16) -> usize;

    /// Writes the return to the host from a function that began with `begin_entry`.
    fn leave_entry(&mut self, registers: u16);

    /// Offset of the next machine instruction in the code, in bytes.
    fn here(&self) -> usize;

    /// Ensures that the buffer has room for the code of one more instruction, entry or function
    /// end.
    fn make_room(&mut self);

    fn finish(self) -> Vec<u8>;

    fn patch(&mut self, patch: Patch, target: usize);

    /// Writes code that takes `cost` from the budget. `cost` is not 0. The returned jump is taken
    /// if the budget is too small.
    fn charge(&mut self, cost: u32) -> Patch;

    /// Writes code that ends the call, because the budget does not suffice for instruction `at`.
    fn out_of_budget(&mut self, at: u32);

    fn jump(&mut self, target: usize) -> Patch;

    fn compare(
        &mut self,
        condition: Condition,
        wide: bool,
        left: Reg,
        right: Operand,
    ) -> Self::Condition;

    /// Writes a forward jump that is taken if the condition is true. Its target is set later.
    fn branch(&mut self, condition: Self::Condition) -> Patch;

    /// Writes a backward jump that is taken if the condition is true, and that takes `cost` from
    /// the budget. If the budget is too small, instruction `at` ends the call.
    fn branch_back(&mut self, condition: Self::Condition, cost: u32, at: u32, target: usize);

    /// Writes a call of a function of the program, which preserves r6 to r10.
    fn call(&mut self, target: usize) -> Patch;

    /// Writes a call of a helper's shim, a function of type `enter::Shim`. `call` is the value for
    /// `State::call`.
    fn helper(&mut self, call: u32, shim: usize);

    fn exit(&mut self);

    /// Compiles every other kind of instruction. After these, execution continues with the next
    /// instruction.
    fn straight(&mut self, op: Op);
}

/// The data of a helper that compiled code contains.
#[derive(Clone, Copy, Debug)]
pub(super) struct Helper {
    pub(super) cost: u32,
    /// Address of the helper's `enter::Shim`.
    pub(super) shim: usize,
}

/// Compiles a checked program for a sandbox of `memory` bytes. `helper` returns the helper with a
/// given index in the table.
pub(super) fn compile<B: Backend>(
    checked: &Checked,
    entries: &[Function],
    memory: usize,
    helper: impl Fn(u32) -> Helper,
) -> Output {
    let mut backend = B::new(memory, checked.ops.len(), checked.registers);
    backend.glue();
    let mut compiler = Compiler {
        checked,
        backend,
        offsets: Vec::with_capacity(checked.ops.len()),
        jumps: Vec::new(),
        overdrawn: Vec::new(),
        direct: Vec::new(),
    };
    let called: BTreeSet<u32> = checked.ops.iter().filter_map(Op::callee).collect();
    let entered: BTreeSet<u32> = entries.iter().map(|function| function.start).collect();
    for function in &checked.functions {
        compiler.backend.make_room();
        compiler.backend.align();
        let direct = entered.contains(&function.start) && !called.contains(&function.start);
        if direct {
            let begins = compiler.backend.begin_entry(function.registers);
            compiler.direct.push((function.start, begins));
        }
        let range = function.start as usize..function.end as usize;
        for (at, op) in range.clone().zip(&checked.ops[range]) {
            compiler.backend.make_room();
            compiler.offsets.push(compiler.backend.here() as u32);
            match op {
                Op::Exit if direct => compiler.backend.leave_entry(function.registers),
                op => compiler.operation(at, *op, &helper),
            }
        }
    }
    compiler.finish(entries)
}

struct Compiler<'c, B> {
    checked: &'c Checked,
    backend: B,
    /// Offset in the code of each instruction of the program, in bytes.
    offsets: Vec<u32>,
    /// Forward jumps and calls whose targets are not set yet, with the index of the target
    /// instruction.
    jumps: Vec<(Patch, u32)>,
    /// Functions that the host enters without a call instruction: the index of the first
    /// instruction, and the offset of the entry code.
    direct: Vec<(u32, usize)>,
    /// Jumps that are taken if the budget is used up, each with the index of the instruction that
    /// needs more budget.
    overdrawn: Vec<(Patch, u32)>,
}

impl<B: Backend> Compiler<'_, B> {
    fn finish(self, entries: &[Function]) -> Output {
        let Compiler { mut backend, offsets, jumps, overdrawn, direct, .. } = self;
        for (patch, target) in jumps {
            backend.patch(patch, offsets[target as usize] as usize);
        }
        for (patch, at) in overdrawn {
            backend.make_room();
            let here = backend.here();
            backend.patch(patch, here);
            backend.out_of_budget(at);
        }
        let entry = |function: &Function| {
            // `direct` is ordered by the first instruction, like the functions.
            if let Ok(at) = direct.binary_search_by_key(&function.start, |(start, _)| *start) {
                return direct[at].1;
            }
            backend.make_room();
            let here = backend.here();
            backend.entry(offsets[function.start as usize] as usize, function.registers);
            here
        };
        let entries = entries.iter().map(entry).collect();
        Output { bytes: backend.finish(), entries }
    }

    /// Returns the offset of an instruction's code, or `None` if the code is not written yet.
    fn written(&self, target: u32) -> Option<usize> {
        self.offsets.get(target as usize).map(|offset| *offset as usize)
    }

    #[inline(always)]
    fn operation(&mut self, at: usize, op: Op, helpers: &impl Fn(u32) -> Helper) {
        match op {
            Op::Jump { target } => {
                self.charge(at, self.checked.jump_cost(at, target));
                let written = self.written(target);
                let patch = self.backend.jump(written.unwrap_or(0));
                if written.is_none() {
                    self.jumps.push((patch, target));
                }
            }
            Op::Branch { condition, wide, left, right, target } => {
                let condition = self.backend.compare(condition, wide, left, right);
                match self.written(target) {
                    Some(offset) => {
                        let cost = self.checked.jump_cost(at, target);
                        self.backend.branch_back(condition, cost, at as u32, offset);
                    }
                    None => {
                        let patch = self.backend.branch(condition);
                        self.jumps.push((patch, target));
                    }
                }
            }
            Op::Helper { helper } => {
                let Helper { cost, shim } = helpers(helper);
                self.charge(at, cost);
                self.backend.helper(State::call(at, helper), shim);
            }
            Op::Call { target, cost } => {
                self.charge(at, cost);
                let written = self.written(target);
                let patch = self.backend.call(written.unwrap_or(0));
                if written.is_none() {
                    self.jumps.push((patch, target));
                }
            }
            Op::Exit => self.backend.exit(),
            Op::WideTail => {}
            op => self.backend.straight(op),
        }
    }

    /// Writes code that takes `cost` from the budget before instruction `at`.
    fn charge(&mut self, at: usize, cost: u32) {
        if cost > 0 {
            let patch = self.backend.charge(cost);
            self.overdrawn.push((patch, at as u32));
        }
    }
}

/// Returns the offset of an access from the frame pointer if the access needs no mask, otherwise
/// `None`. No mask is needed for an access within the function's own stack frame or the frames
/// below it. These accesses stay inside the sandbox: the program cannot change the frame pointer,
/// and the stack has room for the frames of all functions on the call stack.
pub(super) fn frame_offset(place: Place, bytes: usize) -> Option<i32> {
    use crate::check::MAX_CALL_DEPTH;
    use crate::memory::STACK_FRAME;

    const BELOW: i32 = -((STACK_FRAME * MAX_CALL_DEPTH) as i32);
    let offset = i32::from(place.offset);
    (place.base == Reg::FRAME && (BELOW..=-(bytes as i32)).contains(&offset)).then_some(offset)
}
