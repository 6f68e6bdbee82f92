//! The machine-independent part of the compiler: order of the code, jumps and calls within it, and
//! charges.

use std::collections::BTreeSet;

use super::enter::State;
use crate::check::{Checked, Function};
use crate::op::{Condition, Op, Operand, Place, Reg};

/// Compiled code of a program.
pub(super) struct Output {
    pub(super) bytes: Vec<u8>,
    /// Offset of the entry code of each function, in the order of the request. It is a function of
    /// type `enter::Glue`.
    pub(super) entries: Vec<usize>,
}

/// Position of a jump or call instruction's end. Its target can still be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Patch(pub(super) usize);

/// Code generator for one machine. Targets and positions are offsets in the code.
pub(super) trait Backend {
    /// Condition that a comparison sets for the branch right after the comparison.
    type Condition: Copy;

    /// Creates a code generator for a sandbox of `memory` bytes, and a program with this number of
    /// operations and these registers.
    fn new(memory: usize, operations: usize, registers: u16) -> Self;

    /// Writes the code that ends a call early, because of the budget or because of a helper. The
    /// compiler calls this function first.
    fn glue(&mut self);

    /// Writes code that enters the function at `target`. That function and its callees use only
    /// `registers`. The code is a function of type `enter::Glue`.
    fn entry(&mut self, target: usize, registers: u16);

    /// Pads the code to an alignment that is fetched fast. Execution never reaches the padding.
    fn align(&mut self);

    /// Writes code that enters the function whose code follows, like `entry`. Returns the offset of
    /// the entry code. No other function of the program calls that function.
    fn begin_entry(&mut self, registers: u16) -> usize;

    /// Writes the exit of a function that began with `begin_entry`.
    fn leave_entry(&mut self, registers: u16);

    /// Offset of the next instruction in the code, in bytes.
    fn here(&self) -> usize;

    /// Ensures that the buffer has room for another operation, entry or end.
    fn make_room(&mut self);

    fn finish(self) -> Vec<u8>;

    fn patch(&mut self, patch: Patch, target: usize);

    /// Takes `cost`, which is not 0, from the budget. The returned jump is taken if the budget is
    /// too small.
    fn charge(&mut self, cost: u32) -> Patch;

    /// Ends the call, because instruction `at` used up the budget.
    fn out_of_budget(&mut self, at: u32);

    fn jump(&mut self, target: usize) -> Patch;

    fn compare(
        &mut self,
        condition: Condition,
        wide: bool,
        left: Reg,
        right: Operand,
    ) -> Self::Condition;

    /// Jumps forward if the condition is true. The target is not known yet.
    fn branch(&mut self, condition: Self::Condition) -> Patch;

    /// Jumps back if the condition is true and the budget has at least `cost`.
    fn branch_back(&mut self, condition: Self::Condition, cost: u32, at: u32, target: usize);

    /// Calls a function of the program, and preserves r6 to r10.
    fn call(&mut self, target: usize) -> Patch;

    /// Calls the shim of a helper, of type `enter::Shim`. `call` is the value for `State::call`.
    fn helper(&mut self, call: u32, shim: usize);

    fn exit(&mut self);

    /// Compiles all other operations, which continue with the next one.
    fn straight(&mut self, op: Op);
}

/// A helper, as used by compiled code.
#[derive(Clone, Copy, Debug)]
pub(super) struct Helper {
    pub(super) cost: u32,
    /// Address of its `enter::Shim`.
    pub(super) shim: usize,
}

/// Compiles a checked program for a sandbox of `memory` bytes. `helper` returns a helper by its
/// index.
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
    /// Offset of the code of each BPF instruction, in bytes.
    offsets: Vec<u32>,
    /// Forward jumps and calls, with their target instructions.
    jumps: Vec<(Patch, u32)>,
    /// Functions with direct entries: the first instruction, and the offset of the entry code.
    direct: Vec<(u32, usize)>,
    /// Jumps that are taken if the budget is used up, each with the instruction that uses it up.
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
            // `direct` is in the order of the code, like the functions.
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

    /// Returns the offset of an instruction's code, or `None` if it is not written yet.
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

/// Returns the offset of an access from the frame pointer, or `None` if the access needs a mask. No
/// mask is needed within the function's own frame and the frames below it. This is safe because the
/// program can only read the frame pointer, which is at least STACK minus the active frames above
/// the start of the sandbox.
pub(super) fn frame_offset(place: Place, bytes: usize) -> Option<i32> {
    use crate::check::MAX_CALL_DEPTH;
    use crate::memory::STACK_FRAME;

    const BELOW: i32 = -((STACK_FRAME * MAX_CALL_DEPTH) as i32);
    let offset = i32::from(place.offset);
    (place.base == Reg::FRAME && (BELOW..=-(bytes as i32)).contains(&offset)).then_some(offset)
}
