//! Compiling, as far as it is the same on every machine: the order of the code, jumps and calls within it, and what is
//! charged.

use std::collections::BTreeSet;

use super::enter::State;
use crate::check::{Checked, Function};
use crate::op::{Condition, Op, Operand, Place, Reg};

/// Code of a program.
pub(super) struct Output {
    pub(super) bytes: Vec<u8>,
    /// Offsets at which the code to enter each function begins, in the order in which they were asked for. It is a
    /// function of type `enter::Glue`.
    pub(super) entries: Vec<usize>,
}

/// A jump or call that is written, and whose target can still be changed: where its instruction ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Patch(pub(super) usize);

/// Code generation for one machine. Targets and places are offsets in the code.
pub(super) trait Backend {
    /// Condition that a compare leaves for the branch right after it.
    type Condition: Copy;

    /// For a sandbox of `memory` bytes and a program of so many operations, which names these registers.
    fn new(memory: usize, operations: usize, registers: u16) -> Self;

    /// Writes the code that the program's code jumps to at the end of a call that has no budget left, or that a helper ends. It is
    /// written first.
    fn glue(&mut self);

    /// Code that enters the function at `target`, which names these registers and calls none that names others: a
    /// function of type `enter::Glue`.
    fn entry(&mut self, target: usize, registers: u16);

    /// Pads the code, so that a function begins where it is fetched fast. Nothing runs into the padding.
    fn align(&mut self);

    /// Code that enters the function that is written right after it, as `entry` does, and where that code begins. Such a
    /// function is called by no other.
    fn begin_entry(&mut self, registers: u16) -> usize;

    /// The exit of a function that began with `begin_entry`.
    fn leave_entry(&mut self, registers: u16);

    /// Offset of the next instruction in the code, in bytes.
    fn here(&self) -> usize;

    /// Makes room for one more operation, entry or end.
    fn make_room(&mut self);

    fn finish(self) -> Vec<u8>;

    fn patch(&mut self, patch: Patch, target: usize);

    /// Takes `cost`, which is not 0, from the budget, and jumps if that is too much.
    fn charge(&mut self, cost: u32) -> Patch;

    /// Ends the call: the budget is used up by the instruction `at`.
    fn out_of_budget(&mut self, at: u32);

    fn jump(&mut self, target: usize) -> Patch;

    fn compare(
        &mut self,
        condition: Condition,
        wide: bool,
        left: Reg,
        right: Operand,
    ) -> Self::Condition;

    /// Jumps forwards, to a target that is not known yet, if the condition holds.
    fn branch(&mut self, condition: Self::Condition) -> Patch;

    /// Jumps back if the condition holds and the budget has `cost`.
    fn branch_back(&mut self, condition: Self::Condition, cost: u32, at: u32, target: usize);

    /// Calls a function of the program, which keeps r6 to r10.
    fn call(&mut self, target: usize) -> Patch;

    /// Calls a helper's shim, of type `enter::Shim`, with what `State::call` says of the call.
    fn helper(&mut self, call: u32, shim: usize);

    fn exit(&mut self);

    /// The other operations: they go to the next one.
    fn straight(&mut self, op: Op);
}

/// A helper, as compiled code knows it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Helper {
    pub(super) cost: u32,
    /// Address of its `enter::Shim`.
    pub(super) shim: usize,
}

/// Compiles a program that was checked, for a sandbox of `memory` bytes; `helper` finds one by its place.
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
    /// Offset of each BPF instruction's code, in bytes.
    offsets: Vec<u32>,
    /// Jumps and calls forwards, and the instruction they go to.
    jumps: Vec<(Patch, u32)>,
    /// Functions that are entered directly, by their first instruction, and where the code for that begins.
    direct: Vec<(u32, usize)>,
    /// Jumps for a budget that is used up, and the instruction that did it.
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
            // In the order of their code, as functions are.
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

    /// Offset of an instruction's code, if it is written.
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

    /// Takes `cost` from the budget.
    fn charge(&mut self, at: usize, cost: u32) {
        if cost > 0 {
            let patch = self.backend.charge(cost);
            self.overdrawn.push((patch, at as u32));
        }
    }
}

/// Offset of an access from the frame pointer, if it needs no mask: within the function's own frame and those
/// below it. The frame pointer is the program's to read only, and at least STACK above the sandbox's
/// beginning, less the frames of the functions that are active.
pub(super) fn frame_offset(place: Place, bytes: usize) -> Option<i32> {
    use crate::check::MAX_CALL_DEPTH;
    use crate::memory::STACK_FRAME;

    const BELOW: i32 = -((STACK_FRAME * MAX_CALL_DEPTH) as i32);
    let offset = i32::from(place.offset);
    (place.base == Reg::FRAME && (BELOW..=-(bytes as i32)).contains(&offset)).then_some(offset)
}
